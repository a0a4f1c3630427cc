# SPDX-License-Identifier: Apache-2.0
"""Public additive scores of a row: a whole number for each part of some specs, added up.

``Points((Values("sex"), Cuts("age", (30,))), ((-40, 25), (-90, 60)), base=-200)`` gives a woman of 25 the score -200 -
40 - 90 = -330. Tables may depend on earlier answers, never on rows. So a score is a row-wise map, stability 1
(privacy.md 1.1).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Literal

import numpy as np

from pinq.errors import QueryError
from pinq.language.specs import Axis, OfSpecs, Partition, Spec, Splitting, bind, joint_cells, joint_slots
from pinq.public.checks import TupleOf, brief, require_kind
from pinq.public.schema import Schema

POINTS = 256  # to one logit, or to one grid cell of a numeric target
MAX_TABLES = 4096
MAX_AXES_OF_POINTS = 512
MAX_NUMBERS = 2**21
JOINED_NUMBERS = 2**14
LIFTED_NUMBERS = 2**15


@dataclass(frozen=True)
class Points(OfSpecs):
    """The scores of an additive model: a base, and points for each part of each grouping.

    The score of a row is F(row) = ``base`` + Σ_i ``tables[i]`` at the row's part of ``specs[i]``. A
    grouping without a part for the row adds nothing.

    Attributes:
        specs: The groupings; several may be of one column.
        tables: A whole number for each part of each spec, parts in flat order, missing values last; 256 are one logit,
            or one grid cell of a numeric target.
        base: The score from which every row starts.

    Examples:
        >>> import pinq
        >>> points = pinq.Points((pinq.Values("sex"),), ((-64, 64),), base=-300)
        >>> points.columns(), points.largest
        ({'sex'}, 364)
    """

    specs: TupleOf[Spec] = ()
    tables: TupleOf[TupleOf[int]] = ()
    base: int = 0
    kind: Literal["points"] = field(default="points", repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "specs", tuple(self.specs))
        object.__setattr__(self, "tables", tuple(_whole(table) for table in self.tables))
        object.__setattr__(self, "base", _whole([self.base])[0])
        require_kind(self.specs, Splitting, "`specs` of Points takes Values, Cuts, Groups, Shards and Cross.")
        if len(self.specs) != len(self.tables):
            raise QueryError(f"Points has {len(self.specs)} specs and {len(self.tables)} tables; each needs the other.")

    @property
    def largest(self) -> int:
        """A bound of the size of every row's score."""
        return abs(self.base) + sum(max(max(table), -min(table)) for table in self.tables if table)

    def check(self, schema: Schema) -> None:
        """Raises ``QueryError`` unless each table has a number for each part of its spec."""
        list(self.bind(schema))

    def bind(self, schema: Schema) -> Iterator[tuple[Partition, tuple[int, ...]]]:
        """Each spec under a schema, with its table. Raises ``QueryError`` as in ``check``."""
        for spec, table in zip(self.specs, self.tables, strict=True):
            partition = bind(spec, schema)
            if len(table) != partition.size:
                parts = f"{partition.size:,} parts"
                raise QueryError(f"{brief(spec)} has {parts}, and its table of points {len(table):,} numbers.")
            yield partition, table


@dataclass(frozen=True, eq=False)
class _PointsTerm:
    """The points that some axes together add to each of several scores.

    Attributes:
        table: The points of each cell of the axes' joint table, shape (scores, cells), the last axis running fastest; 0
            for a row that is in no part.
    """

    axes: tuple[Axis, ...]
    table: np.ndarray

    @classmethod
    def of_partition(cls, partition: Partition, table: np.ndarray) -> _PointsTerm:
        # Of sex and age, in 2 and 2 parts, age has a third slot: the parts are at cells 0, 1, 3, 4.
        cells = np.zeros(1, dtype=np.intp)
        for axis in partition.axes:
            cells = (cells[:, None] * axis.slots + np.arange(axis.size)).ravel()
        wide = np.zeros((len(table), joint_slots(partition.axes)), dtype=np.int64)
        wide[:, cells] = table
        return cls(partition.axes, wide)

    def joined(self, other: _PointsTerm) -> _PointsTerm:
        """The sum of both terms, as one table over the axes of both."""
        # Sex adds 5 or 9, age 1, 2 or 3: together 6, 7 or 8, and 10, 11 or 12.
        both = self.table[:, :, None] + other.table[:, None, :]
        return _PointsTerm(self.axes + other.axes, both.reshape(len(self.table), -1))

    def over(self, axes: Sequence[Axis]) -> np.ndarray:
        """The table over more axes, in any order, constant along the added ones: (scores, cells)."""
        # Age adds 1, 2 or 3: over sex by age the cells are 1 2 3 1 2 3.
        identities = [axis.identity for axis in axes]
        places = [identities.index(axis.identity) for axis in self.axes]
        table = self.table.reshape(-1, *(axis.slots for axis in self.axes))
        table = table.transpose(0, *(1 + np.argsort(places)))
        narrow = [axis.slots if number in places else 1 for number, axis in enumerate(axes)]
        wide = (len(table), *(axis.slots for axis in axes))
        return np.broadcast_to(table.reshape(-1, *narrow), wide).reshape(len(table), -1)

    def is_within(self, axes: Sequence[Axis]) -> bool:
        """Whether these axes include its own, and their joint table fits into a core's cache."""
        identities = {axis.identity for axis in axes}
        few = len(self.table) * joint_slots(axes) <= LIFTED_NUMBERS
        return few and all(axis.identity in identities for axis in self.axes)

    def cells(self, places: Sequence[np.ndarray]) -> np.ndarray:
        """The cells of rows in the table, from their places along each of the axes."""
        # Sex by age, in 2 and 3 slots: a woman (0) in the second age is at cell 0 * 3 + 1.
        along = zip((axis.slots for axis in self.axes[1:]), places[1:], strict=True)
        return joint_cells(places[0], along, np.min_scalar_type(self.table.shape[1]))


@dataclass(frozen=True, eq=False)
class RowScores:
    """Several scores under a schema, computed side by side.

    Attributes:
        terms: The added numbers: one term for each of the distinct specs, until they are joined (``over``).
        base: The first value of each score, shape (scores, 1).
        specs: The number of distinct specs.
    """

    terms: tuple[_PointsTerm, ...]
    base: np.ndarray
    specs: int

    @classmethod
    def bind(cls, scores: Sequence[Points], schema: Schema) -> RowScores:
        """Binds scores to a schema, or raises ``QueryError``."""
        if sum(len(points.specs) for points in scores) > MAX_TABLES:
            raise QueryError(f"the points have more than {MAX_TABLES:,} tables.")
        # 64 bits hold the difference of two scores.
        if any(points.largest >= 2**60 for points in scores):
            raise QueryError("the points add up to scores of 2^60 or more.")
        bound = [list(points.bind(schema)) for points in scores]
        partitions = {partition.key: partition for partition, _ in itertools.chain.from_iterable(bound)}
        axes = sum(len(partition.axes) for partition in partitions.values())
        if axes > MAX_AXES_OF_POINTS:
            raise QueryError(
                f"the specs of the points look at {axes:,} axes; at most {MAX_AXES_OF_POINTS} are possible."
            )
        numbers = len(scores) * sum(joint_slots(partition.axes) for partition in partitions.values())
        if numbers > MAX_NUMBERS:
            raise QueryError(
                f"the points of all classes make {numbers:,} numbers; at most {MAX_NUMBERS:,} are possible."
            )
        # Scores of three classes that all look at sex share one term, with a row of numbers for
        # each.
        added = {key: np.zeros((len(scores), split.size), dtype=np.int64) for key, split in partitions.items()}
        for score, tables in enumerate(bound):
            for partition, table in tables:
                added[partition.key][score] += table
        terms = [_PointsTerm.of_partition(partition, added[key]) for key, partition in partitions.items()]
        base = np.array([[points.base] for points in scores], dtype=np.int64)
        return cls(tuple(terms), base, len(terms))

    @property
    def nbytes(self) -> int:
        return sum(term.table.nbytes for term in self.terms)

    @property
    def steps(self) -> int:
        return len(self.axes) + self.specs * len(self.base)

    @property
    def axes(self) -> tuple[Axis, ...]:
        return tuple(axis for term in self.terms for axis in term.axes)

    def over(self, joint: Sequence[tuple[Axis, ...]]) -> RowScores:
        """The same scores, looked up in the cells of joint tables that have the axes.

        Axes in no joint table are joined with each other.
        """
        tables: dict[int, np.ndarray] = {}
        unplaced = list[_PointsTerm]()
        for term in self.terms:
            number = next((number for number, axes in enumerate(joint) if term.is_within(axes)), None)
            if number is None:
                unplaced.append(term)
            else:
                tables[number] = tables.get(number, 0) + term.over(joint[number])
        terms = [*(_PointsTerm(joint[number], table) for number, table in tables.items()), *_joined(unplaced)]
        if not terms:
            return self
        # Every row has a cell in the first table, which therefore includes the base.
        first = replace(terms[0], table=terms[0].table + self.base)
        return replace(self, terms=(first, *terms[1:]), base=np.zeros_like(self.base))

    def cells(self, places: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The cells of rows in the table of each term.

        Args:
            places: Each row's place along each of ``axes``; the last of ``axis.slots`` is for rows in no part.
        """
        remaining = iter(places)
        return [term.cells([next(remaining) for _ in term.axes]) for term in self.terms]

    def added(self, cells: Sequence[np.ndarray], rows: int) -> np.ndarray:
        """The scores of rows, int64, shape (scores, rows), from their cells in each term."""
        if not self.terms:
            return np.repeat(self.base, rows, axis=1)
        pairs = zip(self.terms, cells, strict=True)
        return reduce(np.ndarray.__iadd__, (term.table.take(cell, axis=1) for term, cell in pairs))


def _joined(terms: Iterable[_PointsTerm]) -> list[_PointsTerm]:
    """Joins neighbours whose numbers fit into a core's cache: a row needs fewer look-ups."""
    joined = list[_PointsTerm]()
    for term in terms:
        if joined and joined[-1].table.size * term.table.shape[1] <= JOINED_NUMBERS:
            joined[-1] = joined[-1].joined(term)
        else:
            joined.append(term)
    return joined


def _whole(numbers: Iterable[int]) -> tuple[int, ...]:
    """Numbers as plain integers; raises ``QueryError`` if one is not whole, or too large.

    The checked numbers are returned, because an iterable may give others when it is read again.
    """
    members = tuple(numbers)
    try:
        whole = tuple(int(operator.index(number)) for number in members)
    except TypeError:
        raise QueryError("points must be whole numbers; 256 are one logit, or one grid cell of the target.") from None
    if any(isinstance(number, bool) for number in members) or any(abs(number) > 2**40 for number in whole):
        raise QueryError(f"points must be whole numbers from -2^40 to 2^40, not {list(whole[:8])!r}.")
    return whole
