# SPDX-License-Identifier: Apache-2.0
"""The process beside a server's own one, in which its long work is done.

What takes long keeps Python's interpreter to itself, a call of C at a time: to read a request of
megabytes takes a third of a second in which no other thread of that process moves. So the server's
process reads, checks and counts only what is small, and hands over the rest as it came: bytes, and
the function that knows what to do with them. Here it runs as there: the token is looked at in the
ledger, the work is priced, charged before the data is read, and ends where its turn ends. This
process takes turns after all others (``NICE``).

::

    server ── Task ───────────▶ sibling   one connection for each request at a time
           ◀─ Wanted ────────             what is that dataset, which is not open here?
           ── Facts ─────────▶            a policy may be long: it is sent when it is new
           ── end of its turn ▶           whenever that changed
           ◀─ Metered ───────             is that much work within the grant's quota?
           ── Verdict ───────▶            the server counts for both
           ◀─ Outcome ───────

It opens a dataset when it is first needed: its ledger, and the codes, which are mapped and so in
memory once where they are kept. It ends when the server does: then every connection ends.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

from pinq.curator.work import Stopped, TooHeavy, Turn
from pinq.engine.sources import FileFacts
from pinq.errors import NotAuthorised, PinqError, PolicyError
from pinq.ledger.ledger import Ledger
from pinq.provider.backup import heads_folder
from pinq.public.policy import Policy
from pinq.public.wire import Failure
from pinq.server.api.memory import give_back
from pinq.server.api.visit import Visit, Work
from pinq.server.datasets import Dataset
from pinq.server.details import LOG, log_details, unexpected

__all__ = ["SIGNALS", "Facts", "Metered", "Outcome", "Task", "Unfit", "Verdict", "Wanted", "main"]

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # that stop a server
NICE = 10
FIRST_TO_GO = 500  # added to how likely the system ends this process, and not the server, where memory is short
SWITCH_SECONDS = 0.001  # a thread that computes lets others have the interpreter after so long
LISTEN_SECONDS = 0.05  # how often work looks whether its turn was ended
END_SECONDS = 3.0  # how long what was stopped may take to notice

T = TypeVar("T")


class Unfit(Exception):
    """The dataset cannot be opened here as the server has it open; nothing was done."""


@dataclass(frozen=True)
class Task:
    """A request that is handed over.

    Attributes:
        name: The dataset's.
        dataset: The number of the dataset as it is open in the server.
        ledger: That of its ledger.
        open: The numbers of all that the server has open.
        token: Digest of the token.
        work: What to do with the body.
        body: As it came.
        most: The units of work that its turn may take.
        end: When its turn ends, by the machine's monotonic clock.
    """

    name: str
    dataset: int
    ledger: int
    open: frozenset[int]
    token: str
    work: Work
    body: bytes
    most: float
    end: float


@dataclass(frozen=True)
class Wanted:
    """The task's dataset is not open here as it is there."""


@dataclass(frozen=True)
class Facts:
    """How a dataset is open in the server.

    Attributes:
        policy: Under which.
        url: Where its ledger is.
        source: The facts of its source's files when they were encoded.
    """

    policy: Policy
    url: str
    source: tuple[FileFacts, ...]


@dataclass(frozen=True)
class Metered:
    """So many units of work are about to be done."""

    units: int


@dataclass(frozen=True)
class Verdict:
    """Why they may not; None where they may."""

    failure: Failure | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a task.

    Attributes:
        request: The request's id, once it was read.
        payload: JSON.
        error: What was raised in its place; None for nothing.
    """

    request: str | None
    payload: str = ""
    error: Failure | Stopped | TooHeavy | Unfit | None = None


class _Turn(Turn):
    """A turn whose end the server may change.

    Several threads may look at it, of which one at a time reads what the server says. Those that
    still work when their task is done must read no more: the next word begins another task.
    """

    def __init__(self, connection: Connection, task: Task) -> None:
        super().__init__(task.end - time.monotonic(), task.most, token=task.token)
        self._connection, self._listened = connection, time.monotonic()
        self._reading, self._left = threading.Lock(), False

    def check(self) -> None:
        if time.monotonic() >= self._listened + LISTEN_SECONDS and self._reading.acquire(blocking=False):
            try:
                while not self._left and self._connection.poll():
                    self._read()
                self._listened = time.monotonic()
            finally:
                self._reading.release()
        super().check()

    def hear(self) -> object:
        """Waits for a word of the server's and returns it; ``Stopped`` where it has gone."""
        with self._reading:
            return self._read()

    def leave(self) -> None:
        """Reads no more."""
        with self._reading:
            self._left = True

    def _read(self) -> object:
        try:
            word: object = self._connection.recv()
        except (EOFError, OSError):
            raise Stopped from None
        if isinstance(word, float):
            self.stop(word)
        return word


class _Server:
    """Where a thread's task came from: the server counts work, and knows how a dataset is open."""

    def __init__(self) -> None:
        self.asking = threading.local()

    def take(self, analyst: str, units: int, most: int | None) -> None:
        """``NotAllowed`` or ``TooManyRequests`` where the server says so."""
        if most is None:
            return
        verdict = self._asked(Metered(units), Verdict)
        if verdict.failure is not None:
            raise verdict.failure.error()

    def facts(self) -> Facts:
        """How the task's dataset is open there."""
        return self._asked(Wanted(), Facts)

    def _asked(self, question: Metered | Wanted, kind: type[T]) -> T:
        self.asking.connection.send(question)
        while not isinstance(word := self.asking.turn.hear(), kind):
            pass
        return word


class _Opening:
    """A ledger, and its dataset as it was when the server let the last task in."""

    def __init__(self, server: _Server) -> None:
        self._server, self._lock, self._number = server, threading.Lock(), -1
        self._ledger: Ledger | None = None
        self._dataset: Dataset | None = None

    def dataset(self, number: int) -> Dataset:
        """The dataset as the server had it open when it let the task in.

        Args:
            number: That of the dataset, among all that the server opens.

        Raises:
            PolicyError: The source cannot be read, or changed since the server read it.
            LedgerError: A ledger that cannot be trusted.
        """
        with self._lock:
            known = self._dataset
            if known is not None and number == self._number and not known.engine.problem():
                return known
            facts = self._server.facts()
            if self._ledger is None:
                self._ledger = Ledger(facts.url, facts.policy.dataset, create=False, heads=heads_folder())
            self._dataset = Dataset.beside(facts.policy, self._ledger, facts.source, self._server, known)
            if known is not None and known is not self._dataset:
                known.retire(self._dataset)
            self._number = number
            return self._dataset

    def close(self) -> None:
        """Closes both once the last task has ended."""
        with self._lock:
            if self._dataset is not None:
                self._dataset.retire(None)
            elif self._ledger is not None:
                self._ledger.close()
            self._dataset = self._ledger = None


class Sibling:
    """Does tasks on datasets that it opens by itself."""

    def __init__(self) -> None:
        self._lock, self._server = threading.Lock(), _Server()
        self._openings: dict[int, _Opening] = {}

    def serve(self, connection: Connection) -> None:
        """Does what comes over a connection, one task after the other, until it ends."""
        with suppress(EOFError, OSError):
            while True:
                self._serve_one(connection)

    def _serve_one(self, connection: Connection) -> None:
        """Does what comes next. Nothing of it is held until something else comes."""
        match connection.recv():
            case Task() as task:
                connection.send(self.done(task, connection))
                if task.most == math.inf:
                    del task
                    give_back()
            case _:
                pass  # the end of a turn that was over already

    def done(self, task: Task, connection: Connection) -> Outcome:
        """Does a task."""
        turn = _Turn(connection, task)
        visit = Visit(task.name, "", "", turn=turn)
        self._server.asking.connection, self._server.asking.turn = connection, turn
        visit.authority = partial(self._authorise, task)
        error: Failure | Stopped | TooHeavy | Unfit
        try:
            visit.turn.check()
            visit.authorise()
            payload = task.work(visit, task.body)
            return Outcome(visit.request, payload)
        except PinqError as raised:
            error = Failure.of(raised)
        except (Stopped, TooHeavy, Unfit) as raised:
            error = raised.with_traceback(None)  # which has this frame, and with it the dataset's codes
        except Exception:
            error = Failure.of(unexpected())
        finally:
            turn.leave()
        return Outcome(visit.request, error=error)

    def _authorise(self, task: Task, visit: Visit) -> None:
        dataset = self._opened(task)
        grant = dataset.ledger.holder(task.token)
        if grant is None:
            raise NotAuthorised()
        visit.dataset, visit.grant = dataset, grant

    def _opened(self, task: Task) -> Dataset:
        """The dataset as the server had it open; what the server has closed is closed here too."""
        with self._lock:
            ended = [self._openings.pop(number) for number in self._openings.keys() - task.open]
            opening = self._openings.setdefault(task.ledger, _Opening(self._server))
        for closed in ended:
            closed.close()
        try:
            return opening.dataset(task.dataset)
        except PolicyError as error:
            LOG.warning("long work on %s stays in the server's own process: %s", task.name, error)
            raise Unfit from None

    def close(self) -> None:
        """Closes the ledgers."""
        for opening in self._openings.values():
            opening.close()


def main(connections: Sequence[int]) -> None:
    """Serves connections, by their numbers as files, until one of them ends.

    Signals that stop a server reach its whole group: it finishes what runs, and so this goes on.
    """
    for name in SIGNALS:
        signal.signal(name, signal.SIG_IGN)
    log_details()
    with suppress(OSError):  # a system may forbid it
        os.nice(NICE)
    _go_first()
    sys.setswitchinterval(SWITCH_SECONDS)
    sibling, over = Sibling(), threading.Event()

    def serve(number: int) -> None:
        sibling.serve(Connection(number))
        over.set()

    threads = [threading.Thread(target=serve, args=(number,), daemon=True) for number in connections]
    for thread in threads:
        thread.start()
    over.wait()
    late = time.monotonic() + END_SECONDS
    for thread in threads:
        thread.join(max(0.0, late - time.monotonic()))
    if not any(thread.is_alive() for thread in threads):
        sibling.close()
    os._exit(0)  # whatever a thread is still at was charged, and stays so


def _go_first() -> None:
    """Lets the system end this process before the server where memory is short (Linux)."""
    likely = Path("/proc/self/oom_score_adj")
    with suppress(OSError):
        likely.write_text(str(max(FIRST_TO_GO, int(likely.read_text()))), encoding="ascii")
