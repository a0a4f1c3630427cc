# SPDX-License-Identifier: Apache-2.0
"""Connections that never end their TLS handshake: they are few, and keep nobody out."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import urlsplit

from pinq.server.handshakes import HALF_OPEN
from tests.support.processes.servers import Certificate, ask, publish, serving, token_of

MORE = 40


def ended(connection: socket.socket, until: float) -> bool:
    """Whether the server ends a connection before a moment."""
    connection.settimeout(max(0.01, until - time.monotonic()))
    with suppress(TimeoutError):
        try:
            return connection.recv(1) == b""
        except ConnectionError:
            return True
    return False


def test_silent_connections_are_bounded_and_keep_nobody_out(tmp_path: Path) -> None:
    """The next handshake ends the oldest one; an open connection stays, and strangers who speak no TLS end alone."""
    policy, certificate = publish(tmp_path), Certificate.make(tmp_path)
    words = {"Authorization": f"Bearer {token_of(policy)}"}
    with serving(policy, folder=tmp_path, certificate=certificate) as server, ExitStack() as held:
        where, files = ("127.0.0.1", urlsplit(server.root).port), Path(f"/proc/{server.process.pid}/fd")
        early = held.enter_context(server.http(**words))
        assert ask(early).status_code == 200
        before = len(os.listdir(files)) if files.exists() else 0
        silent = [held.enter_context(socket.create_connection(where, 30)) for _ in range(HALF_OPEN + MORE)]
        for connection in silent[:5]:
            with suppress(OSError):  # it was ended already
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
        soon = time.monotonic() + 5  # long before their timeout
        assert sum(ended(connection, soon) for connection in silent[:MORE]) > MORE - 5
        with server.http(**words) as client:
            assert ask(client).status_code == 200
        assert ask(early).status_code == 200
        if files.exists():
            assert len(os.listdir(files)) <= before + HALF_OPEN + 10
        began = time.monotonic()
        assert server.stop() in (0, -15)
        assert time.monotonic() - began < 10  # and not until a client that only waits has answered
    assert "Traceback" not in server.log.read_text()
    assert "never retrieved" not in server.log.read_text()


def test_each_of_several_processes_bounds_them(tmp_path: Path) -> None:
    """uvicorn hands each process the socket, which must come to the same loop."""
    policy, certificate = publish(tmp_path), Certificate.make(tmp_path)
    words = {"Authorization": f"Bearer {token_of(policy)}"}
    with serving(policy, folder=tmp_path, certificate=certificate, options=("--workers", "2")) as server:
        where = ("127.0.0.1", urlsplit(server.root).port)
        with ExitStack() as held:
            silent = [held.enter_context(socket.create_connection(where, 30)) for _ in range(2 * HALF_OPEN + MORE)]
            with server.http(**words) as client:
                assert ask(client).status_code == 200
            soon = time.monotonic() + 5
            assert sum(ended(connection, soon) for connection in silent) >= MORE
