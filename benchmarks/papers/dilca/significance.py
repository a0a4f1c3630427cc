# SPDX-License-Identifier: Apache-2.0
"""Tests of significance: figure 9 and tables 3 to 5 of Battaglia, Celano & Pensa 2021, appendix A.4."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

__all__ = ["beyond_chance", "trends", "write_tests"]

LEVEL = 0.01
MIN_RUNS = 10
"""A rank test of fewer runs could hardly reach the level."""
MEASURES = ("f", "pearson")
WHOSE = ["dataset", "method", "who", "epsilon"]


def write_tests(cells: pd.DataFrame, folder: Path) -> None:
    """Writes both tables, of cells with the columns of a setting, ``run``, ``measure`` and ``value``."""
    runs = cells.groupby("dataset")["run"].transform("nunique")
    own = cells[cells["measure"].str.contains(" of ", regex=False) & (runs >= MIN_RUNS)]
    if own.empty:
        return
    names = own["measure"].str.split(" of ", n=1, expand=True)
    own = own.assign(kind=names[0], attribute=names[1])
    beyond_chance(own).to_csv(folder / "beyond-chance.csv", index=False, float_format="%.3g", lineterminator="\n")
    trends(own).to_csv(folder / "trends.csv", index=False, float_format="%.3g", lineterminator="\n")


def beyond_chance(cells: pd.DataFrame) -> pd.DataFrame:
    """Compares the runs of each attribute with as many by chance: one-sided Mann-Whitney tests.

    Returns:
        For each setting and measure the share of attributes that are better than chance, false discoveries
        controlled by Benjamini & Hochberg at ``LEVEL`` over all tests of a measure by one side (figure 9), and the
        largest p-value (tables 3 and 4).
    """
    rows = []
    for measure in MEASURES:
        chance = cells[(cells["kind"] == f"{measure} by chance")]
        drawn = {key: group["value"].to_numpy() for key, group in chance.groupby([*WHOSE, "attribute"])}
        for key, group in cells[cells["kind"] == measure].groupby([*WHOSE, "attribute"]):
            p = stats.mannwhitneyu(group["value"], drawn[key], alternative="greater").pvalue
            rows.append((*key, measure, len(group), 1.0 if np.isnan(p) else p))
    table = pd.DataFrame(rows, columns=[*WHOSE, "attribute", "what", "n", "p"])
    table["beyond"] = table.groupby(["what", "who"])["p"].transform(_discoveries)
    summed = table.groupby([*WHOSE, "what"])
    return summed.agg(n=("n", "min"), attributes=("p", "size"), beyond=("beyond", "mean"), p=("p", "max")).reset_index()


def _discoveries(p: pd.Series) -> pd.Series:
    adjusted = stats.false_discovery_control(p)
    return pd.Series(adjusted <= LEVEL, index=p.index, dtype=float)


def trends(cells: pd.DataFrame) -> pd.DataFrame:
    """Tests whether means grow with epsilon (Page), and whether methods differ (Friedman, Nemenyi on correlations).

    Blocks are attributes; for Friedman's test attributes at each epsilon.
    """
    rows: list[Sequence[object]] = []
    for (who, measure), own in cells[cells["kind"].isin(MEASURES)].groupby(["who", "kind"]):
        for method, of_method in own.groupby("method"):
            means = of_method.pivot_table("value", ["dataset", "attribute"], "epsilon")
            page = stats.page_trend_test(means.to_numpy(), method="asymptotic")
            rows.append((who, measure, "Page", method, page.statistic, page.pvalue))
        if measure == "pearson":
            rows += [(who, measure, *line) for line in _methods(own)]
    table = pd.DataFrame(rows, columns=["who", "what", "test", "of", "statistic", "p"])
    table.insert(4, "n", cells.groupby("dataset")["run"].nunique().min())
    return table


def _methods(cells: pd.DataFrame) -> list[tuple[str, str, float, float]]:
    """Returns Friedman's test, and Nemenyi's differences of mean ranks of each two methods."""
    means = cells.pivot_table("value", ["dataset", "attribute", "epsilon"], "method")
    friedman = stats.friedmanchisquare(*means.to_numpy().T)
    lines = [("Friedman", "all", float(friedman.statistic), float(friedman.pvalue))]
    ranks = means.rank(axis=1).mean()
    error = np.sqrt(len(ranks) * (len(ranks) + 1) / (12 * len(means)))  # of a mean rank's difference, over root 2
    for number, one in enumerate(ranks.index):
        for other in ranks.index[number + 1 :]:
            difference = float(ranks[one] - ranks[other])
            p = stats.studentized_range.sf(abs(difference) / error, len(ranks), np.inf)
            lines.append(("Nemenyi", f"{one} - {other}", difference, float(p)))
    return lines
