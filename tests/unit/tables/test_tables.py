# SPDX-License-Identifier: Apache-2.0
"""Everyday tables cost what their plans say, hold the exact numbers, and read back as frames."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import miners.tables.columns
import miners.tables.table
from miners.tables import (
    Table,
    correlation,
    crosstab,
    grouped,
    histogram,
    quantiles,
    std,
    summary,
    top_k,
    variance,
    where,
)
from miners.tables.columns import half_width, within_noise
from miners.tables.counts import agreeing, nearest_nonnegative, subsets, summed
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import BudgetExceeded, QueryError
from pinq.language.specs import Cuts, Groups, Values
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.laws.laws import at_least
from tests.support.requests.handles import simulated

ROWS = 4000
SURE = 20_000
SCHEMA = Schema(
    columns={
        "age": Numeric(lower=0, upper=100, integer=True, cuts=(20, 40, 60)),
        "rate": Numeric(lower=0, upper=1, nullable=True),
        "once": Numeric(lower=7, upper=7, integer=True),
        "sex": Categorical(values=("F", "M")),
        "job": Categorical(values=("clerk", "nurse", "smith"), nullable=True),
    },
    max_rows=ROWS,
)


def rows() -> pd.DataFrame:
    random = np.random.default_rng(4)
    sex = random.choice(["F", "M"], ROWS, p=[0.4, 0.6])
    return pd.DataFrame(
        {
            "age": np.clip(random.normal(40, 14, ROWS) + 5 * (sex == "M"), 0, 100).astype(int),
            "rate": np.where(random.random(ROWS) < 0.1, np.nan, random.beta(2, 5, ROWS)),
            "once": 7,
            "sex": sex,
            "job": random.choice(
                np.array(["clerk", "nurse", "smith", None], dtype=object), ROWS, p=[0.5, 0.3, 0.1, 0.1]
            ),
        }
    )


DATA = rows()


def opened(epsilon: float = SURE) -> PrivateQueryable:
    return simulated(SCHEMA, rows=ROWS, epsilon=epsilon, data=DATA)


CALLS: dict[str, Callable[..., Any]] = {
    "crosstab": lambda f, h, **more: f(h, ["sex", "age"], "job", margins="asked", consistent=True, **more),
    "histogram": lambda f, h, **more: f(h, "age", 7, by="sex", **more),
    "top_k": lambda f, h, **more: f(h, "job", 2, **more),
    "quantiles": lambda f, h, **more: f(h, "age", [0.1, 0.25, "1/3", 0.9], by="sex", **more),
    "variance": lambda f, h, **more: f(h, "rate", by=["sex", "job"], **more),
    "std": lambda f, h, **more: f(h, "age", **more),
    "grouped": lambda f, h, **more: f(
        h, "sex", {"age": ["mean", "sum", "std", "median"], "rate": "missing", "job": ["count", "missing"]}, **more
    ),
    "summary": lambda f, h, **more: f(h, **more),
}
FUNCTIONS: dict[str, Any] = {
    "crosstab": crosstab,
    "histogram": histogram,
    "top_k": top_k,
    "quantiles": quantiles,
    "variance": variance,
    "std": std,
    "grouped": grouped,
    "summary": summary,
}
every_function = pytest.mark.parametrize("name", FUNCTIONS)


def call(name: str, handle: PrivateQueryable, **more: Any) -> Table:
    table: Table = CALLS[name](FUNCTIONS[name], handle, **more)
    return table


def planned(name: str, handle: PrivateQueryable, **more: Any) -> Any:
    return CALLS[name](FUNCTIONS[name].plan, handle, **more)


# What every table promises


def test_every_function_is_here() -> None:
    assert set(FUNCTIONS) | {"Table", "correlation", "where"} == set(miners.tables.__all__)


@every_function
def test_the_bill_equals_the_plan(name: str) -> None:
    """To the nano, at most what was asked, and the plan itself is free."""
    handle = opened(2)
    plan = planned(name, handle, epsilon="0.7")
    assert handle.budget.spent == 0
    table = call(name, handle, epsilon="0.7")
    assert handle.budget.spent == plan.total == table.epsilon
    needless = 5 / 30 * 0.7 if name == "summary" else 0  # spread and quartiles of a column with one value
    assert 0.69999 - needless < plan.total <= Fraction("0.7")


@every_function
def test_asking_again_with_reuse_is_free(name: str) -> None:
    """Also where nothing remains, and gives the same numbers."""
    handle = opened(0.5)
    first = call(name, handle, epsilon="0.5", reuse=True)
    spent = handle.budget.spent
    again = call(name, handle, epsilon="0.5", reuse=True)
    assert handle.budget.spent == spent
    pd.testing.assert_frame_equal(first.to_frame(), again.to_frame())


@every_function
def test_too_little_budget_is_refused_before_anything_is_asked(name: str) -> None:
    handle = opened(0.5)
    with pytest.raises(BudgetExceeded, match=rf"{name} needs an epsilon of 0\.[0-9]+; 0.5 remains"):
        call(name, handle, epsilon="0.6")
    assert handle.budget.spent == 0
    assert handle.history()["outcome"].tolist() == ["refused (budget)"]


@every_function
def test_a_table_is_read_as_a_frame_and_as_arrow(name: str) -> None:
    """With a value between its ends in each row, and a scale for each row."""
    table = call(name, opened(), epsilon=1)
    frame = table.to_frame()
    assert list(frame.columns)[-3:] == ["value", "low", "high"]
    assert ((frame["low"] <= frame["value"]) & (frame["value"] <= frame["high"])).all()
    assert len(table.scale) == len(table) == len(frame)
    assert pa.table(table).num_rows == table.to_arrow().num_rows == len(frame)
    assert table.title in repr(table)
    assert "<table" in table._repr_html_()
    assert table.wide().to_numpy().size >= len(frame)


@every_function
def test_a_table_is_drawn(name: str) -> None:
    """Each with its own picture; what has one panel also on given axes."""
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    table = call(name, opened(), epsilon=1)
    figure = table.plot().figure
    figure.canvas.draw()
    assert len(figure.axes) >= 1
    axes = plt.figure().add_subplot()
    if table.picture == "panels":
        with pytest.raises(QueryError, match="a figure of its own"):
            table.plot(axes)
    else:
        assert table.plot(axes) is axes
    plt.close("all")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: crosstab(DATA, "sex", epsilon=1), "made of a private handle, not of DataFrame"),  # type: ignore[arg-type]
        (lambda: crosstab(opened(), "rate", epsilon=1), "declares no cuts; say where"),
        (lambda: crosstab(opened(), "town", epsilon=1), "there is no column 'town'"),
        (lambda: crosstab(opened(), "sex", epsilon=1, level=1), "`level` is 1; it must be between 0 and 1"),
        (lambda: histogram(opened(), "age", 1, epsilon=1), "`bins` is 1; it must be a whole number from 2"),
        (lambda: histogram(opened(), "sex", 4, epsilon=1), "`sex` is categorical; it takes no `bins`"),
        (lambda: top_k(opened(), "sex", 3, epsilon=1), "`k` is 3; it must be a whole number from 1 to 2"),
        (lambda: quantiles(opened(), "sex", epsilon=1), "`sex` is categorical"),
        (lambda: quantiles(opened(), "age", [0.5, 0.5], epsilon=1), "`shares` is .* different numbers between 0 and 1"),
        (lambda: quantiles(opened(), "age", [1.5], epsilon=1), "`share` is 1.5"),
        (
            lambda: grouped(opened(), "sex", {"age": "mode"}, epsilon=1),
            "there is no statistic 'mode'; there are count,",
        ),
        (lambda: grouped(opened(), "sex", {}, epsilon=1), "`statistics` names nothing to ask"),
        (lambda: summary(opened(), epsilon="0.000000001"), "too small to be divided"),
        (lambda: crosstab(opened(), 5, epsilon=1), "5 names no columns"),  # type: ignore[arg-type]
        (lambda: crosstab(opened(), "sex", margins="yes", epsilon=1), "`margins` is 'yes'; it must be False, True or"),  # type: ignore[arg-type]
        (lambda: crosstab(opened(), "sex", epsilon=1).wide("x"), "`value` is 'x'; it must be 'value', 'low' or 'high'"),
        (lambda: histogram(opened(), "age", 2.5, epsilon=1), "`bins` is 2.5; it must be a whole number"),  # type: ignore[arg-type]
        (lambda: top_k(opened(), "sex", "x", epsilon=1), "`k` is 'x'; it must be a whole number"),  # type: ignore[arg-type]
        (lambda: grouped(opened(), "sex", ["age"], epsilon=1), "`statistics` is .*names of statistics by column"),  # type: ignore[arg-type]
        (lambda: std(opened(), "age", epsilon=1, level="x"), "`level` is 'x'; it must be between"),  # type: ignore[arg-type]
        (lambda: quantiles(opened(), "age", epsilon="0.000000001"), "too small to be divided"),
        (lambda: where(DATA, sex="F"), "made of a private handle, not of DataFrame"),  # type: ignore[arg-type]
        (lambda: where(opened(), age=30), "must be a pair"),
        (lambda: where(opened(), age=(None, None)), "open at both ends"),
        (lambda: where(opened(), age=None), "declares no missing values"),
        (lambda: where(opened(), job=["clerk", "nurse", "smith", None]), "names no value, or all of them"),
        (lambda: where(opened(), sex="X"), "no value 'X'"),
    ],
)
def test_what_is_wrong_is_said(ask: Callable[[], Any], message: str) -> None:
    with pytest.raises(QueryError, match=message):
        ask()


def test_a_table_reads_well() -> None:
    """Every column and row of a summary stands there, numbers with six digits, nothing where there is no key."""
    table = summary(opened(), ["age", "rate", "job"], epsilon="0.7")
    lines = repr(table).splitlines()
    assert lines[0] == "summary of 3 columns; epsilon 0.7, intervals of 95%"
    assert len(lines) == len(table) + 2 + len(table.notes)
    assert "..." not in repr(table)
    assert "NaN" not in repr(table) + table._repr_html_()
    assert len(max(lines[1 : len(table) + 2], key=len)) < 80
    assert repr(crosstab).startswith("<crosstab(handle, rows, columns=(), epsilon, level=0.95")


def test_a_single_share_or_column_needs_no_list() -> None:
    handle = opened()
    assert quantiles(handle, "age", 0.5, epsilon=1).title == "1 quantile of age"
    assert summary(handle, "age", epsilon=1).title == "summary of 1 column"
    assert summary.plan(handle, ["age", "age"], epsilon=1).total == summary.plan(handle, "age", epsilon=1).total


# What each says


def test_a_table_reads_like_a_frame() -> None:
    """By column, by length and over its columns; intervals spread with the values, and counts stay whole."""
    table = grouped(opened(), "sex", {"age": ["mean", "count"]}, epsilon=SURE)
    assert list(table) == list(table.columns) == list(table.frame)
    assert table["value"].tolist() == table.frame["value"].tolist()
    wide = table.wide(intervals=True)
    assert set(wide.columns.get_level_values(0)) == {"value", "low", "high"}
    whole = [column.dtype.kind for name, column in wide["value"].items() if str(name).endswith("count")]
    assert whole == ["i"]


@pytest.mark.parametrize(
    ("conditions", "exact"),
    [
        ({"sex": "M"}, (DATA.sex == "M")),
        ({"sex": "M", "age": (30, 45)}, (DATA.sex == "M") & (DATA.age >= 30) & (DATA.age < 45)),
        ({"age": (None, 30)}, DATA.age < 30),
        ({"age": (30, None)}, DATA.age >= 30),
        ({"job": None}, DATA.job.isna()),
        ({"job": ["clerk", None]}, DATA.job.isna() | (DATA.job == "clerk")),
        ({"rate": None}, DATA.rate.isna()),
    ],
    ids=str,
)
def test_where_narrows_to_what_the_condition_says(conditions: dict[str, Any], exact: pd.Series) -> None:
    assert where(opened(), **conditions).noisy_count(epsilon=100) == exact.sum()


def test_two_sides_of_a_condition_cost_what_one_costs() -> None:
    handle = opened(5)
    for sex in ("F", "M"):
        crosstab(where(handle, sex=sex), "job", epsilon=2)
    assert handle.budget.spent == 2


def test_a_cross_table_has_the_exact_counts_and_margins() -> None:
    table = crosstab(opened(), "sex", "job", epsilon=SURE, margins=True)
    exact: Any = pd.crosstab(DATA.sex, DATA.job.fillna("missing"))
    wide: Any = table.wide()
    assert wide.loc["F", "clerk"] == exact.loc["F", "clerk"]
    assert wide.loc["M"].tolist()[3] == exact.loc["M", "missing"]
    assert pd.isna(wide.columns[3])
    assert wide.loc["All", "All"] == ROWS
    assert wide.loc["All", "nurse"] == exact["nurse"].sum()


def test_margins_that_are_asked_agree_only_on_request() -> None:
    """Each has its own noise; ``consistent`` moves all to numbers that agree, ``nonnegative`` to none below 0, and both say so."""

    def both(**more: Any) -> tuple[Table, pd.DataFrame]:
        table = crosstab(opened(), "sex", "job", epsilon="0.02", margins="asked", **more)
        return table, table.wide()

    table, wide = both()
    assert len(table.frame) == 3 * 5
    assert wide.loc["F"].iloc[:4].sum() != wide.loc["F", "All"]
    assert table.scale.tolist() == [200.0] * 15
    assert "queried separately" in repr(table)
    table, wide = both(consistent=True, nonnegative=True)
    assert np.allclose(wide.iloc[:, :4].sum(axis=1), wide["All"])
    assert np.allclose(wide.iloc[:2].sum(), wide.loc["All"])
    assert (table.frame["value"] >= 0).all()
    assert (table.frame["low"] <= table.frame["value"]).all()
    assert "moved to the nearest ones that agree" in repr(table)
    assert (both(nonnegative=True)[0].frame["value"] >= 0).all()
    with pytest.raises(QueryError, match=r"`consistent` is True; .*margins='asked'"):
        crosstab(opened(), "sex", "job", epsilon=1, margins=True, consistent=True)
    exact = crosstab(opened(), "sex", "job", epsilon=SURE, margins="asked").wide()
    assert exact.loc["All", "All"] == ROWS


def test_the_nearest_agreeing_table_is_that_of_least_squares() -> None:
    """Against numpy's solver, of three axes; and the example of the docstring."""
    random, shape = np.random.default_rng(1), (2, 3, 4)
    tables = {kept: summed(random.normal(size=shape), kept) for kept in subsets(3)}
    cells = np.eye(24).reshape(24, *shape)
    design = np.concatenate([np.stack([summed(cell, kept).ravel() for cell in cells], axis=1) for kept in tables])
    given = np.concatenate([table.ravel() for table in tables.values()])
    assert np.allclose(agreeing(tables).ravel(), np.linalg.lstsq(design, given, rcond=None)[0])
    assert agreeing({(0,): np.array([4, 8]), (): np.array(15)}).tolist() == [5, 9]


def test_other_cuts_and_groups_are_specs() -> None:
    table = crosstab(opened(), Cuts("age", (50,)), [Groups("job", (("clerk", "nurse"), ("smith", None)))], epsilon=SURE)
    assert table.frame["value"].sum() == ROWS
    assert table.frame["value"].iloc[0] == ((DATA.age < 50) & DATA.job.isin(["clerk", "nurse"])).sum()


def test_a_histogram_has_even_bins_of_whole_cells() -> None:
    """Which do not depend on rows: the same where there are none."""
    table = histogram(opened(), "age", 4, epsilon=SURE)
    assert table.frame["age"].tolist() == ["< 26", "26 to < 51", "51 to < 76", ">= 76"]
    assert table.frame["value"].tolist() == np.histogram(DATA.age, [0, 26, 51, 76, 101])[0].tolist()
    with simulated(SCHEMA, rows=1, epsilon=SURE, data=DATA.head(1)) as empty:
        assert histogram(empty, "age", 4, epsilon=1).frame["age"].tolist() == table.frame["age"].tolist()
    assert len(histogram(opened(), "rate", epsilon=1)) == 11  # ten bins, and missing values


def test_a_histogram_without_negative_numbers_says_so() -> None:
    """It keeps the total of the noisy counts, and its intervals end at 0."""
    handle = opened()
    noisy = histogram(handle, "rate", 40, epsilon="0.05", reuse=True).frame
    table = histogram(handle, "rate", 40, epsilon="0.05", nonnegative=True, reuse=True)
    assert (noisy["value"] < 0).any()
    assert (table.frame[["value", "low"]] >= 0).all(axis=None)
    assert table.frame["value"].sum() == pytest.approx(noisy["value"].sum())
    assert "nearest table without negative numbers" in repr(table)
    assert (table.frame["value"] % 1 == 0).all()
    assert (table.frame["high"] > table.frame["low"]).all()  # [0, 0] would hold the truth much less often than it says


def test_the_most_frequent_values_come_first() -> None:
    assert top_k(opened(), "job", 2, epsilon=SURE).frame["job"].tolist() == ["clerk", "nurse"]
    noisy = top_k(opened(), "job", 2, epsilon=1).frame
    assert (noisy["low"] < noisy["value"]).all()
    assert (noisy["value"] < noisy["high"]).all()


@pytest.mark.parametrize(
    ("given", "nearest"), [((5, 1, -2), (4, 0, 0)), ((3, 3), (3, 3)), ((-1, -2), (0, 0)), ((2, -1, 1), (1.5, 0, 0.5))]
)
def test_the_nearest_table_without_negative_numbers(given: tuple[int, ...], nearest: tuple[float, ...]) -> None:
    """The same total, and no other such table is closer."""
    assert nearest_nonnegative(np.array(given, dtype=float)).tolist() == pytest.approx(nearest)


def exact_quantiles(values: pd.Series, shares: list[float]) -> list[float]:
    ordered = np.sort(values.dropna())
    return [float(ordered[int(np.ceil(share * len(ordered))) - 1]) for share in shares]


def test_quantiles_are_exact_without_noise() -> None:
    """Of each group apart, whatever the shares, and the ends of the intervals with them."""
    shares = [0.1, 0.25, 0.5, 0.75, 0.9]
    frame = quantiles(opened(), "age", shares, by="sex", epsilon=SURE).frame
    for sex, group in frame.groupby("sex"):
        exact = exact_quantiles(DATA[DATA.sex == sex].age, shares)
        assert group["value"].tolist() == exact
        assert group["low"].tolist() == exact == group["high"].tolist()
    assert frame["statistic"].tolist()[:5] == ["10 %", "25 %", "50 %", "75 %", "90 %"]


def test_quantiles_of_a_fine_grid_and_of_a_single_cell() -> None:
    """Missing values do not count; a column that has one value has no other quantile."""
    frame = quantiles(opened(), "rate", [0.25, 0.5, 0.75], epsilon=SURE).frame
    assert frame["value"].tolist() == pytest.approx(exact_quantiles(DATA.rate, [0.25, 0.5, 0.75]), abs=1 / 4096)
    assert quantiles(opened(), "once", [0.5], epsilon=1).frame["value"].tolist() == [7]


def test_a_group_without_rows_has_quantiles_within_bounds() -> None:
    data = DATA[DATA.sex == "F"]
    with simulated(SCHEMA, rows=len(data), epsilon=SURE, data=data) as handle:
        frame = quantiles(handle, "age", by="sex", epsilon=1).frame
    empty = frame[frame.sex == "M"]
    assert empty["value"].between(0, 100).all()
    assert (empty["low"] <= empty["value"]).all()
    assert (empty["value"] <= empty["high"]).all()
    assert (empty["high"] - empty["low"]).max() > 10  # noise alone says little


def test_quantiles_are_values_that_many_rows_share() -> None:
    """Where rows lie on few multiples of ten, in all but 2 of 60 runs at epsilon 0.2."""
    schema = Schema(columns={"load": Numeric(lower=0, upper=1000, integer=True)}, max_rows=ROWS)
    data = pd.DataFrame({"load": 10 * np.random.default_rng(3).binomial(12, 0.5, ROWS)})
    handle = simulated(schema, rows=ROWS, epsilon=100, data=data)
    exact = exact_quantiles(data.load, [0.25, 0.5, 0.75])
    runs = [quantiles(handle, "load", epsilon="0.2").frame for _ in range(20)]
    assert np.mean([np.abs(run["value"] - exact) for run in runs]) < 60 / 60
    assert np.mean([(run["low"] <= exact) & (exact <= run["high"]) for run in runs]) > 0.95


def test_intervals_of_quantiles_hold() -> None:
    """In nearly all of 15 runs at a small epsilon, each of three quartiles of two groups."""
    exact = [exact_quantiles(DATA[DATA.sex == sex].age, [0.25, 0.5, 0.75]) for sex in ("F", "M")]
    handle, held = opened(), []
    for _ in range(15):
        frame = quantiles(handle, "age", by="sex", epsilon="0.3").frame
        held.append((frame["low"] <= np.ravel(exact)) & (np.ravel(exact) <= frame["high"]))
    assert np.mean(held) > 0.95


def test_spreads_and_means_are_close_without_noise() -> None:
    frame = grouped(opened(), "sex", {"age": ["mean", "std", "count", "median", "sum"]}, epsilon=SURE).wide()
    exact = DATA.groupby("sex").age.agg(["mean", "std", "count", "median", "sum"])
    for name in exact.columns:
        assert frame[name].to_numpy() == pytest.approx(exact[name].to_numpy(), rel=2e-3)
    fine = variance(opened(), "rate", epsilon=SURE).frame
    assert fine["value"].iloc[0] == pytest.approx(DATA.rate.var(), rel=5e-3)
    assert std(opened(), "once", epsilon=1).frame["value"].tolist() == [0]


def test_bins_of_a_variance_follow_public_facts_and_a_chosen_median() -> None:
    """Less epsilon or more groups, fewer bins; of a grid of few cells each is counted, without a choice."""

    def bins(column: str, **more: Any) -> list[tuple[str, int]]:
        return [(line.verb, line.parts) for line in variance.plan(opened(), column, **more).lines]

    (choice, fine), (_, coarse) = bins("rate", epsilon=5), bins("rate", epsilon=0.1)
    assert choice == ("exp_mech", 1)
    assert fine[1] > coarse[1]
    assert bins("age", epsilon=SURE) == [("noisy_count", 101)]
    assert [verb for verb, _ in bins("age", epsilon=SURE, by=["sex", "job"])] == ["noisy_count"]
    assert bins("once", epsilon=1) == []


def test_a_standard_deviation_is_exact_where_the_declared_range_is_wide() -> None:
    """Half of all draws are within 5 % at epsilon 0.5, for 4,000 rows on a thirtieth of the range; intervals hold."""
    schema = Schema(columns={"heat": Numeric(lower=-100, upper=200)}, max_rows=ROWS)
    data = pd.DataFrame({"heat": np.random.default_rng(2).normal(20, 2, ROWS)})
    handle = simulated(schema, rows=ROWS, epsilon=100, data=data)
    tables = [std(handle, "heat", epsilon="0.5").frame.iloc[0] for _ in range(40)]
    at_least(0.8, (abs(row["value"] - data.heat.std()) < 0.05 * data.heat.std() for row in tables))  # 95 of 100 are
    at_least(0.95, (row["low"] <= data.heat.std() <= row["high"] for row in tables))


def test_a_summary_describes_every_column() -> None:
    """Numbers by mean, spread and quartiles, categories by counts; missing values where the policy declares them."""
    frame = summary(opened(), epsilon=SURE).frame
    kinds = {column: group["statistic"].tolist() for column, group in frame.groupby("column", sort=False)}
    numbers = ["mean", "std", "25 %", "50 %", "75 %"]
    assert kinds == {
        "age": numbers,
        "rate": ["missing", *numbers],
        "once": numbers,
        "sex": ["count"] * 2,
        "job": ["count"] * 3 + ["missing"],
    }
    assert frame["value"].iloc[0] == ROWS
    assert frame[(frame.column == "rate") & (frame.statistic == "missing")]["value"].item() == DATA.rate.isna().sum()
    by = summary(opened(), ["age"], by="sex", epsilon=SURE).frame
    assert by[by.statistic == "count"]["value"].tolist() == DATA.sex.value_counts().sort_index().tolist()


def test_the_bound_of_a_sum_of_noises_holds() -> None:
    """For equal weights and unequal ones, at each level, and hardly more often than that."""
    random = np.random.default_rng(7)
    for weights in (np.ones(1), np.ones(12), np.r_[np.full(5, 0.25), np.full(30, -0.75)]):
        share = 1 - np.exp(-1 / 10)
        noise = random.geometric(share, (20_000, len(weights))) - random.geometric(share, (20_000, len(weights)))
        for level in (0.2, 0.5, 0.95):
            held = (np.abs(noise @ weights) <= half_width(weights, 10, level)).mean()
            assert level - 0.01 <= held < level + 0.05


def test_a_sum_far_from_its_half_width_needs_no_law() -> None:
    """Which sums are within their noise is what their half widths say, near and far."""
    random = np.random.default_rng(8)
    weights, times = random.random((200, 4)), random.integers(1, 30, (200, 4))
    for scale in (1e-3, 1.0, 50.0):
        half = half_width(weights, scale, 0.95, times=times)
        sums = half * random.choice([-9, 0, 0.999, 1, 1.001, 30, 90], 200)
        assert (within_noise(sums, weights, scale, 0.95, times) == (sums <= half)).all()


def test_specs_of_groups_may_be_named_or_written() -> None:
    named, written = (grouped(opened(), by, {"age": "count"}, epsilon=SURE).frame for by in ("sex", [Values("sex")]))
    pd.testing.assert_frame_equal(named, written)


def test_a_table_of_nothing_is_refused_and_a_statistic_is_asked_once() -> None:
    """What would be paid for and say nothing: no column, one column's correlation with itself, a statistic twice."""
    handle = opened()
    for ask, columns in ((summary, []), (correlation, []), (correlation, ["age"]), (correlation, ["sex"])):
        with pytest.raises(QueryError):
            ask(handle, columns, epsilon=0.1)
    assert not handle.budget.spent
    assert len(grouped(handle, None, {"age": ["mean", "mean"]}, epsilon=0.1)) == 1


def test_a_summary_speaks_of_variances_where_it_has_some() -> None:
    assert not any("variance" in note for note in summary(opened(), ["sex"], epsilon=1).notes)
    assert any("variance" in note for note in summary(opened(), ["sex", "age"], epsilon=1).notes)
