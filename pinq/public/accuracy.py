# SPDX-License-Identifier: Apache-2.0
"""How exact a noisy answer is: functions of the request alone, so showing them is free.

Discrete Laplace noise of a scale has P(z) = (1 - p)/(1 + p) p^|z| on the integers, p =
exp(-1/scale) (privacy.md, notation and 2.1).
"""

from __future__ import annotations

import math

__all__ = ["figures", "laplace_interval", "max_belief", "standard_deviation"]


def standard_deviation(scale: float) -> float:
    """Standard deviation of the noise, in rows: sqrt(2p) / (1 - p)."""
    if scale <= 0:
        return 0.0
    return math.exp(-0.5 / scale) * math.sqrt(2) / -math.expm1(-1 / scale)


def laplace_interval(scale: float, level: float = 0.95) -> int:
    """The smallest whole k such that the noise lies in [-k, k] with probability at least ``level``.

    From P(|noise| > k) = 2 p^(k+1) / (1 + p).

    Args:
        scale: Scale of the discrete Laplace law, in rows.
        level: Between 0 and 1, both excluded.
    """
    if scale <= 0:
        return 0
    p = math.exp(-1 / scale)
    tail = (1 - level) * (1 + p) / 2
    # A hair is taken off before rounding up, or 2.0000000001 would become 3.
    return max(0, math.ceil(-scale * math.log(tail) - 1 - 1e-9))


def figures(number: float, most: int = 3) -> str:
    """Writes how far a number may be off as people do: 13,700 or 0.0124, few figures and no powers of ten."""
    return f"{float(f'{number:.{most}g}'):,.12g}"


def max_belief(epsilon: float, before: float) -> float:
    """The largest belief that answers can leave behind of a belief before them, between 0 and 1.

    Odds grow by e^epsilon at most: from .5 at epsilon 1 to .731.
    """
    return before / (before + (1 - before) * math.exp(-epsilon))
