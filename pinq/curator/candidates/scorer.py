# SPDX-License-Identifier: Apache-2.0
"""What all scorers share: the tables of a request, and runs of members of equal score.

``SplitScorer`` scores a plain candidate: one spec, one score for each part.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Generic, NamedTuple, TypeVar, cast

import numpy as np

from pinq.curator.work import MAX_MEMBERS, Counted
from pinq.engine.tables import Form, Measure, Moments, Sparse, TableRequest
from pinq.errors import QueryError
from pinq.public.schema import Schema
from pinq.public.scores import Score
from pinq.public.specs import Axis, Candidate, Spec, Splitting, Values, bind

__all__ = ["Frame", "Occupation", "Runs", "Scorer", "SplitScorer", "occupied"]

DENSE_CODES = 1024
CELLS_AT_ONCE = 2**15  # numbers at occupied codes that are looked at together
NUMBERS_AT_ONCE = 2**16  # numbers of several parts that a scorer looks at together
C = TypeVar("C", bound=Candidate)

FEW_SPLITS = 8  # of one column in a request: each gets a table of its own, more share a table of the column's codes


class Runs(NamedTuple):
    """One candidate as it stands for one part: its members, gathered into runs of equal score.

    Attributes:
        scores: The score of each run, integers, shape (runs,).
        members: How many members each run has, shape (runs,).
        first: The number of each run's first member, shape (runs,); those after it are numbered on.
        size: Members in all.
        name: The spec of a member, by its number.
    """

    scores: np.ndarray
    members: np.ndarray
    first: np.ndarray
    size: int
    name: Callable[[int], Spec]

    def spec(self, run: int, member: int) -> Spec:
        """The spec of a member of a run."""
        return self.name(int(self.first[run]) + member)


class Frame:
    """What all candidates of a request share: the schema, the score, and the tables.

    Args:
        schema: The public columns.
        score: By what they are judged.
        splits: All plain candidates.
        listed: How many candidates a part has, at most.

    Attributes:
        tables: What the engine is to count, in the order in which it was asked for.
        crowded: Columns whose splits share a table.
    """

    def __init__(self, schema: Schema, score: Score, splits: Iterable[Splitting] = (), listed: int = 1) -> None:
        self.schema, self.score, self._room = schema, score, min(NUMBERS_AT_ONCE, MAX_MEMBERS // listed)
        self.tables: list[TableRequest] = []
        self._by_codes: dict[str, int] = {}
        # Where a column is split in many ways, one table of its codes serves them all: a level of a
        # forest has hundreds.
        count = Counter(column for split in splits if len(split.factors) == 1 for column in split.columns())
        self.crowded = {column for column, splits_of_it in count.items() if splits_of_it > FEW_SPLITS}

    @cached_property
    def classes(self) -> tuple[Axis, ...]:
        """The last axis of every table for a score of classes; none for others."""
        split = self.score.classes(self.schema)
        return () if split is None else bind(split, self.schema).axes

    @property
    def width(self) -> int:
        """How many numbers a cell has."""
        return math.prod(axis.size for axis in self.classes)

    @cached_property
    def measure(self) -> Measure | None:
        """What to sum up, for a score of moments or vectors."""
        if self.score.measure != "moments":
            return self.score.vectors(self.schema)
        (target,) = self.score.columns()
        first, last, dropped = self.score.clamp(self.schema)
        return Moments(target, dropped, squares=True, first=first, last=last)

    def add(self, axes: tuple[Axis, ...], form: Form = "dense") -> int:
        """Asks for a table over some axes and the classes; returns its position."""
        self.tables.append(TableRequest((*axes, *self.classes), form))
        return len(self.tables) - 1

    def add_codes(self, name: str) -> int:
        """Asks for a table over the codes of a column, once; returns its position.

        That of a fine grid is sparse.
        """
        if name not in self._by_codes:
            column = self.schema.column(name)
            few = column.codes <= DENSE_CODES or name in self.schema.categorical_columns
            axis = bind(Values(name), self.schema).axes[0] if few else Axis(name, column.codes, ())
            self._by_codes[name] = len(self.tables)
            self.tables.append(TableRequest((axis, *self.classes), "dense" if few else "sparse"))
        return self._by_codes[name]

    def stretches(self, rows: np.ndarray, numbers: int) -> Iterator[np.ndarray]:
        """Cuts rows into stretches that are scored together, each row by looking at so many numbers."""
        step = max(1, self._room // numbers)
        for start in range(0, len(rows), step):
            yield rows[start : start + step]

    def measured(self, table: np.ndarray) -> np.ndarray:
        """A table with the score's measure as its last axis."""
        return table[..., None] if self.score.measure == "rows" else table

    def scores(self, table: np.ndarray, score: Score | None = None) -> np.ndarray:
        """The scores of tables (..., cells, measure), int64; by a candidate's own score, if it has one."""
        return np.asarray((score or self.score).of(table, self.schema)).astype(np.int64, copy=False)


class Scorer(ABC, Generic[C]):
    """Scores one candidate.

    It is made before the charge from public facts, and asked for scores after it.

    Args:
        candidate: What is scored.
        frame: What it shares with the others.

    Attributes:
        is_family: Whether it stands for several specs.
        table: The position in ``frame.tables`` of what it needs.
        members: Its members, at most, for one part; those of equal score beside each other count as
            one.
        member_cells: Cells, about, that scoring a member and choosing it look at.
        spec_bytes: How long the text of a member's spec may be: as long as all that the candidate says.
        options: How many candidates it counts as in a preview of the choice's error.
        scratch: Cells of the largest array that scoring makes for a part beside its tables.
        most_flipped: Of how many members at most one is chosen by permute-and-flip, where nothing
            else is offered.

    Raises:
        QueryError: The candidate means nothing under the schema, or the score is not defined for
            it.
    """

    is_family: ClassVar[bool] = True
    most_flipped: ClassVar[float] = math.inf
    table: int
    members: int = 1
    member_cells: int
    options: int = 1
    scratch: int = 0

    def __init__(self, candidate: C, frame: Frame) -> None:
        self.candidate, self.frame = candidate, frame
        self.score = frame.score.of_candidate(candidate)
        candidate.check(frame.schema)
        for target in candidate.columns() & frame.score.targets():
            raise QueryError(f"{candidate!r} splits by the target `{target}` itself.")
        self.spec_bytes = 128 + 12 * len(repr(candidate))

    def cells(self, parts: int) -> int:
        """Cells, about, that scoring it and choosing a member look at, for so many disjoint parts."""
        return parts * self.members * self.member_cells

    @abstractmethod
    def runs(self, counted: Counted, rows: np.ndarray) -> Iterable[Runs]:
        """Scores the members exactly.

        Args:
            counted: Parts and what the engine counted of them.
            rows: For which of these parts, in order.

        Returns:
            One for each of ``rows``; scores of large families are there for some rows at a time.
        """


@dataclass(frozen=True, eq=False)
class Occupation:
    """What is at the occupied codes of a column, in some parts.

    Attributes:
        places: The occupied cells, in order; those of each part stand one behind another.
        values: What is in each: a count, or numbers that were added up.
        codes: Of the column.
        classes: Cells of a code; None where each has one, of several numbers.
    """

    places: np.ndarray
    values: np.ndarray
    codes: int
    classes: int | None

    @property
    def measures(self) -> int:
        """How many numbers are at a code."""
        return self.classes or self.values.shape[1]

    def pieces(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yields parts, codes in each, both in order, and their table, shape (measure, codes).

        They are some at a time, which a processor keeps at hand.
        """
        for piece in self._whole_codes():
            cells, values = self.places[piece], self.values[piece]
            places, table = (cells, values.T) if self.classes is None else _by_code(cells, values, self.classes)
            parts = places // self.codes
            yield parts, places - parts * self.codes, table

    def cells(self, axis: Axis, parts: int) -> np.ndarray:
        """What is in each part of a split of the column, shape (parts, cells, measure)."""
        cells = np.zeros((parts, axis.size, self.measures), dtype=np.int64)
        for part, codes, table in self.pieces():
            own = axis.parts_of(codes)
            np.add.at(cells, (part[own >= 0], own[own >= 0]), table.T[own >= 0])
        return cells

    def _whole_codes(self) -> Iterator[slice]:
        """Cuts the cells into stretches, all cells of a code in the same one."""
        # Cells 2 3 | 4 6 and 2 | 4 5 of 2 classes: a stretch ends before the first cell of a code.
        step = max(1, CELLS_AT_ONCE // self.measures)
        begins = self.places[step::step]
        begins = begins - begins % (self.classes or 1)
        ends = np.unique([0, *np.searchsorted(self.places, begins), len(self.places)]).tolist()
        return map(slice, ends[:-1], ends[1:])


def occupied(frame: Frame, counted: Counted, position: int, codes: int, rows: np.ndarray) -> Occupation:
    """What is at the occupied codes of a column in some of the counted parts, numbered by their place in ``rows``."""
    table, classes = cast(Sparse, counted.tables[position]), frame.classes[0].size if frame.classes else 1
    places, values = table.places, table.values
    if not np.array_equal(rows, np.arange(len(counted.parts))):
        # Places are in order. Of 5 codes and 2 classes, 20 to 29 are of part 2; where that comes first, they
        # are 0 to 9.
        width, numbers = codes * classes, np.arange(len(rows))
        starts, ends = np.searchsorted(places, [width * rows, width * (rows + 1)])
        number = np.repeat(numbers, ends - starts)
        skipped = starts - np.cumsum(ends - starts) + (ends - starts)
        mine = np.arange(len(number)) + skipped[number]
        places, values = places[mine] + width * (numbers - rows)[number], values[mine]
    return Occupation(places, values, codes, classes if frame.measure is None else None)


def _by_code(cells: np.ndarray, counts: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Puts the classes of a code beside each other; codes, and counts of shape (classes, codes)."""
    codes = cells // classes
    new = np.ones(len(codes), dtype=bool)
    np.not_equal(codes[1:], codes[:-1], out=new[1:])
    begins = np.flatnonzero(new)
    # Cells 2, 3 and 6 of two classes are of the codes 1, 1 and 3: `new` is 1 0 1, so its running sum
    # less 1, 0 0 1, is the column of each, and their classes are 0, 1 and 0.
    by_class = np.zeros(classes * len(begins), dtype=np.int64)
    by_class[(cells - codes * classes) * len(begins) + np.cumsum(new) - 1] = counts
    return codes[begins], by_class.reshape(classes, -1)


class SplitScorer(Scorer[Spec]):
    """Scores a spec by a table of its parts.

    Many splits of one column share the table of its codes.
    """

    is_family = False

    def __init__(self, candidate: Spec, frame: Frame) -> None:
        self.partition = bind(candidate, frame.schema)
        frame.score.check_cells(candidate, self.partition.axes)
        super().__init__(candidate, frame)
        self._column = self.partition.axes[0].column if len(self.partition.axes) == 1 else None
        self._shares = self._column in frame.crowded
        self.table = frame.add_codes(str(self._column)) if self._shares else frame.add(self.partition.axes)
        # Its cells, or the codes of its column where it shares their table.
        codes = frame.schema.column(self._column).codes if self._shares else 0
        self.member_cells = self.partition.size * frame.width + min(codes, frame.schema.max_rows)

    def runs(self, counted: Counted, rows: np.ndarray) -> list[Runs]:
        """One run of one member."""
        single = np.ones(1, dtype=np.int64)
        scores = self.frame.scores(self._cells(counted, rows), self.score).reshape(-1, 1)
        return [Runs(score, single, single, 1, lambda _: self.partition.spec) for score in scores]

    def _cells(self, counted: Counted, rows: np.ndarray) -> np.ndarray:
        """What is in each part of the split, shape (rows, cells, measure)."""
        axis = self.partition.axes[0]
        # Three kinds of tables: the occupied codes of a fine grid, all codes of a column that many
        # splits share, or the split's own parts. The first two are added up to parts here.
        if self.frame.tables[self.table].form != "dense":
            codes = self.frame.schema.column(self._column).codes
            return occupied(self.frame, counted, self.table, codes, rows).cells(axis, len(rows))
        tables = self.frame.measured(counted.array(self.table)[rows])
        if not self._shares:
            return tables.reshape(tables.shape[0], self.partition.size, tables.shape[-1])
        cells = np.zeros((len(rows), axis.size, tables.shape[-1]), dtype=np.int64)
        own = axis.parts_of(np.arange(tables.shape[1]))
        np.add.at(cells.swapaxes(0, 1), own[own >= 0], tables.swapaxes(0, 1)[own >= 0])
        return cells
