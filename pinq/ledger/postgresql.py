# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL as the ledger uses it: durable at every commit, and waited for only so long."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import chain
from typing import TYPE_CHECKING

import sqlalchemy as sa

from pinq.errors import LedgerError
from pinq.ledger.direct import Direct
from pinq.ledger.tables import SINCE, EventRow

if TYPE_CHECKING:
    import psycopg

__all__ = ["STATEMENT_SECONDS", "WRITERS_LOCK", "DirectPostgreSQL", "options", "prepare", "watched"]

CONNECT_SECONDS = 10
STATEMENT_SECONDS = 300  # the first replay of millions of events stays below
IDLE_SECONDS = 300
LOOK_SECONDS = 0.25
WRITERS_LOCK = 7162390  # one writer at a time
ROWS_AT_A_TIME = 1000
# Two statements, so that a writer reads what the writer before it committed: each looks anew.
BEGIN = f"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({WRITERS_LOCK}); "
ROW = f"({', '.join('%s' for _ in EventRow._fields)})"


class DirectPostgreSQL(Direct):
    """A kept connection to a PostgreSQL server: a charge goes to it and back twice.

    It has no transaction but those of writers. What a reader finds is one state anyway: the events up
    to the last that it knows, of which none ever changes.
    """

    def __init__(self, connection: sa.Connection) -> None:
        super().__init__(connection.execution_options(isolation_level="AUTOCOMMIT"))
        self._driver = _driver(connection)

    def watched(self, seconds: float) -> AbstractContextManager[None]:
        return _WATCH.over(self._driver.pgconn.socket, seconds)

    @property
    def is_lost(self) -> bool:
        return self._driver.closed

    def begin(self, write: bool, seq: int) -> Iterator[EventRow]:
        return map(EventRow._make, self._run((BEGIN if write else "") + SINCE % seq))

    def insert(self, events: Sequence[EventRow], answers: Mapping[int, str]) -> None:
        for first in range(0, len(events), ROWS_AT_A_TIME):
            self._insert(events[first : first + ROWS_AT_A_TIME], {})
        self._insert([], answers)

    def commit(self, events: Sequence[EventRow], answers: Mapping[int, str]) -> None:
        if len(events) > ROWS_AT_A_TIME:
            self.insert(events, answers)
            events, answers = [], {}
        self._insert(events, answers, end="COMMIT")

    def probe(self) -> None:
        self._run("DELETE FROM answers WHERE seq < 0")  # there is none; a server that is read-only refuses it

    def rollback(self) -> None:
        if self._driver.info.transaction_status:  # a failed COMMIT says that it was a ROLLBACK
            self._run("ROLLBACK")

    def _insert(self, events: Sequence[EventRow], answers: Mapping[int, str], end: str = "") -> None:
        """Adds some in one message, which may end with a statement more."""
        statements = [f"INSERT INTO events VALUES {', '.join([ROW] * len(events))}"] if events else []
        if answers:
            statements.append(f"INSERT INTO answers VALUES {', '.join(['(%s, %s)'] * len(answers))}")
        if statements or end:
            self._run("; ".join([*statements, end]), [*chain(*events), *chain(*answers.items())])

    def _run(self, statements: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Runs statements that are sent together; returns the rows of the last one."""
        import psycopg  # only who uses PostgreSQL has its driver

        with psycopg.ClientCursor(self._driver) as cursor:
            cursor.execute(statements, values or None)
            while cursor.nextset():
                pass
            if statements.endswith("COMMIT") and cursor.statusmessage != "COMMIT":
                raise psycopg.OperationalError("the server did not commit")
            return cursor.fetchall() if cursor.description else []


def _driver(connection: sa.Connection) -> psycopg.Connection[tuple[object, ...]]:
    """The driver's own connection."""
    import psycopg

    driver = connection.connection.dbapi_connection
    driver = getattr(driver, "driver_connection", driver)
    assert isinstance(driver, psycopg.Connection)
    return driver


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
    # Set even where it is on, for else a reload of the server's settings would turn it off meanwhile.
    cursor.execute(f"SET synchronous_commit = {commits if commits == 'remote_apply' else 'on'}")
    cursor.close()
    connection.commit()


@contextmanager
def watched(connection: sa.Connection, seconds: float) -> Iterator[None]:
    """Ends what is inside after so long, for a server that hangs keeps to no timeout of its own.

    The socket is shut, and the driver then fails.
    """
    with _WATCH.over(_driver(connection).pgconn.socket, seconds):
        yield


class _Watch:
    """Looks after all connections by one thread; one for each transaction costs too much."""

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """Begins anew, also in a process that was forked: the sockets are its parent's."""
        self._lock, self._runs = threading.Lock(), False
        self._ends: dict[object, tuple[float, int]] = {}

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
                self._ends.pop(key, None)

    def _start(self) -> None:
        """Starts the thread, once in each process."""
        if not self._runs:
            self._runs = True
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
