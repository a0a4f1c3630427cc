# SPDX-License-Identifier: Apache-2.0
"""How parties talk: one TLS connection for each pair, pinned certificates, agreement on the session, and an end within bounded time.

::

    connect ── hello ── (charge) ── ready ── keys ── protocol ── done
               session's text        nobody's share leaves before all are ready

A party is who holds the private key of the certificate that the session names for it; what it says
of itself counts for nothing. Messages are frames of numbers of a fixed width: nothing that arrives
is ever run.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import json
import secrets
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from miners.secure.mpyc_runtime import collecting_less, install, mpyc, run_to_end
from miners.secure.session import Session
from pinq.errors import PinqError, SessionError

__all__ = ["Identity", "Traffic", "run_party"]

CONTROL = -1  # MPyC labels a message by a hash of a tuple, which is never -1
MOST_HELLO = 2**24
HEADER = struct.Struct("<qI")


@dataclass(frozen=True)
class Identity:
    """Files with this party's certificate chain and private key, PEM."""

    certificate: str
    key: str


@dataclass(frozen=True)
class Traffic:
    """What a party sent while the protocol ran, and how long that took, sharing of inputs included; by the clock and by the processor."""

    bytes_sent: int
    seconds: float
    processor_seconds: float


class _Peer(asyncio.Protocol):
    """The connection to one other party, with MPyC's ``send`` and ``receive``."""

    def __init__(self, network: _Network, expected: int | None) -> None:
        self.network, self.number, self.nbytes_sent = network, expected, 0
        self._transport: Any = None
        self._data = bytearray()
        self._waiting: dict[int, Any] = {}
        self.heard = asyncio.get_running_loop().time()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        found = self.network.identify(transport.get_extra_info("ssl_object"), self.number)
        if found is None:
            transport.abort()
            return
        self.number = found
        if self.number >= 0:
            self.network.connected(self)

    def data_received(self, data: bytes) -> None:
        self.heard = self.network.loop.time()
        self._data += data
        data_, start = self._data, 0
        while len(data_) - start >= HEADER.size:
            label, size = HEADER.unpack_from(data_, start)
            if self.network.stage == "joining" and size > MOST_HELLO:
                self.network.fail(SessionError(f"{self.network.name(self.number)} sent something that is no hello."))
                return
            end = start + HEADER.size + size
            if len(data_) < end:
                break
            payload = bytes(data_[start + HEADER.size : end])
            start = end
            if label == CONTROL:
                self.network.heard(self, payload)
            elif (waiter := self._waiting.pop(label, None)) is None:
                self._waiting[label] = payload
            elif not waiter.done():
                waiter.set_result(payload)
        del data_[:start]

    def connection_lost(self, exc: Exception | None) -> None:
        if self.number is not None:
            self.network.lost(self)

    def send(self, label: int, payload: bytes) -> None:
        self._transport.write(HEADER.pack(label, len(payload)) + payload)
        self.nbytes_sent += HEADER.size + len(payload)

    def receive(self, label: int) -> Any:
        found = self._waiting.pop(label, None)
        if found is None:
            found = self._waiting[label] = self.network.loop.create_future()
        return found

    def tell(self, **message: Any) -> None:
        """Sends a message about the session; those do not count as traffic of the protocol."""
        payload = json.dumps(message).encode()
        self._transport.write(HEADER.pack(CONTROL, len(payload)) + payload)

    def close(self) -> None:
        self._transport.close()


class _Network:
    """All connections of one party in one session."""

    def __init__(self, session: Session, party: int, identity: Identity | None) -> None:
        self.session, self.party, self._identity = session, party, identity
        self.loop = asyncio.get_running_loop()
        self.stage = "joining"
        self.failure: asyncio.Future[None] = self.loop.create_future()
        self.peers: dict[int, _Peer] = {}
        self._said: dict[str, dict[int, Any]] = {}
        self._news = asyncio.Event()
        self._reasons: dict[int, str] = {}
        self._server: Any = None
        self._nonce = secrets.token_hex(16)
        self._last_error = ""

    @property
    def others(self) -> list[int]:
        return [number for number in range(len(self.session.parties)) if number != self.party]

    def name(self, number: int | None) -> str:
        return "a party" if number is None or number < 0 else f"party {number} ({self.session.parties[number].name})"

    # What connections report

    def identify(self, tls: Any, expected: int | None) -> int | None:
        """Which party is at the other end, by its certificate; -1 to be told, None for nobody of this session."""
        if tls is None:
            return -1 if expected is None else expected
        shown = tls.getpeercert(binary_form=True)
        found = next((n for n in self.others if self.session.parties[n].certificate_der == shown), None)
        return found if expected is None or found == expected else None

    def connected(self, peer: _Peer) -> None:
        number = peer.number
        if number is None or number in self.peers:
            peer.number = None
            peer.close()
            return
        self.peers[number] = peer
        self._hello(peer)
        self._news.set()

    def _hello(self, peer: _Peer) -> None:
        peer.tell(hello=self.session.text, nonce=self._nonce, party=self.party)

    def heard(self, peer: _Peer, payload: bytes) -> None:
        try:
            message = json.loads(payload)
            assert isinstance(message, dict)
        except (ValueError, AssertionError):
            self.fail(SessionError(f"{self.name(peer.number)} sent something that is no message."))
            return
        if peer.number == -1:  # without TLS, on one machine, a party is who it says it is
            claimed = message.get("party")
            peer.number = claimed if claimed in self.others else None
            self.connected(peer)
        if peer.number is None:
            return
        for kind, value in message.items():
            self._said.setdefault(kind, {})[peer.number] = value
        if "stop" in message:
            self._reasons[peer.number] = str(message["stop"])[:300]
            if self.stage != "over":
                self.fail(SessionError(f"{self.name(peer.number)} ended the session: {self._reasons[peer.number]}"))
        self._news.set()

    def lost(self, peer: _Peer) -> None:
        done = self._said.get("done", {})
        if self.stage == "over" or peer.number in done or self.peers.get(peer.number or 0) is not peer:
            return
        when = {
            "joining": "before the session was agreed; does it have this party's certificate, and this session?",
            "running": "in the middle of the computation",
        }[self.stage]
        self.fail(
            SessionError(
                f"{self.name(peer.number)} is gone, {when}. Nothing was opened beyond what the progress showed. All parties may start again."
            )
        )

    def fail(self, error: PinqError) -> None:
        if not self.failure.done():
            self.failure.set_exception(error)

    # The stages

    async def join(self, wait: float, listen: str | None, progress: Callable[[str], None]) -> str:
        """Connects to all parties and makes sure that all have the same session; returns what names this run."""
        own = self.session.parties[self.party]
        server_tls, peers_below = self._context(server=True), [n for n in self.others if n < self.party]
        if peers_below:
            try:
                where = (
                    own.host if listen is None and server_tls is None else listen
                )  # without certificates, nobody from elsewhere
                self._server = await self.loop.create_server(lambda: _Peer(self, None), where, own.port, ssl=server_tls)
            except OSError as error:
                raise SessionError(f"port {own.port} cannot be listened on: {error.strerror}.") from None
        progress(f"waiting for {len(self.others)} parties, at most {wait:g} s")
        connecting = [self.loop.create_task(self._connect(number)) for number in self.others if number > self.party]
        try:
            async with asyncio.timeout(wait):
                await asyncio.gather(*connecting)  # a connection may be heard on before its task knows of it
                await self._all_said("hello")
        except TimeoutError:
            missing = ", ".join(self.name(n) for n in self.others if n not in self.peers)
            raise SessionError(f"{missing or 'a party'} did not join within {wait:g} s.{self._last_error}") from None
        finally:
            for task in connecting:
                task.cancel()
        for number in self.others:
            self._compare(number)
        nonces = sorted([self._nonce, *(str(one) for one in self._said["nonce"].values())])
        return hashlib.sha256("".join([self.session.digest, *nonces]).encode()).hexdigest()

    def _compare(self, number: int) -> None:
        text = self._said["hello"][number]
        if text != self.session.text:
            differs = self.session.difference(text)
            raise SessionError(
                f"{self.name(number)} has another session: {differs}. Nothing left any party. Agree on one file, and compare `pinq secure show`."
            )

    async def _connect(self, number: int) -> None:
        other = self.session.parties[number]
        while True:
            try:
                context = self._context(server=False, peer=number)
                await self.loop.create_connection(
                    lambda: _Peer(self, number),
                    other.host,
                    other.port,
                    ssl=context,
                    server_hostname="" if context else None,
                )
                return
            except ssl.SSLCertVerificationError as error:
                self.fail(
                    SessionError(
                        f"who answers at {other.host}:{other.port} does not have the certificate that the session names for {self.name(number)}, or no longer ({error.verify_message})."
                    )
                )
                return
            except (OSError, ssl.SSLError) as error:
                self._last_error = f" At {other.host}:{other.port}: {type(error).__name__}."
                await asyncio.sleep(0.1)

    def _context(self, *, server: bool, peer: int | None = None) -> ssl.SSLContext | None:
        """Only the certificates that the session names are trusted, each for its party (checked again in ``identify``)."""
        if self._identity is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_cert_chain(self._identity.certificate, self._identity.key)
        except (OSError, ssl.SSLError) as error:
            raise SessionError(
                f"the certificate {self._identity.certificate} and the key {self._identity.key} cannot be used: {error}."
            ) from None
        for number in self.others if peer is None else [peer]:
            context.load_verify_locations(cadata=self.session.parties[number].certificate_der)
        return context

    async def _all_said(self, kind: str) -> None:
        while not set(self.others) <= set(self._said.get(kind, {})):
            self._news.clear()
            await self._news.wait()

    def tell_all(self, **message: Any) -> None:
        for peer in self.peers.values():
            with contextlib.suppress(Exception):
                peer.tell(**message)

    async def start(self, bits: int) -> Any:
        """Waits until all are ready, exchanges keys for common randomness, and returns the runtime."""
        self.tell_all(ready=True)
        await self._all_said("ready")
        self.stage = "running"
        module = mpyc()
        parties = [module.Party(number) for number in range(len(self.session.parties))]
        runtime = install(self.party, parties, bits=bits)
        for number, peer in self.peers.items():
            parties[number].protocol = peer
            peer.tell(keys=[key.hex() for key in runtime._prss_keys_to_peer(number)])
        await self._all_said("keys")
        for number in self.others:
            runtime._prss_keys_from_peer(number, b"".join(bytes.fromhex(key) for key in self._said["keys"][number]))
        return runtime

    async def watch(self, timeout: float) -> None:
        """Says now and then that this party lives, and ends the session when another one does not."""
        while True:
            await asyncio.sleep(timeout / 4)
            gc.collect()
            self.tell_all(alive=True)
            for number, peer in self.peers.items():
                if self.loop.time() - peer.heard > timeout:
                    self.fail(
                        SessionError(
                            f"{self.name(number)} was silent for {timeout:g} s. Nothing was opened beyond what the progress showed. All parties may start again."
                        )
                    )

    async def finish(self) -> None:
        """Waits until all others have what they need, so that nobody hangs up too early."""
        self.tell_all(done=True)
        await self._all_said("done")
        self.stage = "over"

    async def close(self, reason: str | None) -> None:
        if reason is not None:
            self.tell_all(stop=reason)
            self.stage = "over"
        if self._server is not None:
            self._server.close()
        for peer in self.peers.values():
            with contextlib.suppress(Exception):
                peer.close()
        await asyncio.sleep(0.05)  # let what was said leave


def run_party(
    session: Session,
    party: int,
    identity: Identity | None,
    protocol: Callable[[Any], Awaitable[Any]],
    *,
    bits: int,
    agreed: Callable[[str], None] = lambda run: None,
    wait: float = 600,
    listen: str | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[Any, Traffic]:
    """Runs this party's side of a session to its end.

    Args:
        session: What was agreed.
        party: Which of its parties this is.
        identity: This party's certificate and key; None only where the session has no certificates
            (all parties on one machine).
        protocol: What to compute, from MPyC's runtime.
        bits: The largest bit length that is compared.
        agreed: Called with the name of this run when all parties have the same session, and before
            anything leaves: the moment to charge.
        wait: Seconds until all parties must have joined.
        listen: The address to listen on; by default all, or without certificates the one of this
            machine that the session names.
        progress: Told what happens.

    Returns:
        What the protocol returned, and what was sent.

    Raises:
        SessionError: A party could not be reached, has another session, refused, or broke off.
            Other errors of ``agreed`` pass through.
    """
    mpyc()
    with collecting_less():
        try:
            return run_to_end(_party(session, party, identity, protocol, bits, agreed, wait, listen, progress))
        except (
            RuntimeError
        ) as error:  # MPyC stops the event loop where a step of a protocol fails, on a message that is none, say
            raise SessionError(
                f"the computation broke off ({error}). Nothing was opened beyond what the progress showed."
            ) from None


async def _party(
    session: Session,
    party: int,
    identity: Identity | None,
    protocol: Callable[[Any], Awaitable[Any]],
    bits: int,
    agreed: Callable[[str], None],
    wait: float,
    listen: str | None,
    progress: Callable[[str], None],
) -> tuple[Any, Traffic]:
    network = _Network(session, party, identity)
    loop = network.loop

    async def stages() -> tuple[Any, Traffic]:
        agreed(await network.join(wait, listen, progress))
        progress(f"all {len(session.parties)} parties agree on session {session.digest[:16]}")
        watching = loop.create_task(network.watch(session.timeout))
        try:
            runtime = await network.start(bits)
            began, busy = time.perf_counter(), time.process_time()
            result = await protocol(runtime)
            traffic = Traffic(
                sum(peer.nbytes_sent for peer in network.peers.values()),
                time.perf_counter() - began,
                time.process_time() - busy,
            )
            await network.finish()
        finally:
            watching.cancel()
        return result, traffic

    work = loop.create_task(stages())
    reason: str | None = "it was interrupted"
    try:
        both: set[asyncio.Future[Any]] = {work, network.failure}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            network.failure.result()
        result = work.result()
        reason = None
        return result
    except SessionError as error:
        reason = str(error)
        raise
    except PinqError as error:
        reason = {"budget": "its budget does not allow it", "not-authorised": "it has no valid grant"}.get(
            error.code, "it refused"
        )
        raise
    finally:
        work.cancel()
        network.failure.cancel()
        await network.close(reason)
