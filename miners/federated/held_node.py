# SPDX-License-Identifier: Apache-2.0
"""An open node of which several holders have rows: what each answered, and what is left to ask.

Privacy:
    Claim: at each holder, every path from the root to a leaf is asked the total of the fit exactly.
    Why: a node knows what its path has paid at each holder, and a leaf is asked with all that is
    left. Parts that are asked together are disjoint, so they cost what one of them costs. Held by:
    tests/unit/federated/test_topdown_bill.py.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from miners.federated.federation import CountSource, FederatedParts, Tally
from miners.fitted.node import Split
from miners.growth.frontier import OpenNode
from pinq.public.epsilon import ZERO, Epsilon
from pinq.public.parts import Part
from pinq.public.schema import Schema
from pinq.public.specs import bind

__all__ = ["Answer", "HeldNode", "branch", "gather", "pooled"]

Answer = Mapping[str, Tally]
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


def pooled(tallies: Sequence[Tally]) -> Tally:
    """Adds up counts of disjoint rows; so do the variances of independent noises."""
    return Tally(np.sum([tally.counts for tally in tallies], axis=0), math.fsum(tally.variance for tally in tallies))


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
