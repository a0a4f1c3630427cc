# SPDX-License-Identifier: Apache-2.0
"""What is tested: a question, and two neighbouring tables on which it really loses its epsilon.

Each pair is the worst that is known, so that noise a little too small passes the claim: the row
that comes moves the answer, or the difference of two scores, by all that its sensitivity admits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pinq.analyst.queryable import Parts
from pinq.provider.selftest.worlds import Pair, Row
from pinq.public.derivatives import Logistic
from pinq.public.points import Points
from pinq.public.scores import (
    AbsoluteError,
    Balance,
    ClassCount,
    EnoughRows,
    Gini,
    Gradient,
    InfoGain,
    MaxClass,
    MutualInformation,
    Score,
    SquaredError,
)
from pinq.public.specs import AnyCross, AnyCut, AnyGrouping, Candidate, Cuts, Values

__all__ = ["CLAIMS", "EPSILON", "Claim"]

EPSILON = Fraction(3, 2)
A, B, C = Values("a"), Values("b"), Values("c")

Outcomes = Sequence[Hashable]
Question = Callable[[Parts, Fraction], Outcomes]


@dataclass(frozen=True)
class Claim:
    """A question of which a loss is claimed.

    Attributes:
        name: What is asked, for people.
        pair: Neighbouring tables.
        ask: Asks all copies at a loss; gives an outcome for each.
        seconds: About how long it takes to measure, with all draws, on a quiet core.
    """

    name: str
    pair: Pair
    ask: Question
    seconds: float = 25.0


def _count(parts: Parts, epsilon: Fraction) -> Outcomes:
    return parts.noisy_count(epsilon=epsilon).tolist()


def _sum(parts: Parts, epsilon: Fraction) -> Outcomes:
    return parts.noisy_sum("x", epsilon=epsilon).tolist()


def _average(parts: Parts, epsilon: Fraction) -> Outcomes:
    return parts.noisy_avg("x", epsilon=epsilon).tolist()


def _gradients(parts: Parts, epsilon: Fraction) -> Outcomes:
    loss = Logistic("y", ("n",), Points(base=-2048))
    return parts.noisy_sum(loss, epsilon=epsilon)[:, 0].tolist()


def _moved(parts: Parts, epsilon: Fraction) -> Outcomes:
    """Counts both classes of each copy; says of each count on which side of the middle it lies."""
    counts = parts.partition(Values("y")).noisy_count(epsilon=epsilon).reshape(-1, 2)
    return [(few > 0, many > MANY - 1) for few, many in counts.tolist()]


def _choice(candidates: Sequence[Candidate], score: Score) -> Question:
    def ask(parts: Parts, epsilon: Fraction) -> Outcomes:
        return [repr(chosen) for chosen in parts.exp_mech(list(candidates), score=score, epsilon=epsilon)]

    return ask


def _vote(parts: Parts, epsilon: Fraction) -> Outcomes:
    return [repr(value) for value in parts.exp_mech(score=ClassCount("y"), epsilon=epsilon)]


def _kept(parts: Parts, epsilon: Fraction) -> Outcomes:
    """Asks of a chain of splits in each copy how many are kept; the deepest leaf knows."""
    leaves, left = [], parts[:CHAINS]
    for cut in range(1, SPLITS + 1):
        both = left.partition(Cuts("x", (cut,)))
        leaves.append(both[::2])
        left = both[1::2]
    chain = Parts.union(*leaves, left)
    kept = chain.exp_mech(score=EnoughRows(LEAST, above=1), epsilon=epsilon)
    return kept[-len(left) :]


SPLITS, CHAINS, LEAST = 12, 4_000, 1
MANY = 10
TEN = (Row(),) * MANY
OTHER = Row(y="n", x=100, z=15, b="v")  # at every other end; beside TEN in a, alone in b
PURE = (Row(),) * 59
BALANCED = (Row(), Row(), Row(), Row(a="v"), *(Row(a="v", x=100) for _ in range(3)))
QUARTER = (Row(), *(Row(a="v") for _ in range(2)), *(Row(a="v", x=100) for _ in range(5)))
GROUPED = (
    *(Row() for _ in range(5)),
    *(Row(g="v", y="n") for _ in range(5)),
    *(Row(g="w", y=y) for y in "np" for _ in range(5)),
)
ENDS = Logistic("y", ("n",), Points((Cuts("x", (50,)),), ((2048, -2048),)))


def _joined(rows: Sequence[Row], *more: Row) -> Pair:
    return Pair(rows, (*rows, *more))


VERBS = (
    Claim("noisy_count", _joined(TEN, OTHER), _count, 14.0),
    Claim("noisy_sum", _joined(TEN, OTHER), _sum, 14.0),
    Claim("noisy_avg", _joined(TEN, OTHER), _average, 14.0),
    Claim("noisy_sum of a loss's gradient", _joined(TEN, OTHER), _gradients, 14.0),
    Claim(
        "noisy_count, a row replaced",
        Pair(TEN, (*TEN[1:], OTHER), adjacency="substitute"),
        _moved,
        14.0,
    ),
    Claim(
        "noisy_count, a person of three rows",
        Pair(
            tuple(Row(person=number) for number in range(MANY)),
            (*(Row(person=number) for number in range(MANY)), *(Row(person=MANY) for _ in range(3))),
            unit_rows=3,
        ),
        _count,
        14.0,
    ),
)

CHOICES = (
    *(
        Claim(f"exp_mech, {score.kind}", _joined(PURE, Row(y="n", b="v")), _choice((A, B), score))
        for score in (InfoGain("y"), Gini("y"), MaxClass("y"), MutualInformation("y"))
    ),
    Claim("exp_mech, class_count", _joined((*TEN, *(Row(y="n") for _ in TEN)), Row(y="n")), _vote),
    Claim("exp_mech, balance", _joined(BALANCED, Row()), _choice((A, Cuts("x", (50,))), Balance())),
    Claim("exp_mech, balance of a quarter", _joined(QUARTER, Row()), _choice((A, Cuts("x", (50,))), Balance(0.25))),
    Claim("exp_mech, squared_error", _joined(PURE, Row(z=15, b="v")), _choice((A, B), SquaredError("z"))),
    Claim("exp_mech, absolute_error", _joined(PURE, Row(z=15, b="v")), _choice((A, B), AbsoluteError("z"))),
    Claim("exp_mech, gradient", _joined(TEN, OTHER), _choice((A, B), Gradient(ENDS))),
    Claim("exp_mech, AnyGrouping", _joined(GROUPED, Row(g="w", y="n")), _choice((AnyGrouping("g"),), MaxClass("y"))),
    Claim(
        "exp_mech, AnyCross",
        _joined(PURE, Row(y="n", b="v")),
        _choice((AnyCross((A, B, C), 2),), MutualInformation("y")),
    ),
    # Before, all fifteen cuts are alike; the last one alone sets the row apart that comes.
    Claim(
        "exp_mech, AnyCut",
        _joined((Row(z=14),) * MANY, Row(y="n", z=15)),
        _choice((AnyCut("z"),), MaxClass("y")),
    ),
    # The last, for it takes the longest. All rows lie below all splits; of paths so long none is known
    # that loses more (privacy.md 3.4).
    Claim("exp_mech, enough_rows", _joined((Row(x=100),) * 21, Row(x=100)), _kept, 200.0),
)

CLAIMS = VERBS + CHOICES
