# SPDX-License-Identifier: Apache-2.0
"""A concept is a random decision tree over a public schema, which labels made-up rows.

Privacy:
    Claim: free. Why: computed from a public schema and a seed; no row of any table is looked at.

References:
    Friedman & Schuster 2010, "Data Mining with Differential Privacy", sec. 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from miners.fitted.tree import Node, Split, Tree
from miners.growth.candidates import Ways, attribute_names, random_split
from pinq.errors import QueryError
from pinq.public.checks import is_number, is_whole
from pinq.public.parts import Part
from pinq.public.plugins import optional
from pinq.public.schema import Numeric, Schema
from pinq.public.specs import bind

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Concept", "Seed"]

MAX_NODES = 2**16
FIRST_LEAVES = 2  # splits above the third level, the first that may hold leaves

Seed = int | Sequence[int]


class Concept:
    """A made-up rule determines each row's class: it is a decision tree.

    Args:
        tree: The rule. Whatever its counts are, a row's class is the likeliest one of its leaf.

    Examples:
        >>> from pinq import Schema
        >>> flag = {"type": "categorical", "values": ["no", "yes"]}
        >>> schema = Schema(columns=dict.fromkeys(("a", "b", "c", "class"), flag), max_rows=1000)
        >>> concept = Concept.random(schema, "class", depth=2, seed=7)
        >>> concept
        Concept for `class`: depth 2, 4 leaves
        >>> concept.sample(3, seed=1).column_names
        ['a', 'b', 'c', 'class']
    """

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.schema = tree.schema
        self.target = tree.target

    @classmethod
    def random(
        cls,
        schema: Schema,
        target: str,
        *,
        depth: int,
        leaf_probability: float = 0.3,
        categorical: Ways = "values",
        attributes: Sequence[str] | None = None,
        seed: Seed = 0,
    ) -> Concept:
        """Returns a random rule.

        Each node is split by an attribute that is picked uniformly. A numeric attribute is cut in
        two at a random point of what is left of its grid. A categorical attribute is split into its
        values, at most once on each path. From the third level on a node is a leaf with
        ``leaf_probability``. A leaf's class is uniform. A node whose children would make the tree
        larger than 65,536 nodes is a leaf too.

        Args:
            schema: The public schema.
            target: The column that the rule determines, categorical.
            depth: Levels of splits, at least 0.
            leaf_probability: From 0 to 1.
            categorical: ``"values"`` as in the paper; ``"groups"`` splits values into two random
                groups, which suits attributes of many values.
            attributes: The columns that the rule may look at; None for all but the target.
            seed: The same seed, the same rule.
        """
        classes = schema.categorical(target).cells
        if not is_whole(depth, 0):
            raise QueryError(f"is {depth!r}", parameter="depth", allowed="a whole number of at least 0")
        _check_share("leaf_probability", leaf_probability)
        if categorical not in ("values", "groups"):
            raise QueryError(f"is {categorical!r}", parameter="categorical", allowed="'values' or 'groups'")
        names = attribute_names(schema, target, attributes)
        random = np.random.default_rng(seed)
        nodes, parts = [Node()], [Part()]
        # The list grows while the loop walks through it, so parents come before their children.
        for index, part in enumerate(parts):
            leaf = part.depth >= depth or (part.depth >= FIRST_LEAVES and random.random() < leaf_probability)
            split = None if leaf else random_split(schema, names, part, categorical, random)
            size = 0 if split is None else bind(split, schema).size
            if split is None or len(parts) + size > MAX_NODES:
                nodes[index] = Node(counts=_certain(int(random.integers(classes)), classes))
                continue
            nodes[index] = Node(split, tuple(range(len(nodes), len(nodes) + size)))
            nodes += [Node()] * size
            parts += [Part(part, bind(split, schema), number) for number in range(size)]
        return cls(Tree(schema, target, nodes))

    @classmethod
    def single_split(cls, schema: Schema, target: str, split: Split, *, first: int = 0) -> Concept:
        """Returns the rule of one split, whose parts get the classes in turn.

        Args:
            schema: The public schema.
            target: The column that the rule determines, categorical.
            split: The split.
            first: The number of the first part's class.
        """
        classes, size = schema.categorical(target).cells, bind(split, schema).size
        leaves = [Node(counts=_certain((first + part) % classes, classes)) for part in range(size)]
        return cls(Tree(schema, target, [Node(split, tuple(range(1, size + 1))), *leaves]))

    def sample(self, rows: int, *, noise: float = 0.0, seed: Seed = 0) -> pa.Table:
        """Returns made-up rows.

        Attributes are uniform over their declared domains (a missing value counts as one more value
        where it is declared), the class is the rule's. Then each attribute and the class is drawn
        anew with probability ``noise``, uniformly, perhaps to what it was before.

        Args:
            rows: How many, at least 0.
            noise: From 0 to 1; 0 for rows that follow the rule without exception.
            seed: The same seed, the same rows.
        """
        if not is_whole(rows, 0):
            raise QueryError(f"is {rows!r}", parameter="rows", allowed="a whole number of at least 0")
        _check_share("noise", noise)
        random = np.random.default_rng(seed)
        columns = {
            # A class is never missing.
            name: column.cells if name == self.target else column.codes
            for name, column in self.schema.columns.items()
        }
        codes = {name: random.integers(0, size, rows) for name, size in columns.items()}
        attributes = {name: codes[name] for name in columns if name != self.target}
        reached = self.tree.apply(self._table(attributes, random))
        codes[self.target] = self.tree.probabilities.argmax(axis=1)[reached]
        if noise:
            for name, size in columns.items():
                codes[name] = np.where(random.random(rows) < noise, random.integers(0, size, rows), codes[name])
        return self._table(codes, random)

    def _table(self, codes: Mapping[str, np.ndarray], random: np.random.Generator) -> pa.Table:
        """Returns rows with these codes as an Arrow table."""
        return _arrow().table({name: self._decoded(name, column, random) for name, column in codes.items()})

    def _decoded(self, name: str, codes: np.ndarray, random: np.random.Generator) -> pa.Array:
        """Returns values with these codes."""
        if name in self.schema.numeric_columns:
            return _numbers(self.schema.numeric_columns[name], codes, random)
        labels = list(self.schema.categorical_columns[name].labels)
        return _arrow().array(labels).take(_arrow().array(codes))

    def __repr__(self) -> str:
        leaves = f"{self.tree.n_leaves:,} {'leaf' if self.tree.n_leaves == 1 else 'leaves'}"
        return f"Concept for `{self.target}`: depth {self.tree.depth}, {leaves}"


def _certain(code: int, classes: int) -> tuple[float, ...]:
    """Returns counts of one row, which has class ``code``."""
    return tuple(float(code == number) for number in range(classes))


def _numbers(column: Numeric, codes: np.ndarray, random: np.random.Generator) -> pa.Array:
    """Returns numbers with these codes; those that are not whole lie anywhere in their bins."""
    lower, width = float(column.lower), float(column.width)
    # Away from the edges of the bin: a rounded sum must not lie in the next one.
    inside = 0.0 if column.integer else random.uniform(0.01, 0.99, len(codes))
    values = np.minimum(lower + (codes + inside) * width, float(column.upper))
    shown = column.shown(values.astype(np.int64) if column.integer else values)
    return _arrow().array(shown, mask=codes >= column.cells)


def _arrow() -> ModuleType:
    """Returns pyarrow, which comes with the provider's side, where such rows go."""
    return optional("pyarrow", "provider", "Making up rows needs the provider's side")


def _check_share(name: str, value: object) -> None:
    """Checks that a parameter is a number from 0 to 1."""
    if not is_number(value, 0, 1):
        raise QueryError(f"is {value!r}", parameter=name, allowed="a number from 0 to 1")
