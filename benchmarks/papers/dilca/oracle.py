# SPDX-License-Identifier: Apache-2.0
"""DILCA without privacy, slow and obvious: what the private miner is compared with (Ienco, Pensa & Meo 2012; Battaglia et al. 2021, sec. 2.2 and 3)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

__all__ = ["Oracle", "f_score", "object_distances", "pearson"]


class Oracle:
    """DILCA on one table of codes.

    Args:
        codes: Shape (attributes, rows).
        sizes: Values of each attribute.
    """

    def __init__(self, codes: np.ndarray, sizes: Sequence[int]) -> None:
        self.codes, self.sizes = np.asarray(codes, dtype=np.int64), [int(size) for size in sizes]
        self.rows, self.attributes = self.codes.shape[1], range(len(self.sizes))
        self.entropy = lru_cache(maxsize=None)(self._entropy)
        self.table = lru_cache(maxsize=None)(self._table)

    def others(self, target: int) -> list[int]:
        return [name for name in self.attributes if name != target]

    def _table(self, target: int, name: int) -> np.ndarray:
        """Contingency table, shape (values of the target, values of the other)."""
        table = np.zeros((self.sizes[target], self.sizes[name]), dtype=np.int64)
        np.add.at(table, (self.codes[target], self.codes[name]), 1)
        return table

    def _entropy(self, names: frozenset[int]) -> float:
        """Joint entropy of some attributes, in bits."""
        key = np.zeros(self.rows, dtype=np.int64)
        for name in sorted(names):
            key = key * self.sizes[name] + self.codes[name]
        shares = np.unique(key, return_counts=True)[1] / self.rows
        return float(-(shares * np.log2(shares)).sum())

    def relevance(self, target: int, names: Sequence[int]) -> float:
        """I'(target, names) = H(names) - H(target, names): mutual information but for the constant H(target)."""
        return self.entropy(frozenset(names)) - self.entropy(frozenset([target, *names]))

    def uncertainty(self, one: int, other: int) -> float:
        """Symmetric uncertainty, 2 I / (H + H); 0 between constants."""
        each = self.entropy(frozenset([one])) + self.entropy(frozenset([other]))
        return 2 * (each - self.entropy(frozenset([one, other]))) / each if each > 1e-12 else 0.0

    def mean_su(self, target: int) -> tuple[int, ...]:
        """DILCA_M."""
        values = {name: self.uncertainty(target, name) for name in self.others(target)}
        mean = sum(values.values()) / len(values)
        return tuple(name for name, value in values.items() if value >= min(mean, max(values.values())))

    def baseline(self, target: int) -> tuple[int, ...]:
        """DILCA_RR: the most relevant first, without those that share more with one kept before than with the target."""
        kept: list[int] = []
        for name in sorted(self.others(target), key=lambda name: -self.uncertainty(target, name)):
            relevant = self.uncertainty(target, name)
            if not kept or (relevant > 0 and all(self.uncertainty(one, name) < relevant for one in kept)):
                kept.append(name)
        return tuple(sorted(kept))

    def max_relevance(self, target: int, k: int) -> tuple[int, ...]:
        """The k attributes of largest mutual information with the target."""
        return tuple(sorted(sorted(self.others(target), key=lambda name: -self.relevance(target, [name]))[:k]))

    def max_dependency(self, target: int, k: int) -> tuple[int, ...]:
        """The k attributes whose joint values have the largest mutual information with the target."""
        return max(itertools.combinations(self.others(target), k), key=lambda names: self.relevance(target, names))

    def context(self, method: str, target: int, k: int) -> tuple[int, ...]:
        """The context by a method's name, as ``DPDilca`` calls it."""
        if method in ("max_relevance", "max_dependency"):
            return tuple(getattr(self, method)(target, min(k, len(self.sizes) - 1)))
        return tuple(getattr(self, method)(target))

    def distances(self, target: int, context: Sequence[int]) -> np.ndarray:
        """Equation 1 of the paper, value by value."""
        size = self.sizes[target]
        found = np.zeros((size, size))
        for one, other in itertools.combinations(range(size), 2):
            squares, cells = 0.0, 0
            for name in context:
                table = self.table(target, name)
                for value in range(self.sizes[name]):
                    rows = table[:, value].sum()
                    squares += 0.0 if rows == 0 else ((table[one, value] - table[other, value]) / rows) ** 2
                    cells += 1
            found[one, other] = found[other, one] = (squares / cells) ** 0.5
        return found


def object_distances(matrices: Sequence[np.ndarray], left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Section 4.4: root of the sum over attributes of squared value distances; codes of shape (attributes, records)."""
    total = np.zeros((left.shape[1], right.shape[1]))
    for matrix, mine, theirs in zip(matrices, left, right, strict=True):
        total += (matrix**2)[mine][:, theirs]
    return np.asarray(np.sqrt(total))


def pearson(one: np.ndarray, other: np.ndarray, *, diagonal: bool = False) -> float:
    """Correlation of two distance matrices over pairs of different values, as the paper defines it; with the diagonal, as its code measures it.

    A constant matrix correlates with nothing: 0.
    """
    pick = np.ones(one.shape, dtype=bool) if diagonal else np.triu(np.ones(one.shape, dtype=bool), 1)
    a, b = one[pick], other[pick]
    if a.std() < 1e-12 or b.std() < 1e-12:
        return float(np.allclose(a, b))
    return float(np.corrcoef(a, b)[0, 1])


def f_score(wanted: Sequence[object], found: Sequence[object]) -> float:
    """Harmonic mean of precision and recall of a context."""
    common = len(set(wanted) & set(found))
    return 2 * common / (len(wanted) + len(found)) if common else 0.0
