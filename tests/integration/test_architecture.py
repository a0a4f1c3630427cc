# SPDX-License-Identifier: Apache-2.0
"""What docs/architecture.md says of the tree is so."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("pinq", "miners", "pinq_secure", "pinq_workbench", "pinq_demo")
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def rooms() -> set[str]:
    """The folders, and the one file, that the page's table describes."""
    return {room.rstrip("/") for room in re.findall(r"^\| `([\w/.]+)` \| [^|]+ \| [^|]*\|$", PAGE, flags=re.MULTILINE)}


def test_every_room_is_on_the_page() -> None:
    """A folder that is added, moved or removed changes it."""
    folders = {str(file.parent.relative_to(ROOT)) for name in PACKAGES for file in (ROOT / name).rglob("*.py")}
    assert rooms() == folders - {"pinq"} | {"pinq/errors.py"}


def test_every_path_that_the_page_names_exists() -> None:
    """Also those outside of the table."""
    for path in re.findall(r"`((?:pinq|miners|pinq_secure|pinq_workbench|pinq_demo|tests|docs)/[\w/.]+)`", PAGE):
        assert (ROOT / path).exists(), path


def test_every_room_says_what_it_knows_and_what_to_read_first() -> None:
    """Three sentences in each folder's ``__init__``."""
    for room in rooms():
        if room.endswith(".py") or room == "miners":
            continue
        text = (ROOT / room / "__init__.py").read_text(encoding="utf-8").split('"""')[1]
        assert re.search(r"\b[Rr]ead\b", text) or "to start" in text, room


def test_every_name_that_the_page_says_to_edit_is_defined() -> None:
    """A class, function, constant or field; one with a class before it in the file that has both."""
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    texts = [file.read_text(encoding="utf-8") for file in files]
    names = re.findall(r"`([A-Za-z_]\w*(?:\.\w+)?)`", PAGE.partition("## Where would I change X?")[2])
    for name in {name for name in names if not name.endswith(".py") and not name.startswith("pinq.")}:
        assert any(all(defines(text, part) for part in name.split(".")) for text in texts), name


def test_the_workbench_imports_what_there_is() -> None:
    """Without its extra nothing else loads it, so a name that moved would be missed."""
    for file in (ROOT / "pinq_workbench").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in ("pinq", "miners"):
                home = import_module(str(node.module))
                for name in node.names:
                    assert hasattr(home, name.name) or find_spec(f"{node.module}.{name.name}"), (file.name, name.name)


def defines(text: str, name: str) -> bool:
    return re.search(rf"\b(?:def|class) {name}\b|^\s*{name}\b\s*[:=]", text, flags=re.MULTILINE) is not None
