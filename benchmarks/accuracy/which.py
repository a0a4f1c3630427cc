# SPDX-License-Identifier: Apache-2.0
"""The best miner on each table, with defaults, and whether ``recommend`` names it.

    python -m benchmarks.accuracy.which --data mushroom --runs 2

Trees, forests and scorecards stand beside naive Bayes from noisy counts and the most frequent
class (or the mean), on tables that the rule of ``recommend`` was tuned on and on held-out ones.
Measurements are kept in build/which/cells.csv, so that it goes on where it stopped.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

import pinq
from benchmarks.accuracy.measures import MEASURES, figures
from benchmarks.accuracy.naive import Majority, NaiveBayes, PooledMean
from benchmarks.accuracy.problems import HELD_OUT, SEEN, TUNED, Problem
from benchmarks.accuracy.trees import UNLIMITED_EPSILON
from benchmarks.harness.command import Study, run_study
from benchmarks.harness.measure import Experiment
from benchmarks.harness.tables import markdown, means, replace_section
from benchmarks.papers.diprime.baselines import DPDecisionForest, DPExtraTreesRegressor
from miners import (
    DiffPC45,
    DiffPID3,
    DiPriMeTreeClassifier,
    DiPriMeTreeRegressor,
    LinearDiscriminant,
    Scorecard,
    ScorecardRegressor,
    recommend,
)

__all__ = ["STUDY", "ProblemStudy", "recommended", "write"]

RUNS, RUNS_OF_LARGE = 20, 5
LARGE = ("adult", "credit_default", "mushroom", "appliances_energy")  # tested on many rows
EPSILONS = (0.1, 0.5, 1.0, 4.0)
Make = Callable[..., Any]
CLASSES: Mapping[str, Make] = {
    "Scorecard": Scorecard,
    "DiffPC45": DiffPC45,
    "DiPriMeTreeClassifier": DiPriMeTreeClassifier,
    "DiffPID3": DiffPID3,
    "DPDecisionForest": DPDecisionForest,
    "LinearDiscriminant": LinearDiscriminant,
    "naive Bayes": NaiveBayes,
    "most frequent class": Majority,
}
MEANS: Mapping[str, Make] = {
    "ScorecardRegressor": ScorecardRegressor,
    "DiPriMeTreeRegressor": DiPriMeTreeRegressor,
    "DPExtraTreesRegressor": DPExtraTreesRegressor,
    "mean": PooledMean,
}


@dataclass(frozen=True)
class ProblemStudy(Experiment):
    """The figures of the defaults of all miners on one problem, over epsilon."""

    problem: Problem
    xs: Sequence[float] = EPSILONS
    runs: int = RUNS
    xlabel: str = "epsilon"

    @property
    def key(self) -> str:
        """Names it."""
        return self.problem.key

    @property
    def title(self) -> str:
        """The title of its picture."""
        return f"Miners on {self.key}"

    @property
    def data(self) -> str:
        """The data set."""
        return self.problem.data

    @property
    def learners(self) -> Mapping[str, Make]:
        """The miners."""
        return MEANS if self.problem.is_numeric else CLASSES

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, dict[str, float]]:
        """Returns the figures of some miners on one split."""
        schema, target, frame = self.problem.load()
        tested = self.problem.tested(run)
        train, test = frame[~tested][list(schema.columns)], frame[tested]
        found = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tables that are too small for epsilon are tried on purpose
            for name in learners:
                simulated = pinq.simulate(schema, data=train, epsilon=UNLIMITED_EPSILON)
                with self.noise(f"{self.key} {x} {run}"), simulated as handle:
                    found[name] = figures(self.learners[name](epsilon=x).fit(handle, target), test, target)
        return found

    def noise(self, of: str) -> AbstractContextManager[object]:
        """The noise of one measurement: new each time."""
        return nullcontext()


EXPERIMENTS = tuple(
    ProblemStudy(problem, runs=RUNS_OF_LARGE if problem.data in LARGE else RUNS)
    for problem in (*TUNED, *SEEN, *HELD_OUT)
)
OURS = {*CLASSES, *MEANS} - {"naive Bayes", "most frequent class", "mean"}
ABOUT = (
    "Means of test rows with all defaults, pure epsilon; 90/10 splits, Adult by UCI's own. **Bold**: what `recommend` "
    "names. *Missed by*: how far that is below the best of ours (naive Bayes and the most frequent class stand beside "
    "them). Small tables have 27 to 180 test rows, so a hundredth is within chance there. *Seen*: held out until the "
    "rule was mended for them. *Held out*: the rule was not fitted to these."
)


def recommended(problem: Problem, epsilon: float) -> str:
    """Returns the name of the miner that public facts recommend."""
    schema, target, _ = problem.load()
    return recommend(schema, target, epsilon).name


def write(experiments: Sequence[ProblemStudy], cells: pd.DataFrame, folder: Path) -> None:
    """Writes ``figures.csv`` and its section of the page."""
    reached = means(cells, folder / "figures.csv")
    reached.to_csv(folder / "figures.csv", index=False, float_format="%.5g", lineterminator="\n")
    sections = ["## Which miner is best where", ABOUT]
    for title, problems in (("Tables of the rule", TUNED), ("Seen", SEEN), ("Held out", HELD_OUT)):
        there = [problem for problem in problems if problem.key in set(reached["figure"])]
        sections += [f"### {title}"]
        for is_numeric, learners in ((False, CLASSES), (True, MEANS)):
            kind = [problem for problem in there if problem.is_numeric == is_numeric]
            sections += _tables(kind, list(learners), reached) if kind else []
    replace_section(folder / "README.md", "figures", "\n\n".join(sections), heading="Which miner")


def _tables(problems: Sequence[Problem], learners: Sequence[str], reached: pd.DataFrame) -> list[str]:
    """Returns a table for each measure."""
    keys = [problem.key for problem in problems]
    tables = []
    for measure in MEASURES:
        rows = reached[(reached["measure"] == measure) & reached["figure"].isin(keys)]
        columns = (rows[name].tolist() for name in ("figure", "x", "algorithm", "mean"))
        values: dict[tuple[str, float, str], float] = {
            (key, x, name): mean for key, x, name, mean in zip(*columns, strict=True)
        }
        if values:
            is_judged = measure in ("accuracy", "r2")
            there = [
                (problem, x)
                for problem in problems
                for x in EPSILONS
                if any((problem.key, x, name) in values for name in learners)
            ]
            lines = [_line(problem, x, learners, values, is_judged) for problem, x in there]
            head = ["table", "epsilon", *learners, *(["missed by"] if is_judged else [])]
            runs = f"{rows['n'].min()} to {rows['n'].max()} runs"
            tables.append(f"{MEASURES[measure].capitalize()} ({runs}):\n\n{markdown(head, lines)}")
    return tables


def _line(
    problem: Problem, x: float, learners: Sequence[str], values: Mapping[tuple[str, float, str], float], is_judged: bool
) -> list[str]:
    """Returns a line of a table; where it is judged, with how far the recommended miner is off."""
    reached = {name: values.get((problem.key, x, name), float("nan")) for name in learners}
    name = recommended(problem, x)
    texts = [f"**{reached[other]:.3f}**" if other == name else f"{reached[other]:.3f}" for other in learners]
    texts = ["" if "nan" in text else text for text in texts]  # not measured
    ours = [value for other, value in reached.items() if other in OURS and value == value]
    return [problem.key, f"{x:g}", *texts, *([f"{max(ours) - reached[name]:.3f}"] if is_judged else [])]


STUDY = Study(
    name="which",
    module="benchmarks.accuracy.which",
    about=__doc__,
    experiments=lambda data: EXPERIMENTS,
    data=tuple(dict.fromkeys(problem.data for problem in (*TUNED, *SEEN, *HELD_OUT) if problem.data)),
    write=write,
    runs=f"{RUNS}, of large tables {RUNS_OF_LARGE}",
    quick=1,
)

if __name__ == "__main__":
    run_study(STUDY)
