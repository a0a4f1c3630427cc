# SPDX-License-Identifier: Apache-2.0
"""What every picture of a tree says, in words and shares: text, HTML, matplotlib and Graphviz only differ in how they draw it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from miners.fitted.node import Node
from pinq.errors import QueryError
from pinq.public.schema import Categorical, Numeric, Schema, text_of
from pinq.public.specs import Groups, bind

__all__ = ["COLOURS", "Card", "Sketch", "colour", "shorten", "sketch"]

COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#e15759", "#edc948", "#9c755f", "#ff9da7", "#bab0ac")
MIXED = 3  # classes that are named where there are more than two
NAME = 24  # characters of a class's name in a vote
LIST = 32  # characters of a list of values that is not called the others


@dataclass(frozen=True)
class Card:
    """What is said about one node.

    Attributes:
        parent: The card's parent, None for the root.
        depth: Splits above it.
        branch: What leads to it: ``Female``, ``30 to < 45``, ``Wife, Husband``, ``others (4)``,
            ``missing``; ``all rows`` for the root.
        meaning: The same with the others named.
        question: The column by which the node is split; None at a leaf.
        shares: Class probabilities; of a numeric target how far its mean is from the lower bound on
            the way to the upper one.
        best: The likeliest class.
        vote: That class and its share, a long name cut short: ``>50K 74%``; or the mean.
        mix: The same in full; the three likeliest where there are more than two classes; or the
            mean with its 95 % interval.
        rows: Estimated number of rows.
        size: The same as text, with the half-width of its 95 % interval where the noise is known:
            ``1,204 ±33``.
        children: Positions of the children that are shown.
        hidden: Leaves below that are not shown; 0 where nothing is folded away.
    """

    parent: int | None
    depth: int
    branch: str
    meaning: str
    question: str | None
    shares: tuple[float, ...]
    best: int
    vote: str
    mix: str
    rows: float
    size: str
    children: tuple[int, ...]
    hidden: int


@dataclass(frozen=True)
class Sketch:
    """A tree, or its upper levels, as pictures show it.

    Attributes:
        title: Target, depth and leaves of the whole tree, and how much of it is shown.
        classes: The target's values as text; of a numeric target what the bars show.
        cards: What is shown, by position in the tree; parents before their children.
    """

    title: str
    classes: tuple[str, ...]
    cards: dict[int, Card]

    def walk(self) -> list[int]:
        """Positions from top to bottom: each node, then what is below its first child, and so on."""
        order, stack = [], [0]
        while stack:
            order.append(stack.pop())
            stack += reversed(self.cards[order[-1]].children)
        return order


def sketch(
    schema: Schema,
    target: str,
    nodes: Sequence[Node],
    shares: np.ndarray,
    means: np.ndarray | None = None,
    *,
    max_depth: int | None = None,
    most: int | None = None,
) -> Sketch:
    """Sketches a tree.

    Args:
        schema: The schema that the splits belong to.
        target: What is predicted.
        nodes: The nodes; the root first, each before its children.
        shares: Class probabilities of each, or the weights of the two ends of a numeric target,
            shape (nodes, classes).
        means: Of a numeric target: where each node's mean lies, shape (nodes, 2).
        max_depth: Levels of splits to show; what lies below is folded into its node.
        most: Where ``max_depth`` is None: as many levels as have at most so many ends, at least
            one.
    """
    if max_depth is not None and (
        isinstance(max_depth, bool) or not isinstance(max_depth, (int, np.integer)) or max_depth < 0
    ):
        raise QueryError(f"`max_depth` is {max_depth!r}; it must be a whole number of at least 0, or None for all.")
    depths, parents = np.zeros(len(nodes), dtype=np.int64), np.full(len(nodes), -1)
    for place, node in enumerate(nodes):
        depths[list(node.children)], parents[list(node.children)] = depths[place] + 1, place
    leaf = np.array([node.is_leaf for node in nodes])
    deepest = int(depths.max())
    limit = min(deepest, int(max_depth)) if max_depth is not None else _readable(depths, leaf, deepest, most)
    column = schema.columns[target]
    if isinstance(column, Categorical):
        classes = tuple(plain(text_of(value)) for value in column.values)
    else:
        classes = (f"mean, from {column.lower} to {column.upper}",)
    ends = leaf.astype(np.int64)
    for place in range(len(nodes) - 1, 0, -1):
        ends[parents[place]] += ends[place]
    names = {0: ("all rows", "all rows")}
    cards = {}
    for place in np.flatnonzero(depths <= limit).tolist():
        node, depth = nodes[place], int(depths[place])
        names |= zip(node.children, part_names(node, schema), strict=True) if depth < limit else {}
        best, vote, mix = (
            _votes(classes, shares[place])
            if means is None
            else _mean(schema.numeric(target), shares[place, 1], means[place])
        )
        cards[place] = Card(
            parent=int(parents[place]) if place else None,
            depth=depth,
            branch=names[place][0],
            meaning=names[place][1],
            question=None if node.split is None else plain(node.split.column),
            shares=tuple(shares[place].tolist()) if means is None else (float(shares[place, 1]),),
            best=best,
            vote=vote,
            mix=mix,
            rows=node.rows,
            size=_size(node),
            children=node.children if depth < limit else (),
            hidden=int(ends[place]) if depth == limit and not node.is_leaf else 0,
        )
    title = f"{plain(target)}: depth {deepest}, {ends[0]:,} {'leaf' if ends[0] == 1 else 'leaves'}"
    return Sketch(title + ("" if limit == deepest else f", drawn to depth {limit}"), classes, cards)


def part_names(node: Node, schema: Schema) -> list[tuple[str, str]]:
    """What the branches below a node are called, short and in full."""
    if node.split is None:
        return []
    partition = bind(node.split, schema)
    if not isinstance(node.split, Groups):
        return [(text, text) for text in (_value(partition.label(number)) for number in range(partition.size))]
    groups = [[_value(value) for value in partition.label(number)] for number in range(partition.size)]
    full = [", ".join(group) for group in groups]
    # Of two groups the one that is quicker to read is named, and the other one is the others.
    other = max(range(2), key=lambda number: len(full[number])) if len(groups) == 2 else None
    return [
        (f"others ({len(group)})" if number == other and len(text) > LIST else text, text)
        for number, (group, text) in enumerate(zip(groups, full, strict=True))
    ]


def shorten(text: str, length: int) -> str:
    """At most so many characters of a text; a list ends behind one of its commas where that does not cost much."""
    if len(text) <= length:
        return text
    comma = text.rfind(", ", 0, length - 1)
    return text[: comma + 2] + "…" if comma >= length // 2 else text[: length - 1] + "…"


def colour(number: int) -> str:
    """The colour of a class."""
    return COLOURS[number % len(COLOURS)]


def plain(text: str) -> str:
    """A text without line breaks and other characters that do not print."""
    return (
        text
        if text.isprintable()
        else "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
    )


def _value(label: Any) -> str:
    return "missing" if label is None else plain(text_of(label))


def _size(node: Node) -> str:
    interval = node.interval()
    return f"{node.rows:,.0f}" + ("" if interval is None else f" ±{interval[1] - node.rows:,.0f}")


def _votes(classes: Sequence[str], shares: np.ndarray) -> tuple[int, str, str]:
    """The likeliest class, it with its share, and the likeliest few."""
    order = np.argsort(-shares, kind="stable").tolist()
    said = [f"{classes[number]} {shares[number]:.0%}" for number in order[:MIXED]]
    seen = sum(shares[number] >= 0.005 for number in order[1:MIXED]) if len(classes) > 2 else 0
    return order[0], f"{shorten(classes[order[0]], NAME)} {shares[order[0]]:.0%}", ", ".join(said[: 1 + seen])


def _mean(column: Numeric, share: float, interval: np.ndarray) -> tuple[int, str, str]:
    """A mean to as many digits as its noise leaves it, alone and with its interval."""
    low, high = column.number(0), column.number(column.cells - 1)
    digits = _digits(interval)
    vote = f"{low + (high - low) * share:,.{digits}f}"
    return 0, vote, f"mean {vote} ({interval[0]:,.{digits}f} to {interval[1]:,.{digits}f})"


def _digits(interval: np.ndarray) -> int:
    """Digits behind the point that tell numbers apart which differ by a tenth of an interval."""
    wide = float(interval[1] - interval[0])
    return min(6, max(0, math.ceil(1 - math.log10(wide)))) if wide > 0 else 3


def _readable(depths: np.ndarray, leaf: np.ndarray, deepest: int, most: int | None) -> int:
    if most is None:
        return deepest
    ends = [int(((depths == level) | (leaf & (depths < level))).sum()) for level in range(deepest + 1)]
    return max((level for level, count in enumerate(ends) if count <= most or level <= 1), default=0)
