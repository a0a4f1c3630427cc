# SPDX-License-Identifier: Apache-2.0
"""How many connections a process may have beside the files that its datasets hold open."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.processes.forked_processes import run_pinq

CODE = """
import resource, sys
from pathlib import Path
from pinq.server.log import RequestLog
from pinq.server.run import OTHER_FILES, _room
held = [open("/dev/null") for _ in range(100)]
hard = OTHER_FILES + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (min(150, hard), hard))
print(_room(50, RequestLog(Path(sys.argv[2]))), resource.getrlimit(resource.RLIMIT_NOFILE)[0] - OTHER_FILES)
"""


def room(beside: int, log: Path) -> tuple[int, int]:
    """Of 50 connections those that a process may have which holds 100 files; and its limit of them, without a reserve."""
    done = run_pinq([str(beside), str(log)], program=CODE)
    assert done.returncode == 0, done.stderr
    connections, limit = map(int, done.stdout.split())
    return connections, limit


def test_files_of_datasets_count_beside_connections(tmp_path: Path) -> None:
    """The limit is raised for both; where it cannot be, fewer connections are let in, and the log says so."""
    connections, limit = room(1000, tmp_path / "enough")
    assert connections == 50
    assert 150 <= limit < 180
    assert "few files" not in (tmp_path / "enough").read_text()
    connections, _ = room(120, tmp_path / "few")
    assert 1 <= connections < 20
    (line,) = map(json.loads, (tmp_path / "few").read_text().splitlines())
    assert (line["event"], line["connections"]) == ("few files", connections)
