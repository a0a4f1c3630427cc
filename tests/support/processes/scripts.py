# SPDX-License-Identifier: Apache-2.0
"""Runs a script in this process, which has its imports already; the ``pinq`` commands that it starts are forked."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes.forked_processes import PinqProcess

_Popen = subprocess.Popen


class ForkedCommand(PinqProcess):
    """A ``pinq`` command with the methods of ``Popen`` that ``subprocess.run`` uses; its streams are files."""

    def __init__(self, args: list[str], *, stdout: Any, stderr: Any) -> None:
        self.args, self._cleanup = args, contextlib.ExitStack()
        output, errors = map(self._file, (stdout, stderr))
        super().__init__(args[1:], output=output, errors=errors)

    def _file(self, stream: Any) -> Path:
        if stream != subprocess.PIPE:
            return Path(stream.name)
        return Path(self._cleanup.enter_context(tempfile.NamedTemporaryFile()).name)

    def __enter__(self) -> ForkedCommand:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        self._cleanup.close()


def started(args: Any, **settings: Any) -> ForkedCommand | subprocess.Popen[Any]:
    """Stands for ``subprocess.Popen``; the output of a forked command is text."""
    if Path(args[0]).name != "pinq":
        return _Popen(args, **settings)
    settings.pop("text", None)
    return ForkedCommand(args, **settings)


def run_script(file: Path, *words: str) -> str:
    """Runs a script as Python would run it by its name; returns what it prints."""
    names = {"__name__": "__main__", "__file__": str(file)}
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setattr(subprocess, "Popen", started)
        patch.setattr(sys, "argv", [str(file), *words])
        exec(compile(file.read_text(encoding="utf-8"), file, "exec"), names)
    return printed.getvalue()
