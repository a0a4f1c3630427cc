# SPDX-License-Identifier: Apache-2.0
"""Small workbooks, written cell by cell as XML, so that a cell can have content that no program writes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from struct import pack
from zipfile import ZipFile

from tests.support.house.checkout import ROOT

BOOKS = ROOT / "tests" / "offices"
STYLES = '<xf numFmtId="46"/><xf numFmtId="14"/><xf numFmtId="20"/>'  # 3: a duration, 4: a date, 5: a time
HEADER = '<row r="1"><c r="A1" t="inlineStr"><is><t>{}</t></is></c><c r="B1" t="inlineStr"><is><t>{}</t></is></c></row>'
CELLS = {
    "duration": '<c r="B3" s="3"><v>1000000000000</v></c>',
    "endless duration": '<c r="B3" s="3"><v>1e400</v></c>',
    "no duration": '<c r="B3" s="3"><v>NaN</v></c>',
    "date": '<c r="B3" s="4"><v>1e300</v></c>',
    "date before all": '<c r="B3" s="4"><v>-1e300</v></c>',
    "time": '<c r="B3" s="5"><v>NaN</v></c>',
    "truth value": '<c r="B3" t="b"><v>2</v></c>',
    "error": '<c r="B3" t="e"><v>#WHAT!</v></c>',
    "string beyond": '<c r="B3" t="s"><v>7</v></c>',
    "string of a huge number": f'<c r="B3" t="s"><v>{"9" * 5000}</v></c>',
    "string before": '<c r="B3" t="s"><v>-1</v></c>',
    "number": '<c r="B3" t="n"><v>seven</v></c>',
    "kind": '<c r="B3" t="z"><v>1</v></c>',
    "child": '<c r="B3"><w>1</w></c>',
    "address": '<c r="B3" t="b"/><c r="ZZZ3"><v>1</v></c>',
    "column beyond": '<c r="XFE3"><v>1</v></c>',
    "far column": '<c r="XFD3"><v>1</v></c>',
    "far cell": '</row><row r="1048576"><c r="XFD1048576"><v>1</v></c>',
    "row of a huge number": f'</row><row r="{"9" * 5000}"><c r="C1"><v>1</v></c>',
    "same row": '</row><row r="2"><c r="C2"><v>5</v></c>',
}
"""What may stand in the cell B3, each without a value for its row."""


def book(file: Path, rows: str) -> None:
    """Writes a small workbook whose first sheet has these rows."""
    with ZipFile(BOOKS / "hospital.xlsx") as old, ZipFile(file, "w") as new:
        for name in old.namelist():
            text = old.read(name).decode()
            if name.endswith("sheet1.xml"):
                text = re.sub(
                    "<sheetData>.*</sheetData>", lambda _: f"<sheetData>{rows}</sheetData>", text, flags=re.DOTALL
                )
            new.writestr(name, text.replace("</cellXfs>", STYLES + "</cellXfs>"))


# Formats of numbers, as both binary kinds of workbooks have them
PLAIN, DAY, SPAN, TIME = range(4)
FORMATS = (0, 14, 46, 20)


def old_record(kind: int, data: bytes = b"") -> bytes:
    """A record of an .xls file."""
    return pack("<HH", kind, len(data)) + data


def old_book(file: Path, cells: Mapping[int, Callable[[int, Sequence[int]], bytes]]) -> Path:
    """Writes ``tax.xls`` with other records in place of the cells of B and C in some rows.

    Args:
        file: The file to write.
        cells: For each row a function from its number and the numbers of ``FORMATS`` to its record.
    """
    book, formats = bytearray((BOOKS / "tax.xls").read_bytes()), (17, 16, 15, 14)
    starts = [at for at in range(len(book)) if book.startswith(old_record(0xE0, bytes(20))[:4], at)]
    for number, format_ in zip(formats, FORMATS, strict=True):
        book[starts[number] + 6 : starts[number] + 8] = pack("<H", format_)
    for row, made in cells.items():
        at, new = book.index(pack("<HHHH", 0xBD, 18, row, 1)), made(row, formats)
        book[at : at + 22] = new if len(new) == 22 else new + old_record(0xFFF, bytes(18 - len(new)))
    file.write_bytes(book)
    return file


def binary_record(kind: int, data: bytes = b"") -> bytes:
    """A record of an .xlsb file, of less than 2^14 bytes."""
    head = bytes([kind] if kind < 128 else [kind & 127 | 128, kind >> 7])
    return head + bytes([len(data) & 127 | 128, len(data) >> 7]) + data


def binary_text(text: str) -> bytes:
    return pack("<I", len(text)) + text.encode("utf-16-le")


def binary_book(file: Path, rows: Sequence[Sequence[bytes]]) -> Path:
    """Writes an .xlsb file of one sheet: the records of the cells of each row."""
    parts = "http://schemas.openxmlformats.org/"
    said = f'<Relationships xmlns="{parts}package/2006/relationships">'
    one = f'<Relationship Id="{{0}}" Type="{parts}officeDocument/2006/relationships/{{0}}" Target="{{1}}"/>'.format
    styles = b"".join(binary_record(0x2F, pack("<HH", 0, number) + bytes(12)) for number in FORMATS)
    held = (binary_record(0, pack("<II", at, 0) + bytes(17)) + b"".join(cells) for at, cells in enumerate(rows))
    sheet = binary_record(0x9C, pack("<II", 0, 1) + binary_text("worksheet") + binary_text("A"))
    with ZipFile(file, "w") as book:
        book.writestr("_rels/.rels", f"{said}{one('officeDocument', 'xl/workbook.bin')}</Relationships>")
        within = one("worksheet", "worksheets/sheet1.bin") + one("styles", "styles.bin")
        book.writestr("xl/_rels/workbook.bin.rels", f"{said}{within}</Relationships>")
        book.writestr("xl/workbook.bin", binary_record(0x8F) + sheet + binary_record(0x90) + binary_record(0x84))
        book.writestr("xl/styles.bin", binary_record(0x269, pack("<I", len(FORMATS))) + styles + binary_record(0x26A))
        size = binary_record(0x94, pack("<IIII", 0, len(rows) - 1, 0, 1))
        book.writestr("xl/worksheets/sheet1.bin", size + binary_record(0x91) + b"".join(held) + binary_record(0x92))
    return file
