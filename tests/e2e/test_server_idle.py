# SPDX-License-Identifier: Apache-2.0
"""Connections that say nothing, or say it too slowly, on real sockets."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
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
    """A server that gives headers half a second, an address eight connections, all twenty; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(
            Config(FastAPI(), Settings(header_seconds=0.5, connections=20, connections_of_address=8), **tls)
        )
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


def connected(port: int, host: int = 1) -> socket.socket:
    """A connection from one of this machine's addresses."""
    return socket.create_connection(("127.0.0.1", port), source_address=(f"127.0.0.{host}", 0))


def asks(connection: socket.socket) -> bool:
    """Whether a request gets its answer."""
    connection.settimeout(20)
    connection.sendall(REQUEST + b"\r\n")
    return answered(connection)


@contextmanager
def open_together(connections: list[socket.socket]) -> Iterator[list[socket.socket]]:
    """Closes them in the end."""
    with ExitStack() as stack:
        yield [stack.enter_context(connection) for connection in connections]


def test_an_address_with_too_many_gives_up_its_idlest(port: int) -> None:
    """The ninth connection of an address is served; the one that was idle longest ends, and no other."""
    with open_together([connected(port) for _ in range(8)]) as kept:
        assert all(map(asks, kept))
        with connected(port) as one_more, connected(port, host=2) as other:
            assert asks(one_more)
            assert asks(other)
            assert closed(kept[0])
            assert all(map(asks, kept[1:]))


def test_addresses_that_hold_all_connections_keep_nobody_out(port: int) -> None:
    """Whether they ask, trickle or say nothing: a newcomer is served, and the most crowded address pays."""
    hosts = [2, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5]
    with open_together([connected(port, host) for host in hosts]) as kept:
        for connection in kept[::2]:
            assert asks(connection)
        with connected(port) as newcomer:
            assert asks(newcomer)
            assert any(map(closed_now, kept[1:9]))
            assert not any(map(closed_now, [kept[0], *kept[9:]]))


def test_a_crowd_without_tls_keeps_nobody_out(tls_port: int) -> None:
    """Connections count before their handshake."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    hosts = [2] * 8 + [3] * 8 + [4] * 4
    with (
        open_together([connected(tls_port, host) for host in hosts]),
        connected(tls_port) as newcomer,
        context.wrap_socket(newcomer) as secure,
    ):
        assert asks(secure)


def closed_now(connection: socket.socket) -> bool:
    """Whether the other side has ended it."""
    connection.setblocking(False)
    try:
        return not connection.recv(65536)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("headers", [[b"X: " + b"y" * 70_000], [b"X: y"] * 101], ids=["long", "many"])
def test_headers_are_bounded(port: int, headers: list[bytes]) -> None:
    """In one piece too: more than 64 KiB or a hundred of them are refused, and the connection ends."""
    with connected(port) as connection:
        connection.sendall(b"\r\n".join([REQUEST.rstrip(), *headers, b"", b""]))
        connection.settimeout(20)
        assert connection.recv(65536).startswith(b"HTTP/1.1 400")
        assert closed(connection)


def test_idle_and_trickling_connections_are_closed(port: int) -> None:
    """Silent at once, trickling from the start, and trickling after an answer: each ends."""
    address = ("127.0.0.1", port)
    with open_together([connected(port) for _ in range(8)]) as idle:
        assert all(map(closed, idle))
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
        assert time.monotonic() - began < 45
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
