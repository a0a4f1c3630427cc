# SPDX-License-Identifier: Apache-2.0
"""Missing values in SQL and prediction, and what clients of agents send."""

from __future__ import annotations

import warnings

import pandas as pd
import pytest

import pinq
from miners import UndeclaredValueWarning
from miners.fitted.route import encode_rows
from miners.fronts.agents import Agent
from pinq.errors import QueryError
from pinq.public.schema import Schema

SCHEMA = Schema(
    columns={
        "age": {"type": "numeric", "lower": 0, "upper": 9, "integer": True, "nullable": True},
        "sex": {"type": "categorical", "values": ["F", "M"]},
    },
    max_rows=100,
)
ROWS = pd.DataFrame({"age": [1, 2, 5, None], "sex": ["F", "M", "F", "M"]})


def handle() -> pinq.PrivateQueryable:
    return pinq.simulate(SCHEMA, data=ROWS, epsilon=10_000)


def test_else_takes_missing_numbers_unless_a_case_does() -> None:
    """ELSE has the missing ones, as in SQL, and a case of their own takes them."""
    case = "SELECT CASE WHEN age < 3 THEN 'a' {}ELSE 'b' END g, COUNT(*) FROM simulated GROUP BY g"
    answer = pinq.sql(handle(), case.format(""), epsilon=1000).frame
    assert dict(zip(answer["g"], answer["value"].round(), strict=True)) == {"a": 2, "b": 2}
    answer = pinq.sql(handle(), case.format("WHEN age IS NULL THEN 'unknown' "), epsilon=1000).frame
    assert dict(zip(answer["g"], answer["value"].round(), strict=True)) == {"a": 2, "b": 1, "unknown": 1}


def test_null_in_a_list_holds_for_no_value() -> None:
    listed = "SELECT COUNT(*) FROM simulated WHERE age {}IN (1, 2, NULL)"
    assert round(pinq.sql(handle(), listed.format(""), epsilon=1000).frame["value"][0]) == 2
    with pytest.raises(QueryError, match="holds for no declared value"):
        pinq.sql(handle(), listed.format("NOT "), epsilon=1000)


def test_a_text_in_double_quotes_is_told_to_be_in_single_ones() -> None:
    with pytest.raises(QueryError, match="write a text as 'F', in single quotes"):
        pinq.sql(handle(), 'SELECT COUNT(*) FROM simulated WHERE sex = "F"', epsilon=1)


def test_a_missing_category_at_prediction_is_told() -> None:
    with pytest.warns(UndeclaredValueWarning, match="1 of 2 rows have no `sex`, of which no value may be missing"):
        encode_rows(SCHEMA, ["sex"], pd.DataFrame({"sex": ["F", None]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encode_rows(SCHEMA, ["age"], pd.DataFrame({"age": [1, None]}))


@pytest.mark.parametrize("sent", ['["sex"]', ["sex"]])
def test_lists_as_text_and_null_are_read(sent: object) -> None:
    agent = Agent(handle(), per_call=100, per_session=1000)
    asked = {"kind": "crosstab", "columns": sent, "by": None, "epsilon": 50}
    assert not agent.call("ask_table", asked).is_error
    assert agent.call("ask_table", asked | {"columns": '["sex"'}).is_error
