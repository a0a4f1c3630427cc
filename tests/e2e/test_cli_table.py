# SPDX-License-Identifier: Apache-2.0
"""``pinq table``: in process and over a server the tables of ``miners.tables``."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.commands import failed, run

ANA = ("--analyst", "ana", "--epsilon", 20)


def made(*words: object) -> dict[str, Any]:
    result = run("table", *words, "--json")
    assert result.exit_code == 0, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def test_a_cross_table_with_intervals(policy: Path) -> None:
    """Numbers, their intervals, and what is left of the budget."""
    told = made("crosstab", policy, "sex", "age:30,45", *ANA, "--margins")
    cells = {(row["sex"], row["age"]): row for row in told["rows"]}
    assert cells["f", "< 30"].keys() == {"sex", "age", "value", "low", "high"}
    assert abs(cells["All", "All"]["value"] - 400) < 10
    assert all(row["low"] <= row["value"] <= row["high"] for row in told["rows"])
    assert (told["epsilon"], told["level"], told["budget"]["spent"]) == (20.0, 0.95, 20.0)


def test_a_histogram_as_bars_and_as_a_picture(policy: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra `plot`")
    picture = tmp_path / "ages.svg"
    result = run("table", "histogram", policy, "age", "--bins", 4, "--by", "sex", *ANA, "--picture", picture)
    assert result.exit_code == 0, result.output
    assert sum("█" in line for line in result.stdout.splitlines()) >= 4
    assert "rows by age; intervals hold with probability 0.95" in result.stderr
    assert picture.read_text().lstrip().startswith("<?xml")


def test_quantiles_summaries_and_top_lists(policy: Path) -> None:
    told = made("quantiles", policy, "age", "--share", 0.5, "--share", 0.9, *ANA)
    assert [row["statistic"] for row in told["rows"]] == ["50 %", "90 %"]
    summary = made("summary", policy, "age", "sex", *ANA)
    assert {row["column"] for row in summary["rows"]} >= {"age", "sex"}
    assert "█" not in run("table", "summary", policy, "age", *ANA).stdout
    assert len(made("top", policy, "sex", "--most", 1, *ANA)["rows"]) == 1


def test_a_plan_is_free_and_reuse_too(policy: Path) -> None:
    plan = run("table", "summary", policy, *ANA, "--plan")
    assert "summary of" in plan.stdout
    assert json.loads(run("audit", policy, "--json").stdout)["spent"] == 0.0
    first = made("histogram", policy, "sex", *ANA)
    again = made("histogram", policy, "sex", *ANA, "--reuse")
    assert (again["rows"], again["budget"]) == (first["rows"], first["budget"])


def test_what_is_wrong_is_said_by_option(policy: Path) -> None:
    """Before anything is asked."""
    failed(run("table", "crosstab", policy, "sex", *ANA, "--bins", 3), "`crosstab` takes no --bins", 2)
    failed(run("table", "summary", policy, *ANA, "--share", 0.5, "--most", 3), "takes no --most and no --share", 2)
    failed(run("table", "histogram", policy, *ANA), "`histogram` needs one COLUMN", 2)
    failed(run("table", "quantiles", policy, "agee", *ANA), "did you mean 'age'?")
    failed(run("table", "histogram", policy, "sex", "--analyst", "ana", "--epsilon", 10_000), "remain")


@pytest.mark.parametrize(
    ("option", "given", "said"),
    [
        ("--picture", "ages.foo", "--picture must end in .png, .svg, .pdf"),
        ("--picture", "missing/ages.png", "there is no folder missing"),
        ("--bins", "0", "bins"),
    ],
)
def test_what_cannot_be_made_is_refused_before_it_costs(policy: Path, option: str, given: str, said: str) -> None:
    failed(run("table", "histogram", policy, "age", *ANA, option, given), said, 1 if option == "--bins" else 2)
    assert json.loads(run("audit", policy, "--json").stdout)["spent"] == 0.0
