# SPDX-License-Identifier: Apache-2.0
"""The parts of trees on several owners: open nodes, queries of all owners, and a strategy's steps.

Privacy:
    Claim: at each owner, the queries on every path from the root to a leaf cost the total of the fit exactly. Why: a
    node notes the payments of its path at each owner, and the query of a leaf gets the rest. The parts of one query are
    disjoint, so they cost as much as one of them. Held by: tests/unit/federated/test_topdown_bill.py.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np

from miners.budget.plan import PlanLine, Step, StepName
from miners.federated.federation import CountSource, FederatedParts, OwnerTally, pooled
from miners.fitted.node import Split
from miners.growth.candidates import (
    attribute_names,
    by_column,
    equal_width,
    families,
    require_attributes,
)
from miners.growth.fitted_nodes import OpenNode
from miners.growth.frontier import StepQueries
from pinq.errors import QueryError
from pinq.language.specs import Cuts, Groups, Values, bind
from pinq.public.checks import is_listing, is_whole
from pinq.public.columns import CutPoint
from pinq.public.epsilon import ZERO, Epsilon
from pinq.public.schema import Schema, Value

MAX_THRESHOLDS = 4096
MAX_VALUES = 1024  # of a column that by default has a split for each value: every split names all values
Binary = Cuts | Groups
ColumnSplits = int | Sequence[float] | Sequence[Value] | Sequence[Sequence[Value]]
SplitsByColumn = Mapping[str, ColumnSplits]
"""By column: thresholds of a number, or their count; values or lists of values, each against the rest."""


@dataclass(frozen=True)
class SplitSet:
    """One column's splitting functions, and a partition that is finer than each of them.

    A table of noisy counts over ``base`` therefore serves all of them at once, by addition.
    """

    base: Values | Cuts
    splits: tuple[Binary, ...]
    schema: Schema

    @cached_property
    def merges(self) -> np.ndarray:
        """The parts of ``base`` in each part of each split: 0 or 1, shape (splits, parts, base parts)."""
        # Each part of the base is one code or an interval of them, so its first code tells where all of it goes.
        edges = bind(self.base, self.schema).axes[0].edges(self.schema.column(self.base.column).codes)
        first = np.array(edges[:-1])
        axes = [bind(split, self.schema).axes[0] for split in self.splits]
        # Thresholds 10 and 20: the base has three parts. Below 10 is the first, and from 10 on the
        # others: 1 0 0 and 0 1 1; the split at 20 is 1 1 0 and 0 0 1.
        merges = [axis.parts_of(first)[None, :] == np.arange(axis.size)[:, None] for axis in axes]
        return np.array(merges, dtype=np.float64)

    def tables(self, counts: np.ndarray) -> np.ndarray:
        """The tables of each split, shape (nodes, splits, parts, classes), from shape (nodes, base parts, classes)."""
        # With 1 1 0 and 0 0 1 for a split, parts of 5, 2 and 4 rows become 7 and 4.
        return np.einsum("spb,nbc->nspc", self.merges, counts)


def splitting_functions(
    schema: Schema,
    target: str | None,
    *,
    attributes: Sequence[str] | None = None,
    splits: SplitsByColumn | None = None,
) -> tuple[SplitSet, ...]:
    """The splitting functions, one set for each attribute.

    Args:
        schema: The public schema.
        target: The column to predict, which is no attribute; None if it is unknown.
        attributes: Names of columns; None for all but the target.
        splits: The splits by column, in place of the default: thresholds of a numeric column, or a
            number of evenly spaced ones; a list of values or lists of values of a categorical column,
            each against the rest. By default 10 evenly spaced thresholds from the lower
            bound up, and each value.

    Raises:
        QueryError: An unknown column or value, a threshold out of bounds, no split for a column, or too many values to
            put each against the rest.
    """
    by_name = by_column("splits", splits, "names of columns to thresholds or groups of values", schema.column)
    names = attribute_names(schema, target, attributes)
    require_attributes("splits", by_name, names)
    sets = [_of_column(schema, name, by_name.get(name)) for name in names]
    functions = tuple(functions for functions in sets if functions is not None)
    if not functions:
        raise QueryError("there is no splitting function.")
    return functions


def _of_column(schema: Schema, name: str, given_splits: ColumnSplits | None) -> SplitSet | None:
    """A column's functions; None for a numeric column of a single cell."""
    if name in schema.numeric_columns:
        points = _thresholds(schema, name, 10 if given_splits is None else given_splits)
        if not points and not is_listing(given_splits):
            return None
        base = Cuts(name, tuple(points))
        bind(base, schema)
        return SplitSet(base, tuple(Cuts(name, (point,)) for point in base.points), schema)
    return _of_values(schema, name, given_splits)


def _thresholds(schema: Schema, name: str, given_splits: ColumnSplits) -> Sequence[CutPoint]:
    if is_whole(given_splits):
        if not 1 <= given_splits <= MAX_THRESHOLDS:
            raise QueryError(
                f"`splits` asks for {given_splits} thresholds of `{name}`; it must be 1 to {MAX_THRESHOLDS:,}."
            )
        # Equal distances from the lower bound up, the first point just above it: of many quantities most
        # values are the least, say 0.
        column = schema.numeric(name)
        if column.cells < 2:
            return ()
        rest, lowest = equal_width(schema, name, int(given_splits)), column.cut_before(1)
        return rest if rest and column.threshold(rest[0], name) == 1 else (lowest, *rest)
    if not is_listing(given_splits):
        raise QueryError(f"`splits` of `{name}` is {given_splits!r}; it must be a list of thresholds, or how many.")
    return tuple(given_splits)  # type: ignore[arg-type]  # `Cuts` checks each of them


def _of_values(schema: Schema, name: str, given_splits: ColumnSplits | None) -> SplitSet:
    """Groups of values, each against the rest, each pair once."""
    column = schema.categorical(name)
    labels = column.labels
    if given_splits is not None and not is_listing(given_splits):
        raise QueryError(
            f"`splits` of `{name}` is {given_splits!r}; it must be a list of values, or of lists of values."
        )
    if given_splits is None and len(labels) > MAX_VALUES:
        raise QueryError(
            f"`{name}` has {len(labels):,} values; at most {MAX_VALUES:,} are each put against the rest. Say "
            "in `splits` which groups of them to try, "
            "leave the column out of `attributes`, or use strategy 'turns'."
        )
    pairs: dict[frozenset[frozenset[int]], Groups] = {}
    for group in labels if given_splits is None else given_splits:
        values = group if isinstance(group, (list, tuple)) else (group,)
        codes = frozenset(column.code_of(value, name) for value in values)
        rest = frozenset(range(column.codes)) - codes
        if not codes or not rest:
            raise QueryError(
                f"`splits` of `{name}` has the group {list(values)!r}, which leaves one side without a value."
            )
        sides = tuple(tuple(labels[code] for code in sorted(side)) for side in (codes, rest))
        # {a} against the rest, {b, c}, and {b, c} against {a} are one split: the first stays.
        pairs.setdefault(frozenset((codes, rest)), Groups(name, sides))
    if not pairs:
        raise QueryError(f"`splits` of `{name}` is empty; leave the column out of `attributes` instead.")
    return SplitSet(Values(name), tuple(pairs.values()), schema)


Answer = Mapping[str, OwnerTally]
"""The noisy class counts of one node, or of several, by owner."""


@dataclass(eq=False, kw_only=True)
class HeldNode(OpenNode):
    """An open node, with rows at each data owner.

    Attributes:
        parts: A collection in which the node is one part.
        paid: The charges of its path at each owner.
        answers: Its noisy class counts, from each query for them.
    """

    level: int = 0
    parts: FederatedParts
    index: int = 0
    paid: Mapping[str, Epsilon] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)

    def pay(self, owner: str, epsilon: Epsilon) -> None:
        self.paid = {**self.paid, owner: self.paid_at(owner) + epsilon}

    def paid_at(self, owner: str) -> Epsilon:
        return self.paid.get(owner, ZERO)

    def pool(self, source: CountSource) -> None:
        """Adds up counts over the remaining owners, and averages several answers."""
        self.cells, self.variance = None, math.inf
        for answer in self.answers:
            self.observe(*pooled(source.living(answer)))

    def child(self, used: frozenset[str]) -> Self:
        """An open node below, with the payments of its path."""
        return type(self)(used=used, level=self.level + 1, parts=self.parts, paid=self.paid)


def gather(nodes: Sequence[HeldNode]) -> tuple[FederatedParts, list[HeldNode]]:
    """Nodes as one collection of parts, and the nodes in its order."""
    by_parts: dict[int, list[HeldNode]] = defaultdict(list)
    for node in nodes:
        by_parts[id(node.parts)].append(node)
    # Nodes 5, 2 and 7, of which 5 and 7 are parts of one collection, come in the order 5, 7, 2.
    groups = list(by_parts.values())
    collections = [group[0].parts[[node.index for node in group]] for group in groups]
    return FederatedParts.union(collections), [node for group in groups for node in group]


def branch(
    schema: Schema, nodes: list[HeldNode], parents: Sequence[HeldNode], splits: Sequence[Split]
) -> list[HeldNode]:
    """Splits some nodes; appends their children, in the order of the parts, to ``nodes`` and returns them."""
    collection, ordered = gather(parents)
    split_of = dict(zip(parents, splits, strict=True))
    below = collection.partition([split_of[parent] for parent in ordered])
    # The children are the parts of `below`, one after the other: splits in 2 and 3 parts have the
    # indices 0, 1 and 2, 3, 4 there.
    children: list[HeldNode] = []
    for parent in ordered:
        split = split_of[parent]
        children += parent.branch(split, bind(split, schema).size, len(nodes) + len(children), parent.used)
    for index, child in enumerate(children):
        child.parts, child.index = below, index
    nodes += children
    return children


@dataclass(frozen=True, kw_only=True)
class FederatedStrategy(StepQueries):
    """A strategy: it divides the budget of each data owner, and grows a tree.

    Attributes:
        max_nodes: The largest number of nodes that are split.
        leaves: The smallest epsilon of the leaves' histograms.
        owners: The number of owners with queries.
        reuse: Whether stored answers of identical earlier queries are used.
    """

    attributes: Sequence[str]
    max_nodes: int
    leaves: Epsilon
    owners: int = 1
    reuse: bool = False

    @abstractmethod
    def steps(self) -> list[Step]:
        """Returns the queries to the owners, from the root down to the leaves."""

    @abstractmethod
    def grow(self, source: CountSource) -> list[HeldNode]:
        """Grows a tree; the root first, each node before its children."""

    @property
    def parts(self) -> int:
        """The largest number of parts of a split in two: missing numbers are a separate part."""
        schema = self.problem.schema
        return max(family.max_parts(schema) for family in families(schema, self.attributes))

    def lines(self) -> tuple[PlanLine, ...]:
        *inner, leaves = self.steps()
        nodes = [min(self.parts**step.level, self.max_nodes) for step in inner]
        ends = min(self.parts**leaves.level, self.max_nodes * (self.parts - 1) + 1)
        return tuple(step.line(count, step.cost) for step, count in zip([*inner, leaves], [*nodes, ends], strict=True))

    @property
    def classes(self) -> Values:
        """The parts whose classes are counted."""
        return Values(self.target)

    def count(
        self, source: CountSource, tables: Sequence[tuple[FederatedParts, Mapping[str, Epsilon]]]
    ) -> list[Answer]:
        """Queries collections of parts times classes, each at losses by owner, in one round.

        Returns counts of shape (parts, cells) for each.
        """
        questions = [cells.question("noisy_count", epsilon=epsilon, reuse=self.reuse) for cells, epsilon in tables]
        return [
            {name: OwnerTally(tally.counts.reshape(-1, self.cells), tally.variance) for name, tally in answer.items()}
            for answer in source.tally(questions)
        ]

    def ask_leaves(self, source: CountSource, leaves: Sequence[HeldNode]) -> None:
        """Queries the classes of all leaves, in one round, at the rest of each path's epsilon at each owner."""
        owners = source.owners
        # A leaf with .1 left here and .2 there is in one request with all others like it.
        by_left: dict[tuple[Epsilon, ...], list[HeldNode]] = defaultdict(list)
        for leaf in leaves:
            by_left[tuple(self.problem.epsilon - leaf.paid_at(name) for name in owners)].append(leaf)
        gathered = [gather(alike) for alike in by_left.values()]
        tables = [
            (parts.partition(self.classes), dict(zip(owners, left, strict=True)))
            for left, (parts, _) in zip(by_left, gathered, strict=True)
        ]
        for answer, (_, ordered) in zip(self.count(source, tables), gathered, strict=True):
            for row, leaf in enumerate(ordered):
                leaf.answers.append(
                    {name: OwnerTally(tally.counts[row], tally.variance) for name, tally in answer.items()}
                )

    def leaf_step(self, level: int, epsilon: Epsilon) -> Step:
        """The query of each leaf below so many levels of splits."""
        return Step(self.classes_query("each leaf, at least"), level, epsilon)

    def choice_step(self, level: int, text: str, epsilon: Epsilon) -> Step:
        """A query for splits that the criterion judges."""
        return Step(self.choice_query(StepName.SPLIT, text), level, epsilon)
