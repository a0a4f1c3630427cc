# SPDX-License-Identifier: Apache-2.0
"""Connections that say nothing, or say it too slowly, on real sockets."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI

from pinq.server.api.limits import Settings
from pinq.server.run import Config
from tests.servers import Certificate

REQUEST = b"GET /openapi.json HTTP/1.1\r\nHost: here\r\n"


@contextmanager
def running(**tls: Any) -> Iterator[int]:
    """A server that gives headers half a second and an address eight connections; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(Config(FastAPI(), Settings(header_seconds=0.5, connections=8), **tls))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join()


@pytest.fixture
def port() -> Iterator[int]:
    with running() as port:
        yield port


@pytest.fixture(scope="module")
def tls_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    certificate = Certificate.make(tmp_path_factory.mktemp("tls"))
    with running(ssl_certfile=certificate.cert, ssl_keyfile=certificate.key) as port:
        yield port


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


def test_a_handshake_that_does_not_come_is_not_waited_for(tls_port: int) -> None:
    """As long as headers may take, and not the minute of asyncio."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", tls_port)) as silent:
        assert closed(silent)
        assert time.monotonic() - began < 20
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", tls_port)) as quick, context.wrap_socket(quick) as secure:
        secure.sendall(REQUEST + b"\r\n")
        assert answered(secure)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the old versions, which are what is tested
@pytest.mark.parametrize(
    "version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2], ids=["1.0", "1.1", "1.2"]
)
def test_old_versions_of_tls_are_refused(tls_port: int, version: ssl.TLSVersion) -> None:
    """A greeting of TLS 1.1 or less ends the connection; the same greeting of TLS 1.2 begins a handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # else it could not even greet
    context.minimum_version = context.maximum_version = version
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(coming, going).do_handshake()
    handshake = b"\x16"  # the type of its records
    with socket.create_connection(("127.0.0.1", tls_port)) as connection:
        greeting = going.read()
        assert greeting.startswith(handshake)
        connection.sendall(greeting)
        if version is ssl.TLSVersion.TLSv1_2:
            assert connection.recv(1) == handshake
        else:
            connection.settimeout(20)
            with suppress(ConnectionError):
                assert connection.recv(1) != handshake
