# SPDX-License-Identifier: Apache-2.0
"""The common code of all pictures: inks, colours of classes, labels, axes, panels, maps of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from pinq.errors import QueryError
from pinq.public.checks import brief
from pinq.public.plugins import optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage
else:
    Axes = Any  # so that a module which draws nothing needs no matplotlib


INK, PALE, LINE = "#222222", "#777777", "#b5bcc7"
COLOURS = (
    *("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#76b7b2", "#e15759", "#edc948", "#9c755f", "#ff9da7", "#bab0ac"),
    *("#a0cbe8", "#ffbe7d", "#8cd17d", "#d4a6c8"),
)
BLUE, RED = COLOURS[0], COLOURS[5]
LABEL = 28  # characters
CLASSES = 12  # that a picture names


def pyplot(drawing: str) -> ModuleType:
    """Returns matplotlib's pyplot. ``ImportError`` tells how to install it for a drawing."""
    return optional("matplotlib.pyplot", "plot", f"drawing {drawing} needs matplotlib")


def axes_of(drawing: str, ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Returns the axes to draw on: the given ones, or those of a new figure of a size in inches."""
    if ax is not None and not hasattr(ax, "imshow"):
        raise QueryError(f"is {brief(ax)}", parameter="ax", allowed="axes of matplotlib, or None for a new figure")
    if ax is not None:
        return ax
    _, axes = pyplot(drawing).subplots(figsize=size, layout="constrained")
    return axes


def colour(number: int) -> str:
    """Returns the colour of a class."""
    return COLOURS[number % len(COLOURS)]


def shorten(text: str, length: int = LABEL) -> str:
    """Returns at most ``length`` characters of a text.

    A list ends behind one of its commas where that does not cost more than half of the text.
    """
    if len(text) <= length:
        return text
    comma = text.rfind(", ", 0, length - 1)
    return text[: comma + 2] + "…" if comma >= length // 2 else text[: length - 1] + "…"


def panels(
    drawing: str, heights: Sequence[float], *, across: int, wide: float, least: int = 1
) -> tuple[Figure, list[Axes]]:
    """Returns a figure with axes for some panels side by side and below each other.

    Args:
        drawing: The name of the drawing, for the error where matplotlib is not installed.
        heights: The heights of each panel, in inches.
        across: The largest number of panels side by side.
        wide: Inches of a panel.
        least: The smallest width of the figure, in panels.
    """
    across = min(across, max(1, len(heights)))
    down = max(1, math.ceil(len(heights) / across))
    # Seven panels are three, three, and one; the two axes that are left show nothing.
    rows = [max(heights[row * across : (row + 1) * across], default=1.0) for row in range(down)]
    figure, grid = pyplot(drawing).subplots(
        down,
        across,
        figsize=(wide * max(across, least), sum(rows)),
        squeeze=False,
        height_ratios=rows,
        layout="constrained",
    )
    for ax in grid.flat[len(heights) :]:
        ax.set_axis_off()
    return figure, list(grid.flat[: len(heights)])


def bare(ax: Axes) -> None:
    """Takes ticks and the frame away."""
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def titled(ax: Axes, title: str) -> None:
    """Writes the title above a picture, and takes the lines above and on the right away."""
    ax.set_title(title, fontsize=10, loc="left")
    ax.spines[["top", "right"]].set_visible(False)


def named_map(
    ax: Axes,
    numbers: np.ndarray,
    across: Sequence[str],
    down: Sequence[str],
    *,
    size: float = 8,
    upright: bool = True,
    **look: Any,
) -> AxesImage:
    """Draws numbers as a map with names across and down; returns the image.

    Args:
        ax: The axes of the map.
        numbers: Shape (names down, names across).
        across: The names below the columns.
        down: The names beside the rows.
        size: Points of the names.
        upright: Whether the names below are written upwards.
        look: Colours and scale, as ``Axes.imshow`` takes them.
    """
    ax.set_xticks(range(len(across)), across, rotation=90 if upright else 0, fontsize=size, color=INK)
    ax.set_yticks(range(len(down)), down, fontsize=size, color=INK)
    return ax.imshow(numbers, aspect="auto", **look)


def write_cells(ax: Axes, numbers: np.ndarray, written: Callable[[float], str], dark: np.ndarray) -> None:
    """Writes a number into each cell of a map, white where the cell is dark."""
    for (row, column), number in np.ndenumerate(numbers):
        ink = "white" if dark[row, column] else INK
        ax.text(column, row, written(number), ha="center", va="center", fontsize=8, color=ink)
