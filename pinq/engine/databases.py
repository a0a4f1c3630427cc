# SPDX-License-Identifier: Apache-2.0
"""Databases in memory that read and compute: one for all that is small, others for what is large.

To start a database takes some 15 ms of a core, more than to encode a small table. So whatever is
small shares one, which lives as long as the process. A connection to it sees no other's settings,
views, types, macros and tables: all of these are temporary, and gone when it closes. The database has
no thread of its own, so a process may fork beside it; it keeps nothing of the files that it reads,
and writes none.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import duckdb

__all__ = ["SMALL_BYTES", "SMALL_ROWS", "small_database"]

# What is larger gets threads, and perhaps disk, in a database of its own.
SMALL_BYTES, SMALL_ROWS = 2**22, 2**16
_ALONE: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "async_threads": 0,
    "enable_external_file_cache": False,
    "preserve_insertion_order": False,
    "temp_directory": "",
}


class _Shared:
    """The database of this process, made when it is first needed."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._database: duckdb.DuckDBPyConnection | None = None

    def connected(self) -> duckdb.DuckDBPyConnection:
        """Connects once more."""
        with self._guard:
            if self._database is None:
                self._database = duckdb.connect(config=_ALONE)
            return self._database.cursor()

    def close(self) -> None:
        """Ends the database once nobody is connected; the next connection starts another one."""
        # DuckDB would close everybody's connections with its first one, or fail where one is at work:
        # so that one is let go, and the last of the others ends the database.
        with self._guard:
            self._database = None


_shared = _Shared()
_inherited: list[_Shared] = []


def _leave_to_parent() -> None:
    """Starts anew in a forked process: another thread may have been at work in the parent's."""
    global _shared
    _inherited.append(_shared)
    _shared = _Shared()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
atexit.register(lambda: _shared.close())


@contextmanager
def small_database() -> Iterator[duckdb.DuckDBPyConnection]:
    """Connects to the database that all small work shares; what it makes must be temporary."""
    shared = _shared
    with closing(shared.connected()) as connection:
        try:
            yield connection
        except (duckdb.FatalException, duckdb.InternalException):  # after one it may answer nobody
            shared.close()
            raise
