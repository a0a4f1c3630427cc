# SPDX-License-Identifier: Apache-2.0
"""The pages for newcomers run as they stand: their Python, their commands, and what those print."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import pytest
from typer.testing import CliRunner

from pinq.cli.main import app
from tests.support.house.checkout import ROOT
from tests.support.processes.forked_processes import PinqProcess
from tests.support.processes.ports import free_port

PAGES = (
    "start/provider",
    "start/analyst",
    "start/auditor",
    "start/operator",
    "epsilon",
    "heads",
    "verbs",
    *sorted(f"reference/{page.stem}" for page in (ROOT / "docs" / "reference").glob("*.md")),
)


class Terminal:
    """Runs the commands of a page: those of `pinq` in this process, servers and other programs beside it."""

    def __init__(self, folder: Path) -> None:
        self.servers: list[PinqProcess] = []
        self.log = folder / "servers.log"
        self.port = str(free_port())

    def run(self, command: str) -> tuple[str, bool]:
        """What a command prints, and whether it failed; a server is there once its port answers."""
        command = re.sub(r"\b844[34]\b", self.port, command)  # others may use the page's own
        if command.endswith("&"):
            words = shlex.split(command.removesuffix("&"))
            port = int(words[words.index("--port") + 1])
            self.servers.append(PinqProcess(words[1:], output=self.log, errors=self.log))
            wait_for(port, self.servers[-1])
            return "", False
        if command.startswith("pinq "):
            done = CliRunner().invoke(app, shlex.split(command)[1:], env={"COLUMNS": "300"})
            return done.output, done.exit_code != 0
        other = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
        return other.stdout, other.returncode != 0

    def close(self) -> None:
        for server in self.servers:
            server.terminate()
            server.wait(30)


def wait_for(port: int, server: PinqProcess) -> None:
    """Returns when a server listens."""
    while server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise AssertionError("the server ended")


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """A folder like a clone, with its Adult table and no ledger yet."""
    shutil.copytree(ROOT / "policies", tmp_path / "policies")
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    (tmp_path / "data").mkdir()
    shutil.copy(ROOT / "data" / "adult.parquet", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    mpl.use("Agg")
    here = Terminal(tmp_path)
    yield here
    here.close()


def plain(text: str) -> str:
    """Text without what differs from run to run: numbers, and how lines are broken."""
    return " ".join(re.sub(r"\d[\d.,]*", "#", text).split())


@pytest.mark.parametrize("page", [page for page in PAGES if (ROOT / "docs" / f"{page}.md").exists()])
def test_a_page_runs(page: str, terminal: Terminal) -> None:
    """Blocks work one after another; commands print what is shown, and fail where an error is shown."""
    names: dict[str, object] = {}
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    for kind, block in re.findall(r"^```(python|console)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        if kind == "python":
            exec(compile(block, page, "exec"), names)
            continue
        for shown in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = shown.splitlines()
            printed, failed = terminal.run(command)
            assert failed == any(line.startswith(("Error", "Not ready")) for line in lines), printed
            for line in lines:
                assert plain(line).rstrip(".") in plain(printed), command
