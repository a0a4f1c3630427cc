# SPDX-License-Identifier: Apache-2.0
"""From cells to what is committed: a CSV and a picture for each figure, Table 1, significance, and the tables of the README."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from scipy import stats

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

__all__ = ["corrected_t", "into_readme", "summary", "write"]

TABLE1 = (500, 1000, 1500, 2000, 5000)
STYLES: dict[str, dict[str, Any]] = {
    "Max": {"color": "#4e79a7", "marker": "o"},
    "Gini": {"color": "#f28e2b", "marker": "s"},
    "InfoGain": {"color": "#59a14f", "marker": "^"},
    "SuLQ": {"color": "#b07aa1", "marker": "v"},
    "best": {"color": "#e15759", "marker": "D", "linewidth": 2.2},
    "ID3": {"color": "#555555", "marker": "x"},
    "J48-like": {"color": "#555555", "marker": "x"},
    "depth 5": {"color": "#555555", "marker": "x"},
    "diffprivlib tree": {"color": "#9c755f", "marker": "<"},
    "diffprivlib forest": {"color": "#bab0ac", "marker": ">"},
}
DASHED = ("10 bins", "not private", "diffprivlib")


def write(figures: Iterable[Any], cells: pd.DataFrame, folder: Path) -> list[str]:
    """Writes everything that there are cells for; returns the names of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written, tables = [], []
    for figure in figures:
        own = cells[cells["figure"] == figure.key]
        if own.empty:
            continue
        table = summary(own, [*figure.learners, *sorted(set(own["algorithm"]) - set(figure.learners))])
        table.to_csv(folder / f"{figure.key}.csv", index=False, float_format="%.5g")
        _picture(figure, table, folder / f"{figure.key}.png")
        written += [f"{figure.key}.csv", f"{figure.key}.png"]
        name = f"Figure {figure.key[3:]}"
        tables.append(
            f"### {name}. {figure.title}\n\n![{name}]({figure.key}.png)\n\n{_markdown(table, figure.xlabel, deviations=figure.key == 'fig8')}"
        )
        if figure.key == "fig3":
            rows = table[table["x"].isin(TABLE1)]
            rows.to_csv(folder / "table1.csv", index=False, float_format="%.5g")
            written.append("table1.csv")
            tables.append(
                f"### Table 1. Accuracy and standard deviation of single splits\n\n{_markdown(rows, figure.xlabel, deviations=True)}"
            )
        if figure.key == "fig8":
            found = significance(own)
            found.to_csv(folder / "fig8_tests.csv", index=False, float_format="%.4g")
            written.append("fig8_tests.csv")
            tables.append(
                f"### Significance on Adult\n\nCorrected paired t-tests (Nadeau & Bengio 2003) on the same folds, two-sided, 0.05.\n\n{_tests(found)}"
            )
    into_readme(
        folder / "README.md", "\n\n".join(tables), heading="Friedman & Schuster 2010 again", made_by="make reproduce-fs"
    )
    return [*written, "README.md"]


def summary(cells: pd.DataFrame, order: Sequence[str]) -> pd.DataFrame:
    """Mean, standard deviation and standard error of each algorithm at each abscissa, with the number of runs."""
    grouped = cells.groupby(["algorithm", "x"])["accuracy"].agg(n="count", mean="mean", sd="std").reset_index()
    grouped["se"] = grouped["sd"] / np.sqrt(grouped["n"])
    grouped["place"] = grouped["algorithm"].map({name: place for place, name in enumerate(order)})
    return grouped.sort_values(["place", "x"]).drop(columns="place").reset_index(drop=True)


def corrected_t(differences: np.ndarray, test_share: float) -> float:
    """Two-sided p-value of the corrected resampled paired t-test.

    Folds of repeated cross-validation share training rows, so their differences are not independent: the variance of the mean gets
    n_test / n_train on top of 1 / n.

    Args:
        differences: Of the accuracies of two algorithms, one for each fold.
        test_share: n_test / n_train; 1/9 for 10 folds.

    References:
        Nadeau & Bengio 2003, "Inference for the Generalization Error", sec. 5.2.1.
    """
    n, variance = len(differences), float(np.var(differences, ddof=1))
    if variance == 0:
        return 1.0 if not differences.any() else 0.0
    t = float(np.mean(differences)) / np.sqrt((1 / n + test_share) * variance)
    return float(2 * stats.t.sf(abs(t), n - 1))


def significance(cells: pd.DataFrame) -> pd.DataFrame:
    """For each epsilon: who beats whom of the published variants, and `best` against each."""
    found = []
    published = [name for name in ("Max", "Gini", "InfoGain") if name in set(cells["algorithm"])]
    others = [
        name
        for name in sorted(set(cells["algorithm"]))
        if name != "best" and "not private" not in name and name not in published
    ]
    for x, own in cells.groupby("x"):
        table = own.pivot(index="run", columns="algorithm", values="accuracy")
        for one, other in [*itertools.combinations(published, 2), *(("best", name) for name in (*published, *others))]:
            both = table[[one, other]].dropna() if {one, other} <= set(table) else pd.DataFrame()
            if len(both) > 1:
                difference = (both[one] - both[other]).to_numpy()
                found.append((x, one, other, len(both), difference.mean(), corrected_t(difference, 1 / 9)))
    return pd.DataFrame(found, columns=["epsilon", "one", "other", "n", "difference", "p"])


def _picture(figure: Any, table: pd.DataFrame, path: Path) -> None:
    fig, ax = plt.subplots(figsize=(9, 4.8), layout="constrained")
    for name, rows in table.groupby("algorithm", sort=False):
        _line(ax, str(name), rows)
    ax.set_xlabel(figure.xlabel)
    ax.set_ylabel("average accuracy (%)")
    if figure.key in ("fig6", "fig7", "fig8"):
        ax.set_xscale("log")
        ax.set_xticks(list(figure.xs), [f"{x:,g}" for x in figure.xs])
        ax.minorticks_off()
    ax.set_title(textwrap.fill(f"Figure {figure.key[3:]}: {figure.title}".replace(" = ", "\xa0=\xa0"), 80), fontsize=10)
    ax.grid(alpha=0.25)
    counts = sorted(set(table["n"]))
    runs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    fig.legend(
        loc="outside right upper", fontsize=8, title=f"mean ± two standard errors\n{runs} runs", title_fontsize=8
    )
    fig.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(fig)


def _line(ax: Axes, name: str, rows: pd.DataFrame) -> None:
    style = next((look for start, look in STYLES.items() if name.startswith(start)), {})
    dashed = any(word in name for word in DASHED)
    look = {
        "linestyle": "--" if dashed else "-",
        "markersize": 4,
        "capsize": 2,
        "alpha": 0.75 if dashed else 1.0,
    } | style
    if "pruned" in name or "depth 10" in name:
        look |= {"linestyle": ":"}
    ax.errorbar(rows["x"], 100 * rows["mean"], yerr=200 * rows["se"].fillna(0), label=name, **look)


def _markdown(table: pd.DataFrame, xlabel: str, *, deviations: bool = False) -> str:
    """Accuracies in percent, a line for each algorithm; the runs in the last column."""
    xs = sorted(set(table["x"]))
    lines = [f"| {xlabel} | " + " | ".join(f"{x:,g}" for x in xs) + " | runs |", "|---" * (len(xs) + 2) + "|"]
    for name, rows in table.groupby("algorithm", sort=False):
        known = rows.set_index("x")
        cells = [_cell(known.loc[x], deviations) if x in known.index else "" for x in xs]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {_span(rows['n'])} |")
    return "\n".join(lines)


def _cell(row: pd.Series, deviations: bool) -> str:
    return f"{100 * row['mean']:.1f}" + (f" ± {100 * row['sd']:.1f}" if deviations else "")


def _span(counts: pd.Series) -> str:
    return f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"


def _tests(found: pd.DataFrame) -> str:
    xs = sorted(set(found["epsilon"]))
    lines = [
        "| difference in points (p) | " + " | ".join(f"B = {x:g}" for x in xs) + " |",
        "|---" * (len(xs) + 1) + "|",
    ]
    for (one, other), rows in found.groupby(["one", "other"], sort=False):
        known: Mapping[float, Any] = {row.epsilon: row for row in rows.itertuples()}
        lines.append(f"| {one} − {other} | " + " | ".join(_test(known[x]) if x in known else "" for x in xs) + " |")
    return "\n".join(lines)


def _test(row: Any) -> str:
    text = f"{100 * row.difference:+.1f} ({'<0.001' if row.p < 0.001 else f'{row.p:.3f}'})"
    return f"**{text}**" if row.p < 0.05 else text


def into_readme(path: Path, tables: str, *, heading: str, made_by: str) -> None:
    """Replaces what stands between the markers; the words around it are written by people."""
    start, end = f"<!-- tables: written by {made_by} -->", "<!-- end of tables -->"
    text = path.read_text(encoding="utf-8") if path.exists() else f"# {heading}\n\n{start}\n{end}\n"
    before, rest = text.split(start, 1)
    path.write_text(f"{before}{start}\n\n{tables}\n\n{end}{rest.split(end, 1)[1]}", encoding="utf-8")
