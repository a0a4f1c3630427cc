# SPDX-License-Identifier: Apache-2.0
"""What a set of answered queries costs in all: sequential and parallel composition over the tree of partitions. Pure.

The cost of a part is what was asked of it directly, plus, for each distinct partition of it, what
was asked of all its parts alike and the largest cost among them::

    cost(part) = direct(part) + Σ over its partitions P of ( alike(P) + max over parts p of P of cost(p) )

Privacy:
    Adjacency: add or remove one row. Claim: the transcript of all answered queries is cost(whole
    table)-DP, for any adaptive analyst and any order of requests.
    Why: a row lies in at most one part of each partition, so it meets only the queries on its own
    ways down; an answer at a part without the row has the same law on both tables. By induction
    from the leaves those queries cost at most cost(part) at each part of the way. "Asked of all
    parts alike" adds the same to each of them, hence to their maximum. Only the set of answered
    queries matters, so interleaving does not (privacy.md 1.3).
    Exact: integers (nano-epsilons). Held by: tests/property/test_composition.py, against the
    recursion written out.

References:
    McSherry 2009, "Privacy Integrated Queries", sec. 4 (the rule); here the same partition asked
    again is the same partition.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pinq.public.parts import PartSet

__all__ = ["Costs", "Demand"]

ROOT = b""


@dataclass(frozen=True)
class Demand:
    """Where a request asks: what the recursion needs of a ``PartSet``, as it stands in the log.

    Attributes:
        nodes: ``(parent, partition, key)`` for each part but the whole table, parents first:
            ``parent`` is a position in this list plus one (0 is the whole table), ``partition`` and
            ``key`` identify the split and the part.
        asked: ``(node, partition)`` for each block: the part itself (partition None), or all parts
            of a partition of it.
    """

    nodes: tuple[tuple[int, bytes, bytes], ...]
    asked: tuple[tuple[int, bytes | None], ...]

    @classmethod
    def of(cls, parts: PartSet) -> Demand:
        """The demand of one question to all parts of a collection."""
        ways = parts.ways()
        place = {ROOT: 0} | {key: number for number, key in enumerate(ways, start=1)}
        nodes = tuple((place[part.parent.key], part.partition.key, key) for key, part in ways.items())  # type: ignore[union-attr]
        return cls(
            nodes,
            tuple(
                (place[block.part.key], None if block.partition is None else block.partition.key)
                for block in parts.blocks
            ),
        )


@dataclass
class Costs:
    """The recursion's state for one analyst, or for all together. Updated in O(size of the demand).

    Attributes:
        part: cost(part) in nano-epsilons, by part key; the whole table's key is empty.
        largest: max over parts of cost(part), by (part key, partition key).
    """

    part: dict[bytes, int] = field(default_factory=dict)
    largest: dict[tuple[bytes, bytes], int] = field(default_factory=dict)

    @property
    def spent(self) -> int:
        """cost(whole table), nano-epsilons."""
        return self.part.get(ROOT, 0)

    def price(self, demand: Demand, epsilon: int) -> int:
        """By how much ``spent`` would grow if ``epsilon`` were asked of every part of the demand."""
        part, _ = self._after(demand, epsilon)
        return part.get(ROOT, self.spent) - self.spent

    def charge(self, demand: Demand, epsilon: int) -> int:
        """Adds the demand; returns by how much ``spent`` grew."""
        before = self.spent
        part, largest = self._after(demand, epsilon)
        self.part.update(part)
        self.largest.update(largest)
        return self.spent - before

    def _after(self, demand: Demand, epsilon: int) -> tuple[dict[bytes, int], dict[tuple[bytes, bytes], int]]:
        """The changed entries. Parents precede children in ``nodes``, so walking backwards is bottom-up."""
        keys = [ROOT, *(key for _, _, key in demand.nodes)]
        grown = [0] * len(keys)
        for node, _ in demand.asked:
            # Asked itself, or all parts of a partition alike: both add epsilon to the cost of
            # `node`.
            grown[node] += epsilon
        part: dict[bytes, int] = {}
        largest: dict[tuple[bytes, bytes], int] = {}
        for position in range(len(keys) - 1, 0, -1):
            if not grown[position]:
                continue
            parent, split, key = demand.nodes[position - 1]
            part[key] = cost = self.part.get(key, 0) + grown[position]
            place = (keys[parent], split)
            known = largest.get(place, self.largest.get(place, 0))
            if cost > known:
                largest[place] = cost
                grown[parent] += cost - known
        if grown[0]:
            part[ROOT] = self.spent + grown[0]
        return part, largest
