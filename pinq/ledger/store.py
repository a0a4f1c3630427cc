# SPDX-License-Identifier: Apache-2.0
"""Where a ledger's log is kept: tables in SQLite or PostgreSQL.

Nothing here knows what an event means. Tables are locked while they are written. SQLite's own busy
handler starves writers under load; ours tries again after a random fraction of a millisecond.
"""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import time
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import sqlalchemy as sa

from pinq.errors import LedgerError
from pinq.ledger import postgresql, tables
from pinq.ledger.checkpoint import Checkpoint
from pinq.ledger.direct import Direct
from pinq.ledger.head import Head
from pinq.ledger.postgresql import WRITERS_LOCK, DirectPostgreSQL, watched
from pinq.ledger.sqlite import BUSY_SECONDS, DirectSQLite, busy, prepare, read_only
from pinq.ledger.tables import SINCE, AnswerSize, EventRow, StoredAnswer, make_tables

__all__ = ["NoLedger", "Store", "url_of"]

_LOG = logging.getLogger(__name__)
IDS_AT_A_TIME = 500
ROWS_AT_A_TIME = 1000
FRESH_SECONDS = 5.0  # for so long a connection counts as one that its server has not closed

_among = tables.events.c.seq.in_(sa.bindparam("numbers", expanding=True))
_answered = sa.join(tables.events, tables.answers, tables.answers.c.seq == tables.events.c.seq)
_length = sa.func.length(tables.answers.c.payload)
_numbered = sa.select(tables.events).where(_among)
_lengths = sa.select(tables.events.c.seq, sa.func.length(tables.events.c.body)).where(_among)
_when = (tables.events.c.seq, tables.events.c.at)
_sizes = sa.select(*_when, _length).select_from(_answered).where(_among)
_texts = sa.select(*_when, tables.events.c.body, tables.answers.c.payload).select_from(_answered).where(_among)
_payload = sa.select(tables.answers.c.payload).where(tables.answers.c.seq == sa.bindparam("seq"))


def url_of(ledger: str | os.PathLike[str]) -> str:
    """Returns the SQLAlchemy URL of a ledger; a path is that of an SQLite file."""
    text = os.fspath(ledger)
    return text if "://" in text else f"sqlite:///{os.path.abspath(text)}"


class NoLedger(LedgerError):
    """There is no ledger, and no head of one: nothing was granted yet."""


class Store:
    """The tables of one ledger.

    Args:
        url: A file, or an SQLAlchemy URL of SQLite or PostgreSQL.
        create: Make the file where there is none.
        read_only: Change nothing, not even beside the file, and let writers write meanwhile.

    Attributes:
        url: An SQLAlchemy URL.
        head: The head beside a file; None for others.
        failure: How it last failed; empty once something was committed since.

    Raises:
        LedgerError: Out of reach, or not there.
    """

    def __init__(self, url: str | os.PathLike[str], *, create: bool = True, read_only: bool = False) -> None:
        self.url = url_of(url)
        self._sqlite = self.url.startswith("sqlite")
        memory = self.url in ("sqlite://", "sqlite:///:memory:")
        self._file = Path(self.url.removeprefix("sqlite:///")) if self._sqlite and not memory else None
        self.head = None if self._file is None else Head(self._file.with_name(self._file.name + ".head"))
        if self._file is not None and (read_only or not create) and not self._file.exists():
            missing = NoLedger if self.head is None or not self.head.file.exists() else LedgerError
            raise missing(f"There is no ledger {self._file}. `pinq grant` makes one.")
        self._process, self._read_only, self.failure = os.getpid(), read_only, ""
        self._patience: float = postgresql.STATEMENT_SECONDS  # for the first replay
        try:
            if self._file is not None and not read_only:
                _make_private(self._file)
            self._inode = None if self._file is None else self._file.stat().st_ino
            self._engine = sa.create_engine(self.url, **self._options(memory))
            self._errors = (sa.exc.SQLAlchemyError, self._engine.dialect.loaded_dbapi.Error)
            # Whoever forgets close() leaves no open connection behind.
            self._kept: list[Direct] = []
            self._closing = weakref.finalize(self, _close, self._kept, self._engine, self._process)
            if not (self._sqlite and read_only):
                sa.event.listen(self._engine, "connect", prepare if self._sqlite else postgresql.prepare)
            if not read_only:
                self.check()
                with self.transaction() as connection:
                    make_tables(connection)
        except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError) as error:
            raise LedgerError(f"The ledger {self} cannot be opened: {_first_line(error)}.") from None

    @property
    def is_shared(self) -> bool:
        """Whether all use one connection: of a ledger in memory, or one that is only read."""
        return isinstance(self._engine.pool, sa.StaticPool)

    def __str__(self) -> str:
        return str(self._file) if self._file is not None else sa.make_url(self.url).render_as_string(hide_password=True)

    # Rows; each method within a transaction

    def since(self, connection: sa.Connection, seq: int) -> Iterator[EventRow]:
        """The events from this number on."""
        return map(EventRow._make, connection.exec_driver_sql(SINCE % seq))

    def numbered(self, connection: sa.Connection, numbers: Sequence[int]) -> list[EventRow]:
        """The events of these numbers; ``LedgerError`` where one is gone."""
        listed = (connection.execute(_numbered, {"numbers": chunk}) for chunk in _chunks(numbers))
        rows = {row.seq: EventRow._make(row) for result in listed for row in result}
        gone = [number for number in numbers if number not in rows]
        if gone:
            raise self._damaged(f"event {gone[0]} is gone")
        return [rows[number] for number in numbers]

    def lengths(self, connection: sa.Connection, numbers: Sequence[int]) -> dict[int, int]:
        """How long the bodies of events of these numbers are; without those that are gone."""
        listed = (connection.execute(_lengths, {"numbers": chunk}) for chunk in _chunks(numbers))
        return {seq: length for result in listed for seq, length in result}

    def sizes(self, connection: sa.Connection, numbers: Sequence[int]) -> Iterator[AnswerSize]:
        """How long the answers are that events of these numbers logged, in any order."""
        for chunk in _chunks(numbers):
            yield from map(AnswerSize._make, connection.execute(_sizes, {"numbers": chunk}))

    def payload(self, connection: sa.Connection, seq: int) -> str | None:
        """The text of the answer that an event logged."""
        payload: str | None = connection.execute(_payload, {"seq": seq}).scalar()
        return payload

    def answers(self, connection: sa.Connection, numbers: Collection[int]) -> Iterator[StoredAnswer]:
        """The answers that events of these numbers logged."""
        for chunk in _chunks(sorted(numbers)):
            yield from map(StoredAnswer._make, connection.execute(_texts, {"numbers": chunk}))

    def check(self) -> None:
        """``LedgerError`` where SQLite finds its file or an index damaged."""
        if self._file is None:
            return
        with self.transaction(write=False) as connection:
            verdict = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
        if verdict != "ok":
            raise self._damaged(str(verdict).strip().splitlines()[-1])

    def take_over(self, other: Store) -> None:
        """Puts another store's events and answers in the place of its own, in one transaction."""
        with other.transaction(write=False) as reading, self.transaction() as writing:
            for table in (tables.answers, tables.events, tables.checkpoints):
                writing.execute(table.delete())
            for table in (tables.events, tables.answers):
                rows = reading.execute(sa.select(table).execution_options(yield_per=ROWS_AT_A_TIME))
                for block in rows.mappings().partitions():
                    writing.execute(table.insert(), [dict(row) for row in block])

    def checkpoint(self) -> Checkpoint | None:
        """The last fold that was written down, if there is one."""
        with self.transaction(write=False) as connection:
            if not sa.inspect(connection).has_table("checkpoints"):
                return None  # of an earlier release
            row = connection.execute(
                sa.select(tables.checkpoints).order_by(tables.checkpoints.c.seq.desc()).limit(1)
            ).first()
        return None if row is None else Checkpoint._make(row)

    def checkpointed(self) -> int:
        """Up to which event the fold was written down; 0 for none."""
        with self.transaction(write=False) as connection:
            return connection.execute(sa.select(sa.func.max(tables.checkpoints.c.seq))).scalar() or 0

    def keep(self, checkpoint: Checkpoint) -> None:
        """Puts a fold in the place of the one before it."""
        with self.transaction() as connection:
            connection.execute(tables.checkpoints.delete())
            connection.execute(tables.checkpoints.insert(), checkpoint._asdict())

    def is_copy(self) -> bool:
        """Whether the file was copied from another one, and not opened for writing since."""
        if self._file is None:
            return False
        with self.transaction(write=False) as connection:
            if not sa.inspect(connection).has_table("place"):
                return False  # of an earlier release
            return connection.execute(sa.select(tables.origin.c.inode)).scalar() != self._inode

    def settle(self) -> None:
        """Makes a copy the ledger itself once its log was read, if it may be written."""
        self._patience = BUSY_SECONDS + 10
        if not self._read_only and self.is_copy():
            with self.transaction() as connection:
                connection.execute(tables.origin.delete())
                connection.execute(tables.origin.insert(), {"inode": self._inode})

    # Transactions

    @contextmanager
    def transaction(self, write: bool = True) -> Iterator[sa.Connection]:
        """One transaction, committed at the end if it writes.

        There is one writer at a time, and readers see one state throughout.
        """
        with self._guarded(), ExitStack() as stack:
            connection = self._begun(stack, write)
            yield connection
            if write:
                connection.commit()

    @contextmanager
    def direct(self, write: bool, seq: int) -> Iterator[tuple[Direct, Iterator[EventRow]]]:
        """A transaction the short way, for one thread at a time, with the events from a number on.

        Whoever writes commits by ``Direct.commit``; what is not committed is rolled back.
        """
        with self._guarded(), ExitStack() as stack:
            yield self._begun_direct(stack, write, seq)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """``LedgerError`` for what a database or its driver raises, or where the file has gone."""
        self.require_process()
        if self._file is not None and _inode(self._file) != self._inode:
            gone = "it was deleted, or another file was put in its place, while it was open"
            raise self._failing(f"is not the file that was opened: {gone}. The dataset stays closed.")
        try:
            yield
        except self._errors as error:
            raise self.unusable(_first_line(error)) from None
        except UnicodeDecodeError:
            raise self._damaged("it holds text that is none") from None

    @property
    def is_own(self) -> bool:
        """Whether this process opened it, and not the one that it was forked from."""
        return os.getpid() == self._process

    def require_process(self) -> None:
        """``LedgerError`` in a process that was forked since the opening."""
        if not self.is_own:
            forked = "This ledger was opened in another process; connections do not survive a fork."
            raise LedgerError(f"{forked} Open it again here.")

    def _begun(self, stack: ExitStack, write: bool) -> sa.Connection:
        """Begins a transaction, again where the server had closed the connection meanwhile."""
        for again in (True, False):
            connection = stack.enter_context(self._engine.connect())
            if not self._sqlite:
                stack.enter_context(watched(connection, self._patience))
            try:
                self._begin(connection, write)
                return connection
            except sa.exc.DBAPIError as error:
                if not (again and error.connection_invalidated):
                    raise
                stack.close()
        raise AssertionError  # the second time it returned or raised

    def _begun_direct(self, stack: ExitStack, write: bool, seq: int) -> tuple[Direct, Iterator[EventRow]]:
        """Begins on the kept connection, again on a new one where the server had closed it."""
        for again in (True, False):
            direct = self._direct()
            stack.enter_context(direct.watched(self._patience))
            stack.callback(direct.release)
            late = time.monotonic() + self._patience
            try:
                return direct, direct.begin(write, seq)
            except self._errors:
                if not (again and direct.is_lost and time.monotonic() < late):
                    raise
                stack.close()
        raise AssertionError  # the second time it returned or raised

    def _direct(self) -> Direct:
        """The kept connection; a new one where that was lost, in whatever state it ended."""
        if self._kept and self._kept[0].is_lost:
            self._kept.pop().close()
        if not self._kept:
            self._kept.append((DirectSQLite if self._sqlite else DirectPostgreSQL)(self._engine.connect()))
        return self._kept[0]

    def _begin(self, connection: sa.Connection, write: bool) -> None:
        if not self._sqlite:  # What a writer reads next is what the writer before it committed.
            if write:
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITERS_LOCK})")
            elif time.monotonic() > connection.info.get("fresh", 0.0):
                connection.exec_driver_sql("SELECT 1")
            connection.info["fresh"] = time.monotonic() + FRESH_SECONDS
            return
        if not write and self._file is None:
            return
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
                if not write:  # A reader can find it locked too, while another process mends it after a crash.
                    connection.exec_driver_sql("SELECT 1 FROM sqlite_master").close()
                return
            except sa.exc.OperationalError as error:
                if not busy(error) or time.monotonic() > deadline:
                    raise
                connection.rollback()
                time.sleep(random.uniform(0.0001, 0.001))

    def _options(self, memory: bool) -> dict[str, object]:
        options: dict[str, object]
        if self._sqlite and self._read_only and self._file is not None:
            file = self._file
            return {"creator": lambda: read_only(file), "poolclass": sa.StaticPool}
        if self._sqlite:
            options = {"connect_args": {"timeout": 0, "check_same_thread": False}}
            return options | ({"poolclass": sa.StaticPool} if memory else {})
        if sa.make_url(self.url).get_driver_name() != "psycopg":
            raise LedgerError(f"The ledger {self} needs the driver psycopg: write postgresql+psycopg://...")
        connect_args = postgresql.options(BUSY_SECONDS, read_only=self._read_only)
        return {"isolation_level": "READ COMMITTED", "connect_args": connect_args}

    def _damaged(self, what: str) -> LedgerError:
        return self._failing(f"is damaged: {what}. The dataset stays closed; restore the ledger from a backup.")

    def unusable(self, why: str) -> LedgerError:
        """The error of a ledger that cannot be used now."""
        return self._failing(f"cannot be used: {why}. What was spent is in the log.")

    def _failing(self, how: str) -> LedgerError:
        """Keeps and logs how it fails, once until something is committed again; the error that says so."""
        text = f"The ledger {self} {how}"
        if text != self.failure:
            _LOG.error("%s", text)
        self.failure = text
        return LedgerError(text)

    def close(self) -> None:
        """Closes the connections."""
        self._closing()


def _close(kept: list[Direct], engine: sa.Engine, process: int) -> None:
    if os.getpid() != process:
        return  # a forked process would end what its parent is at
    while kept:
        kept.pop().close()
    engine.dispose()


def _chunks(numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Cuts numbers into lists that a statement can name."""
    return (numbers[first : first + IDS_AT_A_TIME] for first in range(0, len(numbers), IDS_AT_A_TIME))


def _inode(file: Path) -> int | None:
    try:
        return os.stat(file).st_ino
    except OSError:
        return None


def _make_private(file: Path) -> None:
    """Makes the file where there is none, readable by the provider alone from the first byte."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))


def _first_line(error: BaseException) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0]
