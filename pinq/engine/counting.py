# SPDX-License-Identifier: Apache-2.0
"""The kernel counts rows block by block, with plain arrays: parts first, then exact tables.

::

    parts, tables ── count_request ──▶ CountRequest    public facts only; can be pickled
    block, request ── count ──▶ Counts                 exact; counts of several blocks add up
    counts ── tables ──▶ one array for each table

A level of a tree costs one pass over the rows, for any number of nodes. Its work is bounded by the
block, the request and its tables, and does not depend on the contents of rows.

A tally holds tables in one form (dense, occupied cells, or a list). All numbers are integers; counts and sums are exact
in any order.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self, cast

import numpy as np

from pinq.engine.codes import RowBlock, ShardSource, smallest
from pinq.engine.rows import (
    CodeTable,
    Descent,
    Rows,
    code_tables,
    paths_down,
    split_level,
)
from pinq.engine.tables import Listed, Measure, Sparse, Table, TableRequest, go_on
from pinq.errors import InternalError
from pinq.language.derivatives import Packing, RowMeasure
from pinq.language.parts import PartSet
from pinq.language.specs import MAX_CELLS, Axis, Partition, joint_cells, joint_slots
from pinq.public.schema import Schema

CARRIED_CELLS = 2**16  # with more cells, unpacking all words takes longer than adding packed words saves
FEW_ROWS = 2**11  # of a cell: a call for each product would take longer than to copy the words of all


class CountedCells:
    """The number of rows in each cell."""

    def __init__(self, cells: int) -> None:
        # Numbers of half the width: twice as many cells fit into a cache.
        self._counts, self._rows = np.zeros((1, cells), dtype=np.uint32), 0

    def add(self, cell: np.ndarray | None, rows: int, words: np.ndarray | None) -> None:
        """Adds rows: their number, or their packed numbers.

        Args:
            cell: The cell of each row, shape (rows,); None if there is one cell.
            rows: The number of rows.
            words: The packed numbers to sum, shape (words, rows); None to count rows.
        """
        self._rows += rows
        if self._rows >= 2**32:
            self._counts = self._counts.astype(np.int64)
        if cell is None:
            self._counts[0, 0] += rows
        else:
            np.add.at(self._counts[0], cell, self._counts.dtype.type(1))

    def numbers(self) -> np.ndarray:
        """The sums, shape (numbers, cells)."""
        return self._counts


class SummedCells:
    """The sums of a measure in each cell.

    A word packs several numbers, so one scattered addition adds all of them. After ``Packing.rows`` rows, before
    numbers overflow into each other, they are unpacked; with very many cells each row is unpacked at once.
    """

    def __init__(self, measure: RowMeasure, cells: int) -> None:
        self._packing = cast(Packing, measure.packing)
        self._sums = np.zeros((measure.width, cells), dtype=np.int64)
        self._carries = cells <= CARRIED_CELLS
        self._words = np.zeros((self._packing.words, cells if self._carries else 0), dtype=np.int64)
        self._rows = 0

    def add(self, cell: np.ndarray | None, rows: int, words: np.ndarray | None) -> None:
        assert words is not None  # a measure always has words
        flat = None if cell is None else cell.astype(np.intp, copy=False)  # converted once for all words
        for start in range(0, rows, self._packing.rows):
            block = slice(start, start + self._packing.rows)
            self._add(None if flat is None else flat[block], words[:, block])

    def numbers(self) -> np.ndarray:
        self._carry()
        return self._sums

    def _add(self, cell: np.ndarray | None, words: np.ndarray) -> None:
        if cell is not None and not self._carries:
            for number, values in self._packing.numbers_of_words(words):
                np.add.at(self._sums[number], cell, values)
            return
        if self._rows + words.shape[1] > self._packing.rows:
            self._carry()
        self._rows += words.shape[1]
        if cell is None:
            self._words[:, 0] += words.sum(axis=1)
            return
        for sums, line in zip(self._words, words, strict=True):
            np.add.at(sums, cell, line)

    def _carry(self) -> None:
        if not self._rows:
            return
        for number, values in self._packing.numbers_of_words(self._words):
            self._sums[number] += values
        self._words.fill(0)
        self._rows = 0


class MultipliedCells:
    """Sums of products of words in each cell: one product of matrices for a cell's rows.

    Words are whole numbers of at most 2^12 in size, and rows come in pieces of fewer than 2^29. So each
    partial sum is whole and below 2^53: a double holds it exactly, in any order.
    """

    def __init__(self, measure: RowMeasure, cells: int) -> None:
        self._pairs = cast(np.ndarray, measure.packing.pairs)
        self._sums = np.zeros((measure.width, cells), dtype=np.int64)

    def add(self, cell: np.ndarray | None, rows: int, words: np.ndarray | None) -> None:
        assert words is not None  # a measure always has words
        if cell is None:
            self._sums[:, 0] += self._multiplied(words)
            return
        # Cells 2 0 2 are put in order, 0 2 2: the first row makes one matrix, the others another.
        order = np.argsort(cell, kind="stable")
        ordered, words = cell.take(order), words.take(order, axis=1)
        starts = run_starts(ordered)
        for start, end in zip(starts, np.append(starts[1:], rows)[: len(starts)], strict=True):  # no rows, no starts
            self._sums[:, ordered[start]] += self._multiplied(words[:, start:end])

    def numbers(self) -> np.ndarray:
        return self._sums

    def _multiplied(self, words: np.ndarray) -> np.ndarray:
        first, second = self._pairs
        # Few of all products are added up by themselves. A product of matrices has threads of its own, which wait for
        # each other beside the engine's and those of other programs: for 33 columns of 10^6 rows 5.7 s of processor
        # time, where this takes 0.4.
        if len(first) < 2 * len(words):
            if words.shape[1] < FEW_ROWS:
                return np.einsum("pr,pr->p", words[first], words[second]).astype(np.int64)
            sums = [np.einsum("r,r->", words[one], words[other]) for one, other in zip(first, second, strict=True)]
            return np.array(sums, dtype=np.int64)
        return (words @ words.T)[first, second].astype(np.int64)


Cells = CountedCells | SummedCells | MultipliedCells
"""Numbers in the cells of a table."""


ODD = np.uint64(0x9E3779B97F4A7C15)  # an odd multiplier for hashes, without a pattern in its bits


@dataclass(frozen=True, eq=False)
class CountPiece:
    """Some cells of a tally's tables, without their request: the message between machines.

    Attributes:
        keys: The numbers that name each cell, shape (numbers, cells); empty for a slice of a dense table.
        sums: The sums of each cell, shape (sums, cells); for a slice of a dense table (cells,).
    """

    keys: np.ndarray
    sums: np.ndarray

    @classmethod
    def of_stretch(cls, sums: np.ndarray) -> CountPiece:
        return cls(np.zeros((0, 0), dtype=np.uint8), sums)

    @classmethod
    def merged(cls, pieces: Sequence[CountPiece]) -> CountPiece:
        """Adds up pieces of equal number that were counted over different rows."""
        if not len(pieces[0].keys):
            return cls.of_stretch(sum((piece.sums for piece in pieces), np.zeros(1, dtype=np.int64)))
        keys = np.concatenate([piece.keys for piece in pieces], axis=1)
        lines = ((line, 1 + int(line.max(initial=0))) for line in keys)
        words = keys[0] if len(keys) == 1 else packed_words(keys.shape[1], lines)
        first, sums = _summed_runs(words, np.concatenate([piece.sums for piece in pieces], axis=1))
        return cls(keys[:, first], sums)

    def dealt(self, pieces: int) -> list[CountPiece]:
        """Deals the cells into ``pieces`` pieces; the key of a cell alone decides its piece."""
        if not len(self.keys):
            return [self.of_stretch(_narrow(sums)) for sums in np.array_split(self.sums, pieces)]
        number = (ODD ** np.arange(len(self.keys), dtype=np.uint64) @ self.keys.astype(np.uint64)) % np.uint64(pieces)
        order = np.argsort(number, kind="stable")
        ends = np.searchsorted(number[order], np.arange(1, pieces))
        return [CountPiece(self.keys[:, cells], self.sums[:, cells]) for cells in np.split(order, ends)]


def _narrow(numbers: np.ndarray) -> np.ndarray:
    # A signed octet holds -128 to 127. So the largest number, 127, counts like -1 - 127 = -128.
    return numbers.astype(np.min_scalar_type(min(int(numbers.min(initial=0)), -1 - int(numbers.max(initial=0)))))


class Tally(ABC):
    """Tables of the rows counted so far."""

    @abstractmethod
    def add(self, rows: Rows) -> None:
        """Counts rows."""

    @abstractmethod
    def tables(self) -> Sequence[Table]:
        """The table of each of the tally's requests."""

    @abstractmethod
    def piece(self) -> CountPiece:
        """All cells."""

    @abstractmethod
    def fill(self, pieces: Sequence[CountPiece]) -> None:
        """Replaces the cells by those of all pieces, in order."""

    def merge(self, other: Self) -> None:
        self.fill([CountPiece.merged([self.piece(), other.piece()])])

    @property
    def most_bytes(self) -> float:
        """The largest size of its piece in bytes; infinite if it depends on the rows."""
        return math.inf


class DenseTally(Tally):
    """Tables over a few axes, counted as one small joint table and summed out of it.

    With 8 nodes x 2 classes x 4 x 5 values, a row at node 3, class 1, values 2 and 0 adds one to cell ((3 * 2 + 1) * 4
    + 2) * 5 + 0 = 150. The table of node, class and the first value is the sum over the second. The first ``common``
    axes split all parts, and become part of the axis of parts.
    """

    def __init__(
        self,
        nodes: int,
        axes: Sequence[Axis],
        tables: Sequence[tuple[Axis, ...]],
        measure: RowMeasure | None,
        common: int = 0,
    ) -> None:
        self._axes, self._tables, self._measure = tuple(axes), tuple(tables), measure
        self._common = common
        self._shape = (nodes, *(axis.slots for axis in axes))
        cells = math.prod(self._shape)
        self._cells: Cells = (
            CountedCells(cells)
            if measure is None
            else SummedCells(measure, cells)
            if measure.packing.pairs is None
            else MultipliedCells(measure, cells)
        )
        self._filled: list[np.ndarray] | None = None

    def add(self, rows: Rows) -> None:
        self._cells.add(None if math.prod(self._shape) == 1 else rows.cell(self._axes), len(rows.node), rows.words())

    @property
    def most_bytes(self) -> float:
        cells = sum(math.prod(axis.size for axis in axes) for axes in self._tables)
        return 8 * (1 if self._measure is None else self._measure.width) * self._shape[0] * cells

    def tables(self) -> list[Table]:
        tables = [table.astype(np.int64, copy=False) for table in self._summed()]
        tables = [table[0] if self._measure is None else self._measure.finished(table) for table in tables]
        return [table.reshape(-1, *table.shape[1 + self._common :]) for table in tables]

    def piece(self) -> CountPiece:
        return CountPiece.of_stretch(np.concatenate([table.ravel() for table in self._summed()]))

    def fill(self, pieces: Sequence[CountPiece]) -> None:
        numbers = 1 if self._measure is None else self._measure.width
        shapes = [(numbers, self._shape[0], *(axis.size for axis in axes)) for axes in self._tables]
        ends = np.cumsum([math.prod(shape) for shape in shapes])
        parts = np.split(np.concatenate([piece.sums for piece in pieces]), ends[:-1])
        self._filled = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        self._cells = CountedCells(0)

    def _summed(self) -> list[np.ndarray]:
        if self._filled is not None:
            return self._filled
        joint = self._cells.numbers().reshape(-1, *self._shape)
        return [_summed_out(joint, self._axes, axes) for axes in self._tables]


def _summed_out(joint: np.ndarray, axes: Sequence[Axis], remaining: Sequence[Axis]) -> np.ndarray:
    """Sums a joint table over all axes but the remaining, shape (sums, nodes, *remaining)."""
    # A row without a place on one axis still counts in the tables of other axes. So sum first, then
    # cut off the slot of such rows.
    foreign = tuple(number for number, axis in enumerate(axes, start=2) if axis not in remaining)
    table = joint.sum(axis=foreign) if foreign else joint
    order = [axis for axis in axes if axis in remaining]
    table = table.transpose(0, 1, *(2 + order.index(axis) for axis in remaining))
    inner = table[(slice(None), slice(None), *(slice(axis.size) for axis in remaining))]
    return np.ascontiguousarray(inner).astype(joint.dtype, copy=False)


class OccupiedTally(Tally):
    """The occupied cells of one table."""

    def __init__(self, axes: tuple[Axis, ...], nothing: CountPiece) -> None:
        self._axes, self._nothing = axes, nothing
        self._pieces: list[CountPiece] = []

    def piece(self) -> CountPiece:
        return CountPiece.merged([self._nothing, *self._pieces])

    def fill(self, pieces: Sequence[CountPiece]) -> None:
        self._pieces = list(pieces)

    def merge(self, other: Self) -> None:
        # Cells are sorted once, when all tallies are merged.
        self._pieces += other._pieces


WAITING = 2**16  # the smallest number of waiting cells of a measure that is sorted together
ROWS_WAITING = 2**22  # the same for counted rows; bounds memory by the occupied cells, not by the rows


class SparseTally(OccupiedTally):
    """The occupied cells of one table, by sorting the rows' cells."""

    def __init__(self, nodes: int, axes: tuple[Axis, ...], measure: RowMeasure | None) -> None:
        self._measure = measure
        cells = nodes * math.prod(axis.size for axis in axes)
        self._kind: np.dtype[np.unsignedinteger] = np.dtype(np.uint32 if cells < 2**32 else np.uint64)
        sums = np.zeros((1 if measure is None else measure.width, 0), dtype=np.int64)
        super().__init__(axes, CountPiece(np.zeros((1, 0), dtype=self._kind), sums))
        self._keys: list[np.ndarray] = []  # cells of rows that are not sorted yet; without a measure

    def add(self, rows: Rows) -> None:
        rows = rows.inside(self._axes)
        key = joint_cells(rows.node, ((axis.size, rows.places(axis)) for axis in self._axes), self._kind)
        if self._measure is None:
            self._keys.append(key)
            if sum(map(len, self._keys)) > ROWS_WAITING:
                self._pieces = [self.piece()]
        else:
            first, sums = _summed_runs(key, self._measure.packing.unpacked(cast(np.ndarray, rows.words())))
            self._pieces.append(CountPiece(key.take(first)[None], sums))
            # Merge if more cells wait than are sorted, so that memory follows the cells, each sorted a few times.
            if sum(piece.keys.shape[1] for piece in self._pieces[1:]) > max(WAITING, self._pieces[0].keys.shape[1]):
                self._pieces = [CountPiece.merged(self._pieces)]

    def merge(self, other: Self) -> None:
        super().merge(other)
        self._keys += other._keys

    def tables(self) -> list[Sparse]:
        piece = self.piece()
        values = piece.sums[0] if self._measure is None else self._measure.finished(piece.sums)
        return [Sparse(piece.keys[0].astype(np.int64, copy=False), values)]

    def piece(self) -> CountPiece:
        if self._keys:
            keys, self._keys = np.concatenate(self._keys), []
            keys.sort()
            first = run_starts(keys)
            self._pieces.append(CountPiece(keys.take(first)[None], np.diff(first, append=len(keys))[None]))
        return self._pieces[0] if len(self._pieces) == 1 else super().piece()


def _summed_runs(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first index of each distinct key, in order, and the sums of its values, of shape (sums, keys)."""
    # Sorted keys 1 4 4 9 have runs that start at 0, 1 and 3. Their values 5 2 3 7 have the cumulative
    # sums 5 7 10 17: at the runs' ends 5, 10 and 17, so the runs' sums are 5, 5 and 7.
    order = np.argsort(keys)
    starts = run_starts(keys.take(order))
    ends = np.append(starts[1:], len(keys)) - 1 if len(keys) else starts
    return order.take(starts), np.diff(values.take(order, axis=1).cumsum(axis=1).take(ends, axis=1), axis=1, prepend=0)


def run_starts(ordered: np.ndarray) -> np.ndarray:
    """The start of each run of equal numbers."""
    return np.flatnonzero(np.concatenate([np.ones(min(1, len(ordered)), dtype=bool), ordered[1:] != ordered[:-1]]))


class ListTally(OccupiedTally):
    """The occupied cells of a joint table that is too wide to be numbered."""

    def __init__(self, nodes: int, axes: tuple[Axis, ...]) -> None:
        self._sizes = [nodes, *(axis.size for axis in axes)]
        codes = np.zeros((len(self._sizes), 0), dtype=smallest(max(self._sizes)))
        super().__init__(axes, CountPiece(codes, np.zeros((1, 0), dtype=np.int64)))

    def add(self, rows: Rows) -> None:
        rows = rows.inside(self._axes)
        codes = np.empty((len(self._sizes), len(rows.node)), dtype=smallest(max(self._sizes)))
        codes[0] = rows.node
        for line, axis in zip(codes[1:], self._axes, strict=True):
            line[:] = rows.places(axis)
        self._pieces.append(CountPiece(codes, np.ones((1, len(rows.node)), dtype=np.int8)))  # each row counts one

    def tables(self) -> list[Listed]:
        piece = self.piece()
        return [Listed(piece.keys[0].astype(np.int64), piece.keys[1:], piece.sums[0])]


def packed_words(rows: int, lines: Iterable[tuple[np.ndarray, int]]) -> np.ndarray:
    """A number for each row of several columns of codes, equal for equal rows, shape (rows,).

    Codes are packed into words of 64 bits. Before a word would overflow, the distinct words are numbered, which makes
    room for more codes. Each column comes with a number that is larger than all its codes.
    """
    words, cells = np.zeros(rows, dtype=np.int64), 1
    for line, size in lines:
        # Words 7, 90 and 7 become 0, 1 and 0: two of the possible cells occur.
        if cells * size > MAX_CELLS:
            order = np.argsort(words)
            new = np.zeros(rows, dtype=np.int64)
            new[run_starts(words[order])] = 1
            words[order] = np.cumsum(new) - 1
            cells = int(new.sum())
        words *= size
        words += line
        cells *= size
    return words


# The largest joint table in bytes: it stays in a core's cache.
PACKED_BYTES = 2**18
NUMBERS_AT_ONCE = 2**19  # numbers that a measure reads and computes at once: 4 MiB, in a core's cache
WHOLE: Mapping[bytes, int] = {b"": 0}
"""The whole table as the only located part: every row is at node 0."""


@dataclass(frozen=True, eq=False)
class CountRequest:
    """A request for counts: paths down to parts, tables, a measure; public facts that can be pickled.

    Attributes:
        begin: The numbers of the located parts where the paths begin.
        answer: The number of the requested part of each node of the last level.
        split: One more step, if parts are split by partitions that differ; None else.
        common: The axes of a last split that all parts share; they become axes of every table.
        joint: The axes of each joint table, and the numbers of the dense tables in it.
        places: The place of each code along axes with cuts or groups, for every code: reading a row cannot fail.
    """

    begin: np.ndarray
    levels: tuple[Descent, ...]
    answer: np.ndarray
    split: Descent | None
    common: tuple[Axis, ...]
    tables: tuple[TableRequest, ...]
    joint: tuple[tuple[tuple[Axis, ...], list[int]], ...]
    measure: RowMeasure | None
    places: Mapping[Axis, CodeTable]

    @property
    def parts(self) -> int:
        return len(self.answer) if self.split is None else self.split.nodes

    @property
    def rows_at_once(self) -> int:
        """The number of rows that are summed together, so that memory does not grow with the measure."""
        numbers = 1 if self.measure is None else self.measure.packing.words + sum(map(len, self.measure.cells))
        return max(1, NUMBERS_AT_ONCE // numbers)

    @property
    def empty_bytes(self) -> int:
        numbers = 1 if self.measure is None else self.measure.width + self.measure.packing.words
        return 8 * numbers * self.parts * sum(joint_slots(axes) for axes, _ in self.joint)

    def shards(self) -> set[ShardSource]:
        return {cast(ShardSource, source) for source in self._sources if isinstance(source, tuple)}

    def columns(self) -> set[Hashable]:
        return self._sources - self.shards()

    @cached_property
    def _sources(self) -> set[Hashable]:
        levels = [*self.levels, *([] if self.split is None else [self.split])]
        axes = [*self.common, *(axis for table in self.tables for axis in table.axes)]
        axes += [] if self.measure is None else self.measure.inputs
        return {axis.source for axis in (*axes, *(axis for level in levels for axis in level.axes))}

    def locate(self, rows: Rows, parts: int = 1) -> Rows:
        """Moves rows from ``parts`` located parts down to the parts before the last split."""
        if parts != len(self.begin) or not np.array_equal(self.begin, np.arange(parts)):
            # Of located parts 0, 1 and 2 the paths begin with 2 and 0, so `number` is 1 -1 0: rows of
            # part 2 get node 0, rows of part 0 node 1, and rows of part 1 are left out.
            number = np.full(parts, -1, dtype=np.int64)
            number[self.begin] = np.arange(len(self.begin))
            rows = rows.moved(number.take(rows.node), len(self.begin))
        for level in self.levels:
            rows = rows.moved(level.down(rows), level.nodes)
        if np.array_equal(self.answer, np.arange(len(self.answer))):
            return rows
        return rows.moved(self.answer.take(rows.node), len(self.answer))

    def divide(self, rows: Rows) -> Rows:
        """Moves located rows to their parts after the last split, and keeps those that the measure counts."""
        if self.split is not None:
            rows = rows.moved(self.split.down(rows), self.split.nodes)
        return rows.measured(self.measure)


def count_request(
    parts: PartSet,
    tables: Sequence[TableRequest] = (TableRequest(),),
    measure: Measure | None = None,
    *,
    schema: Schema,
    part_numbers: Mapping[bytes, int] = WHOLE,
) -> CountRequest:
    """Compiles a request.

    Rows are already located at the parts of ``part_numbers``; ``KeyError`` if a path passes none.
    """
    # Men by job: the path goes down to men, and job is one more split. If every block has the same
    # last split, it becomes an axis of each table instead, which saves moving rows.
    begin, levels, answer = paths_down([block.part for block in parts.blocks], part_numbers)
    partitions = [block.partition for block in parts.blocks]
    common = _common(partitions, tables)
    split = None if common is not None or not any(partitions) else split_level(partitions)
    axes = () if common is None else common.axes
    dense = {number: (*axes, *table.axes) for number, table in enumerate(tables) if table.form == "dense"}
    bound = None if measure is None else measure.bound_to(schema)
    room = min(PACKED_BYTES // (4 if bound is None else 8 * bound.packing.words), schema.max_rows // 8)
    size = len(answer) if split is None else split.nodes
    joint = _packed(dense, size, room)
    # If possible, the cells of the joint tables serve as look-ups of the measure.
    summed = None if bound is None else bound.over([joint_axes for joint_axes, _ in joint])
    used = [*axes, *(axis for table in tables for axis in table.axes)]
    used += [axis for level in (*levels, *([] if split is None else [split])) for axis in level.axes]
    used += [] if summed is None else (axis for cell_axes in summed.cells for axis in cell_axes)
    for table in tables:
        cells = size * joint_slots((*axes, *table.axes))
        if table.form != "listed" and cells > MAX_CELLS:  # they are numbered in a word of 64 bits
            raise InternalError(f"A table of {cells:,} cells was asked for; ask for fewer, or for a list.")
    return CountRequest(
        begin,
        tuple(levels),
        answer,
        split,
        axes,
        tuple(tables),
        tuple(joint),
        summed,
        code_tables(used),
    )


def _common(partitions: Sequence[Partition | None], tables: Sequence[TableRequest]) -> Partition | None:
    """The last split that all parts share, if its axes can become axes of every table; else None."""
    first = partitions[0]
    if first is None or not all(split is not None and split.key == first.key for split in partitions):
        return None
    return first if all(table.form != "listed" and not {*table.axes} & {*first.axes} for table in tables) else None


class Counts:
    """The exact tables of a request over the rows counted so far; can be pickled and merged."""

    def __init__(self, request: CountRequest) -> None:
        opened = list(_opened(request))
        self._request = request
        self.tallies, self._numbers = [tally for tally, _ in opened], [numbers for _, numbers in opened]

    def add(self, rows: Rows, check: Callable[[], None] = go_on) -> None:
        """Counts rows from ``CountRequest.divide``; an error of ``check`` ends the work."""
        for piece in rows.pieces(self._request.rows_at_once):
            check()
            for tally in self.tallies:
                tally.add(piece)

    def take(self, block: RowBlock) -> None:
        """Locates and counts a block of rows, which may be empty."""
        request = self._request
        self.add(request.divide(request.locate(Rows.of(block, request.places))))

    def pieces(self, number: int) -> list[list[CountPiece]]:
        """Deals each tally into ``number`` pieces; returns the pieces of all tallies, by piece."""
        dealt = [tally.piece().dealt(number) for tally in self.tallies]
        return [[pieces[index] for pieces in dealt] for index in range(number)]

    def fill(self, pieces: Iterable[Sequence[CountPiece]]) -> None:
        for tally, tally_pieces in zip(self.tallies, zip(*pieces, strict=True), strict=True):
            tally.fill(tally_pieces)

    def merged(self, other: Counts) -> Counts:
        for tally, other_tally in zip(self.tallies, other.tallies, strict=True):
            tally.merge(other_tally)
        return self

    @property
    def most_bytes(self) -> float:
        """The largest size of all pieces in bytes; infinite if it depends on the rows."""
        return sum(tally.most_bytes for tally in self.tallies)

    def tables(self) -> list[Table]:
        tables: dict[int, Table] = {}
        for numbers, tally in zip(self._numbers, self.tallies, strict=True):
            tables |= zip(numbers, tally.tables(), strict=True)
        return [tables[number] for number in range(len(tables))]


def _opened(request: CountRequest) -> Iterator[tuple[Tally, list[int]]]:
    """Yields empty tallies, each with the numbers of its tables."""
    for number, table in enumerate(request.tables):
        if table.form == "listed":
            yield ListTally(request.parts, table.axes), [number]
        elif table.form == "sparse":
            yield SparseTally(request.parts, (*request.common, *table.axes), request.measure), [number]
    for axes, numbers in request.joint:
        tables = [(*request.common, *request.tables[number].axes) for number in numbers]
        yield DenseTally(request.parts, axes, tables, request.measure, len(request.common)), numbers


def _packed(tables: Mapping[int, tuple[Axis, ...]], parts: int, room: int) -> list[tuple[tuple[Axis, ...], list[int]]]:
    """Gathers tables into joint tables: first fit, the largest first.

    Example: 8 parts x 2 classes, and columns of 12, 10, 9, 7, 6, 5, 4, 3 and 2 values, make two joint
    tables instead of nine, 12 x 10 x 9 x 3 and 7 x 6 x 5 x 4 x 2, of at most 2^16 cells each.
    """
    groups: list[tuple[list[Axis], list[int]]] = []
    sizes: list[int] = []
    for number in sorted(tables, key=lambda number: -joint_slots(tables[number])):
        # A group that already has all axes of a table does not grow by it.
        for group, (axes, numbers) in enumerate(groups):
            new = [axis for axis in tables[number] if axis not in axes]
            cells = sizes[group] * joint_slots(new)
            if not new or cells <= room:
                axes += new
                numbers.append(number)
                sizes[group] = cells
                break
        else:
            groups.append((list(tables[number]), [number]))
            sizes.append(parts * joint_slots(tables[number]))
    return [(tuple(axes), numbers) for axes, numbers in groups]


def count(block: RowBlock, request: CountRequest) -> Counts:
    """Counts a block of rows; ``Counts.merged`` adds up the counts of several blocks."""
    counts = Counts(request)
    counts.take(block)
    return counts
