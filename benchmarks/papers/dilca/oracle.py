# SPDX-License-Identifier: Apache-2.0
"""DILCA without privacy, slow and obvious: what the private miner is compared with.

References:
    Ienco, Pensa & Meo 2012; Battaglia, Celano & Pensa 2021, sec. 2.2 and 3.
"""

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
        """Returns all attributes but one."""
        return [name for name in self.attributes if name != target]

    def _table(self, target: int, name: int) -> np.ndarray:
        """Returns the contingency table, shape (values of the target, values of the other)."""
        table = np.zeros((self.sizes[target], self.sizes[name]), dtype=np.int64)
        np.add.at(table, (self.codes[target], self.codes[name]), 1)
        return table

    def _entropy(self, names: frozenset[int]) -> float:
        """Returns the joint entropy of some attributes, in bits."""
        key = np.zeros(self.rows, dtype=np.int64)
        for name in sorted(names):
            key = key * self.sizes[name] + self.codes[name]
        shares = np.unique(key, return_counts=True)[1] / self.rows
        return float(-(shares * np.log2(shares)).sum())

    def relevance(self, target: int, names: Sequence[int]) -> float:
        """Returns I'(target, names) = H(names) - H(target, names).

        It is mutual information but for the constant H(target).
        """
        return self.entropy(frozenset(names)) - self.entropy(frozenset([target, *names]))

    def uncertainty(self, left: int, right: int) -> float:
        """Returns the symmetric uncertainty, 2 I / (H + H); 0 between constants."""
        both = self.entropy(frozenset([left])) + self.entropy(frozenset([right]))
        return 2 * (both - self.entropy(frozenset([left, right]))) / both if both > 1e-12 else 0.0

    def mean_su(self, target: int) -> tuple[int, ...]:
        """Returns the context by DILCA_M."""
        values = {name: self.uncertainty(target, name) for name in self.others(target)}
        mean = sum(values.values()) / len(values)
        return tuple(name for name, value in values.items() if value >= min(mean, max(values.values())))

    def baseline(self, target: int) -> tuple[int, ...]:
        """Returns the context by DILCA_RR.

        The most relevant come first; those are left out that share more with an attribute kept before
        than with the target.
        """
        kept: list[int] = []
        for name in sorted(self.others(target), key=lambda name: -self.uncertainty(target, name)):
            relevant = self.uncertainty(target, name)
            if not kept or (relevant > 0 and all(self.uncertainty(earlier, name) < relevant for earlier in kept)):
                kept.append(name)
        return tuple(sorted(kept))

    def max_relevance(self, target: int, k: int) -> tuple[int, ...]:
        """Returns the k attributes of largest mutual information with the target."""
        return tuple(sorted(sorted(self.others(target), key=lambda name: -self.relevance(target, [name]))[:k]))

    def max_dependency(self, target: int, k: int) -> tuple[int, ...]:
        """Returns the k attributes whose joint values have the largest mutual information with the target."""
        return max(itertools.combinations(self.others(target), k), key=lambda names: self.relevance(target, names))

    def context(self, method: str, target: int, k: int) -> tuple[int, ...]:
        """Returns the context by a method's name, as ``DPDilca`` calls it."""
        if method in ("max_relevance", "max_dependency"):
            return tuple(getattr(self, method)(target, min(k, len(self.sizes) - 1)))
        return tuple(getattr(self, method)(target))

    def distances(self, target: int, context: Sequence[int]) -> np.ndarray:
        """Returns the distances between the target's values: equation 1 of the paper, value by value."""
        size = self.sizes[target]
        distances = np.zeros((size, size))
        for left, right in itertools.combinations(range(size), 2):
            squares, cells = 0.0, 0
            for name in context:
                table = self.table(target, name)
                for value in range(self.sizes[name]):
                    rows = table[:, value].sum()
                    squares += 0.0 if rows == 0 else ((table[left, value] - table[right, value]) / rows) ** 2
                    cells += 1
            distances[left, right] = distances[right, left] = (squares / cells) ** 0.5
        return distances


def object_distances(matrices: Sequence[np.ndarray], left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Returns the distances between records of codes, shape (attributes, records), by section 4.4.

    It is the root of the sum over attributes of squared value distances.
    """
    total = np.zeros((left.shape[1], right.shape[1]))
    for matrix, left_codes, right_codes in zip(matrices, left, right, strict=True):
        total += (matrix**2)[left_codes][:, right_codes]
    return np.asarray(np.sqrt(total))


def pearson(left: np.ndarray, right: np.ndarray, *, diagonal: bool = False) -> float:
    """Returns the correlation of two distance matrices over pairs of different values.

    So the paper defines it; with the diagonal, it is what its code measures. A constant matrix
    correlates with nothing: 0.
    """
    pairs = np.ones(left.shape, dtype=bool) if diagonal else np.triu(np.ones(left.shape, dtype=bool), 1)
    a, b = left[pairs], right[pairs]
    if a.std() < 1e-12 or b.std() < 1e-12:
        return float(np.allclose(a, b))
    return float(np.corrcoef(a, b)[0, 1])


def f_score(right: Sequence[object], chosen: Sequence[object]) -> float:
    """Returns the harmonic mean of precision and recall of a context."""
    common = len(set(right) & set(chosen))
    return 2 * common / (len(right) + len(chosen)) if common else 0.0
