# SPDX-License-Identifier: Apache-2.0
"""Splitting functions that are declared before anything is asked: thresholds of numeric columns, groups of values against the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from miners.growth.candidates import attribute_names, equal_width
from pinq.errors import QueryError
from pinq.public.schema import Categorical, Numeric, Schema
from pinq.public.specs import Axis, Cuts, Groups, Values, bind

__all__ = ["THRESHOLDS", "SplitSet", "first_codes", "splitting_functions"]

THRESHOLDS = 10
MOST_THRESHOLDS = 4096
MOST_VALUES = 1024  # that are each put against the rest unasked: as many splits, each of which names all values
Binary = Cuts | Groups


@dataclass(frozen=True)
class SplitSet:
    """One column's splitting functions, and the one partition from whose parts all of theirs can be put together.

    A table of noisy counts over ``base`` therefore serves all of them at once, by addition.
    """

    base: Values | Cuts
    splits: tuple[Binary, ...]
    schema: Schema

    @cached_property
    def merges(self) -> np.ndarray:
        """Which parts of ``base`` make up each part of each split, 0 or 1, shape (splits, parts, base parts)."""
        first = first_codes(bind(self.base, self.schema).axes[0])
        bound = [bind(split, self.schema).axes[0] for split in self.splits]
        return np.array(
            [one.parts_of(first)[None, :] == np.arange(one.size)[:, None] for one in bound], dtype=np.float64
        )

    def tables(self, counts: np.ndarray) -> np.ndarray:
        """Tables of each split, shape (nodes, splits, parts, classes), from those of the base, shape (nodes, base parts, classes)."""
        return np.einsum("spb,nbc->nspc", self.merges, counts)


def first_codes(axis: Axis) -> np.ndarray:
    """A code of each part of ``Values`` or ``Cuts``, each of which is one code or one interval of them: it tells where all of the part goes."""
    return np.arange(axis.size) if axis.thresholds is None else np.array([0, *axis.thresholds])


def splitting_functions(
    schema: Schema,
    target: str | None,
    *,
    attributes: Sequence[str] | None = None,
    splits: Mapping[str, Any] | None = None,
) -> tuple[SplitSet, ...]:
    """The splitting functions, one set for each attribute.

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
    if splits is not None and not isinstance(splits, Mapping):
        raise QueryError(f"`splits` is {splits!r}; it must map names of columns to thresholds or groups of values.")
    wanted = dict(splits or {})
    for name in wanted:
        schema.column(name)
    names = attribute_names(schema, target, attributes)
    if unused := [name for name in wanted if name not in names]:
        raise QueryError(
            f"`splits` names {unused[0]!r}, which is not an attribute; the attributes are {', '.join(names)}."
        )
    sets = []
    for name in names:
        column = schema.columns[name]
        made = (
            _of_numbers(schema, name, wanted.get(name))
            if isinstance(column, Numeric)
            else _of_values(schema, name, column, wanted.get(name))
        )
        if made is not None:
            sets.append(made)
    if not sets:
        raise QueryError("there is no splitting function.")
    return tuple(sets)


def _of_numbers(schema: Schema, name: str, wanted: Any) -> SplitSet | None:
    """Thresholds; None where a column is so coarse that nothing lies between two cells."""
    given = THRESHOLDS if wanted is None else wanted
    if isinstance(given, (int, np.integer)) and not isinstance(given, bool):
        if not 1 <= given <= MOST_THRESHOLDS:
            raise QueryError(f"`splits` asks for {given} thresholds of `{name}`; it must be 1 to {MOST_THRESHOLDS:,}.")
        points = _evenly_spaced(schema, name, int(given))
        if not points:
            return None
    elif isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise QueryError(f"`splits` of `{name}` is {given!r}; it must be a list of thresholds, or how many.")
    else:
        points = tuple(given)
    base = Cuts(name, points)
    bind(base, schema)
    return SplitSet(base, tuple(Cuts(name, (point,)) for point in base.points), schema)


def _evenly_spaced(schema: Schema, name: str, count: int) -> tuple[float, ...]:
    """Thresholds at equal distances from the lower bound up, the first just above it: of many quantities most values are the least one, say 0."""
    column = schema.numeric(name)
    if column.cells < 2:
        return ()
    rest = equal_width(schema, name, count)
    lowest = column.edge(1)
    return rest if rest and column.threshold(rest[0], name) == 1 else (lowest, *rest)


def _of_values(schema: Schema, name: str, column: Categorical, wanted: Any) -> SplitSet:
    """Groups of values, each against the rest, each pair once."""
    labels = column.labels
    if wanted is not None and (isinstance(wanted, (str, bytes)) or not isinstance(wanted, Iterable)):
        raise QueryError(f"`splits` of `{name}` is {wanted!r}; it must be a list of values, or of lists of values.")
    if wanted is None and len(labels) > MOST_VALUES:
        raise QueryError(
            f"`{name}` has {len(labels):,} values; at most {MOST_VALUES:,} are each put against the rest. Say "
            f"in `splits` which groups of them to try, "
            "leave the column out of `attributes`, or use strategy 'turns'."
        )
    groups = [
        tuple(one) if isinstance(one, (list, tuple)) else (one,) for one in (labels if wanted is None else wanted)
    ]
    made: dict[frozenset[Any], Groups] = {}
    for group in groups:
        codes = frozenset(column.code_of(value, name) for value in group)
        rest = frozenset(range(column.codes)) - codes
        if not codes or not rest:
            raise QueryError(
                f"`splits` of `{name}` has the group {list(group)!r}, which leaves one side without a value."
            )
        made.setdefault(
            frozenset((codes, rest)),
            Groups(name, tuple(tuple(labels[code] for code in sorted(side)) for side in (codes, rest))),
        )
    if not made:
        raise QueryError(f"`splits` of `{name}` is empty; leave the column out of `attributes` instead.")
    return SplitSet(Values(name), tuple(made.values()), schema)
