# SPDX-License-Identifier: Apache-2.0
"""``grow_public`` grows public trees from secret rows: SID3 and SID3P.

A ``Rule`` decides on shares of counts when a node stops, and how it splits: ``ExactRules`` by the paper, ``NoisyRules``
with noise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import count

import numpy as np

from miners.fitted.node import Node
from miners.fitted.tree import Tree
from pinq.errors import InternalError
from pinq_secure.id3.task import Path, Source, Task
from pinq_secure.mpc.arithmetic import Arithmetic, Shares, gini_bits, signed_bits, stop_bits
from pinq_secure.mpc.noise import noise_bound

Later = Callable[[], Awaitable[Shares]]
"""Shares that are made, and sent, when they are first needed."""


class ExactRules:
    """The paper's rules (Protocol 4.1).

    They open whether each node stops, the class of each leaf, and the attribute of each other node. A node stops with
    at most ``stop_share`` of all rows, or with all rows of one class; the reason is not opened. Splits are compared by
    sum_j (sum_i x_ij^2) / (alpha n_j + 1); of equal classes or attributes the first one is chosen.

    Privacy:
        No differential privacy: an exact tree leaks (for example, a single person in a leaf). Only the tree is opened.
        Held by: tests/unit/secure/test_secure_trees.py.

    References:
        de Hoogh, Schoenmakers, Chen & op den Akker 2014, sec. 4.
    """

    def __init__(self, task: Task, stop_share: Fraction, alpha: int) -> None:
        self.task, self.share, self.alpha = task, stop_share, alpha
        self.deepest = len(task.sizes)
        self.gini = gini_bits(task.sizes, task.max_rows, alpha)
        self.stop = stop_bits(task.max_rows, stop_share)
        self.bits = max(self.gini, self.stop)
        self._total: Shares | None = None

    async def judge(self, arithmetic: Arithmetic, counts: Later, nodes: int, level: int) -> np.ndarray:
        """Opens the class of each node that stops, and -1 for other nodes, from counts of shape (nodes, classes)."""
        units, stops = await self.judge_secretly(arithmetic, await counts(), level)
        labels = np.full(nodes, -1, dtype=np.int64)
        labels[stops] = await _open_positions(arithmetic, units[stops], "class")
        return labels

    async def judge_secretly(self, arithmetic: Arithmetic, counts: Shares, level: int) -> tuple[Shares, np.ndarray]:
        """The class of each node as unit vectors, shape (nodes, classes); opens which nodes stop."""
        await arithmetic.rounds.meet()
        nodes, size = len(counts), counts.sum(axis=1)
        if self._total is None:
            self._total = size[0]
        units, largest = await arithmetic.first_largest(counts, signed_bits(self.task.max_rows))
        if level == self.deepest:
            stops = np.ones(nodes, dtype=bool)
        else:
            # Below 0 where the node is larger than its share of all rows.
            room = self.share.numerator * self._total - self.share.denominator * size
            # Below 0 where some row is of another class than the most frequent one.
            others = largest - size
            negative = await arithmetic.is_negative(np.concatenate([room, others]) % arithmetic.modulus, self.stop)
            # One product tells whether both hold, and its zero test whether the node stops. Example:
            # 10 of 100 rows, share 1/20, classes (7, 3): room 100 - 200, others 7 - 10, so it goes on.
            goes_on = await arithmetic.product(lambda b: b[:nodes] * b[nodes:], negative)
            stops = await arithmetic.is_zero(goes_on, "stop")
        return units, stops

    async def choose(self, arithmetic: Arithmetic, tables: Later, attributes: np.ndarray, level: int) -> np.ndarray:
        """Opens the choice of each node: a position among its attributes.

        Args:
            arithmetic: The computation.
            tables: Rows of each class with each value of each attribute of each node, end to end;
                shape (values, classes).
            attributes: The attributes that each node may still be split by; shape (nodes,
                attributes).
            level: The depth of the nodes.
        """
        units, _ = await arithmetic.first_largest(await self.scores(arithmetic, await tables(), attributes), self.gini)
        return await _open_positions(arithmetic, units, "attribute")

    async def scores(self, arithmetic: Arithmetic, tables: Shares, attributes: np.ndarray) -> Shares:
        """Each node's scores by attribute, shape (nodes, attributes, numerator and denominator)."""
        # A value with 3 and 1 rows of two classes, alpha 8: (9 + 1) / (8 * 4 + 1).
        squares = await arithmetic.product(lambda x: (x * x).sum(axis=1), tables)
        under = (self.alpha * tables.sum(axis=1) + 1) % arithmetic.modulus
        sizes = np.array(self.task.sizes)[attributes.reshape(-1)]
        return np.stack(await arithmetic.sums_of_fractions(squares, under, sizes), axis=1).reshape(*attributes.shape, 2)


@dataclass(frozen=True)
class LossSplit:
    """The division of a loss over the queries on one path.

    Attributes:
        size: The epsilon of the stop test at each level (at the root of the number of rows).
        choice: The epsilon of the choice at each level of splits.
        vote: The epsilon of a leaf's class.
        depth: Levels of splits.
    """

    size: Fraction
    choice: Fraction
    vote: Fraction
    depth: int

    @classmethod
    def spread(cls, epsilon: Fraction, depth: int) -> LossSplit:
        """Half for the classes of leaves; of the rest a tenth for sizes, the others for choices, equal for all levels.

        On Car with four owners, a fifth for classes lost ten points at epsilon 0.25.
        """
        if depth == 0:
            return cls(Fraction(0), Fraction(0), epsilon, 0)
        # Epsilon 1, two levels: .25 each, of which .025 for the size and .225 for the choice, and
        # .5 for the vote: 2 * .25 + .5 = 1.
        level = epsilon / 2 / depth
        return cls(level / 10, level * 9 / 10, epsilon / 2, depth)

    @property
    def total(self) -> Fraction:
        return self.depth * (self.size + self.choice) + self.vote


class NoisyRules:
    """Differentially private rules: all parties together draw noise that no party knows.

    They open the noisy number of all rows, whether each node's noisy size is at most ``stop_share`` of that, the winner
    of a noisy vote in each leaf, and each other node's attribute with the largest noisy score sum_j max_i x_ij.

    Privacy:
        Adjacency: one row of one party comes or goes (times the session's distance, by which the caller divides
        epsilon). Claim: epsilon-DP for the view of all parties, also for the joint view of any ``colluding`` of them
        with the noise that they drew. Why: each noise is at least DLap(1/e) given the shares of noise that colluding
        parties know (pinq_secure/mpc/noise.py). A stop test is a function of one count with DLap(1/e). Class counts and
        sum_j max_i x_ij change by 0 or 1, all in the same direction, so the position of the noisy maximum alone costs
        e: given the other noises, a candidate wins if its noise reaches a bar that moves by at most 1, and P[DLap >= b]
        changes by at most exp(e) (ties by a fixed order do not matter). Nodes of one level are disjoint, so a row meets
        each level once: LossSplit.total in all. Exact up to 2^-security for the comparisons' masks and 2^-100 for each
        share of noise beyond the field (its bound replaces it). Held by: tests/privacy/test_secure_noise.py.

    Args:
        task: The public facts.
        stop_share: The largest share of all rows, both noisy, of a node that stops.
        budget: Losses, already divided by the distance of adjacent tables.
        colluding: The number of parties that may pool their noise.
    """

    def __init__(self, task: Task, stop_share: Fraction, budget: LossSplit, colluding: int) -> None:
        self.task, self.share, self.budget, self.colluding = task, stop_share, budget, colluding
        self.deepest = budget.depth
        losses = [loss for loss in (budget.size, budget.choice, budget.vote) if loss]
        self.bits = max(signed_bits(2 * self._largest(loss)) for loss in losses)
        self._stop, self._vote_price = 0, budget.vote * task.schema.distance

    def _largest(self, epsilon: Fraction) -> int:
        """The largest difference of two noisy counts: n, and twice each party's bound."""
        return self.task.max_rows + 2 * len(self.task.rows) * noise_bound(epsilon)

    async def judge(self, arithmetic: Arithmetic, counts: Later, nodes: int, level: int) -> np.ndarray:
        stops = await self._stops(arithmetic, counts, nodes, level)
        labels = np.full(nodes, -1, dtype=np.int64)
        if not stops.any():
            return labels

        async def votes() -> Shares:
            return (await counts())[stops]

        # Leaves are disjoint, so the votes of all levels cost as much as those of one level.
        price, self._vote_price = self._vote_price, Fraction(0)
        shape = int(stops.sum()), self.task.classes
        labels[stops] = await self._noisy_largest(arithmetic, votes, shape, self.budget.vote, price, "class")
        return labels

    async def _stops(self, arithmetic: Arithmetic, counts: Later, nodes: int, level: int) -> np.ndarray:
        """Opens which nodes have a noisy size of at most their share of all rows."""
        if level == self.deepest:
            return np.ones(nodes, dtype=bool)
        largest = self._largest(self.budget.size)

        async def opened(noise: Shares) -> np.ndarray:
            noisy = ((await counts()).sum(axis=1) + noise) % arithmetic.modulus
            if level == 0:
                return await arithmetic.open(noisy, "noisy rows")
            # A node stops if its noisy size is at most `_stop`, that is, if `_stop` minus the size
            # is not negative.
            room = min(self._stop, largest)  # a noisy total above the possible one stops no more nodes
            more = await arithmetic.is_negative((room - noisy) % arithmetic.modulus, signed_bits(2 * largest))
            return await arithmetic.is_zero(more, "stop")

        label, price = "stop" if level else "noisy rows", self.budget.size * self.task.schema.distance
        answer = await arithmetic.release(
            label, price, opened, epsilon=self.budget.size, shape=(nodes,), colluding=self.colluding
        )
        if level:
            return answer.astype(bool)
        # 980 noisy rows and a share of 1/20: a node of at most 49 noisy rows stops.
        total = int(answer[0])
        self._stop = max(0, int(total * self.share))
        return np.array([total <= self._stop])

    async def choose(self, arithmetic: Arithmetic, tables: Later, attributes: np.ndarray, level: int) -> np.ndarray:
        sizes = np.array(self.task.sizes)[attributes.reshape(-1)]
        n_bits = signed_bits(self.task.max_rows)

        async def scores() -> Shares:
            counts = await tables()
            _, largest = await arithmetic.first_largest(counts, n_bits)
            # ``largest`` has a number for each value; an attribute's score is the sum over its values.
            # Attributes of 2 and 3 values, largest counts 7 4 | 5 3 2: the scores are 11 and 10.
            return np.add.reduceat(largest, np.cumsum(sizes) - sizes).reshape(attributes.shape)

        price = self.budget.choice * self.task.schema.distance
        return await self._noisy_largest(arithmetic, scores, attributes.shape, self.budget.choice, price, "attribute")

    async def _noisy_largest(
        self, arithmetic: Arithmetic, scores: Later, shape: tuple[int, ...], loss: Fraction, price: Fraction, label: str
    ) -> np.ndarray:
        """Opens the position of the largest of each row of scores with noise."""

        async def opened(noise: Shares) -> np.ndarray:
            noisy = (await scores() + noise) % arithmetic.modulus
            units, _ = await arithmetic.first_largest(noisy, signed_bits(self._largest(loss)))
            return await _open_positions(arithmetic, units, label)

        opening = arithmetic.release(label, price, opened, epsilon=loss, shape=shape, colluding=self.colluding)
        return (await opening).astype(np.int64)


Rule = ExactRules | NoisyRules
"""Answers what a tree's growth asks at each level."""


def later(make: Callable[[], Awaitable[Shares]]) -> Later:
    """Makes shares at their first use, and once; already opened values need none."""
    values: list[Shares] = []

    async def shares() -> Shares:
        if not values:
            values.append(await make())
        return values[0]

    return shares


async def _open_positions(arithmetic: Arithmetic, units: Shares, label: str) -> np.ndarray:
    """Opens the position of the 1 in each secret unit vector, shape (vectors, length)."""
    # The unit vector 0 0 1 times 0 1 2 is 2, and no product of secrets is needed for that.
    positions = units @ np.arange(units.shape[1], dtype=object)
    return (await arithmetic.open(positions % arithmetic.modulus, label)).astype(np.int64)


Progress = Callable[[str], None]


async def grow_public(arithmetic: Arithmetic, task: Task, source: Source, rule: Rule, progress: Progress) -> Tree:
    """Grows a tree whose nodes are opened by the rule, one level at a time.

    All nodes of a level are tested together, and all split nodes choose together. A chosen attribute's table has the
    class counts of the children, so a node is tested before any mask of its rows is made.

    Privacy:
        Opens: the numbers that the rule opens of each node, in the order of levels; nothing of the source.
    """
    tree: list[Node] = []
    paths: list[Path] = [()]
    remaining = np.arange(len(task.sizes))[None]
    counts = later(source.classes)
    for level in count():
        labels = await rule.judge(arithmetic, counts, len(paths), level)
        splitting = np.flatnonzero(labels < 0)
        progress(f"level {level}: {len(splitting):,} of {len(paths):,} nodes split")
        if not len(splitting):
            return Tree(task.schema, task.target, tree + _nodes(task, labels, np.zeros(0, dtype=np.int64), 0))
        paths, remaining = [paths[node] for node in splitting], remaining[splitting]
        tables = later(partial(source.tables, paths, remaining))
        positions = await rule.choose(arithmetic, tables, remaining, level)
        chosen = remaining[np.arange(len(positions)), positions]
        tree += _nodes(task, labels, chosen, len(tree) + len(labels))
        counts = later(partial(_chosen_tables, task, tables, remaining, positions))
        # Attributes 0, 1 and 2, split by 1, which has three values: three children with 0 and 2.
        unused = [row[row != attribute] for row, attribute in zip(remaining, chosen, strict=True)]
        remaining = np.concatenate(
            [np.tile(row, (task.sizes[attribute], 1)) for row, attribute in zip(unused, chosen, strict=True)]
        )
        paths = [
            (*path, (int(attribute), value))
            for path, attribute in zip(paths, chosen, strict=True)
            for value in range(task.sizes[attribute])
        ]
    raise InternalError("a tree grew without end")


async def _chosen_tables(task: Task, tables: Later, attributes: np.ndarray, positions: np.ndarray) -> Shares:
    """The table of each node's chosen attribute, from all concatenated tables, shape (values, classes)."""
    # Two nodes with attributes of 2 and 3 values each: tables begin at rows 0, 2, 5 and 7, and that
    # of the second node's first attribute is rows 5 and 6.
    sizes = np.array(task.sizes)[attributes]
    starts = (np.cumsum(sizes) - sizes.reshape(-1)).reshape(sizes.shape)
    nodes = np.arange(len(positions))
    chosen = zip(starts[nodes, positions], sizes[nodes, positions], strict=True)
    counts = await tables()
    return np.concatenate([counts[start : start + size] for start, size in chosen])


def _nodes(task: Task, labels: np.ndarray, chosen: np.ndarray, first: int) -> list[Node]:
    """Numbers the children of split nodes from ``first``; leaves have a label alone, as counts are not opened."""
    nodes, attributes = [], iter(chosen.tolist())
    for label in labels.tolist():
        if label >= 0:
            nodes.append(Node(label=label))
            continue
        attribute = next(attributes)
        nodes.append(Node(split=task.splits[attribute], children=tuple(range(first, first + task.sizes[attribute]))))
        first += task.sizes[attribute]
    return nodes
