# SPDX-License-Identifier: Apache-2.0
"""Polynomials with rational coefficients in one unknown t, and whether one is negative anywhere from 0 to 1.

The law of a mechanism's noise is made of whole powers of t = exp(-1 / scale), added and multiplied. So a statement
about these polynomials for all t holds for the mechanism at every epsilon, without rounding.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

DEEPEST = 30


@dataclass(frozen=True)
class Polynomial:
    """``coefficients[k]`` belongs to t to the power k; the last one is not 0."""

    coefficients: tuple[Fraction, ...]

    @classmethod
    def of(cls, coefficients: list[Fraction]) -> Polynomial:
        """A polynomial with these coefficients, those of the highest powers left out where they are 0."""
        length = len(coefficients)
        while length and not coefficients[length - 1]:
            length -= 1
        return cls(tuple(coefficients[:length]))

    def __add__(self, other: Polynomial) -> Polynomial:
        longer, shorter = sorted((self.coefficients, other.coefficients), key=len, reverse=True)
        return Polynomial.of([a + b for a, b in zip(longer, shorter, strict=False)] + list(longer[len(shorter) :]))

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + other * MINUS_ONE

    def __mul__(self, other: Polynomial) -> Polynomial:
        product = [Fraction(0)] * max(0, len(self.coefficients) + len(other.coefficients) - 1)
        for power, a in enumerate(self.coefficients):
            for more, b in enumerate(other.coefficients):
                product[power + more] += a * b
        return Polynomial.of(product)

    def at(self, t: Fraction) -> Fraction:
        """Its value at one t."""
        value = Fraction(0)
        for coefficient in reversed(self.coefficients):
            value = value * t + coefficient
        return value


def power(exponent: int, coefficient: Fraction | int = 1) -> Polynomial:
    """``coefficient`` times t to the power ``exponent``."""
    return Polynomial.of([Fraction(0)] * exponent + [Fraction(coefficient)])


NOTHING, ONE, MINUS_ONE = power(0, 0), power(0), power(0, -1)


@lru_cache(maxsize=2**16)
def nowhere_negative(polynomial: Polynomial) -> bool:
    """Returns whether it is 0 or more for all t from 0 to 1.

    On an interval a polynomial lies between the least and the largest of its Bernstein coefficients, and the first and
    the last of them are its values at both ends. If they do not decide, each half of the interval is checked separately
    (de Casteljau).
    """
    pieces = [(_bernstein(polynomial), 0)]
    while pieces:
        piece, depth = pieces.pop()
        if min(piece, default=0) >= 0:
            continue
        if piece[0] < 0 or piece[-1] < 0:
            return False
        if depth == DEEPEST:
            raise ArithmeticError("the polynomial touches 0 somewhere, and halving intervals cannot tell on which side")
        pieces += [(half, depth + 1) for half in _halves(piece)]
    return True


def _bernstein(polynomial: Polynomial) -> list[Fraction]:
    coefficients, degree = polynomial.coefficients, len(polynomial.coefficients) - 1
    return [
        sum((Fraction(math.comb(k, i), math.comb(degree, i)) * coefficients[i] for i in range(k + 1)), Fraction(0))
        for k in range(degree + 1)
    ]


def _halves(piece: list[Fraction]) -> tuple[list[Fraction], list[Fraction]]:
    """The Bernstein coefficients of a polynomial on the left and the right half of its interval."""
    left, right = list[Fraction](), list[Fraction]()
    while piece:
        left.append(piece[0])
        right.append(piece[-1])
        piece = [(a + b) / 2 for a, b in itertools.pairwise(piece)]
    return left, right[::-1]
