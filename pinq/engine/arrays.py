# SPDX-License-Identifier: Apache-2.0
"""The engine: exact tables of an encoded table, counted by plain arrays on a few threads."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial, reduce
from itertools import chain
from typing import TypeVar, cast

import numpy as np

from pinq.engine.codes import Codes, RowBlock, ShardSource, smallest
from pinq.engine.counting import WHOLE, CountRequest, Counts, count_request
from pinq.engine.rows import Rows, code_tables
from pinq.engine.shards import ShardColumns, contents_by, contents_of
from pinq.engine.tables import Listed, Measure, Sparse, T, Table, TableRequest, go_on, require_open
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import Axis, Partition, joint_slots
from pinq.public.schema import ENTRY_BYTES, Kept, Schema

KEPT_BYTES = 2**28  # of earlier queries' tables, and of rows' cells
KEPT_TABLE_BYTES = 2**26  # of one table or list of cells
CELL_BYTES = 24  # of an occupied cell: three numbers, its place, its rows and all rows below it
KEPT_LOCATIONS = 4
LOCATED_BYTES, LOCATED_ROW_BYTES = 2**26, 8  # of all locations; of one row: the number of the row and of its node
TALLIES_BYTES = 2**26  # of all threads' tables of sums
THREADS = min(8, os.cpu_count() or 1)  # for long work: one for each core, at most eight

U = TypeVar("U")


@dataclass(frozen=True, eq=False)
class _Location:
    """The part of each row, as an earlier request found it; requests for parts below start from it.

    Attributes:
        part_numbers: The number of each part, by its key.
        rows: For each block, the rows that are in one of the parts.
    """

    part_numbers: Mapping[bytes, int]
    rows: Sequence[Rows]

    @cached_property
    def nbytes(self) -> int:
        return sum(rows.node.nbytes + (0 if rows.picked is None else rows.picked.nbytes) for rows in self.rows)

    def above(self, part: Part) -> float:
        """Counts the splits between a part of the location and this one; infinite if no part lies above it."""
        # From the parts by sex down to young women who are nurses there are two splits: age and job.
        splits, above = 0, part
        while above.key not in self.part_numbers:
            if above.parent is None:
                return float("inf")
            splits, above = splits + 1, above.parent
        return splits


class ArrayEngine:
    """Exact tables over one encoded table."""

    def __init__(self, codes: Codes, schema: Schema, salt: bytes) -> None:
        self.schema = schema
        self._codes: Codes | None = codes
        self._blocks: Sequence[RowBlock] = codes.blocks
        self._shards, self._salt = ShardColumns(codes, salt), salt
        self._kept = Kept(KEPT_BYTES)
        self._located = Kept(max(LOCATED_BYTES, (LOCATED_ROW_BYTES * codes.rows + ENTRY_BYTES)))
        self._process = os.getpid()

    def tabulate(
        self,
        parts: PartSet,
        tables: Sequence[TableRequest] = (TableRequest(),),
        measure: Measure | None = None,
        check: Callable[[], None] = go_on,
    ) -> list[Table]:
        require_open(self._codes, self._process)
        if measure is None and (column := self._column_of(parts, tables)) is not None:
            return list(self._from_column_table(column, parts, tables, check))
        if (recalled := self._from_kept_tables(parts, tables, measure, check)) is not None:
            return recalled
        return self._from_rows(parts, tables, measure, check)

    def rows(self) -> int:
        """The number of encoded rows, for the provider only."""
        return 0 if self._codes is None else self._codes.rows

    def contents(self) -> str:
        return contents_of(require_open(self._codes, self._process), self._salt)

    def contents_by(self, axis: Axis) -> list[str]:
        return contents_by(require_open(self._codes, self._process), axis, self._salt)

    def problem(self) -> str:
        return "its engine is closed" if self._codes is None else self._codes.problem()

    def close(self) -> None:
        self._codes, self._blocks = None, ()
        self._shards = ShardColumns(Codes((), self.schema), b"")
        self.forget()

    def forget(self) -> None:
        """Forgets tables and locations of earlier queries; shards stay."""
        self._kept.clear()
        self._located.clear()

    def _column_of(self, parts: PartSet, tables: Sequence[TableRequest]) -> str | None:
        """The column whose codes parts and tables cut into intervals; None for several, or for a large table."""
        axes = [axis for crossed in chain[Partition | TableRequest](parts.partitions, tables) for axis in crossed.axes]
        name, *others = {axis.column if axis.lookup is None else None for axis in axes} or {None}
        # A dense table must fit into memory. A sparse one must be over the codes themselves.
        plain = all(
            len(table.axes) < 2 and parts.size * math.prod(axis.size for axis in table.axes) * CELL_BYTES <= KEPT_BYTES
            if table.form == "dense"
            else (table.form, [axis.thresholds for axis in table.axes]) == ("sparse", [None])
            for table in tables
        )
        is_kept = name is not None and CELL_BYTES * self.schema.columns[name].codes <= KEPT_TABLE_BYTES
        return name if is_kept and plain and not others else None

    def _occupied(self, name: str, check: Callable[[], None]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The occupied codes of a column, the rows of each, and the rows below each and below the end."""
        table = TableRequest((Axis(name, self.schema.columns[name].codes, ()),), "sparse")
        (counts,) = cast("list[Sparse]", self._from_rows(PartSet([Block(Part())]), [table], None, check))
        counts.values.flags.writeable = False  # the table of a single part is a view of it
        # Codes 3, 5 and 9 have 2, 4 and 1 rows: below 5 are 2 rows and below 9 are 6, so 5 to 8 have 4.
        return counts.places, counts.values, np.append(0, counts.values.cumsum())

    def _from_column_table(
        self, name: str, parts: PartSet, tables: Sequence[TableRequest], check: Callable[[], None]
    ) -> Iterator[Table]:
        """Counts intervals of a column's codes: the rows below their ends, in the kept table of the column."""
        size, column = self.schema.columns[name].codes, partial(self._occupied, name, check)
        places, values, below = self._kept.recalled(
            ("occupied", name), column, lambda arrays: CELL_BYTES * len(arrays[0])
        )
        blocks = []
        for block in parts.blocks:
            check()
            blocks.append(block.edges(name, size))
        starts, ends = np.concatenate([[edges[:-1], edges[1:]] for edges in blocks], axis=1)
        for table in tables:
            if table.form == "sparse":
                # Two parts have the cells 2 to 4 and 0 to 1, so 3 and 2 cells: 2 3 4 0 1.
                begins, behind = places.searchsorted(np.stack([starts, ends]))
                cells = behind - begins
                picked: slice | np.ndarray = slice(begins[0], behind[0])
                if parts.size > 1:
                    picked = np.arange(cells.sum()) + (behind - cells.cumsum()).repeat(cells)
                yield Sparse(places[picked] + (size * np.arange(parts.size)).repeat(cells), values[picked])
            else:
                edges = np.array(table.axes[0].edges(size) if table.axes else (0, size))
                rows = below[places.searchsorted(np.clip(edges, starts[:, None], ends[:, None]))]
                yield np.diff(rows, axis=1).reshape(parts.size, *(axis.size for axis in table.axes))

    def _from_kept_tables(
        self, parts: PartSet, tables: Sequence[TableRequest], measure: Measure | None, check: Callable[[], None]
    ) -> list[Table] | None:
        """Returns kept tables of one part, or of all parts of a split of the whole table; None for other requests.

        A choice by a part's sums is followed by a request for these sums, and counts of the whole
        table recur. Counts below it, and sums of all parts of a level, seldom do.
        """
        block, *others = parts.blocks
        if others or any(table.form == "sparse" for table in tables):
            return None
        if block.partition is None:
            recurs = measure is not None or not block.part.depth
            return self._recall(block.part, tables, measure, check) if recurs else None
        if measure is not None or block.part.depth or any(table.axes or table.form != "dense" for table in tables):
            return None
        # All parts of a split of the whole table are a table over its axes.
        whole = self._recall(block.part, [TableRequest(block.partition.axes) for _ in tables], None, check)
        return [cast(np.ndarray, table).reshape(-1) for table in whole]

    def _recall(
        self, part: Part, requests: Sequence[TableRequest], measure: Measure | None, check: Callable[[], None]
    ) -> list[Table]:
        """Returns dense and listed tables of a part, kept if possible: miners request the same tables again.

        Only the time of an answer changes, and it follows from requests.
        """
        # A table is kept in one order of its axes: age by sex and sex by age are one table, transposed.
        ordered = [replace(table, axes=tuple(sorted(table.axes, key=lambda axis: axis.identity))) for table in requests]
        # Equal moments are one measure. Each loss is a measure by itself; the schema keeps its vectors.
        keys = [(measure, part.key, table.form, *(axis.identity for axis in table.axes)) for table in ordered]
        answers: dict[Hashable, np.ndarray | Listed] = {key: self._kept.get(key) for key in keys}
        new = {key: table for key, table in zip(keys, ordered, strict=True) if answers[key] is None}
        if new:
            counted = self._from_rows(PartSet([Block(part)]), list(new.values()), measure, check)
            for key, table in zip(new, cast("list[np.ndarray | Listed]", counted), strict=True):
                answers[key] = table
                if table.nbytes <= KEPT_TABLE_BYTES:
                    self._kept.put(key, table, table.nbytes + (0 if measure is None else measure.nbytes))
        return [
            _transposed(answers[key], [stored.axes.index(axis) for axis in table.axes])
            for key, stored, table in zip(keys, ordered, requests, strict=True)
        ]

    def _from_rows(
        self,
        parts: PartSet,
        tables: Sequence[TableRequest],
        measure: Measure | None,
        check: Callable[[], None],
    ) -> list[Table]:
        """Counts the tables, starting from the location that is nearest to the parts.

        Each thread locates and counts the rows of some blocks, in full tables of its own. Sums of
        whole numbers do not depend on which thread counts which block.
        """
        request, begin = self._begin(parts, tables, measure)
        if self._codes is not None:
            self._codes.require(request.columns())
        encoded = self._blocks
        blocks = self._with_shards(request.shards(), check)
        if measure is not None:
            # Many requests of sums look up the cell of each row in the same joint table.
            blocks = self._with_cells(
                [axes for axes, _ in request.joint if request.parts == 1 and len(axes) > 1], blocks, check
            )
        located: list[Rows | None] = [None] * len(blocks)

        def count(worker: int) -> Counts:
            counts = Counts(request)
            for number in range(worker, len(blocks), workers):
                check()
                if begin is None:
                    rows = request.locate(Rows.of(blocks[number], request.places))
                else:
                    rows = begin.rows[number].over(blocks[number], request.places)
                    rows = request.locate(rows, len(begin.part_numbers))
                if request.levels:  # the level below goes on from here
                    located[number] = rows.over(encoded[number], {})
                counts.add(request.divide(rows), check)
            return counts

        workers = max(1, min(len(blocks), THREADS, TALLIES_BYTES // max(1, request.empty_bytes)))
        counted = reduce(Counts.merged, side_by_side(count, range(workers)))
        if request.levels:
            keys = {block.part.key: number for number, block in enumerate(parts.blocks)}
            self._keep_location(_Location(keys, cast("list[Rows]", located)))
        return counted.tables()

    def _begin(
        self, parts: PartSet, tables: Sequence[TableRequest], measure: Measure | None
    ) -> tuple[CountRequest, _Location | None]:
        """Compiles a request from the nearest location above all parts; None is the whole table."""
        first = parts.blocks[0].part
        splits = {location: location.above(first) for location in self._located.values()}
        # Candidates are the locations above the first part. KeyError: another part is not below the location.
        for location in sorted(splits, key=lambda location: splits[location]):
            # A useful location is nearer than the whole table, which is `depth` splits above the part.
            if splits[location] < first.depth:
                try:
                    request = count_request(
                        parts, tables, measure, schema=self.schema, part_numbers=location.part_numbers
                    )
                except KeyError:
                    continue
                self._keep_location(location)
                return request, location
        return count_request(parts, tables, measure, schema=self.schema, part_numbers=WHOLE), None

    def _keep_location(self, location: _Location) -> None:
        """Keeps a location. Each takes a fixed share of the room, so at most ``KEPT_LOCATIONS`` are kept."""
        self._located.put(location, location, max(location.nbytes, self._located.room // KEPT_LOCATIONS - ENTRY_BYTES))

    def _with_shards(self, sources: set[ShardSource], check: Callable[[], None]) -> Sequence[RowBlock]:
        """Returns the blocks with the columns of these shards."""
        if not sources:
            return self._blocks
        shards = self._shards.columns(sources, check)
        # Shards are drawn for the whole table, then cut into blocks: 600,000 rows into 262,144,
        # 262,144 and 75,712.
        blocks, end = [], 0
        for block in self._blocks:
            rows = slice(end, end + block.rows)
            blocks.append(
                replace(block, columns={**block.columns, **{source: codes[rows] for source, codes in shards.items()}})
            )
            end += block.rows
        return blocks

    def _with_cells(
        self, joint_axes: Sequence[tuple[Axis, ...]], blocks: Sequence[RowBlock], check: Callable[[], None]
    ) -> Sequence[RowBlock]:
        """Adds to the blocks each row's cell in some joint tables, which takes longest, and keeps the cells."""
        if sum(_kind_of(axes).itemsize for axes in joint_axes) * self.rows() > self._kept.room:
            return blocks
        cells: dict[Hashable, Sequence[np.ndarray]] = {}
        for axes in joint_axes:
            check()
            look_up = partial(side_by_side, partial(_cells_of, axes), blocks)
            key = ("cells", *(axis.identity for axis in axes))
            cells[axes] = self._kept.recalled(key, look_up, lambda arrays: sum(array.nbytes for array in arrays))
        return [
            replace(block, columns={**block.columns, **{axes: arrays[number] for axes, arrays in cells.items()}})
            for number, block in enumerate(blocks)
        ]


def _transposed(table: np.ndarray | Listed, order: Sequence[int]) -> Table:
    """A read-only view of a kept table, its axes in another order."""
    if isinstance(table, Listed):
        return replace(table, codes=table.codes[list(order)])
    view = table.transpose(0, *(1 + number for number in order), *range(1 + len(order), table.ndim))
    view.flags.writeable = False
    return view


def _cells_of(axes: tuple[Axis, ...], block: RowBlock) -> np.ndarray:
    return Rows.of(block, code_tables(axes)).cells(axes).astype(_kind_of(axes), copy=False)


def _kind_of(axes: tuple[Axis, ...]) -> np.dtype[np.unsignedinteger]:
    return smallest(joint_slots(axes) + 1)


# Threads for long work, which all callers share


def side_by_side(work: Callable[[T], U], items: Sequence[T]) -> list[U]:
    """Does the same work for several items in threads; returns the results in order.

    The work must not call this function and wait: all threads could be waiting.
    """
    if len(items) < 2 or THREADS < 2:
        return [work(item) for item in items]
    return list(_pool(os.getpid()).map(work, items))


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="pinq-count")
