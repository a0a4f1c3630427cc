# SPDX-License-Identifier: Apache-2.0
"""The one place where text becomes HTML: what is not ``Html`` already is escaped.

Names and questions in the log come from strangers. A plain ``str`` can get into an element only by
way of ``escaped``, so no caller has to remember it. Templates know ``Html`` by ``__html__``.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from pinq.provider.report.audit import printable

__all__ = ["Html", "element", "escaped", "joined"]

EMPTY = frozenset({"line", "path", "rect"})  # elements of a picture that are written without an end


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()

    def __html__(self) -> Html:
        return self


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
