# SPDX-License-Identifier: Apache-2.0
"""Which run of the weighted choice each of the 2^64 first draws falls to, and each of the 2^128 where that one does not tell.

A uniform number falls to the run whose share of [0, 1] it lies in; the ends of the shares are enclosed between two rational numbers.
What the code makes of a draw rises with it, so the draws beside an end decide all others: the law is exact, whatever is rounded inside.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest

from pinq.curator import mechanisms
from pinq.curator.mechanisms import Weighted, choose_weighted
from tests.support.laws.exact_releases import exponential
from tests.support.laws.laws import weighted

CASES = {
    "two runs": weighted([0, 0], [1, 2], [3, 3]),
    "a cut's runs": weighted([5, 3, 3, 0], [1, 20, 0, 79], [100, 100, 100, 100]),
    "a mixture": weighted([7, 4, 6, 6, 0], [1, 1, 40, 2, 1000], [2, 2, 1042, 1042, 1042]),
    "an empty run above the best": weighted([10**9, 1, 0, 2], [0, 3, 4, 5], [12, 12, 12, 12]),
    "a rare run": weighted([0, -150, 1], [1, 10**9, 5], [1, 10**9, 10]),
}
SPAN, EPSILON = 3, Fraction(3, 2)


class Bits:
    """Gives these words of 64 bits, and then no more."""

    def __init__(self, *words: int) -> None:
        self.words = list(words)

    def word(self) -> int:
        return self.words.pop(0)

    def below(self, members: int) -> int:
        return members - 1


def drawn(runs: Weighted, *words: int, epsilon: Fraction = EPSILON) -> int:
    """The run that these words of random bits choose."""
    run, member = choose_weighted(runs, SPAN, epsilon, source=Bits(*words, 0))  # type: ignore[arg-type]
    assert member == runs.members[run] - 1
    return run


def filled(runs: Weighted) -> list[int]:
    """The runs that have members."""
    return [run for run, members in enumerate(runs.members.tolist()) if members]


def ends(runs: Weighted, bits: int, epsilon: Fraction = EPSILON) -> list[int]:
    """Where the share of each run with members ends but the last one's: the number of so many bits that the end lies in."""
    best = max(int(runs.scores[run]) for run in filled(runs))
    weights = [
        [
            Fraction(int(runs.members[run]), int(runs.mass[run])) * bound
            for bound in exponential(epsilon * (int(runs.scores[run]) - best) / SPAN)
        ]
        for run in filled(runs)
    ]
    low, high = (list(itertools.accumulate(bounds)) for bounds in zip(*weights, strict=True))
    numbers = [
        (below * 2**bits // high[-1], above * 2**bits // low[-1]) for below, above in zip(low, high, strict=True)
    ]
    assert all(below == above for below, above in numbers[:-1])
    return [int(number) for number, _ in numbers[:-1]]


def agree(runs: Weighted, epsilon: Fraction = EPSILON) -> bool:
    """Whether draws beside each end, and further off on both sides, choose the run that they lie in."""
    first, both = ends(runs, 64), ends(runs, 128)
    far = [1, 2, *(2**bits for bits in range(4, 64, 4))]
    draws = {end + sign * away for end in first for away in far for sign in (-1, 1)} - set(first)
    words: list[tuple[int, ...]] = [(draw,) for draw in draws if 0 <= draw < 2**64]
    words += [(end, exact - (end << 64) + side) for end, exact in zip(first, both, strict=True) for side in (-1, 1)]
    for word in words:
        number = word[0] << 64 | (word[1] if len(word) > 1 else 0)
        run = filled(runs)[sum(end < number for end in both)]
        if drawn(runs, *word, epsilon=epsilon) != run:
            return False
    return True


@pytest.mark.parametrize("block", [1, 2, mechanisms.BLOCK])
@pytest.mark.parametrize("name", CASES)
def test_every_draw_falls_to_the_run_in_whose_share_it_lies(
    name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 64 bits just below and above each end, and off by any power of two; at an end itself the next 64 bits decide.

    Whether the end is one of a block, or within one.
    """
    monkeypatch.setattr(mechanisms, "BLOCK", block)
    assert agree(CASES[name])


@pytest.mark.parametrize("fault", [Fraction(1, 2), Fraction(85, 100), Fraction(1) - Fraction(1, 10**12)], ids=str)
def test_another_epsilon_would_be_seen(fault: Fraction) -> None:
    """Shares of another epsilon end elsewhere, be it larger by a part in a million millions only."""
    assert not agree(CASES["a cut's runs"], EPSILON / fault)
