# SPDX-License-Identifier: Apache-2.0
"""Runs the ``pinq`` command for tests: in this process, or in a new one."""

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import typer.testing
import yaml
from typer.testing import CliRunner

from pinq.cli.main import app
from tests.support.processes.forked_processes import run_pinq

# The parser of all commands takes longer to build than most commands run, so it is built once for each process.
vars(typer.testing)["_get_command"] = cache(vars(typer.testing)["_get_command"])

HOSTILE = ['"; drop table x; --', "[red]x[/red]", "名前 ünïcode", "age:30"]
SECRET = "secret-value-of-a-row"


def review(path: Path, cap: float = 5000) -> None:
    """Confirms everything that a policy proposes."""
    content = yaml.safe_load(path.read_text(encoding="utf-8")) | {"cap": cap}
    content.pop("unreviewed")
    for column in content["columns"].values():
        column.pop("unreviewed")
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def run(*words: object) -> Any:
    """The command in this process."""
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "160", "NO_COLOR": "1"})


def process(*words: object, **settings: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    environment = {**os.environ, "COLUMNS": "160", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", **settings}
    return run_pinq(list(map(str, words)), environment)


def failed(result: Any, text: str, status: int = 1) -> None:
    """Requires one line on the error stream, the exit status, and no traceback; after this line only values as they
    were read.
    """
    assert result.exit_code == status
    assert text in result.stderr
    assert result.stdout == ""
    if status == 1:
        assert result.stderr.startswith("Error: ")
        _, *shown = result.stderr.splitlines()
        assert not shown or (shown.pop(0).startswith("So read") and all(line.startswith("  ") for line in shown))
    assert "Traceback" not in result.output
