# SPDX-License-Identifier: Apache-2.0
"""A client that costs the machine little: HTTP/1.1 written by hand over kept TLS connections.

Server and client share a machine here. Each client is a process of its own, so that what is measured
is the server and not the interpreter that both would run in; attackers are niced, as if they had a
machine of their own.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import ssl
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

__all__ = ["Answered", "Asking", "counts", "nothing", "running"]

EPSILON = "0.000001"
START_SECONDS = 60
_PROCESSES = multiprocessing.get_context("spawn")


def counts() -> Iterator[bytes]:
    """Count after count, each with an id of its own."""
    start = uuid.uuid4().hex
    for number in itertools.count():
        yield f'{{"id":"{start}-{number}","verb":"noisy_count","epsilon":"{EPSILON}"}}'.encode()


def nothing() -> Iterator[bytes]:
    """No body: what is read, not asked."""
    return itertools.repeat(b"")


@dataclass(frozen=True)
class Asking:
    """The requests of a client.

    Attributes:
        port: The port of the server on this machine.
        authority: The file with who issued its certificate.
        tokens: The tokens of the connections, in turn.
        path: The path of each request.
        bodies: A function that yields a connection's bodies; an empty one is a GET.
        connections: The number of simultaneous connections.
        seconds: The duration.
        pause: Seconds between a connection's requests.
        kept: Whether connections are kept; else each request has a new connection, with another request before it.
        patience: The seconds to wait for an answer.
        nice: The niceness of the client's process.
    """

    port: int
    authority: Path
    tokens: tuple[str, ...]
    path: str = "/v1/adult/query"
    bodies: Callable[[], Iterator[bytes]] = counts
    connections: int = 1
    seconds: float = 4.0
    pause: float = 0.0
    kept: bool = True
    patience: float = 60.0
    nice: int = 0


@dataclass(frozen=True)
class Answered:
    """The results of the requests.

    Attributes:
        milliseconds: The time of each answer with status 200.
        refused: The number of answers with another status, or with none.
        client_cpu: CPU seconds that the client itself took.
    """

    milliseconds: list[float]
    refused: int
    client_cpu: float


@contextmanager
def running(asking: Asking) -> Iterator[Callable[[], Answered]]:
    """Runs a client in a process of its own; yields a function that waits for its end."""
    here, there = _PROCESSES.Pipe()
    process = _PROCESSES.Process(target=_main, args=(asking, there), daemon=True)
    process.start()
    there.close()
    if not here.poll(START_SECONDS):
        raise SystemExit("a client did not start")
    here.recv()
    here.send("go")
    try:
        yield here.recv
    finally:
        process.join(asking.seconds + asking.patience)
        process.kill()


def _main(asking: Asking, parent: Connection) -> None:
    os.nice(asking.nice)
    trust = ssl.create_default_context(cafile=asking.authority)
    parent.send("ready")
    parent.recv()
    before = time.process_time()
    took = list[float]()
    refused = asyncio.run(_all(asking, trust, took))
    parent.send(Answered(took, refused, time.process_time() - before))


async def _all(asking: Asking, trust: ssl.SSLContext, took: list[float]) -> int:
    end = time.perf_counter() + asking.seconds
    return sum(await asyncio.gather(*(_ask(asking, trust, number, end, took) for number in range(asking.connections))))


async def _ask(asking: Asking, trust: ssl.SSLContext, number: int, end: float, took: list[float]) -> int:
    """Asks one thing after the other until it is over; returns how often there was no answer."""
    token, wire, refused = asking.tokens[number % len(asking.tokens)], None, 0
    for body in asking.bodies():
        if time.perf_counter() >= end:
            break
        status = 0
        with suppress(OSError, EOFError, TimeoutError):
            async with asyncio.timeout(asking.patience):
                wire = wire or await _Wire.open(asking.port, trust, token, asking.kept)
                began = time.perf_counter()
                status = await wire.ask(asking.path, body)
                took += [1000 * (time.perf_counter() - began)] if status == 200 else []
        refused += status != 200
        if wire is not None and not (status and asking.kept):
            wire.close()
            wire = None
        await asyncio.sleep(asking.pause if status else max(0.01, asking.pause))
    return refused


@dataclass
class _Wire:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    token: bytes

    @classmethod
    async def open(cls, port: int, trust: ssl.SSLContext, token: str, kept: bool) -> _Wire:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname="127.0.0.1")
        wire = cls(reader, writer, token.encode())
        if not kept:
            await wire.ask("/healthz", b"")
        return wire

    async def ask(self, path: str, body: bytes) -> int:
        """Sends a request, reads its answer, and returns the status."""
        head = b"%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n"
        self.writer.write(head % (b"POST" if body else b"GET", path.encode(), self.token, len(body)) + body)
        await self.writer.drain()
        fields = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = int(fields.split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
        await self.reader.readexactly(length)
        return int(fields[9:12])

    def close(self) -> None:
        """Closes it."""
        self.writer.close()
