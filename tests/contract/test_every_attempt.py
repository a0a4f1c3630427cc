# SPDX-License-Identifier: Apache-2.0
"""An act that the budget does not cover leaves one refusal in the log and costs nothing, whoever asks.

Miners, tables and fronts are found by introspection, so a new one is tested by its name.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import pinq
from miners import DiffPC45, Federation, statistics, tables
from miners.fronts.agents import Agent
from miners.tables.table import TableFunction
from pinq.curator.monitor import ATTEMPT
from pinq.errors import BudgetExceeded, PinqError
from pinq.ledger.events import Refused, Terms
from pinq.provider.report.audit import audit
from pinq.public.epsilon import Epsilon
from tests.support.processes.servers import Certificate, publish, serving, token_of
from tests.support.requests.catalogue import MINERS, Form
from tests.support.requests.handles import ledger_of, simulated
from tests.support.tables.mixed_schema import SCHEMA

TARGETS = {"classes": "income", "means": "wage", "distances": "job", "components": "income", "rows": "income"}
TABLES: dict[str, tuple[Any, ...]] = {
    "correlation": (["age", "wage"],),
    "crosstab": ("sex", "income"),
    "grouped": ("sex", {"age": "mean"}),
    "histogram": ("age",),
    "quantiles": ("age",),
    "std": ("age",),
    "summary": (),
    "top_k": ("job", 2),
    "variance": ("age",),
}
STATISTICS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "hazard_ratio": (("age", "income", "sex"), {"observed": ">50K"}),
    "independence": (("sex", "income"), {}),
    "standardised": (("income", "sex", "job"), {"observed": ">50K"}),
    "compare": (("age", "sex"), {}),
    "kmeans": (("age", 3), {}),
    "logistic": (("income", ["sex", "job"]), {"observed": ">50K"}),
    "poisson": (("age", "sex"), {}),
    "odds_ratio": (("income", "sex"), {"observed": ">50K", "exposed": "M"}),
    "rate_ratio": (("income", "sex"), {"observed": ">50K", "exposed": "M", "time": "age"}),
    "risk_difference": (("income", "sex", "job"), {"observed": ">50K", "exposed": "M"}),
    "survival": (("age", "income", "sex"), {"observed": ">50K"}),
}


def poor(epsilon: Any = "0.5") -> Any:
    return simulated(SCHEMA, rows=50, epsilon=epsilon)


def refusals(handle: Any) -> list[Refused]:
    """The refusals of a handle's analyst in the log, as an auditor reads them."""
    records = [line.event.record for line in ledger_of(handle).log.lines("simulated", 0, 10)]
    return [record for record in records if isinstance(record, Refused)]


def require_one(handle: Any, act: str) -> None:
    """Asks for one refusal of an act that needed 1 where 1/2 remained, and for nothing spent."""
    (refused,) = refusals(handle)
    assert refused.reason == BudgetExceeded.code
    assert (refused.asked, refused.remaining) == (Epsilon.of(1), Epsilon.of("0.5"))
    assert refused.scope == "analyst"
    assert refused.query.about == ATTEMPT
    assert act in refused.query.act
    assert handle.budget.spent == 0


@pytest.mark.parametrize("name", list(MINERS))
def test_a_fit_leaves_one_refusal(name: str) -> None:
    """Its plan leaves none."""
    form = Form(name)
    miner, target, h = form.built(epsilon=1), TARGETS[form.learns], poor()
    miner.plan(h.schema, target)
    assert refusals(h) == []
    with pytest.raises(BudgetExceeded, match=f"{name}.fit needs an epsilon of 1; 0.5 remains") as caught:
        miner.fit(h, target)
    assert (caught.value.asked, caught.value.remaining) == (Fraction(1), Fraction(1, 2))
    require_one(h, f"{name}.fit")


@pytest.mark.parametrize("name", [name for name in tables.__all__ if isinstance(getattr(tables, name), TableFunction)])
def test_a_table_leaves_one_refusal(name: str) -> None:
    """Its plan leaves none."""
    h, function = poor(), getattr(tables, name)
    function.plan(h, *TABLES[name], epsilon=1)
    assert refusals(h) == []
    with pytest.raises(BudgetExceeded):
        function(h, *TABLES[name], epsilon=1)
    require_one(h, f"tables.{name}")


@pytest.mark.parametrize(
    "name", [name for name in statistics.__all__ if isinstance(getattr(statistics, name), TableFunction)]
)
def test_a_statistic_leaves_one_refusal(name: str) -> None:
    """Its plan leaves none."""
    h, function = poor(), getattr(statistics, name)
    columns, words = STATISTICS[name]
    plan = function.plan(h, *columns, **words, epsilon=1)
    assert (plan.total, refusals(h)) == (1, [])
    with pytest.raises(BudgetExceeded):
        function(h, *columns, **words, epsilon=1)
    require_one(h, f"statistics.{name}")


def test_a_statement_leaves_one_refusal() -> None:
    h, statement = poor(), "SELECT COUNT(*) FROM people GROUP BY sex"
    pinq.sql(h, f"EXPLAIN {statement}", epsilon=1)
    assert refusals(h) == []
    with pytest.raises(BudgetExceeded):
        pinq.sql(h, statement, epsilon=1)
    require_one(h, statement)


def test_each_tool_of_an_agent_that_spends_leaves_one_refusal() -> None:
    given = {
        "ask_sql": {"sql": "SELECT COUNT(*) FROM people", "epsilon": 1},
        "ask_table": {"kind": "crosstab", "columns": ["sex"], "epsilon": 1},
    }
    assert set(given) == {name for name, tool in Agent(poor(), per_call=2, per_session=5).tools.items() if tool.spends}
    for name, arguments in given.items():
        h = poor()
        told = Agent(h, per_call=2, per_session=5).call(name, arguments)
        assert "needs an epsilon of 1; 0.5 remains" in told.text, told.text
        require_one(h, {"ask_sql": "sql: SELECT", "ask_table": "tables.crosstab of sex"}[name])


def test_each_owner_that_cannot_pay_has_a_refusal() -> None:
    first, second, rich = poor(), poor(), poor(5)
    with pytest.raises(PinqError):
        MINERS["FederatedTopDown"](epsilon=1).fit(Federation([first, second, rich]), "income")
    require_one(first, "FederatedTopDown.fit")
    require_one(second, "FederatedTopDown.fit")
    assert refusals(rich) == []


def test_a_look_and_an_act_that_is_covered_leave_nothing() -> None:
    h = poor()
    h.preview("noisy_count", epsilon=1)
    h.attempt(epsilon="0.5", act="a fit")
    _ = h.budget
    assert refusals(h) == []


def test_the_terms_bind_the_queries_of_an_act_and_not_the_act() -> None:
    h = poor()
    ledger_of(h).set_terms("simulated", Terms(verbs=("noisy_sum",), max_epsilon_per_query=Epsilon.of("0.01")))
    h.attempt(epsilon="0.5", act="a fit")
    with pytest.raises(BudgetExceeded):
        h.attempt(epsilon=1, act="a fit")


def test_the_smaller_limit_is_named() -> None:
    """What the cap over all analysts leaves can be less than what the grant does."""
    h = poor(2)
    ledger_of(h).declare(SCHEMA.digest, Epsilon.of("0.5"), {})
    with pytest.raises(BudgetExceeded, match=r"0\.5 remains under the cap over all analysts") as caught:
        DiffPC45(epsilon=1).fit(h, "income")
    assert caught.value.scope == "cap"
    assert [record.scope for record in refusals(h)] == ["cap"]


def test_a_server_logs_attempts_too(tmp_path: Path) -> None:
    """And the audit of its ledger counts them."""
    policy = publish(tmp_path / "policies", "people")
    with serving(tmp_path / "policies", folder=tmp_path, certificate=Certificate.make(tmp_path)) as server:
        token = token_of(policy, "ana", "0.5")
        with pinq.connect(server.url("people"), token=token, **server.words()) as h:
            target = next(iter(h.schema.categorical_columns))
            for attempt in (
                lambda: DiffPC45(epsilon=1).fit(h, target),
                lambda: tables.histogram(h, target, epsilon=1),
                lambda: pinq.sql(h, f"SELECT COUNT(*) FROM people GROUP BY {target}", epsilon=1),
            ):
                with pytest.raises(BudgetExceeded, match=r"needs an epsilon of 1; 0\.5 remains"):
                    attempt()
            assert h.budget.spent == 0
            assert h.history()["outcome"].tolist() == ["refused (budget)"] * 3
    assert dict(audit(policy).accounts["ana"].refused) == {"budget": 3}
