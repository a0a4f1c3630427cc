# SPDX-License-Identifier: Apache-2.0
"""The wheel that one would ship, and fresh environments with it, as other users of the machine can run them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.checkout import ROOT

NOBODY = 65534
INSTALL = ("install", "--quiet", "--disable-pip-version-check", "--no-compile")


def run(*command: object, cwd: Path) -> str:
    """Runs a command that must succeed; its standard output."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build_wheel(folder: Path) -> Path:
    """Builds the wheel from this checkout."""
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT, cwd=folder)
    return next(folder.glob("pinq_miners-*.whl"))


def environment(folder: Path, wheel: object) -> Path:
    """A fresh environment with a wheel (and extras: ``path[extra]``); its interpreter."""
    run(interpreter(), "-m", "venv", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    run(python, "-m", "pip", *INSTALL, wheel, cwd=folder.parent)
    return python


def grown(folder: Path, python: Path, wheel: object) -> Path:
    """A copy of an environment, made in a moment by links, with more in it; its interpreter."""
    shutil.copytree(python.parents[1], folder, symlinks=True, copy_function=os.link)
    run(folder / "bin" / "python", "-m", "pip", *INSTALL, wheel, cwd=folder.parent)
    return folder / "bin" / "python"


def interpreter() -> str:
    """This interpreter or, where another user could not run it, the system's."""
    mine = Path(sys.executable).resolve()
    if all(folder.stat().st_mode & 0o001 for folder in mine.parents):
        return str(mine)
    return next(
        (str(path) for path in map(Path, ("/usr/bin/python3", "/usr/local/bin/python3")) if path.exists()), str(mine)
    )


def another_user() -> dict[str, Any]:
    """Words for ``subprocess`` that run a process as a user who owns nothing; none where we may not."""
    return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
