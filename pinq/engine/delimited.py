# SPDX-License-Identifier: Apache-2.0
"""Reads delimited text (CSV, TSV) and sheets of workbooks, so that a line affects its own row only.

A newline byte ends a line, always, also inside quotes; so no field holds a line break. A line is
read by a rule that looks at this line, at the dialect and at the number of columns alone:

- An empty line, or one of delimiters alone, is not a row.
- A line is unreadable and left out if it is longer than ``MAX_LINE``, is not in the declared
  encoding, has a NUL or a carriage return inside, has a field that begins with a quote and does not
  end with one, or has another number of fields than the header.
- Every other line is split at the delimiters outside its quoted fields. A quote inside an unquoted
  field is an ordinary character. An empty field is missing. ``="00123"``, the form of codes in
  spreadsheet programs, is the text inside.

Cells of a workbook's sheet (.xlsx, .xlsm, .xlsb, .xls, .ods) become texts in the policy's dialect: a
number with its decimal sign, a date as 2024-11-16, a truth value as true or false. Then the rules
of delimited text hold: numbers and dates typed as text are read as declared, and an empty cell is
missing. An empty row is not a row of the table. Cells beyond the header's columns are ignored notes.

Privacy:
    Each line is read alone, so a file is read by a row-wise map: stability 1. A parser of whole
    files does not keep this rule: an opening quote, a bare carriage return, a byte-order mark at a
    border of its blocks, or a line beyond its buffer can change how it reads other lines. So such
    lines are removed here one by one, before Arrow parses the others. Each line that Arrow sees ends
    outside of quotes and holds one line break, at its end. So no line changes the state of the
    parser, and the borders of blocks do not matter.
    Each row of a sheet is read from its own cells, the dialect and the header: stability 1 too.
    A separate process (``sheets``) reads it, so no cell can end this one.
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
# Bytes of one read.
BLOCK = 2**22
# Arrow's blocks; each must hold a whole line.
ARROW_BLOCK = 2 * MAX_LINE
_TOO_LONG = f"longer than {MAX_LINE:,} bytes"
_KEPT_TEXT = '^=[(]?"(.*)"[)]?$'  # ="00123" of spreadsheet programs
_BREAKS = "with a NUL or a carriage return inside"
_QUOTES = "with a quote that is not closed, or that text follows"
_MISFITS = "with another number of fields than"
_FOREIGN = "whose bytes are no "
NO_OBJECT = "that is no JSON object with each field once"
_OTHER_KINDS = {
    rb"\xff\xfe\0\0|\0\0": "UTF-32 text, which is not read; convert it: iconv -f UTF-32 -t UTF-8",
    rb"\xff\xfe|\xfe\xff": "UTF-16 text, which is not read; convert it: iconv -f UTF-16 -t UTF-8",
    rb".\0.\0": "UTF-16 text, which is not read; convert it: iconv -f UTF-16LE -t UTF-8",
    rb"\0.\0.": "UTF-16 text, which is not read; convert it: iconv -f UTF-16BE -t UTF-8",
    rb"PK\x03\x04|\xd0\xcf\x11\xe0": "a workbook or an archive; name a workbook .xlsx or .xls, and unpack others",
    rb"\x1f\x8b": "packed and no text; end its name in .csv.gz",
}
"""Kinds of files that cannot be read as text, by their first bytes."""
# Bytes and lines at the beginning of a file from which its form is guessed.
GLANCE, GLANCE_LINES = 2**16, 50
# Bytes of memory for reading one workbook.
SHEET_MEMORY = 2**33


@dataclass
class Lines:
    """The exact numbers of read and unreadable lines of a source, for the provider only.

    Attributes:
        total: The number of lines that are not empty, without headers.
        unreadable: The number of lines that could not be read, by reason.
        examples: The place of one such line, by reason.
        cells: The number of a workbook's cells whose value is not read as shown, by reason and column.
        before: The largest number of unnamed columns before a workbook's header, which are ignored.
    """

    total: int = 0
    unreadable: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)
    cells: dict[str, Counter[str]] = field(default_factory=dict)
    before: int = 0

    @property
    def lost(self) -> int:
        return sum(self.unreadable.values())

    def beyond(self, share: float) -> bool:
        """Whether a larger share of the lines could not be read."""
        return self.lost > share * self.total

    def add(self, reason: str, count: int, example: str) -> None:
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

    Raises:
        PolicyError: A header cannot be read, does not name each column once, or differs from another.
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
        """The readable rows as tables of text, null for a missing value; adds to ``lines``.

        Raises:
            PolicyError: A file cannot be read or unpacked.
        """

    def known(self, columns: Sequence[str]) -> Sequence[str]:
        """The columns that can be read for a request of ``columns``: those of the header."""
        return self.names

    @abstractmethod
    def _header(self, file: Path) -> tuple[str, ...]:
        """The names in a file's header."""

    @abstractmethod
    def _glances(self) -> dict[str, list[list[str]]]:
        """The fields of the first file's first lines, by possible delimiter; the declared delimiter comes first."""

    def looks_like(self) -> str:
        """Another form that the first file seems to have; empty if its beginning reads as declared."""
        if len(self.names) == 1 and re.search(r"\S {2,}\S", self.names[0]):
            return (
                f"The header {self.names[0]!r} seems to have fields of fixed widths, which are not read: write a sign "
                "between them, such as ';'."
            )
        names = f"The header names {len(self.names)} column(s), such as {self.names[0]!r}; "
        return f"{names}{advice}." if (advice := self._otherwise()) else ""

    def encodings(self, reasons: Iterable[str]) -> tuple[list[Changes], str]:
        """The encodings to try after lines could not be read for these reasons, also in words; empty for none."""
        return [], ""

    def _doubt(self, text: str, choices: Sequence[Changes] = ()) -> FormatDoubt:
        changes = self.other()
        return FormatDoubt(text, [{**choice, **changes} for choice in choices or ([{}] if changes else [])])

    def other(self) -> Changes:
        changes = other_shape(self._glances(), self._dialect, named=bool(self.names))
        quoted = self.names and all(re.fullmatch("'.*'", name) for name in self.names)
        return changes | ({"quote": "'"} if quoted and self._dialect.quote == '"' else {})

    def _otherwise(self, before: str = "") -> str:
        changes = self.other()
        looks = [f"fields separated by {SEPARATORS[str(changes['delimiter'])]}"] if "delimiter" in changes else []
        looks += [f"{changes['skip']} title lines above the header"] if "skip" in changes else []
        looks += ["fields in single quotes"] if "quote" in changes else []
        advice = f"{before}it looks like {' and '.join(looks)}: try {as_options(changes)} (in a policy under `csv:`)"
        return advice if changes else ""


class DelimitedFiles(TextFiles):
    """Files of delimited text; files named ``.gz`` are unpacked."""

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
        return letters_fit(block for file in self._files for block in _blocks_of(file))

    def _skipped(self, stream: IO[bytes]) -> int:
        """Skips the lines above the header; returns their number."""
        for _ in range(self._dialect.skip):
            _first_line(stream)
        return self._dialect.skip

    def _header(self, file: Path) -> tuple[str, ...]:
        with opened(file) as stream:
            number = 1 + self._skipped(stream)
            line = _first_line(stream)
        if kind := next((text for begin, text in _OTHER_KINDS.items() if re.match(begin, line, re.DOTALL)), ""):
            raise PolicyError(f"The file {file} is {kind}.")
        if not line.strip():
            raise self._doubt(
                f"The file {file} {'begins with an empty line' if line else 'is empty'}; its first line must "
                f"name the columns{self._otherwise('; ')}."
            )
        lines = Lines()
        fields = self._parse(line, None, lines, partial(line_of, file.name, number)).columns
        if lines.lost:
            otherwise = self._otherwise("; ")
            reason = next(iter(lines.unreadable))
            choices, fit = self.encodings([reason])
            raise self._doubt(
                f"The header of {file} cannot be read: it is a line "
                f"{reason}{'' if otherwise and reason == _QUOTES else _advice(reason)}"
                f"{otherwise}.{fit}",
                choices,
            )
        return tuple(name[0].as_py() or "" for name in fields)

    def _parse(
        self, block: bytes, columns: Sequence[str] | None, lines: Lines, line_of: Callable[[int], str]
    ) -> pa.Table:
        """Parses the readable lines of a block, which ends in a newline.

        Without ``columns`` the block is one line, and all its fields are returned.
        """
        # A search for one byte takes a tenth of the time of a search for two.
        block, foreign = self._as_utf8(block.replace(b"\r\n", b"\n") if b"\r" in block else block)
        text, lengths = _split(block)
        bad = np.zeros(len(text), dtype=bool)
        # A line with several faults counts once, for the first.
        for reason, mask in self._faults(block, text, lengths, foreign):
            new = mask & ~bad
            if new.any():
                lines.add(reason, int(new.sum()), line_of(int(new.argmax())))
            bad |= new
        # A line that is a newline alone, or delimiters alone, is not a row and does not count.
        is_kept = ~bad & (lengths > 1)
        begins = np.frombuffer(block, np.uint8)[np.cumsum(lengths) - lengths]
        if (begins == self._delimiter.encode()[0]).any():
            blank = pc.match_substring_regex(text, f"^[{_escaped(self._delimiter)}]+\n$")
            is_kept &= ~blank.to_numpy(zero_copy_only=False)
        lines.total += int((is_kept | bad).sum())
        if not is_kept.all():
            text = text.filter(pa.array(is_kept))
        if not len(text):
            return pa.table({name: pa.array([], pa.string()) for name in columns or ()})
        table, misfits = self._fields(text, columns)
        if b'"' in block and (b'="' in block or b'=("' in block):
            texts = [pc.replace_substring_regex(column, _KEPT_TEXT, r"\1") for column in table.columns]
            texts = [pc.if_else(pc.equal(column, ""), None, column) for column in texts]
            table = pa.table(texts, names=table.column_names)
        # Each kept line is a row or a misfit, so no line was merged with another.
        if table.num_rows + len(misfits) != len(text):
            raise InternalError("Lines were read that are not there, or not read that are. Please report it.")
        if misfits:
            first = pc.index(text, pa.scalar(misfits[0] + "\n")).as_py()
            lines.add(
                f"{_MISFITS} {len(self.names)}",
                len(misfits),
                line_of(int(np.flatnonzero(is_kept)[first])),
            )
        return table

    def _as_utf8(self, block: bytes) -> tuple[bytes, np.ndarray | None]:
        """A block in UTF-8, and a mask of the lines that are not in the declared encoding, which become empty."""
        encoding = self._dialect.encoding
        try:
            text = block.decode(encoding)
            return (block if encoding == "utf-8" else text.encode()), None
        except UnicodeDecodeError:
            readable, foreign = [], []
            # A block ends in a newline, so the last piece is empty.
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
        """Yields reasons, each with a mask of the lines that are unreadable for it."""
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
        """Splits lines into fields, each line alone.

        Lines with another number of fields than the header are returned separately.
        """
        misfits: list[str] = []

        def left_out(row: pa.csv.InvalidRow) -> str:
            misfits.append(row.text)
            return "skip"

        # Kept lines lie one after the other in Arrow's buffer, so one slice of bytes holds them.
        offsets, data = np.frombuffer(text.buffers()[1], np.int32), text.buffers()[2]
        first, last = int(offsets[text.offset]), int(offsets[text.offset + len(text)])
        # Arrow would skip a byte-order mark at the start of the block. Behind an empty line it does not.
        content = pa.py_buffer(b"\n" + data.slice(first, last - first))
        places = {name: str(number) for number, name in enumerate(self.names)} if columns is not None else {}
        # A header's fields are read as texts, also a year such as 2019. Arrow names them f0, f1, ...
        names = [*places.values()] or [f"f{number}" for number in range(1 + text[0].as_py().count(self._delimiter))]
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
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=[places[name] for name in columns or ()],
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
            ),
        )
        return (table if columns is None else table.rename_columns(list(columns))), misfits


class Workbooks(TextFiles):
    """One sheet of each workbook.

    Raises:
        PolicyError: Also if a workbook does not have the sheet, or has several and none is named.
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
            self._sheets.pop(file)  # was read once, for header and rows
            lines.total += len(rows)
            lines.before = max(lines.before, self._before[file])
            for reason, counts in self._losses[file].items():
                by_name = {self.names[int(at)]: n for at, n in counts.items() if 0 <= int(at) < len(self.names)}
                lines.cells.setdefault(reason, Counter()).update(by_name)
            cells = ([row[place] if place < len(row) else None for row in rows] for place in places)
            yield pa.table({name: pa.array(texts, pa.string()) for name, texts in zip(columns, cells, strict=True)})

    def _glances(self) -> dict[str, list[list[str]]]:
        rows = [[cell or "" for cell in row] for row in self._rows(self._files[0])[:GLANCE_LINES]]
        first = min((_empty(row) for row in rows if sum(map(bool, row)) > 1), default=0)
        return {"": [row[first:] for row in rows]}

    def _header(self, file: Path) -> tuple[str, ...]:
        rows = self._rows(file)[self._dialect.skip :]
        names = [(cell or "").strip() for cell in rows[0]] if rows else []
        while names and not names[-1]:
            names.pop()
        return tuple(names)

    def _rows(self, file: Path) -> list[list[str | None]]:
        """The filled rows of the sheet, after the empty rows at its beginning; read by a separate process."""
        if file in self._sheets:
            return self._sheets[file]
        if not file.name.lower().endswith(sheets.STREAMED):
            optional("python_calamine", "excel", "reading a workbook needs python-calamine")
        dialect = self._dialect
        request = {
            "file": str(file),
            "sheet": dialect.sheet,
            "decimal": dialect.decimal,
            "skip": dialect.skip,
            "glance": dialect.skip + GLANCE_LINES,
            "width": len(dialect.header) if isinstance(dialect.header, tuple) else None,
            "memory": SHEET_MEMORY,
        }
        command = [sys.executable, "-P", sheets.__file__, json.dumps(request)]
        lines: list[Any] = []
        nothing = subprocess.DEVNULL  # an error's text may quote a cell
        process = subprocess.Popen(command, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing)
        with suppress(ValueError), process:  # a line that the process did not finish
            lines.extend(map(json.loads, process.stdout or ()))
        if process.returncode or not lines or not isinstance(lines[-1], dict):
            raise PolicyError(
                f"The workbook {file} cannot be read: it is damaged, is protected by a password, or is another kind of "
                "file, or needs too much memory. Open it, and save it anew as .xlsx."
            )
        self._require_sheet(file, *lines[0])
        rows, losses = lines[1:-1], lines[-1]
        first = _empty(rows[dialect.skip]) if dialect.header is True and dialect.skip < len(rows) else 0
        if first:
            notes, rows = (
                rows[dialect.skip + 1 :],
                [row[first:] for row in rows],
            )  # the table begins at its header's first name
            losses = {kind: {str(int(at) - first): n for at, n in counts.items()} for kind, counts in losses.items()}
            if before := sum(map(any, (row[:first] for row in notes))):
                losses[sheets.BEFORE] = {"0": before}
        self._sheets[file], self._losses[file], self._before[file] = rows, losses, first
        return rows

    def _require_sheet(self, file: Path, names: Sequence[str], hidden: Sequence[str]) -> None:
        """Raises ``FormatDoubt``, with the visible sheets, unless the sheet to read is clear."""
        wanted = self._dialect.sheet or (names[0] if len(names) == 1 else None)
        if wanted is None or wanted not in names:
            none = "" if wanted is None else f"has no sheet {wanted!r}; it "
            shown = ", ".join(f"{name} (hidden)" if name in hidden else name for name in names)
            raise FormatDoubt(
                f"The workbook {file.name} {none}has the sheets {shown}; say which: --sheet NAME (in a "
                "policy `csv: {sheet: NAME}`).",
                [{"sheet": name} for name in names if name not in hidden] or [{"sheet": name} for name in names],
            )


def _empty(row: Sequence[object]) -> int:
    return next((number for number, cell in enumerate(row) if cell), 0)


def _difference(names: Sequence[str], others: Sequence[str]) -> str:
    """The first name in which two headers differ."""
    for number, (name, second) in enumerate(zip_longest(names, others), 1):
        if name != second:
            return f"its column {number} is {second!r}, not {name!r}"
    return "they are equal"


_ADVICE = {
    _MISFITS: "; a field too many may be a delimiter inside an unquoted text, or the name of a row before the others, "
    "as R writes it: then name all columns, in a policy `csv: {skip: 1, header: [row, age, sex]}`",
    _FOREIGN + "utf-8": "; try --encoding latin-1 or windows-1252 (in a policy `csv: {encoding: latin-1}`), of other "
    "letters than those of Western Europe windows-1250 (Central Europe), -1251 (Cyrillic), -1253 (Greek), -1254 "
    "(Turkish) or -1257 (Baltic), or convert it: iconv -t UTF-8 -f CP850 (or what it is)",
    NO_OBJECT: "; where the file is a list in brackets, write an object a line: jq -c '.[]' FILE",
    _BREAKS: "; a newline ends a line: where a carriage return does, convert it: tr '\\r' '\\n'",
    _QUOTES: "; where fields hold line breaks, write the table as Parquet by a reader that you trust with it: "
    "python -c \"import duckdb; duckdb.read_csv('FILE.csv').write_parquet('FILE.parquet')\"",
}


def _advice(reason: str) -> str:
    return next((advice for begin, advice in _ADVICE.items() if reason.startswith(begin)), "")


def line_of(file: str, start: int, line: int) -> str:
    """The name of a block's line in messages."""
    return f"line {start + line:,} of {file}"


@contextmanager
def opened(file: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked; an error concerns the whole file, not one line."""
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
    """Yields the remaining bytes of a file in blocks of whole lines.

    A line that is too long may be cut, but not below ``MAX_LINE``, so it is still recognised.
    """
    partial_line = stream.read(len(codecs.BOM_UTF8)) if stream.tell() == 0 else b""
    partial_line = partial_line.removeprefix(codecs.BOM_UTF8)
    while chunk := stream.read(BLOCK):
        text = partial_line + chunk
        if end := text.rfind(b"\n") + 1:
            yield text[:end]
        partial_line = text[end : end + MAX_LINE + 2]
    if partial_line:
        yield partial_line + b"\n"


def _blocks_of(file: Path) -> Iterator[bytes]:
    with opened(file) as stream:
        yield from blocks(stream)


def _split(block: bytes) -> tuple[pa.StringArray, np.ndarray]:
    """The lines of a block, each with its newline, and their lengths."""
    # The newlines of "a,1\n\nb\n" end at 4, 5 and 7: lines of 4, 1 and 2 bytes, the second empty.
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")) + 1
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(block)), np.diff(offsets)


def _escaped(sign: str) -> str:
    return "\\" + sign if sign in "^[]\\-" else sign


def _closed(delimiter: str, quote: str) -> str:
    """A regular expression for lines in which each quoted field is closed.

    With a bar as quote it matches ``|a, ||b|||,c`` and ``a|b,c``, and not ``|a,b``.
    """
    sign = _escaped(delimiter)
    field = f"(?:{quote}(?:[^{quote}]|{quote}{quote})*{quote}|(?:[^{quote}{sign}][^{sign}]*)?)"
    return f"^{field}(?:[{sign}]{field})*\n$"
