# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL as the ledger uses it: durable at every commit, and waited for only so long."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, runtime_checkable

import sqlalchemy as sa

from pinq.errors import LedgerError

__all__ = ["STATEMENT_SECONDS", "options", "prepare", "watched"]

CONNECT_SECONDS = 10
STATEMENT_SECONDS = 300  # the first replay of millions of events stays below
IDLE_SECONDS = 300
LOOK_SECONDS = 0.25


class _Wire(Protocol):
    """A driver's handle of a connection."""

    @property
    def socket(self) -> int:
        """Its file descriptor."""
        ...


@runtime_checkable
class _Connection(Protocol):
    """A connection of psycopg."""

    @property
    def pgconn(self) -> _Wire:
        """The driver's handle."""
        ...


def options(lock_seconds: float, *, read_only: bool) -> dict[str, object]:
    """What a connection is made with: its server ends each wait for a lock or a client."""
    settings = {
        "lock_timeout": f"{1000 * lock_seconds:.0f}ms",
        "statement_timeout": f"{STATEMENT_SECONDS}s",
        "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",
        "default_transaction_read_only": "on" if read_only else "off",
    }
    return {
        "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 1000 * CONNECT_SECONDS,
    }


def prepare(connection: sa.engine.interfaces.DBAPIConnection, _: object) -> None:
    """Sets a new connection up: a commit returns once it is on the disk.

    ``LedgerError`` where the server puts nothing on the disk.
    """
    cursor = connection.cursor()
    cursor.execute("SELECT current_setting('fsync'), current_setting('synchronous_commit')")
    fsync, commits = next(iter(cursor.fetchall()))
    if fsync != "on":
        raise LedgerError(
            "The PostgreSQL server of the ledger runs with fsync=off: a crash would lose answers that were given. "
            "Set fsync=on."
        )
    if commits not in ("on", "remote_apply"):
        cursor.execute("SET synchronous_commit = on")
    cursor.close()
    connection.commit()


@contextmanager
def watched(connection: sa.Connection, seconds: float) -> Iterator[None]:
    """Ends what is inside after so long, for a server that hangs keeps to no timeout of its own.

    The socket is shut, and the driver then fails.
    """
    driver = connection.connection.dbapi_connection
    if not isinstance(driver, _Connection):  # another driver than psycopg
        yield
        return
    with _WATCH.over(driver.pgconn.socket, seconds):
        yield


class _Watch:
    """Looks after all connections by one thread; one for each transaction costs too much."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: dict[object, tuple[float, int]] = {}
        self._process = 0

    @contextmanager
    def over(self, descriptor: int, seconds: float) -> Iterator[None]:
        """Shuts a socket unless what is inside ends in time."""
        key = object()
        with self._lock:
            self._ends[key] = (time.monotonic() + seconds, descriptor)
            self._start()
        try:
            yield
        finally:
            with self._lock:  # so that the socket that is shut is still this one
                del self._ends[key]

    def _start(self) -> None:
        """Starts the thread, anew in a process that was forked."""
        if self._process != os.getpid():
            self._process = os.getpid()
            threading.Thread(target=self._look, name="pinq-postgresql", daemon=True).start()

    def _look(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            with self._lock:
                for end, descriptor in self._ends.values():
                    if time.monotonic() >= end:
                        _shut(descriptor)


_WATCH = _Watch()


def _shut(descriptor: int) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as opened:
        opened.shutdown(socket.SHUT_RDWR)
