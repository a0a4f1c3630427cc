# SPDX-License-Identifier: Apache-2.0
"""How near synthetic rows of Adult come to the private ones: their tables, and models trained on them.

``python -m benchmarks.accuracy.synthesizer --runs 10`` prints the table and writes it, each run and a picture to
benchmarks/results/synthesizer. Rows are compared in the cells of policies/adult.yaml; models are trained on
synthetic rows and tested on UCI's 16,281 test rows.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import pinq
from benchmarks.accuracy.trees import table as data_set
from benchmarks.harness.tables import markdown
from miners import Synthesizer
from miners.growth.candidates import Grid, attribute_cells
from pinq.public.specs import bind
from tests.checkout import ROOT

EPSILONS = (0.1, 0.5, 1.0, 4.0)
RESULTS = ROOT / "benchmarks" / "results" / "synthesizer"


class Adult:
    """UCI Adult's rows as numbers of cells, training and test rows apart."""

    def __init__(self) -> None:
        self.schema = pinq.load_policy(ROOT / "policies" / "adult.yaml").schema_
        _, self.target, frame = data_set("adult")
        self.rows = frame[frame["fold"] == "train"][list(self.schema.columns)]
        test = frame[frame["fold"] == "test"]
        self.specs = attribute_cells(self.schema, None, None, None, Grid(12))
        self.axes = [bind(spec, self.schema).axes[0] for spec in self.specs]
        self.sizes = [axis.size for axis in self.axes]
        self.train, self.test = self.codes(self.rows), self.codes(test)

    def codes(self, frame: pd.DataFrame) -> np.ndarray:
        """The cell of each row in each column."""
        columns = [(axis, self.schema.column(axis.column)) for axis in self.axes]
        return np.column_stack([axis.parts_of(column.encode(frame[axis.column])) for axis, column in columns])

    def shares(self, codes: np.ndarray, columns: tuple[int, ...]) -> np.ndarray:
        """The share of rows in each cell of some columns."""
        sizes = [self.sizes[column] for column in columns]
        numbers = np.ravel_multi_index(tuple(codes[:, column] for column in columns), sizes)
        return np.bincount(numbers, minlength=int(np.prod(sizes))) / len(codes)

    def distance(self, codes: np.ndarray, ways: int) -> float:
        """The mean total variation distance of all tables of so many columns from those of the training rows."""
        tables = itertools.combinations(range(len(self.sizes)), ways)
        apart = [np.abs(self.shares(codes, own) - self.shares(self.train, own)).sum() / 2 for own in tables]
        return float(np.mean(apart))

    def trained(self, codes: np.ndarray) -> dict[str, float]:
        """Accuracy and AUC on the test rows of two models that are trained on some rows."""
        last = [axis.column for axis in self.axes].index(self.target)
        others = [number for number in range(len(self.axes)) if number != last]
        truth = self.test[:, last] == 1
        boosted = HistGradientBoostingClassifier(
            max_iter=60, max_leaf_nodes=15, learning_rate=0.15, categorical_features=range(len(others)), random_state=0
        )
        found: dict[str, float] = {}
        for name, model, shape in (
            ("boosted", boosted, self._plain),
            ("logistic", LogisticRegression(max_iter=200), self._hot),
        ):
            model.fit(shape(codes[:, others], others), codes[:, last] == 1)
            likely = model.predict_proba(shape(self.test[:, others], others))[:, 1]
            found |= {f"{name} accuracy": ((likely > 0.5) == truth).mean(), f"{name} AUC": roc_auc_score(truth, likely)}
        return found

    def _plain(self, codes: np.ndarray, columns: list[int]) -> np.ndarray:
        return codes

    def _hot(self, codes: np.ndarray, columns: list[int]) -> np.ndarray:
        return np.concatenate([np.eye(self.sizes[own])[codes[:, number]] for number, own in enumerate(columns)], axis=1)

    def line(self, who: str, epsilon: float | None, codes: np.ndarray, seconds: float = 0.0) -> dict[str, object]:
        """One row of the table."""
        distances = {f"TVD {ways}-way": self.distance(codes, ways) for ways in (2, 3)}
        return {"rows": who, "epsilon": epsilon, **distances, **self.trained(codes), "CPU s": seconds}


def bought_one_by_one(adult: Adult, epsilon: float, random: np.random.Generator) -> float:
    """The mean distance of all two-way tables where each is bought by itself, epsilon shared evenly."""
    pairs = list(itertools.combinations(range(len(adult.sizes)), 2))
    apart = []
    for pair in pairs:
        exact = adult.shares(adult.train, pair)
        noisy = np.maximum(exact * len(adult.train) + random.laplace(0, len(pairs) / epsilon, exact.size), 0)
        apart.append(np.abs(exact - noisy / noisy.sum()).sum() / 2)
    return float(np.mean(apart))


def measured(adult: Adult, runs: int) -> Iterator[dict[str, object]]:
    """Yields the lines of all runs."""
    yield adult.line("private rows", None, adult.train)
    random = np.random.default_rng(0)
    for epsilon, run in itertools.product(EPSILONS, range(runs)):
        with pinq.simulate(adult.schema, data=adult.rows, epsilon=epsilon) as handle:
            start = time.process_time()
            synthesizer = Synthesizer(epsilon=epsilon, random_state=run).fit(handle)
            seconds = time.process_time() - start
        codes = adult.codes(synthesizer.sample(len(adult.train), random_state=run))
        yield {
            **adult.line("synthetic", epsilon, codes, seconds),
            "bought alone": bought_one_by_one(adult, epsilon, random),
            "stated error": synthesizer.model_.error,
        }


def with_history(adult: Adult, runs: int) -> Iterator[dict[str, object]]:
    """Yields the lines of fits after each column and 40 random pairs were counted, and of fits without."""
    for run in range(runs):
        pairs = list(itertools.combinations(adult.specs, 2))
        chosen = [pairs[number] for number in np.random.default_rng(run).permutation(len(pairs))[:40]]
        for epsilon, known in ((0.5, True), (1.0, True), (0.3, False), (0.5, False)):
            with pinq.simulate(adult.schema, data=adult.rows, epsilon=10) as handle:
                for spec in adult.specs if known else ():
                    handle.partition(spec).noisy_count(epsilon=0.012)
                for pair in chosen if known else ():
                    handle.partition(*pair).noisy_count(epsilon=0.02)
                fitted = Synthesizer(epsilon=epsilon, random_state=run).fit(handle, history=known)
            codes = adult.codes(fitted.sample(len(adult.train), random_state=run))
            cost, distance = float(fitted.cost_), adult.distance(codes, 2)
            yield {"epsilon": epsilon, "history": known, "further epsilon": cost, "TVD 2-way": distance}


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--history", action="store_true", help="print what answers in the log save, and nothing else")
    asked = parser.parse_args()
    if asked.history:
        gains = pd.DataFrame(with_history(Adult(), asked.runs))
        print(gains.groupby(["epsilon", "history"], sort=False).mean().round(3).to_string())
        return
    lines = pd.DataFrame(measured(Adult(), asked.runs))
    table = lines.groupby(["rows", "epsilon"], dropna=False, sort=False).mean(numeric_only=True).round(3)
    shown = table.reset_index().astype(object).where(lambda frame: frame.notna(), "")
    text = markdown(list(shown.columns), shown.itertuples(index=False))
    print(text)
    RESULTS.mkdir(parents=True, exist_ok=True)
    lines.to_csv(RESULTS / "runs.csv", index=False)
    (RESULTS / "README.md").write_text(f"# Synthetic rows of Adult\n\n{__doc__}\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
