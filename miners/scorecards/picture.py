# SPDX-License-Identifier: Apache-2.0
"""Draws a card: a panel for each attribute, the one that says most first.

With one output a panel shows points with intervals: steps over the cells of a numeric attribute, a line for each
value of a categorical one. With more it is a map of classes and cells, pale where points are not
told from 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from miners.scorecards.card import DOUBLES, Card, Term
from miners.scorecards.view import cell_labels, heading
from pinq.public.columns import CutPoint
from pinq.public.plugins import optional
from pinq.public.specs import Cuts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot"]

ACROSS = 3  # panels side by side
WIDE, HIGH = 3.7, 2.6  # inches of a panel
TICKS = 6  # of a panel
VALUES = 10  # of a categorical attribute that a panel names
CLASSES = 12  # that a map names
LABEL = 22  # letters
SURE = 2.0  # standard deviations on each side
INK, PALE, BLUE, RED = "#222222", "#999999", "#4e79a7", "#e15759"


def plot(card: Card, max_attributes: int | None) -> Figure:
    """Draws a card; see ``ScorecardMiner.plot``."""
    plt = optional("matplotlib.pyplot", "plot", "drawing a card needs matplotlib")
    terms = card.ranked[:max_attributes]
    across = min(ACROSS, max(1, len(terms)))
    down = max(1, math.ceil(len(terms) / across))
    size = (max(WIDE * across, 2 * WIDE), HIGH * down + 0.7)
    figure, axes = plt.subplots(down, across, figsize=size, layout="constrained", squeeze=False)
    figure.suptitle(f"{heading(card)}\n{_caption(card)}", fontsize=10, color=INK)
    for ax, term in zip(axes.flat, terms, strict=False):
        _panel(ax, card, term)
    for ax in axes.flat[len(terms) :]:
        ax.set_axis_off()
    return figure


def _caption(card: Card) -> str:
    """Returns what the numbers are."""
    if card.numeric is not None:
        return f"what is added to the prediction, in units of {card.target}; bars: two standard deviations"
    if len(card.base) == 1:
        return f"points; every {DOUBLES} double the odds of {card.headings[0]}; bars: two standard deviations"
    return f"points of each class; {DOUBLES} more are twice as likely; white where not told from 0"


def _panel(ax: Axes, card: Card, term: Term) -> None:
    """Draws one attribute."""
    ax.set_title(_short(str(term.spec.column), 34), fontsize=9, fontweight="bold", loc="left", color=INK)
    ax.tick_params(labelsize=7, colors=INK)
    ax.spines[["top", "right"]].set_visible(False)
    if len(card.base) > 1:
        _map(ax, card, term)
    elif isinstance(term.spec, Cuts):
        _steps(ax, card, term, term.spec)
    else:
        _values(ax, card, term)


def _steps(ax: Axes, card: Card, term: Term, spec: Cuts) -> None:
    """Draws points over a numeric attribute, those of missing values beside it.

    All cells are equally wide, for cuts crowd where values do.
    """
    points, margins = _with_margins(card, term)
    cells = len(spec.points) + 1
    edges = np.arange(cells + 1)
    ax.axhline(0, color=PALE, linewidth=0.7)
    ax.stairs(points[:cells], edges, baseline=None, color=BLUE, linewidth=1.4)
    low, high = _room(points)
    # Where hardly anything is known an interval would fill the panel; the line alone is drawn there.
    known = np.where(margins < (high - low) / 2, margins, 0.0)[:cells]
    above, below = points[:cells] + known, points[:cells] - known
    ax.stairs(above, edges, baseline=below, fill=True, color=BLUE, alpha=0.25)
    ax.set(xlim=(0, cells), ylim=(low, high))
    shown = _spread(len(spec.points), TICKS)
    ax.set_xticks(shown + 1, [_cut(spec.points[number]) for number in shown])
    if len(points) > cells:
        _beside(ax, f"missing: {points[-1]:+.3g} ± {margins[-1]:.2g}", INK)


def _cut(point: CutPoint) -> str:
    """Returns a cut to three figures, or whole; a date as it is."""
    if isinstance(point, str):
        return point
    return f"{point:.3g}" if abs(point) < 1000 else f"{point:,.0f}"


def _room(points: np.ndarray) -> tuple[float, float]:
    """Returns the ends of an axis a little beyond the points."""
    low, high = min(0.0, float(points.min())), max(0.0, float(points.max()))
    room = 0.25 * (high - low) or 1.0
    return low - room, high + room


def _spread(count: int, most: int) -> np.ndarray:
    """Returns at most so many of the numbers below a count, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def _beside(ax: Axes, words: str, colour: str) -> None:
    """Writes beside a panel's title."""
    ax.text(1, 1.01, words, transform=ax.transAxes, ha="right", va="bottom", fontsize=7, color=colour)


def _values(ax: Axes, card: Card, term: Term) -> None:
    """Draws a line for each value, those of most weight where there are many."""
    points, margins = _with_margins(card, term)
    low, high = _room(points)
    chosen = np.argsort(-term.weights, kind="stable")[:VALUES]
    chosen = chosen[np.argsort(points[chosen], kind="stable")]
    labels = cell_labels(card, term)
    ax.axvline(0, color=PALE, linewidth=0.7)
    heights = np.arange(len(chosen))
    colours = [BLUE if point >= 0 else RED for point in points[chosen]]
    ax.barh(heights, points[chosen], color=colours, alpha=0.55, height=0.7)
    ax.errorbar(points[chosen], heights, xerr=margins[chosen], fmt="none", ecolor=INK, elinewidth=0.8, capsize=1.5)
    ax.set_xlim(low, high)
    ax.set_yticks(heights, [_short(labels[cell], LABEL) for cell in chosen])
    if len(labels) > len(chosen):
        _beside(ax, f"and {len(labels) - len(chosen):,} rarer values", PALE)


def _map(ax: Axes, card: Card, term: Term) -> None:
    """Draws classes against cells, pale where points are not told from 0."""
    points = card.printed(term.points).T
    told = np.abs(points) > SURE * card.printed(term.deviations).T
    largest = max(float(np.abs(points).max()), 1e-9)
    ax.imshow(np.where(told, points, 0), cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto")
    labels = cell_labels(card, term)
    shown = _spread(len(labels), TICKS)
    ax.set_xticks(shown, [_short(labels[cell], 12) for cell in shown])
    if max(map(len, labels)) > 4:
        for label in ax.get_xticklabels():
            label.set(rotation=30, ha="right")
    names = card.headings
    kept = _spread(len(names), CLASSES)
    ax.set_yticks(kept, [_short(names[number], LABEL) for number in kept])
    _beside(ax, f"up to ±{largest:.0f}", PALE)


def _with_margins(card: Card, term: Term) -> tuple[np.ndarray, np.ndarray]:
    """Returns points and half the height of their intervals, shape (cells,) each."""
    return card.printed(term.points[:, 0]), SURE * card.printed(term.deviations[:, 0])


def _short(label: str, most: int) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"
