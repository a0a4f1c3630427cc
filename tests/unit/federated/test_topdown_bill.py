# SPDX-License-Identifier: Apache-2.0
"""FederatedTopDown's bill: what it asks and spends at each owner, also when something goes wrong or comes back."""

from __future__ import annotations

import os
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from sklearn.base import clone

from miners import FederatedTopDown, Federation
from miners.federated.federation import OwnerFailed
from miners.federated.topdown import deal
from pinq.errors import BudgetExceeded
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.requests.data_owners import SCHEMA, STRATEGIES, Interrupted, Noted, federation, rows
from tests.support.requests.handles import simulated

EXPLORE = bool(os.environ.get("PINQ_EXPLORE"))

# What it spends

COLUMN = st.one_of(
    st.builds(
        lambda k, nullable: Categorical(values=tuple("abcdefg"[:k]), nullable=nullable),
        st.integers(2, 7),
        st.booleans(),
    ),
    st.builds(
        lambda upper, nullable: Numeric(lower=0, upper=upper, integer=True, nullable=nullable),
        st.integers(1, 40),
        st.booleans(),
    ),
)
SETTINGS = {
    "strategy": st.sampled_from(STRATEGIES),
    "criterion": st.sampled_from(["gini", "entropy", "max"]),
    "max_nodes": st.integers(1, 12),
    "leaf_fraction": st.none() | st.sampled_from([0.1, 0.5, 0.9]),
    "budget": st.none() | st.just("uniform"),
    "max_depth": st.none() | st.integers(0, 5),
    "at_once": st.integers(1, 4),
}


@settings(max_examples=300 if EXPLORE else 15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    columns=st.lists(COLUMN, min_size=1, max_size=4),
    target=st.builds(
        lambda k, nullable: Categorical(values=tuple("stuv"[:k]), nullable=nullable), st.integers(2, 4), st.booleans()
    ),
    sizes=st.lists(st.integers(0, 80), min_size=1, max_size=3),
    adjacencies=st.lists(st.sampled_from(["add-remove", "substitute"]), min_size=3, max_size=3),
    nano=st.integers(10**3, 50 * 10**9),
    params=st.fixed_dictionaries(SETTINGS),
)
def test_every_ledger_equals_the_claim(
    columns: Any, target: Any, sizes: Any, adjacencies: Any, nano: int, params: Any
) -> None:
    """To the nano, at every owner, however small it is, and whatever tree comes out."""
    epsilon = Fraction(nano, 10**9)
    named = {f"c{number}": column for number, column in enumerate(columns)} | {"y": target}
    handles = [
        simulated(Schema(columns=named, max_rows=100, adjacency=one), rows=size, epsilon=epsilon)
        for size, one in zip(sizes, adjacencies, strict=False)
    ]
    with Federation(handles) as owners:
        fitted = FederatedTopDown(epsilon=epsilon, **params).fit(owners, "y")
        assert {handle.budget.spent for handle in handles} == {epsilon}
        assert fitted.cost_ == epsilon
        assert set(fitted.card_.spent.values()) == {epsilon}
        assert fitted.unspent_ == 0
        assert sum(node.split is not None for node in fitted.tree_.nodes) <= params["max_nodes"]
        assert params["max_depth"] is None or fitted.tree_.depth <= params["max_depth"]
        assert np.isfinite(fitted.tree_.probabilities).all()


@settings(max_examples=100 if EXPLORE else 10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    strategy=st.sampled_from(STRATEGIES),
    before=st.integers(0, 6),
    which=st.integers(0, 2),
    rule=st.sampled_from(["drop", "fail"]),
)
def test_an_owner_that_fails_in_the_middle_costs_nobody_more(strategy: Any, before: int, which: int, rule: Any) -> None:
    """Somebody else uses up one owner's budget while the tree grows. Where it is dropped, the others still pay what was claimed; where the fit fails, it says what they paid."""
    handles = [simulated(SCHEMA, data=rows(300, seed), epsilon=1) for seed in range(3)]
    others = [handle for place, handle in enumerate(handles) if place != which]

    def use_up(_: Federation) -> None:
        handles[which].noisy_count(epsilon=handles[which].budget.remaining)

    with Interrupted(handles, before=before, happens=use_up, on_failure=rule) as owners:
        try:
            fitted = FederatedTopDown(epsilon=1, strategy=strategy, max_nodes=7, at_once=2).fit(owners, "y")
        except OwnerFailed as error:
            assert rule == "fail"
            assert list(error.spent.values()) == [handle.budget.spent for handle in handles]
            assert all(handle.budget.spent <= 1 for handle in others)
            return
        assert {handle.budget.spent for handle in others} == {1}
        assert fitted.cost_ == 1
        if owners.dropped:
            assert fitted.card_.dropped == tuple(owners.dropped)
            assert f"owner {which + 1} was dropped after" in repr(fitted.card_)
        else:
            assert before >= fitted.card_.rounds


def test_counts_are_of_those_who_stayed() -> None:
    """Also where an earlier answer still had somebody who was dropped: the tree then shows one set of people, root and leaves."""
    for strategy in STRATEGIES:
        handles = [simulated(SCHEMA, data=rows(size, size), epsilon=10**4) for size in (500, 700, 900)]

        def use_up(_: Federation, last: Any = handles[2]) -> None:
            last.noisy_count(epsilon=last.budget.remaining)

        with Interrupted(handles, before=3, happens=use_up, on_failure="drop") as owners:
            fitted = FederatedTopDown(epsilon=10**4, strategy=strategy).fit(owners, "y")
            assert [one.owner for one in fitted.card_.dropped] == ["owner 3"]
            assert fitted.tree_.nodes[0].rows == pytest.approx(1200, abs=1)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_too_little_budget_is_known_before_anything_is_spent(strategy: Any) -> None:
    rich, poor = (simulated(SCHEMA, rows=50, epsilon=epsilon) for epsilon in (2, "0.5"))
    both = Federation([rich, poor])
    with pytest.raises(OwnerFailed, match="'owner 2' failed: FederatedTopDown"):
        FederatedTopDown(epsilon=1, strategy=strategy).fit(both, "y")
    assert both.spent() == {"owner 1": 0, "owner 2": 0}
    with pytest.raises(BudgetExceeded):
        FederatedTopDown(epsilon=1, strategy=strategy).fit(poor, "y")
    either = Federation([rich, poor], on_failure="drop")
    fitted = FederatedTopDown(epsilon=1, strategy=strategy).fit(either, "y")
    assert fitted.card_.spent == {"owner 1": 1, "owner 2": 0}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("count", [1, 4])
def test_a_plan_says_what_a_fit_costs(strategy: Any, count: int) -> None:
    """Free; its total is what every ledger says afterwards, and its depth is kept."""
    owners = federation(*[300] * count, epsilon="0.7")
    miner = FederatedTopDown(epsilon="0.7", strategy=strategy, max_nodes=15)
    plan = miner.plan(owners.schema, "y", owners=count)
    assert set(owners.spent().values()) == {0}
    assert plan.total == Fraction("0.7")
    assert f"{count} owner" in repr(plan)
    fitted = miner.fit(owners, "y")
    assert set(fitted.card_.spent.values()) == {plan.total}
    assert fitted.tree_.depth <= max(line.level for line in plan.lines)
    for number in range(1, count + 1):  # what an owner is asked adds up; in turns each level is one owner's
        assert (
            sum(
                line.epsilon
                for line in plan.lines
                if f"of owner {number}" in line.query or "of owner" not in line.query
            )
            == plan.total
        )


def test_a_plan_of_turns_is_what_owners_of_one_size_are_asked() -> None:
    """Level by level: whose it is, and at which loss. (At this epsilon their noisy sizes are equal.)"""
    miner = FederatedTopDown(epsilon=10**5, max_depth=5)
    with Noted([simulated(SCHEMA, data=rows(300, 1), epsilon=10**5) for _ in range(3)]) as owners:
        plan = miner.plan(owners.schema, "y", owners=3)
        miner.fit(owners, "y")
        assert owners.chosen == [
            (line.query.split(", of ")[1], line.epsilon) for line in plan.lines if line.verb == "exp_mech"
        ]
        assert len(owners.chosen) == 5


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_more_nodes_are_split_than_may_be(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where missing numbers make a split one of three parts; the plan allows for those."""
    monkeypatch.setattr("miners.federated.topdown.CERTAINTY", None)  # nothing is pruned
    schema = Schema(
        columns={"x": Numeric(lower=0, upper=99, integer=True, nullable=True), "y": SCHEMA.columns["y"]}, max_rows=4000
    )
    table = rows(900).assign(x=lambda frame: frame["x"].where(frame["x"] % 5 > 0)).drop(columns="job")
    with Federation([simulated(schema, data=table, epsilon=1000)]) as owners:
        miner = FederatedTopDown(epsilon=1000, strategy=strategy, max_nodes=7, max_depth=3, at_once=1)
        nodes = miner.fit(owners, "y").tree_.nodes
        assert miner.cost_ == 1000
        assert 3 <= sum(node.split is not None for node in nodes) <= 7
        assert (
            sum(node.split is None for node in nodes) * 2 <= miner.plan(schema, "y").lines[-1].parts == 2 * (7 * 2 + 1)
        )


def test_a_plan_says_where_it_stops_short() -> None:
    for strategy in STRATEGIES:
        plan = FederatedTopDown(strategy=strategy, max_nodes=7, max_depth=9).plan(SCHEMA, "y")
        assert plan.lines[-1].parts == 2 * 8
        assert ("no more than 3 levels" in repr(plan)) == (strategy == "turns")
    assert FederatedTopDown(strategy="noisy_counts", max_depth=0).plan(SCHEMA, "y").lines[-1].parts == 2
    assert FederatedTopDown(epsilon="0.000000001").plan(SCHEMA, "y", owners=4).total == Fraction(1, 10**9)


def test_a_fit_that_ends_early_says_what_it_spent() -> None:
    """Also with one owner, whose own error speaks of one question only."""
    handle = simulated(SCHEMA, data=rows(300), epsilon=20)

    def use_up(_: Federation) -> None:
        handle.noisy_count(epsilon=handle.budget.remaining)

    with pytest.raises(BudgetExceeded) as error:
        FederatedTopDown(epsilon=20, strategy="noisy_counts", budget="uniform", max_depth=4, leaf_fraction=0.5).fit(
            Interrupted([handle], before=1, happens=use_up), "y"
        )
    assert error.value.__notes__ == ["Spent by the whole fit until then: owner 1: 20."]


def test_who_does_not_say_what_it_charged_counts_as_the_claim() -> None:
    """``cost_`` is never less than what was spent."""

    class Forgetful(Federation):
        def spent(self) -> Any:
            return dict.fromkeys(super().spent())

    fitted = FederatedTopDown(epsilon=1, max_depth=1).fit(Forgetful([simulated(SCHEMA, data=rows(30), epsilon=1)]), "y")
    assert fitted.card_.spent == {"owner 1": None}
    assert fitted.cost_ == 1
    assert "owner 1: does not say what it charged, 2 requests" in repr(fitted.card_)


# Coming back


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_fit_that_was_broken_off_is_resumed_without_paying_again(strategy: Any) -> None:
    """Whenever the coordinator goes: repeated, the fit costs the claim in all."""
    for before in (1, 2):
        handles = [simulated(SCHEMA, data=rows(400, seed), epsilon=20) for seed in range(2)]

        def gone(_: Federation) -> None:
            raise KeyboardInterrupt

        miner = FederatedTopDown(epsilon=20, strategy=strategy, max_nodes=7, at_once=2, resume=True)
        with pytest.raises(KeyboardInterrupt):
            miner.fit(Interrupted(handles, before=before, happens=gone), "y")
        paid = {f"owner {place}": handle.budget.spent for place, handle in enumerate(handles, start=1)}
        assert max(paid.values()) > 0
        first = clone(miner).fit(Federation(handles), "y")
        assert {handle.budget.spent for handle in handles} == {20}
        assert first.card_.spent == {name: 20 - before for name, before in paid.items()}
        second = clone(miner).fit(Federation(handles), "y")
        assert second.tree_ == first.tree_
        assert second.cost_ == 0
        for handle in handles:
            handle.close()


# How often it asks


@pytest.mark.parametrize(
    ("strategy", "at_once"),
    [("noisy_counts", 1), ("noisy_counts", 8), ("turns", 1)],
)
def test_round_trips_are_few(strategy: Any, at_once: int) -> None:
    """Best-first at most one round a split and two more; in turns one a level and two more."""
    four = federation(500, 500, 500, 500, epsilon=100)
    fitted = FederatedTopDown(epsilon=100, strategy=strategy, max_nodes=15, at_once=at_once).fit(four, "y")
    splits = 15
    assert fitted.card_.rounds == four.rounds <= {"turns": 4 + 2}.get(strategy, splits + 2)
    # NoisyCounts asks one histogram for each attribute; then the leaves, those of one depth together.
    most = {"turns": 4 + 2, "noisy_counts": (splits + 1) * 2 + 10}[strategy]
    assert all(count <= most for count in fitted.card_.requests.values())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_more_nodes_are_split_than_one_request_may_name(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few parts to a request a small tree is grown, which is paid for like any other: no limit ends a fit."""
    monkeypatch.setattr("miners.federated.topdown.MAX_PARTS", 3 * 2 * 3)  # three splits of two classes
    with federation(800, 700, epsilon=10**5) as owners:
        fitted = FederatedTopDown(epsilon=10**5, strategy=strategy, max_depth=3).fit(owners, "y")
    assert set(fitted.card_.spent.values()) == {10**5}
    assert 1 <= sum(node.split is not None for node in fitted.tree_.nodes) <= 3


def test_turns_are_dealt_by_what_a_choice_sees() -> None:
    """Of two tables of one size the one whose neighbours differ by two rows has noise of twice the size, and gets half as many turns."""
    schemas = (SCHEMA, SCHEMA.model_copy(update={"adjacency": "substitute"}))
    with Noted([simulated(one, data=rows(600, 1), epsilon=10**4) for one in schemas]) as owners:
        FederatedTopDown(epsilon=10**4, max_depth=3).fit(owners, "y")
        assert [name for name, _ in owners.chosen] == ["owner 1", "owner 1", "owner 2"]


def test_turns_are_dealt_by_size() -> None:
    assert Counter(deal({"a": 1000.0, "b": 1000.0, "c": 1000.0, "d": 1000.0}, 8)) == dict.fromkeys("abcd", 2)
    assert deal({"a": 600.0, "b": 300.0, "c": 5.0}, 6) == ["a", "a", "b", "a", "a", "b"]
    assert deal({"a": -40.0, "b": -3.0}, 3) == ["a", "b", "a"]
