# SPDX-License-Identifier: Apache-2.0
"""Miners, tables and fronts see answers only: given the same answers, they ask and learn the same from any other table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from miners import statistics, tables
from miners.fronts.agents import Agent
from miners.fronts.sql import sql
from pinq.provider.testing import first_difference
from tests.support.requests.catalogue import FORMS, Form
from tests.support.requests.handles import encoded_rows, engine_of, simulated
from tests.support.tables.mixed_schema import SCHEMA

TARGETS = {"classes": "income", "means": "wage", "distances": "job", "components": "income", "rows": "income"}
FRONTS: dict[str, Callable[[Any], Any]] = {
    "correlation": lambda h: str(tables.correlation(h, ["age", "wage"], epsilon=0.5)),
    "crosstab": lambda h: str(tables.crosstab(h, "job", "income", epsilon=0.5)),
    "grouped": lambda h: str(tables.grouped(h, "job", {"wage": ["mean", "std"]}, epsilon=0.5)),
    "histogram": lambda h: str(tables.histogram(h, "age", by="sex", epsilon=0.5)),
    "quantiles": lambda h: str(tables.quantiles(h, "age", epsilon=0.5)),
    "std": lambda h: str(tables.std(h, "wage", by="sex", epsilon=0.5)),
    "summary": lambda h: str(tables.summary(h, epsilon=0.5)),
    "top_k": lambda h: str(tables.top_k(h, "job", 2, epsilon=0.5)),
    "variance": lambda h: str(tables.variance(h, "wage", epsilon=0.5)),
    "compare": lambda h: str(statistics.compare(h, "age", "sex", epsilon=0.5)),
    "kmeans": lambda h: str(statistics.kmeans(h, ["age", "wage"], 3, epsilon=0.5)),
    "logistic": lambda h: str(statistics.logistic(h, "income", ["sex", "job"], observed=">50K", epsilon=0.5)),
    "poisson": lambda h: str(statistics.poisson(h, "age", "sex", epsilon=0.5)),
    "hazard_ratio": lambda h: str(statistics.hazard_ratio(h, "age", "income", "sex", observed=">50K", epsilon=0.5)),
    "standardised": lambda h: str(statistics.standardised(h, "income", "sex", "job", observed=">50K", epsilon=0.5)),
    "independence": lambda h: str(statistics.independence(h, "job", "income", epsilon=0.5)),
    "odds_ratio": lambda h: str(statistics.odds_ratio(h, "income", "sex", observed=">50K", exposed="M", epsilon=0.5)),
    "rate_ratio": lambda h: str(
        statistics.rate_ratio(h, "income", "sex", time="age", observed=">50K", exposed="M", epsilon=0.5)
    ),
    "risk_difference": lambda h: str(
        statistics.risk_difference(h, "income", "sex", "job", observed=">50K", exposed="M", epsilon=0.5)
    ),
    "survival": lambda h: str(statistics.survival(h, "age", "income", "sex", observed=">50K", epsilon=0.5)),
    "where": lambda h: float(tables.where(h, job="state").noisy_count(epsilon=0.5)),
    "sql": lambda h: str(
        sql(h, "SELECT job, AVG(wage) FROM t WHERE age < 40 GROUP BY job HAVING COUNT(*) > 9", epsilon=0.5)
    ),
    "agent": lambda h: _agent(h),
}


def _agent(h: Any) -> list[str]:
    agent = Agent(h, per_call=1, per_session=1)
    asked = {"kind": "summary", "columns": ["age"], "epsilon": 0.5}
    calls = [
        ("columns", {}),
        ("price_table", asked),
        ("ask_table", asked),
        ("ask_table", asked),
        ("history", {}),
        ("budget", {}),
    ]
    return [agent.call(name, arguments).text for name, arguments in calls]


def handles(epsilon: Any = 1) -> tuple[Any, Any]:
    """Two tables with other rows, other numbers of rows, and nothing in common but the schema."""
    return simulated(SCHEMA, rows=400, epsilon=epsilon), simulated(SCHEMA, rows=37, epsilon=epsilon, seed=9)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_miner_asks_the_same_until_answers_differ(form: Form) -> None:
    """Whatever decided a question or the model was an answer, the schema or a parameter."""
    seeded = {"random_state": 3} if "random_state" in form.built().get_params() else {}

    def learn(h: Any) -> Any:
        return json.loads(form.built(epsilon=Fraction(1, 2), **seeded).fit(h, TARGETS[form.learns]).to_json())

    here, there = handles()
    with here, there:
        assert not first_difference(learn, here, there)
        assert there.budget.spent == 0


@pytest.mark.parametrize("front", [*FRONTS])
def test_a_front_asks_the_same_until_answers_differ(front: str) -> None:
    """Tables, SELECT and an agent's tools ask what the schema and earlier answers say."""
    here, there = handles()
    with here, there:
        assert not first_difference(FRONTS[front], here, there)
        assert there.budget.spent == 0


def test_every_kind_of_table_is_here() -> None:
    """One that is new needs a line above."""
    assert {*tables.__all__, *statistics.__all__} - {"Table", "Result"} <= {*FRONTS}


@pytest.mark.parametrize(
    ("peek", "told"),
    [
        (
            lambda h, rows: float(h.noisy_count(epsilon=rows / 1000)),
            "It asks ('ask', .*epsilon='0.037'.*, where it asked",
        ),
        (lambda h, rows: rows > 100 and float(h.noisy_count(epsilon=0.1)), "It never made the call ('ask'"),
        (lambda h, rows: rows < 100 and float(h.noisy_count(epsilon=0.1)), "It asks .*, where it asked nothing more"),
        (
            lambda h, rows: float(h.noisy_count(epsilon=0.1)) > rows + 50,
            "It asked the same, but what it learned differs",
        ),
        (lambda h, rows: h.preview("noisy_count", epsilon=rows / 1000).cost, "It asks ('preview'"),
    ],
    ids=["epsilon", "fewer", "more", "result", "preview"],
)
def test_who_looks_at_rows_is_found(peek: Callable[[Any, int], Any], told: str) -> None:
    """A miner that has the rows by another way asks otherwise, or learns otherwise."""
    here, there = handles()
    with here, there:
        found = first_difference(lambda h: peek(h, len(encoded_rows(engine_of(h)))), here, there)
    assert re.search(told.replace("(", r"\("), found)
