# SPDX-License-Identifier: Apache-2.0
"""Two forests of the literature that the experiments compare with: DP-DF and DP-ERT.

DP-DF has multiway splits that a noisy Gini index chooses (Fletcher & Islam 2015), DP-ERT random splits
whose leaves get the whole budget (Bojarski et al. 2014). Both are less accurate than the miners of the
product at every measured size and budget. Their stored models are still read.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from miners.budget.plan import NOT_GIVEN, Step, StepName, StepQuery
from miners.estimator import FOREST_LIMITS, Classifier, GrownMiner, Regressor
from miners.fitted.node import Split
from miners.fitted.tree import Forest
from miners.growth.candidates import MAX_BINS, CutsByColumn, attribute_names, multiway_splits, random_split
from miners.growth.fitted_nodes import OpenNode
from miners.growth.frontier import Level, Problem
from miners.trees.diprime import MAX_TREES, DiPriMeBest, DiPriMeFit, DiPriMePaper, Rows, share, strategies_of
from miners.trees.tree_miner import MAX_DEPTH, problem_of
from pinq.language.specs import Cuts, Values
from pinq.public.checks import many, whole_number
from pinq.public.epsilon import EpsilonLike
from pinq.public.schema import Schema

BINS = 5  # Consul & Williamson 2020, sec. 4.2


class Baseline(DiPriMeBest):
    """Growth without medians."""

    defaults = DiPriMePaper.defaults

    def without_split(self, level: int) -> Sequence[Step]:
        """Returns all queries of a node."""
        return self.recipe.levels[level]


class BaselineForest(GrownMiner):
    """A miner of one of the forests."""

    epsilon: EpsilonLike
    rows: Rows
    attributes: Sequence[str] | None
    random_state: int | None
    _state = Forest
    _limits = FOREST_LIMITS

    @abstractmethod
    def _strategy(self, problem: Problem, names: tuple[str, ...]) -> Baseline:
        """Returns the strategy for all trees and the whole budget."""

    def _checked(self, schema: Schema, target: str) -> DiPriMeFit:
        if self.random_state is not None:
            whole_number("random_state", self.random_state, 0, 2**63 - 1)
        problem = problem_of(self, schema, target)
        names = tuple(attribute_names(schema, target, self.attributes))
        kind = RandomFit if isinstance(self, RandomForest) else DiPriMeFit
        return kind(self, strategies_of(self._strategy(problem, names), self.rows))


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomFew(Baseline):
    """Splits into all values of an attribute, chosen by a noisy Gini index among a random few.

    Attributes:
        splits: The split of each attribute.
    """

    splits: tuple[Values | Cuts, ...]
    split_share: Fraction = Fraction(1, 2)

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
class DPDecisionForest(Classifier, BaselineForest):
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
        >>> from benchmarks.papers.diprime.baselines import DPDecisionForest
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
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


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomSplits(Baseline):
    """Random splits, which cost nothing."""

    split_share: Fraction = Fraction(0)

    def node_queries(self, level: int) -> list[StepQuery]:
        """Returns nothing, because a node has no query."""
        return []

    def leaf_weight(self) -> int:
        """Returns the weight of a leaf, which gets everything."""
        return 1

    def choose(self, level: Level) -> Sequence[Split | None]:
        """Draws a split for each node of a level."""
        return [random_split(self.schema, self.names, part, self.random) for part in level.parts.part_set]


class RandomFit(DiPriMeFit):
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
class RandomForest(BaselineForest):
    """The common code of classifier and regressor."""

    epsilon: EpsilonLike = NOT_GIVEN
    n_estimators: int = 10
    max_depth: int = 5
    rows: Rows = "shards"
    stopping: float | None = None
    attributes: Sequence[str] | None = None
    random_state: int | None = None

    def _strategy(self, problem: Problem, names: tuple[str, ...]) -> RandomSplits:
        return RandomSplits(
            problem=problem,
            epsilon=problem.epsilon,
            trees=whole_number("n_estimators", self.n_estimators, 1, MAX_TREES),
            depth=whole_number("max_depth", self.max_depth, 0, MAX_DEPTH),
            criterion="",
            names=names,
            features=len(names),
            stopping=None if self.stopping is None else share("stopping", self.stopping),
            random=np.random.default_rng(self.random_state),
        )


class DPExtraTrees(Classifier, RandomForest):
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
        >>> from benchmarks.papers.diprime.baselines import DPExtraTrees
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> forest = DPExtraTrees(epsilon=1, n_estimators=3, random_state=0).fit(handle, "income")
        >>> forest.predict_proba(rows.head(5)).shape  # rows, classes
        (5, 2)
    """


class DPExtraTreesRegressor(Regressor, RandomForest):
    """A forest of random splits with noisy averages in its leaves: a baseline.

    Its arguments are those of ``DPExtraTrees``.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: as for ``DPExtraTrees``, with a two-bin average instead of each histogram. Two
        histograms of all rows first find the target's range, at their fraction of epsilon. Held by:
        tests/unit/trees/test_forests.py, tests/unit/growth/test_target_range.py.

    Examples:
        >>> import pandas as pd, pinq
        >>> from benchmarks.papers.diprime.baselines import DPExtraTreesRegressor
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> forest = DPExtraTreesRegressor(epsilon=1, n_estimators=2, max_depth=2, random_state=0)
        >>> forest.fit(handle, "hours_per_week").predict(rows.head(5)).shape
        (5,)
    """
