# SPDX-License-Identifier: Apache-2.0
"""Pictures of results: one look for the axes, error bars and legends of all studies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

__all__ = ["Look", "error_bars", "log_axis", "look_of", "over_epsilon", "picture"]

Look = Mapping[str, str | float]


@contextmanager
def picture(
    path: Path, *, title: str, xlabel: str, ylabel: str, legend: str, size: tuple[float, float] = (8.5, 4.6)
) -> Iterator[Axes]:
    """Opens one picture to draw on, and writes it when the block ends.

    Args:
        path: The file.
        title: The title above the axes.
        xlabel: The label of the abscissa.
        ylabel: The label of the ordinate.
        legend: The title of the legend, which is on the right of the axes.
        size: Width and height in inches.
    """
    fig, axes = plt.subplots(figsize=size, layout="constrained")
    yield axes
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.25)
    fig.legend(loc="outside right upper", fontsize=8, title=legend, title_fontsize=8)
    fig.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(fig)


def error_bars(
    axes: Axes, table: pd.DataFrame, look: Look, *, label: str, column: str = "mean", scale: int = 1
) -> None:
    """Draws one algorithm of a summary: its means with two standard errors."""
    errors = 2 * scale * table["se"].fillna(0)
    keywords: dict[str, Any] = {"markersize": 4, "capsize": 2, **look}
    axes.errorbar(table["x"], scale * table[column], yerr=errors, label=label, **keywords)


def log_axis(axes: Axes, xs: Sequence[float], *, base: int = 10) -> None:
    """Makes the abscissa logarithmic, with a tick at each value that was measured."""
    axes.set_xscale("log", base=base)
    axes.set_xticks(list(xs), [f"{x:,g}" for x in xs])
    axes.minorticks_off()


def over_epsilon(path: Path, means: pd.DataFrame, names: Sequence[str], *, title: str, ylabel: str) -> None:
    """Draws the means of some algorithms over epsilon.

    Args:
        path: The file.
        means: The means of one measure; columns algorithm, x, n, mean and sd.
        names: The algorithms, in the legend's order.
        title: The title above the axes.
        ylabel: The label of the ordinate.
    """
    with picture(path, title=title, xlabel="epsilon", ylabel=ylabel, legend="mean ± 2 standard errors") as axes:
        for name in names:
            lines = means[means["algorithm"] == name].sort_values("x")
            error_bars(axes, lines.assign(se=lines["sd"] / lines["n"] ** 0.5), {"marker": "o"}, label=name)
        log_axis(axes, sorted(set(means["x"])))


def look_of(name: str, looks: Mapping[str, Look]) -> Look:
    """Returns the look of the first key with which a name begins; empty if there is none."""
    return next((look for start, look in looks.items() if name.startswith(start)), {})
