# SPDX-License-Identifier: Apache-2.0
"""Synthetic rows keep declared orders and values that fix others, and can be drawn under conditions."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import pytest

import pinq
from miners import Synthesizer
from miners.synthesizer.fitting import Fitting
from miners.synthesizer.graphical_model import Measurement
from miners.synthesizer.relations import determined, in_order, occupied, possible
from miners.synthesizer.synthetic_table import Bought
from pinq import QueryError
from pinq.public.epsilon import Epsilon
from tests.support.requests.handles import simulated

ROWS = 6000
DAYS = {"type": "date", "lower": "2020-01-01", "upper": "2023-12-31"}
WIDE = pinq.Numeric(lower=0, upper=100_000, integer=True)
LEVELS = tuple(f"level {number}" for number in range(1, 17))
SCHEMA = pinq.Schema.model_validate(
    {
        "columns": {
            "begun": DAYS,
            "ended": DAYS | {"nullable": True},
            "whole": WIDE,
            "part": WIDE,
            "years": pinq.Numeric(lower=1, upper=16, integer=True),
            "level": pinq.Categorical(values=LEVELS),
        },
        "max_rows": 10_000,
    }
)
ORDER = (("begun", "ended"), ("part", "whole"))


def rows() -> pd.DataFrame:
    draw = np.random.default_rng(0)
    begun = draw.integers(0, 900, ROWS)
    ended = begun + draw.geometric(0.02, ROWS)
    whole = np.minimum(draw.lognormal(9, 0.7, ROWS), 1e5).round()
    part = (whole * draw.beta(2, 3, ROWS)).round()
    years = draw.integers(1, 17, ROWS)
    first = pd.Timestamp("2020-01-01")
    days = {"begun": first + pd.to_timedelta(begun, unit="D"), "ended": first + pd.to_timedelta(ended, unit="D")}
    frame = pd.DataFrame(days | {"whole": whole.astype(int), "part": part.astype(int), "years": years})
    frame["ended"] = frame["ended"].where(draw.random(ROWS) > 0.05)
    return frame.assign(level=[LEVELS[number - 1] for number in years])


@pytest.fixture(scope="module")
def fitted() -> Synthesizer:
    with simulated(SCHEMA, data=rows(), epsilon=2) as handle:
        return Synthesizer(epsilon=2, order=ORDER, random_state=0).fit(handle)


def test_declared_orders_hold_in_every_row(fitted: Synthesizer) -> None:
    """Dates and parts; rows without a date have none; means stay, and what is stored draws the same rows."""
    made, private = fitted.sample(random_state=1), rows()
    known = made["ended"].notna()
    assert (made["begun"] <= made["ended"])[known].all()
    assert (made["part"] <= made["whole"]).mean() > 0.998
    assert known.mean() == pytest.approx(0.95, abs=0.02)
    for name in ("whole", "part"):
        assert abs(made[name].mean() - private[name].mean()) < 0.15 * private[name].std()
    pd.testing.assert_frame_equal(Synthesizer.from_json(fitted.to_json()).sample(99, random_state=2), fitted.sample(99, random_state=2))  # fmt: skip


def test_declared_orders_hold_at_the_upper_bounds() -> None:
    """Numbers that are not whole lie within the last cell of the grid, too."""
    columns = {name: pinq.Numeric(lower=0, upper=10) for name in ("low", "high")}
    schema = pinq.Schema(columns=columns, max_rows=2000)
    frame = pd.DataFrame({"low": 10 - np.random.default_rng(0).random(300) / 1000, "high": np.full(300, 9.9999)})
    for seed in range(3):
        with pinq.simulate(schema, data=frame, epsilon=4) as handle:
            made = Synthesizer(epsilon=4, order=[("low", "high")], random_state=seed).fit(handle).sample(500)
        assert (made["low"] <= made["high"]).all()


def test_tables_of_declared_orders_are_bought_first(fitted: Synthesizer) -> None:
    """At the price of a round, in the plan's total; the model has no rows against the order."""
    bought = [own.columns for own in fitted.model_.bought]
    assert {bought[6], bought[7]} == {(0, 1), (2, 3)}
    assert fitted.cost_ == fitted.plan(SCHEMA).total == 2
    assert fitted.model_.estimate(begun=("2022-01-01", None), ended=(None, "2021-01-01")) < 1


def test_a_value_that_fixes_another_stays_beside_it(fitted: Synthesizer) -> None:
    """Found by the table that was bought: each level has its own number of years."""
    made = fitted.sample(random_state=3)
    assert (made["level"] == "level " + made["years"].astype(str)).mean() > 0.95


@pytest.mark.parametrize("order", [(), (("low", "high"),)])
def test_rare_values_keep_their_rows_in_possible_cells(order: tuple[tuple[str, str], ...]) -> None:
    """Noise puts as many rows in the impossible cells of a rare value as of a frequent one."""
    number = pinq.Numeric(lower=1, upper=16, integer=True)
    schema = pinq.Schema(columns={"low": number, "high": number}, max_rows=10_000)
    fitting = Fitting(Synthesizer(epsilon=1, order=order)._checked(schema, None), MagicMock(), np.random.default_rng(0))
    exact = np.diag(1000 * 0.8 ** np.arange(16)).ravel()
    noisy = exact + np.random.default_rng(1).laplace(0, 3, exact.size)
    fitting.bought = [Bought((0, 1), noisy, 3 * 2**0.5, Epsilon.of(1))]
    model = fitting._model(None)
    related = fitting._related(model)
    wrong = np.tril(np.ones((16, 16), dtype=bool), -1) if order else ~np.eye(16, dtype=bool)
    assert model.marginal((0, 1))[wrong].sum() > 0.02
    assert related.marginal((0, 1))[wrong].max() < 1e-9
    for column, off in (((0,), 0.01), ((1,), 1e-6)):  # noise moves each column by itself, and the last is exact
        np.testing.assert_allclose(related.marginal(column), model.marginal(column), atol=off)


@pytest.mark.parametrize(("epsilon", "share", "fixes"), [(1.0, 1.0, True), (1.0, 0.8, False), (0.001, 1.0, False)])
def test_noise_must_explain_all_other_rows(epsilon: float, share: float, fixes: bool) -> None:
    """A relation that holds in four fifths of rows is none, and noise that hides everything shows none."""
    draw = np.random.default_rng(1)
    table = np.diag(np.full(10, 500.0 * share)) + 500 * (1 - share) / 10
    noisy = table + draw.laplace(0, 1 / epsilon, table.shape)
    mask = determined(noisy, 2**0.5 / epsilon)
    assert (mask is not None) == fixes
    if mask is not None:
        assert (mask == np.eye(10, dtype=bool)).all()


def test_a_frequent_value_fixes_nothing() -> None:
    """Where 990 of 1,000 rows have one value whatever the other column says, rare values stay."""
    table = np.outer([500.0, 300.0, 200.0], [0.99, 0.006, 0.004])
    assert determined(table, 5.0) is None


def test_numbers_change_places_only_among_rows_of_a_cell() -> None:
    """All numbers of a cell stay in it, and an order is found where there is one."""
    draw = np.random.default_rng(2)
    cells = draw.integers(0, 3, 1000)
    low = draw.uniform(0, 1, 1000)
    high = draw.permutation(np.sort(low) + 0.01)
    high = np.where(cells == 0, high, high + 1)
    moved = in_order(low, high, cells, 5.0, draw)
    assert (low <= moved).all() or (moved >= high.min()).all()
    for cell in (1, 2):
        np.testing.assert_allclose(np.sort(moved[cells == cell]), np.sort(high[cells == cell]))
    assert (in_order(np.array([3.0]), np.array([1.0]), np.array([0]), 2.0, draw) == 2.0).all()


def test_cells_that_cannot_lie_in_order_are_known() -> None:
    """Only those wholly below; missing values lie anywhere."""
    lows, highs = np.array([[0.0, 5, 9], [5, 9, 10]]), np.array([[0.0, 4], [4, 10]])
    assert possible(lows, highs, (4, 2)).tolist() == [[1, 1], [0, 1], [0, 1], [1, 1]]


def test_cells_far_out_are_empty(fitted: Synthesizer) -> None:
    """Beyond the last cell with plainly more rows than noise; never more than may be hidden, nor the median's."""
    table = next(own for own in fitted.model_.bought if len(own.columns) == 1)
    known = np.array([0.1, 0.4, 9, 30, 9, 0.5, 3, 0.2, 4.0]) * table.deviation * (len(table.counts) / 9) ** 0.5
    assert occupied(known, [table], table.columns[0], 8).tolist() == [0, 0, 1, 1, 1, 1, 1, 0, 1]
    assert occupied(known / 1e3, [table], table.columns[0], 8).tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 1]
    assert occupied(known / 1e3, [table], table.columns[0], 8, 0.25).tolist() == [0, 0, 1, 1, 1, 0, 0, 0, 1]


def test_rows_under_conditions_meet_them(fitted: Synthesizer) -> None:
    """Conditions are those of estimates; as many rows come as the model estimates; orders stay."""
    where: dict[str, Any] = {"whole": (5_000, 9_500), "level": ["level 3", "level 4"], "begun": ("2020-03-10", None)}
    made = fitted.sample(where=where, random_state=1)
    assert made["whole"].between(5_000, 9_499).all()
    assert set(made["level"]) == {"level 3", "level 4"}
    assert (made["begun"] >= pd.Timestamp("2020-03-10")).all()
    assert (made["part"] <= made["whole"]).mean() > 0.99
    private = rows()
    wanted = private["whole"].between(5_000, 9_499) & private["years"].isin([3, 4]) & (private["begun"] >= "2020-03-10")
    assert len(made) == round(fitted.model_.estimate(**where)) == pytest.approx(wanted.sum(), abs=60)
    assert len(fitted.sample(7, where=where)) == 7
    assert fitted.sample(20, where={"ended": None})["ended"].isna().all()
    with pytest.raises(QueryError, match="some value meets"):
        fitted.sample(where={"level": []})


def test_values_have_the_kinds_that_pandas_reads(fitted: Synthesizer) -> None:
    """Text, whole numbers and dates."""
    made = fitted.sample(100, random_state=0)
    assert made["level"].dtype == pd.Series(["a"]).dtype
    assert made["years"].dtype.kind == "i"
    assert made["ended"].dtype.kind == "M"


@pytest.mark.parametrize(
    "order", ["part", [("part",)], [("part", "level")], [("part", "part")], [("begun", "whole")], [("part", "none")], 3]
)
def test_orders_of_other_columns_are_refused(order: Any) -> None:
    """By name, before anything is spent; and a plan without an order of dates asks for one."""
    with pytest.raises(QueryError, match="order"):
        Synthesizer(epsilon=1, order=order).plan(SCHEMA)


def test_a_plan_asks_for_a_target_and_an_order() -> None:
    """Where none is given, and there is something to name."""
    plan = Synthesizer(epsilon=1).plan(SCHEMA)
    assert "fit(handle, target)" in plan.notes[0]
    assert "order=[('begun', 'ended')]" in plan.warnings[0]
    named = Synthesizer(epsilon=1, order=ORDER).plan(SCHEMA, "level")
    assert not any("fit(handle, target)" in note for note in named.notes)
    assert not named.warnings


def test_noise_hides_no_column() -> None:
    """Of cells that are all below the noise the farthest are hidden, with so many rows at the most."""
    bought = [Measurement((0,), np.zeros(8), 1000.0)]
    rows = np.full(8, 100.0)
    assert occupied(rows, bought, 0, 8, 0.25).tolist() == [False, *[True] * 6, False]
    rows = np.array([5.0, 400, 400, 5, 5, 5, 5, 5])
    assert occupied(rows, [Measurement((0,), np.zeros(8), 50.0)], 0, 7).tolist() == [
        False,
        *[True] * 2,
        *[False] * 4,
        True,
    ]
