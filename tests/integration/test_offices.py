# SPDX-License-Identifier: Apache-2.0
"""Files as ten offices send them, all made up: from each a provider who follows what is said gets a policy that fits."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import duckdb
import pandas as pd
import pytest
import yaml

import pinq
from pinq.engine.sheets import Loaded, Streamed
from pinq.engine.sources import read_columns
from pinq.errors import PolicyError
from pinq.policy.dialect import Dialect
from pinq.policy.policy import Policy
from pinq.provider.check import check
from pinq.provider.proposal import WholeDoubt, propose
from pinq.public.plugins import install_line
from tests.support.processes.commands import failed, run

BOOKS = Path(__file__).parents[1] / "offices"
ROWS = 60


def days(form: str) -> list[str]:
    return [(date(2024, 1, 1) + timedelta(days=6 * number)).strftime(form) for number in range(ROWS)]


def lines(*columns: list[str], between: str = ",") -> str:
    return "".join(between.join(row) + "\n" for row in zip(*columns, strict=True))


def drawn(*values: str) -> list[str]:
    return random.Random(7).choices(values, k=ROWS)


AMOUNTS = [f"{number * 13 % 97},{number % 10}5" for number in range(ROWS)]

WRITTEN: dict[str, bytes] = {
    "registry.csv": (
        '"Geburt";"Geschlecht";"Größe"\n'
        + lines(days("%d.%m.%Y"), drawn('"männlich"', '"weiblich"'), AMOUNTS, between=";")
    ).encode("cp1252"),
    "police.csv": (
        "reported,district,cost\n" + lines(days("%m/%d/%Y 08:30"), drawn("N", "S"), ["1.5", "2.25"] * 30)
    ).encode(),
    "transit.txt": ("tag\tlinie\n" + lines(days("%Y%m%d"), drawn("U1", "U2", "S7"), between="\t")).encode(),
    "clinic.csv": (
        "Ambulanzstatistik;;\nStand: 16.11.2024;;\n\nDatum;Praxis;Betrag\n"
        + lines(days("%d.%m.%Y"), drawn("Nord", "Ost"), AMOUNTS, between=";")
    ).encode(),
    "port.csv": ("arrived,berth\n" + lines(days("%d-%b-%Y"), drawn("1A", "2B"))).encode(),
}
COLUMNS: dict[str, dict[str, str]] = {
    "hospital.xlsx": {
        "Aufnahme": "datetime",
        "Geburtsdatum": "date",
        "Station": "categorical",
        "Fallkosten": "numeric",
        "Code": "categorical",
        "Beatmet": "categorical",
    },
    "tax.xls": {"Bescheid vom": "date", "Steuerklasse": "categorical", "Betrag": "numeric"},
    "school.ods": {"enrolled": "date", "grade": "categorical", "meals": "categorical"},
    "registry.csv": {"Geburt": "date", "Geschlecht": "categorical", "Größe": "numeric"},
    "police.csv": {"reported": "datetime", "district": "categorical", "cost": "numeric"},
    "transit.txt": {"tag": "date", "linie": "categorical"},
    "clinic.csv": {"Datum": "date", "Praxis": "categorical", "Betrag": "numeric"},
    "port.csv": {"arrived": "date", "berth": "categorical"},
}


def stated(said: str) -> list[str]:
    """The options that an error asks for, the first of several alternatives."""
    wanted = re.sub(r"To keep them as they are: [^.]*", "", said)
    return [
        part.strip("\"'")
        for option in re.findall(r"(--[a-z]+) (\"[^\"]*\"|'[^']*'|\w[\w-]*)", wanted)
        for part in option
    ]


@pytest.fixture
def office(tmp_path: Path) -> Callable[[str], Path]:
    """Writes an office's file."""

    def write(name: str) -> Path:
        file = tmp_path / name
        file.write_bytes(WRITTEN[name] if name in WRITTEN else (BOOKS / name).read_bytes())
        return file

    return write


@pytest.mark.parametrize("name", COLUMNS)
def test_following_what_is_said_leads_to_a_policy(name: str, office: Callable[[str], Path], tmp_path: Path) -> None:
    """In a few steps, and check then finds every value read."""
    if name.endswith((".xlsx", ".xls", ".ods")):
        pytest.importorskip("python_calamine", reason="workbooks need the extra `excel`")
    file, policy, options = (
        office(name),
        tmp_path / "p.yaml",
        ["--sheet", "Fälle 2024"] if name == "hospital.xlsx" else [],
    )
    for _ in range(5):
        result = run("init", file, *options, "--fewest", "1", "-o", policy)
        if result.exit_code == 0:
            break
        options += stated(result.stderr)
    assert result.exit_code == 0, result.stderr
    declared = pinq.load_policy(policy)
    assert {column: own.type for column, own in declared.columns.items()} == COLUMNS[name]
    report = check(declared)
    assert (report.source_rows, report.encoded_rows, report.advice) == (ROWS, ROWS, ())


def test_a_sheet_is_read_as_its_cells_say(tmp_path: Path) -> None:
    """Numbers, codes typed as text, dates, truth values, empty cells; notes beside the table are none of it."""
    pytest.importorskip("python_calamine", reason="workbooks need the extra `excel`")
    source = {"source": str(BOOKS / "hospital.xlsx"), "csv": {"sheet": "Fälle 2024", "skip": 3, "decimal": ","}}
    column = {"type": "categorical", "values": ["-"]}
    bare = Policy.model_validate({"dataset": "h", "cap": 1, "max_rows": 9, "columns": {"-": column}, **source})
    with read_columns(bare) as raw:
        first = raw.connection.execute(f"FROM {raw.name}").fetchall()[0]
    cells = dict(zip(raw.types, first, strict=True))
    assert re.fullmatch(r"2024-\d\d-\d\d \d\d:\d\d:00", cells["Aufnahme"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", cells["Geburtsdatum"])
    assert (cells["Fallkosten"], cells["Code"], cells["Beatmet"]) == (None, cells["Code"], "false")
    assert cells["Code"] in ("007", "012", "101")


def test_a_number_that_is_none_is_one_lost_value(tmp_path: Path) -> None:
    """Files of other programs may hold infinite numbers, or none."""
    pytest.importorskip("python_calamine", reason="workbooks need the extra `excel`")
    file, numbers = tmp_path / "hospital.xlsx", iter([b"1e400", b"NaN"])
    with ZipFile(BOOKS / "hospital.xlsx") as old, ZipFile(file, "w") as new:
        for name in old.namelist():
            cells = re.sub(rb"(?<=<v>)\d+\.\d+(?=</v>)", lambda found: next(numbers, found[0]), old.read(name))
            new.writestr(name, cells)
    assert next(numbers, None) is None
    source = {"source": str(file), "csv": {"sheet": "Fälle 2024", "skip": 3, "decimal": ","}}
    columns = {"Fallkosten": {"type": "numeric", "lower": 0, "upper": 10**6, "nullable": True}}
    report = check(Policy.model_validate({"dataset": "h", "cap": 1, "max_rows": 999, "columns": columns, **source}))
    assert (report.source_rows, report.encoded_rows) == (ROWS, ROWS)


def test_what_is_wrong_with_a_workbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("python_calamine", reason="workbooks need the extra `excel`")
    with pytest.raises(PolicyError, match=r"has the sheets Hinweise, Fälle 2024; say which: --sheet NAME"):
        propose(BOOKS / "hospital.xlsx")
    failed(run("init", BOOKS / "hospital.xlsx", "--sheet", "2023"), "has no sheet '2023'; it has the sheets Hinweise")
    failed(
        run("init", BOOKS / "hospital.xlsx", "--sheet", "Fälle 2024"), "3 title lines above the header: try --skip 3"
    )
    (tmp_path / "broken.xlsx").write_bytes(b"PK no archive")
    failed(run("init", tmp_path / "broken.xlsx"), "is damaged, is protected by a password, or is another kind of file")
    (tmp_path / "t.csv").write_text("a\n1\n")
    both = {"source": [str(BOOKS / "tax.xls"), "t.csv"], "folder": tmp_path}
    with pytest.raises(PolicyError, match="of several kinds"):
        check(Policy(dataset="t", cap=1, max_rows=9, columns={"a": {"type": "categorical", "values": ["x"]}}, **both))


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "python_calamine", None)
    failed(run("init", BOOKS / "tax.xls"), install_line("excel"))


def test_days_and_months_that_may_be_either_are_asked_for(tmp_path: Path) -> None:
    """Of a text file and of typed texts; one unambiguous column of a file decides for the others."""
    either = ["01/02/2024", "03/04/2024", "11/12/2023"] * 20
    (tmp_path / "t.csv").write_text("d,x\n" + lines(either, drawn("a", "b")))
    said = run("init", tmp_path / "t.csv").stderr
    assert "Both orders of day and month read all of them: say which it is." in said
    assert '--dates "%d/%m/%Y" or --dates "%m/%d/%Y"' in said
    (tmp_path / "t.csv").write_text("d,e\n" + lines(either, days("%m/%d/%Y")))
    failed(run("init", tmp_path / "t.csv"), 'look like dates in another form: try --dates "%m/%d/%Y" (in a policy')
    assert "  d:\n    type: categorical" in run("init", tmp_path / "t.csv", "--dates", "none").stdout
    timed = yaml.safe_load(propose(pd.DataFrame({"e": days("%d.%m.%Y 08:30")})))["columns"]["e"]
    assert (timed["type"], timed["formula"]) == ("datetime", "strptime(\"e\", '%d.%m.%Y %H:%M')")
    text = propose(pd.DataFrame({"d": either, "e": days("%m/%d/%Y"), "x": drawn("a", "b")}))
    assert yaml.safe_load(text)["columns"]["e"]["formula"] == "strptime(\"e\", '%m/%d/%Y')"
    assert "#   d: dates such as '11/12/2023' can be read day first or month first" in text


@pytest.mark.parametrize(
    ("forms", "text"),
    [("%d.%m.%y", "has no century"), ("%Y", "no form of a date"), (["%d/%m/%Y", "%m/%d/%Y"], "one text as two dates")],
)
def test_forms_that_would_guess_are_refused(forms: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Dialect(dates=forms)


def test_records_over_several_lines_are_counted_and_said_how_to_convert(tmp_path: Path) -> None:
    """And what is said does convert them."""
    file = tmp_path / "survey.csv"
    notes = [f'"line one\nline {number}"' if number % 3 == 0 else "fine" for number in range(ROWS)]
    file.write_text("age,note\n" + lines([str(20 + number % 50) for number in range(ROWS)], notes))
    said = run("init", file).stderr
    assert "where fields hold line breaks, write the table as Parquet" in said
    (code,) = re.findall(r'python -c "(.*)"', said)
    exec(code.replace("FILE", str(tmp_path / "survey")))
    assert duckdb.read_parquet(str(tmp_path / "survey.parquet")).shape == (ROWS, 2)


@pytest.mark.parametrize("suffix", [".json", ".feather", ".txt", ".pdf"])
def test_other_files_are_named_with_what_to_do(suffix: str, tmp_path: Path) -> None:
    """The line that is given converts the file, where there is one."""
    file, table = tmp_path / f"labour{suffix}", pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    if suffix == ".feather":
        table.to_feather(file)
    else:
        file.write_text(table.to_json(orient="records"))
    said = run("init", file).stderr
    assert f"{file} is no table of a kind that is read: Parquet, CSV (.csv, .tsv), JSON lines" in said
    codes = re.findall(r'python -c "(.*)"', said)
    assert bool(codes) == (suffix in (".json", ".feather"))
    for code in codes:
        exec(code.replace("'labour.parquet'", f"'{tmp_path}/labour.parquet'"))
        assert duckdb.read_parquet(str(tmp_path / "labour.parquet")).fetchall() == [(1, "x"), (2, "y")]


def test_check_says_what_a_columns_values_look_like(tmp_path: Path) -> None:
    """Dates and numbers in another form, and categories that are not declared; also where they count as missing."""
    (tmp_path / "t.csv").write_text("d;n;c\n" + lines(days("%d.%m.%Y"), AMOUNTS, drawn("f", "m"), between=";"))
    columns: dict[str, Any] = {
        "d": {"type": "date", "lower": "2024-01-01", "upper": "2024-12-31", "nullable": True},
        "n": {"type": "numeric", "lower": 0, "upper": 100},
        "c": {"type": "categorical", "values": ["w", "m"], "nullable": True},
    }
    own: dict[str, Any] = {"dataset": "t", "cap": 1, "max_rows": 99, "columns": columns, "folder": tmp_path}
    notes = check(Policy(source="t.csv", csv={"delimiter": ";"}, **own)).advice
    assert len(notes) == 3
    assert re.match(
        r"d: 60 rows \(100 %\) hold texts that are no dates, such as '\d\d\.\d\d\.2024'.* count as missing", notes[0]
    )
    assert '`csv: {dates: ["%d.%m.%Y"]}`' in notes[0]
    assert "n: 60 rows (100 %) hold texts that are no numbers" in notes[1]
    assert '--decimal ","' in notes[1]
    assert "have no declared value and are left out, such as 'f'; declare it, or" in notes[2]
    pd.DataFrame({"d": days("%d.%m.%Y")}).to_parquet(tmp_path / "t.parquet")
    (note,) = check(Policy(source="t.parquet", **own | {"columns": {"d": columns["d"]}})).advice
    assert "`formula: strptime(\"d\", '%d.%m.%Y')`" in note


def test_check_says_which_texts_are_truth_values(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("flag\nTrue\nFalse\n1\n")
    columns: Any = {"flag": {"type": "categorical", "values": [True, False]}}
    policy = Policy(dataset="t", cap=1, max_rows=9, columns=columns, folder=tmp_path, source="t.csv")
    (note,) = check(policy).advice
    assert "declare it as text or a number: only true and false are truth values, or `nullable: true`" in note


@pytest.mark.parametrize("state", ["hidden", "veryHidden"])
def test_a_hidden_sheet_is_named_and_not_proposed(state: str, tmp_path: Path) -> None:
    """Both readers see it; the sheet that is shown is the one choice, and is read."""
    path = tmp_path / "hidden.xlsx"
    with ZipFile(BOOKS / "hospital.xlsx") as archive, ZipFile(path, "w") as changed:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "xl/workbook.xml":
                content = content.replace(b'state="visible"', f'state="{state}"'.encode(), 1)
            changed.writestr(name, content)
    assert Streamed(str(path)).hidden == Loaded(str(path)).hidden == ["Hinweise"]
    with pytest.raises(WholeDoubt, match=r"has the sheets Hinweise \(hidden\), Fälle 2024; say which") as doubt:
        pinq.propose(path)
    assert doubt.value.choices[0]["sheet"] == "Fälle 2024"
    assert doubt.value.look is not None
