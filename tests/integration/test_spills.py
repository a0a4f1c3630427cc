# SPDX-License-Identifier: Apache-2.0
"""Folders for rows that exceed the memory limit: one of a killed process is deleted, one in use is not."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pinq.engine.spills import PREFIX, spill_folder

USES = """
from pinq.engine.spills import spill_folder
with spill_folder() as folder:
    (folder / "rows").write_text("secret")
    print(folder, flush=True)
    input()
"""

BUSY = """
    with spill_folder() as folder:
        (folder / "rows").write_text("secret")
        assert (folder / "rows").exists()
"""


def test_the_folder_of_a_killed_process_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    killed, running = (
        subprocess.Popen(
            [sys.executable, "-c", USES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        for _ in range(2)
    )
    with killed, running:
        folders = [Path(process.stdout.readline().strip()) for process in (killed, running) if process.stdout]
        assert all((folder / "rows").exists() for folder in folders)
        killed.kill()
        killed.wait(30)
        with spill_folder() as own:
            assert sorted(tmp_path.glob(f"{PREFIX}*")) == sorted([folders[1], own])
            assert (folders[1] / "rows").exists()
            assert own.stat().st_mode & 0o777 == 0o700
        running.communicate("\n", timeout=30)
    assert not [*tmp_path.iterdir()]


def test_what_is_not_the_users_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to another folder, and a folder of somebody else."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    other = tmp_path / "other"
    other.mkdir()
    (other / "rows").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(other)
    if os.getuid() == 0:
        foreign = tmp_path / f"{PREFIX}foreign"
        foreign.mkdir()
        (foreign / "rows").touch()
        os.chown(foreign, 1, 1)
    with spill_folder():
        pass
    assert (other / "rows").exists()
    assert os.getuid() != 0 or (foreign / "rows").exists()


def test_folders_that_come_and_go_disturb_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several processes make and delete folders at the same moments."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    again = f"from pinq.engine.spills import spill_folder\nfor _ in range(300):\n{BUSY}"
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    others = [subprocess.Popen([sys.executable, "-c", again], env=environment) for _ in range(3)]
    assert [process.wait(60) for process in others] == [0, 0, 0]
    assert not [*tmp_path.iterdir()]
