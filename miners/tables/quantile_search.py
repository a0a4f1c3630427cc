# SPDX-License-Identifier: Apache-2.0
"""``Quantile`` finds several quantiles of a column, for all groups at once.

The first step is halving: ``exp_mech`` chooses the middle quantile among all cuts, with ``Balance(share)``. The cut
divides the rows into two disjoint parts. Next the middle quantile of each side is chosen; both sides together cost as
much as one. So each row takes part in about log2(k + 1) choices for k quantiles.

The second step is counting, twice: first the rows between points around the chosen cuts, then the rows in the cells
where each quantile may still lie. The counts correct a cut next to a value of many rows, and give the bounds of each
quantile (``CountedCuts``). At a point x and for a share q, the *surplus* is (1 - q) times the rows below x minus q
times the rows above. It grows with x, and passes 0 in the cell of the quantile.

Privacy:
    Only answers of ``exp_mech`` and ``noisy_count`` are released. The points of counts depend on earlier released
    answers, so losses add up (adaptive composition). Held by: tests/unit/tables/test_tables.py,
    tests/privacy/test_quantiles_and_spreads.py.

References:
    Kaplan, Schnapp & Stemmer 2022, "Differentially private approximate quantiles" (recursion).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice
from typing import cast

import numpy as np

from miners.budget.plan import PlanLine, count_line, spread
from miners.tables.columns import require_parts, within_noise
from miners.tables.statistics import NumericStatistic, TableEstimate
from pinq.analyst.queryable import Parts
from pinq.errors import QueryError
from pinq.language.scores import Balance
from pinq.language.specs import AnyCut, Cuts
from pinq.public.epsilon import Epsilon

STEP = 4  # a ladder's points are 1, 4, 16, ... cells from a chosen cut
# The most bins of the second counts for a quantile. Intervals are as narrow as with 16 bins, and a level of 0.5 holds
# in 0.69 to 0.72 of draws instead of 0.73 to 0.77 (the draws of tests/unit/tables/test_intervals.py).
PIECES = 24
LIKELY, SURE = 2.0, 3.0  # standard deviations from 0 beyond which the sign of a surplus is likely, or nearly certain


@dataclass(frozen=True)
class CountedCuts:
    """Noisy counts of the rows between some points of a column's grid.

    Attributes:
        points: The cells before which the grid is cut, increasing, at least one.
        bins: Noisy counts between the points, one more.
        scale: The scale of the noise in each count.
    """

    points: np.ndarray
    bins: np.ndarray
    scale: float
    cells: int

    def surplus(self, share: float) -> np.ndarray:
        return np.asarray(np.cumsum(self.bins)[:-1] - share * self.bins.sum())

    def deviations(self, share: float) -> np.ndarray:
        """Bounds the standard deviation of each surplus; that of a count is at most sqrt(2) scale."""
        weights, times = self.weights(share)
        return np.asarray(self.scale * np.sqrt(2 * (times * weights**2).sum(axis=1)))

    def around(self, share: float) -> tuple[int, int]:
        """The range [first, end) of the cells in which the quantile is likely."""
        surplus, off = self.surplus(share), LIKELY * self.deviations(share)
        low = max([0, *self.points[surplus < -off].tolist()])
        high = min([self.cells, *self.points[surplus > off].tolist()])
        return (low, high) if low < high else (0, self.cells)

    def crossing(self, share: float) -> int:
        """The cell where the surplus, fitted as an increasing function, passes 0.

        The increasing function that is nearest by least squares changes its sign where the running
        sum of the noisy surpluses is smallest. Between two points it is linear. Example: -30 before
        cell 40 and 10 before cell 48: three quarters of the way, cell 46.
        """
        surplus, total = self.surplus(share), max(float(self.bins.sum()), 1.0)
        before = int(np.argmin(np.concatenate([[0.0], np.cumsum(surplus)])))
        edges = np.concatenate([[0], self.points, [self.cells]])
        ends = np.concatenate([[-share * total], surplus, [(1 - share) * total]])[before : before + 2]
        low, high = int(edges[before]), int(edges[before + 1])
        part = -ends[0] / max(float(ends[1] - ends[0]), 1e-9)
        return int(np.clip(low + np.floor(part * (high - low)), low, high - 1))

    def weights(self, share: float) -> tuple[np.ndarray, np.ndarray]:
        """The two weights of the noises in each surplus, and the number of noises with each weight."""
        # Three bins, the second point: two noises are below it and weigh 1 - q, and one weighs q;
        # signs do not matter to a bound.
        below = np.arange(1, len(self.points) + 1)
        times = np.stack([below, len(self.bins) - below], axis=1)
        return np.broadcast_to([1 - share, share], times.shape), times


def ladder(thresholds: np.ndarray, cells: int) -> np.ndarray:
    """The points of the first counts: each cut, 1, 4, 16, ... cells from it, and the ends.

    Many columns have most of their rows on a bound. Example: the cut 37 of 101 cells gives 1, 21, 33, 36, 37, 38, 41,
    53, 100.
    """
    steps = STEP ** np.arange(_steps(cells))
    near = np.clip(thresholds, 1, cells - 1)[:, None]
    points = np.concatenate([[1, cells - 1], *near, *(near - steps), *(near + steps)])
    return np.unique(points[(points > 0) & (points < cells)])


def finer_points(first: CountedCuts, thresholds: np.ndarray, shares: tuple[Fraction, ...]) -> np.ndarray:
    """The points of the second counts: the cuts, and evenly the cells that a ladder leaves to a quantile."""
    points = [np.clip(thresholds, 1, first.cells - 1)]
    for share in shares:
        # If the cells 21 to 69 are left, the points are 21, 23, ..., 69.
        low, high = first.around(float(share))
        pieces = min(PIECES, high - low)
        points.append(low + np.arange(pieces + 1) * (high - low) // pieces)
    joined = np.unique(np.concatenate(points))
    return joined[(joined > 0) & (joined < first.cells)]


def located(
    chosen: int, counted: tuple[CountedCuts, CountedCuts], share: Fraction, level: float
) -> tuple[int, int, int]:
    """Finds the cell of a quantile, and its bounds.

    A chosen cut is kept unless the counts contradict it, because among widely spread rows it is more exact. If many
    rows share a value, the best cut may be anywhere in the gap next to it. Then the surplus at the cut is clearly not
    0, and the counts show the cell.

    Returns:
        The cell, and the first and the last cell that it can be.
    """
    exact, at = float(share), min(max(int(chosen), 1), counted[0].cells - 1)
    low, high = bounds(counted, exact, level)
    (surplus,), weights, times = _pooled(np.array([at]), counted, exact, after=True)
    if abs(surplus) > SURE * np.sqrt(2 * (times * (weights * _scales(counted)) ** 2).sum()):
        cell = counted[1].crossing(exact)
    else:
        cell = at if surplus < 0 else at - 1
    return (cell, cell, cell) if low > high else (min(max(cell, low), high), low, high)


def bounds(counted: tuple[CountedCuts, CountedCuts], share: float, level: float) -> tuple[int, int]:
    """The first and the last cell that can be the quantile's, at a level.

    A quantile whose cell begins at or after a point has no positive surplus there, nor at any point before. So a mean
    of such surpluses, one from each count, is positive by noise alone, and exceeds the half width of that noise with
    probability (1 - ``level``) / 2. If it does, the cells from the point to the next are rejected; likewise the cells
    before a point where the surplus is clearly negative. It misses the quantile only if one of two tests rejects the
    quantile's own cell, so the level does not depend on the number of points.
    """
    points = np.unique(np.concatenate([count.points for count in counted]))
    ends = np.concatenate([[0], points, [counted[0].cells]])
    surplus, weights, times = _pooled(points, counted, share, after=False)
    possible = np.append(True, within_noise(surplus, weights, _scales(counted), level, times))
    high = int(ends[np.flatnonzero(possible)[-1] + 1])
    surplus, weights, times = _pooled(points, counted, share, after=True)
    possible = np.append(within_noise(-surplus, weights, _scales(counted), level, times), True)
    return int(ends[np.flatnonzero(possible)[0]]), high - 1


def most_rungs(cells: int, quantiles: int) -> int:
    """Returns the largest number of bins of a ladder."""
    return min(cells, quantiles * (2 * _steps(cells) + 1) + 3)


def most_finer(cells: int, quantiles: int) -> int:
    """Returns the largest number of bins of the second counts."""
    return min(cells, quantiles * (PIECES + 2) + 1)


def _steps(cells: int) -> int:
    return (cells.bit_length() + 1) // 2


def _pooled(
    points: np.ndarray, counted: tuple[CountedCuts, CountedCuts], share: float, *, after: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means of both counts' surpluses at the nearest points at or after (or before) some cells.

    Returns:
        The means, in which the more exact count weighs more; the weights of the noises in each, shape (points, 4), the
        first two for the first count; and the number of noises with each weight.
    """
    surplus, precision, weights, times = [], [], [], []
    for count in counted:
        nearest = np.searchsorted(count.points, points, side="left" if after else "right") - (not after)
        at = np.clip(nearest, 0, len(count.points) - 1)
        pair, noises = count.weights(share)
        surplus.append(count.surplus(share)[at])
        # -12 with deviation 4 and -6 with deviation 2 weigh 1/16 and 1/4: their mean is -7.2.
        precision.append(np.where(at == nearest, count.deviations(share)[at] ** -2.0, 0.0))
        weights.append(pair[at])
        times.append(noises[at])
    parts = np.array(precision) / np.sum(precision, axis=0)
    weighed = [part[:, None] * pair for part, pair in zip(parts, weights, strict=True)]
    return (parts * surplus).sum(axis=0), np.concatenate(weighed, axis=1), np.concatenate(times, axis=1)


def _scales(counted: tuple[CountedCuts, CountedCuts]) -> np.ndarray:
    return np.repeat([count.scale for count in counted], 2)


MAX_QUANTILES = 64


@dataclass(frozen=True)
class Quantile(NumericStatistic):
    """Numbers with given shares of the values below them.

    Attributes:
        shares: The shares, increasing, between 0 and 1.
    """

    shares: tuple[Fraction, ...] = (Fraction(1, 2),)

    @property
    def _losses(self) -> list[Epsilon]:
        """The losses of the levels of choices, together one half, and of both counts."""
        levels = len(self.shares).bit_length()  # 1 for one quantile, 2 for 2 and 3, 3 for 4 to 7
        return list(spread(self.epsilon, [5] * levels + [2 * levels, 3 * levels]))

    def lines(self) -> tuple[PlanLine, ...]:
        if self._numeric.cells < 2:  # the value is public
            return ()
        require_parts(self.groups * len(self.shares))
        counts = [
            (f"rows around the cuts of {self.column}", most_rungs(self._numeric.cells, len(self.shares))),
            (f"rows near the quantiles of {self.column}", most_finer(self._numeric.cells, len(self.shares))),
        ]
        cuts, quantiles = f"cuts of {self.column} at quantiles", len(self.shares)
        return (
            *(
                PlanLine(level, cuts, "exp_mech", self.groups * min(2**level, quantiles), loss.exact)
                for level, loss in enumerate(self._losses[:-2])
            ),
            *(
                count_line(self.schema, text, self.groups * bins, loss)
                for (text, bins), loss in zip(counts, self._losses[-2:], strict=True)
            ),
        )

    def ask(self, groups: Parts) -> list[TableEstimate]:
        shape = (len(groups), len(self.shares))
        if self._numeric.cells < 2:
            value = self._numeric.shown(np.full(shape, self._numeric.number(0)))
            return self._estimates(value, value, value)
        thresholds = np.zeros(shape, dtype=np.int64)
        possible = self._cells_left(groups)
        quantiles = len(self.shares)
        level = [_Side(groups, np.arange(len(groups)), np.arange(quantiles), possible[:, 0], -1, quantiles)]
        for loss in self._losses[:-2]:
            level = [below for sides in _alike(level, self.shares) for below in self._halve(sides, thresholds, loss)]
        return self._bounded(groups, thresholds, possible)

    def _halve(self, sides: Sequence[_Side], thresholds: np.ndarray, loss: Epsilon) -> Iterator[_Side]:
        """Chooses the middle quantile of each side, in one request; yields the next sides."""
        parts = Parts.union(*(side.parts for side in sides))
        score = Balance(str(sides[0].relative(self.shares)))
        chosen = parts.exp_mech([AnyCut(self.column)], score=score, epsilon=loss.exact, reuse=self.reuse)
        # With sides of 2 groups and of 1 group, the first two answers are for the first side.
        cuts = cast("Iterator[Cuts | None]", iter(chosen))  # the answers to `AnyCut`
        for side in sides:
            yield from self._sides(side, list(islice(cuts, len(side.groups))), thresholds)

    def _sides(self, side: _Side, cuts: Sequence[Cuts | None], thresholds: np.ndarray) -> Iterator[_Side]:
        middle = side.middle
        # A part of a single cell cannot be cut: all its quantiles are that cell.
        single = np.array([cut is None for cut in cuts], dtype=bool)
        thresholds[side.groups[single, None], side.quantiles] = side.first[single, None]
        cells = np.array([self._numeric.threshold(cut.points[0], self.column) for cut in cuts if cut is not None])
        groups = side.groups[~single]
        thresholds[groups, middle] = cells
        if not len(groups) or len(side.quantiles) == 1:
            return
        halves = side.parts[~single].partition([cut for cut in cuts if cut is not None])
        # Each group has the parts below, above and, if declared, missing. With three parts each, 0,
        # 3, 6, ... are below and 1, 4, 7, ... above.
        below = np.arange(len(groups)) * (2 + int(self._numeric.nullable))
        before, after = side.quantiles[side.quantiles < middle], side.quantiles[side.quantiles > middle]
        if len(before):
            yield _Side(halves[below], groups, before, side.first[~single], side.lower, middle)
        if len(after):
            yield _Side(halves[below + 1], groups, after, cells, middle, side.upper)

    def _bounded(self, groups: Parts, thresholds: np.ndarray, possible: np.ndarray) -> list[TableEstimate]:
        """Counts rows around the chosen cuts, twice.

        Returns the quantiles, with bounds in the public ``possible`` cells.
        """
        around, near = self._losses[-2:]
        first = self._count(groups, [ladder(row, self._numeric.cells) for row in thresholds], around)
        finer = [finer_points(*group, self.shares) for group in zip(first, thresholds, strict=True)]
        counted = list(zip(first, self._count(groups, finer, near), strict=True))
        # (cell, low, high) for each group and quantile: shape (groups, quantiles, 3).
        cells = [
            [located(cut, both, share, self.level) for cut, share in zip(row, self.shares, strict=True)]
            for row, both in zip(thresholds, counted, strict=True)
        ]
        within = np.clip(np.array(cells), possible[:, :1, None], possible[:, 1:, None] - 1)
        numbers = np.vectorize(self._numeric.number, otypes=[float])(np.moveaxis(within, -1, 0))
        return self._estimates(
            *self._numeric.shown(numbers + self._numeric.half_cell * np.array([0, -1, 1])[:, None, None])
        )

    def _estimates(self, value: np.ndarray, low: np.ndarray, high: np.ndarray) -> list[TableEstimate]:
        return [
            TableEstimate(
                f"{float(100 * share):.10g} %", self.column, numbers, below, above, np.full(self.groups, np.nan)
            )
            for share, numbers, below, above in zip(self.shares, value.T, low.T, high.T, strict=True)
        ]

    def _count(self, groups: Parts, points: Sequence[np.ndarray], loss: Epsilon) -> list[CountedCuts]:
        bins, scale = self._counts_between(groups, points, loss)
        return [CountedCuts(row, counts, scale, self._numeric.cells) for row, counts in zip(points, bins, strict=True)]


@dataclass(frozen=True)
class Quartiles(Quantile):
    """The three numbers that cut a column's values in four equal shares."""

    shares: tuple[Fraction, ...] = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))


class Median(Quantile):
    """The number with half of the values below it."""

    def ask(self, groups: Parts) -> list[TableEstimate]:
        (middle,) = super().ask(groups)
        return [replace(middle, name="median")]


@dataclass(frozen=True)
class _Side:
    """One side of earlier cuts, for each group that has it, with its quantiles.

    Attributes:
        parts: The part of each group on this side.
        quantiles: The numbers of the quantiles, increasing.
        first: The first cell of each part.
        lower: The quantile at the lower end; -1 for none.
        upper: The quantile at the upper end; the number of quantiles for none.
    """

    parts: Parts
    groups: np.ndarray
    quantiles: np.ndarray
    first: np.ndarray
    lower: int
    upper: int

    @property
    def middle(self) -> int:
        return int(self.quantiles[len(self.quantiles) // 2])

    def relative(self, shares: Sequence[Fraction]) -> Fraction:
        """The share of this side's rows that lie below its middle quantile.

        Example: between the quantiles 1/2 and 1 the quantile 3/4 is the median.
        """
        below, above = (Fraction(0), *shares)[self.lower + 1], (*shares, Fraction(1))[self.upper]
        return (shares[self.middle] - below) / (above - below)


def shares_of(shares: Sequence[float | str | Fraction]) -> tuple[Fraction, ...]:
    """Reads and sorts shares of rows; raises ``QueryError`` unless they differ, between 0 and 1."""
    weights = [Balance(str(share) if isinstance(share, Fraction) else share).weights for share in shares]
    exact = sorted({Fraction(above, below + above) for below, above in weights})
    if not 0 < len(exact) == len(shares) <= MAX_QUANTILES:
        raise QueryError(
            f"is {list(shares)!r}",
            parameter="shares",
            allowed=f"1 to {MAX_QUANTILES} different numbers between 0 and 1",
        )
    return tuple(exact)


def _alike(sides: Sequence[_Side], shares: Sequence[Fraction]) -> list[list[_Side]]:
    """Groups the sides by the share of their middle quantile, for one request each."""
    alike: dict[Fraction, list[_Side]] = {}
    for side in sides:
        alike.setdefault(side.relative(shares), []).append(side)
    return list(alike.values())
