# SPDX-License-Identifier: Apache-2.0
"""DILCA's arithmetic on tables that have already been released: distances between values, embeddings, distances between records. No privacy here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

__all__ = ["conditionals", "embedding", "pairwise", "symmetric_uncertainty", "value_distances"]

# Rows that a conditional law is shrunk by, for each of its cells, in units of the noise's scale.
# Anything from a twentieth to a fifth does as well on the four tables of benchmarks/papers/dilca; without
# it rare values seem far from everything.
SHRINK = 0.1
NOISE_DRAWS = 8


def conditionals(tables: Sequence[np.ndarray], scales: Sequence[float]) -> list[np.ndarray]:
    """P(value of the target | value of the context attribute), estimated from noisy tables of counts.

    Negative counts become zero. Each column is then shrunk towards the target's marginal law, which
    all tables together know best, by ``SHRINK`` rows for each cell and unit of noise: rows in
    plenty are left as they are, columns that noise dominates say nothing. Where no row is left a
    column is zero, as in DILCA. Without noise this is the plain conditional law.

    Args:
        tables: One for each context attribute, noisy counts, shape (values of the target, values of
            the attribute).
        scales: Scale of the noise in each, in rows.

    Returns:
        Arrays of the tables' shapes; each column adds up to 1, or to 0 where no row is left.
    """
    counts = [np.maximum(table, 0.0) for table in tables]
    # A row total of a table adds up the noise of one row's cells: the narrower the table and its
    # noise, the more it knows.
    weights = [1 / (table.shape[1] * max(scale, 1e-9) ** 2) for table, scale in zip(tables, scales, strict=True)]
    total = sum(weight * count.sum(axis=1) for weight, count in zip(weights, counts, strict=True))
    marginal = total / total.sum() if np.sum(total) > 0 else np.full(len(counts[0]), 1 / len(counts[0]))
    found = []
    for count, scale in zip(counts, scales, strict=True):
        rows = count.sum(axis=0)
        extra = SHRINK * scale * len(marginal)
        law = (count + extra * marginal[:, None]) / np.maximum(rows + extra, 1e-300)
        found.append(np.where(rows > 0, law, 0.0))
    return found


def value_distances(laws: Sequence[np.ndarray]) -> np.ndarray:
    """DILCA's distances between the target's values, shape (values, values), each in [0, 1].

    d(i, j)^2 is the mean over all values x of all context attributes of (P(i|x) - P(j|x))^2
    (Battaglia et al. 2021, eq. 1).

    Args:
        laws: One for each context attribute, shape (values of the target, values of the attribute);
            see ``conditionals``.
    """
    law = np.concatenate(list(laws), axis=1)
    gaps = law[:, None, :] - law[None, :, :]
    found: np.ndarray = np.sqrt((gaps**2).mean(axis=2))
    return found


def symmetric_uncertainty(table: np.ndarray, scale: float = 0.0) -> float:
    """SU = 2 I(X, Y) / (H(X) + H(Y)) of a table of counts, corrected for noise where there is some.

    Noise makes independent attributes seem dependent, the more the more cells a table has. What it
    does to an independent table with the same margins, on average over a few fixed draws, is taken
    off. So the estimate is about 0 for independent attributes, and can lie below.

    Args:
        table: Counts, noisy or not.
        scale: Scale of their noise.
    """
    rows, columns = np.maximum(table.sum(axis=1), 0.0), np.maximum(table.sum(axis=0), 0.0)
    if min(rows.sum(), columns.sum()) <= 0:
        return 0.0
    entropies = float(
        np.log2(rows.sum())
        - _plogp(rows).sum() / rows.sum()
        + np.log2(columns.sum())
        - _plogp(columns).sum() / columns.sum()
    )
    if entropies <= 1e-12:
        return 0.0
    information = float(_information(table))
    if scale > 0:
        independent = np.outer(rows, columns) * (max(table.sum(), 1.0) / (rows.sum() * columns.sum()))
        noise = np.random.default_rng(0).laplace(0, scale, (NOISE_DRAWS, *table.shape))
        information -= float(_information(independent + noise).mean())
    return 2 * information / entropies


def embedding(distances: np.ndarray) -> np.ndarray:
    """Points whose Euclidean distances are the given ones, shape (values, dimensions), the widest dimension first.

    Classical scaling (Crippen & Havel 1978): the eigenvectors of the doubly centred squares.
    DILCA's distances are Euclidean, so nothing is lost.
    """
    squares = distances**2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    kept = values > 1e-12 * max(1.0, float(np.abs(values).max(initial=0.0)))
    points = (vectors[:, kept] * np.sqrt(values[kept]))[:, ::-1]
    # An eigenvector's sign is arbitrary: the largest coordinate is positive, so that equal
    # distances give equal points.
    largest = np.abs(points).argmax(axis=0)
    return np.asarray(points * np.sign(points[largest, np.arange(points.shape[1])]))


def pairwise(
    distances: Mapping[str, np.ndarray], left: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Distances between records, shape (left, right): the root of the sum of the squared distances of their values.

    Args:
        distances: The distances between an attribute's values, by attribute.
        left: Codes of each attribute, shape (records,).
        right: The same for the other records.
    """
    # A row of squared distances to every value of every attribute, times the indicator of the
    # values that the other record has.
    to_values = np.concatenate([matrix[left[name]] ** 2 for name, matrix in distances.items()], axis=1)
    has = np.concatenate([np.eye(len(matrix))[right[name]] for name, matrix in distances.items()], axis=1)
    found: np.ndarray = np.sqrt(to_values @ has.T)
    return found


def _information(tables: np.ndarray) -> np.ndarray:
    """Mutual information of the positive part of tables, in bits; shape (..., rows, columns) to (...). 0 where there is nothing."""
    counts = np.maximum(tables, 0.0)
    total = np.maximum(counts.sum(axis=(-2, -1)), 1e-300)
    inside = (
        _plogp(counts).sum(axis=(-2, -1))
        - _plogp(counts.sum(axis=-1)).sum(axis=-1)
        - _plogp(counts.sum(axis=-2)).sum(axis=-1)
    )
    return np.asarray(np.where(total > 1e-300, np.log2(total) + inside / total, 0.0))


def _plogp(counts: np.ndarray) -> np.ndarray:
    """Of each count x, x lg x; 0 at 0."""
    return counts * np.log2(np.where(counts > 0, counts, 1.0))
