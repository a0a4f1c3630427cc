# SPDX-License-Identifier: Apache-2.0
"""What ``pinq workbench`` says where it cannot start, and what its server says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pinq.errors import PolicyError
from pinq.provider.policy_file import load_policy
from pinq.public.plugins import install_line
from pinq_workbench.parts import Inputs
from pinq_workbench.provider import Provider, way_label
from pinq_workbench.serving import Serving
from tests.support.processes.commands import failed, run


def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("pinq_workbench", "nicegui", "fastapi")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    failed(run("workbench", tmp_path), install_line("workbench"))


def test_a_server_that_ends_at_once_says_why(tmp_path: Path) -> None:
    serving = Serving(tmp_path)
    assert serving.running() == ""
    for _ in range(2):  # what it said the first time is not said again
        with pytest.raises(PolicyError) as refused:
            serving.start(["--port", "0", "--insecure-http"])
        assert str(refused.value).count("Error:") == 1
    assert serving.running() == ""
    serving.stop()


def test_a_table_of_a_database_is_named_with_its_uris_variable(tmp_path: Path) -> None:
    """As by `pinq init --uri-env`; a name without a variable is a file's."""
    with pytest.raises(PolicyError, match="The environment variable CLINIC_URI is not set"):
        Provider(tmp_path).propose(Inputs(data="health.visits", uri_env="CLINIC_URI"))
    with pytest.raises(PolicyError, match=f"{tmp_path}/health.visits"):
        Provider(tmp_path).propose(Inputs(data="health.visits"))


def test_a_file_is_read_as_it_suggests_and_not_where_it_may_be_read_in_two_ways(tmp_path: Path) -> None:
    """As by `pinq init` with the options that it says to try."""
    lines = [f"{day:02d}/{month:02d}/2024;{day * month},5" for month in range(1, 13) for day in range(1, 13)]
    file = tmp_path / "visits.csv"
    file.write_text("\n".join(["day;cost", *lines]) + "\n", encoding="utf-8")
    ways = Provider(tmp_path).propose(Inputs(data="visits.csv"))
    assert not isinstance(ways, str)
    assert sorted(map(way_label, ways)) == ["12/31/2024", "31/12/2024"]
    name = str(Provider(tmp_path).propose(Inputs(data="visits.csv", dates="%d/%m/%Y")))
    written = load_policy(tmp_path / name).csv
    assert written is not None
    assert written.model_dump(exclude_unset=True) == {"delimiter": ";", "decimal": ",", "dates": ("%d/%m/%Y",)}


def test_doubtful_thousands_are_never_chosen_for_the_provider(tmp_path: Path) -> None:
    """1.234 beside 987 may be a thousand or a fraction: the workbench, which follows one advice by itself, must ask."""
    rows = [f"{i % 9 + 1}.{100 + i % 800};{'mf'[i % 2]}" if i % 2 else f"{100 + i % 800};m" for i in range(300)]
    (tmp_path / "t.csv").write_text("\n".join(["x;sex", *rows]))
    ways = Provider(tmp_path).propose(Inputs(data="t.csv"))
    assert ways == [{"decimal": ",", "thousands": "."}, {"decimal": ".", "thousands": "none"}]
    stated = Inputs(data="t.csv", decimal=".", thousands="none")
    assert Provider(tmp_path).propose(stated) == "t.yaml"
