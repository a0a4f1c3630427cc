# SPDX-License-Identifier: Apache-2.0
"""What Spark's workers do with batches of rows: encode, bound, number, count, and add up.

::

    raw rows - Encoding -> blocks ----------------------------+- Counting -> tallies - Adding -> tallies
                    + by unit - shuffle - Bounding -> blocks -+
                              Dealing - shuffle - Tossing -> blocks with coins

A *block* is one row of a Spark table: some rows' codes as an Arrow stream in a binary value, so that
Spark moves and caches them without looking inside. What goes between stages is codes, keyed hashes
and tallies: nothing raw.

Each class is one stage: made by the driver, pickled, called in a worker with the batches of one
partition. A worker needs this package, of the same version, and nothing else.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from uuid import uuid4

import duckdb
import numpy as np
import pyarrow as pa

from pinq.engine.codes import BLOCK_ROWS, Codes, RowBlock
from pinq.engine.encoding import Encoder, bound, encode
from pinq.engine.kernel import CountRequest, Counts
from pinq.engine.numbers import define_readings
from pinq.engine.report import Losses
from pinq.engine.shards import coins_of, shards_of
from pinq.engine.tallies import Tally
from pinq.public.policy import Policy

__all__ = [
    "BLOCKS",
    "LOSSES",
    "TALLIES",
    "Adding",
    "Bounding",
    "Counting",
    "Dealing",
    "Encoding",
    "Losing",
    "Partial",
    "Tossing",
]

BLOCKS = "task string, bucket int, rows bigint, digest bigint, data binary"
"""A table of blocks, as Spark calls its columns' types."""
TALLIES = "sender string, number int, rows bigint, digest bigint, data binary"
"""A table of tallies, pickled and cut into pieces that any connection carries."""
LOSSES = "data binary"
"""A table of what encoding leaves out."""

PIECE = 2**22
DIGEST = 2**32
_ODD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class Encoding:
    """Encodes raw rows; with a privacy unit, into blocks of the rows whose units share a bucket.

    Attributes:
        policy: Whose columns.
        salt: Keys the hashes of units.
        buckets: How many buckets there are.
    """

    policy: Policy
    salt: bytes
    buckets: int

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        bounded, task = self.policy.bounded_unit is not None, uuid4().hex
        for table in _gathered(batches):
            codes = encode(table, self.policy, self.salt)
            if bounded:
                yield from _dealt(codes, _bucket_of_units(codes, self.buckets), task)
            else:
                yield _block(codes, task)


@dataclass(frozen=True)
class Bounding:
    """Keeps the ``max_rows`` rows of each unit, by the rule of one machine; see ``Encoder``."""

    policy: Policy
    salt: bytes

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        tables, task = list(_tables(batches)), uuid4().hex
        if tables:
            kept = bound(pa.concat_tables(tables), self.policy, self.salt)
            for start in range(0, kept.num_rows, BLOCK_ROWS):
                yield _block(kept.slice(start, BLOCK_ROWS), task)


@dataclass(frozen=True)
class Dealing:
    """Deals rows into buckets, equal rows into the same one."""

    buckets: int

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        task = uuid4().hex
        for table in _tables(batches):
            yield from _dealt(table, (_hashes(table) % np.uint64(self.buckets)).astype(np.int64), task)


@dataclass(frozen=True)
class Tossing:
    """Gives each row its coin, where all rows that are equal to it are in the partition."""

    policy: Policy
    salt: bytes

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        tables, task, schema = list(_tables(batches)), uuid4().hex, self.policy.schema_
        coins = coins_of(Codes([RowBlock.from_arrow(table, schema) for table in tables], schema), self.salt)
        for table in tables:
            yield _block(table.append_column("coin", pa.array(coins[: table.num_rows])), task)
            coins = coins[table.num_rows :]


@dataclass(frozen=True)
class Partial:
    """Tallies of some rows, with what tells these rows from others.

    Attributes:
        rows: How many they are.
        digest: A sum over them, whatever their order.
        tallies: What was counted.
    """

    rows: int
    digest: int
    tallies: list[Tally]

    def merged(self, other: Partial) -> Partial:
        """These, with those of other rows taken in."""
        for mine, theirs in zip(self.tallies, other.tallies, strict=True):
            mine.merge(theirs)
        return Partial(self.rows + other.rows, self.digest + other.digest, self.tallies)

    def pieces(self) -> Iterator[pa.RecordBatch]:
        """Rows of ``TALLIES``."""
        sender, data = uuid4().hex, pickle.dumps(self.tallies, protocol=pickle.HIGHEST_PROTOCOL)
        for number, start in enumerate(range(0, len(data), PIECE)):
            first = number == 0
            values = [sender, number, self.rows * first, self.digest * first, data[start : start + PIECE]]
            yield _row(values, _TALLIES)

    @classmethod
    def read(cls, rows: Iterable[tuple[str, int, int, int, bytes]]) -> Partial | None:
        """Adds up what senders gave, from rows of ``TALLIES`` in any order; None for none."""
        senders: dict[str, list[tuple[int, int, int, bytes]]] = {}
        for sender, *piece in rows:
            senders.setdefault(sender, []).append(tuple(piece))  # type: ignore[arg-type]
        partials = (_partial(sorted(pieces)) for pieces in senders.values())
        return reduce(cls.merged, partials) if senders else None


def _partial(pieces: list[tuple[int, int, int, bytes]]) -> Partial:
    """What one sender gave, from its pieces in order."""
    _, rows, digest, _ = pieces[0]
    return Partial(rows, digest, pickle.loads(b"".join(bytes(data) for *_, data in pieces)))


@dataclass(frozen=True)
class Counting:
    """Counts blocks for a request.

    Attributes:
        policy: Whose columns.
        request: Pickled.
    """

    policy: Policy
    request: bytes

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        request: CountRequest = pickle.loads(self.request)
        counts, total, digest = Counts(request), 0, 0
        for batch in batches:
            for data in batch["data"]:
                counts.take(self._block(_table(data), request))
            total += sum(batch["rows"].to_pylist())
            digest += sum(batch["digest"].to_pylist())
        yield from Partial(total, digest, counts.condensed().tallies).pieces()

    def _block(self, table: pa.Table, request: CountRequest) -> RowBlock:
        """The codes, and the shards that the request reads."""
        block = RowBlock.from_arrow(table, self.policy.schema_)
        columns = dict(block.columns)
        for source in request.shards():
            _, key, number = source
            columns[source] = shards_of(table["coin"].to_numpy(), key, number)
        return RowBlock(columns, block.rows)


class Adding:
    """Adds up the tallies of several workers."""

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        total = Partial.read(
            row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)
        )
        if total is not None:
            yield from total.pieces()


@dataclass(frozen=True)
class Losing:
    """Counts what encoding leaves out, for the provider's report."""

    policy: Policy
    salt: bytes

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        losses = Losses(self.policy)
        for table in _gathered(batches):
            with duckdb.connect(config={"enable_external_access": "false"}) as connection:
                define_readings(connection, None)
                connection.register("source", table)
                described = connection.execute("DESCRIBE SELECT * FROM source").fetchall()
                types = {name: kind for name, kind, *_ in described}
                losses.add(connection, Encoder(connection, self.policy, types, self.salt), "source")
        yield _row([losses.numbers.tobytes()], _LOSSES)


def _gathered(batches: Batches) -> Iterator[pa.Table]:
    """Raw rows, a block's at a time: Spark's own batches are small."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= BLOCK_ROWS:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if rows:
        yield pa.Table.from_batches(waiting)


def _tables(batches: Batches) -> Iterator[pa.Table]:
    """The codes in blocks."""
    for batch in batches:
        yield from map(_table, batch["data"])


def _table(data: pa.BinaryScalar) -> pa.Table:
    return pa.ipc.open_stream(data.as_buffer()).read_all()


def _block(codes: pa.Table, task: str, bucket: int = 0) -> pa.RecordBatch:
    """A row of ``BLOCKS``."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, codes.schema) as stream:
        stream.write_table(codes.combine_chunks())
    digest = int(_hashes(codes).sum() % np.uint64(DIGEST))
    return _row([task, bucket, codes.num_rows, digest, sink.getvalue().to_pybytes()], _BLOCKS)


def _dealt(codes: pa.Table, bucket: np.ndarray, task: str) -> Iterator[pa.RecordBatch]:
    """Blocks of the rows in each bucket."""
    # Rows in the buckets 1 0 1: in the order 1 0 2, of which the first is bucket 0, the others
    # bucket 1.
    order = np.argsort(bucket, kind="stable")
    ordered, sizes = codes.take(pa.array(order)), np.bincount(bucket)
    for number, (end, size) in enumerate(zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True)):
        if size:
            yield _block(ordered.slice(end - size, size), task, number)


def _bucket_of_units(codes: pa.Table, buckets: int) -> np.ndarray:
    """A bucket for each row, the same for all rows of a unit, in any process and version."""
    # The first eight signs of a unit's hash, read as the digits of a number to the base 31.
    digits = codes["unit"].combine_chunks().cast(pa.binary())
    words = np.frombuffer(b"".join(digits.to_pylist()), dtype=np.uint8).reshape(-1, 32)[:, :8]
    return (words.astype(np.int64) @ 31 ** np.arange(8)) % buckets


def _hashes(codes: pa.Table) -> np.ndarray:
    """A hash of each row's codes, 64 bits, the same in any process and version."""
    mixed = np.zeros(codes.num_rows, dtype=np.uint64)
    for name in codes.column_names:
        if name.startswith("c") and name != "coin":
            # One code after the other, each multiplied on and its high bits put on low ones: codes
            # 0, 1 and codes 1, 0 have different hashes.
            mixed = (mixed ^ codes[name].to_numpy().astype(np.uint64)) * _ODD
            mixed ^= mixed >> _SHIFT
    return mixed


def _row(values: list[object], schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([v], f.type) for v, f in zip(values, schema, strict=True)], schema=schema
    )


def _schema(columns: str) -> pa.Schema:
    """The same columns as Arrow calls them."""
    kinds = {"string": pa.string(), "int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
    pairs = [column.split() for column in columns.split(", ")]
    return pa.schema([(name, kinds[kind]) for name, kind in pairs])


_BLOCKS, _TALLIES, _LOSSES = _schema(BLOCKS), _schema(TALLIES), _schema(LOSSES)
