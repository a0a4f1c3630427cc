# SPDX-License-Identifier: Apache-2.0
"""The law of ``EnoughRows`` as it is coded, over every way its tests can end, in rational numbers: p <= e^epsilon q, no draw made.

``splits_kept`` runs once for each outcome of each of its tests, with the sampler replaced where it is made. What a path can
lose is no whole power of t = exp(-1 / scale), so exponentials are enclosed between two rational numbers, 10^-60 apart.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

import pytest

from pinq.curator import mechanisms
from pinq.curator.verbs import penalty, splits_kept
from pinq.language.parts import Block, Part, PartSet
from pinq.language.scores import EnoughRows
from pinq.language.specs import Cuts, Values, bind
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.laws.exact_releases import Call, Interval, Samplers, exponential, flip_law, scripted
from tests.support.laws.polynomials import ONE, power

SCHEMA = Schema(
    columns={"a": Categorical(values=("u", "v")), "x": Numeric(lower=0, upper=15, integer=True)}, max_rows=1000
)
WHOLE = Part()
DEPTH = 6

Law = dict[tuple[int, ...], Interval]
"""For each answer, the splits kept above each leaf, between which numbers its chance lies."""


def binary_tree() -> PartSet:
    """Two levels: `a` splits the table, `x` splits both halves; four leaves."""
    halves = bind(Values("a"), SCHEMA)
    return PartSet([Block(Part(WHOLE, halves, half), bind(Cuts("x", (8,)), SCHEMA)) for half in (0, 1)])


def chain() -> PartSet:
    """The lowest value is cut off, then the next, and so on."""
    part, blocks = WHOLE, []
    for cut in range(1, DEPTH + 1):
        partition = bind(Cuts("x", (cut,)), SCHEMA)
        blocks.append(Block(Part(part, partition, 0)))
        part = Part(part, partition, 1)
    return PartSet([*blocks, Block(part)])


@pytest.fixture
def samplers() -> Iterator[Samplers]:
    with scripted() as samplers:
        yield samplers


def chance_of(call: Call, winner: int) -> Interval:
    """Between which numbers the chance lies that permute-and-flip takes one of two candidates: the worse is t^d / 2."""
    apart = abs(call.numbers[0] - call.numbers[1])
    low, high = (bound / 2 for bound in exponential(-apart / call.scale))
    worse = call.numbers[winner] < max(call.numbers)
    return (low, high) if worse else (1 - high, 1 - low)


def law_of(parts: PartSet, counts: Sequence[int], least: int, epsilon: Fraction, samplers: Samplers) -> Law:
    """Runs the code once for every way its tests can end; "split" is outcome 0 of a test, "stop" is 1."""
    law: Law = {}
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        begun = waiting.pop()
        outcomes = itertools.chain(begun, itertools.repeat(0))
        samplers.calls.clear()
        samplers.winner = lambda candidates, outcomes=outcomes: next(outcomes)  # type: ignore[misc]
        kept = tuple(splits_kept(parts, counts, EnoughRows(least), epsilon))
        ended = (*begun, *(0 for _ in samplers.calls[len(begun) :]))
        low, high = law.get(kept, (Fraction(0), Fraction(0)))
        chances = list(map(chance_of, samplers.calls, ended))
        law[kept] = (low + math.prod(low for low, _ in chances), high + math.prod(high for _, high in chances))
        waiting += [(*ended[:test], 1) for test in range(len(begun), len(ended))]
    return law


def is_private(law: Law, neighbour: Law, epsilon: Fraction) -> bool:
    """Whether every answer's chance is at most e^epsilon times its chance on the other table, for certain."""
    most = exponential(epsilon)[0]
    return law.keys() == neighbour.keys() and all(
        p[answer][1] <= most * q[answer][0] for p, q in ((law, neighbour), (neighbour, law)) for answer in law
    )


def tables(leaves: int, counts: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All tables with these counts at their leaves, each beside what a row more in one leaf makes of it."""
    for before in itertools.product(counts, repeat=leaves):
        for leaf in range(leaves):
            yield before, tuple(count + (position == leaf) for position, count in enumerate(before))


def test_whole_trees_lose_at_most_their_epsilon(samplers: Samplers) -> None:
    """Two levels, all answers of all small tables: chances add up to 1, and a row changes none by more than e^epsilon."""
    epsilon, least = Fraction(2), 2
    leaves, step, laws = binary_tree(), penalty(epsilon), dict[tuple[int, ...], Law]()
    for before, after in tables(4, (0, least, least + 2 * step)):
        for table in (before, after):
            if table not in laws:
                laws[table] = law_of(leaves, table, least, epsilon, samplers)
                low, high = (sum(bounds) for bounds in zip(*laws[table].values(), strict=True))
                assert low <= 1 <= high < low + Fraction(1, 10**60)
        assert is_private(laws[before], laws[after], epsilon)


def worst_path(least: int, step: int) -> list[int]:
    """Rows at the leaves of a chain on which a row more loses nearly epsilon: in the lowest parts its tests are near their limits."""
    rows = [
        least + level * step + (DEPTH - 2 - level) * step for level in range(DEPTH)
    ]  # of the part that each test is of
    return [*(upper - lower for upper, lower in itertools.pairwise(rows)), 0, rows[-1]]


def loses_at_most(epsilon: Fraction, samplers: Samplers) -> bool:
    step = penalty(epsilon)
    rows = worst_path(DEPTH * step, step)
    laws = [law_of(chain(), [*rows[:-1], rows[-1] + more], DEPTH * step, epsilon, samplers) for more in (0, 1)]
    assert len(laws[0]) == DEPTH + 1
    return is_private(laws[0], laws[1], epsilon)


EPSILON = Fraction(1, 20)


def test_the_longest_path_loses_at_most_epsilon(samplers: Samplers) -> None:
    """On a chain of six tests, where the row that comes moves all of them."""
    assert loses_at_most(EPSILON, samplers)


@pytest.mark.parametrize("fault", [Fraction(1, 2), Fraction(85, 100)], ids=["half the noise", "a sensitivity of .85"])
def test_too_little_noise_is_seen(fault: Fraction, samplers: Samplers, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a scale too small the same path loses more than epsilon."""
    right = mechanisms.scale_of
    monkeypatch.setattr(mechanisms, "scale_of", lambda sensitivity, epsilon: right(sensitivity, epsilon / fault))
    assert not loses_at_most(EPSILON, samplers)


def test_the_chances_of_a_test_are_those_of_permute_and_flip() -> None:
    """What is taken for the chance of "split" is the law of two candidates, which holds of all t."""
    for apart in range(1, 5):
        assert flip_law([apart, 0]) == [ONE - power(apart, Fraction(1, 2)), power(apart, Fraction(1, 2))]
    assert flip_law([0, 0]) == [power(0, Fraction(1, 2))] * 2
