# SPDX-License-Identifier: Apache-2.0
"""Columns of dates: a public grid of days or minutes that is read, cut and shown as dates."""

from __future__ import annotations

import copy
import datetime
import pickle
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from pinq import Calendar, Cuts, Date, DateTime, QueryError, Schema, Values
from pinq.analyst.answers import NoisyDate, noisy
from pinq.language.queries import Answer
from pinq.language.specs import bind
from pinq.public.dates import microseconds_of, moment_text


def date(lower: str, upper: str, **fields: Any) -> Date:
    return Date.model_validate({"lower": lower, "upper": upper, **fields})


def time(lower: str, upper: str, **fields: Any) -> DateTime:
    return DateTime.model_validate({"lower": lower, "upper": upper, **fields})


BORN = date("1968-02-28", "1972-03-01", nullable=True, cuts=["1970-01-01"])
LEFT = time("2023-12-31 22:00", "2024-01-01 03:00")
SCHEMA = Schema(max_rows=100, columns={"born": BORN, "left": LEFT})


def parts(spec: Any) -> tuple[Any, ...]:
    (axis,) = bind(spec, SCHEMA).axes
    return axis.labels


def test_a_date_is_its_days_since_1970() -> None:
    assert (float(BORN.lower), BORN.number(0), BORN.cells) == (-673, -673, 1464)
    assert (LEFT.cells, LEFT.text(LEFT.number(61))) == (301, "2023-12-31 23:01")


@pytest.mark.parametrize("column", [BORN, LEFT, date("0001-01-01", "9999-12-31", step=30)])
def test_a_declaration_survives_json_copies_and_pickles(column: Date) -> None:
    assert type(column).model_validate_json(column.model_dump_json()) == column
    assert column.model_copy() == column == pickle.loads(pickle.dumps(column)) == copy.deepcopy(column)
    schema = Schema(max_rows=9, columns={"d": column})
    assert Schema.model_validate_json(schema.model_dump_json()).digest == schema.digest


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"lower": "1970"}, "'1970' is not written as a date, 2024-02-29"),
        ({"lower": 1970}, "1970 is not written as a date"),
        ({"lower": "1970-02-30"}, "not written as a date"),
        ({"lower": "1970-01-01 08:30"}, "not written as a date"),
        ({"lower": "1999-01-01"}, r"lower \(1999-01-01\) must be below upper \(1980-01-01\)"),
        ({"cuts": ["1960-01-01"]}, "the cut 1960-01-01 must be above lower \\(1970-01-01\\)"),
        ({"step": 0.5}, "must be whole"),
    ],
)
def test_a_wrong_declaration_is_told_in_dates(fields: dict[str, object], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        Date.model_validate({"lower": "1970-01-01", "upper": "1980-01-01"} | fields)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("2024-02-29", "2024-02-29"),
        (" 2024-02-29T08:30 ", "2024-02-29 08:30"),
        ("2024-02-29 08:30:00+02:00", "2024-02-29 06:30"),
        ("2024-01-01 00:00Z", "2024-01-01"),
        (datetime.date(2024, 2, 29), "2024-02-29"),
        (pd.Timestamp("2024-02-29 08:30", tz="Europe/Oslo"), "2024-02-29 07:30"),
        (np.datetime64("2024-02-29T08:30"), "2024-02-29 08:30"),
        *(
            (other, None)
            for other in ("2024-02-30", "2024-2-9", "0000-01-01", "20240229", "", 2024, None, pd.NaT, True)
        ),
        ("2024-02-29 24:00", None),
        ("2024-02-29 08:30 pm", None),
        (np.datetime64("NaT", "us"), None),
    ],
)
def test_one_form_of_text_is_a_date_and_a_zone_is_read_in_utc(value: object, text: str | None) -> None:
    assert moment_text(value) == text


def test_values_are_clamped_missing_or_in_their_day() -> None:
    values = ["1900-01-01", "9999-12-31", "1968-02-28 23:59:59", "1968-02-29", "no date", None]
    assert BORN.encode(values).tolist() == [0, 1463, 0, 1, 1464, 1464]
    assert LEFT.encode(["2023-12-31 22:01:59", "2025-01-01", None]).tolist() == [1, 300, -1]


@pytest.mark.parametrize("form", ["datetime64[s]", "datetime64[ns]", object, "string"])
def test_all_forms_of_a_frame_have_the_same_codes(form: Any) -> None:
    days = ["1968-02-28", "1970-01-01", "1969-12-31", "2000-01-01"]
    values = pd.Series(pd.to_datetime(days)).astype(form) if "date" in str(form) else pd.Series(days, dtype=form)
    assert BORN.encode(values).tolist() == [0, 673, 672, 1463]
    assert BORN.encode(pd.Series([*values, None])).tolist()[-1] == BORN.null_code


def test_cuts_take_dates_and_call_their_parts_by_them() -> None:
    spec = Cuts("born", ("1969-01-01", datetime.date(1970, 5, 5), pd.Timestamp("1971-01-01")))  # type: ignore[arg-type]
    assert spec.points == ("1969-01-01", "1970-05-05", "1971-01-01")
    assert parts(spec) == (
        *("< 1969-01-01", "1969-01-01 to < 1970-05-05", "1970-05-05 to < 1971-01-01", ">= 1971-01-01", None),
    )
    assert parts(Cuts("left", ("2023-12-31 23:30",))) == ("< 2023-12-31 23:30", ">= 2023-12-31 23:30")


@pytest.mark.parametrize("cut", [1970, 1970.5, "1970"])
def test_a_number_is_no_cut_of_dates(cut: Any) -> None:
    with pytest.raises(QueryError):
        bind(Cuts("born", (cut,)), SCHEMA)


def test_a_cut_out_of_bounds_names_the_bounds_as_dates() -> None:
    with pytest.raises(QueryError, match="must be above 1968-02-28 and at most 1972-03-01"):
        bind(Cuts("born", ("1999-01-01",)), SCHEMA)


def test_values_are_called_by_their_dates() -> None:
    assert parts(Values("born"))[:2] == ("1968-02-28", "1968-02-29")
    assert bind(Values("born"), SCHEMA).find("1968-02-29") == 1


@pytest.mark.parametrize(
    ("period", "labels"),
    [
        ("year", (1968, 1969, 1970, 1971, 1972)),
        ("quarter", ("1968-Q1", "1968-Q2", "1968-Q3")),
        ("month", ("1968-02", "1968-03", "1968-04")),
        ("weekday", ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", None)),
    ],
)
def test_the_calendar_is_that_of_python(period: Any, labels: tuple[Any, ...]) -> None:
    """Each day of four years, a leap day among them, lies in the part that Python's calendar says."""
    (axis,) = bind(Calendar("born", period), SCHEMA).axes
    assert axis.labels[: len(labels)] == labels
    assert axis.labels[-1] is None
    days = [datetime.date(1968, 2, 28) + datetime.timedelta(days=number) for number in range(BORN.cells)]
    expected = {
        "year": lambda day: day.year,
        "quarter": lambda day: f"{day.year}-Q{(day.month + 2) // 3}",
        "month": lambda day: f"{day.year}-{day.month:02}",
        "weekday": lambda day: f"{day:%A}",
    }[period]
    own = [axis.labels[part] for part in axis.parts_of(np.arange(BORN.codes))]
    assert own == [*map(expected, days), None]


def test_minutes_lie_in_the_period_of_their_day() -> None:
    (axis,) = bind(Calendar("left", "year"), SCHEMA).axes
    assert axis.parts_of(np.array([0, 119, 120, 300])).tolist() == [0, 0, 1, 1]
    (axis,) = bind(Calendar("left", "weekday"), SCHEMA).axes
    assert [axis.labels[part] for part in axis.parts_of(np.array([0, 119, 120]))] == ["Sunday", "Sunday", "Monday"]


def test_cells_that_hold_more_than_a_period_have_none() -> None:
    schema = Schema(max_rows=9, columns={"d": date("2020-01-01", "2030-01-01", step=100), "n": categorical()})
    assert len(bind(Calendar("d", "year"), schema).axes[0].labels) == 11
    for spec in (Calendar("d", "month"), Calendar("d", "weekday"), Calendar("n", "year")):
        with pytest.raises(QueryError):
            bind(spec, schema)


def categorical() -> dict[str, object]:
    return {"type": "categorical", "values": ["a"]}


def test_an_average_of_dates_is_a_date_with_its_interval() -> None:
    answer = Answer(id="x", verb="noisy_avg", epsilon="0.1", values=(0.4,), scale=100.0, grid=1.0, rows=(200.0,))
    day = noisy(answer, (), np.float64, BORN)
    assert isinstance(day, NoisyDate)
    assert day == datetime.date(1970, 1, 1)
    assert day.epsilon == Fraction("0.1")
    low, high = day.interval(0.95)
    assert low == datetime.date(1969, 12, 30)
    assert high == datetime.date(1970, 1, 3)
    assert day.numbers == 0.4
    assert pickle.loads(pickle.dumps(day)) == datetime.date(1970, 1, 1)
    minute = noisy(answer, (), np.float64, LEFT)
    assert minute == datetime.datetime(1970, 1, 1)
    assert minute.scale == 0.5
    days: Any = noisy(answer, (1,), np.float64, BORN)
    assert days.dtype == "datetime64[D]"
    assert days.interval(0.95)[0][0] == np.datetime64("1969-12-30")


def test_microseconds_before_1970_are_floored() -> None:
    assert microseconds_of("1969-12-31 23:59:59.999999") == -1
    assert date("1969-12-30", "1970-01-02").encode(["1969-12-31 23:59:59.999999"]).tolist() == [1]


def test_a_cut_that_is_no_date_is_told_how_dates_are_written() -> None:
    with pytest.raises(QueryError, match="neither a number nor a date, which is written like 2024-01-31"):
        Cuts("d", ("31.01.2024",))
