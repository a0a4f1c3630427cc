# SPDX-License-Identifier: Apache-2.0
"""One estimate for every node, from noisy answers that contradict each other.

The answers about a tree overlap: there are class counts of a node and class counts of its children. Each row is in one
child only, so the true numbers add up, and so do the estimates. Among all unbiased linear estimates they have the
smallest variance at every node.

Privacy:
    Claim: free. Why: functions of differentially private answers and of their public variances
    (post-processing).

References:
    Hay, Rastogi, Miklau & Suciu 2010, "Boosting the Accuracy of Differentially Private Histograms
    Through Consistency", sec. 4.1, for equal variances and full trees; privacy.md 4.2 for any
    variances.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain

import numpy as np

Children = Sequence[Sequence[int]]
# The grid over which an expectation is taken: the middles of equal parts of [0, 1].
ROW_POINTS, DISTANCE_POINTS = ((np.arange(points) + 0.5) / points for points in (64, 8))
WINDOW = 5  # standard deviations on each side of a noisy number of rows: less than one in a million is outside


def least_squares(children: Children, answers: np.ndarray, variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The best linear unbiased estimates of quantities that add up along a tree.

    For example, the answer of a root is 10, those of its two leaves are 4 and 3, each with variance one. The leaves'
    sum is 7 with variance 2, so the root's estimate is 7 + 2/3 (10 - 7) = 9 with variance 2/3. The leaves share the
    gain of 2: 5 and 4.

    Args:
        children: The indices of each node's children, greater than the node's. There may be several roots.
        answers: Noisy values, shape (nodes, k): k quantities with equal variances.
        variances: The variances of their noise, shape (nodes,), greater than 0; infinite for an inner node without an
            answer.

    Returns:
        Estimates, shape (nodes, k), and the variances of their noise, shape (nodes,).
    """
    best, spread = np.array(answers, dtype=np.float64), np.array(variances, dtype=np.float64)
    parents, levels = _family(children)
    if unasked := [node for node in np.flatnonzero(~np.isfinite(spread)).tolist() if not children[node]]:
        raise ValueError(f"nothing was asked of leaf {unasked[0]}")
    # The estimate of each node from its own answer and all answers below it, the deepest level
    # first.
    for below in reversed(levels[1:]):
        nodes = np.unique(parents[below])
        total, noise = _sums(best, parents, below)[nodes], _sums(spread, parents, below)[nodes]
        weight = noise / (spread[nodes] + noise)
        answer = np.where(weight[:, None] > 0, best[nodes], total)
        best[nodes], spread[nodes] = total + weight[:, None] * (answer - total), (1 - weight) * noise
    # The correction of a node by the rest of the tree is divided among its children in proportion
    # to their variances: an uncertain child takes more of it.
    for below in levels[1:]:
        up = parents[below]
        total, noise = _sums(best, parents, below), _sums(spread, parents, below)
        share = spread[below] / noise[up]
        best[below] += share[:, None] * (best - total)[up]
        spread[below] += share**2 * (spread - noise)[up]
    return best, spread


def _family(children: Children) -> tuple[np.ndarray, list[np.ndarray]]:
    """The parent of each node, its own number for a root, and the nodes of each depth."""
    counts = np.fromiter(map(len, children), dtype=np.int64, count=len(children))
    parents = np.arange(len(children))
    parents[np.fromiter(chain.from_iterable(children), dtype=np.int64)] = np.repeat(parents, counts)
    above: list[int] = []
    for node, parent in enumerate(parents.tolist()):
        above.append(0 if parent == node else above[parent] + 1)
    depths = np.array(above)
    return parents, [np.flatnonzero(depths == depth) for depth in range(depths.max() + 1)]


def _sums(values: np.ndarray, parents: np.ndarray, below: np.ndarray) -> np.ndarray:
    """The sum of these nodes' values for each parent, shape like ``values``."""
    totals = np.zeros_like(values)
    np.add.at(totals, parents[below], values[below])
    return totals


def noise_dominated(children: Children, counts: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """The nodes with no more rows than their noise, shape (nodes,); never the root.

    A node is noise-dominated if its counts add up to no more than the standard deviation of the noise in that sum, or
    if its parent is noise-dominated. Without smoothing, a node is noise-dominated if none of its counts is above 0.
    Arguments as for ``class_probabilities``.
    """
    rows, noise = counts.sum(axis=1), np.asarray(deviations) * np.sqrt(counts.shape[1])
    result: np.ndarray = np.where(noise > 0, rows <= noise, (counts <= 0).all(axis=1))
    result[0] = False
    parents, levels = _family(children)
    for level in levels:
        result[level] |= result[parents[level]]
    return result


def class_probabilities(children: Children, counts: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """Each node's expected class probabilities, shape (nodes, classes); rows add up to 1.

    A noise-dominated node has its parent's probabilities. Any other node has the posterior mean of its probabilities.
    The parent's probabilities p are taken as exact, and those of the root's parent as uniform:

    - The counts of a node of N rows with probabilities q are y = N q + noise, one noise of
      deviation s for each of the k classes.
    - Before y is seen any number N is as likely as any other. So is any u from 0 to 1 in q = p + d, with d normal, the
      same in all directions of the plane of probabilities, and E|d|^2 = u^2 (1 - |p|^2). With u = 0 a node equals its
      parent. With u = 1 it is as far from it as pure nodes are: split the parent into nodes of one class each, and
      their mean squared distance from p is its Gini impurity, 1 - |p|^2.
    - In the direction of (1, ..., 1) the counts then tell how many rows there are, with variance k
      s^2. In the k - 1 directions across, y' has mean N p' and variance v = N^2 t + s^2, where t =
      u^2 (1 - |p|^2) / (k - 1); and E[q | y, N, u] = p + (N t / v) (y' - N p').
    - The result is the mean of that over a grid of N and u, weighted by their likelihood;
      probabilities below 0 count as 0.

    Counts of 8 and 2 at the root give 0.8 and 0.2 without noise, 0.78 and 0.22 with s = 1, and 0.58
    and 0.42 with s = 5.

    No constant is tuned.

    Args:
        children: The children of each node, the root first, parents before their children.
        counts: Estimated rows of each class, shape (nodes, classes).
        deviations: Standard deviation of the noise in each of a node's counts, shape (nodes,); 0 if counts are used
            unchanged, those below 0 as 0.
    """
    return _probabilities(children, counts, deviations, np.zeros(len(children)))


def smoothed_probabilities(children: Children, counts: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """``class_probabilities``, but none of them 0 or 1 if there is noise; arguments as there.

    A small node without rows of a class may still get such rows later. So m rows with the parent's
    probabilities (uniform ones for the root) are added to a node's N rows (the m-estimate; Cestnik
    1990, "Estimating probabilities"): one row, and half a row for each row of the noise's
    deviation, because N is about as uncertain as that. A node of 19 rows of one class, next to no
    noise and below a parent of 60 %, predicts 1 - 0.4 / 20, which is 98 %.
    """
    noise = np.asarray(deviations)
    return _probabilities(children, counts, noise, np.where(noise > 0, 1 + 0.5 * noise, 0.0))


def counted_probabilities(children: Children, counts: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """The proportions of counts, those below 0 as 0, with one more row like the parent's; ``deviations`` are ignored.

    If each tree of a forest were shrunk by its noise, the average would lose the evidence of all trees together.
    """
    return _probabilities(children, counts, np.zeros(len(children)), np.ones(len(children)))


def _probabilities(children: Children, counts: np.ndarray, deviations: np.ndarray, unseen: np.ndarray) -> np.ndarray:
    """Class probabilities from the root down, with ``unseen`` more rows like the parent's."""
    deviations, lost = np.asarray(deviations, dtype=np.float64), noise_dominated(children, counts, deviations)
    parents, levels = _family(children)
    # Level by level, because a node's probabilities depend on its parent's. The root's own row of
    # `probabilities` is uniform before it is computed, so it serves as its parent's.
    probabilities = np.full(counts.shape, 1 / counts.shape[1])
    for level in levels:
        # The grids of 128 nodes fit into a core's cache: 1.7 times as fast as 1,024.
        for batch in np.array_split(level, math.ceil(len(level) / 128)):
            before = probabilities[parents[batch]]
            expected, more = _expected(counts[batch], before, deviations[batch]), unseen[batch, None]
            rows = np.maximum(counts[batch].sum(axis=1, keepdims=True), 0.0)
            expected += more / np.maximum(rows + more, 1.0) * (before - expected)
            probabilities[batch] = np.where(lost[batch, None], before, expected)
    return probabilities


def _expected(counts: np.ndarray, before: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """The expected probabilities of nodes; ``before`` are their parents'."""
    # In units of the largest number of a node: squares of huge counts would overflow.
    unit = np.maximum(np.abs(counts).max(axis=1), deviations)[:, None]
    unit = np.where(unit > 0, unit, 1.0)
    counts, noise = counts / unit, deviations[:, None] / unit
    positive = np.maximum(counts, 0.0)
    rows = positive.sum(axis=1, keepdims=True)
    proportions = np.where(rows > 0, positive / np.where(rows > 0, rows, 1), before)
    if not noise.any():  # trees of a forest take their counts as they are
        return proportions
    # Below a millionth of its largest count, an expectation is as good as the counts themselves.
    return np.where(noise > 0, _posterior_mean(counts, before, np.maximum(noise, 1e-6)), proportions)


def _posterior_mean(counts: np.ndarray, before: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The posterior mean that ``class_probabilities`` derives, for several nodes at once.

    Arrays on the grid have shape (nodes, N, u). Names and symbols: ``before`` is p, ``across`` is y', ``expected`` is
    p', ``noise`` is s, ``spread`` is t and ``variance`` is v.
    """
    classes = counts.shape[1]
    total, wide = counts.sum(axis=1, keepdims=True), noise * np.sqrt(classes)
    low, high = np.maximum(total - WINDOW * wide, 0), np.maximum(total, 0) + WINDOW * wide
    # Counts of 8 and 2 with noise 1: the total 10 deviates by 1.41, and N ranges over so many of
    # that on both sides.
    rows = (low + (high - low) * ROW_POINTS)[:, :, None]
    gini = (1 - np.square(before).sum(axis=1))[:, None, None]
    spread = gini * np.square(DISTANCE_POINTS) / max(1, classes - 1)
    # Across: counts (60, 30) become (15, -15), and probabilities (0.8, 0.2) become (0.3, -0.3).
    across, expected = counts - total / classes, before - 1 / classes
    variance = np.square(rows) * spread + np.square(noise)[:, :, None]
    # |y' - N p'|^2, multiplied out so that no axis of classes meets the two of the grid.
    distance = _dot(across, across) - 2 * rows * _dot(across, expected) + np.square(rows) * _dot(expected, expected)
    likelihood = (
        -np.square((total[:, :, None] - rows) / wide[:, :, None]) / 2
        - distance / variance / 2
        - (classes - 1) / 2 * np.log(variance)
    )
    # Of logarithms the largest is taken off first: exp of the others cannot overflow.
    weight = np.exp(likelihood - likelihood.max(axis=(1, 2), keepdims=True))
    weight *= rows * spread / variance / weight.sum(axis=(1, 2), keepdims=True)
    mean = before + weight.sum(axis=(1, 2))[:, None] * across - (weight * rows).sum(axis=(1, 2))[:, None] * expected
    mean = np.maximum(mean, 0.0)
    return np.asarray(mean / mean.sum(axis=1, keepdims=True))


def _dot(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The inner product of each pair of rows, shape (nodes, 1, 1)."""
    return np.asarray((left * right).sum(axis=1)[:, None, None])


def moment_probabilities(children: Children, counts: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """Class probabilities by the older rule, for archived trees; arguments as for ``class_probabilities``.

    If a node of k classes had the probabilities of its parent, noise alone would put its own at a
    squared distance of about (k - 1) (deviation / rows)^2 (for even classes; up to twice that for
    pure ones). Any larger distance counts as real: the node's own probabilities get the weight 1 -
    expected / observed, or 0 if that is negative (method of moments, in the manner of James &
    Stein).
    """
    positive = np.maximum(counts, 0.0)
    # Scaled first: a sum of huge counts would overflow.
    largest = positive.max(axis=1, keepdims=True)
    probabilities = positive / np.where(largest > 0, largest, 1)
    totals = probabilities.sum(axis=1, keepdims=True)
    probabilities = probabilities / np.where(totals > 0, totals, 1)
    rows = totals[:, 0] * largest[:, 0]
    expected = (counts.shape[1] - 1) * np.square(np.asarray(deviations) / np.maximum(rows, 1.0))
    parents, levels = _family(children)
    for level in levels:
        proportions, before = (
            probabilities[level],
            probabilities[parents[level]] if level[0] else np.full(1, 1 / counts.shape[1]),
        )
        observed = np.square(proportions - before).sum(axis=1)
        weight = np.where(rows[level] > 0, np.maximum(0.0, 1 - expected[level] / np.maximum(observed, 1e-100)), 0.0)
        probabilities[level] = before + weight[:, None] * (proportions - before)
    return probabilities
