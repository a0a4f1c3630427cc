# SPDX-License-Identifier: Apache-2.0
"""What a workbook, a frame or a text file would lose in silence is read, or named with its column."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import pinq
from pinq.engine.derived import check_formulas
from pinq.engine.numbers import define_readings
from pinq.engine.sheets import BEFORE, DIGITS, FORMULAS, MERGED, PADDED
from pinq.errors import PolicyError
from pinq.policy.dialect import Dialect
from pinq.policy.plain_yaml import read_yaml
from pinq.policy.policy import Policy
from pinq.provider.check import check
from tests.support.tables.workbooks import book

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
LINK = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def workbook(path: Path, cell: Callable[[int], str], after: str = "") -> Path:
    """A workbook of 300 rows with a column of whole numbers, and one of cells as they are given in XML."""
    rows = "".join(
        f'<row r="{row}"><c r="A{row}"><v>{row % 7}</v></c><c r="B{row}"{cell(row)}</c></row>' for row in range(2, 302)
    )
    head = "".join(
        f'<c r="{at}1" t="inlineStr"><is><t>{name}</t></is></c>' for at, name in (("A", "n"), ("B", "value"))
    )
    parts = {
        "xl/workbook.xml": f'<workbook xmlns="{MAIN}" xmlns:r="{LINK}"><sheets><sheet name="S" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships><Relationship Id="r1" Type="{LINK}/worksheet" Target="worksheets/s.xml"/><Relationship Id="r2" Type="{LINK}/styles" Target="styles.xml"/></Relationships>',
        "xl/styles.xml": '<styleSheet><numFmts><numFmt numFmtId="170" formatCode="00000"/></numFmts><cellXfs><xf numFmtId="0"/><xf numFmtId="170"/></cellXfs></styleSheet>',
        "xl/worksheets/s.xml": f'<worksheet xmlns="{MAIN}"><sheetData><row r="1">{head}</row>{rows}</sheetData>{after}</worksheet>',
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def merged(row: int) -> str:
    """The first of five cells has the value."""
    return f' t="inlineStr"><is><t>{"AB"[row % 2]}</t></is>' if row % 5 == 2 else ">"


def padded(row: int) -> str:
    """Every ninth number is shown with zeros before it."""
    style = ' s="1"' if row % 9 == 0 else ""
    return f"{style}><v>{1067 + row % 5}</v>"


AREAS = "<mergeCells>" + "".join(f'<mergeCell ref="B{row}:B{row + 4}"/>' for row in range(2, 302, 5)) + "</mergeCells>"
HEAD = '<mergeCells><mergeCell ref="A1:B1"/></mergeCells>'


@pytest.mark.parametrize(
    ("cell", "after", "said"),
    [
        (lambda row: f"><f>A{row}*2</f>", "", FORMULAS),
        (lambda row: f"><f>A{row}*2</f><v></v>" if row % 9 == 0 else f"><v>{row % 5}</v>", "", FORMULAS),
        (merged, AREAS, MERGED),
        (lambda row: f"><v>{4_006_381_333_931_000 + row}</v>", "", DIGITS),
        (padded, "", PADDED),
        (lambda row: f"><f>A{row}*2</f><v>{row % 5}</v>", HEAD, ""),
    ],
)
def test_a_workbook_says_what_its_cells_lost(cell: Callable[[int], str], after: str, said: str, tmp_path: Path) -> None:
    """In the proposal by column, in `check` with the number of cells; a merged title costs nothing."""
    path = workbook(tmp_path / "book.xlsx", cell, after)
    text = pinq.propose(path)
    assert [reason for reason in (FORMULAS, MERGED, DIGITS, PADDED) if f"# value: {reason}." in text] == (
        [said] if said else []
    )
    policy = read_yaml(text)
    policy["columns"]["value"] = {"type": "numeric", "lower": 0, "upper": 9, "integer": True, "nullable": True}
    advice = check(Policy.model_validate(policy)).advice
    assert any(note.startswith("value: ") and said in note for note in advice) or not said


def columns(data: object, **options: Any) -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(pinq.propose(data, **options))["columns"]
    return content


@pytest.mark.parametrize("storage", ["typed", "object"])
@pytest.mark.parametrize("freq", ["M", "Q", "D"])
def test_a_period_is_no_number(freq: str, storage: str, tmp_path: Path) -> None:
    """Its storage is a count since 1970; a frame has its text, and a file of pandas has its type."""
    months = pd.Series(pd.period_range("2020-01", periods=4, freq=freq)).repeat(75).reset_index(drop=True)
    frame = pd.DataFrame({"month": months if storage == "typed" else months.astype(object), "n": np.arange(300) % 2})
    assert columns(frame)["month"]["type"] != "numeric"
    if storage == "typed":
        frame.to_parquet(tmp_path / "t.parquet")
        assert "month" not in columns(tmp_path / "t.parquet")
        assert "month" not in columns(pa.Table.from_pandas(frame))


@pytest.mark.parametrize(
    ("form", "values"),
    [
        *((form, ["ok", "sad", "happy"]) for form in ("frame", "arrow", "parquet")),
        *((form, [1, 2, 5]) for form in ("frame", "arrow")),  # Parquet keeps lists of texts alone
    ],
)
def test_declared_categories_without_rows_are_proposed(form: str, values: list[object], tmp_path: Path) -> None:
    mood = pd.Categorical([values[i % 2] for i in range(300)], categories=values)
    frame = pd.DataFrame({"mood": mood})
    frame.to_parquet(tmp_path / "t.parquet")
    data = {"frame": frame, "arrow": pa.Table.from_pandas(frame), "parquet": tmp_path / "t.parquet"}[form]
    assert set(columns(data)["mood"]["values"]) == set(values)


def test_rare_declared_categories_are_not_listed_for_a_frame_alone(tmp_path: Path) -> None:
    """Anybody's `astype("category")` has the values of single persons; an ENUM of a database is declared for all."""
    frame = pd.DataFrame({"mood": pd.Categorical(["sad"] * 150 + ["ok"] * 147 + ["odd"] * 3)})
    assert columns(frame)["mood"]["values"] == ["ok", "sad", "other"]
    with duckdb.connect(str(tmp_path / "m.duckdb")) as base:
        base.execute("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy', 'odd')")
        base.execute(
            "CREATE TABLE t AS SELECT (CASE WHEN i < 3 THEN 'odd' WHEN i % 2 = 0 THEN 'sad' ELSE 'ok' END)::mood AS m FROM range(300) r(i)"
        )
    assert columns(f"{tmp_path / 'm.duckdb'}::t")["m"]["values"] == ["happy", "odd", "ok", "sad"]


@pytest.mark.parametrize("title", ["", '<row r="2"><c r="A2" t="inlineStr"><is><t>Office</t></is></c></row>'])
def test_a_table_begins_where_its_header_does(title: str, tmp_path: Path) -> None:
    """At C5, below a title or none: what is lost counts for its own column, and cells before the header are notes."""
    note = '<c r="A100" t="inlineStr"><is><t>seen</t></is></c>'
    rows = "".join(
        f'<row r="{row}">{note if row == 100 else ""}<c r="C{row}"><v>{row % 7}</v></c><c r="D{row}">'
        f"{'<f>1</f>' if row == 9 else f'<v>{row}.5</v>'}</c></row>"
        for row in range(6, 106)
    )
    names = "".join(
        f'<c r="{at}5" t="inlineStr"><is><t>{name}</t></is></c>' for at, name in (("C", "n"), ("D", "cost"))
    )
    book(tmp_path / "t.xlsx", f'{title}<row r="5">{names}</row>{rows}')
    with pytest.raises(PolicyError, match="--skip 4"):
        pinq.propose(tmp_path / "t.xlsx", csv=Dialect(sheet="Hinweise"))
    text = pinq.propose(tmp_path / "t.xlsx", csv=Dialect(sheet="Hinweise", skip=4), fewest=5)
    assert list(read_yaml(text)["columns"]) == ["n", "cost"]
    assert f"# cost: {FORMULAS}" in text
    assert f"# n: {BEFORE}" in text
    assert "1 of 100 rows hold no number" in text


def test_a_file_without_rows_is_told_as_one(tmp_path: Path) -> None:
    pd.DataFrame({"mood": pd.Categorical([], categories=["a"])}).to_parquet(tmp_path / "t.parquet")
    with duckdb.connect(str(tmp_path / "m.duckdb")) as base:
        base.execute("CREATE TABLE t AS SELECT i % 5 AS n, ['a']::ENUM('a', 'b')[] AS listed FROM range(300) r(i)")
    with pytest.raises(PolicyError, match="Nothing in the source can be a column"):
        pinq.propose(tmp_path / "t.parquet")
    assert list(columns(f"{tmp_path / 'm.duckdb'}::t")) == ["n"]


@pytest.mark.parametrize("names", [["a", "A"], ["a", ""]])
def test_names_that_sql_would_change_are_refused(names: list[str], tmp_path: Path) -> None:
    table = pa.table([list(range(300))] * 2, names=names)
    frame = table.to_pandas()
    frame.to_parquet(tmp_path / "t.parquet")
    for data in (frame, table, tmp_path / "t.parquet", table.to_reader()):
        with pytest.raises(PolicyError, match=r"more than once|last name is empty"):
            pinq.propose(data)


def test_a_series_is_no_table() -> None:
    with pytest.raises(PolicyError):
        pinq.propose(pd.Series([1, 2]))


@pytest.mark.parametrize("form", ["%d/%m/%y", "%D", "%c", "%x"])
def test_a_formula_reads_no_year_of_two_digits(form: str) -> None:
    column = {
        "type": "date",
        "from": "born",
        "formula": f"strptime(born, '{form}')",
        "lower": "1920-01-01",
        "upper": "2020-12-31",
    }
    policy = Policy.model_validate({"dataset": "d", "cap": 1, "max_rows": 9, "columns": {"day": column}})
    with pytest.raises(PolicyError, match="year of two digits, which has no century"):
        check_formulas(policy)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("31.12.45", "1945-12-31 00:00:00"),
        ("1.1.30 08:15", "1930-01-01 08:15:00"),
        ("1.1.29", "2029-01-01 00:00:00"),
        ("29.2.00", "2000-02-29 00:00:00"),
        ("32.1.20", "None"),
        ("2/3/2024 12:05 AM", "2024-02-03 00:05:00"),
        ("2/3/2024 3:05 pm", "2024-02-03 15:05:00"),
        ("2/3/2024 13:05 pm", "None"),
    ],
)
def test_declared_centuries_and_the_clock_of_twelve_hours(text: str, read: str) -> None:
    with duckdb.connect() as connection:
        define_readings(connection, Dialect(dates=("%d.%m.%y", "%m/%d/%Y %I:%M %p"), century=1930))
        ((moment,),) = connection.execute("SELECT moment_of(?)::TIMESTAMP::VARCHAR", [text]).fetchall()
    assert str(moment) == read


def test_a_year_of_two_digits_needs_a_century() -> None:
    with pytest.raises(ValueError, match="no century: name the earliest year"):
        Dialect(dates=("%d.%m.%y",))


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_midnights_of_a_zone_are_noted(zone: str) -> None:
    days = pd.date_range("2024-03-01", periods=300, freq="D", tz=zone)
    text = pinq.propose(pd.DataFrame({"visit": days}))
    assert "in UTC: where they are midnights of a zone" in text
    assert "in UTC" not in pinq.propose(pd.DataFrame({"visit": days.tz_localize(None)}))


@pytest.mark.parametrize("line", ['a, "Bonn, NRW", {}', 'a, "Ulm", {}', ' "a",Ulm,{}'])
def test_a_blank_before_a_quote_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "spaces.csv"
    path.write_text("name,city,age\n" + "".join(line.format(20 + i % 60) + "\n" for i in range(300)))
    with pytest.raises(PolicyError, match=r"In line 2 of spaces\.csv a blank stands before a quote"):
        pinq.propose(path)
