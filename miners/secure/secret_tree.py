# SPDX-License-Identifier: Apache-2.0
"""Trees that stay secret: SID3T, of which the shape alone is known, and SID3S, of which nothing is; and Class, the secret lookup in one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from miners.secure.arithmetic import Arithmetic, Shares
from miners.secure.bounds import count_bits
from miners.secure.public_tree import Progress
from miners.secure.rules import Exact
from miners.secure.sources import Records, members_of_classes
from miners.secure.task import Task
from pinq.errors import QueryError

__all__ = ["MOST_PATHS", "PathTree", "SecretTree", "classify_all", "grow_paths", "grow_secret", "require_paths"]

MOST_PATHS = 2**14


@dataclass(frozen=True)
class Level:
    """The nodes of one level of a secret tree. A node that goes on has as many children as the attribute with the most values has.

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
        """The class of each secret row (Protocol 5.3), as shares of its number.

        All rows and all nodes of a level go at once: a row's weight is 1 on its own path and 0
        elsewhere. Dummy values have no rows.

        Args:
            arithmetic: Among the parties.
            task: What is known.
            rows: A bit for each value of each attribute, shape (rows, values).
        """
        wide = max(task.sizes)
        values = np.zeros((rows.shape[0], len(task.sizes), wide), dtype=object)
        for attribute, (start, size) in enumerate(zip(task.starts, task.sizes, strict=True)):
            values[:, attribute, :size] = rows[:, start : start + size]
        weights: Shares = np.ones((len(rows), 1), dtype=object)
        votes: Shares = np.zeros(len(rows), dtype=object)
        for level in self.levels:
            labels = level.classes @ np.arange(task.classes, dtype=object)
            votes = votes + await arithmetic.product(lambda w, c: w @ c, weights[:, level.stops], labels)
            taken = await arithmetic.product(lambda k, t: np.stack([k @ one for one in t]), level.attributes, values)
            below = await arithmetic.product(lambda w, m: w[:, :, None] * m, weights[:, ~level.stops], taken)
            weights = below.reshape(len(rows), -1)
        return votes % arithmetic.modulus


@dataclass(frozen=True)
class PathTree:
    """What SID3S made: the class of every combination of values, as unit vectors; shares of shape (combinations, classes)."""

    classes: Shares

    async def classify(self, arithmetic: Arithmetic, task: Task, rows: Shares) -> Shares:
        """The class of each secret row: two dot products with the combinations of its first and of its last values."""
        first, last = _halves(task)
        labels = (self.classes @ np.arange(task.classes, dtype=object) % arithmetic.modulus).reshape(
            math.prod(task.sizes[: len(first)]), -1
        )
        present = np.ones((len(rows), 1), dtype=object)
        left = await _combinations(arithmetic, task, present.T, rows.T, first)
        right = await _combinations(arithmetic, task, present.T, rows.T, last)
        seen = await arithmetic.product(lambda a, b: a @ b, labels, right)
        return await arithmetic.product(lambda a, b: (a * b).sum(axis=0), left, seen)


async def grow_secret(
    arithmetic: Arithmetic, task: Task, records: Records, rule: Exact, progress: Progress
) -> SecretTree:
    """SID3T (Protocol 5.2), a level at a time.

    Which attributes are left is a secret bit each. The paper subtracts 1 from the score of one that
    was used and says that its score is 0; it is not: all rows lie in one of its values, and its
    score is that of no split at all. Here the bit multiplies the score's numerator instead: then a
    used attribute has score 0, and an unused one more, for a node that goes on has rows.

    Privacy:
        Opens: for each node whether it stops; so, the lengths of paths.
    """
    width, wide = len(task.sizes), max(task.sizes)
    values = np.zeros((width, wide, records.values.shape[1]), dtype=object)
    for attribute, (start, size) in enumerate(zip(task.starts, task.sizes, strict=True)):
        values[attribute, :size] = records.values[start : start + size]
    masks, left, counts = records.present[None], np.ones((1, width), dtype=object), await records.classes()
    chosen: Shares = np.zeros((0, width), dtype=object)
    above: tuple[np.ndarray, np.ndarray] | None = None
    levels: list[Level] = []
    while True:
        where, stops = await rule.judge_secretly(arithmetic, counts, len(levels))
        going = np.flatnonzero(~stops)
        progress(f"level {len(levels)}: {len(stops):,} nodes, {len(going):,} of them split")
        if not len(going):
            return SecretTree((*levels, Level(stops, where, np.zeros((0, width), dtype=object))))
        left = left[going]
        if above is not None:  # only now it is known whose masks are needed
            parents, branches = above[0][going], above[1][going]
            inside = await _chosen_values(arithmetic, chosen[parents], values, branches)
            masks = await arithmetic.product(lambda t, s: t * s, masks[parents], inside)
        tables = await _all_tables(arithmetic, masks, records, going)
        over, under = await rule.scores(arithmetic, tables, np.tile(np.arange(width), (len(going), 1)))
        over = await arithmetic.product(lambda n, bit: n * bit, over, left.reshape(-1))
        unit, _ = await arithmetic.first_largest(over, under, np.full(len(going), width), rule.gini)
        chosen = unit.reshape(len(going), width)
        levels.append(Level(stops, where[stops], chosen))
        counts = await _chosen_counts(arithmetic, task, tables, chosen)
        left = np.repeat((left - chosen) % arithmetic.modulus, wide, axis=0)
        above = np.repeat(np.arange(len(going)), wide), np.tile(np.arange(wide), len(going))


async def grow_paths(arithmetic: Arithmetic, task: Task, records: Records) -> PathTree:
    """SID3S (Protocol 5.1): the most frequent class of every combination of values; where a combination has no rows, that of its longest prefix that has.

    The counts of all combinations are one matrix product, of rows by combinations of the first
    attributes and rows by combinations of the others with classes: as many dot products as there
    are paths, and masks for the square root of that. Counts of prefixes are sums.

    Privacy:
        Opens: nothing.
    """
    first, last = _halves(task)
    left = await _combinations(arithmetic, task, records.present[None], records.values, first)
    right = await _combinations(arithmetic, task, records.labels, records.values, last)
    counts = await arithmetic.product(lambda a, b: a @ b.T, left, right)
    # From (first, class, last) to (first, last, class).
    counts = np.swapaxes(counts.reshape(len(left), task.classes, -1), 1, 2).reshape(-1, task.classes)
    prefixes = [counts]
    for size in reversed(task.sizes):
        prefixes.append(prefixes[-1].reshape(-1, size, task.classes).sum(axis=1) % arithmetic.modulus)
    prefixes.reverse()
    together = np.concatenate(prefixes)
    bits = count_bits(task.most)
    where, _ = await arithmetic.first_largest(together.reshape(-1), None, np.full(len(together), task.classes), bits)
    empty = await arithmetic.is_negative((together.sum(axis=1) - 1) % arithmetic.modulus, bits)
    where = where.reshape(-1, task.classes)
    ends = np.cumsum([len(one) for one in prefixes])
    labels = where[: ends[0]]
    for start, end, size in zip(ends[:-1], ends[1:], task.sizes, strict=True):
        inherited = np.repeat(labels, size, axis=0)
        labels = await arithmetic.product(
            lambda e, c, i: e[:, None] * (i - c) + c, empty[start:end], where[start:end], inherited
        )
    return PathTree(labels)


async def classify_all(
    arithmetic: Arithmetic,
    task: Task,
    tree: SecretTree | PathTree,
    lookups: Sequence[int],
    mine: np.ndarray | None,
    party: int,
) -> np.ndarray:
    """Class (Protocol 5.3) for every party's rows: each learns the classes of its own, and nobody anything else.

    Args:
        arithmetic: Among the parties.
        task: What is known.
        tree: Where to look up.
        lookups: How many rows each party looks up; public.
        mine: This party's rows as bits, shape (rows, values); fewer rows than it announced are
            filled up.
        party: This party's number.

    Returns:
        The class of each of this party's rows.
    """
    found = np.zeros(0, dtype=np.int64)
    for owner, rows in enumerate(lookups):
        if not rows:
            continue
        values = None
        if owner == party:
            values = np.zeros((rows, sum(task.sizes)), dtype=object)
            if mine is not None:
                values[: len(mine)] = mine
        shared = await arithmetic.share(values, owner, (rows, sum(task.sizes)))
        classes = await tree.classify(arithmetic, task, shared)
        opened = await arithmetic.open(classes, "looked up", owner)
        if owner == party:
            found = opened[: 0 if mine is None else len(mine)].astype(np.int64)
    return found


def require_paths(task: Task) -> None:
    """``QueryError`` where a tree of all paths would be too large."""
    if (paths := math.prod(task.sizes)) > MOST_PATHS:
        raise QueryError(
            f"SID3S keeps the class of all {paths:,} combinations of values; at most {MOST_PATHS:,} are possible. Use SID3T, or fewer attributes."
        )


async def _all_tables(arithmetic: Arithmetic, masks: Shares, records: Records, going: np.ndarray) -> Shares:
    """Counts of every class with every value of every attribute of each node, end to end."""
    members = await members_of_classes(arithmetic, masks, records.labels)
    return await arithmetic.product(lambda u, s: np.concatenate([s @ one.T for one in u]), members, records.values)


async def _chosen_values(arithmetic: Arithmetic, chosen: Shares, values: Shares, branches: np.ndarray) -> Shares:
    """Which rows have value number ``branches`` of the secret attribute of each node; shape (nodes, rows)."""
    return await arithmetic.product(
        lambda k, s: np.stack([unit @ s[:, value] for unit, value in zip(k, branches, strict=True)]), chosen, values
    )


async def _chosen_counts(arithmetic: Arithmetic, task: Task, tables: Shares, chosen: Shares) -> Shares:
    """Class counts of the children of each node by its secret attribute; shape (nodes * most values, classes)."""
    wide, nodes = max(task.sizes), len(chosen)
    table = tables.reshape(nodes, -1, task.classes)
    padded = np.zeros((nodes, len(task.sizes), wide, task.classes), dtype=object)
    for attribute, (start, size) in enumerate(zip(task.starts, task.sizes, strict=True)):
        padded[:, attribute, :size] = table[:, start : start + size]
    counts = await arithmetic.product(lambda k, x: (k[:, :, None, None] * x).sum(axis=1), chosen, padded)
    return counts.reshape(nodes * wide, task.classes)


def _halves(task: Task) -> tuple[range, range]:
    """The first attributes and the others, so that both have about as many combinations."""
    products = [max(math.prod(task.sizes[:cut]), math.prod(task.sizes[cut:])) for cut in range(len(task.sizes) + 1)]
    cut = products.index(min(products))
    return range(cut), range(cut, len(task.sizes))


async def _combinations(arithmetic: Arithmetic, task: Task, start: Shares, values: Shares, attributes: range) -> Shares:
    """Which rows have each combination of values of some attributes; shape (len(start) * combinations, rows)."""
    masks = start
    for attribute in attributes:
        bits = values[task.starts[attribute] : task.starts[attribute] + task.sizes[attribute]]
        first = await arithmetic.product(lambda t, s: t[:, None] * s[None, :-1], masks, bits)
        rest = (masks - first.sum(axis=1)) % arithmetic.modulus
        masks = np.concatenate([first, rest[:, None]], axis=1).reshape(-1, values.shape[1])
    return masks
