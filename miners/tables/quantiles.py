# SPDX-License-Identifier: Apache-2.0
"""``Quantiles`` finds several quantiles of a column, of all groups at once, by recursive halving.

The middle one of the quantiles is chosen first, by ``exp_mech`` among all cuts with
``Balance(share)``. It cuts the rows in two, which are disjoint: on each side the middle one of the
quantiles that are left is chosen next, and both sides cost what one costs. So k quantiles take
about log2(k + 1) choices on the way of a row, not k. Quartiles of ages: the median 37 first, then
the median of those below and the median of those above. Last, rows are counted between points
around the chosen cuts, which says on which side of a cut the quantile lies and within which bounds.

Privacy:
    Nothing is released here but answers of ``exp_mech`` and ``noisy_count``; where to count follows
    from the cuts that were chosen. Held by: tests/unit/tables/test_quantiles.py, which compares the
    bill with the plan.

References:
    Kaplan, Schnapp & Stemmer 2022, "Differentially private approximate quantiles" (recursion).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

import numpy as np

from miners.budget.plan import PlanLine
from miners.tables.columns import count_line
from miners.tables.noise import half_width, scale_of
from pinq.analyst.queryable import Parts
from pinq.errors import QueryError
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Numeric, Schema
from pinq.public.scores import Balance
from pinq.public.specs import AnyCut, Cuts

__all__ = ["Quantiles", "levels_of", "shares_of"]

COUNTING = 2  # one part in so many of epsilon says how far the quantiles may be off
MAX_QUANTILES = 64


@dataclass(frozen=True)
class Located:
    """Quantiles of each group, numbers or dates, all of shape (groups, quantiles)."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Quantiles:
    """Which quantiles of which column.

    Attributes:
        schema: The public columns.
        column: A numeric column.
        shares: The share of rows below each quantile, increasing.
        epsilon: Loss of all.
        level: Of the intervals.
        reuse: Whether stored answers will do.
    """

    schema: Schema
    column: str
    shares: tuple[Fraction, ...]
    epsilon: Epsilon
    level: float
    reuse: bool = False

    @property
    def _numeric(self) -> Numeric:
        return self.schema.numeric(self.column)

    @property
    def _each_level(self) -> Epsilon:
        """The loss of one level of choices."""
        return (self.epsilon - self.epsilon // COUNTING) // levels_of(len(self.shares))

    def lines(self, groups: int) -> tuple[PlanLine, ...]:
        """The plan's lines: a level of choices each, then the counts."""
        if self._numeric.cells < 2:  # its value is public
            return ()
        asked = f"cuts of {self.column} at quantiles"
        lines = [
            PlanLine(level, asked, "exp_mech", groups * min(2**level, len(self.shares)), self._each_level.exact)
            for level in range(levels_of(len(self.shares)))
        ]
        bins = groups * len(self.shares) * 2 * self._numeric.cells.bit_length()
        return (
            *lines,
            count_line(self.schema, f"rows around the cuts of {self.column}", bins, self.epsilon // COUNTING),
        )

    def ask(self, groups: Parts) -> Located:
        """Asks, for each of the groups, which are a flat collection."""
        shape = (len(groups), len(self.shares))
        if self._numeric.cells < 2:
            value = self._numeric.shown(np.full(shape, self._numeric.number(0)))
            return Located(value, value, value)
        thresholds = np.zeros(shape, dtype=np.int64)
        level = [_Side.whole(groups, len(self.shares))]
        for _ in range(levels_of(len(self.shares))):
            level = [below for sides in _alike(level, self.shares) for below in self._halve(sides, thresholds)]
        return self._bounded(groups, thresholds)

    def _halve(self, sides: Sequence[_Side], thresholds: np.ndarray) -> Iterator[_Side]:
        """Chooses the middle quantile of each side, in one request; yields the next sides."""
        parts = Parts.union(*(side.parts for side in sides))
        score = Balance(str(sides[0].relative(self.shares)))
        chosen = parts.exp_mech([AnyCut(self.column)], score=score, epsilon=self._each_level.exact, reuse=self.reuse)
        start = 0
        for side in sides:
            cuts = cast("Sequence[Cuts | None]", chosen[start : start + len(side.groups)])  # of `AnyCut`
            start += len(side.groups)
            yield from self._sides(side, cuts, thresholds)

    def _sides(self, side: _Side, cuts: Sequence[Cuts | None], thresholds: np.ndarray) -> Iterator[_Side]:
        middle = side.middle
        # A part of a single cell has nothing to cut: all its quantiles are that cell.
        single = np.array([cut is None for cut in cuts], dtype=bool)
        thresholds[side.groups[single, None], side.quantiles] = side.first[single, None]
        cells = np.array([self._numeric.threshold(cut.points[0], self.column) for cut in cuts if cut is not None])
        groups = side.groups[~single]
        thresholds[groups, middle] = cells
        if not len(groups) or len(side.quantiles) == 1:
            return
        halves = side.parts[~single].partition([cut for cut in cuts if cut is not None])
        children = 2 + int(self._numeric.nullable)
        # Of each group come the parts below, above and, where there are such, missing: of three,
        # the parts 0, 3, 6, ... are below and 1, 4, 7, ... above.
        before, after = side.quantiles[side.quantiles < middle], side.quantiles[side.quantiles > middle]
        if len(before):
            parts = halves[np.arange(len(groups)) * children]
            yield _Side(parts, groups, before, side.first[~single], side.lower, middle)
        if len(after):
            parts = halves[np.arange(len(groups)) * children + 1]
            yield _Side(parts, groups, after, cells, middle, side.upper)

    def _bounded(self, groups: Parts, thresholds: np.ndarray) -> Located:
        """Counts rows around the chosen cuts; returns the quantiles' cells with their bounds."""
        points = [_ladder(row, self._numeric.cells) for row in thresholds]
        specs = [Cuts(self.column, tuple(self._numeric.cut_before(int(cell)) for cell in row)) for row in points]
        counts = groups.partition(specs).noisy_count(epsilon=(self.epsilon // COUNTING).exact, reuse=self.reuse)
        cells = np.zeros((3, *thresholds.shape))
        scale, start = scale_of(counts), 0
        for group, row in enumerate(points):
            bins = (+counts)[start : start + len(row) + 1]
            start += len(row) + 1 + int(self._numeric.nullable)
            for number, share in enumerate(self.shares):
                threshold = thresholds[group, number]
                cells[:, group, number] = _crossing(bins, row, threshold, share, scale, self.level, self._numeric.cells)
        numbers = np.vectorize(self._numeric.number, otypes=[float])(cells)
        return Located(*self._numeric.shown(numbers))


@dataclass(frozen=True)
class _Side:
    """One side of the cuts above, of each group that has it, with the quantiles that lie there.

    Attributes:
        parts: Of each group the part on this side.
        groups: Which groups these are.
        quantiles: The numbers of the quantiles, increasing.
        first: The first cell of each part.
        lower: The quantile at the lower end; -1 for none.
        upper: The quantile at the upper end; as many as there are for none.
    """

    parts: Parts
    groups: np.ndarray
    quantiles: np.ndarray
    first: np.ndarray
    lower: int
    upper: int

    @classmethod
    def whole(cls, groups: Parts, quantiles: int) -> _Side:
        """All rows of each group."""
        each = np.arange(len(groups))
        return cls(groups, each, np.arange(quantiles), np.zeros(len(groups), dtype=np.int64), -1, quantiles)

    @property
    def middle(self) -> int:
        """The quantile that is chosen here."""
        return int(self.quantiles[len(self.quantiles) // 2])

    def relative(self, shares: Sequence[Fraction]) -> Fraction:
        """The share of this side's rows that lie below its middle quantile.

        Example: between the quantiles 1/2 and 1 the quantile 3/4 is the median.
        """
        below, above = (Fraction(0), *shares)[self.lower + 1], (*shares, Fraction(1))[self.upper]
        return (shares[self.middle] - below) / (above - below)


def shares_of(shares: Sequence[float | str | Fraction]) -> tuple[Fraction, ...]:
    """Reads and sorts shares of rows. ``QueryError`` unless they differ, between 0 and 1."""
    weights = [Balance(_exact(share)).weights for share in shares]
    listed = sorted({Fraction(above, below + above) for below, above in weights})
    if not 0 < len(listed) == len(shares) <= MAX_QUANTILES:
        raise QueryError(
            f"is {list(shares)!r}",
            parameter="shares",
            allowed=f"1 to {MAX_QUANTILES} different numbers between 0 and 1",
        )
    return tuple(listed)


def levels_of(quantiles: int) -> int:
    """Returns how many levels find so many quantiles: 1 for 1, 2 for 2 and 3, 3 for 4 to 7."""
    return quantiles.bit_length()


def _exact(share: float | str | Fraction) -> float | str:
    return str(share) if isinstance(share, Fraction) else share


def _alike(sides: Sequence[_Side], shares: Sequence[Fraction]) -> list[list[_Side]]:
    """Collects the sides whose middle quantile is at the same share: one request each."""
    alike: dict[Fraction, list[_Side]] = {}
    for side in sides:
        alike.setdefault(side.relative(shares), []).append(side)
    return list(alike.values())


def _ladder(thresholds: np.ndarray, cells: int) -> np.ndarray:
    """Chooses where to count: at each cut, 1, 2, 4, ... cells from it, and at the grid's ends.

    At the ends, for many columns have most of their rows on a bound. Example: the cut 37 of 101
    cells: 1, 5, 21, 29, 33, 35, 36, 37, 38, 39, 41, 45, 53, 69, 100.
    """
    steps = 2 ** np.arange(cells.bit_length())
    near = np.clip(thresholds, 1, cells - 1)[:, None]
    points = np.concatenate([[1, cells - 1], *near, *(near - steps), *(near + steps)])
    return np.unique(points[(points > 0) & (points < cells)])


def _crossing(
    bins: np.ndarray, points: np.ndarray, chosen: int, share: Fraction, scale: float, level: float, cells: int
) -> tuple[int, int, int]:
    """Finds the cell of a quantile and the cells between which it lies.

    At each point x, (1 - q) times the rows below minus q times those above is negative where fewer
    than a share q lie below x. So the quantile lies at or above each x where it is surely negative,
    and below each x where it is surely positive.

    Returns:
        The cell, and the first and last cell that it can be.
    """
    # Bins of 10, 30 and 60 rows, the median: 10 - 50 = -40 at the first point and 40 - 50 = -10 at
    # the second, so it lies at or above both.
    below = np.cumsum(bins)[:-1]
    surplus = below - float(share) * bins.sum()
    weights = np.tri(len(points), len(bins)) - float(share)
    # All points hold together: the quantile's bounds are picked among them.
    off = half_width(weights, scale, 1 - (1 - level) / len(points))
    low = max([0, *points[surplus < -off].tolist()])
    high = min([cells, *points[surplus > off].tolist()]) - 1
    at = min(max(int(chosen), 1), cells - 1)
    cell = at if surplus[np.searchsorted(points, at)] < 0 else at - 1
    return (cell if low <= cell <= high else _interpolated(points, surplus, low, high)), low, high


def _interpolated(points: np.ndarray, surplus: np.ndarray, low: int, high: int) -> int:
    """Finds where the surplus passes 0 between two points.

    For a quantile whose cut was misled: where many rows have the median's value, what lies above
    its cut is not half of the rows. Example: -30 at 40 and 10 at 48: three quarters of the way, 46.
    """
    inside = (points >= low) & (points <= high + 1)
    at, numbers = points[inside], np.maximum.accumulate(surplus[inside])
    return int(np.clip(np.floor(np.interp(0, numbers, at)), low, high)) if len(at) else low
