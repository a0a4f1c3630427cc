# SPDX-License-Identifier: Apache-2.0
"""The commands ``pinq serve`` and ``pinq password``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from pinq.cli.base import argument, guarded, option
from pinq.provider.report.text import printable

__all__ = ["commands"]

commands = typer.Typer()


Policies = Annotated[list[Path], argument("POLICIES...", "Policy files, and folders of them.")]
Host = Annotated[
    str,
    option(
        "--host", metavar="ADDRESS", help="Where to listen; by default everywhere, with --insecure-http on 127.0.0.1."
    ),
]
Port = Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="The port; 0 for any free one.")]
Certificate = Annotated[Path | None, option("--tls-cert", metavar="FILE", help="Certificate chain, PEM.")]
Key = Annotated[Path | None, option("--tls-key", metavar="FILE", help="Its private key, PEM.")]
InsecureHttp = Annotated[bool, typer.Option("--insecure-http", help="Plain HTTP, to this machine only.")]
Log = Annotated[
    Path | None,
    option("--log", metavar="FILE", help="Where the log of requests goes, JSON lines; by default to standard error."),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        metavar="PORT", min=1, max=65535, help="Counters for Prometheus, to this machine only; by default off."
    ),
]
Rate = Annotated[float, typer.Option(metavar="N", min=1, help="Requests a second for one token.")]
PasswordFile = Annotated[
    Path | None,
    option("--provider-page", metavar="FILE", help="Show the provider's page; FILE is what `pinq password` wrote."),
]

PublicUrl = Annotated[
    str,
    option("--public-url", metavar="URL", help="Where analysts reach this server, as the provider's page tells them."),
]


@commands.command(rich_help_panel="Serve")
@guarded
def serve(
    policies: Policies,
    host: Host = "",
    port: Port = 8443,
    tls_cert: Certificate = None,
    tls_key: Key = None,
    insecure_http: InsecureHttp = False,
    log: Log = None,
    metrics_port: MetricsPort = None,
    rate: Rate = 500,
    provider_page: PasswordFile = None,
    public_url: PublicUrl = "",
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
    _name_drafts(datasets.drafts)

    def listening(port: int) -> None:
        root = f"{'http' if insecure_http else 'https'}://{host}:{port}"
        page = "" if hashed is None else f" The provider's page is {root}/provider."
        typer.echo(f"Serving {', '.join(datasets)} on {root}.{page} Stop with Ctrl-C.", err=True)

    private = is_private(tls_cert, tls_key)
    app = create_app(
        datasets,
        Settings(rate=rate),
        RequestLog(log),
        metrics_port,
        hashed,
        private_certificate=private,
        public_url=public_url,
    )
    serve_app(
        app, host=host, port=port, tls_cert=tls_cert, tls_key=tls_key, insecure_http=insecure_http, listening=listening
    )


def _name_drafts(drafts: Sequence[Path]) -> None:
    """Names the policies that nobody reviewed yet."""
    for draft in drafts:
        waiting = f"Not served: {draft} is not reviewed yet; `pinq check {draft}` says what waits."
        typer.echo(printable(waiting), err=True)


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
