# SPDX-License-Identifier: Apache-2.0
"""The paper's figures: solid lines ours, dashed the published mechanism, dotted without privacy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.lines import Line2D

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.papers.dilca.data import NAMES

__all__ = ["draw"]

COLORS = {"mean_su": "#4e79a7", "max_relevance": "#f28e2b", "max_dependency": "#59a14f", "baseline": "#9c755f"}
STYLES = {"ours": "-", "published": "--", "exact": ":"}
LABELS = {"ours": "ours", "published": "published", "exact": "without privacy"}
MEASURES = (
    ("2-3", "figure-2", "f_adjusted", "Adjusted F-score of the context"),
    ("2-3", "figure-3", "pearson", "Correlation with the distances without privacy"),
    ("4", "figure-4", "ari", "Adjusted Rand index of Ward's clustering"),
    ("5", "figure-5", "accuracy", "Accuracy of 5-NN"),
    ("8", "figure-8", "l1", "Mean difference to the distances without privacy"),
    ("10-11", "figure-10", "pearson", "Records: correlation with the distances without privacy"),
    ("10-11", "figure-11", "l1", "Records: mean difference to the distances without privacy"),
)
Panel = tuple[str, pd.DataFrame]


def draw(table: pd.DataFrame, folder: Path) -> None:
    """Draws every figure that there are measurements for.

    Args:
        table: Columns ``figure``, the setting's, ``what``, ``mean`` and ``sd``.
        folder: The folder of the pictures.
    """
    for figure, name, measure, title in MEASURES:
        own = table[(table["figure"] == figure) & (table["what"] == measure)]
        panels = [(dataset, own[own["dataset"] == dataset]) for dataset in NAMES]
        _save(panels, folder / f"{name}.png", 1, title, "epsilon", same_scale=figure != "5")
    own = table[table["figure"] == "6"]
    panels = [
        (f"Synth-{kind}, noise {noise}", own[(own["dataset"] == kind) & (own["noise"] == noise)])
        for noise in (0.1, 0.2, 0.3)
        for kind in "ABCD"
    ]
    _save(panels, folder / "figure-6.png", 3, "Share of runs that find the right context", "epsilon")
    own = table[(table["figure"] == "7") & (table["what"] == "pearson")]
    panels = [
        (f"{name}, epsilon {epsilon}", own[(own["dataset"] == name) & (own["epsilon"] == epsilon)])
        for epsilon in (0.5, 2.0)
        for name in dict.fromkeys(own["dataset"])
    ]
    title = "Correlation with the distances without privacy, by size of the context"
    _save(panels, folder / "figure-7.png", 2, title, "k")


def _save(
    panels: Sequence[Panel], path: Path, n_rows: int, title: str, across: str, *, same_scale: bool = True
) -> None:
    """Draws panels with one legend for all, where any was measured.

    Args:
        panels: A title and the measurements of each, row by row; of a single row, empty ones are left out.
        path: The file.
        n_rows: The number of rows of panels.
        title: The title above all panels.
        across: The column of the abscissa.
        same_scale: Whether the panels share the scale of what was measured.
    """
    if n_rows == 1:
        panels = [(name, rows) for name, rows in panels if len(rows)]
    if not any(len(rows) for _, rows in panels):
        return
    n_columns = len(panels) // n_rows
    size = (3.1 * n_columns, 0.9 + 2.5 * n_rows)
    figure, axes = plt.subplots(
        n_rows, n_columns, figsize=size, sharey=same_scale, sharex=True, squeeze=False, layout="constrained"
    )
    for panel, (name, rows) in zip(axes.ravel(), panels, strict=True):
        _panel(panel, name, rows, across)
    for panel in axes[-1]:
        panel.set_xlabel(across, fontsize=9)
    _legend(figure, pd.concat([rows for _, rows in panels]))
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=80)
    plt.close(figure)


def _panel(axes: Axes, name: str, rows: pd.DataFrame, across: str) -> None:
    for (method, who), line in rows.sort_values(across).groupby(["method", "who"]):
        if str(who) not in STYLES:
            continue
        look: dict[str, Any] = {"color": COLORS[str(method)], "ls": STYLES[str(who)]}
        if who == "exact":
            axes.axhline(line["mean"].iloc[0], lw=1, **look)
            continue
        axes.plot(line[across], line["mean"], lw=1.6, marker="o", ms=3 if who == "ours" else 2, **look)
        if who == "ours" and rows["what"].iloc[0] != "right":  # the spread of a share says nothing
            low, high = line["mean"] - line["sd"], line["mean"] + line["sd"]
            axes.fill_between(line[across], low, high, color=COLORS[str(method)], alpha=0.12, lw=0)
    axes.set_title(name, fontsize=10)
    axes.grid(color="#e5e5e5", lw=0.6)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(figure: Figure, rows: pd.DataFrame) -> None:
    methods, whos = set(rows["method"]), set(rows["who"])
    handles = [Line2D([], [], color=color, label=name) for name, color in COLORS.items() if name in methods]
    handles += [
        Line2D([], [], color="#555555", ls=style, label=LABELS[who]) for who, style in STYLES.items() if who in whos
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False)
