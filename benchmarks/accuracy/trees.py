# SPDX-License-Identifier: Apache-2.0
"""The accuracy of the tree miners with their defaults, on UCI's data sets.

``make benchmark`` runs it and writes benchmarks/results/trees. Accuracies are kept in
build/trees/cells.csv, so that it goes on where it stopped, and are written once they are of as many
runs as what is there; ``--redo DiffPC45`` measures a miner anew after a change.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd

import pinq
from benchmarks.harness.command import Study, run_study
from benchmarks.harness.datasets import load, stratified_folds
from benchmarks.harness.learners import Learner, Rows, exact_tree, private
from benchmarks.harness.measure import Experiment, accuracies
from benchmarks.harness.tables import markdown, replace_section
from miners import DiffPC45, DiffPID3, SuLQID3
from miners.fitted.route import encode
from pinq.public.schema import Schema

__all__ = ["STUDY", "DataSet", "table", "write"]

RUNS = 20
UNLIMITED_EPSILON = 10**5
ABOUT = (
    "Mean test accuracy ± standard deviation of the runs. Adult: UCI's own split (32,561 / 16,281), "
    "at most 50,000 rows declared; the others: 90/10 splits.\n\n"
    "Not private: scikit-learn's tree of that depth, by entropy over the codes, on the same splits; it says what "
    "there is to gain at all."
)
EXACT = {f"depth {depth}, not private": exact_tree(pruned=False, max_depth=depth) for depth in (2, 5)}
BINARY: dict[str, Learner] = {"DiffPC45": private(DiffPC45), "DiffPID3": private(DiffPID3)} | EXACT
MINERS = {"SuLQID3": private(SuLQID3)} | BINARY


@dataclass(frozen=True)
class DataSet(Experiment):
    """Test accuracy of the defaults on one data set, over epsilon.

    Adult has UCI's own split; the others are split 90/10, anew in each run.
    """

    key: str
    xs: Sequence[float]
    learners: Mapping[str, Learner]
    runs: int = RUNS
    xlabel: str = "epsilon"

    @property
    def title(self) -> str:
        """The title of its picture."""
        return f"Accuracy of the defaults on {self.key}"

    @property
    def data(self) -> str:
        """The data set."""
        return self.key

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, dict[str, float]]:
        """Returns test accuracies of some miners on one split."""
        schema, target, frame = table(self.key)
        if self.key == "adult":
            tested = (frame["fold"] == "test").to_numpy()
        else:
            tested = stratified_folds(encode(schema, target, frame), 10, seed=run) == 0
        train, test = frame[~tested][list(schema.columns)], frame[tested]
        with pinq.simulate(schema, data=train, epsilon=UNLIMITED_EPSILON) as handle:
            rows = Rows(schema, target, handle, train, test)
            return accuracies({name: self.learners[name](rows, x) for name in learners})


@cache
def table(name: str) -> tuple[Schema, str, pd.DataFrame]:
    """Reads a data set whose schema has its attributes and its target; ``fold`` is in Adult's rows only."""
    schema, target, rows = load(name)
    columns = {column: declared for column, declared in schema.columns.items() if column != "fold"}
    return schema.model_copy(update={"columns": columns}), target, rows


DATA_SETS = (
    DataSet("adult", (0.1, 0.25, 0.5, 1.0, 2.0, 4.0), MINERS),
    *(DataSet(name, (0.5, 1.0, 2.0, 4.0), MINERS) for name in ("mushroom", "car")),
    *(DataSet(name, (0.5, 1.0, 2.0, 4.0), BINARY) for name in ("banknote", "robot_navigation", "credit_default")),
)


def write(data_sets: Sequence[DataSet], cells: pd.DataFrame, folder: Path) -> None:
    """Writes ``accuracy.csv`` and its section of the page."""
    grouped = cells.groupby(["figure", "algorithm", "x"], sort=False)["value"]
    means = grouped.agg(n="count", mean="mean", sd="std").reset_index()
    means.to_csv(folder / "accuracy.csv", index=False, float_format="%.5g", lineterminator="\n")
    measured = [data_set for data_set in data_sets if data_set.key in set(cells["figure"])]
    sections = ["## Accuracy of the defaults", ABOUT]
    sections += [_markdown(data_set, means[means["figure"] == data_set.key]) for data_set in measured]
    replace_section(folder / "README.md", "accuracy", "\n\n".join(sections), heading="Trees")


def _markdown(data_set: DataSet, means: pd.DataFrame) -> str:
    """Returns a data set's table."""
    lines = []
    for name in data_set.learners:
        by_x = means[means["algorithm"] == name].set_index("x").to_dict("index")
        if by_x:
            texts = [_text(by_x[x]) if x in by_x else "" for x in data_set.xs]
            lines.append([name, *texts, min(row["n"] for row in by_x.values())])
    return markdown([data_set.key, *(f"{x:g}" for x in data_set.xs), "runs"], lines)


def _text(row: Mapping[Hashable, float]) -> str:
    return f"{row['mean']:.4f} ± {row['sd']:.4f}" if row["n"] > 1 else f"{row['mean']:.4f}"


STUDY = Study(
    name="trees",
    module="benchmarks.accuracy.trees",
    about=__doc__,
    experiments=lambda data: DATA_SETS,
    data=tuple(data_set.key for data_set in DATA_SETS),
    write=write,
    runs=f"{RUNS}",
    quick=1,
)

if __name__ == "__main__":
    run_study(STUDY)
