# SPDX-License-Identifier: Apache-2.0
"""The commands ``pinq audit``, ``head-key``, ``statement``, ``backup``, ``restore`` and ``selftest``."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pinq.cli.base import (
    AsJson,
    LedgerFile,
    PolicyFile,
    PolicyIfAny,
    argument,
    console,
    flag,
    guarded,
    option,
    print_json,
    print_or_write,
    require_ending,
)
from pinq.errors import printable
from pinq.provider.report.markup import print_table

if TYPE_CHECKING:
    from pinq.provider.report.audit import Audit
    from pinq.provider.selftest import Progress, Report


commands = typer.Typer()

Expected = Annotated[
    str | None,
    option(
        "--expect",
        metavar="SEQ:HASH|FILE",
        help="The last event of an earlier audit, or a signed head (with --key): the log must still have it.",
    ),
]
Certificate = Annotated[
    Path | None,
    option("--certificate", metavar="FILE", help="Verify a model's certificate against the ledger's answers instead."),
]


@commands.command(rich_help_panel="Audit")
@guarded
def audit(
    policy: PolicyIfAny = None,
    analyst: Annotated[str | None, option("--analyst", metavar="ANALYST", help="Only this analyst.")] = None,
    since: Annotated[
        str | None, option("--since", metavar="DATE", help="Only events from this day or time on.")
    ] = None,
    until: Annotated[str | None, option("--until", metavar="DATE", help="Only events up to this day or time.")] = None,
    ledger: LedgerFile = None,
    expect: Expected = None,
    head: Annotated[bool, flag("--head", help="Print the log's head, signed with the secret key of --key.")] = False,
    key: Annotated[
        Path | None, option("--key", metavar="FILE", help="The provider's key of heads; see `pinq head-key`.")
    ] = None,
    certificate: Certificate = None,
    model: Annotated[
        Path | None, option("--model", metavar="FILE", help="With --certificate: the model, as JSON.")
    ] = None,
    queries: Annotated[
        bool, flag("--questions", help="List each query instead of the acts that analysts' programs name.")
    ] = False,
    as_json: AsJson = False,
    as_csv: Annotated[bool, flag("--csv", help="Print a row for each event.")] = False,
    as_html: Annotated[bool, flag("--html", help="Print one self-contained page with a picture.")] = False,
    output: Annotated[
        Path | None,
        option(
            "-o",
            "--output",
            metavar="FILE",
            help="The file to write; its ending .json, .csv or .html selects the format.",
        ),
    ] = None,
) -> None:
    """Replay the log: spending, refusals, exhausted budgets. Verifies the chain.

    Reads the log only and changes nothing, so it needs no data and works on a copy and on a read-only
    disk. If the log was edited, cut or rolled back, it names the reason and exits with status 1.
    """
    from pinq.provider.report.audit import audit as audit_log

    if (model is None) != (certificate is None):
        raise typer.BadParameter("--certificate and --model go together")
    if certificate is not None and model is not None:
        _verify(certificate, model, policy, ledger, as_json=as_json)
        return
    if head and key is None:
        raise typer.BadParameter("--head needs a secret key: --key FILE")
    if key is not None and not head and expect is None:
        raise typer.BadParameter("--key goes with --expect FILE or with --head")
    form = _form_of({"json": as_json, "csv": as_csv, "html": as_html, "head": head}, output)
    report = audit_log(policy, analyst, ledger=ledger, since=since, until=until, expect=expect, key=key)
    _write(report, form, output, key, single=queries)


def _form_of(flags: dict[str, bool], output: Path | None) -> str:
    """The form that a flag or the ending of the file selects; both must agree."""
    forms = [name for name, is_wanted in flags.items() if is_wanted]
    if len(forms) > 1:
        raise typer.BadParameter("choose one of --json, --csv, --html and --head")
    if "head" not in forms:
        require_ending(output, *(f".{name}" for name in forms or ("txt", "json", "csv", "html")))
    ending = output.suffix[1:] if output else ""
    return next(iter(forms), ending if ending in flags else "text")


def _write(report: Audit, form: str, output: Path | None, key: Path | None, *, single: bool) -> None:
    """Writes an audit in a form, or its signed head, to a file or to standard output."""
    from pinq.provider.report.audit import Audit, print_audit
    from pinq.provider.report.html import page

    if form == "text":
        file = StringIO() if output else None
        print_audit(report, console(file), single=single)
        text = file.getvalue() if file else ""
    elif form == "head" and key is not None:
        text = report.signed(key)
    else:
        text = {"json": Audit.to_json, "csv": Audit.to_csv, "html": page}[form](report).rstrip("\n") + "\n"
    print_or_write(text, output)


def _verify(certificate: Path, model: Path, policy: Path | None, ledger: Path | None, *, as_json: bool) -> None:
    """Prints the proof that a model follows from a ledger's answers."""
    from pinq.provider.certified import verify_certificate

    verified = verify_certificate(certificate, policy, model=model, ledger=ledger)
    if as_json:
        print_json(verified.to_dict())
        return
    answers = f"{len(verified.entries):,} answers to {verified.analyst!r}, which cost epsilon {verified.loss} together"
    typer.echo(printable(f"Proved: {verified.miner} was made again, and the same, from {answers}."))
    typer.echo(f"  The log ends at {verified.head}.")


@commands.command(rich_help_panel="Audit")
@guarded
def head_key(
    file: Annotated[Path, argument("FILE", "The file of the secret key; of mode 0600.")],
    name: Annotated[
        str | None,
        option("--name", metavar="NAME", help="Make a key of this name, a domain of the provider's: hospital.example."),
    ] = None,
    output: Annotated[
        Path | None, option("-o", "--output", metavar="FILE", help="The file to write the public key to.")
    ] = None,
) -> None:
    """Make a key that signs heads of ledgers (Ed25519), and print its public key; without --name print it again."""
    from pinq.provider.heads import HeadKey

    if name is None and not file.exists():
        raise typer.BadParameter(f"there is no key {file}; to make one, say whose it is: --name hospital.example")
    public = (HeadKey.read(file) if name is None else HeadKey.create(file, name)).public
    print_or_write(f"{public}\n", output, "Give it to the auditors.")


@commands.command(rich_help_panel="Audit")
@guarded
def statement(
    policy: PolicyFile,
    as_json: AsJson = False,
    record: Annotated[bool, flag("--registry", help="The record of the public registry of deployments, YAML.")] = False,
    output: Annotated[Path | None, option("-o", "--output", metavar="FILE", help="The file to write.")] = None,
) -> None:
    """Write what is guaranteed, as one page for a data protection officer; needs no data."""
    from pinq.provider.report.statement import registry, statement as state

    require_ending(output, *((".yaml", ".yml") if record else (".json",) if as_json else (".html", ".htm")))
    text = registry(policy) if record else state(policy).to_json() + "\n" if as_json else state(policy).to_html()
    print_or_write(text, output)


@commands.command(rich_help_panel="Audit")
@guarded
def backup(
    policy: PolicyFile,
    file: Annotated[Path, argument("FILE", "The file of the copy; a head file is written beside it.")],
) -> None:
    """Copy the ledger, also while it is in use, and print its last event.

    Keep the printed line elsewhere: `pinq audit --expect` tests whether the ledger still has it.
    """
    from pinq.provider.backup import backup as back_up

    typer.echo(back_up(policy, file))


@commands.command(rich_help_panel="Audit")
@guarded
def restore(
    policy: PolicyFile,
    file: Annotated[Path, argument("FILE", "The file that `pinq backup` wrote.")],
    forget: Annotated[bool, flag("--forget", help="Restore although later spending no longer counts.")] = False,
) -> None:
    """Replace the ledger by a backup; without --forget it refuses if budget would come back."""
    from pinq.provider.backup import restore as restore_ledger

    typer.echo(printable(f"Restored; the last event is {restore_ledger(policy, file, forget=forget)}."))


@commands.command(rich_help_panel="Audit")
@guarded
def selftest(
    policy: Annotated[
        Path | None,
        typer.Argument(metavar="POLICY", help="Test its columns on dummy rows, and check its source and ledger."),
    ] = None,
    minutes: Annotated[
        float, typer.Option("--minutes", metavar="N", help="The approximate time; a shorter test notices less.")
    ] = 10.0,
    server: Annotated[bool, flag("--server", help="Test through a server that is started for it.")] = False,
    as_json: AsJson = False,
    report: Annotated[
        Path | None,
        option("--report", metavar="FILE", help="The file to write; its ending .json or .html selects the format."),
    ] = None,
) -> None:
    """Measure the real privacy loss of this installation, on dummy rows.

    Runs every query method, score and loss on the worst known neighbouring tables, tens of thousands of
    times, and bounds the loss from below. Compares noise and selections with their exact distributions,
    and guesses rows from fitted models. Exit status 1 if a claim is refuted. Your own rows are not
    queried; the source is compared with its policy.
    """
    from rich.console import Console
    from rich.progress import Progress as Bar

    from pinq.provider.selftest import selftest as measure

    require_ending(report, ".json", ".html", name="--report")
    screen = Console(stderr=True)
    # The bar shows progress on a terminal only.
    with Bar(console=screen, disable=as_json or not screen.is_terminal, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def show(progress: Progress) -> None:
            bar.update(task, total=progress.total, completed=progress.done, description=progress.name)

        result = measure(policy, minutes=minutes, server=server, progress=show)
    if report is not None:
        print_or_write(result.to_html() if report.suffix == ".html" else result.to_json() + "\n", report)
    if as_json:
        typer.echo(result.to_json())
    else:
        _print(result)
    if not result.holds:
        raise typer.Exit(1)


def _print(report: Report) -> None:
    screen = console()
    for title, heads, rows in report.tables():
        print_table(screen, heads, rows, title)
    if report.left_out:
        screen.print(f"Not done: {'; '.join(report.left_out)}.")
    verdict = "Nothing was refuted." if report.holds else "A claim was refuted: do not release answers."
    screen.print(
        f"{verdict} {report.power} pinq {report.version}, {report.through}, {report.seconds / 60:.1f} minutes."
    )
