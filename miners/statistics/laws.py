# SPDX-License-Identifier: Apache-2.0
"""Tails of the laws of test statistics: chi-square, F, Student's t and the normal law.

The base package has no scipy, and these are the few functions that tests need of it. They agree
with scipy to ten digits. Held by: tests/unit/statistics/test_laws.py.
"""

from __future__ import annotations

import math
from statistics import NormalDist

TINY = 1e-300  # stands for 0 in a denominator of a continued fraction
STEPS = 10_000  # of a continued fraction, which needs about the root of its arguments


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


def f_tail(x: float, df1: float, df2: float) -> float:
    """Returns the probability that an F variable is above x."""
    if not x > 0:
        return 1.0 if x <= 0 else math.nan
    return _beta_share(df2 / (df2 + df1 * x), df1 * x / (df2 + df1 * x), df2 / 2, df1 / 2)


def t_tail(t: float, df: float) -> float:
    """Returns the probability that a Student variable is above t."""
    if math.isnan(t):
        return math.nan
    both = f_tail(t * t, 1.0, df)
    return both / 2 if t > 0 else 1 - both / 2


def t_quantile(level: float, df: float) -> float:
    """Returns t so that a Student variable is within it with probability ``level``, by bisection."""
    low, high = 0.0, 1.0
    while f_tail(high * high, 1.0, df) > 1 - level:
        high *= 2
    for _ in range(80):  # halves the interval to the last bit
        middle = (low + high) / 2
        above = f_tail(middle * middle, 1.0, df) > 1 - level
        low, high = (middle, high) if above else (low, middle)
    return high


def _beta_share(x: float, rest: float, a: float, b: float) -> float:
    """Returns the regularised incomplete beta function of x, where ``rest`` is 1 - x, by Lentz's fraction."""
    if x <= 0 or rest <= 0:
        return float(x > 0)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly, that of the other end is quick
        return 1 - _beta_share(rest, x, b, a)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    c, d, value = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or TINY), 1.0
    value = d
    for m in range(1, STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 / ((1 + term * d) or TINY), (1 + term / c) or TINY
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return math.exp(front) * value / a
