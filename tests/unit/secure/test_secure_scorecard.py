# SPDX-License-Identifier: Apache-2.0
"""Scorecards from sums under secret sharing: what a row moves, what is opened and charged, and that it learns."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from miners import FederatedScorecard, FederatedScorecardRegressor
from pinq.errors import BudgetExceeded, QueryError
from pinq.language.derivatives import Derivatives, Logistic, Residuals, Softmax
from pinq.language.points import Points
from pinq.language.specs import Cuts, Values
from pinq.public.noise import SYSTEM, Bits
from pinq.public.schema import Schema
from pinq_secure import SecureFederation
from pinq_secure.mpc import noise
from pinq_secure.sums import Units, most_units
from tests.support.processes.secure_parties import COLUMNS, patients, with_plain_noise

SCHEMA = Schema(columns=COLUMNS, max_rows=3000)
TABLES = [patients(300, number) for number in range(3)]
POINTS = Points((Values("ward"), Cuts("age", (30,))), ((-200, 40, 700), (-512, 300)), 64)
LOSSES = (
    Logistic("ill", ("yes",), POINTS),
    Logistic("ill", ("yes",), POINTS, limit=0.25),
    Softmax("ward", (POINTS, Points(base=9), POINTS), hessian=True, limit=1.0),
    Residuals("age", Points(base=50 * 256), 30),
)


def together(epsilon: Any, **named: Any) -> SecureFederation:
    return SecureFederation.simulated(TABLES, schema=SCHEMA, epsilon=epsilon, colluding=0, **named)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.kind} {loss.limit}")
def test_no_row_moves_more_than_the_sensitivity(loss: Derivatives) -> None:
    """For each row that there can be, and every way that rounding can fall in each number; some row comes close."""
    units, vectors = Units.of(loss, SCHEMA), loss.vectors(SCHEMA)
    sizes = [axis.slots for axis in vectors.inputs]  # one more than its parts where a row can be in none
    places = [grid.ravel() for grid in np.meshgrid(*map(np.arange, sizes))]
    moved = np.zeros(places[0].size, dtype=np.int64)
    # Of a number only its remainder counts, and of that and the draw only their sum.
    remainders = np.arange(units.step)
    for entry in vectors.of(places):
        moved += np.abs((remainders[:, None] + entry) // units.step).max(axis=0)
    assert moved.max() <= units.sensitivity <= most_units(vectors.width)
    assert moved.max() > 0.6 * units.sensitivity
    assert units.sensitivity * units.step <= vectors.bound * (1 + 1 / 32) + units.step * vectors.width / 32


def test_rounding_moves_no_sum_on_average() -> None:
    """And never by more than one unit."""
    units = Units(step=10, sensitivity=9, unit=0.1)
    source = Bits(random.Random(4).randbytes)
    rounded = units.rounded(np.repeat([-13, 0, 7], 4000), source).reshape(3, -1)
    assert rounded.mean(axis=1) == pytest.approx([-1.3, 0, 0.7], abs=0.03)
    assert [sorted(set(row.tolist())) for row in rounded] == [[-2, -1], [0], [0, 1]]


def test_sums_are_those_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each cell, up to a unit of rounding, where noise is next to nothing."""
    monkeypatch.setattr(noise, "own_shares", lambda numbers, *_: np.zeros(numbers, dtype=object))
    loss, parties = LOSSES[0], together(1)
    question = parties.parts().sum_question(loss, Values("smokes"), epsilon={"all parties": parties._limit})
    (answer,) = parties.ask([question])
    table = pd.concat(TABLES)
    score = table["ward"].map({"a": -200, "b": 40, "c": 700}) + np.where(table["age"] < 30, -512, 300) + 64
    share = 1 / (1 + np.exp(-score / 256))
    gradient = (table["ill"] == "yes") - share
    exact = [gradient[table["smokes"] == value].sum() for value in ("no", "yes")]
    assert answer["all parties"][:, 0] == pytest.approx(exact, abs=0.05)


def test_a_sum_has_the_noise_of_its_sensitivity(monkeypatch: pytest.MonkeyPatch) -> None:
    """DLap(sensitivity / epsilon) whole units: 15 % less noise fails, and the variance that fits count with is right."""
    monkeypatch.setattr(SYSTEM, "words", Bits(random.Random(5).randbytes).words)
    monkeypatch.setattr(SYSTEM, "below", random.Random(6).randrange)
    loss, wide = Logistic("ill", ("yes",), Points()), Cuts("age", tuple(range(1, 99)))
    empty = [patients(1, number).iloc[:0] for number in range(3)]
    parties = SecureFederation.simulated(empty, schema=SCHEMA, epsilon=10**6, colluding=0, rows=1000)
    asked = [parties.parts().sum_question(loss, wide, epsilon={"all parties": parties._limit // 20_000})] * 5
    numbers = np.concatenate([answer["all parties"].ravel() for answer in parties.ask(asked)])
    expected = parties.sum_variance("all parties", loss, 50)
    assert numbers.var() == pytest.approx(expected, rel=0.25)
    # The mean size of DLap(1/e) is 2a / (1 - a^2) for a = exp(-e): about 1,000 draws find it within 4 %.
    units = Units.of(loss, SCHEMA)
    odds = math.exp(-50 / units.sensitivity)
    mean = 2 * odds / (1 - odds**2) * units.unit
    assert 0.9 * mean < np.abs(numbers).mean() < mean / 0.9


def test_each_party_is_charged_the_claim() -> None:
    """To the nano-epsilon; and beyond its limit it refuses before anything is shared."""
    parties = together(30)
    fitted = FederatedScorecard(epsilon=30, strategy="secure", steps=2).fit(parties, "ill")
    assert parties.spent() == fitted.owners_.spent == {"all parties": Fraction(30)}
    assert fitted.score(patients(1000, 9)) > 0.7
    assert FederatedScorecard(epsilon=30, strategy="secure").plan(SCHEMA, "ill").total == 30
    with pytest.raises(BudgetExceeded, match="0 remains"):
        FederatedScorecard(epsilon=1, strategy="secure").fit(parties, "ill")


@pytest.mark.parametrize(
    ("target", "miner"),
    [("ward", FederatedScorecard), ("ill", FederatedScorecard), ("age", FederatedScorecardRegressor)],
)
def test_rows_without_a_target_are_passed_over(target: str, miner: Any) -> None:
    """Wherever they are, in some parties' tables or in all, each kind of fit costs what it claims and learns from the others."""
    columns = {name: column | {"nullable": True} for name, column in COLUMNS.items()}
    for every in (3, 1):
        tables = [table.astype({target: object}) for table in TABLES]
        for table in tables:
            table.loc[table.index[::every], target] = None
        parties = SecureFederation.simulated(tables, schema=Schema(columns=columns, max_rows=3000), epsilon=30)
        fitted = miner(epsilon=30, strategy="secure", steps=2).fit(with_plain_noise(parties, every), target)
        assert parties.spent() == {"all parties": fitted.cost_} == {"all parties": 30}


def test_what_needs_too_much_noise_is_refused_before_it_costs() -> None:
    """A question of so little loss leaves the budget as it was."""
    parties = together(1)
    with pytest.raises(QueryError, match="a single question would have an epsilon of 1e-06"):
        parties.ask([parties.parts().question("noisy_count", epsilon=Fraction(1, 10**6))])
    assert parties.spent() == {"all parties": 0}


def test_sums_are_asked_of_one_part() -> None:
    """What a card never asks is refused, with nothing spent."""
    parties = together(1)
    halves = parties.parts().partition(Values("smokes"))
    with pytest.raises(QueryError, match="of one part, not of 2"):
        parties.ask([halves.sum_question(LOSSES[0], Values("ward"), epsilon={"all parties": parties._limit})])
    assert parties.spent() == {"all parties": 0}


def test_parties_see_that_they_sum_the_same_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions that differ in their points alone have different digests."""
    seen: list[bytes] = []
    parties = together(1)

    def add_up(asked: Any, own: Any) -> Any:
        seen.append(asked.identity)
        return asked.table(own, Bits(random.Random(5).randbytes))

    monkeypatch.setattr(parties, "_add_up", add_up)
    for base in (0, 1, 1):
        loss = Logistic("ill", ("yes",), Points(base=base))
        epsilon = {"all parties": parties._limit // 4}
        parties.ask([parties.parts().sum_question(loss, Values("ward"), epsilon=epsilon)])
    assert seen[0] != seen[1] == seen[2]
