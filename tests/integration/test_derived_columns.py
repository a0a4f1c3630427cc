# SPDX-License-Identifier: Apache-2.0
"""Derived columns, from the policy to the answer: formulas, lookups, ``other``, their digests and their terms."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import pinq
from pinq import Categorical, NotAllowed, PolicyError, Schema, Values, load_policy
from pinq.engine import encode, open_engine
from pinq.engine.derived import with_lookups
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import bind
from pinq.policy.policy import Policy
from pinq.provider.check import check
from pinq.public.columns import Numeric
from tests.support.processes.commands import run
from tests.support.requests.handles import engine_over

ROWS = pd.DataFrame(
    {
        "person": ["a", "b", "c", "d"],
        "birth date": ["1950-05-05", "1990-01-01", "nope", None],
        "weight": ["80", "70", "x", "60"],
        "height": ["1.8", "0", "1.7", "1.6"],
        "postcode": ["01067", "01069", "99999", None],
        "diagnosis": ["A1", "B2", "Z9", "A1"],
        "derived_0": ["1", "2", "3", "4"],
    }
)
POLICY = """
dataset: t
source: t.csv
cap: 100
max_rows: 100
privacy_unit: {column: person, max_rows: 1}
columns:
  generation:
    type: categorical
    values: [old, young]
    nullable: true
    from: birth date
    formula: |
      CASE WHEN "birth date"::DATE < DATE '1970-01-01' THEN 'old'
           WHEN "birth date"::DATE >= DATE '1970-01-01' THEN 'young' END
  born: {type: date, lower: 1940-01-01, upper: 2000-01-01, nullable: true, from: birth date}
  bmi: {type: numeric, lower: 10, upper: 50, step: 0.1, nullable: true, from: [weight, height],
        formula: weight::DOUBLE / (height::DOUBLE * height::DOUBLE)}
  region: {type: categorical, values: [Dresden, Leipzig, rest], nullable: true, other: rest,
           from: postcode, lookup: {file: regions.csv, key: code, value: region}}
  diagnosis: {type: categorical, values: [A1, rest], other: rest}
  chapter: {type: categorical, values: [A, rest], other: rest, from: diagnosis, formula: "left(diagnosis, 1)"}
"""
EXPECTED = {
    "generation": {"old": 1, "young": 1, None: 2},
    "born": {"1950-05-05": 1, "1990-01-01": 1, None: 2},
    "bmi": {24.65: 1, 23.45: 1, None: 2},
    "region": {"Dresden": 1, "Leipzig": 1, None: 2},
    "diagnosis": {"A1": 2, "rest": 2},
    "chapter": {"A": 2, "rest": 2},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A policy file with its source and its lookup table beside it."""
    ROWS.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "regions.csv").write_text("code,region,people\n01067,Dresden,9\n01069,Leipzig,8\n,none,7\n", "utf-8")
    (tmp_path / "p.yaml").write_text(POLICY, encoding="utf-8")
    return tmp_path / "p.yaml"


def counts(policy: Policy, data: object = None) -> dict[str, dict[Any, int]]:
    """The rows of each value of each column."""
    engine = engine_over(policy, data=data, salt=b"s")
    counted = {}
    for name in policy.columns:
        partition = bind(Values(name), policy.schema_)
        cells = engine.tabulate(PartSet([Block(Part())]).split(partition))[0].reshape(-1)
        counted[name] = {partition.axes[0].labels[code]: int(cells[code]) for code in np.flatnonzero(cells)}
    return counted


def test_text_and_frames_are_derived_alike(path: Path) -> None:
    """A value that a formula cannot be computed of, or that is in no table, is that row's missing value."""
    policy = load_policy(path)
    assert counts(policy) == EXPECTED
    unnamed = policy.model_copy(update={"source": None})
    assert counts(unnamed, ROWS) == counts(unnamed, pa.Table.from_pandas(ROWS)) == EXPECTED


def test_a_worker_needs_the_policy_alone(path: Path) -> None:
    policy = pickle.loads(pickle.dumps(load_policy(path)))
    path.with_name("regions.csv").unlink()
    encoded = encode(pa.Table.from_pandas(ROWS), policy)
    assert encoded["c3"].to_pylist() == [0, 1, 3, 3]


def test_undeclared_values_count_as_other_before_the_wall_too() -> None:
    column = Categorical(values=("A", "rest"), other="rest", nullable=True)
    assert column.encode(["A", "B", None]).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="must be one of the values"):
        Categorical(values=("A",), other="rest")


def test_a_plain_column_is_dumped_as_it_always_was() -> None:
    plain = Categorical(values=("a", "b"))
    assert plain.model_dump_json() == '{"nullable":false,"unreviewed":[],"type":"categorical","values":["a","b"]}'
    assert "from" not in Numeric(lower=0, upper=1).model_dump()


def test_another_formula_or_table_makes_another_column(path: Path) -> None:
    """Parts of one column are disjoint only while rows stay where they are."""
    before = load_policy(path)
    assert Schema.model_validate_json(before.schema_.model_dump_json()).digest == before.schema_.digest
    assert load_policy(before).schema_.digest == before.schema_.digest
    path.with_name("elsewhere.csv").write_bytes(path.with_name("regions.csv").read_bytes())
    path.write_text(POLICY.replace("regions.csv", "elsewhere.csv"), encoding="utf-8")
    assert load_policy(path).columns["region"].digest == before.columns["region"].digest
    path.with_name("elsewhere.csv").write_text("code,region\n01067,Leipzig\n", encoding="utf-8")
    assert load_policy(path).columns["region"].digest != before.columns["region"].digest
    path.write_text(POLICY.replace("left(diagnosis, 1)", "right(diagnosis, 1)"), encoding="utf-8")
    assert load_policy(path).columns["chapter"].digest != before.columns["chapter"].digest


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("left(diagnosis, 1)", "max(diagnosis)", "calls max, which is not among the functions"),
        ("left(diagnosis, 1)", "born", "reads born, which `from` does not name"),
        ("left(diagnosis, 1)", "left(diagnosis", "is no SQL"),
        (", formula: weight::DOUBLE / (height::DOUBLE * height::DOUBLE)", "", "`formula` is missing"),
        ("from: [weight, height],", "", "`from` is missing"),
        ("nullable: true, from: birth date", "nullable: true, from: person", "is the privacy unit"),
        ("from: [weight, height]", "from: [weight, Weight]", "stands twice"),
        ("key: code", "key: cod", "has no column 'cod' (did you mean 'code'?)"),
        ("file: regions.csv", "file: none.csv", "is not there"),
        ("value: region}", "value: region, digest: '00'}", "and the policy declares 00"),
        ("cap: 100", "cap: 100\nlookups: {}", "lookups: unknown key"),
    ],
)
def test_a_wrong_declaration_is_refused_when_it_is_read(path: Path, old: str, new: str, text: str) -> None:
    assert old in POLICY.replace(",\n        formula", ", formula")
    path.write_text(POLICY.replace(",\n        formula", ", formula").replace(old, new), encoding="utf-8")
    with pytest.raises(PolicyError) as error:
        load_policy(path)
    assert text in str(error.value)


def test_what_no_value_of_a_type_can_give_is_refused_before_any_row(path: Path) -> None:
    """DuckDB counts no days between times of day, and says so by an error that only a row with both raises."""
    columns = {"x": {"type": "numeric", "lower": 0, "upper": 9, "from": "t", "formula": "date_diff('day', t, t)"}}
    policy = Policy.model_validate({"dataset": "t", "cap": 1, "max_rows": 9, "columns": columns})
    for times in ([], [None], [0]):
        with pytest.raises(PolicyError, match="does not fit the source"):
            encode(pa.table({"t": pa.array(times, pa.time64("us"))}), policy)


def test_a_key_with_two_values_is_refused(path: Path) -> None:
    path.with_name("regions.csv").write_text("code,region\n01067,Dresden\n01067,Leipzig\n", encoding="utf-8")
    with pytest.raises(PolicyError, match="has the key '01067' twice"):
        load_policy(path)


def test_a_formula_that_does_not_fit_the_types_is_named_by_check(path: Path) -> None:
    path.write_text(POLICY.replace("left(diagnosis, 1)", "sqrt(year(diagnosis))"), encoding="utf-8")
    with pytest.raises(PolicyError, match="`formula` of column 'chapter' does not fit the source"):
        check(path)


def test_a_policy_that_nobody_read_has_no_tables(path: Path) -> None:
    bare = Policy.model_validate(load_policy(path).model_dump(mode="json", by_alias=True) | {"source": None})
    with pytest.raises(PolicyError, match="was not read"):
        open_engine(bare, data=ROWS, salt=b"s")
    assert counts(with_lookups(bare.model_copy(update={"folder": path.parent})), ROWS) == EXPECTED


def test_who_may_not_see_a_column_does_not_see_what_is_derived_from_it(path: Path) -> None:
    assert run("grant", path, "ana", "--epsilon", 9, "--columns", "chapter,generation").exit_code == 0
    with pinq.open(path, analyst="ana") as handle:
        with pytest.raises(NotAllowed, match="does not allow the column diagnosis"):
            handle.partition(Values("chapter")).noisy_count(epsilon=1)
        with pytest.raises(NotAllowed, match="diagnosis"):
            handle.partition(Values("chapter")).preview("noisy_count", epsilon=1)
        assert handle.partition(Values("generation")).noisy_count(epsilon=1).shape == (3,)  # birth dates are no column
        assert handle.budget.spent == 1


def test_made_up_rows_have_the_derived_columns_themselves(path: Path) -> None:
    handle = pinq.simulate(load_policy(path), rows=50)
    assert handle.schema.digest == load_policy(path).schema_.digest
    assert handle.partition(Values("region")).noisy_count(epsilon=1).shape == (4,)


def test_a_schema_says_what_a_column_is_made_of(path: Path) -> None:
    shown: Any = repr(load_policy(path).schema_)
    assert "from weight, height" in shown
