# SPDX-License-Identifier: Apache-2.0
"""The engine inside Spark: rows are encoded and counted by its workers, and only tables come back.

It uses Spark's DataFrame interface alone, so a session of Spark Connect does as well as one in this
process. What workers do is in ``spark_work.py``; encoding and counting are the functions that one
machine uses, so both engines give the same tables, of the same rows of each unit and with the same
shards.

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
from typing import Any, Protocol, TypeGuard, TypeVar
from uuid import uuid4

import numpy as np
import pyarrow as pa

from pinq.engine.delimited import Lines
from pinq.engine.kernel import Counts, count_request
from pinq.engine.raw import declared_columns, require_columns
from pinq.engine.report import EncodingReport, Losses
from pinq.engine.spark_work import (
    BLOCKS,
    DIGEST,
    LOSSES,
    TALLIES,
    Adding,
    Bounding,
    Counting,
    Dealing,
    Encoding,
    Losing,
    Partial,
    Tossing,
)
from pinq.engine.tables import ListRequest, Measure, Table, TableRequest, require_open
from pinq.errors import PolicyError
from pinq.public.parts import PartSet
from pinq.public.plugins import install_line
from pinq.public.policy import Policy

__all__ = ["SparkEngine", "SparkFrame", "is_spark_frame", "open_spark", "spark_frame"]

# How many workers' tables one worker adds up.
FAN_IN = 16
# Up to so many bytes, all workers' tables come to the driver, which adds them up: no shuffle is needed.
DIRECT_BYTES = 2**24
# Seconds between two looks at whether the caller has given up.
LOOK = 0.1

T = TypeVar("T")
Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class SparkSettings(Protocol):
    """What is used of a session's settings."""

    def get(self, key: str) -> str: ...


class SparkSession(Protocol):
    """What is used of a session of Spark."""

    @property
    def conf(self) -> SparkSettings: ...
    def addTag(self, tag: str) -> None: ...
    def removeTag(self, tag: str) -> None: ...
    def interruptTag(self, tag: str) -> list[str]: ...


class SparkFrame(Protocol):
    """What is used of a frame of Spark."""

    @property
    def columns(self) -> list[str]: ...
    @property
    def sparkSession(self) -> SparkSession: ...
    def selectExpr(self, *columns: str) -> SparkFrame: ...
    def repartition(self, partitions: int, *columns: str) -> SparkFrame: ...
    def mapInArrow(self, work: Work, schema: str) -> SparkFrame: ...
    def persist(self) -> SparkFrame: ...
    def unpersist(self) -> SparkFrame: ...
    def collect(self) -> list[Any]: ...


def is_spark_frame(data: object) -> TypeGuard[SparkFrame]:
    """Whether it is a frame of Spark, of either kind."""
    return hasattr(data, "mapInArrow")


def spark_frame(policy: Policy, data: object) -> SparkFrame | None:
    """The frame of Spark that is to be opened; None where the source is none.

    Raises:
        PolicyError: Spark is not installed, or does not know the table.
    """
    if data is not None:
        return data if is_spark_frame(data) else None
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
    policy: Policy, frame: SparkFrame, *, salt: bytes, report: bool = False
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
        tables: Sequence[TableRequest | ListRequest] = (TableRequest(),),
        measure: Measure | None = None,
        check: Callable[[], None] | None = None,
    ) -> Sequence[Table]:
        """Counts rows, exactly, in one pass of Spark over the codes; see ``Engine.tabulate``.

        Args:
            parts: Disjoint parts.
            tables: What to cross them with.
            measure: What to sum up.
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
        """The same rows with their coins, made when shards are first asked for."""
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

    def __init__(self, blocks: SparkFrame, policy: Policy, salt: bytes) -> None:
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
    def of(cls, raw: SparkFrame, policy: Policy, salt: bytes) -> _Encoded:
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


def _buckets(frame: SparkFrame) -> int:
    """Into how many partitions Spark is told to shuffle."""
    return int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions"))


def _report(raw: SparkFrame, policy: Policy, salt: bytes, encoded: int) -> EncodingReport:
    """What encoding leaves out, by another pass."""
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
