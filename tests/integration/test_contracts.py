# SPDX-License-Identifier: Apache-2.0
"""What the architecture promises: import directions, public names, light imports."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from typing import Any

import pytest

import miners
import miners.statistics
import miners.tables
import pinq
import pinq_secure
from pinq.public.plugins import install_line
from tests.support.house.checkout import ROOT

MODULES = sorted(
    info.name
    for package in (pinq, miners)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    if not info.name.endswith("__main__")
)


def test_import_directions() -> None:
    """Every contract of pyproject.toml holds."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "package",
    [pinq, miners, pinq_secure, miners.statistics, miners.tables],
    ids=lambda package: package.__name__,
)
def test_a_notebook_shows_every_public_class(package: Any) -> None:
    """An object that a person makes or gets has a view of its own; an error prints."""
    kinds = [kind for kind in (getattr(package, name) for name in package.__all__) if inspect.isclass(kind)]
    bare = [kind for kind in kinds if not issubclass(kind, BaseException) and not hasattr(kind, "_repr_html_")]
    assert bare == []
    assert pinq.Values("<b>")._repr_html_() == "<pre>Values(column=&#x27;&lt;b&gt;&#x27;)</pre>"
    assert "a &lt; b" in pinq.Categorical(values=("a < b", "c"))._repr_html_()


@pytest.mark.parametrize("package", [pinq, miners, miners.statistics], ids=lambda package: package.__name__)
def test_every_public_name_exists(package: Any) -> None:
    """``__all__`` and ``dir`` list exactly what can be had."""
    for name in package.__all__:
        assert getattr(package, name) is not None
    assert set(package.__all__) <= set(dir(package))


def test_a_public_miner_stands_in_two_lists() -> None:
    """Both name the same: the imports for types, and the homes from which names are imported when they are used."""
    tree = ast.parse(inspect.getsource(miners))
    (typed,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.name: node.module for node in typed.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported == miners._HOMES
    assert miners.__all__ == sorted(imported)


@pytest.mark.parametrize("name", MODULES)
def test_all_is_what_is_defined(name: str) -> None:
    """A module's ``__all__`` names things that exist in it."""
    module = importlib.import_module(name)
    for exported in getattr(module, "__all__", ()):
        assert hasattr(module, exported), f"{name}.{exported}"


def kinds(root: Any) -> set[Any]:
    """A class's subclasses, and theirs, of all modules that are imported."""
    return {kind for child in root.__subclasses__() for kind in {child, *kinds(child)}}


def test_open_is_public_but_not_starred() -> None:
    """``pinq.open`` exists, and a star import leaves the built-in open alone."""
    assert "open" not in pinq.__all__
    assert callable(pinq.open)


@pytest.mark.parametrize("package", ["pinq", "miners"])
def test_importing_a_package_loads_nothing_heavy(package: str) -> None:
    """Importing takes no engine, no noise library, no frames and no estimators with it."""
    heavy = ("duckdb", "opendp", "pandas", "pyarrow", "scipy", "sklearn", "matplotlib")
    code = f"import sys, {package}; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_analysts_face_loads_no_provider_side() -> None:
    """Specs, scores, handles and miners work where nothing that an extra brings can be imported."""
    code = (
        "import sys\n"
        "from pinq.public.plugins import EXTRAS\n"
        "for packages in EXTRAS.values(): sys.modules.update(dict.fromkeys(packages))\n"
        "import pinq.analyst.queryable, pinq.language.queries\n"
        "from pinq import Values, Cuts, Gini, Schema, PrivateQueryable, QueryError\n"
        "from miners import DiffPID3\n"
        "schema = Schema(columns={'a': {'type': 'categorical', 'values': ['x', 'y']}, 'b': {'type': 'categorical', 'values': ['x', 'y']}}, max_rows=10)\n"
        "print(DiffPID3(max_depth=1).plan(schema))\n"
        "try:\n    pinq.open('x', analyst='y')\nexcept ModuleNotFoundError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert install_line("provider") in done.stdout


def test_importing_a_miner_loads_no_engine_and_no_pictures() -> None:
    """Names are imported when they are first used, and what a name needs to be shown or scored not even then."""
    code = """
import sys
from itertools import chain
import miners
from pinq.public.plugins import EXTRAS
assert dir(miners) == sorted(miners.__all__)
assert not {"pandas", "numpy"} & set(sys.modules)
for name in miners.__all__:
    getattr(miners, name)
unwanted = {*chain(*EXTRAS.values())}
unwanted.remove("pyarrow")  # pandas takes it along where it is
assert not unwanted & set(sys.modules)
import pinq
pinq.connect
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("pinq.")}
assert rooms == {"analyst", "errors", "language", "public"}, rooms
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    with pytest.raises(AttributeError, match="no attribute"):
        miners.Nothing  # noqa: B018
