# SPDX-License-Identifier: Apache-2.0
"""The requests to an engine and its answers; the curator knows nothing else of an engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeVar

import numpy as np

from pinq.errors import InternalError
from pinq.language.derivatives import Packing, RowMeasure
from pinq.language.parts import PartSet
from pinq.language.specs import Axis
from pinq.public.schema import Schema

T = TypeVar("T")

MAX_SUM = 2**62
"""Where sums stop that a wrong declaration lets grow: 64 bits hold them, and noise on top of them."""


LOW_BITS = 24  # of the square of a code, which are added up apart from the others


@dataclass(frozen=True)
class Moments:
    """A request for sums of a column's codes, shifted right by ``shift`` bits, or also of their squares.

    Before that codes are clamped to those from ``first`` to ``last`` and numbered from 0. Rows where
    the column is missing are left out. Its few sums count as one number of a cell.
    """

    inputs: ClassVar[tuple[Axis, ...]] = ()
    width: ClassVar[int] = 1
    steps: ClassVar[int] = 0
    nbytes: ClassVar[int] = 0

    column: str
    shift: int = 0
    squares: bool = False
    first: int = 0
    last: int = 2**24  # a missing value's code on the finest grid: none is above it

    def bound_to(self, schema: Schema) -> MomentsOfRows:
        """The numbers that each row adds under a schema."""
        return MomentsOfRows(self, schema)


class MomentsOfRows(RowMeasure):
    """Rows, their codes' sum and the sum of squares.

    Codes are below 2^24, so 2^33 rows, the most that a policy admits, sum to less than 2^57. Their
    squares may pass 64 bits, so the low 24 bits of each and the rest are added up apart. An answer
    stops at the public bound 2^62: an overflow would be an error that follows the rows.

    Args:
        moments: The moments that are added up.
        schema: The schema of the columns.
    """

    packing: Packing

    def __init__(self, moments: Moments, schema: Schema) -> None:
        column = schema.columns[moments.column]
        self.moments, self._null = moments, column.null_code
        self._last = min(column.cells - 1, moments.last)
        self._clamps = moments.first > 0 or self._last < column.cells - 1
        self._axis = Axis(moments.column, column.codes, ())
        self.inputs, self.cells, self.steps = (self._axis,), ((self._axis,),), 0
        most = (self._last - moments.first) >> moments.shift
        squares = [min(most * most, 2**LOW_BITS - 1), most * most >> LOW_BITS]
        largest = [1, most, *(squares if moments.squares else ())]
        self.width, self.packing = len(largest), Packing.of([(0, number) for number in largest])

    def counted_rows(self, places: Callable[[Axis], np.ndarray]) -> np.ndarray | None:
        return None if self._null is None else places(self._axis) != self._null

    def words(self, cells: Sequence[np.ndarray]) -> np.ndarray:
        value = cells[0]  # as narrow as codes are; words are made wide at once
        if self._clamps:
            # From 10 on, to 15 at most: the codes 8, 12 and 20 become 0, 2 and 5.
            value = np.clip(value, self.moments.first, self._last) - value.dtype.type(self.moments.first)
        if self.moments.shift:
            value = value >> self.moments.shift
        if not self.moments.squares:
            return self.packing.packed([1, value])
        # Code 5,000 has the square 25,000,000 = 1 * 2^24 + 8,222,784: it adds 1 to the high sum and
        # 8,222,784 to the low one.
        square = value.astype(np.int64) ** 2
        return self.packing.packed([1, value, square & (2**LOW_BITS - 1), square >> LOW_BITS])

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


Measure = Moments | RowMeasure
"""What can be summed up beside the rows that are counted."""


Form = Literal["dense", "sparse", "listed"]
"""How a table is kept: every cell, the occupied ones by number, or the occupied ones by their codes."""


@dataclass(frozen=True, eq=False)
class TableRequest:
    """One contingency table: parts x axes.

    Attributes:
        axes: The axes with which the parts are crossed.
        form: The form of the table. A list is for a joint table that is too wide to be numbered.
    """

    axes: tuple[Axis, ...] = ()
    form: Form = "dense"


@dataclass(frozen=True, eq=False)
class Sparse:
    """The occupied cells of a table, sorted by their flat place.

    ``places[i]`` over (part, *axes) has ``values[i]``: a count, or what a measure adds up.
    """

    places: np.ndarray
    values: np.ndarray


@dataclass(frozen=True, eq=False)
class Listed:
    """The occupied cells of a joint table, in no order.

    Attributes:
        parts: The part of each cell, shape (cells,).
        codes: Its place along each axis, shape (axes, cells).
        counts: Its rows, shape (cells,).
    """

    parts: np.ndarray
    codes: np.ndarray
    counts: np.ndarray

    @property
    def nbytes(self) -> int:
        """Bytes of all of it."""
        return self.parts.nbytes + self.codes.nbytes + self.counts.nbytes


Table = np.ndarray | Sparse | Listed
"""What is counted for one request of a table."""


def go_on() -> None:
    """Ends no work: the default deadline."""


class Engine(Protocol):
    """Exact tables of one encoded table."""

    def tabulate(
        self,
        parts: PartSet,
        tables: Sequence[TableRequest],
        measure: Measure | None,
        check: Callable[[], None] = go_on,
    ) -> Sequence[Table]:
        """Counts rows, exactly, for each part and each cell of each table, or sums a measure.

        Args:
            parts: Disjoint parts.
            tables: The tables with which the parts are crossed.
            measure: The measure to add up.
            check: A function that is called now and then; an error that it raises ends the work.

        Returns:
            For each table an int64 array of shape (parts, *axes), with ``Moments`` (parts, *axes, 2
            or 3) of counts, sums and sums of squares, with ``RowMeasure`` (parts, *axes, width); or a
            ``Sparse`` with values of shape (cells,), (cells, 2 or 3) or (cells, width); or a
            ``Listed``.
        """

    def problem(self) -> str:
        """Says what would keep it from counting now; empty for nothing. No row is read for it."""

    def close(self) -> None:
        """Frees what it holds."""


def require_open(encoded: T | None, process: int) -> T:
    """Returns what an engine counts.

    Args:
        encoded: None once the engine is closed.
        process: The process that opened it.

    Raises:
        InternalError: It is closed, or this is another process.
    """
    if os.getpid() != process:
        raise InternalError(
            "This handle was opened in another process; an engine does not survive a fork. Open it again here."
        )
    if encoded is None:
        raise InternalError("The engine is closed.")
    return encoded
