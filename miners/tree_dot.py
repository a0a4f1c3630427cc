# SPDX-License-Identifier: Apache-2.0
"""A fitted tree in Graphviz's DOT language.

Words of the schema stand in HTML-like labels only, where XML's escapes are all there is; in quoted text a backslash begins an escape of Graphviz's own.
"""

from __future__ import annotations

from html import escape

from miners.tree_sketch import Card, Sketch, colour, shorten

__all__ = ["dot"]

BAR, HIGH = 96, 9  # points
CLASSES = 12  # in the legend
LABEL = 28  # characters
INK, PALE, LINE, GREY = "#222222", "#6b6b6b", "#b5bcc7", "#dddddd"
FONT = 'fontname="Helvetica,Arial,sans-serif"'


def dot(picture: Sketch) -> str:
    """The tree as a directed graph whose nodes are little tables: the classes as a bar, rows, and question or vote."""
    lines = [
        "digraph tree {",
        f'  graph [rankdir=LR, ordering=out, ranksep=0.45, nodesep=0.12, labelloc=t, labeljust=l, {FONT}, fontcolor="{INK}", label={_legend(picture)}];',
        f'  node [shape=box, style="rounded,filled", fillcolor=white, color="{LINE}", margin="0.06,0.03", {FONT}, fontsize=11, fontcolor="{INK}"];',
        f'  edge [arrowhead=none, color="{LINE}", {FONT}, fontsize=10, fontcolor="{INK}"];',
    ]
    whole = max(picture.cards[0].rows, 1.0)
    for place in picture.walk():
        card = picture.cards[place]
        tip = _quoted(f"{card.meaning}: {card.size} rows, {card.mix}")
        lines.append(f"  n{place} [label={_label(card)}, tooltip={tip}];")
        if card.parent is not None:
            wide = 0.8 + 7 * min(1.0, card.rows / whole) ** 0.7
            name = f'<&nbsp;{escape(shorten(card.branch, LABEL))}&nbsp;>'
            lines.append(f"  n{card.parent} -> n{place} [label={name}, penwidth={wide:.2f}, tooltip={_quoted(card.meaning)}, labeltooltip={_quoted(card.meaning)}];")
    return "\n".join([*lines, "}", ""])


def _legend(picture: Sketch) -> str:
    boxes = [f'<FONT COLOR="{colour(number)}">&#9632;</FONT>&nbsp;{escape(shorten(name, LABEL))}' for number, name in enumerate(picture.classes[:CLASSES])]
    more = [f"and {len(picture.classes) - CLASSES} more"] if len(picture.classes) > CLASSES else []
    note = f'<FONT POINT-SIZE="10" COLOR="{PALE}">numbers are noisy row counts; &#177; holds the true one in 95 % of cases</FONT>'
    align = '<BR ALIGN="LEFT"/>'
    return f"<<B>{escape(picture.title)}</B>{align}{'&nbsp;&nbsp;&nbsp;'.join(boxes + more)}{align}{note}{align}>"


def _label(card: Card) -> str:
    if card.question is None:
        said = f'<FONT COLOR="{colour(card.best)}"><B>{escape(shorten(card.vote, LABEL))}</B></FONT>'
    else:
        said = f"<B>{escape(shorten(card.question, LABEL))} ?</B>"
    folded = f" &#8230; {card.hidden:,} leaves" if card.hidden else ""
    rows = f'<FONT POINT-SIZE="9" COLOR="{PALE}">{escape(card.size)} rows{folded}</FONT>'
    lines = [_bar(card), said, rows]
    return '<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="1">' + "".join(f'<TR><TD ALIGN="LEFT">{line}</TD></TR>' for line in lines) + "</TABLE>>"


def _bar(card: Card) -> str:
    """One cell for each class that can be seen, together ``BAR`` points wide; what is too thin to be seen is grey."""
    cells, total, last = [], 0.0, 0
    seen = [(colour(number), share) for number, share in enumerate(card.shares) if BAR * share >= 1]
    for shade, share in [*seen, (GREY, 1.0)]:
        total += share
        end = min(BAR, int(BAR * total + 0.5))
        if end > last:
            cells.append(f'<TD FIXEDSIZE="TRUE" WIDTH="{end - last}" HEIGHT="{HIGH}" BGCOLOR="{shade}"></TD>')
        last = end
    return f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0"><TR>{"".join(cells)}</TR></TABLE>'


def _quoted(text: str) -> str:
    """A quoted text that means itself: Graphviz undoes quotes, then backslashes, then entities."""
    return '"' + text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"') + '"'
