# SPDX-License-Identifier: Apache-2.0
"""Intervals of quantiles, spreads and means hold what they say, on piles and on coarse grids."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pinq
from miners.tables import grouped, quantiles, std, summary, where
from miners.tables.quantile_search import CountedCuts, finer_points, ladder, located
from miners.tables.statistics import spread_bounds, widening_edges
from pinq.errors import QueryError

SURE = 1000


def seeded() -> np.random.Generator:
    return np.random.default_rng(3)


def shapes() -> dict[str, np.ndarray]:
    random = seeded()
    return {
        "normal": random.normal(500, 60, 4000),
        "skewed": random.exponential(300, 4000),
        "two": np.where(random.random(4000) < 0.5, 3, 400) + random.random(4000) * 90,
    }


SHAPES = shapes()


def opened(values: Any, **column: Any) -> Any:
    frame = pd.DataFrame({"x": values})
    schema = pinq.Schema(columns={"x": pinq.Numeric(**column)}, max_rows=len(frame))
    return pinq.simulate(schema, data=frame, epsilon=10 * SURE)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_level_of_a_quantile_means_that_level(shape: str) -> None:
    """Of seeded draws about a half at .5 and nearly all at .95, wherever the points are."""
    cells, draws, random = 16_000, 120, np.random.default_rng(5)
    rows, share = np.clip(16 * SHAPES[shape], 0, cells - 1).astype(int), Fraction(1, 4)
    exact = int(np.quantile(rows, 0.25, method="inverted_cdf"))
    held, ordered = np.zeros((draws, 2)), np.sort(rows)

    def counted(points: np.ndarray, scale: float) -> CountedCuts:
        bins = np.bincount(points.searchsorted(rows, side="right"), minlength=len(points) + 1)
        return CountedCuts(points, bins + np.rint(random.laplace(0, scale, len(bins))), scale, cells)

    for draw in range(draws):
        cut = ordered[[1000 + round(random.laplace(0, 4))]]  # a choice is some rows off
        first = counted(ladder(cut, cells), 10.0)
        both = first, counted(finer_points(first, cut, (share,)), 7.0)
        ends = [located(int(cut[0]), both, share, level)[1:] for level in (0.5, 0.95)]
        held[draw] = [low <= exact <= high for low, high in ends]
    half, nearly_all = held.mean(axis=0)
    assert 0.45 <= half <= 0.75
    assert nearly_all >= 0.91  # .95 less two standard deviations of so many draws


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_a_spread_allows_for_rows_anywhere_in_their_bins(level: float) -> None:
    """Two piles that may be at any cell of their bins, beside seeded noise."""
    random, edges = np.random.default_rng(9), widening_edges(20, 512, 50_000)
    for low, high in [(3, 400), (3, 470), (17, 511), (0, 511), (20, 21)]:
        exact, counts = (high - low) ** 2 / 4, np.zeros(len(edges) - 1)
        np.add.at(counts, edges.searchsorted([low, high], side="right") - 1, 20_000)
        noisy = counts + random.laplace(0, 3, (40, len(counts)))
        ends = [spread_bounds(row, edges[:-1], edges[1:] - 1, 3.0, level) for row in noisy]
        assert np.mean([least <= exact <= most for least, most in ends]) >= level - 0.05


def test_a_pile_at_a_bound_is_in_the_interval_of_its_spread() -> None:
    """A count of 0 to 511 with two rows of five on 511."""
    random = seeded()
    rows = np.where(random.random(5000) < 0.4, 511, random.integers(0, 20, 5000))
    (row,) = std(opened(rows, lower=0, upper=511, integer=True), "x", epsilon=2).to_frame().to_dict("records")
    assert row["low"] <= rows.std() <= row["high"]
    assert row["high"] - row["low"] < 0.2 * rows.std()


def test_a_coarse_grid_is_named_and_half_a_cell_is_added() -> None:
    """Numbers up to 3,000 on a range of 10^9, whose cells are 244,141 wide."""
    rows = np.abs(seeded().normal(0, 1000, 2000))
    handle = opened(rows, lower=0, upper=1e9)
    table = quantiles(handle, "x", [0.25, 0.5], epsilon=SURE)
    exact = np.quantile(rows, [0.25, 0.5], method="inverted_cdf")
    assert ((table.frame.low <= exact) & (exact <= table.frame.high)).all()
    assert table.notes == ("values of `x` are read in grid cells of 244141; intervals allow for half a cell",)
    both = grouped(handle, None, {"x": ["mean", "std", "sum"]}, epsilon=SURE)
    (mean, spread), notes = both.frame[:2][["low", "high"]].to_numpy(), both.notes
    assert mean[0] <= rows.mean() <= mean[1]
    assert spread[0] <= rows.std() <= spread[1]
    assert any("the interval of a sum holds the sum of the cells' middles" in note for note in notes)
    assert not quantiles(opened([1, 2, 3], lower=0, upper=9, integer=True), "x", epsilon=SURE).notes


def test_an_interval_that_says_nothing_is_told() -> None:
    """Where it is all of the declared range: of noise of thousands of rows around thirty, some quantile's nearly always is."""
    handle = opened(np.arange(30), lower=0, upper=10**6, integer=True)
    notes = [note for _ in range(3) for note in summary(handle, "x", epsilon="0.001").notes]
    vague = [note for note in notes if note.endswith("as wide as the declared range allows")]
    assert any(" %" in note for note in vague)
    assert any("too small for std" in note for note in vague)


def test_a_condition_whose_ends_are_the_wrong_way_round_is_told() -> None:
    """In its own words, not in those of cuts."""
    with pytest.raises(QueryError, match=r"is \(45, 30\); no value is at least 45 and below 30"):
        where(opened([1, 2], lower=0, upper=100, integer=True), x=(45, 30))


def test_each_count_of_a_summary_has_the_level_that_was_asked() -> None:
    """Of all rows, of each value and of missing ones: an interval is wider the surer it is to be."""
    frame = pd.DataFrame({"y": ["a", "b"] * 200})
    schema = pinq.Schema(columns={"y": pinq.Categorical(values=("a", "b"), nullable=True)}, max_rows=1000)
    handle = pinq.simulate(schema, data=frame, epsilon=SURE)
    tables = [summary(handle, epsilon=1, level=level).frame for level in (0.5, 0.95, 0.999)]
    assert tables[0].statistic.tolist() == ["count", "count", "count", "missing"]
    some, more, most = ((table.high - table.low).to_numpy() for table in tables)
    assert (3 * some < more).all()
    assert (2 * more < most).all()
