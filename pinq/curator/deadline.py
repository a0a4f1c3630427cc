# SPDX-License-Identifier: Apache-2.0
"""``Deadline`` limits the work and the time of a request; ``WorkMeter`` the work of an analyst in a minute.

It is checked between two steps (blocks of rows, slices of parts, candidates), so work stops soon after
its end: the time is over, the client has gone, the grant has ended, or the server stops.

Privacy:
    ``admit`` compares a price that no row can change. A deadline that ends after the charge gives the same text as
    every failure after a charge, and the charge stays, so the text shows nothing. A stopped request shows that its work
    took long. So does response time, which is outside the guarantee. With ``padding`` a deadline ends only at the end
    of a time bucket. Held by: tests/unit/curator/test_deadline.py.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Protocol

from pinq.errors import NotAllowed, TooManyRequests


class Stopped(Exception):
    """The deadline is over; no error of the request, and hidden from its analyst."""


class TooHeavy(Exception):
    """The request needs more work than its deadline admits; nothing was charged.

    Attributes:
        units: The units of work that it needs, as far as known.
    """

    def __init__(self, units: int) -> None:
        super().__init__(units)
        self.units = units


class Deadline:
    """The limits of a request's work and time; by default none.

    Attributes:
        end: The moment of its clock at which it ends.
    """

    def __init__(
        self,
        seconds: float = math.inf,
        limit: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        token: str = "",
    ) -> None:
        self.limit, self.token, self._clock = limit, token, clock
        self.end = clock() + seconds

    def stop(self, moment: float = -math.inf) -> None:
        """Moves its end to an earlier moment of its clock; by default it ends at once."""
        self.end = min(self.end, moment)

    def admit(self, units: int) -> None:
        """Raises ``TooHeavy`` if it admits less than these units of work."""
        if units > self.limit:
            raise TooHeavy(units)

    def check(self) -> None:
        """Raises ``Stopped`` if it is over."""
        if self._clock() >= self.end:
            raise Stopped()


MINUTE = 60.0


class Meter(Protocol):
    """Counts the work of a dataset's analysts."""

    def take(self, analyst: str, units: int, limit: int | None) -> None:
        """Counts coming work, as ``WorkMeter`` does."""


class WorkMeter:
    """Units of work by analyst, on a clock that never jumps.

    Each of several processes counts its own work, against an equal share of the grant's quota. So all
    processes together never allow more than the quota.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, processes: int = 1) -> None:
        self._clock, self._processes, self._lock = clock, processes, threading.Lock()
        self._taken: defaultdict[str, deque[tuple[float, int]]] = defaultdict(deque)

    def take(self, analyst: str, units: int, limit: int | None) -> None:
        """Counts coming work; ``limit`` has the units that the grant allows within any sixty seconds.

        Raises:
            NotAllowed: More than the grant ever allows.
            TooManyRequests: More than the grant allows now.
        """
        if limit is None:
            return
        shared = "" if self._processes == 1 else f", of which each of {self._processes} processes has a share"
        price = f"this takes {units:,} units of work, and this grant allows {limit:,} a minute{shared}"
        if limit < self._processes:
            raise NotAllowed(
                f"this grant allows {limit:,} units of work a minute, and {self._processes} processes share them: none "
                "of them has any to give. The data provider can allow more (pinq terms), or serve by fewer processes."
            )
        limit //= self._processes
        if units > limit:
            raise NotAllowed(f"{price}. Ask fewer parts or candidates. The data provider can change it (pinq terms).")
        with self._lock:
            taken, moment = self._taken[analyst], self._clock()
            while taken and taken[0][0] <= moment - MINUTE:
                taken.popleft()
            if sum(work for _, work in taken) + units > limit:
                # The oldest work ends then; a large request may have to wait longer.
                wait = taken[0][0] + MINUTE - moment
                raise TooManyRequests(
                    f"{price}, of which too little is left. Try again in {max(1, round(wait))} s.", wait
                )
            taken.append((moment, units))
