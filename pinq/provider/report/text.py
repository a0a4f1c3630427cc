# SPDX-License-Identifier: Apache-2.0
"""Texts for people, in a terminal and on a page: names as they print, moments, losses."""

from __future__ import annotations

from datetime import datetime

from pinq.public.epsilon import Epsilon

__all__ = ["amount", "bar", "printable", "when"]


def printable(text: str) -> str:
    """Shows each character that does not print (controls, marks of direction) as an escape."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def when(moment: str | datetime) -> str:
    """Shows a moment to the second, in UTC; the end of a day as that day."""
    at = str(moment)
    return at[:10] if at[11:19] == "23:59:59" else at[:19].replace("T", " ")


def amount(loss: Epsilon | None) -> str:
    """Shows a loss, or nothing where there is none."""
    return "" if loss is None else str(loss)


def bar(spent: Epsilon, limit: Epsilon, width: int = 10) -> str:
    """Draws how much of a limit is used: ``━━━━──────``. Full only when nothing is left."""
    used = 0 if not limit else min(width, spent.nano * width // limit.nano)
    return "━" * used + "─" * (width - used)
