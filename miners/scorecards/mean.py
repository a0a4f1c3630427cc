# SPDX-License-Identifier: Apache-2.0
"""A scorecard's objective for a numeric target: its mean, by residuals that are clamped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from miners.scorecards.card import Card
from miners.scorecards.cells import Grid, public_cuts
from miners.scorecards.objective import Objective
from miners.scorecards.posterior import Estimate, newton
from miners.scorecards.shares import rows_epsilon, steps_for_means
from pinq.public.accuracy import standard_deviation
from pinq.public.columns import CutPoint
from pinq.public.derivatives import LARGEST_RESIDUAL, AnyDerivatives, Residuals
from pinq.public.epsilon import Epsilon
from pinq.public.points import POINTS
from pinq.public.schema import Numeric
from pinq.public.specs import Cuts, Spec, Values, bind

__all__ = ["Mean"]

HISTOGRAM = 32  # cells of a numeric target
FARTHEST = 2.0  # standard deviations of the target beyond which residuals are clamped
TIMID = 0.5  # standard deviations of the target: width of the prior of a cell's points


@dataclass(frozen=True, kw_only=True, eq=False)
class Mean(Objective):
    """The mean of a numeric column, by residuals that are clamped.

    Attributes:
        deviation: Of the target, in grid cells, from the first answer; 0 before it.
        half: A cut with about half of the rows on each side, from the first answer; None before it.
    """

    majority: ClassVar[str] = "the mean"
    order_weight: ClassVar[float] = 0.4
    unchosen: ClassVar[float] = 1.0
    deviation: float = 0.0
    half: CutPoint | None = None

    @property
    def column(self) -> Numeric:
        """The target's declaration."""
        return self.schema.numeric(self.target)

    def steps(self, epsilon: Epsilon, attributes: int) -> int:
        """Returns how many steps a budget pays for."""
        return steps_for_means(rows_epsilon(self.schema, epsilon))

    @property
    def base_parts(self) -> Spec:
        """A coarse histogram of the target."""
        return Cuts(self.target, self._points) if self._points else Values(self.target)

    @cached_property
    def _points(self) -> tuple[CutPoint, ...]:
        return public_cuts(self.schema, self.target, Grid(HISTOGRAM))

    @property
    def table_parts(self) -> Spec:
        """The two halves of the target.

        If a mean moves by d deviations, the halves of n rows differ by 0.8 n d against the noise of
        a count, and the residuals' sum by n d against that of ``FARTHEST`` deviations.
        """
        if not self._points:
            return Values(self.target)
        return Cuts(self.target, (self._points[len(self._points) // 2] if self.half is None else self.half,))

    @property
    def bound(self) -> float:
        """The largest residual, in grid cells of the target; no larger than the layer takes."""
        # A deviation of 12.3 cells: residuals are clamped at 24.6, which is 6,297 of 256ths.
        farthest = min(FARTHEST * self.deviation, self.column.cells, LARGEST_RESIDUAL)
        # Whole 256ths of a cell, as the layer takes it.
        return max(1, int(farthest * POINTS)) / POINTS

    @property
    def noise_unit(self) -> str | None:
        """None: the bound follows from the first answer."""
        return None

    def start(self, counts: np.ndarray, scale: float) -> tuple[Self, Card]:
        """Returns mean and deviation by a histogram, without cells that noise can explain."""
        axis = bind(self.base_parts, self.schema).axes[0]
        # Cuts at cells 10 and 20 of 30: edges 0, 10, 20 and 30, and middles 4.5, 14.5 and 24.5.
        edges = np.array([0, *(axis.thresholds or range(1, self.column.cells)), self.column.cells])
        edges = np.unique(np.minimum(edges, self.column.cells))
        middles = (edges[1:] + edges[:-1] - 1) / 2
        rows = np.maximum(counts[: len(middles)] - scale, 0.0)
        if not rows.any():
            rows = np.ones(len(middles))
        mean = float(np.average(middles, weights=rows))
        deviation = float(np.sqrt(np.average((middles - mean) ** 2, weights=rows)))
        known = replace(self, deviation=max(deviation, 0.5), half=self._half(rows))
        return known, Card(self.schema, self.target, (round(mean * POINTS),))

    def _half(self, rows: np.ndarray) -> CutPoint | None:
        """Returns the cut of the histogram that is nearest to its median."""
        below = np.cumsum(rows)[: len(self._points)] / rows.sum()
        return self._points[int(np.abs(below - 0.5).argmin())] if self._points else None

    def loss(self, card: Card) -> AnyDerivatives:
        """Returns the clamped residual, with the rows."""
        return Residuals(self.target, card.score_of(0), self.bound)

    def update(self, gradients: np.ndarray, curvatures: np.ndarray, scale: float) -> Estimate:
        """Returns the posterior of the mean residual: the difference of two noisy bins."""
        noise = 2 * standard_deviation(scale) ** 2
        width = TIMID * self.deviation
        return newton(gradients, curvatures, spread=self.deviation**2, noise=noise, width=width, most=self.bound)
