# SPDX-License-Identifier: Apache-2.0
"""``own_noise`` lets several parties draw one common noise that nobody knows.

A discrete Laplace variable is the difference of two geometric ones, and a geometric variable is the
sum of k independent negative binomial ones of order 1/k. So k parties that each add X - Y, X and Y
negative binomial of order 1/k, add DLap(1/epsilon) in all: the noise of one curator.

Privacy:
    Claim: what is opened after adding the shares is as private as with DLap(1/epsilon), to
    everybody outside and to any ``colluding`` parties together, which subtract the shares they drew
    themselves.
    Why: shares are of order 1/(m - colluding), so those of the other parties alone sum to
    DLap(1/epsilon); what the colluders added is a known constant. A share alone protects nobody: it
    must only ever be added inside the computation.
    Assumes: a party draws as it should, from a key that nobody else knows (``rounds``), so the law
    is that of SHAKE-256 of 256 random bits; and it tells nobody how long that took, which grows with
    the share: ``rounds`` lets the others hear of a round only at whole ticks.
    Exact: integers and fractions only. A share beyond ``noise_bound`` (probability at most 2^-100)
    is moved there.
    Held by: tests/privacy/test_secure_noise.py.

References:
    Goryczka & Xiong 2017, sec. 4 (distributed geometric noise); Canonne, Kamath & Steinke 2020,
    algorithms 1 and 2 (exact sampling).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import chain, count, islice

import numpy as np

from pinq.errors import QueryError

Below = Callable[[int], int]
MIN_EPSILON = Fraction(1, 100_000)
BLOCK = 16  # successes that one draw decides
BUFFER = 8192  # bytes that a stream makes at once


def noise_bound(epsilon: Fraction) -> int:
    """Bounds one party's share of noise: it is reached with probability at most 2^-100.

    The share is X - Y, and both are dominated by a geometric variable with P[X >= b] = exp(-epsilon
    b), so it is at most twice that.

    Raises:
        QueryError: Noise of more than 100,000 rows, which would also take long to draw.
    """
    if epsilon < MIN_EPSILON:
        raise QueryError(
            f"a single question would have an epsilon of {float(epsilon):.2g}; it must be at least "
            f"{float(MIN_EPSILON):.5f}, the noise of about {int(1 / MIN_EPSILON):,} rows. "
            "Ask for more epsilon, or for less depth or fewer steps. Nothing left any party."
        )
    # At epsilon 1 the bound is 71, and 2 exp(-71) = 2.9e-31 is below 2^-100 = 7.9e-31.
    return math.ceil(Fraction(7 * 101, 10) / epsilon)  # ln 2 < 0.7


def own_noise(shape: tuple[int, ...], epsilon: Fraction, honest: int, below: Below, plays: int = 1) -> np.ndarray:
    """Draws what this party adds to each cell of an array.

    Args:
        shape: The shape of the array.
        epsilon: Loss that the noise of all parties stands for in a cell.
        honest: The number of parties whose noise must suffice.
        below: Draws a number below its argument.
        plays: The number of parties that this process plays: 1, or all in one process.
    """
    bound = noise_bound(epsilon)
    # A process that plays three parties adds three shares, each within its bound.
    cells = [
        sum(max(-bound, min(bound, own_share(epsilon, honest, below))) for _ in range(plays))
        for _ in range(math.prod(shape))
    ]
    return np.array(cells, dtype=object).reshape(shape)


def stream(seed: bytes) -> Below:
    """Returns a source of uniform numbers that follow from a seed (SHAKE-256)."""
    blocks = (hashlib.shake_256(seed + number.to_bytes(8, "big")).digest(BUFFER) for number in count())
    drawn = chain.from_iterable(blocks)

    def below(limit: int) -> int:
        bits = (limit - 1).bit_length()
        while True:
            value = int.from_bytes(islice(drawn, (bits + 7) // 8), "big") >> (-bits % 8)
            if value < limit:
                return value

    return below


def own_share(epsilon: Fraction, order: int, below: Below) -> int:
    """Draws one party's share of a noise: the sum of ``order`` of these is DLap(1/epsilon).

    Args:
        epsilon: Loss that the whole noise stands for, exact. Greater than 0.
        order: The number of parts that make the whole.
        below: Draws a number below its argument.
    """
    return _negative_binomial(epsilon, order, below) - _negative_binomial(epsilon, order, below)


def _negative_binomial(epsilon: Fraction, order: int, below: Below) -> int:
    """Draws x with P[x] = c(x) q^x (1-q)^(1/order), q = exp(-epsilon).

    c(x) = prod_{i <= x} ((i-1) order + 1) / (i order) <= 1: a geometric draw, kept with probability
    c(x).
    """
    while True:
        draw = _geometric(epsilon, below)
        # Of order 2: c(1) = 1/2 and c(2) = 1/2 * 3/4, as i = 1 and i = 2 succeed with 1 in 2 and
        # with 3 in 4.
        if all(_happens(first, min(first + BLOCK, draw + 1), order, below) for first in range(1, draw + 1, BLOCK)):
            return draw


def _happens(first: int, end: int, order: int, below: Below) -> bool:
    """Draws True with probability prod ((i-1) order + 1) / (i order), i from ``first`` to before ``end``."""
    successes, cases = _odds(first, end, order)
    return below(cases) < successes


@lru_cache(maxsize=4096)
def _odds(first: int, end: int, order: int) -> tuple[int, int]:
    numbers = range(first, end)
    return math.prod((i - 1) * order + 1 for i in numbers), math.prod(i * order for i in numbers)


def _geometric(epsilon: Fraction, below: Below) -> int:
    """Draws x with P[x] = (1-q) q^x, q = exp(-epsilon).

    With epsilon = a/b it is a geometric draw at 1/b, divided by a and rounded down.
    """
    while True:
        # A geometric draw at 1/b is low + b * high: low below b, kept with exp(-low / b), and high
        # geometric at 1. At epsilon 3/2, low 1 and high 4 make 9 at 1/2, and 9 // 3 = 3.
        low = below(epsilon.denominator)
        if _bernoulli_exp(low, epsilon.denominator, below):
            break
    high = 0
    while _bernoulli_exp(1, 1, below):
        high += 1
    return (low + epsilon.denominator * high) // epsilon.numerator


def _bernoulli_exp(numerator: int, denominator: int, below: Below) -> bool:
    """Draws True with probability exp(-numerator/denominator), a ratio of at most 1.

    True for odd k, where the k-th of draws of ratio/1, ratio/2, ... fails first.
    """
    # The first j draws all succeed with probability r^j / j!, r being the ratio, so the first
    # failure is at an odd k with 1 - r + r^2/2! - r^3/3! + ... = exp(-r).
    k = 1
    while below(denominator * k) < numerator:
        k += 1
    return k % 2 == 1
