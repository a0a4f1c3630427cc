# SPDX-License-Identifier: Apache-2.0
"""``counted_in_slices`` has a request's parts counted, as many at a time as memory bears.

One request may ask a hundred thousand parts for tables of a thousand cells. It is one charge and
one answer; but its exact tables are counted, used and forgotten slice by slice. The parts are
disjoint and each has noise of its own, so how they are cut changes neither the law of an answer nor
its loss. Where the cuts fall follows from public facts: the schema and the request.

Example: 1,000 parts with tables of 100,000 cells each are 10^8 cells. With 2^25 at a time, they are
counted as 334 parts, 334 parts and 332 parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import cast

import numpy as np

from pinq.curator.mechanisms import laplace
from pinq.curator.work import Turn
from pinq.engine.tables import Engine, Listed, ListRequest, Measure, Sparse, Table, TableRequest
from pinq.public.parts import Part, PartSet

__all__ = ["SLICE_CELLS", "Counted", "counted_in_slices", "parts_at_once"]

SLICE_CELLS = 2**25


@dataclass(frozen=True, eq=False)
class Counted:
    """Exact tables of some of a request's parts, neighbours in its order.

    Attributes:
        parts: Whose tables they are: row i of each table is that of part i.
        tables: As the engine counted them, in the order in which they were asked for.
        start: The position of the first of these parts among all of the request.
        turn: Whoever uses the tables looks at it now and then.
        draws: To how many numbers noise is added; None for all. A rehearsal needs a few.
    """

    parts: PartSet
    tables: Sequence[Table]
    start: int = 0
    turn: Turn = field(default_factory=Turn)
    draws: int | None = None

    @cached_property
    def part_list(self) -> list[Part]:
        """The parts, in order."""
        return list(self.parts)

    def array(self, table: int = 0) -> np.ndarray:
        """Returns a table that was asked for dense."""
        return cast(np.ndarray, self.tables[table])

    def noisy(self, exact: np.ndarray, sensitivity: int, epsilon: Fraction) -> np.ndarray:
        """Adds noise to integers, as ``laplace`` does."""
        drawn = exact if self.draws is None else exact[: self.draws]
        return laplace(drawn, sensitivity, epsilon, self.turn.check)

    def sparse(self, table: int) -> Sparse:
        """Returns a table that was asked for sparse."""
        return cast(Sparse, self.tables[table])

    def listed(self, table: int) -> Listed:
        """Returns a table that was asked for as a list."""
        return cast(Listed, self.tables[table])


def parts_at_once(cells: int) -> int:
    """Returns how many parts are counted together where each needs so many cells, one at least.

    The engine keeps the cells of one part more, for rows in none.
    """
    return max(1, SLICE_CELLS // max(1, cells) - 1)


def counted_in_slices(
    engine: Engine,
    parts: PartSet,
    tables: Sequence[TableRequest | ListRequest],
    measure: Measure | None,
    step: int,
    turn: Turn,
    draws: int | None = None,
) -> Iterator[Counted]:
    """Counts the tables of ``step`` parts at a time; what was used may be forgotten.

    Args:
        engine: Counts.
        parts: Whose tables are needed.
        tables: Which tables each part needs.
        measure: What to sum up in them.
        step: The most parts at a time; see ``parts_at_once``.
        turn: When it ends, counting ends.
        draws: As in ``Counted``.
    """
    # Ten parts, four at a time: the slices begin at 0, 4 and 8, and the last one has two parts.
    for start in range(0, len(parts), step):
        whole = len(parts) <= step
        piece = parts if whole else parts.take(np.arange(start, min(start + step, len(parts))))
        yield Counted(piece, engine.tabulate(piece, tables, measure, turn.check), start, turn, draws)
