# SPDX-License-Identifier: Apache-2.0
"""Made-up files of offices: each cell is read as what it says, or the proposal names what is not read.

Thirteen of 310 files; with PINQ_ASSURANCE=1 all of them, in some ten minutes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml

from pinq.engine import read_columns
from pinq.engine.sources import quoted
from pinq.errors import PolicyError
from pinq.policy.dialect import Dialect
from pinq.provider.policy_file import parse_policy
from pinq.provider.proposal import Look, WholeDoubt, look
from tests.support.tables.office_files import (
    FORMS,
    KINDS,
    ODDITIES,
    TYPED_ODDITIES,
    Cell,
    OfficeFile,
    office_file,
    typed_file,
)

FILES = len(FORMS) * len(ODDITIES)
SEEDS = range(FILES) if os.environ.get("PINQ_ASSURANCE") == "1" else (*range(0, FILES, 27), 255)
TYPED_FILES = len(KINDS) * len(TYPED_ODDITIES)
TYPED = range(TYPED_FILES) if os.environ.get("PINQ_ASSURANCE") == "1" else range(0, TYPED_FILES, 5)
# What no option reads, each with words of the error.
REFUSED = {
    "ragged": "with another number of fields than",
    "empty column": "ends with a delimiter: its last name is empty",
    "doubled name": "more than once",
    "UTF-16": "is UTF-16 text, which is not read; convert it",
}
READ = {"numeric": "number_of({0})", "date": "moment_of({0}::VARCHAR)::DATE::VARCHAR", "categorical": "trim({0})"}


def proposed(file: OfficeFile) -> Look:
    """The proposal for a file in the form that its error says to try; of several, the one in which it was written."""
    try:
        return look(file.path, fewest=5, folder=file.path.parent)
    except WholeDoubt as doubt:
        assert len(doubt.choices) < 3
        if doubt.look is not None and len(doubt.choices) == 1:
            return doubt.look
        own = FORMS[file.told.partition(",")[0]][3]
        meant = [choice for choice in doubt.choices if own in str(choice.get("dates", own))]
        if not meant:
            raise
        return look(file.path, csv=Dialect.model_validate(meant[0]), fewest=5, folder=file.path.parent)


def cells(text: str, file: OfficeFile) -> dict[str, list[Cell]]:
    """The cells of the declared columns, as they are read."""
    policy = parse_policy(text, file.path.parent / "policy.yaml")
    with read_columns(policy, likely=False) as raw:
        kinds = {name: READ[column.type].format(quoted(name)) for name, column in policy.columns.items()}
        rows = raw.connection.execute(f"SELECT {', '.join(kinds.values())} FROM {raw.name}").fetchall()
    return dict(zip(kinds, map(list, zip(*rows, strict=True)), strict=True))


def alike(value: Cell, truth: Cell) -> bool:
    """Whether a cell is read as what it says."""
    return value == pytest.approx(truth, rel=1e-9) if isinstance(truth, float) else value == truth


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_read_is_what_stands_there_or_it_is_named(seed: int, tmp_path: Path) -> None:
    """No cell is read as another value, and where cells are not read, the note of their column shows them."""
    file = office_file(seed, tmp_path)
    oddity = file.told.partition(", ")[2]
    if oddity in REFUSED:
        with pytest.raises(PolicyError, match=REFUSED[oddity]):
            proposed(file)
        return
    require_read(file, proposed(file).text)


@pytest.mark.parametrize("seed", TYPED)
def test_workbooks_and_databases_are_read_alike(seed: int, tmp_path: Path) -> None:
    """Cells with types, among them texts, empty rows and totals."""
    file = typed_file(seed, tmp_path)
    database = "" if file.path.suffix == ".xlsx" else "::t"
    form = None if database else Dialect(sheet="Hinweise")
    require_read(file, look(f"{file.path}{database}", csv=form, fewest=5, folder=tmp_path).text)


def require_read(file: OfficeFile, text: str) -> None:
    """No cell of a proposal's columns is another value than the truth; what is not read is named."""
    oddity = file.told.partition(", ")[2]
    columns, found = yaml.safe_load(text)["columns"], cells(text, file)
    for place, name in enumerate(file.names):
        if name not in columns:
            assert re.search(f"#   {name}: its values are dates with years of two digits", text), file.told
            continue
        values, truth = found[name], [row[place] for row in file.rows]
        if len(values) > len(truth):
            # A total has no word beside it where columns have types.
            said = "one row alone is far above" if file.path.suffix == ".duckdb" else "# 1 of the rows look like"
            assert said in text, file.told
            values = values[1:] if oddity == "unit line" else values[:-1]
        wrong = [(value, cell) for value, cell in zip(values, truth, strict=True) if not alike(value, cell)]
        assert not [pair for pair in wrong if pair[0] is not None], file.told
        note = re.search(rf"\n  {name}:\n(?:    .*\n)*?    nullable: (\w+)  # (.*)", text)
        assert note is not None
        if wrong:
            assert (note[1], "but texts such as" in note[2]) == ("true", True), file.told
