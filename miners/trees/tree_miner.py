# SPDX-License-Identifier: Apache-2.0
"""The common code of trees and forests: checks, ``fit`` and ``plan``.

A miner checks its parameters and turns them into strategies. Each strategy grows one frontier: a tree on all rows, or a
tree on each of several shards.

Privacy:
    Claim: a fit costs at most the sum of its recipes' totals, in the policy's terms.
    Why: the range of a numeric target is queried from all rows first, and trees get the rest (sequential composition).
    Shards are disjoint (an independent keyed coin for each row), so all their trees together cost as much as one. Trees
    on the same rows get recipes that add up to the total. The columns of a node are drawn without the rows. Held by:
    tests/unit/trees/test_trees.py, tests/unit/trees/test_forests.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np

from miners.budget.plan import (
    DESCRIBING,
    NOT_GIVEN,
    Plan,
    PlanLine,
    Step,
    StepName,
    Storage,
    bytes_of,
    count_line,
    count_scale,
    lost_votes,
    rows_text,
    spread,
    tell,
)
from miners.estimator import Classifier, FitPlan, GrownMiner, require_word, required_schema
from miners.fitted.node import MeanTarget, Node, Split
from miners.fitted.tree import Forest, Tree, faint_of
from miners.growth.candidates import (
    CRITERIA,
    MAX_LEVELS,
    default_depth_note,
    grouping_warnings,
    multiway_splits,
    require_criterion,
)
from miners.growth.fitted_nodes import OpenNode, calibrated_nodes, released_nodes
from miners.growth.frontier import Problem, SplitCandidate, TreeStrategy, grow, noise_of, rehearsing
from miners.growth.target_range import PLAIN, TargetRange
from pinq.analyst.queryable import Parts, PrivateQueryable
from pinq.language.queries import PART_BYTES, Choose
from pinq.language.specs import MAX_PARTS, Cuts, Values, bind
from pinq.public.checks import many, whole_number
from pinq.public.epsilon import ZERO, Epsilon, EpsilonLike, standard_deviation
from pinq.public.schema import Schema

MAX_DEPTH = 60
PAPER_DEPTH = 5  # F&S 2010, sec. 5, on Adult; Consul & Williamson 2020
Variant = Literal["best", "paper"]
LOOKS = 2  # histograms of about 60 bins: they narrow bounds that are a thousand times too wide to about the rows
WHOLE = 1000
# Fractions of epsilon for each look. More than a twentieth would make splits and leaves noticeably less exact; less
# than a fiftieth saves nothing noticeable.
LEAST_LOOK, MOST_LOOK = 0.02, 0.05
S = TypeVar("S", bound=TreeStrategy)


@dataclass(frozen=True)
class TreeBytes:
    """The bytes that a ledger keeps of a frontier, at most.

    Attributes:
        fixed: The bytes of all requests without their nodes.
        node: The bytes that describe a node.
        choice: The bytes of a node's choice.
    """

    fixed: int
    node: int
    choice: int


@dataclass(frozen=True)
class TreeFit(FitPlan[PrivateQueryable], Generic[S]):
    """A fit that grows trees.

    Attributes:
        strategies: One strategy for each frontier.
    """

    miner: Any
    strategies: Sequence[S]

    @cached_property
    def first(self) -> S:
        return self.strategies[0]

    @property
    def trees(self) -> int:
        return sum(strategy.trees for strategy in self.strategies)

    @property
    def total(self) -> Epsilon:
        return sum((*self.first.problem.looks, *(strategy.recipe.total for strategy in self.strategies)), ZERO)

    def rehearse(self, handle: PrivateQueryable) -> Storage:
        """Rehearses the growth of one level; the ledger has to keep the roots and one split of each tree."""
        return self._storage(self._bytes(handle))

    def require(self, handle: PrivateQueryable) -> Self:
        """Raises as ``FitPlan.require``; the returned fit grows trees as far as the ledger can keep their answers."""
        room, bounds = handle.budget.room, self._bytes(handle)
        self._storage(bounds).require(room)
        if room is None:
            return self
        share = room // len(self.strategies) - bounds.fixed
        strategies = [
            replace(strategy, room=share, node_bytes=bounds.node, choice_bytes=bounds.choice)
            for strategy in self.strategies
        ]
        return replace(self, strategies=strategies)

    def _storage(self, bounds: TreeBytes) -> Storage:
        least = bounds.node * (1 + self.first.fan_out(0)) + bounds.choice
        return Storage(bounds.fixed * len(self.strategies), least, "n_estimators", self.trees)

    def _bytes(self, handle: PrivateQueryable) -> TreeBytes:
        """The bytes that a ledger keeps of one frontier, from the requests of the growth of one level."""
        with rehearsing(handle) as (rehearsal, asked):
            grow(_roots(self.first, rehearsal)[[0]], self.first.first_level())
        schema, depth = self.first.schema, self.first.recipe.depth
        above, choices = PART_BYTES * (depth + 2), [each for each in asked if isinstance(each.query, Choose)]
        counts = [each for each in asked if each not in choices]
        # A choice is perhaps sent for each node alone. A block of a count is a node with its cells.
        node = sum(above + each.answer_bytes(schema) // len(each.parts.asked) for each in counts)
        choice = sum(above + each.stored(schema) for each in choices)
        return TreeBytes(bytes_of(0, 4 * (depth + 2) + 2 * LOOKS), node, choice)

    def learn(self, handle: PrivateQueryable) -> Tree | Forest:
        rule = "counted" if self.trees > 1 and not self.first.problem.numeric else None
        trees = [tree for strategy in _located(self.strategies, handle) for tree in _grown(strategy, handle, rule)]
        tell(faint_of(trees, len(self.strategies)))
        return trees[0] if self.miner._state is Tree else Forest(trees)

    def lines(self) -> Sequence[PlanLine]:
        recipe, nodes, problem = self.first.recipe, self.first.trees, self.first.problem
        lines: list[PlanLine] = []
        for look, loss in enumerate(problem.looks):
            bins = bind(TargetRange(problem.schema, str(problem.target)).parts, problem.schema).size
            where = ", in finer cells" if look else ""
            lines.append(count_line(problem.schema, f"rows by `{problem.target}`{where}", bins, loss))
        for level in range(recipe.depth):
            together = list(zip(*(strategy.recipe.levels[level] for strategy in self.strategies), strict=True))
            described = [steps for steps in together if steps[0].name in DESCRIBING]
            lines += [_line(steps, nodes) for steps in described]
            # A node that turns out too small to be split is asked as a leaf.
            if described:
                lines.append(_line([recipe.early_leaf(level, [steps[0] for steps in described])], nodes))
            lines += [_line(steps, nodes) for steps in together if steps not in described]
            nodes = min(nodes * self.first.fan_out(level), MAX_PARTS)
        leaves = zip(*(strategy.recipe.leaf for strategy in self.strategies), strict=True)
        return lines + [_line(steps, nodes) for steps in leaves]


def problem_of(miner: Any, schema: Schema, target: str, *, finds_range: bool = True) -> Problem:
    """The task of a fit; ``finds_range`` tells whether a numeric target's range is queried first.

    Raises:
        QueryError: The miner cannot predict such a column.
    """
    column, epsilon = schema.column(target), Epsilon.of(miner.epsilon)
    miner._require_target(schema, target)
    if target not in schema.numeric_columns:
        return Problem(schema, target, column.codes, column.cells, epsilon)
    *looks, rest = _with_looks(schema, epsilon) if finds_range else [epsilon]
    return Problem(schema, target, MeanTarget.n_counts, MeanTarget.n_counts, rest, numeric=True, looks=tuple(looks))


def _with_looks(schema: Schema, epsilon: Epsilon) -> tuple[Epsilon, ...]:
    """The cost of each query for a target's range, and the rest; no query if none could show the range.

    Each query shows a quarter of the rows of a table of ``max_rows``, within the limits. Their losses differ, so that
    ``reuse`` finds the answer of each.
    """
    shown = PLAIN * standard_deviation(count_scale(schema, epsilon)) / schema.max_rows  # of epsilon, all rows in a bin
    if shown > MOST_LOOK:
        return (epsilon,)
    look = round(WHOLE * min(MOST_LOOK, max(LEAST_LOOK, 4 * shown)))
    weights = [look + number for number in range(LOOKS)]
    return spread(epsilon, [*weights, WHOLE - sum(weights)])


def _located(strategies: Sequence[S], handle: PrivateQueryable) -> Sequence[S]:
    """Queries the range of the target; returns the strategies that clamp it to that range."""
    problem = strategies[0].problem
    if not problem.looks:
        return strategies
    where, deviation = TargetRange(problem.schema, str(problem.target)), 0.0
    for loss in problem.looks:
        scale = count_scale(problem.schema, loss)
        counts = np.asarray(handle.partition(where.parts).noisy_count(epsilon=loss), dtype=np.float64)
        _, deviation, _ = where.moments(counts, scale)
        where = where.nearer(counts, scale)
    tell(where.doubts(deviation))
    return [replace(strategy, problem=replace(problem, within=where.ends)) for strategy in strategies]


def _roots(strategy: TreeStrategy, handle: PrivateQueryable) -> Parts:
    """The rows of each tree of one frontier."""
    return handle.shards(strategy.trees) if strategy.trees > 1 else handle.parts()


def _grown(strategy: TreeStrategy, handle: PrivateQueryable, rule: str | None) -> list[Tree]:
    """Grows the trees of one frontier, and frees their open nodes."""
    estimates = strategy.estimates(grow(_roots(strategy, handle), strategy))
    return [
        Tree(strategy.schema, strategy.target, nodes, rule=rule, within=strategy.problem.within) for nodes in estimates
    ]


def _line(steps: Sequence[Step], nodes: int) -> PlanLine:
    """The line for one step of several equal recipes."""
    return steps[0].line(nodes, sum((step.cost for step in steps), ZERO))


# The step whose noise counts for the size of a node: the first of these on its level.
JUDGED_BY = (StepName.SIZE, StepName.CLASSES, StepName.TABLES)


@dataclass(frozen=True, kw_only=True, eq=False)
class GreedyStrategy(TreeStrategy):
    """Growth that splits nodes by the best of some candidates.

    Attributes:
        splits: A split for each attribute, or a family from which the mechanism picks a member.
        attributes: The number of attributes of a fit; one fewer than ``splits`` if one of them will be
            the target.
        noise_factor: The size of the smallest node that is split, in deviations of the noise for each
            part and class; 0 splits all.
        typical_parts: The average number of parts of a split.
        disjoint_note: The sentence of a plan about the cost of a path.
    """

    splits: tuple[SplitCandidate, ...]
    attributes: int

    noise_factor: ClassVar[float] = 0.0
    disjoint_note: ClassVar[str] = "each path from the root to a leaf costs the total."

    @property
    def typical_parts(self) -> float:
        return 2.0

    def open_splits(self, used: frozenset[str]) -> list[SplitCandidate]:
        """The splits whose column a path has not used up."""
        return [split for split in self.splits if split.column not in used]

    def max_parts(self, node: OpenNode) -> int:
        return max((parts for column, parts in self._parts.items() if column not in node.used), default=1)

    @cached_property
    def _parts(self) -> dict[str, int]:
        return {split.column: split.max_parts(self.schema) for split in self.splits}

    def threshold(self, node: OpenNode) -> float:
        """The noisy size from which a node is split.

        Below it the noise would dominate the class counts of its children (Algorithms 1 and 2, line
        9).
        """
        if not self.noise_factor or not self.recipe.levels:
            return -math.inf
        return self.noise_factor * self.max_parts(node) * self.problem.classes * self._size_noise

    @cached_property
    def _size_noise(self) -> float:
        epsilons = {step.name: step.epsilon for step in self.recipe.levels[0]}
        return math.sqrt(2) * count_scale(self.schema, next(epsilons[name] for name in JUDGED_BY if name in epsilons))

    def default_depth(self) -> int:
        """The default number of levels: as many as ``max_rows`` rows support."""
        return self.levels_carried(self.schema.max_rows)

    def levels_carried(self, rows: int) -> int:
        # 10,000 rows and splits in 4 parts are 10,000, 2,500 and 625 rows a node on levels 0, 1 and
        # 2: if each has to have 700, two levels are carried.
        levels = 0
        while levels < MAX_LEVELS:
            deeper = replace(self, depth=levels + 1)
            depth = deeper.recipe.depth
            if depth <= levels or rows / deeper.typical_parts ** (depth - 1) < deeper.threshold(OpenNode()):
                break
            levels += 1
        return levels


class Published(GreedyStrategy):
    """The common part of the strategies of Friedman & Schuster's paper."""

    textbook = True
    spends_rest = False
    noise_factor = 1.0
    disjoint_note = "a tree whose leaves are all early costs less."

    def default_depth(self) -> int:
        return PAPER_DEPTH

    def estimates(self, trees: Sequence[Sequence[OpenNode]]) -> list[list[Node]]:
        """The answers unchanged, or calibrated by Algorithm 3 and pruned."""
        if self.certainty is None:
            return [released_nodes(nodes, self.problem.classes) for nodes in trees]
        return [calibrated_nodes(nodes, self.problem.classes, self.certainty) for nodes in trees]


class MultiwayStrategy(GreedyStrategy):
    """Splits into all parts of an attribute, each attribute once on a path."""

    splits: tuple[Values | Cuts, ...]
    noise_factor = 0.5

    @property
    def levels(self) -> int:
        return min(self.depth, self.attributes)

    @cached_property
    def _sizes(self) -> list[int]:
        return sorted((split.max_parts(self.schema) for split in self.splits), reverse=True)

    @property
    def typical_parts(self) -> float:
        """Parts that a split makes on average, the geometric mean."""
        return math.exp(sum(math.log(size) for size in self._sizes) / len(self._sizes))

    def fan_out(self, level: int) -> int:
        """The largest number of parts of a split of this level, the widest attributes first."""
        return self._sizes[level]

    def uses_up(self, split: Split) -> bool:
        return True


class GreedyFit(TreeFit[GreedyStrategy]):
    """The fit of a tree whose nodes get the best split each."""

    @property
    def title(self) -> str:
        strategy = self.first
        goal = "" if strategy.problem.target is None else f" for `{strategy.target}`"
        levels, attributes = many(strategy.recipe.depth, "level"), many(strategy.attributes, "attribute")
        return (
            f"{type(self.miner).__name__}{goal}: {levels} of splits by {attributes}, criterion {self.miner.criterion}"
        )

    def notes(self) -> tuple[str, ...]:
        strategy = self.first
        depth = strategy.recipe.depth
        note = f"the nodes of a level are disjoint, so a level costs as much as one node; {strategy.disjoint_note}"
        if self.miner.max_depth is None:
            return (note, default_depth_note(depth))
        if depth < self.miner.max_depth:
            attributes, levels = many(depth, "attribute"), many(depth, "level")
            return (note, f"a path can use up {attributes}, so no more than {levels} of splits are planned.")
        return (note,)

    def warnings(self, rows: int | None) -> tuple[str, ...]:
        strategy = self.first
        schema, depth = strategy.schema, strategy.recipe.depth
        expected = schema.max_rows if rows is None else rows
        carried = strategy.levels_carried(expected)
        slow = grouping_warnings(schema, strategy.splits, depth)
        if depth == 0 and self.miner.max_depth is None:
            return (
                f"at epsilon {strategy.epsilon} and at most {schema.max_rows:,} rows the budget supports no "
                "split, so every row is predicted the most frequent class; a larger `epsilon` is needed for any split.",
            )
        if carried >= depth:
            noise = noise_of(schema, strategy.recipe.leaf_step(StepName.CLASSES).epsilon)
            return (*lost_votes(expected, strategy.typical_parts**depth, noise, known=rows is not None), *slow)
        average = rows_text(expected / strategy.typical_parts ** (depth - 1))
        noise, unit = strategy.recipe.levels[-1][-1].noise
        bound = "at most" if rows is None else "about"
        supported = f"depth {carried} is the largest that the budget supports"
        advice = supported if carried else "a larger `epsilon` is needed for any split"
        return (
            f"at epsilon {strategy.epsilon} and {bound} {expected:,} rows a depth-{depth} tree over "
            f"{many(strategy.attributes, 'attribute')} expects {average} rows in a node of the last splits, "
            f"against noise of about {rows_text(noise)} {unit}; {advice}.",
            *slow,
        )


@dataclass(kw_only=True, repr=False, eq=False)
class GreedyTree(Classifier, GrownMiner):
    """A tree grown level by level on a private handle, each node split where it seems best."""

    epsilon: EpsilonLike = NOT_GIVEN
    max_depth: int | None = None
    criterion: str = "gini"
    variant: Variant = "best"
    attributes: Sequence[str] | None = None
    criteria: ClassVar[tuple[str, ...]] = tuple(CRITERIA)
    variants: ClassVar[Mapping[str, type[GreedyStrategy]]]

    def plan(self, schema: Schema, target: str | None = None, *, rows: int | None = None) -> Plan:
        """Returns the queries of ``fit`` and their costs, for free: it reads the schema only.

        Args:
            schema: The public schema, ``handle.schema``.
            target: The column to predict; without it the plan assumes the widest column.
            rows: The number of rows of the table, if it is known; by default the schema's ``max_rows``. It serves the
                warning only.
        """
        if target is not None:
            return super().plan(schema, target, rows=rows)
        widest = max((column.codes for column in required_schema(schema).categorical_columns.values()), default=2)
        problem = Problem(schema, None, widest, 2, Epsilon.of(self.epsilon))
        return GreedyFit(self, self._strategies(problem)).plan(rows)

    def _checked(self, schema: Schema, target: str) -> GreedyFit:
        return GreedyFit(self, self._strategies(problem_of(self, schema, target)))

    def _splits(self, schema: Schema, target: str | None) -> tuple[SplitCandidate, ...]:
        """Returns the candidate splits of a node, one for each attribute."""
        return multiway_splits(schema, target, attributes=self.attributes, cuts=getattr(self, "cuts", None))

    def _strategies(self, problem: Problem) -> Sequence[GreedyStrategy]:
        if self.max_depth is not None:
            whole_number("max_depth", self.max_depth, 0, MAX_DEPTH)
        require_word("variant", self.variant, tuple(self.variants))
        require_criterion(self.criterion, self.criteria)
        splits = self._splits(problem.schema, problem.target)
        # Without a target, one of these columns will be the target.
        attributes = len(splits) - (problem.target is None and self.attributes is None)
        strategy = self.variants[self.variant](
            problem=problem,
            epsilon=problem.epsilon,
            depth=0,
            criterion=self.criterion,
            splits=splits,
            attributes=attributes,
            certainty=getattr(self, "certainty", None),
        )
        return [replace(strategy, depth=strategy.default_depth() if self.max_depth is None else self.max_depth)]
