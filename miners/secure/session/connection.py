# SPDX-License-Identifier: Apache-2.0
"""``Peer`` is the connection to one other party: frames of a label and bytes."""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
from typing import Protocol, cast

from pinq.errors import PinqError, SessionError

__all__ = ["Listener", "Peer", "json_object"]

CONTROL = -1  # MPyC labels a message by a hash of a tuple, which is never -1
MAX_HELLO = 2**24  # bytes, a session and what its rounds opened
MAX_FRAME = 2**30  # bytes, the shares of as many records as a session may have
HEADER = struct.Struct("<qI")


class Listener(Protocol):
    """Hears what happens on the connections of a party."""

    loop: asyncio.AbstractEventLoop
    stage: str

    def name(self, number: int | None) -> str:
        """Returns what a party is called in messages."""

    def identify(self, tls: ssl.SSLObject | None, expected: int | None) -> int | None:
        """Finds which party is at the other end; -1 and None as in ``Peer.number``."""

    def connected(self, peer: Peer) -> None:
        """Hears that a party is at the other end."""

    def heard(self, peer: Peer, payload: bytes) -> None:
        """Hears a message about the session."""

    def moved(self) -> None:
        """Hears that a message came that the computation waited for."""

    def lost(self, peer: Peer) -> None:
        """Hears that a connection is gone."""

    def fail(self, error: PinqError) -> None:
        """Ends the session."""


class Peer(asyncio.Protocol):
    """The connection to one other party, with MPyC's ``send`` and ``receive``.

    Args:
        listener: Who hears of it.
        expected: The party that was called; None where the other end called.

    Attributes:
        number: The party at the other end; -1 where it has not said so yet, None for nobody of this
            session.
        nbytes_sent: How much of the protocol was sent.
        heard: When something arrived last, by the event loop's clock.
    """

    def __init__(self, listener: Listener, expected: int | None) -> None:
        self._listener, self.number, self.nbytes_sent = listener, expected, 0
        self._transport: asyncio.Transport
        self._data = bytearray()
        # By label: a message that nobody has asked for yet, or a future of whoever waits for it.
        self._arrived: dict[int, bytes] = {}
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self.heard = asyncio.get_running_loop().time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self.number = self._listener.identify(transport.get_extra_info("ssl_object"), self.number)
        if self.number is None:
            self._transport.abort()
        elif self.number >= 0:
            self._listener.connected(self)

    def data_received(self, data: bytes) -> None:
        self.heard = self._listener.loop.time()
        self._data += data
        # Bytes come as the network cuts them: half a frame waits, and several are delivered at
        # once.
        received, start = self._data, 0
        while len(received) - start >= HEADER.size:
            label, size = HEADER.unpack_from(received, start)
            if self.number is None or (self.number < 0 and size > MAX_HELLO):  # a stranger
                self._transport.abort()
                return
            if size > (MAX_HELLO if self._listener.stage == "joining" else MAX_FRAME):
                text = f"{self._listener.name(self.number)} announced a message of {size:,} bytes."
                self._listener.fail(SessionError(text))
                return
            end = start + HEADER.size + size
            if len(received) < end:
                break
            self._deliver(label, bytes(received[start + HEADER.size : end]))
            start = end
        del received[:start]

    def _deliver(self, label: int, payload: bytes) -> None:
        if label == CONTROL:
            self._listener.heard(self, payload)
            return
        waiter = self._waiting.pop(label, None)
        if waiter is None:
            self._arrived[label] = payload
        elif not waiter.done():
            self._listener.moved()
            waiter.set_result(payload)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.number is not None:
            self._listener.lost(self)

    def send(self, label: int, payload: bytes) -> None:
        """Sends a message of the protocol."""
        self._transport.write(HEADER.pack(label, len(payload)) + payload)
        self.nbytes_sent += HEADER.size + len(payload)

    def receive(self, label: int) -> bytes | asyncio.Future[bytes]:
        """Returns the message of this label, or a future of it where it has not arrived."""
        if label in self._arrived:
            self._listener.moved()
            return self._arrived.pop(label)
        self._waiting[label] = self._listener.loop.create_future()
        return self._waiting[label]

    def tell(self, **message: object) -> None:
        """Sends a message about the session; those do not count as traffic of the protocol."""
        payload = json.dumps(message).encode()
        self._transport.write(HEADER.pack(CONTROL, len(payload)) + payload)

    def close(self) -> None:
        """Closes the connection."""
        self._transport.close()


def json_object(text: str | bytes) -> dict[str, object] | None:
    """Reads a JSON object; None where the text is something else."""
    try:
        content = json.loads(text)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None
