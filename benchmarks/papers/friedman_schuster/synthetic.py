# SPDX-License-Identifier: Apache-2.0
"""Figures 3 to 7: training sets that a random tree labels, tested on 10,000 fresh rows without noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import pinq
from benchmarks.harness.learners import CRITERIA, Learner, Rows, exact_tree, private
from miners import DiffPC45, DiffPID3, SuLQID3
from miners.tuning.synthetic import Concept
from pinq.public.schema import Categorical, Numeric, Schema
from pinq.public.specs import Cuts, Values

__all__ = ["FIGURES", "Synthetic"]

TARGET = "class"
FRESH = 10_000
DEAR = 10**5  # more than the learners of a run spend together


@dataclass(frozen=True)
class Synthetic:
    """A figure: what is varied is the number of training rows.

    Attributes:
        key: ``fig3``.
        title: What it shows.
        numeric: How many of the ten attributes are numeric over [0, 100]; the others are binary.
        depth: Levels of the concept; 1 for a single split, of a numeric attribute at 35 where there is one.
        epsilon: The budget B.
        noise: p_noise.
        sizes: Training rows.
        trees: Concepts; None for another one in each run.
        runs: Training sets for each size.
        learners: What is compared.
    """

    key: str
    title: str
    numeric: int
    depth: int
    epsilon: float
    noise: float
    sizes: tuple[int, ...]
    learners: Mapping[str, Learner]
    trees: int | None = None
    runs: int = 200
    xlabel: str = "training rows"
    data: str = ""

    @property
    def xs(self) -> Sequence[float]:
        """What is varied."""
        return self.sizes

    def schema(self) -> Schema:
        """Ten attributes and a binary class; the largest size bounds the rows."""
        attributes = {f"n{i}": Numeric(lower=0, upper=100) for i in range(self.numeric)} | {
            f"a{i}": Categorical(values=(0, 1)) for i in range(10 - self.numeric)
        }
        return Schema(columns={**attributes, TARGET: Categorical(values=(0, 1))}, max_rows=max(self.sizes))

    def concept(self, run: int) -> Concept:
        """The rule of a run."""
        schema, seed = self.schema(), [int(self.key[3:]), run if self.trees is None else run % self.trees]
        if self.depth > 1:
            return Concept.random(schema, TARGET, depth=self.depth, leaf_probability=0.3, seed=seed)
        random = np.random.default_rng(seed)
        attribute = int(random.integers(self.numeric or 10))
        split = Cuts(f"n{attribute}", (35,)) if self.numeric else Values(f"a{attribute}")
        # Which class is the larger one varies, or a tie that goes to the first would be worth more or less than a coin.
        return Concept.single_split(schema, TARGET, split, first=int(random.integers(2)))

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, float]:
        """Test accuracies of some learners on one training set."""
        concept, seed = self.concept(run), [int(self.key[3:]), run, int(x)]
        train, fresh = concept.sample(int(x), noise=self.noise, seed=[*seed, 0]), concept.sample(FRESH, seed=[*seed, 1])
        with pinq.simulate(self.schema(), data=train, epsilon=DEAR) as handle:
            rows = Rows(self.schema(), TARGET, handle, train, fresh)
            return {name: self.learners[name](rows, self.epsilon) for name in learners}


def _paper(miner: type, depth: int, suffix: str = "", **params: object) -> dict[str, Learner]:
    return {
        f"{name}{suffix}": private(miner, variant="paper", criterion=criterion, max_depth=depth, **params)
        for name, criterion in CRITERIA.items()
    }


SMALL = (100, 250, 500, 1000, 1500, 2000, 3000, 4000, 5000)
LARGE = (1000, 2000, 5000, 10_000, 20_000, 50_000)
SPLIT = {"ID3, not private": exact_tree(pruned=False)}
NUMERIC = {"J48-like, not private": exact_tree(pruned=False), "J48-like pruned, not private": exact_tree(pruned=True)}

BEST_SPLIT = {"best, numeric": private(DiffPC45, max_depth=1), "best, 10 bins": private(DiffPID3, max_depth=1)}

FIGURES: dict[str, Synthetic] = {
    one.key: one
    for one in (
        Synthetic(
            "fig3", "Splitting a single node with a binary attribute, B = 0.1, p_noise = 0.1", 0, 1, 0.1, 0.1, SMALL,
            SPLIT | _paper(DiffPID3, 1) | {"SuLQ": private(SuLQID3, variant="paper", max_depth=1), "best": private(DiffPID3, max_depth=1)},
        ),
        Synthetic(
            "fig4", "Splitting a single node with a continuous attribute, B = 0.1, p_noise = 0.1", 3, 1, 0.1, 0.1, SMALL,
            NUMERIC | _paper(DiffPC45, 1) | {"best": private(DiffPC45, max_depth=1)},
        ),
        Synthetic(
            "fig5", "Numerical split against discretization, B = 0.2, p_noise = 0", 3, 1, 0.2, 0.0, SMALL,
            _paper(DiffPC45, 1, ", numeric") | _paper(DiffPID3, 1, ", 10 bins") | BEST_SPLIT,
        ),
        Synthetic(
            "fig6", "A tree of depth 5, 10 binary attributes, binary class, B = 1, p_leaf = 0.3", 0, 5, 1.0, 0.1, LARGE,
            SPLIT | _paper(DiffPID3, 5) | {"SuLQ": private(SuLQID3, variant="paper", max_depth=5), "best": private(DiffPID3)}, trees=10,
        ),
        Synthetic(
            "fig7", "A tree of depth 5, 7 binary and 3 numeric attributes, binary class, B = 1, p_leaf = 0.3", 3, 5, 1.0, 0.1, LARGE,
            NUMERIC | _paper(DiffPC45, 5) | {"best": private(DiffPC45)}, trees=10,
        ),
    )
}  # fmt: skip
