# SPDX-License-Identifier: Apache-2.0
"""From cells to what is committed: a CSV for each experiment, a picture for each of the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from benchmarks.harness.pictures import Look, error_bars, log_axis, look_of, picture
from benchmarks.harness.tables import measured_or_published, number_of_runs, summary
from benchmarks.papers.topdown.experiments import Figure

__all__ = ["write"]

STYLES: dict[str, Look] = {
    "turns": {"color": "#e15759", "marker": "D", "linewidth": 2.2},
    "LocalRNM": {"color": "#4e79a7", "marker": "o"},
    "NoisyCounts": {"color": "#59a14f", "marker": "^"},
    "SingleMachine": {"color": "#f28e2b", "marker": "s", "linestyle": "--"},
    "DiffPC45": {"color": "#555555", "marker": "x", "linestyle": "--"},
}
SHAPED = ("fig5", "fig6")
SHAPED_BY = {"train": ("training accuracy (%)", 100), "depth": ("levels of splits", 1), "nodes": ("nodes", 1)}
SHADES = (0.7, 0.45, 0.25)  # of Figure 3's lines, from the most rows down


class Series(NamedTuple):
    """Lines of one picture that belong together: what follows their names, how strong they are."""

    suffix: str
    alpha: float
    table: pd.DataFrame


def write(figures: Sequence[Figure], cells: pd.DataFrame, folder: Path) -> list[str]:
    """Writes tables of all figures that ran or are in the folder, draws those that ran; returns the files' names."""
    folder.mkdir(parents=True, exist_ok=True)
    by_key = {figure.key: figure for figure in figures}
    tables = {}
    files = [_shapes(folder, figure, cells[cells["figure"] == figure.key]) for figure in figures]
    for figure in figures:
        path = folder / f"{figure.key}.csv"
        if figure.key.startswith(SHAPED):
            continue
        table = measured_or_published(cells[cells["figure"] == figure.key], list(figure.learners), path)
        if not table.empty:
            tables[figure.key] = table
            table.to_csv(path, index=False, float_format="%.5g")
    files = [*filter(None, files), *(f"{key}.csv" for key in tables)]
    ran = set(cells["figure"])
    for key, table in tables.items():
        data = by_key[key].data
        if key.startswith("fig1") and key in ran:
            files.append(_picture(folder / f"{key}.png", by_key[key], [Series("", 1.0, table)]))
        if key.startswith("fig2") and {key, f"exact-{data}"} & ran:
            files.append(_figure2(folder / f"{key}.png", by_key[key], tables))
        if key.startswith("fig2") and any(own == key or own.startswith(f"fig3-{data}-") for own in ran):
            files += _figure3(folder, by_key, tables, by_key[key])
    return files


def _shapes(folder: Path, figure: Figure, cells: pd.DataFrame) -> str:
    """Writes and draws what figures 5 and 6 tell of trees, where it was measured; returns the table's name."""
    if not figure.key.startswith(SHAPED) or cells.empty:
        return ""
    own = [summary(cells[cells["measure"] == what], list(figure.learners)).assign(what=what) for what in SHAPED_BY]
    pd.concat(own)[["algorithm", "x", "what", "n", "mean", "sd", "se"]].to_csv(
        folder / f"{figure.key}.csv", index=False, float_format="%.5g"
    )
    for table, (what, (label, scale)) in zip(own, SHAPED_BY.items(), strict=True):
        if what == "train" or figure.key.startswith("fig5"):
            path = folder / f"{figure.key}-{what}.png"
            _picture(path, figure, [Series("", 1.0, table)], log=True, ylabel=label, scale=scale)
    return f"{figure.key}.csv"


def _figure2(path: Path, figure: Figure, tables: dict[str, pd.DataFrame]) -> str:
    exact = tables.get(f"exact-{figure.data}")
    without_noise = None if exact is None else float(exact["mean"].iloc[0])
    return _picture(path, figure, [Series("", 1.0, tables[figure.key])], without_noise=without_noise, log=True)


def _figure3(folder: Path, figures: dict[str, Figure], tables: dict[str, pd.DataFrame], whole: Figure) -> list[str]:
    """Draws all sizes of the training set in one picture, where any was measured."""
    keys = [key for key in tables if key.startswith(f"fig3-{whole.data}-")]
    if not keys:
        return []
    keys.sort(key=lambda key: -figures[key].fraction)
    table = tables[whole.key]
    series = [Series(", 100 %", 1.0, table[table["algorithm"].isin(list(figures[keys[0]].learners))])]
    for key, alpha in zip(keys, SHADES, strict=False):
        series.append(Series(f", {100 * figures[key].fraction:g} %", alpha, tables[key]))
    title = f"Figure 3, {whole.data}: test accuracy by share of the training rows"
    return [_picture(folder / f"fig3-{whole.data}.png", whole, series, title=title, log=True)]


def _picture(
    path: Path,
    figure: Figure,
    series: Sequence[Series],
    *,
    title: str = "",
    without_noise: float | None = None,
    log: bool = False,
    ylabel: str = "test accuracy (%)",
    scale: int = 100,
) -> str:
    """Draws one picture; returns its name."""
    with picture(
        path,
        title=title or f"Figure {figure.key[3]}, {figure.data}: {figure.title}",
        xlabel=figure.xlabel,
        ylabel=ylabel,
        legend=_legend(pd.concat([table["n"] for _, _, table in series])),
    ) as axes:
        for suffix, alpha, table in series:
            for name, rows in table.groupby("algorithm", sort=False):
                error_bars(axes, rows, _look(str(name), alpha), label=f"{name}{suffix}", scale=scale)
        if without_noise is not None:
            label = "SingleMachine, hardly any noise"
            axes.axhline(100 * without_noise, color="#f28e2b", linestyle=":", linewidth=1, label=label)
        if log:
            log_axis(axes, figure.xs, base=2)
    return path.name


def _legend(counts: pd.Series) -> str:
    runs = number_of_runs(counts)
    return "one run" if runs == "1" else f"mean ± two standard errors\n{runs} runs"


def _look(name: str, alpha: float) -> Look:
    look = {"alpha": alpha, **look_of(name, STYLES)}
    return look | {"linestyle": "--"} if name.endswith("uniform") else look
