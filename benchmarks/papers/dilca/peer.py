# SPDX-License-Identifier: Apache-2.0
"""DP-DILCA as it was published: Algorithms 1 to 5 with the paper's sensitivities.

Adjacency is substitution, with a public number of rows.

Written from the paper. Choices: exponential mechanism with exp(epsilon I' / (2 GS)),
GS = 2/N (1/ln 2 + lg N). Tables: continuous Laplace noise of scale 2/epsilon, negative cells taken
as zero. MeanSU: Laplace noise on each of 2m - 1 entropies, divided by *exact* entropies as the
authors' code does, which is not private; it is kept so that nothing is taken from the peer.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence

import numpy as np
import pandas as pd

from benchmarks.papers.dilca.oracle import Oracle

__all__ = [
    "NoisyOracle",
    "baseline_answer",
    "choice_law",
    "entropy_sensitivity",
    "fit",
    "noisy_distances",
    "noisy_oracle",
    "seconds",
]


def entropy_sensitivity(rows: int) -> float:
    """Returns how much one row changes an entropy at most, by Theorem 5."""
    return (1 / math.log(2) + math.log2(rows)) / rows


def choice_law(relevances: Sequence[float], rows: int, epsilon: float) -> np.ndarray:
    """Returns the probabilities of the exponential mechanism over I', by Theorem 6."""
    weights = np.asarray(relevances) * epsilon / (2 * 2 * entropy_sensitivity(rows))
    law: np.ndarray = np.exp(weights - weights.max())
    return law / law.sum()


def fit(
    oracle: Oracle, target: int, method: str, epsilon: float, k: int, h: float, random: np.random.Generator
) -> tuple[tuple[int, ...], np.ndarray]:
    """Returns the context of one target and the distances between its values.

    It is Algorithm 2, or Algorithm 1 for the baseline.
    """
    if method == "baseline":
        return baseline_answer(noisy_oracle(oracle, epsilon, random), target)
    context = CONTEXTS[method](oracle, target, epsilon * h, k, random)
    scale = 2 * len(context) / (epsilon * (1 - h))
    tables = [oracle.table(target, name) for name in context]
    return context, noisy_distances([table + random.laplace(0, scale, table.shape) for table in tables])


def noisy_distances(tables: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the distances between the values of a target, from its noisy tables with the context."""
    counts = [np.maximum(table, 0.0) for table in tables]
    laws = [
        np.divide(count, count.sum(axis=0), out=np.zeros_like(count), where=count.sum(axis=0) > 0) for count in counts
    ]
    law = np.concatenate(laws, axis=1)
    distances: np.ndarray = np.sqrt(((law[:, None] - law[None]) ** 2).mean(axis=2))
    return distances


def _mean_su(oracle: Oracle, target: int, epsilon: float, k: int, random: np.random.Generator) -> tuple[int, ...]:
    """Chooses by Algorithm 3."""
    scale = entropy_sensitivity(oracle.rows) * (2 * len(oracle.sizes) - 1) / epsilon
    own = oracle.entropy(frozenset([target]))
    noisy_own = own + random.laplace(0, scale)
    values = {}
    for name in oracle.others(target):
        other = oracle.entropy(frozenset([name]))
        noisy_joint = oracle.entropy(frozenset([target, name])) + random.laplace(0, scale)
        noisy_other = other + random.laplace(0, scale)
        values[name] = 2 * (noisy_other + noisy_own - noisy_joint) / (own + other) if own + other > 0 else 0.0
    mean = sum(values.values()) / len(values)
    return tuple(name for name, value in values.items() if value >= mean)


def _max_relevance(oracle: Oracle, target: int, epsilon: float, k: int, random: np.random.Generator) -> tuple[int, ...]:
    """Chooses by Algorithm 4."""
    left, chosen = oracle.others(target), []
    for _ in range(min(k, len(left))):
        law = choice_law([oracle.relevance(target, [name]) for name in left], oracle.rows, epsilon / k)
        chosen.append(left.pop(int(random.choice(len(left), p=law))))
    return tuple(sorted(chosen))


def _max_dependency(
    oracle: Oracle, target: int, epsilon: float, k: int, random: np.random.Generator
) -> tuple[int, ...]:
    """Chooses by Algorithm 5."""
    candidates = list(itertools.combinations(oracle.others(target), k))
    law = choice_law([oracle.relevance(target, names) for names in candidates], oracle.rows, epsilon)
    return candidates[int(random.choice(len(candidates), p=law))]


CONTEXTS = {"mean_su": _mean_su, "max_relevance": _max_relevance, "max_dependency": _max_dependency}


class NoisyOracle(Oracle):
    """DILCA_RR from noisy tables."""

    noisy: dict[tuple[int, int], np.ndarray]

    def uncertainty(self, left: int, right: int) -> float:
        counts = np.maximum(self.noisy[left, right], 0.0)
        rows, columns, joint = (_entropy(part) for part in (counts.sum(axis=1), counts.sum(axis=0), counts.ravel()))
        return 2 * (rows + columns - joint) / (rows + columns) if rows + columns > 1e-12 else 0.0


def noisy_oracle(oracle: Oracle, epsilon: float, random: np.random.Generator) -> NoisyOracle:
    """Returns noisy tables of all pairs for ``epsilon`` together, by Algorithm 1.

    Each target's context and distances follow from them.
    """
    scale = 2 * math.comb(len(oracle.sizes), 2) / epsilon
    noisy = NoisyOracle(oracle.codes, oracle.sizes)
    noisy.noisy = {}
    for left, right in itertools.combinations(oracle.attributes, 2):
        exact = oracle.table(left, right)
        table = exact + random.laplace(0, scale, exact.shape)
        noisy.noisy[left, right], noisy.noisy[right, left] = table, table.T
    return noisy


def baseline_answer(noisy: NoisyOracle, target: int) -> tuple[tuple[int, ...], np.ndarray]:
    """Returns the context of one target and the distances between its values, from noisy tables."""
    context = noisy.context("baseline", target, 0)
    return context, noisy_distances([noisy.noisy[target, name] for name in context])


def _entropy(counts: np.ndarray) -> float:
    total = counts.sum()
    shares = counts[counts > 0] / total if total > 0 else np.zeros(0)
    return float(-(shares * np.log2(shares)).sum())


def seconds(frame: pd.DataFrame, method: str, k: int, sample: int | None = None) -> float:
    """Returns the CPU seconds of choosing the contexts of all attributes by group-bys.

    The authors' code counts so: one pandas group-by for each candidate context.

    Args:
        frame: The table, as text.
        method: "max_relevance" or "max_dependency".
        k: Attributes in a context.
        sample: Time only so many candidates, evenly spread, and scale up; all by default.
    """
    names = list(frame.columns)
    size = 1 if method == "max_relevance" else k
    candidates = []
    for target in names:
        others = [name for name in names if name != target]
        candidates += [(target, subset) for subset in itertools.combinations(others, size)]
    n_timed = min(sample or len(candidates), len(candidates))
    timed = [candidates[i] for i in np.linspace(0, len(candidates) - 1, n_timed).astype(int)]
    began = time.process_time()
    for target, subset in timed:
        counts = frame.groupby([*subset, target], observed=True).size()
        alone = counts.groupby(level=list(range(size))).sum()
        _entropy(alone.to_numpy(dtype=float)) - _entropy(counts.to_numpy(dtype=float))
    return (time.process_time() - began) * len(candidates) / len(timed)
