# SPDX-License-Identifier: Apache-2.0
"""Reads delimited text (CSV, TSV) and sheets of workbooks, so that a line affects its own row only.

A newline byte ends a line, always, also inside quotes; so no field holds a line break. A line is
read by a rule that looks at this line, at the dialect and at the number of columns alone:

- An empty line, or one of delimiters alone, is not a row.
- A line is unreadable, and left out, that is longer than ``MAX_LINE``, is not in the declared
  encoding, has a NUL or a carriage return inside, has a field that begins with a quote and does not
  end with one, or another number of fields than the header.
- Every other line is split at the delimiters outside its quoted fields. A quote inside a field that
  does not begin with one is a sign like any other. An empty field is missing, and
  ``="00123"``, as spreadsheet programs keep codes, is the text inside.

Cells of a workbook's sheet (.xlsx, .xlsm, .xlsb, .xls, .ods) become the texts that the policy's
dialect would have them written as: a number with its decimal sign, a date as 2024-11-16, a truth
value as true or false. So all that follows is that of delimited text: numbers and dates typed as
text are read as declared, and an empty cell is missing. An empty row is not a row of the table.
Cells beyond the header's columns are notes.

Privacy:
    What is read of a file is the union over its lines of what is read of each alone: a row-wise
    map, stability 1. A parser of whole files does not keep this rule: an opening quote, a bare
    carriage return, a byte-order mark at a border of its blocks, or a line beyond its buffer can
    change how it reads other lines. So such lines are removed here one by one, before Arrow parses
    the rest. Each line that it sees ends outside of quotes, in the only line break that it holds,
    so it leaves the parser in the state in which it found it, and it does not matter where blocks
    begin and end.
    Each row of a sheet is read from its own cells, the dialect and the header: stability 1 too.
    A process of its own reads it (``sheets``), so no cell ends this one.
    Held by: tests/property/test_lines.py, which compares with a reader of one line at a time,
    tests/integration/test_offices.py, and test_hostile_workbooks.py beside it.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import subprocess
import sys
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from pinq.engine import sheets
from pinq.engine.formats import (
    SEPARATORS,
    Changes,
    FormatDoubt,
    HeaderFault,
    as_options,
    column_fault,
    fields_of,
    letters_fit,
    other_shape,
)
from pinq.errors import InternalError, PolicyError
from pinq.policy.dialect import Dialect
from pinq.public.plugins import optional

# Bytes of one line as UTF-8, its newline included.
MAX_LINE = 2**20
# Bytes that are read at a time.
BLOCK = 2**22
# Arrow reads by blocks of its own, each of which must hold a whole line.
ARROW_BLOCK = 2 * MAX_LINE
_TOO_LONG = f"longer than {MAX_LINE:,} bytes"
_KEPT_TEXT = '^=[(]?"(.*)"[)]?$'  # ="00123" of spreadsheet programs
_BREAKS = "with a NUL or a carriage return inside"
_QUOTES = "with a quote that is not closed, or that text follows"
_MISFITS = "with another number of fields than"
_FOREIGN = "whose bytes are no "
_OTHER_KINDS = {
    rb"\xff\xfe\0\0|\0\0": "UTF-32 text, which is not read; convert it: iconv -f UTF-32 -t UTF-8",
    rb"\xff\xfe|\xfe\xff": "UTF-16 text, which is not read; convert it: iconv -f UTF-16 -t UTF-8",
    rb".\0.\0": "UTF-16 text, which is not read; convert it: iconv -f UTF-16LE -t UTF-8",
    rb"\0.\0.": "UTF-16 text, which is not read; convert it: iconv -f UTF-16BE -t UTF-8",
    rb"PK\x03\x04|\xd0\xcf\x11\xe0": "a workbook or an archive; name a workbook .xlsx or .xls, and unpack others",
    rb"\x1f\x8b": "packed and no text; end its name in .csv.gz",
}
"""Kinds of files that are no text here, by their first bytes."""
# At the beginning of a file that may be written otherwise: bytes, and lines of them.
GLANCE, GLANCE_LINES = 2**16, 50
# Bytes of memory that the reading of one workbook may take.
SHEET_MEMORY = 2**33


@dataclass
class Lines:
    """The exact numbers of read and unreadable lines of a source, for the provider only.

    Attributes:
        total: Lines that are not empty, without headers.
        unreadable: The number of lines that could not be read, by reason.
        examples: For each reason, where one of these lines is.
        cells: The number of a workbook's cells in each column that are not read as they stand, by reason.
        before: The largest number of columns without a name before a workbook's header, which are not read.
    """

    total: int = 0
    unreadable: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    cells: dict[str, Counter[str]] = field(default_factory=dict)
    before: int = 0

    @property
    def lost(self) -> int:
        """Lines that could not be read."""
        return sum(self.unreadable.values())

    def beyond(self, share: float) -> bool:
        """Whether more than this share of the lines could not be read."""
        return self.lost > share * self.total

    def add(self, reason: str, count: int, example: str) -> None:
        """Counts lines that could not be read."""
        self.unreadable[reason] = self.unreadable.get(reason, 0) + count
        self.examples.setdefault(reason, example)

    def __str__(self) -> str:
        reasons = "; ".join(
            f"{count:,} {reason} (such as {self.examples[reason]}){_advice(reason)}"
            for reason, count in self.unreadable.items()
        )
        percent = 100 * self.lost / max(1, self.total)
        return f"{self.lost:,} of {self.total:,} lines cannot be read ({percent:.3g} %): {reasons}"


class TextFiles(ABC):
    """Files that are read as text, line by line or row by row, with one header.

    Args:
        files: The files; at least one.
        dialect: The form in which they are written.

    Attributes:
        names: The columns' names.

    Raises:
        PolicyError: A header cannot be read, does not name each column once, or two of them differ.
    """

    def __init__(self, files: Sequence[Path], dialect: Dialect) -> None:
        self._files, self._dialect = tuple(files), dialect
        self.names: tuple[str, ...] = ()  # until the header is read
        for file in self._files:
            names = dialect.header if isinstance(dialect.header, tuple) else self._header(file)
            if fault := column_fault(names):
                doubt = self._doubt(
                    f"The header of {file} {fault}{self._otherwise('; ')}. Where the first line is a row, or leaves a "
                    "name out (pandas writes its index so), name the columns: `csv: {header: [name, age]}`, with "
                    "`skip: 1` where they stand in place of a line."
                )
                raise HeaderFault(names, str(doubt), doubt.choices)
            if self.names and names != self.names:
                raise PolicyError(
                    f"The header of {file} differs from that of {self._files[0]}, and all files of a source must share "
                    f"it: {_difference(self.names, names)}."
                )
            self.names = names

    @abstractmethod
    def read(self, columns: Sequence[str], lines: Lines, files: Sequence[Path] | None = None) -> Iterator[pa.Table]:
        """The readable rows as tables of text, in which a missing value is null.

        Args:
            columns: The columns, in this order; at least one.
            lines: The counts of what is read.
            files: Some of the files; None for all.

        Raises:
            PolicyError: The operating system cannot read a file, or it cannot be unpacked.
        """

    def known(self, columns: Sequence[str]) -> Sequence[str]:
        """The columns that can be read where these are asked for: those of the header."""
        return self.names

    @abstractmethod
    def _header(self, file: Path) -> tuple[str, ...]:
        """The names in a file's header."""

    @abstractmethod
    def _glances(self) -> dict[str, list[list[str]]]:
        """The first file's beginning, by the sign that may stand between fields; first by the one that does."""

    def looks_like(self) -> str:
        """Says how else the first file seems to be written; empty where its beginning reads as declared."""
        if len(self.names) == 1 and re.search(r"\S {2,}\S", self.names[0]):
            return (
                f"The header {self.names[0]!r} seems to have fields of fixed widths, which are not read: write a sign "
                "between them, such as ';'."
            )
        names = f"The header names {len(self.names)} column(s), such as {self.names[0]!r}; "
        return f"{names}{other}." if (other := self._otherwise()) else ""

    def encodings(self, reasons: Iterable[str]) -> tuple[list[Changes], str]:
        """The encodings to try where lines cannot be read for these reasons, also in words; none for none."""
        return [], ""

    def _doubt(self, text: str, choices: Sequence[Changes] = ()) -> FormatDoubt:
        """An error that says how the file may be read instead."""
        other = self.other()
        return FormatDoubt(text, [{**one, **other} for one in choices or ([{}] if other else [])])

    def other(self) -> Changes:
        """The keys of ``csv`` that the first file's beginning suggests to change."""
        changes = other_shape(self._glances(), self._dialect, named=bool(self.names))
        quoted = self.names and all(re.fullmatch("'.*'", name) for name in self.names)
        return changes | ({"quote": "'"} if quoted and self._dialect.quote == '"' else {})

    def _otherwise(self, before: str = "") -> str:
        """Says what they are."""
        other = self.other()
        looks = [f"fields separated by {SEPARATORS[str(other['delimiter'])]}"] if "delimiter" in other else []
        looks += [f"{other['skip']} title lines above the header"] if "skip" in other else []
        looks += ["fields in single quotes"] if "quote" in other else []
        advice = f"{before}it looks like {' and '.join(looks)}: try {as_options(other)} (in a policy under `csv:`)"
        return advice if other else ""


class DelimitedFiles(TextFiles):
    """Files of delimited text; those whose names end in ``.gz`` are unpacked."""

    def __init__(self, files: Sequence[Path], dialect: Dialect) -> None:
        self._delimiter = dialect.delimiter_of(files[0].name)
        super().__init__(files, dialect)

    def read(self, columns: Sequence[str], lines: Lines, files: Sequence[Path] | None = None) -> Iterator[pa.Table]:
        for file in self._files if files is None else files:
            with opened(file) as stream:
                number = 1 + self._skipped(stream)
                if self._dialect.header is True:
                    _first_line(stream)
                    number += 1
                for block in blocks(stream):
                    yield self._parse(block, columns, lines, partial(line_of, file.name, number))
                    number += block.count(b"\n")

    def _glances(self) -> dict[str, list[list[str]]]:
        with opened(self._files[0]) as stream:
            text = stream.read(GLANCE).removeprefix(codecs.BOM_UTF8).decode(self._dialect.encoding, "replace")
        lines = text.replace("\r", "").split("\n")[:GLANCE_LINES]
        signs = [self._delimiter]
        if self._dialect.delimiter is None:
            signs += SEPARATORS
        elif self._delimiter not in text:  # stated wrongly, where another sign stands in each line
            signs += [sign for sign in SEPARATORS if all(sign in line for line in lines[:-1] if line)]
        return {sign: [fields_of(line, sign, self._dialect.quote) for line in lines] for sign in signs}

    def looks_like(self) -> str:
        quote, sign = self._dialect.quote, _escaped(self._delimiter)
        with opened(self._files[0]) as stream:
            lines = stream.read(GLANCE).decode(self._dialect.encoding, "replace").split("\n")[: GLANCE_LINES + 1]
        for number, line in enumerate(lines if quote and self._delimiter != " " else (), 1):
            if re.search(f"(^|[{sign}]) +{quote}[^{quote}]*{quote} *([{sign}]|\r?$)", line):
                return (
                    f"In line {number} of {self._files[0].name} a blank stands before a quote, which is no quote then: "
                    "remove the blanks between delimiters and quotes, or say that there are no quotes: --quote none."
                )
        return super().looks_like()

    def encodings(self, reasons: Iterable[str]) -> tuple[list[Changes], str]:
        if set(reasons) != {_FOREIGN + "utf-8"}:
            return [], ""
        with opened(self._files[0]) as stream:
            return letters_fit(stream.read(GLANCE))

    def _skipped(self, stream: IO[bytes]) -> int:
        """Passes over the lines above the header; returns how many."""
        for _ in range(self._dialect.skip):
            _first_line(stream)
        return self._dialect.skip

    def _header(self, file: Path) -> tuple[str, ...]:
        with opened(file) as stream:
            number = 1 + self._skipped(stream)
            line = _first_line(stream)
        if kind := next((said for begin, said in _OTHER_KINDS.items() if re.match(begin, line, re.DOTALL)), ""):
            raise PolicyError(f"The file {file} is {kind}.")
        if not line.strip():
            raise self._doubt(
                f"The file {file} {'begins with an empty line' if line else 'is empty'}; its first line must "
                f"name the columns{self._otherwise('; ')}."
            )
        lines = Lines()
        fields = self._parse(line, None, lines, partial(line_of, file.name, number)).columns
        if lines.lost:
            other = self._otherwise("; ")
            reason = next(iter(lines.unreadable))
            choices, fit = self.encodings([reason])
            raise self._doubt(
                f"The header of {file} cannot be read: it is a line "
                f"{reason}{'' if other and reason == _QUOTES else _advice(reason)}"
                f"{other}.{fit}",
                choices,
            )
        return tuple(name[0].as_py() or "" for name in fields)

    def _parse(
        self, block: bytes, columns: Sequence[str] | None, lines: Lines, line_of: Callable[[int], str]
    ) -> pa.Table:
        """Parses the readable lines of a block, which ends in a newline.

        Without ``columns`` it is one line, and all fields of it are returned.
        """
        # To look for one byte takes a tenth of the time of looking for two.
        block, foreign = self._as_utf8(block.replace(b"\r\n", b"\n") if b"\r" in block else block)
        text, lengths = _split(block)
        bad = np.zeros(len(text), dtype=bool)
        # A line that is too long and has an open quote counts once, for the first reason.
        for reason, mask in self._faults(block, text, lengths, foreign):
            new = mask & ~bad
            if new.any():
                lines.add(reason, int(new.sum()), line_of(int(new.argmax())))
            bad |= new
        # A line of one byte is a newline alone: no row, and nothing to count. Nor is one of delimiters alone.
        kept = ~bad & (lengths > 1)
        if block.startswith(sign := self._delimiter.encode()) or b"\n" + sign in block:
            blank = pc.match_substring_regex(text, f"^[{_escaped(self._delimiter)}]+\n$")
            kept &= ~blank.to_numpy(zero_copy_only=False)
        lines.total += int((kept | bad).sum())
        if not kept.all():
            text = text.filter(pa.array(kept))
        if not len(text):
            return pa.table({name: pa.array([], pa.string()) for name in columns or ()})
        table, misfits = self._fields(text, columns)
        if b'="' in block or b'=("' in block:
            texts = [pc.replace_substring_regex(own, _KEPT_TEXT, r"\1") for own in table.columns]
            texts = [pc.if_else(pc.equal(own, ""), None, own) for own in texts]
            table = pa.table(texts, names=table.column_names)
        # Each kept line is a row or a misfit: so no line can have eaten another.
        if table.num_rows + len(misfits) != len(text):
            raise InternalError("Lines were read that are not there, or not read that are. Please report it.")
        if misfits:
            first = pc.index(text, pa.scalar(misfits[0] + "\n")).as_py()
            lines.add(
                f"{_MISFITS} {len(self.names)}",
                len(misfits),
                line_of(int(np.flatnonzero(kept)[first])),
            )
        return table

    def _as_utf8(self, block: bytes) -> tuple[bytes, np.ndarray | None]:
        """Returns a block in UTF-8, and which lines were in another encoding than declared.

        These are empty in it.
        """
        encoding = self._dialect.encoding
        try:
            text = block.decode(encoding)
            return (block if encoding == "utf-8" else text.encode()), None
        except UnicodeDecodeError:
            readable, foreign = [], []
            # Behind the last newline is nothing: a block ends in one.
            for line in block.split(b"\n")[:-1]:
                try:
                    readable.append(line.decode(encoding).encode())
                    foreign.append(False)
                except UnicodeDecodeError:
                    readable.append(b"")
                    foreign.append(True)
            return b"\n".join(readable) + b"\n", np.array(foreign)

    def _faults(
        self, block: bytes, text: pa.StringArray, lengths: np.ndarray, foreign: np.ndarray | None
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yields which lines are unreadable, and why.

        Faults that a glance at the block rules out are not looked for.
        """
        if foreign is not None:
            yield _FOREIGN + self._dialect.encoding, foreign
        yield _TOO_LONG, lengths > MAX_LINE
        for sign in ("\0", "\r"):
            if sign.encode() in block:
                yield _BREAKS, pc.match_substring(text, sign).to_numpy(zero_copy_only=False)
        quote = self._dialect.quote
        if quote and quote.encode() in block:
            yield (
                _QUOTES,
                ~pc.match_substring_regex(text, _closed(self._delimiter, quote)).to_numpy(zero_copy_only=False),
            )

    def _fields(self, text: pa.StringArray, columns: Sequence[str] | None) -> tuple[pa.Table, list[str]]:
        """Splits lines, none of which can concern another.

        Lines with another number of fields are returned separately.
        """
        misfits: list[str] = []

        def left_out(row: pa.csv.InvalidRow) -> str:
            misfits.append(row.text)
            return "skip"

        # Kept lines lie one after the other in Arrow's buffer: they are one stretch of bytes again.
        offsets, data = np.frombuffer(text.buffers()[1], np.int32), text.buffers()[2]
        first, last = int(offsets[text.offset]), int(offsets[text.offset + len(text)])
        # Arrow would skip a byte-order mark at the start of a block. Nothing skips one behind an
        # empty line.
        content = pa.py_buffer(b"\n" + data.slice(first, last - first))
        places = {name: str(number) for number, name in enumerate(self.names)} if columns is not None else {}
        # A header's fields are texts too, also the year 2019. Arrow calls them f0, f1, ...
        called = [*places.values()] or [f"f{number}" for number in range(1 + text[0].as_py().count(self._delimiter))]
        table = pa.csv.read_csv(
            pa.BufferReader(content),
            pa.csv.ReadOptions(
                block_size=ARROW_BLOCK, column_names=list(places.values()), autogenerate_column_names=not places
            ),
            pa.csv.ParseOptions(
                delimiter=self._delimiter,
                quote_char=self._dialect.quote or False,
                double_quote=True,
                escape_char=False,
                newlines_in_values=False,
                ignore_empty_lines=True,
                invalid_row_handler=left_out,
            ),
            pa.csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(called, pa.string()),
                include_columns=[places[name] for name in columns or ()],
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )
        return (table if columns is None else table.rename_columns(list(columns))), misfits


class Workbooks(TextFiles):
    """A sheet of each of some workbooks.

    Raises:
        PolicyError: Also where a workbook has no such sheet, or several and none is named.
        ModuleNotFoundError: The extra ``excel`` is not installed.
    """

    def __init__(self, files: Sequence[Path], dialect: Dialect) -> None:
        self._sheets: dict[Path, list[list[str | None]]] = {}
        self._losses: dict[Path, dict[str, dict[str, int]]] = {}
        self._before: dict[Path, int] = {}
        super().__init__(files, dialect)

    def read(self, columns: Sequence[str], lines: Lines, files: Sequence[Path] | None = None) -> Iterator[pa.Table]:
        places = [self.names.index(name) for name in columns]
        above = self._dialect.skip + (self._dialect.header is True)
        for file in self._files if files is None else files:
            rows = [row for row in self._rows(file)[above:] if any(row[: len(self.names)])]
            self._sheets.pop(file)  # read once, for header and rows
            lines.total += len(rows)
            lines.before = max(lines.before, self._before[file])
            for reason, counts in self._losses[file].items():
                found = {self.names[int(place)]: n for place, n in counts.items() if 0 <= int(place) < len(self.names)}
                lines.cells.setdefault(reason, Counter()).update(found)
            cells = ([row[place] if place < len(row) else None for row in rows] for place in places)
            yield pa.table({name: pa.array(own, pa.string()) for name, own in zip(columns, cells, strict=True)})

    def _glances(self) -> dict[str, list[list[str]]]:
        rows = [[cell or "" for cell in row] for row in self._rows(self._files[0])[:GLANCE_LINES]]
        first = min((_empty(row) for row in rows if sum(map(bool, row)) > 1), default=0)
        return {"": [row[first:] for row in rows]}

    def _header(self, file: Path) -> tuple[str, ...]:
        rows = self._rows(file)[self._dialect.skip :]
        named = [(cell or "").strip() for cell in rows[0]] if rows else []
        while named and not named[-1]:
            named.pop()
        return tuple(named)

    def _rows(self, file: Path) -> list[list[str | None]]:
        """The filled rows of the sheet, and the empty ones at its beginning; read by a process that it may end."""
        if file in self._sheets:
            return self._sheets[file]
        if not file.name.lower().endswith(sheets.STREAMED):
            optional("python_calamine", "excel", "reading a workbook needs python-calamine")
        own = self._dialect
        asked = {
            "file": str(file),
            "sheet": own.sheet,
            "decimal": own.decimal,
            "skip": own.skip,
            "glance": own.skip + GLANCE_LINES,
            "width": len(own.header) if isinstance(own.header, tuple) else None,
            "memory": SHEET_MEMORY,
        }
        command = [sys.executable, "-P", sheets.__file__, json.dumps(asked)]
        lines: list[Any] = []
        nothing = subprocess.DEVNULL  # an error's text may quote a cell
        process = subprocess.Popen(command, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing)
        with suppress(ValueError), process:  # a line in which the process ended
            lines.extend(map(json.loads, process.stdout or ()))
        if process.returncode or not lines or not isinstance(lines[-1], dict):
            raise PolicyError(
                f"The workbook {file} cannot be read: it is damaged, is protected by a password, or is another kind of "
                "file, or needs too much memory. Open it, and save it anew as .xlsx."
            )
        self._require_sheet(file, *lines[0])
        rows, losses = lines[1:-1], lines[-1]
        first = _empty(rows[own.skip]) if own.header is True and own.skip < len(rows) else 0
        if first:
            named, rows = rows[own.skip + 1 :], [row[first:] for row in rows]  # the table begins where its header does
            losses = {kind: {str(int(at) - first): n for at, n in counts.items()} for kind, counts in losses.items()}
            if before := sum(map(any, (row[:first] for row in named))):
                losses[sheets.BEFORE] = {"0": before}
        self._sheets[file], self._losses[file], self._before[file] = rows, losses, first
        return rows

    def _require_sheet(self, file: Path, names: Sequence[str], hidden: Sequence[str]) -> None:
        """Raises ``FormatDoubt``, with the sheets that a spreadsheet program shows, unless one is read."""
        wanted = self._dialect.sheet or (names[0] if len(names) == 1 else None)
        if wanted is None or wanted not in names:
            none = "" if wanted is None else f"has no sheet {wanted!r}; it "
            listed = ", ".join(f"{name} (hidden)" if name in hidden else name for name in names)
            raise FormatDoubt(
                f"The workbook {file.name} {none}has the sheets {listed}; say which: --sheet NAME (in a "
                "policy `csv: {sheet: NAME}`).",
                [{"sheet": name} for name in names if name not in hidden] or [{"sheet": name} for name in names],
            )


def _empty(row: Sequence[object]) -> int:
    """The number of empty cells before the first filled one; 0 where none is filled."""
    return next((number for number, cell in enumerate(row) if cell), 0)


def _difference(names: Sequence[str], others: Sequence[str]) -> str:
    """The first name in which two headers differ."""
    for number, (name, other) in enumerate(zip_longest(names, others), 1):
        if name != other:
            return f"its column {number} is {other!r}, not {name!r}"
    return "they are equal"


def _advice(reason: str) -> str:
    if reason.startswith(_MISFITS):
        return (
            "; a field too many may be a delimiter inside an unquoted text, or the name of a row before the others, as "
            "R writes it: then name all columns, in a policy `csv: {skip: 1, header: [row, age, sex]}`"
        )
    if reason == _FOREIGN + "utf-8":
        return (
            "; try --encoding latin-1 or windows-1252 (in a policy `csv: {encoding: latin-1}`), of other letters than "
            "those of Western Europe windows-1250 (Central Europe), -1251 (Cyrillic), -1253 (Greek), -1254 (Turkish) "
            "or -1257 (Baltic), or convert it: iconv -t UTF-8 -f CP850 (or what it is)"
        )
    if "no JSON object" in reason:
        return "; where the file is a list in brackets, write an object a line: jq -c '.[]' FILE"
    if reason == _BREAKS:
        return "; a newline ends a line: where a carriage return does, convert it: tr '\\r' '\\n'"
    if reason == _QUOTES:
        return (
            "; where fields hold line breaks, write the table as Parquet by a reader that you trust with it: "
            "python -c \"import duckdb; duckdb.read_csv('FILE.csv').write_parquet('FILE.parquet')\""
        )
    return ""


def line_of(file: str, start: int, line: int) -> str:
    """The name of a block's line in messages."""
    return f"line {start + line:,} of {file}"


@contextmanager
def opened(file: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked. An error here concerns the file, not a line of it."""
    try:
        with gzip.open(file) if file.name.lower().endswith(".gz") else file.open("rb") as stream:
            yield stream  # type: ignore[misc]
    except (OSError, EOFError, zlib.error) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it cannot be unpacked"
        raise PolicyError(f"The file {file} cannot be read: {why}.") from None


def _first_line(stream: IO[bytes]) -> bytes:
    """The first line without its byte-order mark; empty at the end of the stream."""
    line = stream.readline(MAX_LINE + 1).removeprefix(codecs.BOM_UTF8)
    return line if line.endswith(b"\n") or not line else line + b"\n"


def blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Yields the rest of a file in blocks of whole lines.

    Of a line that is too long, a block has at least so much that it still is.
    """
    rest = stream.read(len(codecs.BOM_UTF8)) if stream.tell() == 0 else b""
    rest = rest.removeprefix(codecs.BOM_UTF8)
    while chunk := stream.read(BLOCK):
        text = rest + chunk
        if end := text.rfind(b"\n") + 1:
            yield text[:end]
        rest = text[end : end + MAX_LINE + 2]
    if rest:
        yield rest + b"\n"


def _split(block: bytes) -> tuple[pa.StringArray, np.ndarray]:
    """The lines of a block, each with its newline, and their lengths. Nothing is copied."""
    # "a,1\n\nb\n" has newlines that end at 4, 5 and 7: lines of 4, 1 and 2 bytes, the second one
    # empty.
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(block)), np.diff(offsets)


def _escaped(sign: str) -> str:
    """A sign as it stands in a class of a pattern."""
    return "\\" + sign if sign in "^[]\\-" else sign


def _closed(delimiter: str, quote: str) -> str:
    """Makes a pattern of lines in which each quoted field is closed.

    Where the quote is a bar: ``|a, ||b|||,c`` and ``a|b,c``, not ``|a,b``.
    """
    sign = _escaped(delimiter)
    field = f"(?:{quote}(?:[^{quote}]|{quote}{quote})*{quote}|(?:[^{quote}{sign}][^{sign}]*)?)"
    return f"^{field}(?:[{sign}]{field})*\n$"
