# SPDX-License-Identifier: Apache-2.0
"""Answers as numbers: what they carry, what becomes of them, and that their intervals hold what they claim."""

from __future__ import annotations

import inspect
import json
import pickle
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from fractions import Fraction
from operator import attrgetter, methodcaller
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

import pinq
from pinq import Parts, PrivateQueryable, QueryError, Values
from pinq.analyst.answers import NoisyArray, NoisyFloat, NoisyInt, noisy
from pinq.language.queries import Answer


def test_numbers_act_as_numbers(in_memory: Callable[..., Any]) -> None:
    """A count is an int and an average a float, in arithmetic, JSON, pickles and frames; what is computed from them is plain."""
    handle = in_memory(100)
    count: Any = handle.noisy_count(epsilon=1)
    assert issubclass(type(count), int)
    assert type(count + 1) is int
    assert json.loads(json.dumps(count)) == count
    assert pickle.loads(pickle.dumps(count)) == count
    assert (count.epsilon, count.scale) == (Fraction(1), 1.0)
    assert count.interval(0.95) == (count - 4, count + 4) or count.interval(0.95) == (count - 3, count + 3)
    assert [type(end) for end in count.interval(0.95)] == [int, int]
    average: Any = handle.noisy_avg("age", epsilon=1)
    assert issubclass(type(average), float)
    assert average.epsilon == 1
    assert average.scale > 0
    low, high = average.interval()
    assert 0 <= low <= average <= high <= 99
    assert type(low) is float
    total = handle.noisy_sum("age", epsilon=1)
    assert total.scale == 99
    assert total.interval(0.5)[0] < total < total.interval(0.99)[1]


def test_an_average_prints_with_its_interval(in_memory: Callable[..., Any]) -> None:
    """To two digits of its noise, so that a reader sees what is known; arithmetic gives plain numbers."""
    mean = in_memory(100).noisy_avg("age", epsilon=1)
    value, low, high = map(float, re.findall(r"-?[\d.]+", repr(mean)))
    assert low <= value <= high
    assert abs(value - float(mean)) < (high - low) / 20
    assert re.fullmatch(r"[\d.]+", repr(mean + 0))


def test_arithmetic_drops_the_interval(in_memory: Callable[..., Any]) -> None:
    """The result of a computation has other noise than its answers, so it is a plain number or date."""
    handle = in_memory(100)
    count, total, mean = (
        handle.noisy_count(epsilon=1),
        handle.noisy_sum("age", epsilon=1),
        handle.noisy_avg("age", epsilon=1),
    )
    for number in (count, total, mean):
        for result in (
            number + 1,
            1 - number,
            number * 2,
            number / 3,
            -number,
            abs(number),
            total / count,
            sum([number]),
        ):
            assert type(result) in (int, float)
            assert not hasattr(result, "interval")
    schema = pinq.Schema(
        columns={
            "born": pinq.Date.model_validate({"lower": "1950-01-01", "upper": "1999-12-31"}),
            "left": pinq.DateTime.model_validate({"lower": "2024-01-01", "upper": "2024-12-31 23:59"}),
        },
        max_rows=100,
    )
    with pinq.simulate(schema, epsilon=10) as dated:
        for name, plain in (("born", date), ("left", datetime)):
            answer: Any = dated.noisy_avg(name, epsilon=1)
            assert answer.interval()[0] <= answer <= answer.interval()[1]
            for moment in (answer + timedelta(days=1), timedelta(days=1) + answer, answer - timedelta(days=1)):
                assert type(moment) is plain
            assert type(answer - answer) is timedelta


def test_arrays_act_as_arrays(in_memory: Callable[..., Any]) -> None:
    """A table of counts is an array with a scale; slices, sums and comparisons are plain arrays and numbers."""
    table = in_memory(100).partition(Values("sex"), Values("income")).noisy_count(epsilon=2)
    assert isinstance(table, NoisyArray)
    assert (table.shape, table.epsilon, table.scale) == ((2, 2), Fraction(2), 0.5)
    low, high = table.interval(0.9)
    assert (low < table).all()
    assert low.dtype == high.dtype == np.int64
    assert type(low) is type(table[0]) is type(table + table) is type(table > 3) is np.ndarray
    assert isinstance(table.sum(), np.integer)
    before = table[0, 0]
    table += 1
    assert type(table) is np.ndarray
    assert table[0, 0] == before + 1
    assert pd.Series(high.reshape(-1)).notna().all()


def test_verbs_say_what_they_return(in_memory: Callable[..., Any]) -> None:
    """The types in the signatures are those of the answers, of one part and of many; each verb documents its arguments."""
    handle = in_memory(100)
    faces: dict[Any, tuple[type, type]] = {
        PrivateQueryable: (NoisyInt, NoisyFloat),
        Parts: (NoisyArray, NoisyArray),
    }
    for face, (count, number) in faces.items():
        assert get_args(face.__orig_bases__[0])[:2] == (count, number)
        asked = handle if face is PrivateQueryable else handle.parts()
        assert type(asked.noisy_count(epsilon=1)) is count
        assert type(asked.noisy_sum("age", epsilon=1)) is type(asked.noisy_avg("age", epsilon=1)) is number
        for verb in (face.noisy_count, face.noisy_sum, face.noisy_avg, face.exp_mech):
            text = inspect.getdoc(verb) or ""
            assert all(f"{name}:" in text for name in inspect.signature(verb).parameters if name != "self")
            assert "Returns:" in text


def test_a_preview_of_an_average_leaves_nothing_to_divide(in_memory: Callable[..., Any]) -> None:
    """The error is said for parts of two sizes, no larger than a table can be."""
    error = in_memory(100).preview("noisy_avg", "age", epsilon=1).error
    assert error.startswith("an average has a standard error of about 0.99 to 1.4 over 100 rows and of ")
    assert " / n" not in error


@pytest.mark.parametrize("level", [0, 1, -1, 2, True, "x", float("nan")])
def test_levels_are_checked(level: Any, in_memory: Callable[..., Any]) -> None:
    """A level is between 0 and 1."""
    with pytest.raises(QueryError, match="`level` is"):
        in_memory().noisy_count(epsilon=1).interval(level)


def test_an_old_answer_has_no_interval() -> None:
    """An average that was stored before answers kept their rows still reads, and says why it has no interval."""
    old = noisy(Answer(id="x", verb="noisy_avg", epsilon="0.1", values=(4.5,)), (), np.float64)
    assert old == 4.5
    with pytest.raises(QueryError, match="did not keep its scale"):
        old.interval()


def test_what_is_made_of_an_answer_says_nothing_of_noise(in_memory: Callable[..., Any]) -> None:
    """Other places, other parts: it is shown, and says where its noise is known."""
    answer = in_memory().partition(Values("sex")).noisy_count(epsilon=1)
    others: list[Any] = [answer.T, answer.reshape(-1, 1), answer.copy(), np.sort(answer)]
    for made in others:
        assert "NoisyArray(" in made._repr_html_()
        for ask in (attrgetter("scale"), methodcaller("interval"), methodcaller("to_frame")):
            with pytest.raises(AttributeError, match="from the answer itself"):
                ask(made)
    assert "<table" in answer._repr_html_()


# 2,000 draws of a claim of 80 %: fewer than 1,497 hits have probability below 1e-8; an interval 30 % too short has 1,350, and 1,497 with one of 1e-12.
DRAWS, LEVEL, LEAST = 2000, 0.8, 1497


@pytest.mark.parametrize("verb", ["noisy_count", "noisy_sum", "noisy_avg"])
def test_intervals_hold_what_they_claim(verb: str, in_memory: Callable[..., Any], frame: pd.DataFrame) -> None:
    """The exact answer lies in the interval at least as often as claimed; for an average whatever its noisy rows are."""
    handle = in_memory(10**6)
    parts = handle.shards(8)
    exact = {
        "noisy_count": parts.noisy_count(epsilon=900),
        "noisy_sum": parts.noisy_sum("age", epsilon=9000),
        "noisy_avg": parts.noisy_avg("age", epsilon=9000),
    }[verb]
    words = () if verb == "noisy_count" else ("age",)
    hits = 0
    for _ in range(DRAWS // 8):
        answer = getattr(parts, verb)(*words, epsilon=0.3)
        low, high = answer.interval(LEVEL)
        hits += int(((low - 0.02 <= exact) & (exact <= high + 0.02)).sum())
    assert hits >= LEAST
    if verb == "noisy_count":
        assert hits <= 1725, "the interval is far too wide"
    assert isinstance(NoisyInt(3), int)


def test_answers_are_tables_with_all_that_is_known(in_memory: Callable[..., Any]) -> None:
    """A row for each part with its labels, value, interval, scale and epsilon; of one number a row without a key."""
    handle = in_memory(100)
    numbers = ["value", "low", "high", "scale", "epsilon"]
    count = handle.noisy_count(epsilon=2)
    row = count.to_frame(0.9)
    assert row.columns.tolist() == numbers
    assert row.to_numpy().tolist() == [[count, *count.interval(0.9), 0.5, 2]]
    parts = handle.partition(Values("sex"), Values("income"))
    averages = parts.noisy_avg("age", epsilon=1)
    frame = averages.to_frame()
    assert frame.columns.tolist() == ["sex", "income", *numbers]
    assert frame[["sex", "income", "value"]].equals(parts.frame(averages))
    assert np.array_equal(frame[["low", "high"]].to_numpy().T.reshape(2, 2, 2), averages.interval())
    assert np.array_equal(frame["scale"], averages.scale.reshape(-1))
    assert parts[[1]].noisy_count(epsilon=1).to_frame().columns.tolist() == ["part", *numbers]
    counted = parts.noisy_count(epsilon=1)
    assert counted.to_frame()["value"].dtype == counted.to_frame()["low"].dtype == np.int64


def test_sums_of_a_loss_are_tables_too(in_memory: Callable[..., Any]) -> None:
    """Each number of a part has its entry, and its cell where there are cells."""
    handle = in_memory(100)
    loss = pinq.Logistic("income", (">50K",), pinq.Points())
    assert handle.noisy_sum(loss, epsilon=1).to_frame()["entry"].tolist() == [0, 1]
    sums = handle.partition(Values("sex")).noisy_sum(loss, by=[Values("income")], epsilon=1)
    frame = sums.to_frame()
    assert frame.columns.tolist()[:3] == ["sex", "cell", "entry"]
    for number, (sex, cell, entry) in enumerate(np.ndindex(sums.shape)):
        assert frame.loc[number, ["cell", "entry", "value"]].tolist() == [cell, entry, sums[sex, cell, entry]]


def test_a_key_never_hides_a_number() -> None:
    """A column of the table that is called like a number of the answer keeps a column of its own."""
    schema = pinq.Schema(columns={"value": pinq.Categorical(values=("a", "b"))}, max_rows=10)
    with pinq.simulate(schema, rows=5, epsilon=10) as handle:
        parts = handle.partition(Values("value"))
        answer = parts.noisy_count(epsilon=1)
        assert parts.frame(answer).columns.tolist() == ["value_", "value"]
        assert answer.to_frame()["value_"].tolist() == ["a", "b"]


def test_a_notebook_shows_answers(in_memory: Callable[..., Any]) -> None:
    """With epsilon and level; of many parts the first ones."""
    handle = in_memory(100)
    assert "epsilon 2; low and high hold the exact number with 95%" in handle.noisy_count(epsilon=2)._repr_html_()
    many = handle.partition(pinq.Cuts("age", tuple(range(1, 60)))).noisy_count(epsilon=1)._repr_html_()
    assert "... and 40 more" in many
    assert "29 to &lt; 30" not in many


def test_an_answer_without_a_scale_has_a_table_without_an_interval() -> None:
    """Of ledgers that did not keep it."""
    old = noisy(Answer(id="x", verb="noisy_count", epsilon="1", values=(3,)), (), np.int64)
    assert old.to_frame()[["value", "epsilon"]].to_numpy().tolist() == [[3, 1]]
    assert old.to_frame()[["low", "high", "scale"]].isna().all(axis=None)
    assert "epsilon 1" in old._repr_html_()
