# SPDX-License-Identifier: Apache-2.0
"""The kernel counts rows block by block, with plain arrays: parts first, then exact tables.

::

    parts, tables ── count_request ──▶ CountRequest    public facts only; can be pickled
    block, request ── count ──▶ Counts                 exact; counts of several blocks add up
    counts ── tables ──▶ one array for each table

A level of a tree costs one pass over the rows, however many nodes it has. What it takes is bounded
by the block, the request and its tables, never by what is in the rows.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from pinq.engine.codes import RowBlock
from pinq.engine.measures import RowMeasure, measure_of, words_of
from pinq.engine.rows import CodeTable, Rows, code_tables
from pinq.engine.shards import ShardSource
from pinq.engine.tables import ListRequest, Measure, Table, TableRequest
from pinq.engine.tallies import MAX_SORTED, DenseTally, ListTally, OccupiedTally, SparseTally, Tally
from pinq.engine.trie import Descent, paths_down, split_level
from pinq.errors import InternalError
from pinq.public.parts import PartSet
from pinq.public.schema import Schema
from pinq.public.specs import Axis, Partition

__all__ = ["WHOLE", "CountRequest", "Counts", "count", "count_request"]

# Tables that together take at most so many bytes are counted as one joint table: within a core's cache.
PACKED_BYTES = 2**18
# Of so many cells the occupied ones are counted as a table of all, 32 MiB, where that takes at most a byte for
# each declared row: to sort rows takes 8 bytes each and five times as long.
TABLED_CELLS = 2**23
TABLED_AT_ONCE = 2**25  # of all tables of a request: as many cells as a slice of dense ones has
WHOLE: Mapping[bytes, int] = {b"": 0}
"""The whole table as the known part: where every row is at node 0."""


@dataclass(frozen=True, eq=False)
class CountRequest:
    """What is counted: paths down to parts, tables, a measure. Public facts that can be pickled.

    Attributes:
        begin: The known parts that the paths begin with, by number.
        levels: The steps down from there.
        answer: For each node of the last level the number of its part.
        split: One more step, where parts are all parts of a partition.
        common: Or the axes that all of them are split by: these are axes of every table.
        tables: What to cross the parts with.
        joint: The axes of each joint table of dense ones, and the numbers of those.
        shared: How many axes all joint tables begin with.
        measure: What to add up; None to count rows.
        places: The table of each axis along which a code is not its own place: finished, so that
            reading a row cannot fail.
        tabled: Up to how many cells the occupied ones are counted as a table of all.
    """

    begin: np.ndarray
    levels: tuple[Descent, ...]
    answer: np.ndarray
    split: Descent | None
    common: tuple[Axis, ...]
    tables: tuple[TableRequest | ListRequest, ...]
    joint: tuple[tuple[tuple[Axis, ...], list[int]], ...]
    shared: int
    measure: RowMeasure | None
    places: Mapping[Axis, CodeTable]
    tabled: int

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return self.located if self.split is None else self.split.nodes

    @property
    def located(self) -> int:
        """How many there are before the last split."""
        return len(self.answer)

    def shards(self) -> set[ShardSource]:
        """The shards that it reads, by the ``source`` of their axes."""
        return {cast(ShardSource, source) for source in self._sources() if isinstance(source, tuple)}

    def columns(self) -> set[Hashable]:
        """The columns that it reads."""
        return self._sources() - self.shards()

    def steady(self) -> list[tuple[Axis, ...]]:
        """The joint tables in which a row has the same cell in many requests of sums.

        Those of one part that join several axes; and each axis by itself along which a place is
        looked up by a cut.
        """
        axes = [*self.common, *(axis for table in self.tables for axis in table.axes)]
        axes += [] if self.measure is None else self.measure.inputs
        joined = [own for own, _ in self.joint if self.parts == 1 and len(own) > 1]
        known = {axis for own in joined for axis in own}
        return [*joined, *((axis,) for axis in axes if axis.thresholds is not None and axis not in known)]

    def _sources(self) -> set[Hashable]:
        """The columns and shards that it reads."""
        levels = [*self.levels, *([] if self.split is None else [self.split])]
        axes = [*self.common, *(axis for table in self.tables for axis in table.axes)]
        axes += [] if self.measure is None else self.measure.inputs
        return {axis.source for axis in axes}.union(*(step.sources for level in levels for step in level.steps))

    def locate(self, rows: Rows, known: int = 1) -> Rows:
        """Takes rows from the ``known`` parts where they are to the parts before the last split."""
        if known != len(self.begin) or not np.array_equal(self.begin, np.arange(known)):
            # Rows at known parts 0, 1 and 2, of which the paths begin with 2 and 0: `number` is 1
            # -1 0, so rows at part 1 are left out, and those at part 2 are at the first beginning.
            number = np.full(known, -1, dtype=np.int64)
            number[self.begin] = np.arange(len(self.begin))
            rows = rows.moved(number.take(rows.node), len(self.begin))
        for level in self.levels:
            rows = rows.moved(level.down(rows), level.nodes)
        if np.array_equal(self.answer, np.arange(len(self.answer))):
            return rows
        return rows.moved(self.answer.take(rows.node), len(self.answer))

    def divide(self, rows: Rows) -> Rows:
        """Takes located rows to their parts, those that count."""
        if self.split is not None:
            rows = rows.moved(self.split.down(rows), self.split.nodes)
        return rows.measured(self.measure)


def count_request(
    parts: PartSet,
    tables: Sequence[TableRequest | ListRequest] = (TableRequest(),),
    measure: Measure | None = None,
    *,
    schema: Schema,
    known: Mapping[bytes, int] = WHOLE,
    at_home: bool = False,
) -> CountRequest:
    """Compiles a request.

    Args:
        parts: Disjoint parts.
        tables: What to cross them with.
        measure: What to add up.
        schema: Whose columns they are of.
        known: The parts that rows will be at before, by key and number.
        at_home: Whether counts stay in this process, so that a table may be large.

    Raises:
        KeyError: None of the known parts is on the path to one of ``parts``.
    """
    # Men by job, asked at once: the path goes down to men, and job is one more split. Where every
    # block has the same last split, it can be an axis of each table instead, and no row is taken
    # through it.
    begin, levels, answer = paths_down([block.part for block in parts.blocks], known)
    partitions = [block.partition for block in parts.blocks]
    common = _common(partitions, tables)
    split = None if common is not None or not any(partitions) else split_level(partitions)
    axes = () if common is None else common.axes
    dense = {number: (*axes, *table.axes) for number, table in enumerate(tables) if table.form == "dense"}
    # Tables of sex and age, and of sex and job: sex is in both, so joint tables begin with it, and
    # a row's cell up to there is computed once.
    shared = tuple(axis for axis in next(iter(dense.values()), ()) if all(axis in own for own in dense.values()))
    row_bytes = 4 if measure is None else 8 * words_of(measure, schema)
    room = min(PACKED_BYTES // row_bytes, schema.max_rows // 8)
    joint = _packed(dense, shared, len(answer) if split is None else split.nodes, room)
    # What is added up of a row is looked up in the cells in which it is added.
    summed = measure_of(measure, schema, [own for own, _ in joint])
    read = [*axes, *(axis for table in tables for axis in table.axes)]
    read += [] if summed is None else (axis for own in summed.cells for axis in own)
    _require_words(tables, axes, len(answer) if split is None else split.nodes)
    tabled = min(TABLED_CELLS, schema.max_rows // 4) if at_home else 0
    return CountRequest(
        begin,
        tuple(levels),
        answer,
        split,
        axes,
        tuple(tables),
        tuple(joint),
        len(shared),
        summed,
        code_tables(read),
        tabled,
    )


def _require_words(tables: Sequence[TableRequest | ListRequest], common: tuple[Axis, ...], parts: int) -> None:
    """``InternalError`` where the cells of a table cannot be numbered in a word of 64 bits."""
    for table in tables:
        cells = parts * math.prod(axis.slots for axis in (*common, *table.axes))
        if table.form != "listed" and cells > MAX_SORTED:
            raise InternalError(f"A table of {cells:,} cells was asked for; ask for fewer, or for a list.")


def _common(partitions: Sequence[Partition | None], tables: Sequence[TableRequest | ListRequest]) -> Partition | None:
    """Finds the last split of every part, where its axes can be axes of every table; else None."""
    first = partitions[0]
    if first is None or not all(split is not None and split.key == first.key for split in partitions):
        return None
    free = all(table.form != "listed" and not set(table.axes) & set(first.axes) for table in tables)
    return first if free else None


class Counts:
    """The exact tables of a request over the rows seen so far. They can be pickled, and add up.

    Args:
        request: What is counted.
    """

    def __init__(self, request: CountRequest) -> None:
        self._request = request
        self.tallies: list[Tally] = []
        self._numbers: list[list[int]] = []
        self._tabled = 0
        self._open()

    def add(self, rows: Rows, tallies: Iterable[int] | None = None) -> None:
        """Takes rows that ``CountRequest.divide`` gave into all tallies, or those numbered."""
        for number in range(len(self.tallies)) if tallies is None else tallies:
            self.tallies[number].add(rows)

    def take(self, block: RowBlock) -> None:
        """Takes a block of rows of the whole table in; one of no rows too."""
        request = self._request
        self.add(request.divide(request.locate(Rows.of(block, request.places))))

    def condensed(self) -> Counts:
        """These, with no more kept than the tables."""
        for tally in self.tallies:
            tally.condense()
        return self

    def merged(self, other: Counts) -> Counts:
        """These, with what was counted of other rows for the same request taken in."""
        for mine, theirs in zip(self.tallies, other.tallies, strict=True):
            mine.merge(theirs)
        return self

    @property
    def empty_bytes(self) -> int:
        """Bytes that all tallies take before any row comes."""
        return sum(tally.empty_bytes for tally in self.tallies)

    @property
    def most_condensed_bytes(self) -> float:
        """Bytes that all take at most once condensed; infinite where they follow the rows."""
        return sum(tally.most_condensed_bytes for tally in self.tallies)

    def tables(self) -> list[Table]:
        """The table of each of the request's, in order; see ``Engine.tabulate``."""
        tables = self.tables_of(range(len(self.tallies)))
        return [tables[number] for number in range(len(tables))]

    def tables_of(self, tallies: Iterable[int]) -> dict[int, Table]:
        """The tables of some tallies, by their numbers in the request."""
        tables: dict[int, Table] = {}
        for number in tallies:
            tables |= zip(self._numbers[number], self.tallies[number].tables(), strict=True)
        return tables

    def shares(self, workers: int) -> list[list[int]]:
        """Divides the tallies among workers, what takes longest first.

        Joint tables that begin alike stay together, as far as there is work for all.
        """
        joint = [number for number, tally in enumerate(self.tallies) if math.isfinite(tally.most_condensed_bytes)]
        alone = [[number] for number in range(len(self.tallies)) if number not in joint]
        return [*alone, *(joint[worker::workers] for worker in range(min(workers, len(joint))))]

    def _open(self) -> None:
        request, measure, common = self._request, self._request.measure, self._request.common
        for number, table in enumerate(request.tables):
            if table.form == "listed":
                self._take(ListTally(request.parts, table.axes), [number])
            elif table.form == "sparse":
                self._take(self._sparse((*common, *table.axes)), [number])
        for axes, numbers in request.joint:
            tables = [(*common, *request.tables[number].axes) for number in numbers]
            self._take(DenseTally(request.parts, axes, request.shared, tables, measure, len(common)), numbers)

    def _sparse(self, axes: tuple[Axis, ...]) -> Tally:
        """The tally of a table's occupied cells."""
        request = self._request
        cells = request.parts * math.prod(axis.slots for axis in axes)
        if request.measure is None and cells <= min(request.tabled, TABLED_AT_ONCE - self._tabled):
            self._tabled += cells
            return OccupiedTally(request.parts, axes)
        return SparseTally(request.parts, axes, request.measure)

    def _take(self, tally: Tally, numbers: list[int]) -> None:
        self.tallies.append(tally)
        self._numbers.append(numbers)


def _packed(
    tables: Mapping[int, tuple[Axis, ...]], shared: tuple[Axis, ...], parts: int, room: int
) -> list[tuple[tuple[Axis, ...], list[int]]]:
    """Gathers tables into joint ones: first-fit, the largest first.

    Of 8 parts x 2 classes and columns of 12, 10, 9, 7, 6, 5, 4, 3 and 2 values, 12 x 10 x 9 x 3 and
    7 x 6 x 5 x 4 x 2 are joined, within 2^16 cells each: two tables to count instead of nine.
    """
    # `slots`: an axis of four values has a fifth place for rows in none of them.
    base = parts * math.prod(axis.slots for axis in shared)
    own = {number: [axis for axis in axes if axis not in shared] for number, axes in tables.items()}
    groups: list[tuple[list[Axis], list[int]]] = []
    sizes: list[int] = []
    for number in sorted(own, key=lambda number: -math.prod(axis.slots for axis in own[number])):
        # A table whose own axes a group has already costs that group nothing.
        for group, (axes, numbers) in enumerate(groups):
            new = [axis for axis in own[number] if axis not in axes]
            cells = sizes[group] * math.prod(axis.slots for axis in new)
            if not new or cells <= room:
                axes += new
                numbers.append(number)
                sizes[group] = cells
                break
        else:
            groups.append((list(own[number]), [number]))
            sizes.append(base * math.prod(axis.slots for axis in own[number]))
    return [((*shared, *axes), numbers) for axes, numbers in groups]


def count(block: RowBlock, request: CountRequest) -> Counts:
    """Counts a block of rows; what several blocks give is added up by ``Counts.merged``."""
    counts = Counts(request)
    counts.take(block)
    return counts
