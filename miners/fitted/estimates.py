# SPDX-License-Identifier: Apache-2.0
"""From noisy answers that contradict each other to one estimate for every node: counts and shares.

The answers about a tree overlap: the class counts of a node and those of its children. Rows do not,
so the true numbers add up; the estimates here do too, and among all unbiased linear ones they have
the smallest variance at every node (of a tree that is given; where a noisy count also chose the
split or stopped it, a little less is known).

Privacy:
    Claim: free. Why: functions of differentially private answers and of their public variances
    (post-processing).

References:
    Hay, Rastogi, Miklau & Suciu 2010, "Boosting the Accuracy of Differentially Private Histograms
    Through Consistency", sec. 4.1, for equal variances and full trees; privacy.md 4.2 for any
    variances.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["class_shares", "drowned", "least_squares", "moment_shares"]

Children = Sequence[Sequence[int]]
GRID_ROWS, GRID_APART = 64, 8  # points of the grid over which an expectation is taken
WINDOW = 5  # standard deviations on each side of a noisy number of rows: less than one in a million is outside
LEAST_NOISE = 1e-6  # in units of a node's largest count: below that an expectation is as good as the counts themselves
NODES_AT_ONCE = 1024  # keeps the grid at a few megabytes


def least_squares(children: Children, answers: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best linear unbiased estimates of quantities that add up along a tree.

    Args:
        children: Of each node, places after its own; the root is place 0.
        answers: Noisy value of each node, shape (nodes, k): k quantities that share their
            variances; anything where the variance is infinite.
        variances: Of the noise in each row of ``answers``, shape (nodes,), greater than 0; infinite
            where nothing was asked, which a leaf cannot be.

    Returns:
        Estimates, shape (nodes, k), and the variances of their noise, shape (nodes,).
    """
    best, spread = np.zeros_like(answers, dtype=np.float64), np.zeros(len(answers))
    # Up: what a node's own answer and everything below it say together.
    for place in range(len(answers) - 1, -1, -1):
        own, below = variances[place], list(children[place])
        if not below:
            if not np.isfinite(own):
                raise ValueError(f"nothing was asked of leaf {place}")
            best[place], spread[place] = answers[place], own
            continue
        total, noise = best[below].sum(axis=0), spread[below].sum()
        weight = noise / (own + noise)
        best[place] = total + weight * (answers[place] - total) if weight else total
        spread[place] = (1 - weight) * noise
    # Down: what the rest of the tree says about a node is shared out among its children by their
    # variances.
    for place, some in enumerate(children):
        if not some:
            continue
        below = list(some)
        total, noise = best[below].sum(axis=0), spread[below].sum()
        share = spread[below] / noise
        best[below] += share[:, None] * (best[place] - total)
        spread[below] += share**2 * (spread[place] - noise)
    return best, spread


def drowned(children: Children, counts: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """Which nodes' rows cannot be told from zero, shape (nodes,); never the root's.

    A node is drowned where its counts add up to no more than the standard deviation of the noise in
    that sum; of counts that are taken as they are, where none is above 0; and wherever its parent
    is. What its counts say of its classes then says nothing about rows that will be met there.

    Args:
        children: As for ``class_shares``.
        counts: As for ``class_shares``.
        deviations: As for ``class_shares``.
    """
    rows, noise = counts.sum(axis=1), np.asarray(deviations) * np.sqrt(counts.shape[1])
    result: np.ndarray = np.where(noise > 0, rows <= noise, (counts <= 0).all(axis=1))
    result[0] = False
    for place, below in enumerate(children):
        result[list(below)] |= result[place]
    return result


def class_shares(children: Children, counts: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """Each node's expected class shares, shape (nodes, classes); rows add up to 1.

    A drowned node has its parent's shares. Any other has their posterior mean, its parent's shares
    p taken as given, the root's parent taken as uniform:

    - The counts of a node of N rows with shares q are y = N q + noise, one noise of deviation s for
      each of the k classes.
    - Before y is seen any number N is as likely as any other, and q departs from p in no direction
      of the plane of shares more than in another: q = p + d with d normal and E|d|^2 = u^2 (1 -
      |p|^2). Here u = 0 is a node like its parent; u = 1 is as far off as nodes of one class each,
      in the parent's proportions, for their mean squared distance from p is the parent's Gini
      impurity 1 - |p|^2. Any u between is as likely as any other.
    - In the direction of (1, ..., 1) the counts then say how many rows there are, with variance k
      s^2. In the k - 1 directions across, y' has mean N p' and variance v = N^2 t + s^2, where t =
      u^2 (1 - |p|^2) / (k - 1); and E[q | y, N, u] = p + (N t / v) (y' - N p').
    - The result is the mean of that over a grid of N and u, weighted by their likelihood; shares
      below 0 count as 0.

    So few rows beside much noise answer nearly like the parent, the more so the surer the parent is
    of its classes; many rows that are clearly different answer for themselves. Nothing is tuned:
    the noise is public, and the ranges of N and u are all that is possible.

    Args:
        children: Of each node, the root first, parents before their children.
        counts: Estimated rows of each class, shape (nodes, classes).
        deviations: Standard deviation of the noise in each of a node's counts, shape (nodes,); 0
            where the counts are taken as they are, those below 0 as 0.
    """
    deviations, lost = np.asarray(deviations, dtype=np.float64), drowned(children, counts, deviations)
    parents = np.zeros(len(children), dtype=np.int64)
    shares = np.full(counts.shape, 1 / counts.shape[1])
    level = [0]
    while level:
        for start in range(0, len(level), NODES_AT_ONCE):
            places = np.array(level[start : start + NODES_AT_ONCE])
            before = shares[parents[places]]
            shares[places] = np.where(lost[places, None], before, _expected(counts[places], before, deviations[places]))
        for place in level:
            parents[list(children[place])] = place
        level = [child for place in level for child in children[place]]
    return shares


def _expected(counts: np.ndarray, before: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """The expected shares of nodes with these counts and parents' shares."""
    # In units of the largest number of a node: squares of huge counts would overflow.
    unit = np.maximum(np.abs(counts).max(axis=1), deviations)[:, None]
    unit = np.where(unit > 0, unit, 1.0)
    counts, noise = counts / unit, deviations[:, None] / unit
    known = np.maximum(counts, 0.0)
    rows = known.sum(axis=1, keepdims=True)
    own = np.where(rows > 0, known / np.where(rows > 0, rows, 1), before)
    return np.where(noise > 0, _posterior_mean(counts, before, np.maximum(noise, LEAST_NOISE)), own)


def _posterior_mean(counts: np.ndarray, before: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """What ``class_shares`` derives, for some nodes at once; the grid's N and u are two more axes."""
    classes = counts.shape[1]
    total, wide = counts.sum(axis=1, keepdims=True), noise * np.sqrt(classes)
    low, high = np.maximum(total - WINDOW * wide, 0), np.maximum(total, 0) + WINDOW * wide
    rows = (low + (high - low) * _midpoints(GRID_ROWS))[:, :, None]
    apart = (1 - np.square(before).sum(axis=1))[:, None, None] * np.square(_midpoints(GRID_APART)) / max(1, classes - 1)
    across, expected = counts - total / classes, before - 1 / classes
    variance = np.square(rows) * apart + np.square(noise)[:, :, None]
    distance = _dot(across, across) - 2 * rows * _dot(across, expected) + np.square(rows) * _dot(expected, expected)
    likelihood = (
        -np.square((total[:, :, None] - rows) / wide[:, :, None]) / 2
        - distance / variance / 2
        - (classes - 1) / 2 * np.log(variance)
    )
    weight = np.exp(likelihood - likelihood.max(axis=(1, 2), keepdims=True))
    weight *= rows * apart / variance / weight.sum(axis=(1, 2), keepdims=True)
    mean = before + weight.sum(axis=(1, 2))[:, None] * across - (weight * rows).sum(axis=(1, 2))[:, None] * expected
    mean = np.maximum(mean, 0.0)
    result: np.ndarray = mean / mean.sum(axis=1, keepdims=True)
    return result


def _midpoints(count: int) -> np.ndarray:
    """The middles of so many equal parts of the way from 0 to 1."""
    return (np.arange(count) + 0.5) / count


def _dot(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The inner product of each pair of rows, shape (nodes, 1, 1)."""
    result: np.ndarray = (left * right).sum(axis=1)[:, None, None]
    return result


def moment_shares(children: Children, counts: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """Class shares of trees that were stored before: what is archived predicts as it always did.

    If a node of k classes had the shares of its parent, noise alone would put its own at a squared
    distance of about (k - 1) (deviation / rows)^2 (for even classes; up to twice that for pure
    ones). What is seen beyond that is taken for real: own shares weigh 1 - expected / seen, and
    nothing where that is below 0 (by the method of moments, in the manner of James & Stein).

    Args:
        children: Of each node, the root first, parents before their children.
        counts: Estimated rows of each class, shape (nodes, classes); below 0 counts as 0.
        deviations: Standard deviation of the noise in each of a node's counts, shape (nodes,); 0
            where the counts are taken as they are.
    """
    known = np.maximum(counts, 0.0)
    # Scaled first: a sum of huge counts would overflow.
    largest = known.max(axis=1, keepdims=True)
    shares = known / np.where(largest > 0, largest, 1)
    totals = shares.sum(axis=1, keepdims=True)
    shares = shares / np.where(totals > 0, totals, 1)
    rows = totals[:, 0] * largest[:, 0]
    expected = (counts.shape[1] - 1) * np.square(np.asarray(deviations) / np.maximum(rows, 1.0))
    before = np.full(counts.shape[1], 1 / counts.shape[1])
    shares[0] = _drawn(shares[0], before, expected[0], rows[0])
    for place, below in enumerate(children):
        for child in below:
            shares[child] = _drawn(shares[child], shares[place], expected[child], rows[child])
    return shares


def _drawn(own: np.ndarray, parent: np.ndarray, expected: float, rows: float) -> np.ndarray:
    """Own shares, drawn towards the parent's as far as noise explains their distance."""
    if rows <= 0:
        return parent
    seen = float(np.square(own - parent).sum())
    weight = 1.0 if expected == 0 else max(0.0, 1 - expected / seen) if seen > 0 else 0.0
    return weight * own + (1 - weight) * parent
