# SPDX-License-Identifier: Apache-2.0
"""An append-only, hash-chained log of events, and the state that follows from it.

Each event's hash covers the one before it, so an edit or a cut in the middle shows. A cut at the
end, or an older copy put in the place of a newer one, shows against a *head* (``head.py``).

A transaction first reads what other processes appended, so a charge costs O(size of the request +
news), never O(ledger).
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa

from pinq.errors import LedgerError
from pinq.ledger.body import digest_of
from pinq.ledger.checkpoint import read as read_checkpoint
from pinq.ledger.checkpoint import write as write_checkpoint
from pinq.ledger.events import Event, Record, UnknownEvent, body_of, read
from pinq.ledger.head import Head
from pinq.ledger.requests import Answered, Charged, LoggedQuestion
from pinq.ledger.signature import Signature
from pinq.ledger.state import LedgerState
from pinq.ledger.store import Store
from pinq.ledger.tables import EventRow
from pinq.ledger.terms import now
from pinq.ledger.writing import Job, T, Writing

__all__ = ["Earlier", "GivenAnswer", "Log", "Writing"]

R = TypeVar("R", bound=Record)
HELD_SECONDS = 60.0
CHECKPOINT_EVENTS = 1000
CHECKPOINT_SHARE = 32


class Earlier(NamedTuple):
    """A charge that was made before: its request's id, and what was asked."""

    request: str
    question: LoggedQuestion


class GivenAnswer(NamedTuple):
    """An answer: when it was given, and its text."""

    at: str
    payload: str


class Log:
    """The events of one ledger.

    Args:
        store: Where they are kept.

    Attributes:
        state: What the events so far say.
        seq: How many there are, as far as this process knows.

    Raises:
        LedgerError: Damaged, cut, rolled back, or written by a version that knows more kinds of
            events.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lock, self._queue = threading.RLock(), threading.Lock()
        self._jobs: list[Job[Any]] = []
        self._led, self._kept = False, 0
        self._heads = [] if store.head is None else [store.head]
        self._reset()

    def run(self, work: Callable[[Writing], T], *, write: bool = False) -> T:
        """Does work in a transaction that it may share: what waits together, commits together.

        Whoever comes first does the work of all who wait by then, in the order in which they came,
        readers first, and commits once; the others find theirs done. So many charges cost one
        commit, and nobody gets a result that is not on the disk.
        """
        self.store.require_process()
        job = Job(work, write)
        with self._queue:
            self._jobs.append(job)
            first, self._led = not self._led, True
        # Ana, bob and eve come at once. Ana is first: she takes all that waits, does it in one
        # transaction, commits, and wakes bob and eve, whose work is done. Had eve come during the
        # commit, ana would wake her to go on with what waits by then.
        if first:
            self._work_off()
        else:
            job.wait(self._work_off)
        return job.outcome()

    def _work_off(self) -> None:
        """Does what waits, and lets the first of those who came meanwhile go on."""
        jobs: list[Job[Any]] = []
        try:
            with self._held():
                jobs = self._taken()
                with self.transaction(write=jobs[-1].write) as writing:
                    for job in jobs:
                        job.run(writing)
        except BaseException as error:
            jobs = jobs or self._taken()
            known = error if isinstance(error, Exception) else self.store.unusable("it was interrupted")
            for job in jobs:
                job.fail(known)
            if known is not error:
                raise
        finally:
            with self._queue:
                following, self._led = self._jobs[:1], bool(self._jobs)
            for job in jobs:
                job.done = True
            for job in [*jobs, *following]:
                job.turn.put(None)

    def _taken(self) -> list[Job[Any]]:
        """Takes all that waits, readers first."""
        with self._queue:
            jobs, self._jobs = self._jobs, []
        return sorted(jobs, key=lambda job: job.write)

    @contextmanager
    def transaction(self, write: bool = True) -> Iterator[Writing]:
        """One transaction, up to date from its start.

        What is appended is applied at once, for what is appended next; where the commit fails, the
        log is read again from its start.
        """
        with self._held():
            writing = None
            try:
                with self.store.direct(write, max(1, self.seq)) as (direct, rows):
                    self._catch_up(rows)
                    writing = Writing(self, direct)
                    yield writing
                    if write:
                        writing.commit()
                if write:
                    self._write_heads()
            except BaseException:
                if writing is not None and writing.appended:
                    self._reset()
                raise
            if write:
                self.store.failure = ""
            if writing.appended:
                self.keep_checkpoint()

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Holds the log, after waiting for those who have it, but not for ever."""
        if not self._lock.acquire(timeout=HELD_SECONDS):
            raise self.store.unusable("it does not answer, and others wait for it already")
        try:
            yield
        finally:
            self._lock.release()

    def events(self, after: tuple[int, str] = (0, "")) -> Iterator[Event]:
        """The log, oldest first; each event's place in the chain is verified.

        Args:
            after: Number and hash of an event that is known already: only what follows it.
        """
        seq, chain = after
        with self.transaction(write=False) as reading:
            rows = list(self.store.since(reading.connection, seq + 1))
        for number, row in enumerate(rows, start=seq + 1):
            event = self._verified(row, number, chain)
            chain = event.hash
            yield event

    def look(self) -> None:
        """Reads the log from its last checkpoint on: for who only looks."""
        kept = self.store.checkpoint()
        state = None if kept is None else read_checkpoint(kept)
        if kept is not None and state is not None:
            self.seq, self._hash, self.state = kept.seq, kept.hash, state
        with self.transaction(write=False):
            pass

    def keep_checkpoint(self) -> None:
        """Writes the fold down where many events came since the last one; it may fail silently."""
        # Every thousand events, and from 32,000 on every 32nd part of the log: at event 320,000
        # when 10,000 came since. So what is written stays in proportion to what is logged.
        if self.seq - self._kept < max(CHECKPOINT_EVENTS, self.seq // CHECKPOINT_SHARE):
            return
        with self._held(), suppress(LedgerError):
            self._kept = self._kept or self.store.checkpointed()  # perhaps by another process
            if self.seq - self._kept < CHECKPOINT_EVENTS:
                return
            self._kept = self.seq
            self.store.keep(write_checkpoint(self.state, self.seq, self._hash))

    def replay(self) -> None:
        """Forgets what is known and reads the whole log again."""
        with self._lock:
            self._reset()
            with self.transaction(write=False):
                pass

    def check_head(self) -> None:
        """``LedgerError`` where an event that a head names is not in the log."""
        for head in self._heads:
            named = head.read()
            if named is None:
                continue
            with self.transaction(write=False) as reading:
                row = next(self.store.since(reading.connection, named[0]), None)
            if row is not None and (row.seq, row.hash) == named:
                continue
            if head is self.store.head and 0 < self.seq < named[0] and self.store.is_copy():
                raise LedgerError(
                    f"The ledger {self.store} is an incomplete copy: it ends at event {self.seq}, and its head names "
                    f"event {named[0]}. The newest events of a ledger in use are in the file beside it that ends in "
                    "-wal. Copy it with `pinq backup`."
                )
            or_else = f"Or delete {head.file} and accept that what was spent since no longer counts."
            raise LedgerError(f"{self._cut(named[0])} {or_else}")

    def keep_head(self, folder: Path) -> None:
        """Keeps another head of this log, in a folder that outlives what is beside the log."""
        self._heads.append(self._head_in(folder))
        self.check_head()
        self._write_heads()

    def seal(self, folder: Path | None) -> None:
        """Lets every head, also one in a folder, name the last event, whatever it named before."""
        if folder is not None:
            self._heads.append(self._head_in(folder))
        self._write_heads()

    @property
    def last(self) -> str:
        """The hash of the last event."""
        return self._hash

    def _head_in(self, folder: Path) -> Head:
        with self.transaction(write=False) as reading:
            return Head(folder / f"{next(self.store.since(reading.connection, 1)).hash}.head")

    def close(self) -> None:
        """Closes heads and connections, after whoever is in a transaction."""
        with self._held():
            for head in self._heads:
                head.close()
            self.store.close()

    def _write_heads(self) -> None:
        for head in self._heads:
            try:
                head.write(self.seq, self._hash)
            except OSError as error:
                why = error.strerror or type(error).__name__
                raise self.store.unusable(f"{head.file.name} cannot be written ({why})") from None

    def charge_of(
        self, reading: Writing, analyst: str, request: str, question: str | None = None
    ) -> tuple[Earlier | None, str | None]:
        """Returns the charge of a request and its answer, each None where there is none.

        With a question its last charge will do; an id that was charged stands for itself.
        """
        charge = None
        account = reading.state.accounts.get(analyst)
        if question is not None and account is not None and request not in account.charges:
            request = reading.state.asked(analyst, question) or request
        if account is not None and request in account.charges:
            reading.flush()  # it may be of this very transaction
            charged = self._record_at(reading, account.charges[request], Charged)
            charge = Earlier(request, charged.question)
        return charge, self.answer_of(reading, analyst, request)

    def answer_of(self, reading: Writing, analyst: str, request: str) -> str | None:
        """Returns the answer of a request; None where there is none."""
        account = reading.state.accounts.get(analyst)
        if account is None or request not in account.answers:
            return None
        reading.flush()  # it may be of this very transaction
        seq = account.answers[request]
        answered = self._record_at(reading, seq, Answered)
        return self._intact(seq, answered.payload, self.store.payload(reading.connection, seq))

    def answers(self, analyst: str, requests: Collection[str] | None = None) -> dict[str, GivenAnswer]:
        """Returns an analyst's answers, by request id; each text is the one that was logged."""

        def numbered(reading: Writing) -> dict[str, int]:
            account = reading.state.accounts.get(analyst)
            numbers = {} if account is None else account.answers
            return dict(numbers) if requests is None else {id: numbers[id] for id in requests if id in numbers}

        by_number = {seq: id for id, seq in self.run(numbered).items()}
        with self.reading() as connection:
            return {
                by_number[row.seq]: GivenAnswer(
                    row.at, self._intact(row.seq, json.loads(row.body)["payload"], row.payload)
                )
                for row in self.store.answers(connection, by_number)
            }

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Reads events that were committed, beside those who write where the database lets us."""
        with self._held() if self.store.is_shared else nullcontext(), self.store.transaction(write=False) as connection:
            yield connection

    def check_answers(self) -> None:
        """``LedgerError`` where the text of an answer is not the one that was logged."""
        events = list(self.events())
        with self.transaction(write=False) as reading:
            for event in events:
                match event.record:
                    case Answered() as record:
                        self._intact(event.seq, record.payload, self.store.payload(reading.connection, event.seq))

    def _record_at(self, reading: Writing, seq: int, kind: type[R]) -> R:
        """Returns the record of an event; its place in the chain is verified."""
        before, row = self.store.numbered(reading.connection, [seq - 1, seq])
        record = self._verified(row, seq, before.hash).record
        assert isinstance(record, kind)  # the fold numbered it
        return record

    def _intact(self, seq: int, logged: str, payload: str | None) -> str:
        """Returns the text of an answer; ``LedgerError`` where another one was logged."""
        if payload is None or digest_of(str(payload)) != logged:  # a damaged file can make bytes of it
            what = f"the answer of event {seq} is not the one that was logged"
            raise LedgerError(f"The ledger {self.store} is damaged: {what}.")
        return payload

    def append(self, record: Record, analyst: str, request: str, by: Signature | None) -> EventRow:
        """Applies an event at the end of the chain; returns its row."""
        seq, at = self.seq + 1, now().isoformat(timespec="milliseconds")
        body = record.to_body() | ({} if by is None else by.to_body())
        text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
        chained = _chain(self._hash, seq, at, record.kind, analyst, request, text)
        self._apply(Event(seq, at, analyst, request, record, chained, by))
        return EventRow(seq, at, record.kind, analyst, request, text, chained)

    def _reset(self) -> None:
        self.seq, self._hash, self.state = 0, "", LedgerState()

    def _catch_up(self, rows: Iterator[EventRow]) -> None:
        """Applies events that this process has not seen, verifying the chain.

        Example: this process knows events 1 to 7, and another one appended 8 and 9. The rows read are
        7, 8 and 9: event 7 must still have the hash that is known, or the log was cut or rolled back;
        8 must continue the chain of 7, and 9 that of 8.
        """
        if self.seq:  # the last event that this process knows must still be there
            last = next(rows, None)
            if last is None or (last.seq, last.hash) != (self.seq, self._hash):
                raise LedgerError(self._cut(self.seq))
        for row in rows:
            self._apply(self._verified(row, self.seq + 1, self._hash))

    def _apply(self, event: Event) -> None:
        self.state.apply(event)
        self.seq, self._hash = event.seq, event.hash

    def _verified(self, row: EventRow, number: int, chain: str) -> Event:
        """The event of a row that continues the chain."""
        if row.seq != number or row.hash != _chain(
            chain, row.seq, row.at, row.kind, row.analyst, row.request, row.body
        ):
            raise LedgerError(
                f"The ledger {self.store} is damaged at event {number}: it was edited or cut. "
                "The dataset stays closed; restore the ledger from a backup, "
                "or start a new one and accept that what was spent before no longer counts."
            )
        return self.event(row)

    def event(self, row: EventRow) -> Event:
        """The event of a row."""
        try:
            record, by = read(row.kind, body_of(row.at, row.analyst, row.request, row.body))
        except UnknownEvent as error:
            raise LedgerError(
                f"The ledger {self.store} was written by another version of pinq: event {row.seq} {error}, "
                "which this version does not know. To go on without it could count too little as spent. "
                "The dataset stays closed; install the version that wrote the ledger, or a later one."
            ) from None
        return Event(row.seq, row.at, row.analyst, row.request, record, row.hash, by)

    def _cut(self, seq: int) -> str:
        what = f"event {seq}, which was committed, is not in it"
        return f"The ledger {self.store} was cut or rolled back: {what}. The dataset stays closed; restore the ledger."


def _chain(before: str, seq: int, at: str, kind: str, analyst: str, request: str, body: str) -> str:
    fields = [before, seq, at, kind, analyst, request, body]
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False, default=repr)  # a damaged file can hold bytes
    return hashlib.sha256(text.encode()).hexdigest()
