# SPDX-License-Identifier: Apache-2.0
"""The sampler beside two other implementations of its law: OpenDP's exact discrete Laplace, by draws; mpmath, by the ends of digits.

`make assurance` draws and compares more. The draws of this package are seeded, OpenDP's cannot be: a right sampler fails the
comparison once in a million runs.
"""

from __future__ import annotations

import os
import random
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest
from scipy import stats

from pinq.public.noise import BASE, Bits, DiscreteLaplace

MORE = bool(os.environ.get("PINQ_ASSURANCE"))
DRAWS = 200_000
SCALES = [0.4, 1.0, 3.7, 64.0, 1000.5, 1e6]
LEVEL = 1e-6 / len(SCALES)


def misfit(one: np.ndarray, other: np.ndarray) -> float:
    """p-value of a two-sample chi-square test, in cells of about equal size."""
    edges = np.unique(np.quantile(np.concatenate([one, other]), np.linspace(0, 1, 25)).round())
    counts = np.array([np.bincount(np.searchsorted(edges, x), minlength=len(edges) + 1) for x in (one, other)])
    return float(stats.chi2_contingency(counts[:, counts.sum(axis=0) > 0]).pvalue)


@pytest.mark.skipif(not MORE, reason="set PINQ_ASSURANCE=1; OpenDP takes ten seconds to import")
@pytest.mark.parametrize("scale", SCALES)
def test_opendp_draws_the_same_law(scale: float) -> None:
    """At scales of all sizes; noise that is a quarter smaller is told apart."""
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    theirs = dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64"), scale=scale)
    drawn = np.array(theirs([0] * DRAWS))
    source = Bits(random.Random(f"beside OpenDP, {scale}").randbytes)
    assert misfit(drawn, DiscreteLaplace(Fraction(scale)).draw(DRAWS, source)) > LEVEL
    assert misfit(drawn, DiscreteLaplace(Fraction(scale) * 3 / 4).draw(DRAWS, source)) < LEVEL


def test_mpmath_has_the_same_ends() -> None:
    """Of every digit, to 64, 128 and 192 bits, for random scales and scales beside powers of the base."""
    mp = pytest.importorskip("mpmath")
    chance = random.Random(41)
    scales = [Fraction(BASE) ** power + side for power in range(1, 5) for side in (-1, 0, 1)]
    scales += [
        Fraction(chance.random() + 0.5) * Fraction(2) ** chance.randrange(-20, 90) for _ in range(60 if MORE else 3)
    ]
    for scale in scales:
        digits = DiscreteLaplace(scale)._digits
        for place, digit in enumerate(digits):
            step, is_last = BASE**place / scale, place == len(digits) - 1
            mp.mp.prec = 1200 + 100 * min(int(step), 90)
            one = mp.mpf(step.numerator) / step.denominator
            for bits in (64, 128, 192):
                found = list(islice(digit.ends(bits), 12 if is_last else BASE - 1))
                all_ = mp.mpf(1) if is_last else -mp.expm1(-BASE * one)
                exact = [int(mp.floor(-mp.expm1(-(j + 1) * one) / all_ * 2**bits)) for j in range(len(found))]
                assert found == [min(end, 2**bits - 1) for end in exact]
