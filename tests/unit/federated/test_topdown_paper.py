# SPDX-License-Identifier: Apache-2.0
"""The paper's strategies, as the benchmarks reproduce them: they cost the claim, and stay out of the package."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from benchmarks.papers.topdown.paper import PaperTopDown
from miners import FederatedTopDown
from pinq.errors import QueryError
from tests.support.requests.data_holders import SCHEMA, federation, rows


@pytest.mark.parametrize("strategy", ["local_rnm", "turns", "noisy_counts"])
@pytest.mark.parametrize("budget", [None, "decay", "uniform"])
def test_they_learn_and_cost_the_claim(strategy: Any, budget: Any) -> None:
    """At every holder to the nano, as planned."""
    with federation(1500, 900, epsilon=20) as holders:
        fitted = PaperTopDown(epsilon=20, strategy=strategy, budget=budget, max_depth=4).fit(holders, "y")
        assert set(fitted.card_.spent.values()) == {20}
        assert fitted.score(rows(1000, 99)) > 0.9


@pytest.mark.parametrize("strategy", ["local_rnm", "turns", "noisy_counts"])
def test_levels_decay(strategy: Any) -> None:
    plan = PaperTopDown(strategy=strategy, max_depth=8, budget="decay").plan(SCHEMA, "y")
    shares = [sum(line.epsilon for line in plan.lines if line.level == level) for level in range(8)]
    assert [float(a / b) for a, b in itertools.pairwise(shares)] == pytest.approx([2.0] * 7, rel=1e-5)


def test_a_single_machine_is_one_holder() -> None:
    miner = PaperTopDown(epsilon=20, strategy="single")
    with pytest.raises(QueryError, match="learns from one holder, and there are 2"):
        miner.fit(federation(10, 10), "y")
    with federation(2000, epsilon=20) as holders:
        assert miner.fit(holders, "y").score(rows(1000, 99)) > 0.95


def test_a_stored_model_of_such_a_strategy_predicts_without_them() -> None:
    """The package does not fit it again, and says where the strategy is."""
    with federation(1500, epsilon=20) as holders:
        fitted = PaperTopDown(epsilon=20, strategy="local_rnm").fit(holders, "y")
    text = fitted.to_json().replace("pinq-PaperTopDown", "pinq-FederatedTopDown")
    stored = FederatedTopDown.from_json(text)
    assert stored.tree_ == fitted.tree_
    assert stored.card_ == fitted.card_
    with pytest.raises(QueryError, match=r"benchmarks/papers/topdown/paper\.py; it must be 'turns'"):
        stored.plan(SCHEMA, "y")
