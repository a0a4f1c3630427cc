# SPDX-License-Identifier: Apache-2.0
"""Each statistic has the same face, says what is wrong before it costs anything, and has an answer to odd tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

import pinq
from miners import statistics
from miners.statistics import (
    Result,
    compare,
    hazard_ratio,
    independence,
    kmeans,
    logistic,
    odds_ratio,
    rate_ratio,
    standardised,
    survival,
)
from miners.statistics.life_tables import LifeTable
from pinq.errors import QueryError
from pinq.public.schema import Categorical, Schema

YES_NO = pinq.Categorical(values=("no", "yes"))
COLUMNS: dict[str, Any] = {
    "week": pinq.Numeric(lower=1, upper=24, integer=True),
    "below": pinq.Numeric(lower=-5, upper=24, integer=True),
    "event": YES_NO,
    "arm": YES_NO,
    "grade": pinq.Categorical(values=("I", "II", "III"), nullable=True),
    "ended": pinq.Categorical(values=("censored", "death", "Death", "other")),
    "one": pinq.Categorical(values=("only",)),
    "job": pinq.Categorical(values=("self", "other")),
    "day": pinq.Date.model_validate({"lower": "2020-01-01", "upper": "2020-12-31"}),
    "risk": pinq.Categorical(values=("low", "middle", "high")),
}
SCHEMA = pinq.Schema(columns=COLUMNS, max_rows=10_000)
ASKED: dict[str, tuple[Any, ...]] = {
    "compare": ("week", "grade"),
    "hazard_ratio": ("week", "event", "grade"),
    "independence": ("grade", "job"),
    "kmeans": (["week", "below"], 2),
    "logistic": ("event", ["arm", "grade"]),
    "odds_ratio": ("event", "arm", "grade"),
    "poisson": ("week", ["arm", "grade"]),
    "rate_ratio": ("event", "arm"),
    "risk_difference": ("event", "arm"),
    "standardised": ("event", "arm", "grade"),
    "survival": ("week", "event", "grade"),
}
NAMES = sorted({*statistics.__all__} - {"Result"})


@pytest.fixture
def handle() -> Any:
    return pinq.simulate(SCHEMA, rows=4000, epsilon=100)


@pytest.mark.parametrize("name", NAMES)
def test_each_has_the_same_face(handle: Any, name: str) -> None:
    """Statistic, p-value, interval, number of rows, frame, picture and page; and one charge, that of its plan."""
    function = getattr(statistics, name)
    plan = function.plan(handle, *ASKED[name], epsilon=2)
    assert handle.budget.spent == 0
    result = function(handle, *ASKED[name], epsilon=2)
    assert handle.budget.spent == plan.total == 2
    assert isinstance(result, Result)
    assert all(isinstance(number, float) for number in (result.statistic, result.pvalue, result.n, *result.interval))
    assert result.n == pytest.approx(4000, rel=0.1)
    assert math.isnan(result.pvalue) == (not result.test)
    assert {"value", "low", "high"} <= {*result.to_frame().columns}
    assert "<table" in result._repr_html_()
    assert result.plot().get_title(loc="left") == result.title
    plt.close("all")


def first(counts: np.ndarray) -> None:
    counts[(0,) * counts.ndim] = 900


def no_last_part(counts: np.ndarray) -> None:
    counts[..., :-1] = 40


def only_first_kind(counts: np.ndarray) -> None:
    counts[:, 0] = 40


TABLES: list[Callable[[np.ndarray], None]] = [first, no_last_part, only_first_kind, lambda counts: counts.fill(40)]
TABLES += [lambda counts: counts.fill(0), lambda counts: counts.fill(-3)]


@pytest.mark.parametrize("name", NAMES)
def test_odd_tables_have_an_answer(handle: Any, name: str) -> None:
    """Empty tables, groups and kinds, one full cell, negative counts: numbers or none, but no warning and no error."""
    draft: Any = getattr(statistics, name)._draft(handle, *ASKED[name], epsilon=1)
    for fill in TABLES:
        for scale in (1e-9, 1.0):
            counts = np.zeros(draft.parts.shape)
            fill(counts)
            result = draft.computed(counts, scale)
            assert result.frame["value"].isna().all() == any("no power" in note for note in result.notes)
            assert "nan" not in result._repr_html_()
            assert not result.pvalue < 0
            assert not result.pvalue > 1
            for table in result.more.values():
                assert len(table)
            result.plot()
            plt.close("all")


WRONG: dict[str, Any] = {"level": (0, 1, "high", math.nan), "epsilon": (0, -1, "much", math.nan)}


def test_no_correlation_where_all_rows_are_of_one_part(handle: Any) -> None:
    draft: Any = independence._draft(handle, "grade", "event", test="trend", epsilon=1)
    counts = np.zeros(draft.parts.shape)
    counts[1] = 90
    result = draft.computed(counts, 1e-9)
    assert result.title.endswith("no power")
    assert math.isnan(result.pvalue)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_wrong_is_said_before_the_charge(handle: Any, name: str) -> None:
    """Unknown columns, levels and epsilons that are none."""
    function, (first, *others) = getattr(statistics, name), ASKED[name]
    unknown = ["no such column"] if isinstance(first, list) else "no such column"
    with pytest.raises(QueryError, match="no such column"):
        function(handle, unknown, *others, epsilon=1)
    for word, values in WRONG.items():
        for value in values:
            with pytest.raises(QueryError):
                function(handle, *ASKED[name], **{"epsilon": 1, word: value})
    assert handle.budget.spent == 0


REFUSED: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
    (independence, ("grade", "event"), {"test": ["pearson"]}, "test"),
    (independence, ("grade", "one"), {}, "single part"),
    (compare, ("week", "one"), {}, "single part"),
    (odds_ratio, ("event", "grade"), {}, "3 parts; it must be of a column of two"),
    (odds_ratio, ("event", "one"), {}, "1 part; it must be"),
    (survival, ("day", "event"), {}, "numeric column"),
    (odds_ratio, ("ended", "arm"), {}, "4 parts; it must be of a column of two"),
    (rate_ratio, ("event", "arm"), {"time": "below"}, "below 0"),
    (standardised, ("event", "arm", "grade"), {"time": "below"}, "below 0"),
    (survival, ("week", "ended"), {}, "one of censored"),
    (survival, ("week", "ended"), {"observed": "DEATH"}, "one of censored"),
    (survival, ("week", "ended"), {"observed": "death", "competing": 7}, "competing"),
    (survival, ("week", "event"), {"competing": "no"}, "competing"),
    (survival, ("week", "event"), {"intervals": (30,)}, "30"),
    (survival, ("week", "event"), {"intervals": 1}, "`intervals` is 1"),
    (hazard_ratio, ("week", "event", "arm"), {"intervals": "many"}, "`intervals` is 'many'"),
    (compare, ("week", "arm"), {"bins": 2.5}, "`bins` is 2.5"),
    (survival, ("week", "event", "event"), {}, "twice"),
    (survival, ("week", "event", ["arm", "grade"]), {}, "has 2 columns; a statistic takes one"),
    (kmeans, (["week", "one"], 2), {}, "numeric"),
]


@pytest.mark.parametrize(("function", "columns", "words", "said"), REFUSED)
def test_a_malformed_request_is_refused(
    handle: Any, function: Any, columns: tuple[Any, ...], words: dict[str, Any], said: str
) -> None:
    with pytest.raises(QueryError, match=said):
        function(handle, *columns, **words, epsilon=1)
    assert handle.budget.spent == 0


def test_values_that_differ_in_case_alone_are_told_apart(handle: Any) -> None:
    """``Death`` is the third part; of several rivals each counts once, and a single one needs no list."""
    words: dict[str, Any] = {"intervals": 4, "epsilon": 1}
    counts = np.zeros((4, 4))
    counts[0], counts[3, 0] = (0, 100, 200, 300), 400
    shares: dict[tuple[str, str], float] = {}
    for observed, competing in (("death", ()), ("Death", ()), ("death", "other"), ("death", ["other", "other"])):
        draft: Any = survival._draft(handle, "week", "ended", observed=observed, competing=competing, **words)
        shares[observed, str(competing)] = draft.computed(counts, 1e-9)["value"][1]
    assert shares["death", "()"] > shares["Death", "()"]
    assert shares["death", "other"] == shares["death", "['other', 'other']"]


def test_a_median_that_noise_hides_is_not_endless() -> None:
    """Above one half to its end, a curve has no median; where the end is hidden, it is not known."""
    life = LifeTable(np.arange(0, 25, 6), COLUMNS["week"])
    assert life.crossing(np.array([1, 0.9, 0.8, 0.7, 0.6])) == math.inf
    assert math.isnan(life.crossing(np.array([1, 0.9, 0.8, np.nan, np.nan])))
    assert life.crossing(np.array([1, 0.9, 0.4, np.nan, np.nan])) < 12


def test_a_restricted_mean_is_no_later_than_the_last_time(handle: Any) -> None:
    """It is the area under the curve that is shown: 24 where all rows are left then."""
    for intervals in (4, 24):
        draft: Any = survival._draft(handle, "week", "event", intervals=intervals, epsilon=1)
        counts = np.zeros(draft.parts.shape)
        counts[-1, 0] = 900
        result = draft.computed(counts, 1e-9)
        assert result["week"].iloc[-1] == 24
        assert result.restricted_mean["value"][0] == pytest.approx(24)


def test_tables_beside_a_hidden_number_are_hidden(handle: Any) -> None:
    draft: Any = survival._draft(handle, "week", "event", "grade", epsilon=0.01)
    result = draft.computed(np.full(draft.parts.shape, 5), 100.0)
    assert result.median["value"].isna().all()
    assert result.at_risk["week"].notna().all()
    assert isinstance(result.restricted_mean, pd.DataFrame)


def test_all_numbers_of_a_hidden_table_are_hidden(handle: Any) -> None:
    """Coefficients too, and counts of groups that are named as ends of an interval are."""
    asked: list[tuple[Any, tuple[Any, ...], str]] = [
        (logistic, ("event", "arm"), "params"),
        (independence, ("arm", "risk"), "observed"),
    ]
    for function, columns, name in asked:
        draft: Any = function._draft(handle, *columns, epsilon=0.01)
        result = draft.computed(np.full(draft.parts.shape, 5), 100.0)
        assert getattr(result, name).isna().all(axis=None)


def test_each_kind_of_censored_end_has_noise_of_its_own(handle: Any) -> None:
    """Three values that are censored make a wider band than one with the same rows, and the same without noise."""
    two: Any = survival._draft(handle, "week", "event", intervals=4, epsilon=1)
    four: Any = survival._draft(handle, "week", "ended", intervals=4, observed="death", epsilon=1)
    for scale, wider in ((1e-9, 1.0), (2.0, 1.005)):
        one = two.computed(np.array([[60, 40]] * 4), scale).frame
        several = four.computed(np.array([[20, 40, 20, 20]] * 4), scale).frame
        np.testing.assert_allclose(several["value"], one["value"])
        widths = [(frame["high"] - frame["low"]).to_numpy()[1:] for frame in (several, one)]
        assert (widths[0] >= wider * widths[1] - 1e-12).all()


def test_a_curve_without_events_may_be_1(handle: Any) -> None:
    """Noise moved to at least 0 looks like events; while their sum may be noise, the band reaches 1, and of an incidence 0."""
    rng = np.random.default_rng(2)
    draft: Any = survival._draft(handle, "week", "event", intervals=8, epsilon=1)
    counts = np.array([[100, 0]] * 8)
    noise = rng.geometric(1 - np.exp(-1), (60, 2, 8, 2))
    highs = [draft.computed(counts + more - less, 1.0)["high"].to_numpy() for more, less in noise]
    assert 0.93 <= np.mean(np.array(highs)[:, 1:] == 1) <= 1
    rare: Any = survival._draft(handle, "week", "ended", observed="death", competing="Death", intervals=8, epsilon=1)
    counts = np.array([[100, 0, 9, 0]] * 8)
    lows = [
        rare.computed(counts + rng.geometric(0.63, (8, 4)) - rng.geometric(0.63, (8, 4)), 1.0)["low"] for _ in range(60)
    ]
    assert 0.93 <= np.mean(np.array(lows)[:, 1:] == 0) <= 1


def test_an_effect_without_an_end_has_no_number() -> None:
    """All rows of one group have one outcome: its ratio is missing with the reason, and so is the test of all effects."""
    h = pinq.simulate(SCHEMA, rows=10, epsilon=1)
    draft: Any = logistic._draft(h, "event", ["arm", "risk"], epsilon=1)
    counts = np.full((2, 2, 3), 90)
    counts[1, :, 2] = 0
    result = draft.computed(counts, 1e-9)
    assert result["value"].isna().tolist() == [False, False, True]
    assert any("can be told for risk: high against low" in note for note in result.notes)
    assert math.isnan(result.pvalue)
    assert result.params["coef"].isna().tolist() == [False, False, False, True]


def test_what_is_missing_of_a_curve_has_its_reason(handle: Any) -> None:
    """All rows end in the first of two intervals, so none is at risk in the second."""
    draft: Any = survival._draft(handle, "week", "event", intervals=2, epsilon=1)
    result = draft.computed(np.array([[90, 90], [0, 0]]), 1e-9)
    assert result["value"].isna().tolist() == [False, False, True]
    assert any("rows at risk" in note for note in result.notes)


def test_columns_may_have_the_names_of_numbers() -> None:
    """As in tables of counts, such a column has an underscore at its end."""
    named = {"value": COLUMNS["week"], "low": YES_NO, "time": YES_NO, "event": YES_NO}
    h = pinq.simulate(pinq.Schema(columns=named, max_rows=10_000), rows=4000, epsilon=10)
    curves = survival(h, "value", "event", "low", epsilon=1)
    assert curves.keys == ["low_", "value_"]
    assert curves.plot().get_xlabel() == "value_"
    plt.close("all")
    assert list(hazard_ratio(h, "value", "event", "time", epsilon=1).rates) == ["time_", "events", "time"]


def test_a_test_of_too_many_cells_is_refused_before_it_is_paid() -> None:
    """Its covariance would take all memory after the charge."""
    wide = Categorical(values=tuple(range(60)))
    with pinq.simulate(Schema(columns={"a": wide, "b": wide}, max_rows=1000), rows=100, epsilon=10) as handle:
        with pytest.raises(QueryError, match=r"a and b make 3,481 degrees of freedom, and a test takes at most 1,600"):
            independence(handle, "a", "b", epsilon=1)
        assert handle.budget.spent == 0
        assert independence(handle, "a", "b", test="trend", epsilon=1).test == "trend"
