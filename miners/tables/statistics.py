# SPDX-License-Identifier: Apache-2.0
"""``Statistic`` is one number of one column for each group: its queries, and its value from their answers.

Variances are computed from noisy counts in bins that widen with their distance from a median. A row at distance d from
the mean adds d^2, so noise matters most in far bins, and a wrong middle in bins of many rows.

Privacy:
    Claim: variances and intervals are free (post-processing of counts and of a chosen cut).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np

from miners.budget.plan import PlanLine, count_line, spread
from miners.tables.columns import (
    half_width,
    is_categorical,
    missing_apart,
    require_parts,
    scale_of,
)
from pinq.analyst.answers import NoisyArray
from pinq.analyst.queryable import Parts
from pinq.language.scores import Balance
from pinq.language.specs import MAX_PARTS, AnyCut, Cuts, Groups, Spec, Values, bind
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Numeric, Schema

FAR, NEAR = 0.4, 0.25  # width of a bin relative to its distance, at the end of the grid and near the median
NARROWEST = 0.2
EMPTY = 3.5  # standard deviations of noise up to which the counts beyond a point are set to 0


def widening_edges(middle: int, cells: int, exactness: float) -> np.ndarray:
    """Cuts a grid into bins that widen from a cell in its middle to both ends.

    With D cells from the middle to an end, a bin that ends at distance d starts at d / (1 + max(NEAR, FAR d / D)); both
    factors shrink like ``exactness`` to the power -0.4, at which coarseness (about their square) and noise (about their
    inverse root) balance. Example: from cell 50 of 101 for 20,000 rows at epsilon 0.1: 50 to 57, 59, 61, 64, 68, 72,
    78, 86, 101 and as many below.

    Args:
        middle: A cell with other cells on both sides.
        cells: The number of cells of the grid.
        exactness: Epsilon times the number of rows, both public.

    Returns:
        The first cell of each bin, and ``cells``.
    """
    # Bins become narrower above 2,000 rows times epsilon.
    shrink = max(NARROWEST, min(1.0, (2000.0 / exactness) ** 0.4))
    edges = {middle}
    for length, sign in ((middle, -1), (cells - middle, 1)):
        distance = length
        while distance >= 1:
            edges.add(middle + sign * distance)
            factor = 1 + shrink * max(NEAR, FAR * distance / length)
            distance = min(distance - 1, round(distance / factor))
    return np.array(sorted(edges), dtype=np.int64)


def most_edges(cells: int, exactness: float) -> int:
    """An upper bound of the number of bins of ``widening_edges``, as if both sides had all cells."""
    return min(cells, 2 * len(widening_edges(0, cells, exactness)))


def without_empty_ends(counts: np.ndarray, scale: float) -> np.ndarray:
    """Sets counts at the ends that noise alone can explain to 0.

    From each end, bins are added up until the sum is more than ``EMPTY`` standard deviations of its noise. The last bin
    added gets the sum, and the bins before it get 0.
    """
    cleaned = counts.astype(np.float64)
    for ends in (cleaned, cleaned[::-1]):
        sums = np.cumsum(ends)
        plain = np.flatnonzero(sums > EMPTY * scale * np.sqrt(2 * np.arange(1, len(ends) + 1)))
        first = int(plain[0]) if len(plain) else len(ends)
        ends[first : first + 1] = sums[first : first + 1]
        ends[:first] = 0
    return cleaned


def moments_of_bins(edges: np.ndarray, counts: np.ndarray, *, whole: bool) -> tuple[np.ndarray, np.ndarray]:
    """The mean position of the rows of each bin, and their variance around it, in cells.

    The density at both ends of a bin is that of a line through the neighbouring bins.

    Args:
        edges: The first cell of each bin, and the number of cells.
        counts: Rows of each bin.
        whole: Whether cells are points (whole numbers), not intervals.
    """
    widths = np.diff(edges).astype(np.float64)
    middles, within = (edges[:-1] + edges[1:] - 1) / 2, (widths**2 - float(whole)) / 12
    density = np.maximum(counts, 0) / widths
    outside = np.concatenate([[0.0], density, [0.0]])
    at = np.concatenate([[middles[0] - widths[0]], middles, [middles[-1] + widths[-1]]])
    # Bins of cells 0-9 and 10-19 with 10 and 30 rows: around the first middle the density rises by 3
    # over 20 cells, 0.15 of itself per cell. So the mean of its rows is 5.75, not 4.5.
    slope = (outside[2:] - outside[:-2]) / (at[2:] - at[:-2])
    relative = np.divide(slope, density, out=np.zeros_like(density), where=density > 0)
    shift = np.clip(relative, -2 / widths, 2 / widths) * within
    return middles + shift, within - shift**2


def spread_of(counts: np.ndarray, middles: np.ndarray, within: np.ndarray) -> float:
    """The variance of rows in bins; see ``moments_of_bins``."""
    rows = max(float(counts.sum()), 1.0)
    # Bins of 10 and 30 rows around 2 and 6, each with variance 1: mean 5, variance
    # (10 * (9 + 1) + 30 * (1 + 1)) / 40 = 4.
    mean = float(counts @ middles) / rows
    return float(counts @ ((middles - mean) ** 2 + within)) / rows


def spread_bounds(
    counts: np.ndarray, first: np.ndarray, last: np.ndarray, scale: float, level: float
) -> tuple[float, float]:
    """Bounds of the variance of rows, wherever they lie in their bins, at a level.

    About any point c the mean squared distance of rows is at least their variance, and about their mean it is the
    variance. So with n rows in a bin, at least d and at most D from c, the variance is at most sum n D^2 / sum n for
    any c, and at least sum n d^2 / sum n for the c for which that is least. If the variance were less than v, sum n
    (d^2 - v) would be negative, also without the bins whose d^2 is more than v. So far bins of mere noise can be left
    out. With noisy counts such a sum is above the half width of its noise with probability (1 - ``level``) / 2 at most;
    likewise on the other side (inversion of tests).
    """
    rows = float(counts.sum())
    if rows <= half_width(np.ones(1), scale, level, times=len(counts)):
        return 0.0, float("inf")
    cleaned = without_empty_ends(counts, scale)
    centre = _nearest(first, last, cleaned)
    far = np.maximum(last - centre, centre - first) ** 2
    high = (counts @ far + half_width(far - counts @ far / rows, scale, level)) / rows
    near = np.maximum(np.maximum(first - centre, centre - last), 0) ** 2
    inner = (cleaned != 0) | (near <= max(cleaned @ near / max(float(cleaned.sum()), 1.0), near.min()))
    first, last, counts, rows = first[inner], last[inner], counts[inner], max(float(counts[inner].sum()), 1.0)
    centre = _nearest(first, last, counts)
    near = np.maximum(np.maximum(first - centre, centre - last), 0) ** 2
    low = (counts @ near - half_width(near - counts @ near / rows, scale, level)) / rows
    return max(float(low), 0.0), float(high)


def _nearest(first: np.ndarray, last: np.ndarray, counts: np.ndarray) -> float:
    """The point with the least mean squared distance of rows, each as near as its bin permits."""
    weights = np.maximum(counts, 0) + 1e-9
    centre = float(np.average((first + last) / 2, weights=weights))
    # Each step shrinks by the share of rows whose bin contains the point.
    for _ in range(30):
        # Rows in bins 0-9 and 20-29 are nearest to 14.5 at 9 and 20; their mean is the next point.
        centre = float(np.average(np.clip(centre, first, last), weights=weights))
    return centre


MIN_BINS, MAX_BINS = 8, 256


@dataclass(frozen=True)
class TableEstimate:
    """One number for each group, all of shape (groups,).

    Attributes:
        name: The statistic: ``mean``, ``25 %``, ...
        column: The column; empty for a statistic of rows.
        value: The numbers; or dates, datetime64.
        low: The lower ends of their intervals.
        high: The upper ends.
        scale: The scale of the noise in each; NaN if no single noise was added.
        of: The counted value of the column, for a count of one value.
    """

    name: str
    column: str
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    scale: np.ndarray
    of: object = None


@dataclass(frozen=True)
class Statistic(ABC):
    """A statistic of one column, for all groups at once.

    Attributes:
        where: Splits, and the numbers of their parts, that the rows of each group must be in.
    """

    schema: Schema
    column: str
    epsilon: Epsilon
    level: float
    groups: int
    reuse: bool
    where: tuple[tuple[Spec, int], ...] = ()

    def __post_init__(self) -> None:
        """Refuses a column without this statistic, before any query.

        It must exist here, because a dataclass calls only a method that exists when it is decorated.
        """
        self.schema.column(self.column or next(iter(self.schema.columns)))

    @abstractmethod
    def lines(self) -> tuple[PlanLine, ...]:
        """The queries, for a plan."""

    @abstractmethod
    def ask(self, groups: Parts) -> list[TableEstimate]:
        """Queries all groups, which are a flat collection."""

    def within(self, groups: Parts) -> Parts:
        """The part of each group that is in the parts of ``where``."""
        for spec, index in self.where:
            # Of three groups, each split into 2 parts, the second parts are those at 1, 3 and 5.
            groups = groups.partition(spec)[np.arange(self.groups) * bind(spec, self.schema).size + index]
        return groups

    def notes(self, estimates: Sequence[TableEstimate]) -> list[str]:
        return []

    def _released(self, name: str, answer: NoisyArray) -> TableEstimate:
        low, high = answer.interval(self.level)
        values = answer.view(np.ndarray).ravel()
        scale = np.broadcast_to(np.asarray(answer.scale, dtype=float).reshape(-1), values.shape)
        return TableEstimate(name, self.column, values, np.ravel(low), np.ravel(high), scale)


class NumericStatistic(Statistic):
    """A statistic of a numeric column; raises ``QueryError`` for another column."""

    of_cells: ClassVar[str] = "intervals allow for half a cell"  # the effect of reading values in grid cells

    @property
    def _numeric(self) -> Numeric:
        return self.schema.numeric(self.column)

    @property
    def _ends(self) -> np.ndarray:
        numeric = self._numeric
        return np.asarray(numeric.shown(np.array([numeric.number(0), numeric.number(numeric.cells - 1)])))

    def __post_init__(self) -> None:
        self.schema.numeric(self.column)

    def _cells_left(self, groups: Parts) -> np.ndarray:
        """The cells [first, end) that splits leave to each group, shape (groups, 2).

        A group of missing values only has all cells.
        """
        intervals = [part.interval(self.column, self._numeric) for part in groups.part_set]
        cells = [(first, end) if first < end else (0, self._numeric.cells) for first, end in intervals]
        return np.array(cells, dtype=np.int64)

    def _counts_between(
        self, groups: Parts, points: Sequence[np.ndarray], epsilon: Epsilon
    ) -> tuple[list[np.ndarray], float]:
        """Counts the rows of each group between its points, without missing values.

        Several queries of disjoint groups cost as much as one.

        Returns:
            The noisy counts of each group, one more than ``points``; and the scale of their noise.
        """
        specs = [Cuts(self.column, tuple(map(self._numeric.cut_before, row.tolist()))) for row in points]
        bins, scale, counts = np.array([len(row) + 1 for row in points]), 0.0, list[np.ndarray]()
        step = MAX_PARTS // int(bins.max() + self._numeric.nullable)
        for start in range(0, len(specs), step):
            some = slice(start, start + step)
            answer = groups[some].partition(specs[some]).noisy_count(epsilon=epsilon.exact, reuse=self.reuse)
            # Groups of 3 and 2 bins, each with a last part for missing values: the answer is split into 4
            # and 3 numbers, of which the first 3 and 2 are kept.
            by_group = np.split(+answer, np.cumsum(bins[some] + self._numeric.nullable)[:-1])
            counts += [row[:each] for row, each in zip(by_group, bins[some], strict=True)]
            scale = scale_of(answer)
        return counts, scale

    def notes(self, estimates: Sequence[TableEstimate]) -> list[str]:
        """Notes a grid that is coarser than the values, and uninformative intervals."""
        numeric, notes = self._numeric, list[str]()
        if numeric.half_cell:
            cell = f"{float(numeric.width):.6g}{numeric.unit}"
            notes.append(f"values of `{self.column}` are read in grid cells of {cell}; {self.of_cells}")
        ends = self._ends
        of_kind = [each for each in estimates if each.value.dtype.kind == ends.dtype.kind and numeric.cells > 1]
        vague = [each.name for each in of_kind if ((each.low <= ends[0]) & (each.high >= ends[1])).any()]
        if vague:
            place = " of some groups" if self.groups > 1 else ""
            notes.append(
                f"epsilon is too small for {', '.join(vague)} of `{self.column}`: the interval{place} is as wide as "
                "the declared range allows"
            )
        return notes


class CountStatistic(Statistic):
    """The number of rows of each group, including missing values."""

    def lines(self) -> tuple[PlanLine, ...]:
        return (count_line(self.schema, "rows", self.groups, self.epsilon),)

    def ask(self, groups: Parts) -> list[TableEstimate]:
        return [self._released("count", groups.noisy_count(epsilon=self.epsilon.exact, reuse=self.reuse))]


class Missing(Statistic):
    """The number of missing values: 0 if the policy declares none, without a query."""

    def lines(self) -> tuple[PlanLine, ...]:
        return (count_line(self.schema, f"rows without {self.column}", self.groups, self.epsilon),)

    def ask(self, groups: Parts) -> list[TableEstimate]:
        if is_categorical(self.schema, self.column):
            parts = groups.partition(Groups(self.column, ((None,),)))
        else:
            # Each group has three parts: rows below a cut, above it, and without a value. Take the third.
            spec, last = missing_apart(self.schema, self.column)
            parts = groups.partition(spec)[np.arange(self.groups) * (last + 1) + last]
        return [self._released("missing", parts.noisy_count(epsilon=self.epsilon.exact, reuse=self.reuse))]


class MeanStatistic(NumericStatistic):
    """The average of the values that are not missing."""

    def lines(self) -> tuple[PlanLine, ...]:
        return (PlanLine(0, f"average {self.column}", "noisy_avg", self.groups, self.epsilon.exact),)

    def ask(self, groups: Parts) -> list[TableEstimate]:
        answer = groups.noisy_avg(self.column, epsilon=self.epsilon.exact, reuse=self.reuse)
        mean, column = self._released("mean", answer), self._numeric
        # Each value is up to half a cell (for dates a number of days) from the averaged number.
        nothing, half = column.shown(np.array([0.0, column.half_cell]))
        return [replace(mean, low=mean.low - (half - nothing), high=mean.high + (half - nothing))]


class SumStatistic(NumericStatistic):
    """The sum of the values, clamped to the declared bounds; raises ``QueryError`` for dates."""

    of_cells = "the interval of a sum holds the sum of the cells' middles"

    def notes(self, estimates: Sequence[TableEstimate]) -> list[str]:
        return super().notes([])

    def __post_init__(self) -> None:
        self.schema.addable(self.column)

    def lines(self) -> tuple[PlanLine, ...]:
        return (PlanLine(0, f"sum of {self.column}", "noisy_sum", self.groups, self.epsilon.exact),)

    def ask(self, groups: Parts) -> list[TableEstimate]:
        return [self._released("sum", groups.noisy_sum(self.column, epsilon=self.epsilon.exact, reuse=self.reuse))]


class Variance(NumericStatistic):
    """The mean squared distance from the mean, from noisy counts in bins.

    A tenth of epsilon chooses a median; bins widen from there (``widening_edges``). On a grid of few cells each cell is
    counted, without a median.
    """

    @property
    def _exactness(self) -> float:
        """Epsilon for a row, times the rows of each group if all had equal parts of ``max_rows``."""
        return float(self.epsilon.per_row(self.schema.distance)) * self.schema.max_rows / self.groups

    @property
    def _by_cell(self) -> bool:
        """Whether the grid has at most as many cells as the best number of equal bins.

        In units of the squared range, B even bins cost about 1 / (12 B^2), and noise in B counts of
        n rows costs about 0.16 sqrt(B) / (epsilon n); the sum is least at B = (2.1 epsilon n)^(2/5).
        """
        return self._numeric.cells <= np.clip((2.1 * self._exactness) ** 0.4, MIN_BINS, MAX_BINS)

    @property
    def _losses(self) -> tuple[Epsilon, Epsilon]:
        counting, choosing = spread(self.epsilon, [9, 1])
        return choosing, counting

    def lines(self) -> tuple[PlanLine, ...]:
        cells = self._numeric.cells
        if cells < 2:  # its value is public
            return ()
        if self._by_cell:
            return (count_line(self.schema, f"rows by {self.column}", cells * self.groups, self.epsilon),)
        bins, (choosing, counting) = most_edges(cells, self._exactness) * self.groups, self._losses
        return (
            PlanLine(0, f"median of {self.column}", "exp_mech", self.groups, choosing.exact),
            count_line(self.schema, f"rows in bins of {self.column} around it", bins, counting),
        )

    def ask(self, groups: Parts) -> list[TableEstimate]:
        numeric = self._numeric
        if numeric.cells < 2:
            nothing = np.zeros(self.groups)
            return [self._estimate(nothing, nothing, nothing)]
        possible = self._cells_left(groups)
        edges = self._edges(groups, possible[:, 0])
        points, loss = [row[1:-1] for row in edges], self.epsilon if self._by_cell else self._losses[1]
        counts, scale = self._counts_between(groups, points, loss)
        # Squared cells become the column's squared units: times 100 for cells of width 10.
        ends = [
            self._bounded(*group, scale) for group in zip(edges, counts, possible[:, 1] - possible[:, 0], strict=True)
        ]
        return [self._estimate(*np.array(ends).T * float(numeric.width) ** 2)]

    def _edges(self, groups: Parts, first: np.ndarray) -> list[np.ndarray]:
        cells = self._numeric.cells
        if self._by_cell:
            return [np.arange(cells + 1)] * self.groups
        loss, _ = self._losses
        chosen = groups.exp_mech([AnyCut(self.column)], score=Balance(), epsilon=loss.exact, reuse=self.reuse)
        medians = [
            min(max(int(cell), 1), cells - 1) if cut is None else self._numeric.threshold(cut.points[0], self.column)
            for cut, cell in zip(cast("Sequence[Cuts | None]", chosen), first, strict=True)  # None of a single cell
        ]
        return [widening_edges(median, cells, self._exactness) for median in medians]

    def _bounded(self, edges: np.ndarray, counts: np.ndarray, cells: int, scale: float) -> tuple[float, float, float]:
        cleaned, half = without_empty_ends(counts, scale), self._numeric.half_cell / float(self._numeric.width)
        value = spread_of(cleaned, *moments_of_bins(edges, cleaned, whole=self._numeric.integer))
        low, high = spread_bounds(counts, edges[:-1] - half, edges[1:] - 1 + half, scale, self.level)
        # The largest variance has half of the rows at each end: 25 for cells 0 to 10.
        low, high = np.clip([low, high], 0, (cells - 1 + 2 * half) ** 2 / 4)
        return min(max(value, low), high), low, high

    @property
    def _ends(self) -> np.ndarray:
        variance = np.array([(self._numeric.cells - 1) ** 2 / 4]) * float(self._numeric.width) ** 2
        widest = self._estimate(variance, 0 * variance, variance)
        return np.append(widest.low, widest.high)

    def _estimate(self, value: np.ndarray, low: np.ndarray, high: np.ndarray) -> TableEstimate:
        return TableEstimate("variance", self.column, value, low, high, np.full(self.groups, np.nan))


class StandardDeviation(Variance):
    """The square root of the variance."""

    def _estimate(self, value: np.ndarray, low: np.ndarray, high: np.ndarray) -> TableEstimate:
        value, low, high = (np.sqrt(numbers) for numbers in (value, low, high))
        return TableEstimate("std", self.column, value, low, high, np.full(self.groups, np.nan))


class ValueCounts(Statistic):
    """The number of rows of each value of a categorical column, missing values last."""

    def lines(self) -> tuple[PlanLine, ...]:
        values = self.schema.categorical(self.column).codes
        require_parts(values * self.groups)
        return (count_line(self.schema, f"rows by {self.column}", values * self.groups, self.epsilon),)

    def ask(self, groups: Parts) -> list[TableEstimate]:
        labels = self.schema.categorical(self.column).labels
        answer = groups.partition(Values(self.column)).noisy_count(epsilon=self.epsilon.exact, reuse=self.reuse)
        low, high = answer.interval(self.level)
        by_value = [np.reshape(numbers, (self.groups, len(labels))).T for numbers in (+answer, low, high)]
        scale = np.full(self.groups, scale_of(answer))
        return [
            TableEstimate("missing" if label is None else "count", self.column, value, below, above, scale, label)
            for label, value, below, above in zip(labels, *by_value, strict=True)
        ]
