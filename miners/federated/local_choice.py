# SPDX-License-Identifier: Apache-2.0
"""Best-first growth in which each data owner proposes a split, and histograms of all owners decide.

It is LocalRNM of the paper; with one owner, SingleMachine.

Privacy:
    Claim: the search for a node's split costs an owner the level's share at most. Why: half of the
    share goes into the owner's choice, an exponential mechanism over public candidates; the other
    half is divided by the number of proposals for the node, and each proposal's histogram costs
    one such part. Fewer proposals never cost more. Held by:
    tests/unit/federated/test_topdown_bill.py, tests/unit/federated/test_local_choice.py.

References:
    Wang, Dick & Balcan 2020, LocalRNM and SingleMachine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from miners.budget.plan import SMALLEST, Step, StepName, StepQuery
from miners.federated.best_first import BestFirst, FoundSplit
from miners.federated.federation import FederatedParts, OwnerTally
from miners.federated.growing import Answer, GrowthTask
from miners.fitted.node import Split
from miners.growth.candidates import score_of
from pinq.language.specs import bind
from pinq.public.checks import many
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema


class LocalChoice(BestFirst):
    """Each owner chooses a split by its own rows; histograms from all owners decide among those.

    It is LocalRNM of the paper; with one owner, SingleMachine. Half of the share goes into the
    choice. A node with m different choices has queries for m histograms, at 1/2m of the share each.
    """

    def level_steps(self, level: int, epsilon: Epsilon) -> tuple[Step, ...]:
        """Returns the choice, and the histograms below what was chosen."""

        def noise(epsilon: Epsilon) -> tuple[float, str]:
            return self.count_noise(max(SMALLEST, epsilon // self.owners))

        text = f"classes below at most {many(self.owners, 'choice')}"
        numbers = self.owners * self.parts * self.problem.cells
        histograms = StepQuery(StepName.CLASSES, "noisy_count", text, noise, numbers=numbers)
        half = epsilon // 2
        return self.choice_step(level, "best split, of each owner", half), Step(histograms, level, epsilon - half)

    def count_epsilon(self, steps: Sequence[Step], owners: int) -> Epsilon:
        """Returns the loss of a histogram where all owners choose differently."""
        _, histograms = steps
        return histograms.epsilon // owners

    def find(self, task: GrowthTask, nodes: FederatedParts, steps: Sequence[Step]) -> list[FoundSplit]:
        """Lets the owners choose, then compares their choices."""
        choice, histograms = steps
        candidates = [split for function in self.functions for split in function.splits]
        losses = dict.fromkeys(task.source.owners, choice.epsilon)
        score = score_of(self.criterion, str(task.problem.target))
        chosen = nodes.exp_mech(candidates, score=score, epsilon=losses, reuse=task.reuse)
        # No path uses up a split that was declared, so every owner chooses one for every node.
        proposed = [
            [split for split in dict.fromkeys(node_splits) if split is not None]
            for node_splits in zip(*chosen.values(), strict=True)
        ]
        by_node: list[list[FoundSplit]] = [[] for _ in proposed]
        requests = _histograms(task, nodes, proposed, histograms.epsilon)
        answers = task.count([(cells, losses) for cells, losses, _ in requests])
        for (_, losses, splits), answer in zip(requests, answers, strict=True):
            below = _by_split(task.problem.schema, splits.values(), answer)
            for (row, split), children in zip(splits.items(), below, strict=True):
                # A choice at .1, and two proposals at half of .1 each: .2.
                paid = {name: choice.epsilon + len(proposed[row]) * loss for name, loss in losses.items()}
                by_node[row].append(FoundSplit(split, children, paid))
        return [max(node_splits, key=lambda split: split.gain(task, self.criterion)) for node_splits in by_node]


def _histograms(
    task: GrowthTask, nodes: FederatedParts, proposed: Sequence[Sequence[Split]], epsilon: Epsilon
) -> list[tuple[FederatedParts, dict[str, Epsilon], dict[int, Split]]]:
    """Returns the parts below every proposal, their losses, and each node's split.

    ``epsilon`` is for all proposals of a node: of three nodes with 1, 2 and 2 proposals the first
    is in a question at all of it, the others are in two, at half of it each.
    """
    # Proposals (a), (b, c) and (d, e) of three nodes: one request with a for the first node, then
    # one with b and d and one with c and e for the others.
    requests = []
    for count in sorted({len(node_splits) for node_splits in proposed}):
        rows = [row for row, node_splits in enumerate(proposed) if len(node_splits) == count]
        losses = dict.fromkeys(task.source.owners, epsilon // count)
        for rank in range(count):
            splits = {row: proposed[row][rank] for row in rows}
            cells = nodes[rows].partition([(split, task.classes) for split in splits.values()])
            requests.append((cells, losses, splits))
    return requests


def _by_split(schema: Schema, splits: Iterable[Split], answer: Answer) -> Iterator[list[Answer]]:
    """Takes an answer apart: for each split the counts of each of its children."""
    end = 0
    for split in splits:
        # Splits in 2 and 3 parts: rows 0 and 1 of the answer, then rows 2 to 4.
        start, end = end, end + bind(split, schema).size
        yield [
            {name: OwnerTally(tally.counts[row], tally.variance) for name, tally in answer.items()}
            for row in range(start, end)
        ]
