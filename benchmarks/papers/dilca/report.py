# SPDX-License-Identifier: Apache-2.0
"""From cells to what is committed: a CSV for each figure, Table 6, and the pictures."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness.measure import Experiment
from benchmarks.papers.dilca.experiments import Comparison, Times
from benchmarks.papers.dilca.pictures import draw
from benchmarks.papers.dilca.significance import write_tests

__all__ = ["COLUMNS", "TIMES", "write"]

SETTING = ("dataset", "method", "who", "epsilon", "k", "noise")
COLUMNS = (*SETTING, "what", "n", "mean", "sd")
TIMES = (
    "dataset",
    "method",
    "ours, durable (s)",
    "ours (CPU s)",
    "requests, two commits each",
    "group-bys on text (CPU s)",
    "ratio",
    "group-bys on codes (CPU s)",
    "ratio",
)


def write(experiments: Sequence[Experiment], cells: pd.DataFrame, folder: Path) -> None:
    """Writes everything that there are cells for."""
    comparisons = [experiment for experiment in experiments if isinstance(experiment, Comparison)]
    write_tests(_settings([experiment for experiment in comparisons if experiment.figure == "8"], cells), folder)
    table = _table(comparisons, cells[~cells["measure"].str.contains(" of ", regex=False)])
    for figure, rows in table.groupby("figure"):
        rows[list(COLUMNS)].to_csv(folder / f"figure-{figure}.csv", index=False, lineterminator="\n")
    draw(table, folder)
    lines = _times([experiment for experiment in experiments if isinstance(experiment, Times)], cells)
    if lines:
        with (folder / "table-6.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([TIMES, *lines])


def _table(experiments: Sequence[Comparison], cells: pd.DataFrame) -> pd.DataFrame:
    """Returns the mean and standard deviation of each measure in each setting, over the runs."""
    by_key = {experiment.key: experiment for experiment in experiments}
    own = cells[cells["figure"].isin(list(by_key))]
    rows = []
    for (key, learner, x, measure), group in own.groupby(["figure", "algorithm", "x", "measure"]):
        experiment = by_key[str(key)]
        values = group["value"].round(5)
        numbers = (len(values), round(float(np.mean(values)), 4), round(float(np.std(values)), 4))
        rows.append((experiment.figure, *experiment.setting(str(learner), float(str(x))), measure, *numbers))
    return pd.DataFrame(rows, columns=["figure", *COLUMNS]).sort_values(["figure", *SETTING, "what"])


def _settings(experiments: Sequence[Comparison], cells: pd.DataFrame) -> pd.DataFrame:
    """Returns the cells of some experiments, with the columns of their settings."""
    by_key = {experiment.key: experiment for experiment in experiments}
    own = cells[cells["figure"].isin(list(by_key))]
    kinds = own[["figure", "algorithm", "x"]].drop_duplicates()
    settings = [by_key[str(key)].setting(str(learner), float(x)) for key, learner, x in kinds.to_numpy().tolist()]
    columns = pd.DataFrame(settings, columns=list(SETTING), index=kinds.index)
    return own.merge(kinds.join(columns), on=["figure", "algorithm", "x"])


def _times(experiments: Sequence[Times], cells: pd.DataFrame) -> list[list[str]]:
    """Returns Table 6; ratios are of CPU seconds, which other work on the machine changes least."""
    lines = []
    for experiment in experiments:
        own = cells[cells["figure"] == experiment.key]
        for method in experiment.learners:
            values = own[own["algorithm"] == method].set_index("measure")["value"].astype(float).to_dict()
            if values:
                lines.append([experiment.dataset, method, *_texts(values)])
    return lines


def _texts(values: Mapping[Any, float]) -> list[str]:
    texts = [f"{values['wall']:.2f}", f"{values['cpu']:.2f}", f"{values['requests']:.0f}"]
    for measure in ("text", "codes"):
        if measure in values:
            texts += [f"{values[measure]:.1f}", f"{values[measure] / values['cpu']:.1f}"]
    return texts
