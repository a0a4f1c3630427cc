# SPDX-License-Identifier: Apache-2.0
"""Texts for people: names as they print, moments and losses; and the one place where text becomes HTML.

What is not ``Html`` already is escaped.
Names and questions in the log come from strangers. A plain ``str`` can get into an element only by
way of ``escaped``, so no caller has to remember it.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from html import escape
from typing import TYPE_CHECKING

from pinq.errors import printable

if TYPE_CHECKING:
    from pinq.public.epsilon import Epsilon

__all__ = ["Html", "amount", "bar", "element", "escaped", "joined", "when"]

EMPTY = frozenset({"line", "path", "rect"})  # elements of a picture that are written without an end


def when(moment: str | datetime) -> str:
    """Shows a moment to the second, in UTC; the end of a day as that day."""
    at = str(moment)
    return at[:10] if at[11:19] == "23:59:59" else at[:19].replace("T", " ")


def amount(loss: Epsilon | None) -> str:
    """Shows the first three figures of a loss, or nothing where there is none."""
    return "" if loss is None else loss.figures


def bar(spent: Epsilon, limit: Epsilon, width: int = 10) -> str:
    """Draws how much of a limit is used: ``━━━━──────``. Full only when nothing is left."""
    used = 0 if not limit else min(width, spent.nano * width // limit.nano)
    return "━" * used + "─" * (width - used)


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(text: str) -> Html:
    """Returns a text as HTML; what does not print shows as an escape."""
    return text if isinstance(text, Html) else Html(escape(printable(text)))


def joined(pieces: Iterable[str], between: str = "") -> Html:
    """Puts pieces together, each escaped unless it is HTML."""
    return Html(escaped(between).join(map(escaped, pieces)))


def element(tag: str, *children: str, **attributes: str | float | None) -> Html:
    """Makes an element.

    Args:
        tag: Its name.
        children: What stands in it, escaped unless it is HTML.
        attributes: By name, with ``_`` for ``-``, and ``class_`` for ``class``; None leaves it out.
    """
    written = "".join(
        f" {name.rstrip('_').replace('_', '-')}='{escaped(str(value))}'"
        for name, value in attributes.items()
        if value is not None
    )
    return Html(f"<{tag}{written}/>" if tag in EMPTY else f"<{tag}{written}>{joined(children)}</{tag}>")
