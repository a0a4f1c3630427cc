# SPDX-License-Identifier: Apache-2.0
"""The acts of a data provider: grant a budget, extend, change and revoke it, show all of them.

Losses are exact, so results are for the provider alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time

from pinq.analyst.tokens import digest, new_token, person_digest
from pinq.errors import PolicyError, QueryError
from pinq.ledger.composition import COUNTED
from pinq.ledger.events import FREE, VERBS, Retired, Signature, Terms, here, now
from pinq.ledger.ledger import Ledger
from pinq.ledger.state import Account
from pinq.policy.files import missing_path, source_dialect
from pinq.policy.policy import Policy
from pinq.provider.opening import guarding_ledger, open_ledger, read_ledger, require_name
from pinq.provider.policy_file import load_policy
from pinq.public.checks import no_column
from pinq.public.epsilon import ZERO, Epsilon, EpsilonLike

MAX_QUOTA = 10**15
SHORT_VERBS = {"count": "noisy_count", "sum": "noisy_sum", "avg": "noisy_avg", "choose": "exp_mech"}


def parse_expiry(
    expires: str | date | None, *, parameter: str = "expires", of_day: time = time(23, 59, 59, 999_999)
) -> datetime | None:
    """Reads the moment at which a grant ends.

    Args:
        expires: An ISO date, which means the end of that day in UTC; an ISO date and time, in UTC
            without a zone; or a ``date`` or ``datetime``. None for never.
        parameter: The name of the parameter in errors.
        of_day: The time of day for a date without a time.

    Raises:
        QueryError: Another text.
    """
    if expires is None:
        return None
    text = str(expires).strip()
    try:
        moment = datetime.fromisoformat(text)
        if len(text) <= len("2030-01-31"):
            moment = datetime.combine(moment, of_day)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        raise QueryError(f"is {text[:40]!r}, which no calendar in UTC has.", parameter=parameter) from None
    except ValueError:
        raise QueryError(
            f"is {text[:40]!r}; write 2030-01-31 for all of that day (UTC), or a time, 2030-01-31T18:00Z.",
            parameter=parameter,
        ) from None


def future(expires: str | date | None) -> datetime | None:
    """Reads an expiry as ``parse_expiry`` does; raises ``QueryError`` for a past moment."""
    moment = parse_expiry(expires)
    if moment is not None and moment <= now():
        shown = moment.isoformat(sep=" ", timespec="seconds")
        raise QueryError(
            f"is {shown}, which is past; name a moment to come. To end a grant now, use `pinq revoke`.",
            parameter="expires",
        )
    return moment


def make_terms(
    policy: str | os.PathLike[str] | Policy,
    *,
    max_epsilon_per_query: EpsilonLike | None = None,
    columns: Sequence[str] | None = None,
    verbs: Sequence[str] | None = None,
    queries_per_minute: int | str | None = None,
    work_per_minute: int | str | None = None,
    stored_bytes: int | str | None = None,
    tables: Sequence[str] | None = None,
) -> Terms:
    """Makes checked terms for a grant; None allows everything.

    Args:
        policy: The policy of the columns.
        max_epsilon_per_query: The largest epsilon of one request.
        columns: Columns that requests may name.
        verbs: ``count``, ``sum``, ``avg``, ``choose``, or the verbs' full names.
        queries_per_minute: The limit of charges within any sixty seconds.
        work_per_minute: The limit of work within any sixty seconds, in units of about a millisecond
            of one core.
        stored_bytes: The limit of bytes in the ledger for all of the analyst's requests.
        tables: Tables of the policy that may be queried.

    Raises:
        QueryError: A table, column or verb that does not exist, or a number out of range.
    """
    loaded = load_policy(policy)
    columns_of_policy = dict.fromkeys(name for table in loaded.each for name in table.columns)
    for name in [] if columns is None else [name for name in columns if name not in columns_of_policy]:
        raise no_column(name, columns_of_policy)
    for name in tables or ():
        loaded.at(name)
    limit = max_epsilon_per_query
    allowed = None if verbs is None else tuple(dict.fromkeys(SHORT_VERBS.get(name, name) for name in verbs))
    for verb in allowed or ():
        if verb not in VERBS:
            shown = f"{', '.join(SHORT_VERBS)}, or {', '.join(VERBS)}, which are the same"
            raise QueryError(f"there is no verb {verb!r}; the verbs are {shown}.")
    return Terms(
        None if limit is None else Epsilon.exactly(limit, name="max_epsilon_per_query"),
        None if columns is None else tuple(dict.fromkeys(columns)),
        allowed,
        None
        if queries_per_minute is None
        else _whole_number(queries_per_minute, 10**6, parameter="queries_per_minute"),
        _whole_number(work_per_minute, MAX_QUOTA, parameter="work_per_minute"),
        _whole_number(stored_bytes, MAX_QUOTA, parameter="stored_bytes"),
        None if tables is None else tuple(dict.fromkeys(tables)),
    )


def _whole_number(value: int | str | None, limit: int, *, parameter: str) -> int | None:
    if value is None:
        return None
    text = str(value)
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(limit)) else 0
    if not 1 <= number <= limit:
        raise QueryError(f"is {repr(value)[:42]}", parameter=parameter, allowed=f"a whole number from 1 to {limit:,}")
    return number


Where = str | os.PathLike[str] | Policy
"""A policy, whose ledger has the grants."""


@dataclass(frozen=True)
class GrantReport:
    """One analyst's budget in the ledger at some moment.

    Attributes:
        remaining: The epsilon that can still be spent: 0 once revoked or expired, at most the cap's
            remaining part.
        state: ``active``, ``spent``, ``cap reached``, ``expired`` or ``revoked``.
        warnings: Warnings for the provider about the change.
        token: The bearer token, if one was just issued; it is stored nowhere.
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

    def to_dict(self) -> dict[str, object]:
        terms: dict[str, object] = {**self.terms.to_body()}
        if self.terms.max_epsilon_per_query is not None:
            terms["max_epsilon_per_query"] = float(self.terms.max_epsilon_per_query)
        return {
            "analyst": self.analyst,
            "limit": float(self.limit),
            "spent": float(self.spent),
            "remaining": float(self.remaining),
            "expires": self.expires.isoformat() if self.expires else None,
            "state": self.state,
            "terms": terms,
            **({"token": self.token} if self.token else {}),
        }


@dataclass(frozen=True)
class Status:
    """All accounts of a dataset, and the spent and remaining part of its cap.

    Attributes:
        cap: The limit of all analysts together.
        spent, remaining: The spent and the remaining part of the cap, which counts the sum of what each
            analyst spent.
    """

    dataset: str
    cap: Epsilon
    spent: Epsilon
    remaining: Epsilon
    accounts: tuple[GrantReport, ...] = ()

    def to_dict(self) -> dict[str, object]:
        return {
            "dataset": self.dataset,
            "cap": float(self.cap),
            "spent": float(self.spent),
            "remaining": float(self.remaining),
            "analysts": [account.to_dict() for account in self.accounts],
        }


def grant(
    policy: Where,
    analyst: str,
    epsilon: EpsilonLike,
    expires: str | date | None = None,
    terms: Terms = FREE,
    *,
    sign_in: bool = False,
    by: Signature | None = None,
) -> GrantReport:
    """Grants a new analyst a budget and issues a token.

    If all grants together exceed the cap, the report has a warning; the grant is not refused.

    Args:
        policy: A reviewed policy.
        analyst: The analyst's name; see ``require_name``.
        epsilon: The limit, in at most nine decimals: it is never rounded.
        expires: The end of the grant; see ``parse_expiry``.
        terms: The terms; see ``make_terms``.
        sign_in: Whether the analyst signs in at the policy's identity provider under this name; then
            no token is issued.
        by: The signature for the log; by default this process's user, as in the acts below.

    Returns:
        The account with its token, which is never shown again.

    Raises:
        PolicyError: Wrong or unreviewed policy, or its source does not exist or has more unreadable
            lines than the policy allows.
        QueryError: A malformed argument.
        LedgerError: The analyst has a grant already, or the ledger cannot be trusted.
    """
    require_name(analyst)
    limit, until = Epsilon.exactly(epsilon), future(expires)
    token, token_digest = _opener(policy, analyst, sign_in)
    with _ledger(policy, create=True, declared_by=by or here()) as ledger:
        ledger.grant(analyst, limit, until, terms=terms, token=token_digest, by=by or here())
        return replace(_changed(ledger, analyst), token=token)


def _opener(policy: Where, analyst: str, sign_in: bool) -> tuple[str, str]:
    """A new token and its digest; for a person who signs in, no token and the person's digest."""
    if not sign_in:
        token = new_token()
        return token, digest(token)
    declared = load_policy(policy).sign_in
    if declared is None:
        raise PolicyError("The policy names no identity provider: add `sign_in: {issuer: ..., client: ...}`.")
    return "", person_digest(declared.issuer.rstrip("/"), analyst)


def extend(
    policy: Where,
    analyst: str,
    epsilon: EpsilonLike | None = None,
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


def reissue(policy: Where, analyst: str, *, sign_in: bool = False, by: Signature | None = None) -> GrantReport:
    """Issues a new token for a grant, returned in the report; the old one ends at once.

    With ``sign_in``, the analyst signs in from now on, as in ``grant``.

    Raises:
        LedgerError: There is no such grant, or the ledger cannot be trusted.
        PolicyError: Wrong policy.
    """
    token, token_digest = _opener(policy, analyst, sign_in)
    with _ledger(policy) as ledger:
        ledger.set_token(analyst, token_digest, by=by or here())
        return replace(_changed(ledger, analyst), token=token)


def set_terms(policy: Where, analyst: str, terms: Terms, *, by: Signature | None = None) -> GrantReport:
    """Replaces the terms of a grant; the new terms count from the next request on.

    Raises:
        LedgerError: There is no such grant, or the ledger cannot be trusted.
        PolicyError: Wrong policy.
    """
    with _ledger(policy) as ledger:
        ledger.set_terms(analyst, terms, by=by or here())
        return _changed(ledger, analyst)


def revoke(policy: Where, analyst: str, *, by: Signature | None = None) -> GrantReport:
    """Ends a grant at once; its spent epsilon stays spent.

    Raises:
        LedgerError: There is no such grant, or the ledger cannot be trusted.
        PolicyError: Wrong policy.
    """
    # An unreviewed policy must not prevent a revocation, so no policy is declared here.
    with _ledger(policy) as ledger:
        ledger.revoke(analyst, by=by or here())
        return _changed(ledger, analyst)


def retire(policy: Where, *, by: Signature) -> Retired:
    """Closes a ledger that was begun wrongly, for example by rows although persons have several rows.

    Every grant ends. The log goes on: budgets count anew from the next ``grant``, under any privacy unit.
    Earlier losses of persons remain, and the log and each audit show them.

    Returns:
        The closed meaning of epsilon, and what was spent under it.

    Raises:
        QueryError: No reason is given.
        LedgerError: There is nothing to close, or the ledger cannot be trusted.
    """
    if not by.because:
        raise QueryError("is empty; say why the ledger was begun wrongly.", parameter="because")
    with _ledger(policy) as ledger:
        return ledger.retire(by=by)


def show(policy: Where | None = None, *, ledger: str | os.PathLike[str] | None = None) -> Status:
    """Shows the granted, spent and remaining budget of each analyst. Reads no rows, and writes nothing.

    A lowered cap is shown at once, though it takes effect at the next opening of the dataset. A raised
    cap is shown from then on.

    Args:
        policy: The policy of the ledger; with ``ledger``, only its cap is read.
        ledger: A ledger to read instead of the policy's: a copy, or a ledger without a policy.

    Raises:
        LedgerError: There is no ledger, or it cannot be trusted.
        PolicyError: Wrong policy.
    """
    loaded = None if policy is None else load_policy(policy)
    with closing(read_ledger(loaded, ledger)) as opened:
        if loaded is not None and not loaded.unreviewed_fields():
            opened.preview_cap(Epsilon(loaded.cap_nano))
        together = opened.together()
        accounts = tuple(_report(account) for account in opened.accounts().values() if account.granted)
        return Status(opened.dataset, together.cap, together.spent, together.remaining, accounts)


@contextmanager
def _ledger(of: Where, *, create: bool = False, declared_by: Signature | None = None) -> Iterator[Ledger]:
    """Opens the ledger of a policy, and closes it at the end; with ``declared_by``, logs a changed, reviewed policy."""
    policy = load_policy(of)
    if create:
        policy.require_reviewed()  # before the source is read; `open_ledger` requires it too
        # A misspelt source must not get a ledger, which would guard nothing.
        for table in policy.each:
            if (path := missing_path(table)) is not None:
                raise PolicyError(
                    f"There is no source {path}. Correct `source:` of {table.name!r}; relative paths start at the "
                    f"policy file."
                )
            if source_dialect(table) is not None:
                from pinq.engine.sources import require_readable

                require_readable(table)
    declares = declared_by is not None
    with closing(open_ledger(policy, create=create, by=declared_by) if declares else guarding_ledger(policy)) as ledger:
        yield ledger


def cap_warning(ledger: Ledger, analyst: str, limit: Epsilon) -> str:
    """A warning if all grants together exceed the cap with an analyst's new limit; else empty."""
    together, total = ledger.together(), limit + promised(ledger, besides=analyst)
    if total <= together.cap:
        return ""
    return (
        f"All grants together come to epsilon {total}, above the cap of {together.cap}, "
        f"which counts {COUNTED}: "
        "some analysts will be refused under the cap before they reach their own limits."
    )


def promised(ledger: Ledger, besides: str = "") -> Epsilon:
    """The grants of all analysts but one; the spending of an ended grant counts too."""
    # Ana has 1, and bob was revoked after he had spent 0.3: 1.3 in all.
    others = [grant for grant in ledger.grants().values() if grant.analyst != besides]
    return sum((grant.limit if grant.valid else grant.spent for grant in others), ZERO)


def _changed(ledger: Ledger, analyst: str) -> GrantReport:
    account = ledger.accounts()[analyst]
    warning = cap_warning(ledger, analyst, account.limit) if account.valid else ""
    return replace(_report(account), warnings=(warning,) if warning else ())


def _report(account: Account) -> GrantReport:
    return GrantReport(
        account.analyst, account.limit, account.spent, account.remaining, account.expires, account.state, account.terms
    )
