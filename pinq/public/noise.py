# SPDX-License-Identifier: Apache-2.0
"""Random bits, and discrete Laplace noise for many numbers at once, exact to the last bit.

All noise, choices and shares use ``SYSTEM``, tested bits of the operating system, or bytes that follow from a key that
``SYSTEM`` made. A forked process does not repeat its parent.

``DiscreteLaplace`` draws K with P[K = k] = (1 - r) / (1 + r) * r**|k|, where r = exp(-1 / scale); choices need its
geometric numbers.

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
    Exact: whole numbers and fractions only. Bits are the operating system's (``Watched``), or follow from the key of a
    party that draws its share of a common noise. Nothing overflows. The last digit has a scale of at most 1, so its
    table ends by j = 45. With 64**n < 64 scale <= 2^56, numbers that tables decide are below 46 * 2^56 < 2^62. Numbers
    that more bits decide, and all of larger scales, are Python's; an answer is clamped to 64 bits, with its noise. Held
    by: tests/privacy/test_noise_by_digits.py.

References:
    Ghosh, Roughgarden & Sundararajan 2009 (the law); Knuth & Yao 1976 (bits as they are needed).
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import count, islice, takewhile

import numpy as np

from pinq.errors import Unavailable

SAMPLE = 16  # bytes
WINDOW = 2**13  # bytes
DEVIATION = 5.9
FAILED = "The random bits of this machine failed a test. No noise can be drawn, so nothing is answered or charged."

_log = logging.getLogger("pinq.public.noise")


class Bits:
    """Uniform numbers.

    Args:
        take: A function that gives this many new random bytes.
    """

    def __init__(self, take: Callable[[int], bytes]) -> None:
        self.take = take

    def words(self, numbers: int) -> np.ndarray:
        return np.frombuffer(self.take(8 * numbers), dtype="<u8")

    def word(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def below(self, limit: int) -> int:
        """Draws a number below ``limit``, which is at least 1."""
        bits = (limit - 1).bit_length()
        while True:
            drawn = int.from_bytes(self.take((bits + 7) // 8), "big") >> (-bits % 8)
            if drawn < limit:
                return drawn


class _Window(threading.local):
    """The draws of a thread since the last tested window."""

    def __init__(self) -> None:
        self.draws: list[bytes] = []
        self.size, self.last = 0, b""


class Watched:
    """A source of random bytes under test.

    It runs the health tests of NIST SP 800-90B, section 4.4, on all bytes that it gives. Once one has failed, this
    process draws nothing and charges nothing. A sample is 16 bytes; good ones have 128 bits of entropy.

    - Repetition count: a sample equals the one before it. Of good bits, with a chance of 2^-128.
    - Adaptive proportion: the first sample of a window appears in it again; or the ones among its n bits are more than
      ``DEVIATION`` sqrt(n) from n / 2. A window ends with the draw that reaches 8 kB (2^16 bits), of which 48 % ones
      fail. The first happens with a chance of 2^-128 for each sample. The second has a chance of
      2 exp(-2 ``DEVIATION``^2) < 2^-98 (Hoeffding), and below 2^-89 for all 512 lengths together that a window may
      have before its last draw.

    A process that draws 2^54 bytes (five years at 100 MB a second) has 2^50 samples and 2^41 windows.
    It has a false alarm with a chance below 2 * 2^50 * 2^-128 + 2^41 * 2^-89 < 2^-47.

    Privacy:
        Claim: rows change the chance that a test of good bits fails by less than 2^-47, as all false alarms above. Why:
        the bits do not depend on rows. Their number depends on public numbers and, little, on rows: a choice among
        equal candidates draws until a number is below theirs, and at most one draw of 2^39 takes more bits. So rows can
        only move where a window of good bits ends. Before each charge a new sample is tested, and a whole window before
        the first one of a thread, so bits that are already bad cost no analyst any epsilon. A draw that begins with the
        last sample of the draw before it is not used, so stuck bits are never used. Other tests look at whole windows.
        A test that fails in a draw after the charge ends in ``EngineError``. Not detected: good bits that somebody else
        knows. Held by: tests/unit/test_bits.py.

    Attributes:
        failed: Whether a test failed, ever.

    References:
        Turan, Barker, Kelsey, McKay, Baish & Boyle 2018 (NIST SP 800-90B); Hoeffding 1963.
    """

    def __init__(self, source: Callable[[int], bytes]) -> None:
        self._source, self._window, self.failed = source, _Window(), False

    def require(self) -> None:
        """Tests a new sample, or a window if the thread has drawn nothing; raises ``Unavailable`` if a test failed."""
        self.take(SAMPLE if self._window.last else WINDOW)

    def take(self, size: int) -> bytes:
        """Draws bytes; raises ``Unavailable`` if a test failed."""
        if not size:
            return b""
        drawn, window = self._source(size + -size % SAMPLE), self._window
        window.draws.append(drawn)
        window.size += len(drawn)
        fault = "a sample repeats the one before it" if drawn[:SAMPLE] == window.last else ""
        window.last = drawn[-SAMPLE:]
        if window.size >= WINDOW:
            fault = fault or fault_of(b"".join(window.draws))
            window.draws, window.size = [], 0
        if fault:
            self.failed = True
            _log.critical("The operating system's random bits failed a test: %s. No more are used.", fault)
        if self.failed:
            raise Unavailable(FAILED)
        return drawn[:size]


def fault_of(content: bytes) -> str:
    """The test that a window of whole samples fails; empty for none."""
    words = np.frombuffer(content, dtype=np.uint64)
    same = words[2:] == words[:-2]
    if (same[::2] & same[1::2]).any():
        return "a sample repeats the one before it"
    if ((words[2::2] == words[0]) & (words[3::2] == words[1])).any():
        return "a sample appears twice in a window"
    bits, ones = 64 * len(words), int(np.bitwise_count(words).sum(dtype=np.int64))
    return f"{ones} of {bits} bits are 1" if (ones - bits / 2) ** 2 > DEVIATION**2 * bits else ""


WATCHED = Watched(secrets.token_bytes)
SYSTEM = Bits(WATCHED.take)


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
        for place in (self._table[digits] == words).nonzero()[0]:
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
