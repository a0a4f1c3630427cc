# SPDX-License-Identifier: Apache-2.0
"""The exact laws that answers must follow, and the chi-square test of draws against them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["chi_square", "flip_law", "interval_of", "noise_law"]


def noise_law(scale: float, edges: np.ndarray) -> np.ndarray:
    """Returns the law of discrete Laplace noise over intervals; see ``interval_of``.

    Args:
        scale: In units of the noise.
        edges: Where intervals end, increasing whole numbers, shape (n,).

    Returns:
        A probability for each interval and for what is beyond the last edge, shape (n + 1,).
    """
    a = math.exp(-1 / scale)
    below = np.where(edges < 0, a ** np.abs(edges).astype(float) / (1 + a), 1 - a ** (edges + 1.0) / (1 + a))
    return np.diff(below, prepend=0.0, append=1.0)


def interval_of(noise: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Returns the interval that each noise lies in: 0 up to the first edge, and so on."""
    return np.searchsorted(edges, noise, side="left")


def flip_law(scores: Sequence[int], eta: float) -> np.ndarray:
    """Returns the law of permute-and-flip, shape (candidates,).

    Candidate r is visited at a uniform time t, everybody earlier was rejected, and it is accepted:
    the integral over t of p_r times the product of 1 - p_s t over the others (McKenna & Sheldon
    2020).

    Args:
        scores: Of each candidate.
        eta: Epsilon over the span of the scores.
    """
    accept = np.exp(eta * (np.array(scores) - max(scores)))
    law = np.zeros(len(scores))
    for r in range(len(scores)):
        product = np.polynomial.Polynomial([1.0])
        for s in range(len(scores)):
            if s != r:
                # Of two candidates the better one has p = 1; beside it another wins with p times
                # the integral of 1 - t, p / 2.
                product *= np.polynomial.Polynomial([1.0, -accept[s]])
        law[r] = accept[r] * product.integ()(1.0)
    return law


def chi_square(drawn: np.ndarray, law: np.ndarray) -> float:
    """Returns how likely draws so far from a law are, by chi-square; 0 for impossible draws.

    Args:
        drawn: Outcomes 0, 1, ..., shape (draws,).
        law: Their probabilities. Outcomes that are expected less than ten times are taken together.
    """
    from scipy import stats

    counts, wanted = np.bincount(drawn, minlength=len(law)).astype(float), law * len(drawn)
    if len(counts) > len(law) or counts[law == 0].sum() > 0:
        return 0.0
    rare = wanted < 10
    if rare.any():
        # Where 30, 6, 2, and 2 are wanted, the last three are one outcome, of which 10 are.
        counts, wanted = np.append(counts[~rare], counts[rare].sum()), np.append(wanted[~rare], wanted[rare].sum())
        if wanted[-1] < 1e-9:
            counts, wanted = counts[:-1], wanted[:-1]
    if len(counts) == 1:
        return 1.0
    return float(stats.chisquare(counts, wanted * counts.sum() / wanted.sum()).pvalue)
