# SPDX-License-Identifier: Apache-2.0
"""The common parts of all ``pinq`` commands: declarations of options, printing of errors."""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, ParamSpec, TextIO

import typer
from typer.models import ArgumentInfo, OptionInfo

from pinq.errors import PinqError, printable
from pinq.public.plugins import extra_of, install_line

if TYPE_CHECKING:
    from rich.console import Console


P = ParamSpec("P")

# The command line's names of Python's parameters.
PARAMETERS = {
    "analyst": "ANALYST",
    "bins": "--bins",
    "columns": "COLUMN",
    "dialect": "the dialect",
    "k": "--most",
    "margins": "--margins",
    "per_call": "--per-call",
    "per_session": "--per-session",
    "query": "the statement",
    "share": "--share",
    "shares": "--share",
    "because": "--because",
    "candidates": "--candidate",
    "cohort": "COHORT",
    "epsilon": "--epsilon",
    "expect": "--expect",
    "expires": "--expires",
    "insecure_http": "--insecure-http",
    "level": "--level",
    "fewest": "--fewest",
    "minutes": "--minutes",
    "origin": "--origin",
    "name": "--name",
    "max_epsilon_per_query": "--max-epsilon",
    "queries_per_minute": "--per-minute",
    "since": "--since",
    "table": "--table",
    "stored_bytes": "--stored-bytes",
    "until": "--until",
    "reuse": "`reuse=True` from Python",
    "token": "the token",
    "url": "the URL",
    "verify": "--verify",
    "work_per_minute": "--work-per-minute",
}


def argument(metavar: str, help: str) -> ArgumentInfo:
    """Declares a positional argument."""
    return typer.Argument(metavar=metavar, help=help, show_default=False)


def option(*names: str, metavar: str, help: str, panel: str | None = None) -> OptionInfo:
    """Declares an option with a value."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, rich_help_panel=panel)


def flag(*names: str, help: str) -> OptionInfo:
    """Declares an option without a value, so its help names no type."""
    return option(*names, metavar="", help=help)


LedgerFile = Annotated[
    Path | None,
    option("--ledger", metavar="FILE", help="Read this ledger: a copy, or one without a policy. Nothing is written."),
]
PolicyFile = Annotated[Path, argument("POLICY", "The policy file.")]
PolicyIfAny = Annotated[Path | None, argument("[POLICY]", "The policy file.")]
AsJson = Annotated[bool, flag("--json", help="Print JSON, for scripts.")]


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Makes a command print an error as one line and end with an exit status.

    An error of another library is shown by its type alone, because its text could quote a row.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except PinqError as error:
            head, *items = (line.strip() for line in error.worded(PARAMETERS).splitlines())
            fail(f"{head} {'; '.join(items)}".rstrip())
        except BrokenPipeError:  # the reader closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError as error:
            fail(f"{error.filename or 'A file'}: {error.strerror or 'cannot be used'}.")
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except ModuleNotFoundError as error:
            _fail_unexpectedly(error, _missing(error))
        except Exception as error:
            _fail_unexpectedly(error)

    return run


def in_notebook() -> bool:
    """Whether this is a notebook's ``!pinq``, which has a terminal without a person."""
    return sys.stdin.isatty() and "JPY_PARENT_PID" in os.environ


def can_ask() -> bool:
    """Whether a person can answer a question."""
    return sys.stdin.isatty() and not in_notebook()


def fail(message: str, shown: Sequence[str] = ()) -> NoReturn:
    """Ends the command with one line, followed by values that help to decide."""
    typer.echo("\n".join([f"Error: {printable(message)}", *map(printable, shown)]), err=True)
    raise typer.Exit(1) from None


def _fail_unexpectedly(error: Exception, advice: str = "") -> NoReturn:
    """Ends the command; an error without advice is logged in detail."""
    if not advice:
        logging.getLogger("pinq.cli.main").exception("the command failed")
    fail(
        advice
        or f"Something unexpected went wrong ({type(error).__name__}). Please report it; PINQ_LOG=FILE "
        f"keeps details, which may quote data."
    )


def _missing(error: ModuleNotFoundError) -> str:
    """The installation advice for a module; empty if no extra has it."""
    extra = extra_of(error.name)
    if extra is None:
        return ""
    line = install_line(extra)
    return str(error) if line in str(error) else f"This needs {error.name}: {line}"


def console(file: TextIO | None = None) -> Console:
    """Makes a console for tables, by default on standard output."""
    from rich.console import Console

    out = file or sys.stdout
    # A pipe has no width, and tables of 80 columns would lose names.
    return Console(file=out, width=None if out.isatty() else 140, highlight=False, markup=False, emoji=False)


def print_lines(text: object) -> None:
    """Prints a text of several lines; unprintable characters within a line are escaped."""
    typer.echo("\n".join(map(printable, str(text).splitlines())))


def print_or_write(text: str, output: Path | None, advice: str = "", shown: Sequence[str] = ()) -> None:
    """Prints a text; or writes it to a file, and prints advice and further lines."""
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        message = f"Wrote {output}. {advice}".rstrip()
        typer.echo("\n".join(map(printable, [message, *shown])), err=True)


def require_ending(output: Path | None, *endings: str, name: str = "--output") -> None:
    """Refuses an output file with another ending than these."""
    if output is not None and output.suffix.lower() not in ("", *endings):
        raise typer.BadParameter(f"{output} must end in {' or '.join(endings)}", param_hint=name)


def print_json(content: object) -> None:
    """Prints plain values, for scripts."""
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))
