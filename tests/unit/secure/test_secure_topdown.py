# SPDX-License-Identifier: Apache-2.0
"""DP-TopDown on sums under secret sharing: what it costs and opens, who may ask, and that all parties grow one tree."""

from __future__ import annotations

import doctest
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import pinq_secure.sums
from miners import FederatedTopDown, Federation
from miners.federated.federation import CountSource
from miners.federated.growing import splitting_functions
from miners.federated.owners_miner import NEEDS, STRATEGIES
from pinq.errors import BudgetExceeded, QueryError
from pinq.language.parts import PartSet
from pinq.language.scores import Gini
from pinq.language.specs import AnyCut, Cross, Cuts, Values
from pinq.public.schema import Schema
from pinq_secure import SecureFederation
from pinq_secure.id3.task import hold
from pinq_secure.session.party import run_simulation
from pinq_secure.session.session import Session
from pinq_secure.sums import OwnRows, noisy_sum_bits
from tests.support.processes.secure_parties import COLUMNS, patients, session_of, with_plain_noise
from tests.support.requests.handles import simulated

SCHEMA = Schema(columns=COLUMNS, max_rows=3000)
TABLES = [patients(400 + 100 * number, number) for number in range(3)]


def drafted(rows: list[int], **fields: Any) -> Session:
    return session_of("topdown", rows, **{"noise": "discrete-laplace", "epsilon": "1000"} | fields)


def test_the_docstrings_example_holds() -> None:
    assert doctest.testmod(pinq_secure.sums).failed == 0


# What it costs


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    nano=st.integers(2 * 10**9, 60 * 10**9),
    adjacency=st.sampled_from(["add-remove", "substitute"]),
    rows=st.integers(0, 60),
    colluding=st.sampled_from([None, 0, 2]),
    strategy=st.sampled_from(["secure", "noisy_counts"]),
    max_depth=st.none() | st.integers(0, 4),
    max_nodes=st.integers(1, 9),
    at_once=st.integers(1, 4),
)
def test_the_parties_own_recursion_says_what_was_claimed(
    nano: int, adjacency: Any, rows: int, colluding: Any, **params: Any
) -> None:
    """To the nano, whatever tree comes out: what a session charges each ledger for at once is what its questions cost."""
    epsilon = Fraction(nano, 10**9)
    together = SecureFederation.simulated(
        [patients(rows, seed) for seed in range(3)],
        schema=SCHEMA.model_copy(update={"adjacency": adjacency}),
        epsilon=epsilon,
        colluding=colluding,
    )
    fitted = FederatedTopDown(epsilon=epsilon, **params).fit(together, "ill")
    assert together.spent() == fitted.card_.spent == {"all parties": epsilon}
    assert fitted.cost_ == epsilon


def test_more_than_the_limit_is_refused_before_anything_is_shared() -> None:
    together = SecureFederation.simulated(TABLES, schema=SCHEMA, epsilon=1)
    with pytest.raises(BudgetExceeded, match=r"fit needs an epsilon of 2; 1 remains"):
        FederatedTopDown(epsilon=2, strategy="secure").fit(together, "ill")
    together.parts().noisy_count(epsilon="0.75")
    with pytest.raises(BudgetExceeded, match=r"cost each party epsilon 0\.5; 0\.25 remains"):
        together.parts().noisy_count(epsilon="0.5")
    assert together.spent() == {"all parties": Fraction(3, 4)}


def test_a_plan_says_what_a_fit_costs() -> None:
    """And of whose noise it speaks; the card survives JSON."""
    miner = FederatedTopDown(epsilon=2, strategy="secure")
    plan = miner.plan(SCHEMA, "ill", owners=3)
    assert plan.total == sum(line.epsilon for line in plan.lines) == 2
    assert "shown is that of one owner; if c of m parties may pool" in repr(plan)
    fitted = miner.fit(SecureFederation.simulated(TABLES, schema=SCHEMA, epsilon=2), "ill")
    again = FederatedTopDown.from_json(fitted.to_json())
    assert (again.tree_, again.card_) == (fitted.tree_, fitted.card_)


def test_a_charge_is_rounded_up() -> None:
    """A third of an epsilon costs 333,333,334 nano-epsilons, never less than was asked."""
    together = SecureFederation.simulated(TABLES, schema=SCHEMA, epsilon=1)
    together.ask([together.parts().question("noisy_count", epsilon=Fraction(1, 3))])
    assert together.spent() == {"all parties": Fraction(333_333_334, 10**9)}
    with pytest.raises(BudgetExceeded):
        together.ask([together.parts().question("noisy_count", epsilon=Fraction(2, 3))])


# How large its numbers are


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    nano=st.integers(10**9, 50 * 10**9),
    leaf=st.sampled_from([None, "0.01", "0.9"]),
    max_depth=st.none() | st.integers(0, 3),
    budget=st.sampled_from([None, "uniform"]),
)
def test_no_question_is_asked_below_the_smallest_loss(nano: int, leaf: Any, max_depth: Any, budget: Any) -> None:
    """What sizes the field is what the fit asks: no question has less, and where the tree grows to its end one has just that."""
    together = with_plain_noise(SecureFederation.simulated(TABLES, schema=SCHEMA, epsilon=Fraction(nano, 10**9)), nano)
    asked: list[Fraction] = []
    ask = together.ask

    def noted(queries: Any) -> Any:
        asked.extend(question.epsilon["all parties"].exact for question in queries)
        return ask(queries)

    together.ask = noted  # type: ignore[method-assign]
    miner = FederatedTopDown(
        epsilon=Fraction(nano, 10**9),
        strategy="secure",
        leaf_fraction=leaf and Fraction(leaf),
        max_depth=max_depth,
        budget=budget,
    )
    smallest = miner.sums_needed(together.schema, "ill").count.exact
    miner.fit(together, "ill")
    assert min(asked) >= smallest
    if max_depth == 0:
        assert asked == [smallest] == [Fraction(nano, 10**9)]
    if max_depth == 1:  # a split of the root is always sought, and its tables are asked first
        rest = min(asked[0], asked[-1]) - smallest  # what does not divide by the tables goes to the leaves
        assert 0 <= rest < Fraction(len(asked), 10**9)


def test_the_field_is_sized_without_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan is for people: what it prints decides nothing. The smallest loss does, at the schema's distance."""
    monkeypatch.setattr(FederatedTopDown, "plan", None)
    for adjacency, distance in (("add-remove", 1), ("substitute", 2)):
        session = drafted([900] * 3, epsilon="0.5", adjacency=adjacency)
        smallest = FederatedTopDown(epsilon="0.5", strategy="secure").sums_needed(session.schema_, "ill").count.exact
        assert smallest < Fraction(1, 10)
        assert session.bits == noisy_sum_bits(2700, 3, smallest / distance) > 12


@pytest.mark.parametrize("strategy", ["turns"])
def test_choices_have_no_smallest_count(strategy: Any) -> None:
    with pytest.raises(QueryError, match="asks for choices too"):
        FederatedTopDown(strategy=strategy).sums_needed(SCHEMA, "ill")


# What it opens


def test_what_is_opened_is_what_was_promised() -> None:
    """Noisy sums and nothing else, and no more values than the questions have cells."""
    session = drafted([900] * 3)
    outcome = run_simulation(session, [hold(session.task, table) for table in TABLES])[0]
    assert {opening.what for opening in outcome.opened} == {"noisy sum"}
    assert len(outcome.opened[0].values) == sum(session.task.sizes) * 2  # the root's tables
    assert outcome.tree is not None
    assert outcome.tree.nodes[0].rows == pytest.approx(1500, abs=1)


# Who may ask


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"strategy": "secure", "resume": True}, "`resume` goes with owners that keep their answers"),
        (
            {"strategy": "turns"},
            "asks owners to choose, and parties that add up their counts do nothing else; use 'secure'",
        ),
        ({"strategy": "turns"}, "use 'secure'"),
    ],
)
def test_what_parties_that_add_up_cannot_do(params: dict[str, Any], message: str) -> None:
    together = SecureFederation.simulated(TABLES, schema=SCHEMA)
    with pytest.raises(QueryError, match=message):
        FederatedTopDown(epsilon=1, **params).fit(together, "ill")
    with pytest.raises(QueryError, match="cannot answer exp_mech"):
        together.parts().exp_mech([Values("ward")], score=Gini("ill"), epsilon=1)
    assert together.spent() == {"all parties": 0}


def test_parties_that_add_up_are_a_source_and_no_federation() -> None:
    """Both answer for counts by one protocol; neither is made of the other, and no handle stands for all parties."""
    together = SecureFederation.simulated(TABLES, schema=SCHEMA)
    with Federation([simulated(SCHEMA, rows=50, epsilon=1)]) as owners:
        assert all(isinstance(source, CountSource) for source in (together, owners))
    assert not isinstance(together, Federation)
    assert not hasattr(together, "handle")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_says_what_it_needs(strategy: Any) -> None:
    """Whoever does not answer that is refused before anything is spent; whoever does learns."""
    together = SecureFederation.simulated(TABLES, schema=SCHEMA, epsilon=1)
    with Federation([simulated(SCHEMA, rows=200, epsilon=1)]) as owners:
        for source in (together, owners):
            miner = FederatedTopDown(epsilon=1, strategy=strategy, max_depth=1)
            if NEEDS[strategy] in (None, *source.abilities):
                assert miner.fit(source, "ill").cost_ == 1
            else:
                with pytest.raises(QueryError, match=f"strategy '{strategy}' .*Nothing was spent"):
                    miner.fit(source, "ill")
                assert set(source.spent().values()) == {0}


@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (("ill",), "'ill' is a name, not a spec"),
        ((AnyCut("age"),), "is a family of candidates"),
        (([Values("ill")],), "1 specs were given for 2 parts"),
        ((Values("smokes"), Values("nosuch")), "nosuch"),
    ],
)
def test_parts_of_all_parties_are_cut_like_a_handles(specs: tuple[Any, ...], message: str) -> None:
    """Tuples and crosses are joint parts, None leaves a part as it is; what is no spec is refused."""
    halves = SecureFederation.simulated(TABLES, schema=SCHEMA).parts().partition(Values("smokes"))
    with simulated(SCHEMA, rows=50, epsilon=1) as handle:
        own = handle.parts().partition(Values("smokes"))
        for cut in ([Values("ill"), None], [(Values("ill"), Values("ward")), Cuts("age", (50,))]):
            assert _keys(halves.partition(cut).of("all parties").part_set) == _keys(own.partition(cut).part_set)
        for cuts in (
            (Values("ill"), Values("ward")),
            ((Values("ill"), Values("ward")),),
            (Cross((Values("ill"), Values("ward"))),),
        ):
            assert _keys(halves[[1]].partition(*cuts).of("all parties").part_set) == _keys(
                own[[1]].partition(*cuts).part_set
            )
    with pytest.raises(QueryError, match=message):
        halves.partition(*specs)
    with pytest.raises(QueryError, match="positions must be whole numbers from 0 to 1"):
        halves[[2]]


def _keys(parts: PartSet) -> list[bytes]:
    return [part.key for part in parts]


def test_handles_that_answer_for_themselves_are_refused() -> None:
    """With what to do instead, and before anything is spent."""
    with Federation([simulated(SCHEMA, rows=50, epsilon=1) for _ in range(3)]) as owners:
        with pytest.raises(
            QueryError,
            match=r"with noise of its own. Between machines use `pinq secure join` with `protocol: topdown`.*Nothing was spent",
        ):
            FederatedTopDown(epsilon=1, strategy="secure").fit(owners, "ill")
        assert set(owners.spent().values()) == {0}


@pytest.mark.parametrize(
    ("tables", "named", "message"),
    [
        (TABLES[:2], {}, "at least three tables"),
        (TABLES[0], {}, "at least three tables"),
        (TABLES, {"rows": 400}, "`rows` is 400; a table has 600"),
        (TABLES, {"colluding": 3}, "below the number of parties, 3"),
    ],
)
def test_who_can_be_simulated(tables: Any, named: dict[str, Any], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        SecureFederation.simulated(tables, schema=SCHEMA, **named)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"noise": "none", "epsilon": None}, "topdown opens noisy sums: it needs `noise: discrete-laplace`"),
        ({"cuts": {"age": [200]}}, "200"),
        ({"attributes": ["ill"]}, "the target `ill` is among `attributes`"),
        ({"depth": 0, "parties": []}, "parties: "),
        ({"epsilon": "0.00002"}, "a single question would have an epsilon of"),
    ],
)
def test_what_cannot_be_a_session(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        drafted([100] * 3, **fields)


# What it learns


def test_counts_are_those_of_the_engine() -> None:
    """One party's rows, counted by any parts, as behind the wall; from a table and from what a session knows of them."""
    task = drafted([900] * 3).task
    from_table, held = OwnRows.of_tables(SCHEMA, TABLES[:1]), OwnRows.of_holding(task, hold(task, TABLES[0]))
    with simulated(SCHEMA, data=TABLES[0], epsilon=10**6) as handle:
        age, smokes, ward = (
            [*function.splits]
            for function in sorted(splitting_functions(SCHEMA, "ill"), key=lambda function: function.base.column)
        )
        below = handle.parts().partition(age[4]).partition([smokes[0], ward[1]])
        for parts in (
            below,
            below[[1, 2]].partition(Values("ward"), Values("ill")),
            handle.parts().partition(age[2], Values("ill")),
        ):
            expected = parts.noisy_count(epsilon=10**4)
            assert np.array_equal(from_table.table(parts.part_set), expected)
            assert np.array_equal(held.table(parts.part_set), expected)


def test_it_learns_what_one_owner_of_all_rows_would() -> None:
    """With hardly any noise the same tree as NoisyCounts on one table with everybody's rows."""
    whole = pd.concat(TABLES)
    together = SecureFederation.simulated(TABLES, schema=SCHEMA, epsilon=1000)
    fitted = FederatedTopDown(epsilon=1000, strategy="secure", max_depth=4).fit(together, "ill")
    with simulated(SCHEMA.model_copy(update={"max_rows": len(whole)}), data=whole, epsilon=1000) as handle:
        alone = FederatedTopDown(epsilon=1000, strategy="noisy_counts", max_depth=4).fit(handle, "ill")
    assert [node.split for node in fitted.tree_.nodes] == [node.split for node in alone.tree_.nodes]
    assert fitted.tree_.n_leaves > 1
