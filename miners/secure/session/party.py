# SPDX-License-Identifier: Apache-2.0
"""``run_party`` runs one party's side of a session, from the first connection to the end.

``Network`` connects a party with all others, by one TLS connection for each pair::

    connect ── hello ── (charge) ── ready ── keys ── protocol ── done
               session's text        nobody's share leaves before all are ready

A party is who holds the private key of the certificate that the session names for it; what it says
of itself counts for nothing. Every wait ends within bounded time.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import hashlib
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from miners.secure.mpc.mpyc_runtime import MPyCRuntime, collecting_less, install, mpyc, run_to_end
from miners.secure.mpc.runtime import Runtime
from miners.secure.session.connection import Peer, json_object
from miners.secure.session.protocols import Role
from miners.secure.session.session import Session
from pinq.errors import PinqError, SessionError
from pinq.public.secure_computation import Holding, Identity, Traffic

__all__ = ["Network", "role_of", "run_party"]

NOTHING_MORE = "Nothing was opened beyond what the progress showed."
LOST = {
    "joining": "before the session was agreed; does it have this party's certificate, and this session?",
    "running": "in the middle of the computation",
}


class Network:
    """All connections of one party in one session.

    Attributes:
        stage: ``joining``, ``running`` or ``over``.
        failure: What ended the session, once something has.
        peers: The connection to each party that is connected.
    """

    def __init__(self, session: Session, party: int, identity: Identity | None) -> None:
        self.session, self.party, self._identity = session, party, identity
        self.loop = asyncio.get_running_loop()
        self.stage = "joining"
        self.failure: asyncio.Future[None] = self.loop.create_future()
        self.peers: dict[int, Peer] = {}
        # By kind of message, what each party told last.
        self._messages: dict[str, dict[int, object]] = {}
        self._news = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._nonce = secrets.token_hex(16)
        self._last_error = ""

    @property
    def others(self) -> list[int]:
        """The numbers of the other parties."""
        return [number for number in range(len(self.session.parties)) if number != self.party]

    def name(self, number: int | None) -> str:
        """Returns what a party is called in messages."""
        if number is None or number < 0:
            return "a party"
        return f"party {number} ({self.session.parties[number].name})"

    # What connections report

    def identify(self, tls: ssl.SSLObject | None, expected: int | None) -> int | None:
        """Finds which party is at the other end, by its certificate; see ``Listener``."""
        if tls is None:
            return -1 if expected is None else expected
        certificate = tls.getpeercert(binary_form=True)
        matching = (number for number in self.others if self.session.parties[number].certificate_der == certificate)
        number = next(matching, None)
        return number if expected is None or number == expected else None

    def connected(self, peer: Peer) -> None:
        """Greets a party that is connected, unless it was already."""
        number = peer.number
        if number is None or number in self.peers:
            peer.number = None
            peer.close()
            return
        self.peers[number] = peer
        peer.tell(hello=self.session.text, nonce=self._nonce, party=self.party)
        self._news.set()

    def heard(self, peer: Peer, payload: bytes) -> None:
        """Notes a message about the session."""
        message = json_object(payload)
        if message is None:
            self.fail(SessionError(f"{self.name(peer.number)} sent something that is no message."))
            return
        if peer.number == -1:  # without TLS, on one machine, a party is who it says it is
            claimed = message.get("party")
            peer.number = claimed if isinstance(claimed, int) and claimed in self.others else None
            self.connected(peer)
        if peer.number is None:
            return
        for kind, value in message.items():
            self._messages.setdefault(kind, {})[peer.number] = value
        if "stop" in message and self.stage != "over":
            self.fail(SessionError(f"{self.name(peer.number)} ended the session: {str(message['stop'])[:300]}"))
        self._news.set()

    def lost(self, peer: Peer) -> None:
        """Ends the session where a party is gone before it was done."""
        done = self._messages.get("done", {})
        if self.stage == "over" or peer.number in done or self.peers.get(peer.number or 0) is not peer:
            return
        text = f"{self.name(peer.number)} is gone, {LOST[self.stage]}."
        self.fail(SessionError(f"{text} {NOTHING_MORE} All parties may start again."))

    def fail(self, error: PinqError) -> None:
        """Ends the session; the first error counts."""
        if not self.failure.done():
            self.failure.set_exception(error)

    # The stages

    async def join(self, wait: float, listen: str | None, progress: Callable[[str], None]) -> str:
        """Connects to all parties and makes sure that all have the same session.

        Returns what names this run.
        """
        await self._listen(listen)
        progress(f"waiting for {len(self.others)} parties, at most {wait:g} s")
        # Of three parties 0 calls 1 and 2, and 1 calls 2: each pair has one connection.
        connecting = [self.loop.create_task(self._connect(number)) for number in self.others if number > self.party]
        try:
            async with asyncio.timeout(wait):
                await asyncio.gather(*connecting)  # a connection may be heard on before its task knows of it
                await self._all_told("hello")
        except TimeoutError:
            missing = ", ".join(self.name(number) for number in self.others if number not in self.peers)
            raise SessionError(f"{missing or 'a party'} did not join within {wait:g} s.{self._last_error}") from None
        finally:
            for task in connecting:
                task.cancel()
        for number in self.others:
            self._compare(number)
        # Fresh numbers of all parties: two runs of one session are known by different names.
        nonces = sorted([self._nonce, *map(str, self._messages["nonce"].values())])
        return hashlib.sha256("".join([self.session.digest, *nonces]).encode()).hexdigest()

    async def _listen(self, address: str | None) -> None:
        """Listens for the parties that are named before this one, which call it."""
        if self.party == 0:
            return
        member, tls = self.session.parties[self.party], self._context(server=True)
        # Without certificates nobody from elsewhere is listened to.
        host = member.host if address is None and tls is None else address
        try:
            self._server = await self.loop.create_server(lambda: Peer(self, None), host, member.port, ssl=tls)
        except OSError as error:
            raise SessionError(f"port {member.port} cannot be listened on: {error.strerror}.") from None

    def _compare(self, number: int) -> None:
        text = self._messages["hello"][number]
        if text != self.session.text:
            raise SessionError(
                f"{self.name(number)} has another session: {self.session.difference(text)}. "
                "Nothing left any party. Agree on one file, and compare `pinq secure show`."
            )

    async def _connect(self, number: int) -> None:
        """Calls a party until it answers."""
        other = self.session.parties[number]
        while True:
            try:
                tls = self._context(server=False, peer=number)
                await self.loop.create_connection(
                    lambda: Peer(self, number), other.host, other.port, ssl=tls, server_hostname="" if tls else None
                )
                return
            except ssl.SSLCertVerificationError as error:
                certificate = f"the certificate that the session names for {self.name(number)}"
                text = f"who answers at {other.host}:{other.port} does not have {certificate}, or no longer"
                self.fail(SessionError(f"{text} ({error.verify_message})."))
                return
            except (OSError, ssl.SSLError) as error:
                self._last_error = f" At {other.host}:{other.port}: {type(error).__name__}."
                await asyncio.sleep(0.1)

    def _context(self, *, server: bool, peer: int | None = None) -> ssl.SSLContext | None:
        """Trusts only the certificates that the session names; ``identify`` checks again whose."""
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
            files = f"the certificate {self._identity.certificate} and the key {self._identity.key}"
            raise SessionError(f"{files} cannot be used: {error}.") from None
        for number in self.others if peer is None else [peer]:
            context.load_verify_locations(cadata=self.session.parties[number].certificate_der)
        return context

    async def _all_told(self, kind: str) -> None:
        """Waits until all other parties have sent this kind of message."""
        while not set(self.others) <= set(self._messages.get(kind, {})):
            self._news.clear()
            await self._news.wait()

    def tell_all(self, **message: object) -> None:
        """Sends a message about the session to all connected parties."""
        for peer in self.peers.values():
            with contextlib.suppress(Exception):
                peer.tell(**message)

    async def start(self, bits: int) -> MPyCRuntime:
        """Waits until all are ready, exchanges keys of common randomness, makes the runtime."""
        self.tell_all(ready=True)
        await self._all_told("ready")
        self.stage = "running"
        runtime = install(self.party, len(self.session.parties), bits=bits, connections=self.peers)
        for number, peer in self.peers.items():
            peer.tell(keys=[key.hex() for key in runtime.keys_for(number)])
        await self._all_told("keys")
        for number in self.others:
            runtime.accept_keys(number, self._keys(number))
        return runtime

    def _keys(self, number: int) -> list[bytes]:
        """Reads the keys that a party sent."""
        sent = self._messages["keys"][number]
        with contextlib.suppress(ValueError):
            if isinstance(sent, list):
                return [bytes.fromhex(str(key)) for key in sent]
        raise SessionError(f"{self.name(number)} sent keys that are none. {NOTHING_MORE}")

    async def watch(self, timeout: float) -> None:
        """Says now and then that this party lives; ends the session when another does not."""
        while True:
            # Four words within the time after which silence ends the session: a lost one or two end
            # nothing.
            await asyncio.sleep(timeout / 4)
            gc.collect()
            self.tell_all(alive=True)
            for number, peer in self.peers.items():
                if self.loop.time() - peer.heard > timeout:
                    text = f"{self.name(number)} was silent for {timeout:g} s."
                    self.fail(SessionError(f"{text} {NOTHING_MORE} All parties may start again."))

    async def finish(self) -> None:
        """Waits until all others have what they need, so that nobody hangs up too early."""
        self.tell_all(done=True)
        await self._all_told("done")
        self.stage = "over"

    async def close(self, reason: str | None) -> None:
        """Closes all connections; with a reason all others are told first."""
        if reason is not None:
            self.tell_all(stop=reason)
            self.stage = "over"
        if self._server is not None:
            self._server.close()
        for peer in self.peers.values():
            with contextlib.suppress(Exception):
                peer.close()
        await asyncio.sleep(0.05)  # let the last messages leave


T = TypeVar("T")
REASONS = {"budget": "its budget does not allow it", "not-authorised": "it has no valid grant"}


def role_of(
    session: Session,
    party: int,
    holding: Holding,
    lookups: np.ndarray | None,
    progress: Callable[[str], None] = lambda text: None,
) -> Role:
    """Makes a party's part in a session; new for each run.

    Args:
        session: What was agreed.
        party: The party's number.
        holding: Its rows.
        lookups: The rows that it looks up, shape (rows, attributes); None for none.
        progress: Called with a line of text for each step.
    """
    counts = [member.lookups for member in session.parties]
    return Role(session.growth(), session.task, holding, party, counts, lookups, progress=progress)


def run_party(
    session: Session,
    party: int,
    identity: Identity | None,
    protocol: Callable[[Runtime], Awaitable[T]],
    *,
    bits: int,
    agreed: Callable[[str], None] = lambda run: None,
    wait: float = 600,
    listen: str | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> tuple[T, Traffic]:
    """Runs this party's side of a session to its end.

    Args:
        session: What was agreed.
        party: Which of its parties this is.
        identity: This party's certificate and key; None only where the session has no certificates
            (all parties on one machine).
        protocol: What to compute, from a runtime.
        bits: The largest bit length that is compared.
        agreed: Called with the name of this run when all parties have the same session, and before
            anything leaves: the moment to charge.
        wait: Seconds until all parties must have joined.
        listen: The address to listen on; by default all, or without certificates the one of this
            machine that the session names.
        progress: Called with a line of text for each step.

    Returns:
        What the protocol returned, and what was sent.

    Raises:
        SessionError: A party could not be reached, has another session, refused, or broke off.
            Other errors of ``agreed`` pass through.
    """
    mpyc()
    run = _Run(session, protocol, bits, agreed, wait, listen, progress)
    with collecting_less():
        try:
            return run_to_end(run.to_end(party, identity))
        except RuntimeError as error:
            # MPyC stops the event loop where a step fails, on a message that is none, say.
            raise SessionError(f"the computation broke off ({error}). {NOTHING_MORE}") from None


@dataclass(frozen=True)
class _Run(Generic[T]):
    """One run of a session; the fields are ``run_party``'s arguments."""

    session: Session
    protocol: Callable[[Runtime], Awaitable[T]]
    bits: int
    agreed: Callable[[str], None]
    wait: float
    listen: str | None
    progress: Callable[[str], None]

    async def to_end(self, party: int, identity: Identity | None) -> tuple[T, Traffic]:
        """Goes through all stages, or breaks off when the network fails; tells the others why."""
        network = Network(self.session, party, identity)
        work = network.loop.create_task(self._stages(network))
        reason: str | None = "it was interrupted"
        try:
            ends: set[asyncio.Future[object]] = {work, network.failure}  # type: ignore[arg-type]  # of two kinds
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                network.failure.result()
            result = work.result()
            reason = None
            return result
        except SessionError as error:
            reason = str(error)
            raise
        except PinqError as error:
            reason = REASONS.get(error.code, "it refused")
            raise
        finally:
            work.cancel()
            network.failure.cancel()
            await network.close(reason)

    async def _stages(self, network: Network) -> tuple[T, Traffic]:
        self.agreed(await network.join(self.wait, self.listen, self.progress))
        self.progress(f"all {len(self.session.parties)} parties agree on session {self.session.digest[:16]}")
        # From here on whoever is silent for too long ends the session for all.
        watching = network.loop.create_task(network.watch(self.session.timeout))
        try:
            runtime = await network.start(self.bits)
            began, busy = time.perf_counter(), time.process_time()
            result = await self.protocol(runtime)
            seconds, processor = time.perf_counter() - began, time.process_time() - busy
            traffic = Traffic(sum(peer.nbytes_sent for peer in network.peers.values()), seconds, processor)
            await network.finish()
        finally:
            watching.cancel()
        return result, traffic
