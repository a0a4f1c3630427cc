# SPDX-License-Identifier: Apache-2.0
"""The commands ``pinq table``, ``pinq sql`` and ``pinq mcp``: tables, statements and agents instead of verbs.

All are the package ``miners``', which this side of the wall may not import: it is found as the
package that is registered under that name.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pinq.cli import ask
from pinq.cli.base import AsJson, argument, console, guarded, option, print_json, print_lines
from pinq.errors import printable
from pinq.public.plugins import room_of_miners

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["commands"]

commands = typer.Typer()

Kind = StrEnum("Kind", ["crosstab", "histogram", "quantiles", "summary", "top"])
# Which options each kind takes beside those of all.
TAKES = {
    Kind.crosstab: {"margins"},
    Kind.histogram: {"by", "bins"},
    Kind.quantiles: {"by", "shares"},
    Kind.summary: {"by"},
    Kind.top: {"k"},
}
OPTIONS = {"by": "--by", "bins": "--bins", "shares": "--share", "margins": "--margins", "k": "--most"}
BAR = 30  # signs of the longest bar

Asked = Annotated[Kind, argument("KIND", f"{', '.join(Kind)}.")]
Columns = Annotated[
    list[str] | None,
    argument("[COLUMN]...", "sex, or age:30,45 to cut; several for crosstab, any or none for summary."),
]
By = Annotated[list[str] | None, option("--by", metavar="SPEC", help="Groups: sex, or age:30,45. May be repeated.")]
Bins = Annotated[int | None, option("--bins", metavar="COUNT", help="For histogram: of equal width.")]
Shares = Annotated[
    list[str] | None, option("--share", metavar="SHARE", help="For quantiles: 0.5 is the median. May be repeated.")
]
Margins = Annotated[bool | None, typer.Option("--margins", help="For crosstab: with sums.", show_default=False)]
Most = Annotated[int | None, option("--most", metavar="COUNT", help="For top: how many values; by default 5.")]
Level = Annotated[float, option("--level", metavar="SHARE", help="Of the intervals; by default 0.95.")]
Reuse = Annotated[bool, typer.Option("--reuse", help="Where this was asked before: the stored answers, free.")]
Plan = Annotated[bool, typer.Option("--plan", help="Only say what it would ask and cost. Free.")]
Picture = Annotated[Path | None, option("--picture", metavar="FILE", help="Draw it too: .png, .svg or .pdf.")]


@commands.command(rich_help_panel="Ask")
@guarded
def table(
    kind: Asked,
    dataset: ask.Dataset,
    columns: Columns = None,
    *,
    analyst: ask.Analyst = None,
    epsilon: ask.Epsilon,
    by: By = None,
    bins: Bins = None,
    share: Shares = None,
    margins: Margins = None,
    most: Most = None,
    level: Level = 0.95,
    reuse: Reuse = False,
    plan: Plan = False,
    picture: Picture = None,
    verify: ask.Verify = None,
    insecure_http: ask.InsecureHttp = False,
    as_json: AsJson = False,
) -> None:
    """Make a table: each number with the interval that holds the exact one.

    A whole table costs EPSILON once:

    [cyan]pinq table crosstab p.yaml sex income --analyst ana --epsilon 0.1[/cyan]
    [cyan]pinq table histogram p.yaml age --bins 10 --by sex --analyst ana --epsilon 0.1[/cyan]
    [cyan]pinq table quantiles p.yaml age --share 0.5 --analyst ana --epsilon 0.1[/cyan]
    [cyan]pinq table summary https://host:8443/NAME --epsilon 0.3 --picture summary.svg[/cyan]
    """
    given = {"by": by, "bins": bins, "shares": share, "margins": margins, "k": most}
    own: dict[str, object] = {name: value for name, value in given.items() if value}
    if wrong := own.keys() - TAKES[kind]:
        raise typer.BadParameter(f"`{kind}` takes no {' and no '.join(OPTIONS[name] for name in sorted(wrong))}")
    if kind not in (Kind.crosstab, Kind.summary) and len(columns or ()) != 1:
        raise typer.BadParameter(f"`{kind}` needs one COLUMN")
    handle = ask.opened(dataset, analyst, verify, insecure_http)
    asked = _columns(kind, columns, handle)
    if by:
        own["by"] = [ask.spec(text, handle.schema) for text in by]
    make = getattr(room_of_miners("tables"), "top_k" if kind is Kind.top else kind.value)
    words = {"epsilon": epsilon, "level": level, "reuse": reuse, **own}
    if plan:
        print_lines(make.plan(handle, asked, **words))
        return
    made = make(handle, asked, **words)
    if picture is not None:
        made.plot().savefig(picture, bbox_inches="tight")
    _print_made(made, handle, as_json)


def _columns(kind: Kind, columns: list[str] | None, handle: PrivateQueryable) -> object:
    """The columns as a table takes them: of a crosstab and a top list specs, else names."""
    if kind is Kind.crosstab:
        return [ask.spec(text, handle.schema) for text in columns or ()]
    if kind is Kind.summary:
        return columns or None
    text = (columns or [""])[0]
    return ask.spec(text, handle.schema) if kind is Kind.top else text


def _print_made(made: Any, handle: PrivateQueryable, as_json: bool) -> None:
    """Prints a table, its counts as bars; title, notes and the budget go to the standard error stream."""
    from pinq.provider.report.terminal import print_table

    heads, numbers = list(map(str, made.frame.columns)), set(made.frame.columns) - set(made.keys)
    rows: list[list[object]] = made.frame.astype(object).where(made.frame.notna(), None).to_numpy().tolist()
    if as_json:
        answers = [dict(zip(heads, map(ask.plain, row), strict=True)) for row in rows]
        told = {"title": made.title, "rows": answers, "level": made.level, "notes": list(made.notes)}
        print_json(told | {"epsilon": float(made.epsilon), "budget": ask.budget_of(handle)})
        return
    bare = ("column", "of")  # a count of all rows is of no column, and a mean of no value
    texts = [
        ["" if cell is None and head in bare else ask.shown(cell) for head, cell in zip(heads, row, strict=True)]
        for row in rows
    ]
    titles = [f"{head} >" if head in numbers else head for head in heads]
    if not {"statistic", "answer"} & set(heads):  # counts, of which bars can be compared
        counts = [max(0.0, float(value)) for value in made.frame["value"]]
        texts = [
            [*line, "█" * round(BAR * count / (max(counts) or 1))] for line, count in zip(texts, counts, strict=True)
        ]
        titles.append("")
    typer.echo(printable(f"{made.title}; intervals hold with probability {made.level:g}"), err=True)
    print_table(console(), titles, texts)
    for note in made.notes:
        typer.echo(printable(f"Note: {note}"), err=True)
    typer.echo(printable(repr(handle.budget)), err=True)


@commands.command(rich_help_panel="Ask")
@guarded
def sql(
    dataset: ask.Dataset,
    query: Annotated[str, argument("STATEMENT", "SELECT ... FROM the table; EXPLAIN before it says the cost, free.")],
    *,
    analyst: ask.Analyst = None,
    epsilon: ask.Epsilon,
    level: Level = 0.95,
    reuse: Reuse = False,
    verify: ask.Verify = None,
    insecure_http: ask.InsecureHttp = False,
    as_json: AsJson = False,
) -> None:
    """Answer a SELECT over the table, each number with its interval.

    A statement costs EPSILON once, whatever it groups by:

    [cyan]pinq sql p.yaml "SELECT sex, AVG(age), COUNT(*) FROM adult GROUP BY sex" --analyst ana --epsilon 0.1[/cyan]
    """
    handle = ask.opened(dataset, analyst, verify, insecure_http)
    made = room_of_miners("fronts.sql").sql(handle, query, epsilon=epsilon, level=level, reuse=reuse)
    if hasattr(made, "frame"):
        _print_made(made, handle, as_json)
    else:
        print_lines(made)


@commands.command(rich_help_panel="Ask")
@guarded
def mcp(
    dataset: ask.Dataset,
    *,
    analyst: ask.Analyst = None,
    per_call: Annotated[str, option("--per-call", metavar="EPSILON", help="The most that one call may cost.")],
    per_session: Annotated[
        str, option("--per-session", metavar="EPSILON", help="The most that all calls may cost, from start to stop.")
    ],
    http: Annotated[
        int | None, option("--http", metavar="PORT", help="Serve HTTP on this machine alone, at /mcp, not stdio.")
    ] = None,
    level: Level = 0.95,
    verify: ask.Verify = None,
    insecure_http: ask.InsecureHttp = False,
) -> None:
    """Let an agent ask: an MCP server with prices, SQL, tables, budget and history as tools.

    Only its two asking tools spend, within both limits and the grant:

    [cyan]pinq mcp p.yaml --analyst ana --per-call 0.05 --per-session 0.5[/cyan]
    """
    served = room_of_miners("fronts.mcp_server")
    agents = room_of_miners("fronts.agents")
    with ask.opened(dataset, analyst, verify, insecure_http) as handle:
        served.serve(agents.Agent(handle, per_call=per_call, per_session=per_session, level=level), http)
