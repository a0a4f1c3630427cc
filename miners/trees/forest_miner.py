# SPDX-License-Identifier: Apache-2.0
"""The common code of forests, and the two forests that serve as baselines.

The common part assigns rows to trees, and ends paths. Forests are trees on
shards: see ``tree_miner.py``, which grows them. The baselines are DP-DF, multiway splits that a
noisy Gini index chooses (Fletcher & Islam 2015), and DP-ERT, random splits whose leaves get the
whole budget (Bojarski et al. 2014).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from miners.budget.plan import NOT_GIVEN, Recipe, StepName, StepQuery, count_scale, lost_votes, spread
from miners.estimator import Classifier, ForestFaces, Regressor, require_word
from miners.fitted.node import Split
from miners.growth.candidates import MAX_BINS, CutsByColumn, attribute_names, families, multiway_splits, random_split
from miners.growth.fitted_nodes import OpenNode
from miners.growth.frontier import Level, Problem, TreeStrategy, noise_of
from miners.trees.tree_miner import MAX_DEPTH, TreeFit, TreeMiner
from pinq.errors import QueryError
from pinq.language.scores import PATH_LOSS
from pinq.language.specs import Cuts, Values
from pinq.public.checks import is_number, many, whole_number
from pinq.public.epsilon import EpsilonLike

MAX_TREES = 1000
Rows = Literal["shards", "all"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ForestStrategy(TreeStrategy):
    """The growth of trees with random candidates.

    Attributes:
        names: The attributes.
        features: The number of attributes that each node looks at.
        stopping: The fraction of the leaves' epsilon for the query where paths end; None for no such
            query.
        random: The generator of public random choices.
    """

    names: tuple[str, ...]
    features: int
    stopping: Fraction | None
    random: np.random.Generator

    @abstractmethod
    def node_queries(self, level: int) -> list[StepQuery]:
        """Returns the queries of a node of this level, by weight."""

    @abstractmethod
    def leaf_weight(self) -> int:
        """Returns the weight of all queries of a leaf."""

    def questions(self) -> tuple[list[list[StepQuery]], list[StepQuery]]:
        """Returns the queries of each level of splits, and those of a leaf, by weight."""
        levels = [self.node_queries(level) for level in range(self.depth)]
        classes = self.classes_query("each leaf", self.leaf_weight())
        if self.stopping is None or not self.depth:
            return levels, [classes]
        # Weights stay whole: a leaf of weight 4 of which 3/10 goes into stopping makes 12 and 28,
        # and every other weight is taken 10 times.
        whole, part = self.stopping.denominator, self.stopping.numerator
        levels = [[replace(question, weight=question.weight * whole) for question in row] for row in levels]
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
        """The steps, at their losses."""
        levels, leaf = self.questions()
        recipe = Recipe.by_weights(self.epsilon, levels, leaf)
        if not recipe.stops:
            return recipe
        # How many rows are enough follows from the noise in the leaves, hence from their price.
        rows = self.stop_rows_at(recipe.leaf_step(StepName.CLASSES).epsilon)
        stop, *others = recipe.leaf
        question = replace(stop.question, asked=f"splits with enough rows, about {rows:,} and more")
        return replace(recipe, leaf=(replace(stop, question=question), *others))

    def max_parts(self, node: OpenNode) -> int:
        """Returns the most parts that a split in two makes."""
        return self._sides

    @cached_property
    def _sides(self) -> int:
        return max(family.max_parts(self.schema) for family in families(self.schema, self.names))

    def drawn(self, names: Iterable[Sequence[str]]) -> list[list[str]]:
        """Draws which of its attributes each node looks at: public randomness."""
        # Two of five: the first two of a random order, 3 and 1, give the attributes 1 and 3.
        return [[own[place] for place in sorted(self.random.permutation(len(own))[: self.features])] for own in names]


class ForestFit(TreeFit["ForestMiner", ForestStrategy]):
    """The fit of trees with random candidates."""

    @property
    def title(self) -> str:
        """The title: target, trees, levels and attributes."""
        strategy, count = self.first, self.trees
        trees = "" if count == 1 else f"{many(count, 'tree')} of "
        features = "" if strategy.features == len(strategy.names) else f"{strategy.features} of "
        attributes = f"{features}{many(len(strategy.names), 'attribute')}"
        levels = many(strategy.recipe.depth, "level")
        return f"{type(self.miner).__name__} for `{strategy.target}`: {trees}{levels} of splits by {attributes}"

    def notes(self) -> tuple[str, ...]:
        """Returns the facts about the costs of trees, levels and paths."""
        if self.first.trees > 1:
            return (
                f"each row is in one of {self.first.trees} random shards, one for each tree; shards and the nodes "
                "of a level are disjoint, so a level of the forest costs as much as one node.",
            )
        if len(self.strategies) > 1:
            return (
                f"all {len(self.strategies)} trees use all rows, so each costs its part of the total; a line of the "
                "plan shows all of them.",
            )
        return (
            "the nodes of a level are disjoint, so a level costs as much as one node; each path from the root to a "
            "leaf costs the total.",
        )

    def warnings(self, rows: int | None) -> tuple[str, ...]:
        """Returns whether noise hides the votes of leaves."""
        strategy = self.first
        expected = strategy.schema.max_rows if rows is None else whole_number("rows", rows, 0, 2**33)
        if self.miner.stopping is not None:
            return ()
        if strategy.recipe.depth == 0 and self.miner.max_depth is None:
            return (
                f"at epsilon {self.total} and at most {strategy.schema.max_rows:,} rows the budget "
                "supports no split, so every row gets the same prediction; a larger `epsilon` is needed for any split.",
            )
        leaves = 2**strategy.recipe.depth * strategy.trees
        noise = noise_of(strategy.schema, strategy.recipe.leaf_step(StepName.CLASSES).epsilon)
        return lost_votes(expected, leaves, noise, known=rows is not None, trees=self.trees)


class ForestMiner(TreeMiner):
    """A miner that grows trees from random beginnings on a private handle."""

    max_depth: int | None
    random_state: int | None
    n_estimators: int | None = 1
    rows: Rows = "shards"
    stopping: float | None = None
    _plan_kind: ClassVar[type[ForestFit]] = ForestFit

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


def share(name: str, value: object) -> Fraction:
    """Returns a parameter that is a share of a budget, exact to a thousandth at least.

    Raises:
        QueryError: It is no such number.
    """
    if not is_number(value, 0.001, 0.999):
        raise QueryError(f"is {value!r}", parameter=name, allowed="a number between 0 and 1, from 0.001 to 0.999")
    return Fraction(value).limit_denominator(1000)


BINS = 5  # Consul & Williamson 2020, sec. 4.2


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomFew(ForestStrategy):
    """Splits into all values of an attribute, chosen by a noisy Gini index among a random few.

    Attributes:
        splits: The split of each attribute.
    """

    splits: tuple[Values | Cuts, ...]

    def node_queries(self, level: int) -> list[StepQuery]:
        """Returns one choice, among the attributes that a path of this length has left."""
        offered = min(self.features, len(self.names) - level)
        return [self.choice_query(StepName.SPLIT, f"best of {many(offered, 'split')}")]

    def leaf_weight(self) -> int:
        """Returns half of all weights."""
        return max(1, self.depth)

    def choose(self, level: Level) -> Sequence[Split | None]:
        """Chooses among a random few of the attributes that no node above has used up."""
        unused = [[name for name in self.names if name not in node.used] for node in level.nodes]
        of_columns = {split.column: split for split in self.splits}
        offered = [[of_columns[name] for name in names] for names in self.drawn(unused)]
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

    Each node chooses among a few random attributes.

    Args:
        epsilon: The cost of ``fit``: half for splits and half for leaves.
        n_estimators: The number of trees, 1 to 1,000.
        max_depth: Levels of splits, 0 to 60; no more than there are attributes.
        max_features: The number of attributes among which each node chooses; None for the square
            root of their number, rounded up.
        bins: The number of intervals of equal width for all numeric attributes, or cuts for each,
            as ``cuts`` of ``DiffPID3``.
        rows: ``"shards"``: each row is in one tree, by an independent random draw. ``"all"``: all
            rows are in every tree, and the trees divide epsilon.
        attributes: The columns to split by. None for all but the target.
        random_state: Seed of the public randomness: the attributes that a node considers. It never
            affects the noise.

    Attributes:
        forest_: The fitted ``Forest``.
        classes_: The declared values of the target, shape (classes,).
        schema_: The public schema under which it was grown.
        cost_: The cost of the last ``fit``, exact.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: each node of d levels has one choice at epsilon / 2d, and each leaf one histogram at
        epsilon / 2 (an early leaf gets all that its path has left). Nodes of a level are disjoint,
        and so are trees on shards. Trees on the same rows divide epsilon.
        Exact: nano-epsilons.
        Held by: tests/unit/trees/test_forests.py.

    Notes:
        The paper calibrates its choices to the *local* sensitivity of the Gini index, which depends
        on the rows and is not private. Here the score has its global sensitivity.

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

    epsilon: EpsilonLike = NOT_GIVEN
    n_estimators: int = 10
    max_depth: int = 5
    max_features: int | None = None
    bins: int | CutsByColumn = BINS
    rows: Rows = "shards"
    attributes: Sequence[str] | None = None
    random_state: int | None = None

    def _strategy(self, problem: Problem, names: tuple[str, ...]) -> RandomFew:
        asked = math.ceil(math.sqrt(len(names))) if self.max_features is None else self.max_features
        numeric = [name for name in names if name in problem.schema.numeric_columns]
        bins = self.bins if isinstance(self.bins, Mapping) else whole_number("bins", self.bins, 2, MAX_BINS)
        return RandomFew(
            problem=problem,
            epsilon=problem.epsilon,
            splits=multiway_splits(
                problem.schema,
                problem.target,
                attributes=names,
                cuts=bins if isinstance(bins, Mapping) else dict.fromkeys(numeric, bins),
            ),
            trees=whole_number("n_estimators", self.n_estimators, 1, MAX_TREES),
            depth=min(whole_number("max_depth", self.max_depth, 0, MAX_DEPTH), len(names)),
            criterion="gini",
            names=names,
            features=whole_number("max_features", asked, 1, len(names)),
            stopping=None,
            random=np.random.default_rng(self.random_state),
        )


class RandomSplits(ForestStrategy):
    """Random splits, which cost nothing."""

    def node_queries(self, level: int) -> list[StepQuery]:
        """Returns nothing, because a node has no query."""
        return []

    def leaf_weight(self) -> int:
        """Returns the weight of a leaf, which gets everything."""
        return 1

    def choose(self, level: Level) -> Sequence[Split | None]:
        """Draws a split for each node of a level."""
        return [random_split(self.schema, self.names, part, self.random) for part in level.parts.part_set]


class RandomFit(ForestFit):
    """The fit of trees with random splits."""

    def notes(self) -> tuple[str, ...]:
        """Returns the facts about costs, and for classes the limit of random splits."""
        if self.first.problem.numeric:
            return super().notes()
        return (
            *super().notes(),
            "splits are random: if one class is much more frequent, expect this class for all rows; "
            "DiffPC45 selects its splits.",
        )


@dataclass(kw_only=True, repr=False, eq=False)
class RandomForest(ForestMiner):
    """The common code of classifier and regressor."""

    epsilon: EpsilonLike = NOT_GIVEN
    n_estimators: int = 10
    max_depth: int = 5
    rows: Rows = "shards"
    stopping: float | None = None
    attributes: Sequence[str] | None = None
    random_state: int | None = None
    _plan_kind = RandomFit

    def _strategy(self, problem: Problem, names: tuple[str, ...]) -> RandomSplits:
        return RandomSplits(
            problem=problem,
            epsilon=problem.epsilon,
            trees=whole_number("n_estimators", self.n_estimators, 1, MAX_TREES),
            depth=whole_number("max_depth", self.max_depth, 0, MAX_DEPTH),
            criterion="",
            names=names,
            features=len(names),
            stopping=self._stop_share(),
            random=np.random.default_rng(self.random_state),
        )


class DPExtraTrees(Classifier, ForestFaces, RandomForest):
    """A forest of random splits with noisy class counts in its leaves: a baseline.

    Args:
        epsilon: The cost of ``fit``, in the policy's own terms.
        n_estimators: The number of trees, 1 to 1,000.
        max_depth: Levels of splits, 0 to 60.
        rows: ``"shards"``: each row is in one tree, by an independent random draw. ``"all"``: all
            rows are in every tree, and the trees divide epsilon.
        stopping: The fraction of the leaves' epsilon, from 0.001 to 0.999, for one query of all
            grown trees: which nodes have too few rows to stay split? Its cost does not depend on
            the depth. None to keep all splits.
        attributes: The columns to split by. None for all but the target.
        random_state: Seed of the splits, which are public. It never affects the noise.

    Attributes:
        forest_: The fitted ``Forest``.
        classes_: The declared values of the target, shape (classes,).
        schema_: The public schema under which it was grown.
        cost_: The cost of the last ``fit``, exact.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: splits are drawn from the public schema alone. With "shards" the leaves of all trees
        are disjoint parts, each with one histogram at epsilon. With "all" the leaves of one tree
        are disjoint, at epsilon over the number of trees, and the trees add up. ``stopping`` gets
        its fraction of that (privacy.md 3.4). Exact: nano-epsilons. Held by:
        tests/unit/trees/test_forests.py.

    Notes:
        If the declared range is much wider than the data, random cuts leave most leaves empty;
        ``DiPriMeForestClassifier`` finds cuts near the rows. If one class is much more frequent,
        few leaves have another majority. The forest then predicts the frequent class for all rows,
        at any epsilon, depth and number of trees. Its probabilities still rank rows
        (docs/forests.md has figures). The plan says so.

    References:
        Bojarski, Choromanska, Choromanski & LeCun 2014, "Differentially- and
        non-differentially-private random decision trees"; Geurts, Ernst & Wehenkel 2006, "Extremely
        randomized trees".

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import DPExtraTrees
        >>> rows = pd.read_parquet("data/adult.parquet")  # public; of a private table there is only a handle
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> forest = DPExtraTrees(epsilon=1, n_estimators=3, random_state=0).fit(handle, "income")
        >>> forest.predict_proba(rows.head(5)).shape  # rows, classes
        (5, 2)
    """


class DPExtraTreesRegressor(Regressor, ForestFaces, RandomForest):
    """A forest of random splits with noisy averages in its leaves: a baseline.

    Its arguments are those of ``DPExtraTrees``.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: as for ``DPExtraTrees``, with a two-bin average instead of each histogram. Two
        histograms of all rows first find the target's range, at their fraction of epsilon. Held by:
        tests/unit/trees/test_forests.py, tests/unit/growth/test_target_range.py.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import DPExtraTreesRegressor
        >>> rows = pd.read_parquet("data/adult.parquet")  # public; of a private table there is only a handle
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> forest = DPExtraTreesRegressor(epsilon=1, n_estimators=2, max_depth=2, random_state=0)
        >>> forest.fit(handle, "hours_per_week").predict(rows.head(5)).shape
        (5,)
    """

    _numeric_target = True
