# SPDX-License-Identifier: Apache-2.0
"""The exact laws of the mechanisms, and tests of draws against them.

False alarms and power. A chi-square or binomial test fails a right mechanism with probability ``ALMOST_NEVER``; a loss
bound is above the truth with probability ``ALMOST_NEVER``. The loss of each pair of neighbours is the claim, or close
to it, so noise that is 30 % too small (``WEAK``) loses clearly more. With these numbers of draws the claim is at least
ten standard errors below that larger loss; the bound is 5.3 standard errors below its estimate. At epsilon 1.5 an event
of probability 1/2 falls to exp(-1.5 / 0.7) / 2 = 0.059, so ln(p / q) has the standard error sqrt((16 + 1) / 4500) =
0.061 from 9,000 draws, half of which measure, and 2.14 - 1.5 is 10.5 of those. Either way a test fails by chance less
than once in a million runs.

A promised level (intervals that hold in 95 % of all draws) does not fix the number of successes: of 40 intervals that
hold at .97, fewer than 37 hold once in sixty runs. ``at_least`` and ``at_most`` compute the number that a right level
almost never misses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from scipy.stats import binom

from pinq.curator.mechanisms import Weighted
from pinq.provider.selftest.claims import flip_law
from pinq.provider.selftest.run import chi_square

__all__ = [
    "ALMOST_NEVER",
    "PARTS",
    "WEAK",
    "at_least",
    "at_most",
    "flip_law",
    "interval_of",
    "law_is",
    "noise_law",
    "weighted",
    "weighted_law",
]

ALMOST_NEVER = 1e-7
WEAK = Fraction(7, 10)
PARTS = 500
"""Parts with equal rows that one query asks: so many independent draws for one charge."""


def noise_law(scale: float, edges: np.ndarray) -> np.ndarray:
    """Returns the law of discrete Laplace noise over intervals; see ``interval_of``.

    Args:
        scale: The scale in units of the noise.
        edges: The ends of intervals, increasing whole numbers, shape (n,).

    Returns:
        A probability for each interval and for what is beyond the last edge, shape (n + 1,).
    """
    tail = np.exp(-np.where(edges < 0, -edges, edges + 1.0) / scale) / (1 + math.exp(-1 / scale))
    below = np.where(edges < 0, tail, 1 - tail)
    return np.diff(below, prepend=0.0, append=1.0)


def interval_of(noise: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Returns the interval that each noise lies in: 0 up to the first edge, and so on."""
    return np.searchsorted(edges, noise, side="left")


def law_is(drawn: np.ndarray, law: np.ndarray) -> None:
    """Chi-square of draws 0 .. len(law) - 1 against their probabilities; rare outcomes are taken together."""
    assert chi_square(drawn, law) > ALMOST_NEVER


def at_least(level: float, successes: Iterable[bool]) -> None:
    """Fails if independent tries, each of which succeeds with ``level`` or more, almost never succeed so rarely."""
    tries = np.array(list(successes), dtype=bool)
    assert binom.cdf(tries.sum(), tries.size, level) > ALMOST_NEVER, f"{tries.sum()} of {tries.size}, not {level:.0%}"


def at_most(level: float, successes: Iterable[bool]) -> None:
    """Fails if independent tries, each of which succeeds with ``level`` or less, almost never succeed so often."""
    at_least(1 - level, (not success for success in successes))


def weighted(scores: list[int], members: list[int], mass: list[int]) -> Weighted:
    return Weighted(np.array(scores), np.array(members), np.array(mass))


def weighted_law(one: Weighted, eta: float) -> np.ndarray:
    best = one.scores[one.members > 0].max()
    weight = one.members / one.mass * np.exp(np.minimum(eta * (one.scores - best), 0))
    return weight / weight.sum()
