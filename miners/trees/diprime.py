# SPDX-License-Identifier: Apache-2.0
"""DiPriMe trees and forests, for classes and means (Consul & Williamson 2020)."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Literal, NamedTuple, Self, cast

import numpy as np

from miners.budget.plan import NOT_GIVEN, Recipe, Step, StepName, StepQuery, count_scale, lost_votes, spread
from miners.estimator import FOREST_LIMITS, Classifier, GrownMiner, Regressor, require_word
from miners.fitted.node import Node, Split
from miners.fitted.tree import Forest
from miners.growth.candidates import (
    REGRESSION_CRITERIA,
    attribute_names,
    default_depth_note,
    default_levels,
    families,
    grouping_warnings,
    levels_carried,
    require_criterion,
)
from miners.growth.fitted_nodes import OpenNode, released_nodes
from miners.growth.frontier import Level, Problem, TreeStrategy, in_pieces, noise_of
from miners.trees.tree_miner import MAX_DEPTH, PAPER_DEPTH, TreeFit, Variant, problem_of
from pinq.errors import QueryError
from pinq.language.scores import PATH_LOSS, Balance
from pinq.public.checks import is_number, many, whole_number
from pinq.public.epsilon import EpsilonLike
from pinq.public.schema import Schema

MAX_TREES = 1000
Rows = Literal["shards", "all"]


class DiPriMeDefaults(NamedTuple):
    """The defaults of one variant.

    Attributes:
        share: The fraction of epsilon for the splits.
        depth_follows_epsilon: Whether the depth follows from epsilon; else it is the paper's.
    """

    features: int | None
    trees: int
    share: float
    criterion: str
    depth_follows_epsilon: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class DiPriMeBest(TreeStrategy):
    """The median of each of some attributes, then the attribute whose median splits best.

    Attributes:
        stopping: The fraction of the leaves' epsilon for the query where paths end; None for no such
            query.
        split_share: Share of epsilon for the splits; a tree without splits spends all on its leaves.
    """

    names: tuple[str, ...]
    features: int
    stopping: Fraction | None
    random: np.random.Generator
    split_share: Fraction

    defaults: ClassVar[DiPriMeDefaults] = DiPriMeDefaults(
        features=None, trees=1, share=0.8, criterion="absolute_error", depth_follows_epsilon=True
    )

    def node_queries(self, level: int) -> list[StepQuery]:
        medians, weight = f"median of each of {many(self.features, 'attribute')}", self.split_share.numerator
        return [
            # One row moves the balance of two sides by 2; each of the medians has its part of the epsilon.
            StepQuery(
                StepName.MEDIAN,
                "exp_mech",
                medians,
                lambda epsilon: (float(2 * self.features / epsilon.per_row(self.schema.distance)), "rows of imbalance"),
                weight,
            ),
            self.choice_query(StepName.SPLIT, f"best of {many(self.features, 'median')}", weight),
        ]

    def leaf_weight(self) -> int:
        """The weight of all queries of a leaf, relative to all levels of splits."""
        # Four fifths for splits, in three levels of two queries: each query weighs 4 and the leaf 6, of 30.
        return 2 * max(1, self.depth) * (self.split_share.denominator - self.split_share.numerator)

    def queries(self) -> tuple[list[list[StepQuery]], list[StepQuery]]:
        levels = [self.node_queries(level) for level in range(self.depth)]
        classes = self.classes_query("each leaf", self.leaf_weight())
        if self.stopping is None or not self.depth:
            return levels, [classes]
        # Weights stay whole. If 3/10 of a leaf's weight 4 go to stopping, all weights are
        # multiplied by 10, and the leaf's 40 become 12 and 28.
        whole, part = self.stopping.denominator, self.stopping.numerator
        levels = [[replace(query, weight=query.weight * whole) for query in row] for row in levels]
        stop = StepQuery(
            StepName.STOP,
            "exp_mech",
            "",
            lambda epsilon: (math.sqrt(2) * PATH_LOSS * count_scale(self.schema, epsilon), "rows"),
            classes.weight * part,
        )
        return levels, [stop, replace(classes, weight=classes.weight * (whole - part))]

    @cached_property
    def recipe(self) -> Recipe:
        recipe = Recipe.by_weights(self.epsilon, *self.queries())
        if not recipe.stops:
            return recipe
        # The threshold of rows follows from the noise in the leaves, hence from their cost.
        rows = self.stop_rows_at(recipe.leaf_step(StepName.CLASSES).epsilon)
        stop, *others = recipe.leaf
        query = replace(stop.query, text=f"splits with enough rows, about {rows:,} and more")
        return replace(recipe, leaf=(replace(stop, query=query), *others))

    def first_level(self) -> Self:
        """The growth of one level, with a copy of the random generator."""
        return replace(super().first_level(), random=copy.deepcopy(self.random))

    def max_parts(self, node: OpenNode) -> int:
        return self._sides

    @cached_property
    def _sides(self) -> int:
        return max(family.max_parts(self.schema) for family in families(self.schema, self.names))

    def drawn(self, names: Sequence[Sequence[str]]) -> list[list[str]]:
        """Draws the attributes that each node looks at: public randomness."""
        # Two of five: the first two of a random order, 3 and 1, give the attributes 1 and 3.
        return [
            [node_names[index] for index in sorted(self.random.permutation(len(node_names))[: self.features])]
            for node_names in names
        ]

    def choose(self, level: Level) -> Sequence[Split | None]:
        """Finds the medians of the attributes that each node looks at, then chooses among them."""
        step = self.recipe.step(StepName.MEDIAN, level.number)
        family = dict(zip(self.names, families(self.schema, self.names), strict=True))
        offered = [[family[name] for name in names] for names in self.drawn([self.names] * len(level.nodes))]
        answers = in_pieces(
            lambda parts, node_families: parts.exp_mech(
                node_families, score=Balance(), epsilon=step.epsilon, each=True
            ),
            level.parts,
            offered,
        )
        medians = [[cast(Split, median) for median in answer if median is not None] for answer in answers]
        return self.ask_where_offered(level, medians, self.recipe.step(StepName.SPLIT, level.number))

    def without_split(self, level: int) -> Sequence[Step]:
        """The medians: a node without medians has no query for the best of them, so its leaf gets that epsilon too."""
        return [self.recipe.step(StepName.MEDIAN, level)]


class DiPriMePaper(DiPriMeBest):
    """The same strategy with the textbook mechanism, a few attributes for each node, and unadjusted answers."""

    textbook = True
    defaults = DiPriMeDefaults(features=5, trees=10, share=0.5, criterion="squared_error", depth_follows_epsilon=False)

    def estimates(self, trees: Sequence[Sequence[OpenNode]]) -> list[list[Node]]:
        return [released_nodes(nodes, self.problem.classes) for nodes in trees]


VARIANTS: Mapping[str, type[DiPriMeBest]] = {"best": DiPriMeBest, "paper": DiPriMePaper}


class DiPriMeFit(TreeFit[DiPriMeBest]):
    """The fit of trees whose nodes split at medians."""

    @property
    def title(self) -> str:
        strategy, count = self.first, self.trees
        trees = "" if count == 1 else f"{many(count, 'tree')} of "
        features = "" if strategy.features == len(strategy.names) else f"{strategy.features} of "
        attributes = f"{features}{many(len(strategy.names), 'attribute')}"
        levels = many(strategy.recipe.depth, "level")
        return f"{type(self.miner).__name__} for `{strategy.target}`: {trees}{levels} of splits by {attributes}"

    def notes(self) -> tuple[str, ...]:
        follows = self.miner.max_depth is None and self.first.defaults.depth_follows_epsilon
        depth = (default_depth_note(self.first.recipe.depth),) if follows else ()
        if self.first.trees > 1:
            return (
                f"each row is in one of {self.first.trees} random shards, one for each tree; shards and the nodes "
                "of a level are disjoint, so a level of the forest costs as much as one node.",
                *depth,
            )
        if len(self.strategies) > 1:
            return (
                f"all {len(self.strategies)} trees use all rows, so each costs its part of the total; a line of the "
                "plan shows all of them.",
                *depth,
            )
        return (
            "the nodes of a level are disjoint, so a level costs as much as one node; each path from the root to a "
            "leaf costs the total.",
            *depth,
        )

    def warnings(self, rows: int | None) -> tuple[str, ...]:
        strategy = self.first
        schema, depth = strategy.schema, strategy.recipe.depth
        expected = schema.max_rows if rows is None else rows
        slow = grouping_warnings(schema, families(schema, strategy.names), depth, self.trees)
        if strategy.stopping is not None:
            return slow
        if depth == 0 and self.miner.max_depth is None:
            return (
                f"at epsilon {self.total} and at most {schema.max_rows:,} rows the budget "
                "supports no split, so every row gets the same prediction; a larger `epsilon` is needed for any split.",
            )
        noise = noise_of(schema, strategy.recipe.leaf_step(StepName.CLASSES).epsilon)
        lost = lost_votes(expected, 2**depth * strategy.trees, noise, known=rows is not None, trees=self.trees)
        return (*lost, *slow)


def strategies_of(strategy: DiPriMeBest, rows: Rows) -> Sequence[DiPriMeBest]:
    """One strategy for all trees on shards, or one for each tree on all rows."""
    require_word("rows", rows, ("shards", "all"))
    if strategy.trees == 1 or rows == "shards":
        return [strategy]
    return [replace(strategy, epsilon=share, trees=1) for share in spread(strategy.epsilon, [1] * strategy.trees)]


def share(name: str, value: object) -> Fraction:
    """A parameter that is a share of a budget, exact to a thousandth at least.

    Raises:
        QueryError: It is no such number.
    """
    if not is_number(value, 0.001, 0.999):
        raise QueryError(f"is {value!r}", parameter=name, allowed="a number between 0 and 1, from 0.001 to 0.999")
    return Fraction(value).limit_denominator(1000)


@dataclass(kw_only=True, repr=False, eq=False)
class DiPriMe(GrownMiner):
    """The common code of the four estimators: checks, and defaults from public facts."""

    epsilon: EpsilonLike = NOT_GIVEN
    max_depth: int | None = None
    max_features: int | None = None
    rho: float | None = None
    criterion: str | None = None
    variant: Variant = "best"
    stopping: float | None = None
    attributes: Sequence[str] | None = None
    random_state: int | None = None

    def _checked(self, schema: Schema, target: str) -> DiPriMeFit:
        if self.random_state is not None:
            whole_number("random_state", self.random_state, 0, 2**63 - 1)
        problem = problem_of(self, schema, target, finds_range=self.variant != "paper")
        names = tuple(attribute_names(schema, target, self.attributes))
        rows: Rows = getattr(self, "rows", "shards")
        return DiPriMeFit(self, strategies_of(self._strategy(problem, names, rows), rows))

    def _strategy(self, problem: Problem, names: tuple[str, ...], rows: Rows) -> DiPriMeBest:
        require_word("variant", self.variant, tuple(VARIANTS))
        kind = VARIANTS[self.variant]
        criteria = tuple(REGRESSION_CRITERIA) if problem.numeric else ("gini", "max")
        default = kind.defaults.criterion if problem.numeric else "gini"
        n_trees = getattr(self, "n_estimators", 1)
        trees = whole_number("n_estimators", kind.defaults.trees if n_trees is None else n_trees, 1, MAX_TREES)
        usual = min(kind.defaults.features or len(names), len(names))
        n_features = usual if self.max_features is None else self.max_features
        features = whole_number("max_features", n_features, 1, len(names))
        return kind(
            problem=problem,
            epsilon=problem.epsilon,
            trees=trees,
            depth=self._depth(kind, problem, names[:features], trees, rows),
            criterion=require_criterion(default if self.criterion is None else self.criterion, criteria),
            names=names,
            features=features,
            split_share=share("rho", kind.defaults.share if self.rho is None else self.rho),
            stopping=None if self.stopping is None else share("stopping", self.stopping),
            random=np.random.default_rng(self.random_state),
        )

    def _depth(
        self, kind: type[DiPriMeBest], problem: Problem, names: Sequence[str], trees: int, used_rows: Rows
    ) -> int:
        """The levels: the given number, the paper's, or that of ``DiffPC45``; fewer for regression."""
        if self.max_depth is not None:
            return whole_number("max_depth", self.max_depth, 0, MAX_DEPTH)
        if not kind.defaults.depth_follows_epsilon:
            return PAPER_DEPTH
        rows = problem.schema.max_rows / (trees if used_rows == "shards" else 1)
        epsilon = problem.epsilon // (trees if used_rows == "all" else 1)
        if problem.numeric:  # docs/defaults.md
            return levels_carried(problem.schema, names, rows, epsilon, fewer=3.5)
        return default_levels(problem.schema, names, rows, epsilon)


@dataclass(kw_only=True, repr=False, eq=False)
class DiPriMeForest(DiPriMe):
    """Several trees."""

    n_estimators: int | None = None
    rows: Rows = "shards"
    _state = Forest
    _limits = FOREST_LIMITS


class DiPriMeTreeClassifier(Classifier, DiPriMe):
    """A tree that predicts the values of a categorical column.

    Its arguments are those of ``DiPriMeForestClassifier``, except those for several trees.

    Privacy:
        As for ``DiPriMeForestClassifier``, with a single tree. Held by:
        tests/unit/trees/test_forests.py, tests/privacy/test_diprime.py.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import DiPriMeTreeClassifier
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> tree = DiPriMeTreeClassifier(epsilon=0.5, max_depth=3).fit(handle, "income")
        >>> bool(tree.score(rows) > 0.8), float(tree.cost_)
        (True, 0.5)
    """


class DiPriMeTreeRegressor(Regressor, DiPriMe):
    """A tree that predicts the mean of a numeric column.

    Its arguments are those of ``DiPriMeForestRegressor``, except those for several trees.

    Privacy:
        As for ``DiPriMeForestRegressor``, with a single tree. Held by:
        tests/unit/trees/test_forests.py, tests/privacy/test_diprime.py.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import DiPriMeTreeRegressor
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> hours = DiPriMeTreeRegressor(epsilon=0.5, max_depth=2).fit(handle, "hours_per_week")
        >>> hours.predict(rows.head(5)).shape  # means
        (5,)
        >>> bool(hours.score(rows) > 0)  # R^2
        True
    """


class DiPriMeForestClassifier(Classifier, DiPriMeForest):
    """A forest that predicts the values of a categorical column, grown level by level.

    Every node is split in two: a numeric column at a point of its public grid, a categorical column
    into two groups of its values. The noisy median of each column is found first, and then the
    column whose median splits best is selected. All nodes of a level, of all trees on shards, are
    two requests and two charges. ``DiffPC45`` selects among all cuts instead, and is more accurate
    where the cuts that matter are not near medians.

    Args:
        epsilon: The cost of ``fit``, in the policy's own terms.
        n_estimators: The number of trees, 1 to 1,000. None for 1, or for 10 with
            ``variant="paper"``.
        max_depth: Levels of splits, 0 to 60. None for a number that follows from public facts
            (epsilon, ``max_rows``, the attributes); for "paper" 5.
        max_features: The number of random attributes that each node considers. None for all; for
            "paper" 5.
        rho: The fraction of epsilon for the splits, between 0 and 1. None for 0.8; for "paper" 0.5.
        criterion: ``"gini"`` (None) or ``"max"`` (correctly classified rows).
        rows: ``"shards"``: each row is in one tree, by an independent random draw. ``"all"``: all
            rows are in every tree, and the trees divide epsilon.
        variant: ``"best"``, or ``"paper"`` for the published mechanism; where that is not private, for the intended
            one.
        stopping: The fraction of the leaves' epsilon, from 0.001 to 0.999, for one query of all
            grown trees: which nodes have too few rows to stay split? Its cost does not depend on
            the depth. None to keep all splits.
        attributes: The columns to split by. None for all but the target.
        random_state: Seed of the public randomness: the attributes that a node considers. It
            never affects the noise.

    Attributes:
        forest_: The fitted ``Forest``.
        classes_: The declared values of the target, shape (classes,).
        schema_: The public schema under which it was grown.
        cost_: The cost of the last ``fit``, exact. It equals ``plan(schema, target).total`` unless
            some answers were paid for before.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: in a tree of d levels each node costs rho epsilon / d: half for K medians together
        (each at rho epsilon / 2dK) and half for the choice among them. Each leaf has a class
        histogram at (1 - rho) epsilon, and an early leaf one at all that its path has left.
        ``stopping`` is one more query of each whole tree, at its fraction of the leaves' epsilon
        (privacy.md 3.4). Nodes of a level are disjoint, so each path from the root costs epsilon.
        Shards are disjoint, by a keyed draw for each row that does not depend on other rows, so all
        trees cost as much as one. Trees on the same rows have epsilon / T each. The depth, and the
        attributes that a node considers, do not depend on rows.
        Exact: nano-epsilons. Held by: tests/unit/trees/test_forests.py,
        tests/privacy/test_diprime.py.

    Notes:
        The published algorithm and its code are not epsilon-DP in several places, which "paper" corrects
        (docs/papers.md). One tree is the default, because more trees were not better at the measured sizes and budgets
        (docs/forests.md).

    References:
        Consul & Williamson 2020, "Differentially Private Median Forests for Regression and
        Classification", Algorithms 1 to 3.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import DiPriMeForestClassifier
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> forest = DiPriMeForestClassifier(epsilon=1, n_estimators=3, max_depth=3).fit(handle, "income")
        >>> len(forest.forest_.trees), float(forest.cost_)
        (3, 1.0)
    """

    _other = "DiPriMeForestRegressor"


class DiPriMeForestRegressor(Regressor, DiPriMeForest):
    """A forest that predicts the mean of a numeric column.

    It grows like a ``DiPriMeForestClassifier``, and has its arguments and attributes, without ``classes_``.

    Two histograms of the target first estimate the range of most of its values. Splits and means
    clamp values to this range, so the declared bounds may be wide. "paper" uses the declared
    bounds. Rows without a value do not count.

    ``criterion`` is ``"absolute_error"``, about medians (None), or ``"squared_error"``, about means (None with
    ``variant="paper"``). A row changes the absolute error by a smaller fraction of the gain of good splits.

    Privacy:
        As for ``DiPriMeForestClassifier``, with a two-bin average of each leaf instead of its histogram (the paper's
        mean is not private: privacy.md 2.3). The two histograms of all rows have their fraction of epsilon, and the
        range follows from their answers. Held by: tests/unit/trees/test_forests.py, tests/privacy/test_diprime.py.

    References:
        Consul & Williamson 2020, "Differentially Private Median Forests for Regression and
        Classification", Algorithms 1 to 3.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import DiPriMeForestRegressor
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> forest = DiPriMeForestRegressor(epsilon=1, n_estimators=2, max_depth=1)
        >>> forest.fit(handle, "hours_per_week").predict(rows.head(5)).shape
        (5,)
    """

    _other = "DiPriMeForestClassifier"
