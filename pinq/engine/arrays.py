# SPDX-License-Identifier: Apache-2.0
"""The engine: exact tables of an encoded table, counted by plain arrays on a few threads."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import TypeVar, cast

import numpy as np

from pinq.engine.codes import BLOCK_ROWS, Codes, RowBlock, smallest
from pinq.engine.cores import side_by_side, thread_count
from pinq.engine.kernel import WHOLE, CountRequest, Counts, count_request
from pinq.engine.rows import Rows, code_tables
from pinq.engine.shards import ShardColumns, ShardSource
from pinq.engine.tables import Listed, ListRequest, Measure, Table, TableRequest, require_open
from pinq.public.parts import Block, Part, PartSet
from pinq.public.schema import Schema
from pinq.public.specs import Axis

__all__ = ["ArrayEngine"]

# Exact tables of the whole table that are kept in memory, and the bytes of one listing.
KEPT_CELLS = 2**21
KEPT_BYTES = 2**26
KEPT_LOCATIONS = 4
KEPT_COLUMN_BYTES = 2**28  # rows' cells in joint tables, one or two bytes each
PIECE_ROWS = 2**16  # whose sums are computed together

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, eq=False)
class _Location:
    """Where the rows are that a request has found: a request for parts below goes on from here.

    Attributes:
        known: The parts, by key and number.
        rows: For each block, its rows that are in one of them.
    """

    known: Mapping[bytes, int]
    rows: Sequence[Rows]

    @cached_property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return sum(rows.node.nbytes + (0 if rows.picked is None else rows.picked.nbytes) for rows in self.rows)

    def above(self, part: Part) -> float:
        """Counts the splits between a part of the location and this one; infinite for none."""
        # A location of the parts by sex, and young women who are nurses: two splits, by age and by
        # job, lie between.
        splits, above = 0, part
        while above.key not in self.known:
            if above.parent is None:
                return float("inf")
            splits, above = splits + 1, above.parent
        return splits


@dataclass(frozen=True, eq=False)
class _Sums:
    """The last dense tables of sums of rows.

    Attributes:
        part: Of which part, by its key.
        measure: Of what. A schema keeps the vectors of its last losses, so the same loss is the same
            object.
        tables: By the identities of their axes.
    """

    part: bytes
    measure: Measure
    tables: Mapping[Hashable, np.ndarray]


class ArrayEngine:
    """Exact tables over one encoded table.

    Args:
        codes: The table.
        schema: Its columns.
        salt: Keys the row coins.
    """

    def __init__(self, codes: Codes, schema: Schema, salt: bytes) -> None:
        self.schema = schema
        self._codes: Codes | None = codes
        self._blocks: Sequence[RowBlock] = codes.blocks
        self._shards = ShardColumns(codes, salt)
        self._lock = threading.Lock()
        self._tables: dict[Hashable, np.ndarray] = {}
        self._listed: tuple[Hashable, Listed] | None = None
        self._locations: list[_Location] = []
        self._sums: _Sums | None = None
        self._cells: Mapping[Hashable, Sequence[np.ndarray]] = {}
        self._process = os.getpid()

    def tabulate(
        self,
        parts: PartSet,
        tables: Sequence[TableRequest | ListRequest] = (TableRequest(),),
        measure: Measure | None = None,
        check: Callable[[], None] | None = None,
    ) -> list[Table]:
        """Counts rows, exactly, in one pass over the blocks of codes; see ``Engine.tabulate``.

        ``check`` is called before each block of rows.
        """
        require_open(self._codes, self._process)
        if measure is not None:
            return self._measured(parts, tables, measure, check)
        if len(parts.blocks) != 1 or parts.blocks[0].part.depth:
            return self._count(parts, tables, measure, check)
        split = parts.blocks[0].partition
        if split is None and [table.form for table in tables] == ["listed"]:
            return [self._list(tables[0].axes, check)]
        if any(table.form != "dense" or (split and table.axes) for table in tables):
            return self._count(parts, tables, measure, check)
        # All parts of a split of the whole table are a table over its axes.
        wanted = [table.axes if split is None else split.axes for table in tables]
        recalled = self._recall(wanted, check)
        return list(recalled if split is None else (table.reshape(-1) for table in recalled))

    def rows(self) -> int:
        """Encoded rows, exact: for the provider's eyes only."""
        return 0 if self._codes is None else self._codes.rows

    def problem(self) -> str:
        """Says what would keep it from counting now; see ``Engine.problem``."""
        return "its engine is closed" if self._codes is None else self._codes.problem()

    def close(self) -> None:
        """Frees the memory."""
        self._codes, self._blocks = None, ()
        self._shards = ShardColumns(Codes((), self.schema), b"")
        self._tables, self._listed, self._locations, self._sums, self._cells = {}, None, [], None, {}

    def _recall(self, wanted: Sequence[tuple[Axis, ...]], check: Callable[[], None] | None) -> list[np.ndarray]:
        """Returns tables of the whole table, shape (1, *axes), from memory where they are there.

        The encoded table never changes, and miners come back to the same tables of two columns:
        draw after draw, and for each direction.
        """
        # A table of sex by age is that of age by sex, turned: it is kept in one order of its axes.
        ordered = [tuple(sorted(axes, key=lambda axis: axis.identity)) for axes in wanted]
        keys = [tuple(axis.identity for axis in axes) for axes in ordered]
        with self._lock:
            known = {key: self._tables[key] for key in keys if key in self._tables}
        new = {key: axes for key, axes in zip(keys, ordered, strict=True) if key not in known}
        if new:
            counted = self._count(_WHOLE_TABLE, [TableRequest(axes) for axes in new.values()], None, check)
            known |= dict(zip(new, cast("list[np.ndarray]", counted), strict=True))
            self._keep({key: known[key] for key in new})
        return [
            known[key].transpose(0, *(1 + order.index(axis) for axis in axes))
            for axes, order, key in zip(wanted, ordered, keys, strict=True)
        ]

    def _keep(self, tables: Mapping[Hashable, np.ndarray]) -> None:
        """Keeps tables of the whole table that are small enough; the oldest make room."""
        for table in tables.values():
            table.flags.writeable = False
        with self._lock:
            self._tables |= {key: table for key, table in tables.items() if table.size <= KEPT_CELLS}
            while sum(table.size for table in self._tables.values()) > KEPT_CELLS:
                del self._tables[next(iter(self._tables))]

    def _measured(
        self,
        parts: PartSet,
        tables: Sequence[TableRequest | ListRequest],
        measure: Measure,
        check: Callable[[], None] | None,
    ) -> list[Table]:
        """Returns sums, from memory where the last sums are of the same rows and measure.

        Who chooses a table by its sums asks for those sums next: it gets them without a second
        pass. Only whether counting is quick differs, which follows from requests.
        """
        # Only sums of one part are kept: those of a level's parts are seldom asked for again.
        part = parts.blocks[0].part.key if len(parts.blocks) == 1 and parts.blocks[0].partition is None else None
        if part is None or any(table.form != "dense" for table in tables):
            return self._count(parts, tables, measure, check)
        keys = [tuple(axis.identity for axis in table.axes) for table in tables]
        kept = self._sums
        if kept is None or kept.measure is not measure or kept.part != part or not kept.tables.keys() >= set(keys):
            counted = cast("list[np.ndarray]", self._count(parts, tables, measure, check))
            for table in counted:
                table.flags.writeable = False
            kept = _Sums(part, measure, dict(zip(keys, counted, strict=True)))
            if sum(table.size for table in counted) <= KEPT_CELLS:
                self._sums = kept
        return [kept.tables[key] for key in keys]

    def _list(self, wanted: tuple[Axis, ...], check: Callable[[], None] | None) -> Listed:
        """Lists the distinct rows over the axes.

        The last listing is kept: attribute after attribute asks for the same columns.
        """
        axes = tuple(sorted(wanted, key=lambda axis: axis.identity))
        key, kept = tuple(axis.identity for axis in axes), self._listed
        if kept is None or kept[0] != key:
            (listed,) = self._count(_WHOLE_TABLE, [ListRequest(axes)], None, check)
            kept = (key, cast(Listed, listed))  # what a list request gets
            if kept[1].codes.nbytes <= KEPT_BYTES:
                self._listed = kept
        return replace(kept[1], codes=kept[1].codes[[axes.index(axis) for axis in wanted]])

    def _count(
        self,
        parts: PartSet,
        tables: Sequence[TableRequest | ListRequest],
        measure: Measure | None,
        check: Callable[[], None] | None,
    ) -> list[Table]:
        """The tables, from the location that is nearest to the parts."""
        # Three passes: rows are taken to their parts, which is kept for the level below; then
        # perhaps through a last split, which is not kept; then they are counted.
        request, begin = self._begin(parts, tables, measure)
        if self._codes is not None:
            self._codes.require(request.columns())
        encoded = self._blocks
        blocks = self._with_shards(request.shards(), check)
        if measure is not None:
            blocks = self._with_cells(request.steady(), blocks, check)

        def locate(number: int) -> Rows:
            if check is not None:
                check()
            if begin is None:
                return request.locate(Rows.of(blocks[number], request.places))
            return request.locate(begin.rows[number].over(blocks[number], request.places), len(begin.known))

        located = self._each(locate, range(len(blocks)))
        if request.levels:
            keys = {block.part.key: number for number, block in enumerate(parts.blocks)}
            self._keep_location(
                _Location(keys, [rows.over(own, {}) for rows, own in zip(located, encoded, strict=True)])
            )
        divided = self._each(lambda rows: request.divide(rows.over(rows.block)), located)
        if measure is not None:
            return self._summed(request, divided, check)
        counts = Counts(request)

        def tally(share: Sequence[int]) -> dict[int, Table]:
            for rows in divided:
                if check is not None:
                    check()
                counts.add(rows.over(rows.block, check=check), share)
            return counts.tables_of(share)

        counted: dict[int, Table] = {}
        for own in self._each(tally, counts.shares(thread_count())):
            counted |= own
        return [counted[number] for number in range(len(counted))]

    def _summed(self, request: CountRequest, divided: Sequence[Rows], check: Callable[[], None] | None) -> list[Table]:
        """The tables of a measure: each thread adds up its own blocks, for all tables at once.

        What is added up of a row is computed once, of a few rows at a time, in a core's cache. Whole
        numbers add up to the same whichever thread has which block.
        """

        def tally(worker: int) -> Counts:
            counts = Counts(request)
            for rows in divided[worker::workers]:
                for piece in rows.pieces(PIECE_ROWS):
                    if check is not None:
                        check()
                    counts.add(piece)
            return counts.condensed()

        # Each thread has tables of its own, as large as what is asked for.
        room = KEPT_BYTES // max(1, Counts(request).empty_bytes)
        workers = max(1, min(len(divided), thread_count(), room))
        return reduce(Counts.merged, self._each(tally, range(workers))).tables()

    def _begin(
        self, parts: PartSet, tables: Sequence[TableRequest | ListRequest], measure: Measure | None
    ) -> tuple[CountRequest, _Location | None]:
        """Compiles a request from the nearest location above all parts; None is the whole table."""
        first = parts.blocks[0].part
        with self._lock:
            locations = list(self._locations)
        splits = {location: location.above(first) for location in locations}
        # The first part tells which location may be near; KeyError, that another part is not below
        # it.
        for location in sorted(locations, key=lambda location: splits[location]):
            # The whole table is as many splits above a part as its depth says: nearer is of use.
            if splits[location] < first.depth:
                try:
                    request = count_request(
                        parts, tables, measure, schema=self.schema, known=location.known, at_home=True
                    )
                except KeyError:
                    continue
                self._keep_location(location)
                return request, location
        return count_request(parts, tables, measure, schema=self.schema, known=WHOLE, at_home=True), None

    def _keep_location(self, location: _Location) -> None:
        """Keeps a location; those not gone on from for longest make room."""
        room = max(KEPT_BYTES, 0 if self._codes is None else self._codes.nbytes)
        with self._lock:
            kept = [*(other for other in self._locations if other is not location), location][-KEPT_LOCATIONS:]
            while len(kept) > 1 and sum(other.nbytes for other in kept) > room:
                kept = kept[1:]
            self._locations = kept

    def _with_shards(self, wanted: set[ShardSource], check: Callable[[], None] | None) -> Sequence[RowBlock]:
        """Returns the blocks with the columns of these shards."""
        if not wanted:
            return self._blocks
        shards = self._shards.columns(wanted, check)
        # Shards are made for the whole table and handed out by blocks: 600,000 rows as 262,144,
        # 262,144 and 75,712.
        blocks, end = [], 0
        for block in self._blocks:
            rows = slice(end, end + block.rows)
            blocks.append(
                replace(block, columns={**block.columns, **{source: own[rows] for source, own in shards.items()}})
            )
            end += block.rows
        return blocks

    def _with_cells(
        self, wanted: Sequence[tuple[Axis, ...]], blocks: Sequence[RowBlock], check: Callable[[], None] | None
    ) -> Sequence[RowBlock]:
        """Returns the blocks with rows' cells in some joint tables, kept for the next step.

        A look into a long table for each row, or several into short ones, takes longer than all
        else that is done with it.
        """
        keys = {tuple(axis.identity for axis in axes): axes for axes in wanted}
        if sum(_kind_of(axes).itemsize for axes in keys.values()) * self.rows() > KEPT_COLUMN_BYTES:
            return blocks
        with self._lock:
            kept: dict[Hashable, Sequence[np.ndarray]] = {key: self._cells[key] for key in keys if key in self._cells}
        for key, axes in keys.items():
            if key not in kept:
                if check is not None:
                    check()
                kept[key] = self._each(partial(_cells_of, axes), blocks)
        self._keep_cells(kept)
        return [
            replace(block, columns={**block.columns, **{axes: kept[key][number] for key, axes in keys.items()}})
            for number, block in enumerate(blocks)
        ]

    def _keep_cells(self, cells: Mapping[Hashable, Sequence[np.ndarray]]) -> None:
        """Keeps rows' cells in joint tables; those not asked for longest make room."""
        with self._lock:
            kept = {key: own for key, own in self._cells.items() if key not in cells} | dict(cells)
            while sum(column.nbytes for own in kept.values() for column in own) > KEPT_COLUMN_BYTES:
                del kept[next(iter(kept))]
            self._cells = kept

    def _each(self, work: Callable[[T], U], items: Iterable[T]) -> list[U]:
        """Does the same work for several items, side by side where there is more than one."""
        if self.rows() < BLOCK_ROWS:
            return [work(item) for item in items]
        return side_by_side(work, items)


def _cells_of(axes: tuple[Axis, ...], block: RowBlock) -> np.ndarray:
    return Rows.of(block, code_tables(axes)).cells(axes).astype(_kind_of(axes), copy=False)


def _kind_of(axes: tuple[Axis, ...]) -> np.dtype[np.unsignedinteger]:
    return smallest(math.prod(axis.slots for axis in axes) + 1)


_WHOLE_TABLE = PartSet([Block(Part())])
