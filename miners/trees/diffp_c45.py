# SPDX-License-Identifier: Apache-2.0
"""DiffPC4.5: split points that the mechanism finds, and pruning (Friedman & Schuster 2010)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from miners.budget.plan import StepName, StepQuery
from miners.fitted.node import Split
from miners.growth.candidates import attribute_names, default_levels, families, levels_carried
from miners.growth.frontier import Level, Problem, SplitCandidate
from miners.trees.tree_miner import GreedyStrategy, GreedyTree, Published
from pinq.errors import QueryError
from pinq.language.specs import AnyCut, Values
from pinq.public.checks import is_number, many
from pinq.public.schema import Schema

LEAF_SHARE = 6  # the leaf's histogram gets a sixth of epsilon


class C45Best(GreedyStrategy):
    """Attribute and cut, or group of values, are chosen together."""

    @property
    def columns(self) -> list[str]:
        return [split.column for split in self.splits]

    def default_depth(self) -> int:
        return default_levels(self.schema, self.columns, self.schema.max_rows, self.epsilon)

    def levels_carried(self, rows: int) -> int:
        return levels_carried(self.schema, self.columns, rows, self.epsilon)

    def queries(self) -> tuple[list[list[StepQuery]], list[StepQuery]]:
        text = f"best split by {many(self.attributes, 'attribute')}, with cuts and groups"
        split = self.choice_query(StepName.SPLIT, text, LEAF_SHARE - 1)
        # Three levels weigh 5 each and the leaf 3: a sixth of 18.
        return [[split]] * self.depth, [self.classes_query("each leaf", max(1, self.depth))]

    def choose(self, level: Level) -> Sequence[Split | None]:
        """Chooses among all splits of all attributes."""
        return self.ask_choices(level.parts, self.splits, self.recipe.step(StepName.SPLIT, level.number))


class C45Paper(Published):
    """Section 4.3: a cut for each numeric attribute, then the best of the attributes."""

    @property
    def cuts(self) -> list[SplitCandidate]:
        return [split for split in self.splits if split.columns() <= self.schema.numeric_columns.keys()]

    def queries(self) -> tuple[list[list[StepQuery]], list[StepQuery]]:
        text = f"best split by {many(self.attributes, 'attribute')}"
        node = [self.size_query("each node"), self.choice_query(StepName.SPLIT, text)]
        levels = self.depth
        if self.cuts:
            text = f"best cut of each of {many(len(self.cuts), 'numeric attribute')}"
            node.insert(1, self.choice_query(StepName.CUT, text, times=len(self.cuts)))
        else:  # each attribute is used up by its split, as in ID3
            levels = min(self.depth, self.attributes)
        return [node] * levels, [self.size_query("each leaf"), self.classes_query("each leaf")]

    def choose(self, level: Level) -> Sequence[Split | None]:
        """Finds a cut of each numeric attribute, then chooses among those and the others."""
        offered: list[list[SplitCandidate]] = [
            [split for split in self.open_splits(node.used) if split not in self.cuts] for node in level.nodes
        ]
        for family in self.cuts:
            cuts = self.ask_choices(level.parts, [family], self.recipe.step(StepName.CUT, level.number))
            for candidates, cut in zip(offered, cuts, strict=True):
                candidates += [] if cut is None else [cut]
        return self.ask_where_offered(level, offered, self.recipe.step(StepName.SPLIT, level.number))


@dataclass(kw_only=True, repr=False, eq=False)
class DiffPC45(GreedyTree):
    """A decision tree that finds its own split points, grown level by level on a private handle.

    A numeric attribute is split in two at a point of its public grid. A categorical attribute is split into two groups
    of its values ("best") or into all of its values ("paper"). One noisy selection for each node chooses attribute and
    point together. Splits that improve neither the predicted class nor the class probabilities are pruned.

    Args:
        epsilon: The cost of ``fit``, in the policy's own terms.
        max_depth: Levels of splits, 0 to 60. None for a number that follows from public facts
            (epsilon, ``max_rows``, the attributes); for ``variant="paper"`` 5.
        criterion: The quality of a split: ``"gini"``, ``"max"`` (correctly classified rows),
            ``"info_gain"``, or another of the list in docs/trees.md.
        variant: ``"best"``, or ``"paper"`` for the published budget split and mechanism.
        certainty: C4.5's certainty factor, above 0 and up to 0.5. A smaller value prunes more. None
            turns pruning off. "best" also keeps splits that change class probabilities; "paper"
            prunes by errors alone.
        attributes: The columns to split by. None for all but the target.

    Attributes:
        tree_: The fitted ``Tree``, pruned.
        classes_: The declared values of the target, shape (classes,).
        schema_: The public schema under which the tree was grown.
        cost_: The cost of the last ``fit``, exact. It equals ``plan(schema).total`` unless some
            answers were paid for before, or ("paper") all leaves stopped early.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: "best" has one query for each node of d levels, at 5 epsilon / 6d, and one for each
        leaf, at epsilon / 6. "paper", with n numeric attributes and e = epsilon/((2+n)d+2), has for
        each node that splits its size, one cut for each numeric attribute and one choice, at e
        each, and for each leaf its size and classes, at e each. Nodes of a level are disjoint, so
        each path from the root costs at most epsilon. The choice over all cuts of a column weighs
        them by a public measure, the grid (privacy.md 2.7). Pruning uses answers only.
        Exact: nano-epsilons. Held by: tests/unit/trees/test_trees.py,
        tests/unit/budget/test_recipe.py.

    Notes:
        docs/papers.md has the differences from the paper.

    References:
        Friedman & Schuster 2010, "Data Mining with Differential Privacy", sec. 4.3, 4.4, Algorithm
        3; Quinlan 1993, "C4.5".

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import DiffPC45
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> tree = DiffPC45(epsilon=0.5, max_depth=3).fit(handle, "income")
        >>> float(tree.cost_), handle.budget
        (0.5, Budget(epsilon=1, spent=0.5, remaining=0.5))
        >>> bool(tree.score(rows) > 0.8)
        True
        >>> tree.predict_proba(rows.head(5)).shape  # rows, classes
        (5, 2)
    """

    variants: ClassVar[Mapping[str, type[GreedyStrategy]]] = {"best": C45Best, "paper": C45Paper}

    certainty: float | None = 0.25

    def _strategies(self, problem: Problem) -> Sequence[GreedyStrategy]:
        factor = self.certainty
        if factor is not None and not (is_number(factor, 0, 0.5) and factor):
            raise QueryError(
                f"is {factor!r}", parameter="certainty", allowed="above 0 and at most 0.5, or None to prune nothing"
            )
        return super()._strategies(problem)

    def _splits(self, schema: Schema, target: str | None) -> tuple[SplitCandidate, ...]:
        names = attribute_names(schema, target, self.attributes)
        if self.variant == "best":
            return families(schema, names)
        return tuple(AnyCut(name) if name in schema.numeric_columns else Values(name) for name in names)
