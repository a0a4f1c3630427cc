# SPDX-License-Identifier: Apache-2.0
"""Connections that say nothing, or say it too slowly, on real sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn
from fastapi import FastAPI

from pinq.server.connections import connections
from pinq.server.limits import Settings

REQUEST = b"GET /openapi.json HTTP/1.1\r\nHost: here\r\n"


@pytest.fixture
def port() -> Iterator[int]:
    """A server that gives headers half a second and an address eight connections."""
    listening = socket.create_server(("127.0.0.1", 0))
    kind = connections(Settings(header_seconds=0.5, connections=8))
    server = uvicorn.Server(uvicorn.Config(FastAPI(), http=kind, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join()
    listening.close()


def closed(connection: socket.socket, seconds: float = 20) -> bool:
    """Whether the other side ends it in time."""
    connection.settimeout(seconds)
    try:
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def answered(connection: socket.socket) -> bool:
    """Reads one whole answer; whether it is a good one."""
    got = b""
    while not got.endswith(b"}}"):
        got += connection.recv(65536) or b"}}"
    return got.startswith(b"HTTP/1.1 200")


def trickle(connection: socket.socket, seconds: float = 20) -> bool:
    """Whether the other side ends it while header after header comes."""
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            connection.sendall(b"X: y\r\n")
            time.sleep(0.05)
    except ConnectionError:
        return True
    return False


def test_idle_and_trickling_connections_are_closed(port: int) -> None:
    """Silent at once, trickling from the start, and trickling after an answer: each ends, and the address's places come back."""
    address = ("127.0.0.1", port)
    idle = [socket.create_connection(address) for _ in range(8)]
    with socket.create_connection(address) as one_more:
        assert closed(one_more)
    assert all(closed(one) for one in idle)
    for one in idle:
        one.close()
    with socket.create_connection(address) as slow:
        slow.sendall(REQUEST)
        assert trickle(slow)
    with socket.create_connection(address) as kept:
        kept.sendall(REQUEST + b"\r\n")
        assert answered(kept)
        time.sleep(1)  # longer than headers may take: between requests nothing is owed
        kept.sendall(REQUEST + b"\r\n")
        assert answered(kept)
        kept.sendall(REQUEST)
        assert trickle(kept)
