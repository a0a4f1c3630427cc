# SPDX-License-Identifier: Apache-2.0
"""Pictures of learned distances: a heat map in the order of its dendrogram, and who is in whose context."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_context", "plot_distances"]

CELL = 0.34  # inches
TREE = 1.5
CHARACTER = 0.085  # width of one at 8 points
LONGEST = 28
NUMBERS = 12  # up to so many values the cells say their number
INK, PALE, LINE, ACCENT = "#222222", "#777777", "#9aa5b1", "#4e79a7"


def plot_distances(frame: pd.DataFrame, target: str, context: Sequence[str], axes: Sequence[Axes] | None) -> Figure:
    """Draws a dendrogram and, in its order, a heat map; see ``DPDilca.plot``."""
    from scipy.cluster.hierarchy import dendrogram, linkage, optimal_leaf_ordering
    from scipy.spatial.distance import squareform

    labels = [_short(str(label)) for label in frame.index]
    matrix = frame.to_numpy()
    tree_ax, map_ax = axes if axes is not None else _page(labels)
    order = np.arange(len(labels))
    tree_ax.set_axis_off()
    if len(labels) > 1:
        near = squareform(matrix, checks=False)
        ward = optimal_leaf_ordering(linkage(near, method="ward"), near)
        drawn = dendrogram(
            ward, orientation="left", ax=tree_ax, no_labels=True, color_threshold=0, above_threshold_color=LINE
        )
        order = np.array(drawn["leaves"])
        tree_ax.invert_yaxis()
    map_ax.imshow(
        matrix[np.ix_(order, order)], cmap="YlGnBu_r", vmin=0, vmax=max(float(matrix.max()), 1e-9), aspect="auto"
    )
    places = range(len(labels))
    map_ax.set_xticks(places, [labels[i] for i in order], rotation=90, fontsize=8, color=INK)
    map_ax.set_yticks(places, [labels[i] for i in order], fontsize=8, color=INK)
    map_ax.yaxis.tick_right()
    map_ax.tick_params(length=0)
    for spine in map_ax.spines.values():
        spine.set_visible(False)
    if len(labels) <= NUMBERS:
        half = matrix.max() / 2
        for row in places:
            for column in places:
                value = matrix[order[row], order[column]]
                # Near is dark, far is light.
                map_ax.text(
                    column,
                    row,
                    f"{value:.2f}"[1 if value < 0.995 else 0 :],
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if value < half else INK,
                )
    figure = map_ax.figure
    tree_ax.set_title(f"{target}", fontsize=12, weight="bold", color=INK, loc="left")
    map_ax.set_title(
        _wrapped("near is dark; compared by " + ", ".join(context), max(24, len(labels) * 4)),
        fontsize=7.5,
        color=PALE,
        loc="left",
    )
    return figure  # type: ignore[return-value]


def plot_context(context: Mapping[str, Sequence[str]], ax: Axes | None) -> Axes:
    """Draws the context graph; see ``DPDilca.plot_context``."""
    plt = _pyplot()
    names = list(dict.fromkeys([*context, *(name for members in context.values() for name in members)]))
    popular = {name: sum(name in members for members in context.values()) for name in names}
    if ax is None:
        size = 3.4 + 0.16 * len(names) + CHARACTER * max(len(_short(name)) for name in names)
        figure = plt.figure(figsize=(size, size))
        ax = figure.add_axes((0.02, 0.02, 0.96, 0.93))
    angle = {name: 2 * math.pi * place / len(names) for place, name in enumerate(names)}
    at = {name: (math.sin(angle[name]), math.cos(angle[name])) for name in names}
    for target, members in context.items():
        for name in members:
            mutual = target in context.get(name, ())
            if mutual and names.index(name) < names.index(target):
                continue  # drawn once, with two heads
            style = {
                "arrowstyle": "<|-|>" if mutual else "-|>",
                "color": ACCENT if mutual else LINE,
                "lw": 1.3 if mutual else 0.9,
            }
            ax.annotate(
                "",
                at[name],
                at[target],
                arrowprops=style | {"shrinkA": 7, "shrinkB": 7, "connectionstyle": "arc3,rad=0.12"},
                zorder=1,
            )
    for name in names:
        x, y = at[name]
        ax.scatter(
            [x],
            [y],
            s=28 + 26 * popular[name],
            color=ACCENT if name in context else "white",
            edgecolor=ACCENT,
            zorder=3,
        )
        right = x >= -1e-9
        turn = 90 - math.degrees(angle[name]) + (0 if right else 180)
        ax.text(
            1.09 * x,
            1.09 * y,
            _short(name),
            fontsize=8.5,
            color=INK,
            ha="left" if right else "right",
            va="center",
            rotation=turn,
            rotation_mode="anchor",
        )
    reach = 1.12 + 0.033 * max(len(_short(name)) for name in names)
    ax.set_xlim(-reach, reach)
    ax.set_ylim(-reach, reach)
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.set_title(
        "an arrow leads to what a value's distance is computed from; blue ones go both ways", fontsize=8, color=PALE
    )
    return ax


def _page(labels: Sequence[str]) -> tuple[Axes, Axes]:
    """A figure of the right size for so many labels: the tree's axes on the left, the map's on the right."""
    plt = _pyplot()
    side = max(CELL * len(labels), 1.2)
    label = CHARACTER * max(map(len, labels)) + 0.15
    wide, high = 0.2 + TREE + side + label + 0.2, 0.6 + side + label + 0.1
    figure = plt.figure(figsize=(wide, high))
    low, tall = (label + 0.1) / high, side / high
    return figure.add_axes((0.2 / wide, low, (TREE - 0.05) / wide, tall)), figure.add_axes(
        ((0.2 + TREE) / wide, low, side / wide, tall)
    )


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("drawing distances needs matplotlib: pip install 'pinq-miners[plot]'") from None
    return plt


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def _wrapped(text: str, width: int) -> str:
    from textwrap import fill

    return fill(text, width)
