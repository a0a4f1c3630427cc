# SPDX-License-Identifier: Apache-2.0
"""Figures 3 to 7: training sets that a random tree labels, tested on 10,000 fresh rows without noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

import pinq
from benchmarks.harness.learners import CRITERIA, Learner, Rows, exact_tree, private
from benchmarks.harness.measure import Experiment, accuracies
from miners import DiffPC45, DiffPID3, SuLQID3
from miners.fitted.node import Node
from miners.fitted.tree import Tree
from miners.tuning.suggestion import dummy_rows, random_rule
from pinq.language.specs import Cuts, Values
from pinq.public.schema import Categorical, Numeric, Schema

__all__ = ["FIGURES", "Synthetic"]

TARGET = "class"
FRESH = 10_000
UNLIMITED_EPSILON = 10**5  # more than the learners of a run spend together


@dataclass(frozen=True)
class Synthetic(Experiment):
    """A figure that varies the number of training rows.

    Attributes:
        key: Its name: ``fig3``, or ``fig6-depth-3`` for a result that the paper gives without a picture.
        title: The title of its picture.
        numeric: The number of numeric attributes, over [0, 100]; the others of the ten are categorical.
        depth: Levels of the rule; 1 for a single split, at 35 of a numeric attribute if there is one.
        epsilon: The budget B.
        noise: p_noise.
        sizes: Training rows.
        trees: The number of rules; None for a new one in each run.
        values: The number of values of each categorical attribute and of the class.
        runs: Training sets for each size.
        learners: The compared learners.
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
    values: int = 2
    runs: int = 200
    xlabel: str = "training rows"
    data: str = ""

    @property
    def xs(self) -> Sequence[float]:
        """The numbers of training rows."""
        return self.sizes

    def schema(self) -> Schema:
        """Declares ten attributes and a class; the largest size bounds the rows."""
        nominal = Categorical(values=tuple(range(self.values)))
        attributes = {f"n{i}": Numeric(lower=0, upper=100) for i in range(self.numeric)} | {
            f"a{i}": nominal for i in range(10 - self.numeric)
        }
        return Schema(columns={**attributes, TARGET: nominal}, max_rows=max(self.sizes))

    @property
    def number(self) -> int:
        """The figure's number, which seeds its rows."""
        return int(self.key[3:].split("-")[0])

    def rule(self, run: int) -> Tree:
        """Returns the rule that labels the rows of a run."""
        schema, seed = self.schema(), [self.number, run if self.trees is None else run % self.trees]
        if self.depth > 1:
            return random_rule(schema, TARGET, depth=self.depth, seed=seed)
        random = np.random.default_rng(seed)
        attribute = int(random.integers(self.numeric or 10))
        split = Cuts(f"n{attribute}", (35,)) if self.numeric else Values(f"a{attribute}")
        # Which class is larger varies, or a tie that goes to the first would be no fair coin.
        leaves = [Node(counts=(1.0, 0.0)), Node(counts=(0.0, 1.0))]
        first = int(random.integers(2))
        return Tree(schema, TARGET, [Node(split, (1, 2)), leaves[first], leaves[1 - first]])

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, dict[str, float]]:
        """Returns test accuracies of some learners on one training set."""
        rule, seed = self.rule(run), [self.number, run, int(x)]
        train, fresh = (
            dummy_rows(rule, int(x), noise=self.noise, seed=[*seed, 0]),
            dummy_rows(rule, FRESH, seed=[*seed, 1]),
        )
        with pinq.simulate(self.schema(), data=train, epsilon=UNLIMITED_EPSILON) as handle:
            rows = Rows(self.schema(), TARGET, handle, train, fresh)
            return accuracies({name: self.learners[name](rows, self.epsilon) for name in learners})


def _paper(miner: type, depth: int, suffix: str = "", **params: object) -> dict[str, Learner]:
    return {
        f"{name}{suffix}": private(miner, variant="paper", criterion=criterion, max_depth=depth, **params)
        for name, criterion in CRITERIA.items()
    }


SMALL = (100, 250, 500, 1000, 1500, 2000, 3000, 4000, 5000)
LARGE = (1000, 2000, 5000, 10_000, 20_000, 50_000)
ID3 = {"ID3, not private": exact_tree(pruned=False)}
J48 = {"J48-like, not private": exact_tree(pruned=False), "J48-like pruned, not private": exact_tree(pruned=True)}
BEST_SPLIT = {"best, numeric": private(DiffPC45, max_depth=1), "best, 10 bins": private(DiffPID3, max_depth=1)}
PAPER_BINS = _paper(DiffPC45, 1, ", numeric") | _paper(DiffPID3, 1, ", 10 bins")


def _sulq(depth: int) -> dict[str, Learner]:
    return {"SuLQ": private(SuLQID3, variant="paper", max_depth=depth)}


def _nominal(depth: int) -> dict[str, Learner]:
    return _paper(DiffPID3, depth) | _sulq(depth) | {"best": private(DiffPID3)}


FIGURE_6 = Synthetic(
    key="fig6", title="A tree of depth 5, 10 binary attributes, binary class, B = 1, p_leaf = 0.3",
    numeric=0, depth=5, epsilon=1.0, noise=0.1, sizes=LARGE, trees=10, learners=ID3 | _nominal(5),
)  # fmt: skip
_FIGURES = (
    Synthetic(
        key="fig3", title="Splitting a single node with a binary attribute, B = 0.1, p_noise = 0.1",
        numeric=0, depth=1, epsilon=0.1, noise=0.1, sizes=SMALL,
        learners=ID3 | _paper(DiffPID3, 1) | _sulq(1) | {"best": private(DiffPID3, max_depth=1)},
    ),
    Synthetic(
        key="fig4", title="Splitting a single node with a continuous attribute, B = 0.1, p_noise = 0.1",
        numeric=3, depth=1, epsilon=0.1, noise=0.1, sizes=SMALL,
        learners=J48 | _paper(DiffPC45, 1) | {"best": private(DiffPC45, max_depth=1)},
    ),
    Synthetic(
        key="fig5", title="Numerical split against discretization, B = 0.2, p_noise = 0",
        numeric=3, depth=1, epsilon=0.2, noise=0.0, sizes=SMALL, learners=PAPER_BINS | BEST_SPLIT,
    ),
    FIGURE_6,
    *(replace(FIGURE_6, key=f"fig6-depth-{depth}", title=f"As figure 6, a tree of depth {depth}", depth=depth,
              learners=ID3 | _nominal(depth)) for depth in (3, 10)),
    *(replace(FIGURE_6, key=f"fig6-values-{values}", title=f"As figure 6, attributes and class of {values} values",
              values=values) for values in (3, 5)),
    Synthetic(
        key="fig7", title="A tree of depth 5, 7 binary and 3 numeric attributes, binary class, B = 1, p_leaf = 0.3",
        numeric=3, depth=5, epsilon=1.0, noise=0.1, sizes=LARGE, trees=10,
        learners=J48 | _paper(DiffPC45, 5) | {"best": private(DiffPC45)},
    ),
)  # fmt: skip
FIGURES: dict[str, Synthetic] = {figure.key: figure for figure in _FIGURES}
