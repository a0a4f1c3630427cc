# SPDX-License-Identifier: Apache-2.0
"""Plain ID3 with the secure protocols' rules, by exact fractions: what they must equal. For tests, and for anybody who has all rows."""

from __future__ import annotations

from collections import deque
from fractions import Fraction

import numpy as np

from miners.secure.task import Branch, Holding, Task

__all__ = ["plain_id3", "plain_paths"]


def plain_id3(task: Task, holding: Holding, stop_share: Fraction, alpha: int) -> list[Branch]:
    """The tree of SID3, SID3P and SID3T, nodes in the order of levels. Of equal classes and equal attributes the first wins."""
    rows, tree = holding.each, [Branch()]
    waiting = deque([(0, rows, tuple(range(len(task.sizes))))])
    while waiting:
        place, inside, remaining = waiting.popleft()
        counts = np.bincount(inside[-1], minlength=task.classes)
        if not remaining or inside.shape[1] <= stop_share * rows.shape[1] or counts.max() == inside.shape[1]:
            tree[place] = Branch(label=int(counts.argmax()))
            continue
        chosen = max(remaining, key=lambda one: (_score(task, inside, one, alpha), -one))
        first = len(tree)
        tree[place] = Branch(chosen, tuple(range(first, first + task.sizes[chosen])))
        for value in range(task.sizes[chosen]):
            waiting.append(
                (len(tree), inside[:, inside[chosen] == value], tuple(one for one in remaining if one != chosen))
            )
            tree.append(Branch())
    return tree


def plain_paths(task: Task, holding: Holding) -> np.ndarray:
    """The class of each combination of values, as SID3S gives it: the most frequent one on the longest prefix that has rows. Shape: sizes."""
    rows = holding.each
    labels = np.zeros((), dtype=np.int64)
    for length in range(len(task.sizes) + 1):
        shape = (*task.sizes[:length], task.classes)
        counts = np.bincount(
            np.ravel_multi_index((*rows[:length], rows[-1]), shape), minlength=int(np.prod(shape))
        ).reshape(shape)
        above = labels if length == 0 else np.broadcast_to(labels[..., None], shape[:-1])
        labels = np.where(counts.sum(axis=-1) > 0, counts.argmax(axis=-1), above)
    return labels


def _score(task: Task, rows: np.ndarray, attribute: int, alpha: int) -> Fraction:
    """Equation of section 4: sum_j (sum_i x_ij^2) / (alpha n_j + 1)."""
    table = np.zeros((task.sizes[attribute], task.classes), dtype=object)
    np.add.at(table, (rows[attribute], rows[-1]), 1)
    return sum((Fraction(int((cell * cell).sum()), alpha * int(cell.sum()) + 1) for cell in table), Fraction(0))
