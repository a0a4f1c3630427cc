# SPDX-License-Identifier: Apache-2.0
"""Where a public tree's shared tables of counts come from: secret-shared records (SID3), or each party's own tables (SID3P)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from miners.secure.arithmetic import Arithmetic, Shares
from miners.secure.task import Holding, Task
from pinq.errors import QueryError

__all__ = ["MOST_BITS_SHARED", "LocalTables", "Path", "Records", "Source", "require_records"]

MOST_BITS_SHARED = 2**25

Path = tuple[tuple[int, int], ...]
"""A public node: the attribute and value of each step from the root."""


class Source(Protocol):
    """Gives shares of the counts that a tree's growth asks for."""

    async def classes(self) -> Shares:
        """Rows of each class, shape (1, classes)."""

    async def tables(self, paths: Sequence[Path], attributes: np.ndarray) -> Shares:
        """Rows of each class with each value of each of a node's attributes, end to end, shape (values, classes).

        Args:
            paths: The nodes of one level, those above were asked before; as they are asked, the
                order stays.
            attributes: Of each node, shape (nodes, attributes).
        """


class LocalTables:
    """SID3P (Protocol 5.4): each party counts its own rows and shares the table, so what is sent does not depend on rows.

    Args:
        arithmetic: Among the parties.
        task: What is known.
        holding: This party's rows.
    """

    def __init__(self, arithmetic: Arithmetic, task: Task, holding: Holding) -> None:
        self._arithmetic, self._task, self._holding = arithmetic, task, holding
        self._rows: dict[Path, np.ndarray] = {(): np.arange(holding.places.shape[1])}

    async def classes(self) -> Shares:
        found = np.bincount(self._holding.places[-1], self._holding.counts, self._task.classes)
        return await self._arithmetic.sum_of_inputs(found.astype(np.int64)[None])

    async def tables(self, paths: Sequence[Path], attributes: np.ndarray) -> Shares:
        self._rows = {path: self._below(path) for path in paths}
        own = [self._count(self._rows[path], one) for path, row in zip(paths, attributes, strict=True) for one in row]
        return await self._arithmetic.sum_of_inputs(np.concatenate(own))

    def _below(self, path: Path) -> np.ndarray:
        if not path:
            return self._rows[path]
        (attribute, value), above = path[-1], self._rows[path[:-1]]
        return above[self._holding.places[attribute, above] == value]

    def _count(self, rows: np.ndarray, attribute: int) -> np.ndarray:
        places, counts, classes = self._holding.places, self._holding.counts, self._task.classes
        cells = self._task.sizes[attribute] * classes
        found = np.bincount(places[attribute, rows] * classes + places[-1, rows], counts[rows], cells)
        return found.astype(np.int64).reshape(-1, classes)


class Records:
    """SID3 (Protocol 4.1): every record is secret-shared; which of them are in a node is a secret bit each.

    A party that has fewer rows than it declared adds empty ones, which are in no node, so how many
    it has stays its own. Of each attribute all values but the last are shared: the last is what
    remains of the row's own bit.
    """

    def __init__(self, arithmetic: Arithmetic, task: Task) -> None:
        self._arithmetic, self._task = arithmetic, task
        self.values: Shares = np.zeros((sum(task.sizes), 0), dtype=object)
        self.labels: Shares = np.zeros((task.classes, 0), dtype=object)
        self._masks: dict[Path, Shares] = {}

    async def share(self, holding: Holding, party: int) -> None:
        """Shares every party's rows; this party's are ``holding``."""
        task, drop = self._task, self._task.starts + np.array(self._task.sizes) - 1
        kept = np.delete(np.arange(sum(task.sizes)), drop)
        blocks = []
        for owner, rows in enumerate(task.rows):
            mine = (
                _one_hot(task, holding, rows)[
                    np.concatenate([kept, np.arange(sum(task.sizes), sum(task.sizes) + task.classes)])
                ]
                if owner == party
                else None
            )
            blocks.append(await self._arithmetic.share(mine, owner, (len(kept) + task.classes, rows)))
        shared = np.concatenate(blocks, axis=1)
        self.labels = shared[len(kept) :]
        values = np.zeros((sum(task.sizes), shared.shape[1]), dtype=object)
        values[kept] = shared[: len(kept)]
        present = self.labels.sum(axis=0)
        for start, last in zip(task.starts, drop, strict=True):
            values[last] = present - values[start:last].sum(axis=0)
        self.values = values % self._arithmetic.modulus
        self._masks = {(): present % self._arithmetic.modulus}

    @property
    def present(self) -> Shares:
        """1 for each row that there is, 0 for an empty one."""
        return self._masks[()]

    async def classes(self) -> Shares:
        return self.labels.sum(axis=1)[None] % self._arithmetic.modulus

    async def tables(self, paths: Sequence[Path], attributes: np.ndarray) -> Shares:
        masks = await self._descend(paths)
        members = await members_of_classes(self._arithmetic, masks, self.labels)
        wanted = [self._task.columns(row) for row in attributes]
        return await self._arithmetic.product(
            lambda u, s: np.concatenate([s[columns] @ one.T for one, columns in zip(u, wanted, strict=True)]),
            members,
            self.values,
        )

    async def _descend(self, paths: Sequence[Path]) -> Shares:
        """Masks of the nodes of a level, shape (nodes, rows), from those of the level above."""
        if paths[0]:
            above = np.stack([self._masks[path[:-1]] for path in paths])
            columns = [self._task.starts[path[-1][0]] + path[-1][1] for path in paths]
            masks = await self._arithmetic.product(lambda t, s: t * s[columns], above, self.values)
            self._masks = {(): self.present} | dict(zip(paths, masks, strict=True))
        return np.stack([self._masks[path] for path in paths])


def require_records(task: Task) -> None:
    """``QueryError`` where more would be shared than fits into memory: a number for each value of each attribute of each row."""
    if (shared := task.most * (sum(task.sizes) + task.classes)) > MOST_BITS_SHARED:
        raise QueryError(
            f"the records of {task.most:,} rows would be {shared:,} secret bits at every party; at most {MOST_BITS_SHARED:,} are possible. Declare no more rows than there can be, "
            "coarser cuts or fewer attributes, or use SID3P, which shares counts only. Nothing left any party."
        )


async def members_of_classes(arithmetic: Arithmetic, masks: Shares, labels: Shares) -> Shares:
    """Which rows are in a node and of a class: shape (nodes, classes, rows). The last class is what remains of the mask."""
    first = await arithmetic.product(lambda t, s: t[:, None] * s[None, :-1], masks, labels)
    return np.concatenate([first, (masks - first.sum(axis=1))[:, None]], axis=1) % arithmetic.modulus


def _one_hot(task: Task, holding: Holding, rows: int) -> np.ndarray:
    """A bit for each value of each attribute, then for each class, of each row; empty rows at the end. Shape (values + classes, rows)."""
    sizes = [*task.sizes, task.classes]
    bits = np.zeros((sum(sizes), rows), dtype=object)
    starts = np.cumsum([0, *sizes[:-1]])
    each = holding.each
    for start, places in zip(starts, each, strict=True):
        bits[start + places, np.arange(each.shape[1])] = 1
    return bits
