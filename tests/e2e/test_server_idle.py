# SPDX-License-Identifier: Apache-2.0
"""What uvicorn bounds of connections where no proxy stands in front, on real sockets."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.processes.servers import Certificate, Server, publish, serving, token_of

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: here\r\n"
MOST = 10


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("idle")
    policy = publish(folder)
    token_of(policy)
    with serving(
        policy, folder=folder, certificate=Certificate.make(folder), options=("--connections", str(MOST))
    ) as running:
        yield running


def address(server: Server) -> tuple[str, int]:
    host, port = server.root.removeprefix("https://").split(":")
    return host, int(port)


def connected(server: Server) -> ssl.SSLSocket:
    assert server.certificate is not None
    context = ssl.create_default_context(cafile=str(server.certificate.authority))
    return context.wrap_socket(socket.create_connection(address(server), 20), server_hostname="127.0.0.1")


@pytest.mark.parametrize("header", [b"X: " + b"y" * 70_000])
def test_headers_are_bounded(server: Server, header: bytes) -> None:
    """More than 64 KiB without an end are refused, and the connection ends.

    With an end that arrives in the same read they may be taken: what waits is bounded, not what is whole.
    """
    with connected(server) as connection:
        connection.sendall(REQUEST + header)
        got = b""
        while piece := connection.recv(65536):
            got += piece
        assert got.startswith(b"HTTP/1.1 400")


def test_more_connections_than_allowed_are_told_to_come_again(server: Server) -> None:
    """503 while too many are open; answered once they are closed."""
    with ExitStack() as stack:
        for _ in range(MOST):
            stack.enter_context(connected(server))
        with connected(server) as one_more:
            one_more.sendall(REQUEST + b"\r\n")
            assert one_more.recv(65536).startswith(b"HTTP/1.1 503")
    with server.http() as client:
        assert client.get("/healthz").status_code == 200


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the old versions, which are what is tested
@pytest.mark.parametrize(
    "version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1, ssl.TLSVersion.TLSv1_2], ids=["1.0", "1.1", "1.2"]
)
def test_old_versions_of_tls_are_refused(server: Server, version: ssl.TLSVersion) -> None:
    """A greeting of TLS 1.1 or less ends the connection; the same greeting of TLS 1.2 begins a handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("DEFAULT:@SECLEVEL=0")  # else it could not even greet
    context.minimum_version = context.maximum_version = version
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(coming, going).do_handshake()
    handshake = b"\x16"  # the type of its records
    with socket.create_connection(address(server)) as connection:
        connection.sendall(going.read())
        connection.settimeout(20)
        if version is ssl.TLSVersion.TLSv1_2:
            assert connection.recv(1) == handshake
        else:
            with suppress(ConnectionError):
                assert connection.recv(1) != handshake


def test_few_files_bound_connections_and_the_log_says_so(tmp_path: Path) -> None:
    """Datasets have files open too."""
    from pinq.server import run
    from pinq.server.log import RequestLog

    file = tmp_path / "log"
    log = RequestLog(file)
    assert run._room(100, log) == 100
    assert not file.read_text()
    fewer = run._room(10**9, log)
    assert 1 <= fewer < 10**9
    assert f'"connections": {fewer}' in file.read_text()
    log.close()
