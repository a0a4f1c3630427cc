# SPDX-License-Identifier: Apache-2.0
"""What all miners of trees and forests share: checks, ``fit`` and ``plan``.

A miner checks its parameters and turns them into strategies. Each strategy grows one frontier: a
tree on all rows, or a tree on each of several shards.

Privacy:
    Claim: a fit costs at most the sum of its recipes' totals, in the policy's terms.
    Why: trees on shards are grown from disjoint parts of the table (an independent keyed coin for
    each row says which), so all of them together cost what one costs. Trees on the same rows get
    recipes that add up to the total. Which columns a node looks at is drawn without looking at
    rows.
    Held by: tests/unit/trees/test_trees.py, tests/unit/trees/test_forests.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, Literal, Self, TypeVar

from miners.budget.payment import Bill, begin_fit
from miners.budget.plan import Plan, PlanLine, remember_fit
from miners.budget.recipe import DESCRIBING, Step
from miners.estimator import Fitted, public_schema
from miners.fitted.forest import Forest
from miners.fitted.tree import ENDS, Tree
from miners.growth.frontier import grow
from miners.growth.pause import cycle_search_paused
from miners.trees.strategy import Problem, TreeStrategy
from pinq.errors import QueryError, unspent
from pinq.public.epsilon import ZERO, Epsilon, Loss
from pinq.public.schema import Schema
from pinq.public.specs import MAX_PARTS
from pinq.public.spelling import closest

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["MAX_DEPTH", "TreeMiner", "Variant", "require_word"]

MAX_DEPTH = 60
PAPER_DEPTH = 5  # F&S 2010, sec. 5, on Adult; Consul & Williamson 2020
Variant = Literal["best", "paper"]
S = TypeVar("S", bound=TreeStrategy)


class TreeMiner(Fitted, ABC, Generic[S]):
    """A miner that grows trees on a private handle.

    Subclasses say how: ``_strategies`` (what is asked, at which loss, how splits are chosen), and
    how that reads in a plan.
    """

    epsilon: Loss
    attributes: Sequence[str] | None
    _numeric_target = False

    def fit(self, handle: PrivateQueryable, target: str, *, reuse: bool = False) -> Self:
        """Grows the tree or the trees.

        Args:
            handle: A private handle; see ``pinq.open``, ``pinq.connect``, ``pinq.simulate``.
            target: The column to predict.
            reuse: Take the stored answers where the same fit was paid for before, at no cost: for
                notebooks, whose cells run twice. Forests need a ``random_state``.

        Raises:
            QueryError: A parameter or the target is wrong.
            BudgetExceeded: Less than ``epsilon`` remains.
        """
        with unspent():
            strategies = self._checked(public_schema(handle), target, need_target=True)
            asked = begin_fit(self, handle, _total(strategies), self._warnings(strategies, None), reuse=reuse)
        trees: list[Tree] = []
        with Bill(handle) as bill, cycle_search_paused():
            for strategy in strategies:
                roots = asked.shards(strategy.trees) if strategy.trees > 1 else asked.parts()
                grown = grow(roots, strategy)
                trees += [Tree(strategy.schema, target, strategy.estimates(nodes)) for nodes in grown]
        remember_fit(self, handle)
        return self._fitted(trees[0] if self._state is Tree else Forest(trees), bill.total)

    def plan(self, schema: Schema, target: str, *, rows: int | None = None) -> Plan:
        """Says what ``fit`` is going to ask and what it costs. Free: it looks at the schema only.

        Args:
            schema: The public schema, ``handle.schema``.
            target: The column to predict.
            rows: How many rows the table has, if that is known; by default the schema's
                ``max_rows``. For the warning only.
        """
        return self._planned(self._checked(schema, target, need_target=True), rows)

    def _planned(self, strategies: Sequence[S], rows: int | None) -> Plan:
        return Plan(
            self._title(strategies),
            tuple(_lines(strategies)),
            _total(strategies).exact,
            self._notes(strategies),
            self._warnings(strategies, rows),
        )

    # What subclasses say

    @abstractmethod
    def _strategies(self, problem: Problem) -> Sequence[S]:
        """Returns one strategy for each frontier, every parameter checked."""

    @abstractmethod
    def _title(self, strategies: Sequence[S]) -> str:
        """Returns what is planned, in one line."""

    @abstractmethod
    def _notes(self, strategies: Sequence[S]) -> tuple[str, ...]:
        """Returns what is worth knowing, one sentence each."""

    @abstractmethod
    def _warnings(self, strategies: Sequence[S], rows: int | None) -> tuple[str, ...]:
        """Returns what is likely to go wrong, one sentence each."""

    # Checks

    def _checked(self, schema: Schema, target: str | None, *, need_target: bool) -> Sequence[S]:
        """Returns the strategies, everything checked before anything is spent."""
        epsilon = Epsilon.of(self.epsilon)
        if target is not None or need_target:
            return self._strategies(self._problem(schema, target, epsilon))
        codes = [column.codes for column in schema.categorical_columns.values()]
        return self._strategies(Problem(schema, None, max(codes, default=2), 2, epsilon))

    def _problem(self, schema: Schema, target: str | None, epsilon: Epsilon) -> Problem:
        column, name = schema.column(target), type(self).__name__
        is_numeric = target in schema.numeric_columns
        if is_numeric and not self._numeric_target:
            raise QueryError(f"the target `{target}` is numeric; {name} predicts the values of a categorical column.")
        if not is_numeric and self._numeric_target:
            raise QueryError(f"the target `{target}` is categorical; {name} predicts the mean of a numeric column.")
        if column.cells < 2:
            raise QueryError(f"the target `{target}` has a single value, so there is nothing to learn.")
        if is_numeric:
            return Problem(schema, target, ENDS, ENDS, epsilon, numeric=True)
        return Problem(schema, target, column.codes, column.cells, epsilon)


def _total(strategies: Sequence[TreeStrategy]) -> Epsilon:
    """What a fit costs."""
    return sum((strategy.recipe.total for strategy in strategies), ZERO)


def _lines(strategies: Sequence[TreeStrategy]) -> list[PlanLine]:
    """A line for each step; where trees grow one after the other, for that step of all of them."""
    recipe, nodes = strategies[0].recipe, strategies[0].trees
    lines: list[PlanLine] = []
    for level in range(recipe.depth):
        together = list(zip(*(strategy.recipe.levels[level] for strategy in strategies), strict=True))
        described = [steps for steps in together if steps[0].name in DESCRIBING]
        lines += [_line(steps, nodes) for steps in described]
        if described:
            lines.append(_line([recipe.early_leaf(level, [steps[0] for steps in described])], nodes))
        lines += [_line(steps, nodes) for steps in together if steps not in described]
        nodes = min(nodes * strategies[0].fan_out(level), MAX_PARTS)
    leaves = zip(*(strategy.recipe.leaf for strategy in strategies), strict=True)
    return lines + [_line(steps, nodes) for steps in leaves]


def _line(steps: Sequence[Step], nodes: int) -> PlanLine:
    """The line for one step of several recipes that are alike."""
    return steps[0].line(nodes, sum((step.cost for step in steps), ZERO))


def require_word(name: str, value: object, words: Sequence[str | None]) -> None:
    """Raises ``QueryError`` unless a parameter is one of some words."""
    if value in words:
        return
    near = closest(str(value), [word for word in words if word is not None])
    listed = " or ".join(map(repr, words)) if len(words) == 2 else f"one of {', '.join(map(repr, words))}"
    raise QueryError(f"is {value!r}{near}", parameter=name, allowed=listed)
