# SPDX-License-Identifier: Apache-2.0
"""The common code of all tables: checks of arguments, division of epsilon, intervals of sums.

A condition is a part of a partition, so conditions on different values of one column compose in parallel: queries of
``where(h, sex="Male")`` and of ``where(h, sex="Female")`` cost the larger of the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pinq.analyst.answers import NoisyArray
from pinq.analyst.lessons import called_by_name
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.language.specs import MAX_PARTS, Cuts, Groups, Spec, Splitting, Values, bind
from pinq.public.checks import is_listing, is_number, whole_number
from pinq.public.schema import Schema, Value


def require_level(level: float) -> float:
    """Returns the level; raises ``QueryError`` unless it is above 0 and clearly below 1."""
    # The level of each of many joint intervals is higher still, and must stay below 1.
    if not is_number(level, 0, 1 - 1e-9) or level == 0:
        allowed = "between 0 and 1, 0 excluded and at most 0.999999999, for example 0.95"
        raise QueryError(f"is {level!r}", parameter="level", allowed=allowed)
    return level


def require_parts(parts: int) -> None:
    """Raises ``QueryError`` if a query would have too many parts, before it is sent."""
    if parts > MAX_PARTS:
        raise QueryError(f"this makes {parts:,} parts; at most {MAX_PARTS:,} are possible.")


def required_handle(handle: object) -> PrivateQueryable:
    """Returns a handle; raises ``QueryError``, with advice, for another object."""
    if not isinstance(handle, PrivateQueryable):
        raise QueryError(
            f"a table is made of a private handle, not of {type(handle).__name__}; open one with pinq.open, "
            "pinq.connect or pinq.simulate. Of parts, take one, `parts[label]`, or say `by`."
        )
    return handle


SPAN, POINTS = 20.0, 2048  # the range of a tabulated law in standard deviations, and its number of points


def half_width(
    weights: np.ndarray, scale: np.ndarray | float, level: float, *, times: np.ndarray | float = 1.0
) -> np.ndarray:
    """Returns t so that |sum of weight x noise| is at most t with probability ``level``.

    The noises are independent discrete Laplace variables Z of scales s. Each is a continuous Laplace variable X minus
    the difference of two fractional parts that do not depend on Z (an exponential variable's whole part is geometric).
    So the sum of w X is as wide as the sum of w Z, or wider by at most those fractions. Its characteristic function is
    the product of 1 / (1 + (r w s)^2); its Fourier transform is the law, tabulated at ``POINTS`` points. The distance
    between two points, and half a row for whole numbers, are added. Held by: tests/unit/tables/test_tables.py.

    Args:
        weights: The weights of the noises of each sum, shape (..., noises).
        scale: s, greater than 0; one number, or an array of the shape of ``weights``.
        level: The confidence level, between 0 and 1.
        times: The number of noises of each weight, of the shape of ``weights``.

    Returns:
        t for each sum, shape (...).
    """
    times, scaled = np.broadcast_to(times, weights.shape), weights * scale
    deviations = np.sqrt(2 * (times * scaled**2).sum(axis=-1))
    # Two noises of scale 1 with weights 3 and 4: the sum deviates by 7.07. In this unit their scales
    # are 0.42 and 0.57.
    unit = scaled / np.where(deviations > 0, deviations, 1.0)[..., None]
    rates = np.arange(POINTS // 2 + 1) * (np.pi / SPAN)
    logs = sum(times[..., [n]] * np.log(1.0 + (unit[..., [n]] * rates) ** 2) for n in range(weights.shape[-1]))
    law = np.fft.irfft(np.exp(-logs), axis=-1)[..., : POINTS // 2]
    steps = (2 * np.cumsum(law, axis=-1) - law[..., :1] < level).sum(axis=-1) + 1
    return np.asarray(steps * (2 * SPAN / POINTS) * deviations + np.abs(weights).max(axis=-1) / 2)


def within_noise(
    sums: np.ndarray, weights: np.ndarray, scale: np.ndarray | float, level: float, times: np.ndarray
) -> np.ndarray:
    """Whether each sum is at most the ``half_width`` of its noise."""
    deviations, largest = np.sqrt(2 * (times * (weights * scale) ** 2).sum(axis=-1)), np.abs(weights).max(axis=-1)
    within, unclear = sums <= 0, (sums > 0) & (sums <= 2 * SPAN * deviations + largest)
    within[unclear] = sums[unclear] <= half_width(weights[unclear], scale, level, times=times[unclear])
    return within


def scale_of(counts: NoisyArray) -> float:
    """The one scale of the noise in several counts."""
    return float(np.asarray(counts.scale, dtype=np.float64))


ALL = "All"
"""The label of a margin."""

Column = str | Spec
Columns = Column | Sequence[Column]
Condition = Value | None | Sequence[Value | None] | tuple[float | None, float | None]

MAX_BINS = 10_000


@called_by_name
def where(handle: PrivateQueryable, **conditions: Condition) -> PrivateQueryable:
    """Returns a handle on the rows that meet all conditions; free.

    Args:
        handle: A handle on the table, or on a part of it.
        conditions: The conditions by column. For a categorical column a value, or a list of values;
            None is the missing value. For a numeric column a pair ``(low, high)``: at least ``low``
            and below ``high``, with None (or the lower bound) for an open end; or None for missing values.

    Raises:
        QueryError: An unknown column, or a condition that does not fit it.

    Examples:
        >>> import pinq
        >>> sex, age = pinq.Categorical(values=("F", "M")), pinq.Numeric(lower=0, upper=100, integer=True)
        >>> schema = pinq.Schema(columns={"sex": sex, "age": age}, max_rows=100)
        >>> h = pinq.simulate(schema, rows=100, epsilon=1)
        >>> where(h, sex="M", age=(30, 45))
        PrivateQueryable(simulated, sex = M, age 30 to < 45; 2 columns, Budget(epsilon=1, spent=0, remaining=1))
    """
    handle = required_handle(handle)
    for name, condition in conditions.items():
        handle = (_of_values if is_categorical(handle.schema, name) else _of_range)(handle, name, condition)
    return handle


def specs_of(schema: Schema, columns: Columns) -> list[Spec]:
    """Reads columns as specs: a categorical one by its values, a numeric one by its declared cuts.

    Raises:
        QueryError: An unknown column, a numeric one without declared cuts, or no columns at all.
    """
    if isinstance(columns, (str, Splitting)):
        return [_spec(schema, columns)]
    if not is_listing(columns):
        raise QueryError(
            f"{columns!r} names no columns; write one, 'sex', a list of them, or specs like Values('sex')."
        )
    return [_spec(schema, column) for column in columns]


def columns_named(schema: Schema, value: object) -> list[str]:
    """The declared columns in a call's arguments, each once."""
    if isinstance(value, str):
        return [value] if value in schema.columns else []
    if isinstance(value, Splitting):
        return sorted(value.columns())
    inner = value if isinstance(value, (list, tuple, Mapping)) else ()  # the keys of `statistics`
    return list(dict.fromkeys(name for each in inner for name in columns_named(schema, each)))


def even_cuts(schema: Schema, column: str, bins: int) -> Cuts:
    """Cuts a numeric column into ``bins`` bins of about equal width, of whole grid cells.

    Example: whole numbers 0 to 9 in 4 bins are cut at 3, 5 and 8: 0 to 2, 3 and 4, 5 to 7, 8 and 9.

    Raises:
        QueryError: Not a numeric column, or no whole number of bins from 2.
    """
    numeric = schema.numeric(column)
    bins = whole_number("bins", bins, 2, MAX_BINS)
    if numeric.cells < 2:
        raise QueryError(f"`{column}` has a single grid cell, so it cannot be cut.")
    firsts = np.unique(-(-np.arange(1, bins) * numeric.cells // bins))
    return Cuts(column, tuple(numeric.cut_before(int(first)) for first in firsts if 0 < first < numeric.cells))


def _spec(schema: Schema, column: Column) -> Spec:
    if not isinstance(column, str):
        bind(column, schema)
        return column
    if is_categorical(schema, column):
        return Values(column)
    cuts = schema.numeric(column).declared_cuts
    if not cuts:
        raise QueryError(
            f"`{column}` is numeric and its policy declares no cuts; say where, Cuts({column!r}, [...]), "
            f"or take histogram(h, {column!r}, bins=10)."
        )
    return Cuts(column, cuts)


def is_categorical(schema: Schema, column: str) -> bool:
    """Whether a declared column is categorical, not numeric."""
    return schema.column(column).type == "categorical"


def _of_values(handle: PrivateQueryable, name: str, condition: Condition) -> PrivateQueryable:
    column = handle.schema.categorical(name)
    if not isinstance(condition, (list, tuple, set)):
        return narrowed(handle, Values(name), column.code_of(condition, name))  # type: ignore[arg-type]
    codes = {column.code_of(value, name) for value in condition}
    groups = [
        [label for code, label in enumerate(column.labels) if (code in codes) == inside] for inside in (True, False)
    ]
    if not all(groups):
        raise QueryError(f"the condition on `{name}` names no value, or all of them; leave it out or name some.")
    return narrowed(handle, Groups(name, tuple(map(tuple, groups))), 0)


def _of_range(handle: PrivateQueryable, name: str, condition: Condition) -> PrivateQueryable:
    column = handle.schema.numeric(name)
    if condition is None:
        if not column.nullable:
            raise QueryError(f"`{name}` declares no missing values.")
        return narrowed(handle, *missing_apart(handle.schema, name))
    if not isinstance(condition, tuple) or len(condition) != 2:  # a list means values
        raise QueryError(
            f"the condition on `{name}` is {condition!r}; it must be a pair (low, high), None for an open end."
        )
    low, high = condition
    low = None if low is not None and column.number_of(low, name) == column.low else low  # nothing is below it
    points = [end for end in (low, high) if end is not None]
    if not points:
        raise QueryError(f"the condition on `{name}` is open at both ends; leave it out.")
    if len(points) == 2 and column.threshold(low, name) >= column.threshold(high, name):  # type: ignore[arg-type]
        raise QueryError(f"the condition on `{name}` is ({low}, {high}); no value is at least {low} and below {high}.")
    return narrowed(handle, Cuts(name, tuple(points)), 0 if low is None else 1)


def missing_apart(schema: Schema, column: str) -> tuple[Spec, int]:
    """Splits a nullable numeric column; returns the split and the index of missing values, its last part."""
    numeric = schema.numeric(column)
    if numeric.cells < 2:  # a single cell cannot be cut
        return Values(column), 1
    return Cuts(column, (numeric.cut_before(numeric.cells // 2),)), 2


def narrowed(handle: PrivateQueryable, spec: Spec, index: int) -> PrivateQueryable:
    """Returns a handle on one part of a split; free."""
    return next(iter(handle.partition(spec)[[index]]))
