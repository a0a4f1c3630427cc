# SPDX-License-Identifier: Apache-2.0
"""Made-up rows: a random decision tree over a public schema is the rule that labels them.

Privacy:
    Claim: free. Why: computed from a public schema and a seed; no row of any table is looked at.

References:
    Friedman & Schuster 2010, "Data Mining with Differential Privacy", sec. 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from miners.fitted.tree import Node, Tree
from miners.growth.candidates import attribute_names, random_split
from pinq.errors import QueryError
from pinq.public.checks import is_number
from pinq.public.parts import Part
from pinq.public.plugins import optional
from pinq.public.schema import Numeric, Schema
from pinq.public.specs import bind

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Seed", "made_up_rows", "random_rule"]

FIRST_LEAVES = 2  # splits above the third level, the first that may hold leaves

Seed = int | Sequence[int]


def random_rule(schema: Schema, target: str, *, depth: int, leaf_probability: float = 0.3, seed: Seed = 0) -> Tree:
    """Returns a tree that determines each row's class: the likeliest one of the row's leaf.

    Each node is split by an attribute that is picked uniformly. A numeric attribute is cut in two
    at a random point of what is left of its grid. A categorical attribute is split into two random
    groups of its values, at most once on each path. From the third level on a node is a leaf with
    ``leaf_probability``. A leaf's class is uniform.

    Args:
        schema: The public schema.
        target: The column that the rule determines, categorical.
        depth: Levels of splits, at least 0.
        leaf_probability: From 0 to 1.
        seed: The same seed, the same rule.

    Examples:
        >>> from pinq import Schema
        >>> flag = {"type": "categorical", "values": ["no", "yes"]}
        >>> schema = Schema(columns=dict.fromkeys(("a", "b", "c", "class"), flag), max_rows=1000)
        >>> rule = random_rule(schema, "class", depth=2, seed=7)
        >>> made_up_rows(rule, 3, seed=1).column_names
        ['a', 'b', 'c', 'class']
    """
    classes = schema.categorical(target).cells
    names = attribute_names(schema, target, None)
    random = np.random.default_rng(seed)
    nodes, parts = [Node()], [Part()]
    # The list grows while the loop walks through it, so parents come before their children.
    for index, part in enumerate(parts):
        leaf = part.depth >= depth or (part.depth >= FIRST_LEAVES and random.random() < leaf_probability)
        split = None if leaf else random_split(schema, names, part, random)
        if split is None:
            # Counts of one row, which has the leaf's class.
            nodes[index] = Node(counts=tuple(np.eye(classes)[random.integers(classes)].tolist()))
            continue
        partition = bind(split, schema)
        nodes[index] = Node(split, tuple(range(len(nodes), len(nodes) + partition.size)))
        nodes += [Node()] * partition.size
        parts += [Part(part, partition, number) for number in range(partition.size)]
    return Tree(schema, target, nodes)


def made_up_rows(rule: Tree, rows: int, *, noise: float = 0.0, seed: Seed = 0) -> pa.Table:
    """Returns made-up rows.

    Attributes are uniform over their declared domains (a missing value counts as one more value
    where it is declared), the class is the rule's. Then each attribute and the class is drawn anew
    with probability ``noise``, uniformly, perhaps to what it was before.

    Args:
        rule: The rule; see ``random_rule``.
        rows: How many, at least 0.
        noise: From 0 to 1; 0 for rows that follow the rule without exception.
        seed: The same seed, the same rows.

    Raises:
        QueryError: ``noise`` is something else.
    """
    if not is_number(noise, 0, 1):
        raise QueryError(f"is {noise!r}", parameter="noise", allowed="a number from 0 to 1")
    random = np.random.default_rng(seed)
    # A class is never missing.
    sizes = {n: column.cells if n == rule.target else column.codes for n, column in rule.schema.columns.items()}
    codes = {name: random.integers(0, size, rows) for name, size in sizes.items()}
    attributes = {name: codes[name] for name in sizes if name != rule.target}
    reached = rule.apply(_table(rule.schema, attributes, random))
    codes[rule.target] = rule.probabilities.argmax(axis=1)[reached]
    if noise:
        for name, size in sizes.items():
            codes[name] = np.where(random.random(rows) < noise, random.integers(0, size, rows), codes[name])
    return _table(rule.schema, codes, random)


def _table(schema: Schema, codes: Mapping[str, np.ndarray], random: np.random.Generator) -> pa.Table:
    """Returns rows with these codes as an Arrow table."""
    arrow = optional("pyarrow", "provider", "Making up rows needs the provider's side")
    columns = {}
    for name, own in codes.items():
        column = schema.numeric_columns.get(name)
        if column is None:
            columns[name] = arrow.array(list(schema.categorical(name).labels)).take(arrow.array(own))
        else:
            columns[name] = arrow.array(_numbers(column, own, random), mask=own >= column.cells)
    return arrow.table(columns)


def _numbers(column: Numeric, codes: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Returns numbers with these codes; those that are not whole lie anywhere in their bins."""
    lower, width = float(column.lower), float(column.width)
    # Away from the edges of the bin: a rounded sum must not lie in the next one.
    inside = 0.0 if column.integer else random.uniform(0.01, 0.99, len(codes))
    values = np.minimum(lower + (codes + inside) * width, float(column.upper))
    return column.shown(values.astype(np.int64) if column.integer else values)
