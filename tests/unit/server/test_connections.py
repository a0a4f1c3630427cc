# SPDX-License-Identifier: Apache-2.0
"""What a connection writes."""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import ssl

import h11
import pytest

from pinq.server.api.connections import _Strict
from pinq.server.run import TLS_BUFFER


def test_a_response_is_written_at_once() -> None:
    """Its head waits for its body, and the body of the next one has its own head; an interim response waits for nothing."""
    connection = _Strict(h11.SERVER)
    for number in (b"1", b"2"):
        connection.receive_data(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n")
        assert isinstance(connection.next_event(), h11.Request)
        interim = h11.InformationalResponse(status_code=100, headers=[])
        assert connection.send(interim) == b"HTTP/1.1 100 \r\n\r\n"
        assert isinstance(connection.next_event(), h11.EndOfMessage)
        assert connection.send(h11.Response(status_code=200, headers=[("Content-Length", "1")])) == b""
        assert connection.send(h11.Data(data=number)) == b"HTTP/1.1 200 \r\nContent-Length: 1\r\n\r\n" + number
        assert connection.send(h11.EndOfMessage()) == b""
        connection.start_next_cycle()


def test_a_response_without_a_body_is_written_when_it_ends() -> None:
    """No head is kept."""
    connection = _Strict(h11.SERVER)
    connection.receive_data(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    connection.next_event(), connection.next_event()
    assert connection.send(h11.Response(status_code=204, headers=[])) == b""
    assert (connection.send(h11.EndOfMessage()) or b"").startswith(b"HTTP/1.1 204 \r\n")
    assert connection.send(h11.ConnectionClosed()) is None


def test_a_tls_connection_reads_into_as_much_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """This Python's asyncio takes its buffer's size from where the server sets it."""
    monkeypatch.setattr(asyncio.sslproto.SSLProtocol, "max_size", TLS_BUFFER)

    async def buffer() -> int:
        loop, context = asyncio.get_running_loop(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        protocol = asyncio.sslproto.SSLProtocol(loop, asyncio.Protocol(), context, loop.create_future(), True)
        size = len(protocol.get_buffer(-1))
        protocol.connection_lost(None)
        return size

    assert asyncio.run(buffer()) == TLS_BUFFER
