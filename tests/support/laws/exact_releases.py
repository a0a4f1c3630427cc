# SPDX-License-Identifier: Apache-2.0
"""Scripted samplers: they record the exact numbers of each call, give chosen outcomes, and have exact laws.

Tests with scripted samplers draw no random number. A scripted sampler gets the scale that the product's code gives the
real one; it records the exact numbers of each call, and answers as a script says. The law of an answer is then computed
from the record: the probabilities of discrete Laplace noise, permute-and-flip and the exponential mechanism are powers
of t = exp(-1 / scale) (tests/support/laws/polynomials.py). tests/contract/test_every_mechanism.py tests that the real
samplers follow these laws.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pytest

from pinq.curator.mechanisms import Weighted
from tests.support.laws.polynomials import NOTHING, ONE, Polynomial, nowhere_negative, power

Chance = tuple[Polynomial, Polynomial]
"""A probability as a polynomial over another one that is positive."""
Law = dict[Hashable, Chance]
Interval = tuple[Fraction, Fraction]
"""Two rational numbers between which a real one lies."""


@dataclass(frozen=True)
class Call:
    """A call of a sampler: its exact numbers, and its scale; for the weighted choice, the divisor of the scores."""

    numbers: tuple[int, ...]
    scale: Fraction
    runs: Weighted | None = None

    def chances(self) -> list[Chance]:
        """The chance of each candidate, or of a member of each run."""
        return weighted_law(self.runs) if self.runs else [(chance, ONE) for chance in flip_law(self.numbers)]

    def members(self, run: int) -> int:
        """The number of answers with one outcome: the members of a run, else 1; 0 for an unknown outcome."""
        if run >= len(self.numbers):
            return 0
        return int(self.runs.members[run]) if self.runs else 1


@dataclass
class Samplers:
    """The noise, permute-and-flip and the weighted choice, scripted.

    Attributes:
        noisy: A function from the number of released numbers to the numbers.
        winner: A function from the number of candidates (or runs) to the chosen one.
        member: A function from the number of members of a run to the chosen one.
        calls: All calls so far.
    """

    noisy: Callable[[int], list[int]] = lambda numbers: [0] * numbers
    winner: Callable[[int], int] = lambda candidates: 0
    member: Callable[[int], int] = lambda members: 0
    calls: list[Call] = field(default_factory=list)

    def flip(self, law: ScriptedLaw, scores: np.ndarray, lengths: np.ndarray, source: object) -> np.ndarray:
        lists = np.split(scores, np.cumsum(lengths)[:-1])
        self.calls += [Call(tuple(own.tolist()), law.scale) for own in lists]
        return np.array([self.winner(len(own)) for own in lists])

    def choose_weighted(
        self, candidates: Weighted, span: int, epsilon: Fraction, whole: Callable[[], Weighted] | None = None
    ) -> tuple[int, int]:
        candidates = candidates if whole is None else whole()
        self.calls.append(Call(tuple(candidates.scores.tolist()), span / epsilon, candidates))
        run = self.winner(len(candidates.scores))
        return run, self.member(int(candidates.members[run]))


@dataclass(frozen=True)
class ScriptedLaw:
    """The noise of one scale, scripted."""

    samplers: Samplers
    scale: Fraction

    def added(self, numbers: np.ndarray, source: object) -> list[int]:
        self.samplers.calls.append(Call(tuple(numbers.tolist()), self.scale))
        return self.samplers.noisy(len(numbers))


@contextmanager
def scripted() -> Iterator[Samplers]:
    """Replaces all samplers by scripted ones; requests are not rehearsed with them."""
    samplers = Samplers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pinq.curator.mechanisms._laplace", lambda scale: ScriptedLaw(samplers, Fraction(scale)))
        patch.setattr("pinq.curator.mechanisms._flip", samplers.flip)
        patch.setattr("pinq.curator.candidates.selection.choose_weighted", samplers.choose_weighted)
        patch.setattr("pinq.curator.monitor.Rehearsals.require", lambda *_: None)
        yield samplers


# Laws


def flip_law(scores: Sequence[int]) -> list[Polynomial]:
    """Permute-and-flip: candidate r is visited at a uniform time u, all earlier ones were rejected, and r is accepted.

    So its chance is the integral of p_r times the product of 1 - u p_s over the others, with p = t^(best - score): a sum over the
    sets of others, each with the integral of u^size, 1 / (size + 1) (McKenna & Sheldon 2020).
    """
    best, law = max(scores), []
    for r, score in enumerate(scores):
        others = [best - other for s, other in enumerate(scores) if s != r]
        chance = NOTHING
        for size in range(len(others) + 1):
            for rejected in itertools.combinations(others, size):
                chance += power(best - score + sum(rejected), Fraction((-1) ** size, size + 1))
        law.append(chance)
    return law


def weighted_law(runs: Weighted) -> list[Chance]:
    """The exponential mechanism: the chance of one member of each run."""
    best = int(runs.scores[runs.members > 0].max())
    of_run = zip(runs.scores.tolist(), runs.members.tolist(), runs.mass.tolist(), strict=True)
    weights = [
        (power(best - score, Fraction(1, mass)) if members else NOTHING, members) for score, members, mass in of_run
    ]
    total = NOTHING
    for weight, members in weights:
        total += weight * power(0, members)
    return [(weight, total) for weight, _ in weights]


def at_most(p: Chance, q: Chance, exponent: int) -> bool:
    """Whether p <= t^-exponent q for all t from 0 to 1."""
    return nowhere_negative(q[0] * p[1] - power(exponent) * p[0] * q[1])


def private(law: Law, neighbour: Law, exponent: int) -> bool:
    """Whether each outcome's probabilities on two tables differ by at most the factor t^-exponent, for every t."""
    outcomes = law.keys() | neighbour.keys()
    never = (NOTHING, ONE)
    return all(
        at_most(p.get(outcome, never), q.get(outcome, never), exponent)
        for outcome in outcomes
        for p, q in ((law, neighbour), (neighbour, law))
    )


def powers_within(epsilon: Fraction, scale: Fraction) -> int:
    """The largest whole n with t^-n <= exp(epsilon), for t = exp(-1 / scale)."""
    return int(epsilon * scale // 1)


def distances(outcomes: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """The exponent of t in each outcome's probability on each table, up to a common factor; shape (outcomes, tables).

    Args:
        outcomes: Released whole numbers, shape (outcomes, numbers).
        exact: The numbers without noise, shape (tables, numbers).
    """
    return np.abs(outcomes[:, None, :] - exact[None]).sum(axis=-1)


# Exponentials


@lru_cache(maxsize=2**14)
def exponential(exponent: Fraction) -> Interval:
    """Two rational numbers with exp(exponent) between them."""
    context = Context(prec=80)
    quotient = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    value = Fraction(context.exp(quotient))  # both are rounded correctly, and |exponent| < 10^3
    return value * (1 - Fraction(1, 10**70)), value * (1 + Fraction(1, 10**70))
