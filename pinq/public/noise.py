# SPDX-License-Identifier: Apache-2.0
"""Discrete Laplace noise for many numbers at once, exact to the last bit; choices need its geometric numbers.

``DiscreteLaplace`` draws K with P[K = k] = (1 - r) / (1 + r) * r**|k|, where r = exp(-1 / scale):

- K is the difference of two independent geometric numbers, P[G = g] = (1 - r) * r**g.
- The digits of G in base 64 are independent, because r**g is the product of (r**(64**i))**d over
  its digits d. Digit i has P[d] proportional to (r**(64**i))**d. The rest above n digits,
  G // 64**n, is geometric with r**(64**n); it stands as the last digit, which has no bound.
- A digit is the number of ends C_0 < C_1 < ... of its law that are at most U, where U is uniform
  in [0, 1). With q = r**(64**i), C_j = (1 - q**(j + 1)) / (1 - q**64), and of the last digit
  C_j = 1 - q**(j + 1).

Of U the first 64 bits are drawn: w / 2^64 <= U < (w + 1) / 2^64. Let F_j be 2^64 C_j, rounded down.
U is below C_j for w < F_j, and above it for w > F_j. For w = F_j more bits are drawn. No C_j is a
number of finitely many bits, because exp of a rational number is transcendental. So narrow enough
bounds on C_j decide F_j, and more bits decide the digit with probability 1.

Privacy:
    Exact: whole numbers and fractions only. Bits are the operating system's (``bits.py``), or follow from the key of a
    party that draws its share of a common noise. Nothing overflows. The last digit has a scale of at most 1, so its
    table ends by j = 45. With 64**n < 64 scale <= 2^56, numbers that tables decide are below 46 * 2^56 < 2^62. Numbers
    that more bits decide, and all of larger scales, are Python's; an answer is clamped to 64 bits, with its noise. Held
    by: tests/privacy/test_noise_by_digits.py.

References:
    Ghosh, Roughgarden & Sundararajan 2009 (the law); Knuth & Yao 1976 (bits as they are needed).
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import count, islice, takewhile

import numpy as np

from pinq.public.bits import SYSTEM, Bits

BASE = 64  # a scale up to 64 needs two tables, made in about .1 ms
WORD = 64  # bits; one draw of about 2^58 needs more
LARGEST_SCALE = 2**50  # of noise that is computed in 64 bits
LARGEST = 2**63 - 1


class DiscreteLaplace:
    """Noise of one scale."""

    def __init__(self, scale: Fraction) -> None:
        bounded = next(n for n in count() if BASE**n >= scale)
        self._digits = [Digit(BASE**place / scale, bounded=place < bounded) for place in range(bounded + 1)]
        kind = np.int64 if scale <= LARGEST_SCALE else object
        self._values = [np.array(BASE**place, dtype=kind) for place in range(bounded + 1)]

    def added(self, exact: np.ndarray, source: Bits = SYSTEM) -> np.ndarray:
        """Whole numbers below 2^62 in size with independent noise; int64, shape (numbers,)."""
        return np.clip(exact + self.draw(len(exact), source), -LARGEST, LARGEST).astype(np.int64)

    def draw(self, numbers: int, source: Bits = SYSTEM) -> np.ndarray:
        """Draws independent noise, shape (numbers,), in 64 bits or Python's whole numbers."""
        geometric = self.geometric(2 * numbers, source)
        return geometric[:numbers] - geometric[numbers:]

    def geometric(self, numbers: int, source: Bits = SYSTEM) -> np.ndarray:
        """Draws independent geometric numbers, P[G >= k] = r**k, shape (numbers,), as ``draw`` does."""
        drawn = np.zeros(numbers, dtype=np.int64)
        for digit, value in zip(self._digits, self._values, strict=True):
            drawn = drawn + digit.of(source.words(numbers), source) * value
        return drawn


class Digit:
    """One digit of geometric numbers: P[d + 1] / P[d] is exp(-step); the last one is unbounded."""

    def __init__(self, step: Fraction, *, bounded: bool) -> None:
        self._step, self._bounded = step, bounded
        last = 2**WORD - 1
        self._table = np.array([*takewhile(lambda end: end < last, self.ends(WORD)), last], dtype=np.uint64)

    def of(self, words: np.ndarray, source: Bits) -> np.ndarray:
        """The digits of uniform numbers that begin with these 64 bits."""
        digits = self._table.searchsorted(words)
        for place in np.flatnonzero(self._table[digits] == words):
            digits = digits.astype(object)
            digits[place] = self.settled(int(words[place]), source)
        return digits

    def settled(self, word: int, source: Bits) -> int:
        """Draws more bits of a uniform number that begins with these, until they decide its digit."""
        bits = WORD
        while True:
            bits, word = bits + WORD, word << WORD | source.word()
            digit, end = next((digit, end) for digit, end in enumerate(self.ends(bits)) if word <= end)
            if word < end:
                return digit

    def ends(self, bits: int) -> Iterator[int]:
        """Yields 2^bits C_j, rounded down, for j = 0, 1, ...."""
        number, spare = 0, WORD + int(1 / self._step).bit_length()
        while not self._bounded or number < BASE - 1:
            for low, high in islice(self._bounds(bits + spare), number, None):
                if low >> spare != high >> spare:
                    break
                yield low >> spare
                number += 1
            spare *= 2
        yield 2**bits

    def _bounds(self, bits: int) -> Iterator[tuple[int, int]]:
        """Yields 2^bits C_j, once not above it and once not below, each rounded down; not for a C_j of 1."""
        one = 2**bits
        low, high = exponential(self._step, bits)
        all_low, all_high = exponential(BASE * self._step, bits) if self._bounded else (0, 0)
        power_low, power_high = low, high  # bounds of q**(j + 1)
        for _ in range(BASE - 1) if self._bounded else count():
            at_most = (one - power_low << bits) // (one - all_high)
            yield (one - power_high << bits) // (one - all_low), min(at_most, one - 1)  # as C_j < 1
            power_low, power_high = power_low * low >> bits, -(-power_high * high >> bits)


def exponential(step: Fraction, bits: int) -> tuple[int, int]:
    """Bounds on 2^bits exp(-step), for a step above 0, from below and from above.

    With x = step / 2^n <= 1, exp(-x) is the sum of (-x)**i / i!, squared n times. A term is computed from the one
    before and rounded down. It is at most 2 too small: e <= e' x / i + 1 for its error e and the last one e', which
    starts at 0. From the first term that is 0, the rest of an alternating falling series is at most that term, so at
    most 2.
    """
    squarings = int(step).bit_length()
    x = step / 2**squarings
    total, term, i = 0, 2**bits, 0
    while term:
        total, i = total + term, i + 1
        term = -(abs(term) * x.numerator // (x.denominator * i)) * (1 if term > 0 else -1)
    low, high = total - 2 * i - 2, total + 2 * i + 2
    for _ in range(squarings):
        low, high = low * low >> bits, -(-high * high >> bits)
    return low, high
