# SPDX-License-Identifier: Apache-2.0
"""``Task`` has the public facts of a computation; a ``Source`` gives shared counts of the parties' rows.

``LocalTables`` is the source of SID3P, ``Records`` that of the other protocols.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from miners.fitted.route import Frame, encode
from miners.growth.candidates import CutsByColumn, multiway_splits
from pinq.errors import QueryError
from pinq.language.specs import Cuts, Values, bind
from pinq.public.schema import Schema
from pinq_secure.mpc.arithmetic import Arithmetic, Shares


def require_tables(tables: object) -> None:
    """Raises ``QueryError`` unless this is a list of at least three pandas or Arrow tables."""
    if not isinstance(tables, (list, tuple)) or len(tables) < 3:
        raise QueryError(
            "at least three tables are needed, in a list, one for each party; "
            "two parties of which one may be curious cannot share a secret."
        )
    for number, table in enumerate(tables):
        if not hasattr(table, "columns"):
            raise QueryError(
                f"the table of party {number} is {type(table).__name__}; it must be a pandas or Arrow table."
            )


@dataclass(frozen=True)
class Task:
    """The public facts of a computation.

    Attributes:
        target: The column to predict, categorical; for a scorecard perhaps numeric.
        splits: The split of each attribute, in the order that breaks ties; for a miner of sums, cells as fine as its
            finest query.
        rows: The largest number of rows of each party.
    """

    schema: Schema
    target: str
    splits: tuple[Values | Cuts, ...]
    rows: tuple[int, ...]

    @classmethod
    def of(
        cls,
        schema: Schema,
        target: str,
        rows: Sequence[int],
        attributes: Sequence[str] | None = None,
        cuts: CutsByColumn | None = None,
    ) -> Task:
        """Makes the task to predict ``target`` from ``attributes``, by default all others; see ``multiway_splits``."""
        schema.categorical(target)
        return cls(schema, target, multiway_splits(schema, target, attributes=attributes, cuts=cuts), tuple(rows))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        return tuple(bind(split, self.schema).size for split in self.splits)

    @cached_property
    def starts(self) -> np.ndarray:
        """The number of each attribute's first value in a numbering of all values."""
        # Attributes of 2, 3 and 4 values begin at 0, 2 and 5.
        return np.cumsum([0, *self.sizes[:-1]])

    @property
    def classes(self) -> int:
        """The number of declared values of the target, or of a numeric target's grid cells."""
        return self.schema.column(self.target).cells

    @property
    def max_rows(self) -> int:
        return sum(self.rows)

    def codes(self, table: Frame) -> np.ndarray:
        """The codes of rows, shape (attributes, rows); -1 for an undeclared value."""
        axes = [bind(split, self.schema).axes[0] for split in self.splits]
        codes = [encode(self.schema, split.column, table) for split in self.splits]
        return np.stack([axis.parts_of(column) for axis, column in zip(axes, codes, strict=True)])

    def lookup_codes(self, table: Frame) -> np.ndarray:
        """The codes of rows to look up, shape (rows, attributes); raises ``QueryError`` for an undeclared value."""
        codes = self.codes(table)
        if (codes < 0).any():
            missing = self.splits[int(np.argwhere(codes < 0)[0, 0])].column
            raise QueryError(
                f"a row to look up has a value of `{missing}` that is missing or not declared; leave such rows out."
            )
        return codes.T

    def columns(self, attributes: np.ndarray) -> np.ndarray:
        """The numbers of all values of some attributes."""
        numbers = [np.arange(self.starts[number], self.starts[number] + self.sizes[number]) for number in attributes]
        return np.concatenate(numbers or [np.zeros(0, dtype=np.int64)])


def hold(task: Task, table: Frame) -> Holding:
    """Encodes a party's rows, without rows that have an undeclared or missing value."""
    classes = encode(task.schema, task.target, table)
    classes = np.where(classes >= task.classes, -1, classes)  # a missing class teaches nothing
    codes = np.concatenate([task.codes(table), classes[None]]).astype(np.int64)
    codes = codes[:, (codes >= 0).all(axis=0)]
    return Holding(codes, np.ones(codes.shape[1], dtype=np.int64))


MAX_SHARED_BITS = 2**25

Path = tuple[tuple[int, int], ...]
"""A public node: the attribute and value of each step from the root."""


class LocalTables:
    """SID3P (Protocol 5.4): each party counts its rows and shares the table."""

    def __init__(self, arithmetic: Arithmetic, task: Task, holding: Holding) -> None:
        self._arithmetic, self._task, self._holding = arithmetic, task, holding
        self._rows: dict[Path, np.ndarray] = {(): np.arange(holding.codes.shape[1])}

    async def classes(self) -> Shares:
        """The counts of rows of each class, shape (1, classes)."""
        counts = np.bincount(self._holding.codes[-1], self._holding.counts, self._task.classes)
        return await self._arithmetic.sum_of_inputs(counts.astype(np.int64)[None])

    async def tables(self, paths: Sequence[Path], attributes: np.ndarray) -> Shares:
        """Counts the rows of each class with each value of each of a node's attributes.

        Args:
            paths: The nodes of one level; as they are asked, the order stays.
            attributes: The attributes of each node, shape (nodes, attributes).

        Returns:
            The tables end to end, shape (values, classes).
        """
        counts = [
            self._count(self._within(path), attribute)
            for path, row in zip(paths, attributes, strict=True)
            for attribute in row
        ]
        return await self._arithmetic.sum_of_inputs(np.concatenate(counts))

    def _within(self, path: Path) -> np.ndarray:
        """The rows of a node, selected from those of its parent, and remembered."""
        if path not in self._rows:
            (attribute, value), above = path[-1], self._within(path[:-1])
            self._rows[path] = above[self._holding.codes[attribute, above] == value]
        return self._rows[path]

    def _count(self, rows: np.ndarray, attribute: int) -> np.ndarray:
        """The counts of rows by an attribute's value and class, shape (values, classes)."""
        codes, counts, classes = self._holding.codes, self._holding.counts, self._task.classes
        cells = codes[attribute, rows] * classes + codes[-1, rows]
        table = np.bincount(cells, counts[rows], self._task.sizes[attribute] * classes)
        return table.astype(np.int64).reshape(-1, classes)


class Records:
    """SID3 (Protocol 4.1) secret-shares every record, with a bit for its membership of each node.

    A party with fewer rows than declared adds empty ones, which are in no node, so its number of rows stays secret. For
    each attribute all values but the last are shared; the last is the rest of the row's own bit. Rows are shared before
    the first query.

    Attributes:
        values, labels: Shares of a bit for each value, and for each class, of each row.
    """

    def __init__(self, arithmetic: Arithmetic, task: Task, holding: Holding) -> None:
        self._arithmetic, self._task, self._holding = arithmetic, task, holding
        self.values: Shares = np.zeros((sum(task.sizes), 0), dtype=object)
        self.labels: Shares = np.zeros((task.classes, 0), dtype=object)
        self._masks: dict[Path, Shares] = {}

    async def share(self) -> None:
        if self._masks:
            return
        task, last = self._task, self._task.starts + np.array(self._task.sizes) - 1
        n_values, sizes = sum(task.sizes), [*task.sizes, task.classes]
        # Attributes of 2 and 3 values and two classes: of the values 0 to 4 the last ones, 1 and 4, are
        # not sent; 0, 2, 3 and the classes 5 and 6 are.
        shared_values = np.delete(np.arange(n_values), last)
        sent = np.concatenate([shared_values, np.arange(n_values, n_values + task.classes)])
        blocks = []
        for owner, rows in enumerate(task.rows):
            bits = one_hot(sizes, self._holding.each, rows)[sent] if owner == self._arithmetic.party else None
            blocks.append(await self._arithmetic.share(bits, owner, (len(sent), rows)))
        shared = np.concatenate(blocks, axis=1)
        self.labels = shared[len(shared_values) :]
        values = np.zeros((n_values, shared.shape[1]), dtype=object)
        values[shared_values] = shared[: len(shared_values)]
        present = self.labels.sum(axis=0)
        for start, remainder in zip(task.starts, last, strict=True):
            values[remainder] = present - values[start:remainder].sum(axis=0)
        self.values = values % self._arithmetic.modulus
        self._masks = {(): present % self._arithmetic.modulus}

    @property
    def present(self) -> Shares:
        return self._masks[()]

    async def classes(self) -> Shares:
        await self.share()
        return self.labels.sum(axis=1)[None] % self._arithmetic.modulus

    async def tables(self, paths: Sequence[Path], attributes: np.ndarray) -> Shares:
        await self.share()
        members = await members_of_classes(self._arithmetic, await self._within(paths), self.labels)
        columns_of_nodes = [self._task.columns(row) for row in attributes]

        def counts(members: Shares, values: Shares) -> Shares:
            return np.concatenate(
                [values[columns] @ node.T for node, columns in zip(members, columns_of_nodes, strict=True)]
            )

        return await self._arithmetic.product(counts, members, self.values)

    async def _within(self, paths: Sequence[Path]) -> Shares:
        """The masks of a level's nodes, shape (nodes, rows), from those above."""
        if paths[0] and paths[0] not in self._masks:
            above = await self._within([path[:-1] for path in paths])
            columns = [self._task.starts[path[-1][0]] + path[-1][1] for path in paths]
            masks = await self._arithmetic.product(lambda t, s: t * s[columns], above, self.values)
            self._masks = {(): self.present} | dict(zip(paths, masks, strict=True))
        return np.stack([self._masks[path] for path in paths])


Source = LocalTables | Records
"""The source of shared counts for the growth of a public tree."""


def require_records(task: Task) -> None:
    """Raises ``QueryError`` if the shares, one for each value of each attribute of each row, exceed the memory."""
    shared = task.max_rows * (sum(task.sizes) + task.classes)
    if shared > MAX_SHARED_BITS:
        raise QueryError(
            f"the records of {task.max_rows:,} rows would be {shared:,} secret bits at every party; "
            f"at most {MAX_SHARED_BITS:,} are possible. Declare no more rows than there can be, "
            "coarser cuts or fewer attributes, or use SID3P, which shares counts only. Nothing left any party."
        )


async def members_of_classes(arithmetic: Arithmetic, masks: Shares, labels: Shares) -> Shares:
    """The rows of each class (or value) in each node, shape (nodes, classes, rows).

    The last class has the rest of the mask.
    """
    first = await arithmetic.product(lambda t, s: t[:, None] * s[None, :-1], masks, labels)
    return np.concatenate([first, (masks - first.sum(axis=1))[:, None]], axis=1) % arithmetic.modulus


def one_hot(sizes: Sequence[int], codes: np.ndarray, rows: int) -> np.ndarray:
    """Makes a bit for each value of each row; shape (bits, rows). Empty rows stand at the end.

    Args:
        sizes: The number of values of each attribute.
        codes: The value of each attribute, shape (attributes, at most so many rows).
        rows: The number of rows.
    """
    bits = np.zeros((sum(sizes), rows), dtype=object)
    for start, values in zip(np.cumsum([0, *sizes[:-1]]), codes, strict=True):
        bits[start + values, np.arange(len(values))] = 1
    return bits


@dataclass(frozen=True)
class Holding:
    """One party's encoded rows: the distinct rows, and the number of occurrences of each.

    Attributes:
        codes: The value of each attribute, then of the target; shape (attributes + 1, distinct rows).
        counts: Shape (distinct rows,).
    """

    codes: np.ndarray
    counts: np.ndarray

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    @cached_property
    def each(self) -> np.ndarray:
        """Every single row, shape (attributes + 1, rows)."""
        return np.repeat(self.codes, self.counts, axis=1)

    @staticmethod
    def joined(holdings: Sequence[Holding]) -> Holding:
        codes = np.concatenate([holding.codes for holding in holdings], axis=1)
        return Holding(codes, np.concatenate([holding.counts for holding in holdings]))
