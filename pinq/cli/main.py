# SPDX-License-Identifier: Apache-2.0
"""The ``pinq`` command: parse, call, print. What it does is in ``provider``, ``audit`` and ``local``.

Exit status: 0 done, 1 refused or not ready, 2 the command line is wrong. An error is one line on
the standard error stream and never holds a row's value: what went wrong after a charge goes only to
the file that ``PINQ_LOG`` names.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pinq import __version__
from pinq.cli.base import (
    Analyst,
    AsJson,
    Because,
    Expires,
    PolicyFile,
    argument,
    console,
    fail,
    guarded,
    option,
    print_account,
    print_json,
    signed,
    until,
)
from pinq.cli.secure import secure
from pinq.cli.server import Columns, MaxEpsilon, PerMinute, Verbs, commands, terms_of
from pinq.cli.text import Decimal, Delimiter, Encoding, Header, MaxUnreadable, Quote, Thousands, dialect_of
from pinq.errors import QueryError
from pinq.provider.report.text import printable

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable
    from pinq.provider.check import CheckReport
    from pinq.public.schema import Schema

__all__ = ["app", "main"]

ABOUT = """\
Let others mine a table that you may not hand out.

You declare in a [bold]policy[/bold] what is publicly known about the table, and grant each analyst a budget [bold]epsilon[/bold]. \
They ask for counts, sums, averages and choices; every answer is differentially private, every cost is charged first and logged, \
and when the budget is gone the answer is no. An [bold]audit[/bold] replays the log: who asked what, what it cost, who ran out when.
"""
EXAMPLES = """\
[bold]From a table to an audit[/bold]

[cyan]pinq init data.parquet --target income -o p.yaml[/cyan]  [dim](then review p.yaml)[/dim]

[cyan]pinq check p.yaml[/cyan]

[cyan]pinq grant p.yaml ana --epsilon 1.0 --expires 2030-01-31[/cyan]

[cyan]pinq query p.yaml count --partition sex --analyst ana --epsilon 0.1[/cyan]

[cyan]pinq audit p.yaml --html -o audit.html[/cyan]

[cyan]pinq serve p.yaml --tls-cert cert.pem --tls-key key.pem[/cyan]  [dim](for analysts elsewhere)[/dim]

From Python: [cyan]pinq.open("p.yaml", analyst="ana").noisy_count(epsilon=0.1)[/cyan], or [cyan]pinq.connect("https://host:8443/NAME", token=...)[/cyan]
"""

app = typer.Typer(
    name="pinq",
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


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pinq {__version__}")
        raise typer.Exit()


@app.callback()
@guarded
def _start(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    file = os.environ.get("PINQ_LOG")
    if file:  # it may quote the data: readable by the provider alone, from the first byte
        os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
    # Without a handler, logging would print the engine's errors, and with them perhaps values, to
    # the terminal.
    logging.getLogger("pinq").addHandler(logging.FileHandler(file, delay=True) if file else logging.NullHandler())


# Prepare


@app.command(rich_help_panel="Prepare")
@guarded
def init(
    data: Annotated[str, argument("DATA", "A Parquet or CSV file, or FILE.duckdb::TABLE.")],
    target: Annotated[
        str | None, option("--target", metavar="COLUMN", help="The column that models will predict.")
    ] = None,
    dataset: Annotated[
        str | None, option("--dataset", metavar="NAME", help="What analysts will call it; by default the file's name.")
    ] = None,
    like: Annotated[
        Path | None,
        option(
            "--like",
            metavar="POLICY",
            help="Take columns, bounds and unit from another holder's policy: for one tree of several.",
        ),
    ] = None,
    output: Annotated[
        Path | None, option("-o", "--output", metavar="FILE", help="Write it here; by default it is printed.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE.")] = False,
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
    if output is not None and output.exists() and not force:
        fail(f"{output} exists; choose another file, or pass --force to overwrite it.")
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
    if output is None:
        typer.echo(text, nl=False)
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    typer.echo(
        printable(f"Wrote {output}. Review what it lists under `unreviewed`, then: pinq check {output}"), err=True
    )


@app.command(rich_help_panel="Prepare")
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


# Grant


@app.command(rich_help_panel="Grant")
@guarded
def grant(
    policy: PolicyFile,
    analyst: Analyst,
    epsilon: Annotated[str, option("--epsilon", metavar="EPSILON", help="The budget, for example 1.0.")],
    expires: Expires = None,
    max_epsilon: MaxEpsilon = None,
    columns: Columns = None,
    verbs: Verbs = None,
    per_minute: PerMinute = None,
    because: Because = "",
    as_json: AsJson = False,
) -> None:
    """Grant a new analyst a budget, and print the token that opens it over the network."""
    from pinq.provider.grants import grant as grant_budget

    terms = terms_of(policy, max_epsilon, columns, verbs, per_minute)
    print_account(grant_budget(policy, analyst, epsilon, expires, terms, by=signed(because)), "granted", as_json)


@app.command(rich_help_panel="Grant")
@guarded
def show(policy: PolicyFile, as_json: AsJson = False) -> None:
    """Show who was granted what, and what is left of it."""
    from pinq.ledger.composition import CAP_RULES
    from pinq.ledger.terms import FREE
    from pinq.provider.grants import show as status_of
    from pinq.provider.report.terminal import print_table

    status = status_of(policy)
    if as_json:
        print_json(status.to_dict())
        return
    out = console()
    left = f"{status.remaining} remains under the cap, which counts {CAP_RULES[status.cap_rule]}"
    out.print(f"{status.dataset}: {status.spent} of {status.cap} spent by all together, {left}")
    if not status.accounts:
        out.print(printable(f"Nobody was granted anything yet. Next: pinq grant {policy} ANALYST --epsilon 1.0"))
        return
    rows = [
        [
            one.analyst,
            one.state,
            str(one.limit),
            str(one.spent),
            str(one.remaining),
            until(one),
            str(one.terms) if one.terms != FREE else "",
        ]
        for one in status.accounts
    ]
    print_table(out, ["analyst", "state", "limit >", "spent >", "remaining >", "expires", "terms"], rows)


@app.command(rich_help_panel="Grant")
@guarded
def extend(
    policy: PolicyFile,
    analyst: Analyst,
    epsilon: Annotated[str | None, option("--epsilon", metavar="EPSILON", help="How much more.")] = None,
    expires: Expires = None,
    because: Because = "",
    as_json: AsJson = False,
) -> None:
    """Raise a budget, or move its expiry."""
    from pinq.provider.grants import extend as extend_grant

    if epsilon is None and expires is None:
        raise typer.BadParameter("say how much more (--epsilon), until when (--expires), or both")
    print_account(extend_grant(policy, analyst, epsilon, expires, by=signed(because)), "extended", as_json)


@app.command(rich_help_panel="Grant")
@guarded
def revoke(
    policy: PolicyFile,
    analyst: Analyst,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    because: Because = "",
    as_json: AsJson = False,
) -> None:
    """End a grant at once. What was spent stays spent."""
    from pinq.provider.grants import revoke as revoke_grant

    if not yes and sys.stdin.isatty():
        typer.confirm(printable(f"Revoke the grant of {analyst!r}?"), abort=True, err=True)
    print_account(revoke_grant(policy, analyst, by=signed(because)), "revoked", as_json)


app.add_typer(commands)
app.add_typer(secure, rich_help_panel="Among several parties")


# Ask


Verb = StrEnum("Verb", ["count", "sum", "avg", "choose"])
ScoreName = StrEnum(
    "ScoreName", ["gini", "info_gain", "max_class", "mutual_information", "squared_error", "balance", "class_count"]
)


@app.command(rich_help_panel="Ask")
@guarded
def query(
    dataset: Annotated[str, argument("POLICY|URL", "The policy file, or where it is served: https://host:8443/NAME.")],
    verb: Annotated[Verb, argument("VERB", "count, sum, avg or choose.")],
    column: Annotated[str | None, argument("COLUMN", "A numeric column, for sum and avg.")] = None,
    *,
    analyst: Annotated[
        str | None, option("--analyst", metavar="ANALYST", help="Whose budget is charged; at a URL the token says it.")
    ] = None,
    epsilon: Annotated[str, option("--epsilon", metavar="EPSILON", help="What the answer may cost, for example 0.1.")],
    partition: Annotated[
        list[str] | None,
        option("--partition", metavar="SPEC", help="Ask each part: sex, or age:30,45. May be repeated."),
    ] = None,
    candidate: Annotated[
        list[str] | None, option("--candidate", metavar="SPEC", help="For choose: education, or age:any for every cut.")
    ] = None,
    score: Annotated[
        ScoreName | None, option("--score", metavar="SCORE", help=f"For choose: {', '.join(ScoreName)}.")
    ] = None,
    target: Annotated[str | None, option("--target", metavar="COLUMN", help="For choose: what to predict.")] = None,
    verify: Annotated[
        Path | None, option("--verify", metavar="FILE", help="For a URL: the provider's own certificate authority.")
    ] = None,
    insecure_http: Annotated[
        bool, typer.Option("--insecure-http", help="For a URL: plain HTTP, on this machine only.")
    ] = False,
    preview: Annotated[
        bool, typer.Option("--preview", help="Only say what it would cost and how exact it would be. Free.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ask one question, as an analyst would.

    Parts are disjoint, so asking all of them costs EPSILON once:

    [cyan]pinq query p.yaml avg age --partition sex --analyst ana --epsilon 0.1[/cyan]

    A choice, here of the best first question of a tree:

    [cyan]pinq query p.yaml choose --candidate education --candidate age:any --score gini --target
    income --analyst ana --epsilon 0.1[/cyan]
    """
    _require_usage(verb, column, candidate, score, target)
    handle = _handle(dataset, analyst, verify, insecure_http)
    schema = handle.schema
    asked = handle.partition(*(_spec(text, schema) for text in partition)) if partition else handle
    name = {"choose": "exp_mech"}.get(verb.value, f"noisy_{verb.value}")
    words: dict[str, Any] = {"epsilon": epsilon}
    if verb in (Verb.sum, Verb.avg):
        words["column"] = column
    elif verb is Verb.choose:
        words |= {"candidates": [_candidate(text, schema) for text in candidate or ()], "score": _score(score, target)}
    if preview:
        _print_preview(asked.preview(name, **words), as_json)
        return
    expected = asked.preview(name, **words).error
    _print_answer(handle, asked, getattr(asked, name)(**words), expected, as_json)


def _handle(dataset: str, analyst: str | None, verify: Path | None, insecure_http: bool) -> PrivateQueryable:
    """A handle on a policy's dataset in this process, or on a server's; its token comes from the environment or a file."""
    if "://" in dataset:
        from pinq.analyst.client import connect

        if analyst is not None:
            raise typer.BadParameter("--analyst is for a policy file; at a URL the token (PINQ_TOKEN) says who asks")
        return connect(dataset, verify=verify or True, insecure_http=insecure_http)
    from pinq.provider.local import open as open_handle

    if analyst is None:
        raise typer.BadParameter("--analyst is needed with a policy file")
    return open_handle(dataset, analyst=analyst)


def _require_usage(
    verb: Verb, column: str | None, candidate: list[str] | None, score: ScoreName | None, target: str | None
) -> None:
    if (verb in (Verb.sum, Verb.avg)) != (column is not None):
        raise typer.BadParameter(f"`{verb.value}` {'needs' if column is None else 'takes no'} COLUMN")
    if verb is not Verb.choose:
        if given := [
            name for name, value in (("--candidate", candidate), ("--score", score), ("--target", target)) if value
        ]:
            raise typer.BadParameter(f"{', '.join(given)} is for `choose`, not for `{verb.value}`")
        return
    if score is None:
        raise typer.BadParameter("`choose` needs --score")
    if (score is ScoreName.balance) != (target is None):
        raise typer.BadParameter(f"--score {score.value} {'needs' if target is None else 'takes no'} --target")
    if (score is ScoreName.class_count) != (not candidate):
        raise typer.BadParameter(
            "--score class_count takes no --candidate, only --target" if candidate else "`choose` needs a --candidate"
        )


def _spec(text: str, schema: Schema) -> Any:
    """``sex`` or ``age:30,45``. A column's name may hold a colon: a whole name goes before a name with cuts."""
    from pinq.public.schema import Numeric
    from pinq.public.specs import Cuts, Values

    name, _, points = (text, "", "") if text in schema.columns or ":" not in text else text.rpartition(":")
    column = schema.column(name)
    if points:
        schema.numeric(name)
        return Cuts(name, tuple(_point(point, name) for point in points.split(",")))
    if isinstance(column, Numeric):
        if not column.cuts:
            middle = f"{name}:{float(column.lower + column.upper) / 2:g}"
            raise QueryError(
                f"`{name}` is numeric and the policy declares no cuts of it; say where to cut, for example {middle}."
            )
        return Cuts(name, tuple(float(cut) for cut in column.cuts))
    return Values(name)


def _candidate(text: str, schema: Schema) -> Any:
    """A spec, or ``age:any`` for a family."""
    from pinq.public.schema import Numeric
    from pinq.public.specs import AnyCut, AnyGrouping

    name = text.removesuffix(":any")
    if name == text or text in schema.columns:
        return _spec(text, schema)
    return AnyCut(name) if isinstance(schema.column(name), Numeric) else AnyGrouping(name)


def _point(text: str, name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise QueryError(f"the cut {text!r} of `{name}` is not a number; write {name}:30,45.") from None


def _score(score: ScoreName | None, target: str | None) -> Any:
    from pinq.public import scores

    assert score is not None
    kind = getattr(scores, "".join(word.capitalize() for word in score.value.split("_")))
    return kind() if target is None else kind(target)


# Audit


@app.command(rich_help_panel="Audit")
@guarded
def audit(
    policy: PolicyFile,
    analyst: Annotated[str | None, option("--analyst", metavar="ANALYST", help="Only this one.")] = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print a row for each event.")] = False,
    as_html: Annotated[bool, typer.Option("--html", help="Print one self-contained page with a picture.")] = False,
    output: Annotated[
        Path | None, option("-o", "--output", metavar="FILE", help="Write it here; .json, .csv, .html say how.")
    ] = None,
) -> None:
    """Replay the log: spending, refusals, who ran out when. Verifies the chain.

    Reads the log alone, so it works when the data are gone. Exit status 1, and the reason, where
    the log was edited, cut or rolled back.
    """
    from pinq.provider.report.audit import Audit
    from pinq.provider.report.audit import audit as audit_log
    from pinq.provider.report.html import page
    from pinq.provider.report.terminal import print_audit

    if as_json + as_csv + as_html > 1:
        raise typer.BadParameter("choose one of --json, --csv and --html")
    forms = [name for name, wanted in (("json", as_json), ("csv", as_csv), ("html", as_html)) if wanted]
    form = (
        forms[0] if forms else output.suffix[1:] if output and output.suffix in (".json", ".csv", ".html") else "text"
    )
    report = audit_log(policy, analyst)
    if form == "text":
        with output.open("w", encoding="utf-8") if output else nullcontext() as file:
            print_audit(report, console(file))
    else:
        text = {"json": Audit.to_json, "csv": Audit.to_csv, "html": page}[form](report).rstrip("\n") + "\n"
        output.write_text(text, encoding="utf-8") if output else typer.echo(text, nl=False)
    if output:
        typer.echo(printable(f"Wrote {output}."), err=True)


def _print_check(report: CheckReport, schema: Schema, policy: Path) -> None:
    from pinq.provider.report.terminal import print_table
    from pinq.public.schema import describe

    out = console()
    lost = f"{report.source_rows - report.encoded_rows:,} left out"
    over = f", {report.over_unit:,} of them over the privacy unit's bound" if report.over_unit else ""
    out.print(
        printable(f"{report.dataset}: {report.source_rows:,} rows, {report.encoded_rows:,} encoded, {lost}{over}")
    )
    rows = []
    for name, column in schema.columns.items():
        start = f"columns.{name}."
        waiting = ", ".join(one.removeprefix(start) for one in report.unreviewed if one.startswith(start))
        clamped = f"{report.clamped[name]:,}" if name in report.clamped else ""
        rows.append([name, describe(column), f"{report.left_out[name]:,}", clamped, waiting])
    print_table(out, ["column", "domain", "left out >", "clamped >", "unreviewed"], rows)
    for one in report.advice:
        out.print(printable(f"Note: {one}"))
    for one in report.problems:
        out.print(printable(f"Not ready: {one}"), style="red")
    if report.ready:
        out.print(printable(f"Ready. Next: pinq grant {policy} ANALYST --epsilon 1.0"), style="green")
    out.print(printable("These numbers are exact: they are for the provider's eyes only."), style="dim")


def _print_preview(found: Any, as_json: bool) -> None:
    if as_json:
        numbers = {"cost": float(found.cost), "remaining": float(found.remaining), "refused": found.remaining < 0}
        print_json(numbers | {"accuracy": found.error, "scale": found.scale})
    else:
        typer.echo(printable(repr(found)))


def _print_answer(handle: PrivateQueryable, asked: Any, answer: Any, expected: str, as_json: bool) -> None:
    """Numbers to standard output; what they cost and how exact they are to standard error."""
    import numpy as np

    from pinq.provider.report.terminal import print_table

    budget = handle.budget
    if asked is handle:
        heads, rows = [], [[answer]]
    else:
        frame = asked.frame(answer)
        heads, rows = [str(name) for name in frame.columns[:-1]], frame.astype(object).to_numpy().tolist()
    if as_json:
        values = [
            {"part": dict(zip(heads, (_json(label) for label in row[:-1]), strict=True)), "value": _json(row[-1])}
            for row in rows
        ]
        money = {name: float(getattr(budget, name)) for name in ("epsilon", "spent", "remaining")}
        print_json(
            ({"value": values[0]["value"]} if asked is handle else {"values": values})
            | {"accuracy": expected, "budget": money}
        )
        return
    if asked is handle:
        typer.echo(printable(_shown(answer)))
    else:
        last = "answer >" if isinstance(answer, np.ndarray) else "answer"
        print_table(console(), [*heads, last], [[_shown(label) for label in row] for row in rows])
    typer.echo(printable(f"{expected}; {budget!r}"), err=True)


def _json(value: Any) -> Any:
    """A label, a number or a chosen spec as plain values."""
    if isinstance(value, (list, tuple)):
        return [_json(one) for one in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _json(getattr(value, name)) for name in value.__dataclass_fields__}
    return value.item() if hasattr(value, "item") else value


def _shown(value: Any) -> str:
    if value is None:
        return "(missing)"
    if isinstance(value, float):
        return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.0f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_shown(one) for one in value)
    return repr(value) if hasattr(value, "__dataclass_fields__") else str(value)


if __name__ == "__main__":
    main()
