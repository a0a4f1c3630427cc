# SPDX-License-Identifier: Apache-2.0
"""The strategies that the paper names: LocalRNM, SingleMachine and decaying fractions cost what the claim says."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from miners import FederatedTopDown
from pinq.errors import QueryError
from tests.support.requests.data_holders import SCHEMA, federation, rows


@pytest.mark.parametrize("strategy", ["local_rnm", "turns", "noisy_counts"])
@pytest.mark.parametrize("budget", [None, "decay", "uniform"])
def test_they_learn_and_cost_the_claim(strategy: Any, budget: Any) -> None:
    """At every holder to the nano, as planned."""
    with federation(1500, 900, epsilon=20) as holders:
        fitted = FederatedTopDown(epsilon=20, strategy=strategy, budget=budget, max_depth=4).fit(holders, "y")
        assert set(fitted.card_.spent.values()) == {20}
        assert fitted.score(rows(1000, 99)) > 0.9


@pytest.mark.parametrize("strategy", ["local_rnm", "turns", "noisy_counts"])
def test_levels_decay(strategy: Any) -> None:
    plan = FederatedTopDown(strategy=strategy, max_depth=8, budget="decay").plan(SCHEMA, "y")
    shares = [sum(line.epsilon for line in plan.lines if line.level == level) for level in range(8)]
    assert [float(a / b) for a, b in itertools.pairwise(shares)] == pytest.approx([2.0] * 7, rel=1e-5)


def test_a_single_machine_is_one_holder() -> None:
    miner = FederatedTopDown(epsilon=20, strategy="single")
    with pytest.raises(QueryError, match="learns from one holder, and there are 2"):
        miner.fit(federation(10, 10), "y")
    with federation(2000, epsilon=20) as holders:
        assert miner.fit(holders, "y").score(rows(1000, 99)) > 0.95


@pytest.mark.parametrize("strategy", ["local_rnm", "single"])
def test_a_stored_model_is_planned_and_fitted_again(strategy: Any) -> None:
    with federation(1500, epsilon=20) as holders:
        fitted = FederatedTopDown(epsilon=20, strategy=strategy).fit(holders, "y")
    stored = FederatedTopDown.from_json(fitted.to_json())
    assert stored.tree_ == fitted.tree_
    assert stored.card_ == fitted.card_
    assert str(stored.plan(SCHEMA, "y")) == str(fitted.plan(SCHEMA, "y"))


@pytest.mark.parametrize("strategy", ["local_rnm", "single", "turns"])
def test_a_strategy_of_choices_needs_more_than_sums(strategy: Any) -> None:
    with pytest.raises(QueryError, match="asks for choices too"):
        FederatedTopDown(epsilon=1, strategy=strategy).sums_needed(SCHEMA, "y")
