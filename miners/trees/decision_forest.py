# SPDX-License-Identifier: Apache-2.0
"""DP-DF: a forest of multiway splits that a noisy Gini index chooses (Fletcher & Islam 2015)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from miners.budget.recipe import StepName, StepQuestion
from miners.estimator import Classifier, ForestFaces, whole_number
from miners.fitted.node import Split
from miners.growth.candidates import MAX_BINS, CutsByColumn, multiway_splits
from miners.growth.frontier import Level, OpenNode
from miners.trees.forest_miner import MAX_TREES, ForestMiner, ForestStrategy, Rows
from miners.trees.strategy import Problem, many
from miners.trees.tree_miner import MAX_DEPTH
from pinq.public.epsilon import EpsilonLike
from pinq.public.specs import Cuts, Values

__all__ = ["DPDecisionForest"]

BINS = 5  # Consul & Williamson 2020, sec. 4.2


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomFew(ForestStrategy):
    """Splits into all values of an attribute, chosen by a noisy Gini index among a random few.

    Attributes:
        splits: The split of each attribute.
    """

    splits: tuple[Values | Cuts, ...]

    @cached_property
    def _split_by(self) -> dict[str, Values | Cuts]:
        return {split.column: split for split in self.splits}

    def node_questions(self, level: int) -> list[StepQuestion]:
        """Returns one choice, among the attributes that a path of this length has left."""
        offered = min(self.features, len(self.names) - level)
        return [self.choice_question(StepName.SPLIT, f"best of {many(offered, 'split')}")]

    def leaf_weight(self) -> int:
        """Returns half of all weights."""
        return max(1, self.depth)

    def choose(self, level: Level) -> Sequence[Split | None]:
        """Chooses among a random few of the attributes that no node above has used up."""
        unused = [[name for name in self.names if name not in node.used] for node in level.nodes]
        offered = [[self._split_by[name] for name in names] for names in self.drawn(unused)]
        return self.ask_choices(level.parts, offered, self.recipe.step(StepName.SPLIT, level.number))

    def max_parts(self, node: OpenNode) -> int:
        """Returns the most parts that one of the splits makes."""
        return max(split.max_parts(self.schema) for split in self.splits)

    def uses_up(self, split: Split) -> bool:
        """Returns True: a path splits each attribute once."""
        return True


@dataclass(kw_only=True, repr=False, eq=False)
class DPDecisionForest(Classifier, ForestFaces, ForestMiner):
    """A forest of multiway splits by attributes that a noisy Gini index chooses: a baseline.

    Each node chooses among a random few of the attributes.

    Args:
        epsilon: What ``fit`` costs in all, half of it for splits and half for leaves.
        n_estimators: Trees, 1 to 1,000.
        max_depth: Levels of splits, 0 to 60; no more than there are attributes.
        max_features: Attributes that each node chooses from; None for the square root of their
            number, rounded up.
        bins: Intervals of equal width into which numeric attributes are cut; a number for all, or
            as ``cuts`` of ``DiffPID3`` for each.
        rows: ``"shards"``: each row is in one tree, by an independent coin. ``"all"``: all rows are
            in every tree, and the trees share epsilon.
        attributes: The columns to split by. None for all but the target.
        random_state: Steers which attributes a node chooses from, which is public; never the noise.

    Attributes:
        forest_: The fitted ``Forest``.
        classes_: The declared values of the target, shape (classes,).
        schema_: The public schema under which it was grown.
        cost_: What the last ``fit`` spent, exact.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: each node of d levels is asked one choice at epsilon / 2d, each leaf one histogram at
        epsilon / 2 (a leaf that is reached early, at all that its path has left); nodes of a level
        are disjoint, and so are the trees of shards, while trees on the same rows share epsilon.
        Exact: nano-epsilons.
        Held by: tests/unit/trees/test_forests.py.

    Notes:
        The paper calibrates its choices to the *local* sensitivity of the Gini index, which follows
        the rows and so is not private itself; here it is the global one of the layer's score.

    References:
        Fletcher & Islam 2015, "A Differentially Private Decision Forest".

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import DPDecisionForest
        >>> rows = pd.read_parquet("data/adult.parquet")  # public; of a private table there is only a handle
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> forest = DPDecisionForest(epsilon=1, n_estimators=2, attributes=["sex", "relationship"])
        >>> forest.fit(handle, "income").predict(rows.head(5)).shape
        (5,)
    """

    epsilon: EpsilonLike = 1.0
    n_estimators: int = 10
    max_depth: int = 5
    max_features: int | None = None
    bins: int | CutsByColumn = BINS
    rows: Rows = "shards"
    attributes: Sequence[str] | None = None
    random_state: int | None = None

    def _strategy(self, problem: Problem, names: tuple[str, ...]) -> RandomFew:
        numeric = [name for name in names if name in problem.schema.numeric_columns]
        if isinstance(self.bins, Mapping):
            cuts = self.bins
        else:
            cuts = dict.fromkeys(numeric, whole_number("bins", self.bins, 2, MAX_BINS))
        features = math.ceil(math.sqrt(len(names)))
        if self.max_features is not None:
            features = whole_number("max_features", self.max_features, 1, len(names))
        return RandomFew(
            problem=problem,
            epsilon=problem.epsilon,
            splits=multiway_splits(problem.schema, problem.target, attributes=names, cuts=cuts),
            trees=whole_number("n_estimators", self.n_estimators, 1, MAX_TREES),
            depth=min(whole_number("max_depth", self.max_depth, 0, MAX_DEPTH), len(names)),
            criterion="gini",
            names=names,
            features=features,
            stopping=None,
            random=self._generator(),
        )
