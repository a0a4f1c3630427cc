# SPDX-License-Identifier: Apache-2.0
"""Reads a sheet of a workbook (.xlsx, .xlsm, .xlsb, .xls, .ods) so that a row concerns itself alone.

Cells become the texts that the policy's dialect would have them written as: a number with its
decimal sign, a date as 2024-11-16, a truth value as true or false. So all that follows is that of
delimited text: numbers and dates typed as text are read as declared, and an empty cell is missing.
A row without a filled cell is none, and cells beyond the header's columns are notes beside the table.

Privacy:
    Each row's texts follow from its own cells, the dialect and the header: a row-wise map, stability
    1. Held by: tests/integration/test_offices.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pyarrow as pa

from pinq.engine.delimited import GLANCE_LINES, Lines, TextFiles
from pinq.errors import PolicyError
from pinq.public.dialect import Dialect
from pinq.public.plugins import optional

__all__ = ["Workbooks"]


class Workbooks(TextFiles):
    """A sheet of each of some workbooks.

    Raises:
        PolicyError: Also where a workbook has no such sheet, or several and none is named.
        ModuleNotFoundError: The extra ``excel`` is not installed.
    """

    def __init__(self, files: Sequence[Path], dialect: Dialect) -> None:
        self._known: dict[Path, list[list[str | None]]] = {}
        super().__init__(files, dialect)

    def read(self, columns: Sequence[str], lines: Lines, files: Sequence[Path] | None = None) -> Iterator[pa.Table]:
        places = [self.names.index(name) for name in columns]
        above = self._dialect.skip + (self._dialect.header is True)
        for file in self._files if files is None else files:
            rows = [row for row in self._rows(file)[above:] if any(row[: len(self.names)])]
            self._known.pop(file)  # read once, for header and rows
            lines.total += len(rows)
            cells = ([row[place] if place < len(row) else None for row in rows] for place in places)
            yield pa.table({name: pa.array(own, pa.string()) for name, own in zip(columns, cells, strict=True)})

    def _glances(self) -> dict[str, list[list[str]]]:
        return {"": [[cell or "" for cell in row] for row in self._rows(self._files[0])[:GLANCE_LINES]]}

    def _header(self, file: Path) -> tuple[str, ...]:
        rows = self._rows(file)[self._dialect.skip :]
        named = [(cell or "").strip() for cell in rows[0]] if rows else []
        while named and not named[-1]:
            named.pop()
        return tuple(named)

    def _rows(self, file: Path) -> list[list[str | None]]:
        """The cells of the sheet, from its first row and column on."""
        if file in self._known:
            return self._known[file]
        calamine: Any = optional("python_calamine", "excel", "reading a workbook needs python-calamine")
        try:
            with calamine.CalamineWorkbook.from_path(str(file)) as book:
                cells = book.get_sheet_by_name(self._sheet(file, book.sheet_names)).to_python(skip_empty_area=False)
        except (calamine.CalamineError, OSError):  # whose text may quote a cell
            raise PolicyError(
                f"The workbook {file} cannot be read: it is damaged, is protected by a password, or is another kind of "
                "file. Open it, and save it anew as .xlsx."
            ) from None
        self._known[file] = [[self._text(cell) for cell in row] for row in cells]
        return self._known[file]

    def _sheet(self, file: Path, names: Sequence[str]) -> str:
        wanted = self._dialect.sheet or (names[0] if len(names) == 1 else None)
        if wanted in names and wanted is not None:
            return wanted
        none = "" if wanted is None else f"has no sheet {wanted!r}; it "
        raise PolicyError(
            f"The workbook {file.name} {none}has the sheets {', '.join(names)}; say which: --sheet NAME (in a "
            "policy `csv: {sheet: NAME}`)."
        )

    def _text(self, cell: object) -> str | None:
        """The text of a cell; None for an empty one, and for one that holds an error."""
        match cell:
            case bool():
                return "true" if cell else "false"
            case float() | int():
                # 7.0 is the code 7: a sheet has no whole numbers.
                number = str(int(cell)) if cell == int(cell) and abs(cell) < 1e15 else repr(cell)
                return number.replace(".", self._dialect.decimal)
            case datetime():
                return cell.isoformat(" ") if cell.time() != time() else str(cell.date())
            case date() | time():
                return str(cell)
        return str(cell) or None
