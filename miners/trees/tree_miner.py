# SPDX-License-Identifier: Apache-2.0
"""What all miners of trees and forests share: checks, ``fit`` and ``plan``.

A miner checks its parameters and turns them into strategies. Each strategy grows one frontier: a
tree on all rows, or a tree on each of several shards.

Privacy:
    Claim: a fit costs at most the sum of its recipes' totals, in the policy's terms.
    Why: the range of a numeric target is asked of all rows first, and what is left is spent on
    trees (sequential composition). Trees on shards are grown from disjoint parts of the table (an
    independent keyed coin for each row says which), so all of them together cost what one costs.
    Trees on the same rows get recipes that add up to the total. Which columns a node looks at is
    drawn without looking at rows.
    Held by: tests/unit/trees/test_trees.py, tests/unit/trees/test_forests.py.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

import numpy as np

from miners.budget.plan import DESCRIBING, FitWarning, PlanLine, Step, count_line, count_scale, spread
from miners.estimator import HandleMiner, require_varied
from miners.fitted.forest import Forest
from miners.fitted.tree import ENDS, Tree, faint_of
from miners.growth.frontier import Problem, TreeStrategy, grow
from miners.growth.target_range import PLAIN, TargetRange
from pinq.errors import QueryError
from pinq.public.epsilon import ZERO, Epsilon, EpsilonLike, standard_deviation
from pinq.public.schema import Schema
from pinq.public.specs import MAX_PARTS, bind

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["MAX_DEPTH", "TreeMiner", "Variant"]

MAX_DEPTH = 60
PAPER_DEPTH = 5  # F&S 2010, sec. 5, on Adult; Consul & Williamson 2020
Variant = Literal["best", "paper"]
LOOKS = 2  # of some 60 bins each: bounds a thousand times too wide become about as wide as the rows
WHOLE = 1000
# Of epsilon, for each look: more than a twentieth would be missed by splits and leaves, less than a fiftieth would not.
LEAST_LOOK, MOST_LOOK = 0.02, 0.05
S = TypeVar("S", bound=TreeStrategy)


class TreeMiner(HandleMiner[Sequence[S]], Generic[S]):
    """A miner that grows trees on a private handle.

    Subclasses say how: ``_strategies`` (what is asked, at which loss, how splits are chosen), and
    how that reads in a plan.
    """

    epsilon: EpsilonLike
    attributes: Sequence[str] | None
    _numeric_target = False

    def _learned(self, strategies: Sequence[S], handle: PrivateQueryable, target: str) -> Tree | Forest:
        """Grows the tree or the trees."""
        strategies = _located(strategies, handle)
        is_forest = sum(strategy.trees for strategy in strategies) > 1
        shares = "counted" if is_forest and not self._numeric_target else None
        trees = [tree for strategy in strategies for tree in _grown(strategy, handle, target, shares)]
        for doubt in faint_of(trees):
            warnings.warn(doubt, FitWarning, stacklevel=4)
        return trees[0] if self._state is Tree else Forest(trees)

    # What subclasses say

    @property
    def _finds_range(self) -> bool:
        """Whether a numeric target's range is asked for first."""
        return True

    @abstractmethod
    def _strategies(self, problem: Problem) -> Sequence[S]:
        """Returns one strategy for each frontier, every parameter checked."""

    def _total(self, strategies: Sequence[S]) -> Epsilon:
        return sum((*strategies[0].problem.looks, *(strategy.recipe.total for strategy in strategies)), ZERO)

    def _lines(self, strategies: Sequence[S]) -> Sequence[PlanLine]:
        """Returns a line for each step, of all trees that grow one after the other together."""
        recipe, nodes, problem = strategies[0].recipe, strategies[0].trees, strategies[0].problem
        lines: list[PlanLine] = []
        for look, loss in enumerate(problem.looks):
            bins = bind(TargetRange(problem.schema, str(problem.target)).parts, problem.schema).size
            where = ", where these are" if look else ""
            lines.append(count_line(problem.schema, f"rows by `{problem.target}`{where}", bins, loss))
        for level in range(recipe.depth):
            together = list(zip(*(strategy.recipe.levels[level] for strategy in strategies), strict=True))
            described = [steps for steps in together if steps[0].name in DESCRIBING]
            lines += [_line(steps, nodes) for steps in described]
            # A node that turns out too small to be split is asked as a leaf.
            if described:
                lines.append(_line([recipe.early_leaf(level, [steps[0] for steps in described])], nodes))
            lines += [_line(steps, nodes) for steps in together if steps not in described]
            nodes = min(nodes * strategies[0].fan_out(level), MAX_PARTS)
        leaves = zip(*(strategy.recipe.leaf for strategy in strategies), strict=True)
        return lines + [_line(steps, nodes) for steps in leaves]

    # Checks

    def _checked(self, schema: Schema, target: str) -> Sequence[S]:
        """Returns the strategies."""
        return self._strategies(self._problem(schema, target, Epsilon.of(self.epsilon)))

    def _checked_without_target(self, schema: Schema) -> Sequence[S]:
        """Returns the strategies for a target that is not named: the column with most values."""
        codes = [column.codes for column in schema.categorical_columns.values()]
        return self._strategies(Problem(schema, None, max(codes, default=2), 2, Epsilon.of(self.epsilon)))

    def _problem(self, schema: Schema, target: str | None, epsilon: Epsilon) -> Problem:
        column, name = schema.column(target), type(self).__name__
        is_numeric = target in schema.numeric_columns
        if is_numeric and not self._numeric_target:
            raise QueryError(f"the target `{target}` is numeric; {name} predicts the values of a categorical column.")
        if not is_numeric and self._numeric_target:
            raise QueryError(f"the target `{target}` is categorical; {name} predicts the mean of a numeric column.")
        require_varied(schema, target)
        if is_numeric:
            *looks, rest = _with_looks(schema, epsilon) if self._finds_range else [epsilon]
            return Problem(schema, target, ENDS, ENDS, rest, numeric=True, looks=tuple(looks))
        return Problem(schema, target, column.codes, column.cells, epsilon)


def _with_looks(schema: Schema, epsilon: Epsilon) -> tuple[Epsilon, ...]:
    """Returns what each question for a target's range costs, and what is left; no question that could show nothing.

    Each shows a quarter of the rows, were the table as large as it may be, within the limits. It
    costs a little more than the one before: at losses of their own they are different questions,
    and ``reuse`` finds the answer of each.
    """
    shown = PLAIN * standard_deviation(count_scale(schema, epsilon)) / schema.max_rows  # of epsilon, all rows in a bin
    if shown > MOST_LOOK:
        return (epsilon,)
    look = round(WHOLE * min(MOST_LOOK, max(LEAST_LOOK, 4 * shown)))
    weights = [look + number for number in range(LOOKS)]
    return spread(epsilon, [*weights, WHOLE - sum(weights)])


def _located(strategies: Sequence[S], handle: PrivateQueryable) -> Sequence[S]:
    """Asks where the target lies; returns the strategies that clamp it to that range."""
    problem = strategies[0].problem
    if not problem.looks:
        return strategies
    where, deviation = TargetRange(problem.schema, str(problem.target)), 0.0
    for loss in problem.looks:
        scale = count_scale(problem.schema, loss)
        counts = np.asarray(handle.partition(where.parts).noisy_count(epsilon=loss), dtype=np.float64)
        _, deviation, _ = where.moments(counts, scale)
        where = where.nearer(counts, scale)
    for doubt in where.doubts(deviation):
        warnings.warn(doubt, FitWarning, stacklevel=5)
    return [replace(strategy, problem=replace(problem, within=where.ends)) for strategy in strategies]


def _grown(strategy: TreeStrategy, handle: PrivateQueryable, target: str, shares: str | None) -> list[Tree]:
    """Grows the trees of one frontier; nothing is left of their open nodes."""
    roots = handle.shards(strategy.trees) if strategy.trees > 1 else handle.parts()
    estimates = strategy.estimates(grow(roots, strategy))
    within = strategy.problem.within
    return [Tree(strategy.schema, target, nodes, shares=shares, within=within) for nodes in estimates]


def _line(steps: Sequence[Step], nodes: int) -> PlanLine:
    """The line for one step of several recipes that are alike."""
    return steps[0].line(nodes, sum((step.cost for step in steps), ZERO))
