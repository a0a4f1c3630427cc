# SPDX-License-Identifier: Apache-2.0
"""One transaction of a log, and the work that waits to be done in one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Generic, TypeVar

from pinq.errors import PinqError
from pinq.ledger.body import digest_of
from pinq.ledger.direct import Direct
from pinq.ledger.events import Record
from pinq.ledger.requests import Answered, Charged, LoggedQuestion, Refused
from pinq.ledger.signature import Signature
from pinq.ledger.tables import EventRow
from pinq.ledger.terms import EVENT_BYTES, Grant

if TYPE_CHECKING:
    from pinq.ledger.log import Log

__all__ = ["Job", "T", "Writing"]

T = TypeVar("T")


class Writing:
    """One transaction of a log: it begins with all events so far, and appends some.

    Attributes:
        connection: Within the store's transaction.
        state: What all events so far say, with those that are being appended.
        appended: How many are being appended.
    """

    def __init__(self, log: Log, direct: Direct) -> None:
        self.connection, self.state, self.appended = direct.connection, log.state, 0
        self._log, self._direct = log, direct
        self._events: list[EventRow] = []
        self._answers: dict[int, str] = {}

    def append(
        self,
        record: Record,
        analyst: str = "",
        request: str = "",
        by: Signature | None = None,
        answer: str | None = None,
    ) -> None:
        """Adds an event and the text of its answer; nobody sees them before the commit."""
        row = self._log.append(record, analyst, request, by)
        self._events.append(row)
        if answer is not None:
            self._answers[row.seq] = answer
        self.appended += 1

    def charge(self, grant: Grant, charged: Charged, analyst: str, request: str, answer_bytes: int) -> None:
        """Adds a charge; ``NotAllowed`` where the grant has no room for it and its answer."""
        # Room for the answer is taken with the charge: who was charged can be answered.
        charged = charged.reserving(answer_bytes + 2 * EVENT_BYTES)
        grant.require_room(charged.question.stored)
        self.append(charged, analyst, request)

    def answer(self, analyst: str, request: str, payload: str) -> str:
        """Adds the answer of a request that has none; returns the one that it has then."""
        given = self._log.answer_of(self, analyst, request)
        if given is None:
            self.append(Answered(digest_of(payload)), analyst, request, answer=payload)
        return payload if given is None else given

    def refuse(self, error: PinqError, analyst: str, request: str, question: LoggedQuestion) -> None:
        """Adds a refusal, unless the analyst's grant has no room for it."""
        grant = self.state.grant_of(analyst)
        if grant is None or grant.has_room(EVENT_BYTES):
            self.append(Refused.of(error, question), analyst, request)

    def probe(self) -> None:
        """Writes what means nothing, so that the commit shows whether the ledger takes events."""
        self._direct.probe()

    def flush(self) -> None:
        """Hands over to the database what was appended so far."""
        self._direct.insert(self._events, self._answers)
        self._events, self._answers = [], {}

    def commit(self) -> None:
        """Puts all that was appended on the disk."""
        self._direct.commit(self._events, self._answers)


class Job(Generic[T]):
    """Work that waits for a transaction, and then for its commit.

    Attributes:
        write: Whether it may append.
        done: Whether its transaction ended.
        turn: Gets an item when it is done, or when it is its turn to do the work of all who wait.
    """

    def __init__(self, work: Callable[[Writing], T], write: bool) -> None:
        self.write, self.done, self.turn = write, False, SimpleQueue[None]()
        self._work = work
        self._result: list[T] = []
        self._error: BaseException | None = None

    def wait(self, work_off: Callable[[], None]) -> None:
        """Waits until it is done, or its turn comes.

        Whoever is interrupted leaves a thread in their place, for others may wait for that turn.
        """
        try:
            self._wait(work_off)
        except BaseException:
            threading.Thread(target=self._wait, args=(work_off,), name="pinq-ledger", daemon=True).start()
            raise

    def _wait(self, work_off: Callable[[], None]) -> None:
        self.turn.get()
        if not self.done:
            work_off()

    def run(self, writing: Writing) -> None:
        """Does the work; an error of ours that appended nothing concerns nobody else."""
        # A refusal to look something up spoils nothing for others of the transaction; an error
        # after an append would leave half of it, so all of it is undone.
        before = writing.appended
        try:
            self._result.append(self._work(writing))
        except PinqError as error:
            if writing.appended > before:
                raise
            self._error = error

    def fail(self, error: BaseException) -> None:
        """Its transaction was not committed. What a reader found stands."""
        if self.write or not self._result:
            self._error = self._error or error

    def outcome(self) -> T:
        """What the work returned, once it is committed."""
        if self._error is not None:
            raise self._error
        return self._result[0]
