# SPDX-License-Identifier: Apache-2.0
"""Dates from every kind of source: SQL behind the wall and Python before it read the same days and minutes."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import pinq
from miners import DiffPC45, DiPriMeTreeRegressor, Scorecard
from miners.tables import grouped, histogram, quantiles, summary
from pinq import Calendar, Cuts, PrivateQueryable, QueryError, Values
from pinq.engine import encode, open_engine
from pinq.engine.numbers import define_readings
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import bind
from pinq.policy.dialect import Dialect
from pinq.policy.policy import Policy
from tests.support.processes.commands import run

COLUMNS: dict[str, Any] = {
    "born": {"type": "date", "lower": "1950-01-01", "upper": "2000-12-31", "nullable": True},
    "left": {"type": "datetime", "lower": "2024-01-01", "upper": "2024-01-31 23:59", "nullable": True},
    "sex": {"type": "categorical", "values": ["F", "M"]},
}
POLICY = Policy(dataset="d", cap=100, max_rows=1000, columns=COLUMNS)
TEXTS = [
    *("1950-01-01", "1949-12-31", "9999-12-31", "1970-01-01 23:59:59.999999", "1969-12-31T23:59", "2000-02-29"),
    *("1970-01-01 00:30+01:00", "1970-01-01 23:30-01:00", "1970-01-01Z", "1970-01-01 00:00Z", "1970-02-30", "1970-1-1"),
    *(
        "0000-01-01",
        "0001-01-01",
        "1970",
        "",
        " 1970-01-01 ",
        "\t1970-01-01",
        "1970-01-01 24:00",
        "1970-01-01 23:59:60",
        "today",
        "now",
    ),
    *("infinity", "epoch", "1970-01-01 BC", "1970/01/01", "1970-01-01 00:00 Europe/Oslo", "2024-01-15 08:30", None),
]
MOMENTS = [None, *map(datetime.datetime.fromisoformat, ["1969-12-31 23:59:59", "1949-01-01", "2024-01-15 08:30:59"])]


def codes(batch: pa.Table) -> list[list[int]]:
    return [encode(batch, POLICY)[f"c{number}"].to_pylist() for number in (0, 1)]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(TEXTS),
        *(pa.array(MOMENTS, pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")),
        pa.array(MOMENTS, pa.timestamp("us", "Europe/Oslo")),
        pa.array(MOMENTS, pa.timestamp("us")).cast(pa.date32(), safe=False),
        pa.array([None, 1970, 20240101]),
    ],
    ids=lambda values: str(values.type),
)
def test_sql_and_python_read_the_same_dates(values: pa.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    batch = pa.table({"born": values, "left": values, "sex": pa.array(["F"] * len(values))})
    for name, own in zip(("born", "left"), codes(batch), strict=True):
        in_python = POLICY.schema_.numeric(name).encode(values.to_pandas()).tolist()
        assert own == in_python, name


def test_endless_dates_count_as_the_bounds() -> None:
    with duckdb.connect() as connection:
        rows = connection.sql("SELECT 'infinity'::DATE AS born, '-infinity'::TIMESTAMP AS \"left\", 'F' AS sex")
        assert codes(rows.to_arrow_table()) == [[POLICY.columns["born"].cells - 1], [0]]


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(
    "kind", [pa.date32(), pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us", "UTC")], ids=str
)
def test_dates_that_no_time_can_be_count_as_the_bounds(kind: pa.DataType, sign: int) -> None:
    """One row with the year 500,000 does not stop the opening; nor do the last values of each type."""
    size = pa.int32() if kind == pa.date32() else pa.int64()
    last = 2**31 - 2 if kind == pa.date32() else 2**63 - 1
    far = [last, *{"date32[day]": [200_000_000], "timestamp[s]": [9_223_372_036_855]}.get(str(kind), [])]
    values = pa.array([sign * number for number in far], size).cast(kind)
    batch = pa.table({"born": values, "left": values, "sex": ["F"] * len(far)})
    cells = [0 if sign < 0 else POLICY.schema_.numeric(name).cells - 1 for name in ("born", "left")]
    assert codes(batch) == [[cell] * len(far) for cell in cells]


@pytest.mark.parametrize("form", ["parquet", "csv", "arrow", "pandas"])
def test_every_source_gives_the_same_days(form: str, tmp_path: Path) -> None:
    days = pd.to_datetime(pd.Series(["1950-01-01", "1960-06-01", None, "1940-01-01", "2010-01-01"]))
    frame = pd.DataFrame({"born": days.dt.date, "left": "2024-01-02 10:00", "sex": "F"})
    policy, data = POLICY, None
    if form in ("parquet", "csv"):
        policy = POLICY.model_copy(update={"source": f"d.{form}", "folder": tmp_path})
        write: Any = frame.to_parquet if form == "parquet" else frame.to_csv
        write(tmp_path / f"d.{form}", index=False)
    else:
        data = frame if form == "pandas" else pa.Table.from_pandas(frame)
    engine, report = open_engine(policy, data=data, salt=b"s", report=True)
    assert report is not None
    assert report.clamped == {"born": 2, "left": 0}
    whole = PartSet([Block(Part())])
    (counts,) = engine.tabulate(whole.split(bind(Calendar("born", "year"), policy.schema_)))
    years: list[int | None] = [*range(1950, 2001), None]
    found: dict[int | None, int] = dict(zip(years, np.ravel(np.asarray(counts)).tolist(), strict=True))
    assert {year: rows for year, rows in found.items() if rows} == {1950: 2, 1960: 1, 2000: 1, None: 1}


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Births of which those before 1975 are of women."""
    random = np.random.default_rng(0)
    born = pd.Timestamp("1940-01-01") + pd.to_timedelta(random.integers(0, 25_000, 800), "D")
    left = pd.Timestamp("2024-01-01") + pd.to_timedelta(random.integers(0, 44_640, 800), "m")
    return pd.DataFrame({"born": born, "left": left, "sex": np.where(born.year < 1975, "F", "M")})


@pytest.fixture(scope="module")
def handle(frame: pd.DataFrame) -> PrivateQueryable:
    return pinq.simulate(POLICY.schema_, data=frame, epsilon=10_000)


def test_answers_of_dates_are_dates(handle: PrivateQueryable, frame: pd.DataFrame) -> None:
    born: Any = frame["born"]
    mean = born.clip("1950-01-01", "2000-12-31").mean()
    assert abs(pd.Timestamp(handle.noisy_avg("born", epsilon=100)) - mean) < pd.Timedelta(days=3)
    by_sex = handle.partition(Values("sex"))
    table = by_sex.frame(by_sex.noisy_avg("born", epsilon=100))
    assert table["value"].dtype.kind == "M"
    assert table["value"].is_monotonic_increasing
    chosen: Any = handle.exp_mech([pinq.AnyCut("born")], score=pinq.InfoGain("sex"), epsilon=100)
    assert chosen.points[0].startswith(("1974-12", "1975-01"))
    assert "minutes over" in handle.preview("noisy_avg", "left", epsilon=1).error


def test_dates_have_no_sum(handle: PrivateQueryable) -> None:
    before = handle.budget.spent
    for ask in (
        lambda: handle.noisy_sum("born", epsilon=1),
        lambda: grouped(handle, "sex", {"born": ["mean", "sum"]}, epsilon=1),
    ):
        with pytest.raises(QueryError, match="cannot be added up"):
            ask()
    assert handle.budget.spent == before


def test_tables_and_their_pictures_show_dates(handle: PrivateQueryable) -> None:
    half = quantiles(handle, "born", [0.5], by="sex", epsilon=100).to_frame()
    assert half["value"].dtype.kind == "M"
    assert (half["low"] <= half["value"]).all()
    whole = summary(handle, epsilon=100)
    shown = whole.to_frame().set_index(["column", "statistic"])["value"]
    assert isinstance(shown["left", "50 %"], datetime.datetime)
    assert isinstance(shown["born", "std"], float)
    assert histogram(handle, "born", bins=3, epsilon=10).to_frame()["born"][0] == "< 1967-01-02"
    pytest.importorskip("matplotlib")
    for table in (quantiles(handle, "born", [0.25, 0.5, 0.75], by="sex", epsilon=100), whole):
        figure = table.plot().figure
        figure.canvas.draw()
        texts = {text.get_text() for axes in figure.axes for text in axes.get_xticklabels()}
        assert any(text.startswith("19") for text in texts)


def test_miners_take_dates_for_numbers(handle: PrivateQueryable, frame: pd.DataFrame) -> None:
    tree = DiffPC45(epsilon=100, max_depth=1).fit(handle, "sex")
    assert (tree.predict(frame) == frame["sex"]).mean() > 0.95
    assert '["197' in tree.to_json()
    assert (DiffPC45.from_json(tree.to_json()).predict(frame) == tree.predict(frame)).all()
    card = Scorecard(epsilon=100).fit(handle, "sex")
    assert (card.predict(frame) == frame["sex"]).mean() > 0.9
    born = DiPriMeTreeRegressor(epsilon=100, max_depth=2, random_state=0).fit(handle, "born").predict(frame)
    assert born.min() >= np.datetime64("1950-01-01")


def test_a_cut_of_the_year_is_a_part_of_the_calendar(handle: PrivateQueryable) -> None:
    by_year = handle.partition(Calendar("born", "year"))
    assert by_year[1960].noisy_count(epsilon=1).epsilon == 1
    assert handle.partition(Cuts("born", ("1960-01-01",)), Calendar("left", "weekday")).shape == (3, 8)


def test_the_command_line_reads_and_prints_dates(tmp_path: Path, frame: pd.DataFrame) -> None:
    frame.to_parquet(tmp_path / "d.parquet")
    path = tmp_path / "p.yaml"
    path.write_text(POLICY.model_copy(update={"source": "d.parquet"}).to_yaml(), encoding="utf-8")
    assert run("grant", path, "ana", "--epsilon", 50).exit_code == 0
    asked = ("query", path, "--analyst", "ana", "--epsilon", 10)
    assert run(*asked, "avg", "born").stdout.startswith("197")
    assert "quarter" in run(*asked, "count", "--partition", "born:decade").stderr
    for spec, part in {"born:year": "1960", "born:1960-01-01": "< 1960-01-01", "left:2024-01-02 08:30": None}.items():
        result = run(*asked, "count", "--partition", spec, "--json")
        assert part is None or part in str(json.loads(result.stdout)["values"])
    assert json.loads(run(*asked, "avg", "born", "--json").stdout)["value"].startswith("197")
    # A query that the terms forbid is in the log; a preview of it is not.
    assert run("terms", path, "ana", "--columns", "left").exit_code == 0
    for more in ((), ("--preview",)):
        assert "does not allow the column born" in run(*asked, "avg", "born", *more).output
    assert json.loads(run("audit", path, "--json").stdout)["analysts"][0]["refused"] == {"not-allowed": 1}


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d-%b-%Y", "%b %d, %Y"])
def test_a_declared_form_reads_what_strptime_reads_and_iso(form: str) -> None:
    """With a time behind it or none, and nothing else; no text is an error."""
    day = datetime.date(1976, 1, 9)
    drawn = np.random.default_rng(7)
    signs = list("0123456789./-: ,TZ+JanFebx")
    texts = ["".join(drawn.choice(signs, size=drawn.integers(1, 19))) for _ in range(400)]
    for _ in range(200):
        near = (day + datetime.timedelta(days=int(drawn.integers(0, 8000)))).strftime(form)
        place = int(drawn.integers(0, len(near)))
        texts += [
            near,
            f" {near} 08:30",
            f"{near}T23:59:59Z",
            near[:place] + str(drawn.choice(signs)) + near[place + 1 :],
        ]
    texts += [
        "31.02.1980",
        "02/31/1980",
        "19800231",
        "0001-01-01",
        "1.1.0001",
        "99999999",
        near + " 24:00",
        near + "\n",
        "",
    ]
    with duckdb.connect() as connection:
        define_readings(connection, Dialect(dates=form))  # type: ignore[arg-type]
        connection.register("texts", pa.table({"text": texts}))
        read = connection.execute("SELECT text, epoch_us(moment_of(text)) // 86400000000 FROM texts").fetchall()
    for text, found in read:
        date, _, time = (
            text.strip(" ").replace("T", " ", 1).rpartition(" ") if ":" in text else (text.strip(" "), "", "")
        )
        try:
            plain = datetime.datetime.strptime(date, form).date() if "\n" not in text else None
        except ValueError:
            plain = None
        if plain is not None and not time and plain.year >= 1000 and date == plain.strftime(form):
            assert found == (plain - datetime.date(1970, 1, 1)).days, text
        if found is not None and not re.match(r" *\d{4}-", text):
            assert plain is not None, text
            assert found == (plain - datetime.date(1970, 1, 1)).days, text
