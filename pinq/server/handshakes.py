# SPDX-License-Identifier: Apache-2.0
"""The event loop of a server: it bounds connections that have not ended their TLS handshake.

uvicorn counts a connection after its handshake, and asyncio waits a minute for that. Until then a connection takes a
file of the process, so a few hundred silent connections would use up all files. Here at most ``HALF_OPEN`` handshakes
wait: the next one ends the oldest. An honest handshake takes a few round trips, so only silent connections become old.

Without TLS the only client is a proxy on the same machine, and uvicorn alone handles connections.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from ssl import SSLContext
from typing import Any

try:
    from uvloop import Loop
except ImportError:  # on Windows
    from asyncio import SelectorEventLoop as Loop  # type: ignore[assignment]

HALF_OPEN = 128  # handshakes at a time; the process reserves files for them
HANDSHAKE_SECONDS = 10.0
GOODBYE_SECONDS = 1.0  # the wait for a client to end TLS; an idle client never does, and would delay a shutdown
PAUSE_SECONDS = 0.05  # the pause before another try if the process has no file left


class ServerLoop(Loop):
    """uvloop, or asyncio's loop, whose TLS servers bound their handshakes."""

    async def create_server(self, protocol_factory: Any, *args: Any, **words: Any) -> Any:
        context, listening = words.get("ssl"), words.get("sock")
        if context is None or listening is None:
            return await super().create_server(protocol_factory, *args, **words)
        # uvicorn's processes open a shared socket as a Unix socket, for which uvloop sets no TCP_NODELAY.
        listening = socket.socket(fileno=os.dup(listening.fileno()))
        listening.setblocking(False)
        listening.listen(words["backlog"])
        return TlsServer(self, protocol_factory, listening, context)


class TlsServer:
    """Accepts each connection itself, and bounds the number of handshakes."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        factory: Callable[[], asyncio.BaseProtocol],
        listening: socket.socket,
        context: SSLContext,
    ) -> None:
        self.sockets = [listening]
        self._loop, self._factory, self._context = loop, factory, context
        self._half_open = dict[asyncio.Task[None], socket.socket]()  # the oldest is the first
        self._accepting = loop.create_task(self._accept(listening))

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(listening)
            except OSError:  # too many files, or the client disconnected
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            shaking = self._loop.create_task(self._shake(connection))
            self._half_open[shaking] = connection
            shaking.add_done_callback(self._end)
            if len(self._half_open) > HALF_OPEN:
                next(task for task in self._half_open if not task.cancelling()).cancel()

    async def _shake(self, connection: socket.socket) -> None:
        with suppress(OSError):  # the client disconnected, does not speak TLS, or took too long
            await self._loop.connect_accepted_socket(
                self._factory,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=GOODBYE_SECONDS,
            )

    def _end(self, shaking: asyncio.Task[None]) -> None:
        connection = self._half_open.pop(shaking)
        if shaking.cancelled():  # perhaps before a transport owned the connection
            connection.close()

    def close(self) -> None:
        """Stops listening, and ends handshakes."""
        for task in (self._accepting, *self._half_open):
            task.cancel()
        for listening in self.sockets:
            listening.close()

    async def wait_closed(self) -> None:
        """Returns at once: uvicorn waits for connections."""
