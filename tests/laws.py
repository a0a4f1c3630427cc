# SPDX-License-Identifier: Apache-2.0
"""The exact laws of the mechanisms, and what draws are held against them by."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from pinq.curator.mechanisms import Weighted
from pinq.provider.selftest.laws import chi_square, flip_law, interval_of, noise_law

__all__ = ["ALMOST_NEVER", "WEAK", "flip_law", "interval_of", "law_is", "noise_law", "weighted", "weighted_law"]

ALMOST_NEVER = 1e-7
WEAK = Fraction(7, 10)


def law_is(drawn: np.ndarray, law: np.ndarray) -> None:
    """Chi-square of draws 0 .. len(law) - 1 against their probabilities; rare outcomes are taken together."""
    assert chi_square(drawn, law) > ALMOST_NEVER


def weighted(scores: list[int], members: list[int], mass: list[int]) -> Weighted:
    return Weighted(np.array(scores), np.array(members), np.array(mass))


def weighted_law(one: Weighted, eta: float) -> np.ndarray:
    best = one.scores[one.members > 0].max()
    weight = one.members / one.mass * np.exp(np.minimum(eta * (one.scores - best), 0))
    return weight / weight.sum()
