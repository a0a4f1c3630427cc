# SPDX-License-Identifier: Apache-2.0
"""``WorkMeter`` counts the work of each analyst's last minute, against the quota of the grant."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Protocol

from pinq.errors import NotAllowed, TooManyRequests

MINUTE = 60.0


class Meter(Protocol):
    """Counts the work of a dataset's analysts."""

    def take(self, analyst: str, units: int, limit: int | None) -> None:
        """Counts coming work, as ``WorkMeter`` does."""


class WorkMeter:
    """Units of work by analyst, on a clock that never jumps.

    Each of several processes counts its own work, against an equal share of the grant's quota. So all
    processes together never allow more than the quota.

    Args:
        clock: Monotonic seconds.
        processes: The number of processes that count.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, processes: int = 1) -> None:
        self._clock, self._processes, self._lock = clock, processes, threading.Lock()
        self._taken: defaultdict[str, deque[tuple[float, int]]] = defaultdict(deque)

    def take(self, analyst: str, units: int, limit: int | None) -> None:
        """Counts coming work.

        Args:
            analyst: The analyst.
            units: The units of work.
            limit: The units that the grant allows within any sixty seconds; None for no limit.

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
