# SPDX-License-Identifier: Apache-2.0
"""What docs/tables.md promises of tables on Adult."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

import pinq
from miners.tables import quantiles, summary
from pinq.analyst.queryable import PrivateQueryable
from pinq.public.schema import Numeric
from tests.support.house.checkout import ROOT

DATA = pd.read_parquet(ROOT / "data" / "adult.parquet")


@pytest.fixture(scope="module")
def adult() -> Iterator[PrivateQueryable]:
    policy = pinq.load_policy(ROOT / "policies" / "adult.yaml")
    with pinq.simulate(policy, rows=len(DATA), epsilon=1000, data=DATA) as handle:
        yield handle


def test_quartiles_of_ages_are_within_a_year(adult: PrivateQueryable) -> None:
    """At epsilon 0.1, in at least 19 of 20 runs; measured, in all of 100."""
    truth = np.quantile(DATA["age"], [0.25, 0.5, 0.75], method="inverted_cdf")
    runs = [quantiles(adult, "age", epsilon="0.1").frame for _ in range(20)]
    close = [np.abs(run["value"] - truth).max() <= 1 for run in runs]
    held = [((run["low"] <= truth) & (truth <= run["high"])).all() for run in runs]
    assert sum(close) >= 19
    assert sum(held) >= 19


def test_means_of_a_summary_are_within_a_hundredth_of_the_range(adult: PrivateQueryable) -> None:
    """Of all columns at epsilon 1, which is what it costs at most."""
    spent = adult.budget.spent
    frame = summary(adult, epsilon=1).frame
    assert 0.9999 < adult.budget.spent - spent <= 1
    assert set(frame["column"].dropna()) == set(adult.schema.columns)
    means = frame[frame["statistic"] == "mean"].set_index("column")["value"]
    for name, column in adult.schema.columns.items():
        if isinstance(column, Numeric):
            assert abs(means[name] - DATA[name].mean()) < 0.01 * float(column.upper - column.lower), name
