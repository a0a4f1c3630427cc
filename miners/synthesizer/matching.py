# SPDX-License-Identifier: Apache-2.0
"""Means and deviations of synthetic numbers, by noisy sums of numbers and squares of all numeric columns at once.

Noise in the cells of a histogram moves a mean by as much as the cells lie apart, and hides long tails. One query of
sums (``Products``) tells the means and squares of all columns, where a row counts with all its numbers: for many
columns it has a fraction of that noise. Numbers are clamped at the ends of the range where the histograms show rows,
and so are the model's. A column changes as little as it must: the rows of each piece of numbers z are
multiplied by exp(a z + b z²), where a and b minimise

    log Σ q exp(a z + b z²) - a m - b s + r (a² + b²) / 2.

Here q are the model's shares, m and s the noisy means of z and z², and r = ``WORTH`` times their noise's variance:
that is the most likely model if its own means are worth those of ``WORTH`` rows.

Privacy:
    Claim: free. Why: ranges follow from earlier answers, the sums are one query that the purchase pays for, and all
    else is computed from these. Held by: tests/unit/synthesizer/test_matching.py.
"""

from __future__ import annotations

import math

import numpy as np

from miners.synthesizer.graphical_model import TINY

WORTH = 100.0  # rows
LEAST_RIDGE = 1e-6
STEPS, SMALL = 60, 1e-9  # of Newton's method, each halved until it gains; the step that ends it
RARE = 0.02  # of the rows are beyond each end of what the histograms show
WIDER = 1.25  # the range is, than that


def limit(columns: int) -> float:
    """The norm to which a row's numbers and squares are shortened: with a third of the range few rows have more."""
    return min(1 + 2 * columns, 2 + columns / 2)


def spread(shares: np.ndarray, middles: np.ndarray) -> tuple[float, float]:
    """A range about the mean of numbers, from the shares of increasing numbers."""
    shares = shares / max(float(shares.sum()), TINY)
    known, mean = shares.cumsum(), float(shares @ middles)
    ends = middles[np.minimum(np.searchsorted(known, [RARE, 1 - RARE]), len(middles) - 1)]
    half = max(WIDER * float(np.abs(ends - mean).max()), float(np.diff(middles).max(initial=0.0))) or 1.0
    return mean - half, mean + half


def features(ends: np.ndarray, span: tuple[float, float]) -> np.ndarray:
    """The mean number and square of each piece, in a range that is -1 to 1, shape (pieces, 2).

    Args:
        ends: The least and the largest number of each piece, shape (2, pieces).
        span: The range, at whose ends numbers are clamped.
    """
    low, high = np.clip((2 * ends - sum(span)) / (span[1] - span[0]), -1, 1)
    return np.column_stack([(low + high) / 2, (low**2 + low * high + high**2) / 3])


def tilt(shares: np.ndarray, known: np.ndarray, numbers: np.ndarray, noise: float) -> np.ndarray:
    """The shares of pieces that have about the noisy means.

    Args:
        shares: The share of rows of each piece, shape (pieces,). Rows without a number are the rest to 1.
        known: The mean number and square of each piece, shape (pieces, 2).
        numbers: The noisy means of both, shape (2,); a row without a number has 0.
        noise: Their deviation.
    """
    ridge, found, numbers = max(WORTH * noise**2, LEAST_RIDGE), np.zeros(2), np.clip(numbers, -1, 1)
    rest = 1 - float(shares.sum())
    rest = rest if rest > SMALL else 0.0

    def value(own: np.ndarray) -> tuple[float, np.ndarray]:
        powers = np.where(shares > 0, known @ own, -np.inf)
        most = float(powers.max(initial=0.0 if rest else -np.inf))  # so that no power overflows
        parts = shares * np.exp(powers - most)
        total = float(parts.sum()) + (rest and rest * math.exp(-most))
        return math.log(total) + most - float(own @ numbers - ridge * own @ own / 2), parts / total

    now, parts = value(found)
    for _ in range(STEPS):
        mean = parts @ known
        spread = (known.T * parts) @ known - np.outer(mean, mean) + ridge * np.eye(2)
        step = np.linalg.solve(spread, mean - numbers + ridge * found)
        while np.abs(step).max() > SMALL and value(found - step)[0] > now:
            step = step / 2
        found = found - step
        now, parts = value(found)
        if np.abs(step).max() <= SMALL:
            break
    return parts
