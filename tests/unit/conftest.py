# SPDX-License-Identifier: Apache-2.0
"""Unit tests touch neither disk nor network nor another process: one that does fails, and belongs into tests/integration."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pinq.policy.policy import Policy
from tests.support.tables.tiny_tables import policy_in

OUTSIDE = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.link",
    "os.mkdir",
    "os.posix_spawn",
    "os.remove",
    "os.rename",
    "os.spawn",
    "os.symlink",
    "os.system",
    "os.truncate",
    "socket.bind",
    "socket.connect",
    "socket.getaddrinfo",
    "subprocess.Popen",
}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
# The engine makes an empty folder for rows that would spill, and takes it away again.
SPILLS = os.path.join(tempfile.gettempdir(), "pinq-")
# Of libraries, made once: bytecode, examples that failed, fonts.
CACHES = ("__pycache__", ".hypothesis", "matplotlib", "fontlist")
LOOKED_AT = OUTSIDE | {"open", "sqlite3.connect", "socket.__new__"}


class Watch:
    """Notes what the interpreter says that it does outside of itself, while it is ``on``.

    An audit hook cannot be taken back, so there is one for the whole session. It sees what Python
    does, and nothing that a library does beneath it.
    """

    def __init__(self) -> None:
        self.on, self.seen = False, list[str]()

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.on and event in LOOKED_AT and leaves_the_process(event, arguments):
            self.seen.append(f"{event}{arguments}")


def leaves_the_process(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether an audit event is of a file that is written, a socket, or another process."""
    first = str(arguments[0]) if arguments else ""
    if any(cache in first for cache in CACHES):
        return False
    if event == "open":  # by a number: what is open already
        return (
            not isinstance(arguments[0], int)
            and isinstance(arguments[2], int)
            and bool(arguments[2] & WRITES)
            and first != os.devnull
        )
    if event == "sqlite3.connect":
        return first != ":memory:"
    if event == "socket.__new__":  # an event loop wakes itself by a pair of nameless ones
        return arguments[1] != socket.AF_UNIX
    return event in OUTSIDE and not (event == "os.mkdir" and first.startswith(SPILLS))


WATCH = Watch()
sys.addaudithook(WATCH)


@pytest.fixture(autouse=True)
def nothing_outside_is_touched() -> Iterator[None]:
    """Fails a test, or one of its fixtures, that writes a file, opens a socket or starts a process."""
    WATCH.on, WATCH.seen = True, []
    try:
        yield
    finally:
        WATCH.on = False
    assert not WATCH.seen, f"a unit test touched what is outside: {WATCH.seen}"


@pytest.fixture
def tiny_policy() -> Policy:
    """The tiny policy without a folder."""
    return policy_in(Path())


@pytest.fixture
def watched() -> Iterator[list[str]]:
    """What was seen so far; forgotten afterwards, for tests of the watch itself."""
    yield WATCH.seen
    WATCH.seen.clear()
