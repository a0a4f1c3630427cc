# SPDX-License-Identifier: Apache-2.0
"""Tables and their margins as arrays: sums, the nearest that agree, the nearest without negatives.

Privacy:
    Claim: all of it is free. Why: it is computed from noisy counts alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

__all__ = ["Kept", "agreeing", "nearest_nonnegative", "subsets", "summed"]

Kept = tuple[int, ...]
"""The axes that a margin keeps; of a table with two axes (0,), (1,) and (); (0, 1) is the table."""


def subsets(axes: int) -> list[Kept]:
    """Lists the axes that the table and each margin keep, most first: (0, 1), (0,), (1,) and ()."""
    kept = [tuple(axis for axis in range(axes) if mask >> axis & 1) for mask in range(2**axes)]
    return sorted(kept, key=lambda subset: (-len(subset), subset))


def summed(cells: np.ndarray, kept: Kept) -> np.ndarray:
    """Returns the margin that keeps some axes."""
    return np.asarray(cells.sum(axis=tuple(axis for axis in range(cells.ndim) if axis not in kept)))


def agreeing(tables: Mapping[Kept, np.ndarray]) -> np.ndarray:
    """Returns the cells whose sums are nearest to a table and all its margins, by least squares.

    All counts have equal noise. A table is a sum of effects, one for each subset S of the axes (the
    mean, what each row adds, what each pair adds, ...), at right angles to each other. A margin that
    keeps the axes K, divided by the N(K) cells that it sums and spread over them, has all effects of
    subsets of K, each with noise of variance sigma^2 / N(K). So an effect is the mean of all tables
    that have it, weighted by N(K), and N(K) times what is spread is the margin itself.

    Example: a table of two cells 4 and 8 whose total was asked too, 15, becomes 5 and 9. The
    difference of the cells stays, and the total 14 is nearer to 15, for it has one noise and the
    sum of the cells two.

    Args:
        tables: By the axes that are kept: of all subsets, those of the table with all its axes.

    References:
        Barak et al. 2007, "Privacy, Accuracy, and Consistency Too"; Hay et al. 2010, "Boosting the
        Accuracy of Differentially Private Histograms Through Consistency", sec. 4.
    """
    axes = max(len(kept) for kept in tables)
    shape = tables[tuple(range(axes))].shape
    cells = np.zeros(shape)
    for effect in tables:
        # Of a table and its total, the mean is in both: 6 in the cells, 15 / 2 spread over them,
        # which weigh 1 and 2: (6 + 2 * 7.5) / 3 = 7. The difference of the cells is in the table
        # alone.
        having = [kept for kept in tables if set(effect) <= set(kept)]
        together = np.sum([_spread(tables[kept], kept, shape) for kept in having], axis=0)
        weight = sum(_cells_summed(kept, shape) for kept in having)
        cells += _effect(together / weight, effect)
    return cells


def nearest_nonnegative(values: np.ndarray) -> np.ndarray:
    """Projects numbers on those of at least 0 with the same total, or 0 if that is negative.

    All are lowered by one amount and cut at 0: of (5, 1, -2), total 4, by 1: (4, 0, 0).
    """
    flat = values.astype(np.float64).reshape(-1)
    total = max(0.0, float(flat.sum()))
    # Of 5, 1 and -2 with total 4: if the first alone, or the first two, stay above 0, each is
    # lowered by 1; only the first does, for the second would be 0.
    descending = np.sort(flat)[::-1]
    excess = (np.cumsum(descending) - total) / np.arange(1, len(flat) + 1)
    positive = np.flatnonzero(descending - excess > 0)
    lowered = excess[positive[-1]] if len(positive) else descending[0]
    return np.maximum(flat - lowered, 0.0).reshape(values.shape)


def _spread(margin: np.ndarray, kept: Kept, shape: tuple[int, ...]) -> np.ndarray:
    """Returns a margin with the axes that it sums over, alike along them."""
    own = [length if axis in kept else 1 for axis, length in enumerate(shape)]
    return np.broadcast_to(margin.reshape(own), shape).astype(np.float64)


def _cells_summed(kept: Kept, shape: tuple[int, ...]) -> int:
    """Returns how many cells each number of a margin sums."""
    return int(np.prod([length for axis, length in enumerate(shape) if axis not in kept], dtype=np.int64))


def _effect(cells: np.ndarray, axes: Kept) -> np.ndarray:
    """Returns the part of a table that varies along just these axes."""
    # Cells 4 and 8: the effect of no axis is 6 and 6, that of their axis is -2 and 2.
    for axis in range(cells.ndim):
        mean = np.broadcast_to(cells.mean(axis=axis, keepdims=True), cells.shape)
        cells = cells - mean if axis in axes else mean
    return cells
