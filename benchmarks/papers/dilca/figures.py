# SPDX-License-Identifier: Apache-2.0
"""The paper's figures of what was measured: solid lines ours, dashed the published mechanism, dotted without privacy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

__all__ = ["draw"]

COLOURS = {"mean_su": "#4e79a7", "max_relevance": "#f28e2b", "max_dependency": "#59a14f", "baseline": "#9c755f"}
STYLES = {"ours": "-", "published": "--", "exact": ":"}
Line = dict[str, Any]


def draw(lines: Sequence[Line], folder: Path) -> None:
    """Draws every figure that there are measurements for."""
    for figure, name, what, title in (
        ("2-3", "figure-2", "f_adjusted", "Adjusted F-score of the context"),
        ("2-3", "figure-3", "pearson", "Correlation with the distances without privacy"),
        ("4", "figure-4", "ari", "Adjusted Rand index of Ward's clustering"),
        ("5", "figure-5", "accuracy", "Accuracy of 5-NN"),
    ):
        mine = [line for line in lines if line["figure"] == figure and line["what"] == what]
        names = [
            name for name in ("adult", "mushroom", "soybean", "cmc") if any(line["dataset"] == name for line in mine)
        ]
        if mine:
            panels = [(one, [line for line in mine if line["dataset"] == one]) for one in names]
            _page(panels, 1, title, "epsilon", lambda line: float(line["epsilon"]), alike=figure != "5").savefig(
                folder / f"{name}.png", dpi=80
            )
    synthetic = [line for line in lines if line["figure"] == "6"]
    if synthetic:
        panels = [
            (
                f"Synth-{kind}, noise {noise}",
                [line for line in synthetic if line["dataset"] == kind and line["noise"] == noise],
            )
            for noise in ("0.1", "0.2", "0.3")
            for kind in "ABCD"
        ]
        _page(
            panels, 3, "Share of runs that find the right context", "epsilon", lambda line: float(line["epsilon"])
        ).savefig(folder / "figure-6.png", dpi=80)
    sizes = [line for line in lines if line["figure"] == "7" and line["what"] == "pearson"]
    if sizes:
        names = list(dict.fromkeys(line["dataset"] for line in sizes))
        panels = [
            (
                f"{name}, epsilon {epsilon}",
                [line for line in sizes if line["dataset"] == name and line["epsilon"] == epsilon],
            )
            for epsilon in ("0.5", "2.0")
            for name in names
        ]
        page = _page(
            panels,
            2,
            "Correlation with the distances without privacy, by size of the context",
            "k",
            lambda line: float(line["k"]),
        )
        page.savefig(folder / "figure-7.png", dpi=80)
    plt.close("all")


def _page(
    panels: Sequence[tuple[str, Sequence[Line]]],
    rows: int,
    title: str,
    across: str,
    at: Callable[[Line], float],
    *,
    alike: bool = True,
) -> Any:
    """Panels and one legend for all; ``alike`` ones share the scale of what was measured."""
    columns = len(panels) // rows
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(3.1 * columns, 0.9 + 2.5 * rows),
        sharey=alike,
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    for ax, (name, mine) in zip(axes.ravel(), panels, strict=True):
        for method, colour in COLOURS.items():
            for who, style in STYLES.items():
                points = sorted(
                    (at(line), line["mean"], line["sd"])
                    for line in mine
                    if line["method"] == method and line["who"] == who
                )
                if who == "exact" and points:
                    ax.axhline(points[0][1], color=colour, ls=style, lw=1)
                elif points:
                    x, mean, spread = (list(values) for values in zip(*points, strict=True))
                    ax.plot(x, mean, style, color=colour, lw=1.6, marker="o", ms=3 if who == "ours" else 2)
                    if who == "ours" and mine[0]["what"] != "right":  # the spread of a share says nothing
                        ax.fill_between(
                            x,
                            [m - s for m, s in zip(mean, spread, strict=True)],
                            [m + s for m, s in zip(mean, spread, strict=True)],
                            color=colour,
                            alpha=0.12,
                            lw=0,
                        )
        ax.set_title(name, fontsize=10)
        ax.grid(color="#e5e5e5", lw=0.6)
        ax.tick_params(labelsize=8)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    for ax in axes[-1]:
        ax.set_xlabel(across, fontsize=9)
    seen = {(line["method"], line["who"]) for _, mine in panels for line in mine}
    handles = [
        plt.Line2D([], [], color=colour, label=method)
        for method, colour in COLOURS.items()
        if any(one == method for one, _ in seen)
    ]
    names = {"ours": "ours", "published": "published", "exact": "without privacy"}
    handles += [
        plt.Line2D([], [], color="#555555", ls=style, label=names[who])
        for who, style in STYLES.items()
        if any(one == who for _, one in seen)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False)
    figure.suptitle(title, fontsize=11)
    return figure
