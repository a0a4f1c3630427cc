# SPDX-License-Identifier: Apache-2.0
"""The commands ``pinq sql`` and ``pinq mcp``: statements and agents instead of verbs.

Both are the package ``miners``', which this side of the wall may not import: it is found as the
package that is registered under that name.
"""

from __future__ import annotations

from typing import Annotated

import typer

from pinq.cli import ask
from pinq.cli.base import AsJson, argument, guarded, print_lines
from pinq.cli.table import Level, Reuse, print_made
from pinq.public.plugins import room_of_miners

__all__ = ["commands"]

commands = typer.Typer()


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
        print_made(made, handle, as_json)
    else:
        print_lines(made)
