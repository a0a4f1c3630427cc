# SPDX-License-Identifier: Apache-2.0
"""``crosstab``, ``histogram`` and ``top_k``: tables of counts, one query each.

Privacy:
    Claim: margins and intervals are free. Why: they are computed from noisy counts alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import pandas as pd

from miners.budget.plan import PlanLine, count_line, spread
from miners.tables.columns import (
    ALL,
    Column,
    Columns,
    even_cuts,
    half_width,
    is_categorical,
    require_level,
    scale_of,
    specs_of,
)
from miners.tables.table import Draft, Picture, Table, TableFunction
from pinq.analyst.queryable import Parts, PrivateQueryable
from pinq.errors import QueryError
from pinq.language.specs import Cuts, Spec, Values
from pinq.public.checks import is_listing, whole_number
from pinq.public.epsilon import Epsilon, EpsilonLike
from pinq.public.schema import Schema

Axes = tuple[int, ...]
"""The axes that a margin keeps: (0,), (1,) or () for a table with two axes; (0, 1) is the table itself."""


def subsets(axes: int) -> list[Axes]:
    """The axes that the table and each margin keep, in descending order of their number: (0, 1), (0,), (1,) and ()."""
    margins = [tuple(axis for axis in range(axes) if mask >> axis & 1) for mask in range(2**axes)]
    return sorted(margins, key=lambda subset: (-len(subset), subset))


def summed(cells: np.ndarray, axes: Axes) -> np.ndarray:
    """Returns the margin that keeps some axes."""
    return np.asarray(cells.sum(axis=tuple(axis for axis in range(cells.ndim) if axis not in axes)))


def agreeing(tables: Mapping[Axes, np.ndarray]) -> np.ndarray:
    """The cells whose sums are nearest to a table and all its margins, by least squares; all counts have equal noise.

    A table is a sum of orthogonal effects, one for each subset S of the axes (the mean, the effect of each row, of each
    pair, ...). A margin that keeps the axes K, divided by the N(K) cells that it sums and spread over them, has all
    effects of subsets of K, each with noise of variance sigma^2 / N(K). So an effect is the mean of all tables that
    have it, weighted by N(K), and N(K) times the spread margin is the margin itself.

    Example: a table of two cells 4 and 8 with a queried total of 15 becomes 5 and 9: the sum of the cells has two
    noises.

    References:
        Barak et al. 2007, "Privacy, Accuracy, and Consistency Too"; Hay et al. 2010, "Boosting the
        Accuracy of Differentially Private Histograms Through Consistency", sec. 4.
    """
    axes = max(len(margin_axes) for margin_axes in tables)
    shape = tables[tuple(range(axes))].shape
    cells = np.zeros(shape)
    for effect in tables:
        # Of a table and its total, the mean is in both: 6 in the cells, 15 / 2 spread over them,
        # which weigh 1 and 2: (6 + 2 * 7.5) / 3 = 7. The difference of the cells is in the table
        # alone.
        having = [margin_axes for margin_axes in tables if set(effect) <= set(margin_axes)]
        together = np.sum([_spread(tables[margin_axes], margin_axes, shape) for margin_axes in having], axis=0)
        weight = sum(_cells_summed(margin_axes, shape) for margin_axes in having)
        part = together / weight
        for axis in range(axes):
            mean = np.broadcast_to(part.mean(axis=axis, keepdims=True), shape)
            part = part - mean if axis in effect else mean
        cells += part
    return cells


def nearest_nonnegative(values: np.ndarray, tables: int = 1) -> np.ndarray:
    """Projects numbers onto non-negative numbers with the same total (0 if it is negative), table by table.

    All are lowered by one amount and cut at 0: (5, 1, -2) with total 4 is lowered by 1 to (4, 0,
    0).
    """
    flat = values.astype(np.float64).reshape(tables, -1)
    total = np.maximum(flat.sum(axis=1, keepdims=True), 0)
    descending, at = np.sort(flat, axis=1)[:, ::-1], np.arange(flat.shape[1])
    excess = (np.cumsum(descending, axis=1) - total) / (at + 1)
    last = np.where(descending > excess, at, 0).max(axis=1, keepdims=True)
    return np.maximum(flat - np.take_along_axis(excess, last, axis=1), 0.0).reshape(values.shape)


def whole_counts(values: np.ndarray) -> np.ndarray:
    """Rounds non-negative numbers to whole numbers of the same total, up for the largest fractions."""
    # Of 1.6, 2.7 and 0.7, total 5: 1, 2 and 0, and the two that are missing go to the second and the third.
    flat = values.reshape(-1)
    rounded = np.floor(flat + 1e-9)
    upward = max(0, round(float(flat.sum() - rounded.sum())))
    rounded[np.argsort(rounded - flat, kind="stable")[:upward]] += 1
    return rounded.reshape(values.shape)


def _spread(margin: np.ndarray, margin_axes: Axes, shape: tuple[int, ...]) -> np.ndarray:
    lengths = [length if axis in margin_axes else 1 for axis, length in enumerate(shape)]
    return np.broadcast_to(margin.reshape(lengths), shape).astype(np.float64)


def _cells_summed(margin_axes: Axes, shape: tuple[int, ...]) -> int:
    """The number of cells in each sum of a margin."""
    return int(np.prod([length for axis, length in enumerate(shape) if axis not in margin_axes], dtype=np.int64))


NONNEGATIVE = (
    "cells were moved to the nearest table without negative numbers that has the same total, in whole numbers; "
    "small cells are too large on average, and their intervals are those of the noisy counts, or of 0 where "
    "these are negative, cut at 0"
)


@dataclass(frozen=True)
class CountQuestion:
    """One query for counts: its parts, its loss and its level."""

    parts: Parts
    epsilon: Epsilon
    level: float
    reuse: bool

    def line(self, schema: Schema, query: str) -> PlanLine:
        return count_line(schema, query, len(self.parts), self.epsilon)

    def ask(self) -> CountCells:
        values = self.parts.noisy_count(epsilon=self.epsilon.exact, reuse=self.reuse)
        low, high = values.interval(self.level)
        return CountCells(+values, low, high, scale_of(values))


@dataclass(frozen=True)
class CountCells:
    """Noisy counts with their intervals, all of one shape, and the scale of the noise in each."""

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    scale: float

    def frame(self, parts: Parts) -> pd.DataFrame:
        return parts.frame(self.values).assign(low=self.low.reshape(-1), high=self.high.reshape(-1))

    def scales(self) -> pd.Series:
        return pd.Series(np.full(self.values.size, self.scale), name="scale")

    def moved(self, values: np.ndarray, *, cut: bool = False) -> CountCells:
        """Replaces the noisy counts; intervals are widened to contain the new counts, and cut at 0 if ``cut``."""
        values = values.reshape(self.values.shape)
        half = (self.high - self.low) / 2
        ends = (np.maximum(self.low, 0), np.maximum(self.high, half)) if cut else (self.low, self.high)
        return CountCells(values, np.minimum(ends[0], values), np.maximum(ends[1], values), self.scale)

    def nonnegative(self) -> CountCells:
        """The nearest table of the same total without negative numbers."""
        return self.moved(whole_counts(nearest_nonnegative(self.values)), cut=True)

    def margin(self, margin_axes: Axes, exact: np.ndarray, level: float) -> CountCells:
        """Sums cells; intervals come from the noises in ``exact``, the queried counts."""
        # With 3 x 4 cells, the sum of a row has 4 noises, and the total 12.
        sums, noises = summed(exact, margin_axes), _cells_summed(margin_axes, exact.shape)
        half = int(half_width(np.ones(1), self.scale, level, times=noises))
        return CountCells(summed(self.values, margin_axes), sums - half, sums + half, np.nan)


def margin_frame(cells: pd.DataFrame, margin_axes: Axes, margin: CountCells) -> pd.DataFrame:
    """Writes a margin with the labels of the cells' table, ``ALL`` where it sums."""
    names = [name for name in cells.columns if name not in ("value", "low", "high")]
    labels = [list(dict.fromkeys(cells[name])) if axis in margin_axes else [ALL] for axis, name in enumerate(names)]
    keys = pd.DataFrame(list(itertools.product(*labels)), columns=names, dtype=object)
    return keys.assign(value=np.ravel(margin.values), low=np.ravel(margin.low), high=np.ravel(margin.high))


Margins = bool | Literal["asked"]
ASKED = "each margin was queried separately, at an equal fraction of epsilon, so sums of cells differ from it by noise"
CONSISTENT = (
    "cells and margins were moved to the nearest ones that agree; intervals are those of the queried counts, widened "
    "where a number was moved out"
)
MARGINS = "margins are the sums of the cells, so they agree with them; their intervals are wider than a count's"


@dataclass(frozen=True)
class CrossTable:
    """A table of counts over several axes.

    Attributes:
        margins: Whether to add sums, or to query them (``"asked"``).
        consistent: Whether queried margins are made to agree with the cells.
        nonnegative: Whether counts are made to be at least 0.
    """

    axes: tuple[Spec, ...]
    level: float
    margins: Margins
    consistent: bool
    nonnegative: bool

    def draft(self, handle: PrivateQueryable, epsilon: Epsilon, *, reuse: bool) -> Draft:
        whole = tuple(range(len(self.axes)))
        tables = subsets(len(self.axes)) if self.margins == "asked" else [whole]
        shares = spread(epsilon, [1] * len(tables))
        questions = {
            margin_axes: CountQuestion(
                handle.partition(*(self.axes[axis] for axis in margin_axes)) if margin_axes else handle.parts(),
                share,
                self.level,
                reuse,
            )
            for margin_axes, share in zip(tables, shares, strict=True)
        }
        title = self._title(whole)
        all_notes = {MARGINS: self.margins is True, ASKED: self.margins == "asked"}
        all_notes |= {CONSISTENT: self.consistent, NONNEGATIVE: self.nonnegative}
        notes = tuple(note for note, holds in all_notes.items() if holds)
        lines = tuple(
            question.line(handle.schema, self._title(margin_axes)) for margin_axes, question in questions.items()
        )
        picture: Picture = "heat" if len(self.axes) == 2 else "bars"

        def answer() -> Table:
            tables = self._tables({margin_axes: question.ask() for margin_axes, question in questions.items()})
            frame = tables[whole].frame(questions[whole].parts)
            frames = [
                frame,
                *(
                    margin_frame(frame, margin_axes, counts)
                    for margin_axes, counts in tables.items()
                    if margin_axes != whole
                ),
            ]
            scale = pd.concat([counts.scales() for counts in tables.values()], ignore_index=True)
            return Table(title, pd.concat(frames, ignore_index=True), scale, draft.total, self.level, notes, picture)

        draft = Draft(title, lines, answer, notes)
        return draft

    def _tables(self, answered: Mapping[Axes, CountCells]) -> dict[Axes, CountCells]:
        tables = {margin_axes: margin.values for margin_axes, margin in answered.items()}
        if self.consistent:
            cells = agreeing(tables)
            cells = whole_counts(nearest_nonnegative(cells)) if self.nonnegative else cells
            return {
                margin_axes: counts.moved(summed(cells, margin_axes), cut=self.nonnegative)
                for margin_axes, counts in answered.items()
            }
        moved = {
            margin_axes: counts.nonnegative() if self.nonnegative else counts
            for margin_axes, counts in answered.items()
        }
        if self.margins is True:
            ((whole, table),) = moved.items()
            exact = answered[whole].values
            moved |= {
                margin_axes: table.margin(margin_axes, exact, self.level) for margin_axes in subsets(len(self.axes))[1:]
            }
        return moved

    def _title(self, margin_axes: Axes) -> str:
        names = [", ".join(sorted(self.axes[axis].columns())) or "shard" for axis in margin_axes]
        return f"rows by {' and '.join(names)}" if names else "all rows"


@TableFunction
def crosstab(
    handle: PrivateQueryable,
    rows: Columns,
    columns: Columns = (),
    *,
    epsilon: EpsilonLike,
    level: float = 0.95,
    margins: Margins = False,
    consistent: bool = False,
    nonnegative: bool = False,
    reuse: bool = False,
) -> Draft:
    """Counts the rows of every combination of some columns' values.

    Args:
        handle: A handle on a table, or on a part of it (``where``).
        rows: A column, or several. A numeric column has the cuts of its policy; ``Cuts(column,
            [...])`` gives other cuts.
        columns: More columns; ``table.wide()`` spreads the last one over columns.
        epsilon: The cost. All cells together cost it once, because they are disjoint.
        level: The confidence level of the intervals.
        margins: Whether to add the sums over each column, called ``"All"``. ``"asked"`` queries each margin separately,
            at an equal fraction of epsilon. Sums of many cells are then more exact, and cells less.
        consistent: Whether, with ``margins="asked"``, to move cells and margins to the nearest ones that agree.
        nonnegative: Whether to move the counts to the nearest table without negative numbers.
        reuse: Whether to return the stored answer of an identical earlier call, at no cost.

    Returns:
        A row for each cell: its labels, ``value`` (which can be negative), ``low``, ``high``.

    Raises:
        QueryError: The request is malformed.
        BudgetExceeded: The cost exceeds the remaining budget; nothing was spent.

    Examples:
        >>> import pinq
        >>> from miners.tables import crosstab
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> table = crosstab(h, "sex", "income", epsilon=1)
        >>> list(table), len(table)
        (['sex', 'income', 'value', 'low', 'high'], 4)
        >>> table.wide().shape
        (2, 2)
    """
    specs = [*specs_of(handle.schema, rows), *specs_of(handle.schema, columns)]
    factors = cast(tuple[Spec, ...], tuple(factor for spec in specs for factor in spec.factors))
    if margins not in (True, False, "asked"):
        raise QueryError(f"is {margins!r}", parameter="margins", allowed="False, True or 'asked'")
    if consistent and margins != "asked":
        raise QueryError("is True; sums of cells agree, so it goes with margins='asked'", parameter="consistent")
    return CrossTable(factors, require_level(level), margins, consistent, nonnegative).draft(
        handle, Epsilon.of(epsilon), reuse=bool(reuse)
    )


@TableFunction
def histogram(
    handle: PrivateQueryable,
    column: str,
    bins: int | Sequence[float] | None = None,
    *,
    by: Columns | None = None,
    epsilon: EpsilonLike,
    level: float = 0.95,
    nonnegative: bool = False,
    reuse: bool = False,
) -> Draft:
    """Counts the rows in each bin of a numeric column, or of each value of a categorical one.

    Args:
        handle: A private handle.
        column: The column.
        bins: The number of bins of a numeric column, of equal width between its declared bounds,
            or the cut points. By default the cuts of the policy, else 10 bins. Bins never depend on
            rows.
        by: The columns that make groups, which are counted separately.
        epsilon: The cost. All bins together cost it once.
        level: The confidence level of the intervals.
        nonnegative: Whether to move the counts to the nearest table without negative numbers.
        reuse: As in ``crosstab``.

    Returns:
        A row for each bin: the groups' labels, the bin's, ``value``, ``low``, ``high``.

    Examples:
        >>> import pinq
        >>> from miners.tables import histogram
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> histogram(h, "age", bins=4, epsilon=1)["age"].tolist()
        ['< 26', '26 to < 51', '51 to < 76', '>= 76']
    """
    groups = specs_of(handle.schema, () if by is None else by)
    spec = _bins(handle.schema, column, bins)
    title = f"rows by {column}"
    counts = CountQuestion(handle.partition(*groups, spec), Epsilon.of(epsilon), require_level(level), bool(reuse))

    notes = (NONNEGATIVE,) if nonnegative else ()

    def answer() -> Table:
        cells = counts.ask().nonnegative() if nonnegative else counts.ask()
        return Table(title, cells.frame(counts.parts), cells.scales(), counts.epsilon.exact, level, notes)

    return Draft(title, (counts.line(handle.schema, title),), answer, notes)


@TableFunction
def top_k(
    handle: PrivateQueryable,
    column: Column,
    k: int = 5,
    *,
    epsilon: EpsilonLike,
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Finds the k most frequent values of a column, by noisy counts of all of them.

    Args:
        handle: A private handle.
        column: A categorical column, or a spec.
        k: The number of values.
        epsilon: The cost. All values are counted at once; the search for the largest is free.
        level: The probability with which all intervals hold together. Largest values tend to have positive noise, so
            these are wider than those of ``histogram``.
        reuse: As in ``crosstab``.

    Returns:
        A row for each of the k values, the largest count first.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners.tables import top_k
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> h = pinq.simulate("policies/adult.yaml", data=rows, epsilon=10)
        >>> top_k(h, "education", 2, epsilon=1)["education"].tolist()
        ['HS-grad', 'Some-college']
    """
    (spec,) = specs_of(handle.schema, [column])
    parts: Parts = handle.partition(spec)
    k = whole_number("k", k, 1, len(parts))
    each = 1 - (1 - require_level(level)) / len(parts)
    title = f"the {k} most frequent values of {', '.join(sorted(spec.columns()))}"
    counts = CountQuestion(parts, Epsilon.of(epsilon), each, bool(reuse))

    def answer() -> Table:
        cells = counts.ask()
        frame = cells.frame(parts).sort_values("value", ascending=False, kind="stable").head(k)
        scale = cells.scales().loc[frame.index].reset_index(drop=True)
        notes = ("the intervals hold together, with all other values' too",)
        return Table(title, frame.reset_index(drop=True), scale, counts.epsilon.exact, level, notes)

    return Draft(title, (counts.line(handle.schema, title),), answer)


def _bins(schema: Schema, column: str, bins: int | Sequence[float] | None) -> Spec:
    if is_categorical(schema, column):
        if bins is not None:
            raise QueryError(f"`{column}` is categorical; it takes no `bins`.")
        return Values(column)
    if bins is not None:
        return Cuts(column, tuple(bins)) if is_listing(bins) else even_cuts(schema, column, bins)
    cuts = schema.numeric(column).declared_cuts
    return Cuts(column, cuts) if cuts else even_cuts(schema, column, 10)
