# SPDX-License-Identifier: Apache-2.0
"""A line concerns its own row: delimited text beside a reader of one line at a time, and every source with one row changed.

``make explore`` makes ten thousand single changes; ``make test`` some hundreds.
"""

from __future__ import annotations

import gzip
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pinq.engine import Lines, delimited, open_engine
from pinq.engine.delimited import DelimitedFiles
from pinq.policy.dialect import Dialect
from pinq.policy.policy import Policy
from tests.support.requests.handles import encoded_rows

EXPLORE = bool(os.environ.get("PINQ_EXPLORE"))
BOM = b"\xef\xbb\xbf"
# Pieces that mean something to one reader or another, in the declared dialect or not.
PIECES = [
    b'"',
    b'""',
    b"'",
    b",",
    b";",
    b"\t",
    b"|",
    b"\r",
    b"\r\r",
    b"\0",
    b"\xff",
    b"\xc3",
    b"\xe2\x82",
    b"\xed\xa0\x80",
    BOM,
    b"\\",
    b'\\"',
    b"#",
    b" ",
    b"x",
    b"y",
    b"3",
    b"3,5",
    "é".encode(),
    "\u2028".encode(),
    b"\x85",
    b"\x0b",
    b"\x0c",
    b"\x1a",
    b"\x1c",
    b"NULL",
    b"nan",
    b"1e999",
    b'"x"',
    b'"x",',
    b',"',
    b'",',
    b'"x"y',
    b'="x"',
    b'=("007")',
    b'"=""3"""',
    b'x"y"',
    b"-",
    b"\x7f",
    b"\xfe\xff",
]
DIALECTS: list[dict[str, Any]] = [
    {},
    {"delimiter": "\t"},
    {"delimiter": ";", "decimal": ","},
    {"quote": ""},
    {"quote": "'", "delimiter": "|"},
    {"encoding": "latin-1"},
    {"encoding": "windows-1252", "delimiter": "^"},
    {"encoding": "ascii", "delimiter": "]"},
    {"delimiter": "-", "quote": "'"},
    {"delimiter": "[", "header": ["a", "b", "c"]},
    {"delimiter": "\\"},
    {"encoding": "koi8-r", "delimiter": " "},
]


def read_alone(line: bytes, dialect: Dialect, fields: int, longest: int) -> list[str | None] | None:
    """One line by the documented rule, sign by sign: its fields, none if it is no row, None if it is unreadable."""
    try:
        text = line.decode(dialect.encoding)
    except UnicodeDecodeError:
        return None
    if len(text.encode()) + 1 > longest or "\0" in text or "\r" in text:
        return None
    values, rest = list[str | None](), text
    delimiter = sign_of(dialect).decode()
    while True:
        if dialect.quote and rest.startswith(dialect.quote):
            field, start = "", 1
            while True:
                end = rest.find(dialect.quote, start)
                if end < 0:
                    return None
                field += rest[start:end]
                if rest[end + 1 : end + 2] != dialect.quote:
                    break
                field, start = field + dialect.quote, end + 2
            rest = rest[end + 1 :]
            if rest and not rest.startswith(delimiter):
                return None
        else:
            end = rest.find(delimiter)
            field, rest = (rest, "") if end < 0 else (rest[:end], rest[end:])
        kept = re.fullmatch(r'=[(]?"(.*)"[)]?', field)
        values.append((kept[1] if kept else field) or None)
        if not rest and set(text) <= {delimiter}:
            return []
        if not rest:
            return values if len(values) == fields else None
        rest = rest[1:]


def sign_of(dialect: Dialect) -> bytes:
    """What separates the fields of a dialect that declares it."""
    assert dialect.delimiter is not None
    return dialect.delimiter.encode()


def some_line(draw: random.Random, dialect: Dialect, longest: int) -> bytes:
    """A well-formed line, one that is nearly so, or any bytes."""
    kind, sign = draw.random(), sign_of(dialect)
    if kind < 0.4:
        fields = [
            draw.choice(
                [b"x", b"y", b"3", b"", b"x y", b'a"b', dialect.quote.encode() + b"x" + sign + dialect.quote.encode()]
            )
            for _ in range(3)
        ]
        return sign.join(fields)
    if kind < 0.43:
        return draw.choice([b"x", b'"', b",", b"\xff", b"\r", "é".encode()]) * draw.randrange(longest - 3, 3 * longest)
    if kind < 0.5:
        return bytes(draw.randrange(256) for _ in range(draw.randrange(12))).replace(b"\n", b"")
    pieces = [*PIECES, *[sign] * 12, *[dialect.quote.encode()] * 6]
    return b"".join(draw.choice(pieces) for _ in range(draw.randrange(9)))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], int]:
    """Makes blocks so small that borders are everywhere. Returns the longest line."""

    def shrink(block: int) -> int:
        longest = 120
        monkeypatch.setattr(delimited, "MAX_LINE", longest)
        monkeypatch.setattr(delimited, "ARROW_BLOCK", 2 * longest)
        monkeypatch.setattr(delimited, "BLOCK", block)
        return longest

    return shrink


def read_all(file: Path, dialect: Dialect) -> tuple[list[tuple[str | None, ...]], Lines]:
    files, lines = DelimitedFiles([file], dialect), Lines()
    return [
        tuple(row)
        for table in files.read(files.names, lines)
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
    ], lines


@pytest.mark.parametrize("number", range(len(DIALECTS)))
def test_a_file_is_read_as_its_lines_are(number: int, tmp_path: Path, small_blocks: Any) -> None:
    """Whatever stands in a file, and wherever blocks end: its rows are those of its lines, each read alone and in order."""
    dialect, draw = (
        Dialect(**{"delimiter": ","} | DIALECTS[number]),
        random.Random(number + (random.randrange(10**9) if EXPLORE else 0)),
    )
    for _ in range(850 if EXPLORE else 60):
        longest = small_blocks(draw.choice([1, 7, 64, 300, 2**16]))
        content = [some_line(draw, dialect, longest) for _ in range(draw.randrange(25))]
        head = [] if isinstance(dialect.header, tuple) else [sign_of(dialect).join([b"a", b"b", b"c"])]
        end = draw.choice([b"\n", b"\r\n"])
        written = draw.choice([b"", BOM]) + b"".join(line + end for line in [*head, *content]).removesuffix(
            draw.choice([b"", end])
        )
        name = draw.choice(["t.csv", "t.csv.gz"])
        pack: Any = gzip.compress if name.endswith(".gz") else bytes
        (tmp_path / name).write_bytes(pack(written))
        content = [line.removesuffix(b"\r") for line in written.removeprefix(BOM).split(b"\n")[len(head) :]]
        alone = [read_alone(line, dialect, 3, longest) for line in content if line]
        rows, lines = read_all(tmp_path / name, dialect)
        assert rows == [tuple(row) for row in alone if row]
        assert (lines.total, lines.lost) == (len(alone) - alone.count([]), alone.count(None))


@pytest.mark.parametrize("block", [1, 7, 64, 2**16])
def test_where_a_long_line_is_cut_does_not_matter(block: int, tmp_path: Path, small_blocks: Any) -> None:
    """A line about as long as may be, with what is dropped at a line's end where the reader cuts: too long is too long."""
    dialect, longest = Dialect(delimiter=","), small_blocks(block)
    for tail in (b"", b"\r", b"\r" + b"y" * 500, b"\r" + b"y" * 500 + b"\r", b"\xc3\xa9" * 300):
        lines = [b"x" * before + tail for before in range(longest - 6, longest + 4)]
        (tmp_path / "t.csv").write_bytes(b"a\n" + b"\n".join(lines))
        alone = [read_alone(line.removesuffix(b"\r"), dialect, 1, longest) for line in lines]
        assert read_all(tmp_path / "t.csv", dialect)[0] == [tuple(row) for row in alone if row is not None]


# One change, every source


COLUMNS: dict[str, Any] = {
    "a": {"type": "categorical", "values": ["x", "y", "é", ""], "nullable": True},
    "b": {"type": "numeric", "lower": 0, "upper": 10, "integer": True},
    "c": {"type": "numeric", "lower": 0, "upper": 10, "step": "0.5", "nullable": True},
}
CHANGES = 10_000 if EXPLORE else 200


def encoded(
    folder: Path, source: Any, data: Any = None, dialect: dict[str, Any] | None = None
) -> Counter[tuple[int, ...]]:
    policy = Policy(dataset="t", source=source, csv=dialect, cap=1, max_rows=1000, columns=COLUMNS, folder=folder)
    engine, _ = open_engine(policy, data=data, salt=b"")
    rows = Counter(encoded_rows(engine))
    engine.close()
    return rows


def require_one_row(before: Counter[tuple[int, ...]], after: Counter[tuple[int, ...]], change: object) -> None:
    assert (before - after).total() <= 1, change
    assert (after - before).total() <= 1, change


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz"])
def test_a_changed_line_changes_one_encoded_row(name: str, tmp_path: Path, small_blocks: Any) -> None:
    """Any bytes in the place of any line, from the file to the codes."""
    sign, draw = (b"\t" if "tsv" in name else b","), random.Random(name if not EXPLORE else None)
    dialect, longest = Dialect(delimiter=sign.decode()), small_blocks(500)
    pack: Any = gzip.compress if name.endswith(".gz") else bytes
    lines = [
        sign.join(
            [
                draw.choice([b"x", b"y", b'"x"', b""]),
                str(draw.randrange(12)).encode(),
                draw.choice([b"3.5", b'"1"', b""]),
            ]
        )
        for _ in range(60)
    ]
    lines[::9] = [b'"x' + sign + b"1"] * len(lines[::9])

    def codes(changed: list[bytes]) -> Counter[tuple[int, ...]]:
        (tmp_path / name).write_bytes(pack(b"\n".join([sign.join([b"a", b"b", b"c"]), *changed])))
        return encoded(tmp_path, name, dialect={"max_unreadable": 1})

    before = codes(lines)
    assert before.total() > 40
    for _ in range(CHANGES // 4):
        position, line = draw.randrange(len(lines)), some_line(draw, dialect, longest)
        require_one_row(before, codes([*lines[:position], line, *lines[position + 1 :]]), line)


def typed_values(draw: random.Random) -> tuple[Any, ...]:
    """A row of a typed source, in which anything that the types can hold may stand."""
    text = draw.choice(
        ["x", "y", "é", "", None, "X", "x\0", "\0", '"x', "x,1", "nan", "\ufeff", "x" * 100_000, "\u2028", "'", "NULL"]
    )
    real = draw.choice([None, 0.0, -0.0, 3.5, float("nan"), float("inf"), float("-inf"), 1e308, 5e-324])
    return text, draw.choice([0, 1, 10, -(2**63), 2**63 - 1, None]), real


def sources(folder: Path) -> Iterator[tuple[str, Callable[[pa.Table], Counter[tuple[int, ...]]]]]:
    def parquet(table: pa.Table) -> Counter[tuple[int, ...]]:
        pq.write_table(table, folder / "t.parquet")
        return encoded(folder, "t.parquet")

    def database(table: pa.Table) -> Counter[tuple[int, ...]]:
        (folder / "t.duckdb").unlink(missing_ok=True)
        with duckdb.connect(str(folder / "t.duckdb")) as connection:
            connection.register("t", table)
            connection.execute("CREATE TABLE people AS SELECT * FROM t")
        return encoded(folder, {"database": "t.duckdb", "table": "people"})

    yield "parquet", parquet
    yield "duckdb", database
    yield "arrow", lambda table: encoded(folder, None, table)
    yield "frame", lambda table: encoded(folder, None, table.to_pandas())


@pytest.mark.parametrize("number", range(4))
def test_a_changed_row_changes_one_encoded_row(number: int, tmp_path: Path) -> None:
    """Parquet, DuckDB, Arrow and frames: any values that the columns' types can hold in the place of any row."""
    form, codes = list(sources(tmp_path))[number]
    draw = random.Random(form if not EXPLORE else None)
    types = pa.schema([("a", pa.string()), ("b", pa.int64()), ("c", pa.float64())])

    def table(rows: list[tuple[Any, ...]]) -> pa.Table:
        return pa.table(
            [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), types.types, strict=True)],
            schema=types,
        )

    rows = [typed_values(draw) for _ in range(60)]
    before = codes(table(rows))
    for _ in range(CHANGES // 16):
        position, row = draw.randrange(len(rows)), typed_values(draw)
        require_one_row(before, codes(table([*rows[:position], row, *rows[position + 1 :]])), row)
