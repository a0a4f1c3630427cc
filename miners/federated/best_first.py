# SPDX-License-Identifier: Apache-2.0
"""Best-first growth of a tree from several data owners, by histograms that all of them answer.

``LocalChoice`` compares only the splits that owners propose, each by an exponential mechanism.

Privacy:
    As in ``miners.federated.topdown``. With proposals, the search for a node's split costs an owner at most the level's
    share: half for the owner's choice among public candidates; the other half is divided among the histograms of the
    node's proposals. Held by: tests/unit/federated/test_topdown_bill.py, tests/unit/federated/test_local_choice.py.

References:
    Wang, Dick & Balcan 2020, Algorithm 1, LocalRNM and SingleMachine.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from miners.budget.plan import SMALLEST, Recipe, Step, StepName, StepQuery, spread
from miners.federated.federation import CountSource, FederatedParts, OwnerTally, pooled
from miners.federated.growing import (
    Answer,
    FederatedStrategy,
    HeldNode,
    SplitSet,
    branch,
    gather,
)
from miners.fitted.node import Split
from miners.growth.candidates import impurity_reduction, score_of
from pinq.language.specs import MAX_PARTS, bind
from pinq.public.checks import many
from pinq.public.epsilon import ZERO, Epsilon
from pinq.public.schema import Schema

MIN_GAIN = 0.002  # the least gain of a split; 0.01 in Wang et al., sec. 4, with nothing else against noise
MIN_SHARE = 0.1  # over max_nodes: the least share of all rows in a split node; epsilon / M there


@dataclass(frozen=True)
class FoundSplit:
    """A split for a node, with the counts of its children.

    Attributes:
        split: The split.
        below: The noisy class counts of each part of the split, by owner.
        paid: The cost of the search, at each owner with queries.
    """

    split: Split
    below: Sequence[Answer]
    paid: dict[str, Epsilon]

    def gain(self, source: CountSource, strategy: FederatedStrategy) -> float:
        """The reduction of impurity, by the remaining owners."""
        table = np.array([pooled(source.living(answer)).counts for answer in self.below])
        return float(impurity_reduction(strategy.criterion, table[:, : strategy.problem.classes]))


@dataclass(frozen=True, kw_only=True)
class BestFirst(FederatedStrategy):
    """Best-first growth of a tree, by summed histograms of all owners (Wang et al., sec. 3).

    One table for each column serves all of its splitting functions, so each table of n columns gets 1/n of the share,
    not 1/|H|.

    With ``decay`` each level gets half of the one above it (renormalized, privacy.md 5); below ``depth`` there is no
    search.

    Attributes:
        functions: The splitting functions of each column.
        at_once: The number of nodes that are split before the search for their children's splits; 1 is exactly
            Algorithm 1.
    """

    functions: Sequence[SplitSet]
    decay: bool
    at_once: int

    @property
    def together(self) -> int:
        """The number of nodes whose classes one query can count in the widest table."""
        widest = max(bind(functions.base, self.problem.schema).size for functions in self.functions)
        return max(1, MAX_PARTS // (widest * self.problem.cells))

    @cached_property
    def costs(self) -> tuple[Epsilon, ...]:
        """The epsilon for a node of each level, from the root down."""
        if not self.depth:
            return ()
        # Three levels that share .7: .4, .2 and .1 with decay.
        weights = [2 ** (self.depth - 1 - level) if self.decay else 1 for level in range(self.depth)]
        return spread(self.problem.epsilon - self.leaves, weights)

    def recipe(self) -> Recipe:
        levels = tuple(self.level_steps(level, share) for level, share in enumerate(self.costs))
        leaves = self.leaf_step(self.depth, self.problem.epsilon - sum(self.costs, ZERO))
        return Recipe(self.problem.epsilon, levels, (leaves,))

    def steps(self) -> list[Step]:
        recipe = self.recipe()
        return [step for steps in (*recipe.levels, recipe.leaf) for step in steps]

    def level_steps(self, level: int, epsilon: Epsilon) -> tuple[Step, ...]:
        """The tables that each node of a level queries, which cost ``epsilon`` in all."""

        def noise(epsilon: Epsilon) -> tuple[float, str]:
            return self.count_noise(max(SMALLEST, epsilon // len(self.functions)))

        return (Step(StepQuery(StepName.TABLES, "noisy_count", "tables of every attribute", noise), level, epsilon),)

    def count_epsilon(self, steps: Sequence[Step], owners: int) -> Epsilon:
        """The smallest loss of a count in the steps of a level, for a number of owners."""
        (tables,) = steps
        return tables.epsilon // len(self.functions)

    def find(self, source: CountSource, nodes: FederatedParts, steps: Sequence[Step]) -> list[FoundSplit]:
        epsilon = self.count_epsilon(steps, len(source.owners))
        losses = dict.fromkeys(source.owners, epsilon)
        answers = self.count(source, [(nodes.partition(one.base, self.classes), losses) for one in self.functions])
        # By column, for each node the tables of its parts.
        tables = [
            {
                name: OwnerTally(tally.counts.reshape(len(nodes), -1, self.problem.cells), tally.variance)
                for name, tally in answer.items()
            }
            for answer in answers
        ]
        summed = [pooled(source.living(table)).counts for table in tables]
        reductions = [
            impurity_reduction(self.criterion, one.tables(counts)[..., : self.problem.classes])
            for one, counts in zip(self.functions, summed, strict=True)
        ]
        # The best of all functions: with 10 thresholds and 3 groups, number 11 is function 1 of
        # column 1.
        places = [(column, number) for column, one in enumerate(self.functions) for number in range(len(one.splits))]
        best = [places[number] for number in np.concatenate(reductions, axis=1).argmax(axis=1)]
        paid = dict.fromkeys(losses, epsilon * len(self.functions))
        return [
            FoundSplit(self.functions[column].splits[number], self._below(column, number, tables[column], row), paid)
            for row, (column, number) in enumerate(best)
        ]

    def _below(self, column: int, number: int, table: Answer, row: int) -> list[Answer]:
        """The counts of the children of a split, added up from its column's table."""
        # Three intervals with 5, 2 and 4 rows: below the second threshold, 1 1 0, are 7 rows, with
        # the noise of two counts.
        return [
            {name: OwnerTally(part @ tally.counts[row], tally.variance * part.sum()) for name, tally in table.items()}
            for part in self.functions[column].merges[number]
        ]

    def grow(self, source: CountSource) -> list[HeldNode]:
        growth = _Growth(source, self)
        growth.seek(growth.nodes)
        splits = 0
        while growth.queue and splits < self.max_nodes:
            count = min(self.at_once, self.max_nodes - splits, len(growth.queue))
            batch = [heapq.heappop(growth.queue)[1] for _ in range(count)]
            splits += len(batch)
            children = growth.split(batch)
            if splits < self.max_nodes:  # no query after the last split
                growth.seek(children)
        # The counts of unsplit nodes are paid, so they are used.
        for number, proposal in growth.proposals.items():
            below = {name: pooled([answer[name] for answer in proposal.below]) for name in proposal.below[0]}
            growth.nodes[number].answers.append(below)
        self.ask_leaves(source, [node for node in growth.nodes if node.split is None])
        return growth.nodes


class _Growth:
    """A tree while it grows.

    Attributes:
        proposals: The splits found for unsplit nodes, by the nodes' numbers.
        queue: The proposals with enough gain, as a heap: the negative gain in rows, and the number.
    """

    def __init__(self, source: CountSource, strategy: BestFirst) -> None:
        self.source, self.strategy, self.recipe = source, strategy, strategy.recipe()
        self.nodes = [HeldNode(parts=source.parts())]
        self.proposals: dict[int, FoundSplit] = {}
        self.queue: list[tuple[float, int]] = []

    def split(self, numbers: Sequence[int]) -> list[HeldNode]:
        parents = [self.nodes[number] for number in numbers]
        proposals = {parent: self.proposals.pop(number) for parent, number in zip(parents, numbers, strict=True)}
        splits = [proposals[parent].split for parent in parents]
        children = branch(self.strategy.schema, self.nodes, parents, splits)
        for parent in parents:
            for child, answer in zip(parent.children, proposals[parent].below, strict=True):
                self.nodes[child].answers.append(answer)
        return children

    def seek(self, nodes: Sequence[HeldNode]) -> None:
        """Searches splits for the newest nodes that are large enough, those of one level together.

        Queues those with enough gain.
        """
        # The newest nodes stand at the end of all: of 7 nodes the last 2 have the numbers 5 and 6.
        number_of = dict(zip(nodes, range(len(self.nodes) - len(nodes), len(self.nodes)), strict=True))
        by_level: dict[int, list[HeldNode]] = defaultdict(list)
        for node in nodes:
            if self._is_large_enough(node):
                by_level[node.level].append(node)
        for level, alike in sorted(by_level.items()):
            for start in range(0, len(alike), self.strategy.together):
                parts, ordered = gather(alike[start : start + self.strategy.together])
                splits = self.strategy.find(self.source, parts, self.recipe.levels[level])
                for node, proposal in zip(ordered, splits, strict=True):
                    self._queue(number_of[node], node, proposal)

    def _queue(self, number: int, node: HeldNode, proposal: FoundSplit) -> None:
        for name, paid in proposal.paid.items():
            node.pay(name, paid)
        self.proposals[number] = proposal
        # A gain of .1 in 500 rows is split before one of .3 in 100: 50 before 30.
        gain = proposal.gain(self.source, self.strategy)
        if gain > MIN_GAIN:
            heapq.heappush(self.queue, (-gain * self._rows(node), number))

    def _rows(self, node: HeldNode) -> float:
        """The estimated rows of a node; ``max_rows`` for a root without an answer."""
        if not node.answers:
            return float(self.strategy.schema.max_rows)
        node.pool(self.source)
        return max(0.0, node.rows)

    def _is_large_enough(self, node: HeldNode) -> bool:
        """Whether a node's rows exceed the noise below it, and a small share of all rows."""
        if node.level >= self.recipe.depth:
            return False
        epsilon = self.strategy.count_epsilon(self.recipe.levels[node.level], len(self.source.owners))
        if not epsilon:
            return False
        if not node.answers:
            return True
        # Two owners with a variance of 32 for each count, two classes: the four counts of a split
        # in two deviate by sqrt(64 * 4) = 16 rows together, and a smaller node is left alone.
        variance = sum(self.source.variance(name, epsilon) for name in self.source.owners)
        noise = math.sqrt(variance * 2 * self.strategy.problem.classes)
        whole = sum(self._rows(self.nodes[child]) for child in self.nodes[0].children)
        return self._rows(node) >= max(noise, MIN_SHARE / self.strategy.max_nodes * whole)


class LocalChoice(BestFirst):
    """Each owner chooses a split by its own rows; histograms from all owners decide among those.

    It is LocalRNM of the paper; with one owner, SingleMachine. A node with m different choices has m histograms, each
    at 1/2m of the share.
    """

    def level_steps(self, level: int, epsilon: Epsilon) -> tuple[Step, ...]:
        """The choice, and the histograms below the chosen splits."""

        def noise(epsilon: Epsilon) -> tuple[float, str]:
            return self.count_noise(max(SMALLEST, epsilon // self.owners))

        text = f"classes below at most {many(self.owners, 'choice')}"
        numbers = self.owners * self.parts * self.problem.cells
        histograms = StepQuery(StepName.CLASSES, "noisy_count", text, noise, numbers=numbers)
        half = epsilon // 2
        return self.choice_step(level, "best split, of each owner", half), Step(histograms, level, epsilon - half)

    def count_epsilon(self, steps: Sequence[Step], owners: int) -> Epsilon:
        """The loss of a histogram if all owners choose differently."""
        _, histograms = steps
        return histograms.epsilon // owners

    def find(self, source: CountSource, nodes: FederatedParts, steps: Sequence[Step]) -> list[FoundSplit]:
        choice, histograms = steps
        candidates = [split for function in self.functions for split in function.splits]
        losses = dict.fromkeys(source.owners, choice.epsilon)
        score = score_of(self.criterion, self.target)
        chosen = nodes.exp_mech(candidates, score=score, epsilon=losses, reuse=self.reuse)
        # No path uses up a split that was declared, so every owner chooses one for every node.
        proposed = [
            [split for split in dict.fromkeys(node_splits) if split is not None]
            for node_splits in zip(*chosen.values(), strict=True)
        ]
        by_node: list[list[FoundSplit]] = [[] for _ in proposed]
        requests = self._histograms(source, nodes, proposed, histograms.epsilon)
        answers = self.count(source, [(cells, losses) for cells, losses, _ in requests])
        for (_, losses, splits), answer in zip(requests, answers, strict=True):
            below = _by_split(self.schema, splits.values(), answer)
            for (row, split), children in zip(splits.items(), below, strict=True):
                # A choice at .1, and two proposals at half of .1 each: .2.
                paid = {name: choice.epsilon + len(proposed[row]) * loss for name, loss in losses.items()}
                by_node[row].append(FoundSplit(split, children, paid))
        return [max(node_splits, key=lambda split: split.gain(source, self)) for node_splits in by_node]

    def _histograms(
        self, source: CountSource, nodes: FederatedParts, proposed: Sequence[Sequence[Split]], epsilon: Epsilon
    ) -> list[tuple[FederatedParts, dict[str, Epsilon], dict[int, Split]]]:
        """The parts below every proposal, their losses, and each node's split.

        ``epsilon`` is for all proposals of a node: of three nodes with 1, 2 and 2 proposals the first is in one query
        at all of it, the others are in two, at half of it each.
        """
        requests = []
        for count in sorted({len(node_splits) for node_splits in proposed}):
            rows = [row for row, node_splits in enumerate(proposed) if len(node_splits) == count]
            losses = dict.fromkeys(source.owners, epsilon // count)
            for rank in range(count):
                splits = {row: proposed[row][rank] for row in rows}
                cells = nodes[rows].partition([(split, self.classes) for split in splits.values()])
                requests.append((cells, losses, splits))
        return requests


def _by_split(schema: Schema, splits: Iterable[Split], answer: Answer) -> Iterator[list[Answer]]:
    """For each split the counts of each of its children, from one answer."""
    rows = itertools.count()
    for split in splits:
        # Splits in 2 and 3 parts: rows 0 and 1 of the answer, then rows 2 to 4.
        yield [
            {name: OwnerTally(tally.counts[row], tally.variance) for name, tally in answer.items()}
            for row in itertools.islice(rows, bind(split, schema).size)
        ]
