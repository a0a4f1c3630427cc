# SPDX-License-Identifier: Apache-2.0
"""Columns, their codes and grids, and what a schema says of its neighbours."""

from __future__ import annotations

import copy
import math
import pickle
from decimal import Decimal
from inspect import signature
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from pinq.errors import QueryError
from pinq.language.specs import Values, bind
from pinq.policy.policy import Policy
from pinq.public.checks import closest
from pinq.public.schema import Categorical, Numeric, PrivacyUnit, Schema, unit_text

SEX = Categorical(values=("f", "m"), nullable=True)


def test_a_category_is_its_place_in_the_list() -> None:
    """Declared values are numbered in order, a missing one last; whatever is not declared is -1."""
    assert SEX.encode(["m", "f", None, "x", float("nan")]).tolist() == [1, 0, 2, -1, 2]
    assert (SEX.cells, SEX.codes, SEX.null_code, SEX.labels) == (2, 3, 2, ("f", "m", None))
    assert Categorical(values=("f",)).encode([None]).tolist() == [-1]


@pytest.mark.parametrize(
    "values",
    [
        [1, 2, 3],
        [1.0, 2.0, 3.0],
        ["1", "2", "3"],
        np.array([1, 2, 3], dtype=np.int8),
        pd.Series([1, 2, 3], dtype="Int64"),
        pd.Categorical([1, 2, 3]),
    ],
    ids=lambda v: type(v).__name__,
)
def test_whole_numbers_are_categories_in_any_dress(values: Any) -> None:
    """A frame turns codes into doubles where one is missing; 1.0 is still the category 1."""
    assert Categorical(values=(3, 1, 2)).encode(values).tolist() == [1, 2, 0]


def test_truth_values_are_not_one_and_zero() -> None:
    """True, 1 and "true" are told apart by SQL's text form: true, 1, true."""
    assert [Categorical(values=(True, 1)).encode([value])[0] for value in (True, 1, np.True_, "true", "1", False)] == [
        0,
        1,
        0,
        0,
        1,
        -1,
    ]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (("a", "a"), "listed twice"),
        ((1, "1"), "listed twice"),
        ((True, "true"), "listed twice"),
        (("a\x00",), "NUL"),
        ((), "it is empty"),
        ((1.5,), "put it in quotes"),
        ((None,), "put it in quotes"),
    ],
)
def test_lists_of_values_that_cannot_be(values: tuple[Any, ...], text: str) -> None:
    """Two values of one text form, floats and NUL characters are refused."""
    with pytest.raises(QueryError, match=text):
        Categorical(values=values)


def test_an_unknown_value_is_named_with_its_neighbours() -> None:
    """The error lists the values and the closest one."""
    with pytest.raises(QueryError, match=r"^`s` has no value 'ff' \(did you mean 'f'\?\); it has 'f', 'm', None\.$"):
        SEX.code_of("ff", "s")
    assert SEX.code_of(None, "s") == 2


def test_numbers_clamp_to_a_grid() -> None:
    """Outside numbers count as the bounds; NaN is missing; cells are half-open but for the last one."""
    age = Numeric(lower=0, upper=10, step=2)
    assert (age.cells, age.codes) == (5, 5)
    assert age.encode([-5, 0, 1.99, 2, 9.99, 10, 1e9, math.inf, -math.inf, math.nan, "3", "x", None]).tolist() == [
        0,
        0,
        0,
        1,
        4,
        4,
        4,
        4,
        0,
        -1,
        1,
        -1,
        -1,
    ]
    assert Numeric(lower=0, upper=10, step=2, nullable=True).encode([math.nan])[0] == 5


def test_whole_numbers_have_a_cell_each() -> None:
    """Bounds included; a cell stands for its number exactly."""
    age = Numeric(lower=17, upper=90, integer=True)
    assert age.cells == 74
    assert [age.number(age.encode([n])[0]) for n in (17, 42, 90)] == [17, 42, 90]
    assert Numeric(lower=5, upper=5, integer=True).cells == 1


def test_reals_have_4096_cells_and_stand_for_their_middles() -> None:
    """The default grid of real numbers; a number moves by at most half a cell."""
    column = Numeric(lower=0, upper=1)
    assert column.cells == 4096
    values = np.linspace(0, 1, 1001)
    back = np.array([column.number(code) for code in column.encode(values)])
    assert np.abs(back - values).max() <= 1 / 8192 + 1e-12


@pytest.mark.parametrize("point", ["0.1", "0.3", "0.7", "1.1", "2.9"])
def test_decimal_grid_points_lie_in_their_own_cell(point: str) -> None:
    """0.3 / 0.1 is a hair under 3 in binary; it is cell 3 all the same, and a cut there parts below from at."""
    column = Numeric(lower=0, upper=3, step="0.1")
    assert column.encode([float(point)])[0] == int(Decimal(point) * 10) == column.threshold(float(point), "x")


@pytest.mark.parametrize("cut", [0, -1, 10.5, math.nan, math.inf, "x", None, [1]], ids=repr)
def test_cuts_out_of_bounds(cut: Any) -> None:
    """A cut has numbers on both sides, so it lies above lower and at most at upper."""
    with pytest.raises(QueryError, match=r"of `x` is (out of bounds|not a number)"):
        Numeric(lower=0, upper=10).threshold(cut, "x")


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ({"lower": 1, "upper": 0}, "must be below upper"),
        ({"lower": 0, "upper": 0}, "must be below upper"),
        ({"lower": 0.5, "upper": 3, "integer": True}, "must be whole"),
        ({"lower": 0, "upper": 1, "step": 0}, "greater than 0"),
        ({"lower": 0, "upper": "inf"}, "finite"),
        ({"lower": "nan", "upper": 1}, "finite"),
        ({"lower": 0, "upper": 10**9, "step": 1}, "choose a larger step"),
        ({"lower": 0, "upper": 10, "cuts": [3, 3]}, "cuts must increase"),
        ({"lower": 0, "upper": 10, "cuts": [0]}, "must be above lower"),
        ({"lower": 0, "upper": 10, "stepp": 1}, "unknown key"),
        ({"lower": 0, "upper": "1e400"}, "is not between 1e-100 and 1e100 in size"),
        ({"lower": 0, "upper": "9e300", "step": "1e297"}, "is not between 1e-100 and 1e100 in size"),
        ({"lower": "-1e100", "upper": 0}, "is not between 1e-100 and 1e100 in size"),
        ({"lower": 0, "upper": "9e-101"}, "is not between 1e-100 and 1e100 in size"),
    ],
)
def test_grids_that_cannot_be(declared: dict[str, Any], text: str) -> None:
    """Refused with what is wrong."""
    with pytest.raises(QueryError, match=text):
        Numeric(**declared)


def test_one_number_has_one_form() -> None:
    """0, 0.0 and 0E+3 declare the same grid; its digest does not depend on the spelling, nor on cuts and review marks."""
    same = [
        Numeric(lower=lower, upper=upper)
        for lower, upper in ((0, 100), ("0.0", "100.00"), (Decimal("-0"), Decimal("1E+2")), (0.0, 100.0))
    ]
    assert len({column.digest for column in same}) == 1
    assert Numeric(lower=0, upper=100, cuts=[50], unreviewed=("upper",)).digest == same[0].digest
    assert Numeric(lower=0, upper=100, nullable=True).digest != same[0].digest


def test_names_that_sql_cannot_tell_apart() -> None:
    """Columns that differ only in case are refused, and so are empty names."""
    for names, text in ((["Age", "age"], "differ only in case"), ([""], "empty"), (["a\x00"], "NUL")):
        with pytest.raises(QueryError, match=text):
            Schema(columns={name: SEX for name in names}, max_rows=1)


@pytest.mark.parametrize(
    ("adjacency", "unit", "distance"),
    [
        ("add-remove", "row", 1),
        ("substitute", "row", 2),
        ("add-remove", PrivacyUnit(column="who", max_rows=3), 3),
        ("substitute", PrivacyUnit(column="who", max_rows=3), 6),
    ],
)
def test_distance_of_neighbours(adjacency: Any, unit: Any, distance: int) -> None:
    """Replacing is removing and adding; a unit of k rows is k rows."""
    assert Schema(columns={"s": SEX}, max_rows=1, adjacency=adjacency, privacy_unit=unit).distance == distance


def test_a_schema_shows_itself() -> None:
    """One line per column, text and HTML; hostile names are escaped."""
    schema = Schema(columns={"<b>": SEX, "age": Numeric(lower=0, upper=9, integer=True)}, max_rows=1000)
    assert str(schema) == repr(schema)
    assert repr(schema).splitlines() == [
        "Schema: at most 1,000 rows, adjacency add-remove, privacy unit row",
        "  <b>  2 values: f, m, may be missing",
        "  age  whole numbers 0 to 9 in 10 cells",
    ]
    assert "&lt;b&gt;" in schema._repr_html_()
    assert Numeric(lower=0, upper=1).describe() == "numbers 0 to 1 in 4,096 cells"
    assert unit_text(PrivacyUnit(column="who", max_rows=2)) == "who (at most 2 rows each)"


def test_the_digest_follows_all_that_is_public() -> None:
    """Any change of a declaration is another digest; the row digest follows what decides a row's code."""
    one = Schema(columns={"s": SEX}, max_rows=1)
    for other in (
        Schema(columns={"s": SEX}, max_rows=2),
        Schema(columns={"s": SEX}, max_rows=1, adjacency="substitute"),
    ):
        assert other.digest != one.digest
        assert other.row_digest == one.row_digest
    assert (
        Schema(columns={"s": SEX}, max_rows=1, privacy_unit=PrivacyUnit(column="w", max_rows=1)).row_digest
        != one.row_digest
    )
    two = {"a": SEX, "b": SEX}
    assert (
        Schema(columns=two, max_rows=1).row_digest != Schema(columns=dict(reversed(two.items())), max_rows=1).row_digest
    )


@pytest.mark.parametrize(
    ("upper", "step"), [(2**24 - 1, 1), (2**24, 2), (10**9, 100), (3 * 10**12, 200_000), (10**15, 10**8)]
)
def test_a_default_step_never_makes_too_large_a_grid(upper: int, step: int) -> None:
    """Whole numbers over a wide range get a round step, as coarse as the limit of cells asks for."""
    column = Numeric(lower=0, upper=upper, integer=True)
    assert column.width == step
    assert column.cells <= 2**24


@pytest.mark.parametrize(
    ("name", "names", "suggested"),
    [
        ("male", ["Female", "Male"], "Male"),
        ("INCOME", ["outcome", "income"], "income"),
        ("Hours_Per_Wek", ["hours_per_week", "age"], "hours_per_week"),
        ("agee", ["sex", "age"], "age"),
        ("3", [1, 2, 3], 3),
        ("marital_status", ["capital_loss", "relationship"], None),
        ("nope", ["income", "age"], None),
        ("anything", [], None),
    ],
)
def test_suggestions_look_past_case_and_not_far(name: str, names: list[Any], suggested: Any) -> None:
    """What differs in case alone goes first; a word that is merely of the same length is no suggestion."""
    assert closest(name, names) == ("" if suggested is None else f" (did you mean {suggested!r}?)")


def test_a_wrong_part_gets_a_suggestion_too() -> None:
    """A label is looked up as it is written, and the error names the one that was meant."""
    schema = Schema(
        columns={"sex": Categorical(values=("Female", "Male")), "n": Numeric(lower=0, upper=9, integer=True)},
        max_rows=10,
    )
    with pytest.raises(
        QueryError,
        match=r"^there is no part 'male' \(did you mean 'Male'\?\); the parts are 'Female', 'Male'\.$",
    ):
        bind(Values("sex"), schema).find("male")
    with pytest.raises(QueryError, match=r"there is no part '3' \(did you mean 3\?\)"):
        bind(Values("n"), schema).find("3")


GOLDEN = {
    "03c62d304fae0f54bd8ee0c2c907c58b": {
        "columns": {"s": {"type": "categorical", "values": ["f", "m"]}},
        "max_rows": 10,
    },
    "3663d0d08363fd43d6503ed37132edd9": {
        "columns": {
            "smoker": {"type": "categorical", "values": [False, True]},
            "age": {"type": "numeric", "lower": 0, "upper": 99, "integer": True},
        },
        "max_rows": 10,
    },
    "fda9cb4226f964422503fea5aa744126": {
        "columns": {
            "v": {
                "type": "categorical",
                "values": [True, 1, "0", "no", "\u00e9\u202e", "", -(10**30), "x" * 300],
                "nullable": True,
                "unreviewed": ["values"],
            },
            "n": {
                "type": "numeric",
                "lower": "-0.5",
                "upper": "9.75",
                "step": "0.25",
                "cuts": ["1.5", 2],
                "nullable": True,
            },
        },
        "max_rows": 2**33,
        "adjacency": "substitute",
        "privacy_unit": {"column": "who", "max_rows": 3},
    },
}


@pytest.mark.parametrize("digest", GOLDEN)
def test_the_digest_is_the_one_that_ledgers_logged(digest: str) -> None:
    """Whatever was looked at before: else the ledger of an earlier release would take the same policy for another."""
    schema = Schema.model_validate(GOLDEN[digest])
    said = schema.model_dump_json()
    for column in schema.columns.values():
        for name in ("cells", "digest", "texts", "labels", "width", "tolerance", "origin"):
            getattr(column, name, None)
    bind(Values(next(iter(schema.columns))), schema)
    assert schema.row_digest == Schema.model_validate(GOLDEN[digest]).row_digest
    assert schema.digest == digest
    assert schema.model_dump_json() == said


def test_a_copy_starts_without_what_was_computed() -> None:
    """Copies by every road equal the original, and compute anew what follows from their fields."""
    schema = Schema.model_validate(GOLDEN["3663d0d08363fd43d6503ed37132edd9"])
    bind(Values("smoker"), schema)
    for again in (copy.copy(schema), copy.deepcopy(schema), pickle.loads(pickle.dumps(schema)), schema.model_copy()):
        assert again == schema
        assert again.kept.values() == []
        assert again.digest == schema.digest
    changed = schema.columns["age"].model_copy(update={"upper": 9})
    assert (changed.cells, schema.columns["age"].cells) == (10, 100)


@pytest.mark.parametrize(("value", "name", "unit"), [("\ud800", "s", "u"), ("f", "\udfff", "u"), ("f", "s", "\udabc")])
def test_half_a_character_is_refused(value: str, name: str, unit: str) -> None:
    """A lone surrogate has no UTF-8: it could be declared and never be sent."""
    with pytest.raises(ValidationError, match=r"half a character|valid string"):
        Schema.model_validate(
            {
                "columns": {name: {"type": "categorical", "values": [value]}},
                "max_rows": 1,
                "privacy_unit": {"column": unit, "max_rows": 1},
            }
        )


def test_a_declaration_shows_what_was_declared() -> None:
    """Its text leaves defaults out, its signature how fields are checked, and a policy is its columns in lines."""
    column = Categorical(values=("a", "b"))
    assert repr(column) == "Categorical(values=('a', 'b'))"
    assert "Annotated" not in str(signature(Categorical))
    policy = Policy(dataset="d", cap=Decimal(3), max_rows=10, columns={"c": column})
    assert repr(policy).splitlines()[0].startswith("Policy of 'd', cap 3. Schema: at most 10 rows")
    assert "<td>c</td>" in policy._repr_html_()


def test_a_wrong_declaration_is_refused_in_our_words() -> None:
    """A declaration in Python raises ``QueryError``; inside a file's it keeps the place of the fault."""
    with pytest.raises(
        QueryError,
        match=r"^this cannot be a Schema:\n  max_rows: it is 1000000000000; it must be less than or equal to",
    ):
        Schema(columns={"s": SEX}, max_rows=int(1e12))
    with pytest.raises(ValidationError) as refused:
        Schema.model_validate({"columns": {"n": {"type": "numeric", "lower": 0, "upper": "x"}}, "max_rows": 1})
    assert refused.value.errors()[0]["loc"] == ("columns", "n", "numeric", "upper")


def test_a_single_thing_is_named_in_the_singular() -> None:
    assert Categorical(values=("x",)).describe() == "1 value: x"
    assert Numeric(lower=5, upper=5, integer=True).describe() == "whole numbers 5 to 5 in 1 cell"
