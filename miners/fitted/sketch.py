# SPDX-License-Identifier: Apache-2.0
"""The common content of all pictures of a tree, in words and proportions.

Words of the schema in Graphviz's HTML-like labels need XML's escapes, and in labels and tips a backslash begins an
escape of Graphviz.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from miners.fitted.node import Node, Target
from miners.pictures import CLASSES, INK, LABEL, LINE, PALE, colour, shorten
from pinq.errors import QueryError
from pinq.language.specs import Groups, bind
from pinq.public.checks import is_whole, many, text_of
from pinq.public.schema import Numeric, Schema

MIXED = 3  # classes that are named where there are more than two
NAME = 24  # characters of a class's name in a vote
COUNTED = "numbers are noisy row counts; ± contains the true count in 95 % of cases"
AS_ABOVE = ", as above"  # behind the vote of a node that answers like its parent


@dataclass(frozen=True)
class NodeCard:
    """The content of a picture about one node.

    Attributes:
        branch: The test that leads to it: ``Female``, ``30 to < 45``, ``Wife, Husband``, ``others (4)``,
            ``missing``; ``all rows`` for the root.
        meaning: The same, with the names of the others.
        question: The column of the node's split; None at a leaf.
        probabilities: Class probabilities; for a numeric target the position of its mean between the bounds, from 0 to
            1; empty without counts.
        best: The likeliest class.
        vote: The class and its probability, a long name shortened: ``>50K 74%``; or the mean. ``>50K 74%, as above``
            for a noise-dominated node.
        mix: The same in full; the three likeliest of more than two classes; or the mean with its 95 % interval.
        rows: Estimated number of rows; 0 without counts.
        size: The same as text, with the half-width of its 95 % interval if the noise is known: ``1,204 ±33``; empty
            without counts.
        hidden: The number of leaves below that are not shown.
    """

    parent: int | None
    depth: int
    branch: str
    meaning: str
    question: str | None
    probabilities: tuple[float, ...]
    best: int
    vote: str
    mix: str
    rows: float
    size: str
    children: tuple[int, ...]
    hidden: int

    @property
    def counted(self) -> str:
        """The size with its noun; empty without counts."""
        return self.size and f"{self.size} {'row' if self.size == '1' else 'rows'}"


@dataclass(frozen=True)
class Sketch:
    """A tree, or its upper levels, as pictures show it.

    Attributes:
        title: Target, depth and leaves of the whole tree, and the number of shown levels.
        note: The meaning of the numbers at nodes, or that there are none.
        classes: The target's values as text; for a numeric target the meaning of the bars.
        cards: The shown nodes, by position in the tree; parents before their children.
    """

    title: str
    note: str
    classes: tuple[str, ...]
    cards: dict[int, NodeCard]

    def walk(self) -> list[int]:
        """Positions from top to bottom, each node before all nodes below it."""
        order, stack = [], [0]
        while stack:
            order.append(stack.pop())
            stack += reversed(self.cards[order[-1]].children)
        return order


def sketch(
    schema: Schema,
    target: Target,
    nodes: Sequence[Node],
    depths: Sequence[int],
    probabilities: np.ndarray,
    means: np.ndarray | None = None,
    *,
    noise_dominated: np.ndarray,
    max_depth: int | None = None,
    max_ends: int | None = None,
) -> Sketch:
    """Sketches a tree.

    Args:
        schema: The schema of the splits.
        target: The predicted column.
        nodes: The nodes; the root first, each before its children.
        depths: The splits above each.
        probabilities: Class probabilities, or the weights of the two ends of a numeric target, shape (nodes, classes);
            1 and 0 for a node with a label.
        means: Each node's mean of a numeric target and its interval, shape (nodes, 3).
        noise_dominated: The noise-dominated nodes, which predict as their parent does, shape (nodes,).
        max_depth: Levels of splits to show; deeper nodes are folded into their ancestor.
        max_ends: Without ``max_depth``: shows as many levels as have at most so many ends.
    """
    limit, leaves = _limit(nodes, depths, max_depth, max_ends), _leaves(nodes)
    classes = tuple(plain(name) for name in target.bar_names)
    names, parents, cards = {0: ("all rows", "all rows")}, dict[int, int](), {}
    for index, node in enumerate(nodes):
        if depths[index] > limit:
            continue
        is_last = depths[index] == limit
        # Parents come before their children, so a node names its children first.
        if not is_last:
            names |= zip(node.children, part_names(node, schema), strict=True)
            parents |= dict.fromkeys(node.children, index)
        # For a numeric target the weight of its upper end is shown.
        shares = probabilities[index] if means is None else probabilities[index, 1:]
        vote, mix = _votes(classes, shares) if means is None else _mean(schema.numeric(target.name), means[index])
        if node.label is not None:
            mix = "" if node.children else classes[node.label]
            vote = shorten(mix, NAME)
        above = AS_ABOVE if noise_dominated[index] else ""
        interval = node.interval()
        reach = "" if interval is None else f" ±{interval[1] - node.rows:,.0f}"
        cards[index] = NodeCard(
            parent=parents.get(index),
            depth=depths[index],
            branch=names[index][0],
            meaning=names[index][1],
            question=None if node.split is None else plain(node.split.column),
            probabilities=tuple(shares.tolist()) if node.label is None else (),
            best=int(shares.argmax()),
            vote=vote + above,
            mix=mix + above,
            rows=0.0 if node.label is not None else node.rows,
            size="" if node.label is not None else f"{node.rows:,.0f}" + reach,  # 1,204 ±33
            children=() if is_last else node.children,
            hidden=leaves[index] if is_last and not node.is_leaf else 0,
        )
    title = f"{plain(target.name)}: depth {max(depths)}, {many(leaves[0], 'leaf', 'leaves')}"
    note = COUNTED if nodes[0].label is None else "classes of leaves alone were opened, no row counts"
    return Sketch(title if limit == max(depths) else f"{title}, drawn to depth {limit}", note, classes, cards)


def _leaves(nodes: Sequence[Node]) -> list[int]:
    leaves = [1] * len(nodes)
    for index in range(len(nodes) - 1, -1, -1):
        if nodes[index].children:
            leaves[index] = sum(leaves[child] for child in nodes[index].children)
    return leaves


def _limit(nodes: Sequence[Node], depths: Sequence[int], max_depth: int | None, max_ends: int | None) -> int:
    """The number of shown levels of splits."""
    if max_depth is not None:
        if not is_whole(max_depth, 0):
            allowed = "a whole number of at least 0, or None for all"
            raise QueryError(f"is {max_depth!r}", parameter="max_depth", allowed=allowed)
        return min(max(depths), int(max_depth))
    limit = max(depths)
    # Ends of a picture of d levels: the leaves above level d, and all nodes on it. A root with a
    # leaf and a split node of two leaves has 1, 2 and 3 ends at 0, 1 and 2 levels.
    while max_ends is not None and limit > 1:
        if (
            sum(depth == limit or (depth < limit and node.is_leaf) for depth, node in zip(depths, nodes, strict=True))
            <= max_ends
        ):
            break
        limit -= 1
    return limit


def part_names(node: Node, schema: Schema) -> list[tuple[str, str]]:
    """The names of the branches below a node, each in short and in full."""
    if node.split is None:
        return []
    if not isinstance(node.split, Groups):
        return [(_value(label), _value(label)) for label in bind(node.split, schema).axes[0].labels]
    groups = node.split.groups
    full = [", ".join(_value(value) for value in group) for group in groups]
    names = [(text, text) for text in full]
    if len(full) == 2:
        # The group that is quicker to read keeps its name, and a long other one is "others (7)".
        other = max(range(2), key=lambda number: len(full[number]))
        if len(full[other]) > 32:
            names[other] = (f"others ({len(groups[other])})", full[other])
    return names


def plain(text: str) -> str:
    """A text without line breaks and other characters that do not print."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _value(label: object) -> str:
    return "missing" if label is None else plain(text_of(label))


def _votes(classes: Sequence[str], probabilities: np.ndarray) -> tuple[str, str]:
    order = np.argsort(-probabilities, kind="stable").tolist()
    votes = [f"{classes[number]} {probabilities[number]:.0%}" for number in order[:MIXED]]
    # A share below .5 % rounds to 0 %.
    others = sum(probabilities[number] >= 0.005 for number in order[1:MIXED]) if len(classes) > 2 else 0
    return f"{shorten(classes[order[0]], NAME)} {probabilities[order[0]]:.0%}", ", ".join(votes[: 1 + others])


def _mean(column: Numeric, mean: np.ndarray) -> tuple[str, str]:
    """The vote and the mix of a node of a numeric target, with as many digits as its noise allows."""
    value, low, high = mean.tolist()
    digits = _digits(high - low)
    vote = column.rounded(value, digits)
    return vote, f"mean {vote} ({column.rounded(low, digits)} to {column.rounded(high, digits)})"


def _digits(wide: float) -> int:
    """The number of digits after the point that show a tenth of an interval, at most 6.

    An interval 3 wide has 1 digit, one 0.2 wide has 2, one 400 wide has none.
    """
    return min(6, max(0, math.ceil(1 - math.log10(wide)))) if wide > 0 else 3


DOT_BAR, DOT_HIGH = 96, 9  # points
TRACK = "#dddddd"
FONT = 'fontname="Helvetica,Arial,sans-serif"'


def dot(picture: Sketch) -> str:
    """The tree as a directed graph whose nodes are small tables.

    A table has the branch to the node, its classes as a bar, its question or vote, and its rows. The branch is not at
    its edge, because in a wide fan nobody can tell to which edge a word belongs.
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
        tip = _quoted(f"{card.meaning}: {_joined(', ', card.counted, card.mix)}")
        lines.append(f"  n{index} [label={_label(card)}, tooltip={tip}];")
        if card.parent is not None:
            wide = 0.8 + 7 * min(1.0, card.rows / whole) ** 0.7
            lines.append(f"  n{card.parent} -> n{index} [penwidth={wide:.2f}, tooltip={_quoted(card.meaning)}];")
    return "\n".join([*lines, "}", ""])


def _legend(picture: Sketch) -> str:
    """The graph's label: its title, the colours of classes, and a note."""
    boxes = [
        f'<FONT COLOR="{colour(number)}">&#9632;</FONT>&nbsp;{_words(name)}'
        for number, name in enumerate(picture.classes[:CLASSES])
    ]
    more = [f"and {len(picture.classes) - CLASSES} more"] if len(picture.classes) > CLASSES else []
    note = f'<FONT POINT-SIZE="10" COLOR="{PALE}">{_words(picture.note, 120)}</FONT>'
    classes = f'<FONT POINT-SIZE="12">{"&nbsp;&nbsp;&nbsp;".join(boxes + more)}</FONT>'
    title = f"<B>{_words(picture.title, 120)}</B>"
    return "<" + "".join(f'{line}<BR ALIGN="LEFT"/>' for line in (title, classes, note)) + ">"


def _label(card: NodeCard) -> str:
    if card.question is None:
        answer = f'<FONT COLOR="{colour(card.best)}"><B>{_words(card.vote)}</B></FONT>'
    else:
        answer = f"<B>{_words(card.question)} ?</B>"
    folded = f" &#8230; {many(card.hidden, 'leaf', 'leaves')}" if card.hidden else ""
    rows = f'<FONT POINT-SIZE="9" COLOR="{PALE}">{_words(card.counted)}{folded}</FONT>'
    branch = f'<FONT POINT-SIZE="10">{_words(card.branch)}</FONT>'
    lines = [branch, _dot_bar(card), answer, rows] if card.counted else [branch, answer + folded]
    return (
        '<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="1">'
        + "".join(f'<TR><TD ALIGN="LEFT">{line}</TD></TR>' for line in lines)
        + "</TABLE>>"
    )


def _dot_bar(card: NodeCard) -> str:
    """A bar with one cell for each visible class; the rest is grey.

    All cells together are ``BAR`` points wide; each ends where the cumulative probability ends, so that rounding does
    not add up.
    """
    cells, total, last = [], 0.0, 0
    visible = [(colour(number), share) for number, share in enumerate(card.probabilities) if DOT_BAR * share >= 1]
    for shade, share in [*visible, (TRACK, 1.0)]:
        total += share
        end = min(DOT_BAR, int(DOT_BAR * total + 0.5))
        if end > last:
            cells.append(f'<TD FIXEDSIZE="TRUE" WIDTH="{end - last}" HEIGHT="{DOT_HIGH}" BGCOLOR="{shade}"></TD>')
        last = end
    # A fixed size, so that a wider node does not stretch it.
    size = f'FIXEDSIZE="TRUE" WIDTH="{DOT_BAR}" HEIGHT="{DOT_HIGH}" ALIGN="LEFT"'
    return f'<TABLE {size} BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0"><TR>{"".join(cells)}</TR></TABLE>'


def _words(text: str, length: int = LABEL) -> str:
    """A text as an HTML-like label writes it."""
    return escape(shorten(text, length)).replace("\\", "\\\\")


def _quoted(text: str) -> str:
    """A text in quotes; Graphviz undoes quotes, then backslashes, then entities."""
    return '"' + text.replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"') + '"'


MAX_HTML_LINES = 300
BAR = 80  # pixels


def text(picture: Sketch, heading: str) -> str:
    """The tree as indented text, a line for each node."""
    lines, leads = [heading], {0: ""}  # what stands before the lines of a node's children
    for index in picture.walk():
        card, lead = picture.cards[index], ""
        if card.parent is not None:
            is_last = index == picture.cards[card.parent].children[-1]
            lead = leads[card.parent] + ("└── " if is_last else "├── ")
            leads[index] = leads[card.parent] + ("    " if is_last else "│   ")
        lines.append(f"{lead}{card.branch}: {_line(card)}")
    return "\n".join(lines)


def _line(card: NodeCard) -> str:
    if card.question is not None and not card.hidden:
        return _joined("; ", _joined(", ", card.counted, card.mix), f"split by {card.question}")
    below = f"{many(card.hidden, 'leaf', 'leaves')} below, by {card.question}" if card.hidden else ""
    aside = _joined("; ", card.counted, below)
    return _joined("  ", card.mix, aside and f"({aside})")


def _joined(between: str, *texts: str) -> str:
    return between.join(filter(None, texts))


def html(picture: Sketch, heading: str) -> str:
    """The tree as nested lists that open and close, each node with a bar of its classes."""
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
    note = f"<small>{picture.note}</small>"
    return f"<div style='line-height:1.5'><p>{escape(heading)}<br>{legend}{more}<br>{note}</p>{written[0]}</div>"


def _inner(card: NodeCard, below: str) -> str:
    opened = " open" if card.depth < 2 else ""
    question = f" &mdash; <i>{escape(card.question or '')}&thinsp;?</i>"
    summary = f"<summary>{_summary(card)}{question}</summary>"
    return f"<details style='margin-left:1.2em'{opened}>{summary}{below}</details>"


def _end(card: NodeCard) -> str:
    """A leaf, or a node whose leaves are not shown."""
    below = f" &hellip; {many(card.hidden, 'leaf', 'leaves')} below, by <i>{escape(card.question or '')}</i>"
    # A leaf has no triangle in front of it. The padding moves its bar below the bars of its
    # parent's other children.
    return f"<div style='margin-left:1.2em;padding-left:1em'>{_summary(card)}{below if card.hidden else ''}</div>"


def _summary(card: NodeCard) -> str:
    branch = f"<b title='{escape(card.meaning)}'>{escape(card.branch)}</b>"
    rows = card.counted and f"<span style='opacity:.65'>{escape(card.counted)}</span>"
    return _joined(" ", card.counted and _bar(card), f"{branch}:", _joined(", ", escape(card.mix), rows))


def _bar(card: NodeCard) -> str:
    """A bar of the classes, hidden from screen readers because the vote follows it."""
    block = "display:inline-block;height:.7em"
    parts = "".join(
        f"<span style='{block};width:{BAR * share:.0f}px;background:{colour(number)}'></span>"
        for number, share in enumerate(card.probabilities)
        if share >= 0.01
    )
    return f"<span style='display:inline-block;width:{BAR + 2}px;white-space:nowrap' aria-hidden='true'>{parts}</span>"
