# SPDX-License-Identifier: Apache-2.0
"""What every command of ``pinq`` shares: its words, its errors, how an account is printed."""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec

import typer

from pinq.errors import PinqError
from pinq.provider.report.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from pinq.ledger.signature import Signature
    from pinq.provider.grants import GrantReport

__all__ = [
    "PARAMETERS",
    "Analyst",
    "AsJson",
    "Because",
    "Expires",
    "PolicyFile",
    "argument",
    "console",
    "fail",
    "guarded",
    "option",
    "print_account",
    "print_json",
    "signed",
]


P = ParamSpec("P")

# What the command line calls Python's parameters.
PARAMETERS = {
    "analyst": "ANALYST",
    "because": "--because",
    "candidates": "--candidate",
    "epsilon": "--epsilon",
    "expires": "--expires",
    "insecure_http": "--insecure-http",
    "max_epsilon_per_query": "--max-epsilon",
    "queries_per_minute": "--per-minute",
    "reuse": "`reuse=True` from Python",
    "token": "the token",
    "url": "the URL",
    "verify": "--verify",
}

# What is not installed, by the extra that brings it.
EXTRAS = {
    "provider": ("This needs the provider's side", ("duckdb", "opendp", "sqlalchemy", "yaml")),
    "server": (
        "This needs the server",
        ("fastapi", "fastapi_offline", "uvicorn", "prometheus_client", "starlette", "jinja2"),
    ),
    "secure": ("Computing among several parties needs MPyC", ("mpyc", "gmpy2")),
    "postgresql": ("A ledger in PostgreSQL needs its driver", ("psycopg",)),
}


def argument(metavar: str, help: str) -> Any:
    """A positional argument."""
    return typer.Argument(metavar=metavar, help=help, show_default=False)


def option(*names: str, metavar: str, help: str, panel: str | None = None) -> Any:
    """An option with a value."""
    return typer.Option(*names, metavar=metavar, help=help, show_default=False, rich_help_panel=panel)


PolicyFile = Annotated[Path, argument("POLICY", "The policy file.")]
Analyst = Annotated[str, argument("ANALYST", "Whose grant it is.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Because = Annotated[str, option("--because", metavar="TEXT", help="Why. It stands in the log, beside who you are.")]
Expires = Annotated[
    str | None,
    option("--expires", metavar="DATE", help="Until 2030-01-31 (all of that day, UTC), or 2030-01-31T18:00Z."),
]


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Makes a command print an error as one line and end with an exit status.

    What is not ours is named by its type alone: its text could quote a row.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except PinqError as error:
            head, *items = (line.strip() for line in error.worded(PARAMETERS).splitlines())
            fail(f"{head} {'; '.join(items)}".rstrip())
        except BrokenPipeError:  # the reader had enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError as error:
            fail(f"{error.filename or 'A file'}: {error.strerror or 'cannot be used'}.")
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except ModuleNotFoundError as error:
            _fail_unexpectedly(error, _missing(error.name))
        except Exception as error:
            _fail_unexpectedly(error)

    return run


def fail(message: str) -> NoReturn:
    """Ends the command with one line."""
    typer.echo(f"Error: {printable(message)}", err=True)
    raise typer.Exit(1) from None


def _fail_unexpectedly(error: Exception, known: str = "") -> NoReturn:
    """Ends the command; what is not known by a text of ours goes to the log of details."""
    if not known:
        logging.getLogger("pinq.cli.main").exception("the command failed")
    fail(
        known
        or f"Something unexpected went wrong ({type(error).__name__}). Please report it; PINQ_LOG=FILE "
        f"keeps details, which may quote data."
    )


def _missing(module: str | None) -> str:
    """Says what to install for a module; empty for one that no extra brings."""
    for extra, (need, modules) in EXTRAS.items():
        if module in modules:
            return f"{need}: pip install 'pinq-miners[{extra}]'"
    return ""


def console(file: Any = None) -> Console:
    """Where tables go."""
    from rich.console import Console

    out = file or sys.stdout
    # A pipe has no width; tables cut to 80 columns would lose names.
    return Console(file=out, width=None if out.isatty() else 140, highlight=False, markup=False, emoji=False)


def print_json(content: dict[str, Any]) -> None:
    """For scripts."""
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))


def signed(because: str) -> Signature:
    """Who runs this command, and why."""
    from pinq.ledger.signature import here

    return here(because)


def until(one: GrantReport) -> str:
    """When a grant ends."""
    from pinq.provider.report.text import when

    return when(one.expires) if one.expires else "never"


def print_account(one: GrantReport, done: str, as_json: bool) -> None:
    """An account after a change; a new token alone on the last line, so that a script can take it."""
    from pinq.ledger.terms import FREE

    if as_json:
        print_json(one.to_dict() | {"warnings": list(one.warnings)})
    else:
        ends = "" if one.expires is None or done == "revoked" else f", until {until(one)} (UTC)"
        terms = "" if one.terms == FREE else f"; {one.terms}"
        numbers = f"limit {one.limit}, spent {one.spent}, remaining {one.remaining}"
        typer.echo(printable(f"{one.analyst}: {done}. {numbers}{ends}{terms}"))
        if one.token:
            typer.echo(one.token)
            typer.echo(
                "The token is kept nowhere and shown only now: pass it on over a safe channel. `pinq token` "
                "issues another.",
                err=True,
            )
    for warning in one.warnings:
        typer.echo(f"Warning: {printable(warning)}", err=True)
