# SPDX-License-Identifier: Apache-2.0
"""Policy files: what is read, what is refused and how it is said."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest

from pinq.errors import PolicyError
from pinq.policy.files import source_path
from pinq.policy.plain_yaml import read_yaml, write_yaml
from pinq.policy.policy import Policy
from pinq.provider.policy_file import load_policy
from pinq.public.schema import Categorical, Numeric

GOOD = """
dataset: adult
source: adult.parquet
cap: 2.5
max_rows: 50000
columns:
  sex: {type: categorical, values: [Female, Male]}
  age: {type: numeric, lower: 17, upper: 90, integer: true, cuts: [30, 45]}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "p.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_policy_is_read(tmp_path: Path) -> None:
    """Columns keep their order; paths start at the policy's folder; the cap is exact."""
    policy = load_policy(written(tmp_path, GOOD))
    assert list(policy.columns) == ["sex", "age"]
    assert policy.cap_nano == 2_500_000_000
    assert source_path(policy) == (tmp_path / "adult.parquet").resolve()
    assert policy.schema_.max_rows == 50_000
    assert load_policy(policy) is policy


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("dataset: adult", "dataset: a/b"), r"dataset: it is 'a/b'; it must be 1 to 64 letters"),
        (
            ("dataset: adult", "dataset: adult\nsign_in: {issuer: x, client: a}"),
            r"issuer: it is 'x'; it must be the URL",
        ),
        (("cap: 2.5", "cap: 0"), "cap: it is 0; it must be greater than 0"),
        (("cap: 2.5", "cap: .nan"), "cap: it is nan; it must be a finite number"),
        (("cap: 2.5", "cap: .inf"), "cap: it is inf; it must be a finite number"),
        (("cap: 2.5", "capp: 2.5"), "capp: unknown key"),
        (("integer: true", "integr: true"), r"columns\.age\.integr: unknown key"),
        (("upper: 90", "upper: 10"), r"columns\.age: lower \(17\) must be below upper \(10\)"),
        (("[Female, Male]", "[Female, Female]"), r"columns\.sex: the value 'Female' is listed twice"),
        (("[Female, Male]", "[Female, 1.5]"), "put it in quotes"),
        (("max_rows: 50000", "max_rows: 0"), "max_rows: it is 0; it must be greater than or equal to 1"),
        (("max_rows: 50000\n", ""), "max_rows: it is missing"),
        (("dataset: adult", "dataset: adult\ndataset: other"), "the key 'dataset' stands twice"),
        (("dataset: adult", "dataset: adult\nfolder: /tmp"), "folder: unknown key"),
        (
            ("dataset: adult", "dataset: adult\nprivacy_unit: {column: sex, max_rows: 2}"),
            "names people; it cannot be a column that analysts see",
        ),
        (("dataset: adult", "dataset: adult\nmemory_limit: lots"), "memory_limit"),
        (
            ("type: numeric", "type: number"),
            "columns.age: `type` is 'number'; it must be categorical, numeric, date or datetime",
        ),
        (("cap: 2.5", "cap: 1e-12"), "cap: the smallest step of a loss is 0.000000001"),
        (("cap: 2.5", "cap: 0.1234567891"), "write at most nine decimals"),
        (("  sex:", "  2020:"), r"columns\.2020: the name must be text; put it in quotes"),
        (("dataset: adult", "dataset: adult\n3: 4"), "3: the name must be text; put it in quotes"),
        (
            ("[Female, Male]", str(list(range(70_000)))),
            r"columns\.sex\.values: it has 70,000 entries; at most 65,535 are possible",
        ),
        (("columns:", "columns: ["), "is not valid YAML"),
        (("dataset: adult", "dataset: !!python/object/apply:os.system [echo]"), "is not valid YAML"),
    ],
    ids=lambda v: v[1][:30] if isinstance(v, tuple) else "",
)
def test_what_cannot_be_is_named(change: tuple[str, str], text: str, tmp_path: Path) -> None:
    """Each problem is named with its place in the file."""
    assert change[0] in GOOD
    with pytest.raises(PolicyError, match=text) as refused:
        load_policy(written(tmp_path, GOOD.replace(*change)))
    assert str(tmp_path / "p.yaml") in str(refused.value)


@pytest.mark.parametrize(
    ("listed", "values"),
    [
        ("[01067, 01069, 01070]", ("01067", "01069", "01070")),
        ("[de, no, se]", ("de", "no", "se")),
        ("[yes, no, on, off, y, n]", ("yes", "no", "on", "off", "y", "n")),
        ("[12:30, 1:00]", ("12:30", "1:00")),
        ("[1_000, 2_000]", ("1_000", "2_000")),
        ("[2020-01-31, 2020-02-29]", ("2020-01-31", "2020-02-29")),
        ("[0x1F, 0o17, 007]", ("0x1F", "0o17", "007")),
        ("[1, 2, -3]", (1, 2, -3)),
        ("[true, False]", (True, False)),
    ],
)
def test_a_value_is_what_it_looks_like(listed: str, values: tuple[object, ...], tmp_path: Path) -> None:
    """A list means the texts that the source has, whatever YAML 1.1 makes of them: no octal, no base 60, no `no` for false."""
    column = load_policy(written(tmp_path, GOOD.replace("[Female, Male]", listed))).columns["sex"]
    assert isinstance(column, Categorical)
    assert [(type(value), value) for value in column.values] == [(type(value), value) for value in values]


@pytest.mark.parametrize("listed", ["[a, 1]", "[1, true]", "[true, maybe]", "[1, 2, 03]", "['1', 2]"])
def test_a_list_that_mixes_types_is_refused_with_the_fix(listed: str, tmp_path: Path) -> None:
    """One of its values was read as something else than was meant."""
    with pytest.raises(
        PolicyError,
        match=r"columns: the values of 'sex' mix .* and .*; put each of them in quotes, written as in the source",
    ):
        load_policy(written(tmp_path, GOOD.replace("[Female, Male]", listed)))


CONTENT = read_yaml(GOOD)
WRONG = ("null", "3", "-1", "1.5", "text", "[a]", "[]", "{a: 1}", "{}", "true")


@pytest.mark.parametrize(
    "key",
    [
        *(name for name in Policy.model_fields if name != "folder"),
        "columns.age",
        *(f"columns.age.{name}" for name in Numeric.model_fields),
        *(f"columns.sex.{name}" for name in Categorical.model_fields),
        "privacy_unit.column",
        "privacy_unit.max_rows",
    ],
)
@pytest.mark.parametrize("value", WRONG)
def test_errors_speak_of_the_file_and_not_of_the_model(key: str, value: str, tmp_path: Path) -> None:
    """Any wrong value anywhere: the place as it stands in the file, and no word of the library that checks it."""
    content = deepcopy(CONTENT) | {"privacy_unit": {"column": "person", "max_rows": 3}}
    inner, *path = content, *key.split(".")
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = read_yaml(value)
    try:
        load_policy(written(tmp_path, write_yaml(content)))
    except PolicyError as error:
        said = str(error).partition("\n")[2] or str(error)
        for word in (
            "Input",
            "should",
            "instance",
            "dictionary",
            "tag",
            "pydantic",
            "PrivacyUnit",
            "DatabaseTable",
            "literal[",
            "model",
            "tuple",
            "Decimal",
            "Field",
            "NoneType",
        ):
            assert word not in said, said
        places = [line.partition(":")[0].strip() for line in said.splitlines()]
        assert len(places) == len(set(places)), said


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (
            ("category",) * 7,
            "  columns.c0, columns.c1, columns.c2 and 4 more: `type` is 'category'; it must be categorical, numeric, date or datetime",
        ),
        (("category",), "  columns.c0: `type` is 'category'; it must be categorical, numeric, date or datetime"),
    ],
)
def test_what_is_wrong_at_many_places_is_said_once(kinds: tuple[str, ...], said: str, tmp_path: Path) -> None:
    """One line for one mistake, however often it was made."""
    content = read_yaml(GOOD) | {"columns": {f"c{i}": {"type": kind, "values": ["a"]} for i, kind in enumerate(kinds)}}
    with pytest.raises(PolicyError) as refused:
        load_policy(written(tmp_path, write_yaml(content)))
    assert str(refused.value).splitlines()[1:] == [said]


@pytest.mark.parametrize("text", ["", "- 1\n", "just text\n"])
def test_a_file_that_is_no_policy(text: str, tmp_path: Path) -> None:
    """It must be a mapping."""
    with pytest.raises(PolicyError, match="must be a mapping with keys like"):
        load_policy(written(tmp_path, text))


def test_a_missing_file_says_how_to_make_one(tmp_path: Path) -> None:
    """The next command is in the error."""
    with pytest.raises(PolicyError, match=r"`pinq init DATA > .*` proposes one"):
        load_policy(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"dataset: \xff")
    with pytest.raises(PolicyError, match="cannot be read"):
        load_policy(tmp_path / "latin.yaml")


def test_unreviewed_fields_are_listed() -> None:
    """Of the policy and of each column; a reviewed one passes."""
    policy = Policy(
        dataset="d",
        cap=1,
        max_rows=1,
        unreviewed=["max_rows"],
        columns={"s": {"type": "categorical", "values": ["a"], "unreviewed": ["values"]}},
    )
    assert policy.unreviewed_fields() == ["max_rows", "columns.s.values"]
    with pytest.raises(PolicyError, match=r"max_rows, columns\.s\.values\. Put what is publicly known"):
        policy.require_reviewed()
    policy.model_copy(update={"unreviewed": (), "columns": {"s": Categorical(values=("a",))}}).require_reviewed()


def test_links_and_patterns_in_sources(tmp_path: Path) -> None:
    """A link is followed to its file; of a pattern its folder is."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "t.parquet").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    columns = {"s": {"type": "categorical", "values": ["a"]}}
    for source, path in (("link/t.parquet", "real/t.parquet"), ("link/*.parquet", "real/*.parquet")):
        assert (
            source_path(Policy(dataset="d", cap=1, max_rows=1, columns=columns, source=source, folder=tmp_path))
            == tmp_path.resolve() / path
        )
    assert source_path(Policy(dataset="d", cap=1, max_rows=1, columns=columns)) is None


def test_no_key_is_checked_by_a_pattern_without_words() -> None:
    """Each text of a certain form says it in words (``of_form``), so that no error shows a pattern."""
    assert '"pattern"' not in json.dumps(Policy.model_json_schema())
