# SPDX-License-Identifier: Apache-2.0
"""The accuracy of scorecards with their defaults, beside the best tree, on UCI's data sets.

    python -m benchmarks.accuracy.scorecards --data adult --runs 5

For classes: accuracy, area under the ROC curve, log loss and how far predicted shares are from what
happened. For a number: the coefficient of determination. Measurements are kept in
build/scorecards/cells.csv, so that it goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import pinq
from benchmarks.accuracy.measures import MEASURES, figures
from benchmarks.accuracy.trees import UNLIMITED_EPSILON, table
from benchmarks.harness.command import Study, run_study
from benchmarks.harness.datasets import stratified_folds
from benchmarks.harness.measure import Experiment
from benchmarks.harness.pictures import over_epsilon
from benchmarks.harness.tables import markdown, means, replace_section
from miners import DiffPC45, DiPriMeTreeRegressor, Scorecard, ScorecardRegressor
from miners.fitted.route import encode
from pinq.public.schema import Schema

__all__ = ["ADULT_CUTS", "STUDY", "DataSet", "write"]

RUNS = 20
DRAWN = ("adult", "credit_default", "appliances_energy")
SEVERAL = (0.1, 0.5, 1.0, 4.0)
ADULT_EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
# The cuts of policies/adult.yaml: round numbers that anyone could have written down.
ADULT_CUTS = {
    "age": [20, 25, 30, 35, 40, 45, 50, 55, 60, 65],
    "education_num": [5, 9, 10, 13, 14],
    "capital_gain": [1, 2500, 5000, 7500, 10000],
    "capital_loss": [1, 1000, 1500, 2000, 2500],
    "hours_per_week": [20, 35, 40, 41, 45, 50, 60],
}
ABOUT = (
    "Means of test rows ± standard deviation of the runs, defaults, pure epsilon. Adult: UCI's own split, at most "
    "50,000 rows declared; the others: 90/10 splits. *Policy's cuts* are those of policies/adult.yaml."
)
MakeMiner = Callable[..., Any]
TWICE = "Scorecard, max_rows doubled"
CLASSES: dict[str, MakeMiner] = {"Scorecard": Scorecard, TWICE: Scorecard, "DiffPC45": DiffPC45}
ADULT: dict[str, MakeMiner] = {**CLASSES, "Scorecard, policy's cuts": partial(Scorecard, cuts=ADULT_CUTS)}
MEANS: dict[str, MakeMiner] = {
    "ScorecardRegressor": ScorecardRegressor,
    TWICE: ScorecardRegressor,
    "DiPriMeTreeRegressor": DiPriMeTreeRegressor,
}


@dataclass(frozen=True)
class DataSet(Experiment):
    """The figures of the defaults on one data set, over epsilon."""

    key: str
    xs: Sequence[float]
    learners: Mapping[str, MakeMiner]
    runs: int = RUNS
    xlabel: str = "epsilon"

    @property
    def title(self) -> str:
        """The title of its picture."""
        return f"Scorecards on {self.key}"

    @property
    def data(self) -> str:
        """The data set."""
        return self.key

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, dict[str, float]]:
        """Returns the figures of some miners on one split."""
        schema, target, frame = table(self.key)
        tested = _tested(self.key, schema, target, frame, run)
        train, test = frame[~tested][list(schema.columns)], frame[tested]
        reached = {}
        for name in learners:
            declared = schema.model_copy(update={"max_rows": 2 * schema.max_rows}) if name == TWICE else schema
            with pinq.simulate(declared, data=train, epsilon=UNLIMITED_EPSILON) as handle:
                reached[name] = figures(self.learners[name](epsilon=x).fit(handle, target), test, target)
        return reached


def _tested(key: str, schema: Schema, target: str, frame: pd.DataFrame, run: int) -> np.ndarray:
    """Returns which rows are for the test, shape (rows,)."""
    if key == "adult":
        return (frame["fold"] == "test").to_numpy()
    classes = encode(schema, target, frame)
    classes = classes if schema.columns[target].type == "categorical" else np.zeros_like(classes)
    return stratified_folds(classes, 10, seed=run) == 0


DATA_SETS = (
    DataSet("adult", ADULT_EPSILONS, ADULT),
    *(DataSet(name, SEVERAL, CLASSES) for name in ("credit_default", "mushroom", "banknote", "spect")),
    *(DataSet(name, SEVERAL, CLASSES) for name in ("car", "cmc", "balance_scale", "robot_navigation", "soybean")),
    DataSet("appliances_energy", SEVERAL, MEANS),
)


def write(data_sets: Sequence[DataSet], cells: pd.DataFrame, folder: Path) -> None:
    """Writes ``figures.csv`` and its section of the page."""
    reached = means(cells, folder / "figures.csv")
    reached.to_csv(folder / "figures.csv", index=False, float_format="%.5g", lineterminator="\n")
    sections = ["## Figures of the defaults", ABOUT]
    for data_set in data_sets:
        rows = reached[reached["figure"] == data_set.key]
        sections += _tables(data_set, rows)
        if data_set.key in DRAWN and len(rows):
            sections.append(_drawn(data_set, rows, folder))
    replace_section(folder / "README.md", "figures", "\n\n".join(sections), heading="Scorecards")


def _drawn(data_set: DataSet, rows: pd.DataFrame, folder: Path) -> str:
    """Draws its first measure over epsilon; returns what shows the picture on the page."""
    first = rows["measure"].iloc[0]
    name, drawn = f"{data_set.key}.png", rows[rows["measure"] == first]
    over_epsilon(folder / name, drawn, list(data_set.learners), title=data_set.title, ylabel=MEASURES[first])
    return f"![{MEASURES[first].capitalize()}, over epsilon]({name})"


def _tables(data_set: DataSet, reached: pd.DataFrame) -> list[str]:
    """Returns a data set's tables, one for each measure."""
    tables = []
    for measure, rows in reached.groupby("measure", sort=False):
        lines = []
        for name in data_set.learners:
            by_x = rows[rows["algorithm"] == name].set_index("x").to_dict("index")
            texts = [f"{by_x[x]['mean']:.4f} ± {by_x[x]['sd']:.4f}" if x in by_x else "" for x in data_set.xs]
            lines += [[name, *texts, min(row["n"] for row in by_x.values())]] if by_x else []
        head = [f"{data_set.key}: {measure}", *(f"{x:g}" for x in data_set.xs), "runs"]
        tables += [f"{MEASURES[str(measure)].capitalize()}:\n\n{markdown(head, lines)}"]
    return tables


STUDY = Study(
    name="scorecards",
    module="benchmarks.accuracy.scorecards",
    about=__doc__,
    experiments=lambda data: DATA_SETS,
    data=tuple(data_set.key for data_set in DATA_SETS),
    write=write,
    runs=f"{RUNS}",
    quick=1,
)

if __name__ == "__main__":
    run_study(STUDY)
