# SPDX-License-Identifier: Apache-2.0
"""The commands ``pinq serve``, for analysts elsewhere, and ``pinq workbench``, for people at this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pinq.cli import ask
from pinq.cli.base import argument, flag, guarded, option
from pinq.errors import printable

commands = typer.Typer()


Policies = Annotated[list[Path], argument("POLICIES...", "Policy files, and folders of them.")]
Host = Annotated[
    str,
    option(
        "--host", metavar="ADDRESS", help="The address to listen on; by default all, with --insecure-http 127.0.0.1."
    ),
]
Port = Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="The port; 0 for any free one.")]
Certificate = Annotated[Path | None, option("--tls-cert", metavar="FILE", help="Certificate chain, PEM.")]
Key = Annotated[Path | None, option("--tls-key", metavar="FILE", help="Its private key, PEM.")]
InsecureHttp = Annotated[bool, flag("--insecure-http", help="Plain HTTP, to this machine only.")]
Log = Annotated[
    Path | None,
    option("--log", metavar="FILE", help="The request log, JSON lines; by default standard error."),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        metavar="PORT",
        min=1,
        max=65535,
        help="Port of the metrics for Prometheus, by default off; further workers use the next ports.",
    ),
]
MetricsHost = Annotated[
    str,
    typer.Option(
        metavar="ADDRESS",
        help="Address of the metrics (plain HTTP, so another address than this shows them unencrypted).",
    ),
]
HeadsKey = Annotated[
    Path | None,
    option("--head-key", metavar="FILE", help="Sign the heads of the ledgers with this key, once an hour."),
]
Processes = Annotated[int, typer.Option(metavar="N", min=1, max=64, help="Processes that serve the port together.")]
Rate = Annotated[float, typer.Option(metavar="N", min=1, help="Requests a second for one token.")]
Connections = Annotated[int, typer.Option(metavar="N", min=10, help="Limit of open connections of each process.")]
Proxy = Annotated[
    str,
    option("--proxy", metavar="ADDRESS", help="The address of a proxy whose reported client addresses are accepted."),
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
    metrics_host: MetricsHost = "127.0.0.1",
    rate: Rate = 500,
    connections: Connections = 1000,
    proxy: Proxy = "",
    workers: Processes = 1,
    head_key: HeadsKey = None,
) -> None:
    """Answer analysts over HTTPS: several datasets, bearer tokens, one answer for each charge.

    Analysts connect with [cyan]pinq.connect("https://host:8443/DATASET", token=...)[/cyan]; `pinq
    grant` prints the token. SIGHUP reads policies, certificate and log file again.
    """
    from pinq.server.run import Start

    start = Start(
        policies=policies,
        host=host or ("127.0.0.1" if insecure_http else "0.0.0.0"),
        port=port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        insecure_http=insecure_http,
        log=log,
        metrics=None if metrics_port is None else (metrics_host, metrics_port),
        rate=rate,
        connections=connections,
        proxy=proxy,
        workers=workers,
        head_key=head_key,
        say=lambda text: typer.echo(printable(text), err=True),
    )
    raise typer.Exit(start.run())


@commands.command(rich_help_panel="In a browser")
@guarded
def workbench(
    target: Annotated[
        str, argument("FOLDER|URL|LEDGER", "A provider's folder, an analyst's dataset, or an auditor's ledger.")
    ],
    token_file: Annotated[
        Path | None, option("--token-file", metavar="FILE", help="For a URL: the file with the token, of mode 0600.")
    ] = None,
    verify: ask.Verify = None,
    insecure_http: ask.InsecureHttp = False,
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="The port on this machine; 0 for any free one.")
    ] = 0,
    origin: Annotated[
        str | None,
        option("--origin", metavar="URL", help="The address at which a proxy shows it: https://bench.example.org."),
    ] = None,
) -> None:
    """Review, grant, query and audit in a browser on this machine.

    It prints a link that works once. A provider opens a folder, an analyst a served dataset, an
    auditor a ledger:

    [cyan]pinq workbench policies/[/cyan]

    [cyan]pinq workbench https://host:8443/adult --token-file adult.token[/cyan]

    [cyan]pinq workbench data.parquet.ledger[/cyan]
    """
    from pinq.public.plugins import plugin

    opened = plugin("pinq.workbench", "open", "This needs the package `pinq_workbench`.")
    opened(
        target,
        token_file=token_file,
        verify=verify,
        insecure_http=insecure_http,
        port=port,
        origin=origin,
        say=typer.echo,
    )
