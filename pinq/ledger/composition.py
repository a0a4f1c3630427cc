# SPDX-License-Identifier: Apache-2.0
"""The total cost of answered queries: composition over the tree of partitions.

The cost of a part is the cost of its direct queries. For each of its distinct partitions, the
queries of all parts alike and the largest cost of a part add to it. The versions of the rows add up::

    cost(part) = direct(part) + Σ over its partitions P of ( alike(P) + max over parts p of P of cost(p) )
    spent      = Σ over versions v of cost(whole table of v)
               + Σ over partitions into cohorts of max over cohorts c of Σ over versions v of c of cost(c in v)

Several tables of the same people are versions too: each version of each table has a number of its own. So has each
version of a closed cohort: queries below it count there and in no version of the table.

Privacy:
    Adjacency: sequences of tables, the versions of all tables of one dataset; add or remove one row in each of them,
    possibly with other values in each (or missing). Claim: the transcript of all answered queries is spent-DP, for any
    adaptive analyst and any order of requests. Why, within a version: a row lies in at most one part of each partition,
    so it meets only the queries on its own paths down; an answer at a part without the row has the same law on both
    tables. By induction from the leaves those queries cost at most cost(part) at each part of the path. A query of all
    parts of a partition adds the same to each of them, hence to their maximum. Only the set of answered queries
    matters, so interleaving does not (privacy.md 1.3). Why, over versions: coins are independent, so the log-ratio of a
    transcript is the sum over its answers, and those of version v add at most cost(whole table of v) to it. Versions
    share no maximum. Parts can share one, because a row is in one of them only; but a row whose value changed, or was
    read otherwise, is in one part of one version and in another part of the next. So equal specs under two versions are
    two partitions. A version does not depend on contents (pinq/provider/versions.py), so a price reveals nothing about
    rows. Why, over tables: a person has rows in each of them, so their costs add like those of versions, and no maximum
    is taken over parts of two tables. Neighbours differ by all rows of one unit in all tables: at most ``max_rows`` of
    each table, by which its noise is scaled (pinq/curator/monitor.py). So the answers of each version of each table add
    at most the cost of its root for the whole unit, whatever the other tables keep of it. The choice of the rows that a
    table keeps follows from its own rows and the ledger's key, so no table's answers read another's rows. Why, over
    cohorts: neighbours differ by one unit that lies in one cohort of each partition into cohorts, the same in all
    versions, and has one row there. While a closed cohort keeps its number its rows are the same, with and without the
    unit (pinq/provider/versions.py), so the row falls into the same part of each partition below it: its cost is that
    of one version. A unit meets the queries of whole tables and those below its cohort, summed over the versions of
    this cohort, and none below another cohort. So it loses at most the first sum and the sum of its cohort, and each
    unit at most the first sum and the maximum over cohorts. Several partitions into cohorts (of two tables, or declared
    anew) add up: a unit has a cohort in each. Only closed cohorts count in this
    way: a query below an open cohort counts as a query of the table. All analysts together: their joint transcript is
    cost-DP for the cost of the union of their trees, because the theorem does not depend on the analyst, and that is at
    most the sum of their costs (a row's queries are those of each analyst's tree), so a cap on either holds. Exact:
    integers (nano-epsilons). Held by: tests/property/test_composition.py, against the recursion written out;
    tests/privacy/test_changing_tables.py, on sequences of tables.

References:
    McSherry 2009, "Privacy Integrated Queries", sec. 4 (the rule); here a repeated partition is the same partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain, count
from operator import gt

from pinq.language.parts import PartSet
from pinq.public.epsilon import ZERO, Epsilon

ROOT = b""
NO_PLACES: Mapping[int, str] = {}


def root_of(version: int) -> bytes:
    """The key of the whole table of a version of the rows: the prefix of every key below it."""
    # The first is empty, as it is in logs from before there were versions. No key of a part (16 bytes) is any of these.
    return ROOT if version == 1 else version.to_bytes(8, "big")


COUNTED = "the sum of what each analyst spent"
"""How the cap counts what several analysts spent, in words."""


DumpedDemand = tuple[list[str], list[tuple[int, int, str]], list[tuple[int, int]]]
"""A ``Demand`` as JSON: the keys of partitions, then nodes and blocks with the numbers of partitions."""


@dataclass(frozen=True)
class Demand:
    """The parts of a request: the facts of a ``PartSet`` that the recursion needs, as the log has them.

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
        """The demand of one query to all parts of a collection."""
        ancestors = parts.ancestors
        number = {ROOT: 0} | {key: position for position, key in enumerate(ancestors, start=1)}
        # Women who are nurses: nodes (0, sex, women) and (1, job, nurses), asked (2, None). All jobs
        # of women: node (0, sex, women), asked (1, job).
        nodes = [
            (number[part.parent.key], part.partition.key, key)  # type: ignore[union-attr]
            for key, part in ancestors.items()
        ]
        queried = [
            (number[block.part.key], None if block.partition is None else block.partition.key) for block in parts.blocks
        ]
        return cls(tuple(nodes), tuple(queried))

    @property
    def top(self) -> bytes:
        """The key of the part of the whole table below which all queried parts lie; ``ROOT`` for none."""
        tops = [ROOT]
        for parent, _, key in self.nodes:
            tops.append(tops[parent] or key)
        first, *others = {tops[node] for node, _ in self.asked} or {ROOT}
        return ROOT if others else first

    def dump(self) -> DumpedDemand:
        # A query to a part `bb` of a partition `aa` of the whole table: ["aa"], [(0, 0, "bb")] and
        # [(1, -1)]. To all parts of a partition `cc` of this part: ["aa", "cc"] and [(1, 1)].
        partitions: dict[bytes, int] = {}
        nodes = [
            (parent, partitions.setdefault(split, len(partitions)), key.hex()) for parent, split, key in self.nodes
        ]
        queried = [
            (node, -1 if split is None else partitions.setdefault(split, len(partitions))) for node, split in self.asked
        ]
        return [key.hex() for key in partitions], nodes, queried

    @classmethod
    def load(cls, dumped: DumpedDemand) -> Demand:
        """Reads a demand back, or raises ``ValueError`` if a number names nothing before it."""
        partitions = [bytes.fromhex(key) for key in dumped[0]]
        nodes = tuple((parent, partitions[split], bytes.fromhex(key)) for parent, split, key in dumped[1])
        blocks = tuple((node, None if split < 0 else partitions[split]) for node, split in dumped[2])
        parents, splits = [parent for parent, _, _ in dumped[1]], [split for _, split, _ in dumped[1]]
        queried = [node for node, _ in dumped[2]]
        kinds = {*map(type, chain(parents, splits, *dumped[2]))}
        # By `type`, because JSON's true would pass as a number. Parents are listed before children.
        if kinds - {int} or min(parents, default=0) < 0 or any(map(gt, parents, count())):
            raise ValueError("a part has no part above it")
        if min(chain(splits, queried), default=0) < 0 or max(queried, default=0) > len(nodes):
            raise ValueError("a part or a partition is not listed")
        return cls(nodes, blocks)


@dataclass
class Costs:
    """The recursion's state for one analyst, or for all together. Updated in O(size of the demand).

    Attributes:
        part: cost(part) in nano-epsilons, by part key; keys begin with those of their version's whole table
            (``root_of``).
        largest: max over parts of cost(part), by (part key, partition key).
        total: The sum of cost(whole table) over versions and of the maxima over cohorts, in nano-epsilons.
    """

    part: dict[bytes, int] = field(default_factory=dict)
    largest: dict[tuple[bytes, bytes], int] = field(default_factory=dict)
    total: int = 0

    @property
    def spent(self) -> Epsilon:
        return Epsilon(self.total)

    def spent_on(self, version: int) -> Epsilon:
        """cost(whole table) of one version."""
        return Epsilon(self.part.get(root_of(version), 0))

    def price(
        self, demand: Demand, epsilon: Epsilon, version: int = 1, places: Mapping[int, str] = NO_PLACES
    ) -> Epsilon:
        """Prices a query of ``epsilon`` of every part of the demand: the growth of ``spent``."""
        part, _ = self._changed(demand, epsilon.nano, root_of(version))
        return Epsilon(self._raised(part, version, places))

    def charge(
        self, demand: Demand, epsilon: Epsilon, version: int = 1, places: Mapping[int, str] = NO_PLACES
    ) -> Epsilon:
        """Adds the demand to a version; returns the growth of ``spent``.

        Args:
            demand: The queried parts.
            epsilon: The epsilon of the query to each of them.
            version: The version of the rows.
            places: The places of versions, as ``LedgerState.places`` has them.
        """
        part, largest = self._changed(demand, epsilon.nano, root_of(version))
        raised = self._raised(part, version, places)
        self.part.update(part)
        self.largest.update(largest)
        self.total += raised
        return Epsilon(raised)

    def below(self, place: str, places: Mapping[int, str]) -> dict[str, int]:
        costs: dict[str, int] = {}
        for version, other in places.items():
            if other.split(" ")[:2] == place.split(" ")[:2]:
                costs[other] = costs.get(other, 0) + self.spent_on(version).nano
        return costs

    def of_cohort(self, place: str, places: Mapping[int, str]) -> Epsilon:
        """The cost to persons of one cohort: ``spent`` with their cohort's cost in place of the maximum."""
        costs = self.below(place, places)
        return Epsilon(self.total - max(costs.values(), default=0) + costs.get(place, 0))

    def _raised(self, part: Mapping[bytes, int], version: int, places: Mapping[int, str]) -> int:
        """The growth of ``spent`` from the changed costs of a version's parts.

        A cohort raises it by the excess of its new cost over the largest cost in its partition.
        """
        root, place = root_of(version), places.get(version, "")
        before = self.part.get(root, 0)
        grown = part.get(root, before) - before
        if " " not in place:
            return grown
        costs = self.below(place, places)
        return max(0, costs[place] + grown - max(costs.values()))

    def _changed(
        self, demand: Demand, nano: int, root: bytes
    ) -> tuple[dict[bytes, int], dict[tuple[bytes, bytes], int]]:
        """Computes the changed entries, from the leaves up: in ``nodes`` parents precede children.

        Example: the table was split by sex, and women cost 3 so far, men 5; the table costs 5. A query of women at 1
        makes their cost 4, which is not above the largest, 5: the table still costs 5. A query of women at 3 makes
        their cost 6, which raises the largest by 1: the table costs 6.
        """
        keys = [root, *(root + key for _, _, key in demand.nodes)]
        grown = [0] * len(keys)
        for node, _ in demand.asked:
            # A query to the node and a query to all parts of its partition cost the node the same.
            grown[node] += nano
        part: dict[bytes, int] = {}
        largest: dict[tuple[bytes, bytes], int] = {}
        # Backwards, so that the growth of a part is complete before the part above gets it.
        for position in range(len(keys) - 1, 0, -1):
            if not grown[position]:
                continue
            parent, split, _ = demand.nodes[position - 1]
            part[keys[position]] = cost = self.part.get(keys[position], 0) + grown[position]
            partition = (keys[parent], split)
            # The largest cost so far, as this demand may have raised it already.
            before = largest.get(partition, self.largest.get(partition, 0))
            if cost > before:
                largest[partition] = cost
                grown[parent] += cost - before
        if grown[0]:
            part[root] = self.part.get(root, 0) + grown[0]
        return part, largest


@dataclass
class Cap:
    """The spending of all analysts together, as the cap counts it: the sum of what each spent.

    The union of all analysts' trees would cost less, but prices under it reveal which parts others queried.
    """

    cap: Epsilon = ZERO
    spent: Epsilon = ZERO

    @property
    def remaining(self) -> Epsilon:
        return max(ZERO, self.cap - self.spent)
