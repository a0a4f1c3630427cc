# SPDX-License-Identifier: Apache-2.0
"""What is added up of rows: whole numbers made of a row's codes, in 64 bits without wrapping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from pinq.engine.tables import MAX_SUM, JointSums, Measure, Moments, RowSums
from pinq.public.derivatives import Packing
from pinq.public.schema import Schema
from pinq.public.specs import Axis

__all__ = ["RowMeasure", "measure_of", "words_of"]

LOW_BITS = 24


class RowMeasure(Protocol):
    """What is added up of each row.

    Attributes:
        inputs: What it reads: a row's place along each of these axes.
        cells: How it reads them: as a row's cell in the joint table of each of these.
        sums: How many numbers are added up.
        packing: How they stand in a row's words.
    """

    @property
    def inputs(self) -> tuple[Axis, ...]: ...
    @property
    def cells(self) -> tuple[tuple[Axis, ...], ...]: ...
    @property
    def sums(self) -> int: ...
    @property
    def packing(self) -> Packing: ...
    def kept(self, places: Callable[[Axis], np.ndarray]) -> np.ndarray | None:
        """Which rows count at all, shape (rows,), from their places along an axis; None for all."""

    def of(self, cells: Sequence[np.ndarray]) -> np.ndarray:
        """The packed numbers of some rows, int64, shape (words, rows), from what it reads."""

    def finished(self, sums: np.ndarray) -> np.ndarray:
        """What is answered, from all sums, shape (sums, ...): int64, shape (..., width)."""


@dataclass(frozen=True, eq=False)
class _MomentsOfRows:
    """Rows, their codes' sum and the sum of squares.

    Codes are below 2^24, so 2^33 rows, the most that a policy admits, sum to less than 2^57. Their
    squares may pass 64 bits, so the low 24 bits of each and the rest are added up apart. An answer
    stops at the public bound 2^62: an overflow would be an error that follows the rows.
    """

    moments: Moments
    column: Axis
    null: int | None

    @property
    def inputs(self) -> tuple[Axis, ...]:
        return (self.column,)

    @property
    def cells(self) -> tuple[tuple[Axis, ...], ...]:
        return ((self.column,),)

    @property
    def sums(self) -> int:
        return 4 if self.moments.squares else 2

    @cached_property
    def packing(self) -> Packing:
        most = (self.column.size - 1) >> self.moments.shift
        squares = (min(most * most, 2**LOW_BITS - 1), most * most >> LOW_BITS)
        return Packing.of([(0, number) for number in (1, most, *squares)[: self.sums]])

    def kept(self, places: Callable[[Axis], np.ndarray]) -> np.ndarray | None:
        return None if self.null is None else places(self.column) != self.null

    def of(self, cells: Sequence[np.ndarray]) -> np.ndarray:
        value = cells[0].astype(np.int64) >> self.moments.shift
        numbers = np.empty((self.sums, len(value)), dtype=np.int64)
        numbers[0], numbers[1] = 1, value
        if self.moments.squares:
            # Code 5,000 has the square 25,000,000 = 1 * 2^24 + 8,222,784: it adds 1 to the high sum
            # and 8,222,784 to the low one.
            square = value * value
            numbers[2], numbers[3] = square & (2**LOW_BITS - 1), square >> LOW_BITS
        return self.packing.packed(numbers)

    def finished(self, sums: np.ndarray) -> np.ndarray:
        rows, total = sums[0], np.minimum(sums[1], MAX_SUM)
        if not self.moments.squares:
            return np.stack([rows, total], axis=-1)
        # What low parts add up to beyond 2^24 is carried to the high ones, as in sums by hand.
        # Low sums of 40,000,000 are 2 * 2^24 + 6,445,568: 2 is carried.
        high = sums[3] + (sums[2] >> LOW_BITS)
        low = sums[2] & (2**LOW_BITS - 1)
        room = MAX_SUM >> LOW_BITS
        squares = np.where(high >= room, MAX_SUM, (np.minimum(high, room - 1) << LOW_BITS) + low)
        return np.stack([rows, total, squares], axis=-1)


@dataclass(frozen=True, eq=False)
class _SumsOfRows:
    """Sums of a public function of rows.

    Its numbers are below 2^24, so 2^33 rows sum to less than 2^57.
    """

    function: RowSums
    read: JointSums

    @property
    def inputs(self) -> tuple[Axis, ...]:
        return self.function.inputs

    @property
    def cells(self) -> tuple[tuple[Axis, ...], ...]:
        return self.read.cells

    @property
    def sums(self) -> int:
        return self.function.width

    @property
    def packing(self) -> Packing:
        return self.function.packing

    def kept(self, places: Callable[[Axis], np.ndarray]) -> np.ndarray | None:
        return None

    def of(self, cells: Sequence[np.ndarray]) -> np.ndarray:
        return self.read.of(cells)

    def finished(self, sums: np.ndarray) -> np.ndarray:
        return np.moveaxis(sums, 0, -1)


def words_of(measure: Measure, schema: Schema) -> int:
    """How many words a row's numbers take."""
    return (_moments(measure, schema) if isinstance(measure, Moments) else measure).packing.words


def measure_of(measure: Measure | None, schema: Schema, joint: Sequence[tuple[Axis, ...]] = ()) -> RowMeasure | None:
    """How an engine adds up what is asked for; None where it only counts.

    Args:
        measure: What is asked for.
        schema: Of the columns.
        joint: Joint tables whose cells are known of each row: these are read where that suffices.
    """
    if measure is None:
        return None
    if isinstance(measure, Moments):
        return _moments(measure, schema)
    return _SumsOfRows(measure, measure.over(joint))


def _moments(moments: Moments, schema: Schema) -> _MomentsOfRows:
    column = schema.columns[moments.column]
    return _MomentsOfRows(moments, Axis(moments.column, column.codes, ()), column.null_code)
