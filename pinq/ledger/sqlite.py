# SPDX-License-Identifier: Apache-2.0
"""SQLite as the ledger uses it: durable at every commit, patient with other processes."""

from __future__ import annotations

import random
import sqlite3
import time

__all__ = ["BUSY_SECONDS", "busy", "prepare"]

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


def busy(error: Exception) -> bool:
    """Whether another process holds the file just now."""
    return "locked" in str(error) or "busy" in str(error)
