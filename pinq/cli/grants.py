# SPDX-License-Identifier: Apache-2.0
"""The commands that make, show, change and end grants."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pinq.cli.base import (
    AsJson,
    LedgerFile,
    PolicyFile,
    PolicyIfAny,
    argument,
    can_ask,
    console,
    flag,
    guarded,
    option,
    print_json,
)
from pinq.errors import LedgerError, printable
from pinq.provider.report.markup import print_table, when

if TYPE_CHECKING:
    from pinq.ledger.events import Signature, Terms
    from pinq.provider.grants import GrantReport


commands = typer.Typer()

Analyst = Annotated[str, argument("ANALYST", "The analyst's name.")]
Because = Annotated[str, option("--because", metavar="TEXT", help="The reason, for the log.")]
Expires = Annotated[
    str | None,
    option("--expires", metavar="DATE", help="Until 2030-01-31 (all of that day, UTC), or 2030-01-31T18:00Z."),
]
MaxEpsilon = Annotated[str | None, option("--max-epsilon", metavar="EPSILON", help="The largest epsilon of one query.")]
Columns = Annotated[
    str | None, option("--columns", metavar="A,B,...", help="The columns that queries may use; `all` for any.")
]
Verbs = Annotated[
    str | None,
    option(
        "--verbs",
        metavar="V,W,...",
        help="The only verbs: count, sum, avg, choose, or as the log has them noisy_count, ...; `all` for any.",
    ),
]
PerMinute = Annotated[int | None, option("--per-minute", metavar="N", help="Limit of queries a minute.")]
WorkPerMinute = Annotated[
    int | None,
    option("--work-per-minute", metavar="N", help="Limit of work a minute, in units of about a millisecond of a core."),
]
StoredBytes = Annotated[
    int | None, option("--stored-bytes", metavar="N", help="Limit of the ledger's bytes for this grant's requests.")
]
Tables = Annotated[
    str | None, option("--tables", metavar="A,B,...", help="The policy's tables that queries may ask; `all` for any.")
]


SignIn = Annotated[bool, flag("--sign-in", help="ANALYST signs in at the policy's identity provider, under this name.")]


@commands.command(rich_help_panel="Grant")
@guarded
def grant(
    policy: PolicyFile,
    analyst: Analyst,
    epsilon: Annotated[str, option("--epsilon", metavar="EPSILON", help="The whole budget, for example 1.0.")],
    expires: Expires = None,
    max_epsilon: MaxEpsilon = None,
    columns: Columns = None,
    verbs: Verbs = None,
    per_minute: PerMinute = None,
    work_per_minute: WorkPerMinute = None,
    stored_bytes: StoredBytes = None,
    tables: Tables = None,
    sign_in: SignIn = False,
    because: Because = "",
    as_json: AsJson = False,
) -> None:
    """Grant a new analyst a budget, and print the token that opens it over the network; `pinq extend` adds to it."""
    from pinq.ledger.events import FREE
    from pinq.provider.grants import grant as grant_budget

    terms = _terms_of(
        policy,
        FREE,
        max_epsilon_per_query=max_epsilon,
        columns=columns,
        verbs=verbs,
        queries_per_minute=per_minute,
        work_per_minute=work_per_minute,
        stored_bytes=stored_bytes,
        tables=tables,
    )
    account = grant_budget(policy, analyst, epsilon, expires, terms, sign_in=sign_in, by=_signed(because))
    _print_account(account, "granted", as_json)


@commands.command(rich_help_panel="Grant")
@guarded
def show(policy: PolicyIfAny = None, ledger: LedgerFile = None, as_json: AsJson = False) -> None:
    """Show all grants and their remaining budgets."""
    from pinq.ledger.composition import COUNTED
    from pinq.ledger.events import FREE
    from pinq.provider.grants import show as show_grants

    status = show_grants(policy, ledger=ledger)
    if as_json:
        print_json(status.to_dict())
        return
    out = console()
    remains = f"{status.remaining} remains under the cap, which counts {COUNTED}"
    out.print(f"{status.dataset}: {status.spent} of {status.cap} spent by all together, {remains}")
    if not status.accounts:
        out.print(
            printable(f"Nobody was granted anything yet. Next: pinq grant {policy or 'POLICY'} ANALYST --epsilon 1.0")
        )
        return
    rows = [
        [
            account.analyst,
            account.state,
            str(account.limit),
            str(account.spent),
            str(account.remaining),
            _until(account),
            str(account.terms) if account.terms != FREE else "",
        ]
        for account in status.accounts
    ]
    print_table(out, ["analyst", "state", "limit >", "spent >", "remaining >", "expires (UTC)", "terms"], rows)


@commands.command(rich_help_panel="Grant")
@guarded
def extend(
    policy: PolicyFile,
    analyst: Analyst,
    epsilon: Annotated[str | None, option("--epsilon", metavar="EPSILON", help="An addition to the budget.")] = None,
    expires: Expires = None,
    because: Because = "",
    as_json: AsJson = False,
) -> None:
    """Add to the budget of a grant, or move its expiry."""
    from pinq.provider.grants import extend as extend_grant

    if epsilon is None and expires is None:
        raise typer.BadParameter("say how much more (--epsilon), until when (--expires), or both")
    _print_account(extend_grant(policy, analyst, epsilon, expires, by=_signed(because)), "extended", as_json)


@commands.command(rich_help_panel="Grant")
@guarded
def revoke(
    policy: PolicyFile,
    analyst: Analyst,
    yes: Annotated[bool, flag("--yes", "-y", help="Do not ask.")] = False,
    because: Because = "",
    as_json: AsJson = False,
) -> None:
    """End a grant at once. Its spent epsilon stays spent."""
    from pinq.provider.grants import revoke as revoke_grant

    if not yes and can_ask():
        typer.confirm(printable(f"Revoke the grant of {analyst!r}?"), abort=True, err=True)
    _print_account(revoke_grant(policy, analyst, by=_signed(because)), "revoked", as_json)


@commands.command(rich_help_panel="Grant")
@guarded
def retire(
    policy: PolicyFile,
    because: Annotated[str, option("--because", metavar="TEXT", help="Why the ledger was begun wrongly.")],
    yes: Annotated[bool, flag("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Close a ledger that was begun wrongly: every grant ends, and budgets count anew.

    For a policy whose promise was too small, such as a privacy unit of one row although persons have several
    rows. The log keeps what was spent under it, and every audit reports it.
    """
    from pinq.provider.grants import retire as retire_ledger

    if not yes and can_ask():
        typer.confirm(f"End every grant of {policy} and count budgets anew?", abort=True, err=True)
    closed = retire_ledger(policy, by=_signed(because))
    typer.echo(f"retired: epsilon {closed.spent} was spent under {closed.means}. Next: pinq check {policy}")


@commands.command(rich_help_panel="Grant")
@guarded
def correct(
    policy: PolicyFile,
    cohort: Annotated[str, argument("COHORT", "A closed cohort, such as 2026-10.")],
    because: Annotated[str, option("--because", metavar="TEXT", help="What was wrong with its rows.")],
    table: Annotated[str | None, option("--table", metavar="TABLE", help="Of a policy of several tables, one.")] = None,
) -> None:
    """Open a closed cohort whose rows were corrected. The epsilon spent on its earlier rows stays spent."""
    from pinq.provider.policy_file import load_policy
    from pinq.provider.versions import correct as correct_cohort

    number = correct_cohort(load_policy(policy).at(table), cohort, _signed(because))
    typer.echo(f"corrected: the cohort {cohort} is version {number} of the rows. Next: pinq check {policy}")


@commands.command(rich_help_panel="Grant")
@guarded
def token(
    policy: PolicyFile, analyst: Analyst, sign_in: SignIn = False, because: Because = "", as_json: AsJson = False
) -> None:
    """Issue another token for a grant. The old one ends at once."""
    from pinq.provider.grants import reissue

    account = reissue(policy, analyst, sign_in=sign_in, by=_signed(because))
    _print_account(account, "signs in from now on" if sign_in else "has a new token", as_json)


@commands.command(rich_help_panel="Grant")
@guarded
def terms(
    policy: PolicyFile,
    analyst: Analyst,
    max_epsilon: MaxEpsilon = None,
    columns: Columns = None,
    verbs: Verbs = None,
    per_minute: PerMinute = None,
    work_per_minute: WorkPerMinute = None,
    stored_bytes: StoredBytes = None,
    tables: Tables = None,
    no_limits: Annotated[
        bool, flag("--no-limits", help="Remove all limits first; the other options set new ones.")
    ] = False,
    because: Because = "",
    as_json: AsJson = False,
) -> None:
    """Show or change the terms of a grant, other than its budget.

    Without options it shows the terms. An option changes that one limit and leaves the others;
    [cyan]--columns all[/cyan] and [cyan]--verbs all[/cyan] lift one, [cyan]--no-limits[/cyan] lifts
    all. New terms count from the next query on, and are in the log.
    """
    from pinq.ledger.events import FREE
    from pinq.provider.grants import set_terms

    account, outcome = _account(policy, analyst), "unchanged"
    change = str(account.terms)
    limits = {
        "max_epsilon_per_query": max_epsilon,
        "columns": columns,
        "verbs": verbs,
        "queries_per_minute": per_minute,
        "work_per_minute": work_per_minute,
        "stored_bytes": stored_bytes,
        "tables": tables,
    }
    if no_limits or any(limit is not None for limit in limits.values()):
        wanted = _terms_of(policy, FREE if no_limits else account.terms, **limits)
        account, outcome = set_terms(policy, analyst, wanted, by=_signed(because)), "terms changed"
        change += f" -> {wanted}"
    _print_account(account, outcome, as_json)
    if not as_json:
        typer.echo(printable(f"Terms: {change}"))


def _terms_of(policy: Path, before: Terms, **limits: str | int | None) -> Terms:
    """Reads and checks the terms of options; terms without an option stay unchanged."""
    from pinq.provider.grants import make_terms
    from pinq.provider.policy_file import load_policy

    loaded = load_policy(policy)
    stated: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
    for name, names in (("columns", loaded.columns), ("verbs", ()), ("tables", loaded.tables)):
        if name in stated:
            stated[name] = _listed(stated[name], names)
    checked = make_terms(loaded, **stated)
    return replace(before, **{name: getattr(checked, name) for name in stated})


def _listed(text: str, names: Collection[str]) -> list[str] | None:
    """Reads names with commas between them; None for ``all``, unless that is a name."""
    if text.strip() == "all" and "all" not in names:
        return None
    return [word.strip() for word in text.split(",") if word.strip()]


def _account(policy: Path, analyst: str) -> GrantReport:
    """Returns the account of a grant that was not revoked."""
    from pinq.ledger.events import no_grant
    from pinq.provider.grants import show as show_grants

    accounts = {account.analyst: account for account in show_grants(policy).accounts if account.state != "revoked"}
    if analyst not in accounts:
        raise LedgerError(no_grant(analyst, list(accounts)))
    return accounts[analyst]


def _signed(because: str) -> Signature:
    """The signature of this command's user, with a reason."""
    from pinq.ledger.events import here

    return here(because)


def _until(account: GrantReport) -> str:
    return when(account.expires) if account.expires else "never"


def _print_account(account: GrantReport, outcome: str, as_json: bool) -> None:
    """Prints an account after a change.

    A new token is alone on the last line, so that a script can read it.
    """
    from pinq.ledger.events import FREE

    if as_json:
        print_json(account.to_dict() | {"warnings": list(account.warnings)})
    else:
        ends = "" if account.expires is None or outcome == "revoked" else f", until {_until(account)} (UTC)"
        terms = "" if account.terms == FREE else f"; {account.terms}"
        numbers = f"limit {account.limit}, spent {account.spent}, remaining {account.remaining}"
        typer.echo(printable(f"{account.analyst}: {outcome}. {numbers}{ends}{terms}"))
        if account.token:
            typer.echo(account.token)
            typer.echo(
                "The token is kept nowhere and shown only now: pass it on over a safe channel. `pinq token` "
                "issues another.",
                err=True,
            )
    for warning in account.warnings:
        typer.echo(f"Warning: {printable(warning)}", err=True)
