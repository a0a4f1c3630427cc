# SPDX-License-Identifier: Apache-2.0
"""How best-first growth finds a split for each of some nodes: by choices, or by tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from miners.budget.recipe import Step, StepName, StepQuestion
from miners.federated.asking import HistogramRequest, Task, ask_choices, ask_counts
from miners.federated.federation import FederatedParts, Tally
from miners.federated.held_node import Answer, pooled
from miners.federated.splitting import SplitSet
from miners.federated.strategy import FederatedStrategy
from miners.fitted.node import Split
from miners.growth.criteria import impurity_reduction, score_of
from miners.trees.strategy import many
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema
from pinq.public.specs import bind

__all__ = ["FoundSplit", "LocalChoice", "NoisyCounts", "SplitFinder"]

SMALLEST = Epsilon(1)


@dataclass(frozen=True)
class FoundSplit:
    """A split for a node, and what is known of the children that it would have.

    Attributes:
        split: By what.
        below: For each part of the split, its noisy class counts by holder.
        paid: What finding that out cost, at each holder that was asked.
    """

    split: Split
    below: Sequence[Answer]
    paid: dict[str, Epsilon]

    def gain(self, task: Task, criterion: str) -> float:
        """Returns the reduction of impurity, by the holders that are still there."""
        table = np.array([pooled(task.source.living(answer)).counts for answer in self.below])
        return float(impurity_reduction(criterion, table[:, : task.problem.classes]))


class SplitFinder(Protocol):
    """How a strategy finds a split for each of some nodes."""

    @property
    def criterion(self) -> str:
        """By what splits are compared."""

    def steps(self, strategy: FederatedStrategy, level: int, epsilon: Epsilon, holders: int) -> tuple[Step, ...]:
        """Returns what each node of a level is asked, which costs ``epsilon`` in all.

        Args:
            strategy: What is to be learned, and how.
            level: Splits above the nodes.
            epsilon: What it may cost.
            holders: How many holders are asked.
        """

    def count_epsilon(self, steps: Sequence[Step], holders: int) -> Epsilon:
        """Returns the smallest loss at which these steps ask so many holders for a count."""

    def find(self, task: Task, nodes: FederatedParts, steps: Sequence[Step]) -> list[FoundSplit]:
        """Runs the steps; returns a split for each node."""


@dataclass(frozen=True)
class LocalChoice:
    """Each holder chooses a split by its own rows; histograms from all holders decide among those.

    It is LocalRNM of the paper; with one holder, SingleMachine. Half of the share goes into the
    choice. A node for which the holders made m different choices is asked for m histograms, at 1/2m
    of the share each.

    Attributes:
        functions: The splitting functions.
        criterion: By what holders choose, and by what the choices are compared.
    """

    functions: Sequence[SplitSet]
    criterion: str

    def steps(self, strategy: FederatedStrategy, level: int, epsilon: Epsilon, holders: int) -> tuple[Step, ...]:
        """Returns the choice, and the histograms below what was chosen."""

        def count_noise(epsilon: Epsilon) -> tuple[float, str]:
            return strategy.count_noise(max(SMALLEST, epsilon // holders))

        asked = f"classes below at most {many(holders, 'choice')}"
        numbers = holders * strategy.parts * strategy.problem.cells
        histograms = StepQuestion(StepName.CLASSES, "noisy_count", asked, count_noise, numbers=numbers)
        half = epsilon // 2
        choice = strategy.choice_step(level, "best split, of each holder", half)
        return choice, Step(histograms, level, epsilon - half)

    def count_epsilon(self, steps: Sequence[Step], holders: int) -> Epsilon:
        """Returns the loss of a histogram where all holders choose differently."""
        _, histograms = steps
        return histograms.epsilon // holders

    def find(self, task: Task, nodes: FederatedParts, steps: Sequence[Step]) -> list[FoundSplit]:
        """Lets the holders choose, then compares what they chose."""
        choice, histograms = steps
        candidates = [split for function in self.functions for split in function.splits]
        losses = dict.fromkeys(task.source.holders, choice.epsilon)
        score = score_of(self.criterion, task.target)
        chosen = ask_choices(task, nodes, candidates, score=score, epsilon=losses)
        # No path uses up a split that was declared, so every holder chooses one for every node.
        proposed = [
            [split for split in dict.fromkeys(own) if split is not None] for own in zip(*chosen.values(), strict=True)
        ]
        by_node: list[list[FoundSplit]] = [[] for _ in proposed]
        asked = _histograms(task, nodes, proposed, histograms.epsilon)
        answers = ask_counts(task, [request for request, _ in asked])
        for (request, splits), answer in zip(asked, answers, strict=True):
            below = _by_split(task.problem.schema, splits.values(), answer)
            for (row, split), children in zip(splits.items(), below, strict=True):
                # A choice at .1, and two proposals at half of .1 each: .2.
                paid = {name: choice.epsilon + len(proposed[row]) * loss for name, loss in request.epsilon.items()}
                by_node[row].append(FoundSplit(split, children, paid))
        return [max(own, key=lambda split: split.gain(task, self.criterion)) for own in by_node]


def _histograms(
    task: Task, nodes: FederatedParts, proposed: Sequence[Sequence[Split]], epsilon: Epsilon
) -> list[tuple[HistogramRequest, dict[int, Split]]]:
    """Returns the questions for the classes below every proposal, and each node's split in each.

    ``epsilon`` is for all proposals of a node: of three nodes with 1, 2 and 2 proposals the first
    is in a question at all of it, the others are in two, at half of it each.
    """
    # Proposals (a), (b, c) and (d, e) of three nodes: one request with a for the first node, then
    # one with b and d and one with c and e for the others.
    asked = []
    for count in sorted({len(own) for own in proposed}):
        rows = [row for row, own in enumerate(proposed) if len(own) == count]
        losses = dict.fromkeys(task.source.holders, epsilon // count)
        for rank in range(count):
            splits = {row: proposed[row][rank] for row in rows}
            width = max(bind(split, task.problem.schema).size for split in splits.values())
            asked.append((HistogramRequest(nodes[rows], losses, list(splits.values()), width), splits))
    return asked


def _by_split(schema: Schema, splits: Iterable[Split], answer: Answer) -> Iterator[list[Answer]]:
    """Takes an answer apart: for each split what it says of each child that the split makes."""
    end = 0
    for split in splits:
        # Splits in 2 and 3 parts: rows 0 and 1 of the answer, then rows 2 to 4.
        start, end = end, end + bind(split, schema).size
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

    def steps(self, strategy: FederatedStrategy, level: int, epsilon: Epsilon, holders: int) -> tuple[Step, ...]:
        """Returns the tables, as one step."""

        def count_noise(epsilon: Epsilon) -> tuple[float, str]:
            return strategy.count_noise(max(SMALLEST, epsilon // len(self.functions)))

        tables = StepQuestion(StepName.TABLES, "noisy_count", "tables of every attribute", count_noise)
        return (Step(tables, level, epsilon),)

    def count_epsilon(self, steps: Sequence[Step], holders: int) -> Epsilon:
        """Returns the loss of a table."""
        (tables,) = steps
        return tables.epsilon // len(self.functions)

    def find(self, task: Task, nodes: FederatedParts, steps: Sequence[Step]) -> list[FoundSplit]:
        """Asks for all tables at once, and compares all functions by them."""
        epsilon = self.count_epsilon(steps, len(task.source.holders))
        losses = dict.fromkeys(task.source.holders, epsilon)
        schema, cells, classes = task.problem.schema, task.problem.cells, task.problem.classes
        widths = [bind(function.base, schema).size for function in self.functions]
        requests = [
            HistogramRequest(nodes, losses, function.base, width)
            for function, width in zip(self.functions, widths, strict=True)
        ]
        answers = [
            {
                name: Tally(tally.counts.reshape(len(nodes), width, cells), tally.variance)
                for name, tally in answer.items()
            }
            for width, answer in zip(widths, ask_counts(task, requests), strict=True)
        ]
        reductions = [
            impurity_reduction(
                self.criterion, function.tables(pooled(task.source.living(answer)).counts)[..., :classes]
            )
            for function, answer in zip(self.functions, answers, strict=True)
        ]
        # The best of all functions, as the number of its column and of the function among those of
        # the column: with 10 thresholds and 3 groups, number 11 is function 1 of column 1.
        sizes = [len(function.splits) for function in self.functions]
        column = np.repeat(np.arange(len(sizes)), sizes)
        within = np.concatenate([np.arange(size) for size in sizes])
        best = np.concatenate(reductions, axis=1).argmax(axis=1)
        paid = dict.fromkeys(losses, epsilon * len(requests))
        return [
            self._merged(self.functions[column[number]], int(within[number]), row, answers[column[number]], paid)
            for row, number in enumerate(best)
        ]

    def _merged(
        self, functions: SplitSet, number: int, row: int, answer: Answer, paid: dict[str, Epsilon]
    ) -> FoundSplit:
        """Returns a node's best split, its children's counts added up from the column's table."""
        below = [
            # Three intervals with 5, 2 and 4 rows: below the second threshold, 1 1 0, are 7 rows,
            # with the noise of two counts.
            {name: Tally(part @ tally.counts[row], tally.variance * part.sum()) for name, tally in answer.items()}
            for part in functions.merges[number]
        ]
        return FoundSplit(functions.splits[number], below, paid)
