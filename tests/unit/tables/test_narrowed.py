# SPDX-License-Identifier: Apache-2.0
"""A statistic of rows that a condition narrows stays within what the condition says of its column."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from miners.tables import grouped, quantiles, where
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.language.specs import Cuts
from pinq.public.schema import Date, Numeric, Schema
from tests.support.requests.handles import simulated

SCHEMA = Schema(columns={"x": Numeric(lower=0, upper=1000, integer=True, nullable=True)}, max_rows=500)
ROWS = pd.DataFrame({"x": [*np.arange(250.0, 350).repeat(4), *[np.nan] * 100]})


@pytest.fixture(scope="module")
def handle() -> PrivateQueryable:
    return simulated(SCHEMA, data=ROWS, epsilon=10_000)


@pytest.mark.parametrize(("epsilon", "low", "high"), [(0.1, 300, 301), (100, 300, 301), (0.1, 300, 310), (0.1, 1, 5)])
def test_quantiles_and_variances_lie_in_the_interval(
    handle: PrivateQueryable, epsilon: float, low: int, high: int
) -> None:
    narrow = where(handle, x=(low, high))
    values = quantiles(narrow, "x", epsilon=epsilon).frame[["value", "low", "high"]].to_numpy()
    assert (values >= low).all()
    assert (values < high).all()
    spread = grouped(narrow, None, {"x": "variance"}, epsilon=epsilon).frame
    assert 0 <= spread["value"][0] <= spread["high"][0] <= (high - low - 1) ** 2 / 4


def test_each_group_has_an_interval_of_its_own(handle: PrivateQueryable) -> None:
    frame = quantiles(handle, "x", 0.5, by=Cuts("x", (300,)), epsilon=100).frame
    below, above, _ = frame["value"]
    assert abs(below - 275) < 3
    assert abs(above - 325) < 3
    assert frame["high"][0] < 300 <= frame["low"][1]


def test_who_begins_at_the_lower_bound_means_an_open_end(handle: PrivateQueryable) -> None:
    """In numbers and in dates; missing values are in no interval."""
    assert where(handle, x=(0, 300)).noisy_count(epsilon=1000) == 200
    schema = Schema(columns={"day": Date.model_validate({"lower": "2020-01-01", "upper": "2020-12-31"})}, max_rows=500)
    days = simulated(schema, data=pd.DataFrame({"day": pd.to_datetime(["2020-01-01", "2020-05-01"])}), epsilon=10_000)
    assert where(days, day=("2020-01-01", "2020-02-01")).noisy_count(epsilon=1000) == 1


@pytest.mark.parametrize("values", [[300], [300, 301], [300, 301, 302]])
def test_a_list_of_numbers_is_no_interval(handle: PrivateQueryable, values: list[int]) -> None:
    """A list stands for its values, of a category; a pair is an interval."""
    with pytest.raises(QueryError, match=r"it must be a pair \(low, high\)"):
        where(handle, x=values)
