# SPDX-License-Identifier: Apache-2.0
"""The range of a numeric target's rows, within bounds that may be a thousand times too wide.

Noise in sums of a target is as wide as the range to which its values are clamped. So miners query a coarse histogram of
the target, then one of the range that it shows, and clamp to the range of the last one.

Privacy:
    Claim: free beside the histograms. Why: the range is a function of noisy counts, and later queries may follow from
    earlier answers (privacy.md 1.2). Held by: tests/unit/growth/test_target_range.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from miners.growth.candidates import Grid, public_cuts
from pinq.language.specs import Cuts, Spec, Values, bind
from pinq.public.columns import CutPoint
from pinq.public.epsilon import standard_deviation
from pinq.public.schema import Numeric, Schema

HISTOGRAM = 32  # bins
PLAIN = 7.0  # deviations above which a count is no noise: noise is once in 40,000, in one of 60 bins once in 650 fits


@dataclass(frozen=True)
class TargetRange:
    """The known range of a target's rows.

    Attributes:
        within: The first cell of the range of the rows, and the first cell above it; None before the first answer, or
            if that shows none.
    """

    schema: Schema
    target: str
    within: tuple[int, int] | None = None

    @property
    def column(self) -> Numeric:
        return self.schema.numeric(self.target)

    @property
    def ends(self) -> tuple[CutPoint, CutPoint] | None:
        """The lowest and the highest value of the range, in the form of queries; None for the bounds."""
        if self.within is None or self.column.cells < 2:
            return None
        # A range of one cell is not narrower than that cell and a neighbour.
        first = min(self.within[0], self.column.cells - 2)
        last = max(self.within[1] - 1, first + 1)
        return self.column.point(self.column.number(first)), self.column.point(self.column.number(last))

    @property
    def parts(self) -> Spec:
        """A coarse histogram of the target, or of the range where its rows are."""
        return Cuts(self.target, self.points) if self.points else Values(self.target)

    @cached_property
    def points(self) -> tuple[CutPoint, ...]:
        """Its cuts; none if the target has a single cell."""
        if self.within is None:
            return public_cuts(self.schema, self.target, Grid(HISTOGRAM))
        first, end = self.within
        # Cells 100 to 499: cuts before cells 100, 112, 125, ... and 500.
        cells = np.unique(first + np.arange(HISTOGRAM + 1) * (end - first) // HISTOGRAM)
        return tuple(self.column.cut_before(cell) for cell in cells.tolist() if 0 < cell < self.column.cells)

    @cached_property
    def edges(self) -> np.ndarray:
        """The first cell of each bin, and the number of cells."""
        axis = bind(self.parts, self.schema).axes[0]
        # Cuts at cells 10 and 20 of 30: edges 0, 10, 20 and 30.
        edges = np.array([0, *(axis.thresholds or range(1, self.column.cells)), self.column.cells])
        return np.unique(np.minimum(edges, self.column.cells))

    def nearer(self, counts: np.ndarray, scale: float) -> TargetRange:
        """The range from the first to the last sum of counts that is no noise; unchanged for none."""
        edges, deviation, ends = self.edges, standard_deviation(scale), list[int]()
        counts = counts[: len(edges) - 1]
        for rows in (counts, counts[::-1]):
            # A sum of four bins has twice the noise of one; a single bin may stand out where their sum does not.
            plain = np.maximum(np.cumsum(rows) / np.sqrt(np.arange(1, len(edges))), rows) > PLAIN * deviation
            ends.append(int(plain.argmax()) if plain.any() else len(edges))
        before, after = ends[0], len(edges) - 1 - ends[1]
        if before >= after:
            return self
        # Rows too few to be plain lie beside a range of several bins: of bins of 50 cells from 200 to
        # 299, cells 150 to 349. So they do where plain bins have too few of all rows: beside a bin of
        # 50 cells with 600 of 2,400 rows, three times as many cells.
        first, end = int(edges[before]), int(edges[after])
        width = end - first - int(np.diff(edges[before : after + 1]).max())
        width = max(width, round((counts.sum() / counts[before:after].sum() - 1) * (end - first)))
        return replace(self, within=(max(0, first - width), min(self.column.cells, end + width)))

    def widened(self, cells: float) -> TargetRange:
        """The range, widened to so many grid cells, evenly if the bounds allow."""
        if self.within is None:
            return self
        first, end = self.within
        width = max(end - first, math.floor(min(cells, self.column.cells)))
        first = min(max(0, first - (width - (end - first)) // 2), self.column.cells - width)
        return replace(self, within=(first, first + width))

    def moments(self, counts: np.ndarray, scale: float) -> tuple[float, float, np.ndarray]:
        """Mean and deviation in grid cells, and rows of each bin, without bins that noise can explain."""
        middles = (self.edges[1:] + self.edges[:-1] - 1) / 2
        if self.within is not None:  # rows outside count as its ends, as values are clamped
            middles = np.clip(middles, self.within[0], self.within[1] - 1)
        rows = np.maximum(counts[: len(middles)] - scale, 0.0)
        if not rows.any():
            rows = np.ones(len(middles))
        mean = float(np.average(middles, weights=rows))
        return mean, float(np.sqrt(np.average((middles - mean) ** 2, weights=rows))), rows

    def doubts(self, deviation: float) -> tuple[str, ...]:
        """Warns that no range was found, or that cells are wider than this deviation; empty for none."""
        low, high = self.column.bounds
        if self.within is None:
            return (
                f"epsilon is too small to find where `{self.target}` lies from {low} to {high}: predictions may be far "
                "off; narrower bounds, or a larger `epsilon`, are needed.",
            )
        # The rounding of values that deviate by less than a cell is a twelfth of their variance and more.
        if self.column.half_cell and deviation < 1.0:
            return (
                f"`{self.target}` is read in grid cells of {float(self.column.width):.6g}, about as wide as its values "
                "spread: what is finer cannot be learned; the policy may declare a smaller `step`.",
            )
        return ()
