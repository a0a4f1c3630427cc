# SPDX-License-Identifier: Apache-2.0
"""The commands of an analyst: ``pinq query``, ``table``, ``sql`` and ``mcp``.

``query`` is one query. Tables, statements and agents belong to the package ``miners``, which ``pinq``
may not import, so the commands find it as a registered package.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, fields, is_dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pinq.cli.base import AsJson, argument, console, flag, guarded, option, print_json, print_lines
from pinq.errors import NotAllowed, QueryError, printable
from pinq.provider.report.markup import print_table
from pinq.public.plugins import optional, room_of_miners

if TYPE_CHECKING:
    from pinq.analyst.queryable import Parts, PrivateQueryable
    from pinq.language.queries import Preview
    from pinq.language.scores import AnyScore
    from pinq.language.specs import Calendar, Candidate, Cuts, Values
    from pinq.public.columns import CutPoint
    from pinq.public.schema import Numeric, Schema


commands = typer.Typer()

Verb = StrEnum("Verb", ["count", "sum", "avg", "choose"])
VERBS = {Verb.count: "noisy_count", Verb.sum: "noisy_sum", Verb.avg: "noisy_avg", Verb.choose: "exp_mech"}

Dataset = Annotated[
    str,
    argument(
        "POLICY|URL",
        "The policy file, or its address at a server: https://host:8443/NAME. Of several tables: FILE#TABLE, or "
        "https://host:8443/NAME.TABLE.",
    ),
]
Analyst = Annotated[
    str | None,
    option(
        "--analyst",
        metavar="ANALYST",
        help="The analyst whose budget is charged; at a URL the token names the analyst.",
    ),
]
Epsilon = Annotated[str, option("--epsilon", metavar="EPSILON", help="The cost of the query, for example 0.1.")]
Score = Annotated[
    str | None, option("--score", metavar="SCORE", help="For choose: gini, squared_error, balance, class_count, ...")
]
Verify = Annotated[
    Path | None, option("--verify", metavar="FILE", help="For a URL: the provider's own certificate authority.")
]
TokenFile = Annotated[
    Path | None,
    option("--token-file", metavar="FILE", help="For a URL: the file with the token, of mode 0600; else PINQ_TOKEN."),
]
InsecureHttp = Annotated[bool, flag("--insecure-http", help="For a URL: plain HTTP, on this machine only.")]


@commands.command(rich_help_panel="Ask")
@guarded
def query(
    dataset: Dataset,
    verb: Annotated[Verb, argument("VERB", "count, sum, avg or choose.")],
    column: Annotated[str | None, argument("COLUMN", "A numeric column, for sum and avg.")] = None,
    *,
    analyst: Analyst = None,
    epsilon: Epsilon,
    partition: Annotated[
        list[str] | None, option("--partition", metavar="SPEC", help="Query each part: sex, or age:30,45. Repeatable.")
    ] = None,
    candidate: Annotated[
        list[str] | None, option("--candidate", metavar="SPEC", help="For choose: education, or age:any for every cut.")
    ] = None,
    score: Score = None,
    target: Annotated[
        str | None, option("--target", metavar="COLUMN", help="For choose: the column to predict.")
    ] = None,
    verify: Verify = None,
    token_file: TokenFile = None,
    insecure_http: InsecureHttp = False,
    preview: Annotated[bool, flag("--preview", help="Only show the cost and the error. Free.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run one query, as an analyst would.

    Parts are disjoint, so a query of all of them costs EPSILON once:

    [cyan]pinq query p.yaml avg age --partition sex --analyst ana --epsilon 0.1[/cyan]

    A choice, here of the best first split of a tree:

    [cyan]pinq query p.yaml choose --candidate education --candidate age:any --score gini --target
    income --analyst ana --epsilon 0.1[/cyan]
    """
    choice_score = _score(verb, column, candidate, score, target)
    handle = opened(dataset, analyst, verify, insecure_http, token_file)
    schema = handle.schema
    parts = handle.partition(*(spec(text, schema) for text in partition)) if partition else None
    target_parts = handle if parts is None else parts
    words: dict[str, object] = {"epsilon": epsilon}
    if column is not None:
        words["column"] = column
    if choice_score is not None:
        words |= {"candidates": [_candidate(text, schema) for text in candidate or ()], "score": choice_score}
    error = "the accuracy was not previewed"
    try:
        expected = target_parts.preview(VERBS[verb], **words)
        error = expected.error
        if preview:
            _print_preview(expected, as_json)
            return
    except NotAllowed:
        if preview:
            raise
        # The query itself is then refused and logged, or answered if the terms changed meanwhile.
    answer = getattr(target_parts, VERBS[verb])(**words)
    _print_answer(answer, parts, handle, error, as_json)


def opened(
    dataset: str, analyst: str | None, verify: Path | None, insecure_http: bool, token_file: Path | None
) -> PrivateQueryable:
    """Opens a policy's dataset in this process, or a server's at a URL."""
    if "://" in dataset:
        from pinq.analyst.client import connect

        if analyst is not None:
            raise typer.BadParameter("--analyst is for a policy file; at a URL the token (PINQ_TOKEN) says who asks")
        return connect(dataset, token=token_file, verify=verify or True, insecure_http=insecure_http)
    from pinq.provider.local import open as open_handle

    if re.match(r"[\w.-]+:\d+/|[\w-]+(\.[\w-]+){2,}/", dataset) and not Path(dataset).parent.is_dir():
        raise typer.BadParameter("the address of a server begins with https://")
    if analyst is None:
        raise typer.BadParameter("--analyst is needed with a policy file")
    if token_file is not None:
        raise typer.BadParameter("--token-file is for a URL; a policy file needs no token")
    file, _, table = (dataset, "", "") if Path(dataset).exists() else dataset.partition("#")
    return open_handle(file, analyst=analyst, table=table or None)


def _score(
    verb: Verb, column: str | None, candidate: list[str] | None, name: str | None, target: str | None
) -> AnyScore | None:
    """The score of a choice. Raises ``typer.BadParameter`` if a verb gets a wrong option, or lacks one."""
    if (verb in (Verb.sum, Verb.avg)) != (column is not None):
        raise typer.BadParameter(f"`{verb.value}` {'needs' if column is None else 'takes no'} COLUMN")
    if verb is not Verb.choose:
        options = {"--candidate": candidate, "--score": name, "--target": target}
        if wrong := [option for option, value in options.items() if value]:
            raise typer.BadParameter(f"{', '.join(wrong)} is for `choose`, not for `{verb.value}`")
        return None
    from pinq.language.scores import SCORES, Score

    needed = {
        kind: {field.name for field in fields(score) if field.default is MISSING} for kind, score in SCORES.items()
    }
    choices = [kind for kind, names in needed.items() if names <= {"target"}]
    if name not in choices:
        raise typer.BadParameter(f"`choose` needs --score, one of {', '.join(choices)}")
    if bool(needed[name]) != (target is not None):
        raise typer.BadParameter(f"--score {name} {'needs' if target is None else 'takes no'} --target")
    if issubclass(SCORES[name], Score) != bool(candidate):
        raise typer.BadParameter(
            f"--score {name} takes no --candidate, only --target" if candidate else "`choose` needs a --candidate"
        )
    return SCORES[name](**{"target": target} if needed[name] else {})  # type: ignore[arg-type]


def spec(text: str, schema: Schema) -> Values | Cuts | Calendar:
    """Reads ``sex``, ``age:30,45``, ``born:1950-01-01`` or ``born:year``.

    A column's name may contain a colon, so the longest matching name counts.
    """
    from pinq.language.specs import Calendar, Cuts, Values

    name = max(
        (name for name in schema.columns if f"{text}:".startswith(f"{name}:")),
        key=len,
        default=text.rpartition(":")[0] or text,
    )
    points = text[len(name) + 1 :]
    column = schema.column(name)
    if points:
        numeric = schema.numeric(name)
        if numeric.unit and points.isalpha():
            return Calendar(name, points)  # type: ignore[arg-type]  # Calendar checks it
        return Cuts(name, tuple(_point(point, numeric, name) for point in points.split(",")))
    if column.type == "categorical":
        return Values(name)
    if not column.cuts:
        middle = f"{name}:{column.text(float(column.lower + column.upper) / 2)}"
        raise QueryError(
            f"`{name}` is numeric and the policy declares no cuts of it; say where to cut, for example {middle}."
        )
    return Cuts(name, column.declared_cuts)


def _candidate(text: str, schema: Schema) -> Candidate:
    """Reads a spec, or ``age:any`` for a family."""
    from pinq.language.specs import AnyCut, AnyGrouping

    name = text.removesuffix(":any")
    if name == text or text in schema.columns:
        return spec(text, schema)
    return AnyGrouping(name) if schema.column(name).type == "categorical" else AnyCut(name)


def _point(text: str, column: Numeric, name: str) -> CutPoint:
    """Reads a cut: a number, or a date of a column of dates."""
    try:
        return text.strip() if column.unit else float(text)
    except ValueError:
        raise QueryError(f"the cut {text!r} of `{name}` is not a number; write {name}:30,45.") from None


def _print_preview(preview: Preview, as_json: bool) -> None:
    if not as_json:
        typer.echo(printable(repr(preview)))
        return
    cost, remaining = float(preview.cost), float(preview.remaining)
    numbers = {"cost": cost, "remaining": remaining, "refused": preview.remaining < 0}
    print_json(numbers | {"accuracy": preview.error, "scale": preview.scale})


def _print_answer(answer: Any, parts: Parts | None, handle: PrivateQueryable, expected: str, as_json: bool) -> None:
    """Prints the answer of the whole table, or of each part after its labels; the accuracy on standard error."""
    frame = None if parts is None else parts.frame(answer)
    rows: list[list[object]] = [[answer]] if frame is None else frame.astype(object).to_numpy().tolist()
    labels = [] if frame is None else [str(name) for name in frame.columns[:-1]]
    if as_json:
        values = [
            {"part": dict(zip(labels, map(plain, part), strict=True)), "value": plain(value)} for *part, value in rows
        ]
        content = {"value": plain(answer)} if frame is None else {"values": values}
        print_json(content | {"accuracy": expected, "budget": budget_of(handle)})
        return
    if frame is None:
        typer.echo(printable(shown(answer)))
    else:
        # Numbers come as an array, and are aligned on the right.
        heads = [*labels, "answer >" if hasattr(answer, "dtype") else "answer"]
        print_table(console(), heads, [[shown(cell) for cell in row] for row in rows])
    typer.echo(printable(f"{expected}; {handle.budget!r}"), err=True)


def budget_of(handle: PrivateQueryable) -> dict[str, float]:
    """Returns a handle's budget as plain numbers."""
    budget = handle.budget
    return {"epsilon": float(budget.epsilon), "spent": float(budget.spent), "remaining": float(budget.remaining)}


def plain(value: object) -> object:
    """Returns a label, a number or a chosen spec as plain values."""
    match value:
        case list() | tuple():
            return [plain(item) for item in value]
        case date():
            return str(value)
        case _ if is_dataclass(value):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    return value.item() if hasattr(value, "item") else value


def shown(value: object) -> str:
    """Writes a label, a number or a chosen spec for people."""
    match value:
        case None:
            return "(missing)"
        case float():
            return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}"
        case list() | tuple():
            return ", ".join(map(shown, value))
    return repr(value) if is_dataclass(value) else str(value)


Kind = StrEnum("Kind", ["crosstab", "histogram", "quantiles", "summary", "top"])
# The options of each kind besides the common ones.
KIND_OPTIONS = {
    Kind.crosstab: {"margins"},
    Kind.histogram: {"by", "bins"},
    Kind.quantiles: {"by", "shares"},
    Kind.summary: {"by"},
    Kind.top: {"k"},
}
OPTIONS = {"by": "--by", "bins": "--bins", "shares": "--share", "margins": "--margins", "k": "--most"}
BAR = 30  # characters of the longest bar
PICTURES = (".png", ".svg", ".pdf")

Columns = Annotated[
    list[str] | None,
    argument("[COLUMN]...", "sex, or age:30,45 to cut; several for crosstab, any or none for summary."),
]
Bins = Annotated[
    int | None, option("--bins", metavar="COUNT", help="For histogram: the number of bins, of equal width.")
]
Level = Annotated[float, option("--level", metavar="SHARE", help="The level of the intervals; by default 0.95.")]
Reuse = Annotated[bool, flag("--reuse", help="Return the stored answers of an identical earlier request, free.")]


@commands.command(rich_help_panel="Ask")
@guarded
def table(
    kind: Annotated[Kind, argument("KIND", f"{', '.join(Kind)}.")],
    dataset: Dataset,
    columns: Columns = None,
    *,
    analyst: Analyst = None,
    epsilon: Epsilon,
    by: Annotated[
        list[str] | None, option("--by", metavar="SPEC", help="Group by sex, or by age:30,45. Repeatable.")
    ] = None,
    bins: Bins = None,
    share: Annotated[
        list[str] | None, option("--share", metavar="SHARE", help="For quantiles: 0.5 is the median. Repeatable.")
    ] = None,
    margins: Annotated[bool | None, flag("--margins", help="For crosstab: add the sums of rows and columns.")] = None,
    limit: Annotated[
        int | None, option("--most", metavar="COUNT", help="For top: the number of values; by default 5.")
    ] = None,
    level: Level = 0.95,
    reuse: Reuse = False,
    plan: Annotated[bool, flag("--plan", help="Only show the queries and their cost. Free.")] = False,
    picture: Annotated[
        Path | None, option("--picture", metavar="FILE", help="Draw the table into FILE: .png, .svg or .pdf.")
    ] = None,
    verify: Verify = None,
    token_file: TokenFile = None,
    insecure_http: InsecureHttp = False,
    as_json: AsJson = False,
) -> None:
    """Make a table. Each number has an interval for the exact one.

    A whole table costs EPSILON once:

    [cyan]pinq table crosstab p.yaml sex income --analyst ana --epsilon 0.1[/cyan]
    [cyan]pinq table histogram p.yaml age --bins 10 --by sex --analyst ana --epsilon 0.1[/cyan]
    [cyan]pinq table quantiles p.yaml age --share 0.5 --analyst ana --epsilon 0.1[/cyan]
    [cyan]pinq table summary https://host:8443/NAME --epsilon 0.3 --picture summary.svg[/cyan]
    """
    options = {"by": by, "bins": bins, "shares": share, "margins": margins, "k": limit}
    stated: dict[str, object] = {name: value for name, value in options.items() if value is not None}
    if wrong := stated.keys() - KIND_OPTIONS[kind]:
        raise typer.BadParameter(f"`{kind}` takes no {' and no '.join(OPTIONS[name] for name in sorted(wrong))}")
    if kind not in (Kind.crosstab, Kind.summary) and len(columns or ()) != 1:
        raise typer.BadParameter(f"`{kind}` needs one COLUMN")
    if picture is not None:
        _require_drawable(picture)
    handle = opened(dataset, analyst, verify, insecure_http, token_file)
    specs = _columns(kind, columns, handle)
    if by:
        stated["by"] = [spec(text, handle.schema) for text in by]
    make = getattr(room_of_miners("tables"), "top_k" if kind is Kind.top else kind.value)
    words = {"epsilon": epsilon, "level": level, "reuse": reuse, **stated}
    if plan:
        print_lines(make.plan(handle, specs, **words))
        return
    result = make(handle, specs, **words)
    _print_table(result, handle, as_json)  # before the picture, which may fail
    if picture is not None:
        result.plot().figure.savefig(picture, bbox_inches="tight")


def _require_drawable(picture: Path) -> None:
    """Refuses a picture that cannot be written, before epsilon is spent."""
    if picture.suffix.lower() not in PICTURES:
        raise typer.BadParameter(f"--picture must end in {', '.join(PICTURES)}")
    if not picture.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {picture.parent} for --picture")
    optional("matplotlib", "plot", "--picture needs matplotlib")


def _columns(kind: Kind, columns: list[str] | None, handle: PrivateQueryable) -> object:
    """The columns as arguments of a table: specs for a crosstab and a top list, else names."""
    if kind is Kind.crosstab:
        return [spec(text, handle.schema) for text in columns or ()]
    if kind is Kind.summary:
        return columns or None
    text = (columns or [""])[0]
    return spec(text, handle.schema) if kind is Kind.top else text


def _print_table(result: Any, handle: PrivateQueryable, as_json: bool) -> None:
    """Prints a table, its counts as bars; title, notes and the budget go to the standard error stream."""
    heads, numbers = list(map(str, result.frame.columns)), set(result.frame.columns) - set(result.keys)
    rows: list[list[object]] = result.frame.astype(object).where(result.frame.notna(), None).to_numpy().tolist()
    if as_json:
        answers = [dict(zip(heads, map(plain, row), strict=True)) for row in rows]
        content = {"title": result.title, "rows": answers, "level": result.level, "notes": list(result.notes)}
        print_json(content | {"epsilon": float(result.epsilon), "budget": budget_of(handle)})
        return
    may_be_empty = ("column", "of")  # a count of all rows has no column, and a mean is of no value
    texts = [
        ["" if cell is None and head in may_be_empty else shown(cell) for head, cell in zip(heads, row, strict=True)]
        for row in rows
    ]
    titles = [f"{head} >" if head in numbers else head for head in heads]
    if not {"statistic", "answer"} & set(heads):  # counts, whose bars can be compared
        counts = [max(0.0, float(value)) for value in result.frame["value"]]
        texts = [
            [*line, "█" * round(BAR * count / (max(counts) or 1))] for line, count in zip(texts, counts, strict=True)
        ]
        titles.append("")
    typer.echo(printable(f"{result.title}; intervals hold with probability {result.level:g}"), err=True)
    print_table(console(), titles, texts)
    for note in result.notes:
        typer.echo(printable(f"Note: {note}"), err=True)
    typer.echo(printable(repr(handle.budget)), err=True)


@commands.command(rich_help_panel="Ask")
@guarded
def sql(
    dataset: Dataset,
    query: Annotated[str, argument("STATEMENT", "SELECT ... FROM the table; EXPLAIN SELECT ... shows the cost, free.")],
    *,
    analyst: Analyst = None,
    epsilon: Epsilon,
    level: Level = 0.95,
    reuse: Reuse = False,
    verify: Verify = None,
    token_file: TokenFile = None,
    insecure_http: InsecureHttp = False,
    as_json: AsJson = False,
) -> None:
    """Answer a SELECT over the table, each number with its interval.

    A statement costs EPSILON once, also with groups:

    [cyan]pinq sql p.yaml "SELECT sex, AVG(age), COUNT(*) FROM adult GROUP BY sex" --analyst ana --epsilon 0.1[/cyan]
    """
    handle = opened(dataset, analyst, verify, insecure_http, token_file)
    result = room_of_miners("fronts.sql").sql(handle, query, epsilon=epsilon, level=level, reuse=reuse)
    if hasattr(result, "frame"):
        _print_table(result, handle, as_json)
    else:
        print_lines(result)


@commands.command(rich_help_panel="Ask")
@guarded
def mcp(
    dataset: Dataset,
    *,
    analyst: Analyst = None,
    per_call: Annotated[str, option("--per-call", metavar="EPSILON", help="The largest epsilon of one call.")],
    per_session: Annotated[
        str,
        option(
            "--per-session", metavar="EPSILON", help="The largest epsilon of all calls together, from start to stop."
        ),
    ],
    http: Annotated[
        int | None,
        typer.Option(
            "--http",
            metavar="PORT",
            min=0,
            max=65535,
            show_default=False,
            help="Serve HTTP at /mcp, to this machine only, instead of stdio.",
        ),
    ] = None,
    level: Level = 0.95,
    verify: Verify = None,
    token_file: TokenFile = None,
    insecure_http: InsecureHttp = False,
) -> None:
    """Let an agent query: an MCP server with prices, SQL, tables, budget and history as tools.

    Only its two query tools spend, within both limits and the grant:

    [cyan]pinq mcp p.yaml --analyst ana --per-call 0.05 --per-session 0.5[/cyan]
    """
    server = room_of_miners("fronts.mcp_server")
    agents = room_of_miners("fronts.agents")
    with opened(dataset, analyst, verify, insecure_http, token_file) as handle:
        server.serve(agents.Agent(handle, per_call=per_call, per_session=per_session, level=level), http)
