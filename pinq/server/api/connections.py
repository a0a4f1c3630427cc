# SPDX-License-Identifier: Apache-2.0
"""A server's connections: accepted under limits, strict about requests, closed when silent."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pinq.server.api.admission import Admission, Held, network
from pinq.server.api.limits import Settings

__all__ = ["Acceptor", "Connection"]

MAX_HEADER_BYTES, MAX_HEADERS = 2**16, 100
ACCEPT_AGAIN_SECONDS = 0.1  # after the system had no more files, say


class _Strict(h11.Connection):
    """Refuses a request with too many headers, or one that says its length in two ways.

    A proxy may have believed the other length. A response's head waits for what follows it: one
    write, one TLS record and one look of the client's for both.

    References:
        RFC 9112, sec. 6.1: a server closes the connection after such a request.
    """

    _head: tuple[bytes, ...] = ()

    def send_with_data_passthrough(self, event: h11.Event) -> list[bytes] | None:
        """What is to be written for an event: nothing for a response's head alone."""
        written = super().send_with_data_passthrough(event)
        if written is not None:
            written, self._head = [*self._head, *written], ()
            if isinstance(event, h11.Response):
                written, self._head = [], tuple(written)
        return written

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next event, of requests with one length and a bounded number of headers."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = [name for name, _ in event.headers]
            if b"content-length" in names and b"transfer-encoding" in names:
                raise h11.RemoteProtocolError("a request has both Content-Length and Transfer-Encoding")
            size = sum(len(name) + len(value) for name, value in event.headers)
            if len(names) > MAX_HEADERS or size > MAX_HEADER_BYTES:
                raise h11.RemoteProtocolError("a request has too many headers", 431)
        return event


class Connection(H11Protocol):
    """One connection, which says whose turn it is, and whose client has so long to speak.

    uvicorn's own protocol times only what is idle after an answer. This one also times what never
    finishes a request's headers, or trickles on after an answer.

    Attributes:
        header_seconds: How long headers may take, from the connection's or the request's first byte.
        admission, held: Where it is held, and as what.
    """

    header_seconds: float
    admission: Admission
    held: Held
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.conn = _Strict(h11.SERVER, self.config.h11_max_incomplete_event_size or MAX_HEADER_BYTES)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._take_turns()
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._take_turns()

    def connection_lost(self, exc: Exception | None) -> None:
        self.admission.release(self.held)
        self._forget()
        super().connection_lost(exc)

    def _take_turns(self) -> None:
        """Says whether the client's turn has come, or the server's."""
        self.admission.turn(self.held, waits=self.conn.their_state in (h11.IDLE, h11.SEND_BODY))

    def _watch(self) -> None:
        """Starts the clock while the client owes something, stops it once it does not."""
        trickles = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
        if self.conn.their_state is not h11.IDLE and not trickles:
            self._forget()
        elif self._late is None and not self.transport.is_closing():
            self._late = self.loop.call_later(self.header_seconds, self.transport.abort)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class Acceptor:
    """Accepts the connections of one socket, as far as they are admitted.

    They count from the first byte on, before any TLS handshake: what shakes hands for ever holds a
    file of the process too.

    Args:
        listening: Listens already.
        make: Makes the protocol of a connection.
        tls: None for plain HTTP.
        settings: Limits.
    """

    def __init__(
        self, listening: socket.socket, make: Callable[[], Connection], tls: ssl.SSLContext | None, settings: Settings
    ) -> None:
        listening.setblocking(False)
        self._listening, self._make, self._tls, self._settings = listening, make, tls, settings
        self._admission = Admission(settings.connections, settings.connections_of_address)
        self._opening = set[asyncio.Task[None]]()
        self._accepting = asyncio.create_task(self._accept())

    def close(self) -> None:
        """Accepts no more; the connections that are open stay, handshakes end."""
        for task in (self._accepting, *self._opening):
            task.cancel()

    async def wait_closed(self) -> None:
        """Waits for the end of what ``close`` ended."""
        await asyncio.gather(self._accepting, *self._opening, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, client = await loop.sock_accept(self._listening)
            except OSError:
                await asyncio.sleep(ACCEPT_AGAIN_SECONDS)
                continue
            held = self._admission.admit(network(client[0]), partial(_shut, accepted))
            if held is None:
                accepted.close()
                continue
            opening = asyncio.create_task(self._open(accepted, held))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket, held: Held) -> None:
        """Shakes hands, and hands over to the protocol, which releases what is held."""

        def made() -> Connection:
            connection = self._make()
            connection.admission, connection.held = self._admission, held
            connection.header_seconds = self._settings.header_seconds
            return connection

        patience = None if self._tls is None else self._settings.header_seconds
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                made, accepted, ssl=self._tls, ssl_handshake_timeout=patience
            )
        except OSError:  # no TLS, or none in time
            self._admission.release(held)
            accepted.close()


def _shut(ending: socket.socket) -> None:
    """Ends a connection whatever it does: its transport finds it closed by the other side."""
    with suppress(OSError):
        ending.shutdown(socket.SHUT_RDWR)
