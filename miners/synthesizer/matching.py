# SPDX-License-Identifier: Apache-2.0
"""Means and deviations of synthetic numbers, by noisy sums of numbers and squares of all numeric columns at once.

Noise in the cells of a histogram moves a mean by as much as the cells lie apart, and hides long tails. One query of
sums (``Products``) tells the means and squares of all columns, where a row counts with all its numbers: for many
columns it has a fraction of that noise. Numbers are clamped at the ends of the range where the histograms show rows,
and so are the model's. A column changes as little as it must: the rows of each piece of numbers z are
multiplied by exp(a z + b z²), where a and b minimise

    log Σ q exp(a z + b z²) - a m - b s + r (a² + b²) / 2.

Here q are the model's shares, m and s the noisy means of z and z², and r = the noise's variance times a number of
rows. That is the most likely model if its own means are worth those of so many rows. This number follows from the
answers: if the means of all columns are off by t deviations beyond noise, it is 1 / t².

Ranges are as wide as noise allows. A range of k deviations on each side leaves noise of k² times the norm in a mean
square. Typical numbers are then 1 / k of the range, so the norm is small, and the noise of means does not grow with k.

Privacy:
    Claim: free. Why: ranges follow from earlier answers, the sums are one query that the purchase pays for, and all
    else is computed from these. Held by: tests/unit/synthesizer/test_matching.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from miners.synthesizer.graphical_model import TINY

WORTH = 100.0  # rows, at the most: those that a model's means are worth where sums say the same
LEAST_RIDGE = 1e-6
STEPS, SMALL = 60, 1e-9  # of Newton's method, each halved until it gains; the step that ends it
RARE, WIDER = 0.02, 1.25  # of the rows are beyond each end of what a range holds; the range is wider than that
USUAL = 2.4  # deviations on each side: such a range of normal numbers
SQUARE_NOISE = 0.1  # of a column's variance, in its mean square: .05 of its deviation
EXTREME, SIZE = 3.0, 0.8  # norm of the constant and a number at the end of its range; a normal number's mean size


def limit(columns: int, reach: float) -> float:
    """The norm to which a row's numbers and squares are shortened: few rows have more.

    Args:
        columns: The number of columns.
        reach: The deviations from the mean at which ranges end.
    """
    return min(1 + 2 * columns, EXTREME + columns * (SIZE / reach + 1 / reach**2))


def reached(columns: int, rows: float) -> float:
    """The deviations at which ranges end: as many as leave ``SQUARE_NOISE`` in mean squares.

    Args:
        columns: The number of columns.
        rows: The rows for each unit of noise in a sum of norm 1.
    """
    # k² times the limit is 3 k² + .8 c k + c, which is to be a tenth of the rows.
    half = SIZE * columns / (2 * EXTREME)
    return max(USUAL, math.sqrt(half**2 + max(0.0, SQUARE_NOISE * rows - columns) / EXTREME) - half)


def spread(shares: np.ndarray, middles: np.ndarray, reach: float) -> tuple[float, float]:
    """A range about the mean of numbers that holds nearly all rows.

    Args:
        shares: The share of each number.
        middles: The numbers, increasing.
        reach: The deviations at which the range ends at the least; the norm of rows is small by that.
    """
    shares = shares / max(float(shares.sum()), TINY)
    known, mean = shares.cumsum(), float(shares @ middles)
    far = np.abs(middles[np.minimum(np.searchsorted(known, [RARE, 1 - RARE]), len(middles) - 1)] - mean).max()
    half = max(WIDER * float(far), reach * math.sqrt(float(shares @ (middles - mean) ** 2))) or 1.0
    return mean - half, mean + half


def worth(shares: Sequence[np.ndarray], known: Sequence[np.ndarray], numbers: np.ndarray, noise: float) -> np.ndarray:
    """The rows that the model's means and squares are worth, shape (2,); arguments of all columns as of ``tilt``."""
    means = np.array([own @ each for own, each in zip(shares, known, strict=True)])
    squares = np.array([own @ each**2 for own, each in zip(shares, known, strict=True)])
    # The squares of Laplace noise of variance v have the mean v and the variance 5 v²: a deviation more may be noise.
    hidden = noise**2 * (len(means) + math.sqrt(5 * len(means)))
    gaps = ((numbers - means) ** 2).sum(axis=0) - hidden
    return 1 / np.maximum(1 / WORTH, gaps / np.maximum((squares - means**2).sum(axis=0), TINY))


def features(ends: np.ndarray, span: tuple[float, float]) -> np.ndarray:
    """The mean number and square of each piece, in a range that is -1 to 1, shape (pieces, 2).

    Args:
        ends: The least and the largest number of each piece, shape (2, pieces).
        span: The range, at whose ends numbers are clamped.
    """
    low, high = np.clip((2 * ends - sum(span)) / (span[1] - span[0]), -1, 1)
    return np.column_stack([(low + high) / 2, (low**2 + low * high + high**2) / 3])


def tilt(
    shares: np.ndarray, known: np.ndarray, numbers: np.ndarray, noise: float, rows: np.ndarray | float = WORTH
) -> np.ndarray:
    """The shares of pieces that have about the noisy means.

    Args:
        shares: The share of rows of each piece, shape (pieces,). Rows without a number are the rest to 1.
        known: The mean number and square of each piece, shape (pieces, 2).
        numbers: The noisy means of both, shape (2,); a row without a number has 0.
        noise: Their deviation.
        rows: The rows that the means of ``shares`` are worth, for both or shape (2,).
    """
    ridge = np.full(2, LEAST_RIDGE) + rows * noise**2
    found, numbers = np.zeros(2), np.clip(numbers, -1, 1)
    rest = 1 - float(shares.sum())
    rest = rest if rest > SMALL else 0.0

    def value(own: np.ndarray) -> tuple[float, np.ndarray]:
        powers = np.where(shares > 0, known @ own, -np.inf)
        most = float(powers.max(initial=0.0 if rest else -np.inf))  # so that no power overflows
        parts = shares * np.exp(powers - most)
        total = float(parts.sum()) + (rest and rest * math.exp(-most))
        return math.log(total) + most - float(own @ numbers - (ridge * own) @ own / 2), parts / total

    now, parts = value(found)
    for _ in range(STEPS):
        mean = parts @ known
        spread = (known.T * parts) @ known - np.outer(mean, mean) + np.diag(ridge)
        step = np.linalg.solve(spread, mean - numbers + ridge * found)
        while np.abs(step).max() > SMALL and value(found - step)[0] > now:
            step = step / 2
        found = found - step
        now, parts = value(found)
        if np.abs(step).max() <= SMALL:
            break
    return parts
