# SPDX-License-Identifier: Apache-2.0
"""What stands in an office's file is read, or named: codes for missing, blank lines, kept codes, SQLite, odd columns."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml

import pinq
from pinq.engine.encoding import encode
from pinq.engine.profile import looks_like, missing_codes, missing_words
from pinq.engine.sources import database, small_database
from pinq.policy.policy import Policy
from pinq.provider.proposal import WholeDoubt, look
from pinq.public.columns import number_of_text

ROWS = 300
TEXTS = [
    "1",
    "-1.5",
    " 7\t",
    "+.5",
    "1.",
    "1e3",
    "1_0",
    "1 0",
    "0x1",
    "x",
    "inf",
    "nan",
    "-",
    "1e",
    "\u0661",
    "1\u00a0",
    "",
]
COLUMNS: dict[str, dict[str, Any]] = {
    "age": {"type": "numeric", "lower": 0, "upper": 100, "integer": True, "missing": [-9, 99, 99.5, "k.A."]},
    "smoker": {"type": "categorical", "values": ["yes", "no"], "missing": ["NA", -1]},
    "born": {"type": "date", "lower": "1990-01-01", "upper": "2020-12-31", "missing": ["2019-09-09", "never"]},
}
VALUES: dict[str, list[object]] = {
    "age": ["1", "99", "-9.0", "99.50", "k.A.", "1_0", "x", None, "98"],
    "smoker": ["yes", "NA", "-1", "no", "na", "", None, "-1.0", "Yes"],
    "born": ["2000-02-03", "2019-09-09", "2019-09-09 00:00", "never", "2000-02-30", "3.2.2000", None, "", "1999-12-31"],
}


def policy_of(source: object = None, columns: dict[str, Any] = COLUMNS, **more: object) -> Policy:
    """A policy in which each column may be missing."""
    nullable = {name: column | {"nullable": True} for name, column in columns.items()}
    return Policy.model_validate(
        {"dataset": "d", "cap": 1, "max_rows": 1000, "source": source, "columns": nullable} | more
    )


def proposed(path: Path | pd.DataFrame, **options: Any) -> tuple[dict[str, Any], str]:
    """The proposed columns, and the whole text."""
    text = pinq.propose(path, dataset="d", **options)
    return yaml.safe_load(text)["columns"], text


@pytest.mark.parametrize("name", COLUMNS)
def test_codes_for_missing_are_the_same_in_sql_and_python(name: str) -> None:
    """Encoding and prediction take the same texts for missing, whatever the other rows are."""
    policy = policy_of(columns={name: COLUMNS[name]})
    encoded = [
        encode(pa.table({name: pa.array([value], pa.string())}), policy).to_pydict()["c0"] for value in VALUES[name]
    ]
    alone = [code for codes in encoded for code in codes or [-1]]
    column = policy.columns[name]
    assert alone == column.encode(pd.Series(VALUES[name], dtype=object)).tolist()
    assert alone.count(column.null_code) >= 3
    assert Policy.model_validate(yaml.safe_load(policy.to_yaml())).columns == policy.columns


def test_a_value_cannot_be_missing_and_declared() -> None:
    with pytest.raises(ValueError, match="under `values` and under `missing`"):
        pinq.Categorical(values=("yes", "NA"), missing=("NA",))


def test_a_column_without_codes_keeps_its_digest() -> None:
    """The key is absent where nothing is declared, so that what was signed before stays as it is."""
    assert "missing" not in pinq.Numeric(lower=0, upper=1).model_dump_json()


def test_numbers_have_one_pattern() -> None:
    """A text is a number in SQL if and only if it is one in Python."""
    with database(policy_of(), pa.table({"a": [1]}), []) as connection:
        from pinq.engine.numbers import define_readings

        define_readings(connection, None)
        for text in TEXTS:
            (found,) = connection.execute("SELECT number_of(?)", [text]).fetchall()[0]
            assert np.array_equal(np.nan if found is None else found, number_of_text(text), equal_nan=True), text


def test_a_line_of_delimiters_is_no_row(tmp_path: Path) -> None:
    rows = [f"{age},m" if age % 5 else "," for age in range(ROWS)]
    (tmp_path / "t.csv").write_text("\n".join(["age,sex", *rows]) + "\n")
    columns, text = proposed(tmp_path / "t.csv")
    assert columns["sex"]["values"] == ["m"]
    assert not columns["sex"]["nullable"]
    assert "of 240 rows" in text


def test_kept_codes_are_read_without_their_signs(tmp_path: Path) -> None:
    rows = ['="00123",1', '"=""00200""",2', '=("007"),3'] * 100
    (tmp_path / "t.csv").write_text("\n".join(["code,n", *rows]) + "\n")
    assert proposed(tmp_path / "t.csv")[0]["code"]["values"] == ["00123", "00200", "007"]


def test_sqlite_is_read_value_by_value(tmp_path: Path) -> None:
    """SQLite has no types: one text in a column of numbers costs this row alone, and nothing is installed."""
    path = tmp_path / "t.sqlite"
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE visits (age INT, plz TEXT, cost, seen TEXT)")
        rows = [
            (n % 90, "01234" if n % 2 else "99000", [1.5, 2, None, "n/a"][n % 4], f"2024-01-{1 + n % 28:02}")
            for n in range(ROWS)
        ]
        base.executemany("INSERT INTO visits VALUES (?, ?, ?, ?)", rows)
    base.close()
    columns, _ = proposed(path.with_name("t.sqlite::visits"))
    assert columns["plz"]["values"] == ["01234", "99000"]
    assert columns["seen"]["type"] == "date"
    assert (columns["age"]["lower"], columns["age"]["upper"], columns["age"]["type"]) == (0, 90, "numeric")
    with pytest.raises(pinq.PolicyError, match="no table 'visit'"):
        proposed(path.with_name("t.sqlite::visit"))


def test_nothing_is_installed_by_itself() -> None:
    with small_database() as small, database(policy_of(memory_limit="1GB"), None, []) as large:
        for connection in (small, large):
            assert connection.execute("SELECT current_setting('autoinstall_known_extensions')").fetchall() == [(False,)]
            with pytest.raises(duckdb.Error, match=r"not found|not installed|disabled"):
                connection.execute("ATTACH 'x.sqlite' AS other (TYPE sqlite)")


def test_one_column_never_costs_the_table(tmp_path: Path) -> None:
    """Numbers of 13 digits close together make a grid too fine for doubles: the column is left out, with the reason."""
    draw = random.Random(1)
    rows = [f"{4006381333931 + 10 * draw.randrange(ROWS)},{draw.randint(1, 9)}" for _ in range(400)]
    (tmp_path / "t.csv").write_text("\n".join(["article,n", *rows]) + "\n")
    columns, text = proposed(tmp_path / "t.csv")
    assert list(columns) == ["n"]
    assert "article: " in text.split("Left out:")[1]


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ("{0:02}/{1:02}/{2:02}", "years of two digits"),
        ("{2}.{1} %", "a sign or unit"),
        ("EUR {2},{0}", "a sign or unit"),
        ("{2},{0:03} kg", "a sign or unit"),
        ("{0}:{2:02}:{1:02}", "times of day or durations"),
        ("{0} days, {1}:{2:02}", "times of day or durations"),
        ("{1}:{2:02} PM", "12-hour clock"),
        ("Name {2}{0}", ""),
        ("{0}. März 20{2}", "dates in another form"),
        ("{0:02}{1:02}20{2}", "dates in another form"),
        ("20{2}年{1}月{0}日", "dates in another form"),
        ("20{2}-W{0:02}", "weeks, months or quarters"),
        ("Q3/20{2}", "weeks, months or quarters"),
        ("٣{0}٫{2}", "other digits or signs"),
        ("\uff11{0}", "other digits or signs"),
        ("{1}\u2009{0:03},{2}", "other digits or signs"),
        ("\u2212{0}.{2}", "other digits or signs"),
        ("{1},{2},{0:03}", "other digits or signs"),
        ("{2}-{0}", ""),
        ("{2}.{0}", ""),
        ("{0} of {2}", ""),
    ],
)
def test_texts_are_named_for_what_they_are(form: str, reason: str) -> None:
    draw = random.Random(2)
    texts = [form.format(draw.randint(1, 28), draw.randint(1, 12), draw.randint(20, 59)) for _ in range(100)]
    said = looks_like(texts)
    assert reason in said
    assert bool(said) == bool(reason)


@pytest.mark.parametrize(
    ("forms", "reason"),
    [(("{}.5", "{},5"), "numbers in two forms"), (("{}.5", "\u2212{}.5"), "'\u2212"), (("{}.5", "({}.5)"), r"'\(")],
)
def test_the_odd_ones_are_shown(forms: tuple[str, str], reason: str) -> None:
    assert re.search(reason, looks_like([forms[number % 2].format(number) for number in range(100)]))


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (lambda i: f"{i % 9}E{i % 3}", "categorical"),
        (lambda i: f"{1000 + i * 37}" if i % 50 else "1e5", "numeric"),
        (lambda i: f"{i % 9}.5E+0{i % 3}" if i % 9 else "", "numeric"),
        (
            lambda i: ["not measured", "-"][i % 8 % 2] if i % 8 < 6 else f"{i}.25",
            "but texts such as '-', 'not measured'",
        ),
        (lambda i: f"A{i % 30}" if i % 8 < 6 else f"{i}.25", "most of its values are of fewer than"),
        (lambda i: "9999-12-31" if i % 5 else f"2020-01-{i % 28 + 1:02}", "write `missing: ['9999-12-31']`"),
        (lambda i: "1900-01-01" if i % 5 else f"2020-01-{i % 28 + 1:02}", "write `missing: ['1900-01-01']`"),
        (lambda i: f"256{i % 9}-01-0{i % 7 + 1}", "of another calendar"),
    ],
)
def test_values_that_are_not_as_they_seem_are_named(column: Callable[[int], str], said: str, tmp_path: Path) -> None:
    """Codes such as 1E5 are no numbers; words stand among numbers; dates stand for none, or are of another calendar."""
    rows = [f"{column(i)},{'mf'[i % 2]}" for i in range(400)]
    (tmp_path / "t.csv").write_text("\n".join(["x,sex", *rows]) + "\n")
    assert said in proposed(tmp_path / "t.csv")[1]


def test_codes_and_words_for_missing_are_named(tmp_path: Path) -> None:
    draw = random.Random(3)
    rows = [
        f"{draw.choice([-9, 99, 999]) if draw.random() < 0.1 else draw.randint(18, 75)},{draw.choice(['yes', 'NA', '-'])}"
        for _ in range(ROWS)
    ]
    (tmp_path / "t.csv").write_text("\n".join(["age,smoker", *rows]) + "\n")
    _, text = proposed(tmp_path / "t.csv")
    assert "write `missing: [-9, 99, 999]`" in text
    assert "write `missing: [-, NA]`" in text
    assert missing_codes([*range(91), 99]) == missing_codes(range(-5, 30)) == missing_codes(range(10)) == []
    assert missing_words(["NL", "no", "n/a"]) == ["n/a"]


@pytest.mark.parametrize("form", ["%d. %m. %Y", "%Y.%m.%d.", "%Y. %m. %d."])
def test_dates_with_points_and_blanks_are_read(form: str, tmp_path: Path) -> None:
    """As Czech, Hungarian and Korean offices write them."""
    days = [f"2024-{1 + i % 12:02}-{1 + i % 28:02}" for i in range(300)]
    texts = [form.replace("%Y", d[:4]).replace("%m", str(int(d[5:7]))).replace("%d", str(int(d[8:]))) for d in days]
    (tmp_path / "t.csv").write_text(
        "n;day\n" + "".join(f"{i % 9};{t}\n" for i, t in enumerate(texts)), encoding="utf-8"
    )
    with pytest.raises(WholeDoubt) as doubt:
        look(tmp_path / "t.csv")
    assert doubt.value.look is not None
    assert doubt.value.look.first["day"] == days[:10]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (lambda i: f"令和6年{1 + i % 12}月{1 + i % 28}日", "dates in another form"),
        (lambda i: ["<0.3", "> 250", i, i][i % 4], "numbers with a sign or unit, such as '(<|> )"),
        (lambda i: f"{100 + i % 60}/{60 + i % 37}", "two numbers in one text"),
    ],
)
def test_a_column_is_left_out_for_what_its_values_are(
    values: Callable[[int], object], said: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("n,x\n" + "".join(f"{i % 9},{values(i)}\n" for i in range(300)), encoding="utf-8")
    assert re.search(said, look(tmp_path / "t.csv").text)


def test_lines_that_are_no_fields_are_named(tmp_path: Path) -> None:
    """Fields of fixed widths, and a list of JSON over many lines."""
    fixed = "NAME   AGE SEX\n" + "".join(f"{['Bern', 'Basel'][i % 2]:7}{20 + i % 50:3} M\n" for i in range(300))
    array = "[\n" + ",\n".join(f'{{"a": {i}}}' for i in range(300)) + "\n]\n"
    for name, text, said in (("t.csv", fixed, "fields of fixed widths"), ("t.jsonl", array, "jq -c")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(WholeDoubt, match=said):
            look(tmp_path / name)
