# SPDX-License-Identifier: Apache-2.0
"""Cells that a workbook may not hold: each is its own missing value, and no workbook ends the process that opens it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from struct import pack
from typing import Any
from zipfile import ZipFile

import pytest

from pinq.engine import delimited, sheets
from pinq.engine.delimited import Lines, Workbooks
from pinq.errors import PolicyError
from pinq.policy.dialect import Dialect
from tests.support.tables.workbooks import (
    BOOKS,
    CELLS,
    DAY,
    HEADER,
    binary_book,
    binary_record,
    binary_text,
    book,
    old_book,
    old_record,
)

AB = HEADER.format("a", "b")


def read(file: Path, sheet: str | None = "Hinweise") -> list[tuple[str | None, ...]]:
    """The rows of a sheet, as texts."""
    books = Workbooks([file], Dialect(sheet=sheet))
    (table,) = books.read(books.names, Lines())
    return list(zip(*(table[name].to_pylist() for name in books.names), strict=True))


def row(number: int, cells: str = "") -> str:
    return f'<row r="{number}"><c r="A{number}"><v>{number}</v></c>{cells}</row>'


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_that_cannot_be_read_is_missing_and_touches_no_other_row(
    cell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "SHEET_MEMORY", 2**29)
    good = '<c r="B{}" s="4"><v>45000.5</v></c>'.format
    book(tmp_path / "t.xlsx", AB + row(2, good(2)) + row(3, CELLS[cell]) + row(4, good(4)))
    moment = "2023-03-15 12:00:00"
    assert read(tmp_path / "t.xlsx") == [("2", moment), ("3", None), ("4", moment)]


def test_a_cell_is_read_in_the_row_and_column_where_it_stands(tmp_path: Path) -> None:
    """Another row's address does not move it, and a cell without an address follows the one before."""
    cells = (
        '<c r="A2"><v>1</v></c><c t="inlineStr"><is><r><t>x</t></r><r><t xml:space="preserve"> _x000D_</t></r></is></c>'
    )
    book(tmp_path / "t.xlsx", AB + f'<row r="2">{cells}</row><row r="3"><c r="A2"><v>3</v></c></row>')
    assert read(tmp_path / "t.xlsx") == [("1", "x \r"), ("3", None)]


@pytest.mark.parametrize("sheet", ["Hinweise", "Fälle 2024"])
def test_the_stream_reads_what_the_library_reads(sheet: str, tmp_path: Path) -> None:
    calamine = pytest.importorskip("python_calamine", reason="the comparison needs the extra `excel`")
    numbers = ["0", "0.5", "0.999999999", "1", "59.5", "60.25", "61", "45457.17708333334", "2958465", "-0.5", "12a", ""]
    rows = (
        f'<row r="{at}">' + "".join(f'<c s="{style}"><v>{number}</v></c>' for style in range(6)) + "</row>"
        for at, number in enumerate(numbers, 1)
    )
    book(tmp_path / "t.xlsx", "".join(rows))
    streamed = sheets.Streamed(str(tmp_path / "t.xlsx"))
    loaded = calamine.CalamineWorkbook.from_path(str(tmp_path / "t.xlsx")).get_sheet_by_name(sheet).to_python()
    wanted = [[sheets.text_of(cell, ".") for cell in own] for own in loaded]
    found = {at: [sheets.text_of(cell, ".") for cell in own] for at, own in streamed.rows(sheet)}
    for at, own in enumerate(wanted):
        cells = found.get(at, [])
        assert cells + [None] * (len(own) - len(cells)) == own


VALUE = '<table:table-cell office:value-type="{}" office:{}="{}"/>'.format
OPEN_CELLS: dict[str, str | None] = {
    VALUE("time", "time-value", "PT999999999999H00M00S"): "PT999999999999H00M00S",
    VALUE("time", "time-value", "x"): "x",
    VALUE("date", "date-value", "99999-99-99"): "99999-99-99",
    VALUE("boolean", "boolean-value", "2"): "false",
    VALUE("float", "value", "1e999"): "inf",
    VALUE("float", "value", "NaN"): "nan",
    VALUE("unknown", "value", "1"): "1",
    '<table:table-cell office:value-type="float"/>': None,
    '<table:table-cell office:value-type="string"><text:p>#WHAT!</text:p></table:table-cell>': "#WHAT!",
}
"""Cells of OpenDocument, each with its text. One that is no number at all makes the workbook one error."""
SPOILT = [VALUE("float", "value", "seven"), '<table:table-cell table:number-columns-repeated="x"/>']


def open_document(file: Path, *cells: str) -> Path:
    """Writes a table of a first column of sevens, and of these cells."""
    rows = (f"<table:table-row>{VALUE('float', 'value', '7')}{cell}</table:table-row>" for cell in cells)
    names = "".join(
        f'<table:table-cell office:value-type="string"><text:p>{name}</text:p></table:table-cell>' for name in "ab"
    )
    with ZipFile(BOOKS / "school.ods") as old, ZipFile(file, "w") as new:
        for name in old.namelist():
            text = old.read(name).decode("latin-1")
            if name == "content.xml":
                table = f"\\1<table:table-row>{names}</table:table-row>{''.join(rows)}\\2"
                text = re.sub("(<table:table [^>]*>).*?(</table:table>)", table, text, count=1, flags=re.DOTALL)
            new.writestr(name, text.encode("latin-1"))
    return file


def test_a_cell_of_open_document_touches_no_other_row(tmp_path: Path) -> None:
    """Whatever it holds; or no row is read at all, which is one error of this workbook."""
    pytest.importorskip("python_calamine", reason="these workbooks need the extra `excel`")
    good = VALUE("float", "value", "1")
    cells = [cell for hostile in OPEN_CELLS for cell in (hostile, good)]
    found = read(open_document(tmp_path / "t.ods", *cells), None)
    assert found == [("7", text) for hostile in OPEN_CELLS.values() for text in (hostile, "1")]
    for spoilt in SPOILT:
        with pytest.raises(PolicyError, match="cannot be read: it is damaged"):
            read(open_document(tmp_path / "t.ods", good, spoilt, good), None)


ENDLESS = "no row"
"""A row with a duration that no clock has is not given: no cell of it is filled."""
NUMBERS: dict[float, list[str]] = {
    0.5: ["0.5", "12:00:00", "12:00:00", "12:00:00"],
    -1.0: ["-1", "00:00:00", "-1 day, 0:00:00", "00:00:00"],
    2958466.0: ["2958466", "2958466", "2958466 days, 0:00:00", "2958466"],
    1e308: ["1e+308", "1e+308", ENDLESS, "1e+308"],
    float("inf"): ["inf", "inf", ENDLESS, "inf"],
    float("nan"): ["nan", "1899-12-30", "0:00:00", "1899-12-30"],
}
"""Numbers, each with its text as a number, a date, a duration and a time of a binary workbook."""
KINDS = [(number, style, text) for number, texts in NUMBERS.items() for style, text in enumerate(texts)]


def test_a_cell_of_xls_touches_no_other_row(tmp_path: Path) -> None:
    """Whatever record stands in every other row; or no row is read at all, which is one error of this workbook."""
    pytest.importorskip("python_calamine", reason="these workbooks need the extra `excel`")

    def cell(kind: int, data: bytes, style: int = 0) -> Callable[[int, Sequence[int]], bytes]:
        return lambda row, formats: old_record(kind, pack("<HHH", row, 1, formats[style]) + data)

    hostile: list[tuple[Any, str | None]] = [
        (cell(0x203, pack("<d", number), style), text) for number, style, text in KINDS
    ]
    hostile += [
        (cell(0x205, b"\7\0"), "true"),
        (cell(0x205, b"\7\1"), None),  # #DIV/0!
        (cell(0xFD, pack("<I", 2**31)), None),  # a text beyond the table of texts
        (cell(0x27E, b"\xff" * 4, DAY), "23:45:36"),
        (cell(0x204, pack("<HB", 60_000, 0) + b"a"), "a"),  # a text that is longer than its record
        (lambda row, _: old_record(0x203, pack("<HHHd", row, 1, 9999, 1)), "1"),  # a format that is not there
    ]
    plain = read(old_book(tmp_path / "t.xls", {}), None)
    found = read(
        old_book(tmp_path / "t.xls", dict(zip(range(1, 60, 2), map(itemgetter(0), hostile), strict=True))), None
    )
    for at, (_, text) in enumerate(hostile):
        plain[2 * at] = (plain[2 * at][0], text, None)
    assert found == [own for own in plain if own[1] != ENDLESS]
    for spoilt in (cell(0x205, b"\x63\1"), cell(6, b"\xff" * 8), lambda *_: old_record(0x203, b"\3\0")):
        with pytest.raises(PolicyError, match="cannot be read: it is damaged"):
            read(old_book(tmp_path / "t.xls", {3: spoilt}), None)


def test_a_cell_of_xlsb_touches_no_other_row(tmp_path: Path) -> None:
    """The same of a workbook that is a binary file in a ZIP archive."""
    pytest.importorskip("python_calamine", reason="these workbooks need the extra `excel`")

    def cell(kind: int, data: bytes, style: int = 0, column: int = 1) -> bytes:
        return binary_record(kind, pack("<II", column, style) + data)

    hostile: list[tuple[bytes, str | None]] = [
        (cell(5, pack("<d", number), style), text) for number, style, text in KINDS
    ]
    hostile += [
        (cell(4, b"\7"), "true"),
        (cell(3, b"\7"), None),
        (cell(5, pack("<d", 1), 9999), "1"),
        (cell(1, b""), None),
    ]
    good = [cell(5, pack("<d", 7), column=0), cell(5, pack("<d", 45000.5), DAY)]
    head = [cell(6, binary_text(name), column=at) for at, name in enumerate("ab")]
    rows = [own for record, _ in hostile for own in ([good[0], record], good)]
    wanted = [own for _, text in hostile for own in (("7", text), ("7", "2023-03-15 12:00:00"))]
    assert read(binary_book(tmp_path / "t.xlsb", [head, *rows]), None) == [own for own in wanted if own[1] != ENDLESS]
    for spoilt in (cell(3, b"\x63"), cell(6, pack("<I", 2**20)), cell(7, pack("<I", 2**31))):
        with pytest.raises(PolicyError, match="cannot be read: it is damaged"):
            read(binary_book(tmp_path / "t.xlsb", [head, [good[0], spoilt], good]), None)


def test_a_workbook_that_ends_its_reader_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of OpenDocument that is as large as its far cell says."""
    pytest.importorskip("python_calamine", reason="these workbooks need the extra `excel`")
    pytest.importorskip("resource", reason="memory is limited by the operating system")
    far = (
        '<table:table-row table:number-rows-repeated="1000000"><table:table-cell table:number-columns-repeated="16000"/>'
        '<table:table-cell office:value-type="float" office:value="1"/></table:table-row>'
    )
    with ZipFile(BOOKS / "school.ods") as old, ZipFile(tmp_path / "t.ods", "w") as new:
        for name in old.namelist():
            text = old.read(name)
            if name == "content.xml":
                text = text.replace(b"</table:table>", far.encode() + b"</table:table>", 1)
            new.writestr(name, text)
    monkeypatch.setattr(delimited, "SHEET_MEMORY", 2**28)
    with pytest.raises(PolicyError, match="or needs too much memory"):
        read(tmp_path / "t.ods", None)
    assert len(read(BOOKS / "school.ods", None)) == 60
