# SPDX-License-Identifier: Apache-2.0
"""``pinq query``."""

import json
from pathlib import Path
from typing import Any

import pytest

from pinq.errors import NotAuthorised
from tests.support.processes.commands import HOSTILE, failed, run


class TestQuery:
    def ask(self, policy: Path, *words: object) -> Any:
        result = run("query", policy, "--analyst", "ana", *words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def test_numbers(self, policy: Path) -> None:
        assert abs(self.ask(policy, "count", "--epsilon", 20)["value"] - 400) <= 3
        assert (
            abs(self.ask(policy, "sum", "age", "--epsilon", 50)["value"] - sum(20 + i % 60 for i in range(400))) < 100
        )
        answer = self.ask(policy, "avg", "age", "--epsilon", 50)
        assert 40 < answer["value"] < 60
        assert answer["budget"] == {"epsilon": 1000.0, "spent": 120.0, "remaining": 880.0}
        assert answer["accuracy"].startswith("an average has a standard error of about ")

    def test_parts(self, policy: Path) -> None:
        answer = self.ask(policy, "count", "--partition", "sex", "--partition", "age:30,45", "--epsilon", 20)
        assert [one["part"] for one in answer["values"]][:2] == [
            {"sex": "f", "age": "< 30"},
            {"sex": "f", "age": "30 to < 45"},
        ]
        assert abs(sum(one["value"] for one in answer["values"]) - 400) < 10
        assert answer["budget"]["spent"] == 20.0

    @pytest.mark.parametrize("name", HOSTILE)
    def test_hostile_columns(self, policy: Path, name: str) -> None:
        answer = self.ask(policy, "count", "--partition", name, "--epsilon", 20)
        assert [one["part"] for one in answer["values"]] == [{name: "[b]u[/b]"}, {name: "v"}]
        shown = run("query", policy, "--analyst", "ana", "count", "--partition", name, "--epsilon", 20).stdout
        assert name in shown
        assert "[b]u[/b]" in shown

    def test_choices(self, policy: Path) -> None:
        options = [word for text in ("sex", "age:any", "age:30,45", "sex:any") for word in ("--candidate", text)]
        options += ["--target", "income", "--epsilon", "5"]
        for score in ("gini", "info_gain", "max_class", "mutual_information"):
            assert self.ask(policy, "choose", *options, "--score", score)["value"]["kind"] in (
                "values",
                "cuts",
                "groups",
            )
        assert (
            self.ask(policy, "choose", "--score", "class_count", "--target", "income", "--epsilon", 50)["value"]
            == "low"
        )
        assert (
            self.ask(policy, "choose", "--score", "balance", "--candidate", "age:any", "--epsilon", 5)["value"][
                "column"
            ]
            == "age"
        )
        least = self.ask(
            policy, "choose", "--score", "squared_error", "--target", "age", "--candidate", "sex", "--epsilon", 5
        )
        assert least["value"]["column"] == "sex"
        each = self.ask(
            policy, "choose", "--partition", "sex", "--score", "class_count", "--target", "income", "--epsilon", 50
        )
        assert each["values"] == [{"part": {"sex": value}, "value": "low"} for value in "fm"]

    def test_preview_is_free(self, policy: Path) -> None:
        found = self.ask(policy, "count", "--partition", "sex", "--epsilon", 20, "--preview")
        assert (found["cost"], found["remaining"], found["refused"]) == (20.0, 980.0, False)
        assert self.ask(policy, "count", "--epsilon", 2000, "--preview")["refused"]
        text = run("query", policy, "--analyst", "ana", "count", "--epsilon", 1, "--preview").stdout
        assert text.startswith("Preview: costs epsilon 1 (999 would remain);")
        assert json.loads(run("audit", policy, "--json").stdout)["spent"] == 0.0

    @pytest.mark.parametrize(
        ("words", "text", "status"),
        [
            (["count", "--epsilon", "nan"], "--epsilon is 'nan'", 1),
            (
                ["count", "--epsilon", "2000"],
                "This would cost epsilon 2000; 1000 of 1000 remains for 'ana'. Ask for less, or ask the data provider to extend the grant. Nothing was spent.",
                1,
            ),
            (["avg", "agee", "--epsilon", "1"], "there is no column 'agee' (did you mean 'age'?)", 1),
            (["avg", "sex", "--epsilon", "1"], "`sex` is categorical; a numeric column is needed here.", 1),
            (
                ["count", "--partition", "age", "--epsilon", "1"],
                "the policy declares no cuts of it; say where to cut, for example age:50.",
                1,
            ),
            (
                ["count", "--partition", "age:x", "--epsilon", "1"],
                "the cut 'x' of `age` is not a number; write age:30,45.",
                1,
            ),
            (["count", "--partition", "age:500", "--epsilon", "1"], "the cut 500.0 of `age` is out of bounds", 1),
            (
                ["count", "--partition", "sex:1", "--epsilon", "1"],
                "`sex` is categorical; a numeric column is needed here.",
                1,
            ),
            (["count", "--partition", "nope:any", "--epsilon", "1"], "there is no column 'nope'", 1),
            (["count", "age", "--epsilon", "1"], "`count` takes no COLUMN", 2),
            (["avg", "--epsilon", "1"], "`avg` needs COLUMN", 2),
            (["median", "--epsilon", "1"], "'median' is not one of", 2),
            (["count", "--score", "gini", "--epsilon", "1"], "--score is for `choose`, not for `count`", 2),
            (["choose", "--epsilon", "1"], "`choose` needs --score", 2),
            (["choose", "--score", "gini", "--epsilon", "1"], "--score gini needs --target", 2),
            (["choose", "--score", "gini", "--target", "income", "--epsilon", "1"], "`choose` needs a --candidate", 2),
            (
                ["choose", "--score", "balance", "--target", "sex", "--candidate", "age:any", "--epsilon", "1"],
                "--score balance takes no --target",
                2,
            ),
            (
                ["choose", "--score", "gini", "--target", "age", "--candidate", "sex", "--epsilon", "1"],
                "`age` is numeric; a categorical",
                1,
            ),
        ],
    )
    def test_errors_spend_nothing(self, policy: Path, words: list[str], text: str, status: int) -> None:
        failed(run("query", policy, "--analyst", "ana", *words), text, status)
        assert json.loads(run("audit", policy, "--json").stdout)["spent"] == 0.0

    def test_strangers_learn_nothing(self, policy: Path) -> None:
        run("revoke", policy, "ana", "--yes")
        texts = {run("query", policy, "--analyst", name, "count", "--epsilon", 1).stderr for name in ("ana", "eve")}
        assert texts == {f"Error: {NotAuthorised()}\n"}
