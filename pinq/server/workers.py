# SPDX-License-Identifier: Apache-2.0
"""``Workers`` runs long requests in separate processes.

Long work holds Python's interpreter during each call of C: reading a request of megabytes takes a
third of a second, in which no other thread of the process runs. So the server passes such a request
on unread: its bytes, and the function for them. A worker does the same as a thread of the server:
it checks the token in the ledger, prices, charges before it reads data, and answers.

Each worker is an executor of one process. Beside the executor's queues it shares two numbers with
the server (when its request ends, when it last showed life), and a pipe over which it asks whether
work is within a grant's quota: the server counts for all. A worker that shows no life is killed, and
another one takes its place.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import Future, InvalidStateError, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any

from pinq.curator.deadline import Deadline, Meter, Stopped, TooHeavy
from pinq.errors import PinqError, PolicyError, Unavailable
from pinq.language.wire import Failure
from pinq.policy.files import FileFacts
from pinq.policy.policy import Policy
from pinq.server.datasets import Dataset, Datasets, T
from pinq.server.limits import Settings
from pinq.server.log import RequestLog, log_details, unexpected
from pinq.server.replies import Visit, Work, begun

LOOK_SECONDS = 0.5  # how often a worker shows life, and how often the server looks at a request
SICK_SECONDS = 10.0  # a worker that showed no life for so long is killed
START_SECONDS = 60.0  # how long a worker may take to start
OVERDUE_SECONDS = 60.0  # how long after its request's end it may work on: a call of C is not stopped
STOP_SECONDS = 5.0  # how long work may take to end when the server does
TRIES = 2  # where a worker ended at a request another one does it: an id is charged once
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # a server ends its workers itself
END, BEAT = 0, 1  # the places of the two numbers
_PROCESSES = multiprocessing.get_context("forkserver" if hasattr(os, "fork") else "spawn")
_PROCESSES.set_forkserver_preload([__name__])

Look = Callable[[Callable[[float], None]], Awaitable[None]]
"""Looks whether a request should end, and if so calls what ends it at a moment."""


# In a worker


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
        name: The dataset's.
        facts: The facts under which the dataset is open.
        served: Names of all datasets that are served.
        token: Digest of the token.
        work: The function that is applied to the body.
        body: As it came.
        limit: The units of work that it may take.
        end: The time at which it must end, by the machine's monotonic clock.
    """

    name: str
    facts: DatasetState
    served: frozenset[str]
    token: str
    work: Work
    body: bytes
    limit: float
    end: float


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


class _Process:
    """The state of a worker process: the datasets that it opened, and its connection to the server."""

    def __init__(self, shared: Any, pipe: Connection) -> None:
        self.shared, self._pipe, self._datasets = shared, pipe, dict[str, Dataset]()

    def take(self, analyst: str, units: int, limit: int | None) -> None:
        """Asks the server whether work is within a grant's quota; errors as ``WorkMeter.take``."""
        if limit is not None:
            self._pipe.send((analyst, units, limit))
            refused: Failure | None = self._pipe.recv()
            if refused is not None:
                raise refused.error()

    def do(self, task: WorkerTask) -> WorkerOutcome:
        """Does a task."""
        visit = Visit(task.name, task.token, deadline=SharedDeadline(task, self.shared))
        try:
            visit.leased = self._opened(task)
        except PolicyError as unfit:
            return WorkerOutcome(None, error=unfit)
        try:
            payload = begun(task.work, visit, task.body)
            return WorkerOutcome(visit.request, payload)  # an id that is known only now
        except PinqError as raised:
            return WorkerOutcome(visit.request, error=Failure.of(raised))
        except (Stopped, TooHeavy) as raised:
            return WorkerOutcome(visit.request, error=raised.with_traceback(None))
        except Exception:
            return WorkerOutcome(visit.request, error=Failure.of(unexpected()))

    def _opened(self, task: WorkerTask) -> Dataset:
        facts = task.facts
        for name, opened in [*self._datasets.items()]:
            if name not in task.served or (name == task.name and DatasetState.of(opened) != facts):
                self._datasets.pop(name).close()
        if task.name not in self._datasets:
            self._datasets[task.name] = Dataset.beside(
                facts.policy, facts.url, facts.salt, facts.source, facts.version, facts.closed, self
            )
        return self._datasets[task.name]


class SharedDeadline(Deadline):
    """A turn whose end the server may bring forward."""

    def __init__(self, task: WorkerTask, shared: Any) -> None:
        super().__init__(task.end - time.monotonic(), task.limit, token=task.token)
        self._shared = shared

    def check(self) -> None:
        self.stop(self._shared[END])
        super().check()


_process: _Process


def _start(shared: Any, pipe: Connection) -> None:
    """Makes a process a worker."""
    global _process
    for name in SIGNALS:
        signal.signal(name, signal.SIG_IGN)
    log_details()
    _process = _Process(shared, pipe)
    threading.Thread(target=_show_life, args=(shared,), name="pinq-life", daemon=True).start()


def _show_life(shared: Any) -> None:
    """Shows life until the server has ended; then the worker's results are useless."""
    server = multiprocessing.parent_process()
    assert server is not None
    while not connection.wait([server.sentinel], LOOK_SECONDS):
        shared[BEAT] = time.monotonic()
    os._exit(1)


def _do(task: WorkerTask) -> WorkerOutcome:
    return _process.do(task)


# In the server


class Worker:
    """A worker as the server sees it. Its process is started when it is first needed.

    Attributes:
        problem: The reason why it could not be used last; empty for none.
        ends: The number of times that its process ended or was killed.
    """

    def __init__(self, log: RequestLog) -> None:
        self._log, self._pid = log, 0
        self._pool: ProcessPoolExecutor | None = None
        self._shared = _PROCESSES.RawArray("d", 2)
        self.problem, self.ends = "", 0

    async def do(self, visit: Visit, work: Work, body: bytes, datasets: Datasets, look: Look) -> WorkerOutcome:
        """Does a request's work. ``BrokenProcessPool`` where the process ended at it."""
        dataset, deadline = visit.opened[0], visit.deadline
        pool, pipe = await self._started()
        task = WorkerTask(
            dataset.name,
            DatasetState.of(dataset),
            frozenset(datasets.served),
            visit.token,
            work,
            body,
            deadline.limit,
            deadline.end,
        )
        self._shared[END] = deadline.end
        loop = asyncio.get_running_loop()
        loop.add_reader(pipe.fileno(), _count, pipe, dataset.meter)
        try:
            return await self._watched(partial(pool.submit, _do, task), look)
        finally:
            self.stop()
            loop.remove_reader(pipe.fileno())

    async def ping(self) -> None:
        """Looks whether it does anything at all; its ``problem`` says. One that ended is started by the next look."""
        with suppress(BrokenProcessPool):
            pool, _ = await self._started()
            await self._watched(partial(pool.submit, os.getpid))

    def stop(self, moment: float = 0.0) -> None:
        """Ends its request at a moment of the monotonic clock, at once where that is past."""
        self._shared[END] = min(self._shared[END], max(moment, time.monotonic()))

    def end(self, *, wait: bool = False) -> None:
        """Ends its process, which another one will replace; its work is broken off.

        Args:
            wait: Whether to wait until the pool has given back its semaphores, as at the end of a server.
        """
        pool, self._pool = self._pool, None
        if pool is not None:
            for process in [*(pool._processes or {}).values()]:  # nobody else has it before its first answer
                process.kill()
            # In a thread, because a start that hangs holds the lock that this waits for.
            ending = threading.Thread(target=partial(pool.shutdown, cancel_futures=True), name="pinq-end", daemon=True)
            ending.start()
            if wait:
                ending.join(STOP_SECONDS)

    async def _started(self) -> tuple[ProcessPoolExecutor, Connection]:
        if self._pool is None:
            self._pipe, theirs = _PROCESSES.Pipe()
            self._shared[BEAT] = time.monotonic() + START_SECONDS
            self._pool = ProcessPoolExecutor(1, _PROCESSES, _start, (self._shared, theirs))
            self._pid = 0
            self._pid = await self._watched(partial(_started_in_thread, self._pool))
            self._shared[BEAT] = time.monotonic()
        return self._pool, self._pipe

    async def _watched(self, submit: Callable[[], Future[T]], look: Look | None = None) -> T:
        """Hands work to the process, waits for it, and looks at it and at the request meanwhile."""
        try:
            future = asyncio.wrap_future(submit())
            while not (await asyncio.wait([future], timeout=LOOK_SECONDS))[0]:
                if look is not None:
                    await look(self.stop)
                now = time.monotonic()
                overdue = look is not None and now > self._shared[END] + OVERDUE_SECONDS
                if now > self._shared[BEAT] + SICK_SECONDS or overdue:
                    self.problem = "a worker process does not answer"
                    future.cancel()
                    raise BrokenProcessPool
            result = future.result()
        except (BrokenProcessPool, OSError, EOFError) as error:
            self.problem = self.problem or "a worker process ended"
            self.ends += 1
            self._log.write("worker ended", pid=self._pid or None, problem=self.problem)
            self.end()
            raise BrokenProcessPool from error
        self.problem = ""
        return result


def _started_in_thread(pool: ProcessPoolExecutor) -> Future[int]:
    """Starts a pool's process, which may take seconds, or for ever where the fork server hangs; returns its number."""
    number = Future[int]()

    def start() -> None:
        try:
            found: int | BaseException = pool.submit(os.getpid).result()
        except BaseException as error:
            found = error
        with suppress(InvalidStateError):  # the pool was ended, and nobody waits
            number.set_exception(found) if isinstance(found, BaseException) else number.set_result(found)

    threading.Thread(target=start, name="pinq-start", daemon=True).start()
    return number


def _count(pipe: Connection, meter: Meter) -> None:
    """Answers a worker that asks whether work is within a grant's quota."""
    with suppress(EOFError, OSError):  # it has ended
        analyst, units, limit = pipe.recv()
        try:
            meter.take(analyst, units, limit)
            pipe.send(None)
        except PinqError as error:
            pipe.send(Failure.of(error))


class Workers:
    """Divides a server's workers among heavy requests.

    Of a dataset and of a token one heavy request is worked on at a time, and of the largest bodies
    one whatever the dataset: each may take hundreds of megabytes. One worker more than there may be
    heavy requests does what takes a moment.

    Args:
        datasets: The served datasets.
        settings: Limits.
        log: The provider's.
    """

    def __init__(self, datasets: Datasets, settings: Settings, log: RequestLog) -> None:
        self._datasets, self._settings, self._log = datasets, settings, log
        self.all = [Worker(log) for _ in range(settings.heavy + 1)]
        self._idle = [*self.all]
        self._free, self._heavy = asyncio.Semaphore(len(self.all)), asyncio.Semaphore(settings.heavy)
        self._largest = asyncio.Lock()
        self._of = defaultdict[tuple[str, str], asyncio.Lock](asyncio.Lock)  # of a token, of a dataset
        self._here = ThreadPoolExecutor(settings.heavy, thread_name_prefix="pinq-heavy")
        self._closed = False

    @property
    def problem(self) -> str:
        """The reason why long work cannot be answered now; empty for none."""
        return next((worker.problem for worker in self.all if worker.problem), "")

    @property
    def ends(self) -> int:
        """The number of processes that ended by themselves or were killed."""
        return sum(worker.ends for worker in self.all)

    async def do(self, visit: Visit, work: Work, body: bytes, look: Look, *, heavy: bool) -> str:
        """Does a request's work in a worker.

        Rows of a warehouse are read once only, so such a dataset's work is done in a thread of
        the server; so is the work of a dataset that a worker cannot open as it is open there.

        Args:
            visit: The request, whose token was accepted.
            work: The work.
            body: As it came.
            look: A function that looks whether the request should end.
            heavy: Whether it takes more than a moment.

        Raises:
            Unavailable: The process ended at it, perhaps after the charge, and so did another one.
            PinqError, Stopped, TooHeavy: As the work does.
        """
        if self._closed:
            raise Unavailable("the server stops; the same request may be sent again.")
        async with self._place(visit, len(body), heavy=heavy) as worker:
            limit = math.inf if heavy else self._settings.moment_work
            visit.deadline = Deadline(self._settings.work_seconds, limit, token=visit.token)
            await look(visit.deadline.stop)
            if visit.opened[0].policy.served_by is not None:
                return await self._done_here(visit, work, body, look)
            outcome = await self._outcome(worker, visit, work, body, look)
            if len(body) > self._settings.max_body / 2 and outcome.error is None:
                worker.end()  # what it took is given back; a refused body was only parsed
        visit.request = outcome.request
        match outcome.error:
            case None:
                return outcome.payload
            case Failure() as failure:
                raise failure.error()
            case PolicyError() as error:
                self._log.write("work stays in the server", dataset=visit.dataset_name, reason=str(error))
                return await self._done_here(visit, work, body, look)
            case error:
                raise error

    async def _outcome(self, worker: Worker, visit: Visit, work: Work, body: bytes, look: Look) -> WorkerOutcome:
        for _ in range(TRIES):
            with suppress(BrokenProcessPool):
                if not self._closed:
                    return await worker.do(visit, work, body, self._datasets, look)
        raise Unavailable("the process that worked on this request has ended; the same request may be sent again.")

    async def _done_here(self, visit: Visit, work: Work, body: bytes, look: Look) -> str:
        future = asyncio.get_running_loop().run_in_executor(self._here, begun, work, visit, body)
        try:
            while not (await asyncio.wait([future], timeout=LOOK_SECONDS))[0]:
                await look(visit.deadline.stop)
                if self._closed:
                    visit.deadline.stop()
            return future.result()
        finally:
            visit.deadline.stop()

    @asynccontextmanager
    async def _place(self, visit: Visit, size: int, *, heavy: bool) -> AsyncIterator[Worker]:
        """Waits for a worker, and keeps it."""
        async with AsyncExitStack() as places:
            if heavy:
                # In this order: who waits for the turn of a token or a dataset holds no worker
                # meanwhile, and who waits for memory does not hold up what is smaller in its dataset.
                await places.enter_async_context(self._of["token", visit.token])
                if size > self._settings.max_body / 2:
                    await places.enter_async_context(self._largest)
                await places.enter_async_context(self._of["dataset", visit.dataset_name])
                await places.enter_async_context(self._heavy)
            await places.enter_async_context(self._free)
            worker = self._idle.pop()
            places.callback(self._idle.append, worker)
            yield worker

    async def ping(self) -> None:
        """Starts each idle worker that has no process, and ends each that would do nothing."""
        # All others are looked at by their requests.
        await asyncio.gather(*map(self._ping, [*self._idle]))

    async def _ping(self, worker: Worker) -> None:
        async with self._free:
            if worker in self._idle:  # no request has taken it meanwhile
                self._idle.remove(worker)
                try:
                    await worker.ping()
                finally:
                    self._idle.append(worker)

    async def close(self) -> None:
        """Ends what still runs, between two steps: what it was charged stays, unanswered."""
        self._closed = True
        for worker in self.all:
            worker.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                for _ in self.all:
                    await self._free.acquire()
                await asyncio.to_thread(self._here.shutdown, cancel_futures=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                for worker in self.all:
                    await asyncio.to_thread(worker.end, wait=True)
