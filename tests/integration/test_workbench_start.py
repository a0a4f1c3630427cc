# SPDX-License-Identifier: Apache-2.0
"""What ``pinq workbench`` says where it cannot start, and what its server says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pinq.errors import PolicyError
from pinq_workbench.folder import Folder
from pinq_workbench.serving import Serving
from tests.commands import failed, run


def test_without_the_extra_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("pinq_workbench", "nicegui", "fastapi")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    failed(run("workbench", tmp_path), "pip install 'pinq-miners[workbench]'")


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
        Folder(tmp_path).propose({"data": "health.visits", "uri_env": "CLINIC_URI"})
    with pytest.raises(PolicyError, match=f"{tmp_path}/health.visits"):
        Folder(tmp_path).propose({"data": "health.visits"})
