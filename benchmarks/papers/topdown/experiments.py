# SPDX-License-Identifier: Apache-2.0
"""Figures 1 to 3 of Wang, Dick & Balcan 2020 on this project's miner: who is compared, on which rows, shared out among how many holders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness.datasets import load
from benchmarks.harness.learners import Learner, Rows, private
from miners import DiffPC45, DPTopDown, Federation
from miners.secure import SecureFederation
from pinq.provider.simulation import simulate
from pinq.public.schema import Schema

__all__ = ["ALPHAS", "EXACT", "HOLDERS", "Figure", "figures"]

HOLDERS = 4
ALPHAS = tuple(2.0**power for power in range(-3, 10))
EXACT = 10_000.0  # so large a loss that noise is next to nothing
PLENTY = 10**6
SECURE = "secure"
POOLED = " (all rows in one place)"
SIZES = (0.01, 0.05, 0.25)
SHARED = (0.125, 1.0, 8.0)  # the losses of Figure 1


@dataclass(frozen=True)
class Figure:
    """One experiment: learners over privacy losses, or over shares of the loss for the leaves.

    Attributes:
        learners: By name. Those whose name ends with ``POOLED`` learn from all rows behind one handle, the others from a federation.
        fraction: What share of the training rows is used.
    """

    key: str
    title: str
    data: str
    xs: Sequence[float]
    learners: Mapping[str, Learner]
    runs: int = 10
    xlabel: str = "alpha, at each holder"
    fraction: float = 1.0

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, float]:
        """Test accuracies of some learners on one training set, cut anew for each run."""
        schema, target, train, test = _split(self.data, run, self.fraction)
        owner = np.random.default_rng([run, HOLDERS]).integers(0, HOLDERS, len(train))
        found = {}
        for name in learners:
            tables = [train] if name.endswith(POOLED) else [train[owner == holder] for holder in range(HOLDERS)]
            own = schema.model_copy(update={"max_rows": _cap(max(map(len, tables)))})
            with _federation(name, own, tables) as federation:
                handle: Any = federation if len(tables) > 1 else federation.handle(federation.holders[0])
                found[name] = self.learners[name](Rows(own, target, handle, train, test), x)
        return found


def _federation(name: str, own: Schema, tables: Sequence[pd.DataFrame]) -> Federation:
    """The holders that a learner asks: each for itself, or all by sums on secret shares."""
    if name == SECURE:
        return SecureFederation.simulated(tables, schema=own, rows=own.max_rows, epsilon=PLENTY)
    return Federation([simulate(own, data=table, epsilon=PLENTY) for table in tables])


def figures(data: Sequence[str]) -> dict[str, Figure]:
    """The experiments on some data sets, by key."""
    made = []
    for name in data:
        for alpha in SHARED:
            key = f"fig1-{name}" if alpha == 1 else f"fig1-{name}-{alpha:g}"
            made.append(
                Figure(
                    key,
                    f"share of alpha for the leaves, alpha = {alpha:g}",
                    name,
                    (0.1, 0.3, 0.5, 0.7, 0.9),
                    _by_share(alpha),
                    xlabel="leaf_fraction",
                )
            )
        made += [
            Figure(f"fig2-{name}", f"test accuracy, {HOLDERS} holders", name, ALPHAS, _strategies()),
            Figure(
                f"exact-{name}", "hardly any noise", name, (EXACT,), {"no noise" + POOLED: _paper("single")}, runs=2
            ),
        ]
    made.append(
        Figure(
            f"secure-{data[0]}",
            f"sums under encryption, {HOLDERS} holders",
            data[0],
            (0.125, 1.0, 8.0),
            _secure(),
            runs=2,
        )
    )
    for size in SIZES:
        made.append(
            Figure(
                f"fig3-{data[0]}-{size:g}",
                f"test accuracy, {100 * size:g} % of the rows",
                data[0],
                ALPHAS[::2],
                _few(),
                fraction=size,
            )
        )
    return {one.key: one for one in made}


def _paper(strategy: str, **params: Any) -> Learner:
    return private(DPTopDown, strategy=strategy, **params)


def _strategies() -> dict[str, Learner]:
    return {
        "turns": _paper("turns"),
        "LocalRNM": _paper("local_rnm"),
        "NoisyCounts": _paper("noisy_counts"),
        "SingleMachine" + POOLED: _paper("single"),
        "DiffPC45" + POOLED: private(DiffPC45),
    }


def _secure() -> dict[str, Learner]:
    return {SECURE: _paper("secure"), "NoisyCounts": _paper("noisy_counts"), "turns": _paper("turns")}


def _few() -> dict[str, Learner]:
    return {"turns": _paper("turns"), "LocalRNM": _paper("local_rnm")}


def _by_share(alpha: float) -> dict[str, Learner]:
    return {
        f"{name}, {budget}": _Share(strategy, budget, alpha)
        for name, strategy in (("turns", "turns"), ("LocalRNM", "local_rnm"))
        for budget in ("decay", "uniform")
    }


@dataclass(frozen=True)
class _Share:
    """A learner whose abscissa is the share of the loss that goes to the leaves."""

    strategy: str
    budget: str
    alpha: float

    def __call__(self, rows: Rows, fraction: float) -> float:
        miner = DPTopDown(epsilon=self.alpha, strategy=self.strategy, budget=self.budget, leaf_fraction=fraction)
        return miner.fit(rows.handle, rows.target).score(rows.test)


@lru_cache(maxsize=2)
def _loaded(data: str) -> tuple[Schema, str, pd.DataFrame]:
    return load(data)


def _split(data: str, run: int, fraction: float) -> tuple[Schema, str, pd.DataFrame, pd.DataFrame]:
    """Rows to learn from and to test on: where the data set has a split of its own (a column ``fold``) that, else 9 : 1 at random."""
    schema, target, rows = _loaded(data)
    order = np.random.default_rng([run, 1]).permutation(len(rows))
    tested = (rows["fold"] == "test").to_numpy()[order] if "fold" in rows else np.arange(len(rows)) < len(rows) // 10
    shuffled = rows.iloc[order].drop(columns="fold", errors="ignore")
    train = shuffled[~tested]
    columns = {name: column for name, column in schema.columns.items() if name != "fold"}
    return (
        schema.model_copy(update={"columns": columns}),
        target,
        train.iloc[: max(1, int(len(train) * fraction))],
        shuffled[tested],
    )


def _cap(rows: int) -> int:
    """What a policy would say: a round number that is a little more."""
    unit = 10 ** max(0, len(str(rows)) - 1)
    return -(-rows // unit) * unit + unit
