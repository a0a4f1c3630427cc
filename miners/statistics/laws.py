# SPDX-License-Identifier: Apache-2.0
"""Tails of the laws of test statistics: chi-square, F, Student's and the normal law.

The base package has no scipy; these few functions agree with it to ten digits. Held by:
tests/unit/statistics/test_laws.py.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Literal, get_args

Alternative = Literal["two-sided", "less", "greater"]
ALTERNATIVES = get_args(Alternative)
NEARLY_NORMAL = 1e5  # degrees of freedom from which on the next term of Student's law is below ten digits


def normal_quantile(level: float) -> float:
    """The number z so that a normal variable is within z standard deviations with probability ``level``."""
    return NormalDist().inv_cdf((1 + level) / 2)


def normal_tail(z: float) -> float:
    """The probability that a normal variable is above z."""
    return math.erfc(z / math.sqrt(2)) / 2


def one_sided(pvalue: float, statistic: float, alternative: Alternative) -> float:
    """The p-value of an alternative from the two-sided one of a symmetric law.

    Example: z = 2 has the two-sided p-value .046; "greater" has .023 and "less" .977.
    """
    if alternative == "two-sided":
        return pvalue
    return pvalue / 2 if (statistic > 0) == (alternative == "greater") else 1 - pvalue / 2


def chi2_tail(x: float, df: int) -> float:
    """The probability that a chi-square variable is above x.

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


def f_tail(x: float, above: float, below: float) -> float:
    """The probability that an F variable with these degrees of freedom is above x.

    Student's t with df degrees, squared, is an F variable with 1 and df.
    """
    if not (x > 0 and above > 0 and below > 0):
        return 1.0 if x <= 0 else math.nan
    return _beta(below / (below + above * x), above * x / (below + above * x), below / 2, above / 2)


def student_quantile(level: float, df: float) -> float:
    """The number t so that a Student variable is within t of 0 with probability ``level``.

    Newton's method from the normal quantile: the tail is convex and wider, so each step goes outward.
    """
    at = normal_quantile(level)
    if df > NEARLY_NORMAL:
        return at + (at**3 + at) / (4 * df)
    front = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2
    for _ in range(100):
        density = math.exp(front - (df + 1) / 2 * math.log1p(at**2 / df))
        step = (f_tail(at**2, 1, df) - (1 - level)) / (2 * density)
        at += step
        if abs(step) < 1e-12 * at:
            break
    return at


def _beta(x: float, rest: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by a continued fraction; ``rest`` is 1 - x, exactly."""
    if not x * rest > 0:
        return float(x > 0)
    if x > (a + 1) / (a + b + 2):  # where the fraction of the other end converges
        return 1 - _beta(rest, x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest))
    value, c, d = 2.0, 2.0, 1.0  # after the fraction's first term, which is 1
    for step in range(1, 1000):
        m = step // 2
        if step % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / (1 + term * d or 1e-300), 1 + term / c or 1e-300
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * (value - 1) / a
