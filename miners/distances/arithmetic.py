# SPDX-License-Identifier: Apache-2.0
"""DILCA's arithmetic, from released tables to distances between values, and between records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

# Rows that are added to each cell of a conditional law, in units of the noise's scale. Values from 0.05 to 0.2 did
# equally well on the four tables of benchmarks/papers/dilca; with 0, rare values seem far from all others.
SHRINK = 0.1


def conditionals(tables: Sequence[np.ndarray], scales: Sequence[float]) -> list[np.ndarray]:
    """P(target's value | context attribute's value), estimated from noisy tables of counts.

    Negative counts become zero. Each column is then shrunk towards the target's marginal law, which all tables together
    estimate best, by ``SHRINK`` rows for each cell and unit of noise. A column without rows is zero, as in DILCA.

    For example, at scale 10 a target of two values gets 0.1 * 10 = 1 row for each cell: with an
    even marginal law, counts (9, 1) become (9 + 1) / 12 and (1 + 1) / 12.

    Args:
        tables: A table for each context attribute, noisy counts, shape (values of the target, values of the attribute).
        scales: Scale of the noise in each, in rows.

    Returns:
        Arrays of the tables' shapes; each column adds up to 1, or to 0 without rows.
    """
    counts = [np.maximum(table, 0.0) for table in tables]
    # A row total adds up the noise of one row's cells: a narrow table with little noise is more precise.
    weights = [1 / (table.shape[1] * max(scale, 1e-9) ** 2) for table, scale in zip(tables, scales, strict=True)]
    total = sum(weight * count.sum(axis=1) for weight, count in zip(weights, counts, strict=True))
    marginal = total / total.sum() if np.sum(total) > 0 else np.full(len(counts[0]), 1 / len(counts[0]))
    laws = []
    for count, scale in zip(counts, scales, strict=True):
        rows = count.sum(axis=0)
        extra = SHRINK * scale * len(marginal)
        law = (count + extra * marginal[:, None]) / np.maximum(rows + extra, 1e-300)
        laws.append(np.where(rows > 0, law, 0.0))
    return laws


def value_distances(laws: Sequence[np.ndarray]) -> np.ndarray:
    """Returns DILCA's distances between the target's values, shape (values, values), in [0, 1].

    d(i, j)^2 is the mean over all values x of all context attributes of (P(i|x) - P(j|x))^2
    (Battaglia et al. 2021, eq. 1).

    Args:
        laws: One for each context attribute, shape (values of the target, values of the attribute);
            see ``conditionals``.
    """
    law = np.concatenate(list(laws), axis=1)
    # P(i|x) = .8 and .2, P(j|x) = .5 and .5 for two values x: sqrt((.09 + .09) / 2) = .3.
    gaps = law[:, None, :] - law[None, :, :]
    return np.asarray(np.sqrt((gaps**2).mean(axis=2)))


def symmetric_uncertainty(table: np.ndarray, scale: float = 0.0) -> float:
    """SU = 2 I(X, Y) / (H(X) + H(Y)) of a table of counts, corrected for its noise.

    Noise makes independent attributes seem dependent, more so in a table with more cells. The correction adds simulated
    noise to an independent table with the same margins, eight times from a fixed seed, and subtracts the mean of the
    mutual information. The result can be negative.
    """
    rows, columns = np.maximum(table.sum(axis=1), 0.0), np.maximum(table.sum(axis=0), 0.0)
    if min(rows.sum(), columns.sum()) <= 0:
        return 0.0
    # Ten rows in each of four cells: H(X) + H(Y) = 2 and I = 0. All rows on the diagonal: I = 1, so SU = 1.
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
        # Margins (30, 10) and (20, 20) of 40 rows make the table ((15, 15), (5, 5)).
        independent = np.outer(rows, columns) * (max(table.sum(), 1.0) / (rows.sum() * columns.sum()))
        noise = np.random.default_rng(0).laplace(0, scale, (8, *table.shape))
        information -= float(_information(independent + noise).mean())
    return 2 * information / entropies


def embedding(distances: np.ndarray) -> np.ndarray:
    """Points with these Euclidean distances, shape (values, dimensions), the widest dimension first.

    Classical scaling (Crippen & Havel 1978): the eigenvectors of the doubly centred squares.
    DILCA's distances are Euclidean, so nothing is lost.
    """
    squares = distances**2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
    values, vectors = np.linalg.eigh(-centred / 2)
    positive = values > 1e-12 * max(1.0, float(np.abs(values).max(initial=0.0)))
    points = (vectors[:, positive] * np.sqrt(values[positive]))[:, ::-1]
    # An eigenvector's sign is arbitrary: the largest coordinate is positive, so that equal
    # distances give equal points.
    largest = np.abs(points).argmax(axis=0)
    return np.asarray(points * np.sign(points[largest, np.arange(points.shape[1])]))


def pairwise(
    distances: Mapping[str, np.ndarray], left: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Returns distances between records, shape (left, right).

    Each is the root of the sum of the squared distances of the two records' values.

    Args:
        distances: The distances between an attribute's values, by attribute.
        left: Codes of each attribute, shape (records,).
        right: The same for the other records.
    """
    # Row i of `to_values` has the squared distances from the values of record i to every value of
    # every attribute; row j of `indicators` has a 1 for each value of record j. Their product adds up one
    # squared distance for each attribute.
    to_values = np.concatenate([matrix[left[name]] ** 2 for name, matrix in distances.items()], axis=1)
    indicators = np.concatenate([np.eye(len(matrix))[right[name]] for name, matrix in distances.items()], axis=1)
    return np.asarray(np.sqrt(to_values @ indicators.T))


def _information(tables: np.ndarray) -> np.ndarray:
    """The mutual information of the positive part of tables, in bits; 0 for an empty table.

    Tables of shape (..., rows, columns) give shape (...).
    """
    counts = np.maximum(tables, 0.0)
    total = np.maximum(counts.sum(axis=(-2, -1)), 1e-300)
    inside = (
        _plogp(counts).sum(axis=(-2, -1))
        - _plogp(counts.sum(axis=-1)).sum(axis=-1)
        - _plogp(counts.sum(axis=-2)).sum(axis=-1)
    )
    return np.asarray(np.where(total > 1e-300, np.log2(total) + inside / total, 0.0))


def _plogp(counts: np.ndarray) -> np.ndarray:
    """The product x lg x for each count x, and 0 for 0."""
    return counts * np.log2(np.where(counts > 0, counts, 1.0))
