# SPDX-License-Identifier: Apache-2.0
"""The frontier loop: how every tree of this package grows, alone or as one of a forest, each question asked of a whole level at once.

Privacy:
    Claim: growing costs at most ``schedule.total``, in the policy's terms; exactly that unless a
    leaf that is reached early does not ``spend_rest``.
    Why: the nodes of a level, of however many trees on disjoint rows, are disjoint, so each
    question to a level costs what it costs one node (parallel composition), and along a way from
    the root down the shares of the schedule add up (sequential composition); a share "stop" is one
    question of whole trees, charged at their roots. What is asked next, and where to stop, depends
    on the schema and on earlier answers only. Held by: tests/unit/trees/test_trees.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from miners.budget.noise import count_scale, count_variance
from miners.budget.schedule import Ask, Schedule
from miners.fitted.tree import Split
from pinq.public.parts import Part
from pinq.public.schema import Schema
from pinq.public.scores import EnoughRows
from pinq.public.specs import MAX_PARTS, Values, bind

if TYPE_CHECKING:
    from pinq.analyst.queryable import Parts

__all__ = ["Level", "OpenNode", "Rules", "ask_classes", "ask_ends", "grow"]

FEW_PARTS = 4096  # that many may be asked of a small table too


@dataclass
class OpenNode:
    """A node while its tree grows, with all that was answered about it.

    Attributes:
        part: Where it is, by the splits above it.
        used: Columns that its way does not split again.
        size: Noisy number of rows, None where it was not asked.
        size_scale: Scale of the noise in ``size``.
        cells: Noisy rows of each class, the missing class last where there is one, or of the two
            ends of a numeric target; None where nothing was said of them.
        variance: Of the noise in each of ``cells``.
    """

    part: Part = field(default_factory=Part)
    used: frozenset[str] = frozenset()
    split: Split | None = None
    children: tuple[int, ...] = ()
    size: float | None = None
    size_scale: float | None = None
    cells: np.ndarray | None = None
    variance: float = float("inf")
    cells_scale: float | None = None

    @property
    def rows(self) -> float:
        """Noisy number of rows as far as it is known yet; infinite where nothing was asked."""
        if self.size is not None:
            return self.size
        return float("inf") if self.cells is None else float(self.cells.sum())

    def observe(self, cells: np.ndarray, variance: float, scale: float | None = None) -> None:
        """Takes in one more set of noisy class counts: averages, the surer one weighing more."""
        if self.cells is None:
            self.cells, self.variance, self.cells_scale = np.asarray(cells, dtype=np.float64), variance, scale
            return
        weight = self.variance / (self.variance + variance)
        self.cells = self.cells + weight * (cells - self.cells)
        self.variance, self.cells_scale = self.variance * variance / (self.variance + variance), None


@dataclass
class Level:
    """The nodes of one level that are still to be split.

    Attributes:
        number: Splits above them.
        parts: They themselves.
        nodes: What is known of each, in the order of the parts.
        below: What choosing their splits told about the children: for each node a row of noisy
            class counts for each part of its split.
        below_scale: Scale of the noise in those.
    """

    number: int
    parts: Parts
    nodes: list[OpenNode]
    below: Sequence[np.ndarray] | None = None
    below_scale: float | None = None


@dataclass(frozen=True)
class Rules:
    """What one miner does its own way.

    Attributes:
        schema: The public schema.
        cells: Numbers that a node is described by: parts of the histogram of classes, one for a
            missing class included; 2 for a numeric target.
        schedule: The losses. A share named "size" or "classes" asks that of each node of a level
            before it is decided whether to split it; the other shares are what ``choose`` spends. A
            leaf is asked for "classes", and for its "size" where the schedule says so.
        ask: One request that describes all these parts, shape (parts, cells); see ``ask_classes``
            and ``ask_ends``.
        choose: Splits for all nodes of a level; None for one that cannot be split.
        enough: The noisy size from which a node is split; None to split all.
        spend_rest: A leaf that is reached early asks for its classes with all that its way has
            left, not with the leaf's share.
        widest: The most parts that a node's split can have.
        once: Whether a way that has used this split does not use its column again.
        least: The rows from which a tree's first node is worth splitting, where the schedule's
            leaves have a share "stop": that one question of all grown trees at once says where
            their ways end early, and only the leaves that are left are described.
        in_vain: Which shares of its level a node has been asked that turns out to have no split;
            None for all.
    """

    schema: Schema
    cells: int
    schedule: Schedule
    ask: Callable[[Parts, Fraction], np.ndarray]
    choose: Callable[[Level], Sequence[Split | None]]
    enough: Callable[[OpenNode], float] | None = None
    spend_rest: bool = True
    widest: Callable[[OpenNode], int] = field(default=lambda _: 2)
    once: Callable[[Split], bool] = field(default=lambda split: isinstance(split, Values))
    least: int = 0
    in_vain: Sequence[str] | None = None


def _in_vain(asks: Mapping[str, Ask], rules: Rules) -> Sequence[str]:
    return list(asks) if rules.in_vain is None else rules.in_vain


def ask_classes(target: str, cells: int) -> Callable[[Parts, Fraction], np.ndarray]:
    """Describes parts by their histograms of a categorical target."""
    return lambda parts, epsilon: np.asarray(parts.partition(Values(target)).noisy_count(epsilon=epsilon)).reshape(
        len(parts), cells
    )


def ask_ends(schema: Schema, target: str) -> Callable[[Parts, Fraction], np.ndarray]:
    """Describes parts by the two ends of a numeric target: a row at a share s of the way from its lower bound to its upper one counts 1 - s and s.

    The two-bin average of the layer, taken apart again: the noise in each end is that of a count at
    the same epsilon, and nothing more is paid for the number of rows. A noisy end below 0 is not
    told apart from 0.
    """
    column = schema.numeric(target)
    low, high = column.number(0), column.number(column.cells - 1)

    def ask(parts: Parts, epsilon: Fraction) -> np.ndarray:
        answer = parts.noisy_avg(target, epsilon=epsilon)
        shares = (np.asarray(answer) - low) / (high - low)
        return np.asarray(answer.facts.rows).reshape(-1, 1) * np.column_stack([1 - shares.ravel(), shares.ravel()])

    return ask


def grow(roots: Parts, rules: Rules) -> list[list[OpenNode]]:
    """Grows a tree below each of these disjoint parts, all together; of each tree the root first, each node before its children."""
    nodes = [OpenNode() for _ in range(len(roots))]
    if "stop" in rules.schedule.leaf:
        _stop(roots, *_grow_bare(Level(0, roots, nodes[:]), nodes, rules), nodes, rules)
    else:
        _grow(Level(0, roots, nodes[:]), nodes, rules)
    return [_below(nodes, root) for root in range(len(roots))]


def _grow(level: Level, nodes: list[OpenNode], rules: Rules) -> None:
    """Adds all that grows below a level to ``nodes``."""
    for asks in rules.schedule.levels:
        if "size" in asks:
            _ask_sizes(level, asks["size"].epsilon, rules)
        if "classes" in asks:
            _ask_classes(level, asks["classes"].epsilon, rules)
        grows = _worth_splitting(level, rules)
        _ask_leaf(level, ~grows, rules, [name for name in ("size", "classes") if name in asks])
        level = _only(level, grows)
        if not level.nodes:
            return
        splits = list(rules.choose(level))
        can = np.array([split is not None for split in splits])
        _ask_leaf(level, ~can, rules, _in_vain(asks, rules))
        level = _only(level, can)
        if not level.nodes:
            return
        level = _branch(level, [split for split in splits if split is not None], nodes, rules)
    if "size" in rules.schedule.leaf:
        _ask_sizes(level, rules.schedule.leaf["size"].epsilon, rules)
    _ask_classes(level, rules.schedule.leaf["classes"].epsilon, rules)


def _grow_bare(level: Level, nodes: list[OpenNode], rules: Rules) -> tuple[list[Level], dict[int, Fraction]]:
    """Adds all splits below a level to ``nodes`` and describes no node; all levels, and what the way to each leaf, by its identity, has left."""
    levels = [level]
    left: dict[int, Fraction] = {}
    for asks in rules.schedule.levels:
        left |= dict.fromkeys(map(id, level.nodes), rules.schedule.left(level.number, "stop"))
        level = _only(level, _worth_splitting(level, rules))
        if not level.nodes:
            return levels, left
        left |= dict.fromkeys(map(id, level.nodes), rules.schedule.left(level.number, "stop", *_in_vain(asks, rules)))
        splits = list(rules.choose(level))
        level = _only(level, np.array([split is not None for split in splits]))
        if not level.nodes:
            return levels, left
        level = _branch(level, [split for split in splits if split is not None], nodes, rules)
        levels.append(level)
    return levels, left | dict.fromkeys(map(id, level.nodes), rules.schedule.left(level.number, "stop"))


def _stop(
    roots: Parts, levels: Sequence[Level], left: dict[int, Fraction], nodes: list[OpenNode], rules: Rules
) -> None:
    """Ends ways where rows become too few, by one question of the leaves of all trees; then describes the leaves that are left, with all that is left."""
    grown = [_only(level, np.array([not node.children for node in level.nodes])) for level in levels]
    score = EnoughRows(rules.least, above=roots.depth)
    kept = iter(
        _union([level.parts for level in grown]).exp_mech(score=score, epsilon=rules.schedule.leaf["stop"].epsilon)
    )
    end = {
        id(node): next(kept) for level in grown for node in level.nodes
    }  # how many splits are left on the longest way through a node
    leaves: dict[Fraction, list[Level]] = {}
    for level in reversed(levels):
        for node in level.nodes:
            if node.children:
                below = [id(nodes[child]) for child in node.children]
                end[id(node)], left[id(node)] = (
                    max(end[child] for child in below),
                    min(left[child] for child in below),
                )
                if end[id(node)] <= level.number:
                    node.split, node.children = None, ()
        rest = [left[id(node)] if end[id(node)] == level.number else None for node in level.nodes]
        for epsilon in sorted({one for one in rest if one is not None}):
            leaves.setdefault(epsilon, []).append(_only(level, np.array([one == epsilon for one in rest])))
    for epsilon, some in leaves.items():
        _ask_classes(
            Level(
                levels[-1].number,
                _union([level.parts for level in some]),
                [node for level in some for node in level.nodes],
            ),
            epsilon,
            rules,
        )


def _union(collections: Sequence[Parts]) -> Parts:
    return type(collections[0]).union(*collections)


def _below(nodes: Sequence[OpenNode], root: int) -> list[OpenNode]:
    """One tree of many, its nodes numbered from 0."""
    kept = [root]
    for place in kept:  # grows while it is walked through: parents before their children
        kept += nodes[place].children
    number = {place: new for new, place in enumerate(kept)}
    return [replace(nodes[place], children=tuple(number[child] for child in nodes[place].children)) for place in kept]


def _ask_sizes(level: Level, epsilon: Fraction, rules: Rules) -> None:
    scale = count_scale(rules.schema, epsilon)
    sizes = np.asarray(level.parts.noisy_count(epsilon=epsilon)).ravel()
    for node, size in zip(level.nodes, sizes, strict=True):
        node.size, node.size_scale = float(size), scale


def _ask_classes(level: Level, epsilon: Fraction, rules: Rules) -> None:
    """One request for the cells of all these nodes."""
    scale = count_scale(rules.schema, epsilon)
    for node, cells in zip(level.nodes, rules.ask(level.parts, epsilon), strict=True):
        node.observe(cells, count_variance(scale), scale)


def _ask_leaf(level: Level, leaves: np.ndarray, rules: Rules, asked: Sequence[str]) -> None:
    """The last question to nodes that are not split although their level is not the last."""
    here = _only(level, leaves)
    if not here.nodes:
        return
    epsilon = rules.schedule.left(level.number, *asked) if rules.spend_rest else rules.schedule.leaf["classes"].epsilon
    _ask_classes(here, epsilon, rules)


def _worth_splitting(level: Level, rules: Rules) -> np.ndarray:
    """Which nodes of a level are split, shape (nodes,): the large ones, the largest first while parts can be asked at all."""
    sizes = np.array([node.rows for node in level.nodes])
    grows = np.ones(len(sizes), dtype=bool)
    if rules.enough is not None:
        grows = sizes >= np.array([rules.enough(node) for node in level.nodes])
    widest = np.array([rules.widest(node) for node in level.nodes])
    order = np.argsort(-sizes, kind="stable")
    asked = np.cumsum(np.where(grows[order], widest[order], 0)) * rules.cells
    # More leaves than the table can have rows are of no use, and a depth that a caller took from
    # elsewhere would ask for millions.
    grows[order[asked > min(MAX_PARTS, max(FEW_PARTS, rules.schema.max_rows))]] = False
    return grows


def _only(level: Level, chosen: np.ndarray) -> Level:
    if chosen.all():
        return level
    below = None if level.below is None else [table for table, one in zip(level.below, chosen, strict=True) if one]
    return Level(
        level.number,
        level.parts[chosen],
        [node for node, one in zip(level.nodes, chosen, strict=True) if one],
        below,
        level.below_scale,
    )


def _branch(level: Level, splits: Sequence[Split], nodes: list[OpenNode], rules: Rules) -> Level:
    """Adds the children of each node, in the order of the parts of its split."""
    below: list[OpenNode] = []
    for parent, split in zip(level.nodes, splits, strict=True):
        first, partition = len(nodes) + len(below), bind(split, rules.schema)
        used = parent.used | {split.column} if rules.once(split) else parent.used
        parent.split, parent.children = split, tuple(range(first, first + partition.size))
        below += [OpenNode(Part(parent.part, partition, index), used) for index in range(partition.size)]
    if level.below is not None and level.below_scale is not None:
        for node, cells in zip(below, (row for table in level.below for row in table), strict=True):
            node.observe(cells, count_variance(level.below_scale), level.below_scale)
    nodes += below
    return Level(level.number + 1, level.parts.partition(list(splits)), below)
