# SPDX-License-Identifier: Apache-2.0
"""JSON lines, and files of SPSS, SAS and Stata: each value is read as what stands there, and each row alone."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

import pinq
from pinq.engine import open_engine, read_columns
from pinq.engine.sources import quoted
from pinq.errors import PolicyError
from pinq.policy.policy import Policy
from pinq.provider.proposal import look
from tests.support.requests.handles import encoded_rows

COLUMNS: dict[str, Any] = {
    "age": {"type": "numeric", "lower": 0, "upper": 99, "integer": True, "nullable": True},
    "born": {"type": "date", "lower": "1950-01-01", "upper": "2009-12-31", "nullable": True},
    "sex": {"type": "categorical", "values": ["f", "m"], "nullable": True},
}
LINES = [
    '{"age": 34, "born": "1990-05-01", "sex": "f"}',
    '{"sex": "m", "age": "35", "more": [1, {"a": null}]}',
    '{"age": null, "born": "", "sex": "f"}',
    '{"age": 3.4e1, "born": "1990-02-30", "sex": "m", "sex": "f"}',
    '{"age": 10000000000000000000000000000000000000000, "sex": "f"}',
    '{"age": 2, "sex": "\\ud800"}',
    '{"age": NaN, "born": true, "sex": "x"}',
    '{"age": 1, "sex": "f"',
    '[1, "1990-05-01", "f"]',
    "[" * 100_000,
    "7",
    "",
]


def policy_of(source: str, folder: Path, **more: Any) -> Policy:
    own = {"dataset": "d", "cap": 1, "max_rows": 10_000, "source": source, "folder": folder, "columns": COLUMNS}
    return Policy.model_validate(own | {"csv": {"max_unreadable": 1}} | more)


def rows_of(policy: Policy) -> list[tuple[int, ...]]:
    engine, _ = open_engine(policy, salt=b"s")
    with closing(engine):
        return sorted(encoded_rows(engine))


FIRST = '{"age": 1, "born": "2000-01-01", "sex": "f"}'


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_each_line_of_json_is_read_alone(end: str, tmp_path: Path) -> None:
    """A file's rows are those of its lines, each in a file by itself; a line that is no object is no row."""
    (tmp_path / "first.jsonl").write_text(FIRST)
    (first,) = rows_of(policy_of("first.jsonl", tmp_path))
    alone = [first]
    for number, line in enumerate(LINES):
        (tmp_path / f"{number}.jsonl").write_text(f"{FIRST}{end}{line}{end}")
        found = rows_of(policy_of(f"{number}.jsonl", tmp_path))
        found.remove(first)
        alone += found
    (tmp_path / "all.jsonl").write_text(end.join([FIRST, *LINES]))
    assert rows_of(policy_of("all.jsonl", tmp_path)) == sorted(alone)
    assert len(alone) == 5  # the fourth has one sex twice, so it is no row; half a character and x are undeclared
    assert len({row[0] for row in alone} & {34, 35, 99, 100}) == 4


@pytest.mark.parametrize("lines", [[], ['{"x": 1}'] * 60, ['{"age": 1, "Age": 2, "": 3}'] * 60, ["[]"] * 60])
def test_no_row_decides_whether_a_file_opens(lines: list[str], tmp_path: Path) -> None:
    """Whatever the first lines are, the declared columns are read of the others."""
    (tmp_path / "t.jsonl").write_text("\n".join([*lines, FIRST]))
    nobody = json.loads(lines[0]) if lines else []
    assert len(rows_of(policy_of("t.jsonl", tmp_path))) == 1 + len(lines) * isinstance(nobody, dict)
    if '{"age": 1, "Age": 2, "": 3}' in lines:
        with pytest.raises(PolicyError, match="can name no columns"):
            look(tmp_path / "t.jsonl", fewest=5)


def test_no_row_makes_a_column_and_a_lost_line_is_named(tmp_path: Path) -> None:
    """A field of one person's line is no public name; lines that are no objects stop the proposal, with their place."""
    lines = [json.dumps({"n": number % 7, "s": "fm"[number % 2]}) for number in range(60)]
    lines[3] = '{"n": 3, "s": "m", "Ada Lovelace": 1}'
    (tmp_path / "t.ndjson").write_text("\n".join(lines))
    text = look(tmp_path / "t.ndjson", fewest=5).text
    assert (list(yaml.safe_load(text)["columns"]), "Ada" in text) == (["n", "s"], False)
    (tmp_path / "t.ndjson").write_text("\n".join([*lines, "n,s"]))
    with pytest.raises(
        PolicyError, match=r"1 that is no JSON object with each field once \(such as line 61 of t.ndjson\)"
    ):
        look(tmp_path / "t.ndjson", fewest=5)
    (tmp_path / "u.csv").write_text("n,s\n1,f\n")
    with pytest.raises(PolicyError, match="of several kinds"):
        rows_of(policy_of("[tu].*", tmp_path))


@pytest.mark.parametrize("line", ["[", '{"a": 1, "a": 2}'])
def test_lines_that_are_no_objects_are_told_as_such(line: str, tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(f"{line}\n" * 9)
    with pytest.raises(PolicyError, match="each line must be one JSON object, with each field once"):
        pinq.propose(tmp_path / "t.jsonl")


def test_one_number_is_one_person(tmp_path: Path) -> None:
    """However it is written; a text is another value than a number, and so is a number with other digits."""
    texts = ["5", "5.0", "5e0", "0.5E+1", "-0", "-0.0", "0", "5.10", "5.1", "1E3", "1e401", "12345678901234567890.0"]
    texts += ["1e9999999999999999999", "-2E-99999999999999999999"]  # exponents that no decimal has
    (tmp_path / "t.jsonl").write_text("\n".join(f'{{"age": {text}, "born": "{text}"}}' for text in texts))
    with read_columns(policy_of("t.jsonl", tmp_path), likely=False) as raw:
        found = raw.connection.execute(f"SELECT age, born FROM {raw.name}").fetchall()
    assert [own for _, own in found] == texts
    ages = [age for age, _ in found]
    assert ages == [*"5555000", "5.1", "5.1", "1000", "1e401", "12345678901234567890", *texts[-2:]]
    unit = {"privacy_unit": {"column": "age", "max_rows": 1}, "columns": {"sex": COLUMNS["sex"]}}
    (tmp_path / "u.jsonl").write_text('{"age": 5, "sex": "f"}\n{"age": 5.0, "sex": "m"}\n{"age": 5e0, "sex": "f"}')
    assert len(rows_of(policy_of("u.jsonl", tmp_path, **unit))) == 1


def test_an_encoding_that_is_not_known_is_named(tmp_path: Path) -> None:
    pyreadstat = pytest.importorskip("pyreadstat", reason="the extra `statistical`")
    pyreadstat.write_sav(pd.DataFrame({"age": [1.0], "sex": ["f"]}), tmp_path / "t.sav")
    octets = (tmp_path / "t.sav").read_bytes()
    (tmp_path / "t.sav").write_bytes(octets.replace(b"UTF-8", b"EUCTW"))
    with (
        pytest.raises(PolicyError, match="is in the encoding EUCTW, which is not read here: open it in its program"),
        read_columns(policy_of("t.sav", tmp_path, csv=None)),
    ):
        pass


@pytest.mark.parametrize("kind", ["sav", "zsav", "dta", "xpt"])
def test_files_of_statistics_are_read_as_they_are_shown(kind: str, tmp_path: Path) -> None:
    """Labels, dates and missing values; a date that no calendar has is its last one, and costs no other row."""
    pyreadstat = pytest.importorskip("pyreadstat", reason="the extra `statistical`")
    days = [datetime(1950 + number % 50, 1 + number % 12, 1 + number % 28) for number in range(80)]
    frame = pd.DataFrame(
        {"age": [number % 70 for number in range(80)], "born": days, "grp": [1.0, 2.0] * 40, "name": ["x"] * 80}
    )
    frame["visit"] = pd.Series(days) + pd.Timedelta(hours=8)
    frame["pain"] = [None, 0.5, 2, 1e10] * 20
    labels = {} if kind == "xpt" else {"variable_value_labels": {"grp": {1.0: "ill", 2.0: "well"}}}
    options = labels | ({"compress": True} if kind == "zsav" else {})
    write = {
        "sav": pyreadstat.write_sav,
        "zsav": pyreadstat.write_sav,
        "dta": pyreadstat.write_dta,
        "xpt": pyreadstat.write_xport,
    }[kind]
    write(frame, tmp_path / f"t.{kind}", **options)
    proposed = yaml.safe_load(look(tmp_path / f"t.{kind}", fewest=5).text)["columns"]
    assert proposed["grp"]["values"] == ([1, 2] if kind == "xpt" else ["ill", "well"])
    assert (proposed["born"]["type"], proposed["pain"]["nullable"], proposed["age"]["integer"]) == ("date", True, True)
    policy = policy_of(f"t.{kind}", tmp_path, csv=None)
    with read_columns(policy) as raw:
        found = raw.connection.execute(f"SELECT {', '.join(map(quoted, raw.types))} FROM {raw.name}").fetchdf()
    assert found["born"].str[:10].tolist() == [str(day.date()) for day in days]
    assert found["visit"].tolist() == [f"{day.date()} 08:00" for day in days]
    assert found["age"].tolist() == [str(age) for age in frame["age"]]
    assert found["pain"].iloc[:4].tolist()[1:] == ["0.5", "2", "10000000000"]
    assert found["pain"].isna().sum() == 20


def test_a_date_beyond_the_calendar_costs_no_file(tmp_path: Path) -> None:
    pyreadstat = pytest.importorskip("pyreadstat", reason="the extra `statistical`")
    frame = pd.DataFrame({"born": [0.0, 1e15, -1e15, None] * 5, "n": [1.0] * 20})
    pyreadstat.write_sav(frame, tmp_path / "t.sav", variable_format={"born": "DATE11"})
    with read_columns(policy_of("t.sav", tmp_path, csv=None)) as raw:
        found = raw.connection.execute(f"SELECT born FROM {raw.name} LIMIT 4").fetchall()
    assert found == [("1582-10-14",), ("9999-12-31 23:59:59.999999",), (str(date.min),), (None,)]
    (tmp_path / "t.sav").write_bytes(b"$FL2@(#) nothing")
    with (
        pytest.raises(PolicyError, match="cannot be read: it is damaged"),
        read_columns(policy_of("t.sav", tmp_path, csv=None)),
    ):
        pass


@pytest.mark.parametrize(("kind", "version"), [("sav", 0), ("dta", 15), ("dta", 12), ("xpt", 0)])
def test_a_text_that_is_none_costs_no_file(kind: str, version: int, tmp_path: Path) -> None:
    """Each text is read alone: octets that are none in the file's encoding, as Windows has them or as a sign."""
    pyreadstat = pytest.importorskip("pyreadstat", reason="the extra `statistical`")
    frame = pd.DataFrame({"n": [1.0, 2.0] * 2, "name": ["gro\u00df", "f", "abcdefgh", None]})
    write = {"sav": pyreadstat.write_sav, "dta": pyreadstat.write_dta, "xpt": pyreadstat.write_xport}[kind]
    labels = {} if kind == "xpt" else {"variable_value_labels": {"n": {1.0: "gr\u00f6\u00dfer"}}}
    write(frame, tmp_path / f"t.{kind}", **labels, **({"version": version} if version else {}))
    octets = (tmp_path / f"t.{kind}").read_bytes()
    assert octets.count(b"abcdefgh") == 1
    for wrong, read in ((b"ab\xffdefgh", "ab\u00ffdefgh"), (b"abc\xe4\x81fgh", "abc\u00e4\ufffdfgh")):
        (tmp_path / f"t.{kind}").write_bytes(octets.replace(b"abcdefgh", wrong))
        with read_columns(policy_of(f"t.{kind}", tmp_path, csv=None)) as raw:
            found = raw.connection.execute(f"SELECT n, name FROM {raw.name}").fetchall()
        first = "1" if kind == "xpt" else "gr\u00f6\u00dfer"
        assert found[:3] == [(first, "gro\u00df"), ("2", "f"), (first, read)]
