# SPDX-License-Identifier: Apache-2.0
"""The oldest version of each dependency that ``pyproject.toml`` admits, as pip's constraints: ``python -m tests.oldest > tests/oldest.txt``."""

from __future__ import annotations

import re
import tomllib

from tests.support.house.checkout import ROOT

PYPROJECT = ROOT / "pyproject.toml"
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(\[[a-z,]*\])?(>=(?P<lower>[0-9.]+))?(?P<rest>[,;].*)?")
WITHOUT = ("dev", "test", "oracles", "release")  # tools that read the code or run its tests; users have none of them


def constraints() -> dict[str, str]:
    """Each dependency, of the package or of an extra, and its lower bound. ``ValueError`` where one has none."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    extras = (listed for extra, listed in project["optional-dependencies"].items() if extra not in WITHOUT)
    oldest = {}
    for requirement in sorted({*project["dependencies"], *(one for listed in extras for one in listed)}):
        read = REQUIREMENT.fullmatch(requirement)
        if read is not None and read["name"] == project["name"]:
            continue
        if read is None or read["lower"] is None:
            raise ValueError(f"{requirement!r} has no lower bound")
        oldest[read["name"]] = read["lower"]
    return oldest


if __name__ == "__main__":
    print("# Made by tests/oldest.py from the lower bounds in pyproject.toml.")
    for name, version in constraints().items():
        print(f"{name}=={version}")
