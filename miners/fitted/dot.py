# SPDX-License-Identifier: Apache-2.0
"""This module writes a fitted tree in Graphviz's DOT language.

Words of the schema stand in HTML-like labels, where they need XML's escapes, and in tips. In both a
backslash begins an escape of Graphviz's own.
"""

from __future__ import annotations

from html import escape

from miners.fitted.sketch import NodeCard, Sketch, colour, shorten

__all__ = ["dot"]

BAR, HIGH = 96, 9  # points
CLASSES = 12  # that the legend names
LABEL = 28  # characters
INK, PALE, LINE, GREY = "#222222", "#6b6b6b", "#b5bcc7", "#dddddd"
FONT = 'fontname="Helvetica,Arial,sans-serif"'


def dot(picture: Sketch) -> str:
    """Returns the tree as a directed graph whose nodes are small tables.

    A table holds the branch that leads to the node, its classes as a bar, its question or vote, and
    its rows. The branch stands in the node and not at its edge: in a wide fan nobody could tell
    which edge a word belongs to.
    """
    lines = [
        "digraph tree {",
        "  graph [rankdir=LR, ordering=out, ranksep=0.7, nodesep=0.1, labelloc=t, labeljust=l, "
        f'{FONT}, fontcolor="{INK}", label={_legend(picture)}];',
        f'  node [shape=box, style="rounded,filled", fillcolor=white, color="{LINE}", margin="0.06,0.03", '
        f'{FONT}, fontsize=11, fontcolor="{INK}"];',
        f'  edge [arrowhead=none, color="{LINE}", tailport=e, headport=w];',
    ]
    whole = max(picture.cards[0].rows, 1.0)
    for index in picture.walk():
        card = picture.cards[index]
        tip = _quoted(f"{card.meaning}: {card.size} rows, {card.mix}")
        lines.append(f"  n{index} [label={_label(card)}, tooltip={tip}];")
        if card.parent is not None:
            wide = 0.8 + 7 * min(1.0, card.rows / whole) ** 0.7
            lines.append(f"  n{card.parent} -> n{index} [penwidth={wide:.2f}, tooltip={_quoted(card.meaning)}];")
    return "\n".join([*lines, "}", ""])


def _legend(picture: Sketch) -> str:
    """Returns the graph's label: its title, which colour is which class, and a note."""
    boxes = [
        f'<FONT COLOR="{colour(number)}">&#9632;</FONT>&nbsp;{_words(name)}'
        for number, name in enumerate(picture.classes[:CLASSES])
    ]
    more = [f"and {len(picture.classes) - CLASSES} more"] if len(picture.classes) > CLASSES else []
    meaning = "numbers are noisy row counts; &#177; holds the true one in 95 % of cases"
    note = f'<FONT POINT-SIZE="10" COLOR="{PALE}">{meaning}</FONT>'
    classes = f'<FONT POINT-SIZE="12">{"&nbsp;&nbsp;&nbsp;".join(boxes + more)}</FONT>'
    title = f"<B>{_words(picture.title, 120)}</B>"
    return "<" + "".join(f'{line}<BR ALIGN="LEFT"/>' for line in (title, classes, note)) + ">"


def _label(card: NodeCard) -> str:
    """Returns the table that stands in a node."""
    if card.question is None:
        answer = f'<FONT COLOR="{colour(card.best)}"><B>{_words(card.vote)}</B></FONT>'
    else:
        answer = f"<B>{_words(card.question)} ?</B>"
    folded = f" &#8230; {card.hidden:,} leaves" if card.hidden else ""
    rows = f'<FONT POINT-SIZE="9" COLOR="{PALE}">{_words(card.size)} rows{folded}</FONT>'
    branch = f'<FONT POINT-SIZE="10">{_words(card.branch)}</FONT>'
    lines = [branch, _bar(card), answer, rows]
    return (
        '<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="1">'
        + "".join(f'<TR><TD ALIGN="LEFT">{line}</TD></TR>' for line in lines)
        + "</TABLE>>"
    )


def _bar(card: NodeCard) -> str:
    """Returns a bar with one cell for each class that can be seen; the rest of it is grey.

    All cells together are ``BAR`` points wide. Each ends where the sum of shares so far ends, so
    that rounding does not add up.
    """
    cells, total, last = [], 0.0, 0
    seen = [(colour(number), share) for number, share in enumerate(card.shares) if BAR * share >= 1]
    for shade, share in [*seen, (GREY, 1.0)]:
        total += share
        end = min(BAR, int(BAR * total + 0.5))
        if end > last:
            cells.append(f'<TD FIXEDSIZE="TRUE" WIDTH="{end - last}" HEIGHT="{HIGH}" BGCOLOR="{shade}"></TD>')
        last = end
    size = f'FIXEDSIZE="TRUE" WIDTH="{BAR}" HEIGHT="{HIGH}" ALIGN="LEFT"'  # so that a wider node does not stretch it
    return f'<TABLE {size} BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0"><TR>{"".join(cells)}</TR></TABLE>'


def _words(text: str, length: int = LABEL) -> str:
    """Returns a text as an HTML-like label writes it."""
    return escape(shorten(text, length)).replace("\\", "\\\\")


def _quoted(text: str) -> str:
    """Returns a text in quotes. Graphviz undoes quotes, then backslashes, then entities."""
    return '"' + text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"') + '"'
