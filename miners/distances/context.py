# SPDX-License-Identifier: Apache-2.0
"""This module chooses DILCA's contexts: the attributes by which a target's values are compared.

``select`` asks a private handle, and returns a context for each target of a ``ContextTask``.

Privacy:
    Adjacency: the policy's. Claim: ``select`` costs ``task.selection_epsilon`` exactly.
    Why: each choice and each table is one request of the handle at one share; shares are whole
    nano-epsilons that add up to the claim, and what is asked next follows noisy answers alone. One
    table of two attributes serves both as targets, by post-processing.
    Exact: nano-epsilons. Held by: tests/unit/distances/test_dilca.py,
    tests/privacy/test_dilca_releases.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np

from miners.budget.plan import count_scale
from miners.budget.recipe import spread
from miners.distances.arithmetic import symmetric_uncertainty
from miners.distances.task import ContextTask, Pair
from pinq.public.epsilon import Epsilon
from pinq.public.scores import MutualInformation
from pinq.public.specs import AnyCross, Cuts, Splitting, Values

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["NoisyTable", "ask_tables", "mean_context", "predominant_context", "select", "tables_of"]


@dataclass(frozen=True)
class NoisyTable:
    """A released table of counts of two attributes.

    Attributes:
        counts: Shape (parts of the first, parts of the second).
        scale: Scale of the noise; that of the Laplace law of the same variance where two releases
            were joined.
    """

    counts: np.ndarray
    scale: float

    @property
    def transposed(self) -> NoisyTable:
        """Returns the table with its two attributes exchanged."""
        return NoisyTable(self.counts.T, self.scale)

    def joined(self, other: NoisyTable | None) -> NoisyTable:
        """Returns both releases in one, weighted by precision: never noisier than the better one.

        For example, 10 rows at scale 1 and 20 rows at scale 2 weigh 1 and 1/4: together they are 12
        rows at scale 0.89.
        """
        if other is None:
            return self
        own, others = self.scale**-2, other.scale**-2
        return NoisyTable((self.counts * own + other.counts * others) / (own + others), (own + others) ** -0.5)


def select(handle: PrivateQueryable, task: ContextTask) -> tuple[dict[str, tuple[str, ...]], dict[Pair, NoisyTable]]:
    """Returns a context for each target, and the tables that were released on the way.

    It costs ``task.selection_epsilon`` in all.
    """
    if not task.selection_epsilon:
        return {target: task.others(target) for target in task.targets}, {}
    if task.choices:
        return _chosen_contexts(handle, task), {}
    tables = ask_tables(handle, task, task.selection_pairs, task.selection_epsilon)
    uncertainty = {pair: symmetric_uncertainty(table.counts, table.scale) for pair, table in tables.items()}
    # Each pair is asked once, and looked up from both sides.
    uncertainty |= {(second, first): value for (first, second), value in uncertainty.items()}
    choose = predominant_context if task.method == "baseline" else mean_context
    return {target: choose(uncertainty, target, task.others(target)) for target in task.targets}, tables


def ask_tables(
    handle: PrivateQueryable, task: ContextTask, pairs: Sequence[Pair], epsilon: Epsilon
) -> dict[Pair, NoisyTable]:
    """Returns a noisy table of each pair of attributes, for ``epsilon`` together."""
    tables = {}
    for pair, share in zip(pairs, spread(epsilon, [1] * len(pairs)), strict=True):
        counts = handle.partition(task.splits[pair[0]], task.splits[pair[1]]).noisy_count(epsilon=share)
        tables[pair] = NoisyTable(np.asarray(counts, dtype=np.float64), count_scale(task.schema, share))
    return tables


def tables_of(target: str, context: Sequence[str], tables: Mapping[Pair, NoisyTable]) -> list[NoisyTable]:
    """Returns the target's table with each member of its context; its own values are the rows."""
    return [
        tables[target, other] if (target, other) in tables else tables[other, target].transposed for other in context
    ]


def mean_context(uncertainty: Mapping[Pair, float], target: str, others: Sequence[str]) -> tuple[str, ...]:
    """Returns the attributes whose uncertainty with the target is at least the mean (DILCA_M)."""
    # Uncertainties .5, .2 and .2 have the mean .3: only the first attribute is in the context.
    values = [uncertainty[target, name] for name in others]
    mean = math.fsum(values) / len(values)
    # The largest is never below the mean but for rounding.
    return tuple(name for name, value in zip(others, values, strict=True) if value >= min(mean, max(values)))


def predominant_context(uncertainty: Mapping[Pair, float], target: str, others: Sequence[str]) -> tuple[str, ...]:
    """Returns the attributes that no more relevant attribute makes redundant (DILCA_RR).

    An attribute is redundant beside a kept one that it shares at least as much with as with the
    target (Yu & Liu 2003; Ienco et al. 2012). For example, ``town`` shares 0.5 with the target and
    ``region`` 0.4; if the two share 0.6 with each other, ``region`` is left out.
    """
    kept: list[str] = []
    for name in sorted(others, key=lambda name: -uncertainty[target, name]):
        relevance = uncertainty[target, name]
        is_new = relevance > 0 and all(uncertainty[member, name] < relevance for member in kept)
        if is_new or not kept:
            kept.append(name)
    return tuple(name for name in others if name in kept)


def _chosen_contexts(handle: PrivateQueryable, task: ContextTask) -> dict[str, tuple[str, ...]]:
    """Returns the contexts of the max methods, each choice at an equal share."""
    shares = spread(task.selection_epsilon, [1] * task.choices)
    if task.method == "max_dependency":
        return {
            target: _most_dependent(handle, task, target, share)
            for target, share in zip(task.targets, shares, strict=True)
        }
    return {
        target: _most_relevant(handle, task, target, shares[number * task.size : (number + 1) * task.size])
        for number, target in enumerate(task.targets)
    }


def _score(task: ContextTask, target: str) -> MutualInformation:
    """Returns the score of a candidate: what it tells about the target's values."""
    split = task.splits[target]
    return MutualInformation(split if isinstance(split, Cuts) else split.column)


def _most_relevant(
    handle: PrivateQueryable, task: ContextTask, target: str, shares: Sequence[Epsilon]
) -> tuple[str, ...]:
    """Returns a context by one noisy choice after the other, without replacement."""
    # Two of four attributes: a choice among four, then one among the three that are left.
    remaining = {name: task.splits[name] for name in task.others(target)}
    for share in shares:
        answer = handle.exp_mech(list(remaining.values()), score=_score(task, target), epsilon=share)
        chosen = cast(Values | Cuts, answer)
        del remaining[chosen.column]
    return tuple(name for name in task.others(target) if name not in remaining)


def _most_dependent(handle: PrivateQueryable, task: ContextTask, target: str, share: Epsilon) -> tuple[str, ...]:
    """Returns a context by one noisy choice among all sets of ``task.size`` attributes.

    Each set is scored by its joint values.
    """
    family = AnyCross(tuple(task.splits[name] for name in task.others(target)), task.size)
    chosen = cast(Splitting, handle.exp_mech([family], score=_score(task, target), epsilon=share))
    return tuple(name for name in task.others(target) if name in chosen.columns())
