# SPDX-License-Identifier: Apache-2.0
"""Connections that nobody speaks on: closed soon, and only so many from one address."""

from __future__ import annotations

import asyncio
from collections import Counter

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pinq.server.api.limits import Settings

__all__ = ["connections"]


MAX_HEADERS = 2**16  # bytes


class _OneLength(h11.Connection):
    """Refuses a request that says its length in two ways: a proxy may have believed the other.

    References:
        RFC 9112, sec. 6.1: a server closes the connection after such a request.
    """

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next event, of requests with one length."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            names = {name for name, _ in event.headers}
            if {b"content-length", b"transfer-encoding"} <= names:
                raise h11.RemoteProtocolError("a request has both Content-Length and Transfer-Encoding")
        return event


def connections(settings: Settings) -> type[H11Protocol]:
    """Makes the protocol of a server's connections, under its limits."""
    inside: Counter[str] = Counter()

    class Connection(H11Protocol):
        """Also times what never finishes a request's headers, or trickles on after an answer.

        uvicorn's own protocol times only what is idle after an answer.
        """

        _address = "-"
        _late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self.conn = _OneLength(h11.SERVER, self.config.h11_max_incomplete_event_size or MAX_HEADERS)
            self._address = self.client[0] if self.client else "-"
            inside[self._address] += 1
            if inside[self._address] > settings.connections:
                transport.abort()
            else:
                self._watch()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            inside[self._address] -= 1
            if not inside[self._address]:
                del inside[self._address]
            self._forget()
            super().connection_lost(exc)

        def _watch(self) -> None:
            """Starts the clock while the client owes something, stops it once it does not."""
            trickles = self.conn.our_state is h11.DONE and self.conn.their_state is h11.SEND_BODY
            if self.conn.their_state is not h11.IDLE and not trickles:
                self._forget()
            elif self._late is None and not self.transport.is_closing():
                self._late = self.loop.call_later(settings.header_seconds, self.transport.abort)

        def _forget(self) -> None:
            if self._late is not None:
                self._late.cancel()
                self._late = None

    return Connection
