# SPDX-License-Identifier: Apache-2.0
"""Reads a sheet of a workbook. ``delimited`` runs this file as a separate process with limited memory.

It prints lines of JSON: the names of the sheets, then the rows of the chosen sheet as lists of texts
(null for a missing value), then the numbers of lost cells, by kind and column. If it does not exit
with 0, the workbook cannot be read. So no workbook can end the process that opens a dataset.

A sheet of an .xlsx or .xlsm file is read as a stream, row by row and cell by cell. Other formats are
read by python-calamine, which holds the whole rectangle from the first to the last filled cell.

Privacy:
    The cells of a row of .xlsx are read from this row, the styles and the shared strings alone. An
    unreadable cell is missing, and a cell far away costs as much as any other. In other formats a row
    with a duration that is too long has no filled cell.
    Held by: tests/integration/test_hostile_workbooks.py.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from itertools import repeat
from typing import Any
from xml.etree.ElementTree import Element, iterparse, parse
from zipfile import ZipFile

STREAMED = (".xlsx", ".xlsm")
# Built-in formats of dates and durations, which have a number and no code.
_DATES, _DURATIONS = {*range(14, 23), 45, 47}, {46}
_LITERAL = re.compile(r'\\.|_.|\*.|"[^"]*"?', re.DOTALL)
_LETTERS, _DIGITS = re.compile(r"[A-Z]{1,3}"), "0123456789"
_AREA = re.compile(r"([A-Z]{1,3})([0-9]{1,7}):([A-Z]{1,3})([0-9]{1,7})")
_AREAS = 4096  # the most merged areas, and columns of each, that are counted
Area = tuple[tuple[int, int], tuple[int, int]]
"""The first and the last cell of a merged area, each (row, column) from 0 on."""
_LAST_COLUMN = 2**14
# An escaped control character, such as _x000D_; not NUL, and not half of a surrogate pair.
_SIGN = re.compile(r"_x(?!0000|[Dd][89A-Fa-f])([0-9A-Fa-f]{4})_")
_BLANK = " \t\r\n"
FORMULAS = "formulas without a saved value; open the workbook in a spreadsheet program, and save it"
MERGED = "merged cells, which give their value to the first row alone; unmerge them, and fill each row"
DIGITS = "numbers of more than 15 digits, which spreadsheet programs cut; where they are codes, write them as text"
PADDED = (
    "numbers in a format that shows zeros before them, which are not read; where they are codes, write them as text"
)
BEFORE = "rows with cells before this column that are not read, for no name stands above them; name or delete them"
Losses = dict[str, Counter[int]]
"""Numbers of cells whose value is not read as shown, by kind and column."""


def text_of(cell: object, decimal: str) -> str | None:
    """The text of a cell; None for an empty or unreadable one."""
    match cell:
        case str():
            return cell or None
        case bool():
            return "true" if cell else "false"
        case float() | int():
            # 7.0 becomes 7: sheets store all numbers as floats.
            number = str(int(cell)) if abs(cell) < 1e15 and cell == int(cell) else repr(cell)
            return number.replace(".", decimal)
        case datetime():
            return cell.isoformat(" ") if cell.time() != time() else str(cell.date())
        case date() | time():
            return str(cell)
    return None if cell is None else str(cell) or None


class Streamed:
    """A workbook whose parts are XML in an archive."""

    def __init__(self, file: str) -> None:
        self._archive = ZipFile(file)
        self._parts = {name.lower(): name for name in self._archive.namelist()}
        book, links = self._root("xl/workbook.xml"), self._root("xl/_rels/workbook.xml.rels")
        targets = {link.get("Id"): link.get("Target", "") for link in links}
        kinds = {link.get("Type", "").rpartition("/")[2]: link.get("Target", "") for link in links}
        sheets = [element for element in book.iter() if _local(element.tag) == "sheet"]
        linked = [next((value for key, value in sheet.items() if key.endswith("}id")), None) for sheet in sheets]
        self.names = [sheet.get("name", "") for sheet in sheets]
        self.hidden = [sheet.get("name", "") for sheet in sheets if sheet.get("state", "visible") != "visible"]
        self._targets = dict(zip(self.names, (targets.get(link, "") for link in linked), strict=True))
        self._from_1904 = any(
            _local(element.tag) == "workbookPr" and element.get("date1904") in ("1", "true") for element in book.iter()
        )
        self._strings = list(map(_string, self._root(kinds["sharedStrings"]))) if "sharedStrings" in kinds else []
        self._formats = _formats(self._root(kinds["styles"])) if "styles" in kinds else []
        self._uncomputed, self._padded = Counter[int](), Counter[int]()
        self._merged: list[Area] = []

    def losses(self, name: str, above: int) -> Losses:
        """The cells below the header that ``rows`` did not read as shown."""
        return {FORMULAS: self._uncomputed, PADDED: self._padded, MERGED: _covered(self._merged, above)}

    def rows(self, name: str) -> Iterator[tuple[int, list[object]]]:
        number = -1
        with self._archive.open(self._part(self._targets[name])) as stream:
            for _, element in iterparse(stream):
                name = _local(element.tag)
                if name == "mergeCell" and (area := _AREA.fullmatch(element.get("ref", ""))):
                    first, top, last, bottom = area.groups()
                    self._merged.append(((int(top) - 1, _column(first)), (int(bottom) - 1, _column(last))))
                if name == "row":
                    stated = element.get("r", "")
                    number = int(stated) - 1 if stated.isdecimal() and len(stated) < 8 else number + 1
                    yield number, self._cells(element)
                    element.clear()

    def _part(self, target: str) -> str:
        path = target[1:] if target.startswith("/") else target if target.startswith("xl/") else f"xl/{target}"
        return self._parts[path.lower()]

    def _root(self, target: str) -> Element:
        with self._archive.open(self._part(target)) as stream:
            return parse(stream).getroot()

    def _cells(self, row: Element) -> list[object]:
        """The cells of a row up to its last value, by column. The row number in a cell's address is ignored."""
        cells: list[object] = []
        column = -1
        for cell in row:
            address = cell.get("r", "")
            letters = address.rstrip(_DIGITS)
            column = column + 1 if letters == address else _column(letters, column + 1)
            value = self._value(cell)
            if isinstance(value, float) and self._shape(cell.get("s", "")) is str:
                self._padded[column] += 1
            if value is None:
                if any(_local(element.tag) == "f" for element in cell) and cell.get("t") not in ("str", "e"):
                    self._uncomputed[column] += 1
            elif column == len(cells) < _LAST_COLUMN:
                cells.append(value)
            elif column < _LAST_COLUMN:
                cells.extend(repeat(None, column + 1 - len(cells)))
                cells[column] = value
        return cells

    def _value(self, cell: Element) -> object:
        """The value of a cell; None for a missing or unreadable one."""
        kind, text = cell.get("t", ""), None
        for element in cell:
            name = _local(element.tag)
            if name == "is":
                return _string(element)
            if name == "v":
                text = element.text
        if text is None or kind in ("inlineStr", "is"):
            return None
        try:
            match kind:
                case "" | "n":
                    return self._number(text, cell.get("s", ""), typed=kind == "n")
                case "s":
                    return self._strings[int(text)] if text.isdecimal() else None
                case "str":
                    return _signs(text)
                case "b":
                    return {"0": False, "1": True}.get(text)
                case "d":
                    return _moment(text)
        except (ValueError, OverflowError, IndexError):
            return None
        return None

    def _number(self, text: str, style: str, *, typed: bool) -> object:
        """A number, date or duration, as its style says. Another text is missing if it is ``typed`` a number."""
        try:
            number = float(text if text.isascii() and "_" not in text and text == text.strip() else "-")
        except ValueError:
            return None if typed else text
        shape = self._shape(style)
        if shape in (None, str):
            return number
        span = timedelta(milliseconds=round(number * 86_400_000))
        if shape is timedelta:
            return span
        if number < 1:
            return (datetime.min + span % timedelta(days=1)).time()
        epoch = datetime(1904, 1, 1) if self._from_1904 else datetime(1899, 12, 30 if number >= 60 else 31)
        return epoch + span

    def _shape(self, style: str) -> type | None:
        return self._formats[int(style)] if style.isdecimal() and int(style) < len(self._formats) else None


class Loaded:
    """A workbook that python-calamine loads."""

    def __init__(self, file: str) -> None:
        import python_calamine  # in the extra `excel`

        self._book = python_calamine.CalamineWorkbook.from_path(file)
        self.names = list(self._book.sheet_names)
        shown = python_calamine.SheetVisibleEnum.Visible
        self.hidden = [sheet.name for sheet in self._book.sheets_metadata if sheet.visible != shown]

    def losses(self, name: str, above: int) -> Losses:
        """The merged cells without a value, below the header."""
        return {MERGED: _covered(self._book.get_sheet_by_name(name).merged_cell_ranges or (), above)}

    def rows(self, name: str) -> Iterator[tuple[int, list[Any]]]:
        """The rows of a sheet, each with its number from 0 on."""
        sheet = self._book.get_sheet_by_name(name)
        before: list[Any] = [None] * (sheet.start[1] if sheet.start else 0)
        rows, number = sheet.iter_rows(), 0
        while True:
            try:
                row = next(rows)
            except StopIteration:
                return
            except (OverflowError, ValueError):  # no Python type holds the value of a cell
                row = []
            yield number, before + row
            number += 1


def _covered(areas: Sequence[Area], above: int) -> Counter[int]:
    """The cells of merged areas below the header, without the first of each, by column."""
    covered = Counter[int]()
    for (top, first), (bottom, last) in areas[:_AREAS]:
        for column in range(first, min(last, first + _AREAS) + 1):
            covered[column] += max(0, bottom + 1 - max(top + (column == first), above))
    return +covered


@lru_cache(maxsize=256)
def _local(tag: str) -> str:
    return tag.rpartition("}")[2]


@lru_cache(maxsize=2**15)
def _column(letters: str, otherwise: int = 0) -> int:
    """The number of a column, from 0 on; ``otherwise`` for other letters."""
    if not _LETTERS.fullmatch(letters):
        return otherwise
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number - 1


def _string(element: Element) -> str:
    """The text of a string: its runs, without phonetic runs."""
    runs = (
        run
        for child in element
        for run in ([child] if _local(child.tag) == "t" else child if _local(child.tag) == "r" else ())
    )
    return _signs("".join(_run_text(run) for run in runs if _local(run.tag) == "t"))


def _run_text(run: Element) -> str:
    text = run.text or ""
    return text if run.get("{http://www.w3.org/XML/1998/namespace}space") == "preserve" else text.strip(_BLANK)


def _signs(text: str) -> str:
    return _SIGN.sub(lambda match: chr(int(match[1], 16)), text) if "_x" in text else text


def _moment(text: str) -> object:
    """The date or time of a text in ISO 8601; another text unchanged."""
    for of_iso in (datetime.fromisoformat, time.fromisoformat):
        with suppress(ValueError):
            return of_iso(text)
    return text


def _formats(styles: Element) -> list[type | None]:
    """The type that each style shows: ``datetime``, ``timedelta``, ``str`` for leading zeros, None for a number."""
    codes = {
        element.get("numFmtId"): element.get("formatCode", "")
        for element in styles.iter()
        if _local(element.tag) == "numFmt"
    }
    cell_styles = next((element for element in styles if _local(element.tag) == "cellXfs"), ())
    return [_format(style.get("numFmtId", ""), codes) for style in cell_styles]


def _format(number: str, codes: dict[str | None, str]) -> type | None:
    if number not in codes:
        built_in = int(number) if number.isdecimal() else 0
        return datetime if built_in in _DATES else timedelta if built_in in _DURATIONS else None
    code = _LITERAL.sub("", codes[number]).partition(";")[0].lower()
    if re.fullmatch("0{2,}", code):
        return str
    if re.search(r"\[(h+|m+|s+)\]", code):
        return timedelta
    return datetime if re.search(r"[dmyhs]|a/p", re.sub(r"\[[^]]*\]", "", code)) else None


def _limit(memory: int) -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource  # not on Windows

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _print(file: str, sheet: str | None, decimal: str, skip: int, glance: int, width: int | None, memory: int) -> None:
    """Prints the sheets, and the rows of the chosen one, the first ``glance`` whole.

    Without ``width`` the header gives it.
    """
    _limit(memory)
    book = Streamed(file) if file.lower().endswith(STREAMED) else Loaded(file)
    print(json.dumps([book.names, book.hidden]))
    name = sheet or (book.names[0] if len(book.names) == 1 else None)
    printed, long = 0, Counter[int]()
    for number, cells in book.rows(name) if name in book.names and name is not None else ():
        while printed < min(number, glance):
            print("[]")
            printed += 1
        shown: Sequence[object] = cells if printed < glance else cells[:width]
        row = [text_of(cell, decimal) for cell in shown]
        long.update(column for column, cell in enumerate(shown) if isinstance(cell, float) and abs(cell) >= 1e15)
        if width is None and number >= skip:
            width = max((column for column, text in enumerate(row, 1) if text), default=0) if number == skip else 0
        if any(row) or printed < glance:
            print(json.dumps(row))
            printed += 1
    print(json.dumps({DIGITS: long} | (book.losses(name, skip + 1) if name in book.names and name else {})))


if __name__ == "__main__":
    _print(**json.loads(sys.argv[1]))
