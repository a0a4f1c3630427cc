# SPDX-License-Identifier: Apache-2.0
"""What all miners of forests share: which rows each tree learns from, and when paths end.

Forests are trees on shards: see ``tree_miner.py``, which grows them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from miners.budget.plan import count_scale, lost_votes
from miners.budget.recipe import Recipe, StepName, StepQuestion, spread
from miners.estimator import require_word, whole_number
from miners.growth.candidates import attribute_names, families
from miners.growth.frontier import OpenNode
from miners.trees.strategy import Problem, TreeStrategy, many, noise_of
from miners.trees.tree_miner import TreeMiner
from pinq.errors import QueryError
from pinq.public.checks import is_number
from pinq.public.epsilon import Epsilon
from pinq.public.scores import PATH_LOSS

__all__ = ["MAX_TREES", "ForestMiner", "ForestStrategy", "Rows", "share"]

MAX_TREES = 1000
Rows = Literal["shards", "all"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ForestStrategy(TreeStrategy):
    """How trees grow from random beginnings.

    Attributes:
        names: The attributes.
        features: How many of them each node looks at.
        stopping: Share of the leaves' epsilon for the question where paths end; None to ask nothing
            of the kind.
        random: Draws what is random and public.
    """

    names: tuple[str, ...]
    features: int
    stopping: Fraction | None
    random: np.random.Generator

    @abstractmethod
    def node_questions(self, level: int) -> list[StepQuestion]:
        """Returns what a node of this level is asked, by weight."""

    @abstractmethod
    def leaf_weight(self) -> int:
        """Returns the weight of all that a leaf is asked."""

    def questions(self) -> tuple[list[list[StepQuestion]], list[StepQuestion]]:
        """Returns what each level of splits is asked, and what a leaf is asked, by weight."""
        levels = [self.node_questions(level) for level in range(self.depth)]
        classes = self.classes_question("each leaf", self.leaf_weight())
        if self.stopping is None or not self.depth:
            return levels, [classes]
        # Weights stay whole: a leaf of weight 4 of which 3/10 goes into stopping makes 12 and 28,
        # and every other weight is taken 10 times.
        whole, part = self.stopping.denominator, self.stopping.numerator
        levels = [[replace(question, weight=question.weight * whole) for question in row] for row in levels]
        stop = StepQuestion(StepName.STOP, "exp_mech", "", self._stop_noise, classes.weight * part)
        return levels, [stop, replace(classes, weight=classes.weight * (whole - part))]

    @cached_property
    def recipe(self) -> Recipe:
        """The steps, at their losses."""
        levels, leaf = self.questions()
        recipe = Recipe.by_weights(self.epsilon, levels, leaf)
        if not recipe.stops:
            return recipe
        # How many rows are enough follows from the noise in the leaves, hence from their price.
        rows = self.stop_rows_at(recipe.leaf_step(StepName.CLASSES).epsilon)
        return recipe.worded(StepName.STOP, f"which splits have rows enough, about {rows:,} and more")

    def _stop_noise(self, epsilon: Epsilon) -> tuple[float, str]:
        return math.sqrt(2) * PATH_LOSS * count_scale(self.schema, epsilon), "rows"

    def max_parts(self, node: OpenNode) -> int:
        """Returns the most parts that a split in two makes."""
        return self._sides

    @cached_property
    def _sides(self) -> int:
        return max(family.max_parts(self.schema) for family in families(self.schema, self.names))

    def drawn(self, names: Iterable[Sequence[str]]) -> list[list[str]]:
        """Draws which of its attributes each node looks at: public randomness."""
        drawn = []
        for own in names:
            order = sorted(self.random.permutation(len(own))[: self.features])
            drawn.append([own[position] for position in order])
        return drawn


class ForestMiner(TreeMiner[ForestStrategy]):
    """A miner that grows trees from random beginnings on a private handle."""

    max_depth: int | None
    random_state: int | None
    n_estimators: int | None = 1
    rows: Rows = "shards"
    stopping: float | None = None

    @abstractmethod
    def _strategy(self, problem: Problem, names: tuple[str, ...]) -> ForestStrategy:
        """Returns the strategy for all trees and the whole budget."""

    def _strategies(self, problem: Problem) -> Sequence[ForestStrategy]:
        if self.random_state is not None:
            whole_number("random_state", self.random_state, 0, 2**63 - 1)
        names = tuple(attribute_names(problem.schema, problem.target, self.attributes))
        require_word("rows", self.rows, ("shards", "all"))
        strategy = self._strategy(problem, names)
        if strategy.trees == 1 or self.rows == "shards":
            return [strategy]
        shares = spread(problem.epsilon, [1] * strategy.trees)
        return [replace(strategy, epsilon=share, trees=1) for share in shares]

    def _stop_share(self) -> Fraction | None:
        return None if self.stopping is None else share("stopping", self.stopping)

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng(self.random_state)

    def _title(self, strategies: Sequence[ForestStrategy]) -> str:
        strategy, count = strategies[0], _trees(strategies)
        trees = "" if count == 1 else f"{many(count, 'tree')} of "
        features = "" if strategy.features == len(strategy.names) else f"{strategy.features} of "
        attributes = f"{features}{many(len(strategy.names), 'attribute')}"
        levels = many(strategy.recipe.depth, "level")
        return f"{type(self).__name__} for `{strategy.target}`: {trees}{levels} of splits by {attributes}"

    def _notes(self, strategies: Sequence[ForestStrategy]) -> tuple[str, ...]:
        if strategies[0].trees > 1:
            return (
                f"each row's coin puts it into one of {strategies[0].trees} shards, a tree each; shards are disjoint, "
                "as the nodes of a level are, so a level of the forest costs what one node costs.",
            )
        if len(strategies) > 1:
            return (
                f"all {len(strategies)} trees see all rows, one after the other, so each costs its part of the total; "
                "a line stands for all of them.",
            )
        return (
            "the nodes of a level are disjoint, so a level costs what one node costs; each path from the root to a "
            "leaf costs the total.",
        )

    def _warnings(self, strategies: Sequence[ForestStrategy], rows: int | None) -> tuple[str, ...]:
        """Whether the votes of leaves stand out of their noise."""
        strategy = strategies[0]
        expected = strategy.schema.max_rows if rows is None else whole_number("rows", rows, 0, 2**33)
        if self.stopping is not None:
            return ()
        if strategy.recipe.depth == 0 and self.max_depth is None:
            return (
                f"at epsilon {strategy.problem.epsilon} and at most {strategy.schema.max_rows:,} rows the budget "
                "carries no split, so every row gets the same prediction; a larger `epsilon` is needed for any split.",
            )
        leaves = 2**strategy.recipe.depth * strategy.trees
        noise = noise_of(strategy.schema, strategy.recipe.leaf_step(StepName.CLASSES).epsilon)
        return lost_votes(expected, leaves, noise, known=rows is not None, trees=_trees(strategies))


def _trees(strategies: Sequence[ForestStrategy]) -> int:
    """How many trees grow in all."""
    return sum(strategy.trees for strategy in strategies)


def share(name: str, value: object) -> Fraction:
    """Returns a parameter that is a share of a budget, exact to a thousandth at least.

    Raises:
        QueryError: It is no such number.
    """
    if not is_number(value, 0.001, 0.999):
        raise QueryError(f"is {value!r}", parameter=name, allowed="a number between 0 and 1, from 0.001 to 0.999")
    return Fraction(value).limit_denominator(1000)
