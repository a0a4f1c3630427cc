# SPDX-License-Identifier: Apache-2.0
"""How the tables of a test are asked: in this process, or through a server of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from pinq.analyst.client import connect
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import Unavailable
from pinq.provider.local import open as open_here
from pinq.provider.selftest.worlds import ANALYST, World

__all__ = ["Door", "in_process", "through_a_server"]

Door = Callable[[tuple[World, ...]], AbstractContextManager[list[PrivateQueryable]]]
"""Opens a handle on each world."""

MAIN = "from pinq.cli.main import main; main()"
STARTING = 60.0  # seconds


@contextmanager
def in_process(worlds: tuple[World, ...]) -> Iterator[list[PrivateQueryable]]:
    """Opens each world in this process."""
    handles = [open_here(world.policy, analyst=ANALYST) for world in worlds]
    try:
        yield handles
    finally:
        for handle in handles:
            handle.close()


@contextmanager
def through_a_server(worlds: tuple[World, ...]) -> Iterator[list[PrivateQueryable]]:
    """Serves all worlds by ``pinq serve`` on this machine, and connects to each."""
    port = _free_port()
    command = [sys.executable, "-c", MAIN, "serve", *(str(world.policy) for world in worlds)]
    log = worlds[0].policy.with_suffix(".log")
    with log.open("wb") as output:
        server = subprocess.Popen([*command, "--port", str(port), "--insecure-http"], stdout=output, stderr=output)
    try:
        _wait(port, server, log)
        root = f"http://127.0.0.1:{port}"
        handles = [
            connect(f"{root}/{world.policy.stem}", token=world.token, insecure_http=True, timeout=600.0)
            for world in worlds
        ]
        yield handles
        for handle in handles:
            handle.close()
    finally:
        server.terminate()
        server.wait(timeout=STARTING)


def _wait(port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + STARTING
    while time.monotonic() < end and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise Unavailable(f"The server of the test did not start: {log.read_text(errors='replace')[-500:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
