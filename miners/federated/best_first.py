# SPDX-License-Identifier: Apache-2.0
"""Best-first growth on several holders' tables: of all leaves those are split next that gain most.

Privacy:
    Claim: at each holder, every path from the root to a leaf costs ``Problem.epsilon`` in all, in
    the terms of its policy.
    Why: a split is sought for a node of level t once, by the steps of level t, or at less; what no
    step went into goes into the leaf's histogram. A split's gain is computed from noisy histograms,
    which are also what is known of its children: no score leaves a holder, and no size is asked for
    itself. Which node is split next, and for which a split is sought at all, follows from those.
    Held by: tests/unit/federated/test_topdown_bill.py.

References:
    Wang, Dick & Balcan 2020, Algorithm 1.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from miners.budget.recipe import Recipe, Step, spread
from miners.federated.asking import Task, ask_leaves
from miners.federated.held_node import HeldNode, branch, gather, pooled
from miners.federated.split_finders import FoundSplit, SplitFinder
from miners.federated.strategy import FederatedStrategy
from pinq.public.epsilon import ZERO, Epsilon

__all__ = ["BestFirst"]

MIN_GAIN = 0.002  # what gains less is not split; Wang et al., sec. 4, say 0.01, with nothing else against noise
MIN_SHARE = 0.1  # and what has fewer rows than this over max_nodes of all, epsilon / M there


@dataclass(frozen=True, kw_only=True)
class BestFirst(FederatedStrategy):
    """How a tree grows where most is gained.

    With ``decay`` each level gets half of the one above it (renormalized, privacy.md 5). Below
    ``depth`` no split is sought.

    Attributes:
        finder: How splits are found.
        at_once: How many nodes are split before splits are sought for their children, together; 1
            is Algorithm 1 to the letter.
    """

    finder: SplitFinder
    at_once: int

    @cached_property
    def shares(self) -> tuple[Epsilon, ...]:
        """What a node of each level may be asked, from the root down."""
        if not self.depth:
            return ()
        # Three levels that share .7: .4, .2 and .1 with decay.
        weights = [2 ** (self.depth - 1 - level) if self.decay else 1 for level in range(self.depth)]
        return spread(self.problem.epsilon - self.leaves, weights)

    def recipe(self, holders: int) -> Recipe:
        """Returns the steps along a path, which add up to what the fit costs at each holder."""
        levels = tuple(self.finder.steps(self, level, share, holders) for level, share in enumerate(self.shares))
        leaves = self.leaf_step(self.depth, self.problem.epsilon - sum(self.shares, ZERO))
        return Recipe(self.problem.epsilon, levels, (leaves,))

    def steps(self, holders: int) -> list[Step]:
        """Returns the steps of the recipe."""
        recipe = self.recipe(holders)
        return [step for steps in (*recipe.levels, recipe.leaf) for step in steps]

    def smallest_count(self) -> Epsilon:
        """Returns the smallest loss at which one holder is asked for a count.

        A leaf is asked with all that its path has left: at least what no level's share takes.
        """
        recipe = self.recipe(holders=1)
        return min([self.finder.count_epsilon(steps, 1) for steps in recipe.levels] + [recipe.leaf[0].epsilon])

    def grow(self, task: Task) -> list[HeldNode]:
        """Grows a tree; the root first, each node before its children."""
        growth = _Growth(task, self, self.recipe(len(task.source.holders)))
        growth.seek(growth.nodes)
        splits = 0
        while growth.queue and splits < self.max_nodes:
            batch = growth.best(min(self.at_once, self.max_nodes - splits))
            splits += len(batch)
            children = growth.split(batch)
            if splits < self.max_nodes:  # no query after the last split
                growth.seek(children)
        growth.use_what_is_left()
        ask_leaves(task, [node for node in growth.nodes if node.split is None])
        return growth.nodes


@dataclass
class _Growth:
    """A tree while it grows.

    Attributes:
        task: What is to be learned, and of whom.
        strategy: How it grows.
        recipe: The steps of each level.
        nodes: All nodes, the root first.
        proposals: The splits found for nodes that are not split yet, by the nodes' numbers.
        queue: Which of those gain enough, as a heap: the negative gain in rows, and the number.
    """

    task: Task
    strategy: BestFirst
    recipe: Recipe
    nodes: list[HeldNode] = field(default_factory=list)
    proposals: dict[int, FoundSplit] = field(default_factory=dict)
    queue: list[tuple[float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.nodes.append(HeldNode(parts=self.task.source.parts()))

    def best(self, count: int) -> list[int]:
        """Takes the numbers of the nodes that gain most out of the queue."""
        return [heapq.heappop(self.queue)[1] for _ in range(min(count, len(self.queue)))]

    def split(self, numbers: Sequence[int]) -> list[HeldNode]:
        """Splits nodes as found; returns their children, with what is known of them."""
        parents = [self.nodes[number] for number in numbers]
        proposals = {parent: self.proposals.pop(number) for parent, number in zip(parents, numbers, strict=True)}
        splits = [proposals[parent].split for parent in parents]
        children = branch(self.task.problem.schema, self.nodes, parents, splits)
        for parent in parents:
            for child, answer in zip(parent.children, proposals[parent].below, strict=True):
                self.nodes[child].answers.append(answer)
        return children

    def seek(self, nodes: Sequence[HeldNode]) -> None:
        """Seeks splits for the newest nodes that are large enough, those of one level together.

        Queues those that gain enough.
        """
        # The newest nodes stand at the end of all: of 7 nodes the last 2 have the numbers 5 and 6.
        number_of = dict(zip(nodes, range(len(self.nodes) - len(nodes), len(self.nodes)), strict=True))
        by_level: dict[int, list[HeldNode]] = defaultdict(list)
        for node in nodes:
            if self._is_large_enough(node):
                by_level[node.level].append(node)
        for level, alike in sorted(by_level.items()):
            parts, ordered = gather(alike)
            splits = self.strategy.finder.find(self.task, parts, self.recipe.levels[level])
            for node, proposal in zip(ordered, splits, strict=True):
                self._queue(number_of[node], node, proposal)

    def _queue(self, number: int, node: HeldNode, proposal: FoundSplit) -> None:
        for name, paid in proposal.paid.items():
            node.pay(name, paid)
        self.proposals[number] = proposal
        # A gain of .1 in 500 rows is split before one of .3 in 100: 50 before 30.
        gain = proposal.gain(self.task, self.strategy.criterion)
        if gain > MIN_GAIN:
            heapq.heappush(self.queue, (-gain * self._rows(node), number))

    def use_what_is_left(self) -> None:
        """Notes the counts of nodes that are not split after all: they have been paid for."""
        for number, proposal in self.proposals.items():
            below = {name: pooled([answer[name] for answer in proposal.below]) for name in proposal.below[0]}
            self.nodes[number].answers.append(below)

    def _rows(self, node: HeldNode) -> float:
        """Returns the estimated rows of a node.

        The root, of which nothing is known yet, has all that there can be.
        """
        if not node.answers:
            return float(self.task.problem.schema.max_rows)
        node.pool(self.task.source)
        return max(0.0, node.rows)

    def _is_large_enough(self, node: HeldNode) -> bool:
        """Returns whether a split can be of use: noise must not drown the counts below the node.

        Nor must the node be a trifle of the whole.
        """
        source = self.task.source
        if node.level >= self.recipe.depth:
            return False
        epsilon = self.strategy.finder.count_epsilon(self.recipe.levels[node.level], len(source.holders))
        if not epsilon:
            return False
        if not node.answers:
            return True
        # Two holders with a variance of 32 for each count, two classes: the four counts of a split
        # in two deviate by sqrt(64 * 4) = 16 rows together, and a smaller node is left alone.
        variance = sum(source.variance(name, epsilon) for name in source.holders)
        noise = math.sqrt(variance * 2 * self.task.problem.classes)
        whole = sum(self._rows(self.nodes[child]) for child in self.nodes[0].children)
        return self._rows(node) >= max(noise, MIN_SHARE / self.strategy.max_nodes * whole)
