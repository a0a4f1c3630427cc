# SPDX-License-Identifier: Apache-2.0
"""The pace of requests: a queue and a rate for each token, and a count of wrong tokens.

One event loop uses them, so there are no locks.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pinq.curator.deadline import MINUTE
from pinq.curator.price import MAX_WORK
from pinq.errors import TooManyRequests

MANY = 4096


@dataclass(frozen=True)
class Settings:
    """A server's limits.

    Attributes:
        threads: Light requests that are worked on at a time.
        heavy: Heavy requests that are worked on at a time, each in a worker process; one of each
            dataset and one of each token. One more worker is for requests that take a moment.
        light_work: The units of work up to which a request is light (a fiftieth of a second).
        moment_work: The units of work up to which a request takes a moment (a tenth of a second).
        light_body: Bytes up to which a body can be read in the server's own process.
        moment_body: Bytes up to which reading a body takes a moment.
        work_seconds: The longest time of work on a request.
        running: Requests of one token at a time; one where the dataset has padding.
        waiting: The number of a token's further requests that may wait.
        rate: The requests a second for one token; as many at once.
        guesses: Wrong tokens a minute from one address before 429 takes the place of 401.
        guesses_in_all: The same from all addresses together.
        max_body: Bytes of a request.
        bodies: Bodies of more than ``moment_body`` that are in memory at a time.
        body_seconds: The longest time in which a request may arrive.
    """

    threads: int = 16
    heavy: int = 2
    light_work: int = 20
    moment_work: int = 100
    light_body: int = 2**14
    moment_body: int = 2**16
    work_seconds: float = 3 * MAX_WORK / 1000  # a unit is a millisecond: three times what a request may need
    running: int = 4
    waiting: int = 64
    rate: float = 500.0
    guesses: int = 1000
    guesses_in_all: int = 10_000
    max_body: int = 8 * 2**20
    bodies: int = 8
    body_seconds: float = 30.0


@dataclass
class _Queue:
    """One token's: what runs, how many are in it, and how many more may come now."""

    running: asyncio.Semaphore
    allowance: float
    at: float
    inside: int = 0
    alone: asyncio.Lock = field(default_factory=asyncio.Lock)


class TokenQueues:
    """A queue into the pool for each token, so that a slow analyst delays no other."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._queues: dict[str, _Queue] = {}

    @asynccontextmanager
    async def enter(self, token: str, *, alone: bool = False) -> AsyncIterator[None]:
        """Waits for a turn in the token's queue.

        Args:
            token: The token of the queue.
            alone: Whether the token's requests run one at a time, in the order in which they came.

        Raises:
            TooManyRequests: The token's pace or its queue is exceeded.
        """
        queue, rate = self._queue(token), self._settings.rate
        if queue.allowance < 1:
            raise TooManyRequests(
                f"this server takes {rate:g} requests a second from one token. Try again in a moment.",
                (1 - queue.allowance) / rate,
            )
        if queue.inside >= self._settings.running + self._settings.waiting:
            raise TooManyRequests(
                f"{queue.inside} requests of this token wait already. Try again when they are answered.",
                1.0,
            )
        queue.allowance -= 1
        queue.inside += 1
        try:
            async with queue.alone if alone else queue.running:
                yield
        finally:
            queue.inside -= 1

    def _queue(self, token: str) -> _Queue:
        now, rate = self._clock(), self._settings.rate
        if token not in self._queues:
            if len(self._queues) >= MANY:  # an idle queue is like none
                self._queues = {key: queue for key, queue in self._queues.items() if queue.inside or now - queue.at < 1}
            self._queues[token] = _Queue(asyncio.Semaphore(self._settings.running), rate, now)
        queue = self._queues[token]
        # At a rate of 500 a token may ask 500 times at once, then once more every 2 ms.
        queue.allowance, queue.at = min(rate, queue.allowance + (now - queue.at) * rate), now
        return queue


@dataclass
class AuthThrottle:
    """Counts wrong tokens by address and minute, so that guessing is of no use.

    Past the limit only tokens that were given out are looked at, as far as this process knows
    without reading a ledger: a stranger behind the same proxy keeps out nobody who has one. A minute
    begins with its first wrong token.
    """

    settings: Settings
    clock: Callable[[], float] = time.monotonic
    is_token: Callable[[str], bool] = lambda hashed: False
    _since: float = 0.0
    _wrong: Counter[str] = field(default_factory=Counter)
    _total: int = 0
    _right: dict[str, str] = field(default_factory=dict)

    def check(self, address: str, hashed: str) -> None:
        """``TooManyRequests`` after too many wrong tokens, if this one was never given out."""
        self._turn()
        many = self._wrong[address] >= self.settings.guesses or self._total >= self.settings.guesses_in_all
        if many and hashed not in self._right and not self.is_token(hashed):
            raise TooManyRequests("too many wrong tokens. Try again in a minute.", self._since + MINUTE - self.clock())

    def right(self, hashed: str, dataset: str) -> None:
        """Notes a token that opened a dataset.

        It may be revoked since: it is looked at again each time. The last few thousand are kept.
        """
        self._right.pop(hashed, None)
        self._right[hashed] = dataset
        if len(self._right) > MANY:
            self._right.pop(next(iter(self._right)))

    def opens(self, hashed: str) -> str:
        """Returns what a token opened when it was last right; empty if it never was."""
        return self._right.get(hashed, "")

    def wrong(self, address: str, hashed: str) -> None:
        """Notes a token that did not open the requested dataset.

        One that was given out is no guess: its analyst mistook the dataset, or was revoked.
        """
        if hashed in self._right or self.is_token(hashed):
            return
        self._turn()
        if not self._total:
            self._since = self.clock()
        self._wrong[address] += 1
        self._total += 1

    def _turn(self) -> None:
        if self.clock() >= self._since + MINUTE:
            self._total = 0
            self._wrong.clear()
