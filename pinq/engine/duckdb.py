# SPDX-License-Identifier: Apache-2.0
"""The default engine: exact tables of an encoded DuckDB table. One request is one pass."""

from __future__ import annotations

import math
import os
import tempfile
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np

from pinq.engine.sql import axis_expression, part_expression, unsigned
from pinq.engine.tables import MAX_SUM, Listed, ListRequest, Measure, Moments, RowSums, Sparse, Table, TableRequest
from pinq.errors import InternalError
from pinq.public.parts import Block, Part, PartSet
from pinq.public.schema import Schema
from pinq.public.specs import Axis, Partition

__all__ = ["DuckDBEngine"]

# A group of axes whose joint table has at most this many cells is counted in DuckDB's perfect hash
# table (no hashing at all).
PACKED_CELLS = 2**14
PERFECT_HASH_BITS = 20
# Exact tables of the whole table that are kept in memory, and the bytes of one listing.
KEPT_CELLS = 2**21
KEPT_BYTES = 2**26


class DuckDBEngine:
    """Exact tables over one encoded table.

    Args:
        connection: Holds a table ``codes`` with columns ``c0``, ``c1``, ..., and for shards a way
            to make ``row_coin``.
        schema: In whose order the columns are numbered.
        salt: Keys the row coins.
        scratch: A folder of its own, deleted on close.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        schema: Schema,
        salt: bytes,
        scratch: tempfile.TemporaryDirectory[str] | None = None,
    ) -> None:
        self.schema, self._connection, self._salt = schema, connection, salt
        self.columns = {name: f"c{i}" for i, name in enumerate(schema.columns)}
        self._lock = threading.Lock()
        self._coins = False
        self._tables: dict[Any, np.ndarray] = {}
        self._kept: tuple[Any, Listed] | None = None
        self._process = os.getpid()
        self._closing = weakref.finalize(self, _close, connection, scratch)
        connection.execute(f"SET perfect_ht_threshold = {PERFECT_HASH_BITS}")

    def tabulate(
        self,
        parts: PartSet,
        tables: Sequence[TableRequest | ListRequest] = (TableRequest(),),
        moments: Measure | None = None,
    ) -> list[Table]:
        """Counts rows, exactly, for each part and each cell of each table, in one pass, and in one more for each listing.

        Args:
            parts: Disjoint parts.
            tables: What to cross them with.
            moments: Also sum a column.

        Returns:
            For each table an int64 array of shape (parts, *axes), with ``Moments`` (parts, *axes, 2
            or 3) of counts, sums and sums of squares, with ``RowSums`` (parts, *axes, width); or a
            ``Sparse`` with values of shape (cells,), (cells, 2 or 3) or (cells, width); for a
            ``ListRequest`` a ``Listed``.
        """
        if os.getpid() != self._process:
            raise InternalError(
                "This handle was opened in another process; an engine does not survive a fork. Open it again here."
            )
        numbered = [table for table in tables if isinstance(table, TableRequest)]
        split = parts.blocks[0].partition
        whole = len(parts.blocks) == 1 and parts.blocks[0].part.depth == 0 and moments is None
        if moments is not None and not isinstance(moments, Moments):
            answers = iter(self._sum_rows(parts, numbered, moments))
        elif whole and not any(table.sparse or (split is not None and table.axes) for table in numbered):
            # All parts of a split of the whole table are a table over its axes.
            found = self._recall([table.axes if split is None else split.axes for table in numbered])
            answers = iter(found if split is None else [table.reshape(-1) for table in found])
        else:
            answers = iter(self._count(parts, numbered, moments) if numbered else [])
        return [next(answers) if isinstance(table, TableRequest) else self._list(parts, table) for table in tables]

    def _recall(self, wanted: Sequence[tuple[Axis, ...]]) -> list[np.ndarray]:
        """Tables of the whole table, shape (1, *axes): those counted before from memory, the others in one pass.

        The encoded table never changes, and miners come back to the same tables of two columns:
        draw after draw, and for each direction.
        """
        ordered = [tuple(sorted(axes, key=_identity)) for axes in wanted]
        with self._lock:
            known = {key: self._tables[key] for axes in ordered if (key := tuple(map(_identity, axes))) in self._tables}
        new = {key: axes for axes in ordered if (key := tuple(map(_identity, axes))) not in known}
        if new:
            counted = self._count(PartSet([Block(Part())]), [TableRequest(axes) for axes in new.values()], None)
            for table in counted:
                table.flags.writeable = False
            known |= dict(zip(new, counted, strict=True))
            with self._lock:
                self._tables |= {key: known[key] for key in new if known[key].size <= KEPT_CELLS}
                while sum(table.size for table in self._tables.values()) > KEPT_CELLS:
                    del self._tables[next(iter(self._tables))]
        found = []
        for axes, order in zip(wanted, ordered, strict=True):
            table = known[tuple(map(_identity, order))]
            found.append(table.transpose(0, *(1 + order.index(axis) for axis in axes)))
        return found

    def _count(self, parts: PartSet, tables: Sequence[TableRequest], moments: Moments | None) -> list[Any]:
        """The tables whose cells can be numbered, in one statement."""
        axes = {id(axis): axis for table in tables for axis in table.axes}
        if any(axis.shard_key is not None for axis in axes.values()) or _has_shards(parts):
            self._make_coins()
        names = {key: f"a{i}" for i, key in enumerate(axes)}
        part = part_expression(parts, self.columns)
        select = [f"({part})::{unsigned(len(parts) + 1)} AS p"] if part is not None else []
        for key, axis in axes.items():
            select.append(
                f"({axis_expression(axis, self.columns, none=axis.size)})::{unsigned(axis.slots)} AS {names[key]}"
            )
        groups, group_of = _pack(tables, len(parts) + 1)
        keys = []
        for number, group in enumerate(groups):
            kind = unsigned((len(parts) + 1) * math.prod(axis.slots for axis in group))
            text = f"p::{kind}" if part is not None else f"0::{kind}"
            for axis in group:
                text = f"({text} * {axis.slots}::{kind} + {names[id(axis)]}::{kind})"
            keys.append(f"{text} AS k{number}")
        where = ""
        aggregates = "count(*)"
        if moments is not None:
            column = self.columns[moments.column]
            null = self.schema.columns[moments.column].null_code
            # DuckDB sums integers exactly, in 128 bits. What is handed on has 64: a sum stops at a
            # public bound, for an overflow would be an error that follows the rows. Codes below
            # 2^24 reach it with 2^38 rows, the squares that scores ask for with 2^42.
            value = f"({column} >> {moments.shift})" if moments.shift else column
            select.append(f"{value}::BIGINT AS m")
            sums = ["sum(m)", *(["sum(m * m)"] if moments.squares else [])]
            aggregates = ", ".join(["count(*)", *(f"least(coalesce({total}, 0), {MAX_SUM})::BIGINT" for total in sums)])
            where = f" WHERE {column} <> {null}" if null is not None else ""
        if not axes and len(parts) == 1 and part is not None:
            # A single number needs no groups, and small tables answer faster without.
            source = (
                f"SELECT {select[-1] if moments is not None else '1'} FROM codes{where or ' WHERE true'} AND {part} = 0"
            )
            return _unpack(self._fetch(f"SELECT 0 AS k0, {aggregates} FROM ({source})"), groups, group_of, tables, 1)
        source = f"SELECT {', '.join(select) if select else '1'} FROM codes{where}"
        carried = [*keys, *(["m"] if moments is not None else [])]
        sets = f"GROUPING SETS ({', '.join(f'(k{i})' for i in range(len(groups)))})" if len(groups) > 1 else "k0"
        query = f"SELECT {', '.join(f'k{i}' for i in range(len(groups)))}, {aggregates} FROM (SELECT {', '.join(carried)} FROM ({source})) GROUP BY {sets}"
        return _unpack(self._fetch(query), groups, group_of, tables, len(parts))

    def _sum_rows(self, parts: PartSet, tables: Sequence[TableRequest], sums: RowSums) -> list[Any]:
        """Sums of a function of rows: the distinct rows over all axes are listed, and the function is taken of each."""
        axes = list(
            {id(axis): axis for axis in [*sums.inputs, *(axis for table in tables for axis in table.axes)]}.values()
        )
        if any(axis.shard_key is not None for axis in axes) or _has_shards(parts):
            self._make_coins()
        select = [f"({part_expression(parts, self.columns) or 0})::{unsigned(len(parts) + 1)} AS p"]
        for number, axis in enumerate(axes):
            place = axis_expression(axis, self.columns, none=axis.size)
            select.append(f"({place})::{unsigned(axis.size + 1)} AS a{number}")
        source = f"SELECT {', '.join(select)} FROM codes"
        part, *listed, counts = map(
            np.ma.getdata, self._fetch(f"SELECT *, count(*) FROM ({source}) WHERE p < {len(parts)} GROUP BY ALL")
        )
        places = {id(axis): place for axis, place in zip(axes, listed, strict=True)}
        values = (sums.of([places[id(axis)] for axis in sums.inputs]) * counts).T
        return [_add_up(part, [places[id(axis)] for axis in table.axes], values, table, len(parts)) for table in tables]

    def _list(self, parts: PartSet, table: ListRequest) -> Listed:
        """The distinct rows over the axes. The last listing of the whole table is kept: attribute after attribute asks for the same columns."""
        axes = sorted(table.axes, key=_identity)
        whole = len(parts) == 1 and parts.at(0).depth == 0
        key = tuple(map(_identity, axes))
        kept = self._kept
        if not whole or kept is None or kept[0] != key:
            part = part_expression(parts, self.columns)
            select = [f"({part or 0})::{unsigned(len(parts) + 1)} AS p"]
            select += [
                f"({axis_expression(axis, self.columns)})::{unsigned(axis.size)} AS a{i}" for i, axis in enumerate(axes)
            ]
            found = self._fetch(
                f"SELECT *, count(*) FROM (SELECT {', '.join(select)} FROM codes) WHERE p < {len(parts)} GROUP BY ALL"
            )
            wide = max((column.dtype for column in found[1:-1]), key=lambda kind: kind.itemsize)
            listed = Listed(
                np.ma.getdata(found[0]),
                np.stack([np.ma.getdata(column).astype(wide, copy=False) for column in found[1:-1]]),
                np.ma.getdata(found[-1]),
            )
            kept = (key, listed)
            if whole and listed.codes.nbytes <= KEPT_BYTES:
                self._kept = kept
        listed = kept[1]
        return Listed(listed.parts, listed.codes[[axes.index(axis) for axis in table.axes]], listed.counts)

    def rows(self) -> int:
        """Encoded rows, exact: for the provider's eyes only."""
        return int(self._fetch("SELECT count(*) FROM codes")[0][0])

    def close(self) -> None:
        """Frees the memory and deletes the encoded copy."""
        self._closing()

    def _fetch(self, query: str) -> list[Any]:
        # One cursor per call: threads may ask at the same time, and a result is always read to its
        # end.
        with self._connection.cursor() as cursor:
            result = cursor.execute(query).fetchnumpy()
        return list(result.values())

    def _make_coins(self) -> None:
        """Gives each row its coin, once: a keyed hash of its codes and of its number among equal rows.

        Adding a row adds one (row, number) pair and changes no other, so coins are a stability-1
        map of the table, steady across sessions.
        """
        with self._lock:
            if self._coins:
                return
            listed = ", ".join(self.columns.values())
            text = " || ',' || ".join(self.columns.values())
            key = self._salt.hex()
            self._connection.execute(
                f"CREATE OR REPLACE TABLE codes AS SELECT {listed}, md5_number_lower('{key}' || ':' || {text} "
                f"|| '#' || "
                f"row_number() OVER (PARTITION BY {listed})) AS row_coin FROM codes"
            )
            self._coins = True


def _close(connection: duckdb.DuckDBPyConnection, scratch: tempfile.TemporaryDirectory[str] | None) -> None:
    connection.close()
    if scratch is not None:
        scratch.cleanup()


def _identity(axis: Axis) -> tuple[str, int, int, tuple[int, ...], bytes]:
    """What tells axes of one schema apart."""
    shard = -1 if axis.shard_key is None else axis.shard_key
    return (
        axis.column or "",
        axis.size,
        shard,
        axis.thresholds or (),
        b"" if axis.lookup is None else axis.lookup.tobytes(),
    )


def _pack(tables: Sequence[TableRequest], slots: int) -> tuple[list[list[Axis]], list[int]]:
    """Gathers the tables' axes into groups, each counted as one small joint table: first-fit, the largest first.

    Returns:
        The groups, and which group holds each table. A sparse table has a group of its own.
    """
    groups: list[list[Axis]] = []
    sizes: list[int | None] = []
    group_of = [0] * len(tables)
    for place in sorted(range(len(tables)), key=lambda i: -math.prod(tables[i].shape)):
        table = tables[place]
        for number, size in enumerate(sizes):
            new = [axis for axis in table.axes if axis not in groups[number]]
            cells = math.prod(axis.slots for axis in new)
            if size is not None and not table.sparse and (not new or size * cells <= PACKED_CELLS):
                groups[number] += new
                sizes[number] = size * cells
                group_of[place] = number
                break
        else:
            group_of[place] = len(groups)
            groups.append(list(table.axes))
            sizes.append(None if table.sparse else slots * math.prod(axis.slots for axis in table.axes))
    return groups, group_of


def _unpack(
    result: list[Any], groups: list[list[Axis]], group_of: list[int], tables: Sequence[TableRequest], parts: int
) -> list[Any]:
    """The tables' arrays from the rows of the grouping sets: a row belongs to the set whose key is not NULL."""
    keys, values = result[: len(groups)], [np.ma.getdata(column).astype(np.int64) for column in result[len(groups) :]]
    amounts = values[0] if len(values) == 1 else np.stack(values, axis=-1)
    dense: dict[int, np.ndarray] = {}
    answers: list[Any] = []
    for table, number in zip(tables, group_of, strict=True):
        group = groups[number]
        shape = (parts + 1, *(axis.slots for axis in group))
        mine = ~np.ma.getmaskarray(keys[number])
        if table.sparse:
            inner = (parts, *table.shape)
            answers.append(_inner(np.ma.getdata(keys[number])[mine].astype(np.int64), amounts[mine], shape, inner))
            continue
        if number not in dense:
            full = np.zeros((math.prod(shape), *amounts.shape[1:]), dtype=np.int64)
            full[np.ma.getdata(keys[number])[mine].astype(np.int64)] = amounts[mine]
            dense[number] = full.reshape(*shape, *amounts.shape[1:])[:-1]
        # A row outside one axis still counts in the tables of the others: sum over the foreign axes
        # before cutting it off.
        own = dense[number].sum(axis=tuple(i + 1 for i, axis in enumerate(group) if axis not in table.axes))
        order = [axis for axis in group if axis in table.axes]
        own = np.moveaxis(own, [1 + order.index(axis) for axis in table.axes], range(1, 1 + len(order)))
        answers.append(own[(slice(None), *(slice(0, axis.size) for axis in table.axes))])
    return answers


def _add_up(
    part: np.ndarray, places: list[np.ndarray], values: np.ndarray, table: TableRequest, parts: int
) -> np.ndarray | Sparse:
    """The sums of rows' values, shape (rows, width), in each part and cell; rows outside an axis are left out."""
    inside = np.ones(len(part), dtype=bool)
    for axis, place in zip(table.axes, places, strict=True):
        inside &= place < axis.size
    shape = (parts, *table.shape)
    cells = np.ravel_multi_index([place[inside].astype(np.int64) for place in (part, *places)], shape)
    occupied, cells = np.unique(cells, return_inverse=True) if table.sparse else (np.arange(math.prod(shape)), cells)
    total = np.zeros((len(occupied), values.shape[1]), dtype=np.int64)
    np.add.at(total, cells, values[inside])
    return Sparse(occupied, total) if table.sparse else total.reshape(*shape, -1)


def _has_shards(parts: PartSet) -> bool:
    splits: list[Partition] = [block.partition for block in parts.blocks if block.partition is not None]
    splits += [partition for block in parts.blocks for partition, _ in block.part.steps()]
    return any(axis.shard_key is not None for partition in splits for axis in partition.axes)


def _inner(places: np.ndarray, amounts: np.ndarray, padded: tuple[int, ...], shape: tuple[int, ...]) -> Sparse:
    """Renumbers occupied cells from the padded shape to the true one and drops the padding."""
    index = np.unravel_index(places, padded)
    keep = np.logical_and.reduce([axis < size for axis, size in zip(index, shape, strict=True)])
    inner = np.ravel_multi_index([axis[keep] for axis in index], shape)
    order = np.argsort(inner)
    return Sparse(inner[order], amounts[keep][order])
