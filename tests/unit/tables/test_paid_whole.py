# SPDX-License-Identifier: Apache-2.0
"""A table that cannot be finished is refused before any of it is paid for."""

from __future__ import annotations

import pandas as pd
import pytest

import miners.tables.columns
import miners.tables.statistics
from miners.tables import grouped, quantiles, summary, top_k, where
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.requests.handles import simulated

SCHEMA = Schema(
    columns={
        "age": Numeric(lower=0, upper=100, integer=True, nullable=True),
        "once": Numeric(lower=7, upper=7, integer=True, nullable=True),
        "job": Categorical(values=("clerk", "nurse", "smith")),
    },
    max_rows=60,
)
ROWS = pd.DataFrame(
    {"age": [*range(20, 76), None, None, None, None], "once": [7.0] * 50 + [None] * 10, "job": ["clerk", "nurse"] * 30}
)


@pytest.fixture
def handle() -> PrivateQueryable:
    return simulated(SCHEMA, data=ROWS, epsilon=10_000)


def test_missing_values_of_a_column_of_one_value_are_counted(handle: PrivateQueryable) -> None:
    frame = grouped(handle, None, {"once": ["count", "missing"]}, epsilon=1000).frame
    assert frame["value"].tolist() == [60, 10]
    assert where(handle, once=None).noisy_count(epsilon=1000) == 10


def test_many_groups_are_counted_in_several_questions_at_the_price_of_one(
    handle: PrivateQueryable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(miners.tables.statistics, "MAX_PARTS", 40)
    frame = quantiles(handle, "age", 0.5, by="job", epsilon=300).frame
    assert handle.budget.spent == 300
    # Clerks have the ages 20, 22, ..., 74, nurses each one year more.
    assert frame["job"].tolist() == ["clerk", "nurse", "smith"]
    assert 46 <= frame["value"][0] <= 48
    assert 47 <= frame["value"][1] <= 49


def test_what_would_make_too_many_parts_is_refused_free(
    handle: PrivateQueryable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(miners.tables.columns, "MAX_PARTS", 2)
    for ask in (quantiles.plan, quantiles):
        with pytest.raises(QueryError, match="9 parts"):
            ask(handle, "age", by="job", epsilon=1)
    with pytest.raises(QueryError, match="3 parts"):
        summary(handle, "job", epsilon=1)
    assert not handle.budget.spent


@pytest.mark.parametrize("level", [0, 1, 1 - 1e-15])
def test_a_level_that_cannot_be_told_from_1_is_refused_free(handle: PrivateQueryable, level: float) -> None:
    with pytest.raises(QueryError, match="level"):
        quantiles(handle, "age", epsilon=1, level=level)
    with pytest.raises(QueryError, match="level"):
        top_k(handle, "job", 1, epsilon=1, level=level)
    assert not handle.budget.spent


def test_the_surest_level_has_bounds(handle: PrivateQueryable) -> None:
    frame = quantiles(handle, "age", epsilon=1, level=1 - 1e-9).frame
    assert ((frame["low"] <= frame["value"]) & (frame["value"] <= frame["high"])).all()
