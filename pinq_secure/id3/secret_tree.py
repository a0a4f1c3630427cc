# SPDX-License-Identifier: Apache-2.0
"""``grow_secret`` (SID3T) and ``grow_paths`` (SID3S) grow secret trees, which classify secret rows."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence

import numpy as np

from pinq.errors import QueryError
from pinq_secure.id3.public_tree import ExactRules, Progress
from pinq_secure.id3.task import Records, Task, members_of_classes, one_hot
from pinq_secure.mpc.arithmetic import Arithmetic, Shares, signed_bits

MAX_PATHS = 2**14


Classify = Callable[[Shares], Awaitable[Shares]]
Level = tuple[np.ndarray, Shares, Shares]
"""Which nodes are leaves; the leaves' classes and the other nodes' attributes, unit vectors."""


async def grow_secret(
    arithmetic: Arithmetic, task: Task, records: Records, rule: ExactRules, progress: Progress
) -> list[Level]:
    """Grows the tree of SID3T (Protocol 5.2), a level at a time.

    A node that continues has as many children as the attribute with the most values. A secret bit of each attribute
    tells whether it is unused. The paper subtracts 1 from the score of a used attribute, as if its score were 0, but it
    is that of a node without a split. Here the bit multiplies the score's numerator instead: a used attribute has score
    0, an unused one more.

    Privacy:
        Opens: whether each node stops, so the lengths of paths.
    """
    width, largest = len(task.sizes), max(task.sizes)
    values = np.moveaxis(_padded(task, records.values.T), 0, -1)  # (attributes, most, rows)
    masks, unused, counts = records.present[None], np.ones((1, width), dtype=object), await records.classes()
    chosen: Shares = np.zeros((0, width), dtype=object)
    levels: list[Level] = []
    while True:
        units, stops = await rule.judge_secretly(arithmetic, counts, len(levels))
        splitting = np.flatnonzero(~stops)
        progress(f"level {len(levels)}: {len(splitting):,} of {len(stops):,} nodes split")
        if not len(splitting):
            return [*levels, (stops, units, chosen[:0])]
        if levels:  # only now it is known whose masks are needed
            # Children of nodes 0 and 1 by three values are numbered 0 to 5; where 1 and 5 go on,
            # `parents` is 0 1 and `branches` 1 2.
            parents, branches = np.divmod(splitting, largest)
            # The rows that have a value of each node's secret attribute, shape (nodes, rows).
            inside = await arithmetic.product(
                lambda chosen, values, branches=branches: np.stack(
                    [unit @ values[:, value] for unit, value in zip(chosen, branches, strict=True)]
                ),
                chosen[parents],
                values,
            )
            masks = await arithmetic.product(lambda t, s: t * s, masks[parents], inside)
        unused = unused[splitting]
        members = await members_of_classes(arithmetic, masks, records.labels)
        tables = await arithmetic.product(
            lambda members, values: np.concatenate([values @ node.T for node in members]), members, records.values
        )
        scores = await rule.scores(arithmetic, tables, np.tile(np.arange(width), (len(splitting), 1)))
        scores[..., 0] = await arithmetic.product(lambda n, bit: n * bit, scores[..., 0], unused)
        chosen, _ = await arithmetic.first_largest(scores, rule.gini)
        levels.append((stops, units[stops], chosen))
        # A node's unit vector (0, 1) takes 0 times the first attribute's table and once the second's.
        padded = _padded(task, tables.reshape(len(splitting), -1, task.classes))
        counts = await arithmetic.product(lambda k, x: (k[:, :, None, None] * x).sum(axis=1), chosen, padded)
        counts = counts.reshape(-1, task.classes)
        unused = np.repeat((unused - chosen) % arithmetic.modulus, largest, axis=0)


async def classify_by_tree(arithmetic: Arithmetic, task: Task, levels: Sequence[Level], rows: Shares) -> Shares:
    """Finds the class of each secret row, as shares of its number (Protocol 5.3).

    All rows and all nodes of a level go at once: a row's weight is 1 on its own path.

    Args:
        arithmetic: Among the parties.
        task: The public facts.
        levels: The tree.
        rows: A bit for each value of each attribute, shape (rows, values).
    """
    values = _padded(task, rows)  # (rows, attributes, most), where dummy values have no rows
    weights: Shares = np.ones((len(rows), 1), dtype=object)
    votes: Shares = np.zeros(len(rows), dtype=object)
    for stops, classes, attributes in levels:
        labels = classes @ np.arange(task.classes, dtype=object)
        votes = votes + await arithmetic.product(lambda w, c: w @ c, weights[:, stops], labels)
        # Attribute (0, 1) and a row with values ((1, 0), (0, 1)): branch (0, 1).
        branches = await arithmetic.product(lambda a, v: np.stack([a @ row for row in v]), attributes, values)
        below = await arithmetic.product(lambda w, m: w[:, :, None] * m, weights[:, ~stops], branches)
        weights = below.reshape(len(rows), -1)
    return votes % arithmetic.modulus


async def grow_paths(arithmetic: Arithmetic, task: Task, records: Records) -> Shares:
    """The class of every combination of values (SID3S, Protocol 5.1).

    It is the most frequent class; for a combination without rows, that of its longest prefix with rows. The counts of
    all combinations are one matrix product, of rows by combinations of the first attributes and rows by combinations of
    the others with classes. Counts of prefixes are sums.

    Returns:
        Shares of the class, shape (combinations of the first attributes, those of the others).

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
        prefixes.insert(0, prefixes[0].reshape(-1, size, task.classes).sum(axis=1) % arithmetic.modulus)
    together, bits = np.concatenate(prefixes), signed_bits(task.max_rows)
    units, _ = await arithmetic.first_largest(together, bits)
    empty = await arithmetic.is_negative((together.sum(axis=1) - 1) % arithmetic.modulus, bits)
    # A combination without rows inherits the class of its prefix. Example: one attribute of 2 values,
    # classes (3, 1) of all rows, (3, 1) and (0, 0) of its values: the second inherits the first class.
    labels, end = units[:1], 1
    for size in task.sizes:
        inherited = np.repeat(labels, size, axis=0)
        part = slice(end, end := end + len(inherited))
        # own + empty * (inherited - own): the own class where there are rows.
        labels = await arithmetic.product(lambda e, u, i: e[:, None] * (i - u) + u, empty[part], units[part], inherited)
    return (labels @ np.arange(task.classes, dtype=object) % arithmetic.modulus).reshape(len(in_first), -1)


async def classify_by_path(arithmetic: Arithmetic, task: Task, labels: Shares, rows: Shares) -> Shares:
    """As ``classify_by_tree``, by the class of every combination.

    A row is a unit vector over the combinations of the first attributes, and one over those of the others.
    """
    # label = u^T L v. Example: sizes (2, 3), row (1, 2): u = (0, 1), v = (0, 0, 1).
    present = np.ones((1, len(rows)), dtype=object)
    first, last = [await _combinations(arithmetic, task, present, rows.T, half) for half in _halves(task)]
    by_first = await arithmetic.product(lambda a, b: a @ b, labels, last)
    return await arithmetic.product(lambda a, b: (a * b).sum(axis=0), first, by_first)


async def classify_all(
    arithmetic: Arithmetic, task: Task, classify: Classify, lookups: Sequence[int], own_rows: np.ndarray | None
) -> np.ndarray:
    """Classifies the rows of every party: each party learns the classes of its rows alone.

    Args:
        arithmetic: Among the parties.
        task: The public facts.
        classify: A function that finds the class of each secret row, as shares of its number.
        lookups: The number of rows that each party looks up; public.
        own_rows: This party's rows, shape (rows, attributes); missing announced rows count as zeros, secretly.

    Returns:
        The class of each of this party's rows.
    """
    own_rows = np.zeros((0, len(task.sizes)), dtype=np.int64) if own_rows is None else own_rows
    classes = np.zeros(0, dtype=np.int64)
    for owner, rows in enumerate(lookups):
        if rows:
            bits = one_hot(task.sizes, own_rows.T, rows).T if owner == arithmetic.party else None
            shared = await arithmetic.share(bits, owner, (rows, sum(task.sizes)))
            opened = await arithmetic.open(await classify(shared), "looked up", owner)
            classes = opened[: len(own_rows)].astype(np.int64) if owner == arithmetic.party else classes
    return classes


def require_paths(task: Task) -> None:
    """Raises ``QueryError`` if a tree of all paths would be too large."""
    if (paths := math.prod(task.sizes)) > MAX_PATHS:
        raise QueryError(
            f"SID3S keeps the class of all {paths:,} combinations of values; at most {MAX_PATHS:,} are possible. "
            "Use SID3T, or fewer attributes."
        )


def _padded(task: Task, table: Shares) -> Shares:
    """A table of shape (n, values, ...), padded with 0 to shape (n, attributes, most values, ...)."""
    padded = np.zeros((len(table), len(task.sizes), max(task.sizes), *table.shape[2:]), dtype=object)
    for attribute, (start, size) in enumerate(zip(task.starts, task.sizes, strict=True)):
        padded[:, attribute, :size] = table[:, start : start + size]
    return padded


def _halves(task: Task) -> tuple[range, range]:
    """Divides the attributes in two, so that both have about as many combinations."""
    # Attributes of 2, 3 and 4 values: cuts leave 1 and 24, 2 and 12, 6 and 4, 24 and 1
    # combinations; the third is the most even.
    n = len(task.sizes)
    products = [max(math.prod(task.sizes[:cut]), math.prod(task.sizes[cut:])) for cut in range(n + 1)]
    cut = products.index(min(products))
    return range(cut), range(cut, n)


async def _combinations(arithmetic: Arithmetic, task: Task, start: Shares, values: Shares, attributes: range) -> Shares:
    """The rows with each combination of values of some attributes.

    The shape is (len(start) * combinations, rows); the last attribute's values vary fastest.
    """
    # Each attribute refines every mask by its values; the last value has the rest of the mask.
    # Example: mask (1, 1, 0) of three rows with values 0, 1, 1 of two: (1, 0, 0) and (0, 1, 0).
    masks = start
    for attribute in attributes:
        bits = values[task.starts[attribute] : task.starts[attribute] + task.sizes[attribute]]
        masks = await members_of_classes(arithmetic, masks, bits)
        masks = masks.reshape(-1, values.shape[1])
    return masks
