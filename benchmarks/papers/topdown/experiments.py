# SPDX-License-Identifier: Apache-2.0
"""The experiments: who is compared, on which rows, shared out among how many owners."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, cast

import numpy as np
import pandas as pd

from benchmarks.harness.datasets import load
from benchmarks.harness.learners import Learner, Rows, private
from benchmarks.harness.measure import Experiment
from miners import DiffPC45, FederatedTopDown, Federation
from pinq.provider.local import simulate
from pinq.public.schema import Schema
from pinq_secure import SecureFederation

__all__ = ["ALPHAS", "EXACT", "OWNERS", "Figure", "figures"]

OWNERS = 4
ALPHAS = tuple(2.0**power for power in range(-3, 10))
EXACT = 10_000.0  # so large a loss that noise is next to nothing
UNLIMITED_EPSILON = 10**6
SECURE = "secure"
POOLED = " (all rows in one place)"
SIZES = (0.01, 0.05, 0.25)
ALPHAS_OF_FIGURE_1 = (0.125, 1.0, 8.0)


@dataclass(frozen=True)
class Figure(Experiment):
    """One experiment: learners over privacy losses, or over shares of the loss for the leaves.

    Attributes:
        learners: Learners by name. If the name ends with ``POOLED``, a learner has all rows behind one handle, else
            a federation.
        fraction: The fraction of the training rows that is used.
    """

    key: str
    title: str
    data: str
    xs: Sequence[float]
    learners: Mapping[str, Callable[[Rows, float], float | dict[str, float]]]
    runs: int = 100
    xlabel: str = "alpha, at each owner"
    fraction: float = 1.0

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, dict[str, float]]:
        """Returns test accuracies, or what else is measured of learners, on one training set, cut anew for each run."""
        schema, target, train, test = _split(self.data, run, self.fraction)
        dealt = np.random.default_rng([run, OWNERS]).integers(0, OWNERS, len(train))
        values: dict[str, float | dict[str, float]] = {}
        for name in learners:
            pooled = name.endswith(POOLED)
            tables = [train] if pooled else [train[dealt == owner] for owner in range(OWNERS)]
            own = schema.model_copy(update={"max_rows": _cap(max(map(len, tables)))})
            with _federation(name, own, tables) as federation:
                handle: Any = federation
                if pooled and isinstance(federation, Federation):
                    handle = federation.handle(federation.owners[0])
                values[name] = self.learners[name](Rows(own, target, handle, train, test), x)
        return {name: value if isinstance(value, dict) else {"accuracy": value} for name, value in values.items()}


def _federation(name: str, own: Schema, tables: Sequence[pd.DataFrame]) -> Federation | SecureFederation:
    """Returns the owners that a learner asks: each for itself, or all by sums on secret shares."""
    if name == SECURE:
        return SecureFederation.simulated(tables, schema=own, rows=own.max_rows, epsilon=UNLIMITED_EPSILON)
    return Federation([simulate(own, data=table, epsilon=UNLIMITED_EPSILON) for table in tables])


def figures(data: Sequence[str]) -> dict[str, Figure]:
    """Returns the experiments on some data sets, by key."""
    all_figures = [*(figure for name in data for figure in _on(name)), *_on_first(data[0])]
    return {figure.key: figure for figure in all_figures}


def _on(name: str) -> Iterator[Figure]:
    """Yields the experiments on one data set."""
    for alpha in ALPHAS_OF_FIGURE_1:
        yield Figure(
            f"fig1-{name}" if alpha == 1 else f"fig1-{name}-{alpha:g}",
            f"share of alpha for the leaves, alpha = {alpha:g}",
            name,
            (0.1, 0.3, 0.5, 0.7, 0.9),
            _by_share(alpha),
            xlabel="leaf_fraction",
        )
    yield Figure(f"fig2-{name}", f"test accuracy, {OWNERS} owners", name, ALPHAS, _strategies())
    title = f"training accuracy, depth and nodes, {OWNERS} owners"
    yield Figure(f"fig5-{name}", title, name, ALPHAS[::4], _shapes(_strategies()))
    single = {"no noise" + POOLED: _paper("single")}
    yield Figure(f"exact-{name}", "hardly any noise", name, (EXACT,), single, runs=2)
    title = "the paper's settings, and one rule of ours at a time"
    yield Figure(f"rules-{name}", title, name, (1.0, 8.0), _rules(), runs=10)


def _on_first(name: str) -> Iterator[Figure]:
    """Yields the experiments that one data set is enough for: sums under encryption, and fewer rows."""
    title = f"sums under encryption, {OWNERS} owners"
    yield Figure(f"secure-{name}", title, name, (0.125, 1.0, 8.0), _secure(), runs=2)
    for size in SIZES:
        title = f"test accuracy, {100 * size:g} % of the rows"
        yield Figure(f"fig3-{name}-{size:g}", title, name, ALPHAS[::2], _two_strategies(), fraction=size)
        title, learners = f"training accuracy, {100 * size:g} % of the rows", _shapes(_two_strategies())
        yield Figure(f"fig6-{name}-{size:g}", title, name, ALPHAS[::4], learners, fraction=size)


def _shapes(learners: Mapping[str, Learner]) -> dict[str, Callable[[Rows, float], dict[str, float]]]:
    return {name: partial(_shape, cast("partial[float]", learner)) for name, learner in learners.items()}


def _shape(learner: partial[float], rows: Rows, epsilon: float) -> dict[str, float]:
    """Returns the training accuracy, the depth and the number of nodes of a miner's tree."""
    miner, params = learner.args
    model = miner(epsilon=epsilon, **params).fit(rows.handle, rows.target)
    return {
        "train": float(model.score(rows.train)),
        "depth": float(max(model.tree_.depths)),
        "nodes": float(len(model.tree_.nodes)),
    }


def _paper(strategy: str, **params: object) -> Learner:
    return private(FederatedTopDown, strategy=strategy, **params)


def _strategies() -> dict[str, Learner]:
    return {
        "turns": _paper("turns"),
        "LocalRNM": _paper("local_rnm"),
        "NoisyCounts": _paper("noisy_counts"),
        "SingleMachine" + POOLED: _paper("single"),
        "DiffPC45" + POOLED: private(DiffPC45),
    }


# The experiments' settings in the paper, for LocalRNM, and what the default has instead.
PAPER = {
    "criterion": "entropy",
    "budget": "decay",
    "leaf_fraction": 0.5,
    "at_once": 1,
    "max_nodes": 512,
    "max_depth": 20,
}
OURS = {"criterion": "gini", "budget": "uniform", "leaf_fraction": 0.25, "at_once": 16, "max_depth": None}


def _rules() -> dict[str, Learner]:
    one = {
        f"the paper's, but {rule}={value}": _paper("local_rnm", **PAPER | {rule: value}) for rule, value in OURS.items()
    }
    return {"the paper's": _paper("local_rnm", **PAPER), **one, "defaults": _paper("local_rnm")}


def _secure() -> dict[str, Learner]:
    return {SECURE: _paper("secure"), "NoisyCounts": _paper("noisy_counts"), "turns": _paper("turns")}


def _two_strategies() -> dict[str, Learner]:
    return {"turns": _paper("turns"), "LocalRNM": _paper("local_rnm")}


STRATEGIES: tuple[tuple[str, Any], ...] = (("turns", "turns"), ("LocalRNM", "local_rnm"))
BUDGETS: tuple[Any, ...] = ("decay", "uniform")


def _by_share(alpha: float) -> dict[str, Learner]:
    return {f"{name}, {budget}": _Share(strategy, budget, alpha) for name, strategy in STRATEGIES for budget in BUDGETS}


@dataclass(frozen=True)
class _Share:
    """A learner whose abscissa is the share of the loss that goes to the leaves."""

    strategy: Any
    budget: Any
    alpha: float

    def __call__(self, rows: Rows, fraction: float) -> float:
        miner = FederatedTopDown(epsilon=self.alpha, strategy=self.strategy, budget=self.budget, leaf_fraction=fraction)
        return miner.fit(rows.handle, rows.target).score(rows.test)


@lru_cache(maxsize=2)
def _loaded(data: str) -> tuple[Schema, str, pd.DataFrame]:
    return load(data)


def _split(data: str, run: int, fraction: float) -> tuple[Schema, str, pd.DataFrame, pd.DataFrame]:
    """Returns schema, target, rows to learn from, and rows to test on.

    Where the data set has a split of its own (a column ``fold``) it is that, else 9 : 1 at random.
    """
    schema, target, rows = _loaded(data)
    order = np.random.default_rng([run, 1]).permutation(len(rows))
    own_split = "fold" in rows
    tested = (rows["fold"] == "test").to_numpy()[order] if own_split else np.arange(len(rows)) < len(rows) // 10
    shuffled = rows.iloc[order].drop(columns="fold", errors="ignore")
    train, test = shuffled[~tested], shuffled[tested]
    columns = {name: column for name, column in schema.columns.items() if name != "fold"}
    n_used = max(1, int(len(train) * fraction))
    return schema.model_copy(update={"columns": columns}), target, train.iloc[:n_used], test


def _cap(rows: int) -> int:
    """Returns what a policy would say: a round number that is a little more."""
    unit = 10 ** max(0, len(str(rows)) - 1)
    return -(-rows // unit) * unit + unit
