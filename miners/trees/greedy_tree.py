# SPDX-License-Identifier: Apache-2.0
"""What SuLQ-ID3, DiffPID3 and DiffPC4.5 share: a tree whose nodes are split where it seems best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from miners.budget.plan import Plan, StepName, count_scale, lost_votes, many, rows_text
from miners.estimator import TreeClassifier, require_word, whole_number
from miners.fitted.node import Node, Split
from miners.growth.candidates import (
    CRITERIA,
    MAX_LEVELS,
    CutsByColumn,
    default_depth_note,
    multiway_splits,
    require_criterion,
)
from miners.growth.fitted_nodes import OpenNode, calibrated_nodes, released_nodes
from miners.growth.frontier import Problem, SplitCandidate, TreeStrategy, noise_of
from miners.trees.tree_miner import MAX_DEPTH, PAPER_DEPTH, TreeMiner, Variant
from pinq.public.schema import Schema
from pinq.public.specs import Cuts, Values

__all__ = ["GreedyStrategy", "GreedyTree", "MultiwayStrategy", "Published"]

# By what a node's size is judged: the first of these that its level is asked.
JUDGED_BY = (StepName.SIZE, StepName.CLASSES, StepName.TABLES)


@dataclass(frozen=True, kw_only=True, eq=False)
class GreedyStrategy(TreeStrategy):
    """How nodes are split by the best of some candidates.

    Attributes:
        splits: For each attribute a split, or a family of which the mechanism picks a member.
        attributes: How many attributes a fit has; one fewer than ``splits`` where one of them is
            going to be the target.
        noise_factor: What the noise is multiplied with to say which nodes are large enough to be
            split; 0 splits all.
        typical_parts: Parts that a split makes on average.
        disjoint_note: What a plan says of the cost of a path.
    """

    splits: tuple[SplitCandidate, ...]
    attributes: int

    noise_factor: ClassVar[float] = 0.0
    disjoint_note: ClassVar[str] = "each path from the root to a leaf costs the total."

    @property
    def typical_parts(self) -> float:
        """Parts that a split makes on average."""
        return 2.0

    def open_splits(self, used: frozenset[str]) -> list[SplitCandidate]:
        """Returns the splits whose column a path has not used up."""
        return [split for split in self.splits if split.column not in used]

    def max_parts(self, node: OpenNode) -> int:
        """Returns the most parts that one of a node's open splits makes."""
        if node.used not in self._max_parts:
            parts = (split.max_parts(self.schema) for split in self.open_splits(node.used))
            self._max_parts[node.used] = max(parts, default=1)
        return self._max_parts[node.used]

    @cached_property
    def _max_parts(self) -> dict[frozenset[str], int]:
        """What ``max_parts`` returned, by columns used: thousands of nodes share few such sets."""
        return {}

    def threshold(self, node: OpenNode) -> float:
        """Returns the noisy size from which a node is split.

        Below it the class counts of its children would drown in noise (Algorithms 1 and 2, line 9).
        """
        if not self.noise_factor or not self.recipe.levels:
            return -math.inf
        return self.noise_factor * self.max_parts(node) * self.problem.classes * self._size_noise

    @cached_property
    def _size_noise(self) -> float:
        """Standard deviation of the number by which a node's size is judged."""
        epsilons = {step.name: step.epsilon for step in self.recipe.levels[0]}
        judged = next(epsilons[name] for name in JUDGED_BY if name in epsilons)
        return math.sqrt(2) * count_scale(self.schema, judged)

    def default_depth(self) -> int:
        """Returns the levels to ask for where nobody says: as many as ``max_rows`` rows carry."""
        return self.levels_carried(self.schema.max_rows)

    def levels_carried(self, rows: int) -> int:
        """Returns how many levels the budget carries, as far as there are attributes for them."""
        # 10,000 rows and splits in 4 parts are 10,000, 2,500 and 625 rows a node on levels 0, 1 and
        # 2: if each has to have 700, two levels are carried.
        levels = 0
        while levels < MAX_LEVELS:
            deeper = replace(self, depth=levels + 1)
            if deeper.recipe.depth <= levels or not deeper._splits_last_level(rows):
                break
            levels += 1
        return levels

    def _splits_last_level(self, rows: int) -> bool:
        """Whether nodes of the last level are still split, where so many rows split evenly."""
        return rows / self.typical_parts ** (self.recipe.depth - 1) >= self.threshold(OpenNode())


class Published(GreedyStrategy):
    """What the strategies of Friedman & Schuster's paper share."""

    textbook = True
    spends_rest = False
    noise_factor = 1.0
    disjoint_note = "a tree all of whose leaves are reached early costs less."

    def default_depth(self) -> int:
        """Returns the depth of the paper's experiments."""
        return PAPER_DEPTH

    def estimates(self, trees: Sequence[Sequence[OpenNode]]) -> list[list[Node]]:
        """Returns the answers as they came, or calibrated by Algorithm 3 and pruned."""
        if self.certainty is None:
            return [released_nodes(nodes, self.problem.classes) for nodes in trees]
        return [calibrated_nodes(nodes, self.problem.classes, self.certainty) for nodes in trees]


class MultiwayStrategy(GreedyStrategy):
    """Splits into all parts of an attribute, each attribute once on a path."""

    splits: tuple[Values | Cuts, ...]
    noise_factor = 0.5

    @property
    def levels(self) -> int:
        """Levels of splits: no more than there are attributes."""
        return min(self.depth, self.attributes)

    @cached_property
    def _sizes(self) -> list[int]:
        return sorted((split.max_parts(self.schema) for split in self.splits), reverse=True)

    @property
    def typical_parts(self) -> float:
        """Parts that a split makes on average, the geometric mean."""
        return math.exp(sum(math.log(size) for size in self._sizes) / len(self._sizes))

    def fan_out(self, level: int) -> int:
        """Returns the most parts that a split of this level makes, the widest attributes first."""
        return self._sizes[level]

    def uses_up(self, split: Split) -> bool:
        """Returns True: a path splits each attribute once."""
        return True


class GreedyTree(TreeClassifier, TreeMiner[GreedyStrategy]):
    """A tree grown level by level on a private handle, each node split where it seems best."""

    max_depth: int | None
    criterion: str
    variant: Variant
    certainty: float | None = None
    attributes: Sequence[str] | None = None
    cuts: CutsByColumn | None = None
    criteria: ClassVar[tuple[str, ...]] = tuple(CRITERIA)
    variants: ClassVar[Mapping[str, type[GreedyStrategy]]]

    def plan(self, schema: Schema, target: str | None = None, *, rows: int | None = None) -> Plan:
        """Says what ``fit`` is going to ask and what it costs. Free: it looks at the schema only.

        Args:
            schema: The public schema, ``handle.schema``.
            target: The column to predict; without it the plan allows for the widest that there is.
            rows: How many rows the table has, if that is known; by default the schema's
                ``max_rows``. For the warning only.
        """
        checked = self._checked_without_target(schema) if target is None else self._checked(schema, target)
        return self._planned(checked, rows)

    def _splits(self, schema: Schema, target: str | None) -> tuple[SplitCandidate, ...]:
        """Returns what each node may be split by, one for each attribute."""
        return multiway_splits(schema, target, attributes=self.attributes, cuts=self.cuts)

    def _strategies(self, problem: Problem) -> Sequence[GreedyStrategy]:
        if self.max_depth is not None:
            whole_number("max_depth", self.max_depth, 0, MAX_DEPTH)
        require_word("variant", self.variant, tuple(self.variants))
        require_criterion(self.criterion, self.criteria)
        splits = self._splits(problem.schema, problem.target)
        # Without a target one of the columns that stand here is going to be it.
        attributes = len(splits) - (problem.target is None and self.attributes is None)
        strategy = self.variants[self.variant](
            problem=problem,
            epsilon=problem.epsilon,
            depth=0,
            criterion=self.criterion,
            splits=splits,
            attributes=attributes,
            certainty=self.certainty,
        )
        depth = strategy.default_depth() if self.max_depth is None else self.max_depth
        return [replace(strategy, depth=depth)]

    def _title(self, strategies: Sequence[GreedyStrategy]) -> str:
        strategy = strategies[0]
        goal = "" if strategy.problem.target is None else f" for `{strategy.target}`"
        levels, attributes = many(strategy.recipe.depth, "level"), many(strategy.attributes, "attribute")
        return f"{type(self).__name__}{goal}: {levels} of splits by {attributes}, criterion {self.criterion}"

    def _notes(self, strategies: Sequence[GreedyStrategy]) -> tuple[str, ...]:
        strategy = strategies[0]
        depth = strategy.recipe.depth
        note = f"the nodes of a level are disjoint, so a level costs what one node costs; {strategy.disjoint_note}"
        if self.max_depth is None:
            return (note, default_depth_note(depth))
        if depth < self.max_depth:
            attributes, levels = many(depth, "attribute"), many(depth, "level")
            return (note, f"a path can use up {attributes}, so no more than {levels} of splits are planned.")
        return (note,)

    def _warnings(self, strategies: Sequence[GreedyStrategy], rows: int | None) -> tuple[str, ...]:
        """Whether the budget carries the depth, and the votes of its leaves."""
        strategy = strategies[0]
        schema, depth = strategy.schema, strategy.recipe.depth
        expected = schema.max_rows if rows is None else whole_number("rows", rows, 0, 2**33)
        carried = strategy.levels_carried(expected)
        if depth == 0 and self.max_depth is None:
            return (
                f"at epsilon {strategy.epsilon} and at most {schema.max_rows:,} rows the budget carries no "
                "split, so every row is predicted the most frequent class; a larger `epsilon` is needed for any split.",
            )
        if carried >= depth:
            noise = noise_of(schema, strategy.recipe.leaf_step(StepName.CLASSES).epsilon)
            return lost_votes(expected, strategy.typical_parts**depth, noise, known=rows is not None)
        average = rows_text(expected / strategy.typical_parts ** (depth - 1))
        noise, unit = strategy.recipe.levels[-1][-1].noise
        bound = "at most" if rows is None else "about"
        advice = "a larger `epsilon` is needed for any split"
        if carried:
            advice = f"depth {carried} is what the budget carries"
        return (
            f"at epsilon {strategy.epsilon} and {bound} {expected:,} rows a depth-{depth} tree over "
            f"{many(strategy.attributes, 'attribute')} expects {average} rows in a node that is split last, where "
            f"noise of about {rows_text(noise)} {unit} decides; {advice}.",
        )
