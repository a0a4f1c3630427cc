# SPDX-License-Identifier: Apache-2.0
"""The noise and both choices against their exact laws. How sure these tests are: see tests/support/laws/laws.py."""

from __future__ import annotations

import itertools
import math
import secrets
from collections.abc import Iterator
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest

import pinq.curator.mechanisms
from pinq.curator.mechanisms import Weighted, choose, choose_each, choose_weighted, laplace, scale_of
from pinq.public.epsilon import laplace_interval
from tests.support.laws.laws import flip_law, law_is, weighted, weighted_law

# Discrete Laplace noise


@pytest.mark.parametrize(
    ("sensitivity", "epsilon"), [(1, Fraction(1, 10)), (1, Fraction(2)), (1000, Fraction(3, 2)), (7, Fraction(1, 3))]
)
def test_noise_follows_the_discrete_laplace_law(sensitivity: int, epsilon: Fraction) -> None:
    """P[k] = (1 - a) / (1 + a) a^|k| with a = exp(-epsilon / sensitivity), by chi-square over the middle and both tails."""
    noise = laplace(np.zeros(40_000, dtype=np.int64), sensitivity, epsilon)
    a = math.exp(-float(epsilon) / sensitivity)
    width = max(1, math.ceil(sensitivity / float(epsilon)))
    edges = np.arange(-5 * width, 5 * width + 1, max(1, width // 3))
    below = np.where(
        edges < 0, a ** np.abs(edges).astype(float) / (1 + a), 1 - a ** (edges + 1.0) / (1 + a)
    )  # P[k <= edge]
    law_is(np.searchsorted(edges, noise, side="left"), np.diff(below, prepend=0.0, append=1.0))


def test_noise_is_fresh_for_each_number() -> None:
    """Numbers of one array get independent noise: neighbours are uncorrelated, and zeros get noise like all others."""
    noise = laplace(np.zeros(40_000, dtype=np.int64), 1, Fraction(1, 2))
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 5.4 / math.sqrt(len(noise))
    assert np.mean(noise == 0) < 0.3


def test_noise_keeps_shape_and_big_numbers_exact() -> None:
    """Answers are integers of the same shape; numbers beyond 2^53 keep their last digit."""
    big = 2**60 + 1
    noisy = laplace(np.full((3, 2), big), 1, Fraction(1000))
    assert noisy.shape == (3, 2)
    assert noisy.dtype == np.int64
    assert (noisy == big).all()  # at epsilon 1000 a change has probability exp(-1000)


def test_no_noise_where_no_row_can_matter() -> None:
    """Sensitivity 0 and empty arrays come back as they are."""
    assert laplace(np.array([3, 4]), 0, Fraction(1)).tolist() == [3, 4]
    assert laplace(np.zeros(0, dtype=np.int64), 1, Fraction(1)).tolist() == []


@pytest.mark.parametrize(
    ("sensitivity", "epsilon"),
    [
        (1, Fraction(1, 10)),
        (3, Fraction(7, 3)),
        (2**40 + 1, Fraction(10**9 + 7, 10**9)),
        (1, Fraction(10**-9).limit_denominator(10**9)),
    ],
)
def test_scales_are_rounded_up(sensitivity: int, epsilon: Fraction) -> None:
    """A float that stands for a scale is never below the exact scale."""
    for larger in range(40):  # the nearest double is below half of these
        exact = Fraction(sensitivity + larger) / epsilon
        assert exact <= Fraction(scale_of(sensitivity + larger, epsilon)) <= exact * (1 + Fraction(1, 2**51))


@pytest.mark.parametrize("scale", [0.01, 0.5, 3.0, 1000.0])
def test_intervals_hold_their_level(scale: float) -> None:
    """The stated interval covers at least its level and one less does not."""
    a = math.exp(-1 / scale)
    for level in (0.5, 0.95, 0.999):
        k = laplace_interval(scale, level)
        assert 1 - 2 * a ** (k + 1) / (1 + a) >= level - 1e-9
        assert k == 0 or 1 - 2 * a**k / (1 + a) < level + 1e-9


# Permute-and-flip


@pytest.mark.parametrize(
    "scores", [[0, 0], [0, 3], [5, 4, 4, 0], [7, 7, 7, 7, 6, -50], [0, -1, -2, -3, -4, -5, -6, -7]], ids=str
)
def test_choices_follow_permute_and_flip(scores: list[int]) -> None:
    """The law of permute-and-flip with eta = epsilon / span, by chi-square; a common shift changes nothing."""
    epsilon, span = Fraction(3, 2), 2
    drawn = np.array([choose(np.array(scores) + 10**12, span, epsilon) for _ in range(6000)])
    law = flip_law(scores, float(epsilon / span))
    assert math.isclose(law.sum(), 1)
    law_is(drawn, law)


def test_the_law_of_permute_and_flip_is_the_one_of_the_paper() -> None:
    """The integral agrees with the definition, simulated: visit in random order, accept with exp(eta (q - best))."""
    random = np.random.default_rng(4)
    scores, eta = [3, 2, 0], 0.8
    accept = np.exp(eta * (np.array(scores) - 3))
    drawn = []
    for _ in range(20_000):
        for r in random.permutation(3):
            if random.random() < accept[r]:
                drawn.append(r)
                break
    law_is(np.array(drawn), flip_law(scores, eta))


@pytest.mark.parametrize("best", [9, 10**12])  # beside a far one a choice by the best of all lists never ends
def test_lists_are_chosen_from_each_by_its_own_law(best: int) -> None:
    """Lists of other lengths and other best scores between them, and choices that do not follow each other."""
    lists, eta = [[5, 4, 4, 0], [best - 1, best], [7], [-1, -2, 0, -1, 0, -3]], Fraction(3, 4)
    lengths = [len(scores) for scores in lists]
    drawn = choose_each(np.tile(np.concatenate(lists), 6000), lengths * 6000, 1, eta).reshape(6000, len(lists))
    laws = [flip_law([score - max(scores) for score in scores], float(eta)) for scores in lists]
    for own, law in zip(drawn.T, laws, strict=True):
        law_is(own, law)
    law_is(drawn[:, 0] * lengths[3] + drawn[:, 3], np.outer(laws[0], laws[3]).ravel())


def test_those_accepted_are_equally_likely() -> None:
    """A candidate k behind the best of its list is accepted by a geometric number of k or more, and each number below those accepted takes one."""

    class Law:
        def geometric(self, numbers: int, source: object) -> np.ndarray:
            return np.array([0, 2, 1, 0, 0, 3, 0, 2])

    scores, lengths = np.array([9, 7, 7, 9, 0, 5, 5, 2]), [4, 1, 3]
    found = []
    for first, last in itertools.product(range(3), range(2)):
        taken = iter([(3, first), (1, 0), (2, last)])

        def below(limit: int, taken: Iterator[tuple[int, int]] = taken) -> int:
            size, number = next(taken)
            assert limit == size
            return number

        source = SimpleNamespace(below=below)
        found.append(pinq.curator.mechanisms._flip(Law(), scores, np.array(lengths), source).tolist())  # type: ignore[arg-type]
    assert found == [[first, 0, last] for first in (0, 1, 3) for last in (0, 1)]


def test_a_single_candidate_is_chosen() -> None:
    """Nothing to choose: position 0."""
    assert choose(np.array([-5]), 1, Fraction(1)) == 0


# The weighted choice


WEIGHTED = [
    weighted([0, 0], [1, 1], [1, 1]),
    weighted([5, 3, 3, 0], [1, 20, 0, 79], [100, 100, 100, 100]),
    weighted([10**9, 1, 0, 2], [0, 3, 4, 5], [12, 12, 12, 12]),
    weighted([0, 0, -4000, 1], [1, 1, 10**9, 5], [1, 1, 10**9, 10]),
    weighted([-3], [7], [7]),
]


@pytest.mark.parametrize("one", WEIGHTED, ids=range(len(WEIGHTED)))
def test_weighted_choices_follow_the_exponential_mechanism(one: Weighted) -> None:
    """P[run] is proportional to members / mass exp(eta score), by chi-square, and the member is uniform; runs without members never come."""
    epsilon, span = Fraction(3, 2), 3
    drawn = [choose_weighted(one, span, epsilon) for _ in range(6000)]
    law_is(np.array([run for run, _ in drawn]), weighted_law(one, float(epsilon / span)))
    for run in range(len(one.members)):
        inside = np.array([member for found, member in drawn if found == run])
        if len(inside) > 200 and one.members[run] < 100:
            law_is(inside, np.full(int(one.members[run]), 1 / int(one.members[run])))


@pytest.mark.parametrize("one", WEIGHTED, ids=range(len(WEIGHTED)))
def test_the_slow_path_agrees_with_the_fast_one(one: Weighted) -> None:
    """On the same uniform draws whole numbers and doubles give the same run, wherever doubles can tell."""
    best = int(one.scores[one.members > 0].max())
    for eta in (Fraction(1, 3), Fraction(7, 2)):
        decided = 0
        for _ in range(400):
            drawn = secrets.randbits(64)
            fast = pinq.curator.mechanisms._by_doubles(one, best, eta, drawn)
            slow = pinq.curator.mechanisms._by_integers(one, best, eta, drawn, 64)
            assert slow is not None
            assert fast in (None, slow)
            decided += fast is not None
        assert decided > 350


@pytest.mark.parametrize("one", WEIGHTED, ids=range(len(WEIGHTED)))
def test_the_slow_path_alone_has_the_same_law(one: Weighted, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the doubles switched off the choice follows the same law."""
    monkeypatch.setattr(pinq.curator.mechanisms, "_by_doubles", lambda *_: None)
    drawn = np.array([choose_weighted(one, 3, Fraction(3, 2))[0] for _ in range(2500)])
    law_is(drawn, weighted_law(one, 0.5))


def test_a_draw_next_to_a_boundary_is_decided_exactly() -> None:
    """Two equal runs part at one half: draws that touch it are undecided in doubles, and settled by more bits."""
    one, half = weighted([0, 0], [1, 1], [1, 1]), 2**63
    for drawn in (half - 1, half):
        assert pinq.curator.mechanisms._by_doubles(one, 0, Fraction(1), drawn) is None
    assert pinq.curator.mechanisms._by_integers(one, 0, Fraction(1), (half << 64) - 2**66, 128) == 0
    assert pinq.curator.mechanisms._by_integers(one, 0, Fraction(1), (half << 64) + 2**66, 128) == 1
    assert pinq.curator.mechanisms._by_integers(one, 0, Fraction(1), half << 64, 128) == 1
    thirds = weighted([0, 0, 0], [1, 1, 1], [1, 1, 1])  # no draw of so many bits begins where the first one ends
    assert pinq.curator.mechanisms._by_integers(thirds, 0, Fraction(1), 2**128 // 3, 128) is None


def test_the_doubles_never_err(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against enclosures of 128 bits: wherever doubles give a run, they give the right one, on weights of all sizes."""
    random = np.random.default_rng(9)
    monkeypatch.setattr(pinq.curator.mechanisms, "BLOCK", 8)
    for _ in range(60):
        runs = int(random.integers(1, 40))
        one = Weighted(
            -random.integers(0, 3000, runs),
            random.integers(0, 50, runs) + (np.arange(runs) == 0),
            random.integers(1, 5000, runs),
        )
        eta = Fraction(int(random.integers(1, 10**6)), 10**6)
        best = int(one.scores[one.members > 0].max())
        for _ in range(10):
            drawn = secrets.randbits(64)
            fast = pinq.curator.mechanisms._by_doubles(one, best, eta, drawn)
            assert fast in (None, pinq.curator.mechanisms._by_integers(one, best, eta, drawn, 64))
