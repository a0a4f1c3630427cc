# SPDX-License-Identifier: Apache-2.0
"""Criteria of noisy tables by hand, and that they order splits as the layer's scores do."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from miners.growth.candidates import CRITERIA, gain, impurity_reduction, printed_gain, require_criterion, score_of
from pinq.errors import QueryError
from pinq.public.schema import Categorical, Schema

SCHEMA = Schema(columns={"y": Categorical(values=("a", "b", "c"))}, max_rows=1000)
ROOT = Path(__file__).parents[3]
TABLE = np.array([[8.0, 0.0], [2.0, 6.0]])


def test_by_hand() -> None:
    assert gain("max", TABLE) == 14 / 16
    assert gain("gini", TABLE) == pytest.approx((8 + 40 / 8) / 16)
    before = -(10 / 16) * np.log2(10 / 16) - (6 / 16) * np.log2(6 / 16)
    after = 0.5 * (-0.25 * np.log2(0.25) - 0.75 * np.log2(0.75))
    assert gain("info_gain", TABLE) == pytest.approx(before - after)
    assert gain("gain_ratio", TABLE) == pytest.approx((before - after) / 1)


@pytest.mark.parametrize("criterion", [*CRITERIA, "gain_ratio"])
def test_noise_below_zero_is_no_trouble(criterion: Any) -> None:
    assert gain(criterion, -TABLE) == 0
    assert np.isfinite(gain(criterion, np.array([[5.0, -3.0], [-1.0, -2.0]])))
    assert np.isfinite(printed_gain(criterion, TABLE, np.array([-4.0, 1.0])))


def test_algorithm_1_ranks_by_the_printed_value() -> None:
    """V_A by a loop over the terms as printed, on noisy tables of every kind: counts below 0, and above the rows of their part."""
    random = np.random.default_rng(1)
    for _ in range(200):
        table, parts = random.integers(-4, 30, (3, 2)).astype(float), random.integers(-2, 40, 3).astype(float)
        printed = sum(
            n * math.log2(n / rows) for row, rows in zip(table, parts, strict=True) for n in row if n > 0 and rows > 0
        )
        assert printed_gain("info_gain", table, parts) == pytest.approx(printed)
    # Exact counts of the same rows and classes: the same order as information gain.
    same = [np.array(table) for table in ([[20.0, 0], [10, 30]], [[15.0, 15], [15, 15]], [[30.0, 5], [0, 25]])]
    by_gain = np.argsort([gain("info_gain", table) for table in same])
    assert list(np.argsort([printed_gain("info_gain", table, table.sum(axis=1)) for table in same])) == list(by_gain)


@given(
    st.lists(st.lists(st.integers(0, 60), min_size=3, max_size=3), min_size=4, max_size=4),
    st.sampled_from(list(CRITERIA)),
)
def test_they_order_splits_as_the_scores_of_the_layer_do(cells: Any, criterion: Any) -> None:
    """Two splits of the same rows: the first two lines against the last two make one, the odd against the even the other."""
    table = np.array(cells)
    if not table.sum():
        return
    halves = np.stack([table[:2].sum(axis=0), table[2:].sum(axis=0)])
    other = np.stack([table[::2].sum(axis=0), table[1::2].sum(axis=0)])
    exact = (
        np.array(score_of(criterion, "y").of(np.stack([halves, other]), SCHEMA))
        / CRITERIA[criterion].unit
        / table.sum()
    )
    noisy = gain(criterion, halves) - gain(criterion, other)
    assert noisy == pytest.approx(float(exact[0] - exact[1]), abs=0.005)


def test_what_is_no_criterion_is_refused() -> None:
    assert require_criterion("max") == "max"
    with pytest.raises(QueryError, match=f"must be one of {', '.join(map(repr, CRITERIA))}"):
        require_criterion("entropy")


def test_the_page_of_trees_lists_every_criterion() -> None:
    page = (ROOT / "docs" / "trees.md").read_text(encoding="utf-8")
    assert {*re.findall(r'^- `"(\w+)"`: ', page, flags=re.MULTILINE)} == set(CRITERIA)


def test_an_unknown_name_stands_for_no_other_criterion() -> None:
    """It is refused before a fit; where it is passed all the same it fails, and is not information gain."""
    for judge in (
        lambda: gain("entropy", TABLE),
        lambda: impurity_reduction("gain_ratio", TABLE),
        lambda: score_of("x", "y"),
    ):
        with pytest.raises(KeyError):
            judge()
