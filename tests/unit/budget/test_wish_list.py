# SPDX-License-Identifier: Apache-2.0
"""Several tables and models in one list: the costs are those of their plans, and nothing is spent."""

from __future__ import annotations

from fractions import Fraction

import pandas as pd
import pytest

import miners
import pinq
from miners import WishList
from miners.tables import crosstab, histogram
from pinq import Categorical, Numeric, Schema
from pinq.errors import QueryError

SCHEMA = Schema(columns={"sex": Categorical(values=("f", "m")), "age": Numeric(lower=0, upper=99)}, max_rows=5000)


@pytest.fixture
def handle() -> pinq.PrivateQueryable:
    """A budget of 1."""
    return pinq.simulate(SCHEMA, data=pd.DataFrame({"sex": ["f", "m"] * 500, "age": [1, 40] * 500}), epsilon=1)


def test_a_list_costs_what_its_parts_cost(handle: pinq.PrivateQueryable) -> None:
    """Asked afterwards, exactly that is spent."""
    wishes = WishList.of(
        handle,
        crosstab.plan(handle, "sex", epsilon="0.1"),
        histogram.plan(handle, "age", epsilon="0.2"),
        miners.DiffPC45(epsilon="0.5").plan(handle.schema, "sex"),
    )
    assert handle.budget.spent == 0
    assert (wishes.total, wishes.remainder) == (Fraction(8, 10), Fraction(2, 10))
    crosstab(handle, "sex", epsilon="0.1")
    histogram(handle, "age", epsilon="0.2")
    miners.DiffPC45(epsilon="0.5").fit(handle, "sex")
    assert handle.budget.spent == wishes.total


def test_widths_stand_beside_epsilon(handle: pinq.PrivateQueryable) -> None:
    """The ± of the plan itself, about twice of it at half the epsilon, and about half of it at twice."""
    plan = crosstab.plan(handle, "sex", epsilon="0.1")
    wishes = WishList.of(handle, plan)
    row = wishes.to_frame().iloc[0]
    assert [row["widest ±"], row["at half of it"], row["at twice"]] == ["±30 rows", "±60 rows", "±15 rows"]
    assert "0.9 would be left" in repr(wishes)
    assert "0.9 would be left" in wishes._repr_html_()


def test_a_list_says_when_the_budget_does_not_suffice(handle: pinq.PrivateQueryable) -> None:
    """By how much; and what is no plan is refused."""
    plan = crosstab.plan(handle, "sex", epsilon="0.7")
    assert "In all epsilon 1.4 of 1 that remain; 0.4 more than that." in repr(WishList.of(handle, plan, plan))
    assert WishList.of(handle).total == 0
    with pytest.raises(QueryError, match="must be plans"):
        WishList.of(handle, "crosstab")  # type: ignore[arg-type]
