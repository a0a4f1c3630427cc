# SPDX-License-Identifier: Apache-2.0
"""Choices that the paper leaves open: the criterion of a regression tree, and how a forest joins its trees.

``python -m benchmarks.papers.diprime.choices criterion`` or ``join``, each some minutes; rows are
printed as docs/forests.md shows them.
"""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

import pinq
from benchmarks.harness.datasets import load
from benchmarks.papers.diprime.baselines import DPDecisionForest, DPExtraTrees
from miners import DiPriMeForestClassifier, DiPriMeTreeRegressor, ScorecardRegressor

NUMBERS = {
    "adult": "hours_per_week",
    "appliances_energy": "appliances",
    "cps": "wage",
    "loans": "interest_rate",
    "hins": "age",
    "creditspain": "Amount",
}
CLASSES = ("banknote", "robot_navigation")
FORESTS: dict[str, Callable[[float], Any]] = {
    "DiPriMe": lambda epsilon: DiPriMeForestClassifier(epsilon=epsilon, variant="paper"),
    "DP-ERT": lambda epsilon: DPExtraTrees(epsilon=epsilon, n_estimators=10, max_depth=5),
    "DP-DF": lambda epsilon: DPDecisionForest(epsilon=epsilon, n_estimators=10, max_depth=5),
}


def halves(rows: pd.DataFrame, share: float, runs: int) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Yields rows to learn from and rows to test on, for each run."""
    for run in range(runs):
        order = np.random.default_rng(run).permutation(len(rows))
        cut = int(len(rows) * share)
        yield rows.iloc[order[:cut]].reset_index(drop=True), rows.iloc[order[cut:]].reset_index(drop=True)


def criterion(runs: int) -> None:
    """Prints R2 on held-out rows by criterion, and a scorecard's."""
    learners: dict[str, Callable[[float], Any]] = {
        "absolute_error": lambda epsilon: DiPriMeTreeRegressor(epsilon=epsilon, criterion="absolute_error"),
        "squared_error": lambda epsilon: DiPriMeTreeRegressor(epsilon=epsilon, criterion="squared_error"),
        "scorecard": lambda epsilon: ScorecardRegressor(epsilon=epsilon),
    }
    for table, target in NUMBERS.items():
        schema, _, rows = load(table)
        cells = []
        for learner in learners.values():
            means = []
            for epsilon in (0.5, 1, 4):
                scores = []
                for learned, tested in halves(rows[rows[target].notna()], 0.8, runs):
                    with pinq.simulate(schema, data=learned, epsilon=epsilon) as handle:
                        scores.append(learner(epsilon).fit(handle, target).score(tested))
                means.append(f"{np.mean(scores):.3f}")
            cells.append(" / ".join(means))
        print(f"| {table}: `{target}` | {' | '.join(cells)} |", flush=True)


def join(runs: int) -> None:
    """Prints error rates of the paper's forests: by the mean of their trees' probabilities, and by their vote."""
    for table, (name, learner), epsilon in itertools.product(CLASSES, FORESTS.items(), (0.1, 0.5, 2, 4)):
        schema, target, rows = load(table)
        errors = []
        for learned, tested in halves(rows, 0.9, runs):
            with pinq.simulate(schema, data=learned, epsilon=epsilon) as handle:
                forest = learner(epsilon).fit(handle, target)
            votes = np.stack([tree.predict(tested) for tree in forest.forest_.trees])
            classes = np.array(forest.classes_)
            voted = classes[(votes[:, :, None] == classes).sum(axis=0).argmax(axis=1)]
            truth = tested[target].to_numpy()
            errors.append([(forest.predict(tested) != truth).mean(), (voted != truth).mean()])
        mean, vote = np.mean(errors, axis=0)
        error = np.std(np.diff(errors)) / len(errors) ** 0.5
        print(f"| {table} | {name} | {epsilon} | {mean:.3f} | {vote:.3f} | {error:.3f} |", flush=True)


def main() -> None:
    """Runs one of the two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["criterion", "join"])
    parser.add_argument("--runs", type=int, default=10)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    {"criterion": criterion, "join": join}[asked.what](asked.runs)


if __name__ == "__main__":
    main()
