# SPDX-License-Identifier: Apache-2.0
"""Tails of laws agree with scipy."""

from __future__ import annotations

import pytest
from scipy import stats

from miners.statistics.laws import chi2_tail, normal_quantile, normal_tail


@pytest.mark.parametrize("df", [1, 2, 3, 8, 35])
@pytest.mark.parametrize("x", [0.0, 1e-4, 0.7, 5.0, 40.0, 900.0])
def test_chi_square(x: float, df: int) -> None:
    assert chi2_tail(x, df) == pytest.approx(stats.chi2.sf(x, df), rel=1e-10)


def test_normal() -> None:
    assert normal_tail(2.5) == pytest.approx(stats.norm.sf(2.5), rel=1e-12)
    assert normal_quantile(0.95) == pytest.approx(stats.norm.ppf(0.975), rel=1e-9)
