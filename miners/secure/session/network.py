# SPDX-License-Identifier: Apache-2.0
"""``Network`` connects a party with all others, by one TLS connection (``Peer``) for each pair.

::

    connect ── hello ── ready ── round ── round ── ... ── done
         session, versions,      meet, charge, share, open, keep
         kept rounds

Nobody's share leaves before all are ready, and none of a round before that round is charged. A
party is who holds the private key of the certificate that the session names for it; what it says of
itself counts for nothing.

Every wait ends: where a party is silent for the session's timeout, and where nobody comes further
in that time. Further is a message of the computation that was waited for, a round, or a second that
a grant's pace takes; words that say that a party lives are none of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
import ssl
import struct
from collections import Counter, deque
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from miners.secure.mpc.mpyc_runtime import MPyC, install
from miners.secure.session.session import Session, json_object
from pinq.errors import PinqError, SessionError
from pinq.secure_computation import Identity

__all__ = ["AGAIN", "Network", "Peer"]

ARITHMETIC = 3  # changes with what parties send each other in a computation
FAREWELL = 2.0  # seconds that a party with its result waits for the others to say that they have it
CONTROL = -1  # MPyC labels a message by a hash of a tuple, which is never -1
MAX_HELLO = 2**24  # bytes, a session and what its rounds opened
MAX_FRAME = 2**30  # bytes, the shares of as many records as a session may have
DONE = "done"
BUFFER = 2**20  # bytes that wait to be read before the other end must
AHEAD = 2  # words: a party goes on from one while another still hears whether all have said it
HEADER = struct.Struct("<qI")
AGAIN = "All parties may start again, with the same session"
LOST = {
    "joining": "before the session was agreed; does it have this party's certificate, and this session?",
    "running": "in the middle of the computation",
}


class Peer:
    """The connection to one other party, with MPyC's ``send`` and ``receive``.

    Args:
        network: Hears of it.
        number: The party at the other end.
        writer: Sends.

    Attributes:
        nbytes_sent: How much of the protocol was sent.
        heard: When something arrived last, by the event loop's clock.
    """

    def __init__(self, network: Network, number: int, writer: asyncio.StreamWriter) -> None:
        self._network, self.number, self._writer, self.nbytes_sent = network, number, writer, 0
        # By label: a message that nobody has asked for yet, or a future of whoever waits for it.
        self._arrived: dict[int, bytes] = {}
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._unasked = 0  # bytes
        self.heard = network.loop.time()

    async def hear(self, reader: asyncio.StreamReader) -> None:
        """Delivers what arrives, until the other end is gone."""
        network = self._network
        while True:
            label, payload = await _frame(reader, MAX_HELLO if network.stage == "joining" else MAX_FRAME)
            self.heard = network.loop.time()
            if label == CONTROL:
                network.heard(self.number, payload)
            elif (waiter := self._waiting.pop(label, None)) is None:
                self._arrived[label] = payload
                self._unasked += HEADER.size + len(payload)
                if self._unasked > MAX_FRAME:
                    raise ValueError("more than anybody has asked for")
            elif not waiter.done():
                network.moved()
                waiter.set_result(payload)

    def send(self, label: int, payload: bytes) -> None:
        """Sends a message of the protocol."""
        self._writer.write(HEADER.pack(label, len(payload)) + payload)
        self.nbytes_sent += HEADER.size + len(payload)

    def receive(self, label: int) -> bytes | asyncio.Future[bytes]:
        """Returns the message of this label, or a future of it where it has not arrived."""
        if label in self._arrived:
            self._network.moved()
            payload = self._arrived.pop(label)
            self._unasked -= HEADER.size + len(payload)
            return payload
        self._waiting[label] = self._network.loop.create_future()
        return self._waiting[label]

    def close(self) -> None:
        """Closes the connection, when all that was sent has left."""
        self._writer.close()

    def tell(self, **message: object) -> None:
        """Sends a message about the session; those do not count as traffic of the protocol."""
        payload = json.dumps(message).encode()
        self._writer.write(HEADER.pack(CONTROL, len(payload)) + payload)


async def _frame(reader: asyncio.StreamReader, most: int) -> tuple[int, bytes]:
    """Reads one message and its label. Raises ``ValueError`` if it is announced to be larger than ``most``."""
    label, size = HEADER.unpack(await reader.readexactly(HEADER.size))
    if size > most:
        raise ValueError(f"a message of {size:,} bytes")
    return label, await reader.readexactly(size)


def versions() -> dict[str, str]:
    """Returns what must be the same at all parties: of the packages and of the arithmetic."""
    found = {"arithmetic": str(ARITHMETIC)}
    for name in ("pinq-miners", "mpyc"):
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


class Network:
    """All connections of one party in one session.

    Attributes:
        stage: ``joining``, ``running`` or ``over``.
        failure: What ended the session, once something has.
        peers: The connection to each party that is connected.
    """

    def __init__(self, session: Session, party: int, identity: Identity | None, kept: list[str] | None = None) -> None:
        self.session, self.party, self._identity = session, party, identity
        self.loop = asyncio.get_running_loop()
        self.stage = "joining"
        self.failure: PinqError | None = None
        self.peers: dict[int, Peer] = {}
        # All say the same words in the same order: a hello, that they are ready, where they are, and
        # that they are done.
        self._words: dict[int, deque[object]] = {number: deque() for number in self.others}
        self._alive: dict[int, object] = {}
        self._news = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._main, self._talks = asyncio.current_task(), set[asyncio.Task[None]]()
        self._hello = {"text": session.text, "versions": versions(), "kept": kept or [], "nonce": secrets.token_hex(16)}
        self._last_error = ""
        self._kept = kept or []
        self._steps, self._moved_at = 0, self.loop.time()

    @property
    def others(self) -> list[int]:
        """The numbers of the other parties."""
        return [number for number in range(len(self.session.parties)) if number != self.party]

    def name(self, number: int) -> str:
        """Returns what a party is called in messages."""
        return f"party {number} ({self.session.parties[number].name})"

    @property
    def again(self) -> str:
        """What to do after a failure."""
        return f"{AGAIN}{': what was opened is kept, and costs nothing more' if self.session.nano else ''}."

    # Who is at the other end, and what it says

    async def _talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, expected: int | None = None
    ) -> None:
        """Greets the party at the other end and hears it until it is gone; a stranger's connection is closed.

        Args:
            reader: Of the connection.
            writer: Of the connection.
            expected: The party that was called; None where the other end called.
        """
        self._talks.add(task := asyncio.current_task())  # type: ignore[arg-type]  # this is one
        number = None
        try:
            number, greeting = await self._who(reader, writer, expected)
            if number is None or number in self.peers:
                return
            self.peers[number] = peer = Peer(self, number, writer)
            peer.tell(word=self._hello, party=self.party)
            if greeting:
                self.heard(number, greeting)
            await peer.hear(reader)
        except (ValueError, RecursionError) as error:
            if number is not None:
                self.fail(SessionError(f"{self.name(number)} sent what is no message: {error}."))
        except (OSError, asyncio.IncompleteReadError, ssl.SSLError):
            if number is not None and self.stage != "over" and DONE not in self._words[number]:
                self.fail(SessionError(f"{self.name(number)} is gone, {LOST[self.stage]}. {self.again}"))
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            self._talks.discard(task)

    async def _who(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, expected: int | None
    ) -> tuple[int | None, bytes]:
        """Finds which party is at the other end; None for a stranger. Also what it said already."""
        tls = writer.get_extra_info("ssl_object")
        if tls is not None:
            certificate = tls.getpeercert(binary_form=True)
            matching = (other for other in self.others if self.session.parties[other].certificate_der == certificate)
            number = next(matching, None)
            return (number if expected in (None, number) else None), b""
        if expected is not None:
            return expected, b""
        with contextlib.suppress(ValueError):  # without TLS, on one machine, a party is who it says it is
            _, greeting = await _frame(reader, MAX_HELLO)
            claimed = json_object(greeting).get("party")
            return (claimed if isinstance(claimed, int) and claimed in self.others else None), greeting
        return None, b""

    def heard(self, number: int, payload: bytes) -> None:
        """Notes a message about the session. Raises ``ValueError`` if it is none."""
        message = json_object(payload)
        if "word" in message:
            self._words[number].append(message["word"])
            if len(self._words[number]) > AHEAD:
                raise ValueError("a word far ahead of all others")
        if "alive" in message and message["alive"] != self._alive.get(number):
            self._alive[number] = message["alive"]
            self._moved_at = self.loop.time()
        if "stop" in message:
            self.fail(SessionError(f"{self.name(number)} ended the session: {str(message['stop'])[:300]}"))
        self._news.set()

    def moved(self) -> None:
        """Notes that this party came further."""
        self._steps += 1
        self._moved_at = self.loop.time()

    async def pause(self, seconds: float) -> None:
        """Waits, as a party that the others need not give up."""
        end = self.loop.time() + seconds
        while (left := end - self.loop.time()) > 0:
            self.moved()
            await asyncio.sleep(min(1.0, left))

    def fail(self, error: PinqError) -> None:
        """Ends the session; the first error counts."""
        if self.stage != "over" and self.failure is None and self._main is not None:
            self.failure = error
            self._main.cancel()

    # The stages

    async def join(self, wait: float, listen: str | None, progress: Callable[[str], None]) -> tuple[str, list[str]]:
        """Connects to all parties and makes sure that all have the same session, and versions.

        Returns what names this run, and what its rounds opened before.
        """
        await self._listen(listen)
        progress(f"waiting for {len(self.others)} parties, at most {wait:g} s")
        # Of three parties 0 calls 1 and 2, and 1 calls 2: each pair has one connection.
        connecting = [self.loop.create_task(self._connect(number)) for number in self.others if number > self.party]
        try:
            async with asyncio.timeout(wait):
                hellos = await self._answers()
        except TimeoutError:
            missing = ", ".join(self.name(number) for number in self.others if number not in self.peers)
            raise SessionError(f"{missing or 'a party'} did not join within {wait:g} s.{self._last_error}") from None
        finally:
            for task in connecting:
                if not task.done() and task not in self._talks:
                    task.cancel()
        kept = self._common([self._compared(number, hello) for number, hello in hellos.items()])
        if self.session.nano:  # the same name whenever it is run
            return self.session.digest, kept
        # Fresh numbers of all parties: two runs of one exact session are known by different names.
        nonces = sorted(str(hello.get("nonce")) for hello in (self._hello, *hellos.values()) if isinstance(hello, dict))
        return hashlib.sha256("".join([self.session.digest, *nonces]).encode()).hexdigest(), []

    async def _listen(self, address: str | None) -> None:
        """Listens for the parties that are named before this one, which call it."""
        if self.party == 0:
            return
        member, tls = self.session.parties[self.party], self._context(server=True)
        # Without certificates nobody from elsewhere is listened to.
        host = member.host if address is None and tls is None else address
        try:
            self._server = await asyncio.start_server(self._talk, host, member.port, ssl=tls, limit=BUFFER)
        except OSError as error:
            raise SessionError(f"port {member.port} cannot be listened on: {error.strerror}.") from None

    def _compared(self, number: int, hello: object) -> list[str]:
        """Returns a party's kept rounds. Raises ``SessionError`` if its session or a version is another."""
        name, theirs = self.name(number), hello if isinstance(hello, dict) else {}
        if theirs.get("text") != self.session.text:
            raise SessionError(
                f"{name} has another session: {self.session.difference(theirs.get('text'))}. "
                "Nothing left any party. Agree on one file, and compare `pinq secure show`."
            )
        ours, others = versions(), theirs.get("versions")
        others = others if isinstance(others, dict) else {}
        for package in sorted(ours.keys() | others.keys()):
            if ours.get(package) != others.get(package):
                raise SessionError(
                    f"{name} has {package} {others.get(package)}, {self.name(self.party)} {package} "
                    f"{ours.get(package)}. Nothing left any party. Install the same versions everywhere."
                )
        kept = theirs.get("kept")
        return [str(text) for text in kept] if isinstance(kept, list) else []

    def _common(self, others: list[list[str]]) -> list[str]:
        """Returns the longest of all parties' kept rounds, of which each other's must be the beginning."""
        longest = max([self._kept, *others], key=len)
        for number, kept in zip([self.party, *self.others], [self._kept, *others], strict=True):
            if kept != longest[: len(kept)]:
                raise SessionError(
                    f"{self.name(number)} kept other openings of this session than another party. "
                    "Nothing left any party. Give the session another name to begin anew."
                )
            if len(kept) > len(self._kept) + 1:  # no round begins before all have kept the one before it
                raise SessionError(
                    f"{self.name(number)} says that {len(kept)} rounds were opened; this party kept {len(self._kept)}, "
                    "and can be behind by one at most. Nothing left any party. Restore this party's ledger, or give "
                    "the session another name to begin anew."
                )
        return longest

    async def _connect(self, number: int) -> None:
        """Calls a party until it answers."""
        other = self.session.parties[number]
        tls = self._context(server=False, peer=number)
        while True:
            try:
                reader, writer = await asyncio.open_connection(
                    other.host, other.port, ssl=tls, server_hostname="" if tls else None, limit=BUFFER
                )
                return await self._talk(reader, writer, number)
            except ssl.SSLCertVerificationError as error:
                certificate = f"the certificate that the session names for {self.name(number)}"
                text = f"who answers at {other.host}:{other.port} does not have {certificate}, or no longer"
                return self.fail(SessionError(f"{text} ({error.verify_message})."))
            except (OSError, ssl.SSLError) as error:
                self._last_error = f" At {other.host}:{other.port}: {type(error).__name__}."
                await asyncio.sleep(0.1)

    def _context(self, *, server: bool, peer: int | None = None) -> ssl.SSLContext | None:
        """Trusts only the certificates that the session names; ``_who`` checks again whose."""
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

    async def _answers(self) -> dict[int, object]:
        """Waits for the next word of each other party."""
        while not all(self._words.values()):
            self._news.clear()
            await self._news.wait()
        return {number: words.popleft() for number, words in self._words.items()}

    def tell_all(self, **message: object) -> None:
        """Sends a message about the session to all connected parties."""
        for peer in self.peers.values():
            with contextlib.suppress(Exception):
                peer.tell(**message)

    async def ready(self) -> None:
        """Waits until all parties have said that they can pay."""
        self.tell_all(word="ready")
        await self._answers()
        self.stage = "running"

    async def meet(self, number: int, place: str) -> None:
        """Waits until all parties are at the same place; see ``Company``."""
        self.tell_all(word=place)
        places = {self.party: place} | await self._answers()
        self.moved()
        (usual, _), *_ = Counter(map(str, places.values())).most_common()
        apart = ", ".join(self.name(other) for other, theirs in sorted(places.items()) if theirs != usual)
        if apart:
            raise SessionError(
                f"in round {number + 1} {apart} asks another question than the others, or opened other values: do all "
                "run the same version, on the same kind of machine? Nothing of this round left any party."
            )

    async def computing(self, bits: int) -> MPyC:
        """Makes the runtime that compares, and exchanges its keys of common randomness."""
        runtime = install(self.party, len(self.session.parties), bits=bits, connections=self.peers)
        for number, peer in self.peers.items():
            peer.tell(word=b"".join(runtime._prss_keys_to_peer(number)).hex())
        for number, word in (await self._answers()).items():
            with contextlib.suppress(ValueError):
                keys = bytes.fromhex(str(word))
                if len(keys) == runtime._prss_keys_from_peer(number):
                    runtime._prss_keys_from_peer(number, keys)
                    continue
            raise SessionError(f"{self.name(number)} sent keys that are none.")
        return runtime

    async def watch(self, timeout: float) -> None:
        """Says now and then how far this party came; ends the session when another is silent, or nobody moves."""
        while True:
            # Four words within the time after which silence ends the session: a lost one or two end
            # nothing.
            await asyncio.sleep(timeout / 4)
            self.tell_all(alive=self._steps)
            now = self.loop.time()
            for number, peer in self.peers.items():
                if now - peer.heard > timeout and DONE not in self._words[number]:
                    self.fail(SessionError(f"{self.name(number)} was silent for {timeout:g} s. {self.again}"))
            if now - self._moved_at > timeout:
                came = {self.party: self._steps} | self._alive
                steps = ", ".join(f"{self.name(number)} {step}" for number, step in sorted(came.items()))
                text = f"nobody came further for {timeout:g} s; steps until then: {steps}"
                self.fail(SessionError(f"{text}. Do all run the same version? {self.again}"))

    async def finish(self, progress: Callable[[str], None]) -> None:
        """Says that this party has its result, and who has not said so soon after."""
        self.tell_all(word=DONE)
        self.stage = "over"
        try:
            async with asyncio.timeout(FAREWELL):
                await self._answers()
        except TimeoutError:
            silent = [self.name(number) for number, words in self._words.items() if not words]
            progress(f"{', '.join(silent)} did not say to have the result. {self.again}")

    async def close(self, reason: str | None) -> None:
        """Closes all connections; with a reason all others are told first."""
        if reason is not None:
            self.tell_all(stop=reason)
            self.stage = "over"
        if self._server is not None:
            self._server.close()
        for peer in self.peers.values():
            peer.close()
        await asyncio.sleep(0.05)  # let the last messages leave
        for task in self._talks:
            task.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)
