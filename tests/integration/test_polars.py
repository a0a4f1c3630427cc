# SPDX-License-Identifier: Apache-2.0
"""Frames of polars go in and tables come out as such, where polars is installed; nothing here needs it otherwise."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
import yaml

import pinq
from miners.tables import crosstab, grouped, quantiles, summary
from pinq.errors import PolicyError
from pinq.policy.policy import Policy

pl = pytest.importorskip("polars")

ROWS = 400


@pytest.fixture(scope="module")
def frame() -> Any:
    """Text, categories, numbers with gaps, truth values and dates, as polars keeps them."""
    numbers = range(ROWS)
    return pl.DataFrame(
        {
            "sex": pl.Series([("F", "M")[number % 2] for number in numbers], dtype=pl.Categorical),
            "job": pl.Series(
                [("clerk", "nurse")[number % 3 > 0] for number in numbers], dtype=pl.Enum(["clerk", "nurse"])
            ),
            "age": [20 + number % 50 for number in numbers],
            "rate": [None if number % 10 == 0 else number / ROWS for number in numbers],
            "member": [number % 4 == 0 for number in numbers],
            "born": [date(1950 + number % 50, 3, 4) for number in numbers],
        }
    )


@pytest.fixture(scope="module")
def policy(frame: Any) -> Policy:
    declared = yaml.safe_load(pinq.propose(frame))
    for column in declared["columns"].values():
        column.pop("unreviewed", None)
    return Policy(**(declared | {"unreviewed": []}))


def test_a_proposal_of_a_polars_frame_is_that_of_its_arrow_table(frame: Any) -> None:
    assert yaml.safe_load(pinq.propose(frame))["columns"] == yaml.safe_load(pinq.propose(frame.to_arrow()))["columns"]


def test_a_lazy_frame_is_refused_and_told_to_be_collected(frame: Any, policy: Policy) -> None:
    with pytest.raises(PolicyError, match=r"polars\.LazyFrame; collect\(\) it first"):
        pinq.simulate(policy, rows=ROWS, data=frame.lazy())


def test_tables_of_a_polars_frame_are_read_by_polars(frame: Any, policy: Policy) -> None:
    """Counts are polars' own, missing keys are null, and numbers stay numbers."""
    with pinq.simulate(policy, rows=ROWS, epsilon=10**6, data=frame) as handle:
        counts = pl.DataFrame(crosstab(handle, "sex", "job", epsilon=1000))
        exact = frame.group_by("sex", "job").len().sort(pl.col("sex", "job").cast(pl.String))
        assert counts.sort("sex", "job")["value"].to_list() == exact["len"].to_list()
        ages = pl.DataFrame(quantiles(handle, "age", 0.5, by="sex", epsilon=1000))
        assert ages["value"].to_list() == [44, 45]
        assert ages.schema["value"] == pl.Float64
        described = pl.DataFrame(summary(handle, ["age", "rate"], epsilon=1000))
        assert described["column"].to_list()[:2] == [None, "age"]
        assert described.filter(pl.col("statistic") == "missing")["value"].to_list() == [ROWS / 10]
        births = pl.DataFrame(grouped(handle, "sex", {"born": "median"}, epsilon=1000))
        assert births["value"].dt.year().to_list() == [1974, 1975]
        answer = handle.partition(pinq.Values("member")).noisy_count(epsilon=1000).to_frame()
        assert pl.DataFrame(answer)["value"].to_list() == [300, 100]
