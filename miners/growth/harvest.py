# SPDX-License-Identifier: Apache-2.0
"""From a grown tree with its answers to the nodes of a fitted one: as released, calibrated, or estimated from all answers together; and pruned.

Privacy:
    Claim: free. Why: functions of differentially private answers and of their public variances
    (post-processing).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from miners.fitted.estimates import least_squares
from miners.fitted.node import Node
from miners.growth.frontier import Sprout
from miners.growth.pruning import calibrate, worth_keeping

__all__ = ["calibrated_nodes", "estimated_nodes", "released_nodes"]


def estimated_nodes(sprouts: Sequence[Sprout], cells: int, kept: int, certainty: float | None = None) -> list[Node]:
    """Consistent least-squares estimates of every node's counts.

    Args:
        sprouts: A grown tree, the root first.
        cells: Numbers that a node is described by.
        kept: How many of them the fitted tree is to have, the first ones: all but a missing class.
        certainty: C4.5's certainty factor; None to prune nothing.
    """
    children = [sprout.children for sprout in sprouts]
    asked = np.array([np.zeros(cells) if sprout.cells is None else sprout.cells for sprout in sprouts])
    estimates, variances = least_squares(children, asked, np.array([sprout.variance for sprout in sprouts]))
    return _pruned(sprouts, estimates[:, :kept], np.sqrt(variances).tolist(), certainty)


def calibrated_nodes(sprouts: Sequence[Sprout], kept: int, certainty: float) -> list[Node]:
    """The counts that Friedman & Schuster's Algorithm 3 makes of sizes and leaves' counts, pruned."""
    children = [sprout.children for sprout in sprouts]
    cells = calibrate(children, [sprout.size for sprout in sprouts], [sprout.cells for sprout in sprouts])
    return _pruned(sprouts, cells[:, :kept], [None] * len(sprouts), certainty)


def released_nodes(sprouts: Sequence[Sprout], kept: int) -> list[Node]:
    """Each node with its answers as they came."""
    nodes = []
    for sprout in sprouts:
        counts = () if sprout.cells is None or sprout.children else tuple(sprout.cells[:kept].tolist())
        nodes.append(Node(sprout.split, sprout.children, sprout.size, sprout.size_scale, counts, sprout.cells_scale))
    return nodes


def _pruned(
    sprouts: Sequence[Sprout], counts: np.ndarray, deviations: Sequence[float | None], certainty: float | None
) -> list[Node]:
    """The nodes that are left where only some splits are worth keeping, renumbered."""
    children = [sprout.children for sprout in sprouts]
    keeps = (
        np.array([bool(below) for below in children])
        if certainty is None
        else worth_keeping(children, counts, certainty)
    )
    kept = [0]
    for place in kept:  # grows while it is walked through: parents before their children
        kept += children[place] if keeps[place] else ()
    number = {place: new for new, place in enumerate(kept)}
    nodes = []
    for place in kept:
        sprout = sprouts[place]
        split = sprout.split if keeps[place] else None
        below = tuple(number[child] for child in children[place]) if keeps[place] else ()
        nodes.append(
            Node(split, below, sprout.size, sprout.size_scale, tuple(counts[place].tolist()), None, deviations[place])
        )
    return nodes
