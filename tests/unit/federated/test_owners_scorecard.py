# SPDX-License-Identifier: Apache-2.0
"""FederatedScorecard: what it spends at each owner, also when one is gone, and that it learns what one table would tell."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from miners import FederatedScorecard, FederatedScorecardRegressor, Federation, Scorecard, ScorecardRegressor
from miners.federated.federation import OwnerFailed
from miners.scorecards.costs import FitCosts, with_turns
from pinq.errors import QueryError
from pinq.provider.local import simulate
from pinq.public.epsilon import ZERO, Epsilon
from pinq.public.schema import Categorical, Numeric, Schema
from pinq_secure import SecureFederation
from tests.support.laws.fixed_noise import COINS
from tests.support.requests.data_owners import Noted
from tests.support.requests.handles import simulated

STRATEGIES = ("turns", "noisy_counts")
KINDS: dict[str, Any] = {"y": FederatedScorecard, "z": FederatedScorecard, "amount": FederatedScorecardRegressor}
SCHEMA = Schema(
    columns={
        "x": Numeric(lower=0, upper=99, integer=True),
        "job": Categorical(values=("a", "b", "c")),
        "still": Categorical(values=("a", "b")),
        "y": Categorical(values=("n", "p")),
        "z": Categorical(values=("r", "s", "t"), nullable=True),
        "amount": Numeric(lower=-100, upper=100, integer=True, nullable=True),
    },
    max_rows=2000,
)


def rows(count: int, seed: int = 0) -> pd.DataFrame:
    """Both classes and the amount follow x and job additively; a tenth of ``z`` is missing, and some amounts are."""
    random = np.random.default_rng(seed)
    x, job = random.integers(0, 100, count), random.integers(0, 3, count)
    score = (x - 50) / 12 + np.array([-1.5, 0, 1.5])[job] + random.logistic(size=count)
    z = np.array(list("rst"), dtype=object)[np.digitize(score, [-1.5, 1.5])]
    z[random.random(count) < 0.1] = None
    return pd.DataFrame(
        {
            "x": x,
            "job": np.array(list("abc"))[job],
            "still": random.choice(["a", "b"], count),
            "y": np.where(score > 0, "p", "n"),
            "z": z,
            "amount": np.where(random.random(count) < 0.1, np.nan, np.clip(np.rint(12 * score), -100, 100)),
        }
    )


FRESH = rows(2000, 99)


def federation(*sizes: int, epsilon: Any = 1, **named: Any) -> Federation:
    return Federation(
        [simulated(SCHEMA, data=rows(size, seed), epsilon=epsilon) for seed, size in enumerate(sizes)], **named
    )


def test_an_owner_chooses_pairs_in_its_turn() -> None:
    """Strategies that choose nothing refuse them."""
    with federation(1000, 900, epsilon=9) as owners:
        card = FederatedScorecard(epsilon=8, steps=2, pairs=True, attributes=["job", "still"]).fit(owners, "y")
        assert set(owners.spent().values()) == {8}
    assert {term.name for term in card.card_.terms} <= {"job", "still", "job and still"}
    with pytest.raises(QueryError, match="`pairs` goes with strategy 'turns'"):
        FederatedScorecard(pairs=True, strategy="secure").plan(SCHEMA, "y")


class UsedUp(Federation):
    """Somebody else uses up the last owner's budget before a round of questions."""

    def __init__(self, *args: Any, before: int, **named: Any) -> None:
        super().__init__(*args, **named)
        self._left = before

    def ask(self, questions: Any) -> Any:
        if self._left == 0:
            last = list(self.requests)[-1]
            self.handle(last).noisy_count(epsilon=self.handle(last).budget.remaining)
        self._left -= 1
        return super().ask(questions)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=4),
    nano=st.integers(10**7, 20 * 10**9),
    strategy=st.sampled_from(STRATEGIES),
    target=st.sampled_from(["y", "z", "amount"]),
    steps=st.none() | st.integers(0, 5),
)
def test_every_ledger_equals_the_claim(sizes: Any, nano: int, strategy: Any, target: str, steps: Any) -> None:
    """To the nano-epsilon, whoever had a turn; a plan says the same, and JSON keeps who took part."""
    epsilon = Fraction(nano, 10**9)
    with federation(*sizes, epsilon=epsilon) as owners:
        miner = KINDS[target](epsilon=epsilon, strategy=strategy, steps=steps)
        assert miner.plan(owners.schema, target, owners=len(sizes)).total == epsilon
        miner.fit(owners, target)
        assert set(owners.spent().values()) == set(miner.owners_.spent.values()) == {epsilon}
        assert miner.cost_ == epsilon
        again = KINDS[target].from_json(miner.to_json())
        assert again.owners_ == miner.owners_
        assert f"Scorecard of {len(sizes)} owner" in repr(again.owners_)


def test_turns_go_by_the_rows_that_tables_tell() -> None:
    """Where tables pay most and the start nearly nothing: an owner of nearly all rows chooses every time."""
    for _ in range(3):
        handles = [simulated(SCHEMA, data=rows(size, size), epsilon=1) for size in (1500, 30, 20)]
        owners = Noted(handles)
        FederatedScorecard(epsilon=0.5, steps=3).fit(owners, "z")
        assert [name for name, _ in owners.chosen] == ["owner 1"] * 3


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("target", KINDS)
def test_a_fit_that_is_too_much_work_for_an_owner_costs_none(target: str, strategy: Any) -> None:
    """Whoever bounds the work of a question refuses the fit before anybody is asked, or is left out from the beginning."""
    miner, schema = (
        KINDS[target](epsilon=1, strategy=strategy, steps=2),
        SCHEMA.model_copy(update={"max_rows": 200_000}),
    )
    rules: dict[Any, Any] = {"fail": OwnerFailed, "drop": None}
    for rule, error in rules.items():
        handles = [simulated(schema, data=rows(50, seed), epsilon=1) for seed in range(3)]
        with Federation(handles, on_failure=rule) as owners:
            session: Any = handles[1]._session
            session._curator.max_work = 12  # enough for the first questions
            if error is None:
                miner.fit(owners, target)
                assert miner.owners_.spent == {"owner 1": 1, "owner 2": 0, "owner 3": 1}
            else:
                with pytest.raises(error, match="units of work"):
                    miner.fit(owners, target)
                assert set(owners.spent().values()) == {0}


@given(
    nano=st.integers(10**6, 10**10),
    steps=st.integers(1, 12),
    own=st.sets(st.integers(0, 11)),
    left=st.integers(10**6, 10**10),
)
def test_turns_cost_what_is_left(nano: int, steps: int, own: set[int], left: int) -> None:
    """Exactly; who chooses less often pays more for each choice, who never does more for its sums."""
    shares = FitCosts.of(Epsilon(nano), tables=0, steps=steps, choice=0.25, base=0.2).steps
    own &= {*range(steps)}
    turns = with_turns(Epsilon(left), shares, own)
    assert sum((step.sums + (step.choice or ZERO) for step in turns), ZERO) == Epsilon(left)
    assert [position for position, step in enumerate(turns) if step.choice is not None] == sorted(own)


@cache
def of_one_table(target: str) -> float:
    """How well a card of the rows of four owners predicts, fitted once for all strategies."""
    alone = ScorecardRegressor if target == "amount" else Scorecard
    attributes = [name for name in SCHEMA.columns if name not in ("y", "z", "amount")]
    data = pd.concat([rows(500, seed) for seed in range(4)])
    with COINS.apart(target), simulated(SCHEMA, data=data, epsilon=20) as handle:
        fitted = alone(epsilon=20, attributes=attributes).fit(handle, target)
    return float(fitted.score(FRESH[FRESH[target].notna()]))


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("target", "apart"), [("y", 0.05), ("z", 0.07), ("amount", 0.1)])
def test_four_owners_come_close_to_one_table(strategy: Any, target: str, apart: float) -> None:
    """At a generous epsilon, where what is lost is not noise."""
    known = FRESH[FRESH[target].notna()]
    attributes, together = [name for name in SCHEMA.columns if name not in ("y", "z", "amount")], of_one_table(target)
    with federation(500, 500, 500, 500, epsilon=20) as owners:
        among = KINDS[target](epsilon=20, strategy=strategy, attributes=attributes).fit(owners, target)
        assert among.score(known) > together - apart
        importance = dict(zip(among.feature_names_in_, among.feature_importances_, strict=True))
        assert importance["still"] < 0.15 < importance["x"]


@pytest.mark.parametrize("before", [0, 1, 4])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_whoever_is_left_pays_what_was_claimed(strategy: Any, before: int) -> None:
    """An owner's budget is gone in the middle: the others take its turns and pay epsilon, or the fit fails and says what they paid."""
    handles = [simulated(SCHEMA, data=rows(300, seed), epsilon=1) for seed in range(3)]
    with UsedUp(handles, before=before, on_failure="drop") as owners:
        fitted = FederatedScorecard(epsilon=1, strategy=strategy).fit(owners, "y")
        assert [dropped.owner for dropped in fitted.owners_.dropped] == ["owner 3"]
        assert [fitted.owners_.spent[f"owner {number}"] for number in (1, 2)] == [1, 1]
    handles = [simulated(SCHEMA, data=rows(300, seed), epsilon=1) for seed in range(3)]
    with UsedUp(handles, before=before) as owners, pytest.raises(OwnerFailed, match="owner 1: "):
        FederatedScorecard(epsilon=1, strategy=strategy).fit(owners, "y")


def test_a_fit_that_was_broken_off_is_resumed_without_paying_again() -> None:
    """The same questions are answered from the ledgers."""
    with federation(300, 300, epsilon=2) as owners:
        first = FederatedScorecard(epsilon=1, strategy="noisy_counts").fit(owners, "y")
        again = FederatedScorecard(epsilon=1, strategy="noisy_counts", resume=True).fit(owners, "y")
        assert again.cost_ == 0
        assert [term.points.tolist() for term in again.card_.terms] == [
            term.points.tolist() for term in first.card_.terms
        ]


def test_strategies_ask_whom_they_can_ask() -> None:
    """Parties that add up do not choose, handles do not add up; and words are checked."""
    parties = SecureFederation.simulated([rows(20, seed) for seed in range(3)], schema=SCHEMA, epsilon=1)
    with pytest.raises(QueryError, match="use 'secure'"):
        FederatedScorecard(epsilon=1).fit(parties, "y")
    with federation(20, 20) as owners:
        strategies: tuple[tuple[Any, str], ...] = (
            ("secure", "needs parties that add up"),
            ("choices", "must be one of 'turns'"),
        )
        for strategy, match in strategies:
            with pytest.raises(QueryError, match=match):
                FederatedScorecard(epsilon=1, strategy=strategy).fit(owners, "y")
        with pytest.raises(QueryError, match="take FederatedScorecardRegressor"):
            FederatedScorecard(epsilon=1).fit(owners, "x")
        with pytest.raises(QueryError, match="is categorical; take FederatedScorecard,"):
            FederatedScorecardRegressor(epsilon=1).fit(owners, "y")
        with pytest.raises(QueryError, match="from a list; wrap several"):
            FederatedScorecard(epsilon=1).fit([simulate(SCHEMA, rows=1, epsilon=1)], "y")  # type: ignore[arg-type]
        with pytest.raises(QueryError, match="goes with owners that keep"):
            FederatedScorecard(epsilon=1, strategy="secure", resume=True).plan(SCHEMA, "y")
        assert set(owners.spent().values()) == {0}
