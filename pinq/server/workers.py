# SPDX-License-Identifier: Apache-2.0
"""``Workers`` runs long requests in separate processes.

Long calls of C hold Python's interpreter: parsing a request of megabytes takes a third of a second, in
which no other thread of the process runs. So the server passes such a request on unread, as bytes and
a function. A worker does the same as a thread of the server: it checks the token in the ledger,
prices, charges before it reads data, and answers.

Workers are plain processes (``worker.py``), started before the server is ready. One thread of the server keeps each
worker: it starts another process if one ends or is silent. At work the two talk over a socket: the worker sends
heartbeats, questions about a grant's quota and the outcome; the thread sends the task, its present deadline and
answers. A request whose worker ended goes to another worker; an id is charged once. A worker imports modules and opens
datasets only for its tasks, so spares take little memory.
"""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import socket
import struct
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from multiprocessing.connection import Connection
from subprocess import Popen
from typing import Any

from pinq.curator.deadline import Deadline, Meter, Stopped, TooHeavy
from pinq.errors import PinqError, Unavailable
from pinq.server.datasets import Dataset, Datasets
from pinq.server.limits import Settings
from pinq.server.log import LOG, RequestLog, unexpected
from pinq.server.replies import Visit, Work, begun
from pinq.server.worker import LOOK_SECONDS, Worker, main

SICK_SECONDS = 10.0  # the time without a heartbeat after which a worker is killed
START_SECONDS = 60.0  # the longest start of a worker
OVERDUE_SECONDS = 60.0  # the longest work after a request's end, because a call of C cannot be stopped
PAUSE_SECONDS = 5.0  # the pause after a failed start
STOP_SECONDS = 5.0  # the longest wait for work when the server stops
TRIES = 2  # workers that try a request if one ends
# -P: files in the current folder are not imported as modules.
COMMAND = (sys.executable, "-P", "-c", f"from {main.__module__} import main; main()")

# Checks whether a request should end, and if so calls its argument with the moment.
Look = Callable[[Callable[[float], None]], Awaitable[None]]
# The id of a request, and its answer as JSON or its error.
Outcome = tuple[str | None, str | Exception]


def outcome_of(work: Work, visit: Visit, body: bytes) -> Outcome:
    """Does a request's work; raises ``MemoryError`` if a process with more memory could do it."""
    answer: str | Exception
    try:
        answer = begun(work, visit, body)
    except Exception as error:
        if isinstance(error, MemoryError) or isinstance(error.__context__, MemoryError):
            raise MemoryError from None
        answer = error if isinstance(error, (PinqError, Stopped, TooHeavy)) else unexpected()
    return visit.request, answer  # the id is read by the work


def outcome_beside(
    work: Work, visit: Visit, body: bytes, dataset: tuple[int, bytes], served: frozenset[int], worker: Worker
) -> Outcome | str:
    """Does a request's work in a worker; returns the reason if it cannot open the dataset in the server's state.

    A dataset is given by its number and its packed state in the server. The worker keeps it open while its number is
    ``served``.
    """
    worker.deadline, datasets, (number, state) = visit.deadline, worker.datasets, dataset
    for closed in datasets.keys() - served:
        datasets.pop(closed).close()
    try:
        if number not in datasets:
            datasets[number] = Dataset.beside(pickle.loads(state), worker)
    except MemoryError:
        raise
    except Exception as error:
        return str(error if isinstance(error, PinqError) else unexpected())
    visit.leased = datasets[number]
    return outcome_of(work, visit, body)


class WorkerProcess:
    """The server's side of a worker.

    Attributes:
        connection: The connection to it. Also a stopped process holds up no writer or reader for long.
        silent: The time without a message, counted in looks. A server that was stopped, with or without its workers,
            has one look for all that time.
        alive: Whether it has started.
        outcome: The future outcome of its present task, with the result None if the process ends; None if idle.
    """

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", math.ceil(SICK_SECONDS), 0))
        with theirs:
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
            self.process = Popen(COMMAND, stdin=theirs.fileno(), stdout=2, env=environment)
        self.connection, self.silent, self.alive = Connection(ours.detach()), 0.0, False
        self.outcome: Future[Outcome | None] | None = None

    def hear(self, wait: float) -> Any:
        """The next message, or None if none comes within ``wait`` seconds.

        Raises:
            TimeoutError: It has been silent for too long.
            EOFError, OSError: It has ended.
        """
        if self.connection.poll(wait):
            self.silent = 0.0
            return self.connection.recv()
        self.silent += LOOK_SECONDS
        if self.silent > (SICK_SECONDS if self.alive else START_SECONDS):
            raise TimeoutError
        return None

    def answer(self, deadline: Deadline, meter: Meter) -> Outcome | str:
        """The result of its task, which ``outcome_beside`` returns; meanwhile tells it the present end of the deadline.

        Raises:
            TimeoutError: It goes on long after its deadline, or as ``hear``.
            EOFError, OSError: As ``hear``.
        """
        overdue = 0.0
        while overdue < OVERDUE_SECONDS:
            match self.hear(LOOK_SECONDS):
                case str(reason):
                    return reason
                case (request, answer):
                    return request, answer
                case (analyst, units, limit):
                    self.connection.send(_refusal(meter, analyst, units, limit))
                case True:  # a heartbeat
                    overdue += LOOK_SECONDS if time.monotonic() >= deadline.end else 0.0
                    self.connection.send(deadline.end)
        raise TimeoutError

    def end(self) -> None:
        """Kills it, and waits for its end."""
        self.process.kill()
        self.process.wait()
        self.connection.close()
        if self.outcome is not None:
            self.outcome.set_result(None)


def _refusal(meter: Meter, *work: Any) -> PinqError | None:
    """Counts a worker's next work; returns the refusal, or None."""
    try:
        meter.take(*work)
    except PinqError as error:
        return error
    return None


class Workers:
    """Divides a server's workers among heavy requests.

    At most one heavy request of each dataset and of each token runs at a time. At most one request with
    a very large body runs at all, because it may take hundreds of megabytes. One more worker is for
    short requests.

    Attributes:
        ends: The number of processes that ended by themselves or were killed.
    """

    def __init__(self, datasets: Datasets, settings: Settings, log: RequestLog) -> None:
        self._datasets, self._settings, self._log = datasets, settings, log
        self._heavy, self._largest = asyncio.Semaphore(settings.heavy), asyncio.Lock()
        self._of = defaultdict[tuple[str, str], asyncio.Lock](asyncio.Lock)  # of each token and each dataset
        self._keepers = list[threading.Thread]()
        self._changed, self._closing = threading.Condition(), threading.Event()
        self._jobs = deque[tuple[Future[Outcome | None], Callable[[WorkerProcess], Outcome]]]()
        self._processes, self._problem, self.ends = list[WorkerProcess](), "", 0

    @property
    def alive(self) -> list[WorkerProcess]:
        """The workers that have started."""
        return [worker for worker in self._processes if worker.alive]

    @property
    def problem(self) -> str:
        """The reason why long work cannot be answered now; empty for none."""
        return "" if self.alive else self._problem

    async def start(self) -> None:
        """Starts all workers, and waits until all have started or one has failed."""
        for _ in range(self._settings.heavy + 1):
            self._keepers.append(threading.Thread(target=self._keep, name="pinq-worker", daemon=True))
            self._keepers[-1].start()
        while len(self.alive) < len(self._keepers) and not self.ends:
            await asyncio.sleep(0.01)

    async def do(self, visit: Visit, work: Work, body: bytes, look: Look, *, heavy: bool) -> str:
        """Does a request's work in a worker, ``heavy`` unless it is short; ``look`` checks whether it should end.

        Raises:
            Unavailable: Two processes ended at the request, perhaps after the charge.
            PinqError, Stopped, TooHeavy: As the work does.
        """
        async with AsyncExitStack() as turn:
            for part in self._turn(visit, len(body)) if heavy else ():
                await turn.enter_async_context(part)
            limit = math.inf if heavy else self._settings.moment_work
            visit.deadline = Deadline(self._settings.work_seconds, limit, token=visit.token)
            await look(visit.deadline.stop)
            for _ in range(TRIES):
                outcome = await self._watched(partial(self._outcome, work, visit, body), visit.deadline, look)
                if outcome is not None:
                    visit.request, answer = outcome
                    if isinstance(answer, Exception):
                        raise answer
                    return answer
            raise Unavailable("no worker process could finish this request; the same request may be sent again.")

    def _turn(self, visit: Visit, size: int) -> list[AbstractAsyncContextManager[object]]:
        """The locks that a heavy request holds.

        In this order, a request that waits for its token or dataset delays no other request, and a request that waits
        for memory does not delay smaller requests of its dataset.
        """
        largest = [self._largest] if size > self._settings.max_body / 2 else []
        return [self._of["token", visit.token], *largest, self._of["dataset", visit.dataset_name], self._heavy]

    async def _watched(
        self, task: Callable[[WorkerProcess], Outcome], deadline: Deadline, look: Look
    ) -> Outcome | None:
        """Waits for a task and meanwhile checks its request; returns None if its worker ended, or none lives."""
        job: Future[Outcome | None] = Future()
        with self._changed:
            self._jobs.append((job, task))
            self._changed.notify_all()
        outcome = asyncio.wrap_future(job)
        try:
            while not (await asyncio.wait([outcome], timeout=LOOK_SECONDS))[0]:
                await look(deadline.stop)
                if self._closing.is_set():
                    deadline.stop()
                if (self._closing.is_set() or not self.alive) and job.cancel():
                    return None
            return outcome.result()
        except BaseException:
            job.cancel()  # if no worker has it yet
            deadline.stop()
            raise

    def _keep(self) -> None:
        """Keeps a worker until the server stops: starts another process if one ends or is silent."""
        while not self._closing.is_set():
            worker = None
            try:
                worker = WorkerProcess()
                self._use(worker)
            except Exception as error:  # usually the end of its connection
                LOG.debug("a worker is lost", exc_info=True)
                silent = isinstance(error, (TimeoutError, BlockingIOError))
                self._lost(worker, "a worker process does not answer" if silent else "a worker process ended")
            if worker is not None:
                worker.end()
            if worker is None or not worker.alive:
                self._closing.wait(PAUSE_SECONDS)

    def _use(self, worker: WorkerProcess) -> None:
        """Gives tasks to a worker until the server stops; errors as ``WorkerProcess.hear``."""
        with self._changed:
            self._processes = [*self._processes, worker]
        while not self._closing.is_set():
            with self._changed:
                wait = LOOK_SECONDS if worker.alive else 0.0
                self._changed.wait_for(lambda: self._closing.is_set() or self._next is worker, wait)
                if self._next is worker:
                    worker.outcome, task = self._jobs.popleft()
                    self._changed.notify_all()  # the next job is another worker's
            if worker.outcome is None:
                while worker.hear(0.0 if worker.alive else LOOK_SECONDS):
                    worker.alive = True
            elif worker.outcome.set_running_or_notify_cancel():
                worker.outcome.set_result(task(worker))
            worker.outcome = None

    @property
    def _next(self) -> WorkerProcess | None:
        """The worker of the next job, if there is one: the first idle one that shows life, with most datasets open."""
        idle = (worker for worker in self.alive if worker.outcome is None and worker.silent <= 2 * LOOK_SECONDS)
        return next(idle, None) if self._jobs else None

    def _outcome(self, work: Work, visit: Visit, body: bytes, worker: WorkerProcess) -> Outcome:
        """Has a worker do a request's work; errors as ``WorkerProcess.hear``.

        This thread does it for a warehouse's dataset, whose rows are read once only, and for a dataset that a worker
        cannot open in the server's state.
        """
        dataset, _ = visit.opened
        if dataset.policy.served_by is None:
            sent = Visit(visit.dataset_name, visit.token, deadline=visit.deadline)
            state = dataset.number, dataset.packed
            served = frozenset({dataset.number, *(other.number for other in self._datasets.served.values())})
            worker.connection.send(pickle.dumps(partial(outcome_beside, work, sent, body, state, served)))
            outcome = worker.answer(visit.deadline, dataset.meter)
            if not isinstance(outcome, str):
                return outcome
            self._log.write("work stays in the server", dataset=visit.dataset_name, reason=outcome)
        return outcome_of(work, visit, body)

    def _lost(self, worker: WorkerProcess | None, problem: str) -> None:
        """Notes the end of a worker, before its request learns of it."""
        with self._changed:
            self._processes = [other for other in self._processes if other is not worker]
            self._changed.notify_all()
            if not self._closing.is_set():
                self.ends, self._problem = self.ends + 1, problem
                self._log.write("worker ended", pid=worker.process.pid if worker else None, problem=problem)

    async def close(self) -> None:
        """Ends running work between two steps; its charges stay, without an answer."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        for _ in range(2):
            await asyncio.gather(*(asyncio.to_thread(keeper.join, STOP_SECONDS) for keeper in self._keepers))
            for worker in self.alive:
                worker.process.kill()
