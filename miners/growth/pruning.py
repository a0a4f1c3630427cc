# SPDX-License-Identifier: Apache-2.0
"""Finds the splits of a grown tree that are not worth keeping.

It is C4.5's error-based pruning, on counts that are noisy.

Privacy:
    Claim: free. Why: a function of differentially private answers (post-processing).

References:
    Quinlan 1993, "C4.5", ch. 4; Friedman & Schuster 2010, sec. 4.4 and Algorithm 3; privacy.md 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

__all__ = ["calibrate", "pessimistic_errors", "worth_keeping"]

Children = Sequence[Sequence[int]]


def calibrate(children: Children, sizes: Sequence[float | None], cells: Sequence[np.ndarray | None]) -> np.ndarray:
    """Makes class counts of all nodes agree, by Friedman & Schuster's Algorithm 3.

    Top-down each node's rows are shared out among its children in proportion to their noisy sizes;
    bottom-up a leaf's rows are shared out among the classes in proportion to their noisy counts,
    and added up. The paper divides by noisy sums, which may be 0 or less: numbers below 0 count as
    0 here, and where all are 0, all are alike.

    Args:
        children: Of each node, the root first, parents before their children.
        sizes: Noisy number of rows of each node.
        cells: Noisy class counts of each leaf; of an inner node they are not looked at.

    Returns:
        Shape (nodes, cells).
    """
    width = len(next(counts for counts in cells if counts is not None))
    rows = np.zeros(len(children))
    rows[0] = max(sizes[0] or 0.0, 0.0)
    for node, below in enumerate(children):
        if below:
            # 40 rows, children of noisy sizes 30 and -2: they get 40 and 0.
            rows[list(below)] = rows[node] * _shares(np.array([sizes[child] or 0.0 for child in below]))
    table = np.zeros((len(children), width))
    for node in range(len(children) - 1, -1, -1):
        counts = cells[node]
        if children[node]:
            table[node] = table[list(children[node])].sum(axis=0)
        elif counts is not None:
            table[node] = rows[node] * _shares(counts)
    return table


def pessimistic_errors(rows: float, errors: float, certainty: float) -> float:
    """Returns C4.5's estimate of how many of ``rows`` unseen rows a leaf gets wrong.

    The leaf gets ``errors`` of as many seen rows wrong.

    The upper end of a one-sided binomial confidence interval of level ``1 - certainty``; real
    numbers are allowed. Exact at 0 errors, within 7 % of the exact limit from 1 error on at the
    usual certainty of 0.25, linear between.
    """
    if rows <= 0:
        return 0.0
    errors = min(max(errors, 0.0), rows)
    return min(rows, errors + _extra(rows, errors, certainty))


def _extra(rows: float, errors: float, certainty: float) -> float:
    if errors < 1:
        none = rows * (1 - certainty ** (1 / rows))
        return none if errors == 0 else none + errors * (_extra(rows, 1.0, certainty) - none)
    if errors + 0.5 >= rows:
        return max(rows - errors, 0.0)
    # Wilson's interval, half an error added: of 10 rows with 2 errors it ends at 3.5 errors at a
    # certainty of .25.
    z = NormalDist().inv_cdf(1 - certainty)
    f = (errors + 0.5) / rows
    bound = (f + z * z / (2 * rows) + z * math.sqrt(f / rows - f * f / rows + z * z / (4 * rows * rows))) / (
        1 + z * z / rows
    )
    return rows * bound - errors


def worth_keeping(
    children: Children, cells: np.ndarray, certainty: float, *, shares: np.ndarray | None = None
) -> np.ndarray:
    """Finds the nodes that keep their split, shape (nodes,).

    They err less with it, or tell more apart.

    C4.5 asks for errors alone, and so cuts away what separates an uncertain leaf from a certain one
    of the same class. Where ``shares`` are given, a split is also kept if the leaves below it lie
    further from the node, sum of N |q - p|^2 over leaves of N rows and shares q, than chance alone
    would put them: rows that all have the node's shares p, dealt out among m leaves, are (m - 1) (1
    - |p|^2) apart on average.

    Subtrees are not raised in their parent's place, as C4.5 may do: how the rows of the other
    branches would fare there nobody has asked.

    Args:
        children: Of each node, the root first, parents before their children.
        cells: Estimated rows of each class, shape (nodes, classes); below 0 counts as 0.
        certainty: C4.5's certainty factor, above 0 and up to 0.5: the smaller, the more is pruned.
            0.25 is usual.
        shares: What each node predicts, shape (nodes, classes); None to prune for the class alone.
    """
    table = np.maximum(cells, 0.0)
    rows = table.sum(axis=1)
    errors = np.zeros(len(children))
    keeps = np.zeros(len(children), dtype=bool)
    leaves = [[node] for node in range(len(children))]
    for node in range(len(children) - 1, -1, -1):
        errors[node] = pessimistic_errors(float(rows[node]), float(rows[node] - table[node].max()), certainty)
        if children[node]:
            below = float(errors[list(children[node])].sum())
            under = [leaf for child in children[node] for leaf in leaves[child]]
            keeps[node] = below < errors[node] or (
                shares is not None and _told_apart(rows[under], shares[under], shares[node])
            )
            # A node that loses its split is one leaf to the nodes above it.
            leaves[node] = under if keeps[node] else leaves[node]
            errors[node] = min(below, errors[node])
    return keeps


def _told_apart(rows: np.ndarray, leaves: np.ndarray, node: np.ndarray) -> bool:
    """Whether leaves have shares further from their node's than chance would put them."""
    # 90 rows with shares (.9, .1) and 10 with (.6, .4) below (.87, .13): 90 * .0018 + 10 * .1458 =
    # 1.62, far more than chance's 1 - .87^2 - .13^2 = .23.
    distance = float(rows @ np.square(leaves - node).sum(axis=1))
    return distance > (len(rows) - 1) * max(0.0, 1 - float(node @ node))


def _shares(weights: np.ndarray) -> np.ndarray:
    counts = np.maximum(np.asarray(weights, dtype=np.float64), 0.0)
    return counts / counts.sum() if counts.sum() > 0 else np.full(len(counts), 1 / len(counts))
