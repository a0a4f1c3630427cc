# SPDX-License-Identifier: Apache-2.0
"""DiffPID3: ID3 on a private table, each split chosen by one noisy selection (Friedman & Schuster 2010, Algorithm 2)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from miners.base import TreeClassifier, public_schema, require_budget, whole_number
from miners.candidates import multiway_splits
from miners.noise import count_scale
from miners.plan import Plan, PlanLine, rows_text
from miners.schedule import Schedule
from miners.tree import Node, Tree
from pinq.accuracy import standard_deviation
from pinq.epsilon import NANO, Loss, show, to_nano
from pinq.errors import QueryError
from pinq.parts import MAX_PARTS, Cuts, Values, bind
from pinq.schema import Schema, closest
from pinq.scores import ENTROPY_BITS, GINI_UNIT, Gini, InfoGain, MaxClass

if TYPE_CHECKING:
    from pinq.queryable import Parts, PrivateQueryable

__all__ = ["DiffPID3"]

MAX_DEPTH = 60
# A score, what one unit of plain counting is in its own units, and how that unit is called.
CRITERIA: dict[str, tuple[type[MaxClass] | type[Gini] | type[InfoGain], int, str]] = {
    "max": (MaxClass, 1, "rows"),
    "gini": (Gini, GINI_UNIT, "rows"),
    "info_gain": (InfoGain, 2**ENTROPY_BITS, "bits"),
}


@dataclass(frozen=True)
class _Task:
    """What is to be grown: all public, all checked.

    Attributes:
        target: None in a plan that is asked for without one.
        classes: Declared classes.
        cells: Parts of the histogram of classes, one for a missing class included.
        splits: The candidates, one for each attribute.
        sizes: How many parts each attribute's split makes.
        schedule: The losses.
    """

    schema: Schema
    target: str | None
    classes: int
    cells: int
    splits: tuple[Values | Cuts, ...]
    sizes: Mapping[str, int]
    schedule: Schedule

    def enough(self, used: frozenset[str]) -> float:
        """The noisy size below which a node is not split: average cells of its children drown in noise (Algorithm 2, line 9)."""
        widest = max(size for name, size in self.sizes.items() if name not in used)
        return widest * self.classes * self.noise

    @property
    def noise(self) -> float:
        """sqrt(2)/epsilon of a node's size, in rows."""
        return math.sqrt(2) * count_scale(self.schema, self.schedule.levels[0]["size"]) if self.schedule.levels else 0.0


class DiffPID3(TreeClassifier):
    """A decision tree with multiway splits, grown level by level on a private handle.

    A node is asked for its noisy size; if that is enough, for one split, chosen among all attributes that its way has
    not used; else for its class histogram. All nodes of a level are asked together, as one request and one charge.

    Categorical attributes are split into their values. Numeric ones are split at the points given in ``cuts``, else
    at those that the policy declares, else into 10 intervals of equal width over the declared range.

    Args:
        epsilon: What ``fit`` costs in all.
        max_depth: Levels of splits, 0 to 60. More than there are attributes is never used, since each splits once on a way.
        criterion: ``"max"`` (rows that a vote gets right), ``"gini"`` or ``"info_gain"``. Noise weighs least on "max".
        attributes: Columns to split by; None for all but the target.
        cuts: Cut points for numeric attributes, ``{"age": [30, 45]}``, or a number of intervals, ``{"age": 5}``.

    Attributes:
        tree_: The fitted ``Tree``.
        classes_: The declared values of the target, shape (classes,).
        schema_: The public schema under which the tree was grown.
        cost_: What ``fit`` really spent, exact; ``plan(schema).total`` unless some of it had been paid for before.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: with d levels of splits, a node that splits is asked two questions at e = epsilon/(2(d+1)) each; a leaf gets what
        its way has left. So each way from the root down costs epsilon, nodes of a level are disjoint, and the handle charges
        and enforces exactly that. Sizes, splits and histograms are noisy answers; where to stop and what to ask next depends on them alone.
        Exact: nano-epsilons. Held by: tests/unit/test_diffp_id3.py, tests/unit/test_schedule.py.

    Notes:
        Three things differ from the paper, none for the worse at equal epsilon (privacy.md 6). The layer selects by
        permute-and-flip without the factor 2. A leaf below the last split is not asked for its size, so its class histogram gets
        both shares. A leaf that stops early spends all that its way has left on its histogram.
        A target that is missing is no class: such rows count in a node's size, not in its histogram.

    References:
        Friedman & Schuster 2010, "Data Mining with Differential Privacy", sec. 4.2.

    Examples:
        >>> DiffPID3(epsilon=0.5, max_depth=3, criterion="gini")
        DiffPID3(criterion='gini', epsilon=0.5, max_depth=3)
    """

    def __init__(
        self,
        *,
        epsilon: Loss = 1.0,
        max_depth: int = 5,
        criterion: Literal["max", "gini", "info_gain"] = "max",
        attributes: Sequence[str] | None = None,
        cuts: Mapping[str, Sequence[float] | int] | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.max_depth = max_depth
        self.criterion = criterion
        self.attributes = attributes
        self.cuts = cuts

    def fit(self, handle: PrivateQueryable, target: str) -> Self:
        """Grows the tree.

        Args:
            handle: A private handle; see ``pinq.open``, ``pinq.simulate``.
            target: The categorical column to predict.

        Raises:
            QueryError: A parameter or the target is wrong; nothing was spent.
            BudgetExceeded: Less than ``epsilon`` remains; nothing was spent.
        """
        task = self._task(public_schema(handle), target, need_target=True)
        require_budget(handle, task.schedule.total, name=f"DiffPID3(epsilon={show(int(task.schedule.total * NANO))}).fit")
        before = handle.budget.spent
        nodes = _grow(handle, task, CRITERIA[self.criterion][0](target))
        return self._fitted(Tree(task.schema, target, nodes), Fraction(handle.budget.spent - before))

    def plan(self, schema: Schema, target: str | None = None, *, rows: int | None = None) -> Plan:
        """What ``fit`` is going to ask and what it costs. Free: it looks at the schema only.

        Args:
            schema: The public schema, ``handle.schema``.
            target: The column to predict; without it the plan allows for the widest that there is.
            rows: How many rows the table has, if that is known; by default the schema's ``max_rows``. For the warning only.
        """
        task = self._task(schema, target, need_target=False)
        schedule, depth = task.schedule, task.schedule.depth
        score, unit, called = CRITERIA[self.criterion]
        widest = sorted(task.sizes.values(), reverse=True)
        unknown = int(target is None and self.attributes is None)  # one of the columns is going to be the target
        lines = []
        for level, shares in enumerate(schedule.levels):
            nodes = min(math.prod(widest[:level]), MAX_PARTS)
            left = schedule.left(level, "size")
            # By how much noise lets one candidate pass another: the scale of the selection.
            slack = float(score("").span(schema) * schema.distance / (unit * shares["split"]))
            lines += [
                PlanLine(level, "size of each node", "noisy_count", nodes, shares["size"], self._spread(schema, shares["size"])),
                PlanLine(level, "or, where that is too small: its classes", "noisy_count", nodes * task.cells, left, self._spread(schema, left)),
                PlanLine(level, f"best of {_many(len(task.splits) - unknown - level, 'split')}", "exp_mech", nodes, shares["split"], slack, called),
            ]
        nodes = min(math.prod(widest[:depth]), MAX_PARTS)
        lines.append(PlanLine(depth, "classes of each leaf", "noisy_count", nodes * task.cells, schedule.leaf, self._spread(schema, schedule.leaf)))
        notes = ["the nodes of a level are disjoint, so a level costs what one node costs; each way from the root to a leaf costs the total."]
        if depth < self.max_depth:
            notes.append(f"a way can use up {_many(depth, 'attribute')}, so no more than {_many(depth, 'level')} of splits are planned.")
        goal = f" for `{target}`" if target is not None else ""
        title = f"DiffPID3{goal}: {_many(depth, 'level')} of splits by {_many(len(task.splits) - unknown, 'attribute')}, criterion {self.criterion}"
        return Plan(title, tuple(lines), schedule.total, tuple(notes), self._warnings(task, rows))

    @staticmethod
    def _spread(schema: Schema, epsilon: Fraction) -> float:
        return standard_deviation(count_scale(schema, epsilon))

    def _task(self, schema: Schema, target: str | None, *, need_target: bool) -> _Task:
        """Everything checked, before anything is spent."""
        to_nano(self.epsilon)
        whole_number("max_depth", self.max_depth, 0, MAX_DEPTH)
        if not isinstance(self.criterion, str) or self.criterion not in CRITERIA:
            known = ", ".join(repr(name) for name in CRITERIA)
            raise QueryError(f"`criterion` is {self.criterion!r}{closest(str(self.criterion), CRITERIA)}; it must be one of {known}. Nothing was spent.")
        splits = multiway_splits(schema, target, attributes=self.attributes, cuts=self.cuts)
        if target is not None or need_target:
            classes, cells = _classes(schema, target)
        else:
            classes, cells = 2, max((column.codes for column in schema.columns.values() if column.type == "categorical"), default=2)
        # Without a target one of the columns that stand here is going to be it.
        usable = len(splits) - (target is None and self.attributes is None)
        schedule = Schedule.even(self.epsilon, min(self.max_depth, usable), node={"size": 1, "split": 1}, leaf=2)
        sizes = {split.column: bind(split, schema).size for split in splits}
        return _Task(schema, target, classes, cells, splits, sizes, schedule)

    def _warnings(self, task: _Task, rows: int | None) -> tuple[str, ...]:
        """Whether the budget carries the depth, on a table that splits evenly by attributes of middling width."""
        known = task.schema.max_rows if rows is None else whole_number("rows", rows, 0, 2**33)
        middling = math.exp(sum(math.log(size) for size in task.sizes.values()) / len(task.sizes))
        carried, wanted = 0, task.schedule.depth
        for depth in range(1, wanted + 1):
            schedule = Schedule.even(self.epsilon, depth, node={"size": 1, "split": 1}, leaf=2)
            needed = max(task.sizes.values()) * task.classes * math.sqrt(2) * count_scale(task.schema, schedule.levels[0]["size"])
            if known / middling ** (depth - 1) >= needed:
                carried = depth
        if carried >= wanted:
            return ()
        about = "at most " if rows is None else ""
        advice = f"max_depth={carried} keeps more of the budget for each question" if carried else "a larger `epsilon` is needed for any split"
        return (
            f"with {about}{known:,} rows this epsilon carries about {carried} of {wanted} levels: a node is split from "
            f"{rows_text(task.enough(frozenset()))} noisy rows on, and on average a split leaves a child 1/{middling:.0f} of them; {advice}.",
        )


def _many(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _classes(schema: Schema, target: str | None) -> tuple[int, int]:
    column = schema.column(target)
    if column.type != "categorical":
        raise QueryError(f"the target `{target}` is numeric; DiffPID3 predicts the values of a categorical column. Nothing was spent.")
    if column.cells < 2:
        raise QueryError(f"the target `{target}` has a single value, so there is nothing to learn. Nothing was spent.")
    return column.cells, column.codes


@dataclass
class _Sprout:
    """A node while the tree grows."""

    used: frozenset[str] = frozenset()
    split: Values | Cuts | None = None
    children: tuple[int, ...] = ()
    size: float | None = None
    size_scale: float | None = None
    counts: tuple[float, ...] = ()
    counts_scale: float | None = None

    def node(self) -> Node:
        return Node(self.split, self.children, self.size, self.size_scale, self.counts, self.counts_scale)


def _grow(handle: PrivateQueryable, task: _Task, score: MaxClass | Gini | InfoGain) -> list[Node]:
    """The frontier loop: each line that asks is one request and one charge for a whole level."""
    sprouts = [_Sprout()]
    frontier, places = handle.parts(), np.zeros(1, dtype=np.int64)
    for level, shares in enumerate(task.schedule.levels):
        sizes = np.asarray(frontier.noisy_count(epsilon=shares["size"])).ravel()
        scale = count_scale(task.schema, shares["size"])
        for place, size in zip(places, sizes, strict=True):
            sprouts[place].size, sprouts[place].size_scale = float(size), scale
        grows = _worth_splitting(task, [sprouts[place] for place in places])
        if not grows.all():
            _ask_classes(frontier[~grows], places[~grows], sprouts, task, task.schedule.left(level, "size"))
        if not grows.any():
            break
        frontier, places = frontier[grows], places[grows]
        candidates = [[split for split in task.splits if split.column not in sprouts[place].used] for place in places]
        splits = list(frontier.exp_mech(candidates, score=score, epsilon=shares["split"]))
        frontier, places = frontier.partition(splits), _branch(sprouts, places, splits, task)
    else:
        _ask_classes(frontier, places, sprouts, task, task.schedule.leaf)
    return [sprout.node() for sprout in sprouts]


def _worth_splitting(task: _Task, level: Sequence[_Sprout]) -> np.ndarray:
    """Which nodes of a level are split, shape (nodes,): the large ones, the largest first while parts can be asked at all."""
    sizes = np.array([sprout.size or 0.0 for sprout in level])
    enough = np.array([task.enough(sprout.used) for sprout in level])
    grows: np.ndarray = sizes >= enough
    widest = np.array([max(size for name, size in task.sizes.items() if name not in sprout.used) for sprout in level])
    order = np.argsort(-sizes, kind="stable")
    asked = np.cumsum(np.where(grows[order], widest[order], 0)) * task.cells
    grows[order[asked > MAX_PARTS]] = False
    return grows


def _branch(sprouts: list[_Sprout], places: np.ndarray, splits: Sequence[Any], task: _Task) -> np.ndarray:
    """Adds the children of each split node; returns their places in the order of the parts."""
    children: list[int] = []
    for place, split in zip(places, splits, strict=True):
        parent = sprouts[place]
        first = len(sprouts)
        sprouts += [_Sprout(parent.used | {split.column}) for _ in range(task.sizes[split.column])]
        parent.split, parent.children = split, tuple(range(first, len(sprouts)))
        children += parent.children
    return np.array(children, dtype=np.int64)


def _ask_classes(parts: Parts, places: np.ndarray, sprouts: list[_Sprout], task: _Task, epsilon: Fraction) -> None:
    """One request for the class histograms of all leaves of a level. A missing class is left out."""
    table = np.asarray(parts.partition(Values(str(task.target))).noisy_count(epsilon=epsilon)).reshape(len(places), task.cells)
    scale = count_scale(task.schema, epsilon)
    for place, counts in zip(places, table[:, : task.classes], strict=True):
        sprouts[place].counts, sprouts[place].counts_scale = tuple(float(count) for count in counts), scale
