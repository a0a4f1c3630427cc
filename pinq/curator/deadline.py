# SPDX-License-Identifier: Apache-2.0
"""``Deadline`` limits the work and the time of a request.

It is checked between two steps (blocks of rows, slices of parts, candidates), so work stops soon after
its end: the time is over, the client has gone, the grant has ended, or the server stops.

Privacy:
    ``admit`` compares a price that no row can change. A deadline that ends after the charge gives the
    same text as every failure after a charge, and the charge stays, so the text shows nothing.
    A stopped request shows that its work took long. So does response time: time is outside the
    guarantee. With ``padding`` a deadline ends only at the end of a time bucket, so it shows no more
    than the bucket does. Held by: tests/unit/curator/test_deadline.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable


class Stopped(Exception):
    """The deadline is over. It is no error of the request, and its analyst never sees it."""


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

    Args:
        seconds: The seconds from now to its end.
        limit: The units of work that it may take.
        clock: Monotonic seconds.
        token: Digest of the analyst's token, which the charge checks again; empty for none.

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
        """Raises ``TooHeavy`` if so many units of work are more than it may take."""
        if units > self.limit:
            raise TooHeavy(units)

    def check(self) -> None:
        """Raises ``Stopped`` if it is over."""
        if self._clock() >= self.end:
            raise Stopped()
