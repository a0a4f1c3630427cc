# SPDX-License-Identifier: Apache-2.0
"""``Grant``: an analyst's budget, its end and pace, and the terms beside them. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pinq.errors import NotAllowed, TooManyRequests
from pinq.ledger.codec import Loss, Stored, Texts, Whole
from pinq.ledger.composition import Costs
from pinq.public.checks import first_of
from pinq.public.epsilon import ZERO, Epsilon

__all__ = ["EVENT_BYTES", "FREE", "STORED_BYTES", "VERBS", "Grant", "Terms", "no_grant", "now"]

EVENT_BYTES = 1024  # what a line of the log counts at least
STORED_BYTES = 2 * 10**9
"""Bytes that the ledger keeps of a grant's requests where its terms name no other number."""

VERBS = ("noisy_count", "noisy_sum", "noisy_avg", "exp_mech")
MINUTE = timedelta(minutes=1)


def now() -> datetime:
    """The present, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True)
class Terms(Stored):
    """What a grant allows beyond its budget; None allows everything, but see ``stored_bytes``.

    Attributes:
        max_epsilon_per_query: The most that one request may ask of a part.
        columns: Those that a request may name, as partition, measure, candidate or target.
        verbs: Of ``noisy_count``, ``noisy_sum``, ``noisy_avg``, ``exp_mech``.
        queries_per_minute: Charges within any sixty seconds. Previews are free, read no row and are
            not in the log, so they are not counted.
        work_per_minute: Units of work, see ``pinq/curator/work.py``, that requests may need within
            any sixty seconds, previews and histories among them; each server counts its own,
            and each of its workers a part.
        stored_bytes: Bytes of the ledger that charges with their answers, and refusals, may take in
            all; None for ``STORED_BYTES``. Past it nothing is charged, and refusals are not logged.
    """

    max_epsilon_per_query: Loss | None = None
    columns: Texts | None = None
    verbs: Texts | None = None
    queries_per_minute: Whole | None = None
    work_per_minute: Whole | None = None
    stored_bytes: Whole | None = None

    def __str__(self) -> str:
        limits = []
        if self.max_epsilon_per_query is not None:
            limits.append(f"epsilon at most {self.max_epsilon_per_query} a query")
        if self.columns is not None:
            limits.append(f"columns {', '.join(self.columns) or 'none'}")
        if self.verbs is not None:
            limits.append(f"verbs {', '.join(self.verbs)}")
        if self.queries_per_minute is not None:
            limits.append(f"{self.queries_per_minute} queries a minute")
        if self.work_per_minute is not None:
            limits.append(f"{self.work_per_minute:,} units of work a minute")
        if self.stored_bytes is not None:
            limits.append(f"{self.stored_bytes:,} bytes stored")
        return "; ".join(limits) or "no terms"

    def require(self, verb: str, columns: Collection[str], epsilon: Epsilon) -> None:
        """``NotAllowed`` where the terms forbid a request, whatever the rows are."""
        if self.verbs is not None and verb not in self.verbs:
            raise NotAllowed(f"this grant does not allow {verb}; it allows {', '.join(self.verbs)}. {_ASK}")
        wrong = sorted(set(columns) - set(self.columns)) if self.columns is not None else []
        if wrong:
            raise NotAllowed(
                f"this grant does not allow the column{'s' if len(wrong) > 1 else ''} {', '.join(wrong)}; it "
                f"allows {', '.join(self.columns or ()) or 'none'}. {_ASK}"
            )
        if self.max_epsilon_per_query is not None and epsilon > self.max_epsilon_per_query:
            raise NotAllowed(
                f"this grant allows epsilon of at most {self.max_epsilon_per_query} for one query; {epsilon} "
                f"was asked. {_ASK}"
            )


_ASK = "The data provider can change it (pinq terms)."


FREE = Terms()


@dataclass
class Grant:
    """What an analyst may spend.

    Attributes:
        limit: The most that may be spent.
        expires: No answer from this moment on; None for never.
        token: SHA-256 of the bearer token, in hexadecimal; empty where none was issued.
        recent: Times of the last charge and of those up to a minute before it. Older ones cannot
            matter: the pace looks back a minute from now, which is never before the last charge.
        stored: Bytes that its charges reserved and its refusals took.
    """

    analyst: str
    limit: Epsilon
    expires: datetime | None = None
    revoked: bool = False
    costs: Costs = field(default_factory=Costs)
    terms: Terms = FREE
    token: str = ""
    recent: deque[datetime] = field(default_factory=deque)
    stored: int = 0

    @property
    def spent(self) -> Epsilon:
        """What the answers so far cost."""
        return self.costs.spent

    @property
    def remaining(self) -> Epsilon:
        """What is left, 0 once revoked or expired."""
        return max(ZERO, self.limit - self.spent) if self.valid else ZERO

    @property
    def valid(self) -> bool:
        """Neither revoked nor expired."""
        return not self.revoked and (self.expires is None or now() < self.expires)

    def require_pace(self) -> None:
        """``TooManyRequests`` while the last minute is full."""
        most = self.terms.queries_per_minute
        if most is None or len(self.recent) < most:  # what is older than the last charge by a minute does not count
            return
        # Two a minute, the last two at 10:00:00 and 10:00:50: at 10:00:55 there are 5 s to wait.
        wait = (self.recent[-most] + MINUTE - now()).total_seconds()
        if 0 < wait <= MINUTE.total_seconds():  # more: the clock went back, which locks nobody out
            raise TooManyRequests(
                f"this grant allows {most} queries a minute, and the last minute had as many. Try again in "
                f"{max(1, round(wait))} s.",
                wait,
            )

    @property
    def most_stored(self) -> int:
        """How many bytes the ledger may keep of its requests."""
        return STORED_BYTES if self.terms.stored_bytes is None else self.terms.stored_bytes

    def has_room(self, size: int) -> bool:
        """Whether so many more bytes may be stored."""
        return self.stored + size <= self.most_stored

    def require_room(self, size: int) -> None:
        """``NotAllowed`` where a charge and its answer would take more bytes than are left."""
        if not self.has_room(size):
            raise NotAllowed(
                f"the ledger would have to keep {size:,} bytes of this; this grant allows "
                f"{self.most_stored:,} in all, and {self.stored:,} are taken. Ask fewer parts. {_ASK}"
            )

    def charged(self, moment: datetime) -> None:
        """Counts a charge towards the pace."""
        self.recent.append(moment)
        # Charges at 10:00:00, 10:00:30 and 10:01:00: the first is a minute old and goes.
        while self.recent[0] <= moment - MINUTE:
            self.recent.popleft()


def no_grant(analyst: str, holders: list[str]) -> str:
    """That an analyst has no grant, and who has one."""
    verb = "have" if len(holders) > 1 else "has"
    return f"{analyst!r} has no grant; {first_of(holders, 12) or 'nobody'} {verb}. Use `pinq grant` first."
