# SPDX-License-Identifier: Apache-2.0
"""A worker in its own process: it does one request after the other, and shows life meanwhile.

It does what a thread of the server does: it checks the token in the ledger, prices, charges before
it reads data, and answers. The server shares two numbers with it (when its request ends, when it
last showed life), and a pipe: a task comes and an outcome goes back, and between them the worker
asks whether work is within a grant's quota, for the server counts for all. None is answered by None.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pinq.curator.deadline import Deadline, Stopped, TooHeavy
from pinq.errors import PinqError, PolicyError
from pinq.language.wire import Failure
from pinq.policy.files import FileFacts
from pinq.policy.policy import Policy
from pinq.server.datasets import Dataset
from pinq.server.log import log_details, unexpected
from pinq.server.replies import Visit, Work, begun

LOOK_SECONDS = 0.5  # how often a worker shows life, and how often the server looks at it
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # a server ends its workers itself
END, BEAT = 0, 1  # the places of the two numbers


@dataclass(frozen=True)
class DatasetState:
    """The state of a dataset that is open in the server.

    Attributes:
        policy: The policy under which it is opened.
        url: The place of its ledger.
        salt: The ledger's own salt, which tells it from another one in its place.
        source: The facts of its source's files when they were encoded.
        version: The version of the rows that they are.
        closed: The numbers of the closed cohorts' versions, by the keys of their parts.
    """

    policy: Policy
    url: str
    salt: bytes = field(repr=False)
    source: tuple[FileFacts, ...]
    version: int
    closed: Mapping[bytes, int]

    @classmethod
    def of(cls, dataset: Dataset) -> DatasetState:
        """The state of an open dataset."""
        rows = dataset.rows
        return cls(dataset.policy, dataset.ledger.url, dataset.ledger.salt, rows.source, rows.version, rows.closed)


@dataclass(frozen=True)
class WorkerTask:
    """A request that is handed over.

    Attributes:
        dataset: The state in which its dataset is open.
        served: Names of all datasets that are served.
        token: Digest of the token.
        work: The function that is applied to the body.
        body: As it came.
        limit: The units of work that it may take.
    """

    dataset: DatasetState
    served: frozenset[str]
    token: str
    work: Work
    body: bytes
    limit: float


@dataclass(frozen=True)
class WorkerOutcome:
    """The outcome of a task.

    Attributes:
        request: The request's id, once it was read.
        payload: JSON.
        error: The error in its place; a ``PolicyError`` where the dataset cannot be opened there as
            it is open in the server, and nothing was done; None for none.
    """

    request: str | None
    payload: str = ""
    error: Failure | Stopped | TooHeavy | PolicyError | None = None


class WorkerProcess:
    """The state of a worker: the datasets that it opened, and its connection to the server."""

    def __init__(self, pipe: Connection, shared: Any) -> None:
        self._pipe, self._shared, self._datasets = pipe, shared, dict[str, Dataset]()

    def take(self, analyst: str, units: int, limit: int | None) -> None:
        """Asks the server whether work is within a grant's quota; errors as ``WorkMeter.take``."""
        if limit is not None:
            self._pipe.send((analyst, units, limit))
            refused: Failure | None = self._pipe.recv()
            if refused is not None:
                raise refused.error()

    def run(self) -> None:
        """Does what comes. Raises ``MemoryError`` where a task needs too much: a new process has more."""
        while True:
            task: WorkerTask | None = self._pipe.recv()
            self._pipe.send(None if task is None else self._done(task))

    def _done(self, task: WorkerTask) -> WorkerOutcome:
        end, shared = self._shared[END] - time.monotonic(), self._shared
        # On this clock its end is 0, whenever the server says that it is.
        deadline = Deadline(end, task.limit, lambda: time.monotonic() - shared[END], task.token)
        visit = Visit(task.dataset.policy.name, task.token, deadline=deadline)
        try:
            visit.leased = self.opened(task.dataset, task.served)
        except PolicyError as unfit:
            return WorkerOutcome(None, error=unfit)
        try:
            payload = begun(task.work, visit, task.body)
            return WorkerOutcome(visit.request, payload)  # an id that is known only now
        except (Stopped, TooHeavy) as raised:
            return WorkerOutcome(visit.request, error=raised.with_traceback(None))
        except Exception as raised:
            if MemoryError in (type(raised), type(raised.__context__)):
                raise
            failure = raised if isinstance(raised, PinqError) else unexpected()
            return WorkerOutcome(visit.request, error=Failure.of(failure))

    def opened(self, state: DatasetState, served: Container[str]) -> Dataset:
        """Opens a dataset, unless it is open so; others stay open while they are served."""
        name = state.policy.name
        for other, opened in [*self._datasets.items()]:
            if other not in served or (other == name and DatasetState.of(opened) != state):
                self._datasets.pop(other).close()
        if name not in self._datasets:
            self._datasets[name] = Dataset.beside(
                state.policy, state.url, state.salt, state.source, state.version, state.closed, self
            )
        return self._datasets[name]


def work_for(pipe: Connection, alive: Connection, shared: Any, states: Sequence[DatasetState]) -> None:
    """Makes a process a worker, until it or the server ends.

    Args:
        pipe: The pipe of tasks.
        alive: The end of another pipe, which shows by closing that the process ended.
        shared: The two numbers.
        states: The datasets that it opens ahead.
    """
    try:
        for name in SIGNALS:
            signal.signal(name, signal.SIG_IGN)
        with suppress(OSError):  # where memory is short a worker is ended, and not the server
            Path("/proc/self/oom_score_adj").write_text("500")
        log_details()
        threading.Thread(target=_show_life, args=(shared,), name="pinq-life", daemon=True).start()
        worker = WorkerProcess(pipe, shared)
        for state in states:
            with suppress(PinqError):  # whoever asks is told
                worker.opened(state, {state.policy.name for state in states})
        worker.run()
    finally:
        os._exit(1)


def _show_life(shared: Any) -> None:
    """Shows life until the server has ended; then the worker's results are useless."""
    server = multiprocessing.parent_process()
    assert server is not None
    while True:
        shared[BEAT] = time.monotonic()
        if connection.wait([server.sentinel], LOOK_SECONDS):
            os._exit(1)
