# SPDX-License-Identifier: Apache-2.0
"""Several processes that serve one port, and the one that looks after them.

::

    pinq serve --workers 3 ─┬─ worker 0   opens the datasets, and writes the codes that are kept;
                            ├─ worker 1   once it listens the others start, and map those codes
                            └─ worker 2

All take connections from one socket and charge one ledger, which is what makes several processes
safe; what a process counts by itself (rates, wrong tokens, metered work) it counts alone, against a
part of the limit. Their parent reads no data and draws no noise: it passes signals on, starts a
worker again that ended, and ends when all have. A worker whose parent has gone stops too.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pinq.errors import PolicyError
from pinq.server.log import RequestLog

__all__ = ["Worker", "Workers"]

FIRST_WAIT, LONGEST_WAIT = 1.0, 30.0  # seconds before a worker is started again
LASTED_SECONDS = 60.0  # what lived so long did not fail at its start
STOP_SECONDS = 40.0  # more than a server takes to finish, and to stop what runs
STARTING_LOOK, IDLE_LOOK = 0.05, 60.0
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


@dataclass
class Worker:
    """One of the processes; by itself, one that has no others beside it.

    Attributes:
        number: From 0 on; what is started again keeps its number.
        pid: Its process, as its parent sees it; 0 where there is none.
        pipe: Where it says that it listens: the worker writes, the parent reads; -1 for nowhere.
        is_up: Whether it said so.
        since: When it was started.
        due: When it is to be started.
        wait: Seconds before it is started once more.
    """

    number: int = 0
    pid: int = 0
    pipe: int = -1
    is_up: bool = False
    since: float = 0.0
    due: float = 0.0
    wait: float = FIRST_WAIT

    def listens(self) -> None:
        """Tells the parent that connections are taken; called in the worker."""
        if self.pipe >= 0:
            os.write(self.pipe, b".")
            self.forget_pipe()

    def forget_pipe(self) -> None:
        """Closes the pipe."""
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1

    def look(self) -> None:
        """Reads what it has said; called in the parent."""
        if not self.is_up and self.pipe >= 0 and select.select([self.pipe], [], [], 0)[0]:
            self.is_up = os.read(self.pipe, 1) == b"."
            self.forget_pipe()

    def ended(self) -> int | None:
        """Its exit status, once; None while it runs. Called in the parent."""
        if not self.pid:
            return None
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if not pid:
            return None
        self.forget_pipe()
        self.pid, self.is_up = 0, False
        return os.waitstatus_to_exitcode(status)

    def wait_longer(self) -> None:
        """Sets when it is started again: after longer and longer, where it does not live long."""
        now = time.monotonic()
        # What ends at once is started again after 1, 2, 4, ... and at last 30 s; what lived for a
        # minute, after 1 s.
        lasted = now - self.since > LASTED_SECONDS
        self.due = now + (FIRST_WAIT if lasted else self.wait)
        self.wait = min(LONGEST_WAIT, 2 * (FIRST_WAIT if lasted else self.wait))


class Workers:
    """Starts processes and looks after them.

    Args:
        count: How many.
        bound: The socket that they share.
        log: The provider's, where ends and starts are noted.
        up: Called once all of them listen.

    Attributes:
        status: The exit status, once all have ended: that of a worker that could not start, else 0.
    """

    def __init__(self, count: int, bound: socket.socket, log: RequestLog, up: Callable[[], None]) -> None:
        if not hasattr(os, "fork"):
            raise PolicyError("Several workers need a system that can fork, such as Linux. Use --workers 1.")
        self._workers = [Worker(number) for number in range(count)]
        self._bound, self._log, self._up = bound, log, up
        self._alive, self._parent = os.pipe()  # the first ends when no process has the second any more
        self._were_up, self._stopping, self._deadline = False, False, float("inf")
        self.status = 0

    def run(self) -> Worker | None:
        """Starts all. It returns in each worker at once, in the parent None once all have ended."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        while True:
            for worker in self._due():
                if self._fork(worker):
                    return worker
            if self._stopping and not any(worker.pid for worker in self._workers):
                return None
            self._wait()

    def _due(self) -> Sequence[Worker]:
        """Those that are to be started now; the first one alone until it listens."""
        first, *others = self._workers
        candidates = [first, *(others if first.is_up or self._were_up else [])]
        now = time.monotonic()
        return [] if self._stopping else [worker for worker in candidates if not worker.pid and worker.due <= now]

    def _fork(self, worker: Worker) -> bool:
        """Starts a worker. Says in which of the two processes it returns: True in the worker."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid:
            os.close(writing)
            worker.pid, worker.pipe, worker.since = pid, reading, time.monotonic()
            return False
        for fd in (reading, self._parent, *(other.pipe for other in self._workers if other.pipe >= 0)):
            os.close(fd)
        worker.pipe = writing
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to read again
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        threading.Thread(target=self._end_with_parent, name="pinq-parent", daemon=True).start()
        return True

    def _end_with_parent(self) -> None:
        os.read(self._alive, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    def _wait(self) -> None:
        """Waits for a signal, or until something is due, and does what follows."""
        starting = any(worker.pid and not worker.is_up for worker in self._workers)
        due = min((worker.due - time.monotonic() for worker in self._workers if not worker.pid), default=IDLE_LOOK)
        look = STARTING_LOOK if starting or self._stopping else IDLE_LOOK
        caught = signal.sigtimedwait(SIGNALS, max(0.0, min(due, look)) if not self._stopping else look)
        if caught is not None and caught.si_signo == signal.SIGHUP:
            self._log.reopen()
            self._send(signal.SIGHUP)
        elif caught is not None and caught.si_signo != signal.SIGCHLD:
            self._stop()
        self._look()

    def _look(self) -> None:
        """Notes who listens and who has ended."""
        for worker in self._workers:
            worker.look()
            status = worker.ended()
            if status is not None:
                self._note_end(worker, status)
        if time.monotonic() > self._deadline:
            self._send(signal.SIGKILL)
        if not (self._were_up or self._stopping) and all(worker.is_up for worker in self._workers):
            self._were_up = True
            self._up()

    def _note_end(self, worker: Worker, status: int) -> None:
        if self._stopping:
            return
        self._log.write("worker ended", worker=worker.number, status=status)
        if self._were_up:
            worker.wait_longer()
        else:  # what is wrong at the start stays wrong
            self.status = max(1, status)
            self._stop()

    def _stop(self) -> None:
        """Tells all to finish; what has not after ``STOP_SECONDS`` is killed."""
        if not self._stopping:
            self._stopping, self._deadline = True, time.monotonic() + STOP_SECONDS
            self._bound.close()
        self._send(signal.SIGTERM)

    def _send(self, sign: signal.Signals) -> None:
        for worker in self._workers:
            if worker.pid:
                os.kill(worker.pid, sign)
