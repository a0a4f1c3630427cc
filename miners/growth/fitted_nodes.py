# SPDX-License-Identifier: Apache-2.0
"""Makes the nodes of a fitted tree from the answers of a grown tree.

Counts are as released, calibrated, or estimated from all answers together; then useless splits are
pruned, by C4.5's error-based pruning on noisy counts.

Privacy:
    Claim: free (post-processing of answers and of their public variances).

References:
    Quinlan 1993, "C4.5", ch. 4; Friedman & Schuster 2010, sec. 4.4 and Algorithm 3; privacy.md 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Self

import numpy as np

from miners.fitted.estimates import Children, class_probabilities, least_squares
from miners.fitted.node import Node, Split
from pinq.public.epsilon import Epsilon

BEST_OF_MANY = 16
"""The ratio of the largest of 3,000 squares of a normal number to their mean, 2 ln 3,000."""


@dataclass(eq=False, slots=True)
class OpenNode:
    """A node while its tree grows.

    Attributes:
        cells: Noisy rows of each class, the missing class last where there is one, or of the two
            ends of a numeric target; None without a query.
        left: The rest of its path's epsilon, if leaves are queried only after all trees have grown.
        path_end: The number of kept splits on the longest path through it, after the query for it.
    """

    used: frozenset[str] = frozenset()
    split: Split | None = None
    children: tuple[int, ...] = ()
    size: float | None = None
    size_scale: float | None = None
    cells: np.ndarray | None = None
    variance: float = float("inf")
    cells_scale: float | None = None
    left: Epsilon | None = None
    path_end: int = 0

    @property
    def rows(self) -> float:
        """The known noisy number of rows; infinite without a query."""
        if self.size is not None:
            return self.size
        return float("inf") if self.cells is None else float(self.cells.sum())

    def observe(self, cells: np.ndarray, variance: float, scale: float | None = None) -> None:
        """Averages further noisy class counts in, weighted by precision."""
        if self.cells is None:
            self.cells, self.variance, self.cells_scale = np.asarray(cells, dtype=np.float64), variance, scale
            return
        weight = self.variance / (self.variance + variance)
        self.cells = self.cells + weight * (cells - self.cells)
        self.variance, self.cells_scale = self.variance * variance / (self.variance + variance), None

    def branch(self, split: Split, parts: int, first: int, used: frozenset[str]) -> list[Self]:
        """Splits the node; returns the children, in the order of the parts, numbered from ``first``."""
        self.split, self.children = split, tuple(range(first, first + parts))
        return [self.child(used) for _ in range(parts)]

    def child(self, used: frozenset[str]) -> Self:
        return type(self)(used)


def calibrate(children: Children, sizes: Sequence[float | None], cells: Sequence[np.ndarray | None]) -> np.ndarray:
    """Makes class counts of all nodes agree, by Friedman & Schuster's Algorithm 3.

    Top-down each node's rows are divided among its children in proportion to their noisy sizes; bottom-up a leaf's rows
    are divided among the classes in proportion to their noisy counts, and added up. Numbers below 0 count as 0, and if
    all are 0, they are equal.

    Returns:
        Shape (nodes, cells); ``cells`` of inner nodes are not used.
    """
    width = len(next(counts for counts in cells if counts is not None))
    rows = np.zeros(len(children))
    rows[0] = max(sizes[0] or 0.0, 0.0)
    for node, below in enumerate(children):
        if below:
            # 40 rows, children of noisy sizes 30 and -2: they get 40 and 0.
            rows[list(below)] = rows[node] * _proportions(np.array([sizes[child] or 0.0 for child in below]))
    table = np.zeros((len(children), width))
    for node in range(len(children) - 1, -1, -1):
        counts = cells[node]
        if children[node]:
            table[node] = table[list(children[node])].sum(axis=0)
        elif counts is not None:
            table[node] = rows[node] * _proportions(counts)
    return table


def pessimistic_errors(rows: float, errors: float, certainty: float) -> float:
    """C4.5's estimate of the errors among ``rows`` unseen rows of a leaf, which has ``errors`` among as many seen rows.

    It is the upper end of a one-sided binomial confidence interval of level ``1 - certainty``; real numbers are
    allowed. Exact at 0 errors, within 7 % of the exact limit from 1 error on at the usual certainty of 0.25, linear
    between.
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
    children: Children,
    cells: np.ndarray,
    certainty: float,
    *,
    probabilities: np.ndarray | None = None,
    noise: float = math.inf,
) -> np.ndarray:
    """The nodes that keep their split, shape (nodes,).

    A node keeps its split if the split lowers the error or separates class probabilities.

    C4.5 uses errors alone, so it removes a split between an uncertain and a certain leaf of the same class. With
    ``probabilities``, a node also keeps a split if the leaves below it differ from the node more than by chance. The
    distance is the sum of N |q - p|^2 over leaves of N rows and class probabilities q, where p are the node's. If all
    rows have the probabilities p and fall into m leaves by chance, the distance is (m - 1) (1 - |p|^2) on average. It
    is larger if the split was chosen for a large distance.

    Subtrees do not move to their parent's place, as in C4.5: no query shows their predictions for the other branches.

    Args:
        children: The children of each node, the root first, parents before their children.
        cells: Estimated rows of each class, shape (nodes, classes); below 0 counts as 0.
        certainty: C4.5's certainty factor, above 0 and up to 0.5: the smaller, the more is pruned.
            0.25 is usual.
        probabilities: The class probabilities of each node, shape (nodes, classes); None to prune for the
            class alone.
        noise: The standard deviation of a leaf's noise, in rows.
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
                probabilities is not None and _are_apart(rows[under], probabilities[under], probabilities[node], noise)
            )
            # A node that loses its split is one leaf to the nodes above it.
            leaves[node] = under if keeps[node] else leaves[node]
            errors[node] = min(below, errors[node])
    return keeps


def _are_apart(rows: np.ndarray, leaves: np.ndarray, node: np.ndarray, noise: float) -> bool:
    """Whether the probabilities of leaves are further from their node's than by chance and by the choice."""
    # 90 rows with probabilities (.9, .1) and 10 with (.6, .4) below (.87, .13): 90 * .0018 + 10 * .1458 =
    # 1.62, far more than chance's 1 - .87^2 - .13^2 = .23.
    distance = float(rows @ np.square(leaves - node).sum(axis=1))
    chance = max(0.0, 1 - float(node @ node))
    # A choice weighs splits by exp(distance / 2 noise), about: squares of a normal number, so weighed, are
    # 1 / (1 - chance / noise) times as large, up to the largest of all.
    clear = noise > BEST_OF_MANY / (BEST_OF_MANY - 1) * chance
    chosen = 1 / (1 - chance / noise) if clear else BEST_OF_MANY
    return distance > (len(rows) - 1) * chance * chosen


def _proportions(weights: np.ndarray) -> np.ndarray:
    counts = np.maximum(np.asarray(weights, dtype=np.float64), 0.0)
    return counts / counts.sum() if counts.sum() > 0 else np.full(len(counts), 1 / len(counts))


def estimated_nodes(
    trees: Sequence[Sequence[OpenNode]], cells: int, classes: int, certainty: float | None = None
) -> list[list[Node]]:
    """Consistent least-squares estimates of the counts of every node of some trees."""
    grown = [open_node for tree in trees for open_node in tree]
    starts = np.cumsum([0] + [len(tree) for tree in trees]).tolist()
    # Two trees of three nodes: the children of the second one's root are 4 and 5.
    children = [
        [start + child for child in open_node.children]
        for start, tree in zip(starts, trees, strict=False)
        for open_node in tree
    ]
    # A node without an answer has an infinite variance, so its zeros weigh nothing.
    answers = np.array([np.zeros(cells) if open_node.cells is None else open_node.cells for open_node in grown])
    estimates, variances = least_squares(children, answers, np.array([open_node.variance for open_node in grown]))
    fitted = []
    for start, tree in zip(starts, trees, strict=False):
        counts = estimates[start : start + len(tree), :classes]
        deviations = np.sqrt(variances[start : start + len(tree)])
        fitted.append(_nodes(tree, counts, deviations.tolist(), _keeps(tree, counts, deviations, certainty)))
    return fitted


def _keeps(tree: Sequence[OpenNode], counts: np.ndarray, deviations: np.ndarray, certainty: float | None) -> np.ndarray:
    """Whether each node keeps its split, shape (nodes,)."""
    children = [open_node.children for open_node in tree]
    if certainty is None:
        return np.array([bool(below) for below in children])
    probabilities = class_probabilities(children, counts, deviations)
    rows = np.maximum(counts.sum(axis=1, keepdims=True), 0)
    noise = float(np.median(deviations))
    return worth_keeping(children, rows * probabilities, certainty, probabilities=probabilities, noise=noise)


def calibrated_nodes(grown: Sequence[OpenNode], classes: int, certainty: float) -> list[Node]:
    """Calibrates sizes and leaves' counts by ``calibrate``; prunes."""
    children = [open_node.children for open_node in grown]
    cells = calibrate(children, [open_node.size for open_node in grown], [open_node.cells for open_node in grown])
    return _nodes(
        grown, cells[:, :classes], [None] * len(grown), worth_keeping(children, cells[:, :classes], certainty)
    )


def released_nodes(grown: Sequence[OpenNode], classes: int) -> list[Node]:
    """The nodes with their answers as released."""
    nodes = []
    for open_node in grown:
        counts = () if open_node.cells is None or open_node.children else tuple(open_node.cells[:classes].tolist())
        nodes.append(
            Node(
                open_node.split, open_node.children, open_node.size, open_node.size_scale, counts, open_node.cells_scale
            )
        )
    return nodes


def _nodes(
    grown: Sequence[OpenNode], counts: np.ndarray, deviations: Sequence[float | None], keeps: np.ndarray
) -> list[Node]:
    """The nodes of the pruned tree, renumbered."""
    children = [open_node.children for open_node in grown]
    positions = [0]
    for position in positions:  # grows while it is walked through: parents before their children
        positions += children[position] if keeps[position] else ()
    # Node 0 has the children 1 and 4, node 1 has 2 and 3; where 1 loses its split, 0, 1 and 4 are
    # left, numbered 0, 1 and 2.
    number = {position: new for new, position in enumerate(positions)}
    nodes, rows = [], counts.tolist()
    for position in positions:
        open_node = grown[position]
        split = open_node.split if keeps[position] else None
        below = tuple(number[child] for child in children[position]) if keeps[position] else ()
        nodes.append(
            Node(
                split,
                below,
                open_node.size,
                open_node.size_scale,
                tuple(rows[position]),
                None,
                deviations[position],
            )
        )
    return nodes
