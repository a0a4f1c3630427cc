# SPDX-License-Identifier: Apache-2.0
"""Makes the nodes of a fitted tree of the answers of a grown one.

Counts are as released, calibrated, or estimated from all answers together; then splits are pruned.

Privacy:
    Claim: free. Why: functions of differentially private answers and of their public variances
    (post-processing).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from miners.fitted.estimates import class_shares, least_squares
from miners.fitted.node import Node
from miners.growth.open_node import OpenNode
from miners.growth.pruning import calibrate, worth_keeping

__all__ = ["calibrated_nodes", "estimated_forest", "estimated_nodes", "released_nodes"]


def estimated_nodes(grown: Sequence[OpenNode], cells: int, kept: int, certainty: float | None = None) -> list[Node]:
    """Consistent least-squares estimates of every node's counts.

    Args:
        grown: A grown tree, the root first.
        cells: Numbers that a node is described by.
        kept: How many of them the fitted tree is to have, the first ones: all but a missing class.
        certainty: C4.5's certainty factor, for pruning that spares splits which tell shares apart;
            None to prune nothing.
    """
    if certainty is None:
        return estimated_forest([grown], cells, kept)[0]
    children = [open_node.children for open_node in grown]
    counts, deviations = _estimated(grown, children, cells, kept)
    shares = class_shares(children, counts, deviations)
    rows = np.maximum(counts.sum(axis=1, keepdims=True), 0)
    return _nodes(grown, counts, deviations.tolist(), worth_keeping(children, rows * shares, certainty, shares=shares))


def estimated_forest(trees: Sequence[Sequence[OpenNode]], cells: int, kept: int) -> list[list[Node]]:
    """``estimated_nodes`` of several trees together; nothing is pruned."""
    ends = np.cumsum([len(tree) for tree in trees]).tolist()
    parts = [slice(end - len(tree), end) for end, tree in zip(ends, trees, strict=True)]
    # Two trees of three nodes: the children of the second one's root are 4 and 5.
    children = [
        [part.start + child for child in open_node.children]
        for part, tree in zip(parts, trees, strict=True)
        for open_node in tree
    ]
    counts, deviations = _estimated([open_node for tree in trees for open_node in tree], children, cells, kept)
    split = np.array([bool(below) for below in children])
    return [
        _nodes(tree, counts[part], deviations[part].tolist(), split[part])
        for part, tree in zip(parts, trees, strict=True)
    ]


def _estimated(
    grown: Sequence[OpenNode], children: Sequence[Sequence[int]], cells: int, kept: int
) -> tuple[np.ndarray, np.ndarray]:
    """Estimated counts, shape (nodes, kept), and the deviations of their noise, shape (nodes,)."""
    asked = np.array([np.zeros(cells) if open_node.cells is None else open_node.cells for open_node in grown])
    # Where a node was not asked its variance is infinite, so its zeros weigh nothing.
    estimates, variances = least_squares(children, asked, np.array([open_node.variance for open_node in grown]))
    return estimates[:, :kept], np.sqrt(variances)


def calibrated_nodes(grown: Sequence[OpenNode], kept: int, certainty: float) -> list[Node]:
    """Calibrates sizes and leaves' counts by Friedman & Schuster's Algorithm 3; prunes."""
    children = [open_node.children for open_node in grown]
    cells = calibrate(children, [open_node.size for open_node in grown], [open_node.cells for open_node in grown])
    return _nodes(grown, cells[:, :kept], [None] * len(grown), worth_keeping(children, cells[:, :kept], certainty))


def released_nodes(grown: Sequence[OpenNode], kept: int) -> list[Node]:
    """Each node with its answers as they came."""
    nodes = []
    for open_node in grown:
        counts = () if open_node.cells is None or open_node.children else tuple(open_node.cells[:kept].tolist())
        nodes.append(
            Node(
                open_node.split, open_node.children, open_node.size, open_node.size_scale, counts, open_node.cells_scale
            )
        )
    return nodes


def _nodes(
    grown: Sequence[OpenNode], counts: np.ndarray, deviations: Sequence[float | None], keeps: np.ndarray
) -> list[Node]:
    """The nodes that are left where only some splits are kept, renumbered."""
    children = [open_node.children for open_node in grown]
    kept = [0]
    for position in kept:  # grows while it is walked through: parents before their children
        kept += children[position] if keeps[position] else ()
    # Node 0 has the children 1 and 4, node 1 has 2 and 3; where 1 loses its split, 0, 1 and 4 are
    # left, numbered 0, 1 and 2.
    number = {position: new for new, position in enumerate(kept)}
    nodes, rows = [], counts.tolist()
    for position in kept:
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
