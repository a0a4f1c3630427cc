# SPDX-License-Identifier: Apache-2.0
"""The frontier loop, in which every tree of this package grows.

Each step is one query of a whole level. A ``TreeStrategy`` has the differences between algorithms and variants.

Privacy:
    Claim: growing costs at most ``recipe.total``, in the policy's terms; exactly that unless a leaf
    that is reached early does not take the rest of its path.
    Why: the nodes of a level are disjoint, also in several trees on disjoint rows, so a query of a level costs as much
    as one of a single node (parallel composition). Along a path from the root down, the steps of the recipe add up
    (sequential composition). The step ``STOP`` is one query of whole trees, charged at their roots. All queries follow
    from the schema and earlier answers. Held by: tests/unit/trees/test_trees.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice
from typing import Any, ClassVar, Self, cast

import numpy as np

from miners.budget.plan import DESCRIBING, Recipe, Step, StepName, StepQuery, count_scale, count_variance
from miners.fitted.node import Ends, Node, Split
from miners.growth.candidates import choice_noise_scale, random_split, score_of
from miners.growth.fitted_nodes import OpenNode, estimated_nodes
from pinq.analyst.queryable import Parts, PrivateQueryable
from pinq.analyst.session import Session
from pinq.errors import QueryError
from pinq.language.parts import Part
from pinq.language.queries import MAX_NODES, Answer, Query, Request
from pinq.language.scores import EnoughRows
from pinq.language.specs import MAX_PARTS, AnyCut, AnyGrouping, Cuts, Groups, Spec, Values
from pinq.public.epsilon import Epsilon, standard_deviation
from pinq.public.schema import Schema


def ask_ends(parts: Parts, schema: Schema, target: str, epsilon: Epsilon, within: Ends = None) -> np.ndarray:
    """The noisy weights of the two ends of a numeric target in each part, shape (parts, 2).

    A row at a share s of the way from the lower end of a range to its upper one counts 1 - s and s:
    of two rows at 2 and 8 on a range from 0 to 10 the ends are 0.8 + 0.2 and 0.2 + 0.8. Values
    outside count as its ends; without a range these are the target's bounds.

    These are the two bins of the layer's average, each with the noise of a count. A noisy end below 0 counts as 0.
    """
    column = schema.numeric(target)
    low, high = map(column.number, column.cells_within(within, target))
    answer = parts.noisy_avg(target, within=within, epsilon=epsilon)
    weights = ((answer.numbers - low) / (high - low)).ravel()
    rows = np.asarray(answer.facts.rows).reshape(-1, 1)
    return np.asarray(rows * np.column_stack([1 - weights, weights]))


@dataclass
class Level:
    """The unsplit nodes of one level.

    Attributes:
        nodes: The known facts of each node, in the order of the parts.
        below: The facts about the children from the choice of their splits: for each node a row of
            noisy class counts for each part of its split.
    """

    number: int
    parts: Parts
    nodes: list[OpenNode]
    below: Sequence[np.ndarray] | None = None
    below_scale: float | None = None

    def only(self, chosen: np.ndarray) -> Level:
        """Some of its nodes; ``chosen`` has shape (nodes,)."""
        if chosen.all():
            return self
        rows = np.flatnonzero(chosen).tolist()
        below = None if self.below is None else [self.below[row] for row in rows]
        return Level(self.number, self.parts[chosen], [self.nodes[row] for row in rows], below, self.below_scale)


SplitCandidate = Values | Cuts | Groups | AnyCut | AnyGrouping
Offer = Sequence[SplitCandidate] | Sequence[Sequence[SplitCandidate]]


@dataclass(frozen=True)
class Problem:
    """The task of a fit: all public, all checked.

    Attributes:
        target: The column to predict; None in a plan without one.
        cells: The number of counts of a node: one for each part of the histogram of classes, a
            missing class included, or two for the ends of a numeric target.
        classes: The number of predicted classes, the first cells: all but a missing class.
        epsilon: The limit of all costs besides ``looks``.
        within: The range, once it is known.
    """

    schema: Schema
    target: str | None
    cells: int
    classes: int
    epsilon: Epsilon
    numeric: bool = False
    looks: tuple[Epsilon, ...] = ()
    within: Ends = None


@dataclass(frozen=True, kw_only=True, eq=False)
class StepQueries(ABC):
    """The queries of every strategy, to one handle or several owners, and their noise."""

    problem: Problem
    depth: int
    criterion: str

    textbook: ClassVar[bool] = False

    @cached_property
    def schema(self) -> Schema:
        return self.problem.schema

    @cached_property
    def target(self) -> str:
        return str(self.problem.target)

    @cached_property
    def cells(self) -> int:
        """The number of numbers that describe a node."""
        return self.problem.cells

    def size_query(self, of: str, weight: int = 1) -> StepQuery:
        """The query for the rows of nodes."""
        return StepQuery(StepName.SIZE, "noisy_count", f"size of {of}", self.count_noise, weight)

    def classes_query(self, of: str, weight: int = 1) -> StepQuery:
        """The query that describes nodes."""
        if self.problem.numeric:
            text = f"mean of `{self.target}` in {of}"
            return StepQuery(StepName.CLASSES, "noisy_avg", text, self.count_noise, weight)
        text = f"classes of {of}"
        return StepQuery(StepName.CLASSES, "noisy_count", text, self.count_noise, weight, numbers=self.cells)

    def choice_query(self, name: StepName, text: str, weight: int = 1, times: int = 1) -> StepQuery:
        """A query for splits that the criterion judges."""
        noise = partial(choice_noise_scale, self.schema, self.criterion, textbook=self.textbook, target=self.target)
        return StepQuery(name, "exp_mech", text, noise, weight, times)

    def count_noise(self, epsilon: Epsilon) -> tuple[float, str]:
        """The standard deviation of a count's noise."""
        return noise_of(self.schema, epsilon), "rows"


@dataclass(frozen=True, kw_only=True, eq=False)
class TreeStrategy(StepQueries):
    """An algorithm: it divides epsilon, chooses splits and ends paths.

    Attributes:
        trees: The number of trees that grow together, each from a shard; 1 for one tree on all rows.
        certainty: C4.5's certainty factor; None for no pruning.
        room: The number of bytes that the ledger keeps of nodes and of choices.
        node_bytes: The largest number of these bytes that describe a node.
        choice_bytes: The largest number for a node's choice.
    """

    epsilon: Epsilon
    trees: int = 1
    certainty: float | None = None
    room: float = math.inf
    node_bytes: int = 0
    choice_bytes: int = 0

    spends_rest: ClassVar[bool] = True

    @abstractmethod
    def queries(self) -> tuple[list[list[StepQuery]], list[StepQuery]]:
        """The queries of each level of splits, and those of a leaf, by weight."""

    @abstractmethod
    def choose(self, level: Level) -> Sequence[Split | None]:
        """A split for each node of a level; None for a node that cannot be split."""

    @abstractmethod
    def max_parts(self, node: OpenNode) -> int:
        """The largest number of parts of a node's split."""

    def fan_out(self, level: int) -> int:
        """The largest number of parts of a split of this level."""
        return self.max_parts(OpenNode())

    @cached_property
    def recipe(self) -> Recipe:
        levels, leaf = self.queries()
        return Recipe.by_weights(self.epsilon, levels, leaf, spends_rest=self.spends_rest)

    def stop_rows_at(self, epsilon: Epsilon) -> int:
        """The total noise in the numbers of two leaves at this loss, in rows."""
        # Two classes at epsilon .1: counts deviate by 14.1, so 2 * 2 * 14.1 rows, 57.
        return math.ceil(2 * self.cells * noise_of(self.schema, epsilon))

    def describe(self, parts: Parts, epsilon: Epsilon) -> np.ndarray:
        """Noisy numbers that describe each part, shape (parts, cells), by one request."""
        if self.problem.numeric:
            return ask_ends(parts, self.schema, self.target, epsilon, self.problem.within)
        return np.asarray(parts.partition(Values(self.target)).noisy_count(epsilon=epsilon)).reshape(len(parts), -1)

    def without_split(self, level: int) -> Sequence[Step]:
        """The steps of a node for which ``choose`` returns None."""
        return self.recipe.levels[level]

    def threshold(self, node: OpenNode) -> float:
        """The noisy size from which a node is split; without a rule all are."""
        return -math.inf

    def uses_up(self, split: Split) -> bool:
        """Whether a path with this split does not use its column again."""
        return split.is_finest

    def estimates(self, trees: Sequence[Sequence[OpenNode]]) -> list[list[Node]]:
        """The nodes of each fitted tree."""
        return estimated_nodes(trees, self.cells, self.problem.classes, self.certainty)

    def first_level(self) -> Self:
        return self if self.depth <= 1 else replace(self, depth=1)

    # Choices

    def ask_choices(self, parts: Parts, offered: Offer, step: Step) -> list[Split | None]:
        """The choice of the mechanism for each part, among the candidates of one list or of a list for each part."""
        within = [self.problem.within] if self.problem.numeric else []
        score = score_of(self.criterion, self.target, *within)

        def ask(some: Parts, candidates: Offer) -> list[Any]:
            return some.exp_mech(candidates, score=score, epsilon=step.epsilon, textbook=self.textbook)

        return in_pieces(ask, parts, offered)

    def ask_where_offered(
        self, level: Level, offered: Sequence[Sequence[SplitCandidate]], step: Step
    ) -> list[Split | None]:
        """The same, but None without a query for nodes without candidates."""
        rows = [row for row, candidates in enumerate(offered) if candidates]
        answers = self.ask_choices(level.parts[rows], [offered[row] for row in rows], step) if rows else []
        chosen = dict(zip(rows, answers, strict=True))
        return [chosen.get(row) for row in range(len(offered))]


def in_pieces(ask: Callable[[Any, Any], list[Any]], parts: Any, entries: Sequence[Any]) -> list[Any]:
    """Sends one request about disjoint parts, or several at the same cost if one would be too much work.

    A rehearsal shows whether a single part may be queried.
    """
    try:
        return ask(parts, entries)
    except QueryError:
        if len(parts) == 1:
            raise
        halves = (slice(len(parts) // 2), slice(len(parts) // 2, None))
        shared = not all(isinstance(entry, (list, tuple)) for entry in entries)
        return [one for side in halves for one in in_pieces(ask, parts[side], entries if shared else entries[side])]


@contextmanager
def rehearsing(handle: PrivateQueryable) -> Iterator[tuple[PrivateQueryable, list[Request]]]:
    """Gives a handle with dummy answers and the list of its queries; then previews its last query of each kind.

    So a query is refused before any query is paid for. All parts are as large as possible; at most one chooses.
    """
    last: dict[tuple[type[Query], type | None], tuple[Session, Request]] = {}
    asked: list[Request] = []

    def ask(session: Session, request: Request) -> Answer:
        last[type(request.query), type(request.score)] = session, request
        asked.append(request)
        schema, random = session.schema, np.random.default_rng(0)
        splits = (
            candidate.as_spec or random_split(schema, [*candidate.columns()], Part(), random)
            for candidate in chain(*request.candidates[:1])
        )
        answers = list(splits) if request.each else list(islice(filter(None, splits), 1))
        chosen = [split for split in answers if split is not None]  # a column of one value has no split
        size = math.prod((*request.parts.shape, *request.query.shape(schema)))
        first = (-1 if request.candidates and not chosen else 0) if request.score else schema.max_rows
        values = [-1 if split is None else chosen.index(split) for split in answers] if request.each else [first] * size
        return Answer(
            id=request.id,
            verb=request.verb,
            epsilon=request.epsilon,
            values=tuple(values),
            chosen=tuple(cast("list[Spec]", chosen)),
            rows=tuple(map(float, values)) if request.verb == "noisy_avg" else None,
        )

    yield handle.through(ask), asked
    for session, request in reversed(last.values()):  # the first kind last: the fit asks such a query next
        session.preview(request)


def noise_of(schema: Schema, epsilon: Epsilon) -> float:
    """The standard deviation of a count's noise, in rows."""
    return standard_deviation(count_scale(schema, epsilon))


def grow(roots: Parts, strategy: TreeStrategy) -> list[list[OpenNode]]:
    """Grows a tree below each of these disjoint parts, all together.

    Returns:
        For each tree its nodes: the root first, each node before its children.
    """
    nodes = [OpenNode() for _ in range(len(roots))]
    levels = _grow(Level(0, roots, nodes[:]), nodes, strategy)
    if strategy.recipe.stops:
        _end_paths(roots.depth, levels, nodes, strategy)
    return [_tree_below(nodes, root) for root in range(len(roots))]


def _grow(level: Level, nodes: list[OpenNode], strategy: TreeStrategy) -> list[Level]:
    """Adds all nodes below a level to ``nodes``; returns all levels, this one first."""
    levels, chosen = [level], 0
    for steps in strategy.recipe.levels:
        described = [step for step in steps if step.name in DESCRIBING]
        for step in described:
            _describe(level, step, strategy)
        # Of three nodes one is too small, and one finds no split: the first becomes a leaf after
        # the steps that describe it, the second after those that choose, too; the third is split.
        large = _worth_splitting(level, len(nodes), chosen, strategy)
        _end_early(level, ~large, described, strategy)
        level = level.only(large)
        if not level.nodes:
            return levels
        chosen += len(level.nodes)
        splits = strategy.choose(level)
        splittable = np.array([split is not None for split in splits])
        _end_early(level, ~splittable, strategy.without_split(level.number), strategy)
        level = level.only(splittable)
        if not level.nodes:
            return levels
        level = _branch(level, [split for split in splits if split is not None], nodes, strategy)
        levels.append(level)
    if strategy.recipe.stops:
        _end_early(level, np.ones(len(level.nodes), dtype=bool), [], strategy)
    else:
        for step in strategy.recipe.leaf:
            _describe(level, step, strategy)
    return levels


def _end_early(level: Level, unsplit: np.ndarray, paid: Sequence[Step], strategy: TreeStrategy) -> None:
    """Queries the nodes that are not split for the last time, after these steps of their level.

    If one query of all leaves decides later, nodes only note the rest of their path's epsilon.
    """
    if not unsplit.any():
        return
    level, recipe = level.only(unsplit), strategy.recipe
    if recipe.stops:
        left = recipe.remainder(level.number, [recipe.leaf_step(StepName.STOP), *paid])
        for node in level.nodes:
            node.left = left
    else:
        _describe(level, recipe.early_leaf(level.number, paid), strategy)


def _end_paths(depth: int, levels: Sequence[Level], nodes: list[OpenNode], strategy: TreeStrategy) -> None:
    """Ends paths where rows become too few, then describes the remaining leaves.

    One query of the leaves of all trees gives the number of splits that remain on the path to each
    leaf. A node stays split if a leaf below it keeps more splits than there are above the node. Of
    three leaves at depths 1, 2, 2 that keep 1, 1, 1 splits, the last two are lost: their parent, at
    depth 1, becomes a leaf. Its query gets the smaller rest of the two.
    """
    stop = strategy.recipe.leaf_step(StepName.STOP)
    bare = [level.only(np.array([not node.children for node in level.nodes])) for level in levels]
    parts = Parts.union(*(level.parts for level in bare))
    least = strategy.stop_rows_at(strategy.recipe.leaf_step(StepName.CLASSES).epsilon)
    remaining = parts.exp_mech(score=EnoughRows(least, above=depth), epsilon=stop.epsilon)
    for node, splits in zip([node for level in bare for node in level.nodes], remaining, strict=True):
        node.path_end = splits
    leaves: dict[Epsilon, list[Level]] = {}
    for level in reversed(levels):
        for node in level.nodes:
            _end_path(level.number, node, [nodes[child] for child in node.children])
        left = [node.left if node.path_end == level.number else None for node in level.nodes]
        # Leaves of one loss on all levels are one request, because they are disjoint.
        for epsilon in sorted({loss for loss in left if loss is not None}):
            leaves.setdefault(epsilon, []).append(level.only(np.array([loss == epsilon for loss in left])))
    for epsilon, ends in leaves.items():
        together = [node for level in ends for node in level.nodes]
        _ask_classes(Level(len(levels) - 1, Parts.union(*(level.parts for level in ends)), together), epsilon, strategy)


def _end_path(level: int, node: OpenNode, children: Sequence[OpenNode]) -> None:
    """Passes up the children's counts, and makes a node a leaf if no path below it continues."""
    if not children:
        return
    node.path_end = max(child.path_end for child in children)
    node.left = min(child.left for child in children if child.left is not None)
    if node.path_end <= level:
        node.split, node.children = None, ()


def _tree_below(nodes: Sequence[OpenNode], root: int) -> list[OpenNode]:
    """One tree of many, its nodes numbered from 0."""
    numbers = [root]
    for number in numbers:  # grows while it is walked through: parents before their children
        numbers += nodes[number].children
    if numbers == list(range(len(nodes))):  # there is one tree, and nothing of it was lost
        return list(nodes)
    renumbered = {number: new for new, number in enumerate(numbers)}
    tree = [nodes[number] for number in numbers]
    for node in tree:
        node.children = tuple([renumbered[child] for child in node.children])
    return tree


def _describe(level: Level, step: Step, strategy: TreeStrategy) -> None:
    """Runs a step that describes nodes."""
    if step.name is not StepName.SIZE:
        _ask_classes(level, step.epsilon, strategy)
        return
    scale = count_scale(strategy.schema, step.epsilon)
    sizes = np.asarray(level.parts.noisy_count(epsilon=step.epsilon)).ravel()
    for node, size in zip(level.nodes, sizes, strict=True):
        node.size, node.size_scale = float(size), scale


def _ask_classes(level: Level, epsilon: Epsilon, strategy: TreeStrategy) -> None:
    scale = count_scale(strategy.schema, epsilon)
    for node, cells in zip(level.nodes, strategy.describe(level.parts, epsilon), strict=True):
        node.observe(cells, count_variance(scale), scale)


def _worth_splitting(level: Level, grown: int, chosen: int, strategy: TreeStrategy) -> np.ndarray:
    """The nodes of a level that are split, shape (nodes,): the large ones, the largest first.

    The largest nodes are split while one request can name their children, and the ledger can keep their answers. A
    request names its parts and all parts above them; the request that ends paths names all nodes.
    """
    sizes = np.array([node.rows for node in level.nodes])
    large = sizes >= np.array([strategy.threshold(node) for node in level.nodes])
    max_parts = np.array([strategy.max_parts(node) for node in level.nodes])
    # Sizes 9, 2 and 5, each split in at most 4 parts of 2 cells: in the order 9, 5, 2 they ask 8,
    # 16 and 24 numbers. With room for 20, the node of size 2 is not split.
    order = np.argsort(-sizes, kind="stable")
    needed = np.cumsum(np.where(large[order], max_parts[order], 0))
    named = grown if strategy.recipe.stops else len(level.parts.part_set.ancestors) + len(level.nodes)
    # Of a small table, too, 4,096 parts may be asked.
    numbers = min(MAX_PARTS, max(4096, strategy.schema.max_rows))
    large[order[needed > min(numbers // strategy.cells, MAX_NODES - named)]] = False
    stored = (grown + np.cumsum((large * max_parts)[order])) * strategy.node_bytes
    large[order[stored + (chosen + np.cumsum(large[order])) * strategy.choice_bytes > strategy.room]] = False
    return large


def _branch(level: Level, splits: Sequence[Split], nodes: list[OpenNode], strategy: TreeStrategy) -> Level:
    """Adds the children of each node, in the order of the parts of its split."""
    below = level.parts.partition(list(splits))
    children: list[OpenNode] = []
    for parent, split, parts in zip(level.nodes, splits, below.part_set.blocks, strict=True):
        used = parent.used | {split.column} if strategy.uses_up(split) else parent.used
        children += parent.branch(split, len(parts), len(nodes) + len(children), used)
    if level.below is not None and level.below_scale is not None:
        # Splits in 3 and in 2 parts: five children, and the rows of two tables end to end.
        rows = [cells for table in level.below for cells in table]
        for child, cells in zip(children, rows, strict=True):
            child.observe(cells, count_variance(level.below_scale), level.below_scale)
    nodes += children
    return Level(level.number + 1, below, children)
