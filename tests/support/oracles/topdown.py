# SPDX-License-Identifier: Apache-2.0
"""``plain_topdown`` grows the tree that FederatedTopDown must equal without noise: Algorithm 1 of Wang, Dick & Balcan 2020.

It has all rows, and counts them with pandas, one split after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from miners.federated.best_first import MIN_GAIN, MIN_SHARE
from pinq.language.specs import Cuts, Groups

__all__ = ["PlainNode", "impurity", "plain_topdown"]

Function = Cuts | Groups


@dataclass
class PlainNode:
    """A node of the plain tree: its rows, its depth, and the splitting function that it was given."""

    rows: pd.DataFrame
    depth: int
    split: Function | None = None


def impurity(criterion: str, labels: pd.Series) -> float:
    """Returns G(q) of sec. 2 and A.10, q the share of one of two classes: 1 for even classes, 0 for one alone."""
    q = labels.value_counts(normalize=True)
    if criterion == "gini":
        return float(2 * (1 - (q**2).sum()))  # 4 q (1 - q)
    if criterion == "max":
        return float(2 * (1 - q.max()))
    return float(-(q * np.log2(q)).sum())


def plain_topdown(
    rows: pd.DataFrame, target: str, functions: Sequence[Function], criterion: str, max_nodes: int, max_depth: int
) -> list[PlainNode]:
    """Splits the leaf and by the function that lower the potential of equation 1 most, one after the other.

    Returns:
        The root first, then the two children of each split in the order of splits.
    """
    nodes, waiting = [PlainNode(rows, 0)], {0: _best(rows, target, functions, criterion)}
    for _ in range(max_nodes):
        # Line 12: a child with fewer than epsilon / M of all rows is not split; sec. 4: nor one with too little gain.
        priority = [
            (gain * len(nodes[leaf].rows), leaf)
            for leaf, (gain, _) in waiting.items()
            if gain > MIN_GAIN
            and nodes[leaf].depth < max_depth
            and (leaf == 0 or len(nodes[leaf].rows) >= MIN_SHARE / max_nodes * len(rows))
        ]
        if not priority:
            break
        _, leaf = max(priority)
        parent = nodes[leaf]
        _, parent.split = waiting.pop(leaf)
        first = _first_side(parent.rows, parent.split)
        for side in (first, ~first):
            waiting[len(nodes)] = _best(parent.rows[side], target, functions, criterion)
            nodes.append(PlainNode(parent.rows[side], parent.depth + 1))
    return nodes


def _best(rows: pd.DataFrame, target: str, functions: Sequence[Function], criterion: str) -> tuple[float, Function]:
    """Returns the largest J(leaf, h) of sec. 2.1, and the function that has it."""
    gains = []
    for function in functions:
        first = _first_side(rows, function)
        sides = [rows[target][side] for side in (first, ~first)]
        below = sum(len(side) / len(rows) * impurity(criterion, side) for side in sides if len(side))
        gains.append((impurity(criterion, rows[target]) - below, function))
    return max(gains, key=lambda entry: entry[0])


def _first_side(rows: pd.DataFrame, split: Function) -> pd.Series:
    """Returns which rows go to the first side of a split."""
    if isinstance(split, Cuts):
        return rows[split.column] < split.points[0]
    return rows[split.column].isin(split.groups[0])
