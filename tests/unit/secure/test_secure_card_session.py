# SPDX-License-Identifier: Apache-2.0
"""Sessions of a scorecard: what they cost and open, how large their numbers are, and which rows they read."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from miners import FederatedScorecard, FederatedScorecardRegressor
from miners.federated.federation import Sums
from pinq.errors import QueryError
from pinq.language.derivatives import Logistic, Residuals, Softmax
from pinq.language.parts import Block, Part, PartSet
from pinq.language.points import Points
from pinq.language.specs import bind
from pinq.public.schema import Schema
from pinq_secure import SecureFederation
from pinq_secure.id3.task import hold
from pinq_secure.session.party import run_simulation
from pinq_secure.session.session import Session
from pinq_secure.sums import OwnRows, Units, most_units, noisy_sum_bits
from tests.support.processes.secure_parties import COLUMNS, patients, session_of, with_plain_noise
from tests.support.requests.handles import simulated

# A ward may be missing, also as a target, and an age has more cuts in steps than in tables.
MORE: dict[str, Any] = COLUMNS | {
    "ward": COLUMNS["ward"] | {"nullable": True},
    "age": {"type": "numeric", "lower": 0, "upper": 99, "integer": True, "nullable": True},
}
SCHEMA = Schema(columns=MORE, max_rows=3000)
TABLES = [patients(200 + 100 * number, number) for number in range(3)]
TARGETS = st.sampled_from(["ill", "ward", "age"])


def drafted(rows: list[int], **fields: Any) -> Session:
    return session_of("scorecard", rows, **{"noise": "discrete-laplace", "epsilon": "50", "columns": MORE} | fields)


def miner_for(target: str, **params: Any) -> Any:
    return (FederatedScorecardRegressor if target == "age" else FederatedScorecard)(strategy="secure", **params)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    nano=st.integers(4 * 10**9, 60 * 10**9),
    adjacency=st.sampled_from(["add-remove", "substitute"]),
    rows=st.integers(0, 60),
    colluding=st.sampled_from([None, 0, 2]),
    target=TARGETS,
    steps=st.none() | st.integers(0, 4),
)
def test_the_parties_own_recursion_says_what_was_claimed(
    nano: int, adjacency: Any, rows: int, colluding: Any, target: str, steps: Any
) -> None:
    """To the nano, for classes and means: what a session charges each ledger for at once is what its questions cost; none has less than sizes the field."""
    epsilon = Fraction(nano, 10**9)
    together = with_plain_noise(
        SecureFederation.simulated(
            [patients(rows, seed) for seed in range(3)],
            schema=SCHEMA.model_copy(update={"adjacency": adjacency}),
            epsilon=epsilon,
            colluding=colluding,
        ),
        nano,
    )
    asked: dict[bool, list[Any]] = {True: [], False: []}
    ask = together.ask

    def noted(queries: Any) -> Any:
        for question in queries:
            asked[question.sums is None].append(question.epsilon["all parties"])
        return ask(queries)

    together.ask = noted  # type: ignore[method-assign]
    miner = miner_for(target, epsilon=epsilon, steps=steps)
    needed = miner.sums_needed(together.schema, target)
    assert miner.plan(together.schema, target, owners=3).total == epsilon
    miner.fit(together, target)
    assert together.spent() == miner.owners_.spent == {"all parties": epsilon}
    assert miner.cost_ == epsilon
    assert min(asked[True]) == needed.count
    assert min(asked[False], default=None) == needed.sums


def test_the_field_holds_every_sum() -> None:
    """Its bits follow from the smallest loss of a unit; no loss of that width has more units, whatever its bound."""
    session = drafted([900] * 3, epsilon="1", steps=8, adjacency="substitute", target="age")
    needed = FederatedScorecardRegressor(epsilon=1, steps=8, strategy="secure").sums_needed(session.schema_, "age")
    assert needed.sums is not None
    units = most_units(2)
    assert session.bits == noisy_sum_bits(2700 * units, 3, needed.sums.exact / 2 / units) > 20
    scores = (Points(base=3),) * 4
    for loss in (
        Logistic("ill", ("yes",), Points()),
        Softmax("ward", scores, hessian=True, limit=1.0),
        *(Residuals("age", Points(), limit) for limit in (1 / 256, 0.3, 1, 31, 32, 33, 63.99, 64, 100)),
    ):
        assert Units.of(loss, SCHEMA).sensitivity <= most_units(loss.width(SCHEMA)), loss
    assert FederatedScorecard(strategy="noisy_counts").sums_needed(SCHEMA, "ward").width == 8


@pytest.mark.parametrize(("target", "classes", "starts"), [("ill", 2, 1), ("age", 3, 3)])
def test_what_is_opened_is_what_was_promised(target: str, classes: int, starts: int) -> None:
    """Noisy sums and nothing else: rows by the target (of a number by ever finer ones), tables of all attributes, the cells of one attribute in each step."""
    session = drafted([900] * 3, target=target, steps=3, attributes=["smokes", "ward"])
    holdings = [hold(session.task, table) for table in TABLES]
    outcome = run_simulation(session, holdings)[0]
    assert [opening.what for opening in outcome.opened] == ["noisy sum"] * (starts + 4)
    tables, *steps = [len(opening.values) for opening in outcome.opened[starts:]]
    assert tables == (2 + 4) * classes
    assert set(steps) == {2 * 2, 4 * 2}
    assert outcome.tree is None
    assert isinstance(outcome.scorecard, FederatedScorecard | FederatedScorecardRegressor)
    assert outcome.scorecard.owners_.requests == {"all parties": starts + 4}
    assert outcome.scorecard.card_.columns


@pytest.mark.parametrize("target", ["ill", "ward", "age"])
def test_a_session_knows_of_rows_what_a_card_asks(target: str) -> None:
    """Counts and sums of all cells of steps and of tables are those of the rows themselves, and those that have a handle."""
    session = drafted([900] * 3, epsilon="900", target=target)
    miner, table = miner_for(target, epsilon=900), patients(300, 5)
    table.loc[table.index[:40], [name for name in ("ward", "age") if name != target]] = None
    fit = miner._checked(session.schema_, target)
    known = table[table[target].notna()]
    held, whole = OwnRows.of_holding(session.task, hold(session.task, table)), OwnRows.of_tables(SCHEMA, [known])
    everything = PartSet([Block(Part())])
    objective, card = fit.objective.start(np.ones(bind(fit.objective.base_parts, SCHEMA).size), 1.0)
    loss = objective.loss(card)
    with simulated(SCHEMA, data=known, epsilon=10**6) as handle:
        for spec in fit.specs:
            crossed = handle.parts().partition(spec).partition(objective.table_parts)
            counts = held.table(crossed.part_set)
            assert np.array_equal(counts, whole.table(crossed.part_set))
            assert np.array_equal(counts, crossed.noisy_count(epsilon=500))
            sums = held.derivatives(everything, Sums(loss, spec), SCHEMA)
            assert np.array_equal(sums, whole.derivatives(everything, Sums(loss, spec), SCHEMA))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"noise": "none", "epsilon": None}, "scorecard opens noisy sums: it needs `noise: discrete-laplace`"),
        ({"epsilon": None}, "`noise: discrete-laplace` needs `epsilon`$"),
        ({"depth": 2}, "`depth` is that of a tree; a scorecard has `steps`"),
        ({"steps": 201}, "steps: .*less than or equal to 200"),
        ({"protocol": "topdown", "steps": 2}, "`steps` are those of `protocol: scorecard`; topdown learns a tree"),
        ({"cuts": {"age": [200]}}, "200"),
        ({"attributes": ["ill"]}, "the target `ill` is among `attributes`"),
        ({"target": "ilness"}, "no column 'ilness'"),
        ({"epsilon": "0.01", "steps": 20}, "a single question would have an epsilon of.*or fewer steps"),
    ],
)
def test_what_cannot_be_a_session(fields: dict[str, Any], message: str) -> None:
    """Each wrong place is named with what is right, before anything leaves a party."""
    with pytest.raises(QueryError, match=message):
        session_of(**{"protocol": "scorecard", "rows": [100] * 3, "noise": "discrete-laplace", "epsilon": "5"} | fields)


def test_only_strategies_without_choices_say_what_sums_they_need() -> None:
    """An owner's choice is no sum."""
    with pytest.raises(QueryError, match="'turns' asks for choices too"):
        FederatedScorecard().sums_needed(SCHEMA, "ill")


def test_sessions_of_trees_keep_their_hash() -> None:
    """Which their parties may have compared already: `steps` are part of it only where they are given."""
    assert "steps" not in session_of("sid3p", [10] * 3).text
    assert '"steps": 2' in drafted([100] * 3, steps=2).text
