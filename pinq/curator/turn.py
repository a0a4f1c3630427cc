# SPDX-License-Identifier: Apache-2.0
"""``Turn`` says how a request may run: with how much work, and until when.

Whoever works looks at it between two steps (blocks of rows, slices of parts, candidates), so work
ends soon after it is told to: its time is over, its client has gone, its grant has ended, the server
stops.

Privacy:
    ``admit`` compares a price that follows public facts alone. That a turn ends after the charge is
    told by the text of every failure after a charge, and the charge stays, so the text tells
    nothing. That it ended rather than answered tells that the work took long, and so does the time
    of any answer: time is outside the guarantee. With ``padding`` a turn ends at the end of a time
    bucket only, so it tells no more than the bucket does. Held by: tests/unit/curator/test_turn.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

__all__ = ["Stopped", "TooHeavy", "Turn"]


class Stopped(Exception):
    """The turn is over: no error of the request's, and nothing that its asker is told."""


class TooHeavy(Exception):
    """The request needs more work than this turn may take; nothing was charged."""


class Turn:
    """A request's turn; by default without an end.

    Args:
        seconds: How long it lasts from now.
        most: The units of work that it may take.
        clock: Monotonic seconds.
        token: Digest of the token by which its analyst was let in, at which the charge looks again;
            empty for none.
    """

    def __init__(
        self,
        seconds: float = math.inf,
        most: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        token: str = "",
    ) -> None:
        self.most, self.token, self._clock = most, token, clock
        self._end = clock() + seconds

    @property
    def end(self) -> float:
        """The moment of its clock at which it ends."""
        return self._end

    def stop(self, moment: float = -math.inf) -> None:
        """Ends it at a moment of its clock, at once where that is past; never later than before."""
        self._end = min(self._end, moment)

    def admit(self, units: int) -> None:
        """``TooHeavy`` where so many units of work are more than it may take."""
        if units > self.most:
            raise TooHeavy()

    def check(self) -> None:
        """``Stopped`` once it is over."""
        if self._clock() >= self._end:
            raise Stopped()
