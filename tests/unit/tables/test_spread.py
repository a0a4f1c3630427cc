# SPDX-License-Identifier: Apache-2.0
"""Bins that widen from a median give variances, and noise where no rows are gives none."""

from __future__ import annotations

import numpy as np
import pytest

from miners.tables.statistics import moments_of_bins, most_edges, spread_of, widening_edges, without_empty_ends


@pytest.mark.parametrize("cells", [41, 101, 4096])
def test_bins_widen_from_the_middle_to_both_ends(cells: int) -> None:
    """They cover the grid, the narrowest at the median, and are no more than the plan says."""
    for middle in (1, cells // 3, cells - 1):
        edges = widening_edges(middle, cells, 3000)
        widths = np.diff(edges)
        assert (edges[0], edges[-1]) == (0, cells)
        assert middle in edges
        assert len(widths) <= most_edges(cells, 3000)
        above = widths[edges[:-1] >= middle]
        assert above[0] == 1
        assert (np.diff(above[:-1]) >= -1).all()
    assert len(widening_edges(20, cells, 10**6)) > len(widening_edges(20, cells, 3000))


def test_noise_beyond_the_last_rows_counts_for_nothing() -> None:
    """What is within 3.5 deviations of none from an end is taken for none, and what is beyond is kept."""
    assert without_empty_ends(np.array([9, -8, 400, 7, 300, 20, -5]), 10).tolist() == [0, 0, 401, 7, 315, 0, 0]
    assert without_empty_ends(np.array([5, -5, 3]), 10).tolist() == [0, 0, 0]
    assert without_empty_ends(np.array([400, -40, 45]), 10).tolist() == [405, 0, 0]
    assert without_empty_ends(np.array([400, 0, 55]), 10).tolist() == [400, 0, 55]


def test_rows_of_a_wide_bin_lean_towards_denser_neighbours() -> None:
    """An exponential law in bins that widen has its variance within 1 %; middles alone are off by 2 %."""
    edges = widening_edges(69, 1000, 2000)
    law = np.exp(-np.arange(1000) / 100)
    counts = np.add.reduceat(law, edges[:-1]) * 1e5
    exact = np.average((np.arange(1000) - np.average(np.arange(1000), weights=law)) ** 2, weights=law)
    middles, within = moments_of_bins(edges, counts, whole=True)
    assert spread_of(counts, middles, within) == pytest.approx(exact, rel=0.01)
    assert spread_of(counts, (edges[:-1] + edges[1:] - 1) / 2, within) > 1.02 * exact
