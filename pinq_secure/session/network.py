# SPDX-License-Identifier: Apache-2.0
"""``Network`` connects a party with all others, by one TLS connection for each pair.

::

    connect ── hello ── ready ── round ── round ── ... ── done
         session, versions,      meet, charge, share, open, keep
         kept rounds

After the hello a session is a sequence of exchanges, the same for all parties. A message has a label of its exchange,
so an error names a party that takes another step. No share is sent before all are ready, and no share of a round before
that round is charged. A party is identified by the certificate that the session names for it, because it holds the
private key.

Every wait ends: a party without a message within the session's timeout is given up, unless it announced that it waits
for the pace of a grant.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import ssl
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version

from pydantic import BaseModel, Field

from pinq.errors import SessionError
from pinq_secure.mpc.arithmetic import Link
from pinq_secure.session.session import Session

ARITHMETIC = 4  # the version of the messages of a computation
STOP, WAIT, HELLO = -1, -2, -3  # labels of messages outside of exchanges
BUFFER = 2**20  # unread bytes of a connection; a sender waits while there are more
HEADER = struct.Struct("<iI")  # label and size
AGAIN = "All parties may start again, with the same session"
JOINING = "before the session was agreed; does it have this party's certificate, and this session?"
RUNNING = "in the middle of the computation"


@dataclass(frozen=True)
class Identity:
    """Files with a party's certificate chain and private key, PEM."""

    certificate: str
    key: str


class Hello(BaseModel):
    """The first message of a party."""

    party: int
    text: str = ""
    versions: dict[str, str] = {}
    kept: list[str] = []
    nonce: str = Field(default_factory=lambda: secrets.token_hex(16))


async def frame(reader: asyncio.StreamReader, limit: int) -> tuple[int, bytes]:
    """Reads one message and its label; raises ``ValueError`` if its announced size exceeds ``limit``."""
    label, size = HEADER.unpack(await reader.readexactly(HEADER.size))
    if size > limit:
        raise ValueError(f"a message of {size:,} bytes")
    return label, await reader.readexactly(size)


class Network(Link):
    """All connections of one party in one session: the ``Link`` of a computation.

    Attributes:
        sent: Bytes of the messages since all parties are ready.
    """

    def __init__(self, session: Session, party: int, identity: Identity | None, kept: list[str] | None = None) -> None:
        self.session, self.party, self.parties, self._identity = session, party, len(session.parties), identity
        self.others = [number for number in range(self.parties) if number != party]
        self.sent = self._step = 0
        self._state = JOINING
        # The messages of each party, and the error that ended its connection. With two unread messages the sender
        # waits.
        self._arrived = {number: asyncio.Queue[tuple[int, bytes] | SessionError](2) for number in self.others}
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self._talks = set[asyncio.Future[None]]()
        versions = {"arithmetic": str(ARITHMETIC), "pinq-miners": version("pinq-miners")}
        self._hello = Hello(party=party, text=session.text, versions=versions, kept=kept or [])
        self._last_error = ""
        # The default handler would print a trace for each broken connection of a stranger.
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)

    def name(self, number: int) -> str:
        """The name of a party in messages."""
        return f"party {number} ({self.session.parties[number].name})"

    @property
    def again(self) -> str:
        """The advice after a failure."""
        return f"{AGAIN}{': what was opened is kept, and costs nothing more' if self.session.nano else ''}."

    # Connections

    async def join(self, wait: float, listen: str | None, progress: Callable[[str], None]) -> tuple[str, list[str]]:
        """Connects to all parties and makes sure that all have the same session and versions.

        Returns the name of this run, and the opened values of its earlier rounds.
        """
        await self._listen(listen)
        progress(f"waiting for {len(self.others)} parties, at most {wait:g} s")
        # Of three parties 0 calls 1 and 2, and 1 calls 2: each pair has one connection.
        called = {number: self._context(server=False, peer=number) for number in self.others if number > self.party}
        self._talks |= {asyncio.ensure_future(self._call(number, tls)) for number, tls in called.items()}
        try:
            hellos = [Hello.model_validate_json(hello) for _, hello in await self._next(self.others, wait)]
        except TimeoutError:
            missing = ", ".join(self.name(number) for number in self.others if number not in self._writers)
            raise SessionError(f"{missing or 'a party'} did not join within {wait:g} s.{self._last_error}") from None
        for hello in hellos:
            self._require_same(hello)
        if self.session.nano:  # a session with noise has one name, so that a run can continue
            return self.session.digest, self._common([hello.kept for hello in hellos])
        # Each run of an exact session gets a new name, from random numbers of all parties.
        nonces = sorted(hello.nonce for hello in (self._hello, *hellos))
        return hashlib.sha256("".join([self.session.digest, *nonces]).encode()).hexdigest(), []

    async def _listen(self, address: str | None) -> None:
        """Accepts connections of the parties that the session lists before this one."""
        if self.party == 0:
            return
        member, tls = self.session.parties[self.party], self._context(server=True)
        # Without certificates a session is local: it listens on the host of the session only.
        host = member.host if address is None and tls is None else address
        try:
            self._server = await asyncio.start_server(self._meet, host, member.port, ssl=tls, limit=BUFFER)
        except OSError as error:
            raise SessionError(f"port {member.port} cannot be listened on: {error.strerror}.") from None

    async def _call(self, number: int, tls: ssl.SSLContext | None) -> None:
        """Calls a party until it answers."""
        other = self.session.parties[number]
        while True:
            try:
                reader, writer = await asyncio.open_connection(
                    other.host, other.port, ssl=tls, server_hostname="" if tls else None, limit=BUFFER
                )
                return await self._talk(reader, writer, number)
            except ssl.SSLCertVerificationError as error:
                failure = SessionError(
                    f"the program at {other.host}:{other.port} does not have the certificate that the session names "
                    f"for {self.name(number)}, or it has expired ({error.verify_message})."
                )
                return await self._arrived[number].put(failure)
            except (OSError, ssl.SSLError) as error:
                self._last_error = f" At {other.host}:{other.port}: {type(error).__name__}."
                await asyncio.sleep(0.1)

    def _context(self, *, server: bool, peer: int | None = None) -> ssl.SSLContext | None:
        """A context that trusts only the session's certificates; ``_talk`` checks the party."""
        if self._identity is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_cert_chain(self._identity.certificate, self._identity.key)
        except OSError as error:  # also ssl.SSLError, whose text is for programmers
            why = "they are no certificate with its key" if isinstance(error, ssl.SSLError) else error.strerror
            raise SessionError(
                f"the certificate {self._identity.certificate} and the key {self._identity.key} cannot be used: {why}."
            ) from None
        for number in self.others if peer is None else [peer]:
            context.load_verify_locations(cadata=self.session.parties[number].certificate_der)
        return context

    def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Starts to read the messages of a caller.

        The callback closes the connection, because a task that is cancelled before its first step does not even
        run its ``finally``.
        """
        talk = asyncio.ensure_future(self._talk(reader, writer))
        self._talks.add(talk)
        talk.add_done_callback(self._talks.discard)
        talk.add_done_callback(lambda _: writer.transport.abort())

    async def _talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int | None = None
    ) -> None:
        """Sends the hello, and reads the other party's messages until the connection ends.

        The connection of any other sender is closed.
        """
        try:
            if number is not None:
                self._greet(writer)
            # At most 16 MiB: a session, and the opened numbers of its rounds.
            message = await frame(reader, 2**24)
            claimed = Hello.model_validate_json(message[1]).party
            tls = writer.get_extra_info("ssl_object")  # without TLS, on one machine, a party's claim is trusted
            if claimed not in (self.others if number is None else [number]) or claimed in self._writers:
                return
            if tls and tls.getpeercert(binary_form=True) != self.session.parties[claimed].certificate_der:
                return
            if number is None:
                self._greet(writer)
            number, self._writers[claimed] = claimed, writer
            while True:
                await self._arrived[number].put(message)
                message = await frame(reader, 2**30)
        except (ValueError, RecursionError) as error:
            fault = (str(error) or type(error).__name__).splitlines()[0]
            await self._lost(
                number, f"sent something else than a message: {fault}. Do all parties run the same version?"
            )
        except (OSError, asyncio.IncompleteReadError, ssl.SSLError):
            await self._lost(number, f"is gone, {self._state}. {self.again}")
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _greet(self, writer: asyncio.StreamWriter) -> None:
        hello = self._hello.model_dump_json().encode()
        writer.write(HEADER.pack(HELLO, len(hello)) + hello)

    async def _lost(self, number: int | None, why: str) -> None:
        if number is not None:
            await self._arrived[number].put(SessionError(f"{self.name(number)} {why}"))

    def _require_same(self, hello: Hello) -> None:
        """Raises ``SessionError`` if a party has another session or version."""
        name = self.name(hello.party)
        if hello.text != self.session.text:
            raise SessionError(
                f"{name} has another session: {self.session.difference(hello.text)}. "
                "Nothing left any party. Agree on one file, and compare `pinq secure show`."
            )
        ours, theirs = self._hello.versions, hello.versions
        for package in sorted(ours.keys() | theirs.keys()):
            if ours.get(package) != theirs.get(package):
                raise SessionError(
                    f"{name} has {package} {theirs.get(package)}, {self.name(self.party)} {package} "
                    f"{ours.get(package)}. Nothing left any party. Install the same versions everywhere."
                )

    def _common(self, others: list[list[str]]) -> list[str]:
        """The longest list of stored rounds, after a check that every other list is its beginning."""
        own_rounds = self._hello.kept
        longest = max([own_rounds, *others], key=len)
        for number, rounds in zip([self.party, *self.others], [own_rounds, *others], strict=True):
            if rounds != longest[: len(rounds)]:
                raise SessionError(
                    f"{self.name(number)} kept other openings of this session than another party. "
                    "Nothing left any party. Give the session another name to begin anew."
                )
            if len(rounds) > len(own_rounds) + 1:  # a round begins only after all parties have stored the one before it
                raise SessionError(
                    f"{self.name(number)} says that {len(rounds)} rounds were opened; this party kept "
                    f"{len(own_rounds)}, and can be behind by one at most. Nothing left any party. Restore this "
                    "party's ledger, or give the session another name to begin anew."
                )
        return longest

    async def close(self, reason: str | None) -> None:
        """Closes all connections; a reason is sent to all others first."""
        if self._server is not None:
            self._server.close()
        for number, writer in self._writers.items():
            if reason is not None:
                self._send(number, STOP, reason.encode())
            writer.close()
        await asyncio.sleep(0.05)  # let the last messages leave
        talks = [task for task in self._talks if task.cancel()]
        await asyncio.gather(*talks, return_exceptions=True)

    # Exchanges

    async def exchange(self, step: str, messages: Mapping[int, bytes], senders: Iterable[int]) -> dict[int, bytes]:
        """Sends messages, and waits for those of others; see ``Link``."""
        label, received, senders = self._say(step, messages), {}, list(senders)
        for number, (their_step, message) in zip(senders, await self._next(senders, None), strict=True):
            if their_step != label:
                raise SessionError(
                    f"{self.name(number)} takes another step than {self.name(self.party)}. "
                    f"Do all parties run the same version? {self.again}"
                )
            received[number] = message
        return received

    def _say(self, step: str, messages: Mapping[int, bytes]) -> int:
        """Sends the messages of the next exchange; returns its label."""
        self._step += 1
        label = zlib.crc32(f"{self._step} {step}".encode()) >> 1
        for number, message in messages.items():
            self._send(number, label, message)
        return label

    def _send(self, number: int, label: int, message: bytes) -> None:
        self._writers[number].write(HEADER.pack(label, len(message)) + message)
        self.sent += HEADER.size + len(message)

    async def _next(self, numbers: Iterable[int], wait: float | None) -> list[tuple[int, bytes]]:
        """Waits for the next message of each party; raises ``TimeoutError`` after ``wait``."""
        return await asyncio.gather(*(self._next_of(number, wait) for number in numbers))

    async def _next_of(self, number: int, wait: float | None) -> tuple[int, bytes]:
        label = WAIT
        while label == WAIT:
            try:
                async with asyncio.timeout(wait or self.session.timeout):
                    message = await self._arrived[number].get()
            except TimeoutError:
                if wait is not None:
                    raise
                raise SessionError(
                    f"{self.name(number)} was silent for {self.session.timeout:g} s. {self.again}"
                ) from None
            if isinstance(message, SessionError):
                raise message
            label, content = message
        if label == STOP:
            reason = content[:1200].decode(errors="replace")[:300]
            raise SessionError(f"{self.name(number)} ended the session: {reason}")
        return label, content

    async def pause(self, seconds: float) -> None:
        """Waits, and announces it, so that the others do not give this party up; at most a quarter of the timeout."""
        for number in self.others:
            self._send(number, WAIT, b"")
        await asyncio.sleep(min(seconds, self.session.timeout / 4))

    async def ready(self) -> None:
        """Waits until all parties have announced that they can pay."""
        await self.exchange("ready", dict.fromkeys(self.others, b""), self.others)
        self._state, self.sent = RUNNING, 0

    async def meet(self, number: int, place: str) -> None:
        """Waits until all parties are at the same place; see ``Company``."""
        word = hashlib.sha256(place.encode()).digest()[:16]
        places = {self.party: word} | await self.exchange("meet", dict.fromkeys(self.others, word), self.others)
        (most_frequent, _), *_ = Counter(places.values()).most_common()
        apart = ", ".join(self.name(other) for other, theirs in sorted(places.items()) if theirs != most_frequent)
        if apart:
            raise SessionError(
                f"in round {number + 1} {apart} asks another question than the others, or opened other values: do all "
                "run the same version, on the same kind of machine? Nothing of this round left any party."
            )

    async def finish(self, progress: Callable[[str], None]) -> None:
        """Announces that this party has the result; reports the parties that do not announce it within two seconds."""
        label = self._say("done", dict.fromkeys(self.others, b""))
        messages = await asyncio.gather(*(self._next_of(number, 2.0) for number in self.others), return_exceptions=True)
        pairs = zip(self.others, messages, strict=True)
        silent = [self.name(number) for number, message in pairs if message != (label, b"")]
        if silent:
            progress(f"{', '.join(silent)} did not say to have the result. {self.again}")
