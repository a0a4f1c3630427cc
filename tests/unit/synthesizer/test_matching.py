# SPDX-License-Identifier: Apache-2.0
"""Means and deviations of synthetic numbers are those of noisy sums: for any shares, and for whole tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pinq
from miners import Synthesizer
from miners.synthesizer.graphical_model import Clique, GraphicalModel
from miners.synthesizer.matching import features, least_worth, limit, reached, spread, tilt, worth

ROWS = 4_000
NUMBERS = ["age", "income", "spent", "opened"]
SCHEMA = pinq.Schema(
    columns={
        "age": pinq.Numeric(lower=0, upper=120, integer=True),
        "income": pinq.Numeric(lower=0, upper=1_000_000),
        "spent": pinq.Numeric(lower=-500, upper=20_000, nullable=True),
        "opened": {"type": "date", "lower": "1990-01-01", "upper": "2029-12-31"},
        "kind": pinq.Categorical(values=("a", "b", "c")),
    },
    max_rows=ROWS,
)


def rows() -> pd.DataFrame:
    draw = np.random.default_rng(4)
    kind = draw.choice(list("abc"), ROWS, p=[0.5, 0.3, 0.2])
    spent = draw.gamma(2, 700, ROWS)
    return pd.DataFrame(
        {
            "age": draw.normal(40 + 9 * (kind == "b"), 11, ROWS).round().clip(18, 95),
            "income": np.exp(draw.normal(10.4, 0.5, ROWS) + 0.5 * (kind == "c")),
            "spent": np.where(draw.random(ROWS) < 0.2, np.nan, spent),
            "opened": pd.Timestamp("2012-01-01") + pd.to_timedelta(draw.integers(0, 2_500, ROWS), unit="D"),
            "kind": kind,
        }
    )


def plain(column: pd.Series) -> pd.Series:
    """Numbers, or days of dates."""
    dates = column.name == "opened"
    return (pd.to_datetime(column) - pd.Timestamp(0)) / pd.Timedelta(days=1) if dates else column.astype(float)


@pytest.mark.parametrize(("epsilon", "off"), [(1, 0.1), (4, 0.05)])
def test_means_and_deviations_are_kept(epsilon: float, off: float) -> None:
    """In most fits, under wide bounds, with missing values and dates, for the price of the plan."""
    private = rows()
    apart, wide = [], []
    for seed in range(7):
        with pinq.simulate(SCHEMA, data=private, epsilon=epsilon) as handle:
            fitted = Synthesizer(epsilon=epsilon, random_state=seed).fit(handle)
            assert fitted.cost_ == handle.budget.spent == epsilon == fitted.plan(SCHEMA).total
        made = fitted.sample(ROWS, random_state=1)
        pairs = [(plain(private[name]), plain(made[name])) for name in NUMBERS]
        apart.append([abs(own.mean() - real.mean()) / real.std() for real, own in pairs])
        wide.append([abs(own.std() / real.std() - 1) for real, own in pairs])
    assert np.median(apart, axis=0).max() < off
    assert np.median(wide, axis=0).max() < 1.5 * off
    assert Synthesizer.from_json(fitted.to_json()).sample(9, random_state=1).equals(fitted.sample(9, random_state=1))


def test_columns_that_correlate_are_not_moved_twice() -> None:
    """Each column gets its shares, though each factor moves the other columns, too; relations stay."""
    joint = np.eye(3) * 0.3 + 0.1 / 9
    pairs: dict[Clique, np.ndarray] = {pair: np.log(joint) for pair in [(0, 1), (1, 2), (2, 3)]}
    model = GraphicalModel((3,) * 4, 1_000.0, {**pairs, **{(column,): np.full(3, np.log(3)) for column in (1, 2)}})
    assert np.allclose(model.marginal((3,)), 1 / 3)
    shares = np.array([0.2, 0.3, 0.5])
    brought = model.brought({(column,): shares for column in range(4)})
    for column in range(4):
        assert np.abs(brought.marginal((column,)) - shares).max() < 0.02
    assert np.trace(brought.marginal((0, 1))) > 0.8
    for known, anew in zip(brought.tables, brought.tree.calibrated(brought.potentials), strict=True):
        assert np.allclose(known, anew)
    none = model.brought({(0,): np.array([0.0, 0.4, 0.6])})
    assert np.allclose(none.marginal((0,)), [0, 0.4, 0.6])


def test_what_refuses_the_sums_refuses_the_fit_before_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rehearsal asks for the sums, too."""
    with pinq.simulate(SCHEMA, rows=100, epsilon=1) as handle:
        monkeypatch.setattr(
            "miners.synthesizer.matching.limit", lambda columns, reach: 1e9
        )  # more than a query may have
        with pytest.raises(pinq.QueryError, match="limit"):
            Synthesizer(epsilon=1).fit(handle)
        assert not handle.budget.spent


def test_shares_have_the_means_that_are_asked_for() -> None:
    """Without noise exactly, with noise as far as it lets one believe; missing rows stay in the sum."""
    draw = np.random.default_rng(0)
    shares = draw.dirichlet(np.ones(40)) * 0.8
    known = features(np.linspace(-3, 3, 41)[[*range(40)], None].T.repeat(2, axis=0), (-3, 3))
    asked = np.array([0.05, 0.2])
    assert np.allclose(tilt(shares, known, asked, 0.0) @ known, asked, atol=1e-4)
    before = shares @ known
    assert np.allclose(tilt(shares, known, asked, 1e3), shares, atol=1e-4)
    half = tilt(shares, known, asked, 0.05) @ known
    assert (np.abs(half - asked) < np.abs(before - asked)).all()


@pytest.mark.parametrize("numbers", [(5.0, -7.0), (1.0, 1.0), (-1.0, 0.0), (1e9, 1e9)])
@pytest.mark.parametrize("noise", [0.0, 0.01, 1.0])
def test_impossible_means_do_no_harm(numbers: tuple[float, float], noise: float) -> None:
    """Noise can ask for anything: shares stay shares, also of one piece, and of none with rows."""
    for shares in (np.full(5, 0.2), np.array([0.0, 1.0, 0, 0, 0]), np.array([0.3, 0, 0, 0, 0]), np.array([1.0])):
        known = features(np.linspace(-9, 9, len(shares))[None].repeat(2, axis=0), (-8, 8))
        found = tilt(shares, known, np.array(numbers), noise)
        assert np.isfinite(found).all()
        assert (found >= 0).all()
        assert found.sum() <= 1 + 1e-9
        assert not found[shares == 0].any()


def test_ranges_hold_most_rows() -> None:
    """About the mean, wider than nearly all rows; and no range is empty."""
    middles = np.arange(100.0)
    shares = np.exp(-middles / 10) / np.exp(-middles / 10).sum()
    low, high = spread(shares, middles, 1)
    assert (low + high) / 2 == pytest.approx(shares @ middles)
    assert 35 < high < 60
    assert spread(shares, middles, 6)[1] == pytest.approx(shares @ middles + 6 * 9.95, abs=0.5)
    low, high = spread(np.array([1.0]), np.array([3.0]), 1)
    assert low < 3 < high


@pytest.mark.parametrize("columns", [1, 2, 9, 40])
def test_ranges_are_as_wide_as_noise_allows(columns: int) -> None:
    """From nearly all rows on; noise in a mean square is then a tenth of a variance, and in means no larger."""
    for rows in (1e3, 1e4, 1e6):
        reach = reached(columns, rows)
        noise = reach * np.array([1, reach]) * (3 + 0.8 * columns / reach + columns / reach**2) / rows
        assert reach == 2.4 or noise[1] == pytest.approx(0.1)
        assert noise[0] < max(0.1 / 2.4, 2.4 * limit(columns, 2.4) / rows) + 1e-9
    assert reached(columns, 1e3) <= reached(columns, 1e6)


def test_models_are_worth_as_many_rows_as_sums_say() -> None:
    """A hundred where all columns agree with sums, and fewer where they differ by more than noise."""
    shares, known = [np.full(9, 1 / 9)] * 4, [np.column_stack([np.linspace(-1, 1, 9), np.linspace(-1, 1, 9) ** 2])] * 4
    means = shares[0] @ known[0]
    assert worth(shares, known, np.array([means] * 4), 0.01).tolist() == [100, 100]
    moved = worth(shares, known, np.array([means + np.array([0, 0.3])] * 4), 0.01)
    assert moved[0] == 100
    assert moved[1] < 2


def test_a_column_that_histograms_know_better_than_sums_keeps_its_mean() -> None:
    """Noise in sums moves it by no more than the noise that histograms may have left in it."""
    shares, known = np.full(9, 1 / 9), np.column_stack([np.linspace(-1, 1, 9), np.linspace(-1, 1, 9) ** 2])
    sums = shares @ known + 0.1
    for noise, moved in ((0.0, 0.0), (1e-3, 1e-3), (1.0, 0.1)):
        found = tilt(shares, known, sums, 0.05, least_worth(shares, known, known, noise)) @ known - shares @ known
        assert found == pytest.approx(moved, rel=0.3, abs=1e-3), noise


def test_sums_that_noise_hides_are_not_bought() -> None:
    """By public facts alone: at small epsilon the tables get all of it, and a plan says so."""
    lines = [[str(line) for line in Synthesizer(epsilon=epsilon).plan(SCHEMA).lines] for epsilon in (0.1, 1)]
    assert [any("sums and squares" in line for line in plan) for plan in lines] == [False, True]
