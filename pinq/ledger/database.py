# SPDX-License-Identifier: Apache-2.0
"""Where a ledger's log is kept: two tables, by one protocol in SQLite and in PostgreSQL.

Nothing here knows what an event means.
"""

from __future__ import annotations

import logging
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from pinq.errors import LedgerError

__all__ = [
    "BUSY_SECONDS",
    "ROWS_AT_A_TIME",
    "SINCE",
    "AnswerSize",
    "Database",
    "EventRow",
    "NoLedger",
    "Row",
    "StoredAnswer",
    "url_of",
]

_LOG = logging.getLogger(__name__)
BUSY_SECONDS = 30.0  # for others to end what they are at
ROWS_AT_A_TIME = 500
Row = tuple[Any, ...]

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS events (seq BIGINT NOT NULL PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, "
    "analyst TEXT NOT NULL, request TEXT NOT NULL, body TEXT NOT NULL, hash TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS answers (seq BIGINT NOT NULL PRIMARY KEY, payload TEXT NOT NULL)",
    # Which file this is. A copy has the number of the file that it was made of.
    "CREATE TABLE IF NOT EXISTS place (inode BIGINT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS events_request_kind ON events (analyst, request, kind)",
    # The log's fold holds this too; here it holds other writers.
    "CREATE UNIQUE INDEX IF NOT EXISTS events_once ON events (analyst, request, kind) "
    "WHERE kind IN ('charge', 'answer')",
    # Of earlier releases.
    "DROP INDEX IF EXISTS events_request",
    "DROP TABLE IF EXISTS checkpoints",
)


class NoLedger(LedgerError):
    """There is no ledger, and no head of one: nothing was granted yet."""


class EventRow(NamedTuple):
    """An event as the table has it; ``body`` is its record as JSON."""

    seq: int
    at: str
    kind: str
    analyst: str
    request: str
    body: str
    hash: str


class StoredAnswer(NamedTuple):
    """A stored answer: its event's number, time and body, and the answer's text."""

    seq: int
    at: str
    body: str
    payload: str


class AnswerSize(NamedTuple):
    """What is known of an answer before it is read: its event's number, its time and length."""

    seq: int
    at: str
    length: int


_EVENTS = f"SELECT {', '.join(EventRow._fields)} FROM events WHERE seq "
SINCE = _EVENTS + ">= %d ORDER BY seq"
"""The events from a number on."""
_ANSWERED = " FROM events JOIN answers USING (seq) WHERE seq "


class Database(ABC):
    """One connection to where a ledger is kept, for one thread at a time.

    Args:
        where: What errors call it.
        url: Where it is.
        read_only: Change nothing.

    Attributes:
        failure: How it last failed; empty once something was committed since.
        errors: What its driver raises.
    """

    errors: tuple[type[Exception], ...] = ()

    def __init__(self, where: str, url: str, read_only: bool) -> None:
        self.where, self.url, self.read_only, self.failure = where, url, read_only, ""
        self._process = os.getpid()
        self._closing: Callable[[], object] = lambda: None

    def open(self, *, create: bool) -> None:
        """Connects, and makes tables that are missing, unless it is only read.

        Args:
            create: Make the ledger where there is none.

        Raises:
            LedgerError: It is not there, is damaged, or cannot be opened.
        """
        failures: tuple[type[Exception], ...] = (OSError, *self.errors)
        try:
            self.connect(create=create and not self.read_only)
            if not self.read_only:
                self.check()
                with self.transaction(write=True):
                    for statement in SCHEMA:
                        self.run(statement)
                    self.commit()
        except failures as error:
            raise LedgerError(f"The ledger {self.where} cannot be opened: {_first_line(error)}.") from None

    @abstractmethod
    def connect(self, *, create: bool) -> None:
        """Connects; ``LedgerError`` where there is no ledger and none may be made."""

    def close(self) -> None:
        """Closes the connection, in the process that made it alone: a forked one would end what its parent is at."""
        self._closing()

    def hold(self, driver: Any) -> None:
        """Closes a connection with this object: an owner that forgets ``close()`` leaves none open behind."""
        self._closing = weakref.finalize(self, _close, driver, os.getpid())

    @contextmanager
    def transaction(self, *, write: bool, after: int | None = None) -> Iterator[Iterator[EventRow]]:
        """One transaction; what it does not commit is undone.

        There is one writer at a time, and readers see one state throughout.

        Args:
            write: Whether it may change anything.
            after: Gives the events from this number on; None for no events.

        Raises:
            LedgerError: For whatever the database or its driver raises.
        """
        try:
            try:
                yield map(EventRow._make, self.begin(write, after))
            finally:
                self.rollback()
        except self.errors as error:
            raise self.unusable(_first_line(error)) from None
        except UnicodeDecodeError:
            raise self.damaged("it holds text that is none") from None

    @abstractmethod
    def begin(self, write: bool, after: int | None) -> Iterator[Row]:
        """Begins a transaction, after those of other writers; returns the events as rows."""

    @abstractmethod
    def rollback(self) -> None:
        """Ends the transaction, if it is not committed."""

    # Each within a transaction

    @abstractmethod
    def run(self, statement: str) -> list[Row]:
        """Runs a statement; returns its rows."""

    @abstractmethod
    def append(self, row: EventRow, answer: str | None) -> None:
        """Adds an event, and the text of its answer."""

    @abstractmethod
    def probe(self) -> None:
        """Writes what means nothing, so that the commit shows whether one would do."""

    @abstractmethod
    def commit(self) -> None:
        """Ends the transaction; what was appended is on the disk when it returns."""

    def numbered(self, numbers: Collection[int]) -> list[EventRow]:
        """The events of these numbers; ``LedgerError`` where one is gone."""
        rows = {row.seq: row for row in map(EventRow._make, self._among(_EVENTS, numbers))}
        gone = [number for number in numbers if number not in rows]
        if gone:
            raise self.damaged(f"event {gone[0]} is gone")
        return [rows[number] for number in numbers]

    def lengths(self, numbers: Collection[int]) -> dict[int, int]:
        """How long the bodies of events of these numbers are; without those that are gone."""
        return dict(self._among("SELECT seq, length(body) FROM events WHERE seq ", numbers))

    def sizes(self, numbers: Collection[int]) -> dict[int, AnswerSize]:
        """How long the answers are that events of these numbers logged, by number."""
        rows = map(AnswerSize._make, self._among(f"SELECT seq, at, length(payload){_ANSWERED}", numbers))
        return {size.seq: size for size in rows}

    def answers(self, numbers: Collection[int]) -> Iterator[StoredAnswer]:
        """The answers that events of these numbers logged, by number."""
        return map(StoredAnswer._make, self._among(f"SELECT seq, at, body, payload{_ANSWERED}", numbers))

    def _among(self, statement: str, numbers: Collection[int]) -> Iterator[Row]:
        listed = sorted(numbers)
        for first in range(0, len(listed), ROWS_AT_A_TIME):
            some = ", ".join(map(str, listed[first : first + ROWS_AT_A_TIME]))
            yield from self.run(f"{statement}IN ({some}) ORDER BY seq")

    # What it is

    def check(self) -> None:
        """``LedgerError`` where the database finds itself damaged."""
        self.require_same()
        damage = self.damage()
        if damage:
            raise self.damaged(damage)

    def damage(self) -> str:
        """What the database finds wrong in itself; empty for nothing."""
        return ""

    def gone(self) -> str:
        """Why it is no longer what was opened; empty where it is."""
        return ""

    @property
    def is_copy(self) -> bool:
        """Whether it was copied from another one while that may have been in use, and not opened for writing since."""
        return False

    @abstractmethod
    def settle(self, *, whole: bool = False) -> None:
        """Makes a copy the ledger itself, if it may be written; or says that any copy of it is whole."""

    @property
    def is_own(self) -> bool:
        """Whether this process opened it, and not the one that it was forked from."""
        return os.getpid() == self._process

    def require_same(self) -> None:
        """``LedgerError`` in a process that was forked since the opening, or where it is no longer what was opened."""
        if not self.is_own:
            forked = "This ledger was opened in another process; connections do not survive a fork."
            raise LedgerError(f"{forked} Open it again here.")
        gone = self.gone()
        if gone:
            raise self.failing(f"is not the file that was opened: {gone}. The dataset stays closed.")

    def damaged(self, what: str) -> LedgerError:
        """The error of a ledger that cannot be trusted."""
        return self.failing(f"is damaged: {what}. The dataset stays closed; restore the ledger from a backup.")

    def unusable(self, why: str) -> LedgerError:
        """The error of a ledger that cannot be used now."""
        return self.failing(f"cannot be used: {why}. What was spent is in the log.")

    def failing(self, how: str) -> LedgerError:
        """Keeps and logs how it fails, once until something is committed again; the error that says so."""
        text = f"The ledger {self.where} {how}"
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
    return str(error).splitlines()[0]
