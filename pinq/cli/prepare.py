# SPDX-License-Identifier: Apache-2.0
"""The commands ``pinq init`` and ``pinq check``: from a table to a policy that is ready."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pinq.cli.base import AsJson, PolicyFile, argument, console, fail, guarded, option, print_json
from pinq.cli.text import Decimal, Delimiter, Encoding, Header, MaxUnreadable, Quote, Thousands, dialect_of
from pinq.provider.report.text import printable

if TYPE_CHECKING:
    from pinq.provider.check import CheckReport
    from pinq.public.schema import Schema

__all__ = ["commands"]

commands = typer.Typer()

Data = Annotated[str, argument("DATA", "A Parquet or CSV file, or FILE.duckdb::TABLE.")]
Target = Annotated[str | None, option("--target", metavar="COLUMN", help="The column that models will predict.")]
Name = Annotated[
    str | None, option("--dataset", metavar="NAME", help="What analysts will call it; by default the file's name.")
]
Like = Annotated[
    Path | None,
    option(
        "--like",
        metavar="POLICY",
        help="Take columns, bounds and unit from another holder's policy: for one tree of several.",
    ),
]
Output = Annotated[
    Path | None, option("-o", "--output", metavar="FILE", help="Write it here; by default it is printed.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite FILE.")]


@commands.command(rich_help_panel="Prepare")
@guarded
def init(
    data: Data,
    target: Target = None,
    dataset: Name = None,
    like: Like = None,
    output: Output = None,
    force: Force = False,
    delimiter: Delimiter = None,
    quote: Quote = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    encoding: Encoding = None,
    header: Header = None,
    max_unreadable: MaxUnreadable = None,
) -> None:
    """Propose a policy for a table, to be reviewed.

    What was guessed or read off the data is listed under [bold]unreviewed[/bold]: replace it by
    what is publicly known, or confirm it, and delete its name there. How a text file is written is
    stated, not guessed:

    [cyan]pinq init data.csv --delimiter ';' --decimal , --encoding latin-1 -o p.yaml[/cyan]

    Holders who want to learn together share one policy:

    [cyan]pinq init my.parquet --like theirs.yaml[/cyan]
    """
    from pinq.provider.proposal import propose, propose_like

    if like is not None and target is not None:
        raise typer.BadParameter("--target goes with a proposal of our own; --like takes the columns as they are")
    _require_room(output, force)
    csv = dialect_of(
        delimiter=delimiter,
        quote=quote,
        decimal=decimal,
        thousands=thousands,
        encoding=encoding,
        header=header,
        max_unreadable=max_unreadable,
    )
    folder = None if output is None else output.parent
    if like is None:
        text = propose(data, target=target, dataset=dataset, folder=folder, csv=csv)
    else:
        text = propose_like(data, like, dataset=dataset, folder=folder, csv=csv)
    _write(text, output)


@commands.command(rich_help_panel="Prepare")
@guarded
def check(policy: PolicyFile, as_json: AsJson = False) -> None:
    """Show what a policy does to its data. Exit status 0 if it is ready.

    Counts rows left out and values clamped, exactly: for the provider's eyes only.
    """
    from pinq.provider.check import check as check_policy
    from pinq.provider.policy_file import load_policy

    loaded = load_policy(policy)
    report = check_policy(loaded)
    if as_json:
        print_json(report.to_dict())
    else:
        _print_check(report, loaded.schema_, policy)
    raise typer.Exit(0 if report.ready else 1)


def _require_room(output: Path | None, force: bool) -> None:
    """Ends the command where it would overwrite a file that nobody said to overwrite."""
    if output is not None and output.exists() and not force:
        fail(f"{output} exists; choose another file, or pass --force to overwrite it.")


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text, nl=False)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    advice = f"Wrote {output}. Review what it lists under `unreviewed`, then: pinq check {output}"
    typer.echo(printable(advice), err=True)


def _print_check(report: CheckReport, schema: Schema, policy: Path) -> None:
    from pinq.provider.report.terminal import print_table

    out = console()
    lost = f"{report.source_rows - report.encoded_rows:,} left out"
    over = f", {report.over_unit:,} of them over the privacy unit's bound" if report.over_unit else ""
    out.print(
        printable(f"{report.dataset}: {report.source_rows:,} rows, {report.encoded_rows:,} encoded, {lost}{over}")
    )
    rows = []
    for name, column in schema.columns.items():
        start = f"columns.{name}."
        waiting = ", ".join(name.removeprefix(start) for name in report.unreviewed if name.startswith(start))
        clamped = f"{report.clamped[name]:,}" if name in report.clamped else ""
        rows.append([name, column.describe(), f"{report.left_out[name]:,}", clamped, waiting])
    print_table(out, ["column", "domain", "left out >", "clamped >", "unreviewed"], rows)
    for advice in report.advice:
        out.print(printable(f"Note: {advice}"))
    for problem in report.problems:
        out.print(printable(f"Not ready: {problem}"), style="red")
    if report.ready:
        out.print(printable(f"Ready. Next: pinq grant {policy} ANALYST --epsilon 1.0"), style="green")
    out.print(printable("These numbers are exact: they are for the provider's eyes only."), style="dim")
