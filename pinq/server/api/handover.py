# SPDX-License-Identifier: Apache-2.0
"""``Handover`` has a server's long work done by a process beside it (``sibling.py``).

A thread that hands a request over waits for its outcome, and meanwhile tells the sibling when its
turn's end changes: its client has gone, its grant has ended, the server stops. The sibling is
started when it is first needed, and again where it ended.
"""

from __future__ import annotations

import math
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from multiprocessing.connection import Connection
from weakref import WeakKeyDictionary

from pinq.curator.work import Stopped
from pinq.errors import PinqError, Unavailable
from pinq.public.wire import Failure
from pinq.server.api.sibling import SIGNALS, Facts, Metered, Outcome, Task, Unfit, Verdict, Wanted
from pinq.server.api.visit import Visit, Work
from pinq.server.log import RequestLog

__all__ = ["Handover"]

LOOK_SECONDS = 0.1  # how often a turn's end is looked at
END_SECONDS = 5.0  # how long a sibling may take to end
PATIENCE_SECONDS = 60.0  # for so long after a turn's end a sibling that does not answer counts as one that works
# What it runs: the modules that this process has, wherever they came from.
PROGRAM = "import sys; sys.path[:] = {path!r}; from pinq.server.api.sibling import main; main({connections!r})"


class _Process:
    """A sibling, with connections for so many requests at a time.

    Attributes:
        idle: The connections that no request has now.
    """

    def __init__(self, most: int) -> None:
        pairs = [socket.socketpair() for _ in range(most)]
        theirs = [there.fileno() for _, there in pairs]
        program = PROGRAM.format(path=sys.path, connections=theirs)
        try:
            with _deaf():
                command = [sys.executable, "-c", program]
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=theirs)
        except OSError:
            for here, _ in pairs:
                here.close()
            raise
        finally:
            for _, there in pairs:
                there.close()
        self.idle = [Connection(here.detach()) for here, _ in pairs]

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def end(self) -> int:
        """Ends it; what runs there is broken off after a while. Returns its exit status."""
        for connection in self.idle:
            connection.close()
        try:
            return self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


@contextmanager
def _deaf() -> Iterator[None]:
    """Lets signals that stop a server pass by what this thread starts, from its first moment on."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Handover:
    """Hands requests over, each in a thread that waits for what comes of it.

    Args:
        most: How many at a time.
        log: The provider's, where it is noted that the process ended by itself.
    """

    def __init__(self, most: int, log: RequestLog | None = None) -> None:
        self._most, self._log, self._lock, self._closed = most, log or RequestLog(), threading.Lock(), False
        self._process: _Process | None = None
        # Of datasets and ledgers: one of the same name may be another, where it was removed and added again.
        self._numbers, self._next = WeakKeyDictionary[object, int](), count()

    def do(self, work: Work, visit: Visit, body: bytes) -> str:
        """Does a route's work there.

        What a warehouse serves is read once only, so such a dataset's work is done here; so is what
        the sibling cannot open as it is open here.

        Raises:
            Unavailable: The process ended at it, perhaps after the charge, and so did another one, or
                its turn.
            PinqError, Stopped, TooHeavy: As the work does.
        """
        dataset, _ = visit.opened
        if dataset.policy.served_by is not None:
            return work(visit, body)
        outcome = self._outcome(self._task(work, visit, body), visit)
        visit.request = outcome.request
        match outcome.error:
            case None:
                return outcome.payload
            case Failure() as failure:
                raise failure.error()
            case Unfit():
                return work(visit, body)
            case error:
                raise error

    def close(self) -> None:
        """Ends the process."""
        with self._lock:
            process, self._process, self._closed = self._process, None, True
        if process is not None:
            process.end()

    def _task(self, work: Work, visit: Visit, body: bytes) -> Task:
        (dataset, _), turn = visit.opened, visit.turn
        with self._lock:
            number, ledger = (self._numbers.setdefault(each, next(self._next)) for each in (dataset, dataset.ledger))
            known = frozenset(self._numbers.values())
        return Task(dataset.name, number, ledger, known, turn.token, work, body, turn.most, turn.end)

    def _outcome(self, task: Task, visit: Visit) -> Outcome:
        try:
            with self._connection() as connection:
                return _watched(connection, task, visit)
        except (EOFError, OSError):
            pass  # the process has ended, perhaps long ago: once more, for one id is charged once
        with suppress(EOFError, OSError), self._connection() as connection:
            outcome = _watched(connection, task, visit)
            if not isinstance(outcome.error, Stopped):  # which says that nothing was charged
                return outcome
        raise Unavailable("the process that worked on this request has ended; the same request may be sent again.")

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """Takes a connection to a process that runs, as far as is known."""
        with self._lock:
            if self._closed:
                raise EOFError
            process = self._process = self._process or self._started()
            connection = process.idle.pop()
        try:
            yield connection
        except BaseException:
            self._forget(process)
            connection.close()
            raise
        process.idle.append(connection)

    def _started(self) -> _Process:
        try:
            return _Process(self._most)
        except OSError as error:
            self._log.write("sibling not started", reason=error.strerror)
            raise

    def _forget(self, process: _Process) -> None:
        """Lets another process be started; this one ends, for its connections do."""
        with self._lock:
            if self._process is process:
                self._process = None
                threading.Thread(target=self._note_end, args=(process,), name="pinq-sibling", daemon=True).start()

    def _note_end(self, process: _Process) -> None:
        self._log.write("sibling ended", pid=process.pid, status=process.end())


def _watched(connection: Connection, task: Task, visit: Visit) -> Outcome:
    """Sends a task, and what it must know meanwhile, until there is an outcome.

    Raises:
        EOFError, OSError: The process has ended, or does not answer long after the turn's end.
    """
    told, over = task.end, math.inf
    connection.send(task)
    while True:
        while not connection.poll(LOOK_SECONDS):
            now = time.monotonic()
            over = over if now < visit.turn.end else min(over, now)
            if now > over + PATIENCE_SECONDS:
                raise EOFError
            if visit.turn.end != told:
                told = visit.turn.end
                connection.send(told)
        match connection.recv():
            case Outcome() as outcome:
                return outcome
            case Metered(units):
                connection.send(_verdict(visit, units))
            case Wanted():
                connection.send(_facts(visit))


def _verdict(visit: Visit, units: int) -> Verdict:
    dataset, grant = visit.opened
    try:
        dataset.curator.meter(grant.analyst, units)
        return Verdict()
    except PinqError as error:
        return Verdict(Failure.of(error))


def _facts(visit: Visit) -> Facts:
    dataset, _ = visit.opened
    return Facts(dataset.policy, dataset.ledger.url, dataset.source)
