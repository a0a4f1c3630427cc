# SPDX-License-Identifier: Apache-2.0
"""What growth asks of all holders at once: class counts of nodes, and choices of splits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from miners.estimator import public_schema
from miners.federated.federation import CountSource, FederatedParts, HolderQuestion, Tally
from miners.federated.held_node import Answer, HeldNode, gather
from miners.fitted.node import Split
from miners.trees.strategy import Problem, SplitCandidate
from pinq.errors import QueryError
from pinq.public.epsilon import Epsilon
from pinq.public.scores import Score
from pinq.public.specs import MAX_PARTS, Values

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["HistogramRequest", "Task", "ask_choices", "ask_counts", "ask_leaves", "one_handle"]

# Parts that one request names one by one; the layer takes more, a server's limit on bytes perhaps
# not.
MAX_NAMED = 2**14


@dataclass(frozen=True)
class Task:
    """What is to be learned, and of whom.

    Attributes:
        source: Whom to ask.
        problem: What is to be learned, at which cost at each holder.
        reuse: Whether stored answers to the same questions will do.
    """

    source: CountSource
    problem: Problem
    reuse: bool = False

    @property
    def target(self) -> str:
        """The column to predict."""
        return str(self.problem.target)


@dataclass(frozen=True)
class HistogramRequest:
    """A question for the classes of parts, or of what a split of each makes of it.

    Attributes:
        parts: Of which parts.
        epsilon: At which loss, by holder.
        splits: For each part its split; or one for all; None for the parts themselves.
        width: The most parts that a split makes.
    """

    parts: FederatedParts
    epsilon: Mapping[str, Epsilon]
    splits: Split | Sequence[Split] | None = None
    width: int = 1

    def questions(self, task: Task) -> list[HolderQuestion]:
        """Returns one question; several where one could not name so many parts.

        They are of disjoint parts, so they cost what one costs.
        """
        classes = Values(task.target)
        # Splits in 32 parts and 3 classes: 10,922 parts to a question, which has 1,048,512 cells
        # then.
        step = MAX_PARTS // (self.width * task.problem.cells)
        return [
            self._cells(parts, classes, chosen).question("noisy_count", epsilon=self.epsilon, reuse=task.reuse)
            for parts, chosen in _pieces(self.parts, step)
        ]

    def _cells(self, parts: FederatedParts, classes: Values, chosen: slice) -> FederatedParts:
        """Returns the cells of the histograms of some of the parts."""
        if self.splits is None:
            return parts.partition(classes)
        if isinstance(self.splits, Sequence):
            return parts.partition([(split, classes) for split in self.splits[chosen]])
        return parts.partition(self.splits, classes)


def ask_counts(task: Task, requests: Sequence[HistogramRequest]) -> list[Answer]:
    """Asks all requests in one round.

    Returns:
        For each the counts of shape (rows, cells), a row for each part, or each part of its split.
    """
    asked = [request.questions(task) for request in requests]
    answers = iter(task.source.tally([question for questions in asked for question in questions]))
    return [_joined(task.problem.cells, [next(answers) for _ in questions]) for questions in asked]


def _joined(cells: int, pieces: Sequence[Answer]) -> Answer:
    """Joins the pieces of one answer, one after the other."""
    return {
        name: Tally(np.concatenate([piece[name].counts.reshape(-1, cells) for piece in pieces]), tally.variance)
        for name, tally in pieces[0].items()
    }


def ask_choices(
    task: Task,
    parts: FederatedParts,
    candidates: Sequence[SplitCandidate],
    *,
    score: Score,
    epsilon: Mapping[str, Epsilon],
) -> dict[str, list[Split | None]]:
    """Lets each of some holders choose a split for each part, in one round.

    Very many parts are asked in several requests.
    """
    questions = [
        piece.question("exp_mech", epsilon=epsilon, candidates=candidates, score=score, reuse=task.reuse)
        for piece, _ in _pieces(parts, MAX_NAMED)
    ]
    answers = task.source.ask(questions)
    return {name: [split for answer in answers for split in answer[name]] for name in answers[0]}


def _pieces(parts: FederatedParts, step: int) -> list[tuple[FederatedParts, slice]]:
    """Returns a collection in pieces of at most so many parts, and which ones they are."""
    # 40,000 parts: two pieces of 16,384, and one of 7,232.
    step = max(1, min(step, MAX_NAMED))
    if len(parts) <= step:
        return [(parts, slice(None))]
    cuts = [slice(start, start + step) for start in range(0, len(parts), step)]
    return [(parts[cut], cut) for cut in cuts]


def ask_leaves(task: Task, leaves: Sequence[HeldNode]) -> None:
    """Asks for the class histograms of all leaves, in one round.

    Each is asked, at each holder, with all that its path has left there.
    """
    holders = task.source.holders
    # A leaf with .1 left here and .2 there is in one request with all others like it.
    by_left: dict[tuple[Epsilon, ...], list[HeldNode]] = defaultdict(list)
    for leaf in leaves:
        by_left[tuple(task.problem.epsilon - leaf.paid_at(name) for name in holders)].append(leaf)
    gathered = [gather(alike) for alike in by_left.values()]
    requests = [
        HistogramRequest(parts, dict(zip(holders, left, strict=True)))
        for left, (parts, _) in zip(by_left, gathered, strict=True)
    ]
    for answer, (_, ordered) in zip(ask_counts(task, requests), gathered, strict=True):
        for row, leaf in enumerate(ordered):
            leaf.answers.append({name: Tally(tally.counts[row], tally.variance) for name, tally in answer.items()})


def one_handle(handle: PrivateQueryable) -> PrivateQueryable:
    """Returns what was passed in place of a federation, unless it is several handles."""
    if isinstance(handle, (Mapping, list, tuple)):
        raise QueryError(
            f"`fit` learns from one handle or a Federation, not from a {type(handle).__name__}; wrap several "
            "handles: Federation([...])."
        )
    public_schema(handle)
    return handle
