# SPDX-License-Identifier: Apache-2.0
"""Rows of a block on their way to their parts: where each is, and its places along any axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pinq.engine.codes import RowBlock, smallest
from pinq.engine.measures import RowMeasure
from pinq.public.specs import Axis

__all__ = ["CodeTable", "Rows", "code_tables", "joint_cells"]

PLACES_AT_ONCE = 2**22  # of rows along the axes of a measure, however many these are
# Up to this code, parts of a cut are looked up in a table within a core's cache; beyond, they are searched.
TABLED_CODES = 2**17


@dataclass(frozen=True, eq=False)
class CodeTable:
    """The place of each code along an axis.

    The arrays are finished before any row is read, and each code has a place in them: reading rows
    is indexing that cannot fail.

    Attributes:
        table: The place of each code, and of each larger code the last one. Never empty.
        edges: Where there is no table: the first code of each place but the first, in order.
    """

    table: np.ndarray | None
    edges: np.ndarray

    @classmethod
    def of_edges(cls, edges: Sequence[int] | np.ndarray) -> CodeTable:
        """Numbers the intervals between edges; without an edge all codes are in one."""
        # Edges 3 and 5 make the table 0 0 0 1 1 2; codes from 5 on are like 5. No edge makes 0.
        last = int(edges[-1]) if len(edges) else 0
        if last >= TABLED_CODES:
            return cls(None, np.array(edges, dtype=np.uint32))
        widths: np.ndarray = np.diff(np.array(edges, dtype=np.int64), prepend=0, append=last + 1)
        return cls(np.repeat(np.arange(len(widths), dtype=smallest(len(widths))), widths), np.zeros(0, dtype=np.uint32))

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        """The place of each code."""
        if self.table is not None:
            return self.table.take(codes, mode="clip")
        places = np.searchsorted(self.edges, codes, side="right")
        return places.astype(smallest(len(self.edges) + 1))


@lru_cache(maxsize=64)
def _code_table(axis: Axis) -> CodeTable:
    if axis.thresholds is not None:
        return CodeTable.of_edges(axis.thresholds)
    parts = axis.parts_of(np.arange(len(axis.lookup)))  # type: ignore[arg-type]
    places = np.where(parts < 0, axis.size, parts).astype(smallest(axis.size + 1))
    return CodeTable(places, np.zeros(0, dtype=np.uint32))


def code_tables(axes: Iterable[Axis]) -> dict[Axis, CodeTable]:
    """The tables of axes along which a code is not its own place; a row in no part is at ``axis.size``."""
    return {axis: _code_table(axis) for axis in axes if axis.thresholds is not None or axis.lookup is not None}


class Rows:
    """Rows of a block, of which each is at a numbered node.

    Args:
        block: Whose rows.
        picked: Which of them, by number; None for all.
        node: The node of each, shape (rows,).
        nodes: How many nodes there are.
        tables: The tables of the axes along which they are looked up; see ``code_tables``.
        measure: What is added up of them.
        check: Called now and then while that is computed; what it raises ends the work.
    """

    def __init__(
        self,
        block: RowBlock,
        picked: np.ndarray | None,
        node: np.ndarray,
        nodes: int,
        tables: Mapping[Axis, CodeTable],
        measure: RowMeasure | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.block, self.picked, self.node, self.nodes = block, picked, node, nodes
        self.tables, self.measure = tables, measure
        self._check = check
        self._codes: dict[Hashable, np.ndarray] = {}
        self._joint: dict[tuple[Axis, ...], np.ndarray] = {}
        self._words: np.ndarray | None = None

    @classmethod
    def of(cls, block: RowBlock, tables: Mapping[Axis, CodeTable]) -> Rows:
        """All rows of a block, at node 0."""
        return cls(block, None, np.zeros(block.rows, dtype=np.uint8), 1, tables)

    def over(
        self,
        block: RowBlock,
        tables: Mapping[Axis, CodeTable] | None = None,
        check: Callable[[], None] | None = None,
    ) -> Rows:
        """The same rows, nothing looked up yet, of a block with other columns, along other axes."""
        tables = self.tables if tables is None else tables
        return Rows(block, self.picked, self.node, self.nodes, tables, self.measure, check)

    def codes(self, source: Hashable) -> np.ndarray:
        """The codes of a column, shape (rows,)."""
        if source not in self._codes:
            codes = self.block.columns[source]
            self._codes[source] = codes if self.picked is None else codes.take(self.picked)
        return self._codes[source]

    def places(self, axis: Axis) -> np.ndarray:
        """The place of each row along an axis, ``axis.size`` for none, shape (rows,)."""
        if (axis,) in self.block.columns:
            return self.codes((axis,))
        codes = self.codes(axis.source)
        if axis.lookup is None and axis.thresholds is None:
            return codes
        return self.tables[axis](codes)

    def cells(self, axes: tuple[Axis, ...]) -> np.ndarray:
        """Each row's cell in the joint table of axes, whatever its node, shape (rows,)."""
        if len(axes) == 1:
            return self.places(axes[0])
        if self.nodes == 1:
            return self._joint_of(axes)
        return joint_cells(np.zeros_like(self.node), self, axes, math.prod(axis.slots for axis in axes))

    def cell(self, axes: tuple[Axis, ...], shared: int) -> np.ndarray:
        """The cell of each row in the joint table of nodes and some axes, shape (rows,).

        That over the first axes, ``shared`` with other tables, is computed once.
        """
        if axes in self._joint or (self.nodes == 1 and axes in self.block.columns):
            return self._joint_of(axes)
        cells = self.nodes * math.prod(axis.slots for axis in axes)
        return joint_cells(self._joint_of(axes[:shared]), self, axes[shared:], cells)

    def _joint_of(self, axes: tuple[Axis, ...]) -> np.ndarray:
        """The cells of nodes and axes, computed once, or those that the block has as a column."""
        if axes not in self._joint:
            if self.nodes == 1 and axes in self.block.columns:
                self._joint[axes] = self.codes(axes).astype(np.intp)
                return self._joint[axes]
            cells = self.nodes * math.prod(axis.slots for axis in axes)
            self._joint[axes] = joint_cells(self.node, self, axes, cells)
        return self._joint[axes]

    def words(self) -> np.ndarray | None:
        """What is added up of each row, packed, shape (words, rows); None to count rows."""
        if self._words is None and self.measure is not None:
            self._words = self._words_by(self.measure)
        return self._words

    def _words_by(self, measure: RowMeasure) -> np.ndarray:
        """Computes them for some rows at a time, so that memory does not grow with the axes."""
        rows, step = len(self.node), max(1, PLACES_AT_ONCE // max(1, sum(map(len, measure.cells))))
        words = np.empty((measure.packing.words, rows), dtype=np.int64)
        for start in range(0, rows, step):
            if self._check is not None:
                self._check()
            piece = self if rows <= step else self.take(np.arange(start, min(start + step, rows)))
            words[:, start : start + step] = measure.of([piece.cells(axes) for axes in measure.cells])
        return words

    def pieces(self, rows: int) -> Iterator[Rows]:
        """The same rows, so many at a time, nothing looked up yet."""
        for start in range(0, len(self.node), rows):
            part = slice(start, start + rows)
            block, picked = self.block, self.picked
            if picked is None:
                block = block.rows_in(part)
            else:
                picked = picked[part]
            yield Rows(block, picked, self.node[part], self.nodes, self.tables, self.measure)

    def inside(self, axes: Sequence[Axis]) -> Rows:
        """Those that have a place along each axis."""
        partial = [axis for axis in axes if axis.slots > axis.size]
        if not partial:
            return self
        return self.take(np.flatnonzero(np.logical_and.reduce([self.places(axis) < axis.size for axis in partial])))

    def take(self, chosen: np.ndarray) -> Rows:
        """Some of them, by number."""
        picked = chosen if self.picked is None else self.picked.take(chosen)
        return Rows(self.block, picked, self.node.take(chosen), self.nodes, self.tables, self.measure)

    def moved(self, node: np.ndarray, nodes: int) -> Rows:
        """The same rows at other nodes of so many; those at -1 are left out."""
        small = node.astype(smallest(nodes))
        if node.min(initial=0) >= 0:
            return Rows(self.block, self.picked, small, nodes, self.tables, self.measure)
        # Rows 4, 7 and 9 at nodes 0, -1 and 1: rows 4 and 9 are left, and the block's columns are
        # not copied.
        kept = np.flatnonzero(node >= 0)
        picked = kept.astype(np.uint32) if self.picked is None else self.picked.take(kept)
        return Rows(self.block, picked, small.take(kept), nodes, self.tables, self.measure)

    def measured(self, measure: RowMeasure | None) -> Rows:
        """Those that count for a measure, to be added up by it."""
        rows = Rows(self.block, self.picked, self.node, self.nodes, self.tables, measure)
        kept = None if measure is None else measure.kept(rows.places)
        return rows if kept is None else rows.take(np.flatnonzero(kept))


def joint_cells(cell: np.ndarray, rows: Rows, axes: Sequence[Axis], cells: int) -> np.ndarray:
    """The cell of each row in a joint table, from its cell in the table without the last axes.

    Args:
        cell: Where it is without them, shape (rows,).
        rows: Which have places along them.
        axes: The last ones.
        cells: Cells of the whole table; the numbers are as narrow as it allows.
    """
    kind = smallest(cells + 1)
    # Node 3 and places 1 of 2 and 2 of 4: (3 * 2 + 1) * 4 + 2 = 30.
    key = cell.astype(kind)
    for axis in axes:
        np.multiply(key, kind.type(axis.slots), out=key)
        np.add(key, rows.places(axis), out=key, casting="unsafe")
    return key
