# SPDX-License-Identifier: Apache-2.0
"""How best-first growth finds a split for each of some nodes: by noisy tables of all holders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from miners.budget.recipe import Step, StepName, StepQuestion
from miners.federated.asking import HistogramRequest, Task, ask_counts
from miners.federated.federation import FederatedParts, Tally
from miners.federated.held_node import Answer, pooled
from miners.federated.splitting import SplitSet
from miners.federated.strategy import FederatedStrategy
from miners.fitted.node import Split
from miners.growth.criteria import impurity_reduction
from pinq.public.epsilon import Epsilon
from pinq.public.specs import bind

__all__ = ["SMALLEST", "FoundSplit", "NoisyCounts"]

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

    def steps(self, strategy: FederatedStrategy, level: int, epsilon: Epsilon) -> tuple[Step, ...]:
        """Returns what each node of a level is asked, which costs ``epsilon`` in all: the tables."""

        def count_noise(epsilon: Epsilon) -> tuple[float, str]:
            return strategy.count_noise(max(SMALLEST, epsilon // len(self.functions)))

        tables = StepQuestion(StepName.TABLES, "noisy_count", "tables of every attribute", count_noise)
        return (Step(tables, level, epsilon),)

    def count_epsilon(self, steps: Sequence[Step], holders: int) -> Epsilon:
        """Returns the smallest loss at which these steps ask so many holders for a count."""
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
