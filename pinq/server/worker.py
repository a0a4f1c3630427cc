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
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from pinq.curator.deadline import Deadline
from pinq.server.log import LOG, log_details

if TYPE_CHECKING:  # the modules of a task are imported with the task
    from pinq.server.datasets import Dataset

LOOK_SECONDS = 0.5  # the interval of a worker's heartbeat, and of the server's look at a request
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # ignored: the server ends its workers
OOM_SCORE = "500"  # without memory the system kills a worker before its server, which has 0


class Worker:
    """The state of a worker process.

    Args:
        server: The connection to its server.

    Attributes:
        deadline: The deadline of the last task.
        datasets: The open datasets, by their numbers in the server.
    """

    def __init__(self, server: Connection) -> None:
        self._server, self._sending, self._inbox = server, threading.Lock(), SimpleQueue[Any]()
        self.deadline, self.datasets = Deadline(), dict[int, "Dataset"]()

    def run(self) -> None:
        """Calls one task after the other with this object; the process ends if one fails."""
        threading.Thread(target=self._listen, name="pinq-server", daemon=True).start()
        try:
            while True:
                self._send(pickle.loads(self._inbox.get())(self))  # its imports delay no heartbeat
        except BaseException:  # usually for want of memory
            LOG.exception("a worker fails")
        finally:
            os._exit(1)

    def take(self, *work: Any) -> None:
        """Asks the server whether work is within a grant's quota; arguments and errors as ``WorkMeter.take``."""
        self._send(work)
        refused = self._inbox.get()
        if refused is not None:
            raise refused

    def _send(self, message: object) -> None:
        with self._sending:
            self._server.send(message)

    def _listen(self) -> None:
        """Sends heartbeats and receives messages; ends the process after the server."""
        try:
            self._send(True)
            while True:
                while not self._server.poll(LOOK_SECONDS):
                    self._send(True)
                match self._server.recv():
                    case float(end):
                        self.deadline.stop(end)
                    case message:
                        self._inbox.put(message)
        finally:
            os._exit(1)


def main() -> None:
    """Makes this process a worker of the process that started it."""
    for name in SIGNALS:
        signal.signal(name, signal.SIG_IGN)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)
    log_details()
    Worker(Connection(0)).run()
