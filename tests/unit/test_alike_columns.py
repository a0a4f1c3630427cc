# SPDX-License-Identifier: Apache-2.0
"""Alike columns are one question of a review, and each column is asked once."""

from __future__ import annotations

import pytest

from pinq import Categorical, Numeric
from pinq.public.schema import Column

pytest.importorskip("nicegui")
from pinq_workbench.parts import page_words
from pinq_workbench.review import STEP_COLUMNS, steps

NUMBER, SEX, YES = Numeric(lower=0, upper=9), Categorical(values=("m", "w")), Categorical(values=("yes", "no"))


def test_columns_that_differ_in_digits_or_have_the_same_values_are_one_question() -> None:
    """All others are asked by their kind."""
    columns: dict[str, Column] = {"age": NUMBER, "sex": SEX, "smokes": YES, "drinks": YES, "weight": NUMBER}
    columns |= {f"lab_{number:02}": NUMBER for number in range(40)}
    assert {title: len(names) for title, names in steps(columns).items()} == {
        "lab_00 to lab_39 (40)": 40,
        "smokes to drinks (2)": 2,
        "Numbers": 2,
        "Lists of values": 1,
    }


@pytest.mark.parametrize("number", [1, 2, STEP_COLUMNS, STEP_COLUMNS + 1, 120, 250])
def test_each_column_is_asked_once_and_no_step_is_long(number: int) -> None:
    """Of alike names and of different ones."""
    for name in ("x{}", "a{}b"):
        columns: dict[str, Column] = {name.format(one): NUMBER for one in range(number)}
        columns |= {"".join(chr(97 + int(digit)) for digit in str(one)): SEX for one in range(number)}
        found = steps(columns)
        assert sorted(column for names in found.values() for column in names) == sorted(columns)
        assert max(map(len, found.values())) <= STEP_COLUMNS


@pytest.mark.parametrize(
    "text",
    [
        "2 values guessed or read off the data and not reviewed: columns.age.upper, max_rows",
        "age: 9 rows (10 %) have no declared value and are left out; declare it, or `nullable: true`",
        'rows are protected, persons are not. Declare privacy_unit: {column: "Pat-Nr", max_rows: 10}',
        "cap: the log has 2, this policy 1; a lower cap counts from the next `pinq grant` or `extend`, opening",
        "The workbook a.xlsx has the sheets A, B; say which: --sheet NAME (in a policy `csv: {sheet: NAME}`).",
    ],
)
def test_pages_speak_no_code(text: str) -> None:
    """Neither a command nor a key of a policy file."""
    said = page_words(text)
    assert not any(code in said for code in ("`", "--", "columns.", "max_rows", "privacy_unit", "{", "pinq "))
