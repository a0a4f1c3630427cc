# SPDX-License-Identifier: Apache-2.0
"""DP-ERT: trees of random splits, whose leaves get the whole budget (Bojarski et al. 2014)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from miners.budget.recipe import StepQuestion
from miners.estimator import Classifier, ForestFaces, Regressor, whole_number
from miners.fitted.node import Split
from miners.growth.candidates import random_split
from miners.growth.frontier import Level
from miners.trees.forest_miner import MAX_TREES, ForestMiner, ForestStrategy, Rows
from miners.trees.strategy import Problem
from miners.trees.tree_miner import MAX_DEPTH
from pinq.public.epsilon import EpsilonLike

__all__ = ["DPExtraTrees", "DPExtraTreesRegressor"]


class RandomSplits(ForestStrategy):
    """Splits that are drawn blindly, and cost nothing."""

    def node_questions(self, level: int) -> list[StepQuestion]:
        """Returns nothing: a node is asked nothing."""
        return []

    def leaf_weight(self) -> int:
        """Returns the weight of a leaf, which gets everything."""
        return 1

    def choose(self, level: Level) -> Sequence[Split | None]:
        """Draws a split for each node of a level."""
        return [random_split(self.schema, self.names, node.part, self.random) for node in level.nodes]


@dataclass(kw_only=True, repr=False, eq=False)
class RandomForest(ForestMiner):
    """What classifier and regressor share."""

    epsilon: EpsilonLike = 1.0
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
            stopping=self._stop_share(),
            random=self._generator(),
        )

    def _notes(self, strategies: Sequence[ForestStrategy]) -> tuple[str, ...]:
        if self._numeric_target:
            return super()._notes(strategies)
        return (
            *super()._notes(strategies),
            "splits are drawn blindly: where one class is much more frequent, expect that class for all rows; "
            "DiffPC45 looks.",
        )


class DPExtraTrees(Classifier, ForestFaces, RandomForest):
    """A forest of random splits with noisy class counts in its leaves: a baseline.

    Args:
        epsilon: The cost of ``fit``, in the policy's own terms.
        n_estimators: Trees, 1 to 1,000.
        max_depth: Levels of splits, 0 to 60.
        rows: ``"shards"``: each row is in one tree, by an independent coin. ``"all"``: all rows are
            in every tree, and the trees share epsilon.
        stopping: Share, from 0.001 to 0.999, of the leaves' epsilon that goes into one question of
            all grown trees: which nodes have too few rows to stay split. It costs the same at any
            depth. None to keep all splits.
        attributes: The columns to split by. None for all but the target.
        random_state: Steers the splits, which are public; never the noise.

    Attributes:
        forest_: The fitted ``Forest``.
        classes_: The declared values of the target, shape (classes,).
        schema_: The public schema under which it was grown.
        cost_: What the last ``fit`` spent, exact.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: splits are drawn from the public schema alone. The leaves of all trees are disjoint
        parts ("shards"), one histogram each at epsilon; or each tree's leaves are, at epsilon over
        the number of trees ("all"), which adds up. ``stopping`` has its share of that (privacy.md
        3.4). Exact: nano-epsilons. Held by: tests/unit/trees/test_forests.py.

    Notes:
        A random cut of a declared range that is wide beside the data leaves most leaves empty;
        ``DiPriMeForestClassifier`` looks where rows are. Where one class is much more frequent,
        random splits rarely make a leaf in which another one leads, and the forest predicts the
        frequent class for all rows, whatever epsilon, depth and number of trees; its probabilities
        still order rows (docs/forests.md has figures). The plan says so.

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

    See ``DPExtraTrees``, whose arguments it has.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: as for ``DPExtraTrees``, with one two-bin average in the place of each histogram, and
        two histograms of all rows that find the target's range first, at their share of epsilon.
        Held by: tests/unit/trees/test_forests.py, tests/unit/growth/test_target_range.py.

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
