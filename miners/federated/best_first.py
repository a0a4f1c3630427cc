# SPDX-License-Identifier: Apache-2.0
"""Best-first growth on several holders' tables: of all leaves those are split next that promise most (Wang, Dick & Balcan 2020, Algorithm 1).

Privacy:
    Claim: at each holder, every way from the root to a leaf costs ``Task.epsilon`` in all, in the
    terms of its policy.
    Why: a node of depth t is judged once, at the share of depth t, or less; what no share went into
    goes into the leaf's histogram. A split's gain is computed from noisy histograms, which are also
    what is known of its children: no score leaves a holder, and no size is asked for itself. Which
    node is split next, and which is judged at all, follows from those. Held by:
    tests/unit/federated/test_topdown.py.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from miners.budget.schedule import spread
from miners.federated.buds import Bud, Seen, Task, Wanted, ask_choices, ask_counts, ask_leaves, branch, gather, pooled
from miners.federated.source import FederatedParts, Tally
from miners.federated.splitting import SplitSet
from miners.fitted.node import Split
from miners.growth.criteria import impurity_reduction
from pinq.public.epsilon import NANO, exact
from pinq.public.scores import Score
from pinq.public.specs import bind

__all__ = ["BestFirst", "Judged", "LocalChoice", "NoisyCounts", "grow_best_first"]

LEAST_GAIN = 0.002  # what promises less is not split; Wang et al., sec. 4, say 0.01, with nothing else against noise
LEAST_SHARE = 0.1  # and what has fewer rows than this over max_nodes of all, epsilon / M there


@dataclass(frozen=True)
class Judged:
    """A split for a node, and what is known of the children that it would have.

    Attributes:
        below: For each part of the split, its noisy class counts by holder.
        paid: What finding that out cost, at each holder that was asked.
    """

    split: Split
    below: Sequence[Seen]
    paid: dict[str, Fraction]

    def promise(self, task: Task, criterion: str) -> float:
        """What the split takes away of the node's uncertainty, by the holders that are still there."""
        table = np.array([pooled(task.federation.living(seen)).counts for seen in self.below])
        return float(impurity_reduction(criterion, table[:, : task.classes]))


class Judge(Protocol):
    """How a strategy finds a split for each of some nodes, at one epsilon."""

    @property
    def criterion(self) -> str: ...
    def __call__(self, task: Task, nodes: FederatedParts, epsilon: Fraction) -> list[Judged]: ...
    def counting(self, epsilon: Fraction, holders: int) -> Fraction: ...


@dataclass(frozen=True)
class LocalChoice:
    """Each holder chooses a split by its own rows; histograms from all holders decide among those (LocalRNM; with one holder SingleMachine).

    Half of the share goes into the choice. A node for which the holders made m different choices is
    asked for m histograms, at 1/2m of the share each.

    Attributes:
        functions: The splitting functions.
        score: By what holders choose.
        criterion: By what the choices are compared.
    """

    functions: Sequence[SplitSet]
    score: Score
    criterion: str

    def counting(self, epsilon: Fraction, holders: int) -> Fraction:
        """What a histogram may be asked at."""
        return epsilon / (2 * holders)

    def __call__(self, task: Task, nodes: FederatedParts, epsilon: Fraction) -> list[Judged]:
        nano = int(epsilon * NANO)
        choosing = exact(nano // 2)
        candidates = [split for one in self.functions for split in one.splits]
        chosen = ask_choices(
            task, nodes, candidates, score=self.score, epsilon=dict.fromkeys(task.federation.holders, choosing)
        )
        proposed = [list(dict.fromkeys(own)) for own in zip(*chosen.values(), strict=True)]
        asked = _histograms(task, nodes, proposed, nano - nano // 2)
        found: dict[int, list[Judged]] = defaultdict(list)
        for (wanted, splits), answer in zip(asked, ask_counts(task, [wanted for wanted, _ in asked]), strict=True):
            for (place, split), below in zip(splits.items(), _children(task, splits.values(), answer), strict=True):
                found[place].append(
                    Judged(
                        split,
                        below,
                        {name: choosing + len(proposed[place]) * loss for name, loss in wanted.epsilon.items()},
                    )
                )
        return [max(found[place], key=lambda one: one.promise(task, self.criterion)) for place in range(len(nodes))]


def _histograms(
    task: Task, nodes: FederatedParts, proposed: Sequence[Sequence[Split]], nano: int
) -> list[tuple[Wanted, dict[int, Split]]]:
    """The questions for the classes below every proposal, each with the split of every node that it is about; ``nano`` for all proposals of a node."""
    asked = []
    for many in sorted({len(own) for own in proposed}):
        here = [place for place, own in enumerate(proposed) if len(own) == many]
        for rank in range(many):
            splits = {place: proposed[place][rank] for place in here}
            losses = dict.fromkeys(task.federation.holders, exact(nano // many))
            asked.append(
                (
                    Wanted(
                        nodes[here],
                        losses,
                        list(splits.values()),
                        max(bind(split, task.schema).size for split in splits.values()),
                    ),
                    splits,
                )
            )
    return asked


def _children(task: Task, splits: Iterable[Split], answer: Seen) -> Iterator[list[Seen]]:
    """For each node what the answer says of each child that its split makes."""
    end = 0
    for split in splits:
        start, end = end, end + bind(split, task.schema).size
        yield [
            {name: Tally(tally.counts[row], tally.variance) for name, tally in answer.items()}
            for row in range(start, end)
        ]


@dataclass(frozen=True)
class NoisyCounts:
    """Histograms of every splitting function from every holder, summed (Wang et al., sec. 3).

    One table for each column serves all of its functions, so each is asked at 1/n of the share for
    n columns, not at 1/|H|.

    Attributes:
        functions: The splitting functions.
        criterion: By what they are compared.
    """

    functions: Sequence[SplitSet]
    criterion: str

    def counting(self, epsilon: Fraction, holders: int) -> Fraction:
        """What a histogram is asked at."""
        return epsilon / len(self.functions)

    def __call__(self, task: Task, nodes: FederatedParts, epsilon: Fraction) -> list[Judged]:
        counting = exact(int(epsilon * NANO) // len(self.functions))
        losses = dict.fromkeys(task.federation.holders, counting)
        asked = [Wanted(nodes, losses, one.base, bind(one.base, task.schema).size) for one in self.functions]
        answers = [
            {
                name: Tally(tally.counts.reshape(len(nodes), one.width, task.cells), tally.variance)
                for name, tally in answer.items()
            }
            for one, answer in zip(asked, ask_counts(task, asked), strict=True)
        ]
        promises = [
            impurity_reduction(
                self.criterion, one.tables(pooled(task.federation.living(answer)).counts)[..., : task.classes]
            )
            for one, answer in zip(self.functions, answers, strict=True)
        ]
        owner = np.repeat(np.arange(len(self.functions)), [len(one.splits) for one in self.functions])
        within = np.concatenate([np.arange(len(one.splits)) for one in self.functions])
        best = np.concatenate(promises, axis=1).argmax(axis=1)
        paid = dict.fromkeys(losses, counting * len(asked))
        return [
            self._judged(owner[which], within[which], place, answers[owner[which]], paid)
            for place, which in enumerate(best)
        ]

    def _judged(self, column: int, split: int, place: int, answer: Seen, paid: dict[str, Fraction]) -> Judged:
        """A node's best split, its children's counts added up from the column's table."""
        merge = self.functions[column].merges[split]
        below = [
            {name: Tally(part @ tally.counts[place], tally.variance * part.sum()) for name, tally in answer.items()}
            for part in merge
        ]
        return Judged(self.functions[column].splits[split], below, paid)


@dataclass(frozen=True)
class BestFirst:
    """How far a tree grows, and at which losses.

    Attributes:
        shares: What judging a node of depth t may cost, from the root down; deeper nodes are not
            judged.
        max_nodes: How many nodes may be split.
        at_once: How many nodes are split before their children are judged, together; 1 is Algorithm
            1 to the letter.
    """

    shares: tuple[Fraction, ...]
    max_nodes: int
    at_once: int

    @classmethod
    def spread(
        cls, epsilon: Fraction, leaves: Fraction, depth: int, *, decay: bool, max_nodes: int, at_once: int
    ) -> BestFirst:
        """Shares of what ``leaves`` leaves of ``epsilon``: equal ones, or each half of the one above it (renormalized, privacy.md 5)."""
        weights = [2 ** (depth - 1 - level) if decay else 1 for level in range(depth)]
        return cls(
            tuple(map(exact, spread(int((epsilon - leaves) * NANO), weights))) if depth else (), max_nodes, at_once
        )


def grow_best_first(task: Task, judge: Judge, how: BestFirst) -> list[Bud]:
    """Grows a tree; the root first, each node before its children."""
    buds = [Bud(task.federation.parts(), 0)]
    queue: list[tuple[float, int]] = []
    judged: dict[int, Judged] = {}
    _judge(task, judge, how, buds, [0], judged, queue)
    splits = 0
    while queue and splits < how.max_nodes:
        batch = [heapq.heappop(queue)[1] for _ in range(min(how.at_once, how.max_nodes - splits, len(queue)))]
        splits += len(batch)
        first = len(buds)
        branch(task, buds, [buds[place] for place in batch], [judged[place].split for place in batch])
        for place in batch:
            for child, seen in zip(buds[place].children, judged.pop(place).below, strict=True):
                buds[child].seen.append(seen)
        if splits < how.max_nodes:  # no query after the last split
            _judge(task, judge, how, buds, range(first, len(buds)), judged, queue)
    for place, found in judged.items():  # what was not split after all has been counted all the same
        buds[place].seen.append({name: pooled([seen[name] for seen in found.below]) for name in found.below[0]})
    ask_leaves(task, [bud for bud in buds if bud.split is None])
    return buds


def _judge(
    task: Task,
    judge: Judge,
    how: BestFirst,
    buds: list[Bud],
    places: Sequence[int],
    judged: dict[int, Judged],
    queue: list[tuple[float, int]],
) -> None:
    """Judges new nodes that are large enough, those of one depth together, and queues those that promise enough."""
    by_depth: dict[int, list[Bud]] = defaultdict(list)
    number = {id(buds[place]): place for place in places}
    for place in places:
        if _large_enough(task, judge, how, buds, buds[place]):
            by_depth[buds[place].depth].append(buds[place])
    for depth, some in sorted(by_depth.items()):
        parts, ordered = gather(some)
        for bud, found in zip(ordered, judge(task, parts, how.shares[depth]), strict=True):
            for name, paid in found.paid.items():
                bud.pay(name, paid)
            judged[number[id(bud)]] = found
            gain = found.promise(task, judge.criterion)
            if gain > LEAST_GAIN:
                heapq.heappush(queue, (-gain * _rows(task, bud), number[id(bud)]))


def _rows(task: Task, bud: Bud) -> float:
    """Estimated rows of a node; the root, of which nothing is known yet, has all that there can be."""
    return max(0.0, bud.open_node(task.federation).rows) if bud.seen else float(task.schema.max_rows)


def _large_enough(task: Task, judge: Judge, how: BestFirst, buds: list[Bud], bud: Bud) -> bool:
    """Whether judging a node can be of use: noise must not drown its histogram, and it must not be a trifle of the whole."""
    if bud.depth >= len(how.shares):
        return False
    holders = task.federation.holders
    each = judge.counting(how.shares[bud.depth], len(holders))
    if each * NANO < 1:
        return False
    if not bud.seen:
        return True
    noise = math.sqrt(sum(task.federation.variance(name, each) for name in holders) * 2 * task.classes)
    whole = sum(_rows(task, buds[place]) for place in buds[0].children)
    return _rows(task, bud) >= max(noise, LEAST_SHARE / how.max_nodes * whole)
