# SPDX-License-Identifier: Apache-2.0
"""``plain_id3`` grows the tree that the secure protocols must equal, by exact fractions.

It needs all rows; tests and benchmarks have them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from miners.fitted.node import Node
from miners.fitted.tree import Tree
from pinq_secure.id3.task import Holding, Task

__all__ = ["Branch", "plain_id3", "plain_paths", "to_tree"]


@dataclass(frozen=True)
class Branch:
    """A node of a tree over numbered attributes: its split and children, or its class."""

    attribute: int | None = None
    children: tuple[int, ...] = ()
    label: int | None = None


def to_tree(task: Task, branches: Sequence[Branch]) -> Tree:
    """Makes the usual tree, whose leaves have a label alone: counts are not opened."""
    nodes = []
    for branch in branches:
        if branch.attribute is None:
            nodes.append(Node(label=branch.label))
        else:
            nodes.append(Node(split=task.splits[branch.attribute], children=branch.children))
    return Tree(task.schema, task.target, nodes)


def plain_id3(task: Task, holding: Holding, stop_share: Fraction, alpha: int) -> list[Branch]:
    """Grows the tree of SID3, SID3P and SID3T; nodes in the order of levels.

    Among equal classes, and among equal attributes, the first wins.
    """
    rows, tree = holding.each, [Branch()]
    waiting = deque([(0, rows, tuple(range(len(task.sizes))))])
    while waiting:
        node, inside, remaining = waiting.popleft()
        counts = np.bincount(inside[-1], minlength=task.classes)
        if not remaining or inside.shape[1] <= stop_share * rows.shape[1] or counts.max() == inside.shape[1]:
            tree[node] = Branch(label=int(counts.argmax()))
            continue
        scores = [_score(task, inside, attribute, alpha) for attribute in remaining]
        chosen = remaining[scores.index(max(scores))]
        first, below = len(tree), tuple(attribute for attribute in remaining if attribute != chosen)
        tree[node] = Branch(chosen, tuple(range(first, first + task.sizes[chosen])))
        for value in range(task.sizes[chosen]):
            waiting.append((len(tree), inside[:, inside[chosen] == value], below))
            tree.append(Branch())
    return tree


def plain_paths(task: Task, holding: Holding) -> np.ndarray:
    """Finds the class of each combination of values, as SID3S gives it. Shape: sizes.

    It is the most frequent class on the longest prefix of the combination that has rows.
    """
    rows = holding.each
    labels = np.zeros((), dtype=np.int64)
    for length in range(len(task.sizes) + 1):
        shape = (*task.sizes[:length], task.classes)
        cells = np.ravel_multi_index((*rows[:length], rows[-1]), shape)
        counts = np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape)
        above = labels if length == 0 else np.broadcast_to(labels[..., None], shape[:-1])
        labels = np.where(counts.sum(axis=-1) > 0, counts.argmax(axis=-1), above)
    return labels


def _score(task: Task, rows: np.ndarray, attribute: int, alpha: int) -> Fraction:
    """Scores an attribute by the equation of section 4: sum_j (sum_i x_ij^2) / (alpha n_j + 1)."""
    table = np.zeros((task.sizes[attribute], task.classes), dtype=object)
    np.add.at(table, (rows[attribute], rows[-1]), 1)
    return sum((Fraction(int((x * x).sum()), alpha * int(x.sum()) + 1) for x in table), Fraction(0))
