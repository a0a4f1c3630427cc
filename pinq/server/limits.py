# SPDX-License-Identifier: Apache-2.0
"""The pace of requests: a queue and a rate for each token, and a count of wrong tokens.

Only the event loop uses them, so there are no locks.
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
        threads: The number of light requests at a time.
        heavy: The number of heavy requests at a time, each in a worker process, at most one for each dataset and each
            token; one more worker is for short requests.
        light_work: The largest work of a light request, in units (a fiftieth of a second).
        moment_work: The largest work of a short request, in units (a tenth of a second).
        light_body: The largest body, in bytes, that is read in the server's process.
        moment_body: The largest body, in bytes, of a short request.
        work_seconds: The longest time of work on a request.
        running: The number of running requests of one token; one with padding.
        waiting: The number of waiting requests of one token.
        rate: The requests a second for one token; a burst may have as many.
        guesses: The wrong tokens a minute from one address before 429 replaces 401.
        guesses_in_all: The same for all addresses together.
        max_body: The largest body of a request, in bytes.
        bodies: The number of bodies of more than ``moment_body`` in memory at a time.
        body_seconds: The longest time in which a body must arrive.
    """

    threads: int = 16
    heavy: int = 2
    light_work: int = 20
    moment_work: int = 100
    light_body: int = 2**14
    moment_body: int = 2**16
    work_seconds: float = 3 * MAX_WORK / 1000  # a unit is a millisecond: three times the work limit of a request
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
    """The queue of one token: its running requests, their number with waiting ones, and its allowance."""

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
            alone: Whether the token's requests run one at a time, in order of arrival.

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
            if len(self._queues) >= MANY:  # an idle queue can be dropped
                self._queues = {key: queue for key, queue in self._queues.items() if queue.inside or now - queue.at < 1}
            self._queues[token] = _Queue(asyncio.Semaphore(self._settings.running), rate, now)
        queue = self._queues[token]
        # At a rate of 500 a token may send 500 requests at once, then one every 2 ms.
        queue.allowance, queue.at = min(rate, queue.allowance + (now - queue.at) * rate), now
        return queue


@dataclass
class AuthThrottle:
    """Counts wrong tokens by address and minute, so that guessing is useless.

    Above the limit only issued tokens are checked, as far as this process knows without reading a ledger, so wrong
    tokens from one address never lock out valid tokens from it. A minute begins with its first wrong token.
    """

    settings: Settings
    clock: Callable[[], float] = time.monotonic
    is_token: Callable[[str], bool] = lambda hashed: False
    _since: float = 0.0
    _wrong: Counter[str] = field(default_factory=Counter)
    _total: int = 0
    _right: dict[str, str] = field(default_factory=dict)

    def check(self, address: str, hashed: str) -> None:
        """Raises ``TooManyRequests`` after too many wrong tokens, unless this token was issued."""
        self._turn()
        many = self._wrong[address] >= self.settings.guesses or self._total >= self.settings.guesses_in_all
        if many and hashed not in self._right and not self.is_token(hashed):
            raise TooManyRequests("too many wrong tokens. Try again in a minute.", self._since + MINUTE - self.clock())

    def right(self, hashed: str, dataset: str) -> None:
        """Notes a token that opened a dataset; the last few thousand are kept.

        The token may be revoked later, so the ledger is still read each time.
        """
        self._right.pop(hashed, None)
        self._right[hashed] = dataset
        if len(self._right) > MANY:
            self._right.pop(next(iter(self._right)))

    def opens(self, hashed: str) -> str:
        """The dataset that a token last opened; empty for none."""
        return self._right.get(hashed, "")

    def wrong(self, address: str, hashed: str) -> None:
        """Notes a token that did not open the requested dataset.

        An issued token is no guess: its analyst used another dataset's name, or it was revoked.
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
