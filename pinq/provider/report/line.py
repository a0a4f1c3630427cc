# SPDX-License-Identifier: Apache-2.0
"""One line of an audit: an event of the log, and where the budgets stood after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from pinq.ledger.acts import Created, Declared, Extended, Granted, Revoked, TermsSet, TokenSet
from pinq.ledger.composition import CAP_RULES
from pinq.ledger.events import Event, Record
from pinq.ledger.requests import Charged, Refused, SessionLogged
from pinq.ledger.state import Account, LedgerState
from pinq.ledger.terms import FREE
from pinq.provider.report.text import when
from pinq.public.epsilon import ZERO, Epsilon

MAX_REASONS = 400  # characters of a line that say why values were reviewed

__all__ = ["Line", "line_of"]


@dataclass(frozen=True)
class Line:
    """One event, and where the budgets stood after it. Losses are None where they do not apply.

    Attributes:
        about: The question, by public facts; for a change, what changed.
        outcome: ``answered``, ``charged, not answered``, ``refused (...)``, else empty.
        epsilon: What each part was asked at.
        cost: By how much ``spent`` grew.
        asked: What a refused request would have cost.
        remaining: What was left when it was refused.
        scope: Which budget refused: ``analyst`` or ``cap``.
        spent: The analyst's total.
        joint: The total of all analysts together.
        limit: The analyst's limit.
        cap: The limit of all together.
        by: Whose act a provider's change was; empty in logs of earlier releases.
        because: Why, where a reason was given.
    """

    seq: int
    at: str
    kind: str
    analyst: str
    about: str = ""
    outcome: str = ""
    epsilon: Epsilon | None = None
    cost: Epsilon | None = None
    asked: Epsilon | None = None
    remaining: Epsilon | None = None
    scope: str = ""
    spent: Epsilon | None = None
    joint: Epsilon = ZERO
    limit: Epsilon | None = None
    cap: Epsilon = ZERO
    expires: str = ""
    request: str = ""
    hash: str = ""
    by: str = ""
    because: str = ""

    def to_dict(self) -> dict[str, str | int | float | None]:
        """Returns plain values, for JSON; losses as decimal numbers."""
        return {name: float(value) if isinstance(value, Epsilon) else value for name, value in vars(self).items()}


def line_of(event: Event, state: LedgerState, spent: Epsilon, cap: Epsilon) -> Line:
    """Makes the line of an event that was just applied.

    Args:
        event: Which event.
        state: The state after it.
        spent: What its analyst had spent before it.
        cap: The cap before it.
    """
    line = Line(
        event.seq,
        event.at,
        event.kind,
        event.analyst,
        joint=state.together.spent,
        cap=state.together.cap,
        request=event.request,
        hash=event.hash,
        by=event.by.by if event.by else "",
        because=event.by.because if event.by else "",
    )
    if not event.analyst:
        return _of_nobody(line, event.record, cap)
    account = state.accounts[event.analyst]
    limit = account.limit if account.granted else None
    line = replace(line, about=_about(event.record, account), spent=account.spent, limit=limit)
    return _of_analyst(line, event.record, account.spent - spent)


def _of_nobody(line: Line, record: Record, cap: Epsilon) -> Line:
    """Adds what an event says that concerns nobody in particular."""
    match record:
        case Created():
            return replace(line, about=f"ledger of {record.dataset}")
        case Declared():
            change = f"cap {record.cap}" if not cap or cap == record.cap else f"cap {cap} to {record.cap}"
            rule = CAP_RULES[record.cap_rule]
            reasons = "; ".join(f"{name}: {why}" for name, why in record.schema.get("reviewed", {}).items())
            reviewed = f"; reviewed {reasons}"[:MAX_REASONS] if reasons else ""
            return replace(line, about=f"{change}, which counts {rule}, schema {record.digest[:8]}{reviewed}")
        case SessionLogged():
            return replace(line, about=record.question.about, outcome="exact, no epsilon")
    return line


def _of_analyst(line: Line, record: Record, cost: Epsilon) -> Line:
    """Adds what became of an analyst's request, or when a grant expires."""
    match record:
        case Charged():
            return replace(line, epsilon=record.epsilon, cost=cost, outcome="charged, not answered")
        case Refused():
            outcome = f"refused ({record.reason})"
            return replace(line, outcome=outcome, asked=record.asked, remaining=record.remaining, scope=record.scope)
        case Granted(expires=datetime() as expires) | Extended(expires=datetime() as expires):
            return replace(line, expires=expires.isoformat())
    return line


def _about(record: Record, account: Account) -> str:
    """Says what an event changed for its analyst, or what was asked."""
    match record:
        case Granted():
            return ", ".join(_granted(record))
        case Extended():
            more = [f"epsilon +{record.more}, now {account.limit}"] if record.more else []
            return ", ".join([*more, *_until(record.expires)])
        case TermsSet():
            return str(record.terms)
        case TokenSet():
            return "another token; the old one ended"
        case Revoked():
            return f"{account.spent} of {account.limit} was spent"
        case Charged() | Refused() | SessionLogged():
            return record.question.about
    return ""


def _granted(record: Granted) -> Iterator[str]:
    yield f"epsilon {record.limit}"
    if record.terms != FREE:
        yield str(record.terms)
    yield from _until(record.expires)


def _until(expires: datetime | None) -> list[str]:
    return [] if expires is None else [f"until {when(expires)}"]
