# SPDX-License-Identifier: Apache-2.0
"""The ``pinq`` command: parse, call, print. The work is done in ``pinq.provider``.

Exit status: 0 done, 1 refused or not ready, 2 the command line is wrong. An error is one line on
the standard error stream and never contains a row's value. The cause of a failure after a charge
goes only to the file that ``PINQ_LOG`` names.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from pinq.cli import ask, audit, grants, prepare, server
from pinq.cli.base import guarded
from pinq.public.plugins import plugin
from pinq.server.log import log_details

ABOUT = """\
Let others mine a table that you may not hand out.

You declare in a [bold]policy[/bold] what is publicly known about the table, and grant each analyst a budget \
[bold]epsilon[/bold]. They query counts, sums, averages and selections; every answer is differentially private, \
every cost is charged first and logged, and queries beyond the budget are refused. \
An [bold]audit[/bold] replays the log: analysts, queries, costs and refusals.
"""
EXAMPLES = """\
[bold]From a table to an audit[/bold]

[cyan]pinq init data.parquet --target income -o p.yaml[/cyan]  [dim](then review p.yaml)[/dim]

[cyan]pinq check p.yaml[/cyan]

[cyan]pinq grant p.yaml ana --epsilon 1.0 --expires 2030-01-31[/cyan]

[cyan]pinq query p.yaml count --partition sex --analyst ana --epsilon 0.1[/cyan]

[cyan]pinq table histogram p.yaml age --bins 10 --analyst ana --epsilon 0.1[/cyan]

[cyan]pinq audit p.yaml --html -o audit.html[/cyan]

[cyan]pinq serve p.yaml --tls-cert cert.pem --tls-key key.pem[/cyan]  [dim](for analysts elsewhere)[/dim]

From Python: [cyan]pinq.open("p.yaml", analyst="ana").noisy_count(epsilon=0.1)[/cyan], or \
[cyan]pinq.connect("https://host:8443/NAME", token=...)[/cyan]
"""


class _Commands(TyperGroup):
    """The commands. Errors in options' values are worded here, not by pydantic."""

    def invoke(self, ctx: Any) -> Any:
        """Runs a command; typer parses its options by pydantic, whose messages are for programmers."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if (cause := error.__cause__) is not None and hasattr(cause, "errors"):
                from pinq.public.columns import said_of

                error.message = said_of(cause.errors(include_url=False)[0])
            raise


app = typer.Typer(
    name="pinq",
    cls=_Commands,
    help=ABOUT,
    epilog=EXAMPLES,
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Runs the command."""
    app(prog_name="pinq")


def _version(is_wanted: bool) -> None:
    if is_wanted:
        from pinq import __version__

        typer.echo(f"pinq {__version__}")
        raise typer.Exit()


@app.callback()
@guarded
def _start(
    version: Annotated[
        bool, typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    log_details()


for room in (prepare, grants, ask, audit, server):
    app.add_typer(room.commands)
app.add_typer(
    plugin("pinq.commands", "secure", "The package `pinq_secure` is missing."), rich_help_panel="Among several parties"
)
app.command("demo", rich_help_panel="To try it")(plugin("pinq.commands", "demo", "The package `pinq_demo` is missing."))


if __name__ == "__main__":
    main()
