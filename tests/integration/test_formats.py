# SPDX-License-Identifier: Apache-2.0
"""One look at a text file says all that is to be stated of it, and shows its first rows as they are read."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

import pinq
from pinq.engine.formats import as_options
from pinq.policy.dialect import Dialect
from pinq.provider.proposal import WholeDoubt, look
from tests.support.processes.commands import failed, run

DRAWN = Random(48)
FORMS = {
    "german": ("utf-8", ";", "{0:,.2f}", ",", ".", ["%d.%m.%Y"]),
    "french": ("utf-8", ";", "{0:,.2f}", ",", "\u00a0", ["%d/%m/%Y"]),
    "swiss": ("windows-1252", ";", "{0:,.2f}", ".", "'", ["%d.%m.%Y"]),
    "american": ("utf-8", "|", "{0:,.2f}", ".", ",", ["%m/%d/%Y"]),
    "two years": ("utf-8", "\t", "{0:.1f}", ",", None, ["%d.%m.%Y", "%Y/%m/%d"]),
}


def written(form: str, titles: int, path: Path) -> list[tuple[float, str]]:
    """Writes a file of costs and days in a form; returns what it says."""
    encoding, sign, shape, decimal, thousands, dates = FORMS[form]
    truth, rows = [], ["name", *["Report of Zürich", ""][:titles]]
    rows = [*rows[1:], sign.join(["cost", "day", "city"])]
    for number in range(300):
        cost = DRAWN.randrange(10, 900_000) / 4
        day = f"2024-{DRAWN.randrange(1, 13):02}-{DRAWN.randrange(1, 29):02}"
        year, month, date = day.split("-")
        own = dates[number * len(dates) // 300].replace("%Y", year).replace("%m", month).replace("%d", date)
        text = shape.format(cost).translate({ord(","): thousands or "", ord("."): decimal})
        rows.append(sign.join([text, own, DRAWN.choice(["Zürich", "Genève"])]))
        truth.append((float(shape.format(cost).replace(",", "")), day))
    path.write_bytes("".join(f"{row}\n" for row in rows).encode(encoding))
    return truth


@pytest.mark.parametrize("titles", [0, 2])
@pytest.mark.parametrize("form", FORMS)
def test_one_look_says_all_at_once(form: str, titles: int, tmp_path: Path) -> None:
    """The form that the first error names reads the whole file; its first rows are those that were written."""
    encoding, sign, _, decimal, thousands, dates = FORMS[form]
    truth = written(form, titles, tmp_path / "t.csv")
    with pytest.raises(WholeDoubt, match="try --") as raised:
        pinq.propose(tmp_path / "t.csv")
    csv, seen = raised.value.csv, raised.value.look
    assert csv is not None
    assert seen is not None
    assert (csv.delimiter, csv.decimal, csv.thousands, csv.skip) == (sign, decimal, thousands, titles)
    assert (csv.encoding, sorted(csv.dates)) == (encoding, sorted(dates))
    assert [float(cost) for cost in seen.first["cost"]] == [cost for cost, _ in truth[:10]]
    assert seen.first["day"] == [day for _, day in truth[:10]]
    assert seen.first["city"][0] in ("Zürich", "Genève")
    again = look(tmp_path / "t.csv", csv=csv)
    columns = yaml.safe_load(again.text)["columns"]
    assert [columns[name]["type"] for name in ("cost", "day", "city")] == ["numeric", "date", "categorical"]
    assert not any(column["nullable"] for column in columns.values())
    assert again.first == seen.first


def test_the_command_shows_the_rows(tmp_path: Path) -> None:
    """The options of the error are those that it takes; then it shows the same rows."""
    written("french", 1, tmp_path / "t.csv")
    result = run("init", tmp_path / "t.csv")
    failed(result, 'All at once: --delimiter \';\' --skip 1 --decimal "," --thousands "nbsp" --dates "%d/%m/%Y".')
    _, title, *shown = result.stderr.splitlines()
    assert title == "So read, the first rows are:"
    options = ["--delimiter", ";", "--skip", "1", "--decimal", ",", "--thousands", "nbsp", "--dates", "%d/%m/%Y"]
    done = run("init", tmp_path / "t.csv", *options, "-o", tmp_path / "t.yaml")
    assert done.stderr.splitlines()[2:] == shown
    assert "  day: 2024-" in done.stderr


def test_what_stands_further_on_is_found(tmp_path: Path) -> None:
    """A year that was appended in another form is asked for, also behind the rows in which forms are looked for."""
    rows = ["2023-05-06,x\n"] * 21_000 + ["17.05.2024,y\n"] * 2
    (tmp_path / "t.csv").write_text("day,x\n" + "".join(rows))
    with pytest.raises(WholeDoubt, match=r'17\.05\.2024.*--dates "%d\.%m\.%Y"'):
        pinq.propose(tmp_path / "t.csv")


def test_two_orders_of_day_and_month_are_named(tmp_path: Path) -> None:
    """Where most days come first and some months do, the rest of the months may be misread too."""
    days = [f"{day:02}/{month:02}/2024\n" for day in range(1, 29) for month in range(1, 13)]
    (tmp_path / "t.csv").write_text("day\n" + "".join([*days, "12/25/2024\n"]))
    with pytest.raises(WholeDoubt, match="Some, such as '12/25/2024', have day and month in the other order"):
        pinq.propose(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"delimiter": "\t", "skip": 2}, "--delimiter tab --skip 2"),
        ({"decimal": ".", "thousands": None}, '--decimal "." --thousands "none"'),
        ({"dates": ("%d.%m.%Y", "%Y%m%d"), "encoding": "latin-1"}, '--dates "%d.%m.%Y,%Y%m%d" --encoding latin-1'),
    ],
)
def test_changes_are_written_as_options(changes: dict[str, Any], options: str) -> None:
    """As they are typed; the policy takes the same."""
    assert as_options(changes) == options
    assert Dialect.model_validate(changes).model_fields_set == changes.keys()
