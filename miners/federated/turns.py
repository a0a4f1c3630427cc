# SPDX-License-Identifier: Apache-2.0
"""Levels in turns: each level's splits are chosen by one holder alone.

Its loss for that need not be spread over the other levels. A noisy choice sees a gain of g per row
among n rows at loss e as n g e, against noise of a fixed size. The holders' people are disjoint, so
each has the whole epsilon: a quarter of the rows at four times the loss is as clear as all rows at
once, and nothing has to be added up in the clear. What is given up is that a quarter of the rows is
a sample. Only the classes of the leaves are asked of everybody.

Privacy:
    Claim: at each holder, every path from the root to a leaf costs ``Problem.epsilon`` in all, in
    the terms of its policy.
    Why: a holder is asked for its size, for the splits of its own levels, and for each leaf's
    histogram with what is left. Nodes of a level are disjoint. Whose turn it is follows from noisy
    sizes. Held by: tests/unit/federated/test_topdown_bill.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from miners.budget.recipe import Step, StepName, StepQuestion, spread
from miners.federated.asking import Task, ask_choices, ask_leaves
from miners.federated.held_node import HeldNode, branch, gather
from miners.federated.source import FederatedParts
from miners.federated.strategy import FederatedStrategy
from miners.fitted.node import Split
from miners.growth.criteria import score_of
from miners.trees.strategy import SplitCandidate, many
from pinq.public.epsilon import ZERO, Epsilon

__all__ = ["InTurns", "Turn", "deal"]


@dataclass(frozen=True)
class Turn:
    """A level that one holder chooses.

    Attributes:
        holder: Who chooses.
        step: What it is asked, and at which loss.
    """

    holder: str
    step: Step


@dataclass(frozen=True, kw_only=True)
class InTurns(FederatedStrategy):
    """How a tree grows in turns.

    A level that would pass ``max_nodes`` is not begun; what it would have cost goes to the leaves.
    With ``decay`` each of a holder's levels gets half of the one before.

    Attributes:
        candidates: What each node may be split by.
        size: The loss of each holder's size; 0 where there is one holder, who has all turns.
    """

    candidates: Sequence[SplitCandidate]
    size: Epsilon

    def steps(self, holders: int) -> list[Step]:
        """Returns what so many holders of one size are asked."""
        rest = self.problem.epsilon - self._size_loss
        # Of equal holders no more than there are levels get a turn.
        names = [f"holder {number}" for number in range(1, min(holders, max(1, self.depth)) + 1)]
        turns = self.turns(dict.fromkeys(names, rest - self.leaves), dict.fromkeys(names, 1.0), 0)
        asked = StepQuestion(StepName.SIZE, "noisy_count", "size of each holder", self.count_noise)
        size = [Step(asked, 0, self.size)] if self._size_loss else []
        leaves = self.leaf_step(len(turns), self.leaves if turns else rest)
        return [*size, *(turn.step for turn in turns), leaves]

    def turns(self, left: Mapping[str, Epsilon], rows: Mapping[str, float], level: int) -> list[Turn]:
        """Returns who chooses at each level from ``level`` down.

        It is nobody where nobody has anything left for it.

        Args:
            left: What each holder has for choices.
            rows: How much a holder's choice sees for each nano-epsilon.
            level: The first level.
        """
        # Sizes 600 and 250 and four levels: north, north, south, north; north's loss is spread over
        # three levels, south has one for all of its own.
        levels = self.depth - level
        # With decay the last of n levels gets 1 of 2^n - 1 shares, and no share may be below a
        # nano.
        able = {name: rows[name] * loss.nano for name, loss in left.items() if loss.nano >= 2**levels}
        order = deal(able, levels) if able else []
        losses = {name: iter(self._spread(left[name], order.count(name))) for name in dict.fromkeys(order)}
        best = f"best split by {many(len(self.attributes), 'attribute')}"
        return [
            Turn(name, self.choice_step(number, f"{best}, of {name}", next(losses[name])))
            for number, name in enumerate(order, start=level)
        ]

    def grow(self, task: Task) -> list[HeldNode]:
        """Grows a tree level by level; the root first, each node before its children."""
        root = HeldNode(parts=task.source.parts())
        rows = self._ask_sizes(task, root)
        nodes, frontier, splits, level = [root], [root], 0, 0
        turns = self.turns(self._left(task, root), rows, level)
        while turns and frontier and splits + len(frontier) <= self.max_nodes:
            parts, frontier = gather(frontier)
            chosen = self._ask_splits(task, frontier, parts, turns[0])
            if chosen is None:  # the holder was dropped: whoever is left takes its turns
                turns = self.turns(self._left(task, frontier[0]), rows, level)
                continue
            split_of = {node: split for node, split in zip(frontier, chosen, strict=True) if split is not None}
            frontier = self._split(nodes, split_of)
            splits, level, turns = splits + len(split_of), level + 1, turns[1:]
        ask_leaves(task, [node for node in nodes if node.split is None])
        return nodes

    def _split(self, nodes: list[HeldNode], split_of: Mapping[HeldNode, Split]) -> list[HeldNode]:
        if not split_of:
            return []
        return branch(self.problem.schema, nodes, list(split_of), list(split_of.values()))

    @property
    def _size_loss(self) -> Epsilon:
        """What each holder's size costs; nothing where there is nothing to choose."""
        return self.size if self.depth else ZERO

    def _spread(self, epsilon: Epsilon, levels: int) -> Sequence[Epsilon]:
        """Spreads a holder's loss over its own levels."""
        return spread(epsilon, [2 ** (levels - 1 - own) if self.decay else 1 for own in range(levels)])

    def _left(self, task: Task, node: HeldNode) -> dict[str, Epsilon]:
        """Returns what each holder that is still there has left for choices, below a node."""
        most = self.problem.epsilon - self.leaves
        return {name: most - node.paid_at(name) for name in task.source.holders}

    def _ask_sizes(self, task: Task, root: HeldNode) -> dict[str, float]:
        """Asks each holder for its noisy number of rows, where it matters.

        It is divided by the distance of the holder's neighbours, which blurs its choices.
        """
        if not self._size_loss:
            return dict.fromkeys(task.source.holders, 1.0)
        sizes = root.parts.noisy_count(epsilon=self.size, reuse=task.reuse)
        for name in sizes:
            root.pay(name, self.size)
        return {name: float(count[0]) / task.source.distance(name) for name, count in sizes.items()}

    def _ask_splits(
        self, task: Task, nodes: Sequence[HeldNode], parts: FederatedParts, turn: Turn
    ) -> list[Split | None] | None:
        """Lets one holder choose a split for each node; None where it was dropped meanwhile."""
        score = score_of(self.criterion, task.target)
        losses = {turn.holder: turn.step.epsilon}
        chosen = ask_choices(task, parts, self.candidates, score=score, epsilon=losses)
        if turn.holder not in chosen:
            return None
        for node in nodes:
            node.pay(turn.holder, turn.step.epsilon)
        return chosen[turn.holder]


def deal(sizes: Mapping[str, float], levels: int) -> list[str]:
    """Deals out levels in proportion to the sizes, by D'Hondt's rule, the largest first.

    So each choice is about as clear as any other: twice the rows, twice as many turns, half the
    loss for each. Holders of few rows may get none.
    """
    turns: list[str] = []
    for _ in range(levels):
        # Sizes 600 and 250: the quotients 600, 300, 250, 200, ... give the first two turns to the
        # first, the third to the second, the fourth to the first.
        turns.append(max(sizes, key=lambda name: max(sizes[name], 1.0) / (turns.count(name) + 1)))
    return turns
