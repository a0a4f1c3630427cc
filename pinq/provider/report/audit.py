# SPDX-License-Identifier: Apache-2.0
"""Reports from the log, and from nothing else: who was granted what, who asked what, what it cost, who ran out when.

The log is replayed through the same recursion that charged it, after its chain was verified. No
data source is opened.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pinq.errors import QueryError
from pinq.ledger.composition import CAP_RULES, CapRule, Together
from pinq.ledger.events import (
    Answered,
    Charged,
    Created,
    Declared,
    Event,
    Extended,
    Granted,
    Record,
    Refused,
    Revoked,
    SessionLogged,
    TermsSet,
    TokenSet,
)
from pinq.ledger.ledger import Ledger
from pinq.ledger.state import Account, LedgerState
from pinq.ledger.terms import FREE
from pinq.provider.claim import ledger_url, masked
from pinq.provider.policy_file import load_policy
from pinq.provider.report.html import page, printable
from pinq.public.epsilon import ZERO, Epsilon
from pinq.public.policy import Policy
from pinq.public.schema import closest

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Audit", "Line", "Replay", "audit", "print_table", "replay"]

RECENT = 20


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
        because: Why, where it was said.
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; losses as decimal numbers."""
        return {name: float(value) if isinstance(value, Epsilon) else value for name, value in vars(self).items()}


@dataclass
class Audit:
    """What the log of one dataset says.

    Attributes:
        together: What all analysts spent, and the cap over them.
        accounts: By analyst.
        events: Events in the log; their chain was verified.
        head: The last event's hash; two audits with the same head saw the same log.
        lines: Every event, oldest first.
        only: The analyst that accounts and lines were narrowed to.
        ledger: Which file or database was read.
    """

    dataset: str
    together: Together
    accounts: dict[str, Account]
    events: int = 0
    head: str = ""
    lines: list[Line] = field(default_factory=list)
    only: str | None = None
    ledger: str = ""

    @property
    def cap(self) -> Epsilon:
        """The limit of all analysts together."""
        return self.together.cap

    @property
    def joint(self) -> Epsilon:
        """What all analysts together spent, as ``cap_rule`` counts it."""
        return self.together.spent

    @property
    def cap_rule(self) -> CapRule:
        """How the cap counts."""
        return self.together.rule

    @property
    def exhaustion(self) -> list[Line]:
        """Requests that were refused for want of budget: who, when, asked, remaining, under which limit."""
        return [line for line in self.lines if line.kind == "refusal" and line.asked is not None]

    @property
    def changes(self) -> list[Line]:
        """Grants, extensions, terms, tokens, revocations and changes of the policy."""
        return [
            line
            for line in self.lines
            if line.kind in ("created", "policy", "grant", "extend", "terms", "token", "revoke")
        ]

    @property
    def requests(self) -> list[Line]:
        """Charges, refusals and exact releases among several parties."""
        return [
            line
            for line in self.lines
            if line.kind in ("charge", "refusal") or (line.kind == "secure" and not line.analyst)
        ]

    def of(self, analyst: str) -> Audit:
        """The same audit, narrowed to one analyst. ``QueryError`` where the log does not know the name."""
        if analyst not in self.accounts:
            names = [name for name in self.accounts if name]
            raise QueryError(
                f"the log has no analyst {analyst!r}{closest(analyst, names)}; it has "
                f"{', '.join(names[:12]) or 'none'}."
            )
        lines = [line for line in self.lines if line.analyst == analyst]
        return replace(self, accounts={analyst: self.accounts[analyst]}, lines=lines, only=analyst)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; losses as decimal numbers."""
        return {
            "dataset": self.dataset,
            "ledger": self.ledger,
            "chain": {"verified": True, "events": self.events, "head": self.head},
            "cap": float(self.cap),
            "cap_rule": self.cap_rule,
            "spent": float(self.joint),
            "remaining": float(self.together.remaining),
            "analysts": [_account(account) for account in self.accounts.values()],
            "exhaustion": [line.to_dict() for line in self.exhaustion],
            "changes": [line.to_dict() for line in self.changes],
            "events": [line.to_dict() for line in self.lines],
        }

    def to_json(self) -> str:
        """The whole report."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    def to_csv(self) -> str:
        """A row for each event. A text that a spreadsheet would run as a formula starts with an apostrophe."""
        out = io.StringIO()
        names = list(Line.__dataclass_fields__)
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(names)
        for line in self.lines:
            writer.writerow([_cell(getattr(line, name)) for name in names])
        return out.getvalue()

    def to_html(self) -> str:
        """One self-contained page with a picture."""
        return page(self)

    def render(self, console: Console) -> None:
        """Tables for a terminal."""
        from rich.text import Text

        console.print(
            Text.assemble(
                ("Audit of ", "bold"),
                (printable(self.dataset), "bold"),
                (f" for {printable(self.only)}" if self.only else ""),
                f"\nall analysts together: {self.joint} of {self.cap} spent, {self.together.remaining} "
                f"remains under the cap, "
                f"which counts {self.together.counts}",
                "\nchain: ",
                ("verified", "green"),
                f", {self.events:,} events, last {self.head[:16]}",
                f"\nledger: {printable(self.ledger)}",
            )
        )
        people = [
            [
                one.analyst,
                one.state,
                str(one.limit),
                str(one.spent),
                str(one.remaining),
                bar(one.spent, one.limit),
                f"{one.answered:,}",
                f"{one.refused.total():,}",
                f"{one.unanswered:,}",
                when(one.first),
                when(one.last),
            ]
            for one in self.accounts.values()
        ]
        heads = [
            "analyst",
            "state",
            "limit >",
            "spent >",
            "remaining >",
            "used",
            "answered >",
            "refused >",
            "unanswered >",
            "first",
            "last",
        ]
        print_table(console, heads, people, "Analysts")
        gone = [
            [
                when(one.at),
                one.analyst,
                amount(one.asked),
                amount(one.remaining),
                "own limit" if one.scope == "analyst" else "cap",
                one.about,
            ]
            for one in self.exhaustion
        ]
        heads = ["when", "analyst", "asked >", "remaining >", "refused by", "question"]
        print_table(console, heads, gone, "Exhaustion: asked for more than what remained", most=RECENT)
        changes = [[when(one.at), one.kind, one.analyst, one.about, one.by, one.because] for one in self.changes]
        heads = ["when", "event", "analyst", "what", "by", "because"]
        print_table(console, heads, changes, "Grants and policy", most=RECENT)
        spending = [
            [when(one.at), one.analyst, one.about, amount(one.cost), amount(one.spent), str(one.joint), one.outcome]
            for one in self.requests
        ]
        heads = ["when", "analyst", "question", "cost >", "spent >", "all together >", "outcome"]
        print_table(console, heads, spending, "Spending over time", most=RECENT)


def audit(policy: str | os.PathLike[str] | Policy, analyst: str | None = None) -> Audit:
    """Verifies a dataset's log and reports from it. Works when the data source is gone.

    Raises:
        PolicyError: Wrong policy.
        LedgerError: There is no ledger, or its chain does not hold.
        QueryError: The log does not know the analyst.
    """
    loaded = load_policy(policy)
    url = ledger_url(loaded)
    with closing(Ledger(url, loaded.dataset, create=False)) as ledger:
        ledger.verify()
        found = replay(loaded.dataset, ledger.events())
    found.ledger = masked(url)
    return found if analyst is None else found.of(analyst)


def replay(dataset: str, events: Iterable[Event]) -> Audit:
    """Replays a log from its first event."""
    found = Replay(dataset)
    found.add(events)
    return found.audit


class Replay:
    """An audit that goes on as the log grows.

    Attributes:
        audit: What the events so far say.
    """

    def __init__(self, dataset: str) -> None:
        self._state = LedgerState()
        self._waiting: dict[tuple[str, str], int] = {}  # charges without an answer so far, and where their lines are
        self.audit = Audit(dataset, self._state.together, self._state.accounts)

    def follow(self, ledger: Ledger) -> Audit:
        """Adds what a ledger has beyond the last event; its chain is verified from there on."""
        ledger.together()  # the last event that the ledger knows must still be there
        self.add(ledger.events(after=(self.audit.events, self.audit.head)))
        return self.audit

    def add(self, events: Iterable[Event]) -> None:
        """Adds the next events: each is applied, and then its line says where the budgets stand."""
        found = self.audit
        for event in events:
            account, cap = self._state.accounts.get(event.analyst), found.cap
            spent = account.spent if account is not None else ZERO
            self._state.apply(event)
            found.events, found.head = event.seq, event.hash
            found.lines.append(_line(event, self._state, spent, cap))
            self._answered(event)

    def _answered(self, event: Event) -> None:
        """A charge's line says so once its answer came."""
        if isinstance(event.record, Charged):
            self._waiting[event.analyst, event.request] = len(self.audit.lines) - 1
        elif isinstance(event.record, (Answered, SessionLogged)):
            place = self._waiting.pop((event.analyst, event.request), None)
            if place is not None:
                self.audit.lines[place] = replace(self.audit.lines[place], outcome="answered")


def _line(event: Event, state: LedgerState, spent: Epsilon, cap: Epsilon) -> Line:
    """The line of an event that was just applied.

    Args:
        event: Which.
        state: After it.
        spent: What its analyst had spent before it.
        cap: The cap before it.
    """
    record, together = event.record, state.together
    line = Line(
        event.seq,
        event.at,
        event.kind,
        event.analyst,
        joint=together.spent,
        cap=together.cap,
        request=event.request,
        hash=event.hash,
        by=event.by.by if event.by else "",
        because=event.by.because if event.by else "",
    )
    if not event.analyst:
        return replace(
            line,
            about=_about_all(record, cap),
            outcome="exact, no epsilon" if isinstance(record, SessionLogged) else "",
        )
    account = state.accounts[event.analyst]
    line = replace(
        line, about=_about(record, account), spent=account.spent, limit=account.limit if account.granted else None
    )
    if isinstance(record, Charged):
        return replace(line, epsilon=record.epsilon, cost=account.spent - spent, outcome="charged, not answered")
    if isinstance(record, Refused):
        return replace(
            line,
            outcome=f"refused ({record.reason})",
            asked=record.asked,
            remaining=record.remaining,
            scope=record.scope,
        )
    if isinstance(record, (Granted, Extended)) and record.expires is not None:
        return replace(line, expires=record.expires.isoformat())
    return line


def _about_all(record: Record, cap: Epsilon) -> str:
    """What an event says that concerns nobody in particular."""
    match record:
        case Created():
            return f"ledger of {record.dataset}"
        case Declared():
            change = f"cap {record.cap}" if not cap or cap == record.cap else f"cap {cap} to {record.cap}"
            return f"{change}, which counts {CAP_RULES[record.cap_rule]}, schema {record.digest[:8]}"
        case SessionLogged():
            return record.question.about
    return ""


def _about(record: Record, account: Account) -> str:
    """What an event says of its analyst, whose account it was applied to."""
    match record:
        case Granted():
            facts = [
                f"epsilon {record.limit}",
                *([str(record.terms)] if record.terms != FREE else []),
                *_until(record.expires),
            ]
            return ", ".join(facts)
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


def _until(expires: datetime | None) -> list[str]:
    return [] if expires is None else [f"until {when(expires)}"]


def when(moment: str | datetime) -> str:
    """A moment to the second, in UTC, for people; a day where it is the end of one."""
    at = moment if isinstance(moment, str) else moment.isoformat()
    return at[:10] if at[11:19] == "23:59:59" else at[:19].replace("T", " ")


def amount(loss: Epsilon | None) -> str:
    """A loss, or nothing."""
    return "" if loss is None else str(loss)


def bar(spent: Epsilon, limit: Epsilon, width: int = 10) -> str:
    """How much of a limit is used: ``━━━━──────``. Full only when nothing is left."""
    used = 0 if not limit else min(width, spent.nano * width // limit.nano)
    return "━" * used + "─" * (width - used)


def print_table(
    console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", *, most: int | None = None
) -> None:
    """A table of plain texts, or nothing where it has no rows; ``>`` after a head means numbers, on the right.

    Names are never read as markup, and control characters show as escapes.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    hidden = 0 if most is None else max(0, len(rows) - most)
    table = Table(
        title=Text(title, style="bold") if title else None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for head in heads:
        table.add_column(
            Text(printable(head.removesuffix(" >"))),
            justify="right" if head.endswith(" >") else "left",
            overflow="fold",
        )
    for row in rows[hidden:]:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table)
    if hidden:
        console.print(f"... after {hidden:,} earlier ones; --csv has them all.")


def _account(account: Account) -> dict[str, Any]:
    """Plain values, for JSON; losses as decimal numbers."""
    return {
        "analyst": account.analyst,
        "state": account.state,
        "limit": float(account.limit),
        "spent": float(account.spent),
        "remaining": float(account.remaining),
        "expires": account.expires.isoformat() if account.expires else None,
        "answered": account.answered,
        "charged_not_answered": account.unanswered,
        "refused": dict(account.refused),
        "first": account.first or None,
        "last": account.last or None,
    }


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = str(value)
    return "'" + text if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
