# SPDX-License-Identifier: Apache-2.0
"""Tables for a terminal: any table, and those of an audit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pinq.errors import printable
from pinq.provider.report.markup import amount, bar, when

if TYPE_CHECKING:
    from rich.console import Console

    from pinq.provider.report.audit import Audit

__all__ = ["print_audit", "print_table"]

RECENT = 20


def print_table(
    console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", *, most: int | None = None
) -> None:
    """Prints a table of plain texts, or nothing where it has no rows.

    Names are never read as markup, and control characters show as escapes.

    Args:
        console: Where it goes.
        heads: Names of the columns; `` >`` after a name means numbers, on the right, `` ~`` texts.
        rows: A text for each column.
        title: What stands above it.
        most: Only so many rows are shown, the last ones.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    hidden = 0 if most is None else max(0, len(rows) - most)
    heading = Text(title, style="bold") if title else None
    table = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        name = Text(printable(head.removesuffix(" >").removesuffix(" ~")))
        table.add_column(name, justify="right" if head.endswith(" >") else "left", overflow="fold")
    for row in rows[hidden:]:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table)
    if hidden:
        console.print(f"... after {hidden:,} earlier ones; --csv has them all.")


def print_audit(audit: Audit, console: Console, *, single: bool = False) -> None:
    """Prints an audit as tables; with ``single`` each question by itself."""
    _print_head(audit, console)
    _print_analysts(audit, console)
    for title, heads, lines, _ in audit.tables(single=single):
        print_table(console, heads, [line.cells(heads) for line in lines], title, most=RECENT)


def _print_head(audit: Audit, console: Console) -> None:
    """Prints whose audit it is, what the cap leaves, and that the chain was verified."""
    from rich.text import Text

    together = audit.together
    console.print(
        Text.assemble(
            ("Audit of ", "bold"),
            (printable(audit.dataset), "bold"),
            f" for {printable(audit.only)}" if audit.only else "",
            f", {audit.period}" if audit.period else "",
            f"\nall analysts together: {amount(together.spent)} of {together.cap} spent, ",
            f"{amount(together.remaining)} remains under the cap, which counts {together.counts}",
            "\nchain: ",
            ("verified", "green"),
            f", {audit.events:,} events, last {audit.head[:16]}",
            f"\nledger: {printable(audit.ledger)}",
        )
    )


def _print_analysts(audit: Audit, console: Console) -> None:
    budgets = ["limit >", "spent >", "remaining >", "used"]
    requests = ["answered >", "refused >", "unanswered >", "first", "last"]
    rows = [
        [
            account.analyst,
            account.state,
            amount(account.limit),
            amount(account.spent),
            amount(account.remaining),
            bar(account.spent, account.limit),
            f"{account.answered:,}",
            f"{account.refused.total():,}",
            f"{account.unanswered:,}",
            when(account.first),
            when(account.last),
        ]
        for account in audit.accounts.values()
    ]
    print_table(console, ["analyst", "state", *budgets, *requests], rows, "Analysts")
