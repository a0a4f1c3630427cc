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
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pinq.errors import QueryError
from pinq.ledger.claim import ledger_url
from pinq.ledger.composition import Costs
from pinq.ledger.grants import FREE, Terms, load_demand, now
from pinq.ledger.ledger import Event, Ledger
from pinq.provider.report.html import page, printable
from pinq.public.epsilon import exact, show
from pinq.public.policy import Policy, load_policy
from pinq.public.schema import closest

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Account", "Audit", "Line", "Replay", "audit", "print_table", "replay"]

RECENT = 20
AMOUNTS = ("epsilon", "cost", "asked", "remaining", "spent", "joint", "limit", "cap")


@dataclass(frozen=True)
class Line:
    """One event, and where the budgets stood after it. Losses in nano-epsilons, None where they do not apply.

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
    """

    seq: int
    at: str
    kind: str
    analyst: str
    about: str = ""
    outcome: str = ""
    epsilon: int | None = None
    cost: int | None = None
    asked: int | None = None
    remaining: int | None = None
    scope: str = ""
    spent: int | None = None
    joint: int = 0
    limit: int | None = None
    cap: int = 0
    expires: str = ""
    request: str = ""
    hash: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; losses as decimal numbers."""
        return {name: _float(value) if name in AMOUNTS else value for name, value in vars(self).items()}


@dataclass
class Account:
    """One analyst's part of the log.

    Attributes:
        limit, spent: nano-epsilons.
        cap_left: What the cap over all analysts leaves, nano-epsilons.
        terms: What the grant allows beside its budget.
        answered: Queries with an answer.
        unanswered: Charges without an answer: a crash or a failure of the engine.
        refused: Refusals by reason.
        first, last: When the analyst first and last asked; empty for never.
    """

    analyst: str
    limit: int = 0
    expires: str = ""
    granted: bool = False
    revoked: bool = False
    costs: Costs = field(default_factory=Costs)
    cap_left: int = 0
    terms: Terms = FREE
    answered: int = 0
    unanswered: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    first: str = ""
    last: str = ""

    @property
    def spent(self) -> int:
        """Nano-epsilons."""
        return self.costs.spent

    @property
    def state(self) -> str:
        """``active``, ``spent``, ``cap reached``, ``expired``, ``revoked`` or ``no grant``."""
        if not self.granted:
            return "no grant"
        if self.revoked:
            return "revoked"
        if self.expires and datetime.fromisoformat(self.expires) <= now():
            return "expired"
        return "spent" if self.spent >= self.limit else "active" if self.cap_left > 0 else "cap reached"

    @property
    def remaining(self) -> int:
        """What can still be asked, nano-epsilons: 0 unless the grant is active, and never more than the cap leaves."""
        return min(self.limit - self.spent, self.cap_left) if self.state == "active" else 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; losses as decimal numbers."""
        return {
            "analyst": self.analyst,
            "state": self.state,
            "limit": _float(self.limit),
            "spent": _float(self.spent),
            "remaining": _float(self.remaining),
            "expires": self.expires or None,
            "answered": self.answered,
            "charged_not_answered": self.unanswered,
            "refused": dict(self.refused),
            "first": self.first or None,
            "last": self.last or None,
        }


@dataclass
class Audit:
    """What the log of one dataset says.

    Attributes:
        events: Events in the log; their chain was verified.
        head: The last event's hash; two audits with the same head saw the same log.
        cap, joint: nano-epsilons.
        accounts: By analyst.
        lines: Every event, oldest first.
        only: The analyst that accounts and lines were narrowed to.
    """

    dataset: str
    events: int = 0
    head: str = ""
    cap: int = 0
    joint: int = 0
    accounts: dict[str, Account] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    only: str | None = None

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
                f"the log has no analyst {analyst!r}{closest(analyst, names)}; it has {', '.join(names[:12]) or 'none'}."
            )
        lines = [line for line in self.lines if line.analyst == analyst]
        return Audit(
            self.dataset,
            self.events,
            self.head,
            self.cap,
            self.joint,
            {analyst: self.accounts[analyst]},
            lines,
            only=analyst,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; losses as decimal numbers."""
        return {
            "dataset": self.dataset,
            "chain": {"verified": True, "events": self.events, "head": self.head},
            "cap": _float(self.cap),
            "spent": _float(self.joint),
            "remaining": _float(max(0, self.cap - self.joint)),
            "analysts": [account.to_dict() for account in self.accounts.values()],
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
            writer.writerow(
                [_cell(name, value) for name, value in zip(names, (getattr(line, name) for name in names), strict=True)]
            )
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
                f"\nall analysts together: {show(self.joint)} of {show(self.cap)} spent, {show(max(0, self.cap - self.joint))} remains under the cap",
                "\nchain: ",
                ("verified", "green"),
                f", {self.events:,} events, last {self.head[:16]}",
            )
        )
        people = [
            [
                one.analyst,
                one.state,
                show(one.limit),
                show(one.spent),
                show(one.remaining),
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
                show(one.asked or 0),
                show(one.remaining or 0),
                "own limit" if one.scope == "analyst" else "cap",
                one.about,
            ]
            for one in self.exhaustion
        ]
        heads = ["when", "analyst", "asked >", "remaining >", "refused by", "question"]
        print_table(console, heads, gone, "Exhaustion: asked for more than what remained", most=RECENT)
        changes = [[when(one.at), one.kind, one.analyst, one.about] for one in self.changes]
        print_table(console, ["when", "event", "analyst", "what"], changes, "Grants and policy", most=RECENT)
        spending = [
            [when(one.at), one.analyst, one.about, amount(one.cost), amount(one.spent), show(one.joint), one.outcome]
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
    with closing(Ledger(ledger_url(loaded), loaded.dataset, create=False)) as ledger:
        ledger.verify()
        found = replay(loaded.dataset, ledger.events())
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
        self.audit = Audit(dataset)
        self._joint = Costs()
        self._open: dict[tuple[str, str], int] = {}  # charges without an answer so far, and where their lines are

    def follow(self, ledger: Ledger) -> Audit:
        """Adds what a ledger has beyond the last event; its chain is verified from there on."""
        ledger.grants()  # the last event that the ledger knows must still be there
        self.add(ledger.events(after=(self.audit.events, self.audit.head)))
        return self.audit

    def add(self, events: Iterable[Event]) -> None:
        """Adds the next events."""
        found = self.audit
        for event in events:
            self._add(event)
        waiting = Counter(analyst for analyst, _ in self._open)
        for account in found.accounts.values():
            account.unanswered = waiting[account.analyst]
            account.cap_left = max(0, found.cap - found.joint)

    def _add(self, event: Event) -> None:
        found = self.audit
        found.events, found.head = event.seq, event.hash
        line: dict[str, Any] = {"about": event.body.get("about", "")}
        account = found.accounts.setdefault(event.analyst, Account(event.analyst)) if event.analyst else None
        if event.kind in ("created", "policy"):
            line["about"] = _declared(found, event)
        elif event.kind == "secure" and account is None:
            line["outcome"] = "exact, no epsilon"
        elif account is not None:
            line |= _applied(account, event, self._joint, self._open, len(found.lines))
        found.joint = self._joint.spent
        if account is not None:
            line |= {"spent": account.spent, "limit": account.limit if account.granted else None}
        line |= {"joint": found.joint, "cap": found.cap, "request": event.request, "hash": event.hash}
        found.lines.append(Line(event.seq, event.at, event.kind, event.analyst, **line))
        if event.kind in ("answer", "secure"):
            place = self._open.pop((event.analyst, event.request), None)
            if place is not None:
                found.lines[place] = Line(**vars(found.lines[place]) | {"outcome": "answered"})


def _declared(found: Audit, event: Event) -> str:
    if event.kind == "created":
        return f"ledger of {event.body.get('dataset', '')}"
    before, found.cap = found.cap, event.body["cap"]
    cap = f"cap {show(found.cap)}" if before in (0, found.cap) else f"cap {show(before)} to {show(found.cap)}"
    return f"{cap}, schema {event.body['digest'][:8]}"


def _applied(
    account: Account, event: Event, joint: Costs, open_charges: dict[tuple[str, str], int], place: int
) -> dict[str, Any]:
    """Applies an event to its analyst's account; what its line says."""
    body = event.body
    if event.kind in ("grant", "extend"):
        return _granted(account, event.kind, body)
    if event.kind == "terms":
        account.terms = Terms.of(body)
        return {"about": str(account.terms)}
    if event.kind == "token":
        return {"about": "another token; the old one ended"}
    if event.kind == "revoke":
        account.revoked = True
        return {"about": f"{show(account.spent)} of {show(account.limit)} was spent"}
    if event.kind in ("charge", "refusal"):
        account.first, account.last = account.first or event.at, event.at
    if event.kind == "charge":
        demand = load_demand(body["demand"])
        open_charges[account.analyst, event.request] = place
        joint.charge(demand, body["epsilon"])
        return {
            "epsilon": body["epsilon"],
            "cost": account.costs.charge(demand, body["epsilon"]),
            "outcome": "charged, not answered",
        }
    if event.kind == "refusal":
        account.refused[body["reason"]] += 1
        scope = (
            {"asked": body["asked"], "remaining": body["remaining"], "scope": body["scope"]}
            if body["reason"] == "budget"
            else {}
        )
        return {"outcome": f"refused ({body['reason']})"} | scope
    if event.kind in ("answer", "secure") and (account.analyst, event.request) in open_charges:
        account.answered += 1
    return {}


def _granted(account: Account, kind: str, body: dict[str, Any]) -> dict[str, Any]:
    until, what = body["expires"] or "", []
    if kind == "grant":
        account.limit, account.expires, account.granted, account.revoked, account.terms = (
            body["limit"],
            until,
            True,
            False,
            Terms.of(body),
        )
        what += [f"epsilon {show(account.limit)}"] + ([str(account.terms)] if account.terms != FREE else [])
    else:
        account.limit, account.expires = account.limit + body["more"], until or account.expires
        what += [f"epsilon +{show(body['more'])}, now {show(account.limit)}"] if body["more"] else []
    return {"about": ", ".join(what + ([f"until {when(until)}"] if until else [])), "expires": until}


def when(at: str) -> str:
    """A moment to the second, in UTC, for people; a day where it is the end of one."""
    return at[:10] if at[11:19] == "23:59:59" else at[:19].replace("T", " ")


def amount(nano: int | None) -> str:
    """A loss, or nothing."""
    return "" if nano is None else show(nano)


def bar(spent: int, limit: int, width: int = 10) -> str:
    """How much of a limit is used: ``━━━━──────``. Full only when nothing is left."""
    used = 0 if not limit else min(width, spent * width // limit)
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


def _float(nano: int | None) -> float | None:
    return None if nano is None else float(exact(nano))


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name in AMOUNTS:
        return show(value)
    text = str(value)
    return "'" + text if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
