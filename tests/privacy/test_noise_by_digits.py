# SPDX-License-Identifier: Apache-2.0
"""The law of discrete Laplace noise to the last bit: each end of each digit's law, each draw beside it, and how digits make a number.

What a digit makes of a draw rises with the draw, so the draws beside an end decide all others. The chi-square tests are as sure as
tests/support/laws/laws.py says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import islice

import numpy as np
import pytest

from pinq.curator.mechanisms import laplace
from pinq.public import noise
from pinq.public.noise import BASE, LARGEST, LARGEST_SCALE, SYSTEM, WORD, Bits, Digit, DiscreteLaplace, exponential
from tests.support.laws.laws import interval_of, law_is, noise_law

SCALES = [
    Fraction(1, 10**6),
    Fraction(1, 20),
    Fraction(1, 2),
    Fraction(0.3),
    Fraction(1),
    Fraction(10),
    Fraction(BASE),
    Fraction(1000.1),
    Fraction(2**40 + 1),
    Fraction(LARGEST_SCALE),
    Fraction(2.0**92 / 3),
]
scales = pytest.mark.parametrize("scale", SCALES, ids=float)


def of_words(*words: int) -> Bits:
    """Gives these words, and then no more."""
    left = list(words)
    source = Bits(lambda size: b"")
    source.word = lambda: left.pop(0)  # type: ignore[method-assign]
    return source


def digits_of(scale: Fraction) -> list[Digit]:
    return DiscreteLaplace(scale)._digits


@lru_cache(maxsize=2**12)
def power_of(exponent: Fraction) -> tuple[Fraction, Fraction]:
    """Two rational numbers with exp(-exponent) between them."""
    if exponent > 1000:
        return Fraction(0), Fraction(1, 10**400)
    context = Context(prec=150)  # a quotient and a power are rounded correctly
    power = Fraction(context.exp(context.divide(Decimal(-exponent.numerator), Decimal(exponent.denominator))))
    return power * (1 - Fraction(1, 10**140)), power * (1 + Fraction(1, 10**140))


def ends_of(digit: Digit, place: int, scale: Fraction, last: bool) -> Iterator[tuple[Fraction, Fraction]]:
    """Rational bounds on C_j, the chance of a digit up to j, from its definition."""
    step = BASE**place / scale
    low, high = (Fraction(0), Fraction(0)) if last else power_of(BASE * step)
    for j in range(len(digit._table) if last else BASE - 1):
        below, above = power_of((j + 1) * step)
        yield (1 - above) / (1 - low), (1 - below) / (1 - high)
    if not last:
        yield Fraction(1), Fraction(1)


@scales
def test_the_ends_of_every_digit_are_exact(scale: Fraction) -> None:
    """64 and 128 bits of each are those of the law; the tables of a number are in base 64, the last one to the end of 64 bits."""
    digits = digits_of(scale)
    assert scale <= BASE ** (len(digits) - 1) < max(2, BASE * scale)
    for place, digit in enumerate(digits):
        last = place == len(digits) - 1
        assert digit._bounded == (not last)
        assert len(digit._table) <= (45 if last else BASE)
        for bits in (WORD, 2 * WORD):
            law = list(ends_of(digit, place, scale, last))
            wanted = [int(below * 2**bits) for below, _ in law]
            # An end below 1 is at most all ones: there the bound above is 1 for the smallest scales.
            assert wanted == [min(int(above * 2**bits), 2**bits - (below < 1)) for below, above in law]
            assert list(islice(digit.ends(bits), len(wanted))) == wanted
            if bits == WORD:
                table = digit._table.tolist()
                assert table == [min(end, 2**WORD - 1) for end in wanted][: len(table)]
                assert table[-1] == 2**WORD - 1


@scales
def test_every_draw_makes_the_digit_in_whose_share_it_lies(scale: Fraction) -> None:
    """Of 64 bits beside each end, and off by any power of two; at an end the next 64 bits decide, and there the next."""
    for digit in digits_of(scale):
        ends, more = digit._table.tolist(), list(islice(digit.ends(2 * WORD), len(digit._table)))
        words = {end + sign * 2**away for end in ends for away in range(WORD) for sign in (-1, 1)} - set(ends)
        drawn = np.array([word for word in words if 0 <= word < 2**WORD], dtype=np.uint64)
        assert digit.of(drawn, of_words()).tolist() == [sum(end < word for end in ends) for word in drawn.tolist()]
        for end, exactly in list(zip(ends, more, strict=True))[: BASE - 1 if digit._bounded else None]:
            if exactly >> WORD != end:  # an end of a rare digit, beyond all of 64 bits
                continue
            for word, number in (
                (exactly - 1, sum(e < exactly for e in more)),
                (exactly + 1, sum(e <= exactly for e in more)),
            ):
                if word >> WORD == end:
                    more_bits = of_words(word % 2**WORD)
                    assert digit.of(np.array([end], dtype=np.uint64), more_bits).tolist() == [number]


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(1), Fraction(7)], ids=float)
def test_all_short_draws_have_the_law(scale: Fraction, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all 2^16 draws of two words of 8 bits, each digit gets its share but for one at each end, which needs a third word."""
    monkeypatch.setattr(noise, "WORD", 8)
    for place, digit in enumerate(digits_of(scale)):
        draws, undecided = np.zeros(BASE), 0
        for word in range(2**8):
            at_an_end = word in digit._table
            for more in range(2**8) if at_an_end else [0]:
                try:
                    draws[int(digit.of(np.array([word], dtype=np.uint64), of_words(more))[0])] += (
                        1 if at_an_end else 2**8
                    )
                except IndexError:
                    undecided += 1
        assert draws.sum() + undecided == 2**16
        q = math.exp(-float(BASE**place / scale))
        share = (1 - q) * q ** np.arange(BASE) / (1 - q**BASE if digit._bounded else 1) * 2**16
        assert (draws <= share + 1e-6).all()
        assert (share <= draws + 2 + 1e-6).all()


def test_a_number_is_the_difference_of_two_that_the_digits_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """All digits of a number come from words of their own; the second half of the numbers is taken from the first."""
    drawn: list[np.ndarray] = []
    right = Digit.of

    def noted(digit: Digit, words: np.ndarray, source: Bits) -> np.ndarray:
        drawn.append(right(digit, words, source))
        return drawn[-1]

    monkeypatch.setattr(Digit, "of", noted)
    for scale in SCALES:
        drawn.clear()
        found = DiscreteLaplace(scale).draw(50)
        written = [sum(int(d) * BASE**place for place, d in enumerate(digits)) for digits in zip(*drawn, strict=True)]
        assert found.tolist() == [one - other for one, other in zip(written[:50], written[50:], strict=True)]
        assert found.dtype == (np.int64 if scale <= LARGEST_SCALE else object)


@pytest.mark.parametrize("scale", [*SCALES[1:], Fraction(2**20)], ids=float)
def test_drawn_noise_has_the_law(scale: Fraction) -> None:
    """By chi-square over the middle and both tails, at scales of all sizes."""
    drawn = DiscreteLaplace(scale).draw(30_000)
    edges = np.unique(np.floor(np.arange(-12, 12) * max(1.0, float(scale)) / 2))
    law_is(interval_of(drawn.astype(np.float64), edges), noise_law(float(scale), edges))


def test_another_scale_would_be_seen() -> None:
    """Ends of noise that is smaller by a part in a million millions differ from those of the right one."""
    for right, wrong in zip(digits_of(Fraction(10)), digits_of(10 - Fraction(1, 10**11)), strict=True):
        assert (right._table[:3] != wrong._table[:3]).all()


# What passes 64 bits


def all_ones(words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two numbers is made of ones alone, in so many further words; the second one of zeros."""
    halves = np.array([2**WORD - 1, 0], dtype=np.uint64)
    monkeypatch.setattr(SYSTEM, "words", lambda numbers: halves.repeat(numbers // 2))
    monkeypatch.setattr(SYSTEM, "word", of_words(*[2**WORD - 1] * words, *[0] * 1000).word)


@scales
@pytest.mark.parametrize("words", [0, 1, 7])
def test_the_largest_noise_is_exact(scale: Fraction, words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of bits that are all 1 is one of Python's numbers, and an answer stops at 64 bits."""
    law = DiscreteLaplace(scale)
    all_ones(words, monkeypatch)
    drawn = law.draw(1)
    assert drawn.dtype == object
    all_ones(words, monkeypatch)
    assert law.added(np.array([2**62 - 1])).tolist() == [min(2**62 - 1 + drawn[0], LARGEST)]
    all_ones(words, monkeypatch)
    assert law.added(np.array([1 - 2**62])).tolist() == [min(1 - 2**62 + drawn[0], LARGEST)]


def test_numbers_that_tables_decide_have_62_bits() -> None:
    """At the largest scale of 64-bit arithmetic, the last digits of all tables make less than 2^62."""
    for scale in (Fraction(LARGEST_SCALE), Fraction(BASE**8), Fraction(BASE**8 + 1)):
        assert scale <= LARGEST_SCALE
        assert sum((len(digit._table) - 1) * BASE**place for place, digit in enumerate(digits_of(scale))) < 2**62


def test_an_answer_stops_at_64_bits() -> None:
    """Noise wider than 64 bits leaves answers at both ends, never wrapped around; the middle keeps its law."""
    noisy = laplace(np.full(4000, 2**62 - 1), 2**62, Fraction(1, 2))
    below = [math.exp(-1.5) / 2, math.exp(-0.5) / 2, 1 - math.exp(-0.5) / 2]
    law_is(np.searchsorted([1 - LARGEST, 0, LARGEST - 1], noisy, side="left"), np.diff(below, prepend=0.0, append=1.0))


# Bounds on exponentials


@pytest.mark.parametrize("bits", [64, 200])
@pytest.mark.parametrize("step", [Fraction(1, 2**92), Fraction(1, 3), Fraction(1), Fraction(63), Fraction(10**6)])
def test_bounds_on_exponentials_hold(step: Fraction, bits: int) -> None:
    """The power lies between its bounds, and these are close to each other."""
    low, high = exponential(step, bits)
    below, above = (bound * 2**bits for bound in power_of(step))
    assert low <= above
    assert below <= high
    assert 0 <= high - low <= 2000 * max(1, int(step))
