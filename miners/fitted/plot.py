# SPDX-License-Identifier: Apache-2.0
"""A fitted tree as a picture: from left to right, a line for each leaf.

Trees with nominal splits are wide, and text is wide too; so levels are columns and leaves are
lines, and a tree of a hundred leaves is a tall page that reads like a table rather than a broad one
that does not read at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from miners.fitted.sketch import Card, Sketch, colour, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["MOST_LINES", "plot"]

MOST_LINES = 150  # unless the caller says how deep to draw
# All in inches, on a page whose unit is the inch.
LINE, GAP = 0.25, 0.09  # height of a line; between the lines of different parents
ABOVE, BELOW = 0.16, 0.165  # where the branch and the question of an inner node stand beside its bar
BAR, BAR_HIGH = 0.62, 0.14
LINK = 0.5  # room for the links between two levels
SPACE = 0.08
MARGIN, HEADER = 0.2, 0.75
INK, PALE, PATH, TRACK = "#222222", "#777777", "#c9ced6", "#ececec"
CLASSES = 12  # in the legend
LABEL = 28  # characters


class _Font(NamedTuple):
    size: float
    weight: Literal["normal", "bold"] = "normal"
    style: Literal["normal", "italic"] = "normal"


TITLE, NOTE, BRANCH, VOTE = _Font(12, "bold"), _Font(7.5), _Font(8), _Font(8, "bold")
QUESTION, SIZE, FOLDED = _Font(8.5, "bold", "italic"), _Font(7), _Font(7, style="italic")


def plot(picture: Sketch, ax: Axes | None) -> Axes:
    """Draws a tree; see ``Tree.plot``."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("drawing a tree needs matplotlib: pip install 'pinq-miners[plot]'") from None
    heights = _heights(picture)
    columns = _columns(picture)
    titles = max(_wide(picture.title, TITLE), _legend(picture)[-1])
    page = (max(titles, *(column.end for column in columns)) + 2 * MARGIN, max(heights.values()) + LINE + MARGIN)
    if ax is None:
        ax = plt.figure(figsize=page).add_axes((0, 0, 1, 1))
        pen = _Pen(ax, 1.0)
    else:
        # Text keeps its place on an axes of another size only if it shrinks with it.
        box = ax.get_window_extent()
        pen = _Pen(ax, min(1.0, box.width / ax.figure.dpi / page[0], box.height / ax.figure.dpi / page[1]))
    ax.set_xlim(0, page[0])
    ax.set_ylim(page[1], 0)
    ax.set_axis_off()
    _header(pen, picture)
    whole = max(picture.cards[0].rows, 1.0)
    for place in picture.walk():
        card, y = picture.cards[place], heights[place]
        column = columns[card.depth]
        if card.parent is not None:
            before = columns[card.depth - 1]
            start = before.start + _line_wide(picture.cards[card.parent]) + 0.06
            pen.link((start, heights[card.parent]), column.start, (_left(card, column), y), card.rows / whole)
        (_inner if card.children else _end)(pen, card, column, y)
    return ax


@dataclass(frozen=True)
class _Column:
    """Where the nodes of one level stand: inner ones from ``start``, ends with their bars at ``bar``."""

    start: float
    bar: float
    size: float  # right end of the sizes of ends
    end: float


class _Pen:
    """Draws on an axes, at a scale."""

    def __init__(self, ax: Axes, scale: float) -> None:
        self.ax = ax
        self.scale = scale

    def write(self, x: float, y: float, text: str, font: _Font, ink: str = INK) -> None:
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

    def bar(self, x: float, y: float, card: Card) -> None:
        self.box(x, y - BAR_HIGH / 2, BAR, BAR_HIGH, TRACK)
        for number, share in enumerate(card.shares):
            if share > 0:
                self.box(x, y - BAR_HIGH / 2, BAR * share, BAR_HIGH, colour(number))
                x += BAR * share

    def link(self, start: tuple[float, float], bent: float, end: tuple[float, float], share: float) -> None:
        """A curve from a parent to a child that is bent before it comes to ``bent``; the thicker the more rows go that way."""
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        (x0, y0), (x1, y1) = start, end
        bend = bent - LINK + 0.1
        way = [(x0, y0), (bend, y0), (bend + 0.2, y0), (bend + 0.1, y1), (bend + 0.3, y1), (x1 - SPACE / 2, y1)]
        codes = [Path.MOVETO, Path.LINETO, Path.CURVE4, Path.CURVE4, Path.CURVE4, Path.LINETO]
        wide = (0.6 + 7 * min(1.0, max(0.0, share)) ** 0.7) * self.scale
        self.ax.add_patch(
            PathPatch(Path(way, codes), facecolor="none", edgecolor=PATH, linewidth=wide, capstyle="butt", zorder=1)
        )


def _inner(pen: _Pen, card: Card, column: _Column, y: float) -> None:
    """Three lines in the room of its children: what leads here, who is here, what is asked."""
    x = column.start
    pen.write(x, y - ABOVE, shorten(card.branch, LABEL), BRANCH)
    pen.bar(x, y, card)
    pen.write(x + BAR + SPACE, y, card.size, SIZE, PALE)
    pen.write(x, y + BELOW, _question(card), QUESTION)


def _end(pen: _Pen, card: Card, column: _Column, y: float) -> None:
    """One line: what leads here, who is here, the answer."""
    pen.write(_left(card, column), y, shorten(card.branch, LABEL), BRANCH)
    pen.bar(column.bar, y, card)
    pen.write(column.bar + BAR + SPACE, y, card.vote, VOTE, colour(card.best))
    pen.write(column.size - _wide(card.size, SIZE), y, card.size, SIZE, PALE)
    if card.hidden:
        pen.write(column.size + SPACE, y, _folded(card), FOLDED, PALE)


def _columns(picture: Sketch) -> list[_Column]:
    """As wide as what stands in them."""
    columns: list[_Column] = []
    start = MARGIN
    for level in range(1 + max(card.depth for card in picture.cards.values())):
        cards = [card for card in picture.cards.values() if card.depth == level]
        ends = [card for card in cards if not card.children]
        bar = start + max((_wide(shorten(card.branch, LABEL), BRANCH) + SPACE for card in ends), default=0.0)
        size = (
            bar
            + BAR
            + SPACE
            + max((_wide(card.vote, VOTE) + 2 * SPACE + _wide(card.size, SIZE) for card in ends), default=0.0)
        )
        end = size + max((SPACE + _wide(_folded(card), FOLDED) for card in ends if card.hidden), default=0.0)
        columns.append(_Column(start, bar, size, end))
        start += max((_block_wide(card) for card in cards if card.children), default=0.0) + LINK
    return columns


def _left(card: Card, column: _Column) -> float:
    """Where a node begins: an inner one with its bar, an end with its label, which stands before the bar."""
    return column.start if card.children else column.bar - SPACE - _wide(shorten(card.branch, LABEL), BRANCH)


def _line_wide(card: Card) -> float:
    """How far the middle line of an inner node reaches."""
    return BAR + SPACE + _wide(card.size, SIZE)


def _block_wide(card: Card) -> float:
    return max(_line_wide(card), _wide(shorten(card.branch, LABEL), BRANCH), _wide(_question(card), QUESTION))


def _question(card: Card) -> str:
    return f"{shorten(card.question or '', LABEL)} ?"


def _folded(card: Card) -> str:
    return f"… {card.hidden:,} leaves, by {shorten(card.question or '', LABEL)}"


def _heights(picture: Sketch) -> dict[int, float]:
    """How far down the page each node stands: ends line by line, an inner node in the middle of its children."""
    heights: dict[int, float] = {}
    cursor, last_parent = MARGIN + HEADER + 0.5 * LINE, None
    order = picture.walk()
    for place in order:
        card = picture.cards[place]
        if not card.children:
            cursor += GAP if heights and card.parent != last_parent else 0.0
            last_parent = card.parent
            heights[place] = cursor
            cursor += LINE
    for place in reversed(order):
        below = picture.cards[place].children
        if below:
            heights[place] = (heights[below[0]] + heights[below[-1]]) / 2
    return heights


def _legend(picture: Sketch) -> list[float]:
    """Where each named class begins in the legend, and where what follows does."""
    places = [MARGIN]
    for name in picture.classes[:CLASSES]:
        places.append(places[-1] + 0.38 + _wide(shorten(name, LABEL), BRANCH))
    return places


def _header(pen: _Pen, picture: Sketch) -> None:
    """Title, a line of explanation, and which colour is which class."""
    y = MARGIN + 0.58
    pen.write(MARGIN, MARGIN + 0.12, picture.title, TITLE)
    pen.write(MARGIN, MARGIN + 0.36, "numbers are noisy row counts; ± holds the true one in 95 % of cases", NOTE, PALE)
    *starts, after = _legend(picture)
    for number, (name, x) in enumerate(zip(picture.classes, starts, strict=False)):
        pen.box(x, y - 0.06, 0.12, 0.12, colour(number))
        pen.write(x + 0.17, y, shorten(name, LABEL), BRANCH)
    if len(picture.classes) > CLASSES:
        pen.write(after, y, f"and {len(picture.classes) - CLASSES} more", BRANCH, PALE)


@lru_cache(maxsize=4096)
def _wide(text: str, font: _Font) -> float:
    """Width of a text in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    if not text.strip():
        return 0.0
    # Dollars would begin a formula.
    path = TextPath(
        (0, 0), text.replace("$", "S"), size=font.size, prop=FontProperties(weight=font.weight, style=font.style)
    )
    return float(path.get_extents().x1) / 72
