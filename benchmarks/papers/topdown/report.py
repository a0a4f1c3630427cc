# SPDX-License-Identifier: Apache-2.0
"""From cells to what is committed: a CSV for each experiment, a picture for each of the paper's figures."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd

from benchmarks.papers.friedman_schuster.report import summary
from benchmarks.papers.topdown.experiments import Figure

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

__all__ = ["write"]

STYLES: dict[str, dict[str, Any]] = {
    "turns": {"color": "#e15759", "marker": "D", "linewidth": 2.2},
    "LocalRNM": {"color": "#4e79a7", "marker": "o"},
    "NoisyCounts": {"color": "#59a14f", "marker": "^"},
    "SingleMachine": {"color": "#f28e2b", "marker": "s", "linestyle": "--"},
    "DiffPC45": {"color": "#555555", "marker": "x", "linestyle": "--"},
}
SHADES = (1.0, 0.7, 0.45, 0.25)


def write(figures: Iterable[Figure], cells: pd.DataFrame, folder: Path) -> list[str]:
    """Writes everything that there are cells for; returns the names of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = {
        one.key: (one, summary(own, list(one.learners)))
        for one in figures
        if len(own := cells[cells["figure"] == one.key])
    }
    written = []
    for key, (_, table) in tables.items():
        table.to_csv(folder / f"{key}.csv", index=False, float_format="%.5g")
        written.append(f"{key}.csv")
    for key, (figure, table) in tables.items():
        if key.startswith("fig1"):
            written.append(_picture(folder / f"{key}.png", figure, [("", 1.0, table)], log=False))
        if key.startswith("fig2"):
            exact = tables.get(f"exact-{figure.data}")
            written.append(
                _picture(
                    folder / f"{key}.png",
                    figure,
                    [("", 1.0, table)],
                    exact=None if exact is None else float(exact[1]["mean"].iloc[0]),
                )
            )
            sizes = sorted(
                (one for other, one in tables.items() if other.startswith(f"fig3-{figure.data}-")),
                key=lambda one: -one[0].fraction,
            )
            if sizes:
                whole = table[table["algorithm"].isin(list(sizes[0][0].learners))]
                series = [
                    (", 100 %", 1.0, whole),
                    *(
                        (f", {100 * one.fraction:g} %", shade, few)
                        for (one, few), shade in zip(sizes, SHADES[1:], strict=False)
                    ),
                ]
                written.append(
                    _picture(
                        folder / f"fig3-{figure.data}.png",
                        figure,
                        series,
                        title=f"Figure 3, {figure.data}: test accuracy by share of the training rows",
                    )
                )
    return written


def _picture(
    path: Path,
    figure: Figure,
    series: list[tuple[str, float, pd.DataFrame]],
    *,
    title: str = "",
    exact: float | None = None,
    log: bool = True,
) -> str:
    """One picture; returns its name."""
    fig, ax = plt.subplots(figsize=(8.5, 4.6), layout="constrained")
    for suffix, shade, table in series:
        for name, rows in table.groupby("algorithm", sort=False):
            _line(ax, str(name), suffix, shade, rows)
    if exact is not None:
        ax.axhline(100 * exact, color="#f28e2b", linestyle=":", linewidth=1, label="SingleMachine, hardly any noise")
    if log:
        ax.set_xscale("log", base=2)
        ax.set_xticks(list(figure.xs), [f"{x:g}" for x in figure.xs])
        ax.minorticks_off()
    ax.set_xlabel(figure.xlabel)
    ax.set_ylabel("test accuracy (%)")
    ax.set_title(title or f"Figure {figure.key[3]}, {figure.data}: {figure.title}", fontsize=10)
    ax.grid(alpha=0.25)
    counts = sorted({int(count) for _, _, table in series for count in table["n"]})
    runs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    what = "one run" if counts == [1] else f"mean ± two standard errors\n{runs} runs"
    fig.legend(loc="outside right upper", fontsize=8, title=what, title_fontsize=8)
    fig.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(fig)
    return path.name


def _line(ax: Axes, name: str, suffix: str, shade: float, rows: pd.DataFrame) -> None:
    look = {"capsize": 2, "markersize": 4, "alpha": shade} | next(
        look for start, look in STYLES.items() if name.startswith(start)
    )
    if name.endswith("uniform"):
        look |= {"linestyle": "--"}
    ax.errorbar(rows["x"], 100 * rows["mean"], yerr=200 * rows["se"].fillna(0), label=name + suffix, **look)
