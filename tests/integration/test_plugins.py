# SPDX-License-Identifier: Apache-2.0
"""What the two sides of the wall register for each other, and that neither needs to import the other."""

from __future__ import annotations

import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from importlib.metadata import EntryPoint, PathDistribution
from pathlib import Path
from types import ModuleType

import pytest

import miners
import pinq
import pinq.public.plugins
from miners import DiffPC45, PublicRows
from pinq.errors import QueryError
from pinq.public.plugins import install_line, plugin
from pinq.public.schema import Schema
from tests.support.house.checkout import ROOT
from tests.support.processes.secure_parties import COLUMNS, patients

SCHEMA = Schema(columns=COLUMNS, max_rows=1000)
WALL = "The wall: of pinq, miners import what both sides know and the analyst's face"


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """What is registered: nothing, until a test adds something."""
    entries: list[EntryPoint] = []
    monkeypatch.setattr(
        pinq.public.plugins,
        "entry_points",
        lambda **wanted: [one for one in entries if (one.group, one.name) == (wanted["group"], wanted["name"])],
    )
    plugin.cache_clear()
    yield entries
    plugin.cache_clear()


def modules(package: ModuleType) -> list[str]:
    return [info.name for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_of_pinq_works_where_the_miners_cannot_be_imported() -> None:
    """Also what is imported late: `pinq secure --help` and a simulated handle."""
    code = (
        "import sys, importlib; sys.modules['miners'] = None\n"
        f"for name in {modules(pinq)!r}: importlib.import_module(name)\n"
        "import pinq\n"
        "schema = pinq.Schema(columns={'a': {'type': 'categorical', 'values': ['x', 'y']}}, max_rows=10)\n"
        "print(pinq.simulate(schema, rows=5, epsilon=1).budget)\n"
    )
    assert "remaining=1" in run(code)


def test_every_module_of_the_miners_imports_where_the_providers_side_cannot_be() -> None:
    """By the very list of the contract: every other module of pinq is out of reach."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (wall,) = [one for one in contracts if one["name"] == WALL]
    # Answers carry a handle's numbers; they belong to the analyst's face, which alone imports them.
    allowed = {"pinq.analyst.answers"} | {
        line.partition(" -> ")[2].replace("**", "*") for line in wall["ignore_imports"]
    }

    def within(name: str) -> bool:
        return any(fnmatchcase(name, pattern) or pattern.startswith(f"{name}.") for pattern in allowed)

    hidden = [name for name in modules(pinq) if not within(name)]
    assert len(hidden) > len(allowed)
    code = f"import sys, importlib\nfor name in {hidden!r}: sys.modules[name] = None\nfor name in {modules(miners)!r}: importlib.import_module(name)\nprint('all')"
    assert run(code) == "all\n"


def test_type_checkers_imports_count_at_the_wall() -> None:
    """An import under TYPE_CHECKING is a dependency too, and pinq has no exception."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert settings["exclude_type_checking_imports"] is False
    (contract,) = [one for one in settings["contracts"] if one.get("forbidden_modules") == ["miners"]]
    assert contract["source_modules"] == ["pinq"]
    assert "ignore_imports" not in contract


def test_what_is_registered_is_found() -> None:
    """By this installation: both sides' entry points, each of the kind that its user expects."""
    assert plugin("pinq.provider", "simulate", "") is pinq.simulate
    assert plugin("pinq.commands", "secure", "").info.name == "secure"


def test_miners_say_what_is_missing(registered: list[EntryPoint]) -> None:
    """The hook of the provider's side, before any row is looked at."""
    rows = patients(30, 0)
    with pytest.raises(QueryError, match="needs the provider's side: " + re.escape(install_line("provider"))):
        PublicRows(DiffPC45(), SCHEMA, "ill").fit(rows, rows["ill"])


def test_two_that_register_the_same_are_named(registered: list[EntryPoint]) -> None:
    registered += [EntryPoint("secure", value, "pinq.commands") for value in ("one:A", "other:B")]
    with pytest.raises(
        QueryError,
        match=r"several installed packages register `secure` in the group `pinq\.commands`: one:A, other:B",
    ):
        plugin("pinq.commands", "secure", "")


def test_an_analyst_does_not_wait_for_pandas() -> None:
    """It takes longer to load than all that a handle needs; only frames load it."""
    code = "import sys, pinq.analyst.client, miners; miners.DiffPC45; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("origin", "line"),
    [
        (None, "pip install 'pinq-miners[server]'"),
        (
            {"url": "file:///home/a%20b/pinq", "dir_info": {"editable": True}},
            "pip install --editable '/home/a b/pinq[server]'",
        ),
        (
            {"url": f"file://{Path(__file__).parent}", "dir_info": {}},
            f"pip install 'pinq-miners[server] @ file://{Path(__file__).parent}'",
        ),
        (
            {"url": "file:///a/folder/that%20is%20gone", "dir_info": {}},
            "pip install 'pinq-miners[server] @ ADDRESS OF ITS WHEEL OR CLONE'",
        ),
        (
            {"url": "https://host/pinq_miners-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'pinq-miners[server] @ https://host/pinq_miners-0.1.0-py3-none-any.whl'",
        ),
        (
            {"url": "https://host/pinq.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}},
            "pip install 'pinq-miners[server] @ git+https://host/pinq.git'",
        ),
    ],
)
def test_the_line_that_installs_an_extra_names_where_the_package_came_from(
    origin: dict[str, object] | None, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index needs the name alone; a clone, an archive and a repository are named by their address."""
    if origin is not None:
        (tmp_path / "direct_url.json").write_text(json.dumps(origin), encoding="utf-8")
    monkeypatch.setattr(pinq.public.plugins, "distribution", lambda name: PathDistribution(tmp_path))
    assert install_line("server") == line


def test_a_folder_of_modules_has_no_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinq.public.plugins, "PACKAGE", "a-package-that-nobody-installed")
    assert install_line("plot") == "pip install 'a-package-that-nobody-installed[plot]'"
