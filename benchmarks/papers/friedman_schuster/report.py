# SPDX-License-Identifier: Apache-2.0
"""From cells to what is committed: tables, pictures, significance, and a section of the README."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.harness.measure import Experiment
from benchmarks.harness.pictures import Look, error_bars, log_axis, look_of, picture
from benchmarks.harness.tables import by_algorithm, markdown, measured_or_published, number_of_runs, replace_section

__all__ = ["corrected_t", "significance", "write"]

ABOUT_TESTS = "Corrected paired t-tests (Nadeau & Bengio 2003) on the same folds, two-sided, 0.05."
TESTS = "fig8_tests.csv"
TABLE1 = (500, 1000, 1500, 2000, 5000)
STYLES: dict[str, Look] = {
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
LOG_AXES = ("fig6", "fig7", "fig8")
DASHED = ("10 bins", "not private", "diffprivlib")


def write(figures: Sequence[Experiment], cells: pd.DataFrame, folder: Path) -> list[str]:
    """Writes all figures that were measured or are in the folder; returns the names of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files: list[str] = []
    sections: list[str] = []
    for figure in figures:
        own = cells[cells["figure"] == figure.key]
        peers = sorted(set(own["algorithm"]) - set(figure.learners))
        table = measured_or_published(own, [*figure.learners, *peers], folder / f"{figure.key}.csv")
        if table.empty:
            continue
        files += [_csv(table, folder / f"{figure.key}.csv"), _picture(figure, table, folder / f"{figure.key}.png")]
        name = _name(figure)
        text = _markdown(table, figure.xlabel, deviations=figure.key == "fig8")
        sections.append(f"### {name}. {figure.title}\n\n![{name}]({figure.key}.png)\n\n{text}")
        if figure.key == "fig3":
            rows = table[table["x"].isin(TABLE1)]
            files.append(_csv(rows, folder / "table1.csv"))
            text = _markdown(rows, figure.xlabel, deviations=True)
            sections.append(f"### Table 1. Accuracy and standard deviation of single splits\n\n{text}")
        if figure.key == "fig8":
            whole = set(table["algorithm"]) == set(own["algorithm"])  # tests compare runs of the same folds
            tests = significance(own) if whole else pd.read_csv(folder / TESTS)
            files.append(_csv(tests, folder / TESTS, digits=4))
            sections.append(f"### Significance on Adult\n\n{ABOUT_TESTS}\n\n{_tests(tests)}")
    replace_section(folder / "README.md", "tables", "\n\n".join(sections), heading="Friedman & Schuster 2010 again")
    return [*files, "README.md"]


def _name(figure: Experiment) -> str:
    """Returns ``Figure 6``, or ``Figure 6 depth 3`` for a variant of it."""
    return f"Figure {figure.key[3:]}".replace("-", " ")


def _csv(table: pd.DataFrame, path: Path, digits: int = 5) -> str:
    table.to_csv(path, index=False, float_format=f"%.{digits}g")
    return path.name


def corrected_t(differences: np.ndarray, test_share: float) -> float:
    """Returns the two-sided p-value of the corrected resampled paired t-test.

    Folds of repeated cross-validation share training rows, so their differences are not independent:
    the variance of the mean gets n_test / n_train on top of 1 / n.

    Args:
        differences: Differences of the accuracies of two algorithms, shape (folds,).
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
    """Compares at each epsilon the published variants with one another, and `best` with each learner."""
    names = sorted(set(cells["algorithm"]))
    published = [name for name in ("Max", "Gini", "InfoGain") if name in names]
    others = [name for name in names if name not in published and name != "best" and "not private" not in name]
    pairs = [*itertools.combinations(published, 2), *(("best", name) for name in (*published, *others))]
    rows = []
    for x, own in cells.groupby("x"):
        table = own.pivot(index="run", columns="algorithm", values="value")
        for left, right in pairs:
            if left not in table or right not in table:
                continue
            both = table[[left, right]].dropna()
            if len(both) > 1:
                difference = (both[left] - both[right]).to_numpy()
                rows.append((x, left, right, len(both), difference.mean(), corrected_t(difference, 1 / 9)))
    return pd.DataFrame(rows, columns=["epsilon", "one", "other", "n", "difference", "p"])


def _picture(figure: Experiment, table: pd.DataFrame, path: Path) -> str:
    title = f"{_name(figure)}: {figure.title}".replace(" = ", "\xa0=\xa0")
    with picture(
        path,
        title=textwrap.fill(title, 80),
        xlabel=figure.xlabel,
        ylabel="average accuracy (%)",
        legend=f"mean ± two standard errors\n{number_of_runs(table['n'])} runs",
        size=(9, 4.8),
    ) as axes:
        for name, rows in table.groupby("algorithm", sort=False):
            error_bars(axes, rows, _look(str(name)), label=str(name), scale=100)
        if figure.key.startswith(LOG_AXES):
            log_axis(axes, figure.xs)
    return path.name


def _look(name: str) -> Look:
    """Returns a line's look: dashed without privacy, by peers and with bins; dotted where pruned."""
    dashed = any(word in name for word in DASHED)
    look = {"linestyle": "--" if dashed else "-", "alpha": 0.75 if dashed else 1.0, **look_of(name, STYLES)}
    if "pruned" in name or "depth 10" in name:
        look["linestyle"] = ":"
    return look


def _markdown(table: pd.DataFrame, xlabel: str, *, deviations: bool = False) -> str:
    """Returns accuracies in percent, a line for each algorithm; the runs in the last column."""
    xs = sorted(set(table["x"]))
    texts = {
        (algorithm, x): f"{100 * mean:.1f}" + (f" ± {100 * sd:.1f}" if deviations else "")
        for algorithm, x, mean, sd in table[["algorithm", "x", "mean", "sd"]].to_numpy().tolist()
    }
    return markdown([xlabel, *(f"{x:,g}" for x in xs), "runs"], by_algorithm(table, xs, texts))


def _tests(tests: pd.DataFrame) -> str:
    """Returns differences in points with their p-values, a line for each pair."""
    xs = sorted(set(tests["epsilon"]))
    lines = []
    for (left, right), rows in tests.groupby(["one", "other"], sort=False):
        numbers = rows[["epsilon", "difference", "p"]].to_numpy(float).tolist()
        texts = {epsilon: _test(difference, p) for epsilon, difference, p in numbers}
        lines.append([f"{left} − {right}", *(texts.get(x, "") for x in xs)])
    return markdown(["difference in points (p)", *(f"B = {x:g}" for x in xs)], lines)


def _test(difference: float, p: float) -> str:
    text = f"{100 * difference:+.1f} ({'<0.001' if p < 0.001 else f'{p:.3f}'})"
    return f"**{text}**" if p < 0.05 else text
