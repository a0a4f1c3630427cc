# SPDX-License-Identifier: Apache-2.0
"""What a scorecard is fitted to: two classes, many classes, or a mean. One class each.

An objective says where scores start, which loss's derivatives a step sums, and what points follow
from the sums. It asks nothing but noisy counts; the steps are in ``fitting.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from miners.scorecards.asking import P
from miners.scorecards.card import Card
from miners.scorecards.cells import Grid
from miners.scorecards.mean import Mean
from miners.scorecards.objective import Objective
from miners.scorecards.posterior import Estimate, log_shares, newton, reliable_share
from miners.scorecards.shares import (
    FEW_ATTRIBUTES,
    TABLES,
    repeats_little,
    rows_epsilon,
    steps_after_tables,
    steps_for_two,
    tables_for_two,
    tables_pay,
)
from pinq.public.accuracy import standard_deviation
from pinq.public.derivatives import AnyDerivatives, Logistic, Softmax
from pinq.public.epsilon import Epsilon
from pinq.public.points import POINTS, Points
from pinq.public.schema import Categorical, Schema
from pinq.public.specs import Cuts, Groups, Spec, Values

__all__ = ["ManyClasses", "Mean", "Objective", "TwoClasses", "objective_of"]

PRIOR = 1.0  # logits: width of the prior of a cell's points
STEEPEST = 3.0  # logits that one step moves a cell at most
NEVER = -40.0  # logits of a missing class, which is no class
CLIPPED = 1.0  # rows: L1 norm to which gradients of many classes are clipped
LEAST_RELIABLE = 0.02  # of points from tables; where all is noise the likelier class still wins


@dataclass(frozen=True, kw_only=True, eq=False)
class _Classes(Objective):
    """What the two objectives of classes share: rows without a class are not learned from."""

    tabulates: ClassVar[bool] = True

    @property
    def column(self) -> Categorical:
        """The target's declaration."""
        return self.schema.categorical(self.target)

    @property
    def base_parts(self) -> Spec:
        """A part for each class."""
        return Values(self.target)

    @property
    def table_parts(self) -> Spec:
        """A part for each class."""
        return Values(self.target)

    def rows(self, everything: P) -> P:
        """Returns the rows that have a class: all, or one part of a partition by that."""
        if not self.column.nullable:
            return everything
        return everything.partition(Groups(self.target, (self.column.values,)))

    def shares(self, counts: np.ndarray, scale: float) -> np.ndarray:
        """Returns the logs of the classes' shares, none below what noise can tell from 0."""
        # Noisy rows 990 and -4 at scale 10: 990 and 10, so shares of .99 and .01, not 1 and 0.
        rows = np.maximum(counts[: self.column.cells], max(scale, 1.0))
        logs: np.ndarray = np.log(rows / rows.sum())
        return logs

    @property
    @abstractmethod
    def contrasts(self) -> np.ndarray:
        """How outputs add up logs of each class, shape (classes, outputs)."""

    def damping(self, tables: list[np.ndarray], totals: np.ndarray, scale: float) -> float:
        """Returns what points from tables are multiplied with, for attributes repeat each other."""
        return _repeated(len(tables))

    def tabulated(
        self, card: Card, specs: Sequence[Values | Cuts], tables: list[np.ndarray], scale: float, *, mended: bool
    ) -> Card:
        """Returns naive Bayes, the more damped the more attributes repeat each other.

        Where scores start is damped like points that steps mend: by itself such a card answers as
        naive Bayes does. Without steps it is not damped for noise, for it is the surest of all:
        where tables are mostly noise nearly all rows are answered by their most frequent class.
        """
        counts = [table[:, : self.table_classes] for table in tables]
        # The total of a table of many cells is the noisier: its weight is one over its cells.
        weights = np.array([1 / len(table) for table in counts])
        totals = np.average([table.sum(axis=0) for table in counts], axis=0, weights=weights)
        totals = np.maximum(totals, scale)
        damping = self.damping(counts, totals, scale)
        start = damping if mended else _repeated(len(tables))
        base = tuple(round(start * share * POINTS) for share in np.log(totals / totals.sum()) @ self.contrasts)
        card = replace(card, base=base)
        for spec, estimate in zip(specs, log_shares(counts, totals, scale=scale, damping=damping), strict=True):
            # Classes are counted apart, so the variances of their logs add up.
            deviations = np.sqrt(np.square(estimate.deviations) @ np.square(self.contrasts))
            points = estimate.points @ self.contrasts
            card = card.plus(spec, replace(estimate, points=points, deviations=deviations))
        return card


@dataclass(frozen=True, kw_only=True, eq=False)
class TwoClasses(_Classes):
    """The log-odds of the second declared class against the first."""

    unchosen: ClassVar[float] = 1.1

    def steps(self, epsilon: Epsilon, attributes: int) -> int:
        """Returns how many steps a budget pays for, with what tables leave of it."""
        return steps_for_two(rows_epsilon(self.schema, epsilon), attributes, self._weight(epsilon, attributes))

    def _weight(self, epsilon: Epsilon, attributes: int) -> float:
        return tables_for_two(rows_epsilon(self.schema, epsilon), self.schema.max_rows, attributes)

    def asks_tables(self, epsilon: Epsilon, attributes: int) -> bool:
        """Returns whether one step over all attributes at once comes first."""
        return self._weight(epsilon, attributes) > 0

    def table_weight(self, epsilon: Epsilon, attributes: int) -> float:
        """Returns the rule's weight; where the caller asks for tables, that of many classes."""
        return self._weight(epsilon, attributes) or TABLES

    def table_grid(self, epsilon: Epsilon, attributes: int) -> Grid:
        """Returns a coarse grid where points start from tables by default."""
        if not self.asks_tables(epsilon, attributes):
            return self.grid(epsilon)
        return Grid.of_tables(rows_epsilon(self.schema, epsilon) / (2 * attributes))

    def damping(self, tables: list[np.ndarray], totals: np.ndarray, scale: float) -> float:
        """Returns the less the noisier tables are: too small scores are easier to mend."""
        share = max(reliable_share(tables, totals, scale), LEAST_RELIABLE)
        # Steps that follow light tables are many: they begin with smaller points.
        factor = 1.0 if repeats_little(self.schema.max_rows, len(tables)) else 0.5**0.5
        return super().damping(tables, totals, scale) * share * factor

    @property
    def bound(self) -> float:
        """A row: gradient and curvature of one row cost one count (privacy.md 8.1)."""
        return 1.0

    @property
    def contrasts(self) -> np.ndarray:
        """The second class against the first."""
        return np.array([[-1.0], [1.0]])

    def start(self, counts: np.ndarray, scale: float) -> tuple[Self, Card]:
        """Returns the log-odds of the class."""
        first, second = self.shares(counts, scale)
        return self, Card(self.schema, self.target, (round((second - first) * POINTS),))

    def loss(self, card: Card) -> AnyDerivatives:
        """Returns the logistic loss."""
        return Logistic(self.target, (self.column.values[1],), card.score_of(0))

    def update(self, gradients: np.ndarray, curvatures: np.ndarray, scale: float) -> Estimate:
        """Returns the posterior of a Newton step; a row's gradient varies as its curvature says."""
        noise = standard_deviation(scale) ** 2
        return newton(gradients, curvatures, spread=1.0, noise=noise, width=PRIOR, most=STEEPEST)


@dataclass(frozen=True, kw_only=True, eq=False)
class ManyClasses(_Classes):
    """A score for each class, whose softmax are the shares.

    Tables of all attributes come first, which is naive Bayes: a count of a class costs less than a
    gradient, whose entries of all classes move. Steps then mend what the tables count twice.
    """

    def steps(self, epsilon: Epsilon, attributes: int) -> int:
        """Returns how many steps a budget pays for."""
        return steps_after_tables(rows_epsilon(self.schema, epsilon), self.column.cells, attributes)

    def asks_tables(self, epsilon: Epsilon, attributes: int) -> bool:
        """Returns whether tables can be told from noise."""
        return tables_pay(rows_epsilon(self.schema, epsilon), self.column.cells)

    def grid(self, epsilon: Epsilon) -> Grid:
        """Returns the grid of two classes, as if three of these shared its rows."""
        return Grid.of_steps(3 * rows_epsilon(self.schema, epsilon) / self.column.cells)

    def table_grid(self, epsilon: Epsilon, attributes: int) -> Grid:
        """Returns a coarse grid."""
        return Grid.of_tables(rows_epsilon(self.schema, epsilon) / (self.column.cells * attributes))

    @property
    def bound(self) -> float:
        """What a row's gradients and curvatures are clipped to: rows far off count less."""
        return CLIPPED

    @property
    def contrasts(self) -> np.ndarray:
        """Each class for itself."""
        return np.eye(self.column.cells)

    def start(self, counts: np.ndarray, scale: float) -> tuple[Self, Card]:
        """Returns the logs of the classes' shares."""
        base = tuple(round(share * POINTS) for share in self.shares(counts, scale))
        return self, Card(self.schema, self.target, base)

    def loss(self, card: Card) -> AnyDerivatives:
        """Returns the cross-entropy; a missing class never occurs among the rows."""
        scores = [card.score_of(number) for number in range(self.column.cells)]
        never = [Points(base=round(NEVER * POINTS))] * int(self.column.nullable)
        return Softmax(self.target, tuple(scores + never), hessian=True, limit=CLIPPED)

    def update(self, gradients: np.ndarray, curvatures: np.ndarray, scale: float) -> Estimate:
        """Returns the posterior of a Newton step for each class by itself.

        Scores of all K classes move at once, which counts what tells two of them apart twice: hence
        the factor (K - 1) / K (Friedman, Hastie & Tibshirani 2000, LogitBoost for J classes).
        """
        known = self.column.cells
        noise = standard_deviation(scale) ** 2
        each = newton(gradients[:, :known], curvatures[:, :known], spread=1.0, noise=noise, width=PRIOR, most=STEEPEST)
        return replace(each, points=each.points * (known - 1) / known)


def _repeated(attributes: int) -> float:
    """Returns what each of so many attributes counts, for they repeat each other."""
    # Twenty-four attributes: each counts half.
    return min(1.0, (FEW_ATTRIBUTES / attributes) ** 0.5)


def objective_of(schema: Schema, target: str) -> Objective:
    """Returns the objective for a target."""
    column = schema.column(target)
    if target in schema.numeric_columns:
        return Mean(schema=schema, target=target)
    kind = TwoClasses if column.cells == 2 else ManyClasses
    return kind(schema=schema, target=target)
