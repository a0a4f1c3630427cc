# SPDX-License-Identifier: Apache-2.0
"""The watch over unit tests sees what it is there for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest


def write() -> None:
    with tempfile.TemporaryFile("w") as file:
        file.write("a row")


def connect() -> None:
    with socket.socket() as outside:
        outside.settimeout(0.01)
        outside.connect_ex(("127.0.0.1", 9))


@pytest.mark.parametrize(
    "act",
    [
        write,
        connect,
        lambda: subprocess.run([sys.executable, "-c", ""], check=True),
        lambda: sqlite3.connect("file:nothing?mode=ro&vfs=unix-none", uri=True),
        lambda: Path("/proc/none/folder").mkdir(),
    ],
    ids=["file", "socket", "process", "database", "folder"],
)
def test_what_is_outside_is_seen(act: Callable[[], object], watched: list[str]) -> None:
    """Also where it fails."""
    with contextlib.suppress(OSError, sqlite3.Error):
        act()
    assert watched


def test_what_is_inside_is_not(watched: list[str]) -> None:
    """Reading, an event loop, a database in memory."""
    Path(__file__).read_text(encoding="utf-8")
    asyncio.run(asyncio.sleep(0))
    sqlite3.connect(":memory:").close()
    assert not watched
