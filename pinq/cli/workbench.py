# SPDX-License-Identifier: Apache-2.0
"""The command ``pinq workbench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pinq.cli.base import argument, guarded, option

__all__ = ["commands"]

commands = typer.Typer()

Target = Annotated[str, argument("FOLDER|URL|LEDGER", "Of a provider, an analyst, or an auditor.")]
TokenFile = Annotated[
    Path | None, option("--token-file", metavar="FILE", help="For a URL: the file with the token, of mode 0600.")
]
Verify = Annotated[
    Path | None, option("--verify", metavar="FILE", help="For a URL: the provider's own certificate authority.")
]
InsecureHttp = Annotated[bool, typer.Option("--insecure-http", help="For a URL: plain HTTP, on this machine only.")]
Port = Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="On this machine; 0 for any free one.")]
Origin = Annotated[
    str | None,
    option("--origin", metavar="URL", help="Where a proxy of the house shows it: https://bench.example.org."),
]


@commands.command(rich_help_panel="In a browser")
@guarded
def workbench(
    target: Target,
    token_file: TokenFile = None,
    verify: Verify = None,
    insecure_http: InsecureHttp = False,
    port: Port = 0,
    origin: Origin = None,
) -> None:
    """Do the same in a browser on this machine: review, grant, ask, audit.

    It prints a link that works once. A provider opens a folder, an analyst a served dataset, an
    auditor a ledger:

    [cyan]pinq workbench policies/[/cyan]

    [cyan]pinq workbench https://host:8443/adult --token-file adult.token[/cyan]

    [cyan]pinq workbench data.parquet.ledger[/cyan]
    """
    from pinq.public.plugins import plugin

    opened = plugin(
        "pinq.workbench", "open", "The workbench needs its own extra: pip install 'pinq-miners[workbench]'."
    )
    opened(
        target,
        token_file=token_file,
        verify=verify,
        insecure_http=insecure_http,
        port=port,
        origin=origin,
        say=lambda text: typer.echo(text),
    )
