# SPDX-License-Identifier: Apache-2.0
"""``Lanes`` divides a server's threads: what is soon done never waits for what takes long.

Every request begins in the light lane, whose turn takes a fiftieth of a second's work. What needs
more (or has a large body) begins again in the middle lane, and past a tenth of a second in the heavy
lane of its dataset, where one request runs at a time and each analyst has one place in the queue. So
a hundred heavy requests of one dataset hold one thread, and one more core of another dataset is
never theirs. Of the largest bodies one is worked on at a time, whatever the dataset: each may take
hundreds of megabytes. Where the server has a sibling (``handover.py``), only the light lane's work is done in
the server's process: what takes longer keeps its interpreter from nobody.

What charges waits for the disk most of its time, so many may be at it; what only reads keeps the
interpreter to itself, and of that one is worked on at a time for each dataset and lane. And while
others wait for its place, a reader keeps it for three times as long as it took and a fiftieth of a
second more, up to a fifth: who reads histories as fast as a machine can leaves more than three
quarters of the time to those who ask. The fiftieth is for what a request takes on its way through the
event loop, which is more than to read a line: without it the median of who asks was three times as long.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from functools import partial
from typing import NamedTuple, TypeVar

from starlette.requests import Request

from pinq.curator.work import TooHeavy, Turn
from pinq.engine.cores import roam
from pinq.errors import LedgerError
from pinq.server.api.limits import Settings, Share
from pinq.server.api.memory import give_back
from pinq.server.api.visit import Visit

__all__ = ["Job", "Lanes"]

READERS = 1  # of a dataset at a time, of what only reads
BODIES = 6  # large ones of a dataset that are in memory
LOOK_SECONDS = 0.5  # how often a running request's client and grant are looked at
RESTS, LEAST_REST, LONGEST_REST = 3, 0.02, 0.2  # times as long as a reader worked; seconds
TIDY_SECONDS = 1.0  # after a large body, what was freed is given back
STOP_SECONDS = 5.0  # how long what was stopped may take to notice

T = TypeVar("T")


class Job(NamedTuple):
    """A request's work, which looks at ``Visit.turn``.

    Attributes:
        here: Does it in this process.
        aside: Does it in the server's sibling; ``here`` where there is none.
        size: Bytes of the body, infinite where nobody says.
        charges: Whether it charges, and so waits for the disk.
    """

    here: Callable[[], str]
    aside: Callable[[], str]
    size: float = 0
    charges: bool = False


class _Lane:
    """Threads of requests that may take so much work, divided among datasets and analysts.

    Args:
        pool: The threads.
        count: How many there are.
        datasets: The names of what is served.
    """

    def __init__(self, pool: ThreadPoolExecutor, count: int, datasets: Collection[str]) -> None:
        self.pool, self._count, self._datasets = pool, count, datasets
        self._shares: dict[str, Share] = {}
        self._reading = defaultdict[str, Share](partial(Share, READERS))
        self._others = Share(max(1, count // 4))

    async def do(self, dataset: str, holder: str, job: Callable[[], T], *, charges: bool) -> T:
        """Does a job in a thread, and lets readers wait for each other."""
        if charges:
            return await self._in_thread(dataset, holder, job)
        # What reads is done one at a time for each dataset, so that charges find threads free.
        reading = self._reading[dataset if dataset in self._datasets else ""]
        async with reading.take(holder):
            return await _rested(reading, self._in_thread(dataset, holder, job))

    async def _in_thread(self, dataset: str, holder: str, job: Callable[[], T]) -> T:
        async with self._share(dataset).take(holder):
            return await asyncio.get_running_loop().run_in_executor(self.pool, job)

    def _share(self, name: str) -> Share:
        """A dataset's threads. Of several datasets one alone never holds all of them."""
        if name not in self._datasets:
            return self._others
        # Of 16 threads one dataset of several holds 12 at most, an only one 15.
        share = self._count * 3 // 4 if len(self._datasets) > 1 else self._count - 1
        return self._shares.setdefault(name, Share(max(1, share)))


class Lanes:
    """A server's threads.

    Args:
        datasets: The names of what is served.
        settings: Limits.
    """

    def __init__(self, datasets: Collection[str], settings: Settings) -> None:
        self._datasets, self._settings, self._turns = datasets, settings, set[Turn]()
        self._long = ThreadPoolExecutor(settings.heavy, thread_name_prefix="pinq-heavy", initializer=roam)
        self._watch = ThreadPoolExecutor(1, thread_name_prefix="pinq-watch")
        light = ThreadPoolExecutor(settings.threads, thread_name_prefix="pinq")
        middle = ThreadPoolExecutor(settings.middle, thread_name_prefix="pinq-middle", initializer=roam)
        self._light = _Lane(light, settings.threads, datasets)
        self._middle = _Lane(middle, settings.middle, datasets)
        self._bodies = defaultdict[str, Share](partial(Share, BODIES))
        self._heavy_of: dict[str, Share] = {}
        self._heavy_by: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._heavy = asyncio.Semaphore(settings.heavy)
        self._largest = asyncio.Semaphore(1)
        self._tidying = False

    async def soon(self, dataset: str, holder: str, job: Callable[[], T], *, charges: bool = False) -> T:
        """Does what is soon done."""
        return await self._light.do(dataset, holder, job, charges=charges)

    @asynccontextmanager
    async def room(self, dataset: str, holder: str, size: float) -> AsyncIterator[None]:
        """Waits until there is room for a body, and keeps it; for a small one there always is.

        More large ones of a dataset would wait for its heavy lane, in memory.
        """
        large = size > self._settings.middle_body
        room = self._bodies[dataset if dataset in self._datasets else ""]
        try:
            async with room.take(holder) if large else nullcontext():
                yield
        finally:  # a body that is refused, or whose sender goes, leaves as much
            if large:
                self._tidy()

    async def run(self, http: Request, visit: Visit, holder: str, job: Job, opens: Callable[[], bool]) -> str:
        """Does a request's work, in the first lane that will do.

        Args:
            http: Whose client may go away.
            visit: The request.
            holder: Whose it is: the token's digest.
            job: The work.
            opens: Whether the grant still counts.
        """
        settings = self._settings
        for lane, work, most, size in (
            (self._light, job.here, settings.light_work, settings.light_body),
            (self._middle, job.aside, settings.middle_work, settings.middle_body),
        ):
            if job.size <= size:
                visit.turn = Turn(settings.work_seconds, most=most, token=holder)
                with suppress(TooHeavy):
                    return await lane.do(visit.asked, holder, work, charges=job.charges)
        return await self._take_long(http, visit, holder, job, opens)

    async def _take_long(self, http: Request, visit: Visit, holder: str, job: Job, opens: Callable[[], bool]) -> str:
        """Does a request's work in the heavy lane."""
        # In this order: who waits for the turn of an analyst or a dataset holds no thread meanwhile,
        # and who waits for memory does not hold up what is smaller in its dataset.
        lane = self._lane(visit.asked)
        async with self._heavy_by[holder], self._memory_for(job), lane.take(holder), self._heavy:
            visit.turn = Turn(self._settings.work_seconds, token=holder)
            if await http.is_disconnected():
                visit.turn.stop(_bucket_end(visit))
            self._turns.add(visit.turn)
            watching = asyncio.create_task(self._look(http, visit, opens))
            work = asyncio.get_running_loop().run_in_executor(self._long, job.aside)
            try:
                return await (work if job.charges else _rested(lane, work))
            finally:
                visit.turn.stop()  # where the asker's task was cancelled, the work goes on without it
                self._turns.discard(visit.turn)
                watching.cancel()

    def _memory_for(self, job: Job) -> AbstractAsyncContextManager[None]:
        """Waits until no other such body is worked on; two would be more than the largest."""
        # Of 8 MB at most: one of 5 MB waits for another of 5 MB, one of 3 MB for none.
        return self._largest if job.size > self._settings.max_body / 2 else nullcontext()

    async def close(self) -> None:
        """Stops every turn, and waits a little until that is noticed."""
        for turn in self._turns:
            turn.stop()
        pools = (self._light.pool, self._middle.pool, self._long, self._watch)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await asyncio.gather(*(asyncio.to_thread(pool.shutdown, cancel_futures=True) for pool in pools))

    def _tidy(self) -> None:
        """Gives back what large bodies leave, in a moment: once for all of them."""
        if not self._tidying:
            self._tidying = True
            asyncio.get_running_loop().call_later(TIDY_SECONDS, self._give_back)

    def _give_back(self) -> None:
        self._tidying = False
        with suppress(RuntimeError):  # the server stops
            asyncio.get_running_loop().run_in_executor(self._watch, give_back)

    def _lane(self, name: str) -> Share:
        """A dataset's place in the heavy lane; one of its own for a name that is none."""
        return self._heavy_of.setdefault(name, Share(1)) if name in self._datasets else Share(1)

    async def _look(self, http: Request, visit: Visit, opens: Callable[[], bool]) -> None:
        """Ends a turn whose client has gone or whose grant has ended.

        With padding a client that goes ends it at the end of a time bucket only: else the log would
        say whether work was done when its asker chose to go.
        """
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if await http.is_disconnected():
                visit.turn.stop(_bucket_end(visit))
            with suppress(LedgerError):  # it may be back at the next look
                if not await asyncio.get_running_loop().run_in_executor(self._watch, opens):
                    visit.turn.stop()


async def _rested(lane: Share, work: Awaitable[T]) -> T:
    """Does what reads, and then keeps its place for longer than it took if others wait for it."""
    began = time.monotonic()
    result = await work
    if lane.is_wanted:
        rest = LEAST_REST + RESTS * (time.monotonic() - began)
        await asyncio.sleep(min(LONGEST_REST, rest))
    return result


def _bucket_end(visit: Visit) -> float:
    # Clock 10 s, buckets of 2 s, now 13.5 s: the bucket ends at 10 + 2 * 2 = 14 s.
    dataset, now = visit.dataset, time.monotonic()
    bucket = 0.0 if dataset is None else dataset.policy.padding_seconds
    return visit.clock + math.ceil((now - visit.clock) / bucket) * bucket if bucket else now
