# SPDX-License-Identifier: Apache-2.0
"""Texts for people: names, times, losses and tables; and the only place where text becomes HTML.

A plain ``str`` gets into an element only through ``escaped``, so no caller can forget to escape names and queries,
which come from strangers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING

from pinq.errors import printable

if TYPE_CHECKING:
    from rich.console import Console

    from pinq.public.epsilon import Epsilon


EMPTY = frozenset({"line", "path", "rect"})  # SVG elements without content


def when(moment: str | datetime) -> str:
    """Shows a moment to the second, in UTC; the end of a day as the date alone."""
    at = str(moment)
    return at[:10] if at[11:19] == "23:59:59" else at[:19].replace("T", " ")


def amount(loss: Epsilon | None) -> str:
    """Shows four figures of a loss; empty for None."""
    return "" if loss is None else loss.figures


def bar(spent: Epsilon, limit: Epsilon, width: int = 10) -> str:
    """Draws the used share of a limit: ``━━━━──────``. Full only if nothing remains."""
    used = 0 if not limit else min(width, spent.nano * width // limit.nano)
    return "━" * used + "─" * (width - used)


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(text: str) -> Html:
    """Returns a text as HTML; unprintable characters show as escapes."""
    return text if isinstance(text, Html) else Html(escape(printable(text)))


def joined(pieces: Iterable[str], between: str = "") -> Html:
    """Puts pieces together, each escaped unless it is HTML."""
    return Html(escaped(between).join(map(escaped, pieces)))


def element(tag: str, *children: str, **attributes: str | float | None) -> Html:
    """Makes an element; attributes have ``_`` for ``-`` and ``class_`` for ``class``, and None omits one."""
    written = "".join(
        f" {name.rstrip('_').replace('_', '-')}='{escaped(str(value))}'"
        for name, value in attributes.items()
        if value is not None
    )
    return Html(f"<{tag}{written}/>" if tag in EMPTY else f"<{tag}{written}>{joined(children)}</{tag}>")


def print_table(
    console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], title: str = "", *, limit: int | None = None
) -> None:
    """Prints a table of plain texts, at most ``limit`` last rows; prints nothing without rows.

    `` >`` after a head means numbers, on the right, `` ~`` texts, which may wrap.

    Names are never read as markup, and control characters show as escapes.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    hidden = 0 if limit is None else max(0, len(rows) - limit)
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
