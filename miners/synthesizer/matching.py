# SPDX-License-Identifier: Apache-2.0
"""Means and deviations of synthetic numbers, by noisy sums of numbers and squares of all numeric columns at once.

Noise in far cells of a histogram moves a mean and hides long tails; one query of sums (``Products``) has a fraction of
that noise. Numbers are clamped to the range in which the histograms show rows, also in the model. A column changes as
little as possible: the rows of each piece of numbers z are multiplied by exp(a z + b z²), where a and b minimise

    log Σ q exp(a z + b z²) - a m - b s + r (a² + b²) / 2.

Here q are the model's shares, m and s the noisy means of z and z², and r the noise's variance times a number of rows
n. The solution is the most likely model if its means count like those of n rows. The answers determine n: if the means
of all columns are off by t deviations beyond noise, it is 1 / t². It is more for a column whose histograms have less
noise than that.

Ranges are as wide as noise allows. A range of k deviations on each side leaves noise of k² times the norm in a mean
square. Typical numbers are then 1 / k of the range, so the norm is small, and the noise of means does not grow with k.

Privacy:
    Claim: free. The purchase pays for the one query of sums. Held by: tests/unit/synthesizer/test_matching.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from miners.synthesizer.fine_numbers import HIDING
from miners.synthesizer.graphical_model import TINY

WORTH = 100.0  # the largest number of rows for which a model's means count
LEAST_RIDGE = 1e-6
STEPS, SMALL = 60, 1e-9  # the most steps of Newton's method, each halved until it gains; the step that ends it
RARE, WIDER = 0.02, 1.25  # the share of rows beyond each end of the inner range; the factor of the range to it
USUAL = 2.4  # the deviations on each side of such a range for normal numbers
SQUARE_NOISE = 0.1  # the noise in a column's mean square, as a share of its variance: 0.05 of its deviation
EXTREME, SIZE = 3.0, 0.8  # norm of the constant and a number at the end of its range; a normal number's mean size


def limit(columns: int, reach: float) -> float:
    """The norm to which a row's numbers and squares are shortened; few rows have a larger norm."""
    return min(1 + 2 * columns, EXTREME + columns * (SIZE / reach + 1 / reach**2))


def reached(columns: int, rows: float) -> float:
    """The deviations at which ranges end, so that mean squares have the noise ``SQUARE_NOISE``.

    Args:
        columns: The number of columns.
        rows: The rows for each unit of noise in a sum of norm 1.
    """
    # k² times the limit is 3 k² + 0.8 c k + c, which should be a tenth of the rows.
    half = SIZE * columns / (2 * EXTREME)
    return max(USUAL, math.sqrt(half**2 + max(0.0, SQUARE_NOISE * rows - columns) / EXTREME) - half)


def spread(shares: np.ndarray, middles: np.ndarray, reach: float) -> tuple[float, float]:
    """A range about the mean of numbers that contains nearly all rows.

    Args:
        shares: The share of each number.
        middles: The numbers, increasing.
        reach: The least distance of the range's ends, in deviations, which keeps the norm of rows small.
    """
    shares = shares / max(float(shares.sum()), TINY)
    cumulative, mean = shares.cumsum(), float(shares @ middles)
    far = np.abs(middles[np.minimum(np.searchsorted(cumulative, [RARE, 1 - RARE]), len(middles) - 1)] - mean).max()
    half = max(WIDER * float(far), reach * math.sqrt(float(shares @ (middles - mean) ** 2))) or 1.0
    return mean - half, mean + half


def worth(
    shares: Sequence[np.ndarray], features: Sequence[np.ndarray], numbers: np.ndarray, noise: float
) -> np.ndarray:
    """The numbers of rows for which the model's means and squares count, shape (2,); arguments as of ``tilt``."""
    means = np.array([column_shares @ each for column_shares, each in zip(shares, features, strict=True)])
    squares = np.array([column_shares @ each**2 for column_shares, each in zip(shares, features, strict=True)])
    # Squares of Laplace noise of variance v have the mean v and the variance 5 v²; one deviation more may be noise.
    hidden = noise**2 * (len(means) + math.sqrt(5 * len(means)))
    gaps = ((numbers - means) ** 2).sum(axis=0) - hidden
    return 1 / np.maximum(1 / WORTH, gaps / np.maximum((squares - means**2).sum(axis=0), TINY))


def least_worth(shares: np.ndarray, features: np.ndarray, cells: np.ndarray, noise: float) -> np.ndarray:
    """The least numbers of rows for which the mean and the square of a column count, shape (2,).

    The mean of so many rows has the variance that noise leaves in the model's mean, if it hides ``HIDING`` of its
    deviations in each cell.

    Args:
        shares: The share of rows of each piece, shape (pieces,).
        features: The mean number and square of each piece, shape (pieces, 2).
        cells: The same means of each cell of the model, shape (cells, 2).
        noise: The deviation of the noise in the share of each cell.
    """
    hidden = (HIDING * noise) ** 2 * (cells**2).sum(axis=0)
    return np.asarray((shares @ features**2 - (shares @ features) ** 2) / np.maximum(hidden, TINY))


def features(ends: np.ndarray, span: tuple[float, float]) -> np.ndarray:
    """The mean number and square of each piece, scaled to -1 to 1, shape (pieces, 2).

    Args:
        ends: The least and the largest number of each piece, shape (2, pieces).
        span: The range, at whose ends numbers are clamped.
    """
    low, high = np.clip((2 * ends - sum(span)) / (span[1] - span[0]), -1, 1)
    return np.column_stack([(low + high) / 2, (low**2 + low * high + high**2) / 3])


def tilt(
    shares: np.ndarray, features: np.ndarray, numbers: np.ndarray, noise: float, rows: np.ndarray | float = WORTH
) -> np.ndarray:
    """Changes the shares of pieces so that they have about the noisy means.

    Args:
        shares: The share of rows of each piece, shape (pieces,). The remaining rows have no number.
        features: The mean number and square of each piece, shape (pieces, 2).
        numbers: The noisy means of both, shape (2,); a row without a number counts as 0.
        noise: The deviation of their noise.
        rows: The number of rows for which the means of ``shares`` count, one or shape (2,).
    """
    ridge = np.full(2, LEAST_RIDGE) + rows * noise**2
    slope, numbers = np.zeros(2), np.clip(numbers, -1, 1)
    missing = 1 - float(shares.sum())
    missing = missing if missing > SMALL else 0.0

    def value(at: np.ndarray) -> tuple[float, np.ndarray]:
        powers = np.where(shares > 0, features @ at, -np.inf)
        largest = float(powers.max(initial=0.0 if missing else -np.inf))  # so that no power overflows
        parts = shares * np.exp(powers - largest)
        total = float(parts.sum()) + (missing and missing * math.exp(-largest))
        return math.log(total) + largest - float(at @ numbers - (ridge * at) @ at / 2), parts / total

    now, parts = value(slope)
    for _ in range(STEPS):
        mean = parts @ features
        spread = (features.T * parts) @ features - np.outer(mean, mean) + np.diag(ridge)
        step = np.linalg.solve(spread, mean - numbers + ridge * slope)
        while np.abs(step).max() > SMALL and value(slope - step)[0] > now:
            step = step / 2
        slope = slope - step
        now, parts = value(slope)
        if np.abs(step).max() <= SMALL:
            break
    return parts
