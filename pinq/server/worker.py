# SPDX-License-Identifier: Apache-2.0
"""``Worker`` is a process that calls functions for a server, one at a time, and shows life meanwhile.

It knows no requests and no datasets: a function arrives as a pickle, which imports its modules. So a
worker that has done nothing yet takes 8 MB, and a tenth of a second of a core to start. ``workers.py``
has the server's side.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from pinq.curator.deadline import Deadline
from pinq.server.log import LOG, log_details

if TYPE_CHECKING:  # the modules of a task are imported with the task
    from pinq.language.wire import Failure
    from pinq.server.datasets import Dataset

LOOK_SECONDS = 0.5  # the interval of a worker's heartbeat, and of the server's look at a request
OVERDUE_SECONDS = 60.0  # the longest work after a request's end, because a call of C cannot be stopped
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # ignored: the server ends its workers
OOM_SCORE = "500"  # without memory the system kills a worker before its server, which has 0


class Worker:
    """The state of a worker process.

    Args:
        server: The connection that its server writes.
        out: The connection that its server reads.

    Attributes:
        deadline: The deadline of the current task; None without a task.
        datasets: The open datasets by name, each with the packed state in which it was opened.
    """

    def __init__(self, server: Connection, out: Connection) -> None:
        self._server, self._out, self._writing = server, out, threading.Lock()
        self._tasks, self._answers = SimpleQueue[bytes](), SimpleQueue["Failure | None"]()
        self.deadline: Deadline | None = None
        self.datasets = dict[str, tuple[bytes, "Dataset"]]()

    def run(self) -> None:
        """Calls one task after the other with this object; the process ends if one fails."""
        threading.Thread(target=self._listen, name="pinq-server", daemon=True).start()
        try:
            while True:
                outcome = pickle.loads(self._tasks.get())(self)
                self.deadline = None
                self._send(outcome)
        except BaseException:  # usually for want of memory
            LOG.exception("a worker fails")
        finally:
            os._exit(1)

    def take(self, analyst: str, units: int, limit: int | None) -> None:
        """Asks the server whether work is within a grant's quota; errors as ``WorkMeter.take``."""
        if limit is not None:
            self._send((analyst, units, limit))
            refused = self._answers.get()
            if refused is not None:
                raise refused.error()

    def _send(self, message: object) -> None:
        with self._writing:
            self._out.send(message)

    def _listen(self) -> None:
        """Sends heartbeats and receives messages; ends the process after the server, or if the task is overdue."""
        try:
            while (task := self.deadline) is None or time.monotonic() < task.end + OVERDUE_SECONDS:
                self._send(None)
                if self._server.poll(LOOK_SECONDS):
                    self._receive(self._server.recv())
        finally:
            os._exit(1)

    def _receive(self, message: Deadline | float | Failure | None) -> None:
        now, current = time.monotonic(), self.deadline
        match message:
            case Deadline():  # its task follows, and is read by the thread that calls it
                message.end = max(message.end, now)  # the time for overdue work starts now
                self.deadline = message
                self._tasks.put(self._server.recv_bytes())
            case float(end) if current is not None:
                current.stop(max(end, now))
            case float():
                pass  # the task is done
            case answer:
                self._answers.put(answer)


def main() -> None:
    """Makes this process a worker of the process that started it."""
    for name in SIGNALS:
        signal.signal(name, signal.SIG_IGN)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)
    log_details()
    out = Connection(os.dup(1), readable=False)
    os.dup2(2, 1)  # prints go to standard error, not to the server
    Worker(Connection(0, writable=False), out).run()
