# SPDX-License-Identifier: Apache-2.0
"""What is measured: which learners, on which data set, over what. Each number is 1 - error: 1 - share of wrong classes, or 1 - mean squared error of a target scaled to [0, 1]."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor, RandomForestClassifier, RandomForestRegressor

import pinq
from benchmarks.harness.datasets import load, stratified_folds
from benchmarks.harness.learners import Rows
from miners import (
    DiffPC45,
    DiPriMeForestClassifier,
    DiPriMeForestRegressor,
    DiPriMeTreeClassifier,
    DiPriMeTreeRegressor,
    DPDecisionForest,
    DPExtraTrees,
    DPExtraTreesRegressor,
)
from miners.fitted.route import encode
from pinq.public.schema import Categorical

__all__ = ["EXPERIMENTS", "Sweep", "table"]

RUNS = 20
DEAR = 10**5
EPSILONS = (0.5, 1.0, 2.0, 4.0)
TREES, DEPTH = 10, 5  # the paper's, where a figure does not vary them
EPSILON = 2.0
Learner = Callable[[Rows, dict[str, Any]], float]
LABELS = {
    "epsilon": "epsilon",
    "max_depth": "levels of splits",
    "n_estimators": "trees",
    "rho": "rho, the share of epsilon for the splits",
    "max_features": "attributes that a node looks at",
}


@dataclass(frozen=True)
class Sweep:
    """One figure, or one line of a table: errors of learners on a data set as one setting varies, on 90/10 splits, another one in each run.

    Attributes:
        key: Names its files.
        data: The data set.
        setting: What varies: ``epsilon``, or another argument of miners that ``LABELS`` names.
        learners: Given the rows and the settings, each measures one number.
    """

    key: str
    title: str
    data: str
    setting: str
    xs: Sequence[float]
    learners: Mapping[str, Learner]
    runs: int = RUNS

    @property
    def xlabel(self) -> str:
        """The axis."""
        return LABELS[self.setting]

    @property
    def numeric(self) -> bool:
        """Whether a number is predicted."""
        return not {"mean", *TUNED}.isdisjoint(self.learners)

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, float]:
        """1 - error of some learners on one split."""
        schema, target, rows = table(self.data)
        tested = split(self.data, run)
        settings = {"epsilon": EPSILON, "max_depth": None, "n_estimators": None} | {
            self.setting: x if self.setting in ("epsilon", "rho") else int(x)
        }
        with pinq.simulate(schema, data=rows[~tested], epsilon=DEAR) as handle:
            return {
                name: self.learners[name](Rows(schema, target, handle, rows[~tested], rows[tested]), settings)
                for name in learners
            }


table = cache(load)


def split(name: str, run: int) -> np.ndarray:
    """Which rows are tested: one in ten, with the same share of each class where there are classes."""
    schema, target, rows = table(name)
    if isinstance(schema.columns[target], Categorical):
        return stratified_folds(encode(schema, target, rows), 10, seed=run) == 0
    return stratified_folds(np.zeros(len(rows), dtype=np.int64), 10, seed=run) == 0


def private(miner: type[Any], **fixed: Any) -> Learner:
    """A miner of this project; what ``fixed`` does not say and the sweep does not vary are its own defaults."""
    return partial(_private, miner, fixed)


def _private(miner: type[Any], fixed: dict[str, Any], rows: Rows, settings: dict[str, Any]) -> float:
    known = miner._get_param_names()
    chosen = fixed | {name: value for name, value in settings.items() if value is not None and name in known}
    fitted = miner(**chosen).fit(rows.handle, rows.target)
    return _score(rows, fitted.predict(rows.test))


def at(learner: Learner, **own: Any) -> Learner:
    """A learner with settings of its own."""
    return partial(_at, own, learner)


def _at(own: dict[str, Any], learner: Learner, rows: Rows, settings: dict[str, Any]) -> float:
    return learner(rows, settings | own)


def exact(forest: type[Any]) -> Learner:
    """A forest of scikit-learn's without privacy, on codes."""
    return partial(_exact, forest)


def _exact(forest: type[Any], rows: Rows, settings: dict[str, Any]) -> float:
    names = [name for name in rows.schema.columns if name != rows.target]
    features, fresh = (
        np.column_stack([encode(rows.schema, name, frame) for name in names]) for frame in (rows.train, rows.test)
    )
    grown = forest(n_estimators=settings["n_estimators"] or TREES, max_depth=settings["max_depth"] or DEPTH).fit(
        features, rows.train[rows.target]
    )
    return _score(rows, grown.predict(fresh))


def constant(rows: Rows, settings: dict[str, Any]) -> float:
    """The majority class, or the mean."""
    known = rows.train[rows.target]
    guess = known.mode()[0] if isinstance(rows.schema.columns[rows.target], Categorical) else known.mean()
    return _score(rows, np.full(len(rows.test), guess))


def _score(rows: Rows, predicted: np.ndarray) -> float:
    column, truth = rows.schema.columns[rows.target], rows.test[rows.target].to_numpy()
    if isinstance(column, Categorical):
        return float(np.mean(predicted == truth))
    return 1 - float(np.mean(np.square((predicted - truth) / float(column.upper - column.lower))))


PAPER = {"n_estimators": TREES, "max_depth": DEPTH}
CLASSIFIERS: dict[str, Learner] = {
    "DiffPC45": private(DiffPC45),
    "DiPriMe, best": private(DiPriMeTreeClassifier),
    "DiPriMe, best, 3 trees": private(DiPriMeForestClassifier, n_estimators=3),
    "DiPriMe, paper": private(DiPriMeForestClassifier, variant="paper", **PAPER),
    "DP-ERT": private(DPExtraTrees, **PAPER),
    "DP-DF": private(DPDecisionForest, **PAPER),
    "random forest, not private": exact(RandomForestClassifier),
    "extra trees, not private": exact(ExtraTreesClassifier),
    "majority class": constant,
}
REGRESSORS: dict[str, Learner] = {
    "DiPriMe, best": private(DiPriMeTreeRegressor),
    "DiPriMe, paper": private(DiPriMeForestRegressor, variant="paper", **PAPER),
    "DiPriMe, paper, absolute error": private(
        DiPriMeForestRegressor, variant="paper", criterion="absolute_error", **PAPER
    ),
    "DP-ERT": private(DPExtraTreesRegressor, **PAPER),
    "random forest, not private": exact(RandomForestRegressor),
    "extra trees, not private": exact(ExtraTreesRegressor),
    "mean": constant,
}
# One name for a forest of so many trees: where trees vary, "best" is one too.
OF_TREES = {
    "DiPriMe, best": private(DiPriMeForestClassifier),
    "DiPriMe, best, all rows": private(DiPriMeForestClassifier, rows="all"),
    "DiPriMe, paper": CLASSIFIERS["DiPriMe, paper"],
    "DP-ERT": CLASSIFIERS["DP-ERT"],
    "DP-DF": CLASSIFIERS["DP-DF"],
    "random forest, not private": CLASSIFIERS["random forest, not private"],
}


def few(learners: Mapping[str, Learner], *left_out: str) -> dict[str, Learner]:
    """All learners but some."""
    return {name: learner for name, learner in learners.items() if name not in left_out}


TUNED = {
    f"DiPriMe, paper, epsilon {epsilon:g}": at(REGRESSORS["DiPriMe, paper"], epsilon=epsilon)
    for epsilon in (0.5, 2.0, 10.0)
}
DEEP = {
    name: learner if name == "DiPriMe, best" else at(learner, max_depth=10) for name, learner in REGRESSORS.items()
}  # the paper's depth for its largest table
SHORT = few(REGRESSORS, "DiPriMe, paper, absolute error")
EXPERIMENTS: dict[str, Sweep] = {
    one.key: one
    for one in (
        Sweep("banknote", "Banknote, error over epsilon", "banknote", "epsilon", EPSILONS, CLASSIFIERS),
        Sweep(
            "robot_navigation",
            "Robot Navigation, error over epsilon",
            "robot_navigation",
            "epsilon",
            EPSILONS,
            CLASSIFIERS,
        ),
        Sweep(
            "credit_default",
            "Credit Card Default, error over epsilon",
            "credit_default",
            "epsilon",
            EPSILONS,
            CLASSIFIERS,
        ),
        Sweep(
            "appliances_energy",
            "Appliances Energy, error over epsilon",
            "appliances_energy",
            "epsilon",
            (*EPSILONS, 10.0),
            REGRESSORS,
        ),
        Sweep(
            "parkinsons_telemonitoring",
            "Parkinson's Telemonitoring, error over epsilon",
            "parkinsons_telemonitoring",
            "epsilon",
            (*EPSILONS, 10.0),
            REGRESSORS,
        ),
        Sweep("flight_delay", "Flight Delay, error over epsilon", "flight_delay", "epsilon", (*EPSILONS, 10.0), DEEP),
        Sweep(
            "fig3-depth",
            "Appliances Energy, epsilon 2, error over depth",
            "appliances_energy",
            "max_depth",
            (1, 2, 3, 5, 7),
            SHORT,
        ),
        Sweep(
            "fig3-trees",
            "Appliances Energy, epsilon 2, error over trees",
            "appliances_energy",
            "n_estimators",
            (1, 3, 10, 20),
            few(SHORT, "DiPriMe, best"),
        ),
        Sweep(
            "fig4-depth",
            "Banknote, epsilon 2, error over depth",
            "banknote",
            "max_depth",
            (1, 2, 3, 4, 6, 8),
            few(CLASSIFIERS, "DiPriMe, best, 3 trees"),
        ),
        Sweep(
            "fig4-trees", "Banknote, epsilon 2, error over trees", "banknote", "n_estimators", (1, 3, 10, 30), OF_TREES
        ),
        Sweep(
            "fig6-rho",
            "Appliances Energy, error over rho",
            "appliances_energy",
            "rho",
            (0.1, 0.3, 0.5, 0.7, 0.9),
            TUNED,
        ),
        Sweep(
            "fig6-features",
            "Appliances Energy, error over attributes a node",
            "appliances_energy",
            "max_features",
            (1, 3, 5, 10, 20),
            TUNED,
        ),
    )
}
