# SPDX-License-Identifier: Apache-2.0
"""``PreparedQuery``: what a checked question reads of the data, and what it releases."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from pinq.curator.counted import Counted, counted_in_slices, parts_at_once
from pinq.curator.work import CELL, COIN, NOISE, PART, ROW, SHARD, Turn, units
from pinq.engine.shards import KEPT_SHARDS
from pinq.engine.tables import Engine, ListRequest, Measure, TableRequest
from pinq.errors import QueryError
from pinq.ledger.composition import Demand
from pinq.public.parts import PartSet
from pinq.public.schema import Numeric
from pinq.public.specs import Axis, Partition, Spec

__all__ = ["NUMBER_BYTES", "Noise", "PreparedQuery", "Released", "about", "grid_error"]

MAX_TABLE_CELLS = 2**26  # of one part: these are in memory together
NUMBER_BYTES = 26  # of a number as text, with a comma
MAX_REQUEST_CELLS = 2**32  # of all parts: these are counted one slice after the other
MAX_SHARDINGS = 64  # each is a column of hashes of all rows


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


@dataclass(frozen=True, eq=False)
class PreparedQuery:
    """What stands between the check of a question and its answer.

    Attributes:
        parts: Whom it asks.
        about: One line for the log: the question, by public facts.
        noise: How exact the answer will be, at a loss for one row.
        release: The answer, from the exact tables of slice after slice of the parts and the loss for
            one row. Only here do they meet noise.
        tables: What the engine is to count.
        measure: What the engine is to sum up.
        charged: Where the loss falls, unless it is on the parts themselves.
        scratch: Cells of the largest array that the release makes beside the tables, for each part.
        scored: Cells, about, that the release looks at for all parts beside its pass over the tables.
        draws: Numbers that get noise, of each part.
        number_bytes: How long the text of a part's answer may be.
    """

    parts: PartSet
    about: str
    noise: Callable[[Fraction], Noise]
    release: Callable[[Iterable[Counted], Fraction], Released]
    tables: tuple[TableRequest | ListRequest, ...] = (TableRequest(),)
    measure: Measure | None = None
    charged: PartSet | None = None
    scratch: int = 0
    scored: int = 0
    draws: int = 0
    number_bytes: int = 2 * NUMBER_BYTES

    def __post_init__(self) -> None:
        most = max(2 * self._table_cells, self.scratch)
        if most > MAX_TABLE_CELLS:
            raise QueryError(
                f"each part needs tables of {most:,} cells; at most {MAX_TABLE_CELLS:,} are possible. "
                "Ask for coarser ones."
            )
        if len(self.parts) * most > MAX_REQUEST_CELLS:
            raise QueryError(
                f"the request needs tables of {len(self.parts) * most:,} cells; at most {MAX_REQUEST_CELLS:,} are "
                "possible. Ask fewer parts or coarser ones."
            )
        if self._shardings > MAX_SHARDINGS:
            raise QueryError(
                f"the request needs shards of {self._shardings:,} keys and counts; at most {MAX_SHARDINGS} are "
                "possible. Ask fewer."
            )

    @property
    def _table_cells(self) -> int:
        """Counts the cells of one part's tables.

        The engine keeps one more along each axis, for rows in no part of it.
        """
        return self._width * sum(
            math.prod(axis.size + 1 for axis in table.axes) for table in self.tables if table.form == "dense"
        )

    @property
    def _width(self) -> int:
        """How many numbers a function of rows adds to a cell."""
        return 1 if self.measure is None else self.measure.width

    @property
    def _steps_for_a_row(self) -> int:
        """How often a row is looked at on its way into the tables, in parts of the whole table."""
        if self.measure is None:
            return len(self.tables) + 1
        # Each number of each row is added to each table.
        return self.measure.steps + self.measure.width * len(self.tables) + 1

    @property
    def _inputs(self) -> tuple[Axis, ...]:
        """What a function of rows reads."""
        return () if self.measure is None else self.measure.inputs

    @cached_property
    def partitions(self) -> set[Partition]:
        """The partitions that lead to the parts."""
        return self.parts.partitions()

    @cached_property
    def _shardings(self) -> int:
        """Counts the different keys and counts of shards that are read, wherever they are named."""
        split = [axis for partition in self.partitions for axis in partition.axes]
        crossed = [axis for table in self.tables for axis in table.axes]
        return len({axis.source for axis in (*split, *crossed, *self._inputs) if axis.shard_key is not None})

    @property
    def _step(self) -> int:
        """How many parts are counted together."""
        return parts_at_once(max(self._table_cells, self.scratch))

    def work(self, rows: int) -> int:
        """Returns the units of work that counting and releasing take, of so many declared rows."""
        # 300 parts three splits down, one table each, 100 at a time: three passes of 3 + 2 looks at
        # each row, whatever its part.
        passes = -(-len(self.parts) // self._step)
        steps = max(block.part.depth for block in self.parts.blocks) + self._steps_for_a_row
        # What the engine cannot keep from one slice to the next is hashed again.
        hashed = self._shardings * (1 if self._shardings <= KEPT_SHARDS else passes)
        # Whether others have the coins made already must not show: they count for each request.
        coins = COIN if self._shardings else 0
        looked_up = (ROW * passes * steps + SHARD * hashed + coins) * rows
        for_a_part = CELL * self._table_cells + PART + NOISE * self.draws
        return units(looked_up + for_a_part * len(self.parts) + CELL * self.scored)

    def count(self, engine: Engine, turn: Turn, draws: int | None = None) -> Iterator[Counted]:
        """Has the parts counted, slice by slice, until the turn is over; ``draws`` as in ``Counted``."""
        return counted_in_slices(engine, self.parts, self.tables, self.measure, self._step, turn, draws)

    @property
    def answer_bytes(self) -> int:
        """How long the answer's text may be, whatever the rows are."""
        return NUMBER_BYTES * 20 + len(self.parts) * self.number_bytes

    @property
    def demand(self) -> Demand:
        """Where the question is charged."""
        return Demand.of(self.parts if self.charged is None else self.charged)


def about(what: str, parts: PartSet) -> str:
    """One line for the log: what is asked, and of which parts."""
    where = str(parts.at(0)) if len(parts) == 1 else f"{len(parts):,} parts"
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
    return f"and the grid moves a value by at most {float(column.width - int(column.integer)) / 2:.3g}{column.unit}"
