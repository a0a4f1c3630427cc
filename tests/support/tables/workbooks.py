# SPDX-License-Identifier: Apache-2.0
"""Small workbooks, written cell by cell as XML, so that a cell may hold what no program writes."""

from __future__ import annotations

import re
from pathlib import Path
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
