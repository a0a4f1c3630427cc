# SPDX-License-Identifier: Apache-2.0
"""The storage of a ledger's log: two tables, by one protocol, in SQLite and in PostgreSQL."""

from __future__ import annotations

import logging
import os
import random
import shutil
import sqlite3
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast
from urllib.parse import quote

from pinq.errors import LedgerError, closed_on_error

_LOG = logging.getLogger(__name__)
BUSY_SECONDS = 30.0  # the wait for other processes
ROWS_AT_A_TIME = 500
PAUSE_SECONDS = 0.001
ENDED = "the transaction had ended before its commit"
NO_TEXT = "it holds text that is none"
WHOLE = 0  # the place of a backup: no file has this number
T = TypeVar("T")
Row = tuple[Any, ...]

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS events (seq BIGINT NOT NULL PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, "
    "analyst TEXT NOT NULL, request TEXT NOT NULL, body TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS answers (seq BIGINT NOT NULL PRIMARY KEY, payload TEXT NOT NULL)",
    # Which file this is. A copy has the number of the file that it was made of.
    "CREATE TABLE IF NOT EXISTS place (inode BIGINT NOT NULL)",
    # The log's fold checks this too; the index checks other writers.
    "CREATE UNIQUE INDEX IF NOT EXISTS events_once ON events (analyst, request, kind) "
    "WHERE kind IN ('charge', 'answer')",
    # The last snapshot of the state, and the last charge of each query before it.
    "CREATE TABLE IF NOT EXISTS snapshot (seq BIGINT NOT NULL PRIMARY KEY, payload TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS questions (key TEXT NOT NULL PRIMARY KEY, seq BIGINT NOT NULL)",
    # Of earlier releases.
    "DROP INDEX IF EXISTS events_request",
    "DROP INDEX IF EXISTS events_request_kind",
    "DROP TABLE IF EXISTS checkpoints",
)


class NoLedger(LedgerError):
    """There is neither a ledger nor a head of one."""


class EventRow(NamedTuple):
    """An event as the table has it; ``body`` is its record as JSON."""

    seq: int
    at: str
    kind: str
    analyst: str
    request: str
    body: str
    hash: str


class AnswerSize(NamedTuple):
    """The facts about an answer before it is read: its event's number, its time and its length."""

    seq: int
    at: str
    length: int


_EVENTS = f"SELECT {', '.join(EventRow._fields)} FROM events WHERE seq "
SINCE = _EVENTS + ">= {} ORDER BY seq"
"""The events from a number on."""
_ANSWERED = " FROM events JOIN answers USING (seq) WHERE seq "


class Database(ABC):
    """One connection to the storage of a ledger, for one thread at a time.

    Attributes:
        failure: The text of the last failure; empty after a later commit.
        mark: The mark of a value in a statement.
    """

    errors: tuple[type[Exception], ...] = ()
    mark = "?"

    def __init__(self, address: str, url: str, read_only: bool) -> None:
        self.address, self.url, self.read_only, self.failure = address, url, read_only, ""
        self._process = os.getpid()
        self._closing: Callable[[], object] = lambda: None

    def open(self, *, create: bool) -> None:
        """Connects, and makes tables that are missing, unless it is only read.

        Raises:
            LedgerError: It is not there, is damaged, or cannot be opened.
        """
        failures: tuple[type[Exception], ...] = (OSError, *self.errors)
        try:
            self.connect(create=create and not self.read_only)
            if not self.read_only:
                if self.snapshot() is None:  # else a check of the whole would take as long as a replay
                    self.check()
                with self.transaction(write=True):
                    for statement in SCHEMA:
                        self.run(statement)
                    self.commit()
        except UnicodeDecodeError:  # the driver's own error quotes bytes of the file
            raise self.damaged(NO_TEXT) from None
        except failures as error:
            raise LedgerError(f"The ledger {self.address} cannot be opened: {_first_line(error)}.") from None

    @abstractmethod
    def connect(self, *, create: bool) -> None:
        """Connects; ``LedgerError`` where there is no ledger and none may be made."""

    def close(self) -> None:
        """Closes the connection, except in a forked process, which would end its parent's work."""
        self._closing()

    def hold(self, driver: Any) -> None:
        """Closes a connection together with this object, even if its owner forgets ``close()``."""
        self._closing = weakref.finalize(self, _close, driver, os.getpid())

    @contextmanager
    def transaction(self, *, write: bool, after: int | None = None) -> Iterator[Iterator[EventRow]]:
        """One transaction. Changes that it does not commit are undone.

        Args:
            write: Whether it may change anything.
            after: Number of the first event to read; None for no events.

        Raises:
            LedgerError: The database or its driver failed.
        """
        try:
            try:
                yield map(EventRow._make, self.begin(write, after))
            finally:
                self.rollback()
        except self.errors as error:
            raise self.unusable(_first_line(error)) from None
        except UnicodeDecodeError:
            raise self.damaged(NO_TEXT) from None

    @abstractmethod
    def begin(self, write: bool, after: int | None) -> Iterator[Row]:
        """Begins a transaction, after those of other writers; returns the events as rows."""

    @abstractmethod
    def rollback(self) -> None:
        """Ends the transaction, if it is not committed."""

    # Each within a transaction

    @abstractmethod
    def run(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        """Runs a statement with values in the places of its marks; returns its rows."""

    @abstractmethod
    def append(self, row: EventRow, answer: str | None) -> None:
        """Adds an event, and the text of its answer."""

    @abstractmethod
    def probe(self) -> None:
        """Writes a meaningless value: its commit shows whether a commit is possible now."""

    @abstractmethod
    def commit(self) -> None:
        """Ends the transaction; then all appended events are on the disk."""

    def numbered(self, numbers: Collection[int]) -> list[EventRow]:
        """The events of these numbers; raises ``LedgerError`` if one is missing."""
        rows = {row.seq: row for row in map(EventRow._make, self._among(_EVENTS, numbers))}
        gone = [number for number in numbers if number not in rows]
        if gone:
            raise self.damaged(f"event {gone[0]} is gone")
        return [rows[number] for number in numbers]

    def lengths(self, numbers: Collection[int]) -> dict[int, int]:
        """The lengths of the bodies of events of these numbers, without missing ones."""
        return dict(self._among("SELECT seq, length(body) FROM events WHERE seq ", numbers))

    def sizes(self, numbers: Collection[int]) -> dict[int, AnswerSize]:
        rows = map(AnswerSize._make, self._among(f"SELECT seq, at, length(payload){_ANSWERED}", numbers))
        return {size.seq: size for size in rows}

    def answers(self, numbers: Collection[int]) -> Iterator[Row]:
        """The number and body of these events, and the text of the answer that each logged, by number."""
        return self._among(f"SELECT seq, body, payload{_ANSWERED}", numbers)

    def once(self, kind: str, analyst: str, request: str, before: int) -> int:
        """The number of the charge or answer of a request, before an event; 0 for none."""
        rows = self.run(
            f"SELECT seq FROM events WHERE analyst = {self.mark} AND request = {self.mark} AND kind = {self.mark} "
            f"AND kind IN ('charge', 'answer') AND seq < {before}",
            (analyst, request, kind),
        )
        return rows[0][0] if rows else 0

    def answered(self, analyst: str, before: int) -> dict[str, int]:
        """The numbers of an analyst's answers before an event, by request."""
        return dict(
            self.run(
                f"SELECT request, seq FROM events WHERE analyst = {self.mark} AND kind = 'answer' "
                f"AND kind IN ('charge', 'answer') AND seq < {before}",
                (analyst,),
            )
        )

    def asked(self, key: str) -> int:
        """The number of the last charge of a query before the snapshot, by the query's key; 0 for none."""
        rows = self.run(f"SELECT seq FROM questions WHERE key = {self.mark}", (key,))
        return rows[0][0] if rows else 0

    def snapshot(self) -> Row | None:
        """The number of the stored snapshot's event, and its text; None for none."""
        try:
            rows = self.run("SELECT seq, payload FROM snapshot")
        except self.errors:  # a ledger of an earlier version that is only read, or one that cannot be read at all
            return None
        return rows[0] if rows else None

    def keep(self, seq: int, payload: str, queries: Mapping[str, int]) -> None:
        """Replaces the stored snapshot, and stores the charges of queries since the last one."""
        self.run("DELETE FROM snapshot")
        self.run(f"INSERT INTO snapshot VALUES ({seq}, {self.mark})", (payload,))
        rows = iter(queries.items())
        while some := list(islice(rows, ROWS_AT_A_TIME)):
            marks = ", ".join([f"({self.mark}, {self.mark})"] * len(some))
            insert = f"INSERT INTO questions VALUES {marks} ON CONFLICT (key) DO UPDATE SET seq = excluded.seq"
            self.run(insert, list(chain.from_iterable(some)))

    def _among(self, statement: str, numbers: Collection[int]) -> Iterator[Row]:
        ordered = sorted(numbers)
        for first in range(0, len(ordered), ROWS_AT_A_TIME):
            numbers_text = ", ".join(map(str, ordered[first : first + ROWS_AT_A_TIME]))
            yield from self.run(f"{statement}IN ({numbers_text}) ORDER BY seq")

    # Identity and damage

    def check(self) -> None:
        """Raises ``LedgerError`` if the database finds itself damaged."""
        self.require_same()
        damage = self.damage()
        if damage:
            raise self.damaged(damage)

    def damage(self) -> str:
        """The damage that the database finds in itself; empty for none."""
        return ""

    def other_file(self) -> str:
        """The reason why this is no longer the ledger that was opened; empty if it still is."""
        return ""

    @property
    def is_copy(self) -> bool:
        """Whether it is a copy, perhaps made while the original was in use, and not opened for writing yet."""
        return False

    @abstractmethod
    def settle(self, *, whole_log: bool = False) -> None:
        """Marks a writable copy as the ledger itself, or with ``whole_log`` marks all its copies as complete."""

    @property
    def is_own(self) -> bool:
        """Whether this process itself opened it, not its parent before a fork."""
        return os.getpid() == self._process

    def require_same(self) -> None:
        """Raises ``LedgerError`` in a process that was forked after the opening, or if another file is in its place."""
        if os.getpid() != self._process:
            raise LedgerError(
                "This ledger was opened in another process; connections do not survive a fork. Open it again here."
            )
        other = self.other_file()
        if other:
            raise self.failing(f"is not the file that was opened: {other}. The dataset stays closed.")

    def damaged(self, damage: str) -> LedgerError:
        return self.failing(f"is damaged: {damage}. The dataset stays closed; restore the ledger from a backup.")

    def unusable(self, why: str) -> LedgerError:
        return self.failing(f"cannot be used: {why}. What was spent is in the log.")

    def failing(self, reason: str) -> LedgerError:
        """Returns the error of a failure, which is logged once until the next commit."""
        text = f"The ledger {self.address} {reason}"
        if text != self.failure:
            _LOG.error("%s", text)
        self.failure = text
        return LedgerError(text)


def url_of(ledger: str | os.PathLike[str]) -> str:
    """Returns the URL of a ledger; a path is that of an SQLite file."""
    text = os.fspath(ledger)
    return text if "://" in text else f"sqlite:///{os.path.abspath(text)}"


def _close(driver: Any, process: int) -> None:
    if os.getpid() == process:
        driver.close()


def _first_line(error: BaseException) -> str:
    line = str(error).splitlines()[0]
    return "it is another kind of file" if line == "file is not a database" else line


class SQLite(Database):
    """A connection to a file, or to a ledger in memory.

    Args:
        url: ``sqlite:///FILE``, or ``sqlite://`` for a ledger in memory.
        read_only: Whether nothing is changed, not even beside the file; other processes may write
            meanwhile.
    """

    errors = (sqlite3.Error,)

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        in_memory = url in ("sqlite://", "sqlite:///:memory:")
        self.file = None if in_memory else Path(url.removeprefix("sqlite:///"))
        super().__init__(url if self.file is None else str(self.file), url, read_only)
        self._inode: int | None = None

    def connect(self, *, create: bool) -> None:
        self._driver = self._connected(create)
        self._rows = self._driver.cursor()
        self.hold(self._driver)

    def _connected(self, create: bool) -> sqlite3.Connection:
        if self.file is None:
            return _by_name(":memory:")
        if not self.file.exists():
            head = self.file.with_name(f"{self.file.name}.head")
            if head.exists():  # an empty ledger in its place would look like one that was cut
                raise LedgerError(
                    f"The ledger {self.file} is gone: {head.name} beside it names its last event. "
                    "Put it back, or restore a backup (`pinq restore`)."
                )
            if not create:
                raise NoLedger(f"There is no ledger {self.file}. `pinq grant` makes one, if the name is right.")
        if not self.read_only:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            if not self.file.exists():  # readable by the provider alone from the first byte
                os.close(os.open(self.file, os.O_CREAT | os.O_WRONLY, 0o600))
        self._inode = _inode(self.file)
        if self.read_only:
            return _read_only(self.file)
        driver = _by_name(str(self.file))
        self.hold(driver)  # a file that is no database fails below
        # SQLite's own wait for a lock, `busy_timeout`, starves writers under load.
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=0"):
            _patiently(partial(driver.execute, f"PRAGMA {pragma}")).close()
        return driver

    def begin(self, write: bool, after: int | None) -> Iterator[Row]:
        return _patiently(partial(self._begin, write, after))

    def _begin(self, write: bool, after: int | None) -> Iterator[Row]:
        try:
            self._driver.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            # A reader finds the file locked only here, while another process mends it after a crash.
            if after is None:
                self._driver.execute("SELECT 1 FROM sqlite_master").close()
            else:  # one text for all numbers is parsed once
                self._rows = self._driver.execute(SINCE.format("?"), (after,))
        except sqlite3.Error:
            self.rollback()
            raise
        return iter(()) if after is None else self._rows

    def rollback(self) -> None:
        self._rows.close()  # rows that nobody fetched would hold on to the state that was read
        self._driver.rollback()

    def run(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        return self._driver.execute(statement, values).fetchall()

    def append(self, row: EventRow, answer: str | None) -> None:
        if not self._driver.in_transaction:  # each row would be committed by itself
            raise sqlite3.OperationalError(ENDED)
        self._driver.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        if answer is not None:
            self._driver.execute("INSERT INTO answers VALUES (?, ?)", (row.seq, answer))

    def probe(self) -> None:
        # A number on the file's first page that nothing reads. It must differ each time, because
        # SQLite does not write an unchanged page.
        self.run(f"PRAGMA user_version = {time.time_ns() % 2**31}")

    def commit(self) -> None:
        if not self._driver.in_transaction:
            raise sqlite3.OperationalError(ENDED)
        self._driver.commit()

    def damage(self) -> str:
        if self.file is None:
            return ""
        with self.transaction(write=False):
            ((verdict,),) = self.run("PRAGMA integrity_check(1)")
        return "" if verdict == "ok" else str(verdict).strip().splitlines()[-1]

    def other_file(self) -> str:
        if self.file is None or _inode(self.file) == self._inode:
            return ""
        return "it was deleted, or another file was put in its place, while it was open"

    @property
    def is_copy(self) -> bool:
        return self._place() not in (None, WHOLE, self._inode)

    def settle(self, *, whole_log: bool = False) -> None:
        place = WHOLE if whole_log else self._inode
        if self.file is None or self.read_only or self._place() == place:
            return
        with self.transaction(write=True):
            self.run("DELETE FROM place")
            self.run(f"INSERT INTO place VALUES ({place})")
            self.commit()

    def _place(self) -> int | None:
        """The inode number noted in the file; None in memory, and in files of the first release."""
        with self.transaction(write=False):
            if not self.run("SELECT 1 FROM sqlite_master WHERE name = 'place'"):
                return None
            ((place,),) = self.run("SELECT max(inode) FROM place")
        return cast("int | None", place)


def _patiently(act: Callable[[], T]) -> T:
    """Repeats an act while another process holds the file, but only for a limited time."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            if not _busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(PAUSE_SECONDS / 10, PAUSE_SECONDS))


def _busy(error: Exception) -> bool:
    """Whether another process holds the file now."""
    return "locked" in str(error) or "busy" in str(error)


def _inode(file: Path) -> int | None:
    with suppress(OSError):
        return os.stat(file).st_ino
    return None


def _read_only(file: Path) -> sqlite3.Connection:
    """Opens a file without changing it, and without a new file beside it.

    SQLite keeps the newest commits of a file in use in ``FILE-wal``. To read them it needs
    ``FILE-shm``. If there is no ``FILE-wal``, the file is complete. If ``FILE-shm`` is missing or
    unusable (a read-only medium, another user's file), a copy of file and log is read instead.
    """
    log, index = (file.with_name(file.name + end) for end in ("-wal", "-shm"))
    if not log.exists() or not log.stat().st_size:
        return _by_name(_uri(file, "immutable=1"))
    if index.exists():
        try:
            with closed_on_error(_by_name(_uri(file, "mode=ro"))) as connection:
                connection.execute("SELECT 1 FROM sqlite_master").close()
                return connection
        except sqlite3.OperationalError as error:
            if _busy(error):
                raise
    with tempfile.TemporaryDirectory(prefix="pinq-ledger-") as folder:
        copy = Path(folder) / "copy"
        shutil.copyfile(file, copy)
        shutil.copyfile(log, copy.with_name("copy-wal"))
        copy_of_file = _by_name(":memory:")
        with closing(_by_name(_uri(copy, "mode=rw"))) as copied:
            copied.backup(copy_of_file)
        return copy_of_file


def _uri(file: Path, options: str) -> str:
    return f"file:{quote(str(file))}?{options}"


def _by_name(name: str) -> sqlite3.Connection:
    return sqlite3.connect(name, timeout=0, check_same_thread=False, isolation_level=None, uri=name.startswith("file:"))
