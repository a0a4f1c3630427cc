# SPDX-License-Identifier: Apache-2.0
"""DP-DF: a forest of multiway splits by attributes that a noisy Gini index chooses (Fletcher & Islam 2015)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from miners.budget.plan import PlanLine
from miners.budget.schedule import Schedule
from miners.estimator import Classifier, ForestFaces, whole_number
from miners.fitted.tree import Split
from miners.growth.candidates import choose_in_pieces, multiway_splits
from miners.growth.criteria import blur
from miners.growth.frontier import Level, OpenNode, Rules
from miners.trees.forest_miner import MAX_TREES, ForestMiner, Recipe, Rows, drawn, require_word, schedules
from miners.trees.tree_miner import MAX_DEPTH, many
from pinq.public.epsilon import Loss
from pinq.public.schema import Numeric
from pinq.public.scores import Gini
from pinq.public.specs import Cuts, Values, bind

__all__ = ["DPDecisionForest"]

BINS = 5  # Consul & Williamson 2020, sec. 4.2


@dataclass(kw_only=True, repr=False, eq=False)
class DPDecisionForest(Classifier, ForestFaces, ForestMiner):
    """A forest whose nodes are split into all values of an attribute, chosen by a noisy Gini index among a random few: a baseline.

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
        attributes: Columns to split by; None for all but the target.
        random_state: Steers which attributes a node chooses from, which is public; never the noise.

    Attributes:
        forest_: The fitted ``Forest``.
        classes_: The declared values of the target, shape (classes,).
        schema_: The public schema under which it was grown.
        cost_: What ``fit`` really spent, exact.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: each node of d levels is asked one choice at epsilon / 2d, each leaf one histogram at
        epsilon / 2 (a leaf that is reached early, at all that its way has left); nodes of a level
        are disjoint, and so are the trees of shards, while trees on the same rows share epsilon.
        Exact: nano-epsilons.
        Held by: tests/unit/trees/test_forests.py.

    Notes:
        The paper calibrates its choices to the *local* sensitivity of the Gini index, which follows
        the rows and so is not private itself; here it is the global one of the layer's score.

    References:
        Fletcher & Islam 2015, "A Differentially Private Decision Forest".

    Examples:
        >>> DPDecisionForest(epsilon=0.5)
        DPDecisionForest(epsilon=0.5)
    """

    epsilon: Loss = 1.0
    n_estimators: int = 10
    max_depth: int = 5
    max_features: int | None = None
    bins: int | Mapping[str, Sequence[float] | int] = BINS
    rows: Rows = "shards"
    attributes: Sequence[str] | None = None
    random_state: int | None = None

    def _recipe(self, facts: Recipe) -> Recipe:
        require_word("rows", self.rows, ("shards", "all"))
        self._splits(facts)
        trees = whole_number("n_estimators", self.n_estimators, 1, MAX_TREES)
        depth = min(whole_number("max_depth", self.max_depth, 0, MAX_DEPTH), len(facts.names))
        features = math.ceil(math.sqrt(len(facts.names)))
        if self.max_features is not None:
            features = whole_number("max_features", self.max_features, 1, len(facts.names))
        return replace(
            facts,
            trees=trees,
            features=features,
            schedules=schedules(self.epsilon, trees, self.rows, depth, {"split": 1}, max(1, depth)),
        )

    def _splits(self, recipe: Recipe) -> dict[str, Values | Cuts]:
        """Each attribute's split."""
        numeric = [name for name in recipe.names if isinstance(recipe.schema.columns[name], Numeric)]
        cuts = self.bins if isinstance(self.bins, Mapping) else dict.fromkeys(numeric, self.bins)
        return {
            split.column: split
            for split in multiway_splits(recipe.schema, recipe.target, attributes=recipe.names, cuts=cuts)
        }

    def _choose(
        self, recipe: Recipe, schedule: Schedule, level: Level, random: np.random.Generator
    ) -> Sequence[Split | None]:
        splits = self._splits(recipe)
        offered = [
            [splits[name] for name in names]
            for names in drawn(recipe, [self._open(recipe, node) for node in level.nodes], random)
        ]
        epsilon = schedule.levels[level.number]["split"].epsilon
        return choose_in_pieces(
            level.parts, offered, recipe.schema, measure=recipe.cells, score=Gini(recipe.target), epsilon=epsilon
        )

    def _open(self, recipe: Recipe, node: OpenNode) -> list[str]:
        """The attributes that no node above has used up."""
        return [name for name in recipe.names if name not in node.used]

    def _widest(self, recipe: Recipe) -> int:
        return max(bind(split, recipe.schema).size for split in self._splits(recipe).values())

    def _rules(self, recipe: Recipe, schedule: Schedule, random: np.random.Generator) -> Rules:
        return replace(super()._rules(recipe, schedule, random), once=lambda _: True)

    def _lines(self, recipe: Recipe, level: int, nodes: int) -> list[PlanLine]:
        each = recipe.schedules[0].levels[level]["split"].epsilon
        noise, unit = blur(recipe.schema, "gini", each, textbook=False)
        return [
            PlanLine(
                level,
                f"best of {many(min(recipe.features, len(recipe.names) - level), 'split')}",
                "exp_mech",
                nodes,
                recipe.cost(level, "split"),
                noise,
                unit,
            )
        ]
