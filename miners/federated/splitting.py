# SPDX-License-Identifier: Apache-2.0
"""Splitting functions that are declared before anything is asked.

They are thresholds of numeric columns, and groups of values against the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from miners.growth.candidates import attribute_names, by_column, equal_width, require_attributes
from pinq.errors import QueryError
from pinq.public.checks import is_listing, is_whole
from pinq.public.columns import CutPoint
from pinq.public.schema import Schema, Value
from pinq.public.specs import Axis, Cuts, Groups, Values, bind

__all__ = ["THRESHOLDS", "SplitSet", "SplitsByColumn", "first_codes", "splitting_functions"]

THRESHOLDS = 10
MAX_THRESHOLDS = 4096
MAX_VALUES = 1024  # that are each put against the rest unasked: as many splits, each of which names all values
Binary = Cuts | Groups
ColumnSplits = int | Sequence[float] | Sequence[Value] | Sequence[Sequence[Value]]
SplitsByColumn = Mapping[str, ColumnSplits]
"""By column: thresholds of a number, or how many; values or lists of values, each against the rest."""


@dataclass(frozen=True)
class SplitSet:
    """One column's splitting functions, and a partition that is finer than each of them.

    A table of noisy counts over ``base`` therefore serves all of them at once, by addition.
    """

    base: Values | Cuts
    splits: tuple[Binary, ...]
    schema: Schema

    @cached_property
    def merges(self) -> np.ndarray:
        """Which parts of ``base`` make up each part of each split.

        They are 0 or 1, shape (splits, parts, base parts).
        """
        first = first_codes(bind(self.base, self.schema).axes[0])
        axes = [bind(split, self.schema).axes[0] for split in self.splits]
        # Thresholds 10 and 20: the base has three parts. Below 10 is the first, and from 10 on the
        # others: 1 0 0 and 0 1 1; the split at 20 is 1 1 0 and 0 0 1.
        merges = [axis.parts_of(first)[None, :] == np.arange(axis.size)[:, None] for axis in axes]
        return np.array(merges, dtype=np.float64)

    def tables(self, counts: np.ndarray) -> np.ndarray:
        """Adds up the tables of each split.

        Args:
            counts: Those of the base, shape (nodes, base parts, classes).

        Returns:
            Shape (nodes, splits, parts, classes).
        """
        # With 1 1 0 and 0 0 1 for a split, parts of 5, 2 and 4 rows become 7 and 4.
        return np.einsum("spb,nbc->nspc", self.merges, counts)


def first_codes(axis: Axis) -> np.ndarray:
    """Returns a code of each part of ``Values`` or ``Cuts``.

    Each part is one code or one interval of them, so the code tells where all of the part goes.
    """
    return np.arange(axis.size) if axis.thresholds is None else np.array([0, *axis.thresholds])


def splitting_functions(
    schema: Schema,
    target: str | None,
    *,
    attributes: Sequence[str] | None = None,
    splits: SplitsByColumn | None = None,
) -> tuple[SplitSet, ...]:
    """Returns the splitting functions, one set for each attribute.

    Args:
        schema: The public schema.
        target: The column to predict, which is no attribute; None while it is not known.
        attributes: Names of columns; None for all but the target.
        splits: By column, in place of the default: for a numeric one its thresholds, or how many
            evenly spaced ones; for a categorical one a list of values or lists of values, each
            against the rest. By default ``THRESHOLDS`` evenly spaced thresholds from the lower
            bound up, and each value.

    Raises:
        QueryError: An unknown column or value, a threshold out of bounds, no split for a column,
            too many values to put each against the rest.
    """
    own = by_column("splits", splits, "names of columns to thresholds or groups of values", schema.column)
    names = attribute_names(schema, target, attributes)
    require_attributes("splits", own, names)
    sets = [_of_column(schema, name, own.get(name)) for name in names]
    functions = tuple(functions for functions in sets if functions is not None)
    if not functions:
        raise QueryError("there is no splitting function.")
    return functions


def _of_column(schema: Schema, name: str, own: ColumnSplits | None) -> SplitSet | None:
    """Returns a column's functions.

    None where it is a numeric one so coarse that nothing lies between two cells.
    """
    if name in schema.numeric_columns:
        points = _thresholds(schema, name, THRESHOLDS if own is None else own)
        too_coarse = not points and not is_listing(own)
        return None if too_coarse else _of_numbers(schema, name, points)
    return _of_values(schema, name, own)


def _of_numbers(schema: Schema, name: str, points: Sequence[CutPoint]) -> SplitSet:
    base = Cuts(name, tuple(points))
    bind(base, schema)
    return SplitSet(base, tuple(Cuts(name, (point,)) for point in base.points), schema)


def _thresholds(schema: Schema, name: str, own: ColumnSplits) -> Sequence[CutPoint]:
    if is_whole(own):
        if not 1 <= own <= MAX_THRESHOLDS:
            raise QueryError(f"`splits` asks for {own} thresholds of `{name}`; it must be 1 to {MAX_THRESHOLDS:,}.")
        return _evenly_spaced(schema, name, int(own))
    if not is_listing(own):
        raise QueryError(f"`splits` of `{name}` is {own!r}; it must be a list of thresholds, or how many.")
    return tuple(own)  # type: ignore[arg-type]  # `Cuts` checks each of them


def _evenly_spaced(schema: Schema, name: str, count: int) -> tuple[CutPoint, ...]:
    """Returns thresholds at equal distances from the lower bound up, the first just above it.

    Of many quantities most values are the least, say 0.
    """
    column = schema.numeric(name)
    if column.cells < 2:
        return ()
    rest = equal_width(schema, name, count)
    lowest = column.cut_before(1)
    return rest if rest and column.threshold(rest[0], name) == 1 else (lowest, *rest)


def _of_values(schema: Schema, name: str, own: ColumnSplits | None) -> SplitSet:
    """Returns groups of values, each against the rest, each pair once."""
    column = schema.categorical(name)
    labels = column.labels
    if own is not None and not is_listing(own):
        raise QueryError(f"`splits` of `{name}` is {own!r}; it must be a list of values, or of lists of values.")
    if own is None and len(labels) > MAX_VALUES:
        raise QueryError(
            f"`{name}` has {len(labels):,} values; at most {MAX_VALUES:,} are each put against the rest. Say "
            "in `splits` which groups of them to try, "
            "leave the column out of `attributes`, or use strategy 'turns'."
        )
    pairs: dict[frozenset[frozenset[int]], Groups] = {}
    for group in labels if own is None else own:
        values = group if isinstance(group, (list, tuple)) else (group,)
        codes = frozenset(column.code_of(value, name) for value in values)
        rest = frozenset(range(column.codes)) - codes
        if not codes or not rest:
            raise QueryError(
                f"`splits` of `{name}` has the group {list(values)!r}, which leaves one side without a value."
            )
        sides = tuple(tuple(labels[code] for code in sorted(side)) for side in (codes, rest))
        # {a} against the rest, {b, c}, and {b, c} against {a} are one split: the first stays.
        pairs.setdefault(frozenset((codes, rest)), Groups(name, sides))
    if not pairs:
        raise QueryError(f"`splits` of `{name}` is empty; leave the column out of `attributes` instead.")
    return SplitSet(Values(name), tuple(pairs.values()), schema)
