# SPDX-License-Identifier: Apache-2.0
"""An append-only, hash-chained log of events, and the state that follows from it.

Each event's hash covers the one before it, so an edit or a cut in the middle shows. A ``Head``
reveals a log that was cut at its end or replaced by an older copy.

A charge costs O(size of the request + new events), never O(ledger).
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from pinq.errors import LedgerError, PinqError
from pinq.ledger.database import ROWS_AT_A_TIME, AnswerSize, Database, EventRow, SQLite, T, url_of
from pinq.ledger.events import (
    EVENT_BYTES,
    Answered,
    Charged,
    Event,
    LoggedQuery,
    Record,
    Refused,
    Signature,
    Snapshot,
    UnknownEvent,
    digest_of,
    now,
    read,
    text_of,
)
from pinq.ledger.postgresql import PostgreSQL
from pinq.ledger.state import Account, LedgerState, Wanted, dump, load, query_key
from pinq.public.epsilon import Epsilon

R = TypeVar("R", bound=Record)
HELD_SECONDS = 60.0
SNAPSHOT_EVENTS = 5_000  # a replay of them takes .2 s
# Bytes of the last snapshot for each event until the next: its writing costs an event microseconds.
SNAPSHOT_BYTES = 2_000
_AS_TEXT = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=repr)  # a damaged file can hold bytes


def open_database(url: str | os.PathLike[str], *, create: bool = True, read_only: bool = False) -> Database:
    """Connects to the storage of a ledger: a file, or a URL of SQLite or PostgreSQL."""
    text = url_of(url)
    database = (SQLite if text.startswith("sqlite") else PostgreSQL)(text, read_only=read_only)
    database.open(create=create)
    return database


class Earlier(NamedTuple):
    """An earlier charge: its request's id, its query, and the version of the queried rows."""

    request: str
    query: LoggedQuery
    version: int


class LogLine(NamedTuple):
    """A charge or a refusal.

    Attributes:
        spent: The analyst's total after it.
        answer: The time and the length of its answer; None if there is none.
    """

    event: Event
    spent: Epsilon
    answer: AnswerSize | None


@dataclass(eq=False)
class Job:
    """Work that waits for a transaction, with its result or its error once it is done."""

    work: Callable[[Log], Any]
    write: bool
    done: bool = False
    result: Any = None
    error: Exception | None = None


class Log:
    """The events of one ledger.

    Attributes:
        state: The state that follows from the events so far.
        seq: The number of events that this process knows.
        last: The hash of the last one.
        snapshot_seq: The number of the event of the last snapshot; 0 if all events since the first are in the state.
        appended: The number of events that the running transaction has appended.

    Raises:
        LedgerError: Damaged, cut, rolled back, or written by a version that knows more kinds of
            events.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._lock, self._waiting = threading.RLock(), threading.Condition()
        self._jobs: list[Job] = []
        self._led = False
        file = database.file if isinstance(database, SQLite) else None
        self._own_head = None if file is None else Head(file.with_name(f"{file.name}.head"))
        self._heads = [] if self._own_head is None else [self._own_head]
        self._reset()

    def _reset(self) -> None:
        self.seq, self.first, self.last, self.state, self.appended = 0, "", "", LedgerState(), 0
        self.snapshot_seq, self._due = 0, SNAPSHOT_EVENTS

    # Transactions

    def run(self, work: Callable[[Log], T], *, write: bool = False) -> T:
        """Does work in a transaction of this log, perhaps together with the work of other threads.

        The first thread does the work of all threads that wait, readers first, else in their order,
        and commits once. The other threads find their work done. So one commit serves many charges,
        and no result is given before it is on the disk.
        """
        self.database.require_same()
        job = Job(work, write)
        # Ana, bob and eve come at once. Ana is first: she takes all that waits, does it in one
        # transaction, commits, and wakes bob and eve, whose work is done. Eve's second query came
        # during the commit: she wakes too, and leads all that waits by then.
        with self._waiting:
            self._jobs.append(job)
            while self._led and not job.done:
                self._waiting.wait()
            leads = not job.done
            self._led = self._led or leads
        if leads:
            self._work_off()
        if job.error is not None:
            raise job.error
        return cast("T", job.result)

    def _work_off(self) -> None:
        jobs = list[Job]()
        try:
            with self._held():
                jobs = self._taken()
                with self.transaction(write=jobs[-1].write):
                    for job in jobs:
                        before = self.appended
                        try:
                            job.result = job.work(self)
                            job.done = not job.write  # the result of a reader holds, even if the commit fails
                        except PinqError as error:
                            # A refusal without an append leaves the transaction whole for the others. An error
                            # after an append would leave half of it, so all of it is undone.
                            if self.appended > before:
                                raise
                            job.error, job.done = error, True
            for job in jobs:
                job.done = True
        except BaseException as error:
            failure = error if isinstance(error, Exception) else self.database.unusable("it was interrupted")
            for job in jobs or self._taken():
                if not job.done:
                    job.error, job.done = failure, True
            if failure is not error:
                raise
        finally:
            with self._waiting:
                self._led = False
                self._waiting.notify_all()

    def _taken(self) -> list[Job]:
        with self._waiting:
            jobs, self._jobs = self._jobs, []
        return sorted(jobs, key=attrgetter("write"))

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[Log]:
        """One transaction, up to date from its start, for a caller that holds the log.

        If the commit fails, the log is read again from its start.
        """
        self.appended = 0
        if not self.seq:
            self._restore()
        try:
            with self.database.transaction(write=write, after=max(1, self.seq)) as rows:
                self._catch_up(rows)
                yield self
                if write:
                    if self.seq - self.snapshot_seq >= self._due:
                        self._keep()
                    self.database.commit()
        except BaseException:
            if self.appended:
                self._reset()
            raise
        if write:
            self._write_heads()
            self.database.failure = ""

    @contextmanager
    def _held(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=HELD_SECONDS):
            raise self.database.unusable("it does not answer, and others wait for it already")
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def _reading(self, after: int | None = None) -> Iterator[Iterator[EventRow]]:
        """Reads committed events, briefly, because other threads wait."""
        self.database.require_same()
        with self._held(), self.database.transaction(write=False, after=after) as rows:
            yield rows

    def replay(self, each: Callable[[Event], object] = lambda _: None) -> None:
        """Forgets the state and reads the whole log and its answers again.

        ``each`` gets each event, after the state has it.

        Raises:
            LedgerError: The chain is damaged, an answer is not the one that was logged, or the snapshot is of another
                state.
        """
        logged = dict[int, str]()
        with self._held():
            self._reset()
            with self.database.transaction(write=False):
                snapshot = self.database.snapshot()
            with self.database.transaction(write=False, after=1) as rows:
                for row in rows:
                    event = self._verified(row, self.seq + 1, self.last)
                    if snapshot is not None and row.seq == snapshot[0]:
                        self._compare(event, snapshot[1])
                    self._apply(event)
                    each(event)
                    if isinstance(event.record, Answered):
                        logged[event.seq] = event.record.payload
                    if len(logged) == ROWS_AT_A_TIME:
                        self._check_answers(logged)
                self._check_answers(logged)

    def _keep(self) -> None:
        """Writes a snapshot in the running transaction, and drops from memory the numbers that the tables hold."""
        charges = {
            query_key(analyst, query): self.state.accounts[analyst].charges[request]
            for (analyst, query), request in self.state.queries.items()
        }
        payload = dump(self.state, self.first)
        self.append(Snapshot(digest_of(payload)))
        self.database.keep(self.seq, payload, charges)
        self._kept(payload)

    def _kept(self, payload: str) -> None:
        self.state.forget()
        self.snapshot_seq, self._due = self.seq, max(SNAPSHOT_EVENTS, len(payload) // SNAPSHOT_BYTES)

    def _restore(self) -> None:
        """Begins with the state of the last snapshot, if the chain has its digest."""
        with self.database.transaction(write=False):
            snapshot = self.database.snapshot()
            if snapshot is None:
                return
            seq, payload = snapshot
            before, row = self.database.numbered([seq - 1, seq])
        if self._verified(row, seq, before.hash).record != Snapshot(digest_of(str(payload))):
            return  # a replay needs no snapshot
        loaded = load(payload)
        if loaded is not None:
            self.state, self.first = loaded
            self.seq, self.last = seq, row.hash
            self._kept(payload)

    def close(self) -> None:
        with self._held():
            for head in self._heads:
                head.close()
            self.database.close()

    # Reading

    def events(self) -> Iterator[Event]:
        """The log, oldest first; each event's place in the chain is verified."""
        with self._reading(1) as rows:
            read_rows, chain = list(rows), ""
        for number, row in enumerate(read_rows, start=1):
            event = self._verified(row, number, chain)
            chain = event.hash
            yield event

    def answers(self, analyst: str, requests: Collection[str] | None = None) -> dict[str, str]:
        """Returns the texts of an analyst's answers, by request id; each text is the one that was logged."""

        def numbered(log: Log) -> dict[str, int]:
            if requests is not None:
                since = {id: log._once("answer", analyst, id) for id in requests}
                return {id: seq for id, seq in since.items() if seq}
            account = log.state.accounts.get(analyst)
            numbers = {} if account is None else account.answers
            return (log.database.answered(analyst, log.snapshot_seq) if log.snapshot_seq else {}) | numbers

        by_number = {seq: id for id, seq in self.run(numbered).items()}
        with self._reading():
            rows = list(self.database.answers(by_number))
        return {by_number[seq]: self._intact(seq, json.loads(body)["payload"], payload) for seq, body, payload in rows}

    def lines(self, analyst: str, start: int = 0, limit: int = 1000) -> list[LogLine]:
        """Reads some of an analyst's charges and refusals, oldest first, after the first ``start``.

        Raises ``LedgerError`` if one is missing.

        The time depends only on the returned lines.
        """
        numbers, totals = self._numbered(analyst, start, limit)
        with self._reading():
            rows = self.database.numbered(numbers)
        events = [self.event(row) for row in rows]
        # A request that is charged may have been refused before: its answer belongs to the charge.
        charged = [event.request if event.kind == Charged.kind else "" for event in events]
        answers = self.run(lambda log: [log._once("answer", analyst, request) if request else 0 for request in charged])
        with self._reading():
            sizes = self.database.sizes([number for number in answers if number])
        return [
            LogLine(event, Epsilon(total), sizes.get(answer))
            for event, total, answer in zip(events, totals, answers, strict=True)
        ]

    def lengths(self, analyst: str, start: int, limit: int) -> list[int]:
        """The lengths of an analyst's lines in the log, in characters."""
        numbers, _ = self._numbered(analyst, start, limit)
        with self._reading():
            length = self.database.lengths(numbers)
        return [length.get(number, 0) for number in numbers]

    def _numbered(self, analyst: str, start: int, limit: int) -> tuple[list[int], list[int]]:
        """Numbers of events, and the totals after these lines, from the state."""
        # Lines 200 to 299 of a million: two slices of a hundred numbers are copied while others wait;
        # the hundred events behind them are read afterwards.
        lines = slice(start, start + limit)

        def numbered(log: Log) -> tuple[list[int], list[int]]:
            account = log.state.accounts.get(analyst) or Account(analyst, log.state.together, log.state.places)
            return account.lines[lines].tolist(), account.totals[lines].tolist()

        return self.run(numbered)

    # Within a transaction

    def charge_of(self, analyst: str, request: str, query: Wanted | None = None) -> tuple[Earlier | None, str | None]:
        """The charge of a request and its answer, each None if there is none.

        With a query, its last charge is found too, unless the request's own id was charged.
        """
        request, seq = self._charged_as(analyst, request, query)
        record = self._record_at(seq, Charged) if seq else None
        charge = None if record is None else Earlier(request, record.query, record.version)
        return charge, None if charge is None else self.text_of_answer(analyst, request)

    def text_of_answer(self, analyst: str, request: str) -> str | None:
        """The answer of a request; None for none."""
        seq = self._once("answer", analyst, request)
        if not seq:
            return None
        answered, texts = self._record_at(seq, Answered), [row[-1] for row in self.database.answers([seq])]
        return self._intact(seq, answered.payload, texts[0] if texts else None)

    def _once(self, kind: str, analyst: str, request: str) -> int:
        """The number of the charge or answer of a request; 0 for none."""
        account = self.state.accounts.get(analyst)
        if account is None or (kind == Answered.kind and request in account.waiting):
            return 0  # no look-up: the state has each charge without an answer
        since = (account.charges if kind == Charged.kind else account.answers).get(request, 0)
        return since or (self.database.once(kind, analyst, request, self.snapshot_seq) if self.snapshot_seq else 0)

    def _charged_as(self, analyst: str, request: str, query: Wanted | None) -> tuple[str, int]:
        """As ``LedgerState.charged_as``, also for charges before the last snapshot."""
        charge = self._once(Charged.kind, analyst, request)
        charged = (request, charge) if charge else self.state.charged_as(analyst, request, query)
        if charged[1] or query is None or not self.snapshot_seq:
            return charged
        seq = self.database.asked(query_key(analyst, query))
        if not 0 < seq < self.snapshot_seq:
            return charged
        (row,) = self.database.numbered([seq])
        record = self._record_at(seq, Charged)  # verified: the table of queries is no part of the chain
        same = (row.analyst, record.version, record.query.identity) == (analyst, *query)
        return (row.request, seq) if same else charged

    def add_answer(self, analyst: str, request: str, payload: str) -> str:
        """Adds the answer of a request that has none; returns the answer that the log has then."""
        earlier = self.text_of_answer(analyst, request)
        if earlier is None:
            self.append(Answered(digest_of(payload)), analyst, request, answer=payload)
        return payload if earlier is None else earlier

    def refuse(self, error: PinqError, analyst: str, request: str, query: LoggedQuery) -> None:
        """Adds a refusal, unless the analyst's grant has no room for it."""
        account = self.state.account(analyst)
        if not account.granted or account.stored + EVENT_BYTES <= account.most_stored:
            self.append(Refused.of(error, query), analyst, request)

    def append(
        self,
        record: Record,
        analyst: str = "",
        request: str = "",
        *,
        by: Signature | None = None,
        answer: str | None = None,
        text: str = "",
    ) -> None:
        """Adds an event; other processes see it after the commit."""
        text = text or text_of(record, by)
        seq, at = self.seq + 1, now().isoformat(timespec="milliseconds")
        chained = _chain(self.last, seq, at, record.kind, analyst, request, text)
        self.appended += 1
        self._apply(Event(seq, at, analyst, request, record, chained, by))
        self.database.append(EventRow(seq, at, record.kind, analyst, request, text, chained), answer)

    def _record_at(self, seq: int, kind: type[R]) -> R:
        """Returns the record of an event; its place in the chain is verified."""
        before, row = self.database.numbered([seq - 1, seq])
        record = self._verified(row, seq, before.hash).record
        assert isinstance(record, kind)  # the fold numbered it
        return record

    def _check_answers(self, logged: dict[int, str]) -> None:
        """Raises ``LedgerError`` unless the texts of some answers have the logged digests; then empties these."""
        for number, _, payload in self.database.answers(logged):
            self._intact(number, logged.pop(number), payload)
        for seq, digest in logged.items():
            self._intact(seq, digest, None)

    def _intact(self, seq: int, logged: str, payload: str | None) -> str:
        """The text of an answer; raises ``LedgerError`` if another one was logged."""
        if payload is None or digest_of(str(payload)) != logged:  # a damaged file can make bytes of it
            raise LedgerError(
                f"The ledger {self.database.address} is damaged: the answer of event {seq} is not the one that was "
                "logged."
            )
        return payload

    def event(self, row: EventRow) -> Event:
        try:
            datetime.fromisoformat(row.at)
            if not isinstance(row.analyst, str) or not isinstance(row.request, str):
                raise TypeError("an analyst or a request is no text")
            body = dict(json.loads(row.body))
        except (TypeError, ValueError, RecursionError) as error:
            raise self._of_another_version(row, f"is written otherwise ({error})") from None
        try:
            record, by = read(row.kind, body)
        except UnknownEvent as error:
            raise self._of_another_version(row, str(error)) from None
        return Event(row.seq, row.at, row.analyst, row.request, record, row.hash, by)

    def _of_another_version(self, row: EventRow, reason: str) -> LedgerError:
        return LedgerError(
            f"The ledger {self.database.address} was written by another version of pinq: event {row.seq} {reason}, "
            "which this version does not know. To go on without it could count too little as spent. "
            "The dataset stays closed; install the version that wrote the ledger, or a later one."
        )

    # The chain

    def _catch_up(self, rows: Iterator[EventRow]) -> None:
        """Applies events that this process has not seen, verifying the chain.

        Example: this process knows events 1 to 7, and another one appended 8 and 9. It reads rows 7, 8
        and 9. Event 7 must still have the known hash, else the log was cut or rolled back. Event 8
        must continue the chain of 7, and 9 the chain of 8.
        """
        if self.seq:  # the last event that this process knows must still be there
            last = next(rows, None)
            if last is None or (last.seq, last.hash) != (self.seq, self.last):
                raise LedgerError(self._cut_text(self.seq))
        for row in rows:
            self._apply(self._verified(row, self.seq + 1, self.last))

    def _compare(self, event: Event, payload: str) -> None:
        """Raises ``LedgerError`` unless an event has the digest of its snapshot, and the snapshot is the state."""
        logged = event.record == Snapshot(digest_of(str(payload)))
        if logged and load(payload) is None:
            return  # of another version: this version does not open the ledger by it
        if not logged or dump(self.state, self.first) != payload:
            raise self.database.damaged(f"the snapshot of event {event.seq} is not the state that its events give")

    def _apply(self, event: Event) -> None:
        self.state.apply(event)
        self.seq, self.last, self.first = event.seq, event.hash, self.first or event.hash

    def _verified(self, row: EventRow, number: int, chain: str) -> Event:
        """The event of a row that continues the chain."""
        if row.seq != number or row.hash != _chain(
            chain, row.seq, row.at, row.kind, row.analyst, row.request, row.body
        ):
            raise LedgerError(
                f"The ledger {self.database.address} is damaged at event {number}: it was edited or cut. "
                "The dataset stays closed; restore a backup (`pinq restore`)."
            )
        return self.event(row)

    def _cut_text(self, seq: int) -> str:
        return (
            f"The ledger {self.database.address} was cut or rolled back: event {seq}, which was committed, is not in "
            "it. The dataset stays closed; restore a backup (`pinq restore`, which names each budget that comes back)."
        )

    # Heads

    def check_head(self) -> None:
        """Raises ``LedgerError`` if the log lacks an event that a head names, or for a copy without a head."""
        for head in self._heads:
            self._check(head, head.read())

    def _check(self, head: Head, named: tuple[int, str] | None) -> None:
        is_copy = head is self._own_head and self.database.is_copy
        if named is None and is_copy and not head.file.exists():
            raise LedgerError(
                f"The ledger {self.database.address} is a copy, and the file {head.file.name} of the original is not "
                "beside it. So it may be incomplete: the newest events of a ledger in use are in the file beside it "
                "that ends in -wal. Copy it with `pinq backup`."
            )
        if named is None:
            return
        with self._reading(named[0]) as rows:
            row = next(rows, None)
        if row is not None and (row.seq, row.hash) == named:
            return
        if is_copy and 0 < self.seq < named[0]:
            raise LedgerError(
                f"The ledger {self.database.address} is an incomplete copy: it ends at event {self.seq}, and its head "
                f"names event {named[0]}. The newest events of a ledger in use are in the file beside it that ends in "
                "-wal. Copy it with `pinq backup`."
            )
        raise LedgerError(f"{self._cut_text(named[0])} The head {head.file} names it.")

    def keep_head(self, folder: Path) -> None:
        self._heads.append(Head(folder / f"{self.first}.head"))
        self.check_head()
        self._write_heads()

    def seal(self, folder: Path | None) -> None:
        """Writes the last event into every head, also a new one in a folder, without verifying the old head."""
        if folder is not None:
            self._heads.append(Head(folder / f"{self.first}.head"))
        self._write_heads()

    def _write_heads(self) -> None:
        for head in self._heads:
            try:
                head.write(self.seq, self.last)
            except OSError as error:
                why = error.strerror or type(error).__name__
                raise self.database.unusable(f"{head.file.name} cannot be written ({why})") from None


class Head:
    """A small file that names the last event of a log.

    The chain of a log still holds after a cut at its end, or after a return to an older copy; only a head that names a
    later event shows the loss. A server keeps another head of each ledger in its state folder, where restoring a backup
    does not overwrite it.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._open: int | None = None

    def write(self, seq: int, chained: str) -> None:
        """Names the last event, after its commit: the head may lag, but never runs ahead."""
        if self._open is None:
            for folder in reversed(self.file.parents):  # a new folder is readable by its owner alone
                folder.mkdir(exist_ok=True, mode=0o700)
            self._open = os.open(self.file, os.O_CREAT | os.O_WRONLY, 0o600)
        # All lines have one length, so a new line overwrites all of the old one.
        os.pwrite(self._open, f"{seq:020d} {chained}\n".encode(), 0)

    def read(self) -> tuple[int, str] | None:
        """The event that the file names; None if there is no file.

        A damaged line stands for event 0, which no log has.
        """
        text = self.file.read_bytes() if self.file.exists() else b""
        if not text:  # no file, or a process was killed before it wrote the first line
            return None
        try:
            number, chained = text.decode().split()
            return int(number), chained
        except ValueError:
            return 0, ""

    def close(self) -> None:
        if self._open is not None:
            os.close(self._open)
            self._open = None


def _chain(before: str, seq: int, at: str, kind: str, analyst: str, request: str, body: str) -> str:
    return hashlib.sha256(_AS_TEXT.encode([before, seq, at, kind, analyst, request, body]).encode()).hexdigest()


def copy(source: str | os.PathLike[str], target: str | os.PathLike[str], heads: Path | None = None) -> str:
    """Replaces the events and answers of one ledger, which may be new, by another's.

    The source may be in use; the copy's chain is verified, and its heads, also one in ``heads``, name its last event.

    Returns:
        The last event, ``SEQ:HASH``.

    Raises:
        LedgerError: One cannot be used, or the copy is not whole.
    """
    origin, duplicate = open_database(source, read_only=True), open_database(target)
    log = Log(duplicate)
    try:
        with origin.transaction(write=False, after=1) as rows, duplicate.transaction(write=True):
            duplicate.run("DELETE FROM answers")
            duplicate.run("DELETE FROM events")
            duplicate.run("DELETE FROM snapshot")  # the next writer keeps one
            duplicate.run("DELETE FROM questions")
            while some := list(islice(rows, ROWS_AT_A_TIME)):
                answers = {seq: payload for seq, _, payload in origin.answers([row.seq for row in some])}
                for row in some:
                    duplicate.append(row, answers.get(row.seq))
            duplicate.commit()
        log.replay()
        duplicate.settle(whole_log=True)
        log.seal(heads)
        return f"{log.seq}:{log.last}"
    finally:
        origin.close()
        log.close()


def set_aside(file: Path) -> None:
    """Renames the files of a ledger, so that another ledger can have their names.

    The ``-wal`` file is renamed first: SQLite must never find it beside another file.
    """
    aside = file.with_name(f"{file.name}.replaced")
    for end in ("-wal", "-shm", "", ".head"):
        if Path(f"{file}{end}").exists():
            os.replace(f"{file}{end}", f"{aside}{end}")
