# SPDX-License-Identifier: Apache-2.0
"""DP-DILCA as it was published: Algorithms 1 to 5 with the paper's sensitivities, under substitution with a public number of rows.

Written from the paper. Choices: exponential mechanism with exp(epsilon I' / (2 GS)), GS = 2/N (1/ln 2 + lg N). Tables: continuous Laplace noise of scale
2/epsilon, negative cells taken as zero. MeanSU: Laplace noise on each of 2m - 1 entropies, divided by *exact* entropies as the authors' code does, which
is not private; it is kept so that nothing is taken from the peer.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence

import numpy as np
import pandas as pd

from benchmarks.papers.dilca.oracle import Oracle

__all__ = ["choice_law", "entropy_sensitivity", "fit", "noisy_distances", "noisy_oracle", "seconds"]


def entropy_sensitivity(rows: int) -> float:
    """Theorem 5."""
    return (1 / math.log(2) + math.log2(rows)) / rows


def choice_law(relevances: Sequence[float], rows: int, epsilon: float) -> np.ndarray:
    """Probabilities of the exponential mechanism over I', by Theorem 6."""
    weights = np.asarray(relevances) * epsilon / (2 * 2 * entropy_sensitivity(rows))
    found: np.ndarray = np.exp(weights - weights.max())
    return found / found.sum()


def fit(
    oracle: Oracle, target: int, method: str, epsilon: float, k: int, h: float, random: np.random.Generator
) -> tuple[tuple[int, ...], np.ndarray]:
    """Algorithm 2 (or 1, for the baseline) for one target: the context and the distances between its values."""
    if method == "baseline":
        noisy = noisy_oracle(oracle, epsilon, random)
        context = noisy.context("baseline", target, k)
        return context, noisy_distances([noisy.noisy[target, name] for name in context])
    context = CONTEXTS[method](oracle, target, epsilon * h, k, random)
    share = epsilon * (1 - h) / len(context)
    return context, noisy_distances(
        [
            oracle.table(target, name) + random.laplace(0, 2 / share, oracle.table(target, name).shape)
            for name in context
        ]
    )


def noisy_distances(tables: Sequence[np.ndarray]) -> np.ndarray:
    counts = [np.maximum(table, 0.0) for table in tables]
    laws = [
        np.divide(count, count.sum(axis=0), out=np.zeros_like(count), where=count.sum(axis=0) > 0) for count in counts
    ]
    law = np.concatenate(laws, axis=1)
    found: np.ndarray = np.sqrt(((law[:, None] - law[None]) ** 2).mean(axis=2))
    return found


def _mean_su(oracle: Oracle, target: int, epsilon: float, k: int, random: np.random.Generator) -> tuple[int, ...]:
    """Algorithm 3."""
    scale = entropy_sensitivity(oracle.rows) * (2 * len(oracle.sizes) - 1) / epsilon
    own = oracle.entropy(frozenset([target]))
    noisy_own = own + random.laplace(0, scale)
    values = {}
    for name in oracle.others(target):
        other = oracle.entropy(frozenset([name]))
        joint = oracle.entropy(frozenset([target, name])) + random.laplace(0, scale)
        values[name] = (
            2 * (other + random.laplace(0, scale) + noisy_own - joint) / (own + other) if own + other > 0 else 0.0
        )
    mean = sum(values.values()) / len(values)
    return tuple(name for name, value in values.items() if value >= mean)


def _max_relevance(oracle: Oracle, target: int, epsilon: float, k: int, random: np.random.Generator) -> tuple[int, ...]:
    """Algorithm 4."""
    left, chosen = oracle.others(target), []
    for _ in range(min(k, len(left))):
        law = choice_law([oracle.relevance(target, [name]) for name in left], oracle.rows, epsilon / k)
        chosen.append(left.pop(int(random.choice(len(left), p=law))))
    return tuple(sorted(chosen))


def _max_dependency(
    oracle: Oracle, target: int, epsilon: float, k: int, random: np.random.Generator
) -> tuple[int, ...]:
    """Algorithm 5."""
    names = list(itertools.combinations(oracle.others(target), k))
    law = choice_law([oracle.relevance(target, one) for one in names], oracle.rows, epsilon)
    return names[int(random.choice(len(names), p=law))]


CONTEXTS = {"mean_su": _mean_su, "max_relevance": _max_relevance, "max_dependency": _max_dependency}


class _Noisy(Oracle):
    """DILCA_RR from noisy tables."""

    noisy: dict[tuple[int, int], np.ndarray]

    def uncertainty(self, one: int, other: int) -> float:
        counts = np.maximum(self.noisy[one, other], 0.0)
        rows, columns, joint = (_entropy(part) for part in (counts.sum(axis=1), counts.sum(axis=0), counts.ravel()))
        return 2 * (rows + columns - joint) / (rows + columns) if rows + columns > 1e-12 else 0.0


def noisy_oracle(oracle: Oracle, epsilon: float, random: np.random.Generator) -> _Noisy:
    """Algorithm 1: noisy tables of all pairs for ``epsilon`` together, from which each target's context and distances follow."""
    share = epsilon / math.comb(len(oracle.sizes), 2)
    noisy = _Noisy(oracle.codes, oracle.sizes)
    noisy.noisy = {}
    for one, other in itertools.combinations(oracle.attributes, 2):
        table = oracle.table(one, other) + random.laplace(0, 2 / share, oracle.table(one, other).shape)
        noisy.noisy[one, other], noisy.noisy[other, one] = table, table.T
    return noisy


def _entropy(counts: np.ndarray) -> float:
    total = counts.sum()
    shares = counts[counts > 0] / total if total > 0 else np.zeros(0)
    return float(-(shares * np.log2(shares)).sum())


def seconds(frame: pd.DataFrame, method: str, k: int, sample: int | None = None) -> float:
    """CPU seconds for choosing the contexts of all attributes of a table by one pandas group-by for each candidate context, as the authors' code counts.

    Args:
        frame: The table, as text.
        method: "max_relevance" or "max_dependency".
        k: Attributes in a context.
        sample: Time only so many candidates, evenly spread, and scale up; all by default.
    """
    names = list(frame.columns)
    size = 1 if method == "max_relevance" else k
    jobs = [
        (target, subset)
        for target in names
        for subset in itertools.combinations([name for name in names if name != target], size)
    ]
    picked = (
        jobs
        if sample is None or sample >= len(jobs)
        else [jobs[i] for i in np.linspace(0, len(jobs) - 1, sample).astype(int)]
    )
    began = time.process_time()
    for target, subset in picked:
        counts = frame.groupby([*subset, target], observed=True).size()
        alone = counts.groupby(level=list(range(size))).sum()
        _entropy(alone.to_numpy(dtype=float)) - _entropy(counts.to_numpy(dtype=float))
    return (time.process_time() - began) * len(jobs) / len(picked)
