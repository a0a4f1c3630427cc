# SPDX-License-Identifier: Apache-2.0
"""Which attributes an attribute's values are compared by: DILCA's context, chosen through a private handle.

A ``ContextTask`` is all that is public: splits, targets, method, shares of the budget. ``select``
asks, and returns a context for each target.

Privacy:
    Adjacency: the policy's. Claim: ``select`` costs ``task.selecting`` exactly.
    Why: each choice and each table is one request of the handle at one share; shares are whole
    nano-epsilons that add up to the claim, and what is asked next follows noisy answers alone. One
    table of two attributes serves both as targets, by post-processing.
    Exact: nano-epsilons. Held by: tests/unit/distances/test_dilca.py,
    tests/privacy/test_dilca_releases.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from miners.budget.noise import count_scale
from miners.budget.schedule import spread
from miners.distances.arithmetic import symmetric_uncertainty
from pinq.public.epsilon import exact
from pinq.public.schema import Schema
from pinq.public.scores import MutualInformation
from pinq.public.specs import AnyCross, Cuts, Values, bind

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["METHODS", "ContextTask", "NoisyTable", "ask_tables", "mean_context", "predominant_context", "select"]

METHODS = ("max_relevance", "max_dependency", "mean_su", "baseline")

Pair = tuple[str, str]


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

    def joined(self, other: NoisyTable | None) -> NoisyTable:
        """Both releases in one, weighted by how exact they are: never noisier than the better one."""
        if other is None:
            return self
        mine, theirs = self.scale**-2, other.scale**-2
        return NoisyTable((self.counts * mine + other.counts * theirs) / (mine + theirs), (mine + theirs) ** -0.5)


@dataclass(frozen=True)
class ContextTask:
    """What is to be learned: all public, all checked.

    Attributes:
        splits: How each attribute is cut into values, in the schema's order.
        targets: The attributes whose values are to be compared.
        size: Attributes in a context, for the methods that fix it.
        selecting: nano-epsilons for choosing contexts, 0 where there is nothing to choose. The
            baseline's only tables are chosen by, so it is all.
        telling: nano-epsilons for the tables that distances are computed from, 0 for the baseline.
    """

    schema: Schema
    splits: Mapping[str, Values | Cuts]
    targets: tuple[str, ...]
    method: str
    size: int
    selecting: int
    telling: int

    @property
    def total(self) -> Fraction:
        """What all of it costs."""
        return exact(self.selecting + self.telling)

    def others(self, target: str) -> tuple[str, ...]:
        """What a target's context can be chosen from."""
        return tuple(name for name in self.splits if name != target)

    def parts(self, name: str) -> int:
        """How many values an attribute has."""
        return bind(self.splits[name], self.schema).size

    @property
    def choices(self) -> int:
        """How many noisy choices are made."""
        if not self.selecting or self.method not in ("max_relevance", "max_dependency"):
            return 0
        return len(self.targets) * (self.size if self.method == "max_relevance" else 1)

    @property
    def surveyed(self) -> tuple[Pair, ...]:
        """The pairs of attributes whose tables contexts are chosen by."""
        if self.method == "baseline":
            return tuple(itertools.combinations(self.splits, 2))
        return self.pairs({target: self.others(target) for target in self.targets}) if self.method == "mean_su" else ()

    @property
    def most_pairs(self) -> int:
        """The most tables that contexts can need."""
        size = self.size if self.choices else len(self.splits) - 1
        return min(len(self.targets) * size, len(self.pairs({target: self.others(target) for target in self.targets})))

    def pairs(self, contexts: Mapping[str, Sequence[str]]) -> tuple[Pair, ...]:
        """The pairs of attributes that contexts need tables of, each once, in the schema's order."""
        order = {name: place for place, name in enumerate(self.splits)}
        needed = {
            (target, name) if order[target] < order[name] else (name, target)
            for target, context in contexts.items()
            for name in context
        }
        return tuple(sorted(needed, key=lambda pair: (order[pair[0]], order[pair[1]])))


def select(handle: PrivateQueryable, task: ContextTask) -> tuple[dict[str, tuple[str, ...]], dict[Pair, NoisyTable]]:
    """A context for each target, and the tables that were released on the way.

    Every line that asks is one request for a pair or for a target; the whole costs
    ``task.selecting``.
    """
    if not task.selecting:
        return {target: task.others(target) for target in task.targets}, {}
    if task.method == "max_relevance":
        shares = iter(spread(task.selecting, [1] * task.choices))
        return {
            target: _most_relevant(handle, task, target, [next(shares) for _ in range(task.size)])
            for target in task.targets
        }, {}
    if task.method == "max_dependency":
        shares = iter(spread(task.selecting, [1] * task.choices))
        return {target: _most_telling(handle, task, target, next(shares)) for target in task.targets}, {}
    tables = ask_tables(handle, task, task.surveyed, task.selecting)
    uncertain = {pair: symmetric_uncertainty(table.counts, table.scale) for pair, table in tables.items()}
    uncertain |= {(second, first): value for (first, second), value in uncertain.items()}
    choose = predominant_context if task.method == "baseline" else mean_context
    return {target: choose(uncertain, target, task.others(target)) for target in task.targets}, tables


def ask_tables(handle: PrivateQueryable, task: ContextTask, pairs: Sequence[Pair], nano: int) -> dict[Pair, NoisyTable]:
    """A noisy table of each pair of attributes, for ``nano`` nano-epsilons together."""
    found = {}
    for pair, share in zip(pairs, spread(nano, [1] * len(pairs)), strict=True):
        counts = handle.partition(task.splits[pair[0]], task.splits[pair[1]]).noisy_count(epsilon=exact(share))
        found[pair] = NoisyTable(np.asarray(counts, dtype=np.float64), count_scale(task.schema, exact(share)))
    return found


def mean_context(uncertain: Mapping[Pair, float], target: str, others: Sequence[str]) -> tuple[str, ...]:
    """DILCA_M: the attributes whose symmetric uncertainty with the target is at least the mean of all."""
    values = [uncertain[target, name] for name in others]
    mean = math.fsum(values) / len(values)
    # The largest is never below the mean but for rounding.
    return tuple(name for name, value in zip(others, values, strict=True) if value >= min(mean, max(values)))


def predominant_context(uncertain: Mapping[Pair, float], target: str, others: Sequence[str]) -> tuple[str, ...]:
    """DILCA_RR: from the most relevant attribute down, those that no attribute kept before makes redundant.

    An attribute is redundant beside one that it shares more with than with the target (Yu & Liu
    2003; Ienco et al. 2012).
    """
    kept: list[str] = []
    for name in sorted(others, key=lambda name: -uncertain[target, name]):
        if not kept or (
            uncertain[target, name] > 0 and all(uncertain[one, name] < uncertain[target, name] for one in kept)
        ):
            kept.append(name)
    return tuple(name for name in others if name in kept)


def _score(task: ContextTask, target: str) -> MutualInformation:
    split = task.splits[target]
    return MutualInformation(split if isinstance(split, Cuts) else split.column)


def _most_relevant(handle: PrivateQueryable, task: ContextTask, target: str, shares: Sequence[int]) -> tuple[str, ...]:
    """One noisy choice after the other, without replacement."""
    left = {name: task.splits[name] for name in task.others(target)}
    for share in shares:
        chosen: Any = handle.exp_mech(list(left.values()), score=_score(task, target), epsilon=exact(share))
        del left[chosen.column]
    return tuple(name for name in task.others(target) if name not in left)


def _most_telling(handle: PrivateQueryable, task: ContextTask, target: str, share: int) -> tuple[str, ...]:
    """One noisy choice among all sets of so many attributes, each scored by its joint values."""
    family = AnyCross(tuple(task.splits[name] for name in task.others(target)), task.size)
    chosen: Any = handle.exp_mech([family], score=_score(task, target), epsilon=exact(share))
    return tuple(spec.column for spec in getattr(chosen, "specs", (chosen,)))
