# SPDX-License-Identifier: Apache-2.0
"""Made-up files of offices, each with the truth of its cells: forms, languages, oddities and sizes, by a seed.

``office_file(seed)`` writes one. Its columns are an amount, a whole number, a day and a town. An oddity changes some
cells of the amount, or the lines around the table; the truth has the meaning of the cells.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from random import Random
from xml.sax.saxutils import escape

import duckdb

from pinq.engine.sources import quoted
from tests.support.tables.workbooks import book

FORMS = {
    "german": (";", ",", ".", "%d.%m.%Y", ["Köln", "Tübingen", "Ulm"], ["Betrag", "Fälle", "Tag", "Ort"]),
    "swiss": (";", ".", "'", "%d.%m.%Y", ["Zürich", "Genève", "Uri"], ["Betrag", "Fälle", "Tag", "Ort"]),
    "french": (";", ",", "\u202f", "%d/%m/%Y", ["Orléans", "Nîmes", "Pau"], ["montant", "cas", "jour", "ville"]),
    "spanish": (";", ",", ".", "%d-%m-%Y", ["Málaga", "León", "Vigo"], ["importe", "casos", "día", "ciudad"]),
    "polish": (";", ",", "\u00a0", "%d.%m.%Y", ["Łódź", "Gdańsk", "Opole"], ["kwota", "liczba", "dzień", "miasto"]),
    "russian": (";", ",", " ", "%d.%m.%Y", ["Тверь", "Омск", "Уфа"], ["сумма", "число", "день", "город"]),
    "english": (",", ".", ",", "%d/%m/%Y", ["York", "Bath", "Ely"], ["amount", "cases", "day", "town"]),
    "american": (",", ".", ",", "%m/%d/%Y", ["Reno", "Erie", "Waco"], ["amount", "cases", "day", "town"]),
    "greek": ("\t", ",", ".", "%d/%m/%Y", ["Πάτρα", "Βόλος", "Άρτα"], ["ποσό", "πλήθος", "ημέρα", "πόλη"]),
    "plain": (",", ".", "", "%Y-%m-%d", ["Oslo", "Bern", "Graz"], ["amount", "cases", "day", "town"]),
}
ODDITIES = (
    *("none", "titles", "byte order mark", "quoted", "carriage returns", "blank lines", "total", "unit line"),
    *("brackets", "trailing minus", "percent", "currency", "error values", "words for missing", "no-break blanks"),
    *("arabic digits", "huge number", "underscored", "other dates", "ragged", "empty column", "plus signs"),
    *(
        "exponents",
        "doubled name",
        "UTF-16",
        "blanks around",
        "apostrophes",
        "one odd code",
        "dashes",
        "years of two digits",
        "hashes",
    ),
)
SIZES = (60, 240, 900)
Cell = float | str | None
"""The truth of a cell: a number, a day as ISO 8601 has it, a town, or None where no value stands."""


@dataclass(frozen=True)
class OfficeFile:
    """A written file and its truth.

    Attributes:
        path: The file.
        names: The names of its columns.
        rows: The truth of each row, column by column.
        told: The name of the form, and the oddity.
    """

    path: Path
    names: list[str]
    rows: list[tuple[Cell, ...]]
    told: str


def office_file(seed: int, folder: Path) -> OfficeFile:
    """Writes the file of a seed into a folder: all forms, oddities and sizes in turn."""
    form, oddity = list(FORMS)[seed % len(FORMS)], ODDITIES[seed // len(FORMS) % len(ODDITIES)]
    size, drawn = SIZES[seed % len(SIZES)], Random(seed)
    sign, decimal, thousands, dates, towns, names = FORMS[form]
    rows, lines = list[tuple[Cell, ...]](), list[str]()
    for number in range(size):
        amount, cases = drawn.randrange(-200_000, 2_000_000) / 100, drawn.randrange(1, 60)
        day = f"2024-{drawn.randrange(1, 13):02}-{drawn.randrange(1, 29):02}"
        text, truth = _amount(amount, oddity if number % 7 == 3 else "none", decimal, thousands)
        rows.append((truth, float(cases), day, drawn.choice(towns)))
        own = "%Y/%m/%d" if oddity == "other dates" and number % 9 == 4 else dates
        own = own.replace("%Y", "%y") if oddity == "years of two digits" else own
        cells = [text, str(cases), _day(day, own), str(rows[-1][3])]
        cells += [""] if oddity == "empty column" else [str(cases)] if oddity == "doubled name" else []
        lines.append(_line(cells, sign, oddity) + (sign if oddity == "ragged" and number % 11 == 5 else ""))
        if oddity == "blank lines" and number % 10 == 0:
            lines.append(sign * 3 if number % 20 else "")
    if oddity == "total":
        lines.append(
            _line(
                [_amount(sum(float(row[0] or 0) for row in rows), "none", decimal, thousands)[0], "", "", ""],
                sign,
                "none",
            )
        )
    header = [*names, *([""] if oddity == "empty column" else [names[1]] if oddity == "doubled name" else [])]
    lines[:0] = [sign.join(header), *([sign.join(["EUR", "n", "", ""])] if oddity == "unit line" else [])]
    lines[:0] = [f"{names[0]} 2024", ""] if oddity == "titles" else []
    end = "\r\n" if oddity == "carriage returns" else "\n"
    encoding = {"UTF-16": "utf-16", "byte order mark": "utf-8-sig"}.get(oddity, "utf-8")
    path = folder / f"office{seed}.csv"
    path.write_bytes(("".join(f"{line}{end}" for line in lines)).encode(encoding))
    return OfficeFile(path, names, rows, f"{form}, {oddity}")


def typed_file(seed: int, folder: Path) -> OfficeFile:
    """Writes the workbook or database of a seed: numbers and days have their types, and odd cells are texts."""
    kind, oddity = KINDS[seed % len(KINDS)], TYPED_ODDITIES[seed // len(KINDS) % len(TYPED_ODDITIES)]
    drawn, rows, cells = Random(seed), list[tuple[Cell, ...]](), list[list[object]]()
    _, decimal, thousands, _, towns, names = FORMS[list(FORMS)[seed % len(FORMS)]]
    for number in range(SIZES[seed % len(SIZES)]):
        amount, cases = drawn.randrange(-200_000, 2_000_000) / 100, drawn.randrange(1, 60)
        day = f"2024-{drawn.randrange(1, 13):02}-{drawn.randrange(1, 29):02}"
        text, truth = _amount(amount, oddity if number % 7 == 3 else "none", decimal, thousands)
        odd = oddity in ODD_TEXTS and number % 7 == 3
        rows.append((truth, float(cases), day, drawn.choice(towns)))
        cells.append([text if odd and kind != "duckdb" else None if odd else truth, cases, day, rows[-1][3]])
        if odd and kind == "duckdb":  # whose columns hold no odd texts
            rows[-1] = (None, *rows[-1][1:])
        if oddity == "blank lines" and kind == "xlsx" and number % 10 == 0:  # an empty row of a database is a row
            cells.append([None] * 4)
    if oddity == "total":
        cells.append([sum(float(row[0] or 0) for row in rows), None, None, None])
    path = folder / f"office{seed}.{kind}"
    _WRITERS[kind](path, names, cells)
    return OfficeFile(path, names, rows, f"{kind}, {oddity}")


def _as_workbook(path: Path, names: list[str], table: list[list[object]]) -> None:
    rows, header = list[str](), list[object](names)
    for number, own in enumerate([header, *table], 1):
        made = []
        for letter, value in zip("ABCD", own, strict=True):
            if isinstance(value, str) and re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
                serial = date.fromisoformat(value).toordinal() - date(1899, 12, 30).toordinal()
                made.append(f'<c r="{letter}{number}" s="4"><v>{serial}</v></c>')
            elif isinstance(value, str):
                made.append(f'<c r="{letter}{number}" t="inlineStr"><is><t>{escape(value)}</t></is></c>')
            elif value is not None:
                made.append(f'<c r="{letter}{number}"><v>{value!r}</v></c>')
        rows.append(f'<row r="{number}">{"".join(made)}</row>')
    book(path, "".join(rows))


def _as_sqlite(path: Path, names: list[str], table: list[list[object]]) -> None:
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(f"CREATE TABLE t ({', '.join(map(quoted, names))})")
        base.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", table)


def _as_duckdb(path: Path, names: list[str], table: list[list[object]]) -> None:
    columns = zip(map(quoted, names), ("DOUBLE", "INTEGER", "DATE", "VARCHAR"), strict=True)
    with duckdb.connect(path) as base:
        base.execute(f"CREATE TABLE t ({', '.join(map(' '.join, columns))})")
        base.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", table)


_WRITERS: dict[str, Callable[[Path, list[str], list[list[object]]], None]] = {
    "xlsx": _as_workbook,
    "sqlite": _as_sqlite,
    "duckdb": _as_duckdb,
}
KINDS = tuple(_WRITERS)
ODD_TEXTS = ("words for missing", "error values", "hashes", "percent", "currency", "brackets", "underscored")
TYPED_ODDITIES = ("none", "blank lines", "total", "one odd code", "huge number", *ODD_TEXTS)


def _line(cells: list[str], sign: str, oddity: str) -> str:
    quoted = [f'"{cell}"' if oddity == "quoted" or sign in cell else cell for cell in cells]
    return sign.join(f" {cell} " if oddity == "blanks around" and '"' not in cell else cell for cell in quoted)


def _day(day: str, form: str) -> str:
    year, month, date = day.split("-")
    return form.replace("%Y", year).replace("%y", year[2:]).replace("%m", month).replace("%d", date)


def _amount(amount: float, oddity: str, decimal: str, thousands: str) -> tuple[str, float | None]:
    """The text of an amount, and the amount."""
    if oddity == "brackets":
        amount = -abs(amount)
    plain = f"{abs(amount):,.2f}".translate({ord(","): thousands, ord("."): decimal})
    text = ("-" if amount < 0 else "") + plain
    match oddity:
        case "brackets":
            return f"({plain})", amount
        case "trailing minus":
            return f"{plain}-", -abs(amount)
        case "percent":
            return f"{text} %", amount
        case "currency":
            return f"€ {text}", amount
        case "error values":
            return "#DIV/0!", None
        case "hashes":
            return "#####", None
        case "words for missing":
            return "n/a", None
        case "one odd code":
            return "-999", -999.0
        case "no-break blanks":
            return f"\u00a0{text}\u00a0", amount
        case "arabic digits":
            return text.translate(dict(zip(map(ord, "0123456789"), "٠١٢٣٤٥٦٧٨٩", strict=True))), amount
        case "huge number":
            return "12345678901234567", 12345678901234567.0
        case "underscored":
            return "1_000", None
        case "exponents":
            return f"{amount:.2e}".replace(".", decimal), float(f"{amount:.2e}")
        case "apostrophes":
            return f"'{text}", amount
        case "dashes":
            return f"\u2212{plain}", -abs(amount)
    return text, amount
