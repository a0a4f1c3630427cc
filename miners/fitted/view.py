# SPDX-License-Identifier: Apache-2.0
"""A fitted tree as indented text and as HTML."""

from __future__ import annotations

from html import escape

from miners.fitted.sketch import Card, Sketch, colour

__all__ = ["MOST_LINES_OF_HTML", "html", "text"]

MOST_LINES_OF_HTML = 300
BAR = 80  # pixels


def text(picture: Sketch, heading: str) -> str:
    """The tree as indented text, a line for each node."""
    lines = [heading]
    open_below: list[bool] = []  # for each level above: does its parent have more children to come?
    for place in picture.walk():
        card = picture.cards[place]
        lead = ""
        if card.parent is not None:
            last = place == picture.cards[card.parent].children[-1]
            del open_below[card.depth - 1 :]
            lead = "".join("│   " if more else "    " for more in open_below) + ("└── " if last else "├── ")
            open_below.append(not last)
        lines.append(f"{lead}{card.branch}: {_said(card)}")
    return "\n".join(lines)


def _said(card: Card) -> str:
    rows = f"{card.size} {'row' if card.size == '1' else 'rows'}"
    if card.hidden:
        return f"{card.mix}  ({rows}; {card.hidden:,} leaves below, by {card.question})"
    return f"{card.mix}  ({rows})" if card.question is None else f"{rows}, {card.mix}; split by {card.question}"


def html(picture: Sketch, heading: str) -> str:
    """The tree as nested lists that open and close, each node with a bar of its classes."""
    legend = "&ensp;".join(
        f"<span style='color:{colour(number)}'>&#9632;</span>&nbsp;{escape(name)}"
        for number, name in enumerate(picture.classes[:12])
    )
    more = f"&ensp;and {len(picture.classes) - 12} more" if len(picture.classes) > 12 else ""
    # Children come after their parents, so backwards every child is ready when its parent is
    # written.
    written: dict[int, str] = {}
    for place in reversed(picture.walk()):
        card = picture.cards[place]
        branch = f"<b title='{escape(card.meaning)}'>{escape(card.branch)}</b>"
        line = f"{_bar(card)} {branch}: {escape(card.mix)}, <span style='opacity:.65'>{escape(card.size)} rows</span>"
        if card.children:
            inner = "".join(written.pop(child) for child in card.children)
            opened = " open" if card.depth < 2 else ""
            question = f" &mdash; <i>{escape(card.question or '')}&thinsp;?</i>"
            written[place] = (
                f"<details style='margin-left:1.2em'{opened}><summary>{line}{question}</summary>{inner}</details>"
            )
        else:
            folded = (
                f" &hellip; {card.hidden:,} leaves below, by <i>{escape(card.question or '')}</i>"
                if card.hidden
                else ""
            )
            # A leaf has no triangle in front of it; its bar stands below those of its parent's
            # other children all the same.
            written[place] = f"<div style='margin-left:1.2em;padding-left:1em'>{line}{folded}</div>"
    note = "<small>&plusmn; holds the true number of rows in 95 % of cases</small>"
    return f"<div style='line-height:1.5'><p>{escape(heading)}<br>{legend}{more}<br>{note}</p>{written[0]}</div>"


def _bar(card: Card) -> str:
    """A bar of the classes; its colours need no words for those who read the vote behind it."""
    block = "display:inline-block;height:.7em"
    parts = "".join(
        f"<span style='{block};width:{BAR * share:.0f}px;background:{colour(number)}'></span>"
        for number, share in enumerate(card.shares)
        if share >= 0.01
    )
    return f"<span style='display:inline-block;width:{BAR + 2}px;white-space:nowrap' aria-hidden='true'>{parts}</span>"
