# SPDX-License-Identifier: Apache-2.0
"""A sample of each published table comes back: one abscissa of each experiment, every learner, baselines included.

Rows, coins and the order of requests are seeded, so the sample is the same until the code changes what it draws.
``python -m benchmarks.papers.STUDY --figures KEY --redo NAME`` measures anew what moved for a reason.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from benchmarks.harness.command import Study
from benchmarks.harness.datasets import why_missing
from benchmarks.harness.measure import Experiment
from benchmarks.harness.publish import RESULTS
from benchmarks.papers.dilca import runs as dilca_runs
from benchmarks.papers.dilca.__main__ import STUDY as DILCA
from benchmarks.papers.dilca.experiments import Comparison
from benchmarks.papers.dilca.runs import Setting
from benchmarks.papers.diprime.__main__ import STUDY as DIPRIME
from benchmarks.papers.friedman_schuster.__main__ import STUDY as FRIEDMAN_SCHUSTER
from benchmarks.papers.secure.__main__ import STUDY as SECURE
from benchmarks.papers.secure.experiments import Accuracy
from benchmarks.papers.topdown.__main__ import STUDY as TOPDOWN
from tests.support.house.assurance import ASSURANCE, note

RUNS: dict[Study[Any], int] = (
    {FRIEDMAN_SCHUSTER: 10, DIPRIME: 3, DILCA: 2, TOPDOWN: 2, SECURE: 2} if ASSURANCE else {FRIEDMAN_SCHUSTER: 3}
)
STANDARD_ERRORS = 4
ROUNDING = 1e-4
"""Published means have five digits, those of DILCA four decimals."""
FEWEST = 4
"""Of fewer runs than these a table of many measures does not tell how far they spread."""
EVERY_DAY = ("fig3", "fig5")


class InTurn(Executor):
    """Owners answer one after the other, so that each meets the same coins again."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        answer.set_result(function(*args, **kwargs))
        return answer


class Published(NamedTuple):
    """What a table says of one measure: the number of runs, mean and standard deviation (NaN for one run)."""

    runs: int
    mean: float
    sd: float


def published(study: Study[Any], experiment: Experiment, learner: str, x: float) -> dict[str, Published]:
    """Returns the lines of the tables about a learner at an abscissa, by measure; none where none is published."""
    folder = RESULTS / study.name
    if isinstance(experiment, Comparison):
        table = pd.read_csv(folder / f"figure-{experiment.figure}.csv")
        setting = experiment.setting(learner, x)
        own = table[np.logical_and.reduce([table[name] == getattr(setting, name) for name in Setting._fields])]
        return _by_measure(own[own["n"] >= FEWEST])
    if isinstance(experiment, Accuracy):
        table = pd.read_csv(folder / "accuracy.csv").rename(columns={"method": "algorithm", "epsilon": "x"})
        table = table[table["data"] == experiment.data].rename(columns={"accuracy": "mean"})
    else:
        path = folder / f"{experiment.key}.csv"
        table = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=["algorithm", "x", "n", "mean", "sd"])
        if "error" in table:
            table = table.assign(mean=1 - table["error"])
    own = table[(table["algorithm"] == learner) & (table["x"] == x)]
    return _by_measure(own[own["n"] >= FEWEST] if "what" in own else own.assign(what="accuracy"))


def _by_measure(table: pd.DataFrame) -> dict[str, Published]:
    columns = (table[name].tolist() for name in ("what", "n", "mean", "sd"))
    return {what: Published(n, mean, sd) for what, n, mean, sd in zip(*columns, strict=True)}


def far(line: Published, values: np.ndarray) -> bool:
    """Whether the mean of a sample is beyond the interval around what is published."""
    sd = np.nanmax([line.sd, values.std(ddof=1)])
    error = sd * np.sqrt(1 / line.runs + 1 / len(values))
    return abs(values.mean() - line.mean) > STANDARD_ERRORS * error + ROUNDING


SAMPLED = [
    (study, experiment)
    for study in RUNS
    for experiment in study.experiments(study.data)
    if not experiment.alone and (ASSURANCE or experiment.key in EVERY_DAY)
]


@pytest.mark.parametrize(("study", "experiment"), SAMPLED, ids=lambda value: getattr(value, "name", None) or value.key)
def test_a_sample_of_a_table_comes_back(
    study: Study[Any], experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    if experiment.data and why_missing(experiment.data):
        pytest.skip(why_missing(experiment.data))
    x = experiment.xs[zlib.crc32(experiment.key.encode()) % len(experiment.xs)]
    lines = {name: published(study, experiment, name, x) for name in experiment.learners}
    learners = [name for name, by_measure in lines.items() if by_measure]
    if not learners:
        pytest.skip("not published yet")
    monkeypatch.setattr("miners.federated.federation.ThreadPoolExecutor", InTurn)
    dilca_runs.handle.cache_clear()
    n_runs = RUNS[study]
    measured = [experiment.measure(x, run, learners) for run in range(n_runs)]
    moved = []
    for name in learners:
        for measure, line in lines[name].items():
            values = np.array([run[name][measure] for run in measured])
            if far(line, values):
                moved.append(
                    f"{name}, {measure} at {x:g}: {values.mean():.4f}, published {line.mean:.4f} ± {line.sd:.4f}"
                )
    assert not moved
    note(f"runs of {study.name} {experiment.key} at {x:g}", n_runs, f"{len(learners)} learners as published")
