# SPDX-License-Identifier: Apache-2.0
"""``Task`` holds what all parties know before they start; ``hold`` encodes rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from miners.fitted.node import Node
from miners.fitted.route import Frame, encode
from miners.fitted.tree import Tree
from miners.growth.candidates import CutsByColumn, multiway_splits
from pinq.errors import QueryError
from pinq.public.schema import Schema
from pinq.public.specs import Cuts, Values, bind
from pinq.secure_computation import Holding

__all__ = ["Branch", "Holding", "Task", "hold", "require_tables", "to_tree"]


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
        schema: The columns.
        target: The column to predict, categorical; of a scorecard perhaps numeric.
        splits: How each attribute splits, in the order in which ties are broken; of a miner that
            asks for sums, cells that tell apart whatever it asks.
        rows: The maximal number of rows of each party.
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
        """Makes the task to predict ``target`` from ``attributes``, by default all others.

        See ``miners.growth.candidates.multiway_splits``.
        """
        schema.categorical(target)
        return cls(schema, target, multiway_splits(schema, target, attributes=attributes, cuts=cuts), tuple(rows))

    def merged(self) -> Task:
        """Returns the same task with all rows in one party's hands."""
        return replace(self, rows=(self.max_rows,))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of values of each attribute."""
        return tuple(bind(split, self.schema).size for split in self.splits)

    @cached_property
    def starts(self) -> np.ndarray:
        """The number of each attribute's first value when all values are numbered through."""
        # Attributes of 2, 3 and 4 values begin at 0, 2 and 5.
        return np.cumsum([0, *self.sizes[:-1]])

    @property
    def classes(self) -> int:
        """The number of declared values of the target; of a numeric one of grid cells."""
        return self.schema.column(self.target).cells

    @property
    def max_rows(self) -> int:
        """The maximal number of rows of all parties together."""
        return sum(self.rows)

    def codes(self, table: Frame) -> np.ndarray:
        """Encodes rows, shape (attributes, rows); -1 where a value is not declared."""
        axes = [bind(split, self.schema).axes[0] for split in self.splits]
        codes = [encode(self.schema, split.column, table) for split in self.splits]
        return np.stack([axis.parts_of(column) for axis, column in zip(axes, codes, strict=True)])

    def lookup_codes(self, table: Frame) -> np.ndarray:
        """Encodes rows to look up, shape (rows, attributes).

        Raises ``QueryError`` if a value is not declared.
        """
        codes = self.codes(table)
        if (codes < 0).any():
            missing = self.splits[int(np.argwhere(codes < 0)[0, 0])].column
            raise QueryError(
                f"a row to look up has a value of `{missing}` that is missing or not declared; leave such rows out."
            )
        return codes.T

    def columns(self, attributes: np.ndarray) -> np.ndarray:
        """Returns the numbers of all values of some attributes, end to end."""
        numbers = [np.arange(self.starts[number], self.starts[number] + self.sizes[number]) for number in attributes]
        return np.concatenate(numbers or [np.zeros(0, dtype=np.int64)])


def hold(task: Task, table: Frame) -> Holding:
    """Encodes a party's rows.

    Those with an undeclared or missing value are left out, as behind pinq's wall.
    """
    classes = encode(task.schema, task.target, table)
    classes = np.where(classes >= task.classes, -1, classes)  # a missing class teaches nothing
    codes = np.concatenate([task.codes(table), classes[None]]).astype(np.int64)
    codes = codes[:, (codes >= 0).all(axis=0)]
    return Holding(codes, np.ones(codes.shape[1], dtype=np.int64))


@dataclass(frozen=True)
class Branch:
    """A node of a tree over numbered attributes: its split and children, or its class."""

    attribute: int | None = None
    children: tuple[int, ...] = ()
    label: int | None = None


def to_tree(task: Task, branches: Sequence[Branch]) -> Tree:
    """Makes the usual tree, whose leaves have one vote for their class: sizes are not opened."""
    nodes = []
    for branch in branches:
        if branch.attribute is None:
            nodes.append(Node(counts=tuple(float(number == branch.label) for number in range(task.classes))))
        else:
            nodes.append(Node(split=task.splits[branch.attribute], children=branch.children))
    return Tree(task.schema, task.target, nodes)
