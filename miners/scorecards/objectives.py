# SPDX-License-Identifier: Apache-2.0
"""The objectives of a scorecard: two classes, many classes, or a mean.

An objective has the start of scores, the loss whose derivatives a step sums, and the points that follow from the sums.

Points come from noisy sums, with the uncertainty of the noise. A cell's points f have the public prior N(0, width²).
Its noisy gradient G is about H f, with the variance H of the rows themselves and that of the noise; so f has the
posterior mean width² H G / (H² width² + variance) and the posterior variance width² variance / (the same). If H is
indistinguishable from noise, points are about 0. The noise is not normal, and the curvature is noisy too, so an
interval of two deviations is a guide and no guarantee.

``Asking`` sends a card's queries to one handle, or to several data owners.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from miners.budget.plan import count_scale, rare_classes
from miners.growth.candidates import Grid
from miners.growth.target_range import TargetRange
from miners.scorecards.card import Card, CardCells, Estimate
from miners.scorecards.costs import (
    TABLES,
    FitCosts,
    base_fraction,
    choice_fraction,
    repeated,
    rows_epsilon,
    steps_after_tables,
    steps_that_pay,
    tables_for_two,
    tables_pay,
)
from pinq.analyst.queryable import Parts
from pinq.language.derivatives import LARGEST_RESIDUAL, AnyDerivatives, Logistic, Residuals, Softmax
from pinq.language.points import POINTS, Points
from pinq.language.scores import Gradient
from pinq.language.specs import Cuts, Groups, Spec, Values, bind
from pinq.public.columns import CutPoint
from pinq.public.epsilon import Epsilon, standard_deviation
from pinq.public.schema import Categorical, Numeric, Schema

FEWEST = 0.5  # noise scales; fewer rows are indistinguishable from none
ANY_SHARE = 1 / 12  # variance of a share that may be anything from 0 to 1
THRESHOLD = 0.5  # noise scales; a choice ignores smaller gradients of a cell
Cells = Values | Cuts
"""The cells of one attribute."""


def newton(
    gradients: np.ndarray, curvatures: np.ndarray, *, spread: float, noise: float, width: float, limit: float
) -> Estimate:
    """The posterior of one Newton step from 0.

    Args:
        gradients: Noisy sums of gradients, shape (cells, outputs).
        curvatures: Noisy sums of second derivatives, same shape.
        spread: Variance of a row's gradient for each unit of its second derivative.
        noise: Variance of the noise in a gradient.
        width: The width of the prior.
        limit: The largest size of points.
    """
    rows = np.maximum(curvatures, 0.0)
    variance = np.maximum(rows * spread + noise, 1e-12)
    # Gradient 30, curvature 100, width 1: 100 * 30 / (100^2 + 100) = .30 without noise, and 100 *
    # 30 / (100^2 + 100 + 10,000) = .15 with noise of deviation 100.
    scale = width**2 / (rows**2 * width**2 + variance)
    points = np.clip(scale * rows * gradients, -limit, limit)
    return Estimate(points, np.sqrt(scale * variance), rows.sum(axis=1))


def from_probability(step: Estimate, share: float, limit: float) -> Estimate:
    """Returns the points of a Newton step in log-odds, if all rows had one probability of the class.

    Such a step is exact for the share of a cell's rows with the class; as log-odds it would go too far towards the
    rarer class.

    Args:
        step: Of two classes, shape (cells, 1).
        share: The probability that all rows had, above 0 and below 1.
        limit: The largest size of points.
    """
    # A share of .2 and a step of 1.5: .2 + 1.5 * .16 = .44, whose log-odds are 1.15 above those of .2.
    variance, odds = share * (1 - share), math.log(share / (1 - share))
    lowest, largest = (1 / (1 + math.exp(-odds - end)) for end in (-limit, limit))
    shares = np.clip(share + step.points * variance, lowest, largest)
    points = np.log(shares / (1 - shares)) - odds
    return Estimate(points, step.deviations * variance / (shares * (1 - shares)), step.weights)


def log_probabilities(tables: list[np.ndarray], totals: np.ndarray, scale: float) -> list[Estimate]:
    """Points from tables of classes, as in naive Bayes.

    Each table is adjusted to the common class totals, because the errors of many tables' totals would add up. Counts
    are at least ``FEWEST`` noise scales.

    Args:
        tables: Noisy counts, each of shape (cells, classes).
        totals: The best estimate of the rows of each class, shape (classes,).
        scale: The scale of the noise in a count.
    """
    estimates = []
    for table in tables:
        moved = _moved(table, totals)
        counts = np.maximum(moved, FEWEST * scale)
        # Of two classes with 100 rows each, a cell has 30 and 10: ln .3 and ln .1, of which the
        # mean is taken off, +.55 and -.55.
        logs = np.log(counts / counts.sum(axis=0))
        deviations = np.sqrt(1 / counts + 2 * (scale / counts) ** 2)
        points = logs - logs.mean(axis=1, keepdims=True)
        estimates.append(Estimate(points, deviations, np.maximum(moved, 0.0).sum(axis=1)))
    return estimates


def _moved(table: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """A table adjusted to these class totals."""
    # A class has 90 rows in five cells, and its known total is 100: each cell gets 2 more.
    return np.asarray(table - (table.sum(axis=0) - totals) / len(table))


def reliable_probabilities(
    tables: list[np.ndarray], estimates: list[Estimate], totals: np.ndarray, scale: float
) -> np.ndarray:
    """Returns the share of the variance of each table's points that noise does not explain, 0 to 1.

    If the squared differences of a table's cells are as large as by noise and chance, its share is 0; if they are four
    times as large, it is three quarters. Each share moves towards the mean of all, by its error.

    Args:
        tables: Noisy counts, each of shape (cells, classes).
        estimates: The points that ``log_probabilities`` finds in them.
        totals: The best estimate of the rows of each class, shape (classes,).
        scale: The scale of the noise in a count.
    """
    of_classes, others = totals / totals.sum(), len(totals) - 1
    chance = of_classes * (1 - of_classes)
    noise = 2 * scale**2 * ((1 - of_classes) ** 2 + others * of_classes**2)
    # With fixed totals, m - 1 of m cells and K - 1 of K classes are free.
    free = np.array([len(table) - 1 for table in tables])
    away, variances = np.empty(len(tables)), np.empty(len(tables))
    by_chance = free * [(chance * totals.sum() / len(table) + noise).sum() for table in tables]
    for number, (table, estimate) in enumerate(zip(tables, estimates, strict=True)):
        moved, rows = _moved(table, totals), estimate.weights + 1e-9
        # Of 100 rows, half of class 1, a cell with 40 and 10 is 15 away from the expected 25.
        away[number] = np.square(moved - of_classes * moved.sum(axis=1, keepdims=True)).sum()
        mean = np.average(estimate.points, axis=0, weights=rows)
        variances[number] = np.average((estimate.points - mean) ** 2, axis=0, weights=rows).sum()
    shares = np.maximum(0.0, 1 - by_chance / np.maximum(away, 1e-9))
    # The relative error of a variance from so many free squares is the root of 2 / squares.
    errors = (1 - shares) ** 2 * 2 / (free * others)
    return shares + errors / (errors + ANY_SHARE) * (np.average(shares, weights=variances + 1e-9) - shares)


class Partitioned(Protocol):
    """Rows that can be cut into parts."""

    def partition(self, *specs: object) -> Self:
        """Cuts each part into parts."""


P = TypeVar("P", bound=Partitioned)


class SumsAnswer(NamedTuple):
    """Noisy numbers, and the scale of one Laplace noise as wide as theirs."""

    numbers: np.ndarray
    scale: float


class Asking(ABC, Generic[P]):
    """Sends the queries of one fit; each step is sent once."""

    def __init__(self, rows: P, schema: Schema, costs: FitCosts) -> None:
        self._rows, self._schema, self._costs = rows, schema, costs

    def start(self, parts: Spec, look: int = 0) -> SumsAnswer:
        """Counts all rows by parts of the target, at the first or a later look."""
        (counts,) = self._count([self._rows.partition(parts)], [self._costs.bases[look]])
        return counts._replace(numbers=counts.numbers.ravel())

    def among(self, objective: Objective) -> None:
        """Restricts all further queries to the rows of the objective."""
        self._rows = objective.rows(self._rows)

    def tables(self, specs: Sequence[Cells], objective: Objective) -> list[SumsAnswer]:
        """Counts the target's parts in each attribute's cells, shape (cells, parts) each."""
        parts = [self._rows.partition(spec).partition(objective.table_parts) for spec in specs]
        sizes = [bind(spec, self._schema).size for spec in specs]
        answers = self._count(parts, self._costs.tables)
        return [
            counts._replace(numbers=counts.numbers.reshape(size, -1))
            for counts, size in zip(answers, sizes, strict=True)
        ]

    @abstractmethod
    def _count(self, parts: Sequence[P], losses: Sequence[Epsilon]) -> list[SumsAnswer]:
        """Counts rows in each of some collections of parts, each at its loss."""

    @abstractmethod
    def choice(self, step: int, specs: Sequence[CardCells], objective: Objective, loss: AnyDerivatives) -> CardCells:
        """Chooses the attribute in whose cells the present scores have the largest error."""

    @abstractmethod
    def sums(self, step: int, spec: CardCells, objective: Objective, loss: AnyDerivatives) -> SumsAnswer:
        """Adds up derivatives in each cell of an attribute, shape (cells, width)."""


class HandleAsking(Asking["Parts"]):
    """Asks one handle."""

    def _count(self, parts: Sequence[Parts], losses: Sequence[Epsilon]) -> list[SumsAnswer]:
        return [
            SumsAnswer(
                np.asarray(collection.noisy_count(epsilon=loss), dtype=np.float64), count_scale(self._schema, loss)
            )
            for collection, loss in zip(parts, losses, strict=True)
        ]

    def choice(self, step: int, specs: Sequence[CardCells], objective: Objective, loss: AnyDerivatives) -> CardCells:
        paid = self._costs.steps[step]
        assert paid.choice is not None
        score = choice_score(objective, loss, objective.scale(paid.sums))
        (chosen,) = self._rows.exp_mech(list(specs), score=score, epsilon=paid.choice)
        return next(offered for offered in specs if offered == chosen)

    def sums(self, step: int, spec: CardCells, objective: Objective, loss: AnyDerivatives) -> SumsAnswer:
        epsilon = self._costs.steps[step].sums
        sums = np.asarray(self._rows.noisy_sum(loss, by=[spec], epsilon=epsilon))
        return SumsAnswer(sums.reshape(-1, sums.shape[-1]), objective.scale(epsilon))


def choice_score(objective: Objective, loss: AnyDerivatives, scale: float) -> Gradient:
    """The score of an attribute's choice, given the noise of the following sums."""
    return Gradient(loss, threshold=min(THRESHOLD * scale, objective.schema.max_rows * objective.bound))


@dataclass(frozen=True, kw_only=True, eq=False)
class Objective(ABC):
    """The objective of a fit."""

    schema: Schema
    target: str

    majority: ClassVar[str] = "the most frequent class"  # the prediction where nothing can be learned
    tabulates: ClassVar[bool] = False  # whether points can start from tables
    # Without choices: the weight of the tables that order attributes, for each unit of all steps; and
    # the factor for the number of steps, because some steps repeat earlier ones.
    order_weight: ClassVar[float] = 0.1
    looks: ClassVar[int] = 1  # queries for the start of scores
    noise_unit: ClassVar[str | None] = "rows"  # of ``bound`` in a plan; None if it follows from the first answer
    unchosen: ClassVar[float] = 1.3

    def steps(self, epsilon: Epsilon, cells: Sequence[int]) -> int:
        """The number of useful steps after the tables of a budget."""
        size = rows_epsilon(self.schema, epsilon) / (1 + self.table_weight(epsilon, len(cells)))
        return steps_that_pay(size, len(cells), float(np.mean(cells)))

    def base(self, cells: Sequence[int]) -> float:
        """The cost of the start of scores for each unit of a step."""
        return base_fraction(len(cells), float(np.mean(cells)))

    def choice(self, cells: Sequence[int]) -> float:
        """The share of a step for the choice of its attribute; 0 for a single attribute."""
        return choice_fraction(len(cells), float(np.mean(cells)))

    def table_weight(self, epsilon: Epsilon, attributes: int) -> float:
        """The weight of first tables of all attributes, for each unit of all steps; 0 if steps alone are better."""
        return 0.0

    @property
    @abstractmethod
    def table_parts(self) -> Spec:
        """The parts of the target that tables count in the cells of an attribute, missing last."""

    @property
    def table_classes(self) -> int:
        """The number of parts of tables without the one of missing values."""
        return bind(self.table_parts, self.schema).size - int(self.schema.column(self.target).nullable)

    @property
    def width(self) -> int:
        """The entries of a row's vector in a step; raises ``QueryError`` if they are too many."""
        objective, card = self.start(np.zeros(bind(self.base_parts, self.schema).size), 1.0)
        return objective.loss(card).vectors(self.schema).width

    def grid(self, epsilon: Epsilon, attributes: int) -> Grid:
        """The default cuts of numeric attributes: coarse if all attributes have tables."""
        return Grid.of_steps(rows_epsilon(self.schema, epsilon))

    @property
    @abstractmethod
    def base_parts(self) -> Spec:
        """The parts of the target for the start of scores."""

    @property
    @abstractmethod
    def bound(self) -> float:
        """The L1 norm of a row in the sums of a step, in their units."""

    def nearer(self, counts: np.ndarray, scale: float) -> Self:
        """The objective whose ``base_parts`` cover the range of the rows; only for numbers."""
        return self

    @property
    def doubts(self) -> tuple[str, ...]:
        return ()

    def rare(self, answers: Sequence[SumsAnswer]) -> tuple[str, ...]:
        """Warns of the classes that noise hides; empty for none.

        ``answers`` have rows of ``base_parts`` or ``table_parts``, shape (cells, parts) each.
        """
        return ()

    @abstractmethod
    def start(self, counts: np.ndarray, scale: float) -> tuple[Self, Card]:
        """The objective with the facts of the answer, noisy rows of ``base_parts``, and a card without terms."""

    @abstractmethod
    def loss(self, card: Card) -> AnyDerivatives:
        """The loss whose derivatives are summed, given the scores so far."""

    @abstractmethod
    def update(self, card: Card, gradients: np.ndarray, curvatures: np.ndarray, scale: float) -> Estimate:
        """The points that follow from noisy sums of derivatives at the card's scores, shape (cells, outputs)."""

    def rows(self, everything: P) -> P:
        """The rows to learn from, as one part of all rows."""
        return everything

    def scale(self, epsilon: Epsilon) -> float:
        return count_scale(self.schema, epsilon) * self.bound

    def tabulated(self, card: Card, specs: Sequence[Values | Cuts], tables: list[np.ndarray], scale: float) -> Card:
        """The card with points from noisy counts of the target's parts, shape (cells, parts) each.

        Only if it ``tabulates``.
        """
        return card


FARTHEST = 2.0  # standard deviations of the target beyond which residuals are clamped
TIMID = 0.5  # standard deviations of the target: width of the prior of a cell's points


@dataclass(frozen=True, kw_only=True, eq=False)
class Mean(Objective):
    """The mean of a numeric column, by clamped residuals.

    Attributes:
        deviation: The deviation of the target, in grid cells, from the first answer; 0 before it.
        half: A cut with about half of the rows on each side, from the first answer; None before it.
        within: The first cell of the range of the rows, and the first cell above it; None before the first answer, or
            if that shows none.
    """

    majority: ClassVar[str] = "the mean"
    order_weight: ClassVar[float] = 0.4
    unchosen: ClassVar[float] = 1.0
    looks: ClassVar[int] = 3
    noise_unit: ClassVar[str | None] = None
    deviation: float = 0.0
    half: CutPoint | None = None
    within: tuple[int, int] | None = None

    @property
    def column(self) -> Numeric:
        return self.schema.numeric(self.target)

    @cached_property
    def _range(self) -> TargetRange:
        return TargetRange(self.schema, self.target, self.within)

    @property
    def base_parts(self) -> Spec:
        return self._range.parts

    def nearer(self, counts: np.ndarray, scale: float) -> Self:
        """The objective with the range of the rows; a wider range would clamp residuals too late."""
        return replace(self, within=self._range.nearer(counts, scale).within)

    @property
    def doubts(self) -> tuple[str, ...]:
        return self._range.doubts(self.deviation)

    @property
    def table_parts(self) -> Spec:
        """The two halves of the target.

        If a mean moves by d deviations, the halves of n rows differ by 0.8 n d against the noise of
        a count, and the residuals' sum by n d against that of ``FARTHEST`` deviations.
        """
        points = self._range.points
        if not points:
            return Values(self.target)
        return Cuts(self.target, (points[len(points) // 2] if self.half is None else self.half,))

    @property
    def bound(self) -> float:
        """The largest residual, in grid cells of the target, at most ``LARGEST_RESIDUAL``."""
        # A deviation of 12.3 cells: residuals are clamped at 24.6, which is 6,297 of 256ths.
        farthest = min(FARTHEST * self.deviation, self.column.cells, LARGEST_RESIDUAL)
        # Whole 256ths of a cell, as in ``Residuals``.
        return max(1, int(farthest * POINTS)) / POINTS

    def start(self, counts: np.ndarray, scale: float) -> tuple[Self, Card]:
        mean, deviation, rows = self._range.moments(counts, scale)
        objective = replace(self, deviation=max(deviation, 0.5), half=self._half(rows))
        return objective, Card(self.schema, self.target, (round(mean * POINTS),))

    def _half(self, rows: np.ndarray) -> CutPoint | None:
        """The cut of the histogram that is nearest to its median."""
        points = self._range.points
        below = np.cumsum(rows)[: len(points)] / rows.sum()
        return points[int(np.abs(below - 0.5).argmin())] if points else None

    def loss(self, card: Card) -> AnyDerivatives:
        return Residuals(self.target, card.score_of(0), self.bound)

    def update(self, card: Card, gradients: np.ndarray, curvatures: np.ndarray, scale: float) -> Estimate:
        """The posterior of the mean residual: the difference of two noisy bins."""
        noise = 2 * standard_deviation(scale) ** 2
        width = TIMID * self.deviation
        return newton(gradients, curvatures, spread=self.deviation**2, noise=noise, width=width, limit=self.bound)


PRIOR = 1.0  # logits: width of the prior of a cell's points
STEEPEST = 3.0  # logits that one step moves a cell at most
NEVER = -40.0  # logits of a missing target, which is no class
CLEAR_CLASS = 4  # deviations of a cell's noise that the rows of a class must exceed; see ``rare``
CLIPPED = 1.0  # rows: L1 norm to which gradients of many classes are clipped


@dataclass(frozen=True, kw_only=True, eq=False)
class _Classes(Objective):
    """The common part of the two objectives of classes, without rows that have no class."""

    tabulates: ClassVar[bool] = True

    @property
    def column(self) -> Categorical:
        return self.schema.categorical(self.target)

    @property
    def base_parts(self) -> Spec:
        return Values(self.target)

    table_parts = base_parts

    def rows(self, everything: P) -> P:
        if not self.column.nullable:
            return everything
        return everything.partition(Groups(self.target, (self.column.values,)))

    def rare(self, answers: Sequence[SumsAnswer]) -> tuple[str, ...]:
        """Warns of classes with fewer rows than four deviations of the smallest noise of a cell.

        From four deviations on, shares were within a factor of two (docs/scorecards.md).
        """
        # Totals of many cells are noisier. Of 90 and 30 rows with noise of 10 and 20: (90 * 4 + 30) / 5 = 78.
        weights = [1 / (len(numbers) * max(scale, 1e-6) ** 2) for numbers, scale in answers]
        rows = np.average(
            [numbers[:, : self.column.cells].sum(axis=0) for numbers, _ in answers], axis=0, weights=weights
        )
        noise = min(standard_deviation(scale) for _, scale in answers)
        rare = rows < CLEAR_CLASS * noise
        return (rare_classes(self.target, self.column.values, rows, noise, rare),) if rare.any() else ()

    def log_probabilities(self, counts: np.ndarray, scale: float) -> np.ndarray:
        """The logs of the class probabilities, none below a size that noise hides."""
        # Noisy rows 990 and -4 at scale 10: 990 and 10, so probabilities of .99 and .01, not 1 and 0.
        rows = np.maximum(counts[: self.column.cells], max(scale, 1.0))
        return np.asarray(np.log(rows / rows.sum()))

    @property
    @abstractmethod
    def contrasts(self) -> np.ndarray:
        """The weights of the logs of each class in the outputs, shape (classes, outputs)."""

    def tabulated(self, card: Card, specs: Sequence[Values | Cuts], tables: list[np.ndarray], scale: float) -> Card:
        """Naive Bayes, more damped for more attributes, which repeat each other.

        The start of scores is damped too, but not scaled for noise: if tables are mostly noise, nearly all rows get the
        most frequent class.
        """
        counts = [table[:, : self.table_classes] for table in tables]
        # The total of a table of many cells is noisier: its weight is one over its cells.
        weights = np.array([1 / len(table) for table in counts])
        totals = np.average([table.sum(axis=0) for table in counts], axis=0, weights=weights)
        totals = np.maximum(totals, scale)
        damping = repeated(len(tables))
        base = tuple(round(damping * share * POINTS) for share in np.log(totals / totals.sum()) @ self.contrasts)
        card = replace(card, base=base)
        # Scaled by the root of this share of their variance, points vary as they would without noise.
        estimates = log_probabilities(counts, totals, scale)
        scales = damping * np.sqrt(reliable_probabilities(counts, estimates, totals, scale))
        for spec, estimate, factor in zip(specs, estimates, scales, strict=True):
            # Classes are counted apart, so the variances of their logs add up.
            deviations = factor * np.sqrt(np.square(estimate.deviations) @ np.square(self.contrasts))
            points = factor * (estimate.points @ self.contrasts)
            card = card.plus(spec, replace(estimate, points=points, deviations=deviations))
        return card


@dataclass(frozen=True, kw_only=True, eq=False)
class TwoClasses(_Classes):
    """The log-odds of the second declared class against the first."""

    unchosen: ClassVar[float] = 1.1

    def table_weight(self, epsilon: Epsilon, attributes: int) -> float:
        return tables_for_two(rows_epsilon(self.schema, epsilon), attributes)

    def grid(self, epsilon: Epsilon, attributes: int) -> Grid:
        if not self.table_weight(epsilon, attributes):
            return super().grid(epsilon, attributes)
        return Grid.of_tables(rows_epsilon(self.schema, epsilon) / (2 * attributes), many=False)

    @property
    def bound(self) -> float:
        """A row: gradient and curvature of one row cost one count (privacy.md 8.1)."""
        return 1.0

    @property
    def contrasts(self) -> np.ndarray:
        return np.array([[-1.0], [1.0]])

    def start(self, counts: np.ndarray, scale: float) -> tuple[Self, Card]:
        first, second = self.log_probabilities(counts, scale)
        return self, Card(self.schema, self.target, (round((second - first) * POINTS),))

    def loss(self, card: Card) -> AnyDerivatives:
        return Logistic(self.target, (self.column.values[1],), card.score_of(0))

    def update(self, card: Card, gradients: np.ndarray, curvatures: np.ndarray, scale: float) -> Estimate:
        """The posterior of a Newton step; a row's gradient has the variance of its curvature."""
        noise = standard_deviation(scale) ** 2
        step = newton(gradients, curvatures, spread=1.0, noise=noise, width=PRIOR, limit=STEEPEST)
        return step if card.terms else from_probability(step, 1 / (1 + math.exp(-card.base[0] / POINTS)), STEEPEST)


@dataclass(frozen=True, kw_only=True, eq=False)
class ManyClasses(_Classes):
    """A score for each class, whose softmax are the class probabilities.

    Tables of all attributes come first, because a count of a class costs less than a gradient, whose entries of all
    classes move. Steps then correct double counts.
    """

    def steps(self, epsilon: Epsilon, cells: Sequence[int]) -> int:
        if not self.table_weight(epsilon, len(cells)):
            return super().steps(epsilon, [self.column.cells * size for size in cells])
        return steps_after_tables(rows_epsilon(self.schema, epsilon), self.column.cells, len(cells))

    def choice(self, cells: Sequence[int]) -> float:
        return choice_fraction(len(cells), self.column.cells * float(np.mean(cells)))

    def table_weight(self, epsilon: Epsilon, attributes: int) -> float:
        size = rows_epsilon(self.schema, epsilon)
        return TABLES if tables_pay(size, self.column.cells, attributes, TABLES) else 0.0

    def grid(self, epsilon: Epsilon, attributes: int) -> Grid:
        return Grid.of_tables(rows_epsilon(self.schema, epsilon) / (self.column.cells * attributes), many=True)

    @property
    def bound(self) -> float:
        """The bound of a row's gradients and curvatures; rows with large errors count less."""
        return CLIPPED

    @property
    def contrasts(self) -> np.ndarray:
        return np.eye(self.column.cells)

    def start(self, counts: np.ndarray, scale: float) -> tuple[Self, Card]:
        base = tuple(round(share * POINTS) for share in self.log_probabilities(counts, scale))
        return self, Card(self.schema, self.target, base)

    def loss(self, card: Card) -> AnyDerivatives:
        """The cross-entropy; a missing class never occurs among the rows."""
        scores = [card.score_of(number) for number in range(self.column.cells)]
        never = [Points(base=round(NEVER * POINTS))] * int(self.column.nullable)
        return Softmax(self.target, tuple(scores + never), hessian=True, limit=CLIPPED)

    def update(self, card: Card, gradients: np.ndarray, curvatures: np.ndarray, scale: float) -> Estimate:
        """The posterior of a Newton step, separately for each class.

        Scores of all K classes move at once, which counts the difference of two classes twice: hence the factor (K - 1)
        / K (Friedman, Hastie & Tibshirani 2000, LogitBoost for J classes).
        """
        classes = self.column.cells
        noise = standard_deviation(scale) ** 2
        each = newton(
            gradients[:, :classes], curvatures[:, :classes], spread=1.0, noise=noise, width=PRIOR, limit=STEEPEST
        )
        return replace(each, points=each.points * (classes - 1) / classes)


def objective_of(schema: Schema, target: str) -> Objective:
    """Returns the objective for a target."""
    column = schema.column(target)
    if target in schema.numeric_columns:
        return Mean(schema=schema, target=target)
    return (TwoClasses if column.cells == 2 else ManyClasses)(schema=schema, target=target)
