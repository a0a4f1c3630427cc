# SPDX-License-Identifier: Apache-2.0
"""``own_noise`` lets several parties draw one common noise that nobody knows.

A discrete Laplace variable is the difference of two geometric ones, and a geometric variable is the
sum of k independent negative binomial ones of order 1/k. So k parties that each add X - Y, X and Y
negative binomial of order 1/k, add DLap(1/epsilon) in all: the noise of one curator.

Privacy:
    Claim: opened values with the shares added are as private as with DLap(1/epsilon), to everybody outside and to
    any ``colluding`` parties together, which subtract their own shares. Why: shares are of order 1/(m - colluding),
    so those of the other parties alone sum to DLap(1/epsilon); the numbers that the colluders added are a known
    constant. A share alone protects nobody: it is only added inside the computation. Assumes: a party draws by the
    protocol, from a key that nobody else knows (``rounds``), so the law is that of SHAKE-256 of 256 random bits;
    and it reveals to nobody the time of the draw, which grows with the share: ``rounds`` informs the others of a
    round only at whole ticks. Exact: the curator's sampler draws the geometric numbers (pinq/public/noise.py), and
    whole numbers decide which are kept. A share beyond ``noise_bound`` (probability at most 2^-100) is replaced by
    it. Held by: tests/privacy/test_secure_noise.py, tests/unit/test_known_draws.py.

References:
    Goryczka & Xiong 2017, sec. 4 (distributed geometric noise).
"""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from functools import lru_cache
from itertools import chain, count, islice

import numpy as np

from pinq.errors import QueryError
from pinq.public.noise import Bits, DiscreteLaplace

MIN_EPSILON = Fraction(1, 100_000)
BLOCK = 16  # successes that one draw decides
BUFFER = 8192  # bytes that a stream makes at once


def noise_bound(epsilon: Fraction) -> int:
    """A bound of one party's share of noise, reached with probability at most 2^-100.

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


def own_noise(shape: tuple[int, ...], epsilon: Fraction, honest: int, source: Bits, plays: int = 1) -> np.ndarray:
    """Draws this party's noise for each cell of an array.

    Args:
        shape: The shape of the array.
        epsilon: The loss of a cell by the noise of all parties.
        honest: The number of parties whose noise must suffice.
        source: The source of bits.
        plays: The number of parties that this process plays: 1, or all in one process.
    """
    bound = noise_bound(epsilon)
    # A process that plays three parties adds three shares, each within its bound.
    drawn = own_shares(math.prod(shape) * plays, epsilon, honest, source)
    return np.clip(drawn, -bound, bound).reshape(*shape, plays).sum(axis=-1, dtype=object)


def stream(seed: bytes) -> Bits:
    """A source of bits from a seed (SHAKE-256)."""
    blocks = (hashlib.shake_256(seed + number.to_bytes(8, "big")).digest(BUFFER) for number in count())
    drawn = chain.from_iterable(blocks)
    return Bits(lambda size: bytes(islice(drawn, size)))


def own_shares(numbers: int, epsilon: Fraction, order: int, source: Bits) -> np.ndarray:
    """Draws one party's shares of noise, Python's whole numbers, shape (numbers,).

    The sum of ``order`` of these is DLap(1/epsilon).
    """
    drawn = _negative_binomials(2 * numbers, epsilon, order, source)
    return drawn[:numbers] - drawn[numbers:]


def _negative_binomials(numbers: int, epsilon: Fraction, order: int, source: Bits) -> np.ndarray:
    """Draws x with P[x] = c(x) q^x (1-q)^(1/order), q = exp(-epsilon).

    c(x) = prod_{i <= x} ((i-1) order + 1) / (i order) <= 1: a geometric draw, kept with probability
    c(x).
    """
    law, drawn = _law(epsilon), np.zeros(numbers, dtype=object)
    places = np.arange(numbers)
    while len(places):
        drawn[places] = law.geometric(len(places), source)
        places = places[[not _is_kept(draw, order, source) for draw in drawn[places].tolist()]]
    return drawn


def _is_kept(draw: int, order: int, source: Bits) -> bool:
    # Of order 2: c(1) = 1/2 and c(2) = 1/2 * 3/4, as i = 1 and i = 2 succeed with 1 in 2 and with 3 in 4.
    odds = (_odds(first, min(first + BLOCK, draw + 1), order) for first in range(1, draw + 1, BLOCK))
    return all(source.below(cases) < successes for successes, cases in odds)


@lru_cache(maxsize=4096)
def _odds(first: int, end: int, order: int) -> tuple[int, int]:
    """The product of ((i-1) order + 1) / (i order), i from ``first`` to before ``end``, as a fraction."""
    numbers = range(first, end)
    return math.prod((i - 1) * order + 1 for i in numbers), math.prod(i * order for i in numbers)


@lru_cache(maxsize=1024)
def _law(epsilon: Fraction) -> DiscreteLaplace:
    return DiscreteLaplace(1 / epsilon)
