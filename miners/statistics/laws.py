# SPDX-License-Identifier: Apache-2.0
"""Tails of the laws of test statistics: chi-square and the normal law.

The base package has no scipy, and these are the few functions that tests need of it. They agree
with scipy to ten digits. Held by: tests/unit/statistics/test_laws.py.
"""

from __future__ import annotations

import math
from statistics import NormalDist


def normal_quantile(level: float) -> float:
    """Returns z so that a normal variable is within z standard deviations with probability ``level``."""
    return NormalDist().inv_cdf((1 + level) / 2)


def normal_tail(z: float) -> float:
    """Returns the probability that a normal variable is above z."""
    return math.erfc(z / math.sqrt(2)) / 2


def chi2_tail(x: float, df: int) -> float:
    """Returns the probability that a chi-square variable is above x.

    For whole degrees of freedom it is a finite sum. Example: with 2 degrees exp(-x / 2), with 4
    that times 1 + x / 2.
    """
    if not x > 0:
        return 1.0 if x <= 0 else math.nan
    half = x / 2
    odd = df % 2
    powers = [index + odd / 2 for index in range(df // 2)]
    terms = [math.exp(power * math.log(half) - half - math.lgamma(power + 1)) for power in powers]
    return min(1.0, sum(terms) + (math.erfc(math.sqrt(half)) if odd else 0.0))
