# SPDX-License-Identifier: Apache-2.0
"""``grow_secret`` (SID3T) and ``grow_paths`` (SID3S) grow trees that stay secret."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from miners.secure.id3.public_tree import Progress
from miners.secure.id3.rules import Exact
from miners.secure.id3.sources import Records, members_of_classes
from miners.secure.id3.task import Task
from miners.secure.mpc.arithmetic import Arithmetic, Shares
from miners.secure.mpc.bounds import count_bits
from pinq.errors import QueryError

__all__ = [
    "MAX_PATHS",
    "Lookup",
    "PathTree",
    "SecretTree",
    "classify_all",
    "grow_paths",
    "grow_secret",
    "require_paths",
]

MAX_PATHS = 2**14


class Lookup(Protocol):
    """A secret tree in which secret rows are looked up."""

    @property
    def depths(self) -> tuple[int, ...] | None:
        """The length of the path to each leaf, where it is opened."""

    async def classify(self, arithmetic: Arithmetic, task: Task, rows: Shares) -> Shares:
        """Finds the class of each secret row, as shares of its number.

        Args:
            arithmetic: Among the parties.
            task: The public facts.
            rows: A bit for each value of each attribute, shape (rows, values).
        """


@dataclass(frozen=True)
class Level:
    """The nodes of one level of a secret tree.

    A node that goes on has as many children as the attribute with the most values has.

    Attributes:
        stops: Which nodes are leaves; public.
        classes: Unit vector of each leaf's class; shares of shape (leaves, classes).
        attributes: Unit vector of each other node's attribute; shares of shape (others,
            attributes).
    """

    stops: np.ndarray
    classes: Shares
    attributes: Shares


@dataclass(frozen=True)
class SecretTree:
    """What SID3T grew: public is which nodes are leaves, everything else is shares."""

    levels: tuple[Level, ...]

    @property
    def depths(self) -> tuple[int, ...]:
        """The length of the path to each leaf, level by level; all that is known of the tree."""
        return tuple(depth for depth, level in enumerate(self.levels) for _ in range(int(level.stops.sum())))

    async def classify(self, arithmetic: Arithmetic, task: Task, rows: Shares) -> Shares:
        """Finds the class of each secret row (Protocol 5.3); see ``Lookup``.

        All rows and all nodes of a level go at once: a row's weight is 1 on its own path and 0
        elsewhere. Dummy values have no rows.
        """
        values = _padded(task, rows)  # (rows, attributes, max_size)
        weights: Shares = np.ones((len(rows), 1), dtype=object)
        votes: Shares = np.zeros(len(rows), dtype=object)
        for level in self.levels:
            labels = level.classes @ np.arange(task.classes, dtype=object)
            votes = votes + await arithmetic.product(lambda w, c: w @ c, weights[:, level.stops], labels)
            # A node's unit vector over attributes picks the row's unit vector over that attribute's
            # values. Example: attribute (0, 1) and a row with values ((1, 0), (0, 1)): branch (0, 1).
            branches = await arithmetic.product(
                lambda attributes, rows: np.stack([attributes @ row for row in rows]), level.attributes, values
            )
            # A weight of 1 goes to the child on the row's own branch; all its siblings get 0.
            below = await arithmetic.product(lambda w, m: w[:, :, None] * m, weights[:, ~level.stops], branches)
            weights = below.reshape(len(rows), -1)
        return votes % arithmetic.modulus


@dataclass(frozen=True)
class PathTree:
    """What SID3S made: the class of every combination of values.

    Attributes:
        classes: Unit vectors; shares of shape (combinations, classes).
    """

    classes: Shares

    @property
    def depths(self) -> None:
        """Nothing: no length of a path is opened."""
        return

    async def classify(self, arithmetic: Arithmetic, task: Task, rows: Shares) -> Shares:
        """Finds the class of each secret row by two dot products; see ``Lookup``."""
        first, last = _halves(task)
        labels = self.classes @ np.arange(task.classes, dtype=object) % arithmetic.modulus
        labels = labels.reshape(math.prod(task.sizes[: len(first)]), -1)
        present = np.ones((len(rows), 1), dtype=object)
        # A row is a unit vector over the combinations of the first attributes, and one over those of
        # the others: label = u^T L v. Example: sizes (2, 3), row (1, 2): u = (0, 1), v = (0, 0, 1).
        in_first = await _combinations(arithmetic, task, present.T, rows.T, first)
        in_last = await _combinations(arithmetic, task, present.T, rows.T, last)
        by_first = await arithmetic.product(lambda a, b: a @ b, labels, in_last)
        return await arithmetic.product(lambda a, b: (a * b).sum(axis=0), in_first, by_first)


async def grow_secret(
    arithmetic: Arithmetic, task: Task, records: Records, rule: Exact, progress: Progress
) -> SecretTree:
    """Grows the tree of SID3T (Protocol 5.2), a level at a time.

    Which attributes are unused is a secret bit each. The paper subtracts 1 from the score of one that
    was used and says that its score is 0; it is not: all rows lie in one of its values, and its
    score is that of no split at all. Here the bit multiplies the score's numerator instead: then a
    used attribute has score 0, and an unused one more, for a node that goes on has rows.

    Privacy:
        Opens: for each node whether it stops; so, the lengths of paths.
    """
    width, max_size = len(task.sizes), max(task.sizes)
    values = np.moveaxis(_padded(task, records.values.T), 0, -1)  # (attributes, max_size, rows)
    masks, unused, counts = records.present[None], np.ones((1, width), dtype=object), await records.classes()
    chosen: Shares = np.zeros((0, width), dtype=object)
    above: tuple[np.ndarray, np.ndarray] | None = None
    levels: list[Level] = []
    while True:
        units, stops = await rule.judge_secretly(arithmetic, counts, len(levels))
        splitting = np.flatnonzero(~stops)
        progress(f"level {len(levels)}: {len(stops):,} nodes, {len(splitting):,} of them split")
        if not len(splitting):
            return SecretTree((*levels, Level(stops, units, np.zeros((0, width), dtype=object))))
        unused = unused[splitting]
        if above is not None:  # only now it is known whose masks are needed
            # Children of nodes 0 and 1 by three values are numbered 0 to 5; where 1 and 5 go on,
            # `parents` is 0 1 and `branches` 1 2.
            parents, branches = above[0][splitting], above[1][splitting]
            inside = await _chosen_values(arithmetic, chosen[parents], values, branches)
            masks = await arithmetic.product(lambda t, s: t * s, masks[parents], inside)
        tables = await _all_tables(arithmetic, masks, records)
        over, under = await rule.scores(arithmetic, tables, np.tile(np.arange(width), (len(splitting), 1)))
        over = await arithmetic.product(lambda n, bit: n * bit, over, unused.reshape(-1))
        unit, _ = await arithmetic.first_largest(over, under, np.full(len(splitting), width), rule.gini)
        chosen = unit.reshape(len(splitting), width)
        levels.append(Level(stops, units[stops], chosen))
        counts = await _chosen_counts(arithmetic, task, tables, chosen)
        unused = np.repeat((unused - chosen) % arithmetic.modulus, max_size, axis=0)
        above = np.repeat(np.arange(len(splitting)), max_size), np.tile(np.arange(max_size), len(splitting))


async def grow_paths(arithmetic: Arithmetic, task: Task, records: Records) -> PathTree:
    """Finds the class of every combination of values (SID3S, Protocol 5.1).

    It is the most frequent class; where a combination has no rows, that of its longest prefix that
    has. The counts of all combinations are one matrix product, of rows by combinations of the first
    attributes and rows by combinations of the others with classes: as many dot products as there
    are paths, and masks for the square root of that. Counts of prefixes are sums.

    Privacy:
        Opens: nothing.
    """
    first, last = _halves(task)
    in_first = await _combinations(arithmetic, task, records.present[None], records.values, first)
    in_last = await _combinations(arithmetic, task, records.labels, records.values, last)
    counts = await arithmetic.product(lambda a, b: a @ b.T, in_first, in_last)
    # From (first, class, last) to (first, last, class).
    counts = np.swapaxes(counts.reshape(len(in_first), task.classes, -1), 1, 2).reshape(-1, task.classes)
    # Counts of the empty prefix, of the first attribute's values, ... of all combinations.
    prefixes = [counts]
    for size in reversed(task.sizes):
        prefixes.append(prefixes[-1].reshape(-1, size, task.classes).sum(axis=1) % arithmetic.modulus)
    prefixes.reverse()
    together = np.concatenate(prefixes)
    bits = count_bits(task.max_rows)
    units, _ = await arithmetic.first_largest(together.reshape(-1), None, np.full(len(together), task.classes), bits)
    empty = await arithmetic.is_negative((together.sum(axis=1) - 1) % arithmetic.modulus, bits)
    units = units.reshape(-1, task.classes)
    ends = np.cumsum([len(prefix) for prefix in prefixes])
    # A combination without rows inherits the class of its prefix. Example: one attribute of 2 values,
    # classes (3, 1) of all rows, (3, 1) and (0, 0) of its values: the second inherits the first class.
    labels = units[: ends[0]]
    for start, end, size in zip(ends[:-1], ends[1:], task.sizes, strict=True):
        inherited = np.repeat(labels, size, axis=0)
        # own + empty * (inherited - own): the own class where there are rows.
        labels = await arithmetic.product(
            lambda e, own, i: e[:, None] * (i - own) + own, empty[start:end], units[start:end], inherited
        )
    return PathTree(labels)


async def classify_all(
    arithmetic: Arithmetic, task: Task, tree: Lookup, lookups: Sequence[int], own: np.ndarray | None, party: int
) -> np.ndarray:
    """Looks every party's rows up (Protocol 5.3): each learns the classes of its own.

    Args:
        arithmetic: Among the parties.
        task: The public facts.
        tree: Where to look up.
        lookups: How many rows each party looks up; public.
        own: This party's rows as bits, shape (rows, values); fewer rows than it announced are
            filled up.
        party: This party's number.

    Returns:
        The class of each of this party's rows.
    """
    classes = np.zeros(0, dtype=np.int64)
    width = sum(task.sizes)
    for owner, rows in enumerate(lookups):
        if not rows:
            continue
        values = None
        # Rows that were announced and are not there are looked up as zeros; nobody else can tell.
        if owner == party:
            values = np.zeros((rows, width), dtype=object)
            if own is not None:
                values[: len(own)] = own
        shared = await arithmetic.share(values, owner, (rows, width))
        secret = await tree.classify(arithmetic, task, shared)
        opened = await arithmetic.open(secret, "looked up", owner)
        if owner == party:
            classes = opened[: 0 if own is None else len(own)].astype(np.int64)
    return classes


def require_paths(task: Task) -> None:
    """Raises ``QueryError`` where a tree of all paths would be too large."""
    if (paths := math.prod(task.sizes)) > MAX_PATHS:
        raise QueryError(
            f"SID3S keeps the class of all {paths:,} combinations of values; at most {MAX_PATHS:,} are possible. "
            "Use SID3T, or fewer attributes."
        )


def _padded(task: Task, table: Shares) -> Shares:
    """Gives each attribute's values an axis as long as the longest attribute's; dummies are 0.

    Args:
        task: The public facts.
        table: Shape (n, values of all attributes, ...).

    Returns:
        Shape (n, attributes, max_size, ...).
    """
    padded = np.zeros((len(table), len(task.sizes), max(task.sizes), *table.shape[2:]), dtype=object)
    for attribute, (start, size) in enumerate(zip(task.starts, task.sizes, strict=True)):
        padded[:, attribute, :size] = table[:, start : start + size]
    return padded


async def _all_tables(arithmetic: Arithmetic, masks: Shares, records: Records) -> Shares:
    """Counts every class with every value of every attribute of each node, end to end."""
    members = await members_of_classes(arithmetic, masks, records.labels)
    return await arithmetic.product(
        lambda members, values: np.concatenate([values @ node.T for node in members]), members, records.values
    )


async def _chosen_values(arithmetic: Arithmetic, chosen: Shares, values: Shares, branches: np.ndarray) -> Shares:
    """Finds which rows have a value of each node's secret attribute; shape (nodes, rows)."""

    def inside(chosen: Shares, values: Shares) -> Shares:
        return np.stack([unit @ values[:, value] for unit, value in zip(chosen, branches, strict=True)])

    return await arithmetic.product(inside, chosen, values)


async def _chosen_counts(arithmetic: Arithmetic, task: Task, tables: Shares, chosen: Shares) -> Shares:
    """Counts the classes of each node's children; shape (nodes * max_size, classes)."""
    nodes = len(chosen)
    # A node's unit vector (0, 1) takes 0 times the first attribute's table and once the second's.
    padded = _padded(task, tables.reshape(nodes, -1, task.classes))
    counts = await arithmetic.product(lambda k, x: (k[:, :, None, None] * x).sum(axis=1), chosen, padded)
    return counts.reshape(-1, task.classes)


def _halves(task: Task) -> tuple[range, range]:
    """Divides the attributes in two, so that both have about as many combinations."""
    # Attributes of 2, 3 and 4 values: cuts leave 1 and 24, 2 and 12, 6 and 4, 24 and 1
    # combinations; the third is the most even.
    n = len(task.sizes)
    products = [max(math.prod(task.sizes[:cut]), math.prod(task.sizes[cut:])) for cut in range(n + 1)]
    cut = products.index(min(products))
    return range(cut), range(cut, n)


async def _combinations(arithmetic: Arithmetic, task: Task, start: Shares, values: Shares, attributes: range) -> Shares:
    """Finds which rows have each combination of values of some attributes.

    The shape is (len(start) * combinations, rows); the last attribute's values vary fastest.
    """
    # Each attribute refines every mask by its values; the last value is what remains of the mask.
    # Example: mask (1, 1, 0) of three rows with values 0, 1, 1 of two: (1, 0, 0) and (0, 1, 0).
    masks = start
    for attribute in attributes:
        bits = values[task.starts[attribute] : task.starts[attribute] + task.sizes[attribute]]
        first = await arithmetic.product(lambda t, s: t[:, None] * s[None, :-1], masks, bits)
        rest = (masks - first.sum(axis=1)) % arithmetic.modulus
        masks = np.concatenate([first, rest[:, None]], axis=1).reshape(-1, values.shape[1])
    return masks
