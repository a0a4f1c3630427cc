# SPDX-License-Identifier: Apache-2.0
"""One table of values, read by every reader: a cell has one code, or is refused, wherever it stands.

R names values only, of parts, groups and events: tests/e2e/test_r_client.py compares them with Python.
"""

from __future__ import annotations

import csv
import math
import re
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import date, datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import pinq
from miners.fronts.agents import Agent
from miners.statistics import cells
from pinq.engine import encode, open_engine
from pinq.errors import QueryError
from pinq.policy.policy import Policy
from pinq.public.schema import Categorical
from tests.support.requests.handles import encoded_rows
from tests.support.tables.workbooks import book

ROWS = 400
WORDS = (
    "yes",
    "no",
    'a "quoted" word',
    "it's",
    "x,y",
    "x;y",
    "\u00a0nbsp",
    "\ufeffbom",
    " blank ",
    "1",
    "007",
    "true",
    "NA",
    "-",
)
COLUMNS: dict[str, dict[str, Any]] = {
    "number": {"type": "numeric", "lower": -2000, "upper": 200_000, "step": 0.25},
    "day": {"type": "date", "lower": "1990-01-01", "upper": "2030-12-31"},
    "time": {"type": "datetime", "lower": "2020-01-01", "upper": "2024-12-31 23:59"},
    "truth": {"type": "categorical", "values": [True, False]},
    "word": {"type": "categorical", "values": list(WORDS)},
    "code": {"type": "categorical", "values": [1, 2, 10, -9]},
}
TEXTS = [
    *(
        "0",
        "-0",
        "7",
        "+7",
        "-7.25",
        " 7",
        "7 ",
        "\t7",
        "007",
        "7.",
        ".5",
        "-.5",
        "1e3",
        "1E+3",
        "1e-2",
        "1e400",
        "-1e400",
    ),
    *(
        "1,000",
        "1.000,5",
        "1'000",
        "1 000",
        "1\u00a0000",
        "\u00a07",
        "7\u00a0",
        "\u22127",
        "(7)",
        "7-",
        "7%",
        "$7",
        "7 kg",
    ),
    *(
        "0x1F",
        "1_000",
        "inf",
        "-Infinity",
        "nan",
        "NaN",
        "\u0667",
        "\uff17",
        "\u00b2",
        "1e",
        "--7",
        "+",
        "123456789012345678901",
    ),
    *(
        "2024-02-29",
        "2023-02-29",
        " 2024-02-29 ",
        "2024-2-9",
        "29.02.2024",
        "02/29/2024",
        "20240229",
        "2024-02-29 08:30",
    ),
    *(
        "2024-02-29T08:30:59.5",
        "2024-02-29 08:30Z",
        "2024-02-29 23:30-02:00",
        "2024-02-29 24:00",
        "0000-01-01",
        "-2024-02-29",
    ),
    *("12024-01-01", "2024-02-29 8:30", "2024-02-29 08:30 PM", "now", "today", "epoch", "infinity", "\u0662024-02-29"),
    *("true", "false", "TRUE", "True", "t", "1", "0", "yes", "no", "on"),
    *("NA", "N/A", "null", "NULL", "None", "-", ".", "?", "#N/A", "missing"),
    *(
        *WORDS,
        "Yes",
        "yes ",
        " yes",
        "'yes'",
        '"yes"',
        "yes\u00a0",
        "\u200byes",
        "ye\u0301s",
        "2",
        "2.0",
        "-9",
        "-9.0",
        "10",
        "1e1",
    ),
]
TEXTS = list(dict.fromkeys(TEXTS))
TYPED: dict[str, list[list[Any]]] = {
    "number": [[0, 7, -7, 2**40, None], [0.0, -0.0, 7.25, 1e3, 1e300, math.inf, -math.inf, None], [True, False, None]],
    "day": [[date(2024, 2, 29), date(1, 1, 1), date(9999, 12, 31), None], [datetime(2024, 2, 29, 23, 59, 59), None]],
    "time": [
        [datetime(2024, 2, 29, 8, 30, 59, 999_999), datetime(1969, 12, 31, 23, 59), None],
        [date(2024, 2, 29), None],
    ],
    "truth": [[True, False, None]],
    "word": [[1, 8, None], [True, False, None], [1.0, 7.5, None]],
    "code": [[1, 2, 3, -9, None], [1.0, 10.0, 1.5, None], [True, False, None]],
}
"""Values of one type, which a typed column may hold."""


def policy_of(name: str, **more: Any) -> Policy:
    """A policy of the row's number and one column of the table."""
    columns = {"row": {"type": "numeric", "lower": 0, "upper": ROWS, "integer": True}}
    columns[name] = COLUMNS[name] | {"nullable": True}
    return Policy.model_validate({"dataset": "d", "cap": 1, "max_rows": 1000, "columns": columns} | more)


Texts = Sequence[Any]


def _csv(path: Path, name: str, texts: Texts) -> str:
    with (path / "t.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["row", name])
        writer.writerows((number, "" if text is None else text) for number, text in enumerate(texts))
    return "t.csv"


def _workbook(path: Path, name: str, texts: Texts) -> str:
    def cell(place: str, text: str | None) -> str:
        return (
            ""
            if text is None
            else f'<c r="{place}" t="inlineStr"><is><t xml:space="preserve">{escape(text)}</t></is></c>'
        )

    rows = [("row", name), *((str(number), text) for number, text in enumerate(texts))]
    made = (f'<row r="{n}">{cell(f"A{n}", row)}{cell(f"B{n}", text)}</row>' for n, (row, text) in enumerate(rows, 1))
    book(path / "t.xlsx", "".join(made))
    return "t.xlsx"


def _arrow(name: str, texts: Texts) -> pa.Table:
    return pa.table({"row": list(range(len(texts))), name: pa.array(texts)})


def _parquet(path: Path, name: str, texts: Texts) -> str:
    pq.write_table(_arrow(name, texts), path / "t.parquet")
    return "t.parquet"


def _duckdb(path: Path, name: str, texts: Texts) -> dict[str, str]:
    with duckdb.connect(path / "t.duckdb") as connection:
        connection.register("own", _arrow(name, texts))
        connection.execute("CREATE TABLE t AS FROM own")
    return {"database": "t.duckdb", "table": "t"}


def _sqlite(path: Path, name: str, texts: Texts) -> dict[str, str]:
    with closing(sqlite3.connect(path / "t.sqlite")) as connection, connection:
        connection.execute(f"CREATE TABLE t (row INTEGER, {name})")
        # Python no longer says how a day is written there; a number or a text is itself.
        kept = (
            text.isoformat(" ") if isinstance(text, datetime) else str(text) if isinstance(text, date) else text
            for text in texts
        )
        connection.executemany("INSERT INTO t VALUES (?, ?)", enumerate(kept))
    return {"database": "t.sqlite", "table": "t"}


SOURCES: dict[str, Callable[[Path, str, Texts], Any]] = {
    "csv": _csv,
    "workbook": _workbook,
    "parquet": _parquet,
    "duckdb": _duckdb,
    "sqlite": _sqlite,
}
FRAMES: dict[str, Callable[[str, Texts], Any]] = {
    "arrow": _arrow,
    "objects": lambda name, texts: pd.DataFrame({"row": range(len(texts)), name: pd.Series(texts, dtype=object)}),
    "strings": lambda name, texts: pd.DataFrame({"row": range(len(texts)), name: pd.Series(texts, dtype="string")}),
    "categories": lambda name, texts: pd.DataFrame({"row": range(len(texts)), name: pd.Categorical(texts)}),
}


def read_from(reader: str, name: str, values: Texts, folder: Path) -> list[int]:
    """The code of each value, -1 where it is refused, from the engine over a whole source."""
    data = FRAMES[reader](name, values) if reader in FRAMES else None
    form = {"csv": {"sheet": "Hinweise"}} if reader == "workbook" else {}
    source = {"source": SOURCES[reader](folder, name, values), "folder": folder} | form if data is None else {}
    engine, _ = open_engine(policy_of(name, **source), data=data, salt=b"s")
    with closing(engine):
        codes = {row[0]: row[1] for row in encoded_rows(engine)}
    return [codes.get(row, -1) for row in range(len(values))]


@pytest.mark.parametrize("reader", [*SOURCES, *FRAMES])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_text_is_one_value_wherever_it_stands(name: str, reader: str, tmp_path: Path) -> None:
    """Each reader gives the code that a prediction gives, or none where it gives none."""
    texts = [*TEXTS, None]
    predicted = policy_of(name).columns[name].encode(pd.Series(texts, dtype=object)).tolist()
    assert read_from(reader, name, texts, tmp_path) == predicted


@pytest.mark.parametrize("reader", ["parquet", "duckdb", "sqlite", "arrow", "objects"])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_typed_value_is_one_value_wherever_it_stands(name: str, reader: str, tmp_path: Path) -> None:
    for number, values in enumerate(TYPED[name]):
        folder = tmp_path / str(number)
        folder.mkdir()
        if reader == "sqlite" and any(isinstance(value, bool) for value in values):
            continue  # it has none
        predicted = policy_of(name).columns[name].encode(pd.Series(values, dtype=object)).tolist()
        assert read_from(reader, name, values, folder) == predicted, values


@pytest.mark.parametrize("name", COLUMNS)
def test_a_condition_reads_a_text_as_a_table_does(name: str) -> None:
    """What Python and SQL compare with is what a cell of this text is; what is no value of a cell is refused."""
    pytest.importorskip("sqlglot")
    from sqlglot import parse_one

    from miners.fronts.select import Text, filters

    schema = policy_of(name).schema_
    column, codes = schema.columns[name], schema.columns[name].encode(pd.Series(TEXTS, dtype=object)).tolist()
    listed = isinstance(column, Categorical)

    def in_python(text: str) -> object:
        return column.code_of(text, name) if listed else column.number_of(text, name)  # type: ignore[union-attr]

    def in_sql(text: str) -> object:
        literal = text.replace("'", "''")
        where = f"{name} {'=' if listed else '>='} '{literal}' OR {name} IS NULL"
        return filters(Text("SELECT", schema), parse_one(where, dialect="snowflake"))

    for text, code in zip(TEXTS, codes, strict=True):
        endless = re.fullmatch(r"(?i)\W*(inf.*|1e400)", text) and not listed
        for compared in (in_python, in_sql):
            if code in (-1, column.null_code) or endless:
                with pytest.raises(QueryError):
                    compared(text)
            else:
                assert compared(text) is not None


@pytest.mark.parametrize(
    ("values", "given", "part"),
    [
        ([1, 2], [1, 1.0, "1"], 0),
        ([1, 2], [2, 2.0, "2"], 1),
        (["f", "F"], ["f"], 0),
        (["f", "F"], ["F"], 1),
        ([True, False], [True, "true", "True"], 0),
        (["1.0", "2.0"], ["1.0"], 0),
        (["Yes", "no"], ["YES", "yes"], 0),
        (["a", "b"], ["c", 1, True], None),
    ],
)
def test_an_agent_and_a_statistic_take_a_value_as_it_is_declared(
    values: list[Any], given: list[Any], part: int | None
) -> None:
    """A number or a truth value is itself, whatever the client makes of it; a letter's case decides where it must."""
    columns = {"event": Categorical(values=tuple(values)), "group": Categorical(values=("a", "b"))}
    handle = pinq.simulate(pinq.Schema(columns=columns, max_rows=100), rows=50, epsilon=1)
    agent = Agent(handle, per_call=1, per_session=1)
    for value in given:
        asked = {"kind": "odds_ratio", "columns": ["event", "group"], "observed": value, "exposed": "a", "epsilon": 0.1}
        told = agent.call("price_table", asked)
        axis = cells.Axis.of(handle, "event", None)
        if part is None:
            assert told.is_error
            assert f"is {value!r}" in told.text
        else:
            assert axis.position(value, "observed") == part
            assert not told.is_error, told.text


def test_case_decides_only_between_values_that_differ_in_nothing_else() -> None:
    schema = pinq.Schema(columns={"event": Categorical(values=("f", "F", "m"))}, max_rows=100)
    axis = cells.Axis.of(pinq.simulate(schema, rows=50, epsilon=1), "event", None)
    assert [axis.position(value, "observed") for value in ("f", "F", "M")] == [0, 1, 2]


CLOSE = st.text("0123456789+-.,eE_:TZ '\"\u00a0\u0661x", max_size=12) | st.sampled_from(TEXTS)
DATED = st.builds(
    "{}{}-{}-{}{}".format,
    *(
        st.sampled_from(part)
        for part in (
            ["", " "],
            ["2024", "0099", "12024"],
            ["02", "2", "13"],
            ["29", "30", "00"],
            ["", " 08:30", "T8:30", " 24:00", " 08:30+14", " "],
        )
    ),
)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.lists(CLOSE | DATED, min_size=20, max_size=60))
def test_sql_and_python_read_any_text_alike(texts: list[str]) -> None:
    """Texts near numbers and dates, in each column."""
    for name in COLUMNS:
        policy = policy_of(name)
        encoded = encode(_arrow(name, texts), policy).to_pydict()
        codes = dict(zip(encoded["c0"], encoded["c1"], strict=True))
        predicted = policy.columns[name].encode(pd.Series(texts, dtype=object)).tolist()
        assert [codes.get(row, -1) for row in range(len(texts))] == predicted
