# SPDX-License-Identifier: Apache-2.0
"""A fitted tree as a picture: from left to right, a line for each leaf.

Trees with nominal splits are wide, and text is wide too; so levels are columns and leaves are lines, and a tree of a hundred
leaves is a tall page that reads like a table rather than a broad one that does not read at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from miners.tree_view import COLOURS, branch_label, shown
from pinq.schema import text_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from miners.tree import Tree

__all__ = ["plot"]

# All in inches, on a page whose unit is the inch.
LINE = 0.25
LABEL = 1.35
BAR = 0.62
BAR_HIGH = 0.14
MARGIN = 0.2
HEADER = 0.75
GAP = 0.09  # between the leaves of different parents
CHARACTER = 0.083  # width of one at 8 points, bold
TEXT_CHARACTERS = 17
MOST_LINES = 150  # unless the caller says how deep to draw
INK, PALE, LINK = "#222222", "#777777", "#c9ced6"


def plot(tree: Tree, ax: Axes | None, max_depth: int | None) -> Axes:
    """Draws a tree; see ``Tree.plot``."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("drawing a tree needs matplotlib: pip install 'pinq-miners[plot]'") from None
    visible, folded = shown(tree, _readable_depth(tree) if max_depth is None else max_depth)
    heights = _heights(tree, visible)
    levels = max(depth for depth, seen in zip(tree.depths, visible, strict=True) if seen)
    # Votes of leaves and their row counts stand in columns: as wide as the longest class needs, then the number, then what is folded.
    vote = 0.09 + CHARACTER * (max(len(_short(text_of(value))) for value in tree.classes) + 5)
    asked = max((len(_short(node.split.column)) for node, seen in zip(tree.nodes, visible & ~folded, strict=True) if seen and node.split is not None), default=0)
    level = LABEL + BAR + CHARACTER * (asked + 2) + 0.55
    wide = level * levels + LABEL + BAR + vote + 0.6 + (1.4 if folded.any() else 0.1)
    page = (wide + 2 * MARGIN, max(heights.values()) + HEADER + 2 * MARGIN)
    if ax is None:
        figure = plt.figure(figsize=page)
        ax = figure.add_axes((0, 0, 1, 1))
        scale = 1.0
    else:
        # Text keeps its place on an axes of another size only if it shrinks with it.
        box = ax.get_window_extent()
        scale = min(1.0, box.width / ax.figure.dpi / page[0], box.height / ax.figure.dpi / page[1])
    ax.set_xlim(0, page[0])
    ax.set_ylim(page[1], 0)
    ax.set_axis_off()
    _header(tree, ax, levels if folded.any() else None, scale)
    top = MARGIN + HEADER
    whole = max(tree.nodes[0].rows, 1.0)
    for place in np.flatnonzero(visible).tolist():
        x, y = MARGIN + level * tree.depths[place], top + heights[place]
        branch = tree.branch(place)
        if branch is not None:
            _link(ax, x - level + LABEL + BAR + 0.16, top + heights[branch[0]], x, y, tree.nodes[place].rows / whole, scale)
        _node(tree, ax, place, x, y, vote, bool(folded[place]), scale)
    return ax


def _readable_depth(tree: Tree) -> int:
    """The deepest level down to which a picture has at most ``MOST_LINES`` lines; at least 1."""
    depths = np.array(tree.depths)
    leaf = np.array([node.is_leaf for node in tree.nodes])
    lines = [int(((depths == level) | (leaf & (depths < level))).sum()) for level in range(tree.depth + 1)]
    return max((level for level, count in enumerate(lines) if count <= MOST_LINES or level <= 1), default=0)


def _heights(tree: Tree, visible: np.ndarray) -> dict[int, float]:
    """How far down each visible node stands: leaves line by line, an inner node in the middle of its children."""
    heights: dict[int, float] = {}
    cursor, stack, last_parent = 0.5 * LINE, [0], -1
    order = []
    while stack:
        place = stack.pop()
        order.append(place)
        children = [child for child in tree.nodes[place].children if visible[child]]
        if not children:
            branch = tree.branch(place)
            parent = branch[0] if branch else -1
            cursor += GAP if heights and parent != last_parent else 0.0
            last_parent = parent
            heights[place] = cursor
            cursor += LINE
        stack += reversed(children)
    for place in reversed(order):
        if place not in heights:
            below = tree.nodes[place].children
            heights[place] = (heights[below[0]] + heights[below[-1]]) / 2
    return heights


def _header(tree: Tree, ax: Axes, depth: int | None, scale: float) -> None:
    """Title, a line of explanation, and which colour is which class."""
    title = f"{tree.target}: depth {tree.depth}, {tree.n_leaves:,} {'leaf' if tree.n_leaves == 1 else 'leaves'}"
    title += "" if depth is None else f", drawn to depth {depth}"
    ax.text(MARGIN, MARGIN + 0.12, title, fontsize=12 * scale, weight="bold", color=INK, va="center")
    ax.text(MARGIN, MARGIN + 0.36, "numbers are noisy row counts; ± holds the true one in 95 % of cases", fontsize=7.5 * scale, color=PALE, va="center")
    x = MARGIN
    for number, value in enumerate(tree.classes[:12]):
        name = _short(text_of(value))
        ax.add_patch(_box(x, MARGIN + 0.52, 0.12, 0.12, COLOURS[number % len(COLOURS)]))
        ax.text(x + 0.17, MARGIN + 0.58, name, fontsize=8 * scale, color=INK, va="center")
        x += 0.38 + 0.075 * len(name)
    if len(tree.classes) > 12:
        ax.text(x, MARGIN + 0.58, f"and {len(tree.classes) - 12} more", fontsize=8 * scale, color=PALE, va="center")


def _node(tree: Tree, ax: Axes, place: int, x: float, y: float, vote: float, folded: bool, scale: float) -> None:
    """Branch label, bar of classes, and what there is to say, on one line."""
    node = tree.nodes[place]
    name = branch_label(tree, place) or "all rows"
    backing = {"facecolor": "white", "edgecolor": "none", "pad": 1.0 * scale}
    ax.text(x + LABEL - 0.07, y, _short(name), fontsize=8 * scale, color=INK, ha="right", va="center", zorder=4, bbox=backing)
    start = x + LABEL
    for number, share in enumerate(tree.probabilities[place]):
        if share > 0:
            ax.add_patch(_box(start, y - BAR_HIGH / 2, BAR * share, BAR_HIGH, COLOURS[number % len(COLOURS)]))
            start += BAR * share
    after = x + LABEL + BAR + 0.09
    shares = tree.probabilities[place]
    best = int(shares.argmax())
    if node.is_leaf or folded:
        said = f"{_short(text_of(tree.classes[best]))} {shares[best]:.0%}"
        ax.text(after, y, said, fontsize=8 * scale, color=COLOURS[best % len(COLOURS)], weight="bold", va="center", zorder=4)
        ax.text(after + vote + 0.5, y, f"{node.rows:,.0f}", fontsize=7.5 * scale, color=PALE, ha="right", va="center", zorder=4)
        if folded and node.split is not None:
            ax.text(after + vote + 0.6, y, f"{_short(node.split.column)} …", fontsize=7.5 * scale, color=PALE, style="italic", va="center", zorder=4)
        return
    # An inner node has the room of its children: its size stands above the bar, its question behind it.
    ax.text(x + LABEL + BAR / 2, y - 0.14, _size(tree, place), fontsize=6.5 * scale, color=PALE, ha="center", va="center", zorder=4)
    question = f"{_short(node.split.column)} ?" if node.split is not None else ""
    ax.text(after, y, question, fontsize=8.5 * scale, color=INK, weight="bold", style="italic", va="center", zorder=4, bbox=backing)


def _size(tree: Tree, place: int) -> str:
    node = tree.nodes[place]
    interval = node.interval()
    return f"{node.rows:,.0f}" if interval is None else f"{node.rows:,.0f} ±{(interval[1] - (node.size or 0.0)):,.0f}"


def _link(ax: Axes, x0: float, y0: float, x1: float, y1: float, share: float, scale: float) -> None:
    """A curve from a parent's bar to a child's label, the thicker the more rows go that way."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    # It bends where the parent's question has ended, and runs on to the child's label, which covers its end.
    bend = x1 - 0.2
    path = Path(
        [(x0, y0), (bend, y0), (bend + 0.2, y0), (bend + 0.1, y1), (bend + 0.3, y1), (x1 + LABEL - 0.12, y1)],
        [Path.MOVETO, Path.LINETO, Path.CURVE4, Path.CURVE4, Path.CURVE4, Path.LINETO],
    )
    ax.add_patch(PathPatch(path, facecolor="none", edgecolor=LINK, linewidth=(0.6 + 7 * min(1.0, max(0.0, share)) ** 0.7) * scale, capstyle="round", zorder=1))


def _box(x: float, y: float, wide: float, high: float, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), wide, high, facecolor=colour, edgecolor="none", zorder=3)


def _short(name: str) -> str:
    return name if len(name) <= TEXT_CHARACTERS else name[: TEXT_CHARACTERS - 1] + "…"
