# SPDX-License-Identifier: Apache-2.0
"""What a request costs, how exact its answer says it is, and that it is."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pinq import (
    AbsoluteError,
    AnyCut,
    AnyGrouping,
    Balance,
    Calendar,
    ClassCount,
    Cuts,
    Gini,
    Groups,
    InfoGain,
    MaxClass,
    MutualInformation,
    QueryError,
    Schema,
    Shards,
    SquaredError,
    Values,
)
from pinq.curator.prepared import PreparedQuery
from pinq.curator.verbs import prepare
from pinq.engine import Moments
from pinq.language.parts import Block, Part, PartSet
from pinq.language.queries import MAX_NODES, MAX_SPECS, Query, Request, WireParts
from pinq.policy.policy import Policy
from tests.support.requests.handles import engine_over, ledger_of

SURE = 10**4  # at this epsilon noise is zero but for a chance of exp(-100), and the best candidate wins


def test_answers_are_right_where_noise_is_negligible(in_memory: Callable[..., Any], frame: pd.DataFrame) -> None:
    """Counts, sums and averages are those of the rows."""
    handle = in_memory(10**6)
    assert handle.noisy_count(epsilon=SURE) == 40
    assert handle.noisy_sum("age", epsilon=SURE) == frame.age.sum()
    assert handle.noisy_avg("age", epsilon=SURE) == pytest.approx(frame.age.mean(), abs=1e-9)
    by_sex = handle.partition(Values("sex"))
    assert by_sex.noisy_sum("age", epsilon=SURE).tolist() == [
        frame.age[frame.sex == sex].sum() for sex in ("Female", "Male")
    ]
    table = handle.partition(Values("job"), Cuts("age", (30, 60))).noisy_count(epsilon=SURE)
    want = [
        [
            ((frame.job == job if job else frame.job.isna()) & (frame.age >= low) & (frame.age < high)).sum()
            for low, high in ((0, 30), (30, 60), (60, 100))
        ]
        for job in ("clerk", "nurse", "smith", None)
    ]
    assert table.tolist() == want


@pytest.mark.parametrize(
    ("column", "values", "total", "grid"),
    [
        ({"lower": 0, "upper": 99, "integer": True}, [0, 5, 99, 120], 203, 1.0),
        ({"lower": -50, "upper": -10, "integer": True}, [-50, -10, 3, -60], -120, 1.0),
        ({"lower": 0, "upper": 1, "step": "0.25"}, [0, 0.3, 1], 0.125 + 0.375 + 0.875, 0.125),
        ({"lower": 10, "upper": 100, "integer": True, "step": 10}, [10, 19, 100], 14.5 + 14.5 + 104.5, 0.5),
        ({"lower": 10**12, "upper": 10**12 + 5, "integer": True}, [10**12, 10**12 + 3], 2 * 10**12 + 3, 1.0),
        ({"lower": 7, "upper": 7, "integer": True}, [7, 9], 14, 1.0),
        ({"lower": 0, "upper": 0, "integer": True}, [0, 9], 0, 1.0),
    ],
    ids=str,
)
def test_sums_of_any_grid(
    column: dict[str, Any],
    values: list[float],
    total: float,
    grid: float,
    in_memory: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each cell stands for its only whole number or its middle, exactly, in the largest unit that fits all."""
    policy = Policy(dataset="grid", cap=1, max_rows=9, columns={"x": {"type": "numeric"} | column})
    monkeypatch.setattr("pinq.curator.prepared.laplace", lambda exact, *_: exact)
    answer = in_memory(1, policy=policy, data=pd.DataFrame({"x": values}))._session.ask(
        Request(id="x", verb="noisy_sum", epsilon="1", column="x")
    )
    assert answer.values == (pytest.approx(total, abs=1e-9),)
    assert answer.grid == grid


def test_a_weekday_is_cut_between_its_first_date_and_its_last(in_memory: Callable[..., Any]) -> None:
    """The dates of a weekday are no interval: a cut may lie anywhere between the first and the last of them."""
    columns = {
        "day": {"type": "date", "lower": "2024-01-01", "upper": "2024-01-28", "nullable": True},
        "ill": {"type": "categorical", "values": ["no", "yes"]},
    }
    dates = pd.date_range("2024-01-01", "2024-01-28")
    frame = pd.DataFrame({"day": dates, "ill": np.where(dates < pd.Timestamp("2024-01-15"), "no", "yes")})
    handle = in_memory(10**6, policy=Policy(dataset="days", cap=1, max_rows=99, columns=columns), data=frame)
    cuts = handle.partition(Calendar("day", "weekday")).exp_mech([AnyCut("day")], score=MaxClass("ill"), epsilon=SURE)
    assert [(cut.points[0] > f"2024-01-{8 + day:02}") for day, cut in enumerate(cuts[:7])] == [True] * 7
    assert [(cut.points[0] <= f"2024-01-{15 + day:02}") for day, cut in enumerate(cuts[:7])] == [True] * 7
    assert cuts[7] is None  # dates that are missing cannot be cut


def test_averages_stay_within_the_bounds(in_memory: Callable[..., Any]) -> None:
    """However much noise there is; an empty part answers too, and missing values do not count."""
    policy = Policy(
        dataset="avg",
        cap=1,
        max_rows=9,
        columns={
            "x": {"type": "numeric", "lower": -3, "upper": 5, "integer": True, "nullable": True},
            "s": {"type": "categorical", "values": ["f", "m"]},
        },
    )
    handle = in_memory(10**6, policy=policy, data=pd.DataFrame({"x": [5, 5, math.nan], "s": "f"}))
    assert handle.noisy_avg("x", epsilon=SURE) == 5
    answers = [handle.partition(Values("s")).noisy_avg("x", epsilon=0.01) for _ in range(200)]
    assert np.min(answers) >= -3
    assert np.max(answers) <= 5
    assert handle.partition(Values("s"))["m"].noisy_avg("x", epsilon=SURE) == 1


def test_an_average_of_a_range_is_of_clamped_values_and_has_its_noise(in_memory: Callable[..., Any]) -> None:
    """Values outside count as the ends; noise, intervals and the log follow the range; a wrong range costs nothing."""
    columns = {
        "x": {"type": "numeric", "lower": 0, "upper": 100_000, "integer": True, "nullable": True},
        "d": {"type": "date", "lower": "2000-01-01", "upper": "2030-12-31"},
    }
    policy = Policy(dataset="p", cap=10**6, max_rows=10, columns=columns)
    data = pd.DataFrame({"x": [-5, 10, 50, 70_000, None], "d": ["2001-01-01", *["2010-06-10"] * 4]})
    handle = in_memory(10**6, policy=policy, data=data)
    assert handle.noisy_avg("x", within=(20, 60), epsilon=SURE) == (20 + 20 + 50 + 60) / 4
    assert str(handle.noisy_avg("d", within=("2010-06-01", "2010-06-11"), epsilon=SURE)) == "2010-06-08"
    wide, close = (handle.preview("noisy_avg", "x", within=within, epsilon=1).error for within in (None, (20, 60)))
    assert "about 10,000 to 14,100 over 10 rows" in wide
    assert "about 4 to 5.66 over 10 rows" in close
    narrow = handle.noisy_avg("x", within=(20, 60), epsilon=1)
    assert narrow.interval(0.95)[0] >= 20
    assert narrow.interval(0.95)[1] <= 60
    assert "noisy_avg of x from 20.0 to 60.0 on the whole table" in set(handle.history()["asked"])
    spent = handle.budget.spent
    for within in ((60, 20), (20, 20), (-1, 20), (20, 100_001), (20,), ("a", 4), (0, math.nan), 5):
        with pytest.raises(QueryError):
            handle.noisy_avg("x", within=within, epsilon=1)
    assert handle.budget.spent == spent


def test_the_best_candidate_wins_where_noise_is_negligible(in_memory: Callable[..., Any]) -> None:
    """Each score, families, mixed lists, and a list for each part."""
    rows = [(sex, job, age) for sex in "fm" for job in "abc" for age in range(0, 40, 3)]
    frame = pd.DataFrame(rows, columns=["sex", "job", "age"])
    frame["income"] = np.where(
        frame.sex == "f", np.where(frame.age < 20, "low", "high"), np.where(frame.job == "b", "low", "high")
    )
    columns = {
        "sex": {"type": "categorical", "values": ["f", "m"]},
        "job": {"type": "categorical", "values": ["a", "b", "c"]},
        "age": {"type": "numeric", "lower": 0, "upper": 39, "integer": True},
        "income": {"type": "categorical", "values": ["low", "high"]},
    }
    handle = in_memory(10**6, policy=Policy(dataset="best", cap=1, max_rows=200, columns=columns), data=frame)
    by_sex = handle.partition(Values("sex"))
    for score in (InfoGain("income"), Gini("income"), MaxClass("income"), MutualInformation("income")):
        cut, group = by_sex.exp_mech([AnyCut("age"), AnyGrouping("job"), Values("job")], score=score, epsilon=SURE)
        assert cut == Cuts("age", (20.0,)) or 19 <= cut.points[0] <= 21
        assert isinstance(group, (Groups, Values))
        assert group.column == "job"
        assert by_sex.exp_mech(
            [[Values("job"), AnyCut("age")], [Cuts("age", (20,)), Values("job")]], score=score, epsilon=SURE
        )[1] == Values("job")
    assert handle.exp_mech(score=ClassCount("income"), epsilon=SURE) == frame.income.mode()[0]
    assert by_sex.exp_mech(score=ClassCount("sex"), epsilon=SURE) == ["f", "m"]
    median = handle.exp_mech([AnyCut("age")], score=Balance(), epsilon=SURE)
    assert abs((frame.age < median.points[0]).mean() - 0.5) < 0.05
    squared = handle.exp_mech(
        [Values("sex"), Values("job"), (Values("sex"), Values("income"))], score=SquaredError("age"), epsilon=SURE
    )
    assert squared.kind == "cross"


def test_a_part_with_nothing_to_choose_gets_none(in_memory: Callable[..., Any]) -> None:
    """Where the splits above leave a single cell there is no cut; the other parts choose as ever."""
    handle = in_memory(10**6)
    parts = handle.partition(Cuts("age", (1, 50)))
    chosen = parts.exp_mech([AnyCut("age")], score=Gini("income"), epsilon=1)
    assert chosen[0] is None
    assert 1 < chosen[1].points[0] < 50 < chosen[2].points[0]
    assert handle.budget.spent == 1


def test_a_member_of_each_candidate_is_chosen_on_demand(in_memory: Callable[..., Any], frame: pd.DataFrame) -> None:
    """One request, one epsilon that they share, a list of choices for each part as long as the longest list; None where there is nothing to choose."""
    handle = in_memory(10**6)
    before = handle.budget.spent
    cut, group = handle.exp_mech([AnyCut("age"), AnyGrouping("job")], score=Balance(), epsilon=SURE, each=True)
    assert abs((frame.age < cut.points[0]).mean() - 0.5) < 0.05
    assert abs(frame.job.isin(group.groups[0]).mean() - 0.5) < 0.35
    assert handle.budget.spent - before == SURE
    parts = handle.partition(Cuts("age", (1, 50)))
    chosen = parts.exp_mech(
        [[AnyCut("age"), AnyGrouping("job")], [AnyCut("age")], [AnyGrouping("job")]],
        score=Balance(),
        epsilon=10,
        each=True,
    )
    assert [[spec and spec.column for spec in listed] for listed in chosen] == [
        [None, "job"],
        ["age", None],
        ["job", None],
    ]
    assert len(handle.history()) == 2
    assert "exp_mech from each by balance" in handle.history().asked[0]
    alone, shared = (
        handle.preview("exp_mech", [AnyCut("age"), AnyGrouping("job")], score=Balance(), epsilon=1, each=each).error
        for each in (False, True)
    )
    assert alone != shared
    with pytest.raises(QueryError, match=r"makes 2,400,000 numbers; at most 1,048,576"):
        handle.partition(Shards(40_000)).exp_mech(
            [AnyGrouping("job", seed=seed) for seed in range(60)], score=Balance(), epsilon=1, each=True
        )
    with pytest.raises(QueryError, match="takes no `each`"):
        handle.exp_mech(score=ClassCount("income"), epsilon=1, each=True)


@pytest.mark.parametrize(
    "score", [Gini("income"), Balance(), SquaredError("age"), AbsoluteError("age")], ids=lambda score: score.kind
)
def test_many_splits_of_a_column_share_a_table(
    score: Any, in_memory: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A level of a forest offers each node other cuts; the choice is the same as from a table for each, on coarse columns and on fine ones."""
    columns = {
        "coarse": {"type": "numeric", "lower": 0, "upper": 99, "integer": True, "nullable": True},
        "fine": {"type": "numeric", "lower": 0, "upper": 1},
        "age": {"type": "numeric", "lower": 0, "upper": 9, "integer": True},
        "job": {"type": "categorical", "values": list("abcdef")},
        "side": {"type": "categorical", "values": ["l", "r"]},
        "income": {"type": "categorical", "values": ["low", "high"]},
    }
    random = np.random.default_rng(3)
    rows = pd.DataFrame(
        {
            "coarse": random.integers(0, 100, 400).astype(float),
            "fine": random.random(400),
            "job": random.choice(list("abcdef"), 400),
            "side": random.choice(["l", "r"], 400),
        }
    )
    rows["age"], rows["income"] = (10 * rows.fine).astype(int), np.where(rows.fine > 0.4, "high", "low")
    rows.loc[:30, "coarse"] = np.nan
    handle = in_memory(10**6, policy=Policy(dataset="shared", cap=10**6, max_rows=500, columns=columns), data=rows)
    parts = handle.partition(Values("side"))
    lists = [
        [
            *(Cuts("coarse", (cut,)) for cut in range(first, 100, 9)),
            *(Cuts("fine", (cut / 10,)) for cut in range(1, 10)),
            Groups("job", (("a",), ("b", "c", "d"))),
            Groups("job", (("a", "b"), ("c",))),
        ]
        for first in (1, 5)
    ]
    chosen = parts.exp_mech(lists, score=score, epsilon=SURE)
    monkeypatch.setattr("pinq.curator.candidates.scorer.FEW_SPLITS", 1000)
    assert parts.exp_mech(lists, score=score, epsilon=SURE) == chosen


def test_previews_are_free_and_right(in_memory: Callable[..., Any]) -> None:
    """The cost is what asking would add, now; the scale is the answer's; nothing is logged."""
    handle = in_memory(1)
    before = ledger_of(handle).verify()
    preview = handle.preview("noisy_count", epsilon=0.25)
    assert (preview.cost, preview.remaining, preview.scale) == (Fraction(1, 4), Fraction(3, 4), 4.0)
    assert (
        repr(preview)
        == "Preview: costs epsilon 0.25 (0.75 would remain); each count is within ±12 of the truth in 95 % of cases"
    )
    assert "refused: 0.5 more than remains" in repr(handle.preview("noisy_sum", "age", epsilon=1.5))
    women, men = handle.partition(Values("sex"))
    women.noisy_count(epsilon=0.25)
    assert men.preview("noisy_avg", "age", epsilon=0.25).cost == 0
    assert men.preview("exp_mech", [Values("job")], score=Gini("income"), epsilon=0.5).cost == Fraction(1, 4)
    assert ledger_of(handle).verify() == before + 2
    with pytest.raises(QueryError, match="there is no verb 'count'"):
        handle.preview("count", epsilon=1)


def test_a_query_is_prepared_once_for_its_preview_and_its_answer(
    in_memory: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second answer and another loss are prepared anew; each answer is charged."""
    handle, splits, prepared = in_memory(10), [Values("job"), AnyGrouping("job")], list[Query]()

    def preparing(query: Query, parts: PartSet, schema: Schema) -> PreparedQuery:
        prepared.append(query)
        return prepare(query, parts, schema)

    handle.exp_mech(splits, score=Gini("income"), epsilon=1)  # its kind is rehearsed once
    monkeypatch.setattr("pinq.curator.monitor.prepare", preparing)
    handle.preview("exp_mech", splits, score=Gini("income"), epsilon=1)
    assert len(prepared) == 1
    handle.noisy_count(epsilon=1)
    counted = len(prepared)
    handle.exp_mech(splits, score=Gini("income"), epsilon=1)
    assert len(prepared) == counted
    handle.exp_mech(splits, score=Gini("income"), epsilon=1)
    handle.preview("exp_mech", splits, score=Gini("income"), epsilon=1)
    handle.exp_mech(splits, score=Gini("income"), epsilon="0.999999999")
    assert len(prepared) == counted + 3
    assert handle.budget.spent == Fraction("4.999999999")


def test_intervals_that_previews_promise_hold(in_memory: Callable[..., Any]) -> None:
    """95 % of counts lie in the stated interval: of 2,000, at least 93 % and not all."""
    handle = in_memory(10**6)
    parts = handle.partition(Shards(50_000, key=5))[list(range(2000))]
    answers = parts.noisy_count(epsilon=0.1) - handle.partition(Shards(50_000, key=5))[list(range(2000))].noisy_count(
        epsilon=SURE
    )
    within = int(repr(parts.preview("noisy_count", epsilon=0.1)).split("±")[1].split(" ")[0])
    assert 0.93 < np.mean(np.abs(answers) <= within) < 0.98


FORGED: dict[str, dict[str, Any]] = {
    "a part that is not there": {"specs": (Values("sex"),), "nodes": ((0, 0, 2),), "asked": ((1, -1),)},
    "a negative part": {"specs": (Values("sex"),), "nodes": ((0, 0, -1),), "asked": ((1, -1),)},
    "a child before its parent": {"specs": (Values("sex"),), "nodes": ((1, 0, 0),), "asked": ((1, -1),)},
    "a spec that is not there": {"specs": (), "nodes": (), "asked": ((0, 0),)},
    "a node that is not there": {"specs": (), "nodes": (), "asked": ((3, -1),)},
    "a shape that does not fit": {"specs": (Values("sex"),), "nodes": (), "asked": ((0, 0),), "shape": (3,)},
    "a negative shape": {"specs": (Values("sex"),), "nodes": (), "asked": ((0, 0),), "shape": (-1, -2)},
    "the whole table twice": {"specs": (), "nodes": (), "asked": ((0, -1), (0, -1)), "shape": (2,)},
    "overlapping splits": {
        "specs": (Values("sex"), Values("job")),
        "nodes": (),
        "asked": ((0, 0), (0, 1)),
        "shape": (6,),
    },
    "a part and all parts": {
        "specs": (Values("sex"),),
        "nodes": ((0, 0, 0),),
        "asked": ((1, -1), (0, 0)),
        "shape": (3,),
    },
    "an unknown column": {"specs": (Values("salary"),), "nodes": (), "asked": ((0, 0),), "shape": (2,)},
    "too deep": {"specs": (Values("sex"),), "nodes": tuple((i, 0, 0) for i in range(65)), "asked": ((65, -1),)},
    "no parts": {"specs": (), "nodes": (), "asked": (), "shape": (0,)},
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_parts_are_refused(case: str, in_memory: Callable[..., Any]) -> None:
    """What an analyst's program could send instead of what the handle sends: an error, and nothing was spent."""
    handle = in_memory(1)
    with pytest.raises(QueryError, match="Nothing was spent"):
        handle._session.ask(Request(id="f", verb="noisy_count", epsilon="0.1", parts=WireParts(**FORGED[case])))
    assert handle.budget.spent == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"verb": "noisy_count", "which": (0,) * 2},
        {"verb": "noisy_sum"},
        {"verb": "noisy_sum", "column": "sex"},
        {"verb": "exp_mech"},
        {"verb": "exp_mech", "score": Gini("income")},
        {"verb": "exp_mech", "score": Gini("income"), "candidates": ((Values("sex"),),), "which": (1,)},
        {"verb": "exp_mech", "score": Gini("income"), "candidates": ((Values("sex"),),), "which": (0, 0)},
        {"verb": "exp_mech", "score": Gini("income"), "candidates": ((Values("sex"),), ()), "which": (0,)},
        {
            "verb": "exp_mech",
            "score": Gini("income"),
            "candidates": ((Values("sex"),), (Values("job"), AnyCut("age"))),
            "which": (0,),
            "each": True,
        },
    ],
    ids=str,
)
def test_forged_requests_are_refused(fields: dict[str, Any], in_memory: Callable[..., Any]) -> None:
    """A verb without what it needs, or with lists that do not fit its parts."""
    handle = in_memory(1)
    with pytest.raises(QueryError, match="Nothing was spent"):
        handle._session.ask(Request(id="f", epsilon="0.1", **fields))
    assert handle.budget.spent == 0


def test_tables_that_would_not_fit_in_memory_are_refused_first(in_memory: Callable[..., Any]) -> None:
    """The engine keeps one more place along each axis, and that is what is counted: twenty binary columns are 3^20 cells."""
    columns = {f"b{i}": {"type": "categorical", "values": ["0", "1"]} for i in range(21)}
    frame = pd.DataFrame({name: ["0"] for name in columns})
    handle = in_memory(1, policy=Policy(dataset="cells", cap=1, max_rows=9, columns=columns), data=frame)
    with pytest.raises(QueryError, match=r"needs tables of [\d,]+ cells; at most 67,108,864 are possible"):
        handle.exp_mech([tuple(Values(f"b{i}") for i in range(20))], score=Gini("b20"), epsilon=0.1)
    assert handle.budget.spent == 0


def test_sums_that_could_overflow_are_refused_first(in_memory: Callable[..., Any]) -> None:
    """By the declared bounds, not by the rows."""
    policy = Policy(
        dataset="big",
        cap=1,
        max_rows=2**33,
        columns={"x": {"type": "numeric", "lower": 10**12, "upper": 10**12 + 9, "integer": True}},
    )
    handle = in_memory(1, policy=policy, data=pd.DataFrame({"x": [10**12]}))
    with pytest.raises(QueryError, match=r"sums of `x` could pass 2\^62"):
        handle.noisy_sum("x", epsilon=0.1)
    assert handle.noisy_avg("x", epsilon=0.1) >= 10**12
    assert handle.budget.spent == Fraction(1, 10)


FINE = {"type": "numeric", "lower": "0.123456789", "upper": "16000000.123456789", "step": 1}
"""1.6e16 units of 1e-9 a row: 64 bits hold 576 rows of them."""


@pytest.mark.parametrize(
    ("rows", "total"),
    [
        (287, 287 * 15999999.623456789),
        (288, 288 * 15999999.623456789),
        (576, 2**62 / 1e9),
        (577, 2**62 / 1e9),
        (2000, 2**62 / 1e9),
    ],
)
@pytest.mark.parametrize("negative", [False, True])
def test_sums_beyond_the_cap_stay_exact_or_stop_at_a_public_bound(
    rows: int, total: float, negative: bool, in_memory: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table with more rows than the policy says: its sums are exact up to 2^62 units and stop there; they never wrap around."""
    monkeypatch.setattr("pinq.curator.prepared.laplace", lambda exact, *_: exact)
    column = (
        {"type": "numeric", "lower": "-16000000.123456789", "upper": "-0.123456789", "step": 1} if negative else FINE
    )
    handle = in_memory(
        1,
        policy=Policy(dataset="cap", cap=1, max_rows=287, columns={"x": column}),
        data=pd.DataFrame({"x": [-1.6e7 if negative else 1.6e7] * rows}),
    )
    assert handle.noisy_sum("x", epsilon="0.1") == pytest.approx(-total if negative else total, rel=1e-6)


def test_sums_of_the_engine_stop_where_64_bits_end(tiny_policy: Policy) -> None:
    """No table makes an error: sums of squares that 64 bits do not hold stop at 2^62, all others are exact."""
    columns = {"x": {"type": "numeric", "lower": 0, "upper": 2**24 - 1, "integer": True}}
    top, rows = 2**24 - 1, 2**16
    engine = engine_over(
        tiny_policy.model_copy(update={"columns": columns}), data=pd.DataFrame({"x": np.full(rows, top)}), salt=b""
    )
    whole = PartSet([Block(Part())])
    assert engine.tabulate(whole, measure=Moments("x", squares=True))[0].tolist() == [[rows, rows * top, 2**62]]
    assert engine.tabulate(whole, measure=Moments("x", 14, squares=True))[0].tolist() == [
        [rows, rows * (top >> 14), rows * (top >> 14) ** 2]
    ]
    engine.close()


@pytest.mark.parametrize("verb", ["noisy_sum", "noisy_avg"])
def test_the_largest_bounds_answer_whatever_the_noise(verb: str, in_memory: Callable[..., Any]) -> None:
    """At the smallest epsilon and the largest bounds that a policy can have, an answer is a number, and so are its scale and interval."""
    columns = {"x": {"type": "numeric", "lower": "-9.9e99", "upper": "9.9e99", "nullable": True}}
    unit = {"column": "who", "max_rows": 10**6}
    policy = Policy(dataset="large", cap=1, max_rows=10, adjacency="substitute", privacy_unit=unit, columns=columns)
    handle = in_memory(1, policy=policy, data=pd.DataFrame({"x": [9.9e99, None], "who": ["a", "b"]}))
    for number in range(40):
        answer = getattr(handle.partition(Shards(2, key=number)), verb)("x", epsilon="1e-9")
        assert np.isfinite(answer).all()
        assert np.isfinite(handle.preview(verb, "x", epsilon="1e-9").scale or 0)
    assert len(handle.history()) == 40


def test_requests_have_a_largest_size(in_memory: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A level of ten thousands of nodes passes the wire; one beyond the bounds is refused by the handle, and from a forger as no request."""
    handle = in_memory(SURE)
    level = handle.partition(Shards(30_000, key=5)).partition(Values("sex"))
    text = Request(id="r", verb="noisy_count", epsilon="0.1", parts=WireParts.of(level._parts)).to_json()
    assert len(Request.received(text).parts.bind(handle.schema)) == 60_000
    for field, item, most in (
        ("nodes", (0, 0, 0), MAX_NODES),
        ("asked", (0, -1), MAX_NODES),
        ("specs", {"kind": "values", "column": "sex"}, MAX_SPECS),
    ):
        Request.received(
            json.dumps({"id": "r", "verb": "noisy_count", "epsilon": "0.1", "parts": {field: [item] * most}})
        )
        with pytest.raises(QueryError, match=r"at most .* are possible"):
            Request.received(
                json.dumps({"id": "r", "verb": "noisy_count", "epsilon": "0.1", "parts": {field: [item] * (most + 1)}})
            )
    monkeypatch.setattr("pinq.language.queries.MAX_NODES", 29_999)
    with pytest.raises(QueryError, match=r"names more than 29,999 parts one by one.*Nothing was spent"):
        level.noisy_count(epsilon=1)
    monkeypatch.setattr("pinq.language.queries.MAX_SPECS", 0)
    with pytest.raises(QueryError, match="splits by 1 different specs; at most 0"):
        handle.partition(Values("sex")).noisy_count(epsilon=1)
