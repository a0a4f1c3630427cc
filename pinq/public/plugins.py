# SPDX-License-Identifier: Apache-2.0
"""Optional code: ``plugin`` loads the code that a package registered, ``optional`` the code of an extra.

The provider's side and the miners may not import each other. Each finds the code of the other by
entry points:

- ``secure`` and ``demo`` in the group ``pinq.commands``: the commands ``pinq secure ...`` and ``pinq demo``
- ``simulate`` in the group ``pinq.provider``: ``pinq.simulate``, for miners that try settings on
  dummy rows
- ``miners`` in the group ``pinq.provider``: the package of that name, for audits that make a stored
  model again, and for commands that offer its tables and fronts
- ``miners`` in the group ``pinq.selftest``: a name and a ``miners.canaries.Fit`` for each miner that
  the provider's ``pinq selftest`` fits
- ``open`` in the group ``pinq.workbench``: the function of the command ``pinq workbench``

Each extra of ``pyproject.toml`` brings the modules listed here; an error names the line that installs it.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote

from pinq.errors import QueryError


@cache
def plugin(group: str, name: str, missing: str) -> Any:
    """Loads the one object that is registered in a group under a name.

    ``missing`` is the error's first sentence if there is none.

    Raises:
        QueryError: No package registers it, or several do.
    """
    registered = tuple(entry_points(group=group, name=name))
    if not registered:
        raise QueryError(
            f"{missing} No installed package registers `{name}` in the group `{group}`; "
            "a checkout is installed with pip install -e."
        )
    if len(registered) > 1:
        homes = ", ".join(sorted(entry.value for entry in registered))
        raise QueryError(
            f"several installed packages register `{name}` in the group `{group}`: {homes}. Keep one of them."
        )
    return registered[0].load()


def room_of_miners(room: str) -> ModuleType:
    """Imports a module of the package that is registered as ``miners``: ``tables``, ``fronts.sql``."""
    miners = plugin("pinq.provider", "miners", "This needs the package `miners`.")
    return import_module(f"{miners.__name__}.{room}")


PACKAGE = "pinq-miners"
EXTRAS = {
    "provider": ("duckdb", "yaml", "pyarrow", "scipy"),
    "server": ("uvicorn", "prometheus_client", "starlette"),
    "secure": ("gmpy2",),
    "spark": ("pyspark",),
    "postgresql": ("psycopg",),
    "plot": ("matplotlib", "scipy"),
    "arrow": ("pyarrow",),
    "workbench": ("fastapi", "nicegui"),
    "sklearn": ("sklearn",),
    "excel": ("python_calamine",),
    "statistical": ("pyreadstat",),
    "oidc": ("joserfc",),
    "heads": ("cryptography",),
    "sql": ("sqlglot",),
    "agents": ("mcp", "anyio"),
}


def optional(module: str, extra: str, need: str) -> ModuleType:
    """Imports a module of an extra; ``need`` begins the error: "drawing a tree needs matplotlib".

    Raises:
        ModuleNotFoundError: It is not installed; the error has the line that installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if _package(error.name) not in EXTRAS[extra]:
            raise
        raise ModuleNotFoundError(f"{need}: {install_line(extra)}", name=error.name) from None


def extra_of(module: str | None) -> str | None:
    """The first extra that brings a module's package; None for none."""
    return next((extra for extra, packages in EXTRAS.items() if _package(module) in packages), None)


def install_line(extra: str) -> str:
    """The line that installs an extra, from the origin of this package.

    The metadata of a package keeps the address of its source (the file ``direct_url.json``). A package from an index
    has no such file. The folder of a wheel or of a clone may be gone; the line then leaves its place open.
    """
    try:
        origin = json.loads(distribution(PACKAGE).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # a folder of modules on Python's path
        origin = {}
    url = origin.get("url", "")
    if origin.get("dir_info", {}).get("editable"):
        return f"pip install --editable '{unquote(url.removeprefix('file://'))}[{extra}]'"
    source = f"{origin['vcs_info']['vcs']}+{url}" if "vcs_info" in origin else url
    if url.startswith("file://") and not Path(unquote(url.removeprefix("file://"))).exists():
        source = "ADDRESS OF ITS WHEEL OR CLONE"
    return f"pip install '{PACKAGE}[{extra}]{source and ' @ '}{source}'"


def _package(module: str | None) -> str:
    """The first part of a module's name; empty for none."""
    return (module or "").partition(".")[0]
