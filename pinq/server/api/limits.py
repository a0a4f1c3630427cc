# SPDX-License-Identifier: Apache-2.0
"""Who may ask how fast: a lane and a pace for each token, a count of wrong tokens. Used by one event loop, so without locks."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from pinq.errors import TooManyRequests

__all__ = ["Guesses", "Lanes", "Settings"]

MANY = 4096
MINUTE = 60.0


@dataclass(frozen=True)
class Settings:
    """A server's limits.

    Attributes:
        threads: Requests that are worked on at a time.
        lane: Of those, how many for one token.
        queue: How many more of a token's requests may wait.
        rate: Requests a second for one token; as many at once.
        guesses: Wrong tokens a minute from one address before 429 takes the place of 401.
        guesses_in_all: The same from all addresses together.
        max_body: Bytes of a request.
        body_seconds: How long a request may take to arrive.
        header_seconds: How long its headers may take, from the connection's or the request's first
            byte.
        connections: How many one address may hold open.
    """

    threads: int = 16
    lane: int = 4
    queue: int = 64
    rate: float = 500.0
    guesses: int = 1000
    guesses_in_all: int = 10_000
    max_body: int = 8 * 2**20
    body_seconds: float = 30.0
    header_seconds: float = 10.0
    connections: int = 250


@dataclass
class _Lane:
    """One token's: what runs, how many are in it, and how many more may come now."""

    running: asyncio.Semaphore
    allowance: float
    at: float
    inside: int = 0


class Lanes:
    """A lane into the pool for each token: a slow analyst waits in a queue of its own, a fast one is slowed down."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._lanes: dict[str, _Lane] = {}

    @asynccontextmanager
    async def enter(self, token: str) -> AsyncIterator[None]:
        """Waits for a place in the token's lane. ``TooManyRequests`` where its pace or its queue is exceeded."""
        lane, rate = self._lane(token), self._settings.rate
        if lane.allowance < 1:
            raise TooManyRequests(
                f"this server takes {rate:g} requests a second from one token. Nothing was spent. Try again in a moment.",
                (1 - lane.allowance) / rate,
            )
        if lane.inside >= self._settings.lane + self._settings.queue:
            raise TooManyRequests(
                f"{lane.inside} requests of this token wait already. Nothing was spent. Try again when they are answered.",
                1.0,
            )
        lane.allowance -= 1
        lane.inside += 1
        try:
            async with lane.running:
                yield
        finally:
            lane.inside -= 1

    def _lane(self, token: str) -> _Lane:
        now, rate = self._clock(), self._settings.rate
        if token not in self._lanes:
            if len(self._lanes) >= MANY:  # an idle lane is like none
                self._lanes = {key: lane for key, lane in self._lanes.items() if lane.inside or now - lane.at < 1}
            self._lanes[token] = _Lane(asyncio.Semaphore(self._settings.lane), rate, now)
        lane = self._lanes[token]
        lane.allowance, lane.at = min(rate, lane.allowance + (now - lane.at) * rate), now
        return lane


@dataclass
class Guesses:
    """Counts wrong tokens by address and minute. Past the limit only tokens that were right before are looked at, so that guessing is of no use.

    A minute begins with its first wrong token.
    """

    settings: Settings
    clock: Callable[[], float] = time.monotonic
    _since: float = 0.0
    _wrong: Counter[str] = field(default_factory=Counter)
    _total: int = 0
    _right: dict[str, str] = field(default_factory=dict)

    def check(self, address: str, hashed: str) -> None:
        """``TooManyRequests`` where too many were wrong this minute and this token was never right."""
        self._turn()
        if hashed not in self._right and (
            self._wrong[address] >= self.settings.guesses or self._total >= self.settings.guesses_in_all
        ):
            raise TooManyRequests(
                "too many wrong tokens. Nothing was spent. Try again in a minute.", self._since + MINUTE - self.clock()
            )

    def right(self, hashed: str, dataset: str) -> None:
        """A token that opened a dataset; perhaps revoked since: it is looked at again each time. The last few thousand are remembered."""
        self._right.pop(hashed, None)
        self._right[hashed] = dataset
        if len(self._right) > MANY:
            self._right.pop(next(iter(self._right)))

    def opens(self, hashed: str) -> str:
        """What a token opened when it was last right; empty if it never was."""
        return self._right.get(hashed, "")

    def wrong(self, address: str, hashed: str) -> None:
        """A token that did not open what was asked. One that was right before is no guess: its holder mistook the dataset, or was revoked."""
        if hashed in self._right:
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
