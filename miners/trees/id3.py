# SPDX-License-Identifier: Apache-2.0
"""Two forms of ID3: DiffPID3 with one noisy selection for each split, SuLQ-ID3 with noisy counts alone.

References:
    Friedman & Schuster 2010, Algorithm 2 (DiffPID3); Blum et al. 2005 (SuLQ-ID3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from miners.budget.plan import StepName, StepQuery, count_scale, count_variance
from miners.fitted.node import Split
from miners.growth.candidates import CRITERIA, CutsByColumn, gain, printed_gain
from miners.growth.frontier import Level
from miners.trees.tree_miner import GreedyStrategy, GreedyTree, MultiwayStrategy, Published
from pinq.language.specs import Values
from pinq.public.checks import many


class ID3Best(MultiwayStrategy):
    """Queries the classes of each node, and one histogram of each leaf with the rest of its path's epsilon."""

    def queries(self) -> tuple[list[list[StepQuery]], list[StepQuery]]:
        levels = [[self.classes_query("each node"), self.choice(level)] for level in range(self.levels)]
        return levels, [self.classes_query("each leaf", 2)]

    def choice(self, level: int) -> StepQuery:
        """The query for the best of the remaining splits of a path of this length."""
        return self.choice_query(StepName.SPLIT, f"best of {many(self.attributes - level, 'split')}")

    def choose(self, level: Level) -> Sequence[Split | None]:
        offered = [self.open_splits(node.used) for node in level.nodes]
        return self.ask_choices(level.parts, offered, self.recipe.step(StepName.SPLIT, level.number))


class ID3Paper(Published, ID3Best):
    """Algorithm 2: queries for the size of a node; for size and classes of a leaf."""

    def queries(self) -> tuple[list[list[StepQuery]], list[StepQuery]]:
        levels = [[self.size_query("each node"), self.choice(level)] for level in range(self.levels)]
        return levels, [self.size_query("each leaf"), self.classes_query("each leaf")]


@dataclass(kw_only=True, repr=False, eq=False)
class DiffPID3(GreedyTree):
    """A decision tree with multiway splits, grown level by level on a private handle.

    Each node has a query for its size. A large node is split by one noisy selection among all attributes that its path
    has not used. A small node is a leaf and gets a class histogram.

    Categorical attributes are split into their values. Numeric ones are split at the points given
    in ``cuts``, else at those that the policy declares, else into 10 intervals of equal width over
    the declared range.

    Args:
        epsilon: The cost of ``fit``, in the policy's own terms.
        max_depth: Levels of splits, 0 to 60. None for a number that follows from public facts
            (epsilon, ``max_rows``, the attributes); for ``variant="paper"`` 5. The depth never
            exceeds the number of attributes, because each splits once on a path.
        criterion: The quality of a split: ``"gini"``, ``"max"`` (correctly classified rows, which
            noise affects least), ``"info_gain"``, or another of the list in docs/trees.md.
        variant: ``"best"``, or ``"paper"`` for the published budget split and mechanism.
        attributes: The columns to split by. None for all but the target.
        cuts: Cut points for numeric attributes, ``{"age": [30, 45]}``, or a number of intervals,
            ``{"age": 5}``.

    Attributes:
        tree_: The fitted ``Tree``.
        classes_: The declared values of the target, shape (classes,).
        schema_: The public schema under which the tree was grown.
        cost_: The cost of the last ``fit``, exact. It equals ``plan(schema).total`` unless some
            answers were paid for before, or ("paper") all leaves stopped early.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: with d levels of splits, a node that splits has two queries at e = epsilon/(2(d+1))
        each, and a leaf below the last split has one at 2e. Nodes of a level are disjoint, so each
        path from the root costs at most epsilon, and the handle charges and enforces exactly that.
        Later queries, and the stop, depend on noisy answers only.
        Exact: nano-epsilons. Held by: tests/unit/trees/test_trees.py,
        tests/unit/budget/test_recipe.py.

    Notes:
        docs/papers.md has the differences from the paper. A missing target is no
        class: such rows count in the sizes of "paper" only.

    References:
        Friedman & Schuster 2010, "Data Mining with Differential Privacy", sec. 4.2, Algorithm 2.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import DiffPID3
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> tree = DiffPID3(epsilon=0.5, max_depth=2).fit(handle, "income")
        >>> bool(tree.score(rows) > 0.75), tree.tree_.depth <= 2
        (True, True)
        >>> list(tree.rules())[:3]  # a row for each leaf
        ['rule', 'rows', 'rows_low']
    """

    variants: ClassVar[Mapping[str, type[GreedyStrategy]]] = {"best": ID3Best, "paper": ID3Paper}

    cuts: CutsByColumn | None = None


class SuLQBest(MultiwayStrategy):
    """Noisy counts of the classes by every attribute, of which the best split is chosen.

    All epsilon of a level goes into these tables, which also describe nodes and children.
    """

    @property
    def level_weight(self) -> int:
        """The weight of the tables of one level, for any number of tables: weights are whole."""
        # Four attributes, two levels: 4 tables of weight 3, then 3 tables of weight 4.
        return math.lcm(*(self._tables(level) for level in range(self.levels)))

    def _tables(self, level: int) -> int:
        """The number of tables of a level; the paper also queries the sums of the parts of each."""
        return (1 + self.textbook) * (self.attributes - level)

    def tables_query(self, level: int) -> StepQuery:
        """The query for the tables of all remaining attributes of a path."""
        sums = ", and their sums" if self.textbook else ""
        text = f"classes by {many(self.attributes - level, 'attribute')}, for the best split{sums}"
        tables = self._tables(level)
        return StepQuery(
            StepName.TABLES,
            "noisy_count",
            text,
            self.count_noise,
            self.level_weight // tables,
            tables,
            self.fan_out(level) * self.cells,
        )

    def queries(self) -> tuple[list[list[StepQuery]], list[StepQuery]]:
        levels = [[self.tables_query(level)] for level in range(self.levels)]
        return levels, [self.classes_query("each leaf", self.level_weight)]

    def choose(self, level: Level) -> Sequence[Split | None]:
        """Sends one request for each attribute, the paper two; returns the best split of each node."""
        epsilon = self.recipe.step(StepName.TABLES, level.number).epsilon
        tables: list[dict[Split, np.ndarray]] = [{} for _ in level.nodes]
        gains: list[dict[Split, float]] = [{} for _ in level.nodes]
        for split in self.splits:
            # Only nodes whose path has not used the column are queried, so the answer has rows for these nodes only.
            unused = np.array([split.column not in node.used for node in level.nodes])
            if not unused.any():
                continue
            parts = level.parts[unused].partition(split)
            sizes = np.asarray(parts.noisy_count(epsilon=epsilon)) if self.textbook else None
            cells = np.asarray(parts.partition(Values(self.target)).noisy_count(epsilon=epsilon))
            for row, node in enumerate(np.flatnonzero(unused)):
                tables[node][split] = cells[row]
                counts = cells[row][:, : self.problem.classes]
                gains[node][split] = (
                    gain(self.criterion, counts) if sizes is None else printed_gain(self.criterion, counts, sizes[row])
                )
        best = [max(node_gains, key=node_gains.__getitem__) for node_gains in gains]
        if not self.textbook:
            self._keep_tables(level, tables, best, count_scale(self.schema, epsilon))
        return best

    def _keep_tables(
        self, level: Level, tables: Sequence[dict[Split, np.ndarray]], best: Sequence[Split], scale: float
    ) -> None:
        """Keeps the chosen table for the children, and adds the others up for the node itself."""
        for node, node_tables, chosen in zip(level.nodes, tables, best, strict=True):
            for split, table in node_tables.items():
                if split != chosen:
                    # The counts of a node are the sums of three noisy counts in a table of three parts.
                    node.observe(table.sum(axis=0), len(table) * count_variance(scale))
        level.below = [node_tables[chosen] for node_tables, chosen in zip(tables, best, strict=True)]
        level.below_scale = scale


class SuLQPaper(Published, SuLQBest):
    """Algorithm 1: queries for the size of a node, and for the sums of the parts of each table."""

    def queries(self) -> tuple[list[list[StepQuery]], list[StepQuery]]:
        weight = self.level_weight
        levels = [[self.size_query("each node", weight), self.tables_query(n)] for n in range(self.levels)]
        return levels, [self.size_query("each leaf", weight), self.classes_query("each leaf", weight)]


@dataclass(kw_only=True, repr=False, eq=False)
class SuLQID3(GreedyTree):
    """A decision tree with multiway splits, each chosen by noisy counts of every attribute.

    It queries a table of class counts for each attribute and node, where ``DiffPID3`` queries one noisy selection.
    Every criterion, also the gain ratio, is computed from these tables at no further cost.

    Args:
        epsilon: The cost of ``fit``, in the policy's own terms.
        max_depth: Levels of splits; see ``DiffPID3``.
        criterion: The quality of a split: ``"info_gain"``, ``"gain_ratio"``, ``"gini"``, ``"max"``, or
            another of the list in docs/trees.md.
        variant: ``"best"``, or ``"paper"`` for the published budget split.
        attributes: The columns to split by. None for all but the target.
        cuts: Cut points for numeric attributes; see ``DiffPID3``.

    Attributes:
        tree_: The fitted ``Tree``.
        classes_: The declared values of the target, shape (classes,).
        schema_: The public schema under which the tree was grown.
        cost_: The cost of the last ``fit``, exact. It equals ``plan(schema).total`` unless some
            answers were paid for before, or ("paper") all leaves stopped early.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: all answers are noisy counts. With d levels of splits and e = epsilon/(2(d+1)), "paper"
        queries the size of a node that splits, at e. For each of the a attributes that its path has
        not used, it queries the rows of each value, and of each value and class, at e/(2a) each: 2e
        in all. "best" queries only the counts of value and class, at 2e/a. A leaf costs 2e. Nodes
        of a level are disjoint, so a path costs at most epsilon.
        Exact: nano-epsilons. Held by: tests/unit/trees/test_trees.py,
        tests/unit/budget/test_recipe.py.

    Notes:
        docs/papers.md has the differences from the paper. A missing target is no class: such rows count in the sizes of
        "paper" only.

    References:
        Friedman & Schuster 2010, "Data Mining with Differential Privacy", sec. 4.1, Algorithm 1.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import SuLQID3
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> miner = SuLQID3(epsilon=1, max_depth=1, criterion="gain_ratio")
        >>> float(miner.plan(handle.schema, "income").total)
        1.0
        >>> miner.fit(handle, "income").predict(rows.head(5)).shape
        (5,)
    """

    criteria: ClassVar[tuple[str, ...]] = (*CRITERIA, "gain_ratio")

    variants: ClassVar[Mapping[str, type[GreedyStrategy]]] = {"best": SuLQBest, "paper": SuLQPaper}

    criterion: str = "info_gain"
    cuts: CutsByColumn | None = None
