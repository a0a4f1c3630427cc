# SPDX-License-Identifier: Apache-2.0
"""The commands ``pinq init`` and ``pinq check``: from a table to a policy that is ready.

Options of ``pinq init`` describe the form of a text file: they are the keys of a policy's ``csv``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pinq.cli.base import (
    AsJson,
    PolicyFile,
    argument,
    console,
    fail,
    flag,
    guarded,
    in_notebook,
    option,
    print_json,
    print_or_write,
    require_ending,
)
from pinq.errors import PolicyError, printable
from pinq.provider.report.markup import print_table

if TYPE_CHECKING:
    from pinq.policy.dialect import Dialect
    from pinq.provider.check import CheckReport
    from pinq.provider.proposal import Look
    from pinq.provider.review import Waiting
    from pinq.public.schema import Schema


# Words for values that are awkward to type at a command line.
WORDS: dict[tuple[str, str | float], str | None] = {
    ("delimiter", "tab"): "\t",
    ("delimiter", "\\t"): "\t",
    ("quote", "none"): "",
    ("thousands", "none"): None,
    ("thousands", "nbsp"): "\u00a0",
    ("thousands", "nnbsp"): "\u202f",
    ("dates", "none"): "",
}
_PANEL = "How text files and sheets are written"
Delimiter = Annotated[
    str | None,
    option(
        "--delimiter",
        metavar="SIGN",
        help="The character between fields: ';' or tab; by default a comma.",
        panel=_PANEL,
    ),
]
Quote = Annotated[
    str | None,
    option("--quote", metavar="SIGN", help="The quote around fields: \"'\" or none; by default '\"'.", panel=_PANEL),
]
Decimal = Annotated[
    str | None, option("--decimal", metavar="SIGN", help="The decimal sign: ','; by default a point.", panel=_PANEL)
]
Thousands = Annotated[
    str | None,
    option(
        "--thousands",
        metavar="SIGN",
        help="The sign between groups of three digits: '.'; by default none.",
        panel=_PANEL,
    ),
]
Encoding = Annotated[
    str | None, option("--encoding", metavar="NAME", help="latin-1, windows-1252, ...; by default utf-8.", panel=_PANEL)
]
Header = Annotated[
    str | None,
    option(
        "--header", metavar="NAMES", help="The column names, as name,age, if the first line has none.", panel=_PANEL
    ),
]
Dates = Annotated[
    str | None,
    option(
        "--dates",
        metavar="FORMS",
        help="Date formats, as %d.%m.%Y or %m/%d/%Y,%Y%m%d; 2024-11-16 is always read.",
        panel=_PANEL,
    ),
]
Century = Annotated[
    int | None,
    option("--century", metavar="YEAR", help="The earliest year that %y in --dates means, as 1930.", panel=_PANEL),
]
Sheet = Annotated[
    str | None, option("--sheet", metavar="NAME", help="The sheet of a workbook with several.", panel=_PANEL)
]
Skip = Annotated[
    int | None, option("--skip", metavar="LINES", help="The number of title lines above the header.", panel=_PANEL)
]
MaxUnreadable = Annotated[
    float | None,
    option(
        "--max-unreadable",
        metavar="SHARE",
        help="The proportion of lines that may be unreadable; by default 0.01.",
        panel=_PANEL,
    ),
]


def dialect_of(**stated: str | float | None) -> Dialect | None:
    """Reads the options for text files; None without options.

    Raises:
        typer.BadParameter: A wrong value; the error names the option.
    """
    from pydantic import ValidationError

    from pinq.policy.dialect import Dialect
    from pinq.public.columns import said_of

    keys = {name: _key(name, value) for name, value in stated.items() if value is not None}
    try:
        return Dialect.model_validate(keys) if keys else None
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        option = "".join(f"--{name}: ".replace("_", "-") for name in problem["loc"][:1])
        raise typer.BadParameter(f"{option}{said_of(problem)}") from None


def _key(name: str, value: str | float) -> str | float | tuple[str, ...] | None:
    """Returns the value in a policy's ``csv`` for an option's value."""
    key_value = WORDS.get((name, value), value)
    if name in ("header", "dates"):
        return tuple(part.strip() for part in str(key_value).split(",") if part or name == "header")
    return key_value


commands = typer.Typer()

Data = Annotated[str, argument("DATA", "A Parquet or CSV file, a workbook, or FILE.duckdb::TABLE.")]
Target = Annotated[str | None, option("--target", metavar="COLUMN", help="The column that models will predict.")]
Name = Annotated[
    str | None, option("--dataset", metavar="NAME", help="The dataset's name for analysts; by default the file's name.")
]
Like = Annotated[
    Path | None,
    option(
        "--like",
        metavar="POLICY",
        help="Take columns, bounds and privacy unit from another data owner's policy, for one model of several.",
    ),
]
Output = Annotated[
    Path | None, option("-o", "--output", metavar="FILE", help="The file to write; by default it is printed.")
]
UriEnv = Annotated[
    str | None,
    option("--uri-env", metavar="NAME", help="DATA is a table of the database whose URI this variable holds."),
]
Force = Annotated[bool, flag("--force", help="Overwrite FILE.")]
Fewest = Annotated[
    int,
    option(
        "--fewest",
        metavar="PERSONS",
        help="List a value that at least so many persons have; others count as `other`. By default 20.",
    ),
]


@commands.command(rich_help_panel="Prepare")
@guarded
def init(
    data: Data,
    target: Target = None,
    dataset: Name = None,
    like: Like = None,
    output: Output = None,
    force: Force = False,
    uri_env: UriEnv = None,
    fewest: Fewest = 20,
    delimiter: Delimiter = None,
    quote: Quote = None,
    decimal: Decimal = None,
    thousands: Thousands = None,
    encoding: Encoding = None,
    header: Header = None,
    dates: Dates = None,
    century: Century = None,
    sheet: Sheet = None,
    skip: Skip = None,
    max_unreadable: MaxUnreadable = None,
) -> None:
    """Propose a policy for a table, for your review.

    Values that come from the data are listed under [bold]unreviewed[/bold]: replace each by
    what is publicly known, or confirm it, and delete its name there. Options
    describe a text file:

    [cyan]pinq init data.csv --delimiter ';' --decimal , --dates %d.%m.%Y --encoding latin-1 -o p.yaml[/cyan]
    [cyan]pinq init visits.xlsx --sheet 2024 --skip 3 -o p.yaml[/cyan]

    A table of a database server, whose URI (with its password) an environment variable holds:

    [cyan]pinq init health.visits --uri-env VISITS_URI -o p.yaml[/cyan]

    Data owners who want one model share one policy:

    [cyan]pinq init my.parquet --like theirs.yaml[/cyan]
    """
    from pinq.provider.proposal import propose_like

    if like is not None and target is not None:
        raise typer.BadParameter("--target goes with a proposal of our own; --like takes the columns as they are")
    require_ending(output, ".yaml", ".yml")
    if output is not None and output.exists() and not force:
        fail(f"{output} exists; choose another file, or pass --force to overwrite it.")
    csv = dialect_of(
        delimiter=delimiter,
        quote=quote,
        decimal=decimal,
        thousands=thousands,
        encoding=encoding,
        header=header,
        dates=dates,
        century=century,
        sheet=sheet,
        skip=skip,
        max_unreadable=max_unreadable,
    )
    folder, shown = None if output is None else output.parent, list[str]()
    if like is None:
        text, shown = _looked(data, csv, target=target, dataset=dataset, folder=folder, uri_env=uri_env, fewest=fewest)
    else:
        text = propose_like(data, like, dataset=dataset, folder=folder, csv=csv)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    advice = f"Review what it lists under `unreviewed`, then: pinq check {output}"
    print_or_write(text, output, advice, shown)


def _looked(data: str, csv: Dialect | None, **options: Any) -> tuple[str, list[str]]:
    """The proposal for a table, and lines with its first rows; a failure names all needed options."""
    from pinq.provider.proposal import WholeDoubt, look

    try:
        proposal = look(data, csv=csv, **options)
    except WholeDoubt as doubt:
        fail(str(doubt), _first(doubt.look, "So read, the first rows are:"))
    return proposal.text, _first(proposal, "The first rows, as they are read:")


def _first(look: Look | None, title: str) -> list[str]:
    """Lines with the first values of each column, as read; empty unless the source is text."""
    lines = [f"  {name}: {' | '.join(values)}" for name, values in (look.first if look else {}).items()]
    return [title, *lines] if lines else []


@commands.command(rich_help_panel="Prepare")
@guarded
def check(policy: PolicyFile, as_json: AsJson = False) -> None:
    """Show what a policy does to its data. Exit status 0 if it is ready.

    Counts rows left out and values clamped, exactly: for the provider's eyes only.
    """
    from pinq.provider.check import check as check_policy
    from pinq.provider.policy_file import load_policy

    loaded = load_policy(policy)
    reports = [check_policy(table) for table in loaded.each]
    if as_json:
        print_json([report.to_dict() for report in reports] if loaded.tables else reports[0].to_dict())
    else:
        for report, table in zip(reports, loaded.each, strict=True):
            _print_check(report, table.schema_, policy)
    raise typer.Exit(0 if all(report.ready for report in reports) else 1)


@commands.command(rich_help_panel="Prepare")
@guarded
def review(
    policy: PolicyFile,
    accept: Annotated[
        list[str] | None,
        option(
            "--accept",
            metavar="NAME",
            help="Confirm columns.age.upper, or columns.age for all of it, or what check asks about. Repeatable.",
        ),
    ] = None,
    because: Annotated[str | None, option("--because", metavar="TEXT", help="The public source of the value.")] = None,
    value: Annotated[str | None, option("--value", metavar="YAML", help="Replace the one named value by this.")] = None,
) -> None:
    """Review each value that waits for it, and record the reasons.

    The command shows each value that comes from the rows: keep it, change it, or skip it. The reasons
    are in the file under [bold]reviewed[/bold], and in the log with the policy. In scripts:

    [cyan]pinq review p.yaml --accept columns.age.upper --value 120 --because "census form 2024"[/cyan]
    """
    from pinq.provider.review import confirm, waiting

    if accept:
        if because is None:
            raise typer.BadParameter("--accept needs --because: where the value is publicly known from")
        for name in confirm(policy, accept, because, value):
            typer.echo(printable(f"reviewed {name}"))
    elif because is not None or value is not None:
        raise typer.BadParameter("--because and --value go with --accept")
    elif in_notebook():
        fail("nobody can answer here; name what is confirmed: --accept columns.age.upper --because TEXT.")
    else:
        done = set[str]()
        for item in waiting(policy):
            if item.name not in done and not _reviewed(policy, item, done):
                break
    remaining = len(waiting(policy))
    advice = (
        f"{remaining} left; pinq review {policy}"
        if remaining
        else f"Nothing waits for review. Next: pinq check {policy}"
    )
    typer.echo(printable(advice), err=True)


def _reviewed(policy: Path, item: Waiting, done: set[str]) -> bool:
    """Asks about a waiting value, and adds names confirmed with it to ``done``. Returns whether to go on."""
    from pinq.provider.review import confirm

    typer.echo()
    typer.echo(printable(f"{item.name}: {item.value}" + (f"   # {item.remark}" if item.remark else "")))
    match typer.prompt("keep (k), all of it (a), change (c), skip (s) or stop (q)", default="skip").strip():
        case "stop" | "q":
            return False
        case "keep" | "k":
            confirm(policy, [item.name], typer.prompt("because"))
        case "all" | "a":
            column = item.name.rpartition(".")[0] or item.name
            done.update(confirm(policy, [column], typer.prompt(f"all of {column}, because")))
        case "change" | "c":
            value = typer.prompt("value, as YAML")
            try:
                confirm(policy, [item.name], typer.prompt("because"), value)
            except PolicyError as error:
                typer.echo(printable(str(error)), err=True)
                return _reviewed(policy, item, done)
        case "skip" | "s":
            pass
        case other:
            typer.echo(printable(f"{other!r} is none of keep, all, change, skip and stop."), err=True)
            return _reviewed(policy, item, done)
    return True


def _print_check(report: CheckReport, schema: Schema, policy: Path) -> None:
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
    for name, values in report.lost.items():
        shown = ", ".join(f"{value!r} ({count:,} rows)" for value, count in values)
        out.print(printable(f"{name}: values that are not declared: {shown}"))
    for advice in report.advice:
        out.print(printable(f"Note: {advice}"))
    for problem in report.problems:
        out.print(printable(f"Not ready: {problem}"), style="red")
    if report.ready:
        out.print(printable(f"Ready. Next: pinq grant {policy} ANALYST --epsilon 1.0"), style="green")
    out.print(printable("These numbers are exact: they are for the provider's eyes only."), style="dim")
