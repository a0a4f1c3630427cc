# SPDX-License-Identifier: Apache-2.0
"""Reads JSON lines, and files of SPSS, SAS and Stata, each value as the text that a CSV file would have.

A line of JSON is one row. A line is unreadable and left out if it is longer than ``MAX_LINE``, is not an object in
the declared encoding, or has a field twice. An absent field is missing. Numbers keep their digits, and 5.0 and 5e0
become 5. A nested value becomes its JSON, with numbers as texts. The columns are the fields of at least half of the
first lines of the first file: names are public, so one row must not add a name.

In files of SPSS, SAS and Stata a labelled value becomes its label, a date becomes a text such as 2024-11-16, and a
value that the file declares missing is missing. A date's number beyond the calendar becomes its first or last date.
A text that is invalid in the file's encoding is read as windows-1252.

Privacy:
    A row's texts depend on its own line or record, the file's header and the dialect alone: a row-wise map,
    stability 1. Held by: tests/integration/test_records.py.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from pinq.engine.delimited import GLANCE_LINES, MAX_LINE, NO_OBJECT, Lines, TextFiles, blocks, line_of, opened
from pinq.engine.formats import column_fault
from pinq.engine.frames import texts_of
from pinq.errors import PolicyError, printable
from pinq.policy.dialect import Dialect
from pinq.public.dates import DAY, microseconds_of, write_moment
from pinq.public.plugins import optional

ROWS = 50_000  # rows of one read of a file of SPSS, SAS or Stata
MOST_DIGITS = 400  # digits of a JSON number that is written out; a double has fewer


class Records(TextFiles):
    """Files with named columns, of a form that is not guessed."""

    def _glances(self) -> dict[str, list[list[str]]]:
        return {"": []}

    def looks_like(self) -> str:
        return ""


class JsonLines(Records):
    """Files with one JSON object in each line."""

    def __init__(self, files: Sequence[Path], dialect: Dialect) -> None:
        self._files, self._dialect = tuple(files), dialect  # files are first read for `names`

    def known(self, columns: Sequence[str]) -> Sequence[str]:
        """All of ``columns``: a row without the field has a missing value, so no row decides."""
        return columns

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The fields of at least half of the first lines. Raises ``PolicyError`` if they cannot name columns."""
        if not (names := self._header(self._files[0])):
            raise PolicyError(
                f"The first lines of {self._files[0]} have no fields in common: each line must be one JSON object, "
                "with each field once."
            )
        if fault := column_fault(names):
            raise PolicyError(
                f"The fields of the first lines of {self._files[0]} can name no columns: the list {fault}."
            )
        return names

    def read(self, columns: Sequence[str], lines: Lines, files: Sequence[Path] | None = None) -> Iterator[pa.Table]:
        for file in self._files if files is None else files:
            for rows in self._rows(file, lines):
                texts = ([_json_text(row.get(name)) for row in rows] for name in columns)
                yield pa.table({name: pa.array(col, pa.string()) for name, col in zip(columns, texts, strict=True)})

    def _header(self, file: Path) -> tuple[str, ...]:
        rows = next(self._rows(file, Lines()), [])[:GLANCE_LINES]
        counts = Counter(name for row in rows for name in row)
        return tuple(name for name, count in counts.items() if 2 * count >= len(rows))

    def _rows(self, file: Path, lines: Lines) -> Iterator[list[dict[str, Any]]]:
        """Yields the objects of a file, block by block, and counts unreadable lines."""
        with opened(file) as stream:
            number = 1
            for block in blocks(stream):
                rows = list[dict[str, Any]]()
                for place, line in enumerate(block.split(b"\n")):
                    if line.strip():
                        lines.total += 1
                        if isinstance(row := self._parsed(line), dict):
                            rows.append(row)
                        else:
                            lines.add(NO_OBJECT, 1, line_of(file.name, number, place))
                yield rows
                number += block.count(b"\n")

    def _parsed(self, line: bytes) -> object:
        """The value of a line, with numbers as texts; None if it is too long or not JSON."""
        parse = partial(json.loads, parse_int=_number_text, parse_float=_number_text, parse_constant=str)
        try:
            return parse(line.decode(self._dialect.encoding), object_pairs_hook=_once) if len(line) < MAX_LINE else None
        except (ValueError, RecursionError):
            return None


def _once(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of an object, each with one value; else raises ``ValueError``."""
    if len(by_name := dict(fields)) < len(fields):
        raise ValueError("a field stands twice")
    return by_name


def _number_text(text: str) -> str:
    """A number's digits, equal for equal numbers, because 5.0, 5e0 and 5 are one person; very long ones unchanged."""
    try:
        if text.isdecimal() or abs((number := Decimal(text)).adjusted()) > MOST_DIGITS:
            return text
    except InvalidOperation:  # the exponent is too large
        return text
    plain = f"{number:f}"
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return "0" if plain == "-0" else plain


def _json_text(value: object) -> str | None:
    """A field's text; None for a missing or an empty one, as in a CSV file."""
    text = value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
    return text.encode(errors="replace").decode() or None  # half a surrogate pair becomes "?"


_READERS = {".sav": "sav", ".zsav": "sav", ".sas7bdat": "sas7bdat", ".xpt": "xport", ".dta": "dta"}
_SPSS = (("([AESJ]?DATE|MOYR|QYR|WKYR|DATETIME|YMDHMS)[0-9.]*", 10**6, datetime(1582, 10, 14)),)
_SAS = (
    (r"(DATETIME|DATEAMPM|E8601DT|B8601DT|NLDATM|MDYAMPM).*", 10**6, datetime(1960, 1, 1)),
    (
        r"(NLDATE|DATE|E8601DA|B8601DA|DDMMYY|MMDDYY|YYMMDD|YYMM|MMYY|MONYY|YYQ|JULIAN|WEEKDAT|WORDDAT).*",
        DAY,
        datetime(1960, 1, 1),
    ),
)
_STATA = (("%-?t[cC].*", 1000, datetime(1960, 1, 1)), ("%-?t?d.*", DAY, datetime(1960, 1, 1)))
_DATED = {"sav": _SPSS, "sas7bdat": _SAS, "xport": _SAS, "dta": _STATA}
"""For each kind of file its formats of dates: a pattern, the microseconds of a unit, and the date of zero."""


class StatisticalFiles(Records):
    """Files of SPSS, SAS and Stata; ``ModuleNotFoundError`` if the extra ``statistical`` is not installed."""

    def read(self, columns: Sequence[str], lines: Lines, files: Sequence[Path] | None = None) -> Iterator[pa.Table]:
        for file in self._files if files is None else files:
            labels = {"apply_value_formats": True, "formats_as_category": False}  # SAS keeps labels in another file
            options = labels if _kind(file) in ("sav", "dta") else {}
            with self._read(file) as (package, reader, encoding):
                for frame, facts in package.read_file_in_chunks(
                    reader, file, chunksize=ROWS, disable_datetime_conversion=True, **options
                ):
                    lines.total += len(frame)
                    raw_names = {_decoded(name, encoding): name for name in facts.column_names}
                    forms = {name: facts.original_variable_types[raw_names[name]] or "" for name in columns}
                    parts = {name: [_decoded(value, encoding) for value in frame[raw_names[name]]] for name in columns}
                    yield pa.table({name: _column(parts[name], forms[name], _kind(file)) for name in columns})

    def _header(self, file: Path) -> tuple[str, ...]:
        with self._read(file) as (_, reader, encoding):
            return tuple(_decoded(name, encoding) for name in reader(file, metadataonly=True)[1].column_names)

    @contextmanager
    def _read(self, file: Path) -> Iterator[tuple[Any, Any, str]]:
        """The package, its reader of a file as Latin-1 (one character for each octet), and the file's encoding."""
        package = optional("pyreadstat", "statistical", "reading files of SPSS, SAS and Stata needs pyreadstat")
        try:
            reader = getattr(package, f"read_{_kind(file)}")
            declared = reader(file, metadataonly=True)[1].file_encoding or "utf-8"
            encoding = {"BIG-5": "big5", "WINDOWS-936": "gbk"}.get(declared, declared)
            _require_known(file, encoding)
            # Else the package would refuse a file for one text that is invalid in the file's encoding.
            yield package, partial(reader, encoding="LATIN1"), encoding
        # Their texts may quote a value.
        except (package.ReadstatError, package.PyreadstatError, OSError, UnicodeError, LookupError):
            raise PolicyError(
                f"The file {file} cannot be read: it is damaged, or is of another kind than its name says."
            ) from None


def _require_known(file: Path, encoding: str) -> None:
    """Raises ``PolicyError`` for a file in an encoding that Python does not know."""
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise PolicyError(
            f"The file {file} is in the encoding {printable(encoding)[:40]}, which is not read here: open it in its "
            "program, and save it anew in Unicode (UTF-8)."
        ) from None


def _kind(file: Path) -> str:
    return _READERS[file.suffix.lower()]


def _decoded(value: Any, encoding: str) -> Any:
    if not isinstance(value, str):
        return value
    octets = value.encode("latin-1")
    try:
        return octets.decode(encoding)
    except UnicodeDecodeError:
        return octets.decode("cp1252", "replace")


def _column(values: Sequence[object], form: str, kind: str) -> pa.Array:
    """The texts of a column; numbers in a format of dates become dates."""
    for pattern, unit, zero in _DATED[kind]:
        if re.fullmatch(pattern, form):
            start = microseconds_of(zero) or 0
            return pa.array([_date(value, unit, start) for value in values], pa.string())
    return texts_of(values)


def _date(value: object, unit: int, start: int) -> str | None:
    number = float(value) if isinstance(value, (int, float)) else math.nan
    return write_moment(start + number * unit) if math.isfinite(number) else None
