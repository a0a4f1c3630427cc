# SPDX-License-Identifier: Apache-2.0
"""The strategies that the paper names: LocalRNM, SingleMachine and decaying fractions cost what the claim says."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import pytest

from miners import FederatedTopDown, Federation
from pinq.errors import QueryError
from tests.support.requests.data_owners import SCHEMA, Interrupted, federation, rows
from tests.support.requests.handles import simulated


@pytest.mark.parametrize("strategy", ["local_rnm", "turns", "noisy_counts"])
@pytest.mark.parametrize("budget", [None, "decay", "uniform"])
def test_they_learn_and_cost_the_claim(strategy: Any, budget: Any) -> None:
    """At every owner to the nano, as planned."""
    with federation(1500, 900, epsilon=20) as owners:
        fitted = FederatedTopDown(epsilon=20, strategy=strategy, budget=budget, max_depth=4).fit(owners, "y")
        assert set(fitted.card_.spent.values()) == {20}
        assert fitted.score(rows(1000, 99)) > 0.9


@pytest.mark.parametrize("strategy", ["local_rnm", "turns", "noisy_counts"])
def test_levels_decay(strategy: Any) -> None:
    plan = FederatedTopDown(strategy=strategy, max_depth=8, budget="decay").plan(SCHEMA, "y")
    shares = [sum(line.epsilon for line in plan.lines if line.level == level) for level in range(8)]
    assert [float(a / b) for a, b in itertools.pairwise(shares)] == pytest.approx([2.0] * 7, rel=1e-5)


def test_a_single_machine_is_one_owner() -> None:
    miner = FederatedTopDown(epsilon=20, strategy="single")
    with pytest.raises(QueryError, match="learns from one owner, and there are 2"):
        miner.fit(federation(10, 10), "y")
    with federation(2000, epsilon=20) as owners:
        assert miner.fit(owners, "y").score(rows(1000, 99)) > 0.95


@pytest.mark.parametrize("strategy", ["local_rnm", "single"])
def test_a_stored_model_is_planned_and_fitted_again(strategy: Any) -> None:
    with federation(1500, epsilon=20) as owners:
        fitted = FederatedTopDown(epsilon=20, strategy=strategy).fit(owners, "y")
    stored = FederatedTopDown.from_json(fitted.to_json())
    assert stored.tree_ == fitted.tree_
    assert stored.card_ == fitted.card_
    assert str(stored.plan(SCHEMA, "y")) == str(fitted.plan(SCHEMA, "y"))


@pytest.mark.parametrize("strategy", ["local_rnm", "single", "turns"])
def test_a_strategy_of_choices_needs_more_than_sums(strategy: Any) -> None:
    with pytest.raises(QueryError, match="asks for choices too"):
        FederatedTopDown(epsilon=1, strategy=strategy).sums_needed(SCHEMA, "y")


@pytest.mark.parametrize(
    ("strategy", "sizes"), [("single", (900,)), ("local_rnm", (900, 600)), ("noisy_counts", (900, 600))]
)
@pytest.mark.parametrize(
    "own",
    [
        {"criterion": "entropy", "budget": "decay", "leaf_fraction": 0.5, "at_once": 1, "max_depth": 20},
        {"attributes": ["x"], "splits": {"x": [50]}, "max_depth": 4},
        {"max_depth": 0},
        {"epsilon": "0.000000008", "max_depth": 2},
    ],
    ids=["the paper's form", "one split", "no split", "nanos"],
)
def test_extremes_cost_the_claim(strategy: Any, sizes: tuple[int, ...], own: dict[str, Any]) -> None:
    """Also where all owners propose the same split, or a path uses the only split again."""
    with federation(*sizes, epsilon=8) as owners:
        fitted = FederatedTopDown(strategy=strategy, **{"epsilon": 8} | own).fit(owners, "y")
    assert set(fitted.card_.spent.values()) == {Fraction(str(own.get("epsilon", 8)))}


@pytest.mark.parametrize(("strategy", "sizes"), [("single", (900,)), ("local_rnm", (900, 600, 300))])
@pytest.mark.parametrize("before", [1, 2, 3])
def test_a_fit_that_broke_off_is_resumed_at_no_cost(strategy: Any, sizes: tuple[int, ...], before: int) -> None:
    """After a choice, and after the histograms of what was chosen."""
    handles = {f"{seed}": simulated(SCHEMA, data=rows(size, seed), epsilon=20) for seed, size in enumerate(sizes)}

    def breaks(_: Any) -> None:
        raise KeyboardInterrupt

    miner = FederatedTopDown(epsilon=20, strategy=strategy, max_depth=3)
    with pytest.raises(KeyboardInterrupt):
        miner.fit(Interrupted(handles, before=before, happens=breaks), "y")
    assert {handle.budget.spent for handle in handles.values()} != {20}
    FederatedTopDown(epsilon=20, strategy=strategy, max_depth=3, resume=True).fit(Federation(handles), "y")
    assert {handle.budget.spent for handle in handles.values()} == {20}
    for handle in handles.values():
        handle.close()
