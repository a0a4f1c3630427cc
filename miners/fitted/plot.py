# SPDX-License-Identifier: Apache-2.0
"""Draws a fitted tree from left to right, with a line for each leaf.

Levels are columns and leaves are lines, so a tree of a hundred leaves is a tall page that is read like a table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from miners.fitted.sketch import NodeCard, Sketch
from miners.pictures import CLASSES, INK, LABEL, LINE as PATH, PALE, Axes, colour, pyplot, shorten

MAX_LINES = 150  # unless the caller says how deep to draw
# All in inches, on a page whose unit is the inch.
LINE, GAP = 0.25, 0.09  # height of a line; between the lines of different parents
ABOVE, BELOW = 0.16, 0.165  # where the branch and the question of an inner node stand beside its bar
BAR, BAR_HIGH = 0.62, 0.14
LINK = 0.5  # space for the links between two levels
SPACE = 0.08
ALONE = (0.0, 0.0, 1.0, 0.94)  # of a figure that holds nothing else; above it there is space for a title
MARGIN, HEADER = 0.2, 0.75
TRACK = "#ececec"


class _Font(NamedTuple):
    """The size in points, weight and style of a text."""

    size: float
    weight: Literal["normal", "bold"] = "normal"
    style: Literal["normal", "italic"] = "normal"


TITLE, NOTE, BRANCH, VOTE = _Font(12, "bold"), _Font(7.5), _Font(8), _Font(8, "bold")
QUESTION, SIZE, FOLDED = _Font(8.5, "bold", "italic"), _Font(7), _Font(7, style="italic")


def plot(draw: Callable[[int | None], Sketch], ax: Axes | None, max_depth: int | None) -> Axes:
    """Draws a tree; see ``Tree.plot``."""
    plt = pyplot("a tree")
    picture = draw(max_depth)
    if ax is None:
        page = _page(picture)
        return _drawn(picture, plt.figure(figsize=page).add_axes((0, 0, 1, 1)), page, 1.0)
    if ax.figure.axes == [ax]:
        ax.set_position(ALONE)
    if max_depth is None:
        deepest = max(card.depth for card in picture.cards.values())
        while deepest > 1 and _fit(ax, _page(picture)) < 0.6:
            deepest -= 1
            picture = draw(deepest)
    page = _page(picture)
    return _drawn(picture, ax, page, _fit(ax, page))


def _page(picture: Sketch) -> tuple[float, float]:
    """Width and height of a picture in inches."""
    titles = max(_wide(picture.title, TITLE), _legend(picture)[-1])
    wide = max(titles, *(column.end for column in _columns(picture)))
    return wide + 2 * MARGIN, max(_heights(picture).values()) + LINE + MARGIN


def _fit(ax: Axes, page: tuple[float, float]) -> float:
    """The scale at which a page fits on an axes of another size, at most 1."""
    box = ax.get_window_extent()
    return min(1.0, box.width / ax.figure.dpi / page[0], box.height / ax.figure.dpi / page[1])


def _drawn(picture: Sketch, ax: Axes, page: tuple[float, float], scale: float) -> Axes:
    """Draws a picture on an axes whose unit is the inch."""
    pen, heights, columns = _Pen(ax, scale), _heights(picture), _columns(picture)
    ax.set_xlim(0, page[0])
    ax.set_ylim(page[1], 0)
    ax.set_axis_off()
    _header(pen, picture)
    whole = max(picture.cards[0].rows, 1.0)
    for index in picture.walk():
        card, y = picture.cards[index], heights[index]
        column = columns[card.depth]
        if card.parent is not None:
            before = columns[card.depth - 1]
            # A path begins where the parent's text ends, and bends just before the child's column.
            start = before.start + _line_wide(picture.cards[card.parent]) + 0.06
            pen.link((start, heights[card.parent]), column.start, (_left(card, column), y), card.rows / whole)
        (_inner if card.children else _end)(pen, card, column, y)
    return ax


@dataclass(frozen=True)
class _PictureColumn:
    """The places of the nodes of one level, in inches from the left.

    Attributes:
        start: The left edge of inner nodes.
        bar: The left edge of the bars of leaves.
        size: The right edge of the sizes of leaves.
    """

    start: float
    bar: float
    size: float
    end: float


class _Pen:
    def __init__(self, ax: Axes, scale: float) -> None:
        self.ax = ax
        self.scale = scale

    def write(self, x: float, y: float, text: str, font: _Font, ink: str = INK) -> None:
        """Writes a text whose middle is at height ``y``."""
        self.ax.text(
            x,
            y,
            text,
            fontsize=font.size * self.scale,
            weight=font.weight,
            style=font.style,
            color=ink,
            va="center",
            zorder=4,
            parse_math=False,
        )

    def box(self, x: float, y: float, wide: float, high: float, shade: str) -> None:
        from matplotlib.patches import Rectangle

        self.ax.add_patch(Rectangle((x, y), wide, high, facecolor=shade, edgecolor="none", zorder=3))

    def bar(self, x: float, y: float, card: NodeCard) -> None:
        if card.probabilities:
            self.box(x, y - BAR_HIGH / 2, BAR, BAR_HIGH, TRACK)
        for number, share in enumerate(card.probabilities):
            if share > 0:
                self.box(x, y - BAR_HIGH / 2, BAR * share, BAR_HIGH, colour(number))
                x += BAR * share

    def link(self, start: tuple[float, float], bent: float, end: tuple[float, float], share: float) -> None:
        """Draws a curve from a parent to a child, thicker for a larger share of rows.

        It bends to the left of ``bent``, where the child's column starts.
        """
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        (x0, y0), (x1, y1) = start, end
        bend = bent - LINK + 0.1
        points = [(x0, y0), (bend, y0), (bend + 0.2, y0), (bend + 0.1, y1), (bend + 0.3, y1), (x1 - SPACE / 2, y1)]
        codes = [Path.MOVETO, Path.LINETO, Path.CURVE4, Path.CURVE4, Path.CURVE4, Path.LINETO]
        # All rows make a path 7.6 wide, half of them 4.9, and the rarest .6: none vanishes.
        wide = (0.6 + 7 * min(1.0, max(0.0, share)) ** 0.7) * self.scale
        self.ax.add_patch(
            PathPatch(Path(points, codes), facecolor="none", edgecolor=PATH, linewidth=wide, capstyle="butt", zorder=1)
        )


def _inner(pen: _Pen, card: NodeCard, column: _PictureColumn, y: float) -> None:
    """Draws an inner node on three lines: its branch, its bar with its size, its question."""
    x = column.start
    pen.write(x, y - ABOVE, shorten(card.branch, LABEL), BRANCH)
    pen.bar(x, y, card)
    pen.write(x + BAR + SPACE, y, card.size, SIZE, PALE)
    pen.write(x, y + BELOW, _question(card), QUESTION)


def _end(pen: _Pen, card: NodeCard, column: _PictureColumn, y: float) -> None:
    """Draws a leaf or a folded node on one line: its branch, its bar, its vote, its size."""
    pen.write(_left(card, column), y, shorten(card.branch, LABEL), BRANCH)
    pen.bar(column.bar, y, card)
    pen.write(column.bar + BAR + SPACE, y, card.vote, VOTE, colour(card.best))
    pen.write(column.size - _wide(card.size, SIZE), y, card.size, SIZE, PALE)
    if card.hidden:
        pen.write(column.size + SPACE, y, _folded(card), FOLDED, PALE)


def _columns(picture: Sketch) -> list[_PictureColumn]:
    """A column for each level, as wide as its texts."""
    columns: list[_PictureColumn] = []
    start = MARGIN
    for level in range(1 + max(card.depth for card in picture.cards.values())):
        cards = [card for card in picture.cards.values() if card.depth == level]
        ends = [card for card in cards if not card.children]
        labels = max((_wide(shorten(card.branch, LABEL), BRANCH) + SPACE for card in ends), default=0.0)
        votes = max((_wide(card.vote, VOTE) + 2 * SPACE + _wide(card.size, SIZE) for card in ends), default=0.0)
        folded = max((SPACE + _wide(_folded(card), FOLDED) for card in ends if card.hidden), default=0.0)
        # 40 or more  [====]  yes 80%   1,204  ... 3 leaves
        # start       bar                size           end
        bar = start + labels
        size = bar + BAR + SPACE + votes
        columns.append(_PictureColumn(start, bar, size, size + folded))
        blocks = [
            max(_line_wide(card), _wide(shorten(card.branch, LABEL), BRANCH), _wide(_question(card), QUESTION))
            for card in cards
            if card.children
        ]
        start += max(blocks, default=0.0) + LINK
    return columns


def _left(card: NodeCard, column: _PictureColumn) -> float:
    return column.start if card.children else column.bar - SPACE - _wide(shorten(card.branch, LABEL), BRANCH)


def _line_wide(card: NodeCard) -> float:
    return BAR + SPACE + _wide(card.size, SIZE)


def _question(card: NodeCard) -> str:
    return f"{shorten(card.question or '', LABEL)} ?"


def _folded(card: NodeCard) -> str:
    """The note at a node whose leaves are not shown."""
    return f"… {card.hidden:,} leaves, by {shorten(card.question or '', LABEL)}"


def _heights(picture: Sketch) -> dict[int, float]:
    """The distance of each node from the top in inches: leaves line by line, others amid their children."""
    heights: dict[int, float] = {}
    cursor, last_parent = MARGIN + HEADER + 0.5 * LINE, None
    order = picture.walk()
    for index in order:
        card = picture.cards[index]
        if not card.children:
            cursor += GAP if heights and card.parent != last_parent else 0.0
            last_parent = card.parent
            heights[index] = cursor
            cursor += LINE
    for index in reversed(order):
        below = picture.cards[index].children
        if below:
            # Above ends at 1.0, 1.3, and 2.0: at 1.5.
            heights[index] = (heights[below[0]] + heights[below[-1]]) / 2
    return heights


def _legend(picture: Sketch) -> list[float]:
    starts = [MARGIN]
    for name in picture.classes[:CLASSES]:
        starts.append(starts[-1] + 0.38 + _wide(shorten(name, LABEL), BRANCH))
    return starts


def _header(pen: _Pen, picture: Sketch) -> None:
    """Draws the title, a line of explanation, and the colours of the classes."""
    y = MARGIN + 0.58
    pen.write(MARGIN, MARGIN + 0.12, picture.title, TITLE)
    pen.write(MARGIN, MARGIN + 0.36, picture.note, NOTE, PALE)
    *starts, after = _legend(picture)
    for number, (name, x) in enumerate(zip(picture.classes, starts, strict=False)):
        pen.box(x, y - 0.06, 0.12, 0.12, colour(number))
        pen.write(x + 0.17, y, shorten(name, LABEL), BRANCH)
    if len(picture.classes) > CLASSES:
        pen.write(after, y, f"and {len(picture.classes) - CLASSES} more", BRANCH, PALE)


@lru_cache(maxsize=4096)
def _wide(text: str, font: _Font) -> float:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    if not text.strip():
        return 0.0
    # A dollar would begin a formula here, and an S is about as wide.
    letters = text.replace("$", "S")
    path = TextPath((0, 0), letters, size=font.size, prop=FontProperties(weight=font.weight, style=font.style))
    # On a screen a letter may be half a pixel wider than its outline, of a hundredth of an inch each.
    return float(path.get_extents().x1) / 72 + 0.005 * len(text)
