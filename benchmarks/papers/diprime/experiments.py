# SPDX-License-Identifier: Apache-2.0
"""The experiments: which learners, on which data set, over what.

Each accuracy is 1 - error: 1 - share of wrong classes, or 1 - mean squared error of a target scaled
to [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor, RandomForestClassifier, RandomForestRegressor

import pinq
from benchmarks.harness.datasets import load, stratified_folds
from benchmarks.harness.learners import Rows, features
from benchmarks.harness.measure import Experiment, accuracies
from benchmarks.papers.diprime.baselines import DPDecisionForest, DPExtraTrees, DPExtraTreesRegressor
from miners import (
    DiffPC45,
    DiPriMeForestClassifier,
    DiPriMeForestRegressor,
    DiPriMeTreeClassifier,
    DiPriMeTreeRegressor,
)
from miners.fitted.route import encode
from pinq.public.schema import Categorical

__all__ = ["DATA", "DEPTH", "EPSILONS", "EXPERIMENTS", "Sweep", "table"]

RUNS = 20
UNLIMITED_EPSILON = 10**5
EPSILONS = (0.5, 1.0, 2.0, 4.0)
TREES, DEPTH = 10, 5  # the paper's, where a figure does not vary them
EPSILON = 2.0
Settings: TypeAlias = Mapping[str, float | None]
Learner: TypeAlias = Callable[[Rows, Settings], float]
LABELS = {
    "epsilon": "epsilon",
    "max_depth": "levels of splits",
    "n_estimators": "trees",
    "rho": "rho, the share of epsilon for the splits",
    "max_features": "attributes that a node looks at",
}


@dataclass(frozen=True)
class Sweep(Experiment):
    """One figure, or one line of a table: errors of learners on a data set as one setting varies.

    Rows are split 90/10, anew for each run.

    Attributes:
                key: The name of its files.
        data: The data set.
        setting: The name of the varied setting: ``epsilon``, or another argument of miners that ``LABELS`` has.
        learners: Functions from the rows and the settings to one number.
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
        """The label of the abscissa."""
        return LABELS[self.setting]

    @property
    def numeric(self) -> bool:
        """Whether a number is predicted, not a class."""
        return self.data not in CLASS_DATA

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, dict[str, float]]:
        """Returns 1 - error of some learners on one split."""
        schema, target, frame = table(self.data)
        tested = split(self.data, run)
        value = x if self.setting in ("epsilon", "rho") else int(x)
        settings = {
            "epsilon": EPSILON,
            "max_depth": None,
            "n_estimators": None,
            "random_state": run,
            self.setting: value,
        }
        with pinq.simulate(schema, data=frame[~tested], epsilon=UNLIMITED_EPSILON) as handle:
            rows = Rows(schema, target, handle, frame[~tested], frame[tested])
            return accuracies({name: self.learners[name](rows, settings) for name in learners})


table = cache(load)


def split(name: str, run: int) -> np.ndarray:
    """Returns which rows are tested: one in ten, with each class shared out evenly."""
    schema, target, rows = table(name)
    if isinstance(schema.columns[target], Categorical):
        return stratified_folds(encode(schema, target, rows), 10, seed=run) == 0
    return stratified_folds(np.zeros(len(rows), dtype=np.int64), 10, seed=run) == 0


def private(miner: type[Any], **fixed: object) -> Learner:
    """Returns a miner of this project, with its defaults for all settings that neither ``fixed`` nor the sweep has."""
    return partial(_private, miner, fixed)


def _private(miner: type[Any], fixed: dict[str, object], rows: Rows, settings: Settings) -> float:
    params = miner.param_names()
    varied = {name: value for name, value in settings.items() if value is not None and name in params}
    model = miner(**fixed | varied).fit(rows.handle, rows.target)
    return _score(rows, model.predict(rows.test))


def at(learner: Learner, **own: float) -> Learner:
    """Returns a learner with settings of its own."""
    return partial(_at, own, learner)


def _at(own: dict[str, float], learner: Learner, rows: Rows, settings: Settings) -> float:
    return learner(rows, {**settings, **own})


def exact(forest: type) -> Learner:
    """Returns a forest of scikit-learn's without privacy, on codes."""
    return partial(_exact, forest)


def _exact(forest: type, rows: Rows, settings: Settings) -> float:
    model = forest(
        n_estimators=settings["n_estimators"] or TREES,
        max_depth=settings["max_depth"] or DEPTH,
        random_state=settings["random_state"],
    )
    model.fit(features(rows, rows.train), rows.train[rows.target])
    return _score(rows, model.predict(features(rows, rows.test)))


def constant(rows: Rows, settings: Settings) -> float:
    """Predicts the majority class, or the mean."""
    labels = rows.train[rows.target]
    guess = labels.mode()[0] if isinstance(rows.schema.columns[rows.target], Categorical) else labels.mean()
    return _score(rows, np.full(len(rows.test), guess))


def _score(rows: Rows, predicted: np.ndarray) -> float:
    column, truth = rows.schema.columns[rows.target], rows.test[rows.target].to_numpy()
    if isinstance(column, Categorical):
        return float(np.mean(predicted == truth))
    return 1 - float(np.mean(np.square((predicted - truth) / float(column.upper - column.lower))))


PAPER: dict[str, Any] = {"n_estimators": TREES, "max_depth": DEPTH}
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


def without(learners: Mapping[str, Learner], *left_out: str) -> dict[str, Learner]:
    """Returns all learners but those of some names."""
    return {name: learner for name, learner in learners.items() if name not in left_out}


ROWS: Sequence[tuple[str, dict[str, Any]]] = ((", all rows", {"rows": "all"}), ("", {}))
TUNED = {
    f"DiPriMe, paper, epsilon {epsilon:g}": at(REGRESSORS["DiPriMe, paper"], epsilon=epsilon)
    for epsilon in (0.5, 2.0, 10.0)
}
DEEP = {
    name: learner if name == "DiPriMe, best" else at(learner, max_depth=10) for name, learner in REGRESSORS.items()
}  # the paper's depth for its largest table
SHORT = without(REGRESSORS, "DiPriMe, paper, absolute error")
ENERGY = "appliances_energy"
CLASS_DATA = ("banknote", "robot_navigation", "credit_default")


def _over_epsilon(data: str, name: str, learners: Mapping[str, Learner], *more: float) -> Sweep:
    return Sweep(data, f"{name}, error over epsilon", data, "epsilon", (*EPSILONS, *more), learners)


def _on_all_rows(figure: str, name: str, data: str, forest: type[Any]) -> Iterator[Sweep]:
    """Yields a figure of trees that all learn from all rows, each for its share of epsilon."""
    paper = {f"DiPriMe, paper{suffix}": private(forest, variant="paper", **PAPER | rows) for suffix, rows in ROWS}
    for setting, xs in (
        ("epsilon", (*EPSILONS, 10.0)),
        ("max_depth", (1, 2, 3, 5, 7)),
        ("n_estimators", (1, 3, 10, 20)),
    ):
        yield Sweep(
            f"{figure}-{setting}", f"{name}, trees on all rows, error over {LABELS[setting]}", data, setting, xs, paper
        )


_SWEEPS = (
    _over_epsilon("banknote", "Banknote", CLASSIFIERS),
    _over_epsilon("robot_navigation", "Robot Navigation", CLASSIFIERS),
    _over_epsilon("credit_default", "Credit Card Default", CLASSIFIERS),
    _over_epsilon(ENERGY, "Appliances Energy", REGRESSORS, 10.0),
    _over_epsilon("parkinsons_telemonitoring", "Parkinson's Telemonitoring", REGRESSORS, 10.0),
    _over_epsilon("flight_delay", "Flight Delay", DEEP, 10.0),
    Sweep(
        "fig3-depth", "Appliances Energy, epsilon 2, error over depth",
        ENERGY, "max_depth", (1, 2, 3, 5, 7), SHORT,
    ),
    Sweep(
        "fig3-trees", "Appliances Energy, epsilon 2, error over trees",
        ENERGY, "n_estimators", (1, 3, 10, 20), without(SHORT, "DiPriMe, best"),
    ),
    Sweep(
        "fig4-depth", "Banknote, epsilon 2, error over depth",
        "banknote", "max_depth", (1, 2, 3, 4, 6, 8), without(CLASSIFIERS, "DiPriMe, best, 3 trees"),
    ),
    Sweep(
        "fig4-trees", "Banknote, epsilon 2, error over trees",
        "banknote", "n_estimators", (1, 3, 10, 30), OF_TREES,
    ),
    *_on_all_rows("fig5", "Appliances Energy", ENERGY, DiPriMeForestRegressor),
    *_on_all_rows("fig7", "Banknote", "banknote", DiPriMeForestClassifier),
    Sweep(
        "fig6-rho", "Appliances Energy, error over rho",
        ENERGY, "rho", (0.1, 0.3, 0.5, 0.7, 0.9), TUNED,
    ),
    Sweep(
        "fig6-features", "Appliances Energy, error over attributes a node",
        ENERGY, "max_features", (1, 3, 5, 10, 20), TUNED,
    ),
)  # fmt: skip
EXPERIMENTS: dict[str, Sweep] = {sweep.key: sweep for sweep in _SWEEPS}
DATA = tuple(dict.fromkeys(sweep.data for sweep in _SWEEPS))
