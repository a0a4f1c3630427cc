# SPDX-License-Identifier: Apache-2.0
"""Where a numeric target lies, found from noisy histograms."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pinq
from benchmarks.papers.diprime.baselines import DPExtraTreesRegressor
from miners import DiPriMeForestRegressor, DiPriMeTreeRegressor
from miners.budget.plan import FitWarning
from miners.fitted.tree import Forest, Tree
from miners.growth.target_range import TargetRange
from pinq.language.specs import bind
from pinq.public.epsilon import Epsilon
from tests.support.requests.handles import simulated


def schema_of(upper: int, step: int | None = 1, rows: int = 5000) -> pinq.Schema:
    columns = {"z": pinq.Numeric(lower=-5, upper=5), "y": pinq.Numeric(lower=0, upper=upper, step=step)}
    return pinq.Schema(columns=columns, max_rows=rows)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """5,000 rows of a target of 40 that deviates by 9."""
    random = np.random.default_rng(4)
    z = random.normal(0, 1, 5000)
    return pd.DataFrame({"z": z, "y": 40 + 8 * z + random.normal(0, 4, 5000)})


def counted(where: TargetRange, values: Any, noise: float, seed: int) -> np.ndarray:
    """The histogram that is asked for, with noise."""
    codes = where.column.encode(pd.Series(values))
    bins = bind(where.parts, where.schema).axes[0].parts_of(codes)
    counts = np.bincount(bins, minlength=len(where.edges) - 1)
    return np.asarray(counts + np.random.default_rng(seed).laplace(0, noise, len(counts)))


@pytest.mark.parametrize("upper", [100, 10_000, 1_000_000])
@pytest.mark.parametrize(("noise", "left_out"), [(5.0, 0.02), (50.0, 0.07)])
def test_two_looks_find_nearly_all_rows_and_little_else(
    upper: int, noise: float, left_out: float, frame: pd.DataFrame
) -> None:
    """Ranges found in 20 draws of noise leave few rows out, and none is far too wide."""
    lost, widths = [], []
    for seed in range(20):
        where = TargetRange(schema_of(upper), "y")
        for look in range(2):
            where = where.nearer(counted(where, frame["y"], noise, 2 * seed + look), noise)
        assert where.ends is not None
        low, high = map(float, where.ends)
        lost.append(np.mean((frame["y"] < low - 1) | (frame["y"] > high + 1)))
        widths.append(high - low)
    assert np.mean(lost) < left_out
    assert max(widths) < 200


def test_a_plain_bin_with_few_of_all_rows_has_more_beside_it() -> None:
    """Where noise lets one of several bins of rows stand out, the range reaches as far as the others must."""
    where = TargetRange(schema_of(99), "y")
    counts = np.zeros(len(where.edges) - 1)
    middle = len(counts) // 2
    counts[middle - 3 : middle + 4] = [300, 350, 400, 600, 400, 350, 300]
    found = where.nearer(counts, 55).within
    assert found is not None
    assert found[0] <= where.edges[middle - 2]
    assert found[1] >= where.edges[middle + 3]


def test_noise_alone_tells_no_range() -> None:
    """Without rows, or with a single cell, the declared bounds stay."""
    for seed in range(50):
        where = TargetRange(schema_of(10_000), "y")
        assert where.nearer(counted(where, [], 50, seed), 50) is where
    assert TargetRange(schema_of(1), "y", (0, 1)).ends is None
    assert TargetRange(schema_of(9), "y", (8, 9)).ends == (7.5, 8.5)


@pytest.mark.parametrize(
    ("kind", "squared"),
    [
        *((kind, squared) for kind in (DiPriMeTreeRegressor, DiPriMeForestRegressor) for squared in (False, True)),
        (DPExtraTreesRegressor, False),
    ],
)
def test_wide_bounds_cost_trees_little(kind: Any, squared: bool, frame: pd.DataFrame) -> None:
    """With bounds of 100,000 they explain as much as with 100; what they pay is what they planned; stored ones are the same."""
    scores = []
    for upper in (100, 100_000):
        miner = kind(epsilon=2, random_state=3, **({"criterion": "squared_error"} if squared else {}))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            miner.fit(simulated(schema_of(upper), data=frame, epsilon=2), "y")
        plan = miner.plan(schema_of(upper), "y")
        assert miner.cost_ == plan.total == Epsilon.of(2).exact
        assert [line.query for line in plan.lines][:2] == ["rows by `y`", "rows by `y`, in finer cells"]
        scores.append(miner.score(frame))
    assert min(scores) > (0.3 if kind is DPExtraTreesRegressor else 0.6)
    model = miner._model
    again = type(model).from_json(model.to_json())
    assert again == model
    assert (again.predict(frame) == model.predict(frame)).all()
    tree = again.trees[0] if isinstance(again, Forest) else again
    low, high = tree.values.min(), tree.values.max()
    assert tree.within is not None
    assert 0 < high - low < 500
    assert f"({float(tree.within[0]):.10g} to" in repr(tree)
    assert Tree(tree.schema, "y", tree.nodes) != tree
    with pytest.raises(pinq.QueryError, match="no range"):
        Tree(tree.schema, "y", tree.nodes, within=(5, 10**9))


def test_a_range_that_trees_do_not_find_is_told(frame: pd.DataFrame) -> None:
    """By a warning; a table too small for any range is asked nothing, and published trees ask nothing either."""
    with pytest.warns(FitWarning, match="too small to find where `y` lies"):
        DiPriMeTreeRegressor(epsilon=0.3).fit(simulated(schema_of(1000), data=frame.head(300), epsilon=1), "y")
    with pytest.warns(FitWarning, match="read in grid cells of 24"):
        DiPriMeTreeRegressor(epsilon=2).fit(simulated(schema_of(10**5, None), data=frame, epsilon=2), "y")
    for miner, rows in ((DiPriMeTreeRegressor(epsilon=0.1), 300), (DiPriMeTreeRegressor(variant="paper"), 5000)):
        assert {line.verb for line in miner.plan(schema_of(100, rows=rows), "y").lines} <= {"noisy_avg", "exp_mech"}


def test_a_range_is_widened_evenly_within_the_bounds() -> None:
    """To so many cells, if it has fewer; what one side has no room for, the other gets."""
    schema = pinq.Schema(columns={"y": pinq.Numeric(lower=0, upper=1000, integer=True)}, max_rows=100)
    where = TargetRange(schema, "y", (400, 500))
    assert where.widened(50).within == (400, 500)
    assert where.widened(300.9).within == (300, 600)
    assert replace(where, within=(10, 110)).widened(300).within == (0, 300)
    assert replace(where, within=(950, 1001)).widened(151).within == (850, 1001)
    assert where.widened(1e9).within == (0, 1001)
    assert TargetRange(schema, "y").widened(10).within is None
