# SPDX-License-Identifier: Apache-2.0
"""A fitted tree in words: names of branches, nodes as text and as HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from pinq.accuracy import laplace_interval
from pinq.errors import QueryError
from pinq.parts import Groups, bind
from pinq.schema import text_of

if TYPE_CHECKING:
    from miners.tree import Node, Tree

__all__ = ["branch_label", "html", "mix_text", "shown", "size_text", "text"]

HTML_NODES = 400
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#e15759", "#edc948", "#9c755f", "#ff9da7", "#bab0ac")


def branch_label(tree: Tree, place: int) -> str:
    """What the branch to a node says: ``Female``, ``30 to < 45``, ``a, b``, ``missing``; empty for the root."""
    branch = tree.branch(place)
    if branch is None:
        return ""
    split = tree.nodes[branch[0]].split
    assert split is not None  # a parent is split
    return _label(bind(split, tree.schema).label(branch[1]), grouped=isinstance(split, Groups))


def _label(label: Any, *, grouped: bool) -> str:
    if grouped:
        return ", ".join(_label(value, grouped=False) for value in label)
    return "missing" if label is None else text_of(label)


def size_text(node: Node) -> str:
    """Estimated rows with the 95 % half-width of their noise where a size was asked: ``1,204 ±33 rows``."""
    if node.size is not None and node.size_scale is not None and not node.is_leaf:
        return f"{node.rows:,.0f} ±{laplace_interval(node.size_scale):,} rows"
    return f"{node.rows:,.0f} {'row' if round(node.rows) == 1 else 'rows'}"


def mix_text(tree: Tree, place: int) -> str:
    """The likeliest class and its share: ``>50K 74%``."""
    shares = tree.probabilities[place]
    best = int(shares.argmax())
    return f"{text_of(tree.classes[best])} {shares[best]:.0%}"


def shown(tree: Tree, max_depth: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Which nodes a picture shows, and which of them hide something; two masks, shape (nodes,)."""
    if max_depth is not None and (isinstance(max_depth, bool) or not isinstance(max_depth, (int, np.integer)) or max_depth < 0):
        raise QueryError(f"`max_depth` is {max_depth!r}; it must be a whole number of at least 0, or None for all.")
    depths = np.array(tree.depths)
    limit = tree.depth if max_depth is None else max_depth
    folded = (depths == limit) & np.array([not node.is_leaf for node in tree.nodes])
    return depths <= limit, folded


def text(tree: Tree, max_depth: int | None) -> str:
    """The tree as indented text, a line for each node."""
    visible, folded = shown(tree, max_depth)
    below = _leaves_below(tree)
    lines = [repr(tree)]
    stack = [(0, "", "")]
    while stack:
        place, lead, indent = stack.pop()
        node = tree.nodes[place]
        name = branch_label(tree, place) or "all rows"
        if node.is_leaf:
            said = f"{mix_text(tree, place)}  ({size_text(node)})"
        elif folded[place]:
            said = f"{mix_text(tree, place)}  ({size_text(node)}; {below[place]:,} leaves below)"
        else:
            said = f"{size_text(node)}, {mix_text(tree, place)}; split by {node.split.column if node.split else ''}"
        lines.append(f"{lead}{name}: {said}")
        children = [child for child in node.children if visible[child]]
        for number, child in reversed(list(enumerate(children))):
            last = number == len(children) - 1
            stack.append((child, indent + ("└── " if last else "├── "), indent + ("    " if last else "│   ")))
    return "\n".join(lines)


def html(tree: Tree) -> str:
    """The tree as nested lists that open and close, each node with a bar of its classes; at most the upper levels of a large one."""
    legend = " ".join(f"<span style='color:{COLOURS[i % len(COLOURS)]}'>&#9632;</span> {escape(text_of(c))}" for i, c in enumerate(tree.classes[:12]))
    limit = tree.depth
    while limit > 1 and int((np.array(tree.depths) <= limit).sum()) > HTML_NODES:
        limit -= 1
    visible, folded = shown(tree, limit)
    # Children come after their parents, so backwards every child is ready when its parent is written.
    written: dict[int, str] = {}
    for place in range(len(tree.nodes) - 1, -1, -1):
        if not visible[place]:
            continue
        node = tree.nodes[place]
        line = f"{_bar(tree, place)} <b>{escape(branch_label(tree, place) or 'all rows')}</b>: {escape(mix_text(tree, place))}, {escape(size_text(node))}"
        if node.is_leaf or folded[place]:
            written[place] = f"<div style='margin-left:1.2em'>{line}{' &hellip;' if folded[place] else ''}</div>"
        else:
            inner = "".join(written.pop(child) for child in node.children)
            opened = " open" if tree.depths[place] < 2 else ""
            column = escape(node.split.column if node.split else "")
            written[place] = f"<details style='margin-left:1.2em'{opened}><summary>{line}; by <i>{column}</i></summary>{inner}</details>"
    return f"<p>{escape(repr(tree))}</p><p>{legend}</p>{written[0]}"


def _bar(tree: Tree, place: int) -> str:
    parts = "".join(
        f"<span style='display:inline-block;height:.7em;width:{80 * share:.0f}px;background:{COLOURS[number % len(COLOURS)]}'></span>"
        for number, share in enumerate(tree.probabilities[place])
        if share >= 0.01
    )
    return f"<span style='white-space:nowrap'>{parts}</span>"


def _leaves_below(tree: Tree) -> list[int]:
    below = [int(node.is_leaf) for node in tree.nodes]
    for place in range(len(tree.nodes) - 1, -1, -1):
        if (branch := tree.branch(place)) is not None:
            below[branch[0]] += below[place]
    return below
