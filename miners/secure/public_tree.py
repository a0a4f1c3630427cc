# SPDX-License-Identifier: Apache-2.0
"""ID3 in which the tree is public and the rows are not: SID3 and SID3P, with exact or with noisy rules. One level at a time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np

from miners.secure.arithmetic import Arithmetic
from miners.secure.rules import Rule
from miners.secure.sources import Path, Source
from miners.secure.task import Branch, Task
from pinq.errors import InternalError

__all__ = ["Progress", "grow_public"]

Progress = Callable[[str], None]


async def grow_public(
    arithmetic: Arithmetic, task: Task, source: Source, rule: Rule, progress: Progress
) -> list[Branch]:
    """Grows a tree whose every node is opened as the rule says.

    All nodes of a level are judged, and all that go on choose, at once: rounds grow with the depth
    of the tree, not with its nodes. A chosen attribute's table holds the class counts of the
    children, so a node is judged before any mask of its rows is made.

    Privacy:
        Opens: what the rule opens of each node (see ``rules``), in the order of levels; nothing of
        the source.
    """
    tree: list[Branch] = []
    paths: list[Path] = [()]
    remaining = np.arange(len(task.sizes))[None]
    counts = await source.classes()
    for level in count():
        labels = await rule.judge(arithmetic, counts, level)
        going = np.flatnonzero(labels < 0)
        progress(f"level {level}: {len(paths):,} nodes, {len(going):,} of them split")
        if not len(going):
            return tree + [Branch(label=int(label)) for label in labels]
        paths, remaining = [paths[one] for one in going], remaining[going]
        tables = await source.tables(paths, remaining)
        picked = await rule.choose(arithmetic, tables, remaining, level)
        chosen = remaining[np.arange(len(picked)), picked]
        tree += _branches(task, labels, chosen, len(tree) + len(labels))
        sizes = np.array(task.sizes)[remaining]
        starts = (np.cumsum(sizes) - sizes.reshape(-1)).reshape(sizes.shape)[np.arange(len(picked)), picked]
        counts = np.concatenate(
            [tables[start : start + task.sizes[one]] for start, one in zip(starts, chosen, strict=True)]
        )
        remaining = np.concatenate(
            [np.tile(row[row != one], (task.sizes[one], 1)) for row, one in zip(remaining, chosen, strict=True)]
        )
        paths = [
            (*path, (int(one), value))
            for path, one in zip(paths, chosen, strict=True)
            for value in range(task.sizes[one])
        ]
    raise InternalError("a tree grew without end")


def _branches(task: Task, labels: np.ndarray, chosen: np.ndarray, first: int) -> list[Branch]:
    """The nodes of a level; the children of those that split are numbered from ``first``."""
    found, split = [], iter(chosen.tolist())
    for label in labels.tolist():
        if label >= 0:
            found.append(Branch(label=label))
            continue
        attribute = next(split)
        found.append(Branch(attribute, tuple(range(first, first + task.sizes[attribute]))))
        first += task.sizes[attribute]
    return found
