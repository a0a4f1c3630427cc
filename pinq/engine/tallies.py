# SPDX-License-Identifier: Apache-2.0
"""Exact tables that grow by blocks of rows: dense ones, occupied cells, and listings.

Each tally takes rows that know their part (``add``), takes another tally of other rows in
(``merge``), and gives the tables of all of them (``tables``). All numbers are integers; counts and
sums are exact whatever the order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol, Self

import numpy as np

from pinq.engine.cells import Cells, CountedCells, SummedCells
from pinq.engine.codes import smallest
from pinq.engine.measures import RowMeasure
from pinq.engine.rows import Rows
from pinq.engine.tables import Listed, Sparse, Table
from pinq.public.specs import Axis

__all__ = ["DenseTally", "ListTally", "OccupiedTally", "SparseTally", "Tally", "packed_words", "run_starts"]

SORTED_ROWS = 2**20  # so many rows of a measure wait until they are sorted together
MAX_SORTED = 2**62  # cells that a word of 64 bits can number


class Tally(Protocol):
    """Tables of the rows seen so far."""

    def add(self, rows: Rows) -> None:
        """Takes rows in."""

    def merge(self, other: Self) -> None:
        """Takes in what another tally of the same tables counted of other rows."""

    def condense(self) -> None:
        """Keeps no more than the tables: what that takes follows their cells, not the rows."""

    def tables(self) -> Sequence[Table]:
        """The table of each request that it is for."""

    @property
    def empty_bytes(self) -> int:
        """Bytes that it takes before any row comes."""

    @property
    def most_condensed_bytes(self) -> float:
        """Bytes that it takes at most once it is condensed; infinite where they follow the rows."""


class DenseTally:
    """Tables over a few axes, counted as one small joint table and summed out of it.

    Of 8 nodes x 2 classes x 4 x 5 values, a row at node 3, class 1, values 2 and 0 adds one to cell
    ((3 * 2 + 1) * 4 + 2) * 5 + 0 = 150. The table of node, class and the first value is the sum over
    the second.

    Args:
        nodes: How many parts there are.
        axes: Those of the joint table.
        shared: How many of them, from the first on, other joint tables begin with too.
        tables: The axes of each table, all of them among ``axes``.
        measure: What is added up; None to count rows.
        common: How many axes, from the first on, split all parts: their parts become parts.
    """

    def __init__(
        self,
        nodes: int,
        axes: Sequence[Axis],
        shared: int,
        tables: Sequence[tuple[Axis, ...]],
        measure: RowMeasure | None,
        common: int = 0,
    ) -> None:
        self._axes, self._shared, self._tables, self._measure = tuple(axes), shared, tuple(tables), measure
        self._common = common
        self._shape = (nodes, *(axis.slots for axis in axes))
        cells = math.prod(self._shape)
        self._cells: Cells = CountedCells(cells) if measure is None else SummedCells(measure, cells)
        self._condensed: list[np.ndarray] | None = None

    def add(self, rows: Rows) -> None:
        # The cell over the shared axes was computed for another tally of the same rows; here it
        # goes on from there.
        cell = None if math.prod(self._shape) == 1 else rows.cell(self._axes, self._shared)
        self._cells.add(cell, len(rows.node), rows.words())

    def merge(self, other: DenseTally) -> None:
        pairs = zip(self._summed(), other._summed(), strict=True)
        self._condensed = [own.astype(np.int64) + their for own, their in pairs]

    def condense(self) -> None:
        self._condensed = self._summed()
        self._cells = CountedCells(0)

    @property
    def empty_bytes(self) -> int:
        return self._cells.nbytes

    @property
    def most_condensed_bytes(self) -> float:
        cells = sum(math.prod(axis.size for axis in axes) for axes in self._tables)
        return 8 * (1 if self._measure is None else self._measure.sums) * self._shape[0] * cells

    def tables(self) -> list[Table]:
        tables = [table.astype(np.int64, copy=False) for table in self._summed()]
        tables = [table[0] if self._measure is None else self._measure.finished(table) for table in tables]
        return [table.reshape(-1, *table.shape[1 + self._common :]) for table in tables]

    def _summed(self) -> list[np.ndarray]:
        """The tables, summed out of the joint one, in numbers as wide as its own."""
        if self._condensed is not None:
            return self._condensed
        joint = self._cells.numbers().reshape(-1, *self._shape)
        return [_summed_out(joint, self._axes, axes) for axes in self._tables]


def _summed_out(joint: np.ndarray, axes: Sequence[Axis], wanted: Sequence[Axis]) -> np.ndarray:
    """Sums a joint table over all axes but those wanted, shape (sums, nodes, *wanted)."""
    # A row outside of one axis still counts in the tables of the others: sum over the foreign axes
    # before cutting it off.
    foreign = tuple(number for number, axis in enumerate(axes, start=2) if axis not in wanted)
    table = joint.sum(axis=foreign) if foreign else joint
    order = [axis for axis in axes if axis in wanted]
    table = table.transpose(0, 1, *(2 + order.index(axis) for axis in wanted))
    inner = table[(slice(None), slice(None), *(slice(axis.size) for axis in wanted))]
    return np.ascontiguousarray(inner).astype(joint.dtype, copy=False)


class OccupiedTally(DenseTally):
    """The occupied cells of one table of counts, out of all its cells.

    Args:
        nodes: How many parts there are.
        axes: Those of the table.
    """

    def __init__(self, nodes: int, axes: tuple[Axis, ...]) -> None:
        super().__init__(nodes, axes, 0, [axes], None)

    def tables(self) -> list[Table]:
        (table,) = self._summed()
        counts = table.reshape(-1)
        places = np.flatnonzero(counts)
        return [Sparse(places, counts[places].astype(np.int64))]


class SparseTally:
    """The occupied cells of one table, by sorting the rows' cells.

    Args:
        nodes: How many parts there are.
        axes: Those of the table.
        measure: What is added up; None to count rows.
    """

    def __init__(self, nodes: int, axes: tuple[Axis, ...], measure: RowMeasure | None) -> None:
        self._axes, self._measure = axes, measure
        self._kind = np.dtype(np.uint32 if nodes * math.prod(axis.size for axis in axes) < 2**32 else np.uint64)
        self._keys: list[np.ndarray] = []
        self._words: list[np.ndarray] = []
        self._waiting = 0
        self._runs: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, rows: Rows) -> None:
        rows = rows.inside(self._axes)
        key = rows.node.astype(self._kind)
        for axis in self._axes:
            np.multiply(key, self._kind.type(axis.size), out=key)
            np.add(key, rows.places(axis), out=key, casting="unsafe")
        self._keys.append(key)
        if (words := rows.words()) is not None:
            self._words.append(words)
            self._waiting += len(key)
            if self._waiting >= SORTED_ROWS:
                self._sort()

    def merge(self, other: SparseTally) -> None:
        for tally in (self, other):
            tally._sort()
        self._runs += other._runs

    def condense(self) -> None:
        self._runs = [self._cells()]

    @property
    def empty_bytes(self) -> int:
        return 0

    @property
    def most_condensed_bytes(self) -> float:
        return math.inf

    def tables(self) -> list[Sparse]:
        keys, sums = self._cells()
        values = sums[0] if self._measure is None else self._measure.finished(sums)
        return [Sparse(keys.astype(np.int64, copy=False), values)]

    def _cells(self) -> tuple[np.ndarray, np.ndarray]:
        """The occupied cells in order, and what adds up in each, shape (sums, cells)."""
        self._sort()
        if len(self._runs) == 1:
            return self._runs[0]
        nothing = np.zeros((1 if self._measure is None else self._measure.sums, 0), dtype=np.int64)
        keys = np.concatenate([np.zeros(0, dtype=self._kind), *(own for own, _ in self._runs)])
        return _summed_runs(keys, np.concatenate([nothing, *(own for _, own in self._runs)], axis=1))

    def _sort(self) -> None:
        """Makes occupied cells, in order, of the rows that wait."""
        if not self._keys:
            return
        keys, words, self._keys, self._words, self._waiting = np.concatenate(self._keys), self._words, [], [], 0
        if self._measure is None:  # each is a row, and counts one
            keys.sort()
            keys, sums = _counted_runs(keys)
        else:
            keys, sums = _summed_runs(keys, self._measure.packing.unpacked(np.concatenate(words, axis=1)))
        self._runs.append((keys.astype(self._kind, copy=False), sums))


def _summed_runs(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys in order, and what values of shape (sums, keys) add up to for each."""
    # Keys 4 1 4 9 are sorted to 1 4 4 9; runs of equal ones start at 0, 1 and 3. Their values 5 2 3 7
    # add up to 5 7 10 17 on the way: at the runs' ends 5, 10 and 17, so runs have 5, 5 and 7.
    order = np.argsort(keys)
    keys = keys.take(order)
    starts = run_starts(keys)
    ends = np.append(starts[1:], len(keys)) - 1 if len(keys) else starts
    return keys.take(starts), np.diff(values.take(order, axis=1).cumsum(axis=1).take(ends, axis=1), axis=1, prepend=0)


def _counted_runs(ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of each run of equal numbers, and how long it is, shape (1, runs)."""
    starts = run_starts(ordered)
    return ordered.take(starts), np.diff(starts, append=len(ordered))[None]


def run_starts(ordered: np.ndarray) -> np.ndarray:
    """Where each run of equal numbers begins."""
    return np.flatnonzero(np.concatenate([np.ones(min(1, len(ordered)), dtype=bool), ordered[1:] != ordered[:-1]]))


class ListTally:
    """The occupied cells of a joint table that is too wide to be numbered.

    Args:
        nodes: How many parts there are.
        axes: Those of the table.
    """

    def __init__(self, nodes: int, axes: tuple[Axis, ...]) -> None:
        self._axes = axes
        self._sizes = [nodes, *(axis.size for axis in axes)]
        self._codes: list[np.ndarray] = []
        self._counts: list[np.ndarray] = []

    def add(self, rows: Rows) -> None:
        rows = rows.inside(self._axes)
        codes = np.empty((len(self._sizes), len(rows.node)), dtype=smallest(max(self._sizes)))
        codes[0] = rows.node
        for line, axis in zip(codes[1:], self._axes, strict=True):
            line[:] = rows.places(axis)
        self._codes.append(codes)

    def merge(self, other: ListTally) -> None:
        for tally in (self, other):
            tally.condense()
        self._codes += other._codes
        self._counts += other._counts

    def condense(self) -> None:
        cells, counts = self._cells()
        self._codes, self._counts = [cells], [counts]

    @property
    def empty_bytes(self) -> int:
        return 0

    @property
    def most_condensed_bytes(self) -> float:
        return math.inf

    def tables(self) -> list[Listed]:
        cells, counts = self._cells()
        return [Listed(cells[0].astype(np.int64), cells[1:], counts)]

    def _cells(self) -> tuple[np.ndarray, np.ndarray]:
        """The occupied cells, and the rows in each."""
        codes = np.concatenate(self._codes, axis=1) if self._codes else np.zeros((len(self._sizes), 0), dtype=np.uint8)
        # Codes (1, 0), (0, 2) and (1, 0) of sizes 2 and 3 are the words 3, 2 and 3: in order 2 3 3,
        # so runs start at 0 and 1, and the cells (0, 2) and (1, 0) have 1 and 2 rows.
        words = packed_words(codes.shape[1], zip(codes, self._sizes, strict=True))
        order = np.argsort(words)
        starts = run_starts(words[order])
        if not self._counts or not len(starts):  # each is a row, and counts one
            return codes[:, order[starts]], np.diff(starts, append=len(order))
        return codes[:, order[starts]], np.add.reduceat(np.concatenate(self._counts)[order], starts)


def packed_words(rows: int, lines: Iterable[tuple[np.ndarray, int]]) -> np.ndarray:
    """One number for each place of some lines of codes, equal where all codes are, shape (rows,).

    Codes are packed into a word as long as they fit; then the words that occur are numbered, which
    makes room for more.

    Args:
        rows: Length of each line.
        lines: Each line's codes, and the number that they are below.
    """
    words, cells = np.zeros(rows, dtype=np.int64), 1
    for line, size in lines:
        # Words 7, 90 and 7 are numbered 0, 1 and 0: of the cells that there could be, two occur.
        if cells * size > MAX_SORTED:
            order = np.argsort(words)
            new = np.zeros(rows, dtype=np.int64)
            new[run_starts(words[order])] = 1
            words[order] = np.cumsum(new) - 1
            cells = int(new.sum())
        words *= size
        words += line
        cells *= size
    return words
