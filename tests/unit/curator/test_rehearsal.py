# SPDX-License-Identifier: Apache-2.0
"""What fails on rows fails on dummy rows first: refused, uncharged, whatever the table is."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest

from pinq import AnyCut, Calendar, ClassCount, Cuts, EnoughRows, InternalError, Logistic, MaxClass, Points, Values
from pinq.analyst.queryable import PrivateQueryable
from pinq.curator.deadline import Deadline, Stopped
from pinq.curator.monitor import Rehearsals, passed_under
from pinq.engine import rows
from pinq.engine.rehearsal import DummyEngine
from pinq.engine.rows import CodeTable, Descent
from pinq.language.queries import Request
from pinq.policy.policy import Policy
from pinq.public.schema import Schema
from tests.support.requests.fault_checks import unspent
from tests.support.requests.handles import ledger_of

COLUMNS: dict[str, Any] = {
    "admitted": {"type": "datetime", "lower": "2024-01-01", "upper": "2024-12-31 23:59", "step": 60},
    "sex": {"type": "categorical", "values": ["f", "m"]},
    "age": {"type": "numeric", "lower": 0, "upper": 99, "integer": True},
}
YEAR = Calendar("admitted", "year")
Opened = Callable[[int], PrivateQueryable]


@pytest.fixture
def opened(in_memory: Callable[..., Any]) -> Opened:
    """A handle on so many rows; all are women of 40."""

    def open_rows(count: int) -> PrivateQueryable:
        policy = Policy(dataset="visits", cap=10, max_rows=1000, columns=COLUMNS)
        admitted = pd.to_datetime(["2024-03-01 10:00"] * count)
        data = pd.DataFrame({"admitted": admitted, "sex": ["f"] * count, "age": [40] * count})
        handle: PrivateQueryable = in_memory(1, policy=policy, data=data)
        return handle

    return open_rows


QUERIES: dict[str, Callable[[PrivateQueryable], object]] = {
    "count": lambda handle: handle.partition(YEAR).partition(Values("sex")).noisy_count(epsilon="0.1"),
    "sum": lambda handle: handle.partition(YEAR, Values("sex")).noisy_sum("age", epsilon="0.1"),
    "average": lambda handle: handle.partition(YEAR, Values("sex")).noisy_avg("age", epsilon="0.1"),
    "points": lambda handle: handle.noisy_sum(
        Logistic("sex", ("f",), Points((YEAR,), ((5,),))), by=[YEAR], epsilon="0.1"
    ),
    "choose": lambda handle: handle.exp_mech([YEAR, AnyCut("admitted")], score=MaxClass("sex"), epsilon="0.1"),
    "vote": lambda handle: handle.partition(YEAR, Values("sex")).exp_mech(score=ClassCount("sex"), epsilon="0.1"),
    "stop": lambda handle: (
        handle.partition(YEAR).partition(Values("sex")).exp_mech(score=EnoughRows(10), epsilon="0.1")
    ),
}


@pytest.mark.parametrize("count", [0, 1, 50])
@pytest.mark.parametrize("question", QUERIES)
def test_a_calendar_of_one_period_has_one_part_with_all_rows(question: str, count: int, opened: Opened) -> None:
    """Every question by it is answered, and by month too."""
    handle = opened(count)
    QUERIES[question](handle)
    assert handle.budget.spent > 0
    counts = opened(count).partition(YEAR).noisy_count(epsilon="0.9")
    assert counts.shape == (1,)
    assert abs(int(counts[0]) - count) < 40


@pytest.mark.parametrize("count", [0, 1, 50])
@pytest.mark.parametrize("question", QUERIES)
def test_a_look_up_that_fails_where_a_row_comes_is_refused(
    question: str, count: int, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault that a Calendar of one period had once: uncharged, and alike for any table."""

    def failing(table: CodeTable, codes: np.ndarray) -> np.ndarray:
        if table.table is not None and len(table.table) == 1 and len(codes):
            raise IndexError("tuple index out of range")
        return right(table, codes)

    right = CodeTable.__call__
    monkeypatch.setattr(rows.CodeTable, "__call__", failing)
    handle = opened(count)
    with pytest.raises(InternalError, match=r"failed on dummy rows.*Please report it: .*Nothing was spent\.$"):
        QUERIES[question](handle)
    unspent(handle)


@pytest.mark.parametrize("count", [0, 50])
@pytest.mark.parametrize(
    ("fault", "question"),
    [
        ("pinq.language.scores.MaxClass.of", "choose"),
        ("pinq.curator.mechanisms._flip", "vote"),
        ("pinq.curator.mechanisms._laplace", "average"),
        ("pinq.curator.verbs.splits_kept", "stop"),
    ],
)
def test_scores_choices_and_noise_are_rehearsed(
    fault: str, question: str, count: int, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault in what makes an answer of tables is found before the charge too."""

    def failing(*_: object) -> None:
        raise OverflowError

    monkeypatch.setattr(fault, failing)
    handle = opened(count)
    with pytest.raises(InternalError):
        QUERIES[question](handle)
    unspent(handle)


def test_a_kind_is_rehearsed_once(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other parts of the same splits, and other losses of about the same size, are of the same kind."""
    made = list[bool]()

    def noted(schema: Schema, *, filled: bool) -> DummyEngine:
        made.append(filled)
        return DummyEngine(schema, filled=filled)

    monkeypatch.setattr("pinq.curator.monitor.DummyEngine", noted)
    handle = opened(50)
    for low in (20, 30, 31):
        for sex in ("f", "m"):
            part = handle.partition(Values("sex"))[sex].partition(Cuts("age", (low,)))[1]
            part.noisy_count(epsilon="0.01")
    answer, way = [False, True], [True, True]
    assert made == answer + way
    handle.partition(Values("sex")).partition(Cuts("age", (50, 60, 70, 80))).noisy_count(epsilon="0.01")
    assert made == answer + way + way
    opened(0).noisy_count(epsilon="0.02")
    assert made == answer + way + way


def test_a_way_to_parts_is_rehearsed_where_the_question_passed(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """A count of the whole table passed; the count of one part looks rows up in another way."""
    handle = opened(50)
    handle.noisy_count(epsilon="0.1")
    right = Descent.down

    def failing(descent: Descent, located: rows.Rows) -> np.ndarray:
        if len(located.node):
            raise IndexError
        return right(descent, located)

    monkeypatch.setattr(rows.Descent, "down", failing)
    with pytest.raises(InternalError):
        handle.partition(Values("sex"))["f"].noisy_count(epsilon="0.1")
    assert handle.budget.spent == Fraction(1, 10)


@pytest.mark.parametrize("count", [0, 1, 50])
def test_partitions_side_by_side_are_rehearsed_where_one_passed(
    count: int, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many parts of one partition passed; of several, rows are looked up in that of their node."""
    handle = opened(count)
    by_sex: Any = handle.partition(Values("sex"))
    by_sex.partition(Cuts("age", (30,))).noisy_count(epsilon="0.1")
    right = rows._PartitionLookup.parts

    def failing(lookup: rows._PartitionLookup, located: rows.Rows, *where: Any) -> np.ndarray:
        if len(located.node) and lookup.offset.shape[1] > 1:
            raise IndexError
        return right(lookup, located, *where)

    monkeypatch.setattr(rows._PartitionLookup, "parts", failing)
    with pytest.raises(InternalError):
        by_sex.partition([Cuts("age", (30,)), Cuts("age", (60,))]).noisy_count(epsilon="0.1")
    assert handle.budget.spent == Fraction(1, 10)


def test_a_rehearsal_ends_with_its_turn(opened: Opened) -> None:
    """A turn that is over charges nothing."""
    handle = opened(50)
    curator: Any = handle._session._curator  # type: ignore[attr-defined]
    request = Request(id="x", verb="noisy_count", epsilon="0.1")
    with pytest.raises(Stopped):
        curator.ask("ana", request, Deadline(seconds=-1))
    unspent(handle)


def test_an_answer_that_is_there_is_given_whatever_a_rehearsal_says(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paid for."""
    handle = opened(50)
    curator: Any = handle._session._curator  # type: ignore[attr-defined]
    request = Request(id="x", verb="noisy_count", epsilon="0.1")
    answer = curator.ask("ana", request)
    passed_under.cache_clear()
    monkeypatch.setattr(curator, "_rehearsals", Rehearsals(curator.schema))
    monkeypatch.setattr("pinq.curator.mechanisms._laplace", None)
    assert curator.ask("ana", request) == answer
    assert [event.kind for event in ledger_of(handle).log.events()].count("charge") == 1


def test_every_list_of_candidates_is_rehearsed(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of parts that choose from lists of their own, each kind of candidate is among those rehearsed."""
    monkeypatch.setattr("pinq.curator.candidates.scorer.AnyCutScorer.runs", None)
    parts = opened(50).partition(Cuts("age", tuple(range(10, 90))))
    lists: list[list[Any]] = [[Cuts("age", (50,))] for _ in range(len(parts))]
    lists[17] = [AnyCut("admitted")]
    with pytest.raises(InternalError):
        parts.exp_mech(lists, score=MaxClass("sex"), epsilon="0.1")
