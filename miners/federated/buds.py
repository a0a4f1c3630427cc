# SPDX-License-Identifier: Apache-2.0
"""The nodes of a tree that grows on several holders' tables: what each holder said of them, and what is left to ask there.

Privacy:
    Claim: at each holder, every way from the root to a leaf is asked ``epsilon`` in all, exactly.
    Why: a bud knows what its way has paid at each holder, and a leaf is asked with all that is
    left. Parts that are asked together are disjoint, so they cost what one of them costs. Held by:
    tests/unit/federated/test_topdown.py.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from miners.federated.source import CountSource, FederatedParts, Question, Tally
from miners.fitted.node import Split
from miners.growth.open_node import OpenNode
from pinq.public.schema import Schema
from pinq.public.scores import Score
from pinq.public.specs import MAX_PARTS, Values, bind

__all__ = [
    "Bud",
    "Seen",
    "Task",
    "Wanted",
    "ask_choices",
    "ask_counts",
    "ask_leaves",
    "branch",
    "gather",
    "open_nodes_of",
    "pooled",
]

MOST_NAMED = (
    2**14
)  # parts that one request names one by one; the layer takes more, a server's limit on bytes perhaps not

Seen = Mapping[str, Tally]


@dataclass(frozen=True)
class Task:
    """What is to be learned, and where.

    Attributes:
        federation: Whom to ask.
        schema: Their public columns.
        target: The column to predict.
        epsilon: What the whole fit may cost, at each holder.
        reuse: Whether stored answers to the same questions will do.
    """

    federation: CountSource
    schema: Schema
    target: str
    epsilon: Fraction
    reuse: bool = False

    @property
    def classes(self) -> int:
        """Declared classes."""
        return self.schema.columns[self.target].cells

    @property
    def cells(self) -> int:
        """Parts of the histogram of classes, one for a missing class included."""
        return self.schema.columns[self.target].codes


@dataclass
class Bud:
    """A node while its tree grows.

    Attributes:
        parts: A collection in which it is one part.
        place: Which one.
        paid: What its way has been asked at each holder.
        seen: Noisy class counts of it, by holder, from each time they were asked.
    """

    parts: FederatedParts
    place: int
    depth: int = 0
    paid: Mapping[str, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    seen: list[Seen] = field(default_factory=list)
    split: Split | None = None
    children: tuple[int, ...] = ()

    def pay(self, holder: str, epsilon: Fraction) -> None:
        """Notes a question to it at one holder."""
        self.paid = {**self.paid, holder: self.paid.get(holder, Fraction(0)) + epsilon}

    def open_node(self, federation: CountSource) -> OpenNode:
        """What the holders said of it, those that are still there: counts add up over holders, answers of one time and another are averaged."""
        node = OpenNode(split=self.split, children=self.children)
        for seen in self.seen:
            node.observe(*pooled(federation.living(seen)))
        return node


def pooled(tallies: Sequence[Tally]) -> Tally:
    """Counts of disjoint rows added up; so do the variances of independent noises."""
    return Tally(np.sum([tally.counts for tally in tallies], axis=0), math.fsum(tally.variance for tally in tallies))


@dataclass(frozen=True)
class Wanted:
    """A question for the classes of parts, or of what a split of each makes of it.

    Attributes:
        parts: Of which parts.
        epsilon: At which loss, by holder.
        below: For each part its split; or one for all; None for the parts themselves.
        width: The most parts that a split makes.
    """

    parts: FederatedParts
    epsilon: Mapping[str, Fraction]
    below: Split | Sequence[Split] | None = None
    width: int = 1

    def questions(self, task: Task) -> list[Question]:
        """In nearly every case one; several where one request could not name so many parts. They are disjoint, so they cost what one costs."""
        cut = _pieces(self.parts, MAX_PARTS // (self.width * task.cells))
        return [
            self._cells(parts, Values(task.target), here).question(
                "noisy_count", epsilon=self.epsilon, reuse=task.reuse
            )
            for parts, here in cut
        ]

    def _cells(self, parts: FederatedParts, classes: Values, here: slice) -> FederatedParts:
        if self.below is None:
            return parts.partition(classes)
        if isinstance(self.below, Sequence):
            return parts.partition([(split, classes) for split in self.below[here]])
        return parts.partition(self.below, classes)


def ask_counts(task: Task, wanted: Sequence[Wanted]) -> list[Seen]:
    """The answers to several questions, all asked in one round: counts of shape (rows, cells), a row for each part, or each part of its split."""
    asked = [one.questions(task) for one in wanted]
    answers = iter(task.federation.tally([question for questions in asked for question in questions]))
    return [_joined(task, [next(answers) for _ in questions]) for questions in asked]


def _joined(task: Task, pieces: Sequence[Seen]) -> Seen:
    """The pieces of one answer, one after the other."""
    return {
        name: Tally(np.concatenate([piece[name].counts.reshape(-1, task.cells) for piece in pieces]), tally.variance)
        for name, tally in pieces[0].items()
    }


def ask_choices(
    task: Task, parts: FederatedParts, candidates: Sequence[Any], *, score: Score, epsilon: Mapping[str, Fraction]
) -> dict[str, list[Split | None]]:
    """What each of the holders that are asked chooses for each part, in one round; very many parts are asked in several requests."""
    questions = [
        piece.question("exp_mech", epsilon=epsilon, candidates=candidates, score=score, reuse=task.reuse)
        for piece, _ in _pieces(parts, MOST_NAMED)
    ]
    answers = task.federation.ask(questions)
    return {name: [split for answer in answers for split in answer[name]] for name in answers[0]}


def _pieces(parts: FederatedParts, step: int) -> list[tuple[FederatedParts, slice]]:
    """A collection in pieces of at most so many parts, and which ones they are."""
    step = max(1, min(step, MOST_NAMED))
    if len(parts) <= step:
        return [(parts, slice(None))]
    cuts = [slice(start, start + step) for start in range(0, len(parts), step)]
    return [(parts[cut], cut) for cut in cuts]


def gather(buds: Sequence[Bud]) -> tuple[FederatedParts, list[Bud]]:
    """Buds as one collection, and in its order."""
    by_parts: dict[int, list[Bud]] = defaultdict(list)
    for bud in buds:
        by_parts[id(bud.parts)].append(bud)
    groups = list(by_parts.values())
    return FederatedParts.union([group[0].parts[[bud.place for bud in group]] for group in groups]), [
        bud for group in groups for bud in group
    ]


def branch(task: Task, buds: list[Bud], parents: Sequence[Bud], splits: Sequence[Split]) -> list[Bud]:
    """Splits some buds; their children, which are appended to ``buds``, in the order of the parts."""
    collection, ordered = gather(parents)
    by_parent = {id(parent): split for parent, split in zip(parents, splits, strict=True)}
    own = [by_parent[id(parent)] for parent in ordered]
    below = collection.partition(own)
    grown: list[Bud] = []
    for parent, split in zip(ordered, own, strict=True):
        size = bind(split, task.schema).size
        first = len(buds) + len(grown)
        parent.split, parent.children = split, tuple(range(first, first + size))
        grown += [Bud(below, len(grown) + part, parent.depth + 1, dict(parent.paid)) for part in range(size)]
    buds += grown
    return grown


def ask_leaves(task: Task, leaves: Sequence[Bud]) -> None:
    """One round for the class histograms of all leaves; each is asked, at each holder, with all that its way has left there."""
    holders = task.federation.holders
    alike: dict[tuple[Fraction, ...], list[Bud]] = defaultdict(list)
    for leaf in leaves:
        alike[tuple(task.epsilon - leaf.paid.get(name, Fraction(0)) for name in holders)].append(leaf)
    gathered = [gather(some) for some in alike.values()]
    answers = ask_counts(
        task,
        [
            Wanted(parts, dict(zip(holders, left, strict=True)))
            for left, (parts, _) in zip(alike, gathered, strict=True)
        ],
    )
    for answer, (_, some) in zip(answers, gathered, strict=True):
        for place, leaf in enumerate(some):
            leaf.seen.append({name: Tally(tally.counts[place], tally.variance) for name, tally in answer.items()})


def open_nodes_of(task: Task, buds: Sequence[Bud]) -> list[OpenNode]:
    """The grown tree, by what the holders said that are there to the end: the counts of all nodes are then of the same people."""
    return [bud.open_node(task.federation) for bud in buds]
