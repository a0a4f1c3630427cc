# SPDX-License-Identifier: Apache-2.0
"""The law of every answer on all small tables and all their neighbours, in rational numbers, no draw made: p <= e^epsilon q, always.

Each table of at most three rows of a small domain is a cell of one column, so one request asks all of them: through policy, encoding,
engine and curator, down to the call of a sampler. From what reaches it (exact numbers and scale) follow the laws of the answers, as
polynomials in t = exp(-1 / scale); that they are close enough on each pair of neighbours is then shown for every t from 0 to 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pinq.analyst.queryable import Parts, PrivateQueryable
from pinq.curator import mechanisms
from pinq.curator.mechanisms import choose
from pinq.curator.monitor import Curator
from pinq.language.scores import Balance, ClassCount, MaxClass
from pinq.language.specs import AnyCut, Cuts, Values
from pinq.ledger.ledger import Ledger
from pinq.policy.policy import Policy
from pinq.provider.local import LocalSession
from pinq.public.epsilon import Epsilon
from tests.support.laws.exact_releases import (
    Chance,
    Law,
    Samplers,
    distances,
    flip_law,
    powers_within,
    private,
    scripted,
)
from tests.support.laws.polynomials import NOTHING, ONE, nowhere_negative, power
from tests.support.requests.handles import engine_on

MOST = 3
KINDS = [(a, y, x) for a, numbers in (("u", (-1, 2)), ("v", (0, 2))) for y in "np" for x in numbers]
FINE = {-1: 0, 0: 400, 2: 1999}  # so many cells that only the occupied ones are listed
TABLES = [rows for size in range(MOST + 1) for rows in itertools.combinations_with_replacement(KINDS, size)]
NUMBER = {rows: number for number, rows in enumerate(TABLES)}
COLUMNS: dict[str, Any] = {
    "cell": {"type": "categorical", "values": list(range(len(TABLES)))},
    "a": {"type": "categorical", "values": ["u", "v"]},
    "y": {"type": "categorical", "values": ["n", "p"]},
    "x": {"type": "numeric", "lower": -1, "upper": 2, "integer": True},
    "f": {"type": "numeric", "lower": 0, "upper": 1999, "integer": True},
    "below": {"type": "numeric", "lower": -2, "upper": 1, "integer": True},
}
ROWS = [(cell, a, y, x, FINE[x], -x) for cell, rows in enumerate(TABLES) for a, y, x in rows]
FRAME = pd.DataFrame(ROWS, columns=list(COLUMNS)).assign(person=range(len(ROWS)))


def with_more(rows: int) -> list[tuple[int, int]]:
    """Tables, and what they are once so many rows have come."""
    return [
        (number, NUMBER[tuple(sorted(table + more, key=KINDS.index))])
        for number, table in enumerate(TABLES)
        if len(table) + rows <= MOST
        for more in itertools.combinations_with_replacement(KINDS, rows)
    ]


def replaced() -> list[tuple[int, int]]:
    """Tables that differ in one row: what any two rows make of one table."""
    more: dict[int, list[int]] = {}
    for before, after in with_more(1):
        more.setdefault(before, []).append(after)
    return [pair for tables in more.values() for pair in itertools.combinations(tables, 2)]


@dataclass(frozen=True)
class World:
    """All small tables under one sense of neighbour.

    Attributes:
        parts: The cells, each with a table.
        pairs: Numbers of neighbouring tables, (pairs, 2).
        adds_one_row: Whether of neighbours one has one row more: then the claims are reached, each on some pair.
    """

    parts: Parts
    pairs: np.ndarray
    adds_one_row: bool


ADDED = "a row comes"
SENSES: dict[str, tuple[dict[str, Any], list[tuple[int, int]]]] = {
    ADDED: ({}, with_more(1)),
    "a row is replaced": ({"adjacency": "substitute"}, replaced()),
    "a person has two rows": (
        {"privacy_unit": {"column": "person", "max_rows": 2}},
        [*with_more(1), *with_more(2)],
    ),
}


@pytest.fixture(scope="module", params=SENSES)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    terms, pairs = SENSES[request.param]
    policy = Policy.model_validate({"dataset": "small", "cap": 10**6, "max_rows": MOST, "columns": COLUMNS, **terms})
    ledger = Ledger("sqlite://", "small")
    ledger.declare(policy.schema_.digest, Epsilon.of(10**6), {})
    ledger.grant("ana", Epsilon.of(10**6))
    engine = engine_on(policy, FRAME, ledger.salt)
    handle = PrivateQueryable(LocalSession("small", "ana", Curator(policy.schema_, ledger, engine)))
    yield World(handle.partition(Values("cell")), np.array(pairs), request.param == ADDED)
    ledger.close()
    engine.close()


@pytest.fixture
def samplers() -> Iterator[Samplers]:
    with scripted() as samplers:
        yield samplers


EXACT, ROUNDED = Fraction(1, 2), Fraction(3, 10)  # of the second every scale is rounded up to a double
losses = pytest.mark.parametrize("epsilon", [EXACT, ROUNDED], ids=str)


# Noise


@dataclass(frozen=True)
class Verb:
    """A question whose answer is numbers with noise.

    Attributes:
        ask: A function from all cells and a loss to the answers, one for each cell.
        numbers: The number of noisy numbers in the answer of a cell.
        most: The largest compared distance of a released number from 0, beyond all exact numbers.
        beside: Whether the numbers of a cell are adjacent; else there is an array of each.
    """

    ask: Callable[[Parts, Fraction], Sequence[Hashable]]
    numbers: int
    most: int
    beside: bool = True


def counts_of_classes(parts: Parts, epsilon: Fraction) -> list[Hashable]:
    return list(map(tuple, parts.partition(Values("y")).noisy_count(epsilon=epsilon).reshape(-1, 2).tolist()))


VERBS = {
    "count": Verb(lambda parts, epsilon: parts.noisy_count(epsilon=epsilon).tolist(), 1, MOST + 2),
    "count of classes": Verb(counts_of_classes, 2, MOST + 2),
    "sum": Verb(lambda parts, epsilon: parts.noisy_sum("x", epsilon=epsilon).tolist(), 1, 2 * MOST + 2),
    "sum, the lower bound the larger": Verb(
        lambda parts, epsilon: parts.noisy_sum("below", epsilon=epsilon).tolist(), 1, 2 * MOST + 2
    ),
    "average": Verb(
        lambda parts, epsilon: parts.noisy_avg("x", epsilon=epsilon).tolist(), 2, 3 * MOST + 2, beside=False
    ),
}


def exact_numbers(verb: Verb, samplers: Samplers, parts: Parts, epsilon: Fraction) -> tuple[np.ndarray, Fraction]:
    """What noise is added to, (tables, numbers), and the noise's scale."""
    samplers.calls.clear()
    verb.ask(parts, epsilon)
    (call,) = samplers.calls
    numbers = np.array(call.numbers)
    return (numbers.reshape(-1, verb.numbers) if verb.beside else numbers.reshape(verb.numbers, -1).T), call.scale


def outcomes_of(verb: Verb) -> np.ndarray:
    """All released numbers near the exact ones, and one step beyond on either side: further off no ratio changes."""
    window = range(-verb.most, verb.most + 1)
    return np.array(list(itertools.product(window, repeat=verb.numbers)))


def largest_power(verb: Verb, exact: np.ndarray, pairs: np.ndarray) -> int:
    """The largest power of 1 / t by which the chance of any outcome differs between any two neighbours."""
    assert np.abs(exact).max() < verb.most
    outcomes, largest = outcomes_of(verb), 0
    for some in np.array_split(outcomes, max(1, len(outcomes) // 64)):
        powers = distances(some, exact)
        largest = max(largest, int(np.abs(powers[:, pairs[:, 0]] - powers[:, pairs[:, 1]]).max()))
    return largest


def loss_of_noise(verb: Verb, samplers: Samplers, world: World, epsilon: Fraction) -> Fraction:
    """What the answers lose at most, as a share of epsilon: the largest log-ratio, exactly."""
    exact, scale = exact_numbers(verb, samplers, world.parts, epsilon)
    return largest_power(verb, exact, world.pairs) / (epsilon * scale)


@losses
@pytest.mark.parametrize("name", VERBS)
def test_noisy_numbers_lose_their_epsilon_and_no_more(
    name: str, epsilon: Fraction, world: World, samplers: Samplers
) -> None:
    """Of every outcome on every pair of neighbours p <= e^epsilon q; where a row comes and no scale is rounded, p = e^epsilon q on one."""
    loss = loss_of_noise(VERBS[name], samplers, world, epsilon)
    assert loss <= 1
    if world.adds_one_row:
        assert loss == 1 if epsilon == EXACT else loss > Fraction(999, 1000)


@pytest.mark.parametrize("name", VERBS)
def test_an_answer_is_made_of_noisy_numbers_alone(name: str, world: World, samplers: Samplers) -> None:
    """Where the sampler gives the same numbers for every table, all tables have the same answer, whatever their rows are."""
    verb = VERBS[name]
    outcomes = outcomes_of(verb)
    for outcome in outcomes[:: max(1, len(outcomes) // 7)].tolist():

        def noisy(numbers: int, outcome: list[int] = outcome) -> list[int]:
            layout = np.tile if verb.beside else np.repeat
            return layout(np.array(outcome), numbers // verb.numbers).tolist()

        samplers.noisy = noisy
        assert len(set(verb.ask(world.parts, EXACT))) == 1


def test_chances_of_noise_add_up() -> None:
    """(1 - t) t^|k| / (1 + t) over all k is 1: over -n to n it is 1 - 2 t^(n + 1) / (1 + t), an identity of polynomials."""
    most = 6
    inside = NOTHING
    for k in range(-most, most + 1):
        inside += (ONE - power(1)) * power(abs(k))
    assert inside == ONE + power(1) - power(most + 1, 2)


# Choices


A, X = Values("a"), Cuts("x", (0,))
Choice = Callable[[Parts, Fraction], Sequence[Any]]
Ends = dict[tuple[Any, Any], Chance]
"""The first and the last member of each run of a table, and the chance of any of its members."""


def choice(*candidates: Any, score: Any, textbook: bool = False) -> Choice:
    return lambda parts, epsilon: parts.exp_mech(list(candidates), score=score, epsilon=epsilon, textbook=textbook)


CHOICES: dict[str, Choice] = {
    "of columns": choice(A, X, Cuts("x", (1,)), score=MaxClass("y")),
    "of columns, by the textbook": choice(A, X, score=MaxClass("y"), textbook=True),
    "of cuts": choice(AnyCut("x"), score=Balance()),
    "of runs": choice(AnyCut("f"), score=MaxClass("y")),
    "of runs and columns": choice(AnyCut("x"), A, AnyCut("f"), score=MaxClass("y")),
    "of values": lambda parts, epsilon: parts.exp_mech(score=ClassCount("y"), epsilon=epsilon),
}


def laws(ask: Choice, samplers: Samplers, parts: Parts, epsilon: Fraction) -> tuple[list[Law], Fraction]:
    """The law of the answer on each table, and the scale of its choice: each outcome of the sampler is tried, and its answer noted."""
    samplers.calls.clear()
    ask(parts, epsilon)
    calls = list(samplers.calls)
    (scale,) = {call.scale for call in calls}
    assert len(calls) == len(parts)
    chances = [call.chances() for call in calls]
    ends: list[Ends] = [{} for _ in calls]
    for run in range(max(map(len, chances))):
        samplers.winner = lambda candidates, run=run: min(run, candidates - 1)  # type: ignore[misc]
        members = [call.members(run) for call in calls]
        answers = answers_at_ends(ask, samplers, parts, epsilon, alone=max(members) == 1)
        for table, (first, middle, last) in enumerate(zip(*answers, strict=True)):
            if members[table]:
                assert are_neighbours(first, middle, last, members[table])
                ends[table][first, last] = chances[table][run]
    return cut_apart(ends), scale


def answers_at_ends(
    ask: Choice, samplers: Samplers, parts: Parts, epsilon: Fraction, *, alone: bool
) -> list[Sequence[Any]]:
    """What is answered by the first member of a run, the middle one and the last one; they are one where all runs have one."""
    answers = []
    for samplers.member in MEMBERS[: 1 if alone else 3]:
        answers.append(ask(parts, epsilon))
    return answers * 3 if alone else answers


MEMBERS: list[Callable[[int], int]] = [lambda members: 0, lambda members: members // 2, lambda members: members - 1]


def are_neighbours(first: Any, middle: Any, last: Any, members: int) -> bool:
    """Whether a run's members, so many, are cuts one beside the other, as far as three of them show it."""
    if members == 1:
        return bool(first == middle == last)
    low, between, high = (int(spec.points[0]) for spec in (first, middle, last))
    return (between - low, high - low) == (members // 2, members - 1)


def cut_apart(ends: list[Ends]) -> list[Law]:
    """Laws over single answers, of cuts only those at which a run of some table begins or ends: between two of them no law changes."""
    limits = {end for law in ends for pair in law for end in pair}
    fine = sorted((int(end.points[0]), end) for end in limits if isinstance(end, Cuts) and end.column == "f")
    collected = []
    for law in ends:
        single: Law = {}
        for (first, last), chance in law.items():
            if first == last:
                single[first] = chance
            else:
                single |= {end: chance for cut, end in fine if int(first.points[0]) <= cut <= int(last.points[0])}
        collected.append(single)
    return collected


def unlike(laws: list[Law], pairs: np.ndarray) -> set[tuple[int, int]]:
    """Pairs of numbers of laws, those of neighbouring tables, each pair once."""
    first: dict[frozenset[Any], int] = {}
    number = [first.setdefault(frozenset(law.items()), table) for table, law in enumerate(laws)]
    return {(number[a], number[b]) for a, b in pairs.tolist()}


def choices_are_private(laws: list[Law], pairs: np.ndarray, exponent: int) -> bool:
    """Whether no answer tells any neighbours apart by more than t^-exponent."""
    return all(private(laws[a], laws[b], exponent) for a, b in unlike(laws, pairs))


@pytest.mark.parametrize("name", CHOICES)
def test_choices_lose_their_epsilon_and_no_more(name: str, world: World, samplers: Samplers) -> None:
    """Of every answer on every pair of neighbours p <= e^epsilon q, for all t; and where a row comes not with a power of 1 / t less."""
    collected, scale = laws(CHOICES[name], samplers, world.parts, EXACT)
    allowed = powers_within(EXACT, scale)
    assert choices_are_private(collected, world.pairs, allowed)
    if world.adds_one_row:
        needed = allowed // 2 if "textbook" in name else allowed  # its general factor
        assert not choices_are_private(collected, world.pairs, needed - 1)


# The tests tested


FAULTS = {"half the noise": Fraction(1, 2), "a sensitivity of .85": Fraction(85, 100)}


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest, samplers: Samplers, monkeypatch: pytest.MonkeyPatch) -> Fraction:
    """Makes every scale smaller by a factor, that of noise, of permute-and-flip and of the weighted choice."""
    share = FAULTS[request.param]
    right = mechanisms.scale_of
    monkeypatch.setattr(mechanisms, "scale_of", lambda sensitivity, epsilon: right(sensitivity, epsilon / share))
    monkeypatch.setattr(
        "pinq.curator.candidates.selection.choose_weighted",
        lambda candidates, span, epsilon, *whole: samplers.choose_weighted(candidates, span, epsilon / share, *whole),
    )
    return share


@pytest.mark.parametrize("world", [ADDED], indirect=True)
@pytest.mark.parametrize("name", [*VERBS, "of columns", "of cuts", "of runs", "of values"])
def test_too_little_noise_is_seen(name: str, fault: Fraction, world: World, samplers: Samplers) -> None:
    """With a scale too small the same laws pass the claim: of noise by just that factor, of choices on some pair and for some t."""
    if name in VERBS:
        assert loss_of_noise(VERBS[name], samplers, world, EXACT) == pytest.approx(1 / fault)
    else:
        collected, scale = laws(CHOICES[name], samplers, world.parts, EXACT)
        assert not choices_are_private(collected, world.pairs, powers_within(EXACT, scale))


# All small lists of scores, whatever they are scores of


@pytest.mark.parametrize("span", [1, 2])
def test_permute_and_flip_on_every_small_grid(span: int, samplers: Samplers) -> None:
    """Three scores from 0 to 3, each falling by 0 to the span: no choice becomes likelier or rarer by more than e^epsilon."""
    reached = False
    for scores in itertools.combinations_with_replacement(range(4), 3):
        for falls in itertools.product(range(span + 1), repeat=3):
            samplers.calls.clear()
            for offered in (np.array(scores), np.array(scores) - falls):
                choose(offered, span, EXACT)
            (before, after) = samplers.calls
            assert before.scale == after.scale
            allowed = powers_within(EXACT, before.scale)
            law, neighbour = (dict[Hashable, Chance](enumerate(call.chances())) for call in samplers.calls)
            assert private(law, neighbour, allowed)
            reached |= not private(law, neighbour, allowed - 1)
    assert reached


def test_chances_of_choices_add_up() -> None:
    """Permute-and-flip's are polynomials whose sum is 1; of two candidates the worse has t^d / 2."""
    assert flip_law([2, 5]) == [power(3, Fraction(1, 2)), ONE - power(3, Fraction(1, 2))]
    for scores in itertools.product(range(3), repeat=3):
        total = NOTHING
        for chance in flip_law(scores):
            total += chance
        assert total == ONE


def test_a_polynomial_that_dips_below_0_is_seen() -> None:
    """Below 0 anywhere between two halves, however briefly; and one that only touches 0 at an end is not below it."""
    dip = (power(1) - power(0, Fraction(1, 3))) * (power(1) - power(0, Fraction(1, 3))) - power(0, Fraction(1, 10**6))
    assert not nowhere_negative(dip)
    assert nowhere_negative(dip + power(0, Fraction(2, 10**6)))
    assert nowhere_negative((ONE - power(1)) * (ONE - power(1)) * power(3))
    assert nowhere_negative(NOTHING)
    assert not nowhere_negative(power(2, -1))
