# SPDX-License-Identifier: Apache-2.0
"""``PreparedQuery``: what a checked question reads of the data, and what it releases.

One request may ask a hundred thousand parts for tables of a thousand cells. It is one charge and
one answer; but its exact tables are counted, used and forgotten slice by slice (``Counted``), as
many parts at a time as memory bears. The parts are disjoint and each has noise of its own, so how
they are cut changes neither the law of an answer nor its loss. Where the cuts fall follows from
public facts: the schema and the request (``Priced``).

Example: 1,000 parts with tables of 100,000 cells each are 10^8 cells. With 2^25 at a time, they are
counted as 334 parts, 334 parts and 332 parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple, cast

import numpy as np

from pinq.curator.mechanisms import laplace
from pinq.curator.work import NUMBER_BYTES, Deadline, Priced
from pinq.engine.tables import Engine, Listed, Sparse, Table
from pinq.ledger.composition import Demand
from pinq.public.epsilon import figures
from pinq.public.parts import Part, PartSet
from pinq.public.schema import Numeric
from pinq.public.specs import Spec

__all__ = ["Counted", "Noise", "PreparedQuery", "Released", "about", "grid_error"]


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
    turn: Deadline = field(default_factory=Deadline)
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


class Released(NamedTuple):
    """What an answer says of the rows.

    Attributes:
        values: Numbers in the parts' order.
        chosen: The specs that the numbers of a choice count through.
        rows: For averages, the noisy number of rows of each part.
    """

    values: list[int] | list[float]
    chosen: tuple[Spec, ...] = ()
    rows: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Noise:
    """How exact an answer will be, by public facts.

    Attributes:
        error: In words.
        scale: Scale of the discrete Laplace noise in the answer's units; None where there is none.
        grid: Distance of neighbouring possible answers.
        uniform: Whether each part's answer has this scale. An average's is divided by its part's
            rows.
    """

    error: str
    scale: float | None = None
    grid: float | None = None
    uniform: bool = True


@dataclass(frozen=True, eq=False, kw_only=True)
class PreparedQuery(Priced):
    """What stands between the check of a question and its answer.

    Attributes:
        about: One line for the log: the question, by public facts.
        noise: How exact the answer will be, at a loss for one row.
        release: The answer, from the exact tables of slice after slice of the parts and the loss for
            one row. Only here do they meet noise.
        charged: Where the loss falls, unless it is on the parts themselves.
        part_bytes: How long the text of a part's answer may be.
    """

    about: str
    noise: Callable[[Fraction], Noise]
    release: Callable[[Iterable[Counted], Fraction], Released]
    charged: PartSet | None = None
    part_bytes: int = 2 * NUMBER_BYTES

    def count(self, engine: Engine, turn: Deadline, draws: int | None = None) -> Iterator[Counted]:
        """Has the parts counted, slice by slice, until the turn is over; ``draws`` as in ``Counted``."""
        # Ten parts, four at a time: the slices begin at 0, 4 and 8, and the last one has two parts.
        for start in range(0, self.parts.size, self.step):
            end = min(start + self.step, self.parts.size)
            some = self.parts if end - start == self.parts.size else self.parts.take(np.arange(start, end))
            yield Counted(some, engine.tabulate(some, self.tables, self.measure, turn.check), start, turn, draws)

    @property
    def answer_bytes(self) -> int:
        """How long the answer's text may be, whatever the rows are."""
        return NUMBER_BYTES * 20 + self.parts.size * self.part_bytes

    @property
    def demand(self) -> Demand:
        """Where the question is charged."""
        return Demand.of(self.parts if self.charged is None else self.charged)


def about(what: str, parts: PartSet) -> str:
    """One line for the log: what is asked, and of which parts."""
    where = str(parts.at(0)) if parts.size == 1 else f"{parts.size:,} parts"
    splits = [block.partition for block in parts.blocks if block.partition is not None]
    if len(parts.blocks) == 1 and splits:
        names = [axis.column if axis.column is not None else "shards" for axis in splits[0].axes]
        above = parts.blocks[0].part
        where = f"{len(parts):,} parts by {' x '.join(names)}" + (f" of {above}" if above.depth else "")
    return f"{what} on {where}"[:200]


def grid_error(column: Numeric) -> str:
    """How far the public grid moves a value, in words."""
    if column.integer and column.width == 1:
        return "and the grid is exact"
    return (
        f"and the grid moves a value by at most {figures(float(column.width - int(column.integer)) / 2)}{column.unit}"
    )
