# SPDX-License-Identifier: Apache-2.0
"""Counts between points of a grid say in which cell a quantile lies."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from miners.tables.quantile_search import CountedCuts, finer_points, ladder, located, most_finer, most_rungs


def test_a_count_between_points_says_where_its_surplus_passes_nothing() -> None:
    """Evenly between two points; the nearest increasing surplus decides where noise goes up and down."""
    counted = CountedCuts(np.array([40, 48]), np.array([30.0, 40.0, 10.0]), 1.0, 60)
    assert counted.surplus(0.5).tolist() == [-10, 30]
    assert counted.crossing(0.5) == 42
    rough = CountedCuts(np.array([10, 20, 30, 31]), np.array([40.0, 12.0, -20.0, 80.0, 5.0]), 1.0, 60)
    assert (rough.surplus(0.5) > 0).tolist() == [False, False, False, True]
    assert rough.crossing(0.5) == 30
    assert ladder(np.array([37]), 101).tolist() == [1, 21, 33, 36, 37, 38, 41, 53, 100]
    assert len(ladder(np.array([37, 900, 3000]), 4096)) < most_rungs(4096, 3)


def test_the_second_counts_are_of_what_the_first_leave() -> None:
    """In twenty-four pieces at most, the chosen cut among their ends."""
    cut = np.array([37])
    points = ladder(cut, 4096)
    first = CountedCuts(points, np.where(points.searchsorted(293) == np.arange(len(points) + 1), 900.0, 1.0), 1.0, 4096)
    finer = finer_points(first, cut, (Fraction(1, 2),))
    assert first.around(0.5) == (101, 293)
    assert set(finer.tolist()) == {37, *range(101, 294, 8)}
    assert len(finer) < most_finer(4096, 1)


def test_a_cut_stands_unless_the_counts_contradict_it() -> None:
    """Beside a value of many rows they do, and say which cell it is; else the cut is finer than they are."""
    points = np.array([44, 49, 50, 51, 60])
    shared = CountedCuts(points, np.array([100.0, 5.0, 0.0, 500.0, 3.0, 392.0]), 4.0, 101)
    assert located(44, (shared, shared), Fraction(1, 2), 0.95) == (50, 50, 50)
    spread = CountedCuts(points, np.array([490.0, 8.0, 1.0, 1.0, 10.0, 490.0]), 40.0, 101)
    assert located(49, (spread, spread), Fraction(1, 2), 0.95) == (49, 0, 100)
