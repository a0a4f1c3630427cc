# SPDX-License-Identifier: Apache-2.0
"""The command ``pinq selftest``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pinq.cli.base import AsJson, console, guarded, option
from pinq.errors import printable

if TYPE_CHECKING:
    from pinq.provider.selftest import Progress, Report

__all__ = ["commands"]

commands = typer.Typer()


@commands.command(rich_help_panel="Audit")
@guarded
def selftest(
    policy: Annotated[
        Path | None,
        typer.Argument(metavar="POLICY", help="Test its columns on dummy rows, and check its source and ledger."),
    ] = None,
    named: Annotated[Path | None, typer.Option("--policy", hidden=True)] = None,
    minutes: Annotated[
        float, typer.Option("--minutes", metavar="N", help="The approximate time; a shorter test notices less.")
    ] = 10.0,
    server: Annotated[bool, typer.Option("--server", help="Test through a server that is started for it.")] = False,
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
    from pinq.provider.selftest import selftest as measure

    if report is not None and report.suffix not in (".json", ".html"):
        raise typer.BadParameter("must end in .json or .html", param_hint="--report")
    with _Bar(quiet=as_json) as bar:
        seen = measure(policy or named, minutes=minutes, server=server, progress=bar.show)
    if report is not None:
        report.write_text(seen.to_html() if report.suffix == ".html" else seen.to_json() + "\n", encoding="utf-8")
        typer.echo(printable(f"Wrote {report}."), err=True)
    if as_json:
        typer.echo(seen.to_json())
    else:
        _print(seen)
    if not seen.holds:
        raise typer.Exit(1)


class _Bar:
    """A bar on the error stream that follows the test, where somebody looks at it."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import Progress as Bar

        screen = Console(stderr=True)
        self._bar = Bar(console=screen, disable=quiet or not screen.is_terminal, transient=True)
        self._task = self._bar.add_task("starting", total=None)

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, progress: Progress) -> None:
        """Moves the bar."""
        self._bar.update(self._task, total=progress.total, completed=progress.done, description=progress.what)


def _print(seen: Report) -> None:
    from pinq.provider.report.terminal import print_table

    screen = console()
    for title, heads, rows in seen.tables():
        print_table(screen, heads, rows, title)
    if seen.left_out:
        screen.print(f"Not done: {'; '.join(seen.left_out)}.")
    verdict = "Nothing was refuted." if seen.holds else "A claim was refuted: do not release answers."
    screen.print(f"{verdict} {seen.power} pinq {seen.version}, {seen.through}, {seen.seconds / 60:.1f} minutes.")
