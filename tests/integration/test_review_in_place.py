# SPDX-License-Identifier: Apache-2.0
"""What a provider looks at while reviewing, and edits of the policy file beside confirmations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pinq.errors import PolicyError
from pinq.provider.check import Example, RowsPerValue, examples, groups, raw_columns
from pinq.provider.policy_file import load_policy
from pinq.provider.review import change, confirm, leave_out, waiting

POLICY = """\
# kept
dataset: visits
source: visits.csv
csv: {delimiter: ;, decimal: ','}
cap: 1.0  # together
max_rows: 100
columns:
  cost:  # kept too
    type: numeric
    lower: 0
    upper: 10
    step: 1
    unreviewed: [upper]
  day: {type: date, lower: '2024-01-01', upper: '2024-12-31', nullable: true}
  sex:
    type: categorical
    values: [f, m]  # of the form
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    (tmp_path / "visits.csv").write_text("who;cost;day;sex\na;1,5;2024-02-03;f\na;99;;m\nb;x;2023-01-01;?\n;3,2;;f\n")
    file = tmp_path / "visits.yaml"
    file.write_text(POLICY)
    return file


def test_examples_say_how_each_value_is_read(policy: Path) -> None:
    """By its cell, clamped, missing, or left out."""
    shown = examples(policy, 3)
    assert shown["cost"] == [Example("1,5", "1.5"), Example("99", "9.5"), Example("x", "left out")]
    assert shown["day"] == [
        Example("2024-02-03", "2024-02-03"),
        Example("", "missing"),
        Example("2023-01-01", "2024-01-01"),
    ]
    assert shown["sex"] == [Example("f", "f"), Example("m", "m"), Example("?", "left out")]
    assert raw_columns(policy) == ["who", "cost", "day", "sex"]


def test_groups_count_the_rows_of_a_person(policy: Path) -> None:
    assert groups(policy, "who") == RowsPerValue(2, 2, ((2, 1), (1, 1)))
    with pytest.raises(PolicyError, match="no column 'whom'"):
        groups(policy, "whom")


def test_several_values_are_confirmed_at_once_or_none_is(policy: Path) -> None:
    """One that cannot be leaves the file as it was, so that the same names can be confirmed again."""
    policy.write_text(before := POLICY.replace("unreviewed: [upper]", "unreviewed: [upper, step]"))
    names = ["columns.cost.upper", "columns.cost.step"]
    with pytest.raises(PolicyError, match="upper"):
        confirm(policy, names, "a form", {names[0]: "-1", names[1]: "2"})
    assert policy.read_text() == before
    assert confirm(policy, names, "a form", {names[0]: "20", names[1]: "2"}) == names
    column: Any = load_policy(policy).columns["cost"]
    assert (column.type, column.upper, column.step) == ("numeric", 20, 2)
    assert waiting(policy) == []


def test_a_key_is_changed_in_its_place(policy: Path) -> None:
    """The reason goes into the log, as those of reviewed values do."""
    change(policy, "cap", "2.5", "the board's decision 12")
    changed = policy.read_text()
    assert changed.startswith(POLICY.replace("cap: 1.0", "cap: 2.5").rstrip())
    assert load_policy(policy).reviewed["cap"] == "the board's decision 12"
    for name, value, because in (("cap", "0", "a"), ("cap", "[1", "a"), ("colour", "red", "a"), ("cap", "3", " ")):
        with pytest.raises(PolicyError):
            change(policy, name, value, because)
    assert policy.read_text() == changed


@pytest.mark.parametrize("column", ["cost", "day", "sex"])
def test_a_column_is_left_out_with_all_that_is_said_of_it(policy: Path, column: str) -> None:
    before = set(load_policy(policy).columns)
    leave_out(policy, column)
    assert set(load_policy(policy).columns) == before - {column}
    assert "# kept\n" in policy.read_text()
    assert [item.name for item in waiting(policy)] == (["columns.cost.upper"] if column != "cost" else [])


def test_the_last_column_stays(policy: Path) -> None:
    leave_out(policy, "cost")
    leave_out(policy, "day")
    for column in ("sex", "cost"):
        with pytest.raises(PolicyError):
            leave_out(policy, column)
    assert set(load_policy(policy).columns) == {"sex"}
