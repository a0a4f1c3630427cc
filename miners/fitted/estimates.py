# SPDX-License-Identifier: Apache-2.0
"""From noisy answers that contradict each other to one estimate for every node: consistent least squares, and shrinkage.

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

__all__ = ["class_shares", "least_squares"]


def least_squares(
    children: Sequence[Sequence[int]], answers: np.ndarray, variances: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
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


def class_shares(children: Sequence[Sequence[int]], counts: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """Each node's class shares, shape (nodes, classes), the less sure ones drawn towards their parent's; rows add up to 1.

    If a node of k classes had the shares of its parent, noise alone would put its own at a squared
    distance of about (k - 1) (deviation / rows)^2 (for even classes; up to twice that for pure
    ones). What is seen beyond that is taken for real: own shares weigh 1 - expected / seen, and
    nothing where that is below 0 (by the method of moments, in the manner of James & Stein). A leaf
    of few rows, in which noise decides, answers like its parent; a leaf that is clearly different
    answers for itself.

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
