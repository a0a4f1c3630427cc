# SPDX-License-Identifier: Apache-2.0
"""Noise that parties draw together: the shares' sum is one discrete Laplace variable, and choices by it are as private as they claim.

Every draw comes from a seeded source, so nothing here can fail by chance; the levels say how surely another seed would pass too.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from miners.budget.plan import count_variance
from miners.federated.scorecard import OwnersCardMiner
from pinq.errors import QueryError
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import Cuts, bind
from pinq.public.epsilon import Epsilon
from pinq.public.noise import SYSTEM, Bits
from pinq.public.schema import Categorical, Numeric, Schema
from pinq_secure import SecureFederation
from pinq_secure.id3.public_tree import Later, LossSplit, NoisyRules, later
from pinq_secure.id3.task import Task, hold
from pinq_secure.mpc import rounds
from pinq_secure.mpc.arithmetic import ALONE, Arithmetic, run_to_end
from pinq_secure.mpc.noise import own_shares
from pinq_secure.session.party import run_simulation
from pinq_secure.sums import Addition, JointSum, Units, noisy_sum, noisy_sum_bits, simulate_noisy_sum
from tests.support.processes.secure_parties import session_of

LEVEL = 1e-6
DRAWS = 6_000


def seeded(seed: int) -> Bits:
    return Bits(random.Random(seed).randbytes)


def draw_from(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Makes a seeded source the operating system's."""
    source = seeded(seed)
    for name in ("words", "word", "below"):
        monkeypatch.setattr(SYSTEM, name, getattr(source, name))


def misfit(draws: list[int], epsilon: float) -> float:
    """p-value of Pearson's test of draws against DLap(1/epsilon), cells of at least 5 expected, tails joined."""
    a, n = math.exp(-epsilon), len(draws)
    reach = max(k for k in range(200) if n * (1 - a) / (1 + a) * a**k >= 5)
    seen = Counter(max(-reach, min(reach, draw)) for draw in draws)
    law = [(1 - a) / (1 + a) * a ** abs(k) for k in range(-reach, reach + 1)]
    law[0] = law[-1] = a**reach / (1 + a)  # P[|x| >= reach] / 2
    return float(stats.chisquare([seen[k] for k in range(-reach, reach + 1)], [n * one for one in law]).pvalue)


@pytest.mark.parametrize(
    ("parties", "epsilon"), [(1, Fraction(1)), (2, Fraction(1, 3)), (3, Fraction(3, 2)), (7, Fraction(4, 5))]
)
def test_shares_sum_to_one_discrete_laplace_variable(parties: int, epsilon: Fraction) -> None:
    """Exactly that law, whatever the number of parties; noise 30 % too small fails."""
    source = seeded(parties)
    draws = np.sum([own_shares(DRAWS, epsilon, parties, source) for _ in range(parties)], axis=0).tolist()
    assert misfit(draws, float(epsilon)) > LEVEL
    assert misfit(draws, float(epsilon) * 0.7) < LEVEL  # the same draws, where they should be 1/0.7 as wide


def test_a_share_is_moved_only_where_it_would_not_fit() -> None:
    """A share is as narrow as it claims, so its bound is never met in practice."""
    source = seeded(9)
    assert abs(own_shares(1000, Fraction(1, 2), 3, source)).max() < 200  # the bound is 140 / (1/2)


def test_noisy_sums_have_the_noise_of_one_curator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The building block for other miners: with nobody colluding exactly DLap(1/epsilon) a cell, with one of three half as much variance more."""
    owners = [np.full(DRAWS // 2, 7), np.full(DRAWS // 2, 11), np.zeros(DRAWS // 2, dtype=int)]
    draw_from(monkeypatch, 4)
    errors = simulate_noisy_sum(owners, Fraction(1), rows=100_000) - 18
    assert misfit(errors.tolist(), 1.0) > LEVEL
    assert misfit(errors.tolist(), 0.7) < LEVEL
    more = simulate_noisy_sum(owners, Fraction(1), rows=100_000, colluding=1) - 18
    assert more.var() / errors.var() == pytest.approx(1.5, rel=0.25)


def test_each_sum_of_a_round_has_its_own_noise() -> None:
    """Two losses in one addition, each cell by the law of its own; swapped they fit neither."""
    schema = Schema(columns={"x": Numeric(lower=0, upper=1999, integer=True)}, max_rows=100)
    parts = PartSet([Block(Part())]).split(bind(Cuts("x", tuple(range(1, 2000))), schema))
    asked = JointSum([Addition(parts, None, schema, Epsilon.of(loss)) for loss in ("0.5", 1)], Fraction(1))
    wide, narrow = asked.cut(asked.noise(3, seeded(6), plays=3))
    assert misfit(wide.ravel().tolist(), 0.5) > LEVEL
    assert misfit(narrow.ravel().tolist(), 1.0) > LEVEL
    assert max(misfit(wide.ravel().tolist(), 1.0), misfit(narrow.ravel().tolist(), 0.5)) < LEVEL


@pytest.mark.parametrize(
    ("adjacency", "colluding", "wider"), [("add-remove", 0, 1.0), ("substitute", 0, 1.0), ("add-remove", None, 1.5)]
)
def test_a_federation_that_adds_up_has_the_noise_of_one_owner(
    adjacency: Any, colluding: int | None, wider: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The law of one curator where nobody colludes, at the schema's distance; noise 30 % too small fails. Its variance is the one that growth counts with."""
    draw_from(monkeypatch, 7)
    schema = Schema(columns={"x": Numeric(lower=0, upper=2999, integer=True)}, max_rows=100, adjacency=adjacency)
    together = SecureFederation.simulated([pd.DataFrame({"x": [3, 5]})] * 3, schema=schema, colluding=colluding)
    errors = (
        together.parts().partition(Cuts("x", tuple(range(10, 3000)))).noisy_count(epsilon=1)["all parties"].reshape(-1)
        - 6 * np.eye(1, 2991, dtype=int)[0]
    )
    distance = together.schema.distance
    assert errors.var() == pytest.approx(together.variance("all parties", Fraction(1)), rel=0.2)
    assert together.variance("all parties", Fraction(1)) == pytest.approx(wider * count_variance(distance))
    if wider == 1:
        assert misfit(errors.tolist(), 1 / distance) > LEVEL
        assert misfit(errors.tolist(), 0.7 / distance) < LEVEL


@pytest.mark.parametrize("target", ["ill", "x"])
def test_a_session_of_a_scorecard_hides_its_units(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whole runs without rows, for classes and for means: what is opened of each step is the noise of the units that a row moves, at the step's loss; noise 30 % too small fails."""
    always = seeded(8)
    monkeypatch.setattr(rounds, "stream", lambda seed: always)
    wide: dict[str, Any] = {"type": "numeric", "lower": 0, "upper": 699, "integer": True}
    columns: dict[str, Any] = {"age": wide, "ill": {"type": "categorical", "values": ["no", "yes"]}, "x": wide}
    named: dict[str, Any] = {
        "columns": columns,
        "attributes": ["age"],
        "cuts": {"age": list(range(1, 700))},
        "target": target,
    }
    session = session_of("scorecard", [50] * 3, noise="discrete-laplace", epsilon="60", colluding=0, steps=2, **named)
    used: list[Units] = []
    units_of = Units.of

    def noted(loss: Any, schema: Schema) -> Units:
        used.append(units_of(loss, schema))
        return used[-1]

    monkeypatch.setattr(Units, "of", noted)
    nobody = hold(session.task, pd.DataFrame({"age": [0], "ill": ["no"], "x": [0]}).iloc[:0])
    outcome = run_simulation(session, [nobody] * 3)[0]
    assert isinstance(outcome.scorecard, OwnersCardMiner)
    fit = outcome.scorecard._checked(session.schema_, target)
    looks = fit.objective.looks
    steps = [opening.values for opening in outcome.opened if opening.what == "noisy sum"][looks:]
    units = used[-1]
    for values, step in zip(steps, fit.costs.steps, strict=True):
        epsilon = float(step.sums.exact / units.sensitivity)
        assert len(values) == 1400
        assert misfit(list(values), epsilon) > LEVEL
        assert misfit(list(values), 0.7 * epsilon) < LEVEL


def test_what_a_sum_opens_is_only_the_sum() -> None:
    """One opening, of the noisy cells."""

    async def work() -> Arithmetic:
        arithmetic = Arithmetic(ALONE, noisy_sum_bits(100, 1, Fraction(1)))
        await noisy_sum(arithmetic, np.array([[1, 2], [3, 4]]), Fraction(1), 0)
        return arithmetic

    opened = run_to_end(work()).rounds.opened
    assert [(one.what, len(one.values)) for one in opened] == [("noisy sum", 4)]


def test_colluders_are_fewer_than_owners() -> None:
    """Noise that all owners know is none."""
    with pytest.raises(QueryError, match="below the 2 histograms"):
        simulate_noisy_sum([np.zeros(1), np.zeros(1)], Fraction(1), rows=10, colluding=2)


def test_sums_need_histograms_that_fit() -> None:
    """Of one shape, and of no more rows than were declared: larger sums would wrap around."""
    with pytest.raises(QueryError, match=r"the shapes \(1,\), \(2,\); they must be the same"):
        simulate_noisy_sum([np.zeros(1), np.zeros(2)], Fraction(1), rows=10)
    with pytest.raises(QueryError, match="beyond `rows`, 10"):
        simulate_noisy_sum([np.full(1, 6), np.full(1, 6)], Fraction(1), rows=10)


@pytest.mark.parametrize(
    ("ask", "wins"),
    [
        ("stop", lambda a: 1 - a ** (1 + 3) / (1 + a)),  # a node of 7 rows, 10 allowed: DLap <= 3
        ("vote", lambda a: second_wins(-math.log(a), 2)),  # 5 votes against 7
    ],
    ids=["stop", "vote"],
)
def test_stops_and_votes_have_the_noise_that_is_charged(
    ask: str, wins: Callable[[float], float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many nodes at once: how many stop, or vote for the smaller class, follows the law at the loss that the budget has for it, and not that of noise 30 % smaller."""
    nodes, epsilon = 4000, Fraction(1, 2)
    values = Categorical(values=(0, 1))
    task = Task.of(Schema(columns={"a": values, "y": values}, max_rows=100), "y", (20, 20, 20))
    budget = (
        LossSplit(epsilon, Fraction(1), Fraction(1), 1)
        if ask == "stop"
        else LossSplit(Fraction(1), Fraction(1), epsilon, 1)
    )
    rule = NoisyRules(task, Fraction(1, 2), budget, 0)
    always = seeded(17)
    monkeypatch.setattr(rounds, "stream", lambda seed: always)

    async def work() -> int:
        arithmetic = Arithmetic(ALONE, rule.bits, plays=3)
        if ask == "stop":
            rule._stop, rule.deepest = 10, 2
            return int((await rule._stops(arithmetic, known(np.full((nodes, 1), 7)), nodes, 1)).sum())
        return int((await rule.judge(arithmetic, known(np.tile([7, 5], (nodes, 1))), nodes, 1)).sum())

    count = run_to_end(work())
    assert stats.binomtest(count, nodes, wins(math.exp(-0.5))).pvalue > LEVEL
    assert stats.binomtest(count, nodes, wins(math.exp(-0.5 / 0.7))).pvalue < LEVEL


def known(counts: np.ndarray) -> Later:
    """Shares that are there already."""

    async def shares() -> np.ndarray:
        return counts.astype(object)

    return later(shares)


def second_wins(epsilon: float, behind: int) -> float:
    """The law: the probability that a score ``behind`` another one is larger with DLap(1/epsilon) on both, ties to the other."""
    a = math.exp(-epsilon)

    def reaches(bar: int) -> float:
        return a**bar / (1 + a) if bar >= 1 else 1 - a ** (1 - bar) / (1 + a)

    return sum((1 - a) / (1 + a) * a ** abs(z) * reaches(z + behind + 1) for z in range(-200, 201))


def chosen(table: list[list[int]], epsilon: Fraction, times: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the second attribute is chosen at roots with these counts, shape (2 attributes x 2 values, 2 classes); by the real protocol, many roots at once."""
    values = Categorical(values=(0, 1))
    task = Task.of(Schema(columns={"a": values, "b": values, "y": values}, max_rows=100), "y", (20, 20, 20))
    rule = NoisyRules(task, Fraction(1, 20), LossSplit(Fraction(1), epsilon, Fraction(1), 1), 0)
    always = seeded(seed)
    monkeypatch.setattr(rounds, "stream", lambda seed: always)

    async def work() -> np.ndarray:
        tables = known(np.tile(np.array(table), (times, 1)))
        return await rule.choose(Arithmetic(ALONE, rule.bits, plays=3), tables, np.tile([0, 1], (times, 1)), 0)

    return int(run_to_end(work()).sum())


def test_the_roots_choice_on_adjacent_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more row, which the first attribute alone classifies: the choice follows the law of noisy max on both tables, whose odds change by at most exp(epsilon).

    With noise 30 % too small it does not follow that law, and its own breaks the claim.
    """
    times, epsilon, small = 2500, Fraction(1), Fraction(10, 7)
    before, after = [[1, 5], [5, 1], [5, 1], [1, 5]], [[1, 6], [5, 1], [5, 2], [1, 5]]
    for table, behind in ((before, 0), (after, 1)):
        count = chosen(table, epsilon, times, behind, monkeypatch)
        assert stats.binomtest(count, times, second_wins(1.0, behind)).pvalue > LEVEL
    assert stats.binomtest(chosen(after, small, times, 2, monkeypatch), times, second_wins(1.0, 1)).pvalue < LEVEL
    ratios = [math.log(second_wins(1.0, behind) / second_wins(1.0, behind + 1)) for behind in range(-20, 20)]
    assert 0.9 < max(ratios) <= 1
    assert math.log(second_wins(float(small), 5) / second_wins(float(small), 6)) > 1
