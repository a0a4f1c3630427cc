# SPDX-License-Identifier: Apache-2.0
"""The time of a draw beside the number that is drawn: whether time tells how large noise is.

``python -m benchmarks.speed.draws [draws]`` draws numbers one by one (the noise of a count, and a
party's share). For each scale it prints the median time of the smallest and of the largest quarter
of sizes, the spread among the smallest, and Spearman's correlation of time and size.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from time import perf_counter_ns

import numpy as np
from scipy import stats

from pinq.public.noise import SYSTEM, DiscreteLaplace
from pinq_secure.mpc.noise import own_shares

SCALES = (1, 10, 64, 1000, 10**6, 2**50)
WARM = 200


def measured(draw: Callable[[], np.ndarray], draws: int) -> tuple[np.ndarray, np.ndarray]:
    """The sizes of numbers, and the nanoseconds that each took."""
    sizes, times = [], []
    for number in range(WARM + draws):
        began = perf_counter_ns()
        drawn = draw()
        ended = perf_counter_ns()
        if number >= WARM:
            sizes.append(abs(int(drawn[0])))
            times.append(ended - began)
    return np.array(sizes, dtype=float), np.array(times, dtype=float)


def line(name: str, draw: Callable[[], np.ndarray], draws: int) -> str:
    """The printed line of one kind of draw."""
    sizes, times = measured(draw, draws)
    low, high = np.quantile(sizes, [0.25, 0.75])
    small, large = np.median(times[sizes <= low]) / 1000, np.median(times[sizes >= high]) / 1000
    spread = np.subtract(*np.quantile(times[sizes <= low], [0.75, 0.25])) / 1000
    found = stats.spearmanr(sizes, times)
    return f"{name:28} {small:8.2f} {large:8.2f} {spread:8.2f} {found.statistic:8.3f} {found.pvalue:8.2g}"


def main(draws: int = 20_000) -> None:
    """Prints the table."""
    print(f"{draws:,} draws each{'':14} small us large us   spread   correl.  p")
    for scale in SCALES:
        law = DiscreteLaplace(Fraction(scale))
        print(line(f"noise of scale {scale:.3g}", lambda law=law: law.draw(1), draws))  # type: ignore[misc]
    for epsilon in (Fraction(1), Fraction(1, 50)):
        print(line(f"share of 1 / {float(1 / epsilon):g}", lambda e=epsilon: own_shares(1, e, 2, SYSTEM), draws // 10))  # type: ignore[misc]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
