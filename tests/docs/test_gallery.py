# SPDX-License-Identifier: Apache-2.0
"""The notebooks of the gallery run from top to bottom, and show what they keep."""

from __future__ import annotations

import json
import re
import runpy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.house.checkout import ROOT

RUNNER: dict[str, Any] = runpy.run_path(str(ROOT / "examples" / "gallery" / "run.py"))
NOTEBOOKS: list[Path] = RUNNER["notebooks"]()


@cache
def done_again(file: Path) -> Any:
    """A notebook with the outputs of a run of its cells."""
    with RUNNER["workshop"]():
        return RUNNER["executed"](json.loads(file.read_text(encoding="utf-8")))


def kinds(notebook: Any) -> list[list[list[str]]]:
    """Which faces each output of each cell has."""
    return [
        [sorted(output.get("data", {"stdout": 0})) for output in cell["outputs"]]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def test_each_role_has_a_notebook_and_so_have_tables_synthetic_rows_and_a_report() -> None:
    """In the order in which they are read."""
    assert [file.stem for file in NOTEBOOKS] == [
        "1-provider",
        "2-analyst",
        "3-auditor",
        "4-tables",
        "5-synthetic",
        "6-hospital",
    ]


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_runs_and_shows_what_it_keeps(file: Path) -> None:
    """No cell fails, and what is kept has the same faces, without a folder or a token of anybody's run."""
    kept, done = json.loads(file.read_text(encoding="utf-8")), done_again(file)
    assert kinds(done) == kinds(kept)
    assert any(outputs for outputs in kinds(kept))
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"/tmp/|/home/|/root|pinq_[\w-]{20,}", text)
    assert "<h" in RUNNER["page"](done) or "<pre" in RUNNER["page"](done)


@pytest.mark.parametrize("again", [False, True], ids=["kept", "again"])
def test_a_hospitals_report_keeps_to_its_budget_and_is_near_the_exact_one(again: bool) -> None:
    """All statistics cost 1; odds ratios are within a factor of 2 of the exact ones, six deviations of the noise."""
    file = ROOT / "examples" / "gallery" / "6-hospital.ipynb"
    notebook = done_again(file) if again else json.loads(file.read_text(encoding="utf-8"))
    text = "\n".join(
        "".join(output.get("data", {}).get("text/html", []) or output.get("data", {}).get("text/plain", []))
        for cell in notebook["cells"]
        for output in cell.get("outputs", [])
    )
    assert "spent=1, remaining=0" in text
    rows = re.findall(r"<td>odds ratio</td>" + r"\s*<td>([\d.]+)</td>" * 4, text)
    assert len(rows) == 4
    for value, low, high, exact in (map(float, row) for row in rows):
        assert low < value < high
        assert 0.5 < value / exact < 2


def test_a_run_changes_nothing_that_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a notebook nor a ledger beside the data; pages to look at go elsewhere."""
    before = {file: file.read_bytes() for file in NOTEBOOKS}
    left = set((ROOT / "data").iterdir())
    monkeypatch.setitem(RUNNER["main"].__globals__, "ROOT", tmp_path)
    monkeypatch.setitem(RUNNER["main"].__globals__, "notebooks", lambda: NOTEBOOKS[:1])
    monkeypatch.setattr("sys.argv", ["run.py"])
    RUNNER["main"]()
    assert {file: file.read_bytes() for file in NOTEBOOKS} == before
    assert set((ROOT / "data").iterdir()) == left
    assert (tmp_path / "build" / "gallery" / "1-provider.html").exists()
