# SPDX-License-Identifier: Apache-2.0
"""``noise_shares`` lets several parties draw one noise together that nobody knows.

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
    Exact: integers and fractions only. A share beyond ``noise_bound`` (probability at most 2^-100)
    is moved there.
    Held by: tests/privacy/test_secure_noise.py.

References:
    Goryczka & Xiong 2017, sec. 4 (distributed geometric noise); Canonne, Kamath & Steinke 2020,
    algorithms 1 and 2 (exact sampling).
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from miners.secure.mpc.arithmetic import Arithmetic, Shares
from miners.secure.mpc.bounds import noise_bound

__all__ = ["noise_shares", "own_noise", "own_share"]

Below = Callable[[int], int]


async def noise_shares(arithmetic: Arithmetic, shape: tuple[int, ...], epsilon: Fraction, colluding: int) -> Shares:
    """Shares independent noise, at least DLap(1/epsilon) to any ``colluding`` parties.

    Each party draws and keeps its own part.
    """
    return await arithmetic.sum_of_inputs(await own_noise(arithmetic, shape, epsilon, colluding))


async def own_noise(arithmetic: Arithmetic, shape: tuple[int, ...], epsilon: Fraction, colluding: int) -> np.ndarray:
    """Draws what this party adds to each cell of an array.

    The same from all parties is at least DLap(1/epsilon) to any ``colluding`` of them.
    """
    honest = arithmetic.parties - colluding
    bound = noise_bound(epsilon)
    cells = []
    for _ in range(math.prod(shape)):
        # A process that plays three parties adds three shares, each within its bound.
        cells.append(sum(max(-bound, min(bound, own_share(epsilon, honest))) for _ in range(arithmetic.plays)))
        # Drawing much noise takes a while, in which the others should hear that this party lives.
        await asyncio.sleep(0)
    return np.array(cells, dtype=object).reshape(shape)


def own_share(epsilon: Fraction, order: int, below: Below = secrets.randbelow) -> int:
    """Draws one party's share of a noise: the sum of ``order`` of these is DLap(1/epsilon).

    Args:
        epsilon: Loss that the whole noise stands for, exact. Greater than 0.
        order: How many shares make the whole.
        below: Draws a number below its argument; the operating system's by default.
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
        if all(below(i * order) < (i - 1) * order + 1 for i in range(1, draw + 1)):
            return draw


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
