# SPDX-License-Identifier: Apache-2.0
"""The commands ``pinq sql`` and ``pinq mcp``: statements and agents instead of verbs.

Both are the package ``miners``', which this side of the wall may not import: it is found as the
package that is registered under that name.
"""

from __future__ import annotations

from typing import Annotated

import typer

from pinq.cli import ask
from pinq.cli.base import AsJson, argument, guarded, option, print_lines
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
