# SPDX-License-Identifier: Apache-2.0
"""A ledger in PostgreSQL: durable at every commit, with a limit for every wait."""

from __future__ import annotations

import math
import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

from pinq.errors import LedgerError
from pinq.ledger.database import BUSY_SECONDS, ROWS_AT_A_TIME, SINCE, Database, EventRow, NoLedger, Row
from pinq.public.plugins import install_line

if TYPE_CHECKING:
    import psycopg


CONNECT_SECONDS = 10
STATEMENT_SECONDS = 300  # the first replay of millions of events stays below
IDLE_SECONDS = 300
LOOK_SECONDS = 0.25
WRITERS_LOCK = 7162390  # one writer at a time
# Two statements, because each sees the newest commits: a writer reads those of the writer before it.
BEGIN = f"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_advisory_xact_lock({WRITERS_LOCK}); "
_URL = re.compile(
    r"postgresql\+psycopg://(?:(?P<user>[^:/@]*)(?::(?P<password>[^@]*))?@)?"
    r"(?:\[(?P<ipv6>[^\]/?]+)\]|(?P<host>[^:/?]*))(?::(?P<port>\d*))?(?:/(?P<dbname>[^?]*))?(?:\?(?P<more>.*))?"
)


class PostgreSQL(Database):
    """A connection to a server: a charge goes to it and back twice.

    Only writers have transactions. A reader still finds one state: all events up to the last one that
    it knows, and events never change.

    Args:
        url: ``postgresql+psycopg://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE``.
        read_only: Whether nothing is changed.

    Raises:
        LedgerError: Another URL, or psycopg is not installed.
    """

    mark = "%s"

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        super().__init__(re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", url), url, read_only)
        if not url.startswith("postgresql+psycopg://"):
            raise LedgerError(f"The ledger {self.address} needs the driver psycopg: write postgresql+psycopg://...")
        try:
            import psycopg  # only a user of PostgreSQL has its driver
        except ImportError as error:
            raise LedgerError(
                f"The ledger {self.address} cannot be opened: {error}. Run: {install_line('postgresql')}"
            ) from None
        self._psycopg, self.errors = psycopg, (psycopg.Error,)
        self._patience: float = STATEMENT_SECONDS  # for the first replay
        self._events: list[EventRow] = []
        self._answers: list[tuple[int, str]] = []

    def connect(self, *, create: bool) -> None:
        self._connect()
        if not create and self._run("SELECT to_regclass('events')") == [(None,)]:
            raise NoLedger(f"There is no ledger {self.address}. `pinq grant` makes one.")

    def _connect(self) -> None:
        self.close()
        try:
            self._driver: psycopg.Connection[Row] = self._psycopg.connect(
                autocommit=True, prepare_threshold=None, **_parameters(self.url), **_settings(self.read_only)
            )
        except (UnicodeError, ValueError) as error:
            raise LedgerError(f"The ledger {self.address} cannot be opened: {error}.") from None
        self._cursor = self._psycopg.ClientCursor(self._driver)  # made once: a count has five statements
        # One thread watches each connection; a thread for each statement would double the statement's cost.
        opened, self._late = socket.socket(fileno=os.dup(self._driver.pgconn.socket)), [math.inf]
        threading.Thread(target=_watch, args=(self._driver, opened, self._late), daemon=True).start()
        self.hold(self._driver)
        ((fsync, commits),) = self._run("SELECT current_setting('fsync'), current_setting('synchronous_commit')")
        if fsync != "on":
            raise LedgerError(
                "The PostgreSQL server of the ledger runs with fsync=off: a crash would lose answers that were given. "
                "Set fsync=on."
            )
        # Set even where it is on: a reload of the server's settings could turn it off.
        self._run(f"SET synchronous_commit = {commits if commits == 'remote_apply' else 'on'}")

    def settle(self, *, whole_log: bool = False) -> None:
        self._patience = BUSY_SECONDS + CONNECT_SECONDS

    def begin(self, write: bool, after: int | None) -> Iterator[Row]:
        # A reader without events sends a statement too, which shows whether its connection works.
        statements = (BEGIN if write else "") + ("SELECT 1" if after is None else SINCE.format(after))
        self._events, self._answers = [], []
        late = time.monotonic() + self._patience
        try:
            rows = self._run(statements)
        except self._psycopg.Error:
            # The server may have closed a connection that was idle; one that hung is not asked again.
            if not self._driver.closed or time.monotonic() > late:
                raise
            self._connect()
            rows = self._run(statements)
        return iter(() if after is None else rows)

    def rollback(self) -> None:
        # A failed COMMIT says that it was a ROLLBACK.
        if not self._driver.closed and self._driver.info.transaction_status:
            self._run("ROLLBACK")

    def run(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        self._hand_over()
        return self._run(statement, values)

    def append(self, row: EventRow, answer: str | None) -> None:
        self._events.append(row)
        if answer is not None:
            self._answers.append((row.seq, answer))
        if len(self._events) >= ROWS_AT_A_TIME:
            self._hand_over()

    def probe(self) -> None:
        # No such row exists, and a read-only server refuses the statement.
        self.run("DELETE FROM answers WHERE seq < 0")

    def commit(self) -> None:
        self._hand_over(end="COMMIT")

    def _hand_over(self, end: str = "") -> None:
        """Sends all appended events in one message, with ``end`` as its last statement."""
        events, answers, self._events, self._answers = self._events, self._answers, [], []
        statements = [
            f"INSERT INTO {table} VALUES {', '.join(['(' + ', '.join(['%s'] * len(rows[0])) + ')'] * len(rows))}"
            for table, rows in (("events", events), ("answers", answers))
            if rows
        ]
        if statements or end:
            self._run("; ".join([*statements, end]), [*chain(*events), *chain(*answers)])

    def _run(self, statements: str, values: Sequence[object] = ()) -> list[Row]:
        """Runs statements that are sent together; returns the rows of the last one."""
        self._late[0] = time.monotonic() + self._patience
        try:
            self._cursor.execute(statements, values or None)
            while self._cursor.nextset():
                pass
            if statements.endswith("COMMIT") and self._cursor.statusmessage != "COMMIT":
                raise self._psycopg.OperationalError("the server did not commit")
            return [] if self._cursor.rownumber is None else self._cursor.fetchall()
        finally:
            self._late[0] = math.inf


def _parameters(url: str) -> dict[str, Any]:
    """The parameters of a URL, by psycopg's names; raises ``ValueError`` for an invalid URL."""
    read = _URL.fullmatch(url)
    if read is None:
        raise ValueError("its URL cannot be read; write postgresql+psycopg://user@host:port/database")
    parts = {name: unquote(part) for name, part in read.groupdict().items() if part and name != "more"}
    if "ipv6" in parts:
        parts["host"] = parts.pop("ipv6")
    return parts | {name: ",".join(values) for name, values in parse_qs(read["more"] or "").items()}


def _settings(read_only: bool) -> dict[str, Any]:
    """The settings of a connection, whose server limits each wait for a lock or a client."""
    settings = {
        "lock_timeout": f"{1000 * BUSY_SECONDS:.0f}ms",
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


def _watch(driver: psycopg.Connection[Row], opened: socket.socket, late: list[float]) -> None:
    """Shuts the socket of a connection whose statement is late; the driver then fails.

    A server that hangs does not enforce its timeouts.
    """
    with opened:
        while not driver.closed:
            time.sleep(LOOK_SECONDS)
            if time.monotonic() >= late[0]:
                with suppress(OSError):  # it is shut already
                    opened.shutdown(socket.SHUT_RDWR)
