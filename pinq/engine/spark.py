# SPDX-License-Identifier: Apache-2.0
"""The engine inside Spark: its workers encode and count rows, and only tables come back.

It uses Spark's DataFrame interface alone, so a session of Spark Connect does as well as one in this
process. Both engines encode and count with the same functions, so they give the same tables. Workers
process batches of rows::

    raw rows - encode_rows -> blocks -----------------------+- count_blocks -> pieces - add_pieces -> pieces
                   + by unit - shuffle - bound_units -------+
                             deal_rows - shuffle - toss_coins -> blocks with coins

A *block* is one row of a Spark table: the codes of some rows, with one binary value for each column.
Spark moves and caches blocks as they are, and a worker receives only the columns that it counts.
A *piece* is some cells of all tables that a worker counted. If tables are large, one worker adds up
each piece, so that all workers share the addition, and the driver receives each cell once.

Codes, keyed hashes and pieces go between stages, never raw values. A worker needs only this package, of the same
version.

Spark recomputes lost codes from the source, which may have changed meanwhile. So each request also counts its rows and
sums their digests, and is refused if these differ from those at open.
"""

from __future__ import annotations

import math
import os
import pickle
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, TimeoutError
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import numpy as np
import pyarrow as pa

from pinq.engine.codes import BLOCK_ROWS, Codes, RowBlock, bytes_of, in_tables, kinds_of
from pinq.engine.counting import ODD, CountPiece, CountRequest, Counts, count_request
from pinq.engine.delimited import Lines
from pinq.engine.encoding import EncodingReport, Losses, bound, encode, encoder_of
from pinq.engine.shards import coins_of, keyed, shards_of
from pinq.engine.sources import declared_columns, require_columns
from pinq.engine.tables import Measure, T, Table, TableRequest, require_open
from pinq.errors import PolicyError, closed_on_error
from pinq.language.parts import PartSet
from pinq.language.specs import Axis
from pinq.policy.policy import Policy
from pinq.public.plugins import optional
from pinq.public.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BLOCKS = "bucket int, rows bigint, digest bigint"
"""The columns of a table of blocks, with Spark's types; one more column follows for each column of codes."""
PIECES = "number int, data binary"
"""The columns of a table of workers' counts, by number. The data is pickled: a piece with the number of rows
and the sum of their digests, then a piece of each tally."""
LOSSES = "data binary"
"""The column of a table of counted losses."""

DIGEST = 2**32
UNIT = np.dtype("S32")  # a unit's hash, in hexadecimal digits
_SHIFT = np.uint64(29)

Batches = Iterable[pa.RecordBatch]


def encode_rows(policy: Policy, salt: bytes, buckets: int, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Encodes raw rows; with a privacy unit, into one block for each bucket of units."""
    for table in in_tables(batches):
        block = _block(encode(table, policy, salt))
        if policy.bounded_unit is None:
            yield _sent(block)
        else:
            yield from _dealt(block, _bucket_of_units(block.columns["unit"], buckets))


def bound_units(policy: Policy, salt: bytes, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Keeps ``max_rows`` rows of each unit; see ``Encoder``."""
    tables = [pa.table(dict(block.columns)) for block in _received(policy.schema_, batches)]
    kept_rows = bound(pa.concat_tables(tables), policy, salt) if tables else pa.table({})
    for start in range(0, kept_rows.num_rows, BLOCK_ROWS):
        yield _sent(_block(kept_rows.slice(start, BLOCK_ROWS)))


def deal_rows(schema: Schema, buckets: int, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Deals rows into buckets, equal rows into the same one."""
    for block in _received(schema, batches):
        yield from _dealt(block, (_hashes(block) % np.uint64(buckets)).astype(np.int64))


def toss_coins(schema: Schema, salt: bytes, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Gives each row its coin; all rows that are equal to it must be in the partition."""
    blocks = list(_received(schema, batches))
    coins = coins_of(Codes(blocks, schema), salt)
    for block in blocks:
        yield _sent(RowBlock({**block.columns, "coin": coins[: block.rows]}, block.rows))
        coins = coins[block.rows :]


def count_blocks(
    schema: Schema, salt: bytes, request: bytes, names: Mapping[str, str], pieces: int, batches: Batches
) -> Iterator[pa.RecordBatch]:
    """Counts blocks for a pickled request; ``names`` has its columns by their names in blocks."""
    compiled: CountRequest = pickle.loads(request)
    counts, rows, digest = Counts(compiled), 0, 0
    for batch in batches:
        for block in _received(schema, [batch]):
            columns: dict[Hashable, np.ndarray] = {column: block.columns[name] for column, name in names.items()}
            for source in compiled.shards():
                columns[source] = shards_of(block.columns["coin"], salt, *source[1:])
            counts.take(RowBlock(columns, block.rows))
        rows += sum(batch["rows"].to_pylist())
        digest += sum(batch["digest"].to_pylist())
    facts = CountPiece.of_stretch(np.array([rows, digest]))
    for number, tally_pieces in enumerate(counts.pieces(pieces)):
        yield _row(PIECES, number, pickle.dumps([facts, *tally_pieces]))


def add_pieces(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Adds up pieces of equal number from several workers."""
    sums: dict[int, list[CountPiece]] = {}
    for batch in batches:
        sums = added(zip(*(column.to_pylist() for column in batch.columns), strict=True), sums)
    for number, pieces in sums.items():
        yield _row(PIECES, number, pickle.dumps(pieces))


def added(rows: Iterable[tuple[int, bytes]], before: Mapping[int, list[CountPiece]]) -> dict[int, list[CountPiece]]:
    """Adds rows of ``PIECES``, in any order, to the sums ``before``, by number."""
    groups = {number: [pieces] for number, pieces in before.items()}
    for number, data in rows:
        groups.setdefault(number, []).append(pickle.loads(data))
    return {number: [*map(CountPiece.merged, zip(*groups[number], strict=True))] for number in sorted(groups)}


def count_losses(policy: Policy, salt: bytes, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Counts omitted and clamped rows, for the provider's report."""
    losses = Losses(policy)
    for table in in_tables(batches):
        with encoder_of(table, policy, salt) as (connection, encoder):
            losses.add(connection, encoder, "source")
    yield _row(LOSSES, losses.numbers.tobytes())


def _block(table: pa.Table) -> RowBlock:
    """Returns the result of ``encode`` as a block; a unit's hash becomes its octets."""
    codes = [name for name in table.column_names if name != "unit"]
    columns: dict[Hashable, np.ndarray] = {name: table[name].to_numpy() for name in codes}
    if "unit" in table.column_names:
        units = table["unit"].cast(pa.binary(UNIT.itemsize))
        columns["unit"] = np.frombuffer(b"".join(map(bytes_of, units.chunks)), UNIT)
    return RowBlock(columns, table.num_rows)


def _sent(block: RowBlock, bucket: int = 0) -> pa.RecordBatch:
    digest = int(_hashes(block).sum() % np.uint64(DIGEST))
    return _row(_blocks(block.columns), bucket, block.rows, digest, *map(np.ndarray.tobytes, block.columns.values()))


def _received(schema: Schema, batches: Batches) -> Iterator[RowBlock]:
    """The blocks in rows of a Spark table, with the columns that were sent."""
    kinds = {f"c{number}": kind for number, kind in enumerate(kinds_of(schema).values())}
    kinds |= {"unit": UNIT, "coin": np.dtype(np.uint64)}
    for batch in batches:
        names = [name for name in batch.schema.names if name in kinds]
        for row, rows in enumerate(batch["rows"].to_pylist()):
            codes = (np.frombuffer(batch[name][row].as_buffer(), kinds[name]) for name in names)
            yield RowBlock(dict(zip(names, codes, strict=True)), rows)


def _dealt(block: RowBlock, bucket: np.ndarray) -> Iterator[pa.RecordBatch]:
    # Rows in the buckets 1 0 1 are sorted to 1 0 2: the first of these is in bucket 0, the others in bucket 1.
    order, ends = np.argsort(bucket, kind="stable"), np.bincount(bucket).cumsum()
    for number, rows in enumerate(np.split(order, ends[:-1])):
        if len(rows):
            yield _sent(RowBlock({name: codes.take(rows) for name, codes in block.columns.items()}, len(rows)), number)


def _bucket_of_units(units: np.ndarray, buckets: int) -> np.ndarray:
    """A bucket for each row, the same for all rows of a unit, in any process and version."""
    # The first eight characters of a unit's hash are the digits of a number in base 31.
    words = units.view(np.uint8).reshape(-1, UNIT.itemsize)[:, :8]
    return (words.astype(np.int64) @ 31 ** np.arange(8)) % buckets


def _hashes(block: RowBlock) -> np.ndarray:
    """A hash of each row's codes, 64 bits, the same in any process and version."""
    mixed = np.zeros(block.rows, dtype=np.uint64)
    for name, codes in block.columns.items():
        if name not in ("unit", "coin"):
            # Each code is multiplied in, and high bits are mixed into low ones, so that the order of
            # codes matters.
            mixed = (mixed ^ codes.astype(np.uint64)) * ODD
            mixed ^= mixed >> _SHIFT
    return mixed


def _row(columns: str, *values: object) -> pa.RecordBatch:
    schema = _schema(columns)
    return pa.RecordBatch.from_arrays(
        [pa.array([v], f.type) for v, f in zip(values, schema, strict=True)], schema=schema
    )


def _blocks(names: Iterable[Hashable]) -> str:
    return BLOCKS + "".join(f", {name} binary" for name in names)


def _schema(columns: str) -> pa.Schema:
    kinds = {"int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
    return pa.schema([(name, kinds[kind]) for name, kind in map(str.split, columns.split(", "))])


# The largest total of all workers' tables that the driver adds up itself, without a shuffle.
DIRECT_BYTES = 2**24
# The size of a piece of larger tables, which workers add up.
PIECE_BYTES = 2**16
# Counting tasks for each core: starting more tasks would cost more than a core that is idle at the end.
TASKS = 2
# The most cores that are noticed: Spark makes a table of this many numbers by one task on each core.
MAX_CORES = 2**12
PARTITION = "spark_partition_id() AS partition"
# Seconds between two calls of a caller's `check`.
LOOK = 0.1


def spark_frame(policy: Policy, data: object) -> DataFrame | None:
    """The frame of Spark to open; None for another source.

    Raises:
        PolicyError: Spark does not know the table.
        ModuleNotFoundError: Spark is not installed.
    """
    if data is not None:
        return cast("DataFrame", data) if hasattr(data, "mapInArrow") else None
    if policy.spark is None:
        return None
    session: Any = optional("pyspark.sql", "spark", "a table of Spark needs Spark").SparkSession
    try:
        return cast("DataFrame", session.builder.getOrCreate().table(policy.spark.spark))
    except Exception:  # classes of errors differ between Spark's two kinds of sessions
        raise PolicyError(f"Spark does not know the table {policy.spark.spark!r}, or cannot be reached.") from None


def open_spark(
    policy: Policy, frame: DataFrame, *, salt: bytes, report: bool = False
) -> tuple[SparkEngine, EncodingReport | None]:
    """Encodes a frame inside Spark and opens an engine over it; see ``open_engine``."""
    names = list(dict.fromkeys(declared_columns(policy)))
    require_columns(names, frame.columns)
    raw = frame.selectExpr(*("`" + name.replace("`", "``") + "`" for name in names))
    engine = SparkEngine(_Encoded.of(raw, policy, salt))
    return engine, _report(raw, policy, salt, engine.rows()) if report else None


class SparkEngine:
    """Exact tables over one table that Spark's workers hold encoded."""

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
        """Counts rows, exactly, in one pass of Spark over the codes.

        An error of ``check``, which is called ten times a second, cancels the work.

        Raises:
            PolicyError: The source changed, and Spark had to read it again.
        """
        encoded = require_open(self._encoded, self._process)
        request = count_request(parts, tables, measure, schema=encoded.policy.schema_)
        if request.shards():
            encoded = self._with_coins(encoded, check)
        return _cancellable(encoded.session, lambda: encoded.counted(request), check).tables()

    def rows(self) -> int:
        return 0 if self._encoded is None else self._encoded.rows

    def contents(self) -> str:
        return require_open(self._encoded, self._process).contents()

    def contents_by(self, axis: Axis) -> list[str]:
        """Refuses to compare cohorts: Spark would read all rows for each of them."""
        raise PolicyError(f"`cohorts` by {axis.column!r} need a source that is no table of Spark.")

    def problem(self) -> str:
        """The reason why it cannot count now; see ``Engine.problem``. No job of Spark is run."""
        if self._encoded is None:
            return "its engine is closed"
        session, tag = self._encoded.session, f"pinq-{uuid4().hex}"
        try:
            session.addTag(tag)  # a tag without a job: a live session has nothing to interrupt, an ended one raises
            session.interruptTag(tag)
            session.removeTag(tag)
        except Exception:  # classes of errors differ between Spark's two kinds of sessions
            return "its session of Spark has ended"
        return ""

    def close(self) -> None:
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
    def __init__(self, blocks: DataFrame, policy: Policy, salt: bytes) -> None:
        self.policy, self.session = policy, blocks.sparkSession
        self._salt, self._blocks = salt, blocks.persist()
        with closed_on_error(self):
            facts = self._blocks.selectExpr("rows", "digest", PARTITION).collect()
            cores = {core for (core,) in self.session.range(MAX_CORES).selectExpr(PARTITION).collect()}
        self.rows, self._digest = sum(rows for rows, _, _ in facts), sum(digest for _, digest, _ in facts) % DIGEST
        self._tasks = max(1, min(len({partition for _, _, partition in facts}), TASKS * len(cores)))

    @classmethod
    def of(cls, raw: DataFrame, policy: Policy, salt: bytes) -> _Encoded:
        buckets, names = _buckets(raw), [f"c{number}" for number in range(len(policy.columns))]
        encoding = partial(encode_rows, policy, salt, buckets)
        if policy.bounded_unit is None:
            return cls(raw.mapInArrow(encoding, _blocks(names)), policy, salt)
        dealt = raw.mapInArrow(encoding, _blocks([*names, "unit"])).repartition(buckets, "bucket")
        return cls(dealt.mapInArrow(partial(bound_units, policy, salt), _blocks(names)), policy, salt)

    def contents(self) -> str:
        return keyed(f"{self.rows} {self._digest}", self._salt)

    def tossed(self) -> _Encoded:
        """The same rows with coins, equal rows in one partition."""
        buckets, schema = _buckets(self._blocks), self.policy.schema_
        names = [f"c{number}" for number in range(len(schema.columns))]
        dealt = self._blocks.mapInArrow(partial(deal_rows, schema, buckets), _blocks(names))
        blocks = dealt.repartition(buckets, "bucket").mapInArrow(
            partial(toss_coins, schema, self._salt), _blocks([*names, "coin"])
        )
        tossed = _Encoded(blocks, self.policy, self._salt)
        if (tossed.rows, tossed._digest) != (self.rows, self._digest):
            tossed.close()
            raise PolicyError(_CHANGED)
        return tossed

    def counted(self, request: CountRequest) -> Counts:
        """The counts of all rows.

        Raises:
            PolicyError: The rows differ from those that were encoded at open.
        """
        counts, schema, used = Counts(request), self.policy.schema_, request.columns()
        table_bytes = counts.most_bytes
        pieces = max(1, math.ceil(min(_buckets(self._blocks), table_bytes / PIECE_BYTES)))
        names = {name: f"c{number}" for number, name in enumerate(schema.columns) if name in used}
        # Spark reads only these columns. One task counts the blocks of several encoding tasks.
        columns = ["rows", "digest", *names.values(), *(["coin"] if request.shards() else [])]
        blocks = self._blocks.selectExpr(*columns).coalesce(self._tasks)
        counted = blocks.mapInArrow(
            partial(count_blocks, schema, self._salt, pickle.dumps(request), names, pieces), PIECES
        )
        if self._tasks * table_bytes > DIRECT_BYTES:
            counted = counted.repartition(pieces, "number").mapInArrow(add_pieces, PIECES)
        total = added(counted.collect(), {}).values()
        facts = {(rows, digest % DIGEST) for rows, digest in (piece[0].sums.tolist() for piece in total)}
        if (facts or {(0, 0)}) != {(self.rows, self._digest)}:
            raise PolicyError(_CHANGED)
        if total:
            counts.fill([piece[1:] for piece in total])
        return counts

    def close(self) -> None:
        self._blocks.unpersist()


_CHANGED = "The source changed after it was opened, and Spark lost rows that it had read. Open it again."


def _buckets(frame: DataFrame) -> int:
    return int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions"))


def _report(raw: DataFrame, policy: Policy, salt: bytes, encoded: int) -> EncodingReport:
    """Counts the rows that encoding leaves out, in another pass."""
    losses = Losses(policy)
    for (data,) in raw.mapInArrow(partial(count_losses, policy, salt), LOSSES).collect():
        losses.numbers += np.frombuffer(bytes(data), dtype=np.int64)
    return losses.report(encoded, Lines())


def _cancellable(session: SparkSession, work: Callable[[], T], check: Callable[[], None] | None) -> T:
    """Waits for work of Spark; if ``check`` raises meanwhile, the work is cancelled."""
    if check is None:
        return work()
    tag, future = f"pinq-{uuid4().hex}", Future[T]()

    def tagged() -> None:
        try:
            session.addTag(tag)  # tags the jobs of this thread alone
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
