# SPDX-License-Identifier: Apache-2.0
"""``Terms``: what a grant allows beside its budget. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from pinq.errors import NotAllowed
from pinq.ledger.codec import Loss, Stored, Texts, Whole
from pinq.public.checks import first_of
from pinq.public.epsilon import Epsilon

__all__ = ["ASK", "EVENT_BYTES", "FREE", "STORED_BYTES", "VERBS", "Terms", "no_grant", "now"]

EVENT_BYTES = 1024  # what a line of the log counts at least
STORED_BYTES = 2 * 10**9
"""Bytes that the ledger keeps of a grant's requests where its terms name no other number."""

VERBS = ("noisy_count", "noisy_sum", "noisy_avg", "exp_mech")


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
            raise NotAllowed(f"this grant does not allow {verb}; it allows {', '.join(self.verbs)}. {ASK}")
        wrong = sorted(set(columns) - set(self.columns)) if self.columns is not None else []
        if wrong:
            raise NotAllowed(
                f"this grant does not allow the column{'s' if len(wrong) > 1 else ''} {', '.join(wrong)}; it "
                f"allows {', '.join(self.columns or ()) or 'none'}. {ASK}"
            )
        if self.max_epsilon_per_query is not None and epsilon > self.max_epsilon_per_query:
            raise NotAllowed(
                f"this grant allows epsilon of at most {self.max_epsilon_per_query} for one query; {epsilon} "
                f"was asked. {ASK}"
            )


ASK = "The data provider can change it (pinq terms)."


FREE = Terms()


def no_grant(analyst: str, holders: list[str]) -> str:
    """That an analyst has no grant, and who has one."""
    verb = "have" if len(holders) > 1 else "has"
    return f"{analyst!r} has no grant; {first_of(holders, 12) or 'nobody'} {verb}. Use `pinq grant` first."
