# SPDX-License-Identifier: Apache-2.0
"""What trees on several holders grow from: open nodes, questions to all holders, and a strategy's steps.

Privacy:
    Claim: at each holder, every path from the root to a leaf is asked the total of the fit exactly.
    Why: a node knows what its path has paid at each holder, and a leaf is asked with all that is
    left. Parts that are asked together are disjoint, so they cost what one of them costs. Held by:
    tests/unit/federated/test_topdown_bill.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from miners.budget.plan import PlanLine
from miners.budget.recipe import Step, StepName, StepQuestion
from miners.federated.federation import CountSource, FederatedParts, HolderTally, pooled
from miners.fitted.node import Split
from miners.growth.candidates import families
from miners.growth.criteria import choice_noise_scale
from miners.growth.frontier import OpenNode
from miners.trees.strategy import Problem, noise_of
from pinq.public.epsilon import ZERO, Epsilon
from pinq.public.parts import Part
from pinq.public.schema import Schema
from pinq.public.specs import Values, bind

__all__ = ["Answer", "FederatedStrategy", "GrowthTask", "HeldNode", "ask_leaves", "branch", "gather"]

Answer = Mapping[str, HolderTally]
"""The noisy class counts of one node, or of several, by holder."""


@dataclass(eq=False, kw_only=True)
class HeldNode(OpenNode):
    """An open node of which each holder has rows of its own.

    Attributes:
        parts: A collection in which the node is one part.
        index: Which one.
        paid: What its path has been asked at each holder.
        answers: Its noisy class counts, from each time that they were asked.
    """

    parts: FederatedParts
    index: int = 0
    paid: Mapping[str, Epsilon] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)

    @property
    def level(self) -> int:
        """Splits above the node."""
        return self.part.depth

    def pay(self, holder: str, epsilon: Epsilon) -> None:
        """Notes a question to the node at one holder."""
        self.paid = {**self.paid, holder: self.paid_at(holder) + epsilon}

    def paid_at(self, holder: str) -> Epsilon:
        """Returns what its path has been asked at a holder."""
        return self.paid.get(holder, ZERO)

    def pool(self, source: CountSource) -> None:
        """Takes what the holders answered that are still there, and forgets what others did.

        Counts add up over holders; answers of one time and another are averaged.
        """
        self.cells, self.variance = None, math.inf
        for answer in self.answers:
            self.observe(*pooled(source.living(answer)))

    def child(self, part: Part, used: frozenset[str]) -> Self:
        """Returns an open node below, on whose path as much has been paid; ``branch`` places it."""
        return type(self)(part=part, used=used, parts=self.parts, paid=self.paid)


def gather(nodes: Sequence[HeldNode]) -> tuple[FederatedParts, list[HeldNode]]:
    """Returns nodes as one collection of parts, and in the order of that."""
    by_parts: dict[int, list[HeldNode]] = defaultdict(list)
    for node in nodes:
        by_parts[id(node.parts)].append(node)
    # Nodes 5, 2 and 7, of which 5 and 7 are parts of one collection, come in the order 5, 7, 2.
    groups = list(by_parts.values())
    collections = [group[0].parts[[node.index for node in group]] for group in groups]
    return FederatedParts.union(collections), [node for group in groups for node in group]


def branch(
    schema: Schema, nodes: list[HeldNode], parents: Sequence[HeldNode], splits: Sequence[Split]
) -> list[HeldNode]:
    """Splits some nodes; appends their children to ``nodes``.

    Returns:
        The children, in the order of the parts.
    """
    collection, ordered = gather(parents)
    split_of = dict(zip(parents, splits, strict=True))
    below = collection.partition([split_of[parent] for parent in ordered])
    # The children are the parts of `below`, one after the other: splits in 2 and 3 parts have the
    # indices 0, 1 and 2, 3, 4 there.
    children: list[HeldNode] = []
    for parent in ordered:
        split = split_of[parent]
        children += parent.branch(split, bind(split, schema), len(nodes) + len(children), parent.used)
    for index, child in enumerate(children):
        child.parts, child.index = below, index
    nodes += children
    return children


@dataclass(frozen=True)
class GrowthTask:
    """What is to be learned, and of whom.

    Attributes:
        source: Whom to ask.
        problem: What is to be learned, at which cost at each holder.
        reuse: Whether stored answers to the same questions will do.
    """

    source: CountSource
    problem: Problem
    reuse: bool = False

    @property
    def classes(self) -> Values:
        """The parts of which classes are counted."""
        return Values(str(self.problem.target))

    def count(self, asked: Sequence[tuple[FederatedParts, Mapping[str, Epsilon]]]) -> list[Answer]:
        """Asks for collections of parts times classes, each at losses by holder, in one round.

        Returns:
            For each the counts of shape (parts, cells).
        """
        questions = [cells.question("noisy_count", epsilon=epsilon, reuse=self.reuse) for cells, epsilon in asked]
        return [
            {
                name: HolderTally(tally.counts.reshape(-1, self.problem.cells), tally.variance)
                for name, tally in answer.items()
            }
            for answer in self.source.tally(questions)
        ]


def ask_leaves(task: GrowthTask, leaves: Sequence[HeldNode]) -> None:
    """Asks for the class histograms of all leaves, in one round.

    Each is asked, at each holder, with all that its path has left there.
    """
    holders = task.source.holders
    # A leaf with .1 left here and .2 there is in one request with all others like it.
    by_left: dict[tuple[Epsilon, ...], list[HeldNode]] = defaultdict(list)
    for leaf in leaves:
        by_left[tuple(task.problem.epsilon - leaf.paid_at(name) for name in holders)].append(leaf)
    gathered = [gather(alike) for alike in by_left.values()]
    asked = [
        (parts.partition(task.classes), dict(zip(holders, left, strict=True)))
        for left, (parts, _) in zip(by_left, gathered, strict=True)
    ]
    for answer, (_, ordered) in zip(task.count(asked), gathered, strict=True):
        for row, leaf in enumerate(ordered):
            leaf.answers.append(
                {name: HolderTally(tally.counts[row], tally.variance) for name, tally in answer.items()}
            )


@dataclass(frozen=True, kw_only=True)
class FederatedStrategy(ABC):
    """How one strategy divides the budget of each holder, and grows a tree.

    Attributes:
        problem: What is to be learned.
        attributes: The columns that are split.
        criterion: By what a split is judged, one of ``CRITERIA``.
        depth: Levels of splits.
        max_nodes: How many nodes may be split.
        leaves: What the leaves' histograms get at least.
        holders: How many holders are asked.
    """

    problem: Problem
    attributes: Sequence[str]
    criterion: str
    depth: int
    max_nodes: int
    leaves: Epsilon
    holders: int = 1

    @abstractmethod
    def steps(self) -> list[Step]:
        """Returns what the holders are asked, from the root down to the leaves."""

    @abstractmethod
    def grow(self, task: GrowthTask) -> list[HeldNode]:
        """Grows a tree; the root first, each node before its children."""

    @property
    def parts(self) -> int:
        """The most parts that a split in two makes: missing numbers are a part of their own."""
        schema = self.problem.schema
        return max(family.max_parts(schema) for family in families(schema, self.attributes))

    def lines(self) -> tuple[PlanLine, ...]:
        """Returns how the steps read in a plan."""
        *asked, leaves = self.steps()
        nodes = [min(self.parts**step.level, self.max_nodes) for step in asked]
        ends = min(self.parts**leaves.level, self.max_nodes * (self.parts - 1) + 1)
        return tuple(step.line(count, step.cost) for step, count in zip([*asked, leaves], [*nodes, ends], strict=True))

    def leaf_step(self, level: int, epsilon: Epsilon) -> Step:
        """Returns the question to each leaf below so many levels of splits."""
        asked = "classes of each leaf, at least"
        question = StepQuestion(StepName.CLASSES, "noisy_count", asked, self.count_noise, numbers=self.problem.cells)
        return Step(question, level, epsilon)

    def choice_step(self, level: int, asked: str, epsilon: Epsilon) -> Step:
        """Returns a question for splits that the criterion judges."""
        return Step(StepQuestion(StepName.SPLIT, "exp_mech", asked, self.choice_noise), level, epsilon)

    def count_noise(self, epsilon: Epsilon) -> tuple[float, str]:
        """Returns the standard deviation of the noise in one holder's count."""
        return noise_of(self.problem.schema, epsilon), "rows"

    def choice_noise(self, epsilon: Epsilon) -> tuple[float, str]:
        """Returns the scale of the noise in one holder's choice."""
        return choice_noise_scale(self.problem.schema, self.criterion, epsilon, textbook=False)
