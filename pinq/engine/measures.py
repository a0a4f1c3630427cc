# SPDX-License-Identifier: Apache-2.0
"""What is added up of rows: whole numbers made of a row's codes, in 64 bits without wrapping."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from pinq.engine.tables import MAX_SUM, Measure, Moments, RowSums
from pinq.public.schema import Schema
from pinq.public.specs import Axis

__all__ = ["RowMeasure", "measure_of"]

LOW_BITS = 24


class RowMeasure(Protocol):
    """What is added up of each row.

    Attributes:
        inputs: What it reads: a row's place along each of these axes.
        sums: How many numbers are added up.
    """

    @property
    def inputs(self) -> tuple[Axis, ...]: ...
    @property
    def sums(self) -> int: ...
    def kept(self, places: Callable[[Axis], np.ndarray]) -> np.ndarray | None:
        """Which rows count at all, shape (rows,), from their places along an axis; None for all."""

    def of(self, places: Sequence[np.ndarray]) -> np.ndarray:
        """The numbers of some rows, int64, shape (sums, rows)."""

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
    def sums(self) -> int:
        return 4 if self.moments.squares else 2

    def kept(self, places: Callable[[Axis], np.ndarray]) -> np.ndarray | None:
        return None if self.null is None else places(self.column) != self.null

    def of(self, places: Sequence[np.ndarray]) -> np.ndarray:
        value = places[0].astype(np.int64) >> self.moments.shift
        numbers = np.empty((self.sums, len(value)), dtype=np.int64)
        numbers[0], numbers[1] = 1, value
        if self.moments.squares:
            # Code 5,000 has the square 25,000,000 = 1 * 2^24 + 8,222,784: it adds 1 to the high sum
            # and 8,222,784 to the low one.
            square = value * value
            numbers[2], numbers[3] = square & (2**LOW_BITS - 1), square >> LOW_BITS
        return numbers

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

    @property
    def inputs(self) -> tuple[Axis, ...]:
        return self.function.inputs

    @property
    def sums(self) -> int:
        return self.function.width

    def kept(self, places: Callable[[Axis], np.ndarray]) -> np.ndarray | None:
        return None

    def of(self, places: Sequence[np.ndarray]) -> np.ndarray:
        return self.function.of(places)

    def finished(self, sums: np.ndarray) -> np.ndarray:
        return np.moveaxis(sums, 0, -1)


def measure_of(measure: Measure | None, schema: Schema) -> RowMeasure | None:
    """How an engine adds up what is asked for; None where it only counts."""
    if measure is None:
        return None
    if not isinstance(measure, Moments):
        return _SumsOfRows(measure)
    column = schema.columns[measure.column]
    return _MomentsOfRows(measure, Axis(measure.column, column.codes, ()), column.null_code)
