# SPDX-License-Identifier: Apache-2.0
"""The commands that the server needs: ``serve``, ``token``, ``terms``, and the options that say a grant's terms."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pinq.cli.base import Analyst, AsJson, Because, PolicyFile, argument, guarded, option, print_account, signed
from pinq.errors import LedgerError
from pinq.provider.report.text import printable

if TYPE_CHECKING:
    from pinq.ledger.terms import Terms
    from pinq.provider.grants import GrantReport

__all__ = ["Columns", "MaxEpsilon", "PerMinute", "Verbs", "commands", "terms_of"]

MaxEpsilon = Annotated[str | None, option("--max-epsilon", metavar="EPSILON", help="The most that one query may ask.")]
Columns = Annotated[
    str | None, option("--columns", metavar="A,B,...", help="The only columns that queries may name; `all` for any.")
]
Verbs = Annotated[
    str | None,
    option(
        "--verbs",
        metavar="V,W,...",
        help="The only verbs: count, sum, avg, choose, or as the log has them noisy_count, ...; `all` for any.",
    ),
]
PerMinute = Annotated[int | None, option("--per-minute", metavar="N", help="At most so many queries a minute.")]

commands = typer.Typer()


@commands.command(rich_help_panel="Grant")
@guarded
def token(policy: PolicyFile, analyst: Analyst, because: Because = "", as_json: AsJson = False) -> None:
    """Issue another token for a grant. The old one ends at once."""
    from pinq.provider.grants import reissue

    print_account(reissue(policy, analyst, by=signed(because)), "has a new token", as_json)


@commands.command(rich_help_panel="Grant")
@guarded
def terms(
    policy: PolicyFile,
    analyst: Analyst,
    max_epsilon: MaxEpsilon = None,
    columns: Columns = None,
    verbs: Verbs = None,
    per_minute: PerMinute = None,
    no_limits: Annotated[
        bool, typer.Option("--no-limits", help="First lift every limit; those given beside it are set anew.")
    ] = False,
    because: Because = "",
    as_json: AsJson = False,
) -> None:
    """Show or change what a grant allows beside its budget.

    Without options it shows the terms. An option changes that one limit and leaves the others;
    [cyan]--columns all[/cyan] and [cyan]--verbs all[/cyan] lift one, [cyan]--no-limits[/cyan] lifts
    all. New terms count from the next query on, and stand in the log.
    """
    from pinq.ledger.terms import FREE
    from pinq.provider.grants import set_terms

    account, done = _account(policy, analyst), "unchanged"
    said = str(account.terms)
    if no_limits or any(given is not None for given in (max_epsilon, columns, verbs, per_minute)):
        wanted = terms_of(policy, max_epsilon, columns, verbs, per_minute, before=FREE if no_limits else account.terms)
        account, done = set_terms(policy, analyst, wanted, by=signed(because)), "terms changed"
        said += f" -> {wanted}"
    print_account(account, done, as_json)
    if not as_json:
        typer.echo(printable(f"Terms: {said}"))


@commands.command(rich_help_panel="Serve")
@guarded
def serve(
    policies: Annotated[list[Path], argument("POLICIES...", "Policy files, and folders of them.")],
    host: Annotated[
        str,
        option(
            "--host",
            metavar="ADDRESS",
            help="Where to listen; by default everywhere, with --insecure-http on 127.0.0.1.",
        ),
    ] = "",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="The port; 0 for any free one.")] = 8443,
    tls_cert: Annotated[Path | None, option("--tls-cert", metavar="FILE", help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[Path | None, option("--tls-key", metavar="FILE", help="Its private key, PEM.")] = None,
    insecure_http: Annotated[bool, typer.Option("--insecure-http", help="Plain HTTP, to this machine only.")] = False,
    log: Annotated[
        Path | None,
        option(
            "--log", metavar="FILE", help="Where the log of requests goes, JSON lines; by default to standard error."
        ),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", min=1, max=65535, help="Counters for Prometheus, to this machine only; by default off."
        ),
    ] = None,
    rate: Annotated[float, typer.Option(metavar="N", min=1, help="Requests a second for one token.")] = 500,
    provider_page: Annotated[
        Path | None,
        option("--provider-page", metavar="FILE", help="Show the provider's page; FILE is what `pinq password` wrote."),
    ] = None,
) -> None:
    """Answer analysts over HTTPS: several datasets, bearer tokens, one answer for each charge.

    Analysts connect with [cyan]pinq.connect("https://host:8443/DATASET", token=...)[/cyan]; `pinq
    grant` prints the token.
    """
    from pinq.server.api.limits import Settings
    from pinq.server.app import create_app
    from pinq.server.datasets import Datasets
    from pinq.server.log import RequestLog
    from pinq.server.page.login import read_password_file
    from pinq.server.run import is_private, require_secure
    from pinq.server.run import serve as serve_app

    host = host or ("127.0.0.1" if insecure_http else "0.0.0.0")
    hashed = None if provider_page is None else read_password_file(provider_page)
    require_secure(host, tls_cert, tls_key, insecure_http)  # before minutes are spent on encoding
    datasets = Datasets.open(policies)
    for draft in datasets.drafts:
        typer.echo(
            printable(f"Not served: {draft} is not reviewed yet; `pinq check {draft}` says what waits."), err=True
        )

    def listening(port: int) -> None:
        root = f"{'http' if insecure_http else 'https'}://{host}:{port}"
        page = "" if hashed is None else f" The provider's page is {root}/provider."
        typer.echo(f"Serving {', '.join(datasets)} on {root}.{page} Stop with Ctrl-C.", err=True)

    app = create_app(
        datasets,
        Settings(rate=rate),
        RequestLog(log),
        metrics_port,
        hashed,
        private_certificate=is_private(tls_cert, tls_key),
    )
    serve_app(
        app, host=host, port=port, tls_cert=tls_cert, tls_key=tls_key, insecure_http=insecure_http, listening=listening
    )


@commands.command(rich_help_panel="Serve")
@guarded
def password(
    file: Annotated[Path, argument("FILE", "Where its hash is kept; readable by you alone.")],
    generate: Annotated[bool, typer.Option("--generate", help="Make one, and print it once.")] = False,
) -> None:
    """Set the password of the provider's page: `pinq serve --provider-page FILE`.

    It is asked for twice and kept nowhere; a script passes it as the first line of standard input.
    """
    import secrets

    from pinq.server.page.login import write_password_file

    if generate:
        chosen = secrets.token_urlsafe(18)
    elif sys.stdin.isatty():
        chosen = typer.prompt("Password (12 characters or more)", hide_input=True, confirmation_prompt=True, err=True)
    else:
        chosen = sys.stdin.readline().rstrip("\r\n")
    write_password_file(file, chosen)
    if generate:
        typer.echo(chosen)
    typer.echo(f"Wrote {file}. Next: pinq serve ... --provider-page {file}", err=True)


def terms_of(
    policy: Path,
    max_epsilon: str | None,
    columns: str | None,
    verbs: str | None,
    per_minute: int | None,
    before: Terms | None = None,
) -> Terms:
    """The terms that options say, checked; what no option says stays as it was before, by default unlimited."""
    from pinq.ledger.terms import FREE
    from pinq.provider.arguments import make_terms
    from pinq.provider.policy_file import load_policy

    loaded = load_policy(policy)

    def listed(text: str | None, known: Collection[str] = ()) -> list[str] | None:
        return (
            None
            if text is None or (text.strip() == "all" and "all" not in known)
            else [word.strip() for word in text.split(",") if word.strip()]
        )

    said = make_terms(
        loaded,
        max_epsilon_per_query=max_epsilon,
        columns=listed(columns, loaded.columns),
        verbs=listed(verbs),
        queries_per_minute=per_minute,
    )
    given = {"max_epsilon_per_query": max_epsilon, "columns": columns, "verbs": verbs, "queries_per_minute": per_minute}
    return replace(before or FREE, **{name: getattr(said, name) for name, text in given.items() if text is not None})


def _account(policy: Path, analyst: str) -> GrantReport:
    """The account of a grant that was not revoked."""
    from pinq.ledger.terms import no_grant
    from pinq.provider.grants import show

    accounts = {one.analyst: one for one in show(policy).accounts if one.state != "revoked"}
    if analyst not in accounts:
        raise LedgerError(no_grant(analyst, list(accounts)))
    return accounts[analyst]
