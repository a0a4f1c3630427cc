# SPDX-License-Identifier: Apache-2.0
"""What `timeout` means, retries included; and what is said where nobody answers."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import httpx
import pytest
import trustme

import pinq
from pinq.analyst.client import RemoteSession
from pinq.language.queries import Request


@contextmanager
def listening(serve: Callable[[socket.socket], object]) -> Iterator[int]:
    """A port at which every connection is served so, and closed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    serve(connection)

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_where_nobody_listens_opening_is_quick_and_frightens_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the default patience of a minute, a wrong port is told within seconds, and nothing is said of charges."""
    monkeypatch.setattr("pinq.analyst.client.OPENING", 0.3)
    started = time.monotonic()
    with pytest.raises(pinq.Unavailable, match=r"^Nothing listens at http://127\.0\.0\.1:\d+: [^.]*\.$"):
        pinq.connect(f"http://127.0.0.1:{closed_port()}/people", token="pinq_x", insecure_http=True)
    assert time.monotonic() - started < 30  # half of that minute


def test_a_server_that_is_not_pinq_is_asked_for_https() -> None:
    """A server of TLS answers plain HTTP with nothing that is HTTP; the error names the way out."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    said = r"If it uses TLS, the URL must begin with https://\.$"
    with (
        listening(lambda connection: context.wrap_socket(connection, server_side=True)) as port,
        pytest.raises(pinq.Unavailable, match=said),
    ):
        pinq.connect(f"http://127.0.0.1:{port}/people", token="pinq_x", insecure_http=True, timeout=30)


def test_a_server_without_tls_is_named_at_once() -> None:
    """Asked over https:// it is told from one whose certificate is wrong, without waiting."""
    started = time.monotonic()
    refuse = lambda connection: (connection.recv(4096), connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))  # noqa: E731
    with (
        listening(refuse) as port,
        pytest.raises(pinq.Unavailable, match=r"does not speak TLS\. .*`insecure_http`"),
    ):
        pinq.connect(f"https://127.0.0.1:{port}/people", token="pinq_x")
    assert time.monotonic() - started < 30


@pytest.mark.parametrize(
    ("problems", "said"),
    [
        ([httpx.ConnectError("refused")], "Nothing was spent"),
        ([httpx.ReadTimeout("silence")], "If it was charged meanwhile"),
        ([httpx.ReadTimeout("silence"), httpx.ConnectError("refused")], "If it was charged meanwhile"),
    ],
)
def test_a_query_speaks_of_charges_only_where_it_may_have_arrived(
    problems: list[httpx.TransportError], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused connection was never sent anything; an earlier attempt of the same request counts."""
    session = RemoteSession.__new__(RemoteSession)
    session._timeout, session._path, last = 0.3, "/v1/d", problems[-1]

    def fail(_: httpx.Request) -> httpx.Response:
        raise problems.pop(0) if problems else last

    session._client = httpx.Client(base_url="http://127.0.0.1", transport=httpx.MockTransport(fail))
    with pytest.raises(pinq.Unavailable, match=said):
        session._send("POST", "/query", Request(id="x", verb="noisy_count", epsilon="0.1").to_json())


@pytest.mark.parametrize("token", ["ana.token", "Bearer pinq_x", "a" * 43, "pinq_" + "a" * 300])
def test_what_is_no_token_is_told_before_anything_is_sent(token: str) -> None:
    """A path in place of a token, for instance; the text does not repeat what might be a secret."""
    with pytest.raises(
        pinq.QueryError,
        match=r"^`token` is not a token; one looks like pinq_\.\.\..*named by a Path, or by PINQ_TOKEN_FILE\.$",
    ) as refused:
        pinq.connect("https://127.0.0.1:1/people", token=token)
    assert token not in str(refused.value)


def test_the_status_of_a_proxy_is_said_where_nothing_comes_after_it() -> None:
    """A proxy says 503 while its server is busy, then holds the next attempt until the patience ends."""
    served = []

    def proxy(connection: socket.socket) -> None:
        connection.recv(65536)
        served.append(connection)
        if len(served) == 1:
            body = b"<html>busy</html>"
            connection.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        else:
            time.sleep(3)

    with (
        listening(proxy) as port,
        pytest.raises(pinq.Unavailable, match=r"No answer from .* The attempt before was answered 503\."),
    ):
        pinq.connect(f"http://127.0.0.1:{port}/people", token="pinq_x", insecure_http=True, timeout=2)
