# SPDX-License-Identifier: Apache-2.0
"""The engine inside Spark: rows are encoded and counted by its workers, and only tables come back.

It uses Spark's DataFrame interface alone, so a session of Spark Connect does as well as one in this
process. Encoding and counting are the functions that one machine uses, so both engines give the same
tables, of the same rows of each unit and with the same shards. Workers do with batches of rows::

    raw rows - Encoding -> blocks ----------------------------+- Counting -> tallies - Adding -> tallies
                    + by unit - shuffle - Bounding -> blocks -+
                              Dealing - shuffle - Tossing -> blocks with coins

A *block* is one row of a Spark table: some rows' codes as an Arrow stream in a binary value, so that
Spark moves and caches them without looking inside. What goes between stages is codes, keyed hashes
and tallies: nothing raw. Each class of a stage is made by the driver, pickled, called in a worker
with the batches of one partition. A worker needs this package, of the same version, and nothing else.

Codes are cached by Spark. What it loses with a worker it makes again from the source, which may have
changed meanwhile; so each request also adds up the rows that it counted and a digest of them, and
where these are not what was encoded at open nothing is answered.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, TimeoutError
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, TypeVar, cast
from uuid import uuid4

import numpy as np
import pyarrow as pa

from pinq.engine.codes import BLOCK_ROWS, Codes, RowBlock, in_tables
from pinq.engine.counting import CountRequest, Counts, Tally, count_request
from pinq.engine.delimited import Lines
from pinq.engine.encoding import EncodingReport, Losses, bound, encode, encoder_of
from pinq.engine.shards import coins_of, shards_of
from pinq.engine.sources import declared_columns, require_columns
from pinq.engine.tables import Measure, Table, TableRequest, require_open
from pinq.errors import PolicyError
from pinq.public.parts import PartSet
from pinq.public.plugins import install_line
from pinq.public.policy import Policy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
        buckets: The number of buckets.
    """

    policy: Policy
    salt: bytes
    buckets: int

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        bounded, task = self.policy.bounded_unit is not None, uuid4().hex
        for table in in_tables(batches):
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
    """Tallies of some rows, with an identity of these rows.

    Attributes:
        rows: Their number.
        digest: A sum over them, whatever their order.
        tallies: The counts.
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
    """The result of one sender, from its pieces in order."""
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
        for table in in_tables(batches):
            with encoder_of(table, self.policy, self.salt) as (connection, encoder):
                losses.add(connection, encoder, "source")
        yield _row([losses.numbers.tobytes()], _LOSSES)


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


# How many workers' tables one worker adds up.
FAN_IN = 16
# Up to so many bytes, all workers' tables come to the driver, which adds them up: no shuffle is needed.
DIRECT_BYTES = 2**24
# Seconds between two looks at whether the caller has given up.
LOOK = 0.1

T = TypeVar("T")


def spark_frame(policy: Policy, data: object) -> DataFrame | None:
    """The frame of Spark that is to be opened; None where the source is none.

    Raises:
        PolicyError: Spark is not installed, or does not know the table.
    """
    if data is not None:
        return cast("DataFrame", data) if hasattr(data, "mapInArrow") else None
    if policy.spark is None:
        return None
    try:
        from pyspark.sql import SparkSession as Session
    except ImportError:
        raise PolicyError(f"A Spark table needs Spark: {install_line('spark')}.") from None
    try:
        return Session.builder.getOrCreate().table(policy.spark.spark)
    except Exception:  # classes of errors differ between Spark's two kinds of sessions
        raise PolicyError(f"Spark does not know the table {policy.spark.spark!r}, or cannot be reached.") from None


def open_spark(
    policy: Policy, frame: DataFrame, *, salt: bytes, report: bool = False
) -> tuple[SparkEngine, EncodingReport | None]:
    """Encodes a frame inside Spark and opens an engine over it; see ``open_engine``."""
    names = list(dict.fromkeys(declared_columns(policy)))
    require_columns(names, frame.columns)
    raw = frame.selectExpr(*("`" + name.replace("`", "``") + "`" for name in names))
    try:
        engine = SparkEngine(_Encoded.of(raw, policy, salt))
        return engine, _report(raw, policy, salt, engine.rows()) if report else None
    except PolicyError:
        raise
    except Exception as error:  # whose text may quote a value, so only the provider's own check repeats it
        why = f": {_first_line(error)}" if report else "; `pinq check` says why."
        raise PolicyError(f"The source of {policy.dataset!r} cannot be read{why}") from None


class SparkEngine:
    """Exact tables over one table that Spark's workers hold encoded.

    Args:
        encoded: The table.
    """

    def __init__(self, encoded: _Encoded) -> None:
        self._encoded: _Encoded | None = encoded
        self._tossed: _Encoded | None = None
        self._tossing = threading.Lock()
        self._process = os.getpid()

    def tabulate(
        self,
        parts: PartSet,
        tables: Sequence[TableRequest] = (TableRequest(),),
        measure: Measure | None = None,
        check: Callable[[], None] | None = None,
    ) -> Sequence[Table]:
        """Counts rows, exactly, in one pass of Spark over the codes; see ``Engine.tabulate``.

        Args:
            parts: Disjoint parts.
            tables: What to cross them with.
            measure: The measure to add up.
            check: Called ten times a second; what it raises cancels the work in Spark.

        Raises:
            PolicyError: The source changed, and Spark had to read it again.
        """
        encoded = require_open(self._encoded, self._process)
        request = count_request(parts, tables, measure, schema=encoded.policy.schema_)
        if request.shards():
            encoded = self._with_coins(encoded, check)
        counts = Counts(request)
        direct = encoded.tasks * counts.most_condensed_bytes <= DIRECT_BYTES
        partial = _cancellable(encoded.session, lambda: encoded.counted(pickle.dumps(request), direct), check)
        if partial is not None:
            counts.tallies = partial.tallies
        return counts.tables()

    def rows(self) -> int:
        """Encoded rows, exact: for the provider's eyes only."""
        return 0 if self._encoded is None else self._encoded.rows

    def problem(self) -> str:
        """Says whether its session has ended; see ``Engine.problem``. No job of Spark's is run."""
        if self._encoded is None:
            return "its engine is closed"
        session, tag = self._encoded.session, f"pinq-{uuid4().hex}"
        try:
            session.addTag(tag)  # of no job: there is nothing to interrupt, but only a session that lives says so
            session.interruptTag(tag)
            session.removeTag(tag)
        except Exception:  # classes of errors differ between Spark's two kinds of sessions
            return "its session of Spark has ended"
        return ""

    def close(self) -> None:
        """Lets Spark forget the codes."""
        for encoded in (self._encoded, self._tossed):
            if encoded is not None:
                encoded.close()
        self._encoded = self._tossed = None

    def _with_coins(self, encoded: _Encoded, check: Callable[[], None] | None) -> _Encoded:
        """The same rows with their draws, made for the first query of shards."""
        with self._tossing:
            if self._tossed is None:
                self._tossed = _cancellable(encoded.session, encoded.tossed, check)
            return self._tossed


class _Encoded:
    """Blocks of codes that Spark keeps, and what tells whether they still are those of the opening.

    Args:
        blocks: A frame of ``BLOCKS``; is cached, and made.
        policy: Whose columns.
        salt: Keys hashes and coins.

    Attributes:
        rows: Rows in all blocks.
        tasks: How many tasks made them.
    """

    def __init__(self, blocks: DataFrame, policy: Policy, salt: bytes) -> None:
        self.policy, self.session = policy, blocks.sparkSession
        self._salt, self._blocks = salt, blocks.persist()
        try:
            facts = ("sum(rows) AS rows", "sum(digest) AS digest", "count(DISTINCT task) AS tasks")
            rows, digest, tasks = self._blocks.selectExpr(*facts).collect()[0]
        except BaseException:
            self.close()
            raise
        self.rows, self.tasks = rows or 0, tasks
        self._digest = (digest or 0) % DIGEST

    @classmethod
    def of(cls, raw: DataFrame, policy: Policy, salt: bytes) -> _Encoded:
        """Encodes a raw frame."""
        buckets = _buckets(raw)
        blocks = raw.mapInArrow(Encoding(policy, salt, buckets), BLOCKS)
        if policy.bounded_unit is not None:
            blocks = blocks.repartition(buckets, "bucket").mapInArrow(Bounding(policy, salt), BLOCKS)
        return cls(blocks, policy, salt)

    def tossed(self) -> _Encoded:
        """The same rows, equal ones together, with coins."""
        buckets = _buckets(self._blocks)
        dealt = self._blocks.mapInArrow(Dealing(buckets), BLOCKS).repartition(buckets, "bucket")
        tossed = _Encoded(dealt.mapInArrow(Tossing(self.policy, self._salt), BLOCKS), self.policy, self._salt)
        if (tossed.rows, tossed._digest) != (self.rows, self._digest):
            tossed.close()
            raise PolicyError(_CHANGED)
        return tossed

    def counted(self, request: bytes, direct: bool) -> Partial | None:
        """The tallies of all rows.

        Args:
            request: Pickled.
            direct: Whether what each task counted comes here, else what workers added up of it.

        Raises:
            PolicyError: They are not the rows that were encoded at open.
        """
        tallies = self._blocks.mapInArrow(Counting(self.policy, request), TALLIES)
        senders = 1 if direct else self.tasks
        while senders > 1:
            senders = -(-senders // FAN_IN)
            tallies = tallies.repartition(senders, "sender").mapInArrow(Adding(), TALLIES)
        partial = Partial.read(tuple(row) for row in tallies.collect())
        rows, digest = (0, 0) if partial is None else (partial.rows, partial.digest % DIGEST)
        if (rows, digest) != (self.rows, self._digest):
            raise PolicyError(_CHANGED)
        return partial

    def close(self) -> None:
        """Lets Spark forget them."""
        self._blocks.unpersist()


_CHANGED = "The source changed after it was opened, and Spark lost rows that it had read. Open it again."


def _buckets(frame: DataFrame) -> int:
    """Into how many partitions Spark is told to shuffle."""
    return int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions"))


def _report(raw: DataFrame, policy: Policy, salt: bytes, encoded: int) -> EncodingReport:
    """The rows that encoding leaves out, by another pass."""
    losses = Losses(policy)
    for (data,) in raw.mapInArrow(Losing(policy, salt), LOSSES).collect():
        losses.numbers += np.frombuffer(bytes(data), dtype=np.int64)
    return losses.report(encoded, Lines())


def _cancellable(session: SparkSession, work: Callable[[], T], check: Callable[[], None] | None) -> T:
    """Waits for work of Spark; where ``check`` raises meanwhile, Spark is told to stop it."""
    if check is None:
        return work()
    tag, future = f"pinq-{uuid4().hex}", Future[T]()

    def tagged() -> None:
        try:
            session.addTag(tag)  # of this thread's jobs alone
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=tagged, name=tag, daemon=True).start()
    while True:
        try:
            check()
        except BaseException:
            session.interruptTag(tag)
            raise
        try:
            return future.result(LOOK)
        except TimeoutError:
            if future.done():
                raise


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
