# SPDX-License-Identifier: Apache-2.0
"""Policy files: what is read, what is refused and how it is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinq.errors import PolicyError
from pinq.public.policy import Policy, load_policy
from pinq.public.schema import Categorical

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
    assert policy.source_path() == (tmp_path / "adult.parquet").resolve()
    assert policy.schema_.max_rows == 50_000
    assert load_policy(policy) is policy


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("dataset: adult", "dataset: a/b"), r"dataset: String should match"),
        (("cap: 2.5", "cap: 0"), "cap: Input should be greater than 0"),
        (("cap: 2.5", "cap: .nan"), "cap: Input should be a finite number"),
        (("cap: 2.5", "cap: .inf"), "cap: Input should be a finite number"),
        (("cap: 2.5", "capp: 2.5"), "capp: unknown key"),
        (("integer: true", "integr: true"), r"columns\.age\.integr: unknown key"),
        (("upper: 90", "upper: 10"), r"columns\.age: lower \(17\) must be below upper \(10\)"),
        (("[Female, Male]", "[Female, Female]"), r"columns\.sex: the value 'Female' is listed twice"),
        (("[Female, Male]", "[Female, 1.5]"), "put it in quotes"),
        (("max_rows: 50000", "max_rows: 0"), "max_rows: Input should be greater than or equal to 1"),
        (("max_rows: 50000\n", ""), "max_rows: Field required"),
        (("dataset: adult", "dataset: adult\ndataset: other"), "the key 'dataset' stands twice"),
        (("dataset: adult", "dataset: adult\nfolder: /tmp"), "folder: unknown key"),
        (
            ("dataset: adult", "dataset: adult\nprivacy_unit: {column: sex, max_rows: 2}"),
            "names people; it cannot be a column that analysts see",
        ),
        (("dataset: adult", "dataset: adult\nmemory_limit: lots"), "memory_limit"),
        (("type: numeric", "type: number"), "columns"),
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
            Policy(dataset="d", cap=1, max_rows=1, columns=columns, source=source, folder=tmp_path).source_path()
            == tmp_path.resolve() / path
        )
    assert Policy(dataset="d", cap=1, max_rows=1, columns=columns).source_path() is None
