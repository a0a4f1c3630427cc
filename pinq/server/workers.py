# SPDX-License-Identifier: Apache-2.0
"""``Workers`` runs long requests in separate processes.

Long calls of C hold Python's interpreter: parsing a request of megabytes takes a third of a second, in
which no other thread of the process runs. So the server passes such a request on unread, as bytes and
a function. A worker does the same as a thread of the server: it checks the token in the ledger,
prices, charges before it reads data, and answers.

Workers are plain processes (``worker.py``), started before the server is ready. The server writes tasks,
new deadlines and answers to their standard input. A worker writes heartbeats, questions about a grant's
quota, and outcomes to its standard output. One coroutine keeps each worker: it starts another process if
one ends or is silent, at its start, idle or at work. A request whose worker ended goes to another worker;
an id is charged once. A worker imports modules and opens datasets only for its tasks, so spares take
little memory.
"""

from __future__ import annotations

import asyncio
import math
import os
import pickle
import struct
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from subprocess import PIPE, Popen
from typing import Any

from pinq.curator.deadline import Deadline, Meter, Stopped, TooHeavy
from pinq.errors import PinqError, PolicyError, Unavailable
from pinq.language.wire import Failure
from pinq.server.datasets import Dataset, Datasets
from pinq.server.limits import Settings
from pinq.server.log import LOG, RequestLog, unexpected
from pinq.server.replies import Visit, Work, begun
from pinq.server.worker import LOOK_SECONDS, Worker, main

SICK_SECONDS = 10.0  # the time without a heartbeat after which a worker is killed
START_SECONDS = 60.0  # the longest start of a worker
PAUSE_SECONDS = 5.0  # the pause after a failed start
STOP_SECONDS = 5.0  # the longest wait for work when the server stops
TRIES = 2  # workers that try a request if one ends
# -P: files in the current folder are not imported as modules.
COMMAND = (sys.executable, "-P", "-c", f"from {main.__module__} import main; main()")

Look = Callable[[Callable[[float], None]], Awaitable[None]]
"""Checks whether a request should end, and if so calls its argument with the moment."""


@dataclass(frozen=True)
class WorkerTask:
    """A request for a worker, which calls it.

    Attributes:
        state: The packed state of the dataset in the server.
    """

    visit: Visit
    work: Work
    body: bytes
    state: bytes
    served: frozenset[str]

    def __call__(self, worker: Worker) -> WorkerOutcome:
        """Does the request; raises ``MemoryError`` if a process with more memory could do it."""
        visit = self.visit
        assert worker.deadline is not None
        visit.deadline = worker.deadline
        try:
            visit.leased = self._opened(worker)
            payload = begun(self.work, visit, self.body)
            return WorkerOutcome(visit.request, payload)  # the id is read by the work
        except Exception as error:
            if isinstance(error, MemoryError) or isinstance(error.__context__, MemoryError):
                raise MemoryError from None
            return WorkerOutcome(visit.request, error=_sent(error, opened=visit.leased is not None))

    def _opened(self, worker: Worker) -> Dataset:
        wanted, datasets = self.visit.dataset_name, worker.datasets
        for name, (state, dataset) in [*datasets.items()]:
            if name not in self.served or (name == wanted and state != self.state):
                del datasets[name]
                dataset.close()
        if wanted not in datasets:
            datasets[wanted] = self.state, Dataset.beside(pickle.loads(self.state), worker)
        return datasets[wanted][1]


@dataclass(frozen=True)
class WorkerOutcome:
    """The outcome of a task.

    Attributes:
        payload: The answer as JSON; empty after an error.
        error: The error, or None. A ``PolicyError`` means that the worker cannot open the dataset in the server's
            state, and has done nothing.
    """

    request: str | None
    payload: str = ""
    error: Failure | Exception | None = None


def _sent(error: Exception, *, opened: bool) -> Failure | Exception:
    """An error in a form that can be pickled, which some of our classes cannot."""
    match error:
        case PolicyError() if not opened:
            return PolicyError(str(error))
        case PinqError():
            return Failure.of(error)
        case Stopped() | TooHeavy():
            return error.with_traceback(None)
    return Failure.of(unexpected())


@dataclass(eq=False)
class WorkerProcess:
    """The server's side of a worker.

    Attributes:
        stdin, stdout: The ends of its pipes, for writing and for reading.
        life: The time of its last heartbeat; 0 while it starts.
        outcome: The future outcome of its task, with the result None if the process ends; None if idle.
        meter: The meter of its task's dataset.
    """

    process: Popen[bytes]
    stdin: asyncio.WriteTransport
    stdout: asyncio.StreamReader
    life: float = 0.0
    outcome: asyncio.Future[WorkerOutcome | None] | None = None
    meter: Meter | None = None

    @classmethod
    async def started(cls) -> WorkerProcess:
        """Starts a process, in a thread: uvloop's own way copies page tables, and stops all for 40 ms a gigabyte."""
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        process = await asyncio.to_thread(Popen, COMMAND, stdin=PIPE, stdout=PIPE, env=environment)
        loop, stdout = asyncio.get_running_loop(), asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdout), process.stdout)
        stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)
        return cls(process, stdin, stdout)

    def send(self, *messages: object) -> None:
        """Sends messages, framed as by ``multiprocessing.connection.Connection``; never waits."""
        for data in [pickle.dumps(message) for message in messages]:  # all, or none
            if not self.stdin.is_closing():
                self.stdin.write(struct.pack("!i", len(data)) + data)

    async def heard(self) -> Any:
        """The next message; raises ``EOFError`` if the process has ended."""
        (size,) = struct.unpack("!i", await self.stdout.readexactly(4))
        return pickle.loads(await self.stdout.readexactly(size))

    def stop(self, outcome: asyncio.Future[WorkerOutcome | None], end: float) -> None:
        """Tells it when a task ends; nothing if it works on another task by now, or on none."""
        if self.outcome is outcome:
            self.send(end)

    def settle(self, outcome: WorkerOutcome | None) -> None:
        if self.outcome is not None and not self.outcome.done():
            self.outcome.set_result(outcome)
        self.outcome = None

    async def end(self) -> None:
        """Kills its process, and waits for its end."""
        self.settle(None)
        self.process.kill()
        await asyncio.to_thread(self.process.wait)
        self.stdin.close()


class Workers:
    """Divides a server's workers among heavy requests.

    At most one heavy request of each dataset and of each token runs at a time. At most one request with
    a very large body runs at all, because it may take hundreds of megabytes. One more worker is for
    short requests.

    Attributes:
        problem: The reason why long work cannot be answered now; empty for none.
        ends: The number of processes that ended by themselves or were killed.
        alive: The workers that have started.
    """

    def __init__(self, datasets: Datasets, settings: Settings, log: RequestLog) -> None:
        self._datasets, self._settings, self._log = datasets, settings, log
        self._changed, self._heavy = asyncio.Condition(), asyncio.Semaphore(settings.heavy)
        self._largest = asyncio.Lock()
        self._of = defaultdict[tuple[str, str], asyncio.Lock](asyncio.Lock)  # of each token and each dataset
        self._here = ThreadPoolExecutor(settings.heavy, thread_name_prefix="pinq-heavy")
        self._keepers, self._closed = list[asyncio.Task[None]](), False
        self.problem, self.ends, self.alive = "", 0, list[WorkerProcess]()

    async def start(self) -> None:
        """Starts all workers, and waits until all have started or one has failed."""
        self._keepers = [asyncio.create_task(self._keep()) for _ in range(self._settings.heavy + 1)]
        async with self._changed:
            await self._changed.wait_for(lambda: self.ends or len(self.alive) == len(self._keepers))

    async def do(self, visit: Visit, work: Work, body: bytes, look: Look, *, heavy: bool) -> str:
        """Does a request's work in a worker, ``heavy`` unless it is short; ``look`` checks whether it should end.

        A thread of the server does the work for a warehouse's dataset, whose rows are read once only,
        and for a dataset that a worker cannot open in the server's state.

        Raises:
            Unavailable: Two processes ended at the request, perhaps after the charge.
            PinqError, Stopped, TooHeavy: As the work does.
        """
        async with self._turn(visit, len(body), heavy=heavy):
            limit = math.inf if heavy else self._settings.moment_work
            visit.deadline = Deadline(self._settings.work_seconds, limit, token=visit.token)
            await look(visit.deadline.stop)
            if visit.opened[0].policy.served_by is None:
                outcome = await self._outcome(visit, work, body, look)
                visit.request = outcome.request
                match outcome.error:
                    case None:
                        return outcome.payload
                    case Failure() as failure:
                        raise failure.error()
                    case PolicyError() as error:
                        self._log.write("work stays in the server", dataset=visit.dataset_name, reason=str(error))
                    case error:
                        raise error
            here = asyncio.get_running_loop().run_in_executor(self._here, begun, work, visit, body)
            return await self._watched(here, visit, look)

    async def _outcome(self, visit: Visit, work: Work, body: bytes, look: Look) -> WorkerOutcome:
        """Sends a request to a worker; if that worker ends, to another."""
        dataset, sent = visit.opened[0], Visit(visit.dataset_name, visit.token)
        for _ in range(TRIES):
            task = WorkerTask(sent, work, body, dataset.packed, frozenset(self._datasets.served))
            async with self._changed:
                await self._changed.wait_for(lambda: self._closed or self._idle or not self.alive)
                if self._closed or not self.alive:
                    break
                # The first worker with a recent heartbeat: it has opened most datasets; a stopped worker sends none.
                latest = max(worker.life for worker in self._idle)
                worker = next(worker for worker in self._idle if worker.life > latest - 2 * LOOK_SECONDS)
                coming = worker.outcome = asyncio.get_running_loop().create_future()
                worker.meter = dataset.meter
                worker.send(visit.deadline, task)
            outcome = await self._watched(coming, visit, look, partial(worker.stop, coming))
            if outcome is not None:
                return outcome
        raise Unavailable("no worker process could finish this request; the same request may be sent again.")

    async def _watched(
        self, future: asyncio.Future[Any], visit: Visit, look: Look, tell: Callable[[float], None] = lambda end: None
    ) -> Any:
        """Waits for work and meanwhile checks its request; stops the work if the wait is cancelled."""
        try:
            while not (await asyncio.wait([future], timeout=LOOK_SECONDS))[0]:
                await look(visit.deadline.stop)
                if self._closed:
                    visit.deadline.stop()
                tell(visit.deadline.end)
            return future.result()
        except BaseException:
            visit.deadline.stop()
            tell(visit.deadline.end)
            raise

    @asynccontextmanager
    async def _turn(self, visit: Visit, size: int, *, heavy: bool) -> AsyncIterator[None]:
        """Waits for the turn of a heavy request, and holds it."""
        async with AsyncExitStack() as turn:
            if heavy:
                # In this order, a request that waits for its token or dataset delays no other request, and a
                # request that waits for memory does not delay smaller requests of its dataset.
                await turn.enter_async_context(self._of["token", visit.token])
                if size > self._settings.max_body / 2:
                    await turn.enter_async_context(self._largest)
                await turn.enter_async_context(self._of["dataset", visit.dataset_name])
                await turn.enter_async_context(self._heavy)
            yield

    @property
    def _idle(self) -> list[WorkerProcess]:
        return [worker for worker in self.alive if worker.outcome is None]

    async def _keep(self) -> None:
        """Keeps a worker: starts another process if one ends or is silent."""
        while True:
            worker, problem = None, "a worker process ended"
            try:
                worker = await WorkerProcess.started()
                await self._hear(worker)
            except TimeoutError:
                problem = "a worker process does not answer"
            except Exception:  # usually the end of its output
                LOG.debug("%s", problem, exc_info=True)
            finally:
                self.alive = [process for process in self.alive if process is not worker]
                if not self._closed:  # logged before requests learn of it
                    self.ends += 1
                    self.problem = "" if self.alive else problem
                    self._log.write("worker ended", pid=worker.process.pid if worker else None, problem=problem)
                if worker is not None:
                    await worker.end()
            await self._tell()
            if worker is None or not worker.life:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _hear(self, worker: WorkerProcess) -> None:
        """Takes a worker's messages until it ends (``EOFError``) or is silent (``TimeoutError``).

        Silence is counted in looks: a server that was stopped, with or without its workers, has one look for all that
        time, and hears them before the next.
        """
        taking, silent = asyncio.create_task(self._take(worker)), 0.0
        try:
            while not taking.done():
                life = worker.life
                await asyncio.wait([taking], timeout=LOOK_SECONDS)
                silent = silent + LOOK_SECONDS if worker.life == life else 0.0
                if silent > (SICK_SECONDS if life else START_SECONDS):
                    raise TimeoutError
            await taking
        finally:
            taking.cancel()

    async def _take(self, worker: WorkerProcess) -> None:
        while True:
            message = await worker.heard()
            if not worker.life:
                self.alive.append(worker)
                self.problem = ""
            worker.life = time.monotonic()
            match message:
                case WorkerOutcome():
                    worker.settle(message)
                case _, _, _ if worker.meter is not None:
                    worker.send(_refused(worker.meter, *message))
            await self._tell()

    async def _tell(self) -> None:
        """Wakes the waiting requests after a change of workers."""
        async with self._changed:
            self._changed.notify_all()

    async def close(self) -> None:
        """Ends running work between two steps; its charges stay, without an answer."""
        self._closed = True
        await self._tell()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                async with self._changed:
                    await self._changed.wait_for(lambda: len(self._idle) == len(self.alive))
                await asyncio.to_thread(self._here.shutdown, cancel_futures=True)
        for keeper in self._keepers:
            keeper.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await asyncio.gather(*self._keepers, return_exceptions=True)


def _refused(meter: Meter, *work: Any) -> Failure | None:
    """Counts a worker's next work; returns the refusal, or None."""
    try:
        meter.take(*work)
    except PinqError as error:
        return Failure.of(error)
    return None
