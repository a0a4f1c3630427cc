# SPDX-License-Identifier: Apache-2.0
"""The gain of a scorecard by pairs of columns, and its largest possible gain by private cut points.

    python -m benchmarks.accuracy.pairs --runs 5 --only banknote rules

``pairs=True`` lets each step choose among all attributes and all pairs of coarse cells. Cut points are
the exact quantiles of the rows at no cost, a bound of all that could be found privately. Writes
benchmarks/results/scorecards/README.md.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

import pinq
from benchmarks.accuracy.problems import TUNED, Problem
from benchmarks.accuracy.trees import UNLIMITED_EPSILON
from benchmarks.harness.datasets import stratified_folds
from benchmarks.harness.publish import RESULTS
from benchmarks.harness.tables import markdown, replace_section
from miners import Scorecard, ScorecardRegressor
from pinq.public.schema import Categorical, Schema

__all__ = ["main"]

EPSILONS = (0.1, 0.5, 1.0, 4.0)
CHOSEN_ON = ("adult", "mushroom", "car", "cmc", "banknote", "appliances_energy")


def made(rules: bool) -> tuple[Schema, str, pd.DataFrame]:
    """3,200 rows of 36 columns of two values: three rules of two columns each, or weights and pairs."""
    draw = np.random.default_rng(11)
    bits = draw.integers(0, 2, (3_200, 36))
    if rules:
        chance = np.where(
            (bits[:, 0] & bits[:, 1]) | (bits[:, 2] & (1 - bits[:, 3])) | (bits[:, 4] & bits[:, 5]), 0.97, 0.03
        )
    else:
        signs = 2 * bits - 1
        odds = signs @ draw.normal(0, 0.25, 36) + sum(signs[:, 2 * k] * signs[:, 2 * k + 1] for k in range(4)) * 0.8
        chance = 1 / (1 + np.exp(-odds))
    frame = pd.DataFrame(np.where(bits == 1, "yes", "no"), columns=[f"a{number}" for number in range(36)])
    frame["y"] = np.where(draw.random(len(frame)) < chance, "q", "p")
    columns: dict[str, Any] = {str(name): Categorical(values=("no", "yes")) for name in frame if name != "y"}
    return Schema(columns={**columns, "y": Categorical(values=("p", "q"))}, max_rows=3_200), "y", frame


def quantiles(schema: Schema, target: str, rows: pd.DataFrame) -> dict[str, list[float]]:
    """The exact sixteenths of each numeric attribute, within its bounds."""
    found = dict[str, list[float]]()
    for name in schema.numeric_columns:
        column = schema.numeric(name)
        points = sorted({float(point) for point in rows[name].quantile(np.arange(1, 16) / 16, interpolation="nearest")})
        inside = [point for point in points if column.lower < point <= column.upper]
        found |= {name: inside} if inside and name != target else {}
    return found


def measured(name: str, epsilon: float, runs: int) -> dict[str, list[float]]:
    """The accuracy, or R², of each way on the test rows of some splits."""
    problems: dict[str, Problem] = {problem.key: problem for problem in TUNED}
    schema, target, frame = made(name == "rules") if name in MADE else problems[name].load()
    reached = dict[str, list[float]]()
    for run in range(runs):
        tested = (
            stratified_folds(np.zeros(len(frame), dtype=int), 10, seed=run) == 0
            if name in MADE
            else problems[name].tested(run)
        )
        train, test = frame[~tested][list(schema.columns)], frame[tested]
        kind = ScorecardRegressor if target in schema.numeric_columns else Scorecard
        with pinq.simulate(schema, data=train, epsilon=UNLIMITED_EPSILON) as handle:
            own = {
                "attributes": kind(epsilon=epsilon).fit(handle, target).score(test),
                "pairs": kind(epsilon=epsilon, pairs=True).fit(handle, target).score(test),
            }
            if schema.numeric_columns.keys() - {target}:
                cuts = quantiles(schema, target, train)
                own["exact cuts"] = kind(epsilon=epsilon, cuts=cuts).fit(handle, target).score(test)
        for shown, value in own.items():
            reached.setdefault(shown, []).append(value)
    return reached


MADE = ("rules", "weights and pairs")
FEW_RUNS = {"adult": 0.25, "credit_default": 0.25, "appliances_energy": 0.5, "mushroom": 0.5}
WAYS = ("attributes", "pairs", "exact cuts")


def lines(names: Sequence[str], runs: int) -> Iterator[list[str]]:
    """A line for each table and epsilon: the first way's figure, and the differences of the others."""
    for name in names:
        for epsilon in EPSILONS:
            count = max(2, round(FEW_RUNS.get(name, 1) * runs))
            reached = {way: np.array(values) for way, values in measured(name, epsilon, count).items()}
            first = reached["attributes"]
            texts = []
            for way in WAYS[1:]:
                apart = reached[way] - first if way in reached else None
                texts.append("" if apart is None else f"{apart.mean():+.3f} ± {apart.std(ddof=1) / count**0.5:.3f}")
            yield [name, f"{epsilon:g}", f"{first.mean():.3f}", *texts, str(count)]
            print(" | ".join([name, f"{epsilon:g}", f"{first.mean():.3f}", *texts]), flush=True)


def main() -> None:
    """Measures, and writes the section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    every = [*CHOSEN_ON, *(problem.key for problem in TUNED if problem.key not in CHOSEN_ON), *MADE]
    parser.add_argument("--only", nargs="*", default=every)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    text = (
        "## Pairs of columns, and exact cut points\n\nAccuracy (R² of Appliances Energy) of the default, and the "
        "differences that `pairs=True` and exact quantiles at no cost make; ± a standard error. "
        "The first six tables were to choose, the others were looked at afterwards.\n\n"
    )
    table = markdown(["table", "epsilon", *WAYS, "runs"], lines(options.only, options.runs))
    replace_section(RESULTS / "scorecards" / "README.md", "pairs", text + table, heading="Scorecards")


if __name__ == "__main__":
    main()
