# SPDX-License-Identifier: Apache-2.0
"""What an engine is asked for and gives back; the curator knows no more of one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, TypeVar

import numpy as np

from pinq.errors import InternalError
from pinq.public.derivatives import RowMeasure, RowWords
from pinq.public.parts import PartSet
from pinq.public.specs import Axis

__all__ = [
    "MAX_SUM",
    "Engine",
    "Form",
    "Listed",
    "Measure",
    "Moments",
    "RowSums",
    "Sparse",
    "Table",
    "TableRequest",
    "require_open",
]

T = TypeVar("T")

MAX_SUM = 2**62
"""Where sums stop that a wrong declaration lets grow: 64 bits hold them, and noise on top of them."""


@dataclass(frozen=True)
class Moments:
    """Ask for sums of a column's codes, shifted right by ``shift`` bits, or of their squares too.

    Before that codes are clamped to those from ``first`` to ``last`` and numbered from 0. Rows where
    the column is missing are left out. Its few sums count as one number of a cell.
    """

    inputs: ClassVar[tuple[Axis, ...]] = ()
    width: ClassVar[int] = 1
    steps: ClassVar[int] = 0

    column: str
    shift: int = 0
    squares: bool = False
    first: int = 0
    last: int = 2**24  # a missing value's code on the finest grid: none is above it


class RowSums(Protocol):
    """Ask for sums of the whole numbers that a public function gives each row.

    Attributes:
        inputs: What the function reads: a row's place along each of these axes.
        width: How many numbers it gives.
        steps: How many look-ups and additions it takes for a row.
        packing: How the numbers, each at most 2^24 in size, stand in a row's words.
    """

    @property
    def inputs(self) -> tuple[Axis, ...]: ...
    @property
    def width(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def packing(self) -> RowWords: ...
    def over(self, joint: Sequence[tuple[Axis, ...]]) -> RowMeasure:
        """The same function of each row's cells in these joint tables, where those suffice."""


Measure = Moments | RowSums
"""What can be summed up beside the rows that are counted."""


Form = Literal["dense", "sparse", "listed"]
"""How a table is kept: every cell, the occupied ones by number, or the occupied ones by their codes."""


@dataclass(frozen=True, eq=False)
class TableRequest:
    """One contingency table: parts x axes.

    Attributes:
        axes: What the parts are crossed with.
        form: How it is kept. A list is for a joint table that is too wide to be numbered.
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
        parts: Which part each lies in, shape (cells,).
        codes: Its place along each axis, shape (axes, cells).
        counts: Its rows, shape (cells,).
    """

    parts: np.ndarray
    codes: np.ndarray
    counts: np.ndarray


Table = np.ndarray | Sparse | Listed
"""What is counted for one request of a table."""


class Engine(Protocol):
    """Exact tables of one encoded table."""

    def tabulate(
        self,
        parts: PartSet,
        tables: Sequence[TableRequest],
        measure: Measure | None,
        check: Callable[[], None] | None = None,
    ) -> Sequence[Table]:
        """Counts rows, exactly, for each part and each cell of each table, or sums a measure.

        Args:
            parts: Disjoint parts.
            tables: What to cross them with.
            measure: What to sum up.
            check: Called now and then; what it raises ends the work.

        Returns:
            For each table an int64 array of shape (parts, *axes), with ``Moments`` (parts, *axes, 2
            or 3) of counts, sums and sums of squares, with ``RowSums`` (parts, *axes, width); or a
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
        process: Which process opened it.

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
