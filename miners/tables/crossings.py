# SPDX-License-Identifier: Apache-2.0
"""``Counted`` is noisy counts between points of a grid, and says where quantiles lie between them.

At a point x and for a share q, the *surplus* is (1 - q) times the rows below x minus q times those
above. It grows with x, and passes 0 in the cell of the quantile.

Privacy:
    Claim: all of it is free. Why: it is computed from noisy counts and chosen cuts alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from miners.tables.noise import half_width

__all__ = ["Counted", "finer_points", "ladder", "located", "most_finer", "most_rungs"]

STEP = 4  # a ladder's points are 1, 4, 16, ... cells from a chosen cut
PIECES = 16  # the cells that a ladder leaves to a quantile are counted in so many pieces at most
LIKELY, SURE = 2.0, 3.0  # standard deviations from 0, beyond which a surplus likely, or surely, has a sign


@dataclass(frozen=True)
class Counted:
    """Noisy counts of the rows between some points of a column's grid.

    Attributes:
        points: The cells before which the grid is cut, increasing, at least one.
        bins: Noisy counts between them, one more.
        scale: Of the noise in each count.
        cells: How many cells the grid has.
    """

    points: np.ndarray
    bins: np.ndarray
    scale: float
    cells: int

    def surplus(self, share: float) -> np.ndarray:
        """The noisy surplus at each point."""
        return np.asarray(np.cumsum(self.bins)[:-1] - share * self.bins.sum())

    def deviations(self, share: float) -> np.ndarray:
        """Bounds the standard deviation of each surplus; a count's is at most sqrt(2) scale."""
        weights, times = self._weights(share)
        return np.asarray(self.scale * np.sqrt(2 * (times * weights**2).sum(axis=1)))

    def bounds(self, share: float, level: float) -> tuple[int, int]:
        """Returns the first and the last cell that can be the quantile's, at a level.

        It lies at or above each point whose surplus is surely negative, and below each where it is
        surely positive. All points hold together: the ends are picked among them.
        """
        # Bins of 10, 30 and 60 rows, the median: 10 - 50 = -40 at the first point and 40 - 50 = -10
        # at the second, so it lies at or above both.
        surplus, (weights, times) = self.surplus(share), self._weights(share)
        off = half_width(weights, self.scale, 1 - (1 - level) / len(self.points), times=times)
        low, high = self._between(surplus, off)
        return low, high - 1

    def around(self, share: float) -> tuple[int, int]:
        """Returns the first cell that is likely the quantile's, and the first above all such."""
        low, high = self._between(self.surplus(share), LIKELY * self.deviations(share))
        return (low, high) if low < high else (0, self.cells)

    def crossing(self, share: float) -> int:
        """Returns the cell where the surplus passes 0, if it grows as it must.

        The increasing surplus that is nearest by least squares changes its sign where the running
        sum of the noisy one is least. Between two points it is taken to grow evenly. Example: -30
        before cell 40 and 10 before cell 48: three quarters of the way, cell 46.
        """
        # Bins of 10, 30 and 60 rows cut before cells 40 and 48, the median: surpluses -40 and -10,
        # running sums 0, -40 and -50. The last is least, so the change is above cell 48, where the
        # surplus goes from -10 to 50.
        surplus, total = self.surplus(share), max(float(self.bins.sum()), 1.0)
        before = int(np.argmin(np.concatenate([[0.0], np.cumsum(surplus)])))
        edges = np.concatenate([[0], self.points, [self.cells]])
        ends = np.concatenate([[-share * total], surplus, [(1 - share) * total]])[before : before + 2]
        low, high = int(edges[before]), int(edges[before + 1])
        part = -ends[0] / max(float(ends[1] - ends[0]), 1e-9)
        return int(np.clip(low + np.floor(part * (high - low)), low, high - 1))

    def _between(self, surplus: np.ndarray, off: np.ndarray) -> tuple[int, int]:
        """Returns the last point with a surplus below its bound, and the first with one above."""
        low = max([0, *self.points[surplus < -off].tolist()])
        return low, min([self.cells, *self.points[surplus > off].tolist()])

    def _weights(self, share: float) -> tuple[np.ndarray, np.ndarray]:
        """The two weights that noises have in each surplus, and how many noises have each."""
        # Three bins, the second point: two noises weigh 1 - q, for they are below it, and one
        # weighs q; signs do not matter to a bound.
        below = np.arange(1, len(self.points) + 1)
        times = np.stack([below, len(self.bins) - below], axis=1)
        return np.broadcast_to([1 - share, share], times.shape), times


def ladder(thresholds: np.ndarray, cells: int) -> np.ndarray:
    """Chooses where to count first: at each cut, 1, 4, 16, ... cells from it, and at the ends.

    At the ends, for many columns have most of their rows on a bound. Example: the cut 37 of 101
    cells: 1, 21, 33, 36, 37, 38, 41, 53, 100.
    """
    steps = STEP ** np.arange(_steps(cells))
    near = np.clip(thresholds, 1, cells - 1)[:, None]
    points = np.concatenate([[1, cells - 1], *near, *(near - steps), *(near + steps)])
    return np.unique(points[(points > 0) & (points < cells)])


def finer_points(first: Counted, thresholds: np.ndarray, shares: tuple[Fraction, ...]) -> np.ndarray:
    """Chooses where to count next: evenly where a ladder leaves each quantile, and at the cuts."""
    points = [np.clip(thresholds, 1, first.cells - 1)]
    for share in shares:
        # Cells 21 to 53 are left: cuts before every second one, 21, 23, ..., 53.
        low, high = first.around(float(share))
        pieces = min(PIECES, high - low)
        points.append(low + np.arange(pieces + 1) * (high - low) // pieces)
    joined = np.unique(np.concatenate(points))
    return joined[(joined > 0) & (joined < first.cells)]


def located(chosen: int, counted: tuple[Counted, Counted], share: Fraction, level: float) -> tuple[int, int, int]:
    """Finds the cell of a quantile, and the cells between which it lies.

    A chosen cut stands where the counts do not contradict it: among rows that spread widely it is
    more exact than they are. Where many rows share a value, the best cut is beside that value or
    anywhere in the gap next to it; then the surplus at the cut is plainly not 0, and the counts say
    which cell it is.

    Args:
        chosen: The cut's threshold.
        counted: Both counts; they have a point at each cut.
        share: Of the rows below the quantile.
        level: Of the interval: both counts' bounds hold together.

    Returns:
        The cell, and the first and the last cell that it can be.
    """
    exact, at = float(share), min(max(int(chosen), 1), counted[0].cells - 1)
    # Both hold at 90 % where each holds at 95 %.
    bounds = [count.bounds(exact, (1 + level) / 2) for count in counted]
    low, high = max(low for low, _ in bounds), min(high for _, high in bounds)
    surplus, deviation = _pooled(at, counted, exact)
    if abs(surplus) > SURE * deviation:
        cell = counted[1].crossing(exact)
    else:
        cell = at if surplus < 0 else at - 1
    return (cell, cell, cell) if low > high else (min(max(cell, low), high), low, high)


def most_rungs(cells: int, quantiles: int) -> int:
    """Returns how many bins a ladder makes at most."""
    return min(cells, quantiles * (2 * _steps(cells) + 1) + 3)


def most_finer(cells: int, quantiles: int) -> int:
    """Returns how many bins the second counts have at most."""
    return min(cells, quantiles * (PIECES + 2) + 1)


def _steps(cells: int) -> int:
    """How many of 1, 4, 16, ... are less than ``cells``."""
    return (cells.bit_length() + 1) // 2


def _pooled(at: int, counted: tuple[Counted, Counted], share: float) -> tuple[float, float]:
    """Returns the surplus before a cell by all counts, and its standard deviation."""
    surplus, precision = 0.0, 0.0
    for count in counted:
        point = int(np.searchsorted(count.points, at))
        # -12 that deviates by 4 and -6 that deviates by 2: weights 1/16 and 1/4, so -7.2, and a
        # deviation of 1.8.
        weight = 1 / float(count.deviations(share)[point]) ** 2
        surplus, precision = surplus + weight * float(count.surplus(share)[point]), precision + weight
    return surplus / precision, float(precision**-0.5)
