# SPDX-License-Identifier: Apache-2.0
"""Errors of statistics beside those without noise: a survival curve, odds ratios, the power of chi-square.

    PINQ_DATA=... python -m benchmarks.accuracy.studies

The curve is that of lung (228 rows), where ``lung.csv`` is in ``PINQ_DATA``; its error is the distance from the
curve of Kaplan and Meier at 200 times. Nine odds ratios are of Adult, in 96 cells: the noisy standard error over
the exact one, the median over the ratios. Power is that of 2 x 2 tables with 200 rows and the correlation .2, at
the level .05.
Writes benchmarks/results/statistics/studies.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import pinq
from benchmarks.accuracy.coverage import Population, real
from benchmarks.harness.datasets import load
from benchmarks.harness.origin import commit_of
from benchmarks.harness.publish import RESULTS
from benchmarks.harness.tables import markdown
from miners.statistics import independence, logistic, survival
from miners.statistics.cells import CountDraft
from pinq.public.schema import Schema

EPSILONS = (0.5, 1.0, 2.0)
RUNS = {"curve": 100, "odds": 20, "power": 1000}


def noisy(counts: np.ndarray, epsilon: float, random: np.random.Generator) -> np.ndarray:
    """Returns counts with noise as ``noisy_count`` draws it."""
    ends = 1 - np.exp(-epsilon)
    return np.asarray(counts + random.geometric(ends, counts.shape) - random.geometric(ends, counts.shape))


def counted(draft: CountDraft) -> np.ndarray:
    """Returns the counts of a draft without noise, but for a chance of exp(-10,000)."""
    return np.asarray(draft.parts.noisy_count(epsilon=10**4), dtype=np.float64)


def curve(study: Population, epsilon: float) -> float:
    """Returns the mean of the root of the squared error of a survival curve."""
    handle = pinq.simulate(study.schema, data=study.frame, epsilon=10**6)
    draft: Any = survival._draft(handle, "time", "status", observed="1", epsilon=epsilon)
    random, counts, at = np.random.default_rng(0), counted(draft), np.linspace(0, study.frame["time"].max(), 200)
    ends = study.frame["time"][study.frame["status"] == "1"].to_numpy()
    hazards = [(ends == time).sum() / (study.frame["time"] >= time).sum() for time in np.unique(ends)]
    exact = np.concatenate([[1.0], np.cumprod(1 - np.array(hazards))])[np.searchsorted(np.unique(ends), at, "right")]
    errors = []
    for _ in range(RUNS["curve"]):
        found = draft.computed(noisy(counts, epsilon, random), 1 / epsilon).frame
        own = np.interp(at, found["time"], found["value"].ffill())
        errors.append(np.sqrt(np.mean((own - exact) ** 2)))
    return float(np.mean(errors))


def odds(schema: Schema, frame: pd.DataFrame, epsilon: float) -> float:
    """Returns the standard errors of nine odds ratios over the exact ones, the median."""
    handle = pinq.simulate(schema, data=frame, epsilon=10**6)
    columns: Any = ["sex", pinq.Cuts("age", (25, 35, 45, 55, 65)), pinq.Cuts("education_num", (9, 10, 13))]
    draft: Any = logistic._draft(handle, "income", columns, observed=">50K", epsilon=epsilon)
    counts, random = counted(draft), np.random.default_rng(0)
    exact = draft.computed(counts, 1e-9).params["std err"].to_numpy()[1:]
    drawn = [
        draft.computed(noisy(counts, epsilon, random), 1 / epsilon).params["std err"].to_numpy()[1:]
        for _ in range(RUNS["odds"])
    ]
    return float(np.median(np.array(drawn) / exact))


def power(epsilon: float) -> float:
    """Returns how often chi-square rejects independence of two columns with the correlation .2."""
    yes_no = pinq.Categorical(values=("no", "yes"))
    handle = pinq.simulate(pinq.Schema(columns={"a": yes_no, "b": yes_no}, max_rows=1000), rows=10, epsilon=1)
    draft: Any = independence._draft(handle, "a", "b", epsilon=epsilon)
    random = np.random.default_rng(0)
    tables = random.multinomial(200, [0.3, 0.2, 0.2, 0.3], RUNS["power"]).reshape(-1, 2, 2)
    return float(np.mean([draft.computed(noisy(one, epsilon, random), 1 / epsilon).pvalue < 0.05 for one in tables]))


def lines() -> Iterator[list[str]]:
    """Yields the figures at each epsilon, and last those without noise."""
    studies = [population for population in real() if population.name == "lung"]
    schema, _, frame = load("adult")
    for epsilon in (*EPSILONS, 1000.0):
        shown = f"{curve(studies[0], epsilon):.4f}" if studies else "-"
        name = f"{epsilon:g}" if epsilon < 1000 else "no noise"
        yield [name, shown, f"{odds(schema, frame, epsilon):.3f}", f"{power(epsilon):.3f}"]


def main() -> None:
    """Measures all, prints the table and keeps it."""
    table = markdown(
        ["epsilon", "lung: error of the curve", "Adult: errors of odds ratios", "power of chi-square"], [*lines()]
    )
    text = f"""# Statistics: errors beside those without noise

`PINQ_DATA=... python -m benchmarks.accuracy.studies` ({commit_of()}).

Survival of lung (228 rows, 8 intervals): root of the mean squared error to the curve of Kaplan and Meier,
{RUNS["curve"]} draws of the noise. Nine odds ratios of Adult in 96 cells: standard error over the exact one, the
median, {RUNS["odds"]} draws. Power of chi-square: 2 x 2 tables of 200 rows, correlation .2, {RUNS["power"]:,} draws.

{table}
"""
    print(text)
    (RESULTS / "statistics" / "studies.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
