# SPDX-License-Identifier: Apache-2.0
"""``Workers`` runs long requests in separate processes.

Long work holds Python's interpreter during each call of C: reading a request of megabytes takes a
third of a second, in which no other thread of the process runs. So the server passes such a request
on unread: its bytes, and the function for them (``worker_process``).

A task of the event loop keeps each process: it looks for its signs of life, and replaces it where
it ended or shows none. Workers are forked from one process, the fork server of ``multiprocessing``,
which has read all modules. Threads do what may block: they start a process, send to it and hear
it. There is one worker more than there is work at a time: where one dies, no request waits.
"""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess

from pinq.curator.deadline import Deadline
from pinq.curator.meter import Meter
from pinq.errors import PinqError, PolicyError, Unavailable
from pinq.language.wire import Failure
from pinq.server.datasets import Datasets
from pinq.server.limits import Settings
from pinq.server.log import RequestLog
from pinq.server.replies import Visit, Work, begun
from pinq.server.worker_process import BEAT, END, LOOK_SECONDS, DatasetState, WorkerOutcome, WorkerTask, work_for

ANSWER_SECONDS = 0.1  # how long an idle worker may take to show life before another one is asked
LATE_SECONDS = 3.0  # a worker that showed no life for so long does not count as one that works
SICK_SECONDS = 10.0  # a process that showed no life for so long is killed
START_SECONDS = 60.0  # how long a process may take to start
OVERDUE_SECONDS = 60.0  # how long after its request's end it may work on: a call of C is not stopped
STOP_SECONDS = 5.0  # how long work may take to end when the server does
TRIES = 3  # where a worker ended at a request another one does it: an id is charged once
SILENT, ENDED = "a worker process does not answer", "a worker process ended"
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload([work_for.__module__])

Look = Callable[[Callable[[float], None]], Awaitable[None]]
"""Looks whether a request should end, and if so calls what ends it at a moment."""


class Ended(Exception):
    """The process of a request ended at it, or none shows life."""


class Worker:
    """A place for a worker's process, as the server sees it.

    Attributes:
        ends: The number of times that its process ended by itself or was killed for its silence.
    """

    def __init__(self, datasets: Datasets, log: RequestLog, threads: ThreadPoolExecutor) -> None:
        self._datasets, self._log, self._threads = datasets, log, threads
        self._shared, self._life = _PROCESSES.RawArray("d", 2), _PROCESSES.Pipe(duplex=False)[0]
        self.ends = self._unanswered = 0

    async def keep(self) -> None:
        """Keeps a process in this place: where one ended or shows no life another one is started."""
        failed = 0
        while True:
            self._pipe, theirs = _PROCESSES.Pipe()
            self._life, alive = _PROCESSES.Pipe(duplex=False)  # the process holds its other end while it lives
            states = [DatasetState.of(dataset) for dataset in self._datasets.served.values()]
            self._process = _PROCESSES.Process(target=work_for, args=(theirs, alive, self._shared, states))
            self._shared[BEAT], self._reason, self._unanswered = time.monotonic() + START_SECONDS, ENDED, 0
            asyncio.get_running_loop().run_in_executor(self._threads, _start, self._process, theirs, alive)
            while self.lives:
                await asyncio.sleep(LOOK_SECONDS)
                if time.monotonic() > self._shared[BEAT] + SICK_SECONDS:
                    self.end(SILENT)
            if self._reason:
                self.ends += 1
                self._log.write("worker ended", pid=self._process.pid, problem=self._reason)
            failed = failed + 1 if self._shared[BEAT] > time.monotonic() else 0
            if failed == TRIES:
                _end_fork_server()  # what it forks does not start

    @property
    def lives(self) -> bool:
        """Whether its process is there, or starts."""
        return not self._life.poll()

    @property
    def works(self) -> bool:
        """Whether its process has shown life just now."""
        return self.lives and 0 <= time.monotonic() - self._shared[BEAT] < LATE_SECONDS

    async def do(self, visit: Visit, work: Work, body: bytes, look: Look) -> WorkerOutcome:
        """Does a request's work. ``Ended`` where the process ended at it."""
        dataset, limit = visit.opened[0], visit.deadline.limit
        task = WorkerTask(DatasetState.of(dataset), frozenset(self._datasets.served), visit.token, work, body, limit)
        self._shared[END] = visit.deadline.end
        done = asyncio.get_running_loop().run_in_executor(self._threads, _exchange, self._pipe, task, dataset.meter)
        try:
            while not (await asyncio.wait([done], timeout=LOOK_SECONDS))[0]:
                await look(self.stop)
                if time.monotonic() > self._shared[END] + OVERDUE_SECONDS:
                    self.end(SILENT)
            return done.result()
        finally:
            self.stop()
            if not done.done():
                self.end()  # what it still does is nobody's

    async def answers(self, seconds: float) -> bool:
        """Whether its process shows life within some seconds."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._answers, seconds)

    def _answers(self, seconds: float) -> bool:
        with suppress(OSError, EOFError):  # it has ended
            self._pipe.send(None)
            self._unanswered += 1
            while self._unanswered and self._pipe.poll(seconds):
                self._pipe.recv()
                self._unanswered -= 1
            return not self._unanswered
        return False

    def stop(self, moment: float = 0.0) -> None:
        """Ends its request at a moment of the monotonic clock, at once where that is past."""
        self._shared[END] = min(self._shared[END], max(moment, time.monotonic()))

    def end(self, reason: str = "") -> None:
        """Kills its process, which another one replaces; its work is broken off. A reason is for the log."""
        self._reason = reason
        if self._process.pid is None:
            _end_fork_server()  # it hangs, and with it a thread
        else:
            self._process.kill()


def _start(process: ForkServerProcess, theirs: Connection, alive: Connection) -> None:
    """Starts a process, which may take seconds; where the fork server ends meanwhile it does not live."""
    with theirs, alive, suppress(OSError, EOFError):
        process.start()


def _fork_server() -> int | None:
    return getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)


def _end_fork_server() -> None:
    """Kills the process that forks workers; another one takes its place."""
    pid = _fork_server()
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _exchange(pipe: Connection, task: WorkerTask, meter: Meter) -> WorkerOutcome:
    """Hands a task over, and waits for its outcome."""
    try:
        pipe.send(task)
        while isinstance(message := pipe.recv(), tuple):
            refused = None
            try:
                meter.take(*message)
            except PinqError as error:
                refused = Failure.of(error)
            pipe.send(refused)
        return message
    except (OSError, EOFError):
        raise Ended from None


class Workers:
    """Divides a server's workers among heavy requests.

    Of a dataset and of a token one heavy request is worked on at a time, and of the largest bodies
    one whatever the dataset: each may take hundreds of megabytes. One worker more than there may be
    heavy requests does what takes a moment, and one is a spare.

    Args:
        datasets: The served datasets.
        settings: Limits.
        log: The provider's.

    Attributes:
        ends: The number of processes that ended by themselves or were killed.
    """

    def __init__(self, datasets: Datasets, settings: Settings, log: RequestLog) -> None:
        self._settings, self._log = settings, log
        self._free, self._heavy = asyncio.Semaphore(settings.heavy + 1), asyncio.Semaphore(settings.heavy)
        self._largest = asyncio.Lock()
        self._of = defaultdict[tuple[str, str], asyncio.Lock](asyncio.Lock)  # of a token, of a dataset
        self._threads = ThreadPoolExecutor(2 * (settings.heavy + 2), thread_name_prefix="pinq-worker")
        self._here = ThreadPoolExecutor(settings.heavy, thread_name_prefix="pinq-heavy")
        self.all = [Worker(datasets, log, self._threads) for _ in range(settings.heavy + 2)]
        self._idle, self._closed, self._keepers = [*self.all], False, list[asyncio.Task[None]]()

    @property
    def problem(self) -> str:
        """The reason why long work cannot be answered now; empty for none."""
        works = not self._keepers or any(worker.works for worker in self.all)
        return "" if works else "no worker process shows life"

    @property
    def ends(self) -> int:
        """The number of processes that ended by themselves or were killed."""
        return sum(worker.ends for worker in self.all)

    async def start(self) -> None:
        """Starts the workers, and waits for them, or for the first one that does not start."""
        keepers = [self._keep_fork_server(), *(worker.keep() for worker in self.all)]
        self._keepers = [*map(asyncio.create_task, keepers)]
        while not all(worker.works for worker in self.all) and not self.ends:
            await asyncio.sleep(0.01)

    async def _keep_fork_server(self) -> None:
        """Starts the fork server again where it ended, before a worker is due, and says so."""
        before = None
        while True:
            await asyncio.to_thread(forkserver.ensure_running)
            if before not in (None, _fork_server()):
                self._log.write("worker ended", pid=before, problem="the fork server of workers ended")
            before = _fork_server()
            await asyncio.sleep(LOOK_SECONDS)

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
        if not self._keepers:
            await self.start()
        async with self._place(visit, len(body), heavy=heavy):
            limit = math.inf if heavy else self._settings.moment_work
            visit.deadline = Deadline(self._settings.work_seconds, limit, token=visit.token)
            await look(visit.deadline.stop)
            if visit.opened[0].policy.served_by is not None:
                return await self._done_here(visit, work, body, look)
            outcome = await self._outcome(visit, work, body, look)
        visit.request = outcome.request
        if isinstance(outcome.error, PolicyError):
            self._log.write("work stays in the server", dataset=visit.dataset_name, reason=str(outcome.error))
            return await self._done_here(visit, work, body, look)
        if outcome.error is not None:
            raise outcome.error.error() if isinstance(outcome.error, Failure) else outcome.error
        return outcome.payload

    async def _outcome(self, visit: Visit, work: Work, body: bytes, look: Look) -> WorkerOutcome:
        for _ in range(TRIES):
            with suppress(Ended):
                worker = await self._answering()
                try:
                    outcome = await worker.do(visit, work, body, look)
                finally:
                    self._idle.append(worker)  # the next one to be taken, for it has its dataset open
                if len(body) > self._settings.max_body / 2 and outcome.error is None:
                    worker.end()  # what it took is given back; a refused body was only parsed
                return outcome
        raise Unavailable("the process that worked on this request has ended; the same request may be sent again.")

    async def _answering(self) -> Worker:
        """Takes a worker that shows life now; with each that does not, patience grows."""
        end, patience = time.monotonic() + SICK_SECONDS, ANSWER_SECONDS
        while time.monotonic() < end and not self._closed:
            worker, answered = self._idle.pop(), False
            try:
                answered = await worker.answers(patience)
                if answered:
                    return worker
            finally:
                if not answered:
                    self._idle.insert(0, worker)
            patience += ANSWER_SECONDS
            await asyncio.sleep(0.01)  # where none has a process
        raise Ended

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
    async def _place(self, visit: Visit, size: int, *, heavy: bool) -> AsyncIterator[None]:
        """Waits until a worker is free for it, and keeps it so."""
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
            yield

    async def close(self) -> None:
        """Ends what still runs, between two steps: what it was charged stays, unanswered."""
        self._closed = True
        for worker in self.all:
            worker.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                for _ in range(self._settings.heavy + 1):
                    await self._free.acquire()
                await asyncio.to_thread(self._here.shutdown, cancel_futures=True)
        for keeper in self._keepers:
            keeper.cancel()
        for worker in self.all:
            worker.end()
        self._threads.shutdown(wait=False, cancel_futures=True)
