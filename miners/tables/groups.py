# SPDX-License-Identifier: Apache-2.0
"""``quantiles``, ``variance``, ``std``, ``grouped``, ``summary``: statistics by group; ``correlation`` of columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np
import pandas as pd

from miners.budget.plan import require_budget, spread
from miners.linear.moments import ROOT, Coordinates, NoisyMoments, Norm, asked_columns, product_line, scale_line
from miners.tables.columns import Columns, is_categorical, require_level, specs_of
from miners.tables.quantile_search import Median, Quantile, Quartiles, shares_of
from miners.tables.statistics import (
    CountStatistic,
    MeanStatistic,
    Missing,
    StandardDeviation,
    Statistic,
    SumStatistic,
    TableEstimate,
    ValueCounts,
    Variance,
)
from miners.tables.table import Draft, Picture, Table, TableFunction
from pinq.analyst.queryable import Parts, PrivateQueryable, reusing
from pinq.errors import QueryError
from pinq.public.checks import is_listing, many
from pinq.public.epsilon import ZERO, Epsilon, EpsilonLike
from pinq.public.schema import Schema

ROUGH = "the interval of a variance, or of its root, allows for rows anywhere in their bins, so it holds more often"
Kind = tuple[Callable[..., Statistic], str, int]
"""The function that makes a statistic, its column, and its weight in the division of epsilon."""

STATISTICS: Mapping[str, type[Statistic]] = MappingProxyType(
    {
        "count": CountStatistic,
        "missing": Missing,
        "mean": MeanStatistic,
        "sum": SumStatistic,
        "variance": Variance,
        "std": StandardDeviation,
        "median": Median,
    }
)
"""The statistics of ``grouped``, by name."""


@TableFunction
def quantiles(
    handle: PrivateQueryable,
    column: str,
    shares: float | str | Sequence[float | str] = (0.25, 0.5, 0.75),
    *,
    by: Columns | None = None,
    epsilon: EpsilonLike,
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Finds quantiles: the numbers below which given proportions of a column's values lie.

    Args:
        handle: A handle on a table, or on a part of it (``where``).
        column: A numeric column.
        shares: One or several, between 0 and 1: 0.5 is the median. A text like ``"1/3"`` is exact.
        by: The columns that make groups, each with its own quantiles, at the price of one.
        epsilon: The cost. One half selects the quantiles; the other half counts rows around them,
            twice.
        level: The confidence level of the intervals.
        reuse: As in ``crosstab``.

    Returns:
        A row for each group and quantile: the groups' labels, ``column``, ``statistic``, ``value``,
        ``low``, ``high``.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners.tables import quantiles
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> h = pinq.simulate("policies/adult.yaml", data=rows, epsilon=10)
        >>> table = quantiles(h, "age", [0.25, 0.5, 0.75], epsilon=5)
        >>> table["statistic"].tolist(), bool(table["value"].is_monotonic_increasing)
        (['25 %', '50 %', '75 %'], True)
    """
    exact = shares_of(shares if is_listing(shares) else [shares])
    kinds: list[Kind] = [(partial(Quantile, shares=exact), column, 1)]
    title = f"{many(len(exact), 'quantile')} of {column}"
    return drafted(handle, title, by, kinds, epsilon, level, reuse, picture="boxes" if len(exact) > 2 else "bars")


@TableFunction
def variance(
    handle: PrivateQueryable,
    column: str,
    *,
    by: Columns | None = None,
    epsilon: EpsilonLike,
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Estimates the variance of a column, for each group, from counts in bins.

    A tenth of epsilon selects a median. Bins become wider with the distance from it, at a rate that
    follows from epsilon and the policy. Arguments are those of ``quantiles``.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners.tables import variance
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> h = pinq.simulate("policies/adult.yaml", data=rows, epsilon=10)
        >>> bool(variance(h, "age", epsilon=5)["value"].between(100, 300).all())  # without noise: 186
        True
    """
    return drafted(handle, f"variance of {column}", by, [(Variance, column, 1)], epsilon, level, reuse, (ROUGH,))


@TableFunction
def std(
    handle: PrivateQueryable,
    column: str,
    *,
    by: Columns | None = None,
    epsilon: EpsilonLike,
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Estimates the standard deviation of a column, for each group: the root of ``variance``.

    Examples:
        >>> import pinq
        >>> from miners.tables import std
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> std(h, "age", by="sex", epsilon=1)["sex"].tolist()
        ['Female', 'Male']
    """
    title = f"standard deviation of {column}"
    return drafted(handle, title, by, [(StandardDeviation, column, 1)], epsilon, level, reuse, (ROUGH,))


@TableFunction
def grouped(
    handle: PrivateQueryable,
    by: Columns | None,
    statistics: Mapping[str, str | Sequence[str]],
    *,
    epsilon: EpsilonLike,
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Computes statistics of columns for each group.

    Args:
        handle: A private handle.
        by: The columns that make the groups; None for one group.
        statistics: By column, a name or several: ``count``, ``missing``, ``mean``, ``sum``,
            ``variance``, ``std``, ``median``.
        epsilon: The cost. The statistics divide it evenly; each group gets all of it.
        level: The confidence level of the intervals.
        reuse: As in ``crosstab``.

    Returns:
        A row for each group and statistic: the groups' labels, ``column``, ``statistic``, ``value``,
        ``low``, ``high``.

    Examples:
        >>> import pinq
        >>> from miners.tables import grouped
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> table = grouped(h, "sex", {"age": ["mean", "std"]}, epsilon=1)
        >>> table[["sex", "statistic"]].values.tolist()
        [['Female', 'mean'], ['Female', 'std'], ['Male', 'mean'], ['Male', 'std']]
    """
    kinds: list[tuple[type[Statistic], str, int]] = []
    if not isinstance(statistics, Mapping):
        allowed = "names of statistics by column, for example {'age': ['mean', 'std']}"
        raise QueryError(f"is {statistics!r}", parameter="statistics", allowed=allowed)
    for column, names in statistics.items():
        handle.schema.column(column)
        kinds += [(_named(name), column, 1) for name in dict.fromkeys(names if is_listing(names) else [names])]
    # A column that declares no missing values is not queried for them.
    kinds = [kind for kind in kinds if kind[0] is not Missing or handle.schema.column(kind[1]).nullable]
    if not kinds:
        raise QueryError("names nothing to ask; for example {'age': ['mean', 'std']}", parameter="statistics")
    return drafted(handle, "statistics by group", by, kinds, epsilon, level, reuse, _notes(kinds), "panels")


@TableFunction
def summary(
    handle: PrivateQueryable,
    columns: str | Sequence[str] | None = None,
    *,
    by: Columns | None = None,
    epsilon: EpsilonLike,
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Describes columns: mean, standard deviation and quartiles of numbers, counts of categories.

    Args:
        handle: A private handle.
        columns: One column or several; by default all except the columns of ``by``.
        by: The columns that make groups, which are described separately.
        epsilon: The cost of the whole table. The number of rows gets one part of it, a categorical
            column four and a numeric column eight: three for the mean, two for the standard
            deviation and three for the quartiles (or two, and one for missing values).
        level: The confidence level of the intervals.
        reuse: As in ``crosstab``.

    Returns:
        A row for each group and statistic: the groups' labels, ``column``, ``statistic``,
        ``value``, ``low``, ``high``; for categories also ``of``, the counted value.

    Examples:
        >>> import pinq
        >>> from miners.tables import summary
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> summary(h, "age", epsilon=1)["statistic"].tolist()
        ['count', 'mean', 'std', '25 %', '50 %', '75 %']
    """
    apart = {name for spec in specs_of(handle.schema, () if by is None else by) for name in spec.columns()}
    if columns is None:
        columns = [name for name in handle.schema.columns if name not in apart]
    names = list(dict.fromkeys(columns if is_listing(columns) else [columns]))
    if not names:
        raise QueryError("names nothing to ask", parameter="columns")
    kinds: list[Kind] = [(CountStatistic, "", 1)]
    for name in names:
        kinds += _described(handle.schema, name)
    title = f"summary of {many(len(names), 'column')}"
    return drafted(handle, title, by, kinds, epsilon, level, reuse, _notes(kinds), "panels")


def _notes(kinds: Sequence[Kind]) -> tuple[str, ...]:
    return (ROUGH,) if any(kind in (Variance, StandardDeviation) for kind, _, _ in kinds) else ()


def _described(schema: Schema, column: str) -> list[Kind]:
    if is_categorical(schema, column):
        return [(ValueCounts, column, 4)]
    missing: list[Kind] = [(Missing, column, 1)] if schema.column(column).nullable else []
    return [*missing, (MeanStatistic, column, 3), (StandardDeviation, column, 2), (Quartiles, column, 3 - len(missing))]


def _named(name: object) -> type[Statistic]:
    kind = STATISTICS.get(str(name))
    if kind is None:
        raise QueryError(f"there is no statistic {name!r}; there are {', '.join(STATISTICS)}.")
    return kind


def drafted(
    handle: PrivateQueryable,
    title: str,
    by: Columns | None,
    kinds: Sequence[Kind],
    epsilon: EpsilonLike,
    level: float,
    reuse: bool,
    notes: tuple[str, ...] = (),
    picture: Picture = "bars",
) -> Draft:
    """Divides epsilon over statistics by their weights, and drafts them."""
    specs = specs_of(handle.schema, () if by is None else by)
    parts = handle.partition(*specs) if specs else handle.parts()
    shares = spread(Epsilon.of(epsilon), [weight for _, _, weight in kinds])
    statistics = [
        kind(handle.schema, column, share, require_level(level), len(parts), bool(reuse))
        for (kind, column, _), share in zip(kinds, shares, strict=True)
    ]
    flat = Parts.union(parts)
    lines = tuple(line for statistic in statistics for line in statistic.lines())

    def answer() -> Table:
        answers = [statistic.ask(statistic.within(flat)) for statistic in statistics]
        pairs = zip(statistics, answers, strict=True)
        added = [note for statistic, estimates in pairs for note in statistic.notes(estimates)]
        frame, scale = _frame(parts, [estimate for estimates in answers for estimate in estimates])
        return Table(title, frame, scale, draft.total, level, (*notes, *dict.fromkeys(added)), picture)

    draft = Draft(title, lines, answer, notes)
    return draft


def _frame(parts: Parts, estimates: Sequence[TableEstimate]) -> tuple[pd.DataFrame, pd.Series]:
    keys = parts.frame(np.zeros(len(parts))).drop(columns="value")
    if not any(block.partition for block in parts.part_set.blocks):  # the whole table, without groups
        keys = keys.drop(columns="part")
    groups = len(keys)
    frame = keys.loc[np.repeat(np.arange(groups), len(estimates))].reset_index(drop=True)
    frame["column"] = [estimate.column or None for estimate in estimates] * groups
    frame["statistic"] = [estimate.name for estimate in estimates] * groups
    if any(estimate.of is not None for estimate in estimates):
        frame["of"] = pd.Series([estimate.of for estimate in estimates] * groups, dtype=object)
    for name in ("value", "low", "high", "scale"):
        numbers = [getattr(estimate, name) for estimate in estimates]
        if len({values.dtype.kind == "M" for values in numbers}) > 1:  # dates and numbers
            numbers = [values.astype(object) for values in numbers]
        frame[name] = np.stack(numbers, axis=1).reshape(-1)
    return frame.drop(columns="scale"), frame["scale"]


SHARES = (40, 60)  # of epsilon: scales, products


@TableFunction
def correlation(
    handle: PrivateQueryable,
    columns: Sequence[str] | None = None,
    *,
    epsilon: EpsilonLike,
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Computes the correlations of all pairs of columns; ``plot`` draws a map.

    Rows far from the mean in many columns count less, as far as epsilon makes this necessary: the
    larger epsilon and the more rows, the closer the result is to Pearson's correlation.

    Args:
        handle: A private handle.
        columns: Names of columns; None for all numeric columns. A categorical column becomes an
            indicator for each value except the first.
        epsilon: The cost of the whole table.
        level: The probability with which each interval contains Pearson's correlation of the rows.
            Intervals include the noise and a plausible effect of the rows that count less: that of
            heavy tails, or less if the columns' variances show less (docs/linear.md).
        reuse: As in ``crosstab``.

    Returns:
        A row for each two terms, in either order: ``first``, ``second``, ``value``, ``low``,
        ``high``.

    Examples:
        >>> import pinq
        >>> from miners.tables import correlation
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> table = correlation(h, ["age", "education_num"], epsilon=1)
        >>> table[["first", "second"]].values.tolist()
        [['age', 'age'], ['age', 'education_num'], ['education_num', 'age'], ['education_num',
        'education_num']]
    """
    level, schema = require_level(level), handle.schema
    if columns is not None and not is_listing(columns):
        raise QueryError(f"is {columns!r}", parameter="columns", allowed="a list of names of columns, or None")
    names = asked_columns(schema, None, list(schema.numeric_columns) if columns is None else columns)
    if len(Coordinates.unasked(schema, names).entries) < 2:
        raise QueryError(f"names {' and '.join(names)} alone; a correlation is of two columns", parameter="columns")
    total, measured = Epsilon.of(epsilon), any(name in schema.numeric_columns for name in names)
    scales, products = spread(total, SHARES) if measured else (ZERO, total)
    norm = Norm.of_rows(schema, names, products)
    lines = [scale_line(schema, names, scales)] if measured else []
    lines.append(product_line(schema, norm, "all", "products of columns", products))
    Coordinates.unasked(schema, names).products().check(schema)
    notes = ("rows far from the mean may count less; intervals account for noise and for a plausible effect of that.",)
    title = f"correlation of {', '.join(names)}"

    def answer() -> Table:
        source = reusing(handle, partial(require_budget, handle, total, name="correlation")) if reuse else handle
        coordinates = Coordinates.asked(source, schema, names, scales, norm)
        moments = NoisyMoments.asked(source, coordinates, norm, products)
        frame, deviations = _correlations(coordinates, moments, norm, -math.log(1 - level) / ROOT)
        return Table(title, frame, deviations, total.exact, level, notes, "map")

    return Draft(title, tuple(lines), answer, notes)


def _correlations(
    coordinates: Coordinates, moments: NoisyMoments, norm: Norm, sure: float
) -> tuple[pd.DataFrame, pd.Series]:
    rows, _, (covariance,) = moments.centred()
    noise, variances = moments.deviation / float(rows[0]), np.diag(covariance)
    roots = np.sqrt(np.maximum(variances, noise))
    correlations = np.clip(covariance / np.outer(roots, roots), -1, 1)
    # r = c / (s t): noise in c moves r by noise / (s t); noise in s² or t² moves it by r / 2 times its relative size.
    deviation = noise / np.outer(roots, roots)
    relative = noise / roots**2
    # The unit of a variance is its value in the first query: a column at 0.8 has lost 0.2 of its variance, up to noise.
    lost = norm.shift(np.hypot(np.maximum(1 - variances, 0), coordinates.doubt))
    shift = np.maximum(lost[:, None], lost[None, :])
    deviations = np.sqrt(
        deviation**2 + correlations**2 * (relative[:, None] ** 2 + relative[None, :] ** 2) / 4 + shift**2
    )
    hidden = relative > 1 / 3  # a variance below 3 deviations of its noise is unknown
    deviations[hidden | hidden[:, None]] = 2.0
    np.fill_diagonal(correlations, 1.0)
    np.fill_diagonal(deviations, 0.0)
    terms = coordinates.names
    low, high = np.maximum(correlations - sure * deviations, -1), np.minimum(correlations + sure * deviations, 1)
    keys = {"first": np.repeat(terms, len(terms)), "second": np.tile(terms, len(terms))}
    numbers = {"value": correlations.ravel(), "low": low.ravel(), "high": high.ravel()}
    return pd.DataFrame({**keys, **numbers}), pd.Series(deviations.ravel())
