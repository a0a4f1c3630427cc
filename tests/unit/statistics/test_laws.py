# SPDX-License-Identifier: Apache-2.0
"""Tails of laws agree with scipy."""

from __future__ import annotations

import pytest
from scipy import stats

from miners.statistics.laws import chi2_tail, f_tail, normal_quantile, normal_tail, t_quantile, t_tail


@pytest.mark.parametrize("df", [1, 2, 3, 8, 35])
@pytest.mark.parametrize("x", [0.0, 1e-4, 0.7, 5.0, 40.0, 900.0])
def test_chi_square(x: float, df: int) -> None:
    assert chi2_tail(x, df) == pytest.approx(stats.chi2.sf(x, df), rel=1e-10)


@pytest.mark.parametrize(("df1", "df2"), [(1, 3), (2.0, 10.5), (5, 200), (1, 48_000), (40, 7)])
@pytest.mark.parametrize("x", [0.0, 0.01, 0.9, 1.1, 4.0, 60.0])
def test_f(x: float, df1: float, df2: float) -> None:
    assert f_tail(x, df1, df2) == pytest.approx(stats.f.sf(x, df1, df2), rel=1e-9)


@pytest.mark.parametrize("df", [1.5, 12, 3000])
def test_student(df: float) -> None:
    assert t_tail(-1.3, df) == pytest.approx(stats.t.sf(-1.3, df), rel=1e-10)
    assert t_quantile(0.95, df) == pytest.approx(stats.t.ppf(0.975, df), rel=1e-9)


def test_normal() -> None:
    assert normal_tail(2.5) == pytest.approx(stats.norm.sf(2.5), rel=1e-12)
    assert normal_quantile(0.95) == pytest.approx(stats.norm.ppf(0.975), rel=1e-9)
