# SPDX-License-Identifier: Apache-2.0
"""Reports from the log alone: grants, queries, costs, and refusals of each analyst.

The log is verified, and replayed through the recursion that charged it.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pinq.errors import LedgerError, QueryError, printable
from pinq.ledger.composition import COUNTED, Cap
from pinq.ledger.events import (
    FREE,
    NOTHING,
    Answered,
    Begun,
    Body,
    Charged,
    Created,
    Event,
    Extended,
    Granted,
    PolicyDeclared,
    Record,
    Refused,
    Retired,
    Revoked,
    SessionLogged,
    Snapshot,
    TermsSet,
    TokenSet,
)
from pinq.ledger.state import Account, LedgerState
from pinq.policy.policy import Destination, Policy
from pinq.provider.claim import masked
from pinq.provider.grants import parse_expiry
from pinq.provider.heads import HeadKey
from pinq.provider.opening import read_ledger
from pinq.provider.policy_file import load_policy
from pinq.provider.report.markup import amount, bar, print_table, when
from pinq.public.checks import closest, first_of, many
from pinq.public.epsilon import ZERO, Epsilon

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Period:
    """A period between two moments, both included; None for an open end."""

    since: datetime | None = None
    until: datetime | None = None

    @classmethod
    def of(cls, since: str | date | None, until: str | date | None) -> Period:
        """Reads a period; a day begins at midnight UTC and is included to its end.

        Raises ``QueryError`` for a text that is no date, or for an end before the beginning.
        """
        period = cls(parse_expiry(since, parameter="since", of_day=time()), parse_expiry(until, parameter="until"))
        if period.since is not None and period.until is not None and period.until < period.since:
            raise QueryError(f"is {when(period.until)}, which is before {when(period.since)}", parameter="until")
        return period

    def holds(self, at: str) -> bool:
        """Whether a moment of the log is within the period."""
        moment = datetime.fromisoformat(at)
        return (self.since is None or self.since <= moment) and (self.until is None or moment <= self.until)

    def __str__(self) -> str:
        since = f"since {when(self.since)}" if self.since else ""
        until = f"until {when(self.until)}" if self.until else ""
        return f"{since} {until}".strip()


_SHOWN = Policy.keys_for(Destination.LOGGED) - {"reviewed"}


@dataclass(frozen=True)
class AuditLine:
    """One event, with the budgets after it. A loss is None if it does not apply.

    Attributes:
        about: The query in public facts, or the change.
        outcome: ``answered``, ``charged, not answered``, ``refused (...)``, else empty.
        epsilon: The epsilon of each part.
        cost: The growth of ``spent``.
        asked: The cost of a refused request.
        scope: The budget that refused: ``analyst`` or ``cap``.
        by: The author of a provider's act; empty in logs of earlier releases.
        act: The act of the query, as the analyst's program stated it.
        run: The mark that distinguishes acts of the same name.
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
    act: str = ""
    run: str = ""

    @property
    def queries(self) -> tuple[AuditLine, ...]:
        """The lines that an act sums up; empty for a single query."""
        return ()

    @property
    def budget(self) -> str:
        return "under the analyst's limit" if self.scope == "analyst" else "under the cap"

    def cells(self, heads: Sequence[str]) -> list[str]:
        return [_CELLS[head](self) for head in heads]

    def to_dict(self) -> dict[str, str | int | float | None]:
        return {name: float(value) if isinstance(value, Epsilon) else value for name, value in vars(self).items()}


@dataclass(frozen=True)
class ActLine(AuditLine):
    """An act: the line of its first query, with the cost of all its queries and the budgets after the last."""

    queries: tuple[AuditLine, ...] = ()

    @classmethod
    def of(cls, lines: Sequence[AuditLine]) -> AuditLine:
        """Sums up the queries of one act; a query without an act keeps its line."""
        if not lines[0].act:
            return lines[0]
        first, last = lines[0], lines[-1]
        counts = Counter(line.outcome for line in lines)
        outcome = first.outcome if len(counts) == 1 else ", ".join(f"{count} {name}" for name, count in counts.items())
        about = f"{first.act} (as told), {many(len(lines), 'question')}"
        cost = sum((line.cost for line in lines if line.cost), ZERO)
        whole = replace(first, about=about, outcome=outcome, cost=cost, spent=last.spent, joint=last.joint)
        return cls(**vars(whole), queries=tuple(lines))


class AuditLines:
    """The lines of an audit in the making.

    Attributes:
        lines: The fields of each line so far.
    """

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self._waiting: dict[tuple[str, str], dict[str, Any]] = {}  # lines of charges without an answer so far
        self._reasons: Body = {}  # of the latest review in the log

    def add(self, event: Event, state: LedgerState) -> None:
        record, account = event.record, state.accounts.get(event.analyst)
        query = record.query if isinstance(record, (Charged, Refused)) else NOTHING
        line = {
            "seq": event.seq,
            "at": event.at,
            "kind": event.kind,
            "analyst": event.analyst,
            "spent": account.spent if account else None,
            "joint": state.together.spent,
            "limit": account.limit if account and account.granted else None,
            "cap": state.together.cap,
            "request": event.request,
            "hash": event.hash,
            "by": event.by.by if event.by else "",
            "because": event.by.because if event.by else "",
            "act": query.act,
            "run": query.run,
        }
        before = self.lines[-1] if self.lines else {"joint": ZERO, "cap": ZERO}
        self.lines.append(line | _facts(record, line, before, self._reasons))
        match record:
            case PolicyDeclared():
                self._reasons = record.schema.get("reviewed", {})
            case Retired():
                self._reasons = {}
            case Charged():
                self._waiting[event.analyst, event.request] = self.lines[-1]
            case Answered() | SessionLogged():
                self._waiting.pop((event.analyst, event.request), {})["outcome"] = "answered"

    def report(self, dataset: str, state: LedgerState) -> Audit:
        last: Body = self.lines[-1] if self.lines else {"seq": 0, "hash": ""}
        report = Audit(dataset, state.together, state.accounts, last["seq"], last["hash"])
        report.lines = [AuditLine(**line) for line in self.lines]
        for place in (place for place in state.places.values() if " " in place):
            table, _, cohort = place.split(" ", 2)
            name = f"{table}: {cohort}" if table else cohort
            losses = [account.costs.of_cohort(place, state.places) for account in state.accounts.values()]
            report.cohorts[name] = max(report.cohorts.get(name, ZERO), sum(losses, ZERO))
        report.versions = state.last - len(state.rows.keys() - {""})  # without the first version of each named table
        return report


def _reasons_of(reasons: Mapping[str, str]) -> str:
    names_of = defaultdict[str, dict[str, None]](dict)
    for name, why in reasons.items():
        names_of[why][name.removeprefix("columns.").rpartition(".")[0] or name] = None
    return "; ".join(f"{first_of(list(names), 8)}: {why}" for why, names in names_of.items())


def _facts(record: Record, line: Body, before: Body, earlier_reasons: Mapping[str, str]) -> Body:
    cap: Epsilon = before["cap"]
    match record:
        case Created():
            return {"about": f"ledger of {record.dataset}"}
        case PolicyDeclared():
            change = f"cap {record.cap}" if not cap or cap == record.cap else f"cap {cap} to {record.cap}"
            earlier = " (equal queries once, in earlier versions)" if record.cap_rule == "union" else ""
            reviews = record.schema.get("reviewed", {}).items()
            reasons = _reasons_of({name: why for name, why in reviews if earlier_reasons.get(name) != why})
            reviewed = f"; reviewed {reasons}" if reasons else ""
            keys = "".join(
                f"; {key} {record.schema[key]}" for key in Policy.model_fields if key in _SHOWN & record.schema.keys()
            )
            return {"about": f"{change}, which counts {COUNTED}{earlier}, schema {record.digest[:8]}{keys}{reviewed}"}
        case Retired():
            return {
                "about": f"closed: epsilon {record.spent} was spent under {record.means}; every grant ended, "
                "and budgets after this line do not count it"
            }
        case Begun():
            return {
                "about": f"version {record.number} of the rows{' of ' * bool(record.table)}{record.table}: {record.why}"
            }
        case Snapshot():
            return {"about": f"snapshot of the state, {record.digest[:8]}"}
        case SessionLogged():
            return {"about": record.query.about, "outcome": "" if line["analyst"] else "exact, no epsilon"}
        case Charged():
            cost, outcome = line["joint"] - before["joint"], "charged, not answered"
            return {"about": record.query.about, "outcome": outcome, "epsilon": record.epsilon, "cost": cost}
        case Refused():
            facts = {"about": record.query.about, "outcome": f"refused ({record.reason})", "scope": record.scope}
            return {**facts, "asked": record.asked, "remaining": record.remaining}
        case Granted():
            terms = [str(record.terms)] if record.terms != FREE else []
            return _until(record.expires, f"epsilon {record.limit}", *terms)
        case Extended():
            more = [f"epsilon +{record.more}, now {line['limit']}"] if record.more else []
            return _until(record.expires, *more)
        case TermsSet():
            return {"about": str(record.terms)}
        case TokenSet():
            return {"about": "another token; the old one ended"}
        case Revoked():
            return {"about": f"{line['spent']} of {line['limit']} was spent"}
    return {}


def _until(expires: datetime | None, *granted: str) -> Body:
    if expires is None:
        return {"about": ", ".join(granted)}
    return {"about": ", ".join([*granted, f"until {when(expires)}"]), "expires": expires.isoformat()}


# The cell of a line below each head; `` >`` after a name means numbers, `` ~`` texts, which may wrap.
_CELLS: dict[str, Callable[[AuditLine], str]] = {
    "when": lambda line: when(line.at),
    "event": lambda line: line.kind,
    "analyst ~": lambda line: line.analyst,
    "question ~": lambda line: line.about,
    "act or question ~": lambda line: line.about,
    "what ~": lambda line: line.about,
    "by ~": lambda line: line.by,
    "because ~": lambda line: line.because,
    "outcome": lambda line: line.outcome,
    "asked >": lambda line: amount(line.asked),
    "remaining >": lambda line: amount(line.remaining),
    "of which budget": lambda line: line.budget,
    "cost >": lambda line: amount(line.cost),
    "spent >": lambda line: amount(line.spent),
    "all together >": lambda line: amount(line.joint),
}

CHANGES = ("created", "policy", "grant", "extend", "terms", "token", "revoke", "retire", "version")


@dataclass
class Audit:
    """The report of the log of one dataset.

    Attributes:
        events: The number of events in the log; their chain was verified.
        head: The last event's hash; two audits with the same head saw the same log.
        versions: The number of versions of the rows so far.
        cohorts: The largest loss of a person in each closed cohort, by the cohort's name.
        only: The one analyst of the report; None for all.
    """

    dataset: str
    together: Cap
    accounts: dict[str, Account]
    events: int = 0
    head: str = ""
    versions: int = 1
    cohorts: dict[str, Epsilon] = field(default_factory=dict)
    lines: list[AuditLine] = field(default_factory=list)
    only: str | None = None
    ledger: str = ""
    period: str = ""

    @property
    def cap(self) -> Epsilon:
        return self.together.cap

    @property
    def joint(self) -> Epsilon:
        return self.together.spent

    @property
    def follows(self) -> str:
        """The text of the last closing of the ledger, before today's budgets; empty for none."""
        return next((line.about for line in reversed(self.lines) if line.kind == "retire"), "")

    @property
    def exhaustion(self) -> list[AuditLine]:
        """Requests that were refused for want of budget."""
        return [line for line in self.lines if line.kind == "refusal" and line.asked is not None]

    @property
    def changes(self) -> list[AuditLine]:
        """Grants, extensions, terms, tokens, revocations and changes of the policy."""
        return [line for line in self.lines if line.kind in CHANGES]

    @property
    def requests(self) -> list[AuditLine]:
        """Charges, refusals and exact releases among several parties."""
        return [
            line
            for line in self.lines
            if line.kind in ("charge", "refusal") or (line.kind == "secure" and not line.analyst)
        ]

    @property
    def acts(self) -> list[AuditLine]:
        """The acts of analysts: a line for the queries of each act, in the order of their first queries."""
        acts: dict[object, list[AuditLine]] = {}
        for line in self.requests:
            acts.setdefault((line.analyst, line.act, line.run) if line.act else line.seq, []).append(line)
        return [ActLine.of(lines) for lines in acts.values()]

    def tables(self, *, single: bool = False) -> list[tuple[str, tuple[str, ...], list[AuditLine], str]]:
        """Returns the tables of every report: refusals, changes, and acts or ``single`` queries.

        Returns:
            For each table: title, column heads, lines, and the sentence that a page shows if there are no lines.
            Without this sentence, an empty table is left out.
        """
        refused = [line for line in self.requests if line.kind == "refusal" and line.asked is None]
        begin, nobody = ("when", "analyst ~"), "Nobody asked for more than what remained."
        budget = (*begin, "asked >", "remaining >", "of which budget", "question ~")
        change = ("when", "event", "analyst ~", "what ~", "by ~", "because ~")
        query = "question ~" if single else "act or question ~"
        costs = (*begin, query, "cost >", "spent >", "all together >", "outcome")
        return [
            ("Exhaustion", budget, self.exhaustion, nobody),
            ("Other refusals", (*begin, "outcome", "question ~"), refused, ""),
            ("Grants and policy", change, self.changes, "Nothing was declared yet."),
            ("Spending over time", costs, self.requests if single else self.acts, "Nothing was asked yet."),
        ]

    def of(self, analyst: str) -> Audit:
        """Narrows the audit to one analyst. Raises ``QueryError`` if the log does not know the name."""
        if analyst not in self.accounts:
            names = [name for name in self.accounts if name]
            shown = ", ".join(names[:12]) or "none"
            raise QueryError(f"the log has no analyst {analyst!r}{closest(analyst, names)}; it has {shown}.")
        lines = [line for line in self.lines if line.analyst == analyst]
        return replace(self, accounts={analyst: self.accounts[analyst]}, lines=lines, only=analyst)

    def within(self, period: Period) -> Audit:
        """Narrows the lines to those of a period."""
        return replace(self, lines=[line for line in self.lines if period.holds(line.at)], period=str(period))

    def require(self, seq: int, hashed: str, dataset: str | None = None) -> None:
        """Raises ``LedgerError`` unless the event of this number, in the log of this dataset, has this hash."""
        if dataset not in (None, self.dataset):
            raise LedgerError(f"The head is one of {dataset!r}, but the ledger {self.ledger} is of {self.dataset!r}.")
        if not (0 < seq <= len(self.lines) and self.lines[seq - 1].hash.startswith(hashed)):
            raise LedgerError(
                f"The ledger {self.ledger} has no event {seq} with the hash {hashed[:16]}, which was expected: it was "
                "cut, rolled back or made anew since, or it is another ledger."
            )

    def signed(self, key: str | os.PathLike[str]) -> str:
        """Signs the head of the log with the secret key of a file."""
        return HeadKey.read(key, secret=True).sign(self.dataset, self.events, self.head)

    def to_dict(self) -> dict[str, object]:
        return {
            **({"period": self.period} if self.period else {}),
            "dataset": self.dataset,
            "ledger": self.ledger,
            "chain": {"verified": True, "events": self.events, "head": self.head},
            **({"follows": self.follows} if self.follows else {}),
            "cap": float(self.cap),
            "spent": float(self.joint),
            "remaining": float(self.together.remaining),
            **({"cohorts": {name: float(loss) for name, loss in self.cohorts.items()}} if self.cohorts else {}),
            "analysts": [_account(account) for account in self.accounts.values()],
            "exhaustion": [line.to_dict() for line in self.exhaustion],
            "changes": [line.to_dict() for line in self.changes],
            "acts": [_act(line) for line in self.acts],
            "events": [line.to_dict() for line in self.lines],
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    def to_csv(self) -> str:
        """Writes a row for each event.

        An apostrophe is put before texts that a spreadsheet would run as formulas.
        """
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(column.name for column in fields(AuditLine))
        for line in self.lines:
            writer.writerow(_cell(value) for value in vars(line).values())
        return out.getvalue()


def audit(
    policy: str | os.PathLike[str] | Policy | None = None,
    analyst: str | None = None,
    *,
    ledger: str | os.PathLike[str] | None = None,
    since: str | date | None = None,
    until: str | date | None = None,
    expect: str | None = None,
    key: str | os.PathLike[str] | None = None,
) -> Audit:
    """Verifies a dataset's log and reports from it.

    It changes nothing, so it reads copies, read-only media and ledgers in use.

    Args:
        policy: The policy of the ledger; None for a ledger without a policy.
        analyst: The only analyst of the report; None for all.
        ledger: A ledger to read instead of the policy's.
        since: The first day or moment of the lines. Balances always count the whole log.
        until: The last day or moment of the lines.
        expect: An event that must still be in the log: ``SEQ:HASH`` (at least 16 digits of its hash)
            from an earlier audit, or the file of a signed head.
        key: The file of the provider's public key, for a signed head.

    Raises:
        PolicyError: Wrong policy.
        LedgerError: There is no ledger, its chain does not hold, or it lacks the expected event.
        QueryError: The log does not know the analyst, or an argument is malformed.
    """
    expected, period = None if expect is None else _expected(expect, key), Period.of(since, until)
    with closing(read_ledger(None if policy is None else load_policy(policy), ledger)) as opened:
        lines = AuditLines()
        opened.verify(lambda event: lines.add(event, opened.log.state))
        report = lines.report(opened.dataset, opened.log.state)
        report.ledger = masked(opened.address)
    if expected is not None:
        report.require(*expected)
    return (report if analyst is None else report.of(analyst)).within(period)


def _expected(text: str, key: str | os.PathLike[str] | None) -> tuple[int, str, str | None]:
    """Reads an event's number, the beginning of its hash, and the dataset that a signed head names."""
    match = re.fullmatch("([0-9]{1,18}):([0-9a-f]{16,64})", text.strip().lower())
    if match is not None:
        return int(match[1]), match[2], None
    if not Path(text).is_file():
        allowed = "SEQ:HASH, with 16 digits of the hash or more: 53:0123456789abcdef; or the file of a signed head"
        raise QueryError(f"is {text[:90]!r}", parameter="expect", allowed=allowed)
    if key is None:
        raise QueryError("a signed head is compared with the public key of its signer: name the file (--key FILE).")
    signer = HeadKey.read(key)
    head = signer.verified(text)
    return head.seq, head.hashed, head.origin.removeprefix(f"{signer.name}/")


def _account(account: Account) -> dict[str, object]:
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


def _act(line: AuditLine) -> dict[str, object]:
    """Returns an act, or a query without an act, as plain values, for JSON."""
    fields_of = line.to_dict()
    facts = {name: fields_of[name] for name in ("analyst", "at", "act", "about", "outcome", "cost", "spent")}
    return facts | {"questions": [query.seq for query in line.queries or (line,)]}


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = str(value)
    return "'" + text if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def print_audit(audit: Audit, console: Console, *, single: bool = False) -> None:
    """Prints an audit as tables; with ``single`` each query separately."""
    _print_head(audit, console)
    _print_analysts(audit, console)
    for title, heads, lines, _ in audit.tables(single=single):
        print_table(console, heads, [line.cells(heads) for line in lines], title, limit=20)


def _print_head(audit: Audit, console: Console) -> None:
    """Prints the subject of the audit, the remaining part of the cap, and the verified chain."""
    from rich.text import Text

    together = audit.together
    console.print(
        Text.assemble(
            ("Audit of ", "bold"),
            (printable(audit.dataset), "bold"),
            f" for {printable(audit.only)}" if audit.only else "",
            f", {audit.period}" if audit.period else "",
            f"\nall analysts together: {amount(together.spent)} of {together.cap} spent, ",
            f"{amount(together.remaining)} remains under the cap, which counts {COUNTED}",
            f"\nbefore: {printable(audit.follows)}" if audit.follows else "",
            f"\nlargest loss of a person, by cohort: {_by_cohort(audit)}" if audit.cohorts else "",
            "\nchain: ",
            ("verified", "green"),
            f", {audit.events:,} events, last {audit.head[:16]}",
            f"\nledger: {printable(audit.ledger)}",
        )
    )


def _by_cohort(audit: Audit) -> str:
    return ", ".join(f"{printable(name)} {amount(loss)}" for name, loss in audit.cohorts.items())


def _print_analysts(audit: Audit, console: Console) -> None:
    budgets = ["limit >", "spent >", "remaining >", "used"]
    requests = ["answered >", "refused >", "unanswered >", "first", "last"]
    rows = [
        [
            account.analyst,
            account.state,
            amount(account.limit),
            amount(account.spent),
            amount(account.remaining),
            bar(account.spent, account.limit),
            f"{account.answered:,}",
            f"{account.refused.total():,}",
            f"{account.unanswered:,}",
            when(account.first),
            when(account.last),
        ]
        for account in audit.accounts.values()
    ]
    print_table(console, ["analyst", "state", *budgets, *requests], rows, "Analysts")
