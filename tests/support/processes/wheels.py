# SPDX-License-Identifier: Apache-2.0
"""The wheel of this checkout, and fresh environments with it that other users of the machine can run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from tests.support.house.checkout import ROOT

NOBODY = 65534


def run(*command: object, cwd: Path) -> str:
    """Runs a command that must succeed; its standard output. It finds this checkout only where it is installed."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build_wheel(folder: Path) -> Path:
    """Builds the wheel from this checkout, with this environment's setuptools."""
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    return next(folder.glob("pinq_miners-*.whl"))


def environment(folder: Path, wheel: Path, *extras: str) -> Path:
    """A fresh environment with a wheel and its requirements, also for extras; its interpreter.

    The requirements are linked from this environment, quickly and without an index; pip then checks the versions. If
    other users can run only another version of Python, pip installs everything.
    """
    run(interpreter(), "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    python = folder / "bin" / "python"
    packages = next((folder / "lib").glob("python*")) / "site-packages"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    if packages.parent.name == f"python{sys.version_info.major}.{sys.version_info.minor}":
        for name in needed(wheel, extras):
            link(distribution(name), packages)
        run(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=folder.parent)
        run(*pip, "check", cwd=folder.parent)
    else:
        named = f"{wheel}[{','.join(extras)}]" if extras else wheel
        run(*pip, "install", "--quiet", "--no-compile", named, cwd=folder.parent)
    return python


def needed(wheel: Path, extras: tuple[str, ...]) -> set[str]:
    """The names of all requirements of a wheel, and of their requirements."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        own = PathDistribution(zipfile.Path(archive, metadata.removesuffix("METADATA")))
        waiting, names = applying(own, extras), set[str]()
    while waiting:
        requirement = waiting.pop()
        key = str(requirement)
        if key not in names:
            names.add(key)
            waiting += applying(distribution(requirement.name), tuple(requirement.extras))
    return {Requirement(key).name for key in names} - {"pinq-miners"}  # an extra may name others of this package


def applying(installed: Distribution, extras: tuple[str, ...]) -> list[Requirement]:
    """The requirements of a package on this machine, with those of its extras."""
    requirements = map(Requirement, installed.requires or ())
    return [
        one
        for one in requirements
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def link(installed: Distribution, packages: Path) -> None:
    """Puts a package's files, other than commands, into another folder of packages, where everybody can read them."""
    for file in installed.files or ():
        source, target = Path(str(file.locate())), packages / file
        if ".." in file.parts or not source.exists() or target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:  # on another disk
            shutil.copyfile(source, target)


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
