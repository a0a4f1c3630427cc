# SPDX-License-Identifier: Apache-2.0
"""What all miners of this package that grow forests share: ``fit``, ``plan``, checks, and which rows each tree learns from.

Privacy:
    Claim: fitting a forest costs at most ``Recipe.total``, in the policy's terms; exactly that
    unless some of it had been paid for before.
    Why: trees on shards are grown from disjoint parts of the table (an independent keyed coin for
    each row says which), so all of them together cost what one costs. Trees on the same rows get
    schedules that add up to the total. Which columns a node looks at is drawn without looking at
    rows.
    Held by: tests/unit/trees/test_forests.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, Self

import numpy as np

from miners.budget.noise import count_scale
from miners.budget.plan import Plan, PlanLine, lost_votes, remember_fit, warn_before_fit
from miners.budget.schedule import Schedule, spread
from miners.estimator import Bill, Fitted, public_schema, require_budget, whole_number
from miners.fitted.forest import Forest
from miners.fitted.node import Node
from miners.fitted.tree import ENDS, Split, Tree
from miners.growth.candidates import attribute_names
from miners.growth.frontier import Level, OpenNode, Rules, ask_classes, ask_ends, grow
from miners.growth.leaf_estimates import estimated_nodes
from miners.trees.tree_miner import many, noise_of
from pinq.errors import QueryError, unspent
from pinq.public.epsilon import NANO, Loss, exact, show, to_nano
from pinq.public.schema import Categorical, Numeric, Schema, closest
from pinq.public.scores import WAY
from pinq.public.specs import MAX_PARTS

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["MAX_TREES", "ForestMiner", "Recipe", "Rows", "drawn", "require_word", "schedules", "share"]

MAX_TREES = 1000
Rows = Literal["shards", "all"]


@dataclass(frozen=True)
class Recipe:
    """What a fit is going to do: all public, all checked.

    Attributes:
        names: The attributes.
        cells: Numbers that a node is described by.
        classes: How many of them are classes of the target, the first ones; 2 for the ends of a
            numeric target.
        trees: How many trees.
        features: How many attributes each node looks at.
        schedules: The losses: one schedule for all trees where each has rows of its own, one for
            each tree where all have the same rows.
    """

    schema: Schema
    target: str
    names: tuple[str, ...]
    cells: int
    classes: int
    trees: int
    features: int
    schedules: tuple[Schedule, ...]

    @property
    def total(self) -> Fraction:
        """What the fit costs."""
        return sum((schedule.total for schedule in self.schedules), Fraction(0))

    def cost(self, level: int, name: str) -> Fraction:
        """What one kind of question to the nodes of a level costs in all trees."""
        return sum((schedule.levels[level][name].epsilon for schedule in self.schedules), Fraction(0))

    @property
    def depth(self) -> int:
        """Levels of splits."""
        return self.schedules[0].depth

    @property
    def sharded(self) -> bool:
        """Whether each of several trees has rows of its own."""
        return self.trees > 1 and len(self.schedules) == 1


class ForestMiner(Fitted, ABC):
    """A miner that grows trees from random beginnings on a private handle.

    Subclasses say how: ``_recipe`` (how many trees, how deep, at which losses), ``_choose`` (how
    the nodes of a level are split), ``_lines`` (how that reads in a plan).
    """

    epsilon: Loss
    attributes: Sequence[str] | None
    random_state: int | None
    stopping: float | None = None
    _numeric_target = False

    def fit(self, handle: PrivateQueryable, target: str) -> Self:
        """Grows the trees.

        Args:
            handle: A private handle; see ``pinq.open``, ``pinq.connect``, ``pinq.simulate``.
            target: The column to predict.

        Raises:
            QueryError: A parameter or the target is wrong.
            BudgetExceeded: Less than ``epsilon`` remains.
        """
        with unspent():
            recipe = self._checked(public_schema(handle), target)
            require_budget(
                handle, recipe.total, name=f"{type(self).__name__}(epsilon={show(int(recipe.total * NANO))}).fit"
            )
            warn_before_fit(self, handle, recipe.total, self._warnings(recipe, None))
        random = np.random.default_rng(self.random_state)
        grown = []
        with Bill(handle) as bill:
            for schedule in recipe.schedules:
                roots = handle.shards(recipe.trees) if recipe.sharded else handle.parts()
                grown += grow(roots, self._rules(recipe, schedule, random))
        trees = [Tree(recipe.schema, target, self._nodes(recipe, nodes)) for nodes in grown]
        remember_fit(self, handle)
        return self._fitted(trees[0] if self._state is Tree else Forest(trees), bill.total)

    def plan(self, schema: Schema, target: str, *, rows: int | None = None) -> Plan:
        """What ``fit`` is going to ask and what it costs. Free: it looks at the schema only.

        Args:
            schema: The public schema, ``handle.schema``.
            target: The column to predict.
            rows: How many rows the table has, if that is known; by default the schema's
                ``max_rows``. For the warning only.
        """
        recipe = self._checked(schema, target)
        lines: list[PlanLine] = []
        nodes = recipe.trees if recipe.sharded else 1
        for level in range(recipe.depth):
            lines += self._lines(recipe, level, nodes)
            nodes = min(self._widest(recipe) * nodes, MAX_PARTS)
        leaf = sum((schedule.leaf["classes"].epsilon for schedule in recipe.schedules), Fraction(0))
        described = (
            ("noisy_avg", f"mean of `{target}` in each leaf", nodes)
            if self._numeric_target
            else ("noisy_count", "classes of each leaf", nodes * recipe.cells)
        )
        noise = noise_of(recipe.schema, recipe.schedules[0].leaf["classes"].epsilon)
        if "stop" in recipe.schedules[0].leaf:
            stop = sum((schedule.leaf["stop"].epsilon for schedule in recipe.schedules), Fraction(0))
            asked = f"which splits have rows enough, about {self._least(recipe, recipe.schedules[0]):,} and more"
            lines.append(
                PlanLine(
                    recipe.depth,
                    asked,
                    "exp_mech",
                    nodes,
                    stop,
                    math.sqrt(2) * count_scale(recipe.schema, recipe.schedules[0].leaf["stop"].epsilon / WAY),
                )
            )
        lines.append(PlanLine(recipe.depth, described[1], described[0], described[2], leaf, noise))
        return Plan(self._title(recipe), tuple(lines), recipe.total, self._notes(recipe), self._warnings(recipe, rows))

    # What subclasses say

    @abstractmethod
    def _recipe(self, facts: Recipe) -> Recipe:
        """The recipe: ``facts`` with trees, features and schedules."""

    @abstractmethod
    def _choose(
        self, recipe: Recipe, schedule: Schedule, level: Level, random: np.random.Generator
    ) -> Sequence[Split | None]:
        """How each node of a level is split; None where it is not."""

    @abstractmethod
    def _lines(self, recipe: Recipe, level: int, nodes: int) -> list[PlanLine]:
        """What is asked of the nodes of one level, for the plan."""

    def _widest(self, recipe: Recipe) -> int:
        """The most parts that a split makes: two sides, and the missing values of a nullable column that is cut."""
        columns = [recipe.schema.columns[name] for name in recipe.names]
        return 2 + any(isinstance(column, Numeric) and column.nullable for column in columns)

    def _nodes(self, recipe: Recipe, nodes: Sequence[OpenNode]) -> list[Node]:
        """The nodes of a grown tree."""
        return estimated_nodes(nodes, recipe.cells, recipe.classes)

    # Checks

    def _checked(self, schema: Schema, target: str) -> Recipe:
        """Everything checked, before anything is spent."""
        to_nano(self.epsilon)
        if self.random_state is not None:
            whole_number("random_state", self.random_state, 0, 2**63 - 1)
        cells, classes = self._cells(schema, target)
        names = tuple(attribute_names(schema, target, self.attributes))
        return self._recipe(Recipe(schema, target, names, cells, classes, 1, len(names), ()))

    def _cells(self, schema: Schema, target: str) -> tuple[int, int]:
        column = schema.column(target)
        name = type(self).__name__
        if isinstance(column, Numeric) != self._numeric_target:
            said = (
                f"numeric; {name} predicts the values of a categorical"
                if isinstance(column, Numeric)
                else f"categorical; {name} predicts the mean of a numeric"
            )
            raise QueryError(f"the target `{target}` is {said} column.")
        if column.cells < 2:
            raise QueryError(f"the target `{target}` has a single value, so there is nothing to learn.")
        return (column.codes, column.cells) if isinstance(column, Categorical) else (ENDS, ENDS)

    def _rules(self, recipe: Recipe, schedule: Schedule, random: np.random.Generator) -> Rules:
        def choose(level: Level) -> Sequence[Split | None]:
            return self._choose(recipe, schedule, level, random)

        least = self._least(recipe, schedule)
        ask = (
            ask_ends(recipe.schema, recipe.target) if self._numeric_target else ask_classes(recipe.target, recipe.cells)
        )
        return Rules(
            recipe.schema, recipe.cells, schedule, ask, choose, least=least, widest=lambda _: self._widest(recipe)
        )

    def _least(self, recipe: Recipe, schedule: Schedule) -> int:
        """The rows at which a node is worth splitting: as many as there is noise in all that describes two leaves."""
        return math.ceil(2 * recipe.cells * noise_of(recipe.schema, schedule.leaf["classes"].epsilon))

    # Words

    def _title(self, recipe: Recipe) -> str:
        trees = "" if recipe.trees == 1 else f"{many(recipe.trees, 'tree')} of "
        looked = "" if recipe.features == len(recipe.names) else f"{recipe.features} of "
        return f"{type(self).__name__} for `{recipe.target}`: {trees}{many(recipe.depth, 'level')} of splits by {looked}{many(len(recipe.names), 'attribute')}"

    def _notes(self, recipe: Recipe) -> tuple[str, ...]:
        if recipe.sharded:
            disjoint = (
                "shards are disjoint, as the nodes of a level are, so a level of the forest costs what one node costs"
            )
            return (f"each row's coin puts it into one of {recipe.trees} shards, a tree each; {disjoint}.",)
        if recipe.trees > 1:
            return (
                f"all {recipe.trees} trees see all rows, one after the other, so each costs its part of the total; a line stands for all of them.",
            )
        return (
            "the nodes of a level are disjoint, so a level costs what one node costs; each way from the root to a leaf costs the total.",
        )

    def _warnings(self, recipe: Recipe, rows: int | None) -> tuple[str, ...]:
        """Whether the votes of leaves stand out of their noise."""
        known = recipe.schema.max_rows if rows is None else whole_number("rows", rows, 0, 2**33)
        if self.stopping is not None:
            return ()
        leaves = 2**recipe.depth * (recipe.trees if recipe.sharded else 1)
        noise = noise_of(recipe.schema, recipe.schedules[0].leaf["classes"].epsilon)
        return lost_votes(known, leaves, noise, known=rows is not None, trees=recipe.trees)


def schedules(
    epsilon: Loss, trees: int, rows: Rows, depth: int, node: dict[str, int], leaf: int, stopping: float | None = None
) -> tuple[Schedule, ...]:
    """One schedule for trees on shards, or one for each tree on the same rows, adding up to ``epsilon``.

    Args:
        epsilon: The total.
        trees: How many there are.
        rows: Which rows they have.
        depth: Levels of splits.
        node: Weight of each question to a node that is split.
        leaf: Weight of all that leaves are asked.
        stopping: Share of that for the question where ways end early; None to ask nothing of the
            kind.
    """
    nano, leaves = to_nano(epsilon), {"classes": leaf}
    if stopping is not None:
        stop = share("stopping", stopping)
        node = {name: weight * stop.denominator for name, weight in node.items()}
        leaves = (
            {"stop": leaf * stop.numerator, "classes": leaf * (stop.denominator - stop.numerator)} if depth else leaves
        )
    budgets = spread(nano, [1] * trees) if rows == "all" and trees > 1 else (nano,)
    return tuple(Schedule.even(exact(budget), depth, node=node, leaf=leaves) for budget in budgets)


def share(name: str, value: object) -> Fraction:
    """A parameter that says which share of a budget goes somewhere, else ``QueryError``; exact to a thousandth at least."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.001 <= value <= 0.999:
        raise QueryError(f"`{name}` is {value!r}; it must be a number between 0 and 1, from 0.001 to 0.999.")
    return Fraction(value).limit_denominator(1000)


def drawn(recipe: Recipe, names: Iterable[Sequence[str]], random: np.random.Generator) -> list[list[str]]:
    """Which of its attributes each node looks at: public randomness."""
    return [[some[place] for place in sorted(random.permutation(len(some))[: recipe.features])] for some in names]


def require_word(name: str, value: object, known: Sequence[str]) -> None:
    """``QueryError`` unless a parameter is one of some words."""
    if value not in known:
        raise QueryError(
            f"`{name}` is {value!r}{closest(str(value), known)}; it must be {' or '.join(map(repr, known))}."
        )
