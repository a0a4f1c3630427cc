# SPDX-License-Identifier: Apache-2.0
"""SQLite as the ledger uses it: durable at every commit, patient with other processes."""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

__all__ = ["BUSY_SECONDS", "busy", "prepare", "read_only"]

BUSY_SECONDS = 30.0


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
