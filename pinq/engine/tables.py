# SPDX-License-Identifier: Apache-2.0
"""The requests to an engine and its answers: all that the curator knows of an engine."""

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
"""The largest sum. It fits into 64 bits with noise added; only a wrong declaration lets a sum grow so far."""


LOW_BITS = 24  # low bits of the square of a code, which are summed separately


@dataclass(frozen=True)
class Moments:
    """A request for sums of a column's codes, and also of their squares if ``squares`` is set.

    Codes are clamped to ``first`` .. ``last``, numbered from 0, then shifted right by ``shift`` bits.
    Rows with a missing value are left out. The sums count as one number of a cell.
    """

    inputs: ClassVar[tuple[Axis, ...]] = ()
    width: ClassVar[int] = 1
    steps: ClassVar[int] = 0
    nbytes: ClassVar[int] = 0

    column: str
    shift: int = 0
    squares: bool = False
    first: int = 0
    last: int = 2**24  # the largest code: a missing value on the finest grid

    def bound_to(self, schema: Schema) -> MomentsOfRows:
        """The numbers of each row under a schema."""
        return MomentsOfRows(self, schema)


class MomentsOfRows(RowMeasure):
    """The number of rows, the sum of their codes and the sum of squares.

    Codes are below 2^24, so 2^33 rows, the most that a policy admits, sum to less than 2^57. Sums of squares may exceed
    64 bits, so the low 24 bits and the high bits of each square are summed separately. An answer is clamped to the
    public bound 2^62, because an overflow would depend on the rows.
    """

    packing: Packing

    def __init__(self, moments: Moments, schema: Schema) -> None:
        column = schema.columns[moments.column]
        self.moments, self._null = moments, column.null_code
        self._last = min(column.cells - 1, moments.last)
        self._clamps = moments.first > 0 or self._last < column.cells - 1
        self._axis = Axis(moments.column, column.codes, ())
        self.inputs, self.cells, self.steps = (self._axis,), ((self._axis,),), 0
        largest_code = (self._last - moments.first) >> moments.shift
        squares = [min(largest_code * largest_code, 2**LOW_BITS - 1), largest_code * largest_code >> LOW_BITS]
        largest = [1, largest_code, *(squares if moments.squares else ())]
        self.width, self.packing = len(largest), Packing.of([(0, number) for number in largest])

    def counted_rows(self, places: Callable[[Axis], np.ndarray]) -> np.ndarray | None:
        return None if self._null is None else places(self._axis) != self._null

    def words(self, cells: Sequence[np.ndarray]) -> np.ndarray:
        value = cells[0]  # in the narrow type of codes; `packed` widens it
        if self._clamps:
            # With first 10 and last 15 the codes 8, 12 and 20 become 0, 2 and 5.
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
        # Low sums beyond 2^24 are carried to the high sums: 40,000,000 = 2 * 2^24 + 6,445,568 carries 2.
        high = sums[3] + (sums[2] >> LOW_BITS)
        low = sums[2] & (2**LOW_BITS - 1)
        room = MAX_SUM >> LOW_BITS
        squares = np.where(high >= room, MAX_SUM, (np.minimum(high, room - 1) << LOW_BITS) + low)
        return np.stack([rows, total, squares], axis=-1)


Measure = Moments | RowMeasure
"""The measures that can be summed instead of counting rows."""


Form = Literal["dense", "sparse", "listed"]
"""The form of a table: all cells, the occupied cells by number, or the occupied cells by their codes."""


@dataclass(frozen=True, eq=False)
class TableRequest:
    """One contingency table: parts x axes.

    Attributes:
        axes: The axes with which the parts are crossed.
        form: The form of the table. ``listed`` is for a joint table that is too wide to number its cells.
    """

    axes: tuple[Axis, ...] = ()
    form: Form = "dense"


@dataclass(frozen=True, eq=False)
class Sparse:
    """The occupied cells of a table, sorted by their flat place.

    The cell at ``places[i]`` over (part, *axes) has ``values[i]``: a count, or the sums of a measure.
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
        """The size in bytes."""
        return self.parts.nbytes + self.codes.nbytes + self.counts.nbytes


Table = np.ndarray | Sparse | Listed
"""The answer to one request of a table."""


def go_on() -> None:
    """The default ``check``: never ends the work."""


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
            measure: The measure to sum.
            check: A function that is called from time to time; its error ends the work.

        Returns:
            For each table an int64 array of shape (parts, *axes), with ``Moments`` (parts, *axes, 2
            or 3) of counts, sums and sums of squares, with ``RowMeasure`` (parts, *axes, width); or a
            ``Sparse`` with values of shape (cells,), (cells, 2 or 3) or (cells, width); or a
            ``Listed``.
        """

    def problem(self) -> str:
        """The reason why it cannot count now; empty for none; reads no row."""

    def close(self) -> None:
        """Frees the memory."""


def require_open(encoded: T | None, process: int) -> T:
    """Returns an engine's encoded table, which is None once it is closed.

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
