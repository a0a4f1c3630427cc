# SPDX-License-Identifier: Apache-2.0
"""DiPriMe trees and forests: regression and classification by noisy medians, or by cuts chosen together with their attribute (Consul & Williamson 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from miners.budget.plan import PlanLine
from miners.budget.schedule import Schedule
from miners.estimator import Classifier, ForestFaces, Regressor, TreeFaces, whole_number
from miners.fitted.node import Node
from miners.fitted.tree import Split
from miners.growth.candidates import choose_in_pieces, default_levels, families, levels_carried
from miners.growth.criteria import REGRESSION_CRITERIA, blur, require_criterion, score_of
from miners.growth.frontier import Level, OpenNode, Rules
from miners.growth.leaf_estimates import released_nodes
from miners.trees.forest_miner import MAX_TREES, ForestMiner, Recipe, Rows, drawn, require_word, schedules, share
from miners.trees.tree_miner import MAX_DEPTH, Variant, many
from pinq.public.epsilon import Loss, exact, to_nano
from pinq.public.scores import ABSOLUTE_ERROR_LEVELS, Balance

if TYPE_CHECKING:
    pass

__all__ = ["DiPriMeForestClassifier", "DiPriMeForestRegressor", "DiPriMeTreeClassifier", "DiPriMeTreeRegressor"]

PAPER_TREES, PAPER_DEPTH, PAPER_FEATURES, PAPER_RHO = 10, 5, 5, 0.5
BEST_RHO = 0.8
REGRESSION_FEWER = 3.5


class DiPriMe(ForestMiner):
    """What the four estimators share: how a level is split, and which public facts the defaults follow."""

    n_estimators: int | None = 1
    rows: Rows = "shards"
    max_depth: int | None
    max_features: int | None
    rho: float | None
    criterion: str | None
    variant: Variant

    def _recipe(self, facts: Recipe) -> Recipe:
        require_word("variant", self.variant, ("best", "paper"))
        require_word("rows", self.rows, ("shards", "all"))
        require_criterion(self._criterion, self._criteria)
        paper, all_of_them = self.variant == "paper", facts.features
        trees = PAPER_TREES if paper else 1
        if self.n_estimators is not None:
            trees = whole_number("n_estimators", self.n_estimators, 1, MAX_TREES)
        features = min(PAPER_FEATURES, all_of_them) if paper else all_of_them
        if self.max_features is not None:
            features = whole_number("max_features", self.max_features, 1, all_of_them)
        facts = replace(facts, trees=trees, features=features)
        depth = PAPER_DEPTH if paper else self._carried(facts)
        if self.max_depth is not None:
            depth = whole_number("max_depth", self.max_depth, 0, MAX_DEPTH)
        return replace(
            facts, schedules=self._schedules(trees, depth, {"median": 1, "split": 1} if paper else {"split": 1})
        )

    def _schedules(self, trees: int, depth: int, node: dict[str, int]) -> tuple[Schedule, ...]:
        """``rho`` of the budget for the splits, the rest for the leaves; all for the leaves of a tree without splits."""
        rho = (PAPER_RHO if self.variant == "paper" else BEST_RHO) if self.rho is None else self.rho
        splits = share("rho", rho)
        leaves = max(1, depth) * len(node) * (splits.denominator - splits.numerator)
        return schedules(
            self.epsilon, trees, self.rows, depth, dict.fromkeys(node, splits.numerator), leaves, self.stopping
        )

    def _carried(self, facts: Recipe) -> int:
        """How many levels: as for ``DiffPC45``, some fewer for regression (docs/defaults.md)."""
        rows = facts.schema.max_rows / (facts.trees if self.rows == "shards" else 1)
        epsilon = exact(to_nano(self.epsilon) // (facts.trees if self.rows == "all" else 1))
        names = facts.names[: facts.features]
        if self._numeric_target:
            return levels_carried(facts.schema, names, rows, epsilon, fewer=REGRESSION_FEWER)
        return default_levels(facts.schema, names, rows, epsilon)

    @property
    def _criteria(self) -> Sequence[str]:
        return tuple(REGRESSION_CRITERIA) if self._numeric_target else ("gini", "max")

    @property
    def _criterion(self) -> str:
        if self.criterion is not None:
            return self.criterion
        if self._numeric_target:
            return "squared_error" if self.variant == "paper" else "absolute_error"
        return "gini"

    def _choose(
        self, recipe: Recipe, schedule: Schedule, level: Level, random: np.random.Generator
    ) -> Sequence[Split | None]:
        asks, measure = schedule.levels[level.number], self._measure(recipe)
        candidates: list[list[Any]] = [
            list(families(recipe.schema, names)) for names in drawn(recipe, [recipe.names] * len(level.nodes), random)
        ]
        score = score_of(self._criterion, recipe.target)
        ask = partial(choose_in_pieces, schema=recipe.schema)
        if self.variant == "best":
            return ask(level.parts, candidates, measure=measure, score=score, epsilon=asks["split"].epsilon)
        medians = ask(level.parts, candidates, measure=1, score=Balance(), epsilon=asks["median"].epsilon, each=True)
        able = [place for place, some in enumerate(medians) if any(some)]
        offered = [[median for median in medians[place] if median is not None] for place in able]
        found = (
            ask(level.parts[able], offered, measure=measure, score=score, epsilon=asks["split"].epsilon, textbook=True)
            if able
            else []
        )
        chosen: list[Split | None] = [None] * len(medians)
        for place, split in zip(able, found, strict=True):
            chosen[place] = split
        return chosen

    def _measure(self, recipe: Recipe) -> int:
        """Numbers in each cell of the tables that a choice needs."""
        return ABSOLUTE_ERROR_LEVELS if self._criterion == "absolute_error" else recipe.cells

    def _nodes(self, recipe: Recipe, nodes: Sequence[OpenNode]) -> list[Node]:
        return released_nodes(nodes, recipe.classes) if self.variant == "paper" else super()._nodes(recipe, nodes)

    def _notes(self, recipe: Recipe) -> tuple[str, ...]:
        found = super()._notes(recipe)
        if self.max_depth is not None or self.variant == "paper":
            return found
        return (
            *found,
            f"max_depth is not given; {recipe.depth} is what epsilon, max_rows and the attributes let expect to be of use.",
        )

    def _rules(self, recipe: Recipe, schedule: Schedule, random: np.random.Generator) -> Rules:
        # A node none of whose attributes has a median is not asked which of them is best: its leaf
        # has that as well.
        return replace(
            super()._rules(recipe, schedule, random), in_vain=("median",) if self.variant == "paper" else None
        )

    def _lines(self, recipe: Recipe, level: int, nodes: int) -> list[PlanLine]:
        asks = recipe.schedules[0].levels[level]
        noise, unit = blur(
            recipe.schema,
            self._criterion,
            asks["split"].epsilon,
            textbook=self.variant == "paper",
            target=recipe.target,
        )
        looked = many(recipe.features, "attribute")
        if self.variant == "best":
            return [
                PlanLine(
                    level,
                    f"best split by {looked}, cuts and groups included",
                    "exp_mech",
                    nodes,
                    recipe.cost(level, "split"),
                    noise,
                    unit,
                )
            ]
        # One row moves the balance of two sides by 2; each of the medians has its part of the
        # epsilon.
        imbalance = float(2 * recipe.features * recipe.schema.distance / asks["median"].epsilon)
        return [
            PlanLine(
                level,
                f"median of each of {looked}",
                "exp_mech",
                nodes,
                recipe.cost(level, "median"),
                imbalance,
                "rows of imbalance",
            ),
            PlanLine(
                level,
                f"best of {many(recipe.features, 'median')}",
                "exp_mech",
                nodes,
                recipe.cost(level, "split"),
                noise,
                unit,
            ),
        ]


@dataclass(kw_only=True, repr=False, eq=False)
class DiPriMeTree(DiPriMe):
    """A single tree, on all rows."""

    epsilon: Loss = 1.0
    max_depth: int | None = None
    max_features: int | None = None
    rho: float | None = None
    criterion: str | None = None
    variant: Variant = "best"
    stopping: float | None = None
    attributes: Sequence[str] | None = None
    random_state: int | None = None


@dataclass(kw_only=True, repr=False, eq=False)
class DiPriMeForest(DiPriMe):
    """Several trees."""

    epsilon: Loss = 1.0
    n_estimators: int | None = None
    max_depth: int | None = None
    max_features: int | None = None
    rho: float | None = None
    criterion: str | None = None
    rows: Rows = "shards"
    variant: Variant = "best"
    stopping: float | None = None
    attributes: Sequence[str] | None = None
    random_state: int | None = None


class DiPriMeTreeClassifier(Classifier, TreeFaces, DiPriMeTree):
    """A tree that predicts the values of a categorical column. See ``DiPriMeForestClassifier``, whose arguments it has but for those that speak of several trees.

    Privacy:
        As for ``DiPriMeForestClassifier``, with a single tree. Held by:
        tests/unit/trees/test_forests.py, tests/privacy/test_diprime.py.

    Examples:
        >>> DiPriMeTreeClassifier(epsilon=0.5, max_depth=3)
        DiPriMeTreeClassifier(epsilon=0.5, max_depth=3)
    """


class DiPriMeTreeRegressor(Regressor, TreeFaces, DiPriMeTree):
    """A tree that predicts the mean of a numeric column. See ``DiPriMeForestRegressor``, whose arguments it has but for those that speak of several trees.

    Privacy:
        As for ``DiPriMeForestRegressor``, with a single tree. Held by:
        tests/unit/trees/test_forests.py, tests/privacy/test_diprime.py.

    Examples:
        >>> DiPriMeTreeRegressor(epsilon=0.5, max_depth=3)
        DiPriMeTreeRegressor(epsilon=0.5, max_depth=3)
    """

    _numeric_target = True


class DiPriMeForestClassifier(Classifier, ForestFaces, DiPriMeForest):
    """A forest that predicts the values of a categorical column, grown level by level on a private handle.

    Every node is split in two: a numeric column at a point of its public grid, a categorical one
    into two groups of its values. "best" chooses column and point together, by one noisy selection.
    "paper" finds the noisy median of each of a few random columns, then the column whose median
    splits best. All nodes of a level of all trees on shards are asked together: as one request and
    one charge ("best"), or two ("paper").

    Args:
        epsilon: What ``fit`` costs in all.
        n_estimators: Trees, 1 to 1,000. None for 1, or for 10 with ``variant="paper"``.
        max_depth: Levels of splits, 0 to 60. None for as many as public facts (epsilon,
            ``max_rows``, the attributes) let expect to be of use; for "paper" 5.
        max_features: Attributes that each node looks at, drawn anew for each. None for all; for
            "paper" 5.
        rho: Share of epsilon for the splits, between 0 and 1. None for 0.8; for "paper" 0.5.
        criterion: ``"gini"`` (None) or ``"max"`` (rows that a vote gets right).
        rows: ``"shards"``: each row is in one tree, by an independent coin. ``"all"``: all rows are
            in every tree, and the trees share epsilon.
        variant: ``"best"``, or ``"paper"`` for the published mechanism, where it is private, or
            what it was meant to be, where it is not.
        stopping: Share, from 0.001 to 0.999, of the leaves' epsilon that goes into one question of
            all grown trees: which nodes have too few rows to stay split. It costs the same at any
            depth. None to keep all splits.
        attributes: Columns to split by; None for all but the target.
        random_state: Steers which attributes a node looks at, which is public; never the noise.

    Attributes:
        forest_: The fitted ``Forest``.
        classes_: The declared values of the target, shape (classes,).
        schema_: The public schema under which it was grown.
        cost_: What ``fit`` really spent, exact; ``plan(schema, target).total`` unless some of it
            had been paid for before.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: in a tree of d levels each node is asked at rho epsilon / d: one choice, or half of
        that for K medians together (each at rho epsilon / 2dK) and half for the choice among them;
        each leaf is asked for its classes at (1 - rho) epsilon, and one that is reached early at
        all that its way has left. ``stopping`` is one more question of each whole tree, at its
        share of the leaves' epsilon (privacy.md 3.4). Nodes of a level are disjoint, so each way
        from the root down costs epsilon. Shards are disjoint, by a keyed coin for each row that no
        other row moves, so all trees cost what one costs; trees on the same rows have epsilon / T
        each. Which attributes a node looks at is drawn without a look at rows; so is the depth.
        Exact: nano-epsilons. Held by: tests/unit/trees/test_forests.py,
        tests/privacy/test_diprime.py.

    Notes:
        The published algorithm, and the code that was released with it, is not epsilon-DP in
        several places (privacy.md 2.8): it divides the noise in a mean by the private number of
        rows, stops where a node is exactly empty, deals the rows into shards of exactly equal size,
        and the code spends epsilon / 2 on each of K medians. "paper" is the same algorithm with
        each of these put right: two-bin averages, fixed depth, independent coins, a K-th each. What
        "best" does otherwise: one choice in place of K + 1; no factor 2 in its exponent; estimates
        of all nodes that agree; class shares that lean on the parent's as far as noise demands; a
        depth that follows public facts. One tree is its default, for at the sizes and budgets that
        it was tried on, more trees, each with fewer rows or less epsilon, were worse:
        docs/forests.md has the figures.

    References:
        Consul & Williamson 2020, "Differentially Private Median Forests for Regression and
        Classification", Algorithms 1 to 3.

    Examples:
        >>> DiPriMeForestClassifier(epsilon=0.5, n_estimators=3)
        DiPriMeForestClassifier(epsilon=0.5, n_estimators=3)
    """


class DiPriMeForestRegressor(Regressor, ForestFaces, DiPriMeForest):
    """A forest that predicts the mean of a numeric column, grown like a ``DiPriMeForestClassifier``, whose arguments it has.

    Values outside the declared bounds of the target are clamped to them by the layer, and counted
    for the provider; rows without a value do not count.

    Args:
        epsilon: What ``fit`` costs in all.
        n_estimators: As there.
        max_depth: As there.
        max_features: As there.
        rho: As there.
        criterion: ``"absolute_error"``, about medians (None), or ``"squared_error"``, about means
            (None with ``variant="paper"``). A row moves the former by a smaller share of what good
            splits gain, the more so the fewer rows have extreme values.
        rows: As there.
        variant: As there.
        stopping: As there.
        attributes: As there.
        random_state: As there.

    Attributes:
        forest_: The fitted ``Forest``.
        schema_: The public schema under which it was grown.
        cost_: What ``fit`` really spent, exact.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: as for ``DiPriMeForestClassifier``, with one two-bin average of each leaf in the place
        of its histogram. The paper's mean with noise W / (n epsilon) is not private, for n is
        (privacy.md 2.3): tests/privacy/test_diprime.py shows it. Held by:
        tests/unit/trees/test_forests.py, tests/privacy/test_diprime.py.

    References:
        Consul & Williamson 2020, "Differentially Private Median Forests for Regression and
        Classification", Algorithms 1 to 3.

    Examples:
        >>> DiPriMeForestRegressor(epsilon=0.5, criterion="squared_error")
        DiPriMeForestRegressor(criterion='squared_error', epsilon=0.5)
    """

    _numeric_target = True
