# SPDX-License-Identifier: Apache-2.0
"""``grow_public`` grows trees that are public, of rows that are not: SID3 and SID3P."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count

import numpy as np

from miners.secure.id3.rules import Later, Rule, later
from miners.secure.id3.sources import Path, Source
from miners.secure.id3.task import Branch, Task
from miners.secure.mpc.arithmetic import Arithmetic, Shares
from pinq.errors import InternalError

__all__ = ["Progress", "grow_public"]

Progress = Callable[[str], None]


async def grow_public(
    arithmetic: Arithmetic, task: Task, source: Source, rule: Rule, progress: Progress
) -> list[Branch]:
    """Grows a tree whose every node is opened as the rule says, one level at a time.

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
    counts = later(source.classes)
    for level in count():
        labels = await rule.judge(arithmetic, counts, len(paths), level)
        splitting = np.flatnonzero(labels < 0)
        progress(f"level {level}: {len(paths):,} nodes, {len(splitting):,} of them split")
        if not len(splitting):
            return tree + [Branch(label=int(label)) for label in labels]
        paths, remaining = [paths[node] for node in splitting], remaining[splitting]
        tables = later(partial(source.tables, paths, remaining))
        positions = await rule.choose(arithmetic, tables, remaining, level)
        chosen = remaining[np.arange(len(positions)), positions]
        tree += _branches(task, labels, chosen, len(tree) + len(labels))
        counts = later(partial(_chosen_tables, task, tables, remaining, positions))
        # Attributes 0, 1 and 2, split by 1, which has three values: three children with 0 and 2.
        unused = [row[row != attribute] for row, attribute in zip(remaining, chosen, strict=True)]
        remaining = np.concatenate(
            [np.tile(row, (task.sizes[attribute], 1)) for row, attribute in zip(unused, chosen, strict=True)]
        )
        paths = [
            (*path, (int(attribute), value))
            for path, attribute in zip(paths, chosen, strict=True)
            for value in range(task.sizes[attribute])
        ]
    raise InternalError("a tree grew without end")


async def _chosen_tables(task: Task, tables: Later, attributes: np.ndarray, positions: np.ndarray) -> Shares:
    """Takes the table of each node's chosen attribute out of all tables, which lie end to end.

    Args:
        task: The public facts.
        tables: Shape (values, classes).
        attributes: Of each node, shape (nodes, attributes).
        positions: The position of the chosen one among each node's attributes.
    """
    # Two nodes with attributes of 2 and 3 values each: tables begin at rows 0, 2, 5 and 7, and that
    # of the second node's first attribute is rows 5 and 6.
    sizes = np.array(task.sizes)[attributes]
    starts = (np.cumsum(sizes) - sizes.reshape(-1)).reshape(sizes.shape)
    nodes = np.arange(len(positions))
    chosen = zip(starts[nodes, positions], sizes[nodes, positions], strict=True)
    counts = await tables()
    return np.concatenate([counts[start : start + size] for start, size in chosen])


def _branches(task: Task, labels: np.ndarray, chosen: np.ndarray, first: int) -> list[Branch]:
    """Makes the nodes of a level; the children of those that split are numbered from ``first``."""
    branches, attributes = [], iter(chosen.tolist())
    for label in labels.tolist():
        if label >= 0:
            branches.append(Branch(label=label))
            continue
        attribute = next(attributes)
        branches.append(Branch(attribute, tuple(range(first, first + task.sizes[attribute]))))
        first += task.sizes[attribute]
    return branches
