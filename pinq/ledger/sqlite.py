# SPDX-License-Identifier: Apache-2.0
"""SQLite as the ledger uses it: durable at every commit, patient with other processes."""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa

from pinq.ledger.direct import Direct
from pinq.ledger.tables import SINCE, EventRow

__all__ = ["BUSY_SECONDS", "DirectSQLite", "busy", "prepare", "read_only"]

BUSY_SECONDS = 30.0
INSERT_EVENT = f"INSERT INTO events VALUES ({', '.join('?' for _ in EventRow._fields)})"
INSERT_ANSWER = "INSERT INTO answers VALUES (?, ?)"


class DirectSQLite(Direct):
    """A kept connection to a file, or to a ledger in memory."""

    def __init__(self, connection: sa.Connection) -> None:
        super().__init__(connection)
        driver = connection.connection.dbapi_connection
        assert isinstance(driver, sqlite3.Connection)
        self._driver: sqlite3.Connection = driver
        self._rows: sqlite3.Cursor = driver.cursor()

    def begin(self, write: bool, seq: int) -> Iterator[EventRow]:
        """Waits while another process holds the file; readers find it locked too, after a crash."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._driver.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                self._rows = self._driver.execute(SINCE % seq)
                return map(EventRow._make, self._rows)
            except sqlite3.OperationalError as error:
                self.rollback()
                if not busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0.0001, 0.001))

    def insert(self, events: Sequence[EventRow], answers: Mapping[int, str]) -> None:
        if not self._driver.in_transaction:  # each row would be committed by itself
            raise sqlite3.OperationalError("the transaction had ended before its commit")
        self._driver.executemany(INSERT_EVENT, events)
        self._driver.executemany(INSERT_ANSWER, answers.items())

    def commit(self, events: Sequence[EventRow], answers: Mapping[int, str]) -> None:
        self.insert(events, answers)
        self._driver.commit()

    def probe(self) -> None:
        # A number of the file's first page that nobody reads. It must be another one each time, for
        # SQLite writes no page that stays the same.
        self._driver.execute(f"PRAGMA user_version = {time.time_ns() % 2**31}")

    def rollback(self) -> None:
        self._rows.close()  # rows that nobody fetched would hold on to the state that was read
        self._driver.rollback()


def prepare(connection: sqlite3.Connection, _: object) -> None:
    """Sets a new connection up: transactions begin where we say so, and a commit is on the disk."""
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=0"):
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                connection.execute(f"PRAGMA {pragma}").close()
                break
            except sqlite3.OperationalError as error:
                if not busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(random.uniform(0.0001, 0.005))


def read_only(file: Path) -> sqlite3.Connection:
    """Opens a file of which nothing is changed, nor anything made beside it.

    SQLite keeps the newest commits of a file in use in ``FILE-wal``, and who reads that needs
    ``FILE-shm``. Without the first the file is all there is. Where the second is missing, or cannot
    be used (on a read-only medium, of another user), a copy of file and log is read instead.
    """
    log, index = (file.with_name(file.name + end) for end in ("-wal", "-shm"))
    if not log.exists() or not log.stat().st_size:
        return _connect(file, "immutable=1")
    if index.exists():
        try:
            connection = _connect(file, "mode=ro")
            connection.execute("SELECT 1 FROM sqlite_master").close()
            return connection
        except sqlite3.OperationalError as error:
            if busy(error):
                raise
    with tempfile.TemporaryDirectory(prefix="pinq-ledger-") as folder:
        copy = Path(folder) / "copy"
        shutil.copyfile(file, copy)
        shutil.copyfile(log, copy.with_name("copy-wal"))
        held = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        with closing(_connect(copy, "mode=rw")) as copied:
            copied.backup(held)
        return held


def busy(error: Exception) -> bool:
    """Whether another process holds the file just now."""
    return "locked" in str(error) or "busy" in str(error)


def _connect(file: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(file))}?{how}", uri=True, check_same_thread=False, isolation_level=None)
