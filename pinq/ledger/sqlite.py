# SPDX-License-Identifier: Apache-2.0
"""A ledger in an SQLite file: durable at every commit, patient with other processes."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar, cast
from urllib.parse import quote

from pinq.errors import LedgerError
from pinq.ledger.database import BUSY_SECONDS, SINCE, Database, EventRow, NoLedger, Row

__all__ = ["SQLite"]

PAUSE_SECONDS = 0.001
WHOLE = 0  # the place of a backup: no file has this number
T = TypeVar("T")


class SQLite(Database):
    """A connection to a file, or to a ledger in memory.

    Args:
        url: ``sqlite:///FILE``, or ``sqlite://`` for one in memory.
        read_only: Change nothing, not even beside the file, and let writers write meanwhile.

    Attributes:
        file: Which; None in memory.
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
        if not create and not self.file.exists():
            missing = LedgerError if self.file.with_name(f"{self.file.name}.head").exists() else NoLedger
            raise missing(f"There is no ledger {self.file}. `pinq grant` makes one.")
        if not self.read_only:
            _make_private(self.file)
        self._inode = _inode(self.file)
        if self.read_only:
            return _read_only(self.file)
        driver = _by_name(str(self.file))
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
            self._rows = self._driver.execute("SELECT 1 FROM sqlite_master" if after is None else SINCE % after)
            if after is None:
                self._rows.close()
        except sqlite3.Error:
            self.rollback()
            raise
        return iter(()) if after is None else self._rows

    def rollback(self) -> None:
        self._rows.close()  # rows that nobody fetched would hold on to the state that was read
        self._driver.rollback()

    def run(self, statement: str) -> list[Row]:
        return self._driver.execute(statement).fetchall()

    def append(self, row: EventRow, answer: str | None) -> None:
        self._require_begun()
        self._driver.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        if answer is not None:
            self._driver.execute("INSERT INTO answers VALUES (?, ?)", (row.seq, answer))

    def probe(self) -> None:
        # A number of the file's first page that nobody reads. It must be another one each time, for
        # SQLite writes no page that stays the same.
        self.run(f"PRAGMA user_version = {time.time_ns() % 2**31}")

    def commit(self) -> None:
        self._require_begun()
        self._driver.commit()

    def _require_begun(self) -> None:
        if not self._driver.in_transaction:  # each row would be committed by itself
            raise sqlite3.OperationalError("the transaction had ended before its commit")

    def damage(self) -> str:
        if self.file is None:
            return ""
        with self.transaction(write=False):
            ((verdict,),) = self.run("PRAGMA integrity_check(1)")
        return "" if verdict == "ok" else str(verdict).strip().splitlines()[-1]

    def gone(self) -> str:
        if self.file is None or _inode(self.file) == self._inode:
            return ""
        return "it was deleted, or another file was put in its place, while it was open"

    @property
    def is_copy(self) -> bool:
        return self._place() not in (None, WHOLE, self._inode)

    def settle(self, *, whole: bool = False) -> None:
        place = WHOLE if whole else self._inode
        if self.file is None or self.read_only or self._place() == place:
            return
        with self.transaction(write=True):
            self.run("DELETE FROM place")
            self.run(f"INSERT INTO place VALUES ({place})")
            self.commit()

    def _place(self) -> int | None:
        """The number of the file as which it was made; None in memory, and in files of the first release."""
        with self.transaction(write=False):
            if not self.run("SELECT 1 FROM sqlite_master WHERE name = 'place'"):
                return None
            ((place,),) = self.run("SELECT max(inode) FROM place")
        return cast("int | None", place)


def _patiently(act: Callable[[], T]) -> T:
    """Does it again while another process holds the file, but not for ever."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            if not _busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(PAUSE_SECONDS / 10, PAUSE_SECONDS))


def _busy(error: Exception) -> bool:
    """Whether another process holds the file just now."""
    return "locked" in str(error) or "busy" in str(error)


def _inode(file: Path) -> int | None:
    with suppress(OSError):
        return os.stat(file).st_ino
    return None


def _make_private(file: Path) -> None:
    """Makes the file where there is none, readable by the provider alone from the first byte."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))


def _read_only(file: Path) -> sqlite3.Connection:
    """Opens a file of which nothing is changed, nor anything made beside it.

    SQLite keeps the newest commits of a file in use in ``FILE-wal``, and a reader of that needs
    ``FILE-shm``. Without the first the file is all there is. Where the second is missing, or cannot
    be used (on a read-only medium, of another user), a copy of file and log is read instead.
    """
    log, index = (file.with_name(file.name + end) for end in ("-wal", "-shm"))
    if not log.exists() or not log.stat().st_size:
        return _by_name(_uri(file, "immutable=1"))
    if index.exists():
        try:
            connection = _by_name(_uri(file, "mode=ro"))
            connection.execute("SELECT 1 FROM sqlite_master").close()
            return connection
        except sqlite3.OperationalError as error:
            if _busy(error):
                raise
    with tempfile.TemporaryDirectory(prefix="pinq-ledger-") as folder:
        copy = Path(folder) / "copy"
        shutil.copyfile(file, copy)
        shutil.copyfile(log, copy.with_name("copy-wal"))
        held = _by_name(":memory:")
        with closing(_by_name(_uri(copy, "mode=rw"))) as copied:
            copied.backup(held)
        return held


def _uri(file: Path, how: str) -> str:
    return f"file:{quote(str(file))}?{how}"


def _by_name(name: str) -> sqlite3.Connection:
    return sqlite3.connect(name, timeout=0, check_same_thread=False, isolation_level=None, uri=name.startswith("file:"))
