# SPDX-License-Identifier: Apache-2.0
"""The tables and releases of a checked query, before its charge and its answer.

A request is one charge and one answer (``PreparedQuery``), but its exact tables are counted, used and forgotten slice
by slice (``Counted``), as many parts at a time as memory allows. The parts are disjoint and each has independent noise,
so the slices, which follow from schema and request, change neither the law of an answer nor its loss. Of 1,000 parts
with tables of 100,000 cells each, 10^8 cells, 2^25 are counted at a time: 334 parts, 334 parts and 332 parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import chain
from typing import NamedTuple, cast

import numpy as np

from pinq.curator.deadline import Deadline
from pinq.curator.mechanisms import laplace
from pinq.curator.price import CELL, COIN, COUNTED, PART, ROW, SHARD, TAKEN, drawing_work, units
from pinq.engine.shards import KEPT_SHARDS
from pinq.engine.tables import Engine, Measure, Table, TableRequest
from pinq.errors import QueryError
from pinq.language.parts import Part, PartSet
from pinq.language.specs import Partition, Spec
from pinq.ledger.composition import Demand
from pinq.public.epsilon import figures
from pinq.public.schema import Numeric

# Limits of memory: cells of one part's tables, which exist together; of the parts of a slice; of all parts, which
# are counted slice by slice.
MAX_TABLE_CELLS, SLICE_CELLS, MAX_REQUEST_CELLS = 2**26, 2**25, 2**32
MAX_MEMBERS = 2**22  # of candidates, whose scores are there together
MAX_SHARDINGS = 64  # each is a column of hashes of all rows


@dataclass(frozen=True, eq=False)
class Counted:
    """Exact tables of some of a request's parts, neighbours in its order.

    Attributes:
        parts: The parts of the tables: row i of each table belongs to part i.
        tables: The tables from the engine, in the order of the request.
        start: The position of the first of these parts among all parts of the request.
        draws: The number of numbers that get noise; None for all. A rehearsal needs few.
    """

    parts: PartSet
    tables: Sequence[Table]
    start: int = 0
    deadline: Deadline = field(default_factory=Deadline)
    draws: int | None = None

    @cached_property
    def part_list(self) -> list[Part]:
        return list(self.parts)

    def parts_of(self, rows: np.ndarray) -> Iterator[Part]:
        for row in rows.tolist():
            self.deadline.check()
            yield self.part_list[row]

    def array(self, table: int = 0) -> np.ndarray:
        return cast(np.ndarray, self.tables[table])

    def noisy(self, exact: np.ndarray, sensitivity: int, epsilon: Fraction) -> np.ndarray:
        return laplace(exact[: self.draws], sensitivity, epsilon, self.deadline.check)


class Released(NamedTuple):
    """The released numbers of an answer.

    Attributes:
        chosen: The specs for which the numbers of a choice stand.
        rows: For averages, the noisy number of rows of each part.
    """

    values: list[int] | list[float]
    chosen: tuple[Spec, ...] = ()
    rows: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Noise:
    """The expected error of an answer, by public facts.

    Attributes:
        scale: Scale of the discrete Laplace noise in the answer's units; None without noise.
        grid: Distance of neighbouring possible answers.
        uniform: Whether each part's answer has this scale; an average's is divided by its part's rows.
    """

    error: str
    scale: float | None = None
    grid: float | None = None
    uniform: bool = True


@dataclass(frozen=True, eq=False, kw_only=True)
class PreparedQuery:
    """A checked query, before its charge and its answer.

    Attributes:
        about: One line for the log: the query, by public facts.
        noise: The expected error of the answer, at a loss for one row.
        release: The function from exact tables, slice by slice, and the loss for one row to the noisy answer.
        tables: The tables that the engine counts for each part.
        measure: The measure that the engine sums up; None for counts.
        charged: The parts that are charged; None for ``parts``.
        scratch: Cells of the largest array that the release makes in addition to the tables, for
            each part.
        scored: Approximate number of cells that the release reads for all parts, in addition to one
            pass over the tables.
        handling: Nanoseconds of the release for a part, besides its cells and its draws.
        draws: The number of drawn geometric numbers for each part: two for a number with noise, one for a candidate of
            permute-and-flip.
        sensitivity: The scale of these draws at an epsilon of 1.

    Raises:
        QueryError: It needs too much memory.
    """

    parts: PartSet
    about: str
    noise: Callable[[Fraction], Noise]
    release: Callable[[Iterable[Counted], Fraction], Released]
    tables: tuple[TableRequest, ...] = (TableRequest(),)
    measure: Measure | None = None
    charged: PartSet | None = None
    scratch: int = 0
    scored: int = 0
    handling: int = 0
    draws: int = 0
    sensitivity: int = 1

    def __post_init__(self) -> None:
        cells = max(2 * self._cells, self.scratch)
        if cells > MAX_TABLE_CELLS:
            raise QueryError(
                f"each part needs tables of {cells:,} cells; at most {MAX_TABLE_CELLS:,} are possible. "
                "Ask for coarser ones."
            )
        if self.parts.size * cells > MAX_REQUEST_CELLS:
            raise QueryError(
                f"the request needs tables of {self.parts.size * cells:,} cells; at most {MAX_REQUEST_CELLS:,} are "
                "possible. Ask fewer parts or coarser ones."
            )
        if self._shardings > MAX_SHARDINGS:
            raise QueryError(
                f"the request needs shards of {self._shardings:,} keys and counts; at most {MAX_SHARDINGS} are "
                "possible. Ask fewer."
            )

    @cached_property
    def _cells(self) -> int:
        """The cells of one part's tables, with one more along each axis for rows in no part of it."""
        cells = [math.prod([axis.size + 1 for axis in table.axes]) for table in self.tables if table.form == "dense"]
        return sum(cells) * (1 if self.measure is None else self.measure.width)

    @cached_property
    def _shardings(self) -> int:
        """The number of different keys and counts of shards."""
        tables = chain[Partition | TableRequest](self.parts.partitions, self.tables)
        named = chain([] if self.measure is None else self.measure.inputs, *[table.axes for table in tables])
        return len({axis.source for axis in named if axis.shard_key is not None})

    @cached_property
    def step(self) -> int:
        """The number of parts that are counted together: at least one."""
        # The engine keeps the cells of one part more, for rows in none.
        return max(1, SLICE_CELLS // max(1, self._cells) - 1)

    def work(self, rows: int, per_row: Fraction) -> int:
        """The units of work with so many declared rows, at a loss for one row."""
        parts, tables = self.parts.size, len(self.tables)
        # 300 parts three splits down, one table each, 100 at a time: three passes of 3 + 2 looks at
        # each row, whatever its part. Each number of a measure is added to each table.
        passes = -(-parts // self.step)
        looks = 1 + max([block.part.depth for block in self.parts.blocks])
        looks += tables if self.measure is None else self.measure.steps + self.measure.width * tables
        # Shards beyond the engine's cache are hashed again for each slice. A price must not show whether others
        # had the coins made: each request pays for them.
        hashed = self._shardings * (1 if self._shardings <= KEPT_SHARDS else passes)
        for_a_row = ROW * passes * looks + SHARD * hashed + (COIN if hashed else 0)
        for_a_part = COUNTED * self._cells + PART + self.handling + (TAKEN if passes > 1 else 0)
        drawn = drawing_work(parts * self.draws, self.sensitivity / per_row)
        return units(for_a_part * parts + drawn + CELL * self.scored + for_a_row * rows)

    def count(self, engine: Engine, deadline: Deadline, draws: int | None = None) -> Iterator[Counted]:
        """Counts the parts, slice by slice, until the deadline; ``draws`` as in ``Counted``."""
        # Ten parts, four at a time: the slices begin at 0, 4 and 8, and the last one has two parts.
        for start in range(0, self.parts.size, self.step):
            end = min(start + self.step, self.parts.size)
            some = self.parts if end - start == self.parts.size else self.parts.take(np.arange(start, end))
            yield Counted(
                some, engine.tabulate(some, self.tables, self.measure, deadline.check), start, deadline, draws
            )

    @cached_property
    def demand(self) -> Demand:
        return Demand.of(self.parts if self.charged is None else self.charged)


def about(query: str, parts: PartSet) -> str:
    """One line for the log: the query and its parts."""
    where = str(parts.at(0)) if parts.size == 1 else f"{parts.size:,} parts"
    splits = [block.partition for block in parts.blocks if block.partition is not None]
    if len(parts.blocks) == 1 and splits:
        names = [axis.column if axis.column is not None else "shards" for axis in splits[0].axes]
        above = parts.blocks[0].part
        where = f"{len(parts):,} parts by {' x '.join(names)}" + (f" of {above}" if above.depth else "")
    return f"{query} on {where}"[:200]


def grid_error(column: Numeric) -> str:
    """The largest change of a value by the public grid, in words."""
    if column.integer and column.width == 1:
        return "and the grid is exact"
    return (
        f"and the grid moves a value by at most {figures(float(column.width - int(column.integer)) / 2)}{column.unit}"
    )
