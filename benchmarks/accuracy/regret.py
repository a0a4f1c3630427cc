# SPDX-License-Identifier: Apache-2.0
"""The distance of the miner that ``recommend`` names from our best one, with all defaults, on each table of PINQ_DATA.

    python -m benchmarks.accuracy.regret

Splits and coins are seeded by table, epsilon and run, so a measurement can be repeated exactly, and two miners that
make the same fit, such as scorecards where no pair is offered, have the same result. Each is kept in
build/regret/cells.csv, so that it goes on where it stopped. The best of several miners in a few runs is partly chance:
it makes every rule look a little worse than it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.accuracy.problems import Problem
from benchmarks.accuracy.which import EPSILONS, ProblemStudy
from benchmarks.harness.command import Study, run_study
from benchmarks.harness.tables import markdown, means, replace_section
from miners import (
    DiffPC45,
    DiPriMeTreeRegressor,
    LinearDiscriminant,
    LinearRegression,
    QuadraticDiscriminant,
    Scorecard,
    ScorecardRegressor,
    recommend,
)
from tests.support.laws.fixed_noise import COINS, take_over

__all__ = ["STUDY", "DefaultsStudy", "named", "regrets", "write"]

Make = Callable[..., Any]
PAIRS = "Scorecard(pairs=True)"
CLASSES: Mapping[str, Make] = {
    PAIRS: partial(Scorecard, pairs=True),
    "Scorecard": Scorecard,
    "DiffPC45": DiffPC45,
    "LinearDiscriminant": LinearDiscriminant,
    "QuadraticDiscriminant": QuadraticDiscriminant,
}
MEANS: Mapping[str, Make] = {
    "ScorecardRegressor(pairs=True)": partial(ScorecardRegressor, pairs=True),
    "ScorecardRegressor": ScorecardRegressor,
    "DiPriMeTreeRegressor": DiPriMeTreeRegressor,
    "LinearRegression": LinearRegression,
}
LARGE = ("adult", "appliances_energy", "cps", "credit_default")
MIDDLE = ("banknote", "car", "cmc", "creditspain", "hins", "loans", "mushroom", "robot_navigation")
SMALL = ("balance_scale", "soybean", "spect")  # 27 to 69 test rows: the mean of few runs is mostly chance
RUNS = dict.fromkeys(LARGE, 2) | dict.fromkeys(MIDDLE, 6) | dict.fromkeys(SMALL, 44)
TABLES = tuple(RUNS)
ABOUT = (
    "Below the best of the miners in `figures.csv`, mean / worst over tables, all defaults, pure epsilon; 90/10 "
    "splits, Adult by UCI's own. R² of the three tables with a numeric target."
)


@dataclass(frozen=True)
class DefaultsStudy(ProblemStudy):
    """The defaults of the miners that ``recommend`` knows."""

    @property
    def learners(self) -> Mapping[str, Make]:
        """The miners."""
        return MEANS if self.problem.is_numeric else CLASSES

    def noise(self, of: str) -> AbstractContextManager[object]:
        """The coins of one split, the same for all miners."""
        take_over()
        return COINS.apart(of)


EXPERIMENTS = tuple(DefaultsStudy(Problem(name), runs=runs) for name, runs in RUNS.items())


def named(problem: Problem, epsilon: float) -> str:
    """Returns the miner that public facts recommend, as the figures name it."""
    schema, target, _ = problem.load()
    answer = recommend(schema, target, epsilon)
    return answer.name + "(pairs=True)" * getattr(answer.miner, "pairs", False)


def regrets(reached: pd.DataFrame, measure: str, rule: Callable[[str, float], str]) -> dict[float, list[float]]:
    """Returns how far a rule stays below the best on each table, by epsilon.

    Args:
        reached: The means of ``figures.csv``.
        measure: The measure; larger is better.
        rule: The name of a miner, for the name of a table and an epsilon.
    """
    missed: dict[float, list[float]] = {}
    by_name: dict[tuple[str, float], dict[str, float]] = {}
    judged = reached[reached["measure"] == measure]
    for key, x, name, mean in judged[["figure", "x", "algorithm", "mean"]].itertuples(index=False):
        by_name.setdefault((key, x), {})[name] = mean
    for (key, x), means_of in sorted(by_name.items()):
        missed.setdefault(x, []).append(max(means_of.values()) - means_of[rule(key, x)])
    return missed


def write(experiments: Sequence[DefaultsStudy], cells: pd.DataFrame, folder: Path) -> None:
    """Writes ``figures.csv`` and its section of the page."""
    reached = means(cells, folder / "figures.csv")
    reached.to_csv(folder / "figures.csv", index=False, float_format="%.4g", lineterminator="\n")
    problems = {experiment.key: experiment.problem for experiment in experiments}
    rules: dict[str, Callable[[str, float], str]] = {
        "`recommend`": lambda key, x: named(problems[key], x),
        "always a card with pairs": lambda key, x: f"Scorecard{'Regressor' * problems[key].is_numeric}(pairs=True)",
        "always a tree": lambda key, x: "DiPriMeTreeRegressor" if problems[key].is_numeric else "DiffPC45",
    }
    lines = []
    for measure in ("accuracy", "auc", "r2"):
        by_rule = {name: regrets(reached, measure, rule) for name, rule in rules.items()}
        for x in by_rule["`recommend`"]:
            texts = [f"{np.mean(own[x]):.4f} / {max(own[x]):.3f}" for own in by_rule.values()]
            lines.append([measure, f"{x:g}", *texts, len(by_rule["`recommend`"][x])])
    table = markdown(["measure", "epsilon", *rules, "tables"], lines)
    choices = [[key, *(named(problems[key], x) for x in EPSILONS)] for key in problems if problems[key].is_there]
    chosen = markdown(["table", *(f"{x:g}" for x in EPSILONS)], choices)
    text = f"{ABOUT}\n\n{table}\n\nRecommended, by epsilon:\n\n{chosen}"
    replace_section(folder / "README.md", "figures", text, heading="Regret of the default")


STUDY = Study(
    name="regret",
    module="benchmarks.accuracy.regret",
    about=__doc__,
    experiments=lambda data: EXPERIMENTS,
    data=TABLES,
    write=write,
    runs="44 of the smallest tables, 6, and 2 of the largest",
    quick=1,
)

if __name__ == "__main__":
    run_study(STUDY)
