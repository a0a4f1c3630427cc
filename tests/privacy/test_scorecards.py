# SPDX-License-Identifier: Apache-2.0
"""Whole scorecards on neighbouring tables: what a card shows tells the tables apart by no more than epsilon.

Each question's law has its own test and their sum is the ledger's; here gross leaks are looked for, as in test_whole_fits.py.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pandas as pd
import pytest

import pinq.curator.mechanisms
from miners import Scorecard
from pinq.provider.testing import epsilon_lower_bound
from pinq.public.schema import Categorical, Schema
from tests.support.requests.handles import simulated

EPSILON = Fraction(1, 2)
RUNS = 64
"""Half of them measure: a card that shows the row for sure has a bound of 0.55."""
TWO = Categorical(values=("n", "p"))
TABLES_FIRST = pytest.mark.parametrize("attributes", ["ab", "abcdefg"], ids=["tables-first", "steps-alone"])
BETWEEN = {"ab": 4.3, "abcdefg": 0.1}  # without noise the lonely cell weighs more if it has its row, else less


def schema(attributes: str) -> Schema:
    """Of two attributes points start from tables; of seven they do not."""
    cells = dict.fromkeys(attributes, Categorical(values=("u", "v")))
    return Schema(columns={**cells, "y": TWO}, max_rows=1000)


def table(attributes: str, extra: int) -> pd.DataFrame:
    """Twelve rows alike; the row more stands alone with its class in a cell of its own of all columns."""
    places = ["u"] * 12 + ["v"] * extra
    return pd.DataFrame({**dict.fromkeys(attributes, places), "y": ["n"] * 12 + ["p"] * extra})


def loss_of_fits(attributes: str) -> float:
    """A loss that whole fits have at least, by the weight of the lonely cell, coarsely."""

    def fits(extra: int, runs: int) -> list[Any]:
        with simulated(schema(attributes), data=table(attributes, extra), epsilon=2 * RUNS) as handle:
            cards = [Scorecard(epsilon=EPSILON, steps=1).fit(handle, "y").card_ for _ in range(runs)]
        return [any(term.weights[1] > BETWEEN[attributes] for term in card.terms) for card in cards]

    return epsilon_lower_bound(fits, 0, 1, runs=RUNS, error=1e-6)


@TABLES_FIRST
def test_a_whole_scorecard_loses_no_more_than_its_epsilon(attributes: str) -> None:
    """On neighbours that the card tells apart as well as they can."""
    assert loss_of_fits(attributes) <= EPSILON


@TABLES_FIRST
def test_a_scorecard_that_forgets_its_noise_is_found(attributes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would see a card that looks at the rows."""
    monkeypatch.setattr(pinq.curator.mechanisms, "scale_of", lambda sensitivity, epsilon: 1e-3)
    assert loss_of_fits(attributes) > EPSILON
