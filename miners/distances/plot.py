# SPDX-License-Identifier: Apache-2.0
"""Learned distances as a table for notebooks, and as pictures: a heat map with its dendrogram, a graph."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from miners.pictures import BLUE, INK, LINE, PALE, Axes, bare, named_map, pyplot, shorten, write_cells
from pinq.public.plugins import optional

if TYPE_CHECKING:
    from matplotlib.image import AxesImage


# Sizes in inches: a cell of the map, the dendrogram's width, a character of 8 points, the colour scale.
CELL = 0.34
TREE = 1.5
CHARACTER = 0.085
SCALE = 0.42
COLOURS = "YlGnBu_r"
NUMBERS = 12  # the most values of a map with numbers in its cells


def plot_distances(frame: pd.DataFrame, target: str, context: Sequence[str], axes: Sequence[Axes] | None) -> Axes:
    """Draws a dendrogram and, in its order, a heat map; see ``DPDilca.plot``."""
    labels = [shorten(str(label)) for label in frame.index]
    matrix = frame.to_numpy()
    tree_ax, map_ax = axes if axes is not None else _page(labels)
    tree_ax.set_axis_off()
    order = _dendrogram(tree_ax, matrix)
    largest = max(float(matrix.max()), 1e-9)
    image = _heat_map(map_ax, matrix[np.ix_(order, order)], [labels[index] for index in order], largest)
    # The colour scale is below the dendrogram.
    height = tree_ax.get_window_extent().height / tree_ax.figure.dpi
    bar = tree_ax.inset_axes((0.05, -SCALE / height, 0.8, 0.1 / height))
    scale = map_ax.figure.colorbar(image, bar, orientation="horizontal", ticks=[0, largest], format="%.2g")
    scale.outline.set_visible(False)
    bar.tick_params(length=0, pad=2, labelsize=7, labelcolor=PALE)
    bar.set_title("distance", fontsize=7, color=PALE, loc="left", pad=2)
    tree_ax.set_title(f"{target}", fontsize=12, weight="bold", color=INK, loc="left")
    map_ax.set_title(
        fill("near is dark; compared by " + ", ".join(context), max(24, len(labels) * 4)),
        fontsize=7.5,
        color=PALE,
        loc="left",
    )
    return map_ax


def _dendrogram(ax: Axes, matrix: np.ndarray) -> np.ndarray:
    if len(matrix) < 2:
        return np.arange(len(matrix))
    hierarchy = optional("scipy.cluster.hierarchy", "plot", "drawing distances needs scipy")
    pairs = matrix[np.triu_indices(len(matrix), 1)]
    ward = hierarchy.optimal_leaf_ordering(hierarchy.linkage(pairs, method="ward"), pairs)
    drawn = hierarchy.dendrogram(
        ward, orientation="left", ax=ax, no_labels=True, color_threshold=0, above_threshold_color=LINE
    )
    ax.invert_yaxis()
    return np.array(drawn["leaves"])


def _heat_map(ax: Axes, matrix: np.ndarray, labels: Sequence[str], largest: float) -> AxesImage:
    image = named_map(ax, matrix, labels, labels, cmap=COLOURS, vmin=0, vmax=largest)
    ax.yaxis.tick_right()
    bare(ax)
    if len(labels) <= NUMBERS:
        # Near is dark, so its number is white; the 0 before the point is left out.
        write_cells(ax, matrix, lambda value: f"{value:.2f}"[1 if value < 0.995 else 0 :], matrix < matrix.max() / 2)
    return image


def plot_context(context: Mapping[str, Sequence[str]], ax: Axes | None) -> Axes:
    """Draws the context graph; see ``DPDilca.plot_context``."""
    names = list(dict.fromkeys([*context, *(name for members in context.values() for name in members)]))
    longest = max(len(shorten(name)) for name in names)
    if ax is None:
        size = 3.4 + 0.16 * len(names) + CHARACTER * longest
        figure = pyplot("distances").figure(figsize=(size, size))
        ax = figure.add_axes((0.02, 0.02, 0.96, 0.93))
    # All names stand on a circle of radius 1, the first at the top, then clockwise.
    angles = {name: 2 * math.pi * index / len(names) for index, name in enumerate(names)}
    _arrows(ax, context, names, angles)
    for name in names:
        popularity = sum(name in members for members in context.values())
        _context_node(ax, name, angles[name], popularity, is_target=name in context)
    reach = 1.12 + 0.033 * longest
    ax.set_xlim(-reach, reach)
    ax.set_ylim(-reach, reach)
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.set_title(
        "an arrow leads to a member of an attribute's context; blue arrows go both ways", fontsize=8, color=PALE
    )
    return ax


def _arrows(ax: Axes, context: Mapping[str, Sequence[str]], names: Sequence[str], angles: Mapping[str, float]) -> None:
    points = {name: (math.sin(angle), math.cos(angle)) for name, angle in angles.items()}
    for target, members in context.items():
        for name in members:
            mutual = target in context.get(name, ())
            if mutual and names.index(name) < names.index(target):
                continue  # drawn once, with two heads
            style = {
                "arrowstyle": "<|-|>" if mutual else "-|>",
                "color": BLUE if mutual else LINE,
                "lw": 1.3 if mutual else 0.9,
                "shrinkA": 7,
                "shrinkB": 7,
                "connectionstyle": "arc3,rad=0.12",
            }
            ax.annotate("", points[name], points[target], arrowprops=style, zorder=1)


def _context_node(ax: Axes, name: str, angle: float, popularity: int, *, is_target: bool) -> None:
    """Draws an attribute as a disc, larger if it is in more contexts, with its name on the outside."""
    x, y = math.sin(angle), math.cos(angle)
    ax.scatter([x], [y], s=28 + 26 * popularity, color=BLUE if is_target else "white", edgecolor=BLUE, zorder=3)
    # On the left half a name is turned round, so that no name stands upside down.
    right = x >= -1e-9
    ax.text(
        1.09 * x,
        1.09 * y,
        shorten(name),
        fontsize=8.5,
        color=INK,
        ha="left" if right else "right",
        va="center",
        rotation=90 - math.degrees(angle) + (0 if right else 180),
        rotation_mode="anchor",
    )


def _page(labels: Sequence[str]) -> tuple[Axes, Axes]:
    """The axes of the tree and of the map, on a new figure that fits the labels."""
    plt = pyplot("distances")
    side = max(CELL * len(labels), 1.2)
    label = max(SCALE + 0.1, CHARACTER * max(map(len, labels)) + 0.15)
    width, height = 0.2 + TREE + side + label + 0.2, 0.6 + side + label + 0.1
    figure = plt.figure(figsize=(width, height))
    bottom, map_height = (label + 0.1) / height, side / height
    tree_ax = figure.add_axes((0.2 / width, bottom, (TREE - 0.05) / width, map_height))
    return tree_ax, figure.add_axes(((0.2 + TREE) / width, bottom, side / width, map_height))


SHOWN_FRAMES, SHOWN_VALUES = 3, 20  # the most frames in a notebook's view, and the most values of one
LIMITS = (
    "Two values are near if their rows are similar in other columns of this table; their meanings may differ.",
    "Distances of rare values are mostly noise: shrinkage makes such a value look independent of the other columns.",
)


def contexts_text(contexts: Mapping[str, Sequence[str]]) -> str:
    """Each attribute with its context, in a line."""
    return "; ".join(f"{name} by {', '.join(context)}" for name, context in contexts.items())


def fitted_html(
    contexts: Mapping[str, Sequence[str]], left_out: Sequence[str], distances: Mapping[str, pd.DataFrame]
) -> str:
    """Contexts and the first distances as HTML."""
    rows = "".join(
        f"<tr><td>{escape(name)}</td><td style='text-align:left'>{escape(', '.join(context))}</td></tr>"
        for name, context in contexts.items()
    )
    columns = "<thead><tr><th>attribute</th><th>context</th></tr></thead>"
    unused = (
        f"<p>Left out, for they have a single declared value: {escape(', '.join(left_out))}</p>" if left_out else ""
    )
    small = [(name, frame) for name, frame in distances.items() if len(frame) <= SHOWN_VALUES]
    frames = "".join(
        f"<p>Distances between values of <b>{escape(name)}</b></p>{frame.round(3).to_html()}"
        for name, frame in small[:SHOWN_FRAMES]
    )
    return f"<table>{columns}<tbody>{rows}</tbody></table>{unused}{frames}"
