# SPDX-License-Identifier: Apache-2.0
"""What all parties know before they start, and what each has: the attributes, the classes, the most rows; and its own rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from miners.federated.splitting import splitting_functions
from miners.fitted.node import Node
from miners.fitted.route import encode
from miners.fitted.tree import Tree
from miners.growth.candidates import multiway_splits
from pinq.errors import QueryError
from pinq.public.schema import Schema
from pinq.public.specs import Cuts, Values, bind

__all__ = ["Branch", "Holding", "Task", "hold", "to_tree"]


@dataclass(frozen=True)
class Task:
    """The public facts of a computation.

    Attributes:
        schema: The columns.
        target: What is predicted, categorical.
        splits: How each attribute splits, in the order in which ties are broken.
        rows: The most rows that each party may have.
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
        cuts: Mapping[str, Any] | None = None,
    ) -> Task:
        """The task of predicting ``target`` from ``attributes``, by default all other columns; see ``miners.growth.candidates.multiway_splits``."""
        schema.categorical(target)
        return cls(schema, target, multiway_splits(schema, target, attributes=attributes, cuts=cuts), tuple(rows))

    @classmethod
    def of_functions(
        cls,
        schema: Schema,
        target: str,
        rows: Sequence[int],
        attributes: Sequence[str] | None = None,
        splits: Mapping[str, Any] | None = None,
    ) -> Task:
        """The same for splits in two: each attribute by all that its splitting functions tell apart; see ``miners.federated.splitting``."""
        schema.categorical(target)
        return cls(
            schema,
            target,
            tuple(one.base for one in splitting_functions(schema, target, attributes=attributes, splits=splits)),
            tuple(rows),
        )

    def merged(self) -> Task:
        """The same with all rows in one party's hands."""
        return replace(self, rows=(self.most,))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Values of each attribute."""
        return tuple(bind(split, self.schema).size for split in self.splits)

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each attribute's values begin when all are numbered through."""
        return np.cumsum([0, *self.sizes[:-1]])

    @property
    def classes(self) -> int:
        """Declared values of the target."""
        return len(self.schema.categorical(self.target).values)

    @property
    def most(self) -> int:
        """The most rows that all parties together may have."""
        return sum(self.rows)

    def places(self, frame: Any) -> np.ndarray:
        """The value of each attribute of each row of a pandas or Arrow table, shape (rows, attributes). ``QueryError`` where one is not declared."""
        found = self._places(frame)
        if (found < 0).any():
            missing = self.splits[int(np.argwhere(found < 0)[0, 0])].column
            raise QueryError(
                f"a row to look up has a value of `{missing}` that is missing or not declared; leave such rows out."
            )
        return found.T

    def _places(self, frame: Any) -> np.ndarray:
        return np.stack(
            [
                bind(split, self.schema).axes[0].parts_of(encode(self.schema, split.column, frame))
                for split in self.splits
            ]
        )

    def columns(self, attributes: np.ndarray) -> np.ndarray:
        """The numbers of all values of some attributes, end to end."""
        return np.concatenate(
            [np.arange(self.starts[one], self.starts[one] + self.sizes[one]) for one in attributes]
            or [np.zeros(0, dtype=np.int64)]
        )


@dataclass(frozen=True)
class Holding:
    """One party's rows, encoded: distinct ones and how often each occurs.

    Attributes:
        places: The value of each attribute, then the class; shape (attributes + 1, distinct rows).
        counts: Shape (distinct rows,).
    """

    places: np.ndarray
    counts: np.ndarray

    @property
    def rows(self) -> int:
        """How many there are."""
        return int(self.counts.sum())

    @cached_property
    def each(self) -> np.ndarray:
        """Every row, shape (attributes + 1, rows)."""
        repeated: np.ndarray = np.repeat(self.places, self.counts, axis=1)
        return repeated

    @staticmethod
    def joined(holdings: Sequence[Holding]) -> Holding:
        """All rows of several parties; for trying and for the plain algorithm."""
        return Holding(
            np.concatenate([one.places for one in holdings], axis=1), np.concatenate([one.counts for one in holdings])
        )


def hold(task: Task, frame: Any) -> Holding:
    """A party's rows, from a pandas or Arrow table; rows with an undeclared or missing value are left out, as behind pinq's wall."""
    classes = encode(task.schema, task.target, frame)
    classes = np.where(classes >= task.classes, -1, classes)  # a missing class teaches nothing
    places = np.concatenate([task._places(frame), classes[None]]).astype(np.int64)
    places = places[:, (places >= 0).all(axis=0)]
    return Holding(places, np.ones(places.shape[1], dtype=np.int64))


@dataclass(frozen=True)
class Branch:
    """A node of a tree over numbered attributes: its split and children, or its class."""

    attribute: int | None = None
    children: tuple[int, ...] = ()
    label: int | None = None


def to_tree(task: Task, branches: Sequence[Branch]) -> Tree:
    """The usual tree. Its leaves have one vote for their class: how many rows they have was not opened."""
    nodes = []
    for branch in branches:
        if branch.attribute is None:
            nodes.append(Node(counts=tuple(float(number == branch.label) for number in range(task.classes))))
        else:
            nodes.append(Node(split=task.splits[branch.attribute], children=branch.children))
    return Tree(task.schema, task.target, nodes)
