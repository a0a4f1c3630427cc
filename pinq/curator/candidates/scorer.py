# SPDX-License-Identifier: Apache-2.0
"""The scorers of each kind of candidate: a plain split, every cut, every grouping, every cross.

A plain split has one score for each part (``SplitScorer``); a family has many members:

``AnyCut``: a column of few codes has a dense table, of all its codes. On a fine grid, or with many classes, only the
occupied codes are listed: cuts between two neighbouring ones put the same rows on the same sides, so they have one
score and are one run.

``AnyCross``: 35 columns have 5,984 triples besides a target, 60 have 32,509. All members are scored from one listing of
the table, each from a small temporary table: memory is proportional to the rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import ClassVar, Generic, NamedTuple, Self, TypeVar, cast

import numpy as np

from pinq.curator.prepared import MAX_MEMBERS, Counted
from pinq.curator.price import GROUPING, MEMBER, SCORING, SPLITTING
from pinq.engine.counting import run_starts
from pinq.engine.tables import Form, Listed, Measure, Moments, Sparse, Table, TableRequest
from pinq.errors import QueryError
from pinq.language.scores import Balance, Score, SumScore
from pinq.language.specs import (
    KEPT_GROUPINGS,
    KEPT_VALUES,
    MAX_GROUPINGS,
    AnyCross,
    AnyCut,
    AnyGrouping,
    Axis,
    Candidate,
    Cuts,
    Spec,
    Values,
    bind,
)
from pinq.public.checks import brief
from pinq.public.schema import Schema

DENSE_COLUMN = 2048  # cells of a part, of two classes at least; of more, nearly all are empty on deep levels
STRETCH = 2**10  # occupied codes of a part that are first read as one
CELLS_AT_ONCE = 2**15  # numbers at occupied codes that are read together
Piece = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Parts by number, codes in each, both in order, and their table, shape (measure, codes)."""
NUMBERS_AT_ONCE = 2**16  # numbers of several parts that a scorer reads together
C = TypeVar("C", bound=Candidate)

FEW_SPLITS = 8  # of one column in a request: each gets a table of its own, more share a table of the column's codes


class Runs(NamedTuple):
    """One candidate for one part: its members, gathered into runs of equal score.

    Attributes:
        scores: The score of each run, integers, shape (runs,).
        members: The number of members of each run, shape (runs,).
        first: The number of each run's first member, shape (runs,); the others follow it.
        size: The number of members.
        all_runs: A function that returns all runs, if some with scores far below the best are one run here; else None.
    """

    scores: np.ndarray
    members: np.ndarray
    first: np.ndarray
    size: int
    name: Callable[[int], Spec]
    all_runs: Callable[[], Runs] | None = None


class Frame:
    """The common data of all candidates of a request: the schema, the score, and the tables.

    Attributes:
        crowded: Columns with several splits that share a table.
        groupings: The number of candidates whose bipartitions may be drawn.
    """

    def __init__(
        self, schema: Schema, score: Score, candidates: Iterable[Candidate] = (), list_length: int = 1
    ) -> None:
        self.schema, self.score, self._room = schema, score, min(NUMBERS_AT_ONCE, MAX_MEMBERS // list_length)
        self.tables, candidates = list[TableRequest](), list(candidates)
        self.groupings = sum(isinstance(candidate, AnyGrouping) for candidate in candidates)
        self._by_codes: dict[str, int] = {}
        # Many splits of one column share one table of its codes: a level of a forest has hundreds of
        # splits.
        splits = (candidate.as_spec for candidate in candidates)
        count = Counter(column for split in splits if split and len(split.factors) == 1 for column in split.columns())
        self.crowded = {column for column, splits_of_it in count.items() if splits_of_it > FEW_SPLITS}

    @cached_property
    def classes(self) -> tuple[Axis, ...]:
        """The last axis of every table for a score of classes; none for others."""
        split = self.score.classes(self.schema)
        return () if split is None else bind(split, self.schema).axes

    @cached_property
    def width(self) -> int:
        return math.prod(axis.size for axis in self.classes)

    @cached_property
    def measure(self) -> Measure | None:
        """The measure to add up, for a score of moments or vectors."""
        if self.score.measure != "moments":
            return self.score.vectors(self.schema)
        (target,) = self.score.columns()
        first, last, dropped = self.score.clamp(self.schema)
        return Moments(target, dropped, squares=True, first=first, last=last)

    def add(self, axes: tuple[Axis, ...], form: Form = "dense") -> int:
        """Requests a table over some axes and the classes; returns its position."""
        self.tables.append(TableRequest((*axes, *self.classes), form))
        return len(self.tables) - 1

    def add_codes(self, name: str) -> int:
        """Requests a table over the codes of a column, once; returns its position.

        The table of a fine grid, or of many classes, is sparse.
        """
        if name not in self._by_codes:
            column = self.schema.column(name)
            few = column.codes * max(2, self.width) <= DENSE_COLUMN or name in self.schema.categorical_columns
            axis = bind(Values(name), self.schema).axes[0] if few else Axis(name, column.codes, ())
            self._by_codes[name] = self.add((axis,), "dense" if few else "sparse")
        return self._by_codes[name]

    def stretches(self, rows: np.ndarray, numbers: int | np.ndarray) -> Iterator[np.ndarray]:
        """Cuts rows into stretches that are scored together, by the numbers that each row reads."""
        if len(rows) == 1:
            return iter([rows])
        # Rows of 5, 4, 3 and 9 numbers end at 5, 9, 12 and 21. With room for 10, the first two are one stretch because
        # they end below 10; the third ends below 20 and is the second stretch, and the last is the third.
        ends = np.cumsum(np.broadcast_to(numbers, len(rows)))
        begins = np.flatnonzero(np.diff(ends // self._room, prepend=-1)).tolist()
        return (rows[begin:end] for begin, end in zip(begins, [*begins[1:], len(rows)], strict=True))

    @cached_property
    def measures(self) -> int:
        """The number of numbers of a code: classes, entries of a vector, or rows, their sum and sum of squares."""
        return 3 if self.score.measure == "moments" else self.width if self.measure is None else self.measure.width

    def shares(self, contents: Table, codes: int, rows: np.ndarray) -> Iterator[np.ndarray]:
        """Stretches of parts whose numbers fit into a processor's cache, unless one part has more."""
        if isinstance(contents, np.ndarray):
            return self.stretches(rows, codes * self.measures)
        starts, ends = np.searchsorted(cast(Sparse, contents).places, codes * self.width * np.stack([rows, rows + 1]))
        return self.stretches(rows, ends - starts)

    def cells(self, contents: Table, codes: int, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The cells of a column in some parts, in order: their positions and contents, shape (cells, numbers).

        A dense table has the first cell of each code, with the numbers of all classes. A sparse table has the
        occupied cells.
        """
        if isinstance(contents, np.ndarray):
            return self.width * np.arange(len(rows) * codes), contents[rows].reshape(-1, self.measures)
        # Places are in order. Of 10 cells, 20 to 29 are of part 2; where that comes first, they are 0 to 9.
        cells, values = cast(Sparse, contents).places, cast(Sparse, contents).values
        width, numbers = codes * self.width, np.arange(len(rows))
        starts, ends = np.searchsorted(cells, [width * rows, width * (rows + 1)])
        lengths = ends - starts
        picked = np.arange(lengths.sum()) + (ends - lengths.cumsum()).repeat(lengths)
        cells, values = cells[picked] + (width * (numbers - rows)).repeat(lengths), values[picked]
        return cells, values.reshape(-1, self.measures // self.width)

    def listed(self, contents: Table, codes: int, rows: np.ndarray) -> Piece:
        """Lists the cells of a column's codes in some parts, in order.

        Returns:
            The place of the code of each cell, ``codes`` for each part before its part; its class, shape (cells,); and
            its numbers, shape (numbers, cells). In a dense table a cell is a code with all of its numbers, and its
            class is 0. A sparse table has the occupied cells, and an empty one at the first code of each part.
        """
        cells, values = self.cells(contents, codes, rows)
        if not isinstance(contents, np.ndarray):
            firsts = codes * self.width * np.arange(len(rows))
            places = cells.searchsorted(firsts)
            # A whole row at once: to insert into rows takes five times as long.
            values = np.append(values, np.zeros((1, values.shape[1]), dtype=np.int64), axis=0).take(
                np.insert(np.arange(len(cells)), places, -1), axis=0
            )
            cells = np.insert(cells, places, firsts)
        place = cells // self.width
        return place, cells - self.width * place, values.T

    def pieces(self, piece: Piece, codes: int) -> Iterator[Piece]:
        """The codes of a column in some parts, in pieces that fit into a processor's cache."""
        place, of_class, values = piece
        for cut in together(place, self.measures):
            cells, table = place[cut], values[:, cut]
            if len(values) < self.measures:
                # Cells of the classes 0 and 1 of code 3, and of class 1 of code 7: their columns are 0, 0 and 1.
                new = np.diff(cells, prepend=-1) > 0
                by_class = np.zeros((self.width, len(values), np.count_nonzero(new)), dtype=np.int64)
                by_class[of_class[cut], :, np.cumsum(new) - 1] = table.T
                cells, table = cells[new], by_class.reshape(self.measures, -1)
            yield cells // codes, cells % codes, table

    def scores(self, table: np.ndarray, score: Score | None = None) -> np.ndarray:
        """The scores of tables (..., cells, measure), int64; by a candidate's own score, if one is given."""
        return np.asarray((score or self.score).of(table, self.schema)).astype(np.int64, copy=False)


class Scorer(ABC, Generic[C]):
    """Scores one candidate.

    It is made before the charge from public facts; ``QueryError`` if it does not fit.

    Attributes:
        part_cells: The fixed work of scoring it for a part, as a number of cells.
        members: The largest number of its members for one part; neighbours of equal score count as one.
        member_cells: Approximate number of cells that are read to score and choose a member.
        options: The number of candidates for which it counts in a preview of the choice's error.
        scratch: Cells of the largest array that scoring makes for a part in addition to its tables.
        most_flipped: The largest number of members among which permute-and-flip chooses, without other candidates.
    """

    is_family: ClassVar[bool] = True
    part_cells: ClassVar[int] = SCORING
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
            raise QueryError(f"{brief(candidate)} splits by the target `{target}` itself.")

    def cells(self, parts: int) -> int:
        """Approximate number of cells that are read to score it and choose a member, for disjoint parts."""
        return parts * self.members * self.member_cells

    def group_of(self, position: int) -> Hashable:
        """The key of scorers that score together, by their position in a list."""
        return self

    @abstractmethod
    def runs(
        self, counted: Counted, rows: np.ndarray, scorers: Sequence[Self], reach: float = math.inf
    ) -> Iterable[Runs]:
        """Scores the members exactly.

        Args:
            counted: Parts and their exact tables.
            rows: The numbers of the parts that are scored, in order.
            scorers: One scorer for each row; all have the same form, and the first computes all scores.
            reach: The distance from the best at which runs may be merged.

        Returns:
            Runs for each of ``rows``; scores of large families are computed for some rows at a time.
        """


def together(cells: np.ndarray, numbers: int) -> Iterator[slice]:
    """Cuts cells, which are in order of their codes, into slices that are read together."""
    # Two by two, cells of the codes 2 2 3 5 5 6 begin at 2, 3 and 5: they are cut into 2 2, 3 and 5 5 6.
    begins = np.unique(np.searchsorted(cells, cells[:: max(1, CELLS_AT_ONCE // numbers)])).tolist()
    return map(slice, begins, [*begins[1:], len(cells)])


class SplitScorer(Scorer[Spec]):
    """Scores a spec by a table of its parts.

    Many splits of one column share the table of its codes.
    """

    is_family, part_cells = False, SPLITTING

    def __init__(self, candidate: Spec, frame: Frame) -> None:
        self.partition = bind(candidate, frame.schema)
        frame.score.check_cells(candidate, self.partition.axes)
        super().__init__(candidate, frame)
        self._column = self.partition.axes[0].column if len(self.partition.axes) == 1 else None
        self._shares = self._column in frame.crowded
        self.table = frame.add_codes(str(self._column)) if self._shares else frame.add(self.partition.axes)
        # Its cells, or the codes of its column where it shares their table.
        codes = frame.schema.column(self._column).codes if self._shares else 0
        cells = self.partition.size * frame.width
        self.member_cells = cells // (5 if frame.score.quick else 1) + min(codes, frame.schema.max_rows)

    def group_of(self, position: int) -> Hashable:
        """Splits of a crowded column are scored together if they have one form.

        Their position in their lists is the same, so no part is scored twice at once.
        """
        if not self._shares:
            return self
        return position, self.table, id(self.score), self.partition.size, self.partition.axes[0].thresholds is None

    def runs(
        self, counted: Counted, rows: np.ndarray, scorers: Sequence[Self], reach: float = math.inf
    ) -> Iterator[Runs]:
        single = np.ones(1, dtype=np.int64)
        scores = self._scored(counted, rows, scorers).reshape(-1, 1)
        return (Runs(score, single, single, 1, scorer.member) for score, scorer in zip(scores, scorers, strict=True))

    def _scored(self, counted: Counted, rows: np.ndarray, scorers: Sequence[Self]) -> np.ndarray:
        if self._shares:
            return self.frame.scores(self._cells(counted, rows, scorers), self.score)
        # Some parts at a time, whose numbers a processor keeps at hand.
        size, measures = self.partition.size, self.frame.measures
        stretches = self.frame.stretches(rows, size * measures)
        tables = (counted.array(self.table)[some].reshape(len(some), size, measures) for some in stretches)
        return np.concatenate([self.frame.scores(table, self.score) for table in tables])

    def member(self, _: int) -> Spec:
        return self.partition.spec

    def _cells(self, counted: Counted, rows: np.ndarray, scorers: Sequence[Self]) -> np.ndarray:
        """The contents of each part of splits that share a table of their column's codes, shape (rows, cells, measure).

        The table has all codes, or of a fine grid the occupied ones; they are added up to parts here.
        """
        size = self.partition.size
        number = {scorer: number for number, scorer in enumerate(dict.fromkeys(scorers))}
        axes, which = [scorer.partition.axes[0] for scorer in number], np.array([number[scorer] for scorer in scorers])
        codes, nowhere = self.frame.schema.column(self._column).codes, len(rows) * size
        sums, parts = np.zeros((self.frame.measures, nowhere + 1), dtype=np.int64), side_by_side(axes, codes)
        cells, values = self.frame.cells(counted.tables[self.table], codes, rows)
        for cut in together(cells, 1):
            place, of_class = cells[cut] // self.frame.width, cells[cut] % self.frame.width
            row = place // codes
            part = parts(which[row], place - codes * row)
            place = np.where(part < 0, nowhere, row * size + part) + (nowhere + 1) * of_class
            for total, more in zip(sums.reshape(values.shape[1], -1), values[cut].T, strict=True):
                np.add.at(total, place, more)
        return sums[:, :-1].reshape(-1, len(rows), size).transpose(1, 2, 0)


def side_by_side(axes: Sequence[Axis], size: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Returns a function that looks up the part of each of some codes along an axis of its own, both shape (codes,).

    Args:
        axes: The axes, of one column and equal numbers of parts; all or none have thresholds.
        size: The number of codes of the column.

    Returns:
        A function of the number of each code's axis, and of the codes.
    """
    if axes[0].thresholds is None:
        tables = np.stack([axis.parts_of(np.arange(size)) for axis in axes])
        return lambda which, codes: tables[which, codes]
    # The cuts 3 and 5 of two axes over 10 codes become 3 and 15 in one list. Code 4 along the
    # second axis becomes 14: one cut is before it, which belongs to the first axis, so the code is
    # in part 0.
    edges = np.array([axis.thresholds for axis in axes]) + size * np.arange(len(axes))[:, None]
    return lambda which, codes: edges.ravel().searchsorted(size * which + codes, "right") - edges.shape[1] * which


MOST_FLIPPED = 256  # members; of more, many score alike, and the exponential mechanism loses two rows at most


class AnyCutScorer(Scorer[AnyCut]):
    """Scores all cuts at once, by the sums below each cut.

    On a fine grid a score of sums over classes follows from the change of these sums at each occupied cell. They
    are whole numbers, so the score is the same.
    """

    most_flipped = MOST_FLIPPED

    def __init__(self, candidate: AnyCut, frame: Frame) -> None:
        super().__init__(candidate, frame)
        self._column = frame.schema.numeric(candidate.column)
        self.table = frame.add_codes(candidate.column)
        self._is_fine = frame.tables[self.table].form != "dense"  # only occupied codes are looked at
        gaps = frame.schema.max_rows + 1 if self._is_fine else self._column.codes
        self.members, self.member_cells = min(self._column.codes, gaps), 4 * frame.width
        self._sums = self.score if self._is_fine and isinstance(self.score, SumScore) else None
        # A cut that many parts choose is named once.
        self._name = cache(lambda threshold: Cuts(candidate.column, (self._column.cut_before(threshold),)))

    def cells(self, parts: int) -> int:
        """On a fine grid: disjoint parts together have no more rows than the table, each row between two cuts."""
        bound = 2 * (parts + self.frame.schema.max_rows) * self.member_cells
        return min(super().cells(parts), bound) if self._is_fine else super().cells(parts)

    def runs(
        self, counted: Counted, rows: np.ndarray, scorers: Sequence[Self] = (), reach: float = math.inf
    ) -> Iterator[Runs]:
        """The cuts within the interval of a part: a run for each gap between listed codes."""
        contents = counted.tables[self.table]
        for some in self.frame.shares(contents, self._column.codes, rows):
            one = self._is_fine and isinstance(self.score, Balance) and len(some) == 1
            near = self._near(cast(Sparse, contents), int(some[0]), reach) if one else contents
            scored = self._by_code(near, some) if self._sums is None else self._by_cell(near, some, self._sums)
            half, code, scores = (np.concatenate(columns) for columns in zip(*scored, strict=True))
            if self._column.nullable:
                cuts = half % 2 == 0
                half, code, scores = half[cuts] // 2, code[cuts], scores[cuts]
            intervals = [part.interval(self.candidate.column, self._column) for part in counted.parts_of(some)]
            low, high = np.array(intervals, dtype=np.int64).reshape(-1, 2).T
            high = np.maximum(low, high - 1)
            # Codes 0, 3 and 7 listed, interval 0 to 9: the cuts after 0..2, after 3..6 and after 7 make three runs.
            first = 1 + np.clip(code, low[half], high[half])
            ends = np.searchsorted(half, np.arange(1, len(some) + 1))
            members = np.diff(first, append=0)
            members[ends - 1] = 1 + high - first[ends - 1]
            for start, end, size in zip([0, *ends[:-1].tolist()], ends.tolist(), (high - low).tolist(), strict=True):
                yield Runs(
                    scores[start:end],
                    members[start:end],
                    first[start:end],
                    size,
                    self._name,
                    partial(next, self.runs(counted, some)) if one else None,
                )

    def _near(self, contents: Sparse, row: int, reach: float) -> Sparse:
        """The codes of a part near its best cut by ``Balance``; the codes before and after them are one code each."""
        codes = slice(*contents.places.searchsorted(self._column.codes * row + np.array([0, self._column.cells])))
        places, rows = contents.places[codes], contents.values[codes]
        below = np.append(0, np.add.reduceat(rows, np.arange(0, len(rows), STRETCH)).cumsum())
        scores = self.frame.scores(np.stack([below, below[-1] - below], axis=1)[..., None])
        # Of 5,000 codes the cuts after 0, 1024, ... and 5,000 are scored. If those after 2048 and 3072 alone are
        # within reach, codes 1024 to 4096 stay apart. At the ends of its interval a part has no cut.
        near = STRETCH * np.flatnonzero(scores >= scores[1:-1].max(initial=np.iinfo(np.int64).min) - reach)
        starts = np.r_[: min(1, len(rows)), max(1, near[0] - STRETCH) : min(len(rows), near[-1] + STRETCH + 1)]
        return Sparse(places[starts], np.add.reduceat(rows, starts))

    def _half(self, part: np.ndarray, cell: np.ndarray) -> np.ndarray:
        """The half of its part to which a code belongs: rows with a value, or, in a nullable column, rows without."""
        column = self._column
        return 2 * part + (cell - column.codes * part >= column.cells) if column.nullable else part

    def _totals(self, piece: Piece, parts: int) -> np.ndarray:
        """The totals of each half, shape (measure, halves)."""
        total = np.zeros((self.frame.measures, (1 + self._column.nullable) * parts), dtype=np.int64)
        place, of_class, values = piece
        key = of_class * total.shape[1] + self._half(place // self._column.codes, place)
        for line, more in zip(total.reshape(len(values), -1), values, strict=True):
            np.add.at(line, key, more)
        return total

    def _by_code(self, contents: Table, rows: np.ndarray) -> Iterator[Piece]:
        """Scores the cuts after listed codes by the tables of both sides; yields the half and code of each, too."""
        piece = self.frame.listed(contents, self._column.codes, rows)
        total = self._totals(piece, len(rows))
        above = total - total.cumsum(axis=1)
        for part, code, table in self.frame.pieces(piece, self._column.codes):
            half = self._half(part, self._column.codes * part + code)
            left = table.cumsum(axis=1) + above.take(half, axis=1)
            sides = [left, total.take(half, axis=1) - left]
            if self._column.nullable:
                sides.append(total.take(half | 1, axis=1))
            above += table.sum(axis=1, keepdims=True)
            yield half, code, self.frame.scores(np.stack(sides).transpose(2, 0, 1))

    def _by_cell(self, contents: Table, rows: np.ndarray, score: SumScore) -> Iterator[Piece]:
        """The same scores by the change of the sums over classes at each occupied cell."""
        schema, codes, classes = self.frame.schema, self._column.codes, self.frame.width
        piece = self.frame.listed(contents, codes, rows)
        place, of_class, (counts,) = piece
        half, total = self._half(place // codes, place), self._totals(piece, len(rows)).ravel()
        halves = len(total) // classes
        key = of_class * halves + half
        # Cells are in order of classes, halves and codes. So the rows of a cell's class and half, up to the cell, are
        # the rows of all cells so far, less those of earlier halves. The other rows of the half are behind the cell.
        order, up_to = np.argsort(of_class.astype(np.min_scalar_type(classes)), kind="stable"), np.empty_like(counts)
        up_to[order] = counts[order].cumsum()
        up_to += (total - total.cumsum())[key]
        every = np.stack(score.summands(total, schema)).reshape(-1, classes, halves).sum(axis=1)
        above = np.stack([every - every.cumsum(axis=1), every.cumsum(axis=1)], axis=1)
        for cells in together(place, 2 * len(every)):
            # A cell of 2 rows below which its class has 3 of 9: 3² becomes 5² on one side, and 6² becomes 4².
            sides = np.stack([up_to[cells], total[key[cells]] - up_to[cells]])
            moved = np.stack([counts[cells], -counts[cells]])
            changes = zip(score.summands(sides, schema), score.summands(sides - moved, schema), strict=True)
            sums = np.stack([after - before for after, before in changes]).cumsum(axis=-1)
            last = np.append(run_starts(place[cells])[1:], cells.stop - cells.start) - 1
            cuts = half[cells][last]
            scored = sums.take(last, axis=-1) + above.take(cuts, axis=-1)
            above += sums[..., -1:]
            if self._column.nullable:
                scored = np.concatenate([scored, every[:, None].take(cuts | 1, axis=-1)], axis=1)
            yield cuts, place[cells][last] % codes, score.of_sums(scored, schema).sum(axis=0)


class AnyGroupingScorer(Scorer[AnyGrouping]):
    """Scores all bipartitions at once, by the sums over their values."""

    most_flipped, part_cells = MOST_FLIPPED, GROUPING

    def __init__(self, candidate: AnyGrouping, frame: Frame) -> None:
        super().__init__(candidate, frame)
        self._column = frame.schema.categorical(candidate.column)
        self.table = frame.add_codes(candidate.column)
        self.members = min(2 ** (self._column.codes - 1), MAX_GROUPINGS)
        self.scratch = self.members * 2 * frame.width  # two sides of each
        values = self._column.codes  # each bipartition is scored over them, and may be chosen
        self.member_cells = values // 8 + (values // 16 + 2) * frame.width

    def cells(self, parts: int) -> int:
        """Bipartitions of few values are listed; of more values they are drawn, and a few such lists are cached."""
        # Of 16 values there is a list for each number of values that a part has left: 16 lists of a candidate, so
        # the lists of 16 candidates are cached. With more, each stretch of parts may draw its own again.
        values = self._column.codes
        lists = min(parts, values)
        drawn = lists if self.frame.groupings * lists <= KEPT_GROUPINGS and values <= KEPT_VALUES else parts
        is_listed = 2 ** (values - 1) <= MAX_GROUPINGS
        return super().cells(parts) + (0 if is_listed else drawn * self.members * (MEMBER + values // 3))

    def runs(
        self, counted: Counted, rows: np.ndarray, scorers: Sequence[Self] = (), reach: float = math.inf
    ) -> Iterator[Runs]:
        for some in self.frame.stretches(rows, self.scratch):
            left = np.array(
                [part.values_left(self.candidate.column, self._column.codes) for part in counted.parts_of(some)]
            )
            # Shape (measure, parts, codes): a member's numbers lie beside each other for each measure.
            counts = counted.array(self.table)[some].reshape(*left.shape, -1).transpose(2, 0, 1)
            values_left, runs = left.sum(axis=1), dict[int, Runs]()
            for count in set(values_left.tolist()):
                # Of three parts that have a b c, a c and b c left, the last two are scored as one array.
                equal = np.flatnonzero(values_left == count)
                codes = np.nonzero(left[equal])[1].reshape(len(equal), count)
                here = counts[:, equal[:, None], codes]
                # Of values a, b, c with 4, 1 and 2 rows, the group {a, c} has 4 + 2 rows, and the other one
                # the 7 of all values less those.
                first = subset_sums(self.candidate.octets(count), here)
                sides = np.stack([first, here.sum(axis=2, keepdims=True) - first])
                scores = self.frame.scores(sides.transpose(2, 3, 0, 1))
                numbers, single = np.arange(scores.shape[1]), np.ones(scores.shape[1], dtype=np.int64)
                for number, part_scores, part_codes in zip(equal.tolist(), scores, codes, strict=True):
                    runs[number] = Runs(part_scores, single, numbers, len(part_scores), partial(self._name, part_codes))
            yield from (runs[number] for number in range(len(some)))

    def _name(self, codes: np.ndarray, number: int) -> Spec:
        return self.candidate.member([*map(self._column.labels.__getitem__, codes.tolist())], number)


def subset_sums(octets: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The exact sums of the values of each subset, shape (..., subsets).

    Args:
        octets: The values in each subset, as ``bipartitions`` encodes them.
        table: The numbers of each value, integers, shape (..., values).
    """
    sums = np.zeros((*table.shape[:-1], len(octets)), dtype=np.int64)
    for number, octet in enumerate(octets.T):
        values = table[..., 8 * number : 8 * number + 8]
        if not values.any():
            continue
        # Values of 4, 1 and 2 rows: the subsets 0 to 7 have 0, 4, 1, 5, 2, 6, 3 and 7.
        every = np.zeros((*table.shape[:-1], 1), dtype=np.int64)
        for value in range(values.shape[-1]):
            every = np.concatenate([every, every + values[..., value : value + 1]], axis=-1)
        sums += every.take(octet, axis=-1)
    return sums


DENSE_CELLS = 2**22  # a larger table is counted by sorting


class AnyCrossScorer(Scorer[AnyCross]):
    """Scores every member from one listing of the occupied cells over all specs."""

    def __init__(self, candidate: AnyCross, frame: Frame) -> None:
        if not frame.classes:
            raise QueryError(
                f"{candidate!r} goes with scores of a table of classes, and {frame.score.kind} is not one."
            )
        if frame.scores(np.zeros((1, frame.classes[0].size), dtype=np.int64)).any():
            raise QueryError(f"{frame.score.kind} counts empty cells, and AnyCross leaves them out.")
        axes = tuple(bind(spec, frame.schema).axes[0] for spec in candidate.specs)
        self._sizes = [axis.size for axis in axes]
        candidate.require_room(self._sizes, frame.classes[0].size)
        super().__init__(candidate, frame)
        self.table = frame.add(axes, "listed")
        self.members = self.options = len(candidate)
        # For each member, rows are looked up in a separate table; four rows take as long as one cell. Pairs of specs of
        # 2, 5 and 9 parts: no pair has more than 5 * 9 cells.
        cells, rows = math.prod(sorted(self._sizes)[-candidate.size :]) * frame.width, frame.schema.max_rows
        self.member_cells = SCORING + rows // 4 + min(cells, rows)

    def runs(
        self, counted: Counted, rows: np.ndarray, scorers: Sequence[Self] = (), reach: float = math.inf
    ) -> Iterator[Runs]:
        table = cast(Listed, counted.tables[self.table])
        numbers, single = np.arange(self.members, dtype=np.int64), np.ones(self.members, dtype=np.int64)
        for row in rows:
            of_part = slice(None) if len(counted.parts) == 1 else table.parts == row
            codes, counts = table.codes[:, of_part], table.counts[of_part]
            cross = Crossing(codes[:-1], codes[-1], counts, tuple(self._sizes), self.frame.classes[0].size)
            yield Runs(
                cross.member_scores(self.candidate.size, self.frame.scores, counted.deadline.check),
                single,
                numbers,
                self.members,
                self.candidate.member,
            )


@dataclass(frozen=True, eq=False)
class Crossing:
    """Listed rows by the parts of the specs.

    Attributes:
        codes: The part of each row along each spec, shape (specs, rows).
        target: Its class, shape (rows,).
        counts: The number of occurrences of each row, shape (rows,).
        sizes: Parts of each spec.
        classes: Classes of the target.
    """

    codes: np.ndarray
    target: np.ndarray
    counts: np.ndarray
    sizes: tuple[int, ...]
    classes: int

    def member_scores(
        self, size: int, score: Callable[[np.ndarray], np.ndarray], check: Callable[[], None]
    ) -> np.ndarray:
        """The exact score of every ``size`` of the specs.

        Args:
            size: The number of specs in a member.
            score: Scores tables of shape (..., cells, classes).
            check: A function that is called now and then; an error that it raises ends the work.

        Returns:
            int64, shape (members,), in the order of ``itertools.combinations``.
        """
        # To weigh takes longer. Doubles have these sums exactly: a table has at most 2^33 rows.
        weights = None if (self.counts == 1).all() else self.counts
        scores: list[int] = []
        for first, prefix, cells in self._prefixes(size):
            # Every member that continues this prefix by one more spec. Members that are counted together save calls
            # of few rows, and leave a core's cache with more.
            for spec in range(first, len(self.sizes)):
                check()
                joint, count = self._joined(prefix, cells, spec)
                table = np.bincount(joint * self.classes + self.target, weights, count * self.classes)
                scores.append(int(score(table.astype(np.int64, copy=False).reshape(count, self.classes))))
        return np.array(scores, dtype=np.int64)

    def _prefixes(
        self, size: int, first: int = 0, cell: np.ndarray | None = None, cells: int = 1
    ) -> Iterator[tuple[int, np.ndarray, int]]:
        """All choices of ``size - 1`` specs, in lexicographic order.

        Yields:
            The first spec that may come next, each row's joint cell, and the number of cells.
        """
        cell = np.zeros(self.codes.shape[1], dtype=np.int64) if cell is None else cell
        if size == 1:
            yield first, cell, cells
            return
        # Triples of four specs: 0 1 is continued by 2 and by 3, 0 2 by 3, and 1 2 by 3.
        for spec in range(first, len(self.sizes) - size + 1):
            yield from self._prefixes(size - 1, spec + 1, *self._joined(cell, cells, spec))

    def _joined(self, cell: np.ndarray, cells: int, spec: int) -> tuple[np.ndarray, int]:
        # Parts 1, 2 and 3 of specs of 2, 3 and 4 parts: cell 1 * 3 + 2 = 5, and then 5 * 4 + 3 = 23.
        joint, count = cell * self.sizes[spec] + self.codes[spec], cells * self.sizes[spec]
        if count * self.classes > max(DENSE_CELLS, 2 * len(cell)):
            # Most cells are empty, and an empty cell adds nothing to a score: number the others.
            occupied, joint = np.unique(joint, return_inverse=True)
            count = max(1, len(occupied))
        return joint, count
