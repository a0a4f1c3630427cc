# SPDX-License-Identifier: Apache-2.0
"""A row is read alone, by each reader: what is read of a table and one more row is what is read of both, each by itself.

The one more row holds what readers are known to stumble over. A column of whole numbers that pandas turned into doubles is the one
exception: it is refused, by its type, where doubles are not exact.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from pinq.engine import open_engine
from pinq.engine.frames import text_of, texts_of
from pinq.errors import PolicyError
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import Values, bind
from pinq.policy.policy import Policy
from tests.support.requests.handles import encoded_rows
from tests.support.tables.spark import ON_SPARK, open_on_spark
from tests.support.tables.workbooks import CELLS, HEADER, book

Read = Callable[[Sequence[Any]], Counter[Any]]

FAR = timezone(timedelta(hours=-14))
OBJECTS: list[Any] = [
    *(None, float("nan"), pd.NA, pd.NaT, Decimal("NaN"), Decimal("sNaN"), np.datetime64("NaT", "s")),
    *(
        True,
        False,
        np.True_,
        0,
        7,
        -1,
        2**53 + 1,
        2**63,
        -(2**70),
        10**400,
        10**5000,
        np.int8(-3),
        np.uint64(2**64 - 1),
    ),
    *(0.5, -0.0, 7.0, 1e15 + 1, 2.0**53, 1e300, float("inf"), float("-inf"), np.float32(0.1), np.longdouble(2)),
    *(
        Decimal("0.25"),
        Decimal("1.50"),
        Decimal("1." + "1" * 39),
        Decimal("1e-30"),
        Decimal("1E+999999"),
        Decimal("-0"),
    ),
    *(
        Decimal("Infinity"),
        Decimal("1e70"),
        "1",
        "x",
        "",
        " 1",
        "nan",
        "1e999",
        "0x10",
        "\0",
        "\ud800",
        "9" * 400,
        "1_0",
    ),
    *(b"1", b"\xff", bytearray(b"1"), np.str_("1"), np.bytes_(b"1"), UUID(int=5), time(1), timedelta(days=10**6)),
    *(date(2024, 1, 1), date(1, 1, 1), datetime(2024, 1, 1), datetime(2024, 1, 1, 5, 0, 0, 500), datetime(3000, 1, 1)),
    *(
        datetime(2024, 5, 5, tzinfo=UTC),
        datetime(9999, 12, 31, 23, tzinfo=FAR),
        pd.Timestamp("2024-01-02T03:04:05.123456789"),
    ),
    *(pd.Timestamp("2024-01-02", tz="Europe/Berlin"), np.datetime64("2024-01-01"), np.datetime64(2**62, "s")),
    *(
        [1],
        (1,),
        {"a": 1},
        {1},
        object(),
        1j,
        np.array([1, 2]),
        pd.Timedelta(1),
        pd.Period("2024"),
        pa.scalar("1"),
        Exception,
    ),
]
"""Values that a column of Python objects may hold."""
KINDS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "decimal codes": ({"type": "categorical", "values": ["1.5", "2.5"]}, [Decimal("1.5"), Decimal("2.5")]),
    "whole codes": ({"type": "categorical", "values": ["1", "7"], "other": "7"}, [1, 7]),
    "long codes": ({"type": "categorical", "values": [str(10**15 + 1), str(10**15 + 2)]}, [10**15 + 1, 10**15 + 2]),
    "texts": ({"type": "categorical", "values": ["1", "true", "2024-01-01"], "nullable": True}, ["1", "true", None]),
    "truth values": ({"type": "categorical", "values": [True, False], "nullable": True}, [True, False]),
    "days as codes": (
        {"type": "categorical", "values": ["2024-01-01", "2024-01-02"]},
        [date(2024, 1, 1), date(2024, 1, 2)],
    ),
    "times as codes": (
        {"type": "categorical", "values": ["2024-01-01 00:00:00"], "nullable": True},
        [datetime(2024, 1, 1)] * 2,
    ),
    "numbers": ({"type": "numeric", "lower": 0, "upper": 10, "step": 1}, [1, 2.5]),
    "decimals": (
        {"type": "numeric", "lower": 0, "upper": 10, "step": "0.5", "nullable": True},
        [Decimal("1.5"), Decimal(3)],
    ),
    "flags as numbers": ({"type": "numeric", "lower": 0, "upper": 1, "integer": True}, [True, False]),
    "days": (
        {"type": "date", "lower": "2024-01-01", "upper": "2024-12-31"},
        [date(2024, 1, 1), datetime(2024, 5, 1, 8)],
    ),
    "times": (
        {"type": "datetime", "lower": "2024-01-01 00:00", "upper": "2024-12-31 23:59", "nullable": True},
        [pd.Timestamp("2024-01-01 08:00"), datetime(2024, 5, 5, tzinfo=UTC)],
    ),
}
"""Declarations, each with values of a table that fits it."""
LONG = 2**53


def policy(column: dict[str, Any] | None, folder: Path = Path(), **source: Any) -> Policy:
    """A table of ``k``, which each row has, and of ``x``: declared so, or the privacy unit."""
    columns: dict[str, Any] = {"k": {"type": "numeric", "lower": 0, "upper": 100, "integer": True}}
    unit: Any = {"column": "x", "max_rows": 1} if column is None else "row"
    columns |= {} if column is None else {"x": column}
    return Policy(dataset="t", cap=1, max_rows=1000, columns=columns, privacy_unit=unit, folder=folder, **source)


def encoded(own: Policy, data: object = None) -> Counter[Any]:
    engine, _ = open_engine(own, data=data, salt=b"")
    rows = Counter(encoded_rows(engine))
    engine.close()
    return rows


def counted(own: Policy, data: object) -> Counter[Any]:
    """The rows of a table inside Spark, which keeps no codes: how many have each value."""
    engine, _ = open_on_spark(own, data=data, salt=b"")
    asked = Values("x" if "x" in own.columns else "k")
    (table,) = engine.tabulate(PartSet([Block(Part())]).split(bind(asked, own.schema_)))
    engine.close()
    return Counter(dict(enumerate(table.tolist())))


def framed(column: dict[str, Any] | None, kind: Any) -> Read:
    """A reader of a frame, of objects or of the type that pandas finds."""

    return lambda values: encoded(policy(column), pd.DataFrame({"k": 1, "x": framed_series(values, kind)}))


def framed_series(values: Sequence[Any], kind: Any) -> pd.Series:
    """A column of a frame, of objects or of the type that pandas finds."""
    held = np.empty(len(values), dtype=object)
    held[:] = values
    return pd.Series(held, dtype=object) if kind is object else pd.Series(held.tolist(), dtype=kind)


def side_by_side(kind: Any) -> Read:
    """A reader of rows with a value for each of ``KINDS``, as ``framed``: to open a table takes longer than to read."""
    columns = {f"x{place}": column for place, (column, _) in enumerate(KINDS.values())}

    def read(rows: Sequence[Any]) -> Counter[Any]:
        series = (framed_series(values, kind) for values in zip(*rows, strict=True))
        return encoded(
            Policy(dataset="t", cap=1, max_rows=1000, columns=columns),
            pd.DataFrame(dict(zip(columns, series, strict=True))),
        )

    return read


NORMAL = list(zip(*(normal * (6 // len(normal)) for _, normal in KINDS.values()), strict=True))
"""Rows of a table that fits all declarations."""


def require_same(found: Counter[Any], wanted: Counter[Any], said: object) -> None:
    """Requires the same rows, and names the places of a row that differ."""
    rows = list((found - wanted) + (wanted - found))
    assert found == wanted, (
        said,
        [place for place, values in enumerate(zip(*rows, strict=True)) if len({*values}) > 1],
    )


def require_alone(
    read: Read, rows: Sequence[Any], hostile: Sequence[Any], draw: random.Random, known: Counter[Any] | None = None
) -> None:
    """One hostile row, and all others together, add to the rows, which are known, what they are alone."""
    mixed = draw.sample(hostile, k=len(hostile))
    parts = sum(map(read, filter(None, [mixed[:1], mixed[1:]])), known or read(rows))
    require_same(read([*mixed, *rows]), parts, mixed[:1])


@pytest.mark.parametrize("order", range(3))
def test_an_object_is_read_alone(order: int) -> None:
    """Whatever stands beside it in a frame's column of objects."""
    draw = random.Random(order)
    hostile = list(zip(*(draw.sample(OBJECTS, k=len(OBJECTS)) for _ in KINDS), strict=True))
    require_alone(side_by_side(object), NORMAL, hostile, draw)


@pytest.mark.parametrize(("number", "unit"), [(False, False), (True, False), (False, True)])
def test_the_text_of_an_object_is_its_own(number: bool, unit: bool) -> None:
    """Beside a row of each other class."""
    alone = [text_of(value, number=number, unit=unit) for value in OBJECTS]
    for place, value in enumerate(OBJECTS):
        for other in (None, 0.25, "x", Decimal("0.25"), 2**63, "\ud800"):
            held = np.empty(2, dtype=object)
            held[:] = [value, other]
            assert texts_of(held, number=number, unit=unit)[0].as_py() == alone[place], (value, other)


def test_the_type_that_pandas_finds_changes_no_row() -> None:
    """One missing value makes whole numbers doubles, one text makes any column one of objects."""
    hostile: list[Any] = [None, float("nan"), pd.NaT, "x", 0.5, 3, True, 2**63, Decimal("0.25"), b"\xff"]
    hostile += [datetime(2024, 5, 5, tzinfo=UTC), date(2024, 1, 2)]
    read = side_by_side(None)
    rows = read(NORMAL)
    for value in hostile:
        row = (value,) * len(KINDS)
        require_same(read([*NORMAL, row]), rows + read([row]), value)


def test_a_person_is_known_alone() -> None:
    """A person of objects: one more row of another person, or of nobody, merges and divides no one."""
    persons = [10**17 + 1, 10**17 + 2, "a", Decimal("3.5"), date(2025, 1, 1)]
    others = list({text_of(row, unit=True): row for row in OBJECTS}.values())
    require_alone(framed(None, object), persons, others, random.Random(1))


@pytest.mark.parametrize(
    "same",
    [
        (5, 5.0, Decimal("5.00"), "5", np.int64(5), b"5"),
        (0, 0.0, -0.0, Decimal("-0.0")),
        (Decimal("2.50"), 2.5),
        (10**22, 1e22),
    ],
)
def test_equal_numbers_are_one_person(same: tuple[Any, ...]) -> None:
    """Else one person would keep the rows of several."""
    assert len({text_of(value, unit=True) for value in same}) == 1
    assert framed(None, object)(same).total() == 1


def test_persons_of_whole_numbers_are_never_doubles() -> None:
    """The one row without a person is a refusal by type, and says what to do."""
    read, persons = framed(None, None), [10**17 + number for number in range(500)]
    assert read(persons).total() == 500
    with pytest.raises(PolicyError, match=r"'x' of `privacy_unit` has the type DOUBLE.*dtype=\{column: 'Int64'\}"):
        read([*persons, None])
    assert framed(None, "Int64")([*persons, None]).total() == 500


@pytest.mark.parametrize("more", [{}, {"other": "1"}, {"nullable": True}])
def test_codes_beyond_what_doubles_hold_are_refused_as_doubles(more: dict[str, Any]) -> None:
    """Of 2^53 and 2^53 + 1 a double is either. Smaller ones are the same as whole numbers, doubles and texts."""
    column = {"type": "categorical", "values": ["1", str(LONG), str(LONG + 1)], **more}
    assert framed(column, "int64")([LONG, LONG + 1]) == framed(column, object)([LONG, LONG + 1])
    for data in (
        pd.DataFrame({"k": 1, "x": [1.0]}),
        pa.table({"k": [1], "x": [1.0]}),
        pa.table({"k": [1], "x": pa.array([1], pa.float32())}),
    ):
        with pytest.raises(PolicyError, match="Values of the column 'x' are whole numbers of 2"):
            encoded(policy(column), data)
    column = {"type": "categorical", "values": ["1", str(2**24)], **more}
    with pytest.raises(PolicyError, match=r"whole numbers of 2\^24 .* as FLOAT"):
        encoded(policy(column), pa.table({"k": [1], "x": pa.array([1], pa.float32())}))
    assert encoded(policy(column), pa.table({"k": [1], "x": [2.0**24]})) == framed(column, "int64")([2**24])
    column = {"type": "categorical", "values": ["3", str(10**15), str(LONG - 1)]}
    values = [3, 10**15, LONG - 1]
    assert (
        framed(column, "int64")(values)
        == framed(column, "float64")(values)
        == framed(column, object)([*map(str, values)])
        != Counter()
    )


class Day(date):
    """A class of its own, which shows itself otherwise."""

    def isoformat(self) -> str:
        return "a day"


SAME: dict[str, list[Any]] = {
    "texts": [*OBJECTS, "", "é", "0", "1.50"],
    "whole numbers": [*OBJECTS, 10, -(2**63), 2**63 - 1],
    "truth values": [True, False, np.False_],
    "numbers": [*OBJECTS, -0.0, 0.0, 0.1, 1e-7, 1e16, 2.0**70, 123456.75],
    "days": [*OBJECTS, date(9999, 12, 31), date(987, 6, 5), Day(2024, 1, 1)],
    "times": [
        *(datetime(1, 1, 1), datetime(987, 6, 5, 4), datetime(9999, 12, 31, 23, 59, 59, 999999)),
        *(datetime(2024, 10, 27, 2, 30, fold=1), datetime(2000, 10, 10, 10, 10, 10, 100)),
        *(datetime(2024, 5, 5, tzinfo=UTC), datetime(2024, 5, 5, tzinfo=FAR)),
    ],
    "times of pandas": [
        *map(pd.Timestamp, ("2024-01-01", "2024-01-02 03:04:05.123456789", "1700-10-10 10:10:10.1")),
        *(pd.Timestamp("3000-10-10 00:00:10").as_unit("s"), pd.Timestamp("1000-01-01").as_unit("us")),
        *(pd.Timestamp("2024-01-02", tz="Europe/Berlin"), pd.Timestamp(10, unit="ns")),
    ],
}
"""Values of one class beside each other, with some of another."""


@pytest.mark.parametrize("kind", SAME)
def test_texts_at_once_are_the_texts_one_by_one(kind: str) -> None:
    """The quick way of a column of one class gives what each of its values gives alone."""
    draw, missing = random.Random(kind), [None, float("nan"), pd.NA, pd.NaT, 0.5, 7.0, -0.0, 2.0**60]
    kinds = {type(value) for value in SAME[kind][-2:]}
    held = [value for value in SAME[kind] if type(value) in kinds] or SAME[kind]
    for number in range(300):
        some = draw.sample(held, k=3) if number % 2 else draw.choices(held, k=3)
        values = np.empty(5, dtype=object)
        values[:] = [*some, *(draw.choices(missing, k=2) if number % 3 else draw.choices(held, k=2))]
        for place in range(2):
            flags = {"number": number % 5 == 0, "unit": place == 1}
            assert texts_of(values, **flags).to_pylist() == [text_of(value, **flags) for value in values], values


# Typed sources

TYPED: dict[str, tuple[list[str], list[str]]] = {
    "BOOLEAN": (["true", "false"], []),
    "BIGINT": (["1", "2"], ["-9223372036854775808", "9223372036854775807"]),
    "UBIGINT": (["1", "2"], ["18446744073709551615"]),
    "DOUBLE": (["1", "2.5"], ["'nan'", "'inf'", "'-inf'", "'1e308'", "'-0.0'", "5e-324", "'9.3e18'", "'1e15'"]),
    "DECIMAL(38,37)": (["1", "2"], ["9.9999999999999999999999999999999999999"]),
    "VARCHAR": (
        ["'1'", "'2024-01-02'"],
        [
            "''",
            "repeat('9', 400)",
            "'1e999'",
            "'nan'",
            "'0x10'",
            "chr(0)",
            "'²'",
            "'2024-02-30'",
            "'99999-01-01'",
            "'epoch'",
            "'24:00:00'",
        ],
    ),
    "DATE": (
        ["'2024-01-02'", "'2024-01-03'"],
        ["'infinity'", "'-infinity'", "'5877642-06-25 (BC)'", "'5881580-07-10'"],
    ),
    "TIMESTAMP": (
        ["'2024-01-02 01:00'", "'2024-01-03'"],
        ["'290309-12-22 (BC) 00:00:00'", "'294247-01-10 04:00:54.775806'"],
    ),
    "TIMESTAMPTZ": (["'2024-01-02 01:00'", "'2024-01-03'"], ["'294247-01-10 04:00:54.775806+00'"]),
    "TIMESTAMP_NS": (
        ["'2024-01-02 01:00'", "'2024-01-03'"],
        ["'1677-09-22 00:00:00'", "'2262-04-11 23:47:16.854775806'"],
    ),
    "BLOB": (["'1'::BLOB", "'2'::BLOB"], ["'\\xFF\\xFE'::BLOB", "''::BLOB"]),
    "INTEGER[]": (["[1]", "[2]"], ["[]", "[NULL]"]),
    "ENUM('1', '2', 'x')": (["'1'", "'2'"], ["'x'"]),
}
FORMS = ["duckdb", "parquet", "arrow", "stream", "adbc", "polars", "spark"]
TYPED_COLUMNS = [KINDS["texts"][0], KINDS["decimals"][0], {**KINDS["days"][0], "nullable": True}, None]


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """A database that makes values of each type."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


def source(form: str, maker: duckdb.DuckDBPyConnection, rows: str, folder: Path) -> tuple[dict[str, Any], Any]:
    """Rows of a query in one of the forms: what a policy says of them, and the data that is passed."""
    file = folder / f"t.{form}"
    file.unlink(missing_ok=True)
    match form:
        case "parquet":
            maker.sql(rows).write_parquet(str(file))
            return {"source": file.name}, None
        case "duckdb":
            maker.execute(f"ATTACH '{file}' AS made; CREATE TABLE made.t AS {rows}; DETACH made")
            return {"source": {"database": file.name, "table": "t"}}, None
        case "adbc":
            said = {"driver": "adbc_driver_duckdb", "uri_env": "ROWS_URI", "query": rows}
            return {"source": {"adbc": said}}, None
        case "stream":
            return {}, maker.sql(rows).to_arrow_table().to_reader()
        case "polars":
            return {}, pytest.importorskip("polars").from_arrow(maker.sql(rows).to_arrow_table())
    return {}, maker.sql(rows).to_arrow_table()


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        pytest.param(kind, form, marks=ON_SPARK if form == "spark" else [])
        for form in FORMS
        for kind in (list(TYPED)[::3] if form == "adbc" else TYPED)  # its driver starts a database for each reading
    ],
)
def test_a_typed_value_is_read_alone(
    kind: str, form: str, tmp_path: Path, database: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Extreme values of each type, and a missing one; where a declaration does not fit a type, all rows say so."""
    normal, hostile = TYPED[kind]
    column = TYPED_COLUMNS[(list(TYPED).index(kind) + FORMS.index(form)) % len(TYPED_COLUMNS)]
    if form == "adbc":
        pytest.importorskip("adbc_driver_duckdb.dbapi")
        monkeypatch.setenv("ROWS_URI", ":memory:")

    def read(values: Sequence[str]) -> Any:
        rows = " UNION ALL ".join(f"SELECT 1 AS k, ({value})::{kind} AS x" for value in values)
        said, data = source(form, database, rows, tmp_path)
        try:
            return (counted if form == "spark" else encoded)(policy(column, tmp_path, **said), data)
        except PolicyError as error:
            return str(error)

    if isinstance(known := read(normal), str):
        assert known == read([*(hostile or normal), "NULL"])
    else:
        require_alone(read, normal, [*hostile, "NULL"], random.Random(kind + form), known)


# Workbooks

HOSTILE_CELLS = [cell for cell in CELLS.values() if "</row>" not in cell] + [
    "",
    *(f'<c r="B3" s="{style}"><v>{number}</v></c>' for style in (0, 3, 4, 5) for number in ("-1", "0.5", "1e308", "7")),
    *(
        f'<c r="B3" t="{kind}"><v>{text}</v></c>'
        for kind in ("str", "d", "e", "b")
        for text in ("x", "2024-02-30", "1")
    ),
]


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        (KINDS["texts"][0], '<c r="B3" t="str"><v>2024-01-01</v></c>'),
        (KINDS["numbers"][0] | {"nullable": True}, '<c r="B3"><v>2.5</v></c>'),
        (KINDS["times"][0], '<c r="B3" s="4"><v>45300.5</v></c>'),
        (None, '<c r="B3"><v>123456</v></c>'),
    ],
)
def test_a_cell_of_a_workbook_is_read_alone(column: Any, cell: str, tmp_path: Path) -> None:
    """Whatever stands in the cells of other rows: other types, errors, other formats, far columns."""

    def read(cells: Sequence[str]) -> Counter[Any]:
        rows = (
            f'<row r="{at}"><c r="A{at}"><v>1</v></c>{own.replace("B3", f"B{at}").replace("D3", f"D{at}")}</row>'
            for at, own in enumerate(cells, 2)
        )
        book(tmp_path / "t.xlsx", HEADER.format("k", "x") + "".join(rows))
        return encoded(policy(column, tmp_path, source="t.xlsx", csv={"sheet": "Hinweise"}))

    require_alone(read, [cell] * 3, HOSTILE_CELLS, random.Random(str(column)))
