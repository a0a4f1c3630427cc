# SPDX-License-Identifier: Apache-2.0
"""This module writes a fitted tree as indented text and as HTML."""

from __future__ import annotations

from html import escape

from miners.fitted.sketch import NodeCard, Sketch, colour

__all__ = ["MAX_HTML_LINES", "html", "text"]

MAX_HTML_LINES = 300
BAR = 80  # pixels
CLASSES = 12  # that the legend names


def text(picture: Sketch, heading: str) -> str:
    """Returns the tree as indented text, a line for each node."""
    lines = [heading]
    open_below: list[bool] = []  # for each level above: does its parent have more children to come?
    for index in picture.walk():
        card = picture.cards[index]
        lead = ""
        if card.parent is not None:
            last = index == picture.cards[card.parent].children[-1]
            del open_below[card.depth - 1 :]
            above = "".join("│   " if more else "    " for more in open_below)
            lead = above + ("└── " if last else "├── ")
            open_below.append(not last)
        lines.append(f"{lead}{card.branch}: {_line(card)}")
    return "\n".join(lines)


def _line(card: NodeCard) -> str:
    """Returns what a line of text tells about a node, after its branch."""
    rows = f"{card.size} {'row' if card.size == '1' else 'rows'}"
    if card.hidden:
        return f"{card.mix}  ({rows}; {card.hidden:,} leaves below, by {card.question})"
    return f"{card.mix}  ({rows})" if card.question is None else f"{rows}, {card.mix}; split by {card.question}"


def html(picture: Sketch, heading: str) -> str:
    """Returns the tree as nested lists that open and close, each node with a bar of its classes."""
    legend = "&ensp;".join(
        f"<span style='color:{colour(number)}'>&#9632;</span>&nbsp;{escape(name)}"
        for number, name in enumerate(picture.classes[:CLASSES])
    )
    more = f"&ensp;and {len(picture.classes) - CLASSES} more" if len(picture.classes) > CLASSES else ""
    # Children come after their parents, so backwards every child is ready when its parent is
    # written.
    written: dict[int, str] = {}
    for index in reversed(picture.walk()):
        card = picture.cards[index]
        below = "".join(written.pop(child) for child in card.children)
        written[index] = _inner(card, below) if card.children else _end(card)
    note = "<small>&plusmn; holds the true number of rows in 95 % of cases</small>"
    return f"<div style='line-height:1.5'><p>{escape(heading)}<br>{legend}{more}<br>{note}</p>{written[0]}</div>"


def _inner(card: NodeCard, below: str) -> str:
    """Returns a node that opens and closes what is below it."""
    opened = " open" if card.depth < 2 else ""
    question = f" &mdash; <i>{escape(card.question or '')}&thinsp;?</i>"
    summary = f"<summary>{_summary(card)}{question}</summary>"
    return f"<details style='margin-left:1.2em'{opened}>{summary}{below}</details>"


def _end(card: NodeCard) -> str:
    """Returns a leaf, or a node whose leaves are not shown."""
    folded = ""
    if card.hidden:
        folded = f" &hellip; {card.hidden:,} leaves below, by <i>{escape(card.question or '')}</i>"
    # A leaf has no triangle in front of it. The padding moves its bar below the bars of its
    # parent's other children.
    return f"<div style='margin-left:1.2em;padding-left:1em'>{_summary(card)}{folded}</div>"


def _summary(card: NodeCard) -> str:
    """Returns a node's bar, branch, vote and rows."""
    branch = f"<b title='{escape(card.meaning)}'>{escape(card.branch)}</b>"
    return f"{_bar(card)} {branch}: {escape(card.mix)}, <span style='opacity:.65'>{escape(card.size)} rows</span>"


def _bar(card: NodeCard) -> str:
    """Returns a bar of the classes, hidden from screen readers because the vote follows it."""
    block = "display:inline-block;height:.7em"
    parts = "".join(
        f"<span style='{block};width:{BAR * share:.0f}px;background:{colour(number)}'></span>"
        for number, share in enumerate(card.shares)
        if share >= 0.01
    )
    return f"<span style='display:inline-block;width:{BAR + 2}px;white-space:nowrap' aria-hidden='true'>{parts}</span>"
