# SPDX-License-Identifier: Apache-2.0
"""From a table to a reviewed policy: proposals of frames and of dates, and the review that keeps its reasons."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
import yaml
from typer.testing import CliRunner

import pinq
from pinq import PolicyError, load_policy
from pinq.cli.main import app
from pinq.policy.policy import Policy
from pinq.provider.check import check
from pinq.provider.review import confirm, waiting
from tests.support.processes.commands import failed, run

FRAME = pd.DataFrame(
    {
        "age": [20 + i % 60 for i in range(200)],
        "sex": ["F", "M"] * 100,
        "born": pd.to_datetime("1950-03-04") + pd.to_timedelta(range(200), "D"),
        "seen": pd.to_datetime("2024-03-04 08:00") + pd.to_timedelta(range(200), "h"),
        "left": ["2024-05-06"] * 199 + [None],
    }
)


class TestPropose:
    def test_every_kind_of_frame_gets_the_same_policy(self) -> None:
        rows = pa.Table.from_pandas(FRAME)
        frames: list[Any] = [FRAME, rows, rows.to_reader(), duckdb.sql("SELECT * FROM rows")]
        proposed = {
            pinq.propose(frame, dataset="d", target="sex").replace("TIMESTAMP_NS", "TIMESTAMP") for frame in frames
        }
        assert len({json.dumps(yaml.safe_load(text)["columns"]) for text in proposed}) == 1
        assert "source" not in yaml.safe_load(proposed.pop())

    def test_a_proposal_of_a_frame_is_checked_and_opened_with_it(self, tmp_path: Path) -> None:
        path = tmp_path / "p.yaml"
        path.write_text(
            pinq.propose(FRAME).replace("cap: 1.0", "cap: 99") + f"ledger: {tmp_path / 'd.ledger'}\n", encoding="utf-8"
        )
        for name in {item.name for item in waiting(path)}:
            confirm(path, [name], "made up")
        assert run("grant", path, "ana", "--epsilon", 99).exit_code == 0
        with pinq.open(path, analyst="ana", data=FRAME) as handle:
            assert abs(handle.noisy_count(epsilon=90) - 200) < 9

    def test_dates_are_proposed_in_whole_years(self) -> None:
        columns = Policy(**yaml.safe_load(pinq.propose(FRAME))).columns
        assert columns["born"].describe() == "dates 1950-01-01 to 1950-12-31 in 365 cells"
        assert columns["seen"].describe() == "datetimes 2024-01-01 to 2024-12-31 23:59 in 527,040 cells"
        assert columns["left"].describe() == "dates 2024-01-01 to 2024-12-31 in 366 cells, may be missing"
        assert set(columns["left"].unreviewed) == {"type", "lower", "upper", "nullable"}

    def test_what_is_no_table_is_told(self) -> None:
        with pytest.raises(PolicyError, match="it must be a table of Arrow, pandas, polars"):
            pinq.propose(object())


@pytest.fixture(scope="module")
def proposed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is proposed for a file: it names the file as one beside its own."""
    folder = tmp_path_factory.mktemp("proposed")
    FRAME.to_parquet(folder / "people.parquet")
    return pinq.propose(folder / "people.parquet", folder=folder)


@pytest.fixture
def path(tmp_path: Path, proposed: str) -> Path:
    """A proposed policy of a file."""
    FRAME.to_parquet(tmp_path / "people.parquet")
    path = tmp_path / "p.yaml"
    path.write_text(proposed, encoding="utf-8")
    return path


class TestReview:
    def test_all_that_waits_is_listed_with_its_value_and_remark(self, path: Path) -> None:
        listed = {item.name: item for item in waiting(path)}
        assert list(listed) == Policy(**yaml.safe_load(path.read_text("utf-8"))).unreviewed_fields()
        assert listed["columns.age.upper"].value == "80"
        assert listed["columns.age.type"].remark.endswith("different whole numbers")
        assert listed["columns.sex.values"].value == "[F, M]"

    def test_a_value_is_confirmed_and_the_rest_of_the_file_stays(self, path: Path) -> None:
        before = path.read_text("utf-8")
        assert confirm(path, ["columns.age.upper"], "census form") == ["columns.age.upper"]
        after = path.read_text("utf-8")
        assert load_policy(path).reviewed == {"columns.age.upper": "census form"}
        assert [line for line in before.split("\n") if "#" in line] == [
            line for line in after.split("\n") if "#" in line
        ]
        assert "columns.age.upper" not in load_policy(path).unreviewed_fields()

    def test_a_value_is_replaced(self, path: Path) -> None:
        confirm(path, ["columns.age.upper"], "census form", value="120")
        confirm(path, ["columns.sex.values"], "census form", value="[F, M, X]")
        confirm(path, ["privacy_unit"], "one row a person", value="row")
        policy = load_policy(path)
        assert policy.columns["age"].upper == 120  # type: ignore[union-attr]
        assert policy.columns["sex"].values == ("F", "M", "X")  # type: ignore[union-attr]
        assert len(policy.reviewed) == 3

    def test_a_column_is_confirmed_as_a_whole_until_the_policy_is_ready(self, path: Path) -> None:
        for name in ("privacy_unit", "max_rows", *(f"columns.{name}" for name in FRAME)):
            confirm(path, [name], "form 7: all of it")
        assert waiting(path) == []
        assert check(path).ready
        assert set(load_policy(path).reviewed.values()) == {"form 7: all of it"}

    @pytest.mark.parametrize("style", [None, True, False])
    def test_any_style_of_yaml_is_edited(self, path: Path, style: bool | None) -> None:
        content = yaml.safe_load(path.read_text("utf-8"))
        content["reviewed"] = {"cap": "old"}
        path.write_text(yaml.safe_dump(content, default_flow_style=style, sort_keys=True), encoding="utf-8")
        if style is True:
            with pytest.raises(PolicyError):  # all of a file in braces has no end to write reasons at
                confirm(path, ["columns.age"], "form")
            return
        confirm(path, ["columns.age"], "form")
        confirm(path, ["columns.sex.values"], "form", value="[M, F]")
        assert load_policy(path).reviewed["cap"] == "old"
        assert load_policy(path).columns["sex"].values == ("M", "F")  # type: ignore[union-attr]

    @pytest.mark.parametrize(
        ("names", "because", "value", "text"),
        [
            (["columns.age.step"], "form", None, "Nothing called 'columns.age.step' waits"),
            (["columns.age"], " ", None, "A reason is needed"),
            (["columns.age"], "form", "3", "name that one"),
            (["columns.age.upper"], "form", "-5", "must be below upper"),
            (["columns.age.upper"], "form", "[", "not valid YAML"),
        ],
    )
    def test_what_is_wrong_changes_nothing(
        self, path: Path, names: list[str], because: str, value: str | None, text: str
    ) -> None:
        before = path.read_text("utf-8")
        with pytest.raises(PolicyError, match=text):
            confirm(path, names, because, value)
        assert path.read_text("utf-8") == before

    def test_the_command_confirms_in_scripts_and_the_reasons_are_in_the_log(self, path: Path) -> None:
        everything = [
            word
            for name in ("privacy_unit", "max_rows", *(f"columns.{n}" for n in FRAME))
            for word in ("--accept", name)
        ]
        done = run("review", path, *everything, "--because", "code book 2024")
        assert done.exit_code == 0, done.output
        assert "reviewed columns.born.upper" in done.stdout
        assert run("grant", path, "ana", "--epsilon", 1).exit_code == 0
        logged = run("audit", path, "--json").stdout
        (line,) = set(re.findall(r"reviewed ([^;\"]*): code book 2024", logged))  # once, after all columns and keys
        assert {"max_rows", "age", "born"} <= set(re.split(", | and ", line)), line
        failed(run("review", path, "--accept", "cap", "--because", "x"), "Nothing called 'cap' waits")
        assert run("review", path, "--accept", "cap").exit_code == 2

    def test_the_command_walks_through_what_waits(self, path: Path) -> None:
        answers = "keep\none row a person\nskip\nchange\nnumeric\nform 7\nstop\n"
        done = CliRunner().invoke(app, ["review", str(path)], input=answers)
        assert done.exit_code == 0, done.output
        assert load_policy(path).reviewed == {"privacy_unit": "one row a person", "columns.age.type": "form 7"}
        assert "max_rows" in load_policy(path).unreviewed_fields()
        assert "\\n" not in done.output
        done = CliRunner().invoke(app, ["review", str(path)], input="s\nc\n9\nform 7\nk\nform 8\nq\n")
        assert done.exit_code == 0, done.output
        assert len(load_policy(path).reviewed) == 4

    def test_all_of_a_column_is_kept_at_once_and_a_wrong_value_is_asked_for_again(self, path: Path) -> None:
        """One reason for what a code book says of it; the walk goes on behind the column."""
        answers = "s\ns\nc\nlow\nform 7\na\ncode book 2024\nq\n"
        done = CliRunner().invoke(app, ["review", str(path)], input=answers)
        assert done.exit_code == 0, done.output
        assert "`type` is 'low'; it must be" in done.output
        reviewed = load_policy(path).reviewed
        assert set(reviewed.values()) == {"code book 2024"}
        assert {name.rpartition(".")[0] for name in reviewed} == {"columns.age"}
        assert "columns.age.upper" in reviewed

    def test_the_remark_on_the_unit_names_the_columns_that_may_be_one(self, tmp_path: Path) -> None:
        """They stand in comments below it, where who answers at a prompt does not look."""
        visits = pd.DataFrame({"patient": [f"p{n // 3}" for n in range(300)], "age": [n % 90 for n in range(300)]})
        visits.to_parquet(tmp_path / "v.parquet")
        (tmp_path / "p.yaml").write_text(pinq.propose(tmp_path / "v.parquet", folder=tmp_path), encoding="utf-8")
        (unit, *_) = waiting(tmp_path / "p.yaml")
        assert unit.name == "privacy_unit"
        assert "patient names the person: 100 persons, at most" in unit.remark
