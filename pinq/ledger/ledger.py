# SPDX-License-Identifier: Apache-2.0
"""The durable record: an append-only, hash-chained log of events. Budgets are a replay of it; there is no other state.

Each event's hash covers the one before it, so an edit or a cut in the middle shows. A cut at the
end, or an older copy put in the place of a newer one, shows against the *head*, a small file beside
an SQLite ledger that names the last event.

A transaction first reads what other processes appended, so a charge costs O(size of the request +
news), never O(ledger). SQLite's own busy handler starves writers under load; ours tries again after
a random fraction of a millisecond.

Events: ``created``, ``policy``, ``grant``, ``extend``, ``terms``, ``token``, ``revoke``,
``charge``, ``answer``, ``refusal``, ``secure``; what they mean is in ``grants.py``.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from pinq.errors import BudgetExceeded, LedgerError, NotAllowed, NotAuthorised, PinqError, TooManyRequests
from pinq.ledger.composition import Demand
from pinq.ledger.grants import FREE, Book, Grant, Terms, dump_demand, meaning, now, refusal_body
from pinq.ledger.sqlite import BUSY_SECONDS, busy, prepare
from pinq.public.epsilon import show

__all__ = ["Event", "Ledger"]

IDLE_SECONDS = 300  # of a PostgreSQL transaction; the first replay of millions of events stays below

_metadata = sa.MetaData()
_events = sa.Table(
    "events",
    _metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("analyst", sa.Text, nullable=False),
    sa.Column("request", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("hash", sa.Text, nullable=False),
    sa.Index("events_request_kind", "analyst", "request", "kind"),
)
_answers = sa.Table(
    "answers",
    _metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("payload", sa.Text, nullable=False),
)
_insert_event, _insert_answer = _events.insert(), _answers.insert()
_news = sa.select(_events).where(_events.c.seq >= sa.bindparam("since")).order_by(_events.c.seq)
_by_request = sa.select(
    _events.c.kind, _events.c.seq, _events.c.body
).where(  # an id may have any number of refusals, which are not read
    _events.c.analyst == sa.bindparam("who"),
    _events.c.request == sa.bindparam("id"),
    _events.c.kind.in_(["charge", "answer"]),
)
_requests = (
    sa.select(_events)
    .where(_events.c.analyst == sa.bindparam("who"), _events.c.kind.in_(["charge", "refusal"]))
    .order_by(_events.c.seq)
)
_payload = sa.select(_answers.c.payload).where(_answers.c.seq == sa.bindparam("seq"))


@dataclass(frozen=True)
class Event:
    """One line of the log."""

    seq: int
    at: str
    kind: str
    analyst: str
    request: str
    body: dict[str, Any]
    hash: str


class Ledger:
    """The log of one dataset.

    Args:
        url: A file, or an SQLAlchemy URL of SQLite or PostgreSQL.
        dataset: Its name; a ledger belongs to one dataset.
        create: Make the ledger where there is none.

    Raises:
        LedgerError: Damaged, cut, rolled back, another dataset's, or out of reach.
    """

    def __init__(self, url: str | os.PathLike[str], dataset: str | None = None, *, create: bool = True) -> None:
        text = os.fspath(url)
        self.url = text if "://" in text else f"sqlite:///{os.path.abspath(text)}"
        self._file = (
            Path(self.url.removeprefix("sqlite:///"))
            if self.url.startswith("sqlite:///") and self.url != "sqlite:///:memory:"
            else None
        )
        memory = self.url in ("sqlite://", "sqlite:///:memory:")
        if self._file is not None and not create and not self._file.exists():
            raise LedgerError(f"There is no ledger {self._file}. `pinq grant` makes one.")
        self.dataset = dataset
        self._lock = threading.RLock()
        self._head: int | None = None
        self._pending: tuple[int, str, tuple[str, str, str, str, dict[str, Any]], Demand | None] | None = None
        self._process = os.getpid()
        self._sqlite = self.url.startswith("sqlite")
        try:
            options: dict[str, Any] = (
                {"poolclass": sa.StaticPool}
                if memory
                else {}
                if self._sqlite
                else {"isolation_level": "READ COMMITTED"}
            )
            if self._sqlite:
                options["connect_args"] = {"timeout": 0, "check_same_thread": False}
                if self._file is not None:
                    self._file.parent.mkdir(parents=True, exist_ok=True)
                    if not self._file.exists():  # readable by the provider alone, from the first byte
                        os.close(os.open(self._file, os.O_CREAT | os.O_WRONLY, 0o600))
            elif sa.make_url(self.url).get_driver_name().startswith("psycopg"):
                # Nobody waits for ever for a writer that hangs, and a connection that the server
                # closed is replaced.
                waits = f"-c lock_timeout={1000 * BUSY_SECONDS:.0f}ms -c idle_in_transaction_session_timeout={IDLE_SECONDS}s"
                options |= {"connect_args": {"options": waits}, "pool_pre_ping": True}
            self._engine = sa.create_engine(self.url, **options)
            # Whoever forgets close() leaves no open connection behind.
            self._closing = weakref.finalize(self, self._engine.dispose)
            if self._sqlite:
                sa.event.listen(self._engine, "connect", prepare)
            self._reset()
            with self._transaction() as connection:
                _metadata.create_all(connection)
                for index in _events.indexes:  # a ledger of an earlier release has another
                    index.create(connection, checkfirst=True)
                connection.execute(sa.text("DROP INDEX IF EXISTS events_request"))
                self._catch_up(connection)
                if self._seq == 0:
                    self._append(
                        connection,
                        "created",
                        "",
                        "",
                        {"version": 1, "dataset": dataset or "", "salt": secrets.token_hex(16)},
                    )
        except (sa.exc.SQLAlchemyError, OSError) as error:
            raise LedgerError(f"The ledger {self._shown()} cannot be opened: {_first_line(error)}.") from None
        self._check_head()
        if dataset is not None and self._book.dataset != dataset:
            raise LedgerError(
                f"The ledger {self._shown()} belongs to the dataset {self._book.dataset!r}, not to {dataset!r}. One table has one ledger, "
                f"whatever the policies over it are called: use `dataset: {self._book.dataset}`, or another ledger for other data."
            )

    # What the log says

    @property
    def salt(self) -> bytes:
        """Keys the coins of the dataset's rows; made once with the ledger."""
        return self._book.salt

    def grants(self) -> dict[str, Grant]:
        """Every analyst that was ever granted anything."""
        with self._lock, self._transaction(write=False) as connection:
            self._catch_up(connection)
            return dict(self._book.grants)

    def joint(self) -> tuple[int, int]:
        """Spent by all together (the recursion on the union of their trees), and the cap; nano-epsilons."""
        self.grants()
        return self._book.joint.spent, self._book.cap

    def grant_of(self, analyst: str) -> Grant:
        """A valid grant, else ``NotAuthorised``."""
        grant = self.grants().get(analyst)
        if grant is None or not grant.valid:
            raise NotAuthorised()
        return grant

    def events(self, after: tuple[int, str] = (0, "")) -> Iterator[Event]:
        """The log, oldest first; each event's place in the chain is verified.

        Args:
            after: Number and hash of an event that is known already: only what follows it.
        """
        known, chain = after
        with self._lock, self._transaction(write=False) as connection:
            rows = connection.execute(_news, {"since": known + 1}).fetchall()
        for number, row in enumerate(rows, start=known + 1):
            chain = self._verified(row, number, chain)
            yield Event(row.seq, row.at, row.kind, row.analyst, row.request, json.loads(row.body), row.hash)

    def requests_of(self, analyst: str) -> list[Event]:
        """An analyst's charges and refusals, oldest first. Costs what the analyst asked, not what all did."""
        with self._lock, self._transaction(write=False) as connection:
            rows = connection.execute(_requests, {"who": analyst}).fetchall()
        return [
            Event(row.seq, row.at, row.kind, row.analyst, row.request, json.loads(row.body), row.hash) for row in rows
        ]

    def answer_of(self, analyst: str, request: str) -> tuple[Event | None, str | None]:
        """The charge of a request id and its answer, each None where there is none."""
        with self._lock, self._transaction(write=False) as connection:
            return self._known(connection, analyst, request)

    def payloads(self, analyst: str, requests: Collection[str] | None = None) -> dict[str, str]:
        """An analyst's answers, by request id: all, or those of some thousands of ids."""
        joined = (
            sa.select(_events.c.request, _answers.c.payload)
            .join(_answers, _answers.c.seq == _events.c.seq)
            .where(_events.c.analyst == analyst)
        )
        if requests is not None:
            joined = joined.where(_events.c.request.in_(requests))
        with self._lock, self._transaction(write=False) as connection:
            return {row.request: row.payload for row in connection.execute(joined)}

    def verify(self) -> int:
        """Replays the whole log from scratch; returns the number of events. ``LedgerError`` where the chain does not hold."""
        with self._lock:
            self._reset()
            with self._transaction(write=False) as connection:
                self._catch_up(connection)
                stored = {row.seq: row.payload for row in connection.execute(sa.select(_answers))}
            for event in self.events():
                if event.kind == "answer" and _digest(stored.get(event.seq, "")) != event.body["payload"]:
                    raise LedgerError(
                        f"The ledger {self._shown()} is damaged: the answer of event {event.seq} is not the one that was logged."
                    )
            self._check_head()
            return self._seq

    # What changes it

    def declare(self, digest: str, cap: int, schema: dict[str, Any], *, may_raise: bool = True) -> None:
        """Logs the policy when it differs from the last one logged. A lower cap counts at once, a higher one if ``may_raise``.

        A changed schema gives every partition of a changed column a new identity, so it can never
        make an old charge cheaper. What epsilon *means* (adjacency, privacy unit) cannot change
        once there are grants: spent and asked would be of different kinds.

        Args:
            digest: Identifies the schema.
            cap: nano-epsilons.
            schema: What the log keeps of it, defaults left out.
            may_raise: Whether this is the provider's own act.

        Raises:
            LedgerError: Another adjacency or privacy unit than the one under which budgets were
                granted.
        """
        means = meaning(schema)
        with self._lock:
            self.grants()
            with self._transaction(write=self._book.policy != (digest, cap)) as connection:
                self._catch_up(connection)
                book = self._book
                if book.grants and book.meaning != means:
                    raise LedgerError(
                        f"The ledger {self._shown()} holds budgets for adjacency and privacy unit {book.meaning}; the policy now says {means}, and an epsilon of one "
                        "is not an epsilon of the other. Keep them, or start over with another ledger and another table."
                    )
                cap = cap if may_raise or book.policy is None else min(cap, book.cap)
                if book.policy != (digest, cap):
                    self._append(connection, "policy", "", "", {"digest": digest, "cap": cap, "schema": schema})
            self._write_head()

    def grant(
        self, analyst: str, limit: int, expires: datetime | None = None, *, terms: Terms = FREE, token: str = ""
    ) -> Grant:
        """Grants a budget to a new analyst. ``LedgerError`` when there is a grant already: extend that.

        Args:
            analyst: Who.
            limit: nano-epsilons.
            expires: None for never.
            terms: What it allows.
            token: Digest of the bearer token (``tokens.digest``), empty for none.
        """

        def check() -> None:
            known = self._book.grants.get(analyst)
            if known is not None and not known.revoked:
                raise LedgerError(
                    f"{analyst!r} already has a grant of epsilon {show(known.limit)}. Use `pinq extend` to raise it."
                )

        body = {
            "limit": limit,
            "expires": expires.isoformat() if expires else None,
            **terms.to_body(),
            **({"token": token} if token else {}),
        }
        return self._change(check, "grant", analyst, body)

    def extend(self, analyst: str, more: int | None = None, expires: datetime | None = None) -> Grant:
        """Raises a grant's limit by ``more`` and, where given, moves its expiry."""
        return self._change(
            lambda: self._require(analyst),
            "extend",
            analyst,
            {"more": more or 0, "expires": expires.isoformat() if expires else None},
        )

    def set_terms(self, analyst: str, terms: Terms) -> Grant:
        """Puts other terms in the place of a grant's."""
        return self._change(lambda: self._require(analyst), "terms", analyst, terms.to_body())

    def set_token(self, analyst: str, token: str) -> Grant:
        """Puts another token (its digest) in the place of a grant's; the old one ends at once."""
        return self._change(lambda: self._require(analyst), "token", analyst, {"token": token})

    def revoke(self, analyst: str) -> None:
        """Ends a grant at once. What it spent stays spent, also for a later grant of the same name."""
        self._change(lambda: self._require(analyst), "revoke", analyst, {})

    def charge(
        self,
        analyst: str,
        request: str,
        demand: Demand,
        epsilon: int,
        body: dict[str, Any],
        *,
        columns: Collection[str] = (),
        reuse: bool = False,
    ) -> tuple[Event | None, str | None]:
        """Charges a request, in one transaction, before anything is read.

        Args:
            analyst: Who asks.
            request: Its id, chosen by the asker.
            demand: Which parts are asked.
            epsilon: What each of them is asked at, nano-epsilons.
            body: What the log keeps of the request: ``verb``, ``question`` and more.
            columns: Which columns it names, for the grant's terms.
            reuse: Whether an earlier charge for the same ``question`` will do.

        Returns:
            ``(None, None)`` when charged now; for a request (or with ``reuse`` a question) that was
            charged before, that charge and its answer (None if it was never given).

        Raises:
            NotAuthorised: No valid grant.
            NotAllowed, TooManyRequests: The grant's terms forbid it.
            BudgetExceeded: More than the grant or the cap leaves. Each refusal is logged and spends
                nothing.
        """
        refused: PinqError | None = None
        with self._lock:
            with self._transaction() as connection:
                self._catch_up(connection)
                grant = self._book.grants.get(analyst)
                try:
                    if grant is None or not grant.valid:
                        raise NotAuthorised()
                    known = self._known(
                        connection, analyst, (self._book.asked(analyst, body["question"]) if reuse else None) or request
                    )
                    if known[0] is not None:
                        return known
                    self._book.require(grant, body.get("verb", ""), columns, demand, epsilon)
                    self._append(
                        connection,
                        "charge",
                        analyst,
                        request,
                        {"epsilon": epsilon, "demand": dump_demand(demand), **body},
                        demand,
                    )
                except (NotAuthorised, NotAllowed, TooManyRequests, BudgetExceeded) as error:
                    refused = error
                    about = {} if isinstance(error, NotAuthorised) else body
                    self._append(connection, "refusal", analyst, request, refusal_body(error) | about)
            self._write_head()
        if refused is not None:
            raise refused
        return None, None

    def answer(self, analyst: str, request: str, payload: str) -> str:
        """Persists the answer of a charged request before it is sent. The first one stays: returns the answer to send."""
        with self._lock:
            with self._transaction() as connection:
                self._catch_up(connection)
                _, given = self._known(connection, analyst, request)
                if given is not None:
                    return given
                seq = self._append(connection, "answer", analyst, request, {"payload": _digest(payload)})
                connection.execute(_insert_answer, {"seq": seq, "payload": payload})
            self._write_head()
        return payload

    def log_session(self, analyst: str, request: str, body: dict[str, Any]) -> None:
        """Logs a computation among several parties: an exact one before anything is shared, a charged one when it came to its end."""
        with self._lock:
            with self._transaction() as connection:
                self._catch_up(connection)
                self._append(connection, "secure", analyst, request, body)
            self._write_head()

    def authorise(self, analyst: str) -> Grant:
        """A valid grant, else ``NotAuthorised``, and the refusal is logged."""
        try:
            return self.grant_of(analyst)
        except NotAuthorised as error:
            self._change(lambda: None, "refusal", analyst, {"reason": error.code, "about": "open"})
            raise

    def price(
        self, analyst: str, demand: Demand, epsilon: int, *, verb: str = "", columns: Collection[str] = ()
    ) -> tuple[int, int]:
        """What a request would cost now, and what it would leave (of the grant, of the cap, whichever is less); nano-epsilons, below 0 where refused.

        ``NotAllowed`` where the grant's terms forbid it.
        """
        with self._lock:
            grant, book = self.grant_of(analyst), self._book
            grant.terms.require(verb, columns, epsilon)
            price = grant.costs.price(demand, epsilon)
            left = min(
                grant.limit - grant.spent - price, book.cap - book.joint.spent - book.joint.price(demand, epsilon)
            )
        return price, left

    def close(self) -> None:
        """Closes the connections."""
        self._closing()
        if self._head is not None:
            os.close(self._head)
            self._head = None

    def __repr__(self) -> str:
        return f"Ledger({self._shown()}, dataset {self._book.dataset!r}, {self._seq} events)"

    # The machine

    def _reset(self) -> None:
        self._seq, self._hash = 0, ""
        self._book = Book()

    def _change(self, check: Callable[[], None], kind: str, analyst: str, body: dict[str, Any]) -> Any:
        """Appends one event, if ``check`` lets it; returns the analyst's grant as it then is."""
        with self._lock:
            with self._transaction() as connection:
                self._catch_up(connection)
                check()
                self._append(connection, kind, analyst, "", body)
            self._write_head()
            return self._book.grants.get(analyst)

    def _require(self, analyst: str) -> None:
        grants = self._book.grants
        if analyst not in grants or grants[analyst].revoked:
            known = ", ".join(name for name, grant in grants.items() if not grant.revoked) or "nobody"
            raise LedgerError(f"{analyst!r} has no grant; {known} has. Use `pinq grant` first.")

    def _known(self, connection: sa.Connection, analyst: str, request: str) -> tuple[Event | None, str | None]:
        charge, payload = None, None
        for row in connection.execute(_by_request, {"who": analyst, "id": request}):
            if row.kind == "charge":
                charge = Event(row.seq, "", row.kind, analyst, request, json.loads(row.body), "")
            elif row.kind == "answer":
                payload = connection.execute(_payload, {"seq": row.seq}).scalar_one()
                if _digest(payload) != json.loads(row.body)["payload"]:
                    raise LedgerError(
                        f"The ledger {self._shown()} is damaged: the answer of event {row.seq} is not the one that was logged."
                    )
        return charge, payload

    def _catch_up(self, connection: sa.Connection) -> None:
        """Applies events that this process has not seen, verifying the chain."""
        rows = iter(connection.execute(_news, {"since": max(1, self._seq)}))
        if self._seq:  # the last event that this process knows must still be there
            known = next(rows, None)
            if known is None or (known.seq, known.hash) != (self._seq, self._hash):
                raise LedgerError(self._cut(self._seq))
        for row in rows:
            self._hash = self._verified(row, self._seq + 1, self._hash)
            self._seq = row.seq
            self._book.apply(row.at, row.kind, row.analyst, row.request, json.loads(row.body))

    def _verified(self, row: Any, number: int, chain: str) -> str:
        if row.seq != number or row.hash != _chain(
            chain, row.seq, row.at, row.kind, row.analyst, row.request, row.body
        ):
            raise LedgerError(
                f"The ledger {self._shown()} is damaged at event {number}: it was edited or cut. The dataset stays closed; restore the ledger "
                "from a backup, or start a new one and accept that what was spent before no longer counts."
            )
        return str(row.hash)

    def _append(
        self,
        connection: sa.Connection,
        kind: str,
        analyst: str,
        request: str,
        body: dict[str, Any],
        demand: Demand | None = None,
    ) -> int:
        seq, at, text = (
            self._seq + 1,
            now().isoformat(timespec="milliseconds"),
            json.dumps(body, separators=(",", ":"), ensure_ascii=False),
        )
        chained = _chain(self._hash, seq, at, kind, analyst, request, text)
        connection.execute(
            _insert_event,
            {"seq": seq, "at": at, "kind": kind, "analyst": analyst, "request": request, "body": text, "hash": chained},
        )
        self._pending = seq, chained, (at, kind, analyst, request, body), demand
        return seq

    @contextmanager
    def _transaction(self, write: bool = True) -> Iterator[sa.Connection]:
        """One transaction, of at most one new event; it counts only once it is committed."""
        if os.getpid() != self._process:
            raise LedgerError(
                "This ledger was opened in another process; connections do not survive a fork. Open it again here."
            )
        self._pending = None
        try:
            with self._engine.connect() as connection:
                self._begin(connection, write)
                yield connection
                if write:
                    connection.commit()
        except sa.exc.SQLAlchemyError as error:
            raise LedgerError(
                f"The ledger {self._shown()} cannot be used: {_first_line(error)}. What was spent is in the log."
            ) from None
        if self._pending is not None:
            self._seq, self._hash, event, demand = self._pending
            self._book.apply(*event, demand)

    def _begin(self, connection: sa.Connection, write: bool) -> None:
        if not self._sqlite:
            if write:  # One writer at a time; what it reads next is what the one before committed.
                connection.execute(sa.text("SELECT pg_advisory_xact_lock(7162390)"))
            return
        if not write and self._file is None:
            return
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
                if not write:  # Readers see one state throughout. They can find it locked too, while another process mends it after a crash.
                    connection.exec_driver_sql("SELECT 1 FROM sqlite_master").close()
                return
            except sa.exc.OperationalError as error:
                if not busy(error) or time.monotonic() > deadline:
                    raise
                connection.rollback()
                time.sleep(random.uniform(0.0001, 0.001))

    def _write_head(self) -> None:
        """Names the last event beside the ledger. After the commit, so it may lag behind but never run ahead."""
        if self._file is None:
            return
        try:
            if self._head is None:
                self._head = os.open(self._file.with_name(self._file.name + ".head"), os.O_CREAT | os.O_WRONLY, 0o600)
            os.pwrite(self._head, f"{self._seq:020d} {self._hash}\n".encode(), 0)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise LedgerError(
                f"The ledger {self._shown()} cannot be used: {self._file.name}.head cannot be written ({why}). What was spent is in the log."
            ) from None

    def _check_head(self) -> None:
        if self._file is None:
            return
        try:
            text = self._file.with_name(self._file.name + ".head").read_text()
        except FileNotFoundError:
            return
        if not text:  # a process was killed between making the file and writing its first line
            return
        try:
            number, chained = text.split()
            seq = int(number)
        except ValueError:
            seq, chained = 0, ""
        with self._lock, self._transaction(write=False) as connection:
            self._catch_up(connection)
            row = connection.execute(sa.select(_events.c.hash).where(_events.c.seq == seq)).scalar()
        if row != chained:
            raise LedgerError(
                self._cut(int(seq))
                + f" Or delete {self._file.name}.head and accept that what was spent since no longer counts."
            )

    def _cut(self, seq: int) -> str:
        return f"The ledger {self._shown()} was cut or rolled back: event {seq}, which was committed, is not in it. The dataset stays closed; restore the ledger."

    def _shown(self) -> str:
        return str(self._file) if self._file is not None else sa.make_url(self.url).render_as_string(hide_password=True)


def _chain(before: str, seq: int, at: str, kind: str, analyst: str, request: str, body: str) -> str:
    text = json.dumps([before, seq, at, kind, analyst, request, body], separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _digest(payload: str) -> str:
    return hashlib.sha256(payload.encode()).hexdigest()


def _first_line(error: BaseException) -> str:
    return str(getattr(error, "orig", None) or error).splitlines()[0]
