# SPDX-License-Identifier: Apache-2.0
"""What adds up in the cells of a dense table while rows come: their number, or sums of a measure.

``Rows`` say where: each row's cell, by its flat place. All is exact, whatever the order.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from pinq.engine.measures import RowMeasure

__all__ = ["Cells", "CountedCells", "SummedCells"]

CARRIED_CELLS = 2**16  # of more, taking all words apart takes longer than adding them up saves


class Cells(Protocol):
    """Numbers in the cells of a table."""

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""

    def add(self, cell: np.ndarray | None, rows: int, words: np.ndarray | None) -> None:
        """Takes rows in.

        Args:
            cell: Where each is, shape (rows,); None where there is one cell only.
            rows: How many there are.
            words: What is added up of them, packed, shape (words, rows); None to count them.
        """

    def numbers(self) -> np.ndarray:
        """What has added up, shape (numbers, cells)."""


class CountedCells:
    """How many rows are in each of so many cells."""

    def __init__(self, cells: int) -> None:
        # Half as wide, twice as many cells fit into a cache.
        self._counts, self._rows = np.zeros((1, cells), dtype=np.uint32), 0

    @property
    def nbytes(self) -> int:
        return 8 * self._counts.size  # as wide as they may become

    def add(self, cell: np.ndarray | None, rows: int, words: np.ndarray | None) -> None:
        self._rows += rows
        if self._rows >= 2**32:
            self._counts = self._counts.astype(np.int64)
        if cell is None:
            self._counts[0, 0] += rows
        else:
            np.add.at(self._counts[0], cell, self._counts.dtype.type(1))

    def numbers(self) -> np.ndarray:
        return self._counts


class SummedCells:
    """What a measure adds up in each of so many cells: words, and sums of those of many rows.

    One scattered addition of a word adds all numbers that stand in it. Before they could touch each
    other, at ``Packing.rows`` rows, they are taken apart and carried to the sums. Of very many cells
    each row's word is taken apart at once.
    """

    def __init__(self, measure: RowMeasure, cells: int) -> None:
        self._packing = measure.packing
        self._sums = np.zeros((measure.sums, cells), dtype=np.int64)
        self._carries = cells <= CARRIED_CELLS
        self._words = np.zeros((self._packing.words, cells if self._carries else 0), dtype=np.int64)
        self._rows = 0

    @property
    def nbytes(self) -> int:
        return self._sums.nbytes + self._words.nbytes

    def add(self, cell: np.ndarray | None, rows: int, words: np.ndarray | None) -> None:
        assert words is not None  # rows that a measure is computed of
        flat = None if cell is None else cell.astype(np.intp, copy=False)  # once for all words
        for start in range(0, rows, self._packing.rows):
            block = slice(start, start + self._packing.rows)
            self._add(None if flat is None else flat[block], words[:, block])

    def numbers(self) -> np.ndarray:
        self._carry()
        return self._sums

    def _add(self, cell: np.ndarray | None, words: np.ndarray) -> None:
        if cell is not None and not self._carries:
            for number, own in self._packing.apart(words):
                np.add.at(self._sums[number], cell, own)
            return
        if self._rows + words.shape[1] > self._packing.rows:
            self._carry()
        self._rows += words.shape[1]
        if cell is None:
            self._words[:, 0] += words.sum(axis=1)
            return
        for line, own in zip(self._words, words, strict=True):
            np.add.at(line, cell, own)

    def _carry(self) -> None:
        if not self._rows:
            return
        for number, own in self._packing.apart(self._words):
            self._sums[number] += own
        self._words.fill(0)
        self._rows = 0
