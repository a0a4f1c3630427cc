# SPDX-License-Identifier: Apache-2.0
"""The exact laws of the mechanisms, and what draws are held against them by."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from scipy import stats

from pinq.curator.mechanisms import Weighted

ALMOST_NEVER = 1e-7
WEAK = Fraction(7, 10)


def law_is(drawn: np.ndarray, law: np.ndarray) -> None:
    """Chi-square of draws 0 .. len(law) - 1 against their probabilities; rare outcomes are taken together."""
    counts, wanted = np.bincount(drawn, minlength=len(law)).astype(float), law * len(drawn)
    assert len(counts) == len(law), "an impossible outcome was drawn"
    assert counts[law == 0].sum() == 0
    rare = wanted < 10
    if rare.any():
        counts, wanted = np.append(counts[~rare], counts[rare].sum()), np.append(wanted[~rare], wanted[rare].sum())
        if wanted[-1] < 1e-9:
            counts, wanted = counts[:-1], wanted[:-1]
    if len(counts) == 1:
        return
    assert stats.chisquare(counts, wanted * counts.sum() / wanted.sum()).pvalue > ALMOST_NEVER


def flip_law(scores: list[int], eta: float) -> np.ndarray:
    """The law of permute-and-flip, by McKenna & Sheldon's integral: P[r] = Pr r Σ over subsets of the others (-1)^|S| Π p / (|S| + 1)."""
    accept = np.exp(eta * (np.array(scores) - max(scores)))
    law = np.zeros(len(scores))
    for r in range(len(scores)):
        # ∫_0^1 p_r Π_{s != r} (1 - p_s t) dt: candidate r comes at time t, everybody earlier was rejected.
        product = np.polynomial.Polynomial([1.0])
        for s in range(len(scores)):
            if s != r:
                product *= np.polynomial.Polynomial([1.0, -accept[s]])
        law[r] = accept[r] * product.integ()(1.0)
    return law


def weighted(scores: list[int], members: list[int], mass: list[int]) -> Weighted:
    return Weighted(np.array(scores), np.array(members), np.array(mass))


def weighted_law(one: Weighted, eta: float) -> np.ndarray:
    best = one.scores[one.members > 0].max()
    weight = one.members / one.mass * np.exp(np.minimum(eta * (one.scores - best), 0))
    return weight / weight.sum()


def noise_law(scale: float, edges: np.ndarray) -> np.ndarray:
    """The law of discrete Laplace noise over the intervals that end at the edges, and one more; see ``interval_of``."""
    a = math.exp(-1 / scale)
    below = np.where(edges < 0, a ** np.abs(edges).astype(float) / (1 + a), 1 - a ** (edges + 1.0) / (1 + a))
    return np.diff(below, prepend=0.0, append=1.0)


def interval_of(noise: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The interval that each noise lies in: 0 up to the first edge, and so on."""
    return np.searchsorted(edges, noise, side="left")
