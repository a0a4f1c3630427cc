# SPDX-License-Identifier: Apache-2.0
"""Variances from noisy counts in bins that widen with their distance from a median.

A row at distance d from the mean adds d^2, so the noise of a far bin weighs most, and so does a
wrong middle of a bin of many rows. Few wide bins far away and narrow ones near the median serve
both.

Privacy:
    Claim: all of it is free. Why: it is computed from noisy counts and a chosen cut alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["MomentsOfBins", "most_edges", "spread_of", "widening_edges", "without_empty_ends"]

FAR, NEAR = 0.4, 0.25  # of its distance, how wide a bin is at the end of the grid and near the median
EXACT_ROWS = 2000.0  # epsilon times rows above which bins are narrower than that
NARROWEST = 0.2
EMPTY = 3.5  # standard deviations from 0, up to which the rows beyond a point count as none


def widening_edges(middle: int, cells: int, exactness: float) -> np.ndarray:
    """Cuts a grid into bins that widen from a cell in its middle to both ends.

    With D cells from the middle to an end, a bin that ends at distance d starts at d / (1 + max(NEAR,
    FAR d / D)); both factors shrink like ``exactness`` to the power -0.4, at which coarseness
    (about their square) and noise (about their inverse root) balance. Example: from cell 50 of 101
    for 20,000 rows at epsilon 0.1: 50, 51, 52, 53, 54, 55, 56, 57, 59, 61, 64, 68, 72, 78, 86, 101
    and as many below.

    Args:
        middle: A cell that has others on both sides.
        cells: How many cells the grid has.
        exactness: Epsilon times the number of rows, both public.

    Returns:
        The first cell of each bin, and ``cells``.
    """
    shrink = max(NARROWEST, min(1.0, (EXACT_ROWS / exactness) ** 0.4))
    edges = {middle}
    for length, sign in ((middle, -1), (cells - middle, 1)):
        distance = length
        while distance >= 1:
            edges.add(middle + sign * distance)
            factor = 1 + shrink * max(NEAR, FAR * distance / length)
            distance = min(distance - 1, round(distance / factor))
    return np.array(sorted(edges), dtype=np.int64)


def most_edges(cells: int, exactness: float) -> int:
    """Returns a bound of how many bins ``widening_edges`` makes: as if both sides had all cells."""
    return min(cells, 2 * len(widening_edges(0, cells, exactness)))


def without_empty_ends(counts: np.ndarray, scale: float) -> np.ndarray:
    """Takes rows beyond the first and the last plain sum of counts for none.

    From each end, bins are added up until the sum is more than ``EMPTY`` standard deviations of its
    noise; that sum counts as the rows of the last bin added. So noise far away, which weighs most,
    counts only where rows are there.
    """
    kept = counts.astype(np.float64)
    for ends in (kept, kept[::-1]):
        sums = np.cumsum(ends)
        plain = np.flatnonzero(sums > EMPTY * scale * np.sqrt(2 * np.arange(1, len(ends) + 1)))
        first = int(plain[0]) if len(plain) else len(ends)
        ends[first : first + 1] = sums[first : first + 1]
        ends[:first] = 0
    return kept


@dataclass(frozen=True)
class MomentsOfBins:
    """Where the rows of each bin lie on average, and how far from there, in cells.

    Attributes:
        middles: The mean of each bin's rows, as the counts beside it suggest.
        within: Their variance about it.
    """

    middles: np.ndarray
    within: np.ndarray

    @classmethod
    def of(cls, edges: np.ndarray, counts: np.ndarray, *, whole: bool) -> MomentsOfBins:
        """Takes rows to be as dense at both ends of a bin as a line through its neighbours says.

        Args:
            edges: The first cell of each bin, and the number of cells.
            counts: Rows of each bin.
            whole: Whether cells are points (whole numbers) or have rows all over them.
        """
        widths = np.diff(edges).astype(np.float64)
        middles, within = (edges[:-1] + edges[1:] - 1) / 2, (widths**2 - float(whole)) / 12
        density = np.maximum(counts, 0) / widths
        outside = np.concatenate([[0.0], density, [0.0]])
        at = np.concatenate([[middles[0] - widths[0]], middles, [middles[-1] + widths[-1]]])
        # Bins of cells 0-9 and 10-19 with 10 and 30 rows: around the first middle the density rises
        # by 3 over 20 cells, by 0.15 of its own per cell. Its rows are then at 5.75 on average, not
        # 4.5.
        slope = (outside[2:] - outside[:-2]) / (at[2:] - at[:-2])
        relative = np.divide(slope, density, out=np.zeros_like(density), where=density > 0)
        shift = np.clip(relative, -2 / widths, 2 / widths) * within
        return cls(middles + shift, within - shift**2)

    def coarseness(self, edges: np.ndarray, counts: np.ndarray) -> float:
        """Returns by how much rows elsewhere within their bins might move the variance.

        Were all rows of a bin at its ends, and by what leaning towards its neighbours changes.
        """
        rows = max(float(counts.sum()), 1.0)
        centred = MomentsOfBins((edges[:-1] + edges[1:] - 1) / 2, self.within)
        leaning = abs(spread_of(counts, self)[0] - spread_of(counts, centred)[0])
        return float(np.maximum(counts, 0) @ np.diff(edges) ** 2) / (4 * rows) + leaning


def spread_of(counts: np.ndarray, moments: MomentsOfBins) -> tuple[float, np.ndarray]:
    """Returns the variance of rows in bins, and how far a row more in each bin moves it."""
    rows = max(float(counts.sum()), 1.0)
    # Bins of 10 and 30 rows around 2 and 6, each within a variance of 1: mean 5, variance (10 * (9
    # + 1) + 30 * (1 + 1)) / 40 = 4; a row more around 2 moves it by (10 - 4) / 40.
    mean = float(counts @ moments.middles) / rows
    squares = (moments.middles - mean) ** 2 + moments.within
    variance = float(counts @ squares) / rows
    return variance, (squares - variance) / rows
