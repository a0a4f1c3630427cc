# SPDX-License-Identifier: Apache-2.0
"""What a data provider does: check a policy, grant budgets and watch them. Thin; the ``pinq`` command prints it.

Everything here sees exact numbers and is for the provider's eyes only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime, time
from typing import Any

from pinq.analyst.tokens import digest, new_token
from pinq.engine import EncodingReport, open_engine, require_readable
from pinq.engine.sources import source_dialect, source_path
from pinq.errors import PolicyError, QueryError
from pinq.ledger.composition import CapRule
from pinq.ledger.ledger import Ledger
from pinq.ledger.signature import Signature, here
from pinq.ledger.state import Account
from pinq.ledger.terms import FREE, VERBS, Terms, now
from pinq.provider.advice import advice
from pinq.provider.claim import ledger_url
from pinq.provider.local import declare, open_ledger
from pinq.provider.policy_file import load_policy
from pinq.public.epsilon import ZERO, Epsilon, Loss
from pinq.public.policy import Policy

__all__ = [
    "CheckReport",
    "GrantReport",
    "Status",
    "Where",
    "cap_warning",
    "check",
    "extend",
    "future",
    "grant",
    "make_terms",
    "parse_expiry",
    "promised",
    "reissue",
    "require_name",
    "revoke",
    "set_terms",
    "show",
]

Where = str | os.PathLike[str] | Policy | Ledger
"""Whose grants: a policy's, or those of a ledger that is open already, which stays open."""

MAX_NAME = 128
MAX_PER_MINUTE = 10**6


@dataclass(frozen=True)
class CheckReport:
    """How a policy fits its source. Exact numbers: for the provider's eyes only.

    Attributes:
        source_rows: Rows in the source.
        encoded_rows: Rows that queries see.
        max_rows: What the policy declares.
        over_unit: Rows beyond their privacy unit's bound, or whose unit is missing.
        left_out: For each column, rows whose value cannot be encoded.
        clamped: For each numeric column, rows outside [lower, upper].
        unreviewed: Values that were read off the data and that nobody confirmed.
        problems: What must change before the policy opens; empty when it is ready.
        advice: What is worth a look.
        unreadable: Lines of delimited text that cannot be read, by reason; they count as rows that
            are left out.
    """

    dataset: str
    source_rows: int
    encoded_rows: int
    max_rows: int
    over_unit: int
    left_out: dict[str, int]
    clamped: dict[str, int]
    unreviewed: tuple[str, ...]
    problems: tuple[str, ...]
    advice: tuple[str, ...]
    unreadable: dict[str, int] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        """Whether the policy can be granted on."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self) | {"ready": self.ready}


@dataclass(frozen=True)
class GrantReport:
    """One analyst's budget as the ledger had it at some moment.

    Attributes:
        limit, spent: What may be spent, and what was.
        remaining: What can still be asked: 0 once revoked or expired, and never more than the cap
            leaves.
        state: ``active``, ``spent``, ``cap reached``, ``expired`` or ``revoked``.
        terms: What the grant allows beside its budget.
        warnings: After a change, what the provider should know about it.
        token: A bearer token that was issued just now; it is stored nowhere.
    """

    analyst: str
    limit: Epsilon
    spent: Epsilon
    remaining: Epsilon
    expires: datetime | None
    state: str
    terms: Terms = FREE
    warnings: tuple[str, ...] = ()
    token: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; losses as decimal numbers."""
        numbers = {name: float(getattr(self, name)) for name in ("limit", "spent", "remaining")}
        terms = self.terms.to_body()
        if self.terms.max_epsilon_per_query is not None:
            terms["max_epsilon_per_query"] = float(self.terms.max_epsilon_per_query)
        said = {
            "analyst": self.analyst,
            **numbers,
            "expires": self.expires.isoformat() if self.expires else None,
            "state": self.state,
            "terms": terms,
        }
        return said | ({"token": self.token} if self.token else {})


@dataclass(frozen=True)
class Status:
    """All accounts of a dataset, and what all analysts together spent under the cap, as ``cap_rule`` counts it."""

    dataset: str
    cap: Epsilon
    spent: Epsilon
    remaining: Epsilon
    cap_rule: CapRule
    accounts: tuple[GrantReport, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; losses as decimal numbers."""
        numbers = {name: float(getattr(self, name)) for name in ("cap", "spent", "remaining")}
        return {
            "dataset": self.dataset,
            **numbers,
            "cap_rule": self.cap_rule,
            "analysts": [one.to_dict() for one in self.accounts],
        }


def check(policy: str | os.PathLike[str] | Policy) -> CheckReport:
    """Encodes the source as the policy says and counts what happened. Works on unreviewed policies, which are not ready.

    Raises:
        PolicyError: Wrong policy, or a source that cannot be read or lacks a declared column.
    """
    loaded = load_policy(policy)
    # Any salt will do: which of a unit's rows are kept depends on it, how many does not.
    engine, counted = open_engine(loaded, salt=b"check", report=True)
    engine.close()
    assert counted is not None
    unreviewed = tuple(loaded.unreviewed_fields())
    problems = (
        [f"{_many(len(unreviewed), 'value')} guessed or read off the data and not reviewed: {_listed(unreviewed)}"]
        if unreviewed
        else []
    )
    if counted.source_rows > loaded.max_rows:
        problems.append(
            f"the source has {counted.source_rows:,} rows, more than max_rows ({loaded.max_rows:,}); declare "
            f"a bound that holds"
        )
    if counted.encoded_rows == 0:
        problems.append("no row can be encoded, so every answer would be noise alone")
    problems += _unreadable(loaded, counted)
    return CheckReport(
        loaded.dataset,
        counted.source_rows,
        counted.encoded_rows,
        loaded.max_rows,
        counted.over_unit,
        counted.left_out,
        counted.clamped,
        unreviewed,
        tuple(problems),
        advice(loaded, counted),
        counted.lines.unreadable,
    )


def _unreadable(policy: Policy, counted: EncodingReport) -> list[str]:
    """More lines that cannot be read than the policy allows, as a problem."""
    dialect, lines = source_dialect(policy), counted.lines
    if dialect is None or not lines.beyond(dialect.max_unreadable):
        return []
    share = dialect.max_unreadable
    return [f"{lines}; the policy allows {100 * share:g} % (`csv: {{max_unreadable: {share:g}}}`)"]


def grant(
    policy: Where,
    analyst: str,
    epsilon: Loss,
    expires: str | date | None = None,
    terms: Terms = FREE,
    *,
    by: Signature | None = None,
) -> GrantReport:
    """Grants a new analyst a budget and issues a token. Warns, and does not refuse, where all grants together pass the cap.

    Args:
        policy: A reviewed policy.
        analyst: Printable text of at most 128 characters.
        epsilon: The limit, in at most nine decimals: it is never rounded.
        expires: See ``parse_expiry``.
        terms: What it allows; see ``make_terms``.
        by: Whose act it is, for the log; by default this process's user's. So of the acts below.

    Returns:
        The account, with its token: the only time that it can be seen.

    Raises:
        PolicyError: Wrong or unreviewed policy, or its source does not exist or has more unreadable
            lines than the policy allows.
        QueryError: A malformed argument.
        LedgerError: The analyst has a grant already, or the ledger cannot be trusted.
    """
    require_name(analyst)
    limit, until = Epsilon.exactly(epsilon), future(expires)
    with _ledger(policy, create=True, declared_by=by or here()) as ledger:
        token = new_token()
        ledger.grant(analyst, limit, until, terms=terms, token=digest(token), by=by or here())
        return replace(_changed(ledger, analyst), token=token)


def extend(
    policy: Where,
    analyst: str,
    epsilon: Loss | None = None,
    expires: str | date | None = None,
    *,
    by: Signature | None = None,
) -> GrantReport:
    """Raises an analyst's limit by ``epsilon``, moves the expiry, or both.

    Raises:
        QueryError: Neither is given, or one is malformed.
        LedgerError: There is no such grant, or the ledger cannot be trusted.
        PolicyError: Wrong or unreviewed policy.
    """
    if epsilon is None and expires is None:
        raise QueryError("extend needs `epsilon` (how much more), `expires`, or both.")
    more, until = ZERO if epsilon is None else Epsilon.exactly(epsilon), future(expires)
    with _ledger(policy, declared_by=by or here()) as ledger:
        ledger.extend(analyst, more, until, by=by or here())
        return _changed(ledger, analyst)


def reissue(policy: Where, analyst: str, *, by: Signature | None = None) -> GrantReport:
    """Issues another token for a grant, in the account; the old one ends at once.

    Raises:
        LedgerError: There is no such grant, or the ledger cannot be trusted.
        PolicyError: Wrong policy.
    """
    with _ledger(policy) as ledger:
        token = new_token()
        ledger.set_token(analyst, digest(token), by=by or here())
        return replace(_changed(ledger, analyst), token=token)


def set_terms(policy: Where, analyst: str, terms: Terms, *, by: Signature | None = None) -> GrantReport:
    """Puts other terms in the place of a grant's; they count from the next request on.

    Raises:
        LedgerError: There is no such grant, or the ledger cannot be trusted.
        PolicyError: Wrong policy.
    """
    with _ledger(policy) as ledger:
        ledger.set_terms(analyst, terms, by=by or here())
        return _changed(ledger, analyst)


def make_terms(
    policy: str | os.PathLike[str] | Policy,
    *,
    max_epsilon_per_query: Loss | None = None,
    columns: Sequence[str] | None = None,
    verbs: Sequence[str] | None = None,
    queries_per_minute: int | None = None,
) -> Terms:
    """Checked terms for a grant; None allows everything.

    Args:
        policy: Whose columns.
        max_epsilon_per_query: The most that one request may ask.
        columns: Columns that requests may name.
        verbs: ``count``, ``sum``, ``avg``, ``choose``, or the verbs' own names.
        queries_per_minute: Charges within any sixty seconds.

    Raises:
        QueryError: A column or verb that does not exist, or a number out of range.
    """
    schema = load_policy(policy).schema_
    for name in columns or ():
        schema.column(name)
    known = {"count": "noisy_count", "sum": "noisy_sum", "avg": "noisy_avg", "choose": "exp_mech"}
    named = None if verbs is None else tuple(known.get(verb, verb) for verb in verbs)
    if wrong := [verb for verb in named or () if verb not in VERBS]:
        names = f"{', '.join(known)}, or {', '.join(VERBS)}, which are the same"
        raise QueryError(f"there is no verb {wrong[0]!r}; the verbs are {names}.")
    if queries_per_minute is not None and not 1 <= queries_per_minute <= MAX_PER_MINUTE:
        raise QueryError(
            f"is {queries_per_minute}",
            parameter="queries_per_minute",
            allowed=f"a whole number from 1 to {MAX_PER_MINUTE:,}",
        )
    most = (
        None if max_epsilon_per_query is None else Epsilon.exactly(max_epsilon_per_query, name="max_epsilon_per_query")
    )
    return Terms(
        most,
        None if columns is None else tuple(dict.fromkeys(columns)),
        None if named is None else tuple(dict.fromkeys(named)),
        queries_per_minute,
    )


def revoke(policy: Where, analyst: str, *, by: Signature | None = None) -> GrantReport:
    """Ends a grant at once; what it spent stays spent.

    Raises:
        LedgerError: There is no such grant, or the ledger cannot be trusted.
        PolicyError: Wrong policy.
    """
    # A policy under revision must never stand in the way of taking a grant back, so nothing is
    # declared here.
    with _ledger(policy) as ledger:
        ledger.revoke(analyst, by=by or here())
        return _changed(ledger, analyst)


def show(policy: Where) -> Status:
    """What each analyst was granted, spent and has left. Reads no rows.

    A cap that the policy lowered counts from here on, as from any other opening of the dataset; one
    that it raised does not.

    Raises:
        LedgerError: There is no ledger, or it cannot be trusted.
        PolicyError: Wrong policy.
    """
    with _ledger(policy) as ledger:
        if not isinstance(policy, Ledger):
            _lower_cap(load_policy(policy), ledger)
        together = ledger.together()
        accounts = tuple(_report(account) for account in ledger.accounts().values() if account.granted)
        return Status(ledger.dataset or "", together.cap, together.spent, together.remaining, together.rule, accounts)


def _lower_cap(policy: Policy, ledger: Ledger) -> None:
    """Logs a policy whose cap is lower than the log's, or counts a sum where the log's counts a union, if it is reviewed."""
    together = ledger.together()
    lower = Epsilon(policy.cap_nano) < together.cap or (policy.cap_rule, together.rule) == ("sum", "union")
    if lower and not policy.unreviewed_fields():
        declare(policy, ledger, may_raise=False)


def parse_expiry(expires: str | date | None) -> datetime | None:
    """The moment from which a grant no longer counts.

    Args:
        expires: An ISO date, which means until the end of that day in UTC, or an ISO date and time,
            in UTC unless it says otherwise; or a ``date`` or ``datetime``. None for never.

    Raises:
        QueryError: Neither of these.
    """
    if expires is None:
        return None
    found = expires if isinstance(expires, date) else None
    for read in (date.fromisoformat, datetime.fromisoformat):
        if isinstance(expires, str) and found is None:
            with suppress(ValueError):
                found = read(expires.strip())
    if found is None:
        raise QueryError(
            f"is {str(expires)[:40]!r}; write 2030-01-31 for all of that day (UTC), or a time, 2030-01-31T18:00Z.",
            parameter="expires",
        )
    try:
        moment = found if isinstance(found, datetime) else datetime.combine(found, time(23, 59, 59, 999_999))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        raise QueryError(f"is {str(expires)[:40]!r}, which no calendar in UTC has.", parameter="expires") from None


def future(expires: str | date | None) -> datetime | None:
    """``parse_expiry``, of a moment to come. ``QueryError`` for one that is past."""
    moment = parse_expiry(expires)
    if moment is not None and moment <= now():
        shown = moment.isoformat(sep=" ", timespec="seconds")
        raise QueryError(
            f"is {shown}, which is past; name a moment to come. To end a grant now, use `pinq revoke`.",
            parameter="expires",
        )
    return moment


def require_name(analyst: object) -> None:
    """``QueryError`` unless this can be an analyst's name: 1 to 128 printable characters without blanks around them."""
    if (
        not isinstance(analyst, str)
        or not analyst.strip()
        or analyst != analyst.strip()
        or len(analyst) > MAX_NAME
        or not analyst.isprintable()
    ):
        raise QueryError(
            f"is {repr(analyst)[:60]}",
            parameter="analyst",
            allowed=f"1 to {MAX_NAME} printable characters without blanks around them",
        )


def _require_source(policy: Policy) -> None:
    """A misspelt source must not get a ledger: budgets would be kept beside nothing."""
    path = source_path(policy)
    if path is None:
        return
    pattern = any(sign in path.name for sign in "*?[")
    if not (any(path.parent.glob(path.name)) if pattern else path.exists()):
        raise PolicyError(
            f"There is no source {path}. Correct `source:` of {policy.dataset!r}; relative paths start at the "
            f"policy file."
        )


@contextmanager
def _ledger(of: Where, *, create: bool = False, declared_by: Signature | None = None) -> Iterator[Ledger]:
    """The ledger of a policy, closed at the end; or an open one, as it is.

    Args:
        of: Whose.
        create: Make it where there is none, if the source exists.
        declared_by: Also log a changed policy, which must be reviewed, as this one's act.
    """
    if isinstance(of, Ledger):
        yield of
        return
    policy = load_policy(of)
    if declared_by is not None:
        policy.require_reviewed()
    if create:
        _require_source(policy)
        require_readable(policy)
    if declared_by is None:
        ledger = Ledger(ledger_url(policy), policy.dataset, create=False)
    else:
        ledger = open_ledger(policy, create=create, by=declared_by)
    try:
        yield ledger
    finally:
        ledger.close()


def cap_warning(ledger: Ledger, analyst: str, limit: Epsilon) -> str:
    """What to know before ``analyst`` has a limit: that all grants together pass the cap. Empty where they do not."""
    together, total = ledger.together(), limit + promised(ledger, besides=analyst)
    if total <= together.cap:
        return ""
    who = "analysts who share little of what they ask" if together.rule == "union" else "some analysts"
    return (
        f"All grants together come to epsilon {total}, above the cap of {together.cap}, which counts "
        f"{together.counts}: "
        f"{who} will be refused under the cap before they reach their own limits."
    )


def promised(ledger: Ledger, besides: str = "") -> Epsilon:
    """What all grants come to, but for one analyst's. What was spent under an ended grant still counts against the cap."""
    return sum(
        (one.limit if one.valid else one.spent for one in ledger.grants().values() if one.analyst != besides), ZERO
    )


def _changed(ledger: Ledger, analyst: str) -> GrantReport:
    """The report of a grant after a change."""
    account = ledger.accounts()[analyst]
    warning = cap_warning(ledger, analyst, account.limit) if account.grant is not None and account.grant.valid else ""
    return replace(_report(account), warnings=(warning,) if warning else ())


def _report(account: Account) -> GrantReport:
    return GrantReport(
        account.analyst, account.limit, account.spent, account.remaining, account.expires, account.state, account.terms
    )


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


# Propose
