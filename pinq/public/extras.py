# SPDX-License-Identifier: Apache-2.0
"""``optional`` imports what only an extra installs, or says which line installs it.

The base install is what an analyst needs; each extra of ``pyproject.toml`` brings the modules
listed here.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

__all__ = ["extra_of", "install_line", "optional"]

EXTRAS = {
    "provider": ("duckdb", "opendp", "sqlalchemy", "yaml", "pyarrow", "scipy"),
    "server": ("fastapi", "fastapi_offline", "uvicorn", "prometheus_client", "starlette", "jinja2"),
    "secure": ("mpyc", "gmpy2"),
    "spark": ("pyspark",),
    "postgresql": ("psycopg",),
    "plot": ("matplotlib", "scipy"),
    "arrow": ("pyarrow",),
    "sklearn": ("sklearn",),
}


def optional(module: str, extra: str, need: str) -> ModuleType:
    """Imports a module that an extra brings.

    Args:
        module: Its name, ``matplotlib.pyplot``.
        extra: The extra that brings it where this is needed.
        need: What needs what, the beginning of the error: "drawing a tree needs matplotlib".

    Raises:
        ModuleNotFoundError: It is not installed; the error says which line installs it.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if _package(error.name) not in EXTRAS[extra]:
            raise
        raise ModuleNotFoundError(f"{need}: {install_line(extra)}", name=error.name) from None


def extra_of(module: str | None) -> str | None:
    """Returns the first extra that brings a module's package; None for one that no extra brings."""
    return next((extra for extra, packages in EXTRAS.items() if _package(module) in packages), None)


def install_line(extra: str) -> str:
    """Returns the line that installs an extra."""
    return f"pip install 'pinq-miners[{extra}]'"


def _package(module: str | None) -> str:
    """Returns the first part of a module's name, empty where there is none."""
    return (module or "").partition(".")[0]
