# SPDX-License-Identifier: Apache-2.0
"""What SuLQ-ID3, DiffPID3 and DiffPC4.5 share: checks, ``fit``, ``plan``, and how a grown tree becomes a ``Tree``.

Each of them is a *recipe*: public facts, all checked, that say what is going to be asked at which
loss.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, Self

from miners.budget.noise import count_scale
from miners.budget.plan import Plan, PlanLine, lost_votes, remember_fit, rows_text, warn_before_fit
from miners.budget.schedule import Schedule
from miners.estimator import Bill, TreeClassifier, public_schema, require_budget, whole_number
from miners.fitted.tree import Node, Tree
from miners.growth.candidates import MOST_LEVELS
from miners.growth.criteria import CRITERIA, require_criterion
from miners.growth.frontier import OpenNode, Rules, ask_classes, grow
from miners.growth.leaf_estimates import calibrated_nodes, estimated_nodes, released_nodes
from pinq.errors import QueryError, unspent
from pinq.public.accuracy import standard_deviation
from pinq.public.epsilon import NANO, Loss, show, to_nano
from pinq.public.schema import Schema, closest
from pinq.public.specs import MAX_PARTS, AnyCut, AnyGrouping, Cuts, Values, bind

if TYPE_CHECKING:
    import numpy as np

    from pinq.analyst.queryable import Parts, PrivateQueryable

__all__ = ["GreedyTree", "Recipe", "Variant", "many", "noise_of"]

MAX_DEPTH = 60
PAPER_DEPTH = 5  # F&S 2010, sec. 5, on Adult
Variant = Literal["best", "paper"]
Candidate = Values | Cuts | AnyCut | AnyGrouping


@dataclass(frozen=True)
class Recipe:
    """What a fit is going to do: all public, all checked.

    Attributes:
        target: None in a plan that is asked for without one.
        classes: Declared classes.
        cells: Parts of the histogram of classes, one for a missing class included.
        splits: For each attribute a split, or a family of which the mechanism picks a member.
        attributes: How many attributes a fit has; one fewer than ``splits`` where one of them is
            going to be the target.
        schedule: The losses.
        fan_out: The most parts that a split of each level makes, shape (levels,).
        typical: Parts that a split makes on average.
        factor: What the noise is multiplied with to say which nodes are large enough to be split; 0
            splits all.
    """

    schema: Schema
    target: str | None
    classes: int
    cells: int
    splits: tuple[Candidate, ...]
    attributes: int
    schedule: Schedule
    fan_out: tuple[int, ...] = ()
    typical: float = 2.0
    factor: float = 0.0

    def size_of(self, split: Candidate) -> int:
        """Parts that a split makes; the missing values of a nullable column are a part of their own wherever it is cut."""
        if isinstance(split, AnyGrouping):
            return 2
        return (
            2 + self.schema.columns[split.column].nullable
            if isinstance(split, AnyCut)
            else bind(split, self.schema).size
        )

    @property
    def ask(self) -> Callable[[Parts, Fraction], np.ndarray]:
        """What describes nodes."""
        return ask_classes(str(self.target), self.cells)

    def open_splits(self, used: frozenset[str]) -> list[Candidate]:
        """The splits whose column a way has not used up."""
        return [split for split in self.splits if split.column not in used]

    def widest(self, used: frozenset[str] = frozenset()) -> int:
        """The most parts that one of the open splits makes."""
        return max((self.size_of(split) for split in self.open_splits(used)), default=1)

    def enough(self, widest: int) -> float:
        """The noisy size below which a node is not split: class counts of its children would drown in noise (Algorithms 1 and 2, line 9)."""
        if not self.factor or not self.schedule.levels:
            return -math.inf
        asks = self.schedule.levels[0]
        judged = next(asks[name] for name in ("size", "classes", "tables") if name in asks)
        return self.factor * widest * self.classes * math.sqrt(2) * count_scale(self.schema, judged.epsilon)

    def carries(self, rows: int) -> bool:
        """Whether nodes of the last level are still split, on a table of so many rows that splits evenly."""
        return rows / self.typical ** (self.schedule.depth - 1) >= self.enough(self.widest())


class GreedyTree(TreeClassifier, ABC):
    """A tree grown level by level on a private handle, each node split where it seems best.

    Subclasses say how: ``_recipe`` (what is asked, at which loss), ``_rules`` (how splits are
    chosen), ``_lines`` (how a level's choice reads in a plan).
    """

    epsilon: Loss
    max_depth: int | None
    criterion: str
    variant: Variant
    attributes: Sequence[str] | None
    criteria: tuple[str, ...] = tuple(CRITERIA)

    def fit(self, handle: PrivateQueryable, target: str) -> Self:
        """Grows the tree.

        Args:
            handle: A private handle; see ``pinq.open``, ``pinq.connect``, ``pinq.simulate``.
            target: The categorical column to predict.

        Raises:
            QueryError: A parameter or the target is wrong.
            BudgetExceeded: Less than ``epsilon`` remains.
        """
        with unspent():
            recipe = self._checked(public_schema(handle), target, need_target=True)
            total = recipe.schedule.total
            require_budget(handle, total, name=f"{type(self).__name__}(epsilon={show(int(total * NANO))}).fit")
            warn_before_fit(self, handle, total, self._warnings(recipe, None))
        with Bill(handle) as bill:
            (nodes,) = grow(handle.parts(), self._rules(recipe))
        remember_fit(self, handle)
        return self._fitted(Tree(recipe.schema, target, self._nodes(recipe, nodes)), bill.total)

    def plan(self, schema: Schema, target: str | None = None, *, rows: int | None = None) -> Plan:
        """What ``fit`` is going to ask and what it costs. Free: it looks at the schema only.

        Args:
            schema: The public schema, ``handle.schema``.
            target: The column to predict; without it the plan allows for the widest that there is.
            rows: How many rows the table has, if that is known; by default the schema's
                ``max_rows``. For the warning only.
        """
        recipe = self._checked(schema, target, need_target=False)
        schedule = recipe.schedule
        lines: list[PlanLine] = []
        nodes = 1
        for level, asks in enumerate(schedule.levels):
            asked = []
            for name in ("size", "classes"):
                if name in asks:
                    asked.append(name)
                    lines.append(_count_line(recipe, level, name, nodes, asks[name].epsilon, of="each node"))
            if recipe.factor and asked:
                left = schedule.left(level, *asked) if self.variant == "best" else schedule.leaf["classes"].epsilon
                lines.append(_count_line(recipe, level, "classes", nodes, left, of=None))
            lines += self._lines(recipe, level, nodes)
            nodes = min(nodes * recipe.fan_out[level], MAX_PARTS)
        lines += [
            _count_line(recipe, schedule.depth, name, nodes, ask.epsilon, of="each leaf")
            for name, ask in schedule.leaf.items()
        ]
        goal = f" for `{target}`" if target is not None else ""
        title = f"{type(self).__name__}{goal}: {many(schedule.depth, 'level')} of splits by {many(recipe.attributes, 'attribute')}, criterion {self.criterion}"
        notes = [
            "the nodes of a level are disjoint, so a level costs what one node costs; each way from the root to a leaf costs the total."
        ]
        if self.variant == "paper":
            notes = [
                "the nodes of a level are disjoint, so a level costs what one node costs; a tree all of whose leaves are reached early costs less."
            ]
        if self.max_depth is None:
            notes.append(
                f"max_depth is not given; {schedule.depth} is what epsilon, max_rows and the attributes let expect to be of use."
            )
        elif schedule.depth < self.max_depth:
            notes.append(
                f"a way can use up {many(schedule.depth, 'attribute')}, so no more than {many(schedule.depth, 'level')} of splits are planned."
            )
        return Plan(title, tuple(lines), schedule.total, tuple(notes), self._warnings(recipe, rows))

    # What subclasses say

    @abstractmethod
    def _recipe(self, facts: Recipe, depth: int) -> Recipe:
        """The recipe: ``facts`` with a schedule of at most ``depth`` levels."""

    @abstractmethod
    def _rules(self, recipe: Recipe) -> Rules:
        """How splits are chosen, and when a node is not split."""

    @abstractmethod
    def _lines(self, recipe: Recipe, level: int, nodes: int) -> list[PlanLine]:
        """What is asked of the nodes of one level, for the plan."""

    @abstractmethod
    def _splits(self, schema: Schema, target: str | None) -> tuple[Candidate, ...]:
        """What each node may be split by, one for each attribute."""

    def _certainty(self) -> float | None:
        """C4.5's certainty factor; None where nothing is pruned."""
        return None

    # Checks

    def _checked(self, schema: Schema, target: str | None, *, need_target: bool) -> Recipe:
        """Everything checked, before anything is spent."""
        to_nano(self.epsilon)
        if self.max_depth is not None:
            whole_number("max_depth", self.max_depth, 0, MAX_DEPTH)
        if self.variant not in ("best", "paper"):
            raise QueryError(
                f"`variant` is {self.variant!r}{closest(str(self.variant), ('best', 'paper'))}; it must be 'best' or 'paper'."
            )
        require_criterion(self.criterion, self.criteria)
        splits = self._splits(schema, target)
        if target is not None or need_target:
            classes, cells = self._classes(schema, target)
        else:
            classes, cells = (
                2,
                max((column.codes for column in schema.columns.values() if column.type == "categorical"), default=2),
            )
        # Without a target one of the columns that stand here is going to be it.
        usable = len(splits) - (target is None and self.attributes is None)
        facts = Recipe(
            schema, target, classes, cells, splits, usable, Schedule.even(self.epsilon, 0, node={}, leaf={"classes": 1})
        )
        depth = PAPER_DEPTH if self.max_depth is None and self.variant == "paper" else self.max_depth
        return self._recipe(facts, self._default_depth(facts) if depth is None else depth)

    def _classes(self, schema: Schema, target: str | None) -> tuple[int, int]:
        column = schema.column(target)
        if column.type != "categorical":
            raise QueryError(
                f"the target `{target}` is numeric; {type(self).__name__} predicts the values of a categorical column."
            )
        if column.cells < 2:
            raise QueryError(f"the target `{target}` has a single value, so there is nothing to learn.")
        return column.cells, column.codes

    def _warnings(self, recipe: Recipe, rows: int | None) -> tuple[str, ...]:
        """Whether the budget carries the depth, and the votes of its leaves."""
        known = recipe.schema.max_rows if rows is None else whole_number("rows", rows, 0, 2**33)
        wanted, carried = recipe.schedule.depth, self._carried(recipe, known)
        if wanted == 0 and self.max_depth is None:
            return (
                f"at epsilon {show(to_nano(self.epsilon))} and at most {recipe.schema.max_rows:,} rows the budget carries no split, so every row is "
                "predicted the most frequent class; a larger `epsilon` is needed for any split.",
            )
        if carried >= wanted:
            noise = noise_of(recipe.schema, recipe.schedule.leaf["classes"].epsilon)
            return lost_votes(known, recipe.typical**wanted, noise, known=rows is not None)
        average = known / recipe.typical ** (wanted - 1)
        choice = self._lines(recipe, wanted - 1, 1)[-1]
        bound = "at most" if rows is None else "about"
        advice = (
            f"depth {carried} is what the budget carries" if carried else "a larger `epsilon` is needed for any split"
        )
        return (
            f"at epsilon {show(to_nano(self.epsilon))} and {bound} {known:,} rows a depth-{wanted} tree over {many(recipe.attributes, 'attribute')} "
            f"expects {rows_text(average)} rows in a node that is split last, where noise of about {rows_text(choice.noise or 0.0)} {choice.unit} decides; {advice}.",
        )

    def _default_depth(self, recipe: Recipe) -> int:
        """Levels to ask for where nobody says; none where ``max_rows`` rows would not be split."""
        return self._carried(recipe, recipe.schema.max_rows)

    def _carried(self, recipe: Recipe, rows: int) -> int:
        """How many levels the budget carries, at most as many as attributes can be used for."""
        carried = 0
        while carried < MOST_LEVELS:
            deeper = self._recipe(recipe, carried + 1)
            if deeper.schedule.depth <= carried or not deeper.carries(rows):
                break
            carried += 1
        return carried

    def _nodes(self, recipe: Recipe, nodes: list[OpenNode]) -> list[Node]:
        """The grown tree with its estimates, pruned."""
        certainty = self._certainty()
        if self.variant == "best":
            return estimated_nodes(nodes, recipe.cells, recipe.classes, certainty)
        return (
            released_nodes(nodes, recipe.classes)
            if certainty is None
            else calibrated_nodes(nodes, recipe.classes, certainty)
        )


def many(count: int, name: str) -> str:
    """``1 level``, ``3 levels``."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def noise_of(schema: Schema, epsilon: Fraction) -> float:
    """Standard deviation of a count's noise, in rows."""
    return standard_deviation(count_scale(schema, epsilon))


def _count_line(recipe: Recipe, level: int, name: str, nodes: int, epsilon: Fraction, *, of: str | None) -> PlanLine:
    what = (
        {"size": f"size of {of}", "classes": f"classes of {of}"}[name]
        if of
        else "or, where that is too small, once more: its classes"
    )
    parts = nodes * (recipe.cells if name == "classes" else 1)
    return PlanLine(level, what, "noisy_count", parts, epsilon, noise_of(recipe.schema, epsilon))
