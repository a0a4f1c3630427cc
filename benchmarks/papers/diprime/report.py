# SPDX-License-Identifier: Apache-2.0
"""From cells to what is committed: a CSV and a picture for each experiment, and the tables of the README."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from benchmarks.harness.pictures import Look, error_bars, log_axis, picture
from benchmarks.harness.tables import (
    by_algorithm,
    markdown,
    measured_or_published,
    number_of_runs,
    replace_section,
)
from benchmarks.papers.diprime.experiments import Sweep
from benchmarks.papers.diprime.occupancy import figure1

__all__ = ["STYLES", "write"]

STYLES: dict[str, Look] = {
    "DiffPC45": {"color": "#e15759", "marker": "D"},
    "DiPriMe, best": {"color": "#4e79a7", "marker": "o", "linewidth": 2.2},
    "DiPriMe, best, 3 trees": {"color": "#76b7b2", "marker": "o"},
    "DiPriMe, best, all rows": {"color": "#76b7b2", "marker": "o"},
    "DiPriMe, paper": {"color": "#f28e2b", "marker": "s"},
    "DiPriMe, paper, all rows": {"color": "#9c4f00", "marker": "s"},
    "DiPriMe, paper, absolute error": {"color": "#edc948", "marker": "s"},
    "DiPriMe, paper, epsilon 0.5": {"color": "#ffbe7d", "marker": "s"},
    "DiPriMe, paper, epsilon 2": {"color": "#f28e2b", "marker": "s"},
    "DiPriMe, paper, epsilon 10": {"color": "#9c4f00", "marker": "s"},
    "DP-ERT": {"color": "#59a14f", "marker": "^"},
    "DP-DF": {"color": "#b07aa1", "marker": "v"},
}
TABLE_2 = {  # the paper's; its text has lost the epsilon
    "banknote": {"random forest": 0.044, "extra trees": 0.051, "DP-DF": 0.413, "DP-ERT": 0.490, "DiPriMe": 0.072},
    "credit_default": {"random forest": 0.181, "extra trees": 0.196, "DP-DF": 0.223, "DP-ERT": 0.324, "DiPriMe": 0.223},
    "robot_navigation": {
        "random forest": 0.044,
        "extra trees": 0.190,
        "DP-DF": 0.397,
        "DP-ERT": 0.450,
        "DiPriMe": 0.207,
    },
}
TABLE_2_OF = {
    "random forest, not private": "random forest",
    "extra trees, not private": "extra trees",
    "DP-DF": "DP-DF",
    "DP-ERT": "DP-ERT",
    "DiPriMe, paper": "DiPriMe",
}


def write(sweeps: Sequence[Sweep], cells: pd.DataFrame, folder: Path) -> list[str]:
    """Writes all sweeps that were measured or are in the folder; returns the names of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files: list[str] = []
    sections: list[str] = []
    for sweep in sweeps:
        own = cells[(cells["figure"] == sweep.key) & cells["algorithm"].isin(list(sweep.learners))]
        own = own.assign(value=1 - own["value"])
        table = measured_or_published(own, list(sweep.learners), folder / f"{sweep.key}.csv")
        if table.empty:
            continue
        table = table.rename(columns={"mean": "error"})
        table.to_csv(folder / f"{sweep.key}.csv", index=False, float_format="%.5g")
        _picture(sweep, table, folder / f"{sweep.key}.png")
        sections.append(f"### {sweep.title}\n\n![{sweep.title}]({sweep.key}.png)\n\n{_markdown(sweep, table)}")
        files += [f"{sweep.key}.csv", f"{sweep.key}.png"]
    if (cells["figure"] == "robot_navigation").any():
        files += figure1(folder, {name: str(STYLES[name]["color"]) for name in ("DiPriMe, paper", "DP-ERT")})
    if (folder / "fig1.png").exists():
        sections.append("### Figure 1. Medians halve, random splits do not\n\n![Figure 1](fig1.png)")
    replace_section(folder / "README.md", "tables", "\n\n".join(sections), heading="DiPriMe again")
    return [*files, "README.md"]


def _picture(sweep: Sweep, table: pd.DataFrame, path: Path) -> None:
    with picture(
        path,
        title=sweep.title,
        xlabel=sweep.xlabel,
        ylabel="mean squared error, target in [0, 1]" if sweep.numeric else "share of wrong classes",
        legend=f"mean ± two standard errors\n{number_of_runs(table['n'])} runs",
        size=(8.5, 4.4),
    ) as axes:
        for name, rows in table.groupby("algorithm", sort=False):
            error_bars(axes, rows, _look(str(name)), label=str(name), column="error")
        for name, printed in TABLE_2_OF.items():
            if sweep.key in TABLE_2:
                color, label = str(_look(name)["color"]), f"the paper's Table 2: {printed}"
                axes.axhline(TABLE_2[sweep.key][printed], color=color, linewidth=0.8, linestyle=":", label=label)
        if sweep.setting in ("max_depth", "rho"):
            axes.set_xticks(list(sweep.xs), [f"{x:g}" for x in sweep.xs])
        else:
            log_axis(axes, sweep.xs)
        if not sweep.numeric:  # the mean alone errs so little that an axis from 0 would flatten all lines
            axes.set_ylim(bottom=0)


def _look(name: str) -> Look:
    """Returns a line's look; grey and dashed for what is not private and for constants."""
    marker = {"r": "x", "e": "+"}.get(name[0], ".")
    return STYLES.get(name, {"color": "#555555", "marker": marker, "linestyle": "--", "alpha": 0.7})


def _markdown(sweep: Sweep, table: pd.DataFrame) -> str:
    """Returns errors, a line for each algorithm; the runs in the last column."""
    digits = 5 if sweep.numeric else 3
    texts = {
        (algorithm, x): f"{error:.{digits}f} ± {sd:.{digits}f}"
        for algorithm, x, error, sd in table[["algorithm", "x", "error", "sd"]].to_numpy().tolist()
    }
    lines, head = by_algorithm(table, sweep.xs, texts), [sweep.xlabel, *(f"{x:g}" for x in sweep.xs), "runs"]
    if printed := TABLE_2.get(sweep.key):
        head.append("the paper's Table 2")
        for line in lines:
            name = TABLE_2_OF.get(line[0])
            line.append(f"{printed[name]:.3f}" if name else "–")
    return markdown(head, lines)
