# SPDX-License-Identifier: Apache-2.0
"""Rows of a block on their way to their parts: where each is, and its places along any axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from pinq.engine.codes import RowBlock, smallest
from pinq.engine.measures import RowMeasure
from pinq.public.specs import Axis

__all__ = ["Rows", "joint_cells"]

PLACES_AT_ONCE = 2**22  # of rows along the axes of a measure, however many these are
# Up to this code a cut's parts are looked up in a table; beyond, they are searched.
TABLED_CODES = 2**21


class Rows:
    """Rows of a block, of which each is at a numbered node.

    Args:
        block: Whose rows.
        picked: Which of them, by number; None for all.
        node: The node of each, shape (rows,).
        nodes: How many nodes there are.
        measure: What is added up of them.
        check: Called now and then while that is computed; what it raises ends the work.
    """

    def __init__(
        self,
        block: RowBlock,
        picked: np.ndarray | None,
        node: np.ndarray,
        nodes: int,
        measure: RowMeasure | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        self.block, self.picked, self.node, self.nodes, self.measure = block, picked, node, nodes, measure
        self._check = check
        self._codes: dict[Hashable, np.ndarray] = {}
        self._joint: dict[tuple[Axis, ...], np.ndarray] = {}
        self._words: np.ndarray | None = None

    @classmethod
    def of(cls, block: RowBlock) -> Rows:
        """All rows of a block, at node 0."""
        return cls(block, None, np.zeros(block.rows, dtype=np.uint8), 1)

    def over(self, block: RowBlock, check: Callable[[], None] | None = None) -> Rows:
        """The same rows, nothing looked up yet, of a block with other columns."""
        return Rows(block, self.picked, self.node, self.nodes, self.measure, check)

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
        if axis.thresholds is not None and axis.thresholds[-1] >= TABLED_CODES:
            return np.searchsorted(np.array(axis.thresholds, dtype=codes.dtype), codes, side="right")
        return _places_by_code(axis).take(codes, mode="clip")

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
            yield Rows(block, picked, self.node[part], self.nodes, self.measure)

    def inside(self, axes: Sequence[Axis]) -> Rows:
        """Those that have a place along each axis."""
        partial = [axis for axis in axes if axis.slots > axis.size]
        if not partial:
            return self
        return self.take(np.flatnonzero(np.logical_and.reduce([self.places(axis) < axis.size for axis in partial])))

    def take(self, chosen: np.ndarray) -> Rows:
        """Some of them, by number."""
        picked = chosen if self.picked is None else self.picked.take(chosen)
        return Rows(self.block, picked, self.node.take(chosen), self.nodes, self.measure)

    def moved(self, node: np.ndarray, nodes: int) -> Rows:
        """The same rows at other nodes of so many; those at -1 are left out."""
        small = node.astype(smallest(nodes))
        if node.min(initial=0) >= 0:
            return Rows(self.block, self.picked, small, nodes, self.measure)
        # Rows 4, 7 and 9 at nodes 0, -1 and 1: rows 4 and 9 are left, and the block's columns are
        # not copied.
        kept = np.flatnonzero(node >= 0)
        picked = kept.astype(np.uint32) if self.picked is None else self.picked.take(kept)
        return Rows(self.block, picked, small.take(kept), nodes, self.measure)

    def measured(self, measure: RowMeasure | None) -> Rows:
        """Those that count for a measure, to be added up by it."""
        rows = Rows(self.block, self.picked, self.node, self.nodes, measure)
        kept = None if measure is None else measure.kept(rows.places)
        return rows if kept is None else rows.take(np.flatnonzero(kept))


@lru_cache(maxsize=32)
def _places_by_code(axis: Axis) -> np.ndarray:
    """The place of each code along an axis, ``axis.size`` for none.

    Codes beyond the last are like it.
    """
    kind = smallest(axis.size + 1)
    if axis.thresholds is not None:
        # Cuts at codes 3 and 5 make the table 0 0 0 1 1 2; codes from 5 on are like 5.
        widths = np.diff(axis.thresholds, prepend=0, append=axis.thresholds[-1] + 1)
        return np.repeat(np.arange(axis.size, dtype=kind), widths)
    parts = axis.parts_of(np.arange(len(axis.lookup)))  # type: ignore[arg-type]
    return np.where(parts < 0, axis.size, parts).astype(kind)


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
