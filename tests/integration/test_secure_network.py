# SPDX-License-Identifier: Apache-2.0
"""Who is talked to, and about what: parties as threads of one process, for none of these ever comes to compute."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import numpy as np
import pytest

from benchmarks.papers.secure.processes import Unpaid, free_ports
from pinq.errors import SessionError
from pinq_secure.id3.task import Holding, hold
from pinq_secure.session.network import HEADER, HELLO, WAIT, Hello, Identity, Network
from pinq_secure.session.party import Booking, Joining, _Run, run_party, run_simulation
from pinq_secure.session.session import Session
from tests.support.processes.secure_parties import NAMES, Consortium, certify, patients, session_of

NOTHING = Holding(np.zeros((4, 0), dtype=np.int64), np.zeros(0, dtype=np.int64))


def taken(
    session: Session,
    party: int,
    identity: Identity | None,
    booking: Booking,
    *,
    wait: float,
    listen: str | None = "127.0.0.1",
) -> None:
    """Takes part without rows."""
    run_party(session, Joining(party, identity, wait, listen, lambda text: None), NOTHING, booking)


def together(
    sessions: list[Session], identities: list[Identity | None], last_waits: float = 30
) -> tuple[list[str], list[str]]:
    """What each party's side ended with, and who got as far as agreeing. A stranger, whom nobody tells anything, is the last and waits less."""
    ends, agreed = ["" for _ in sessions], []

    class Stops(Unpaid):
        def __init__(self, party: int) -> None:
            self._party = party

        def begin(self, run: str) -> None:
            agreed.append(NAMES[self._party])
            raise SessionError("stopped by the test")

    def side(party: int) -> None:
        try:
            taken(sessions[party], party, identities[party], Stops(party), wait=last_waits if party == 2 else 30)
        except SessionError as error:
            ends[party] = str(error)

    threads = [threading.Thread(target=side, args=(party,)) for party in range(len(sessions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return ends, agreed


@pytest.fixture
def parties(tmp_path: Path) -> Consortium:
    return Consortium(tmp_path, policy={"secure": "exact"})


def identities(parties: Consortium) -> list[Identity | None]:
    return [Identity(str(parties.folder / f"{name}.crt"), str(parties.folder / f"{name}.key")) for name in NAMES]


def test_parties_with_one_session_agree(parties: Consortium) -> None:
    """With the right certificates at least one gets to the moment of charging; there it stops here, and all end."""
    ends, agreed = together([parties.session] * 3, identities(parties))
    assert agreed
    assert all("stopped by the test" in end for end in ends), ends


def test_sessions_that_differ_are_told_apart(parties: Consortium) -> None:
    """A party with another session stops all; the message names what differs; nobody gets to the moment of charging."""
    other = Session.model_validate(parties.session.model_dump() | {"alpha": 9})
    ends, agreed = together([parties.session, other, parties.session], identities(parties))
    assert agreed == []
    assert all(ends)
    # Whoever is first to hear of it says so from its own side.
    assert any("`alpha` is 9 there and 8 here" in end or "`alpha` is 8 there and 9 here" in end for end in ends), ends


def test_a_stranger_is_not_let_in(parties: Consortium) -> None:
    """Who has another certificate than the session names for a party is talked to on neither side of a connection."""
    (parties.folder / "evil").mkdir()
    certificate, key = certify(parties.folder / "evil", "registry")
    ends, agreed = together(
        [parties.session] * 3, [*identities(parties)[:2], Identity(str(certificate), str(key))], last_waits=6
    )
    assert agreed == []
    assert "does not have the certificate that the session names for party 2 (registry)" in ends[0] + ends[1]


def test_a_party_cannot_pass_for_another(parties: Consortium) -> None:
    """The hospital's key does not open the registry's place: a certificate of the session, but not of that party."""
    own = identities(parties)
    ends, agreed = together([parties.session] * 3, [own[0], own[1], own[1]], last_waits=6)
    assert agreed == []
    assert "does not have the certificate that the session names for party 2 (registry)" in ends[0] + ends[1]


def test_waiting_ends(parties: Consortium) -> None:
    """Who does not come is named after the time one was ready to wait."""
    with pytest.raises(SessionError, match=r"party 1 \(hospital\), party 2 \(registry\) did not join within 1 s"):
        taken(parties.session, 0, identities(parties)[0], Unpaid(), wait=1)


def test_without_certificates_nobody_from_elsewhere_is_listened_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session on one machine has no TLS, so a party's port is open to that machine alone."""
    local, asked = Consortium(tmp_path, tls=False), []

    async def create_server(
        loop: asyncio.AbstractEventLoop, factory: object, host: str | None, *rest: object, **options: object
    ) -> None:
        asked.append(host)
        raise OSError(0, "not in this test")

    monkeypatch.setattr(asyncio.SelectorEventLoop, "create_server", create_server)
    for listen in (None, "::1"):
        with pytest.raises(SessionError, match="cannot be listened on"):
            taken(local.session, 1, None, Unpaid(), wait=1, listen=listen)
    assert asked == ["127.0.0.1", "::1"]


def kept_by(parties: Consortium, *kept: list[str]) -> list[str]:
    """What the first party takes as opened, where each party kept these rounds."""

    async def common() -> list[str]:
        return Network(parties.session, 0, None, kept[0])._common(list(kept[1:]))

    return asyncio.run(common())


def test_a_party_is_one_round_behind_at_most(parties: Consortium) -> None:
    """No round begins before all have kept the one before it, so who tells of more is named and not believed."""
    assert kept_by(parties, ["a"], ["a", "b"], ["a"]) == ["a", "b"]
    assert kept_by(parties, ["a", "b"], [], ["a"]) == ["a", "b"]
    with pytest.raises(SessionError, match=r"party 2 \(registry\) says that 3 rounds were opened; this party kept 1"):
        kept_by(parties, ["a"], ["a", "b"], ["a", "b", "c"])
    with pytest.raises(SessionError, match=r"party 1 \(hospital\) kept other openings"):
        kept_by(parties, ["a"], ["x"], ["a", "b"])


@pytest.mark.parametrize(
    ("arrives", "message"),
    [
        (
            HEADER.pack(7, 2**30 + 1),
            r"party 1 \(hospital\) sent something else than a message: a message of 1,073,741,825 bytes",
        ),
        (HEADER.pack(-1, 4) + b"left", r"party 1 \(hospital\) ended the session: left"),
        (
            HEADER.pack(7, 4) + b"else",
            r"party 1 \(hospital\) takes another step than party 0 \(clinic\). Do all parties",
        ),
        (HEADER.pack(7, 4), r"party 1 \(hospital\) is gone"),
        (HEADER.pack(WAIT, 0), r"party 1 \(hospital\) was silent for 1 s"),
    ],
    ids=["too large", "ended", "another step", "gone", "silent"],
)
def test_whatever_a_party_sends_the_error_names_it(parties: Consortium, arrives: bytes, message: str) -> None:
    """A message that is too large or of another step, half a message, an end, and none: each wait ends."""
    session = parties.session.model_copy(update={"timeout": 1.0})

    async def exchanged() -> None:
        network = Network(session, 0, None)
        reader = asyncio.StreamReader()
        hello = Hello(party=1).model_dump_json().encode()
        reader.feed_data(HEADER.pack(HELLO, len(hello)) + hello + arrives)
        if "silent" not in message:
            reader.feed_eof()
        writer = Mock(get_extra_info=lambda name: None, wait_closed=AsyncMock())
        talking = asyncio.ensure_future(network._talk(reader, writer, 1))
        assert Hello.model_validate_json((await network._next([1], 5))[0][1]).party == 1
        try:
            await network.exchange("opening 3", {1: b"abc"}, [1])
        finally:
            talking.cancel()

    with pytest.raises(SessionError, match=message):
        asyncio.run(exchanged())


def test_a_party_waits_for_its_pace_and_says_so(parties: Consortium) -> None:
    """Before it tells the others that it is at the round, and without being given up."""
    waits = [0.01, 0.01, 0.0]
    did: list[str] = []

    class Paced(Unpaid):
        def pace(self) -> float:
            return waits.pop(0)

    async def meet() -> list[int]:
        joining = Joining(0, None, 1, None, did.append)
        run = _Run(parties.session, joining, NOTHING, Paced(), None)
        run._network = network = Network(parties.session, 0, None)
        network._writers = {1: (writer := Mock()), 2: Mock()}
        network._arrived[1].put_nowait(SessionError("the other one ends here"))
        with contextlib.suppress(SessionError):
            await run.meet(0, "x")
        return [HEADER.unpack(call.args[0][: HEADER.size])[0] for call in writer.write.call_args_list]

    labels = asyncio.run(meet())
    assert labels[:2] == [WAIT, WAIT]
    assert labels[2] >= 0
    assert [text.split(":")[0] for text in did] == ["the grant allows no more questions this minute"] * 2


def test_strangers_end_no_session_without_certificates(tmp_path: Path) -> None:
    """On one machine anybody may call a port: garbage, a hello of nobody and a second hello of a party end that connection, before the session and while it runs."""
    fields: dict[str, Any] = {"protocol": "topdown", "noise": "discrete-laplace", "epsilon": "9", "depth": 1}
    local = Consortium(tmp_path, tls=False, **fields)
    session = local.session
    learned: dict[int, object] = {}
    hellos = [Hello(party=number).model_dump_json().encode() for number in (0, 9)]
    framed = [HEADER.pack(HELLO, len(hello)) + hello for hello in (*hellos, b"[1]")]
    calls = [b"\xff" * 16, *framed]
    over = threading.Event()

    def bother(first: int) -> None:
        while not over.wait(0.02):
            for port, call in itertools.product([member.port for member in session.parties[1:]], calls[first:]):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as line:
                    line.sendall(call)

    def side(party: int) -> None:
        joining = Joining(party, None, 30, None, lambda text: agreed.release() if "agree" in text else None)
        holding = hold(session.task, local.frames[party])
        learned[party] = run_party(session, joining, holding, Unpaid())[0].tree

    agreed = threading.Semaphore(0)
    threads = [threading.Thread(target=side, args=(party,)) for party in range(3)]
    early = threading.Thread(target=bother, args=(0,))
    for thread in (threads[1], threads[2]):
        thread.start()
    calls.pop(1)  # who says first to be party 0 is believed, on one machine; afterwards nobody else is
    early.start()
    threads[0].start()
    assert all(agreed.acquire(timeout=30) for _ in threads)
    calls.append(framed[0])
    for thread in threads:
        thread.join(60)
    over.set()
    early.join(10)
    assert len(learned) == 3
    assert learned[0] == learned[1] == learned[2]


def test_sessions_in_one_process_keep_apart() -> None:
    """Two sessions that compare at once, each party a thread: one computation is nothing to another."""
    learned: dict[tuple[int, int], object] = {}
    ports, frames = free_ports(6), [patients(40, number) for number in range(3)]
    sessions = [session_of("sid3p", [40] * 3, ports=ports[:3]), session_of("sid3", [40] * 3, ports=ports[3:])]
    holdings = [hold(sessions[0].task, frame) for frame in frames]

    def side(number: int, party: int) -> None:
        joining = Joining(party, None, 30, None, lambda text: None)
        learned[number, party] = run_party(sessions[number], joining, holdings[party], Unpaid())[0].tree

    threads = [threading.Thread(target=side, args=(number, party)) for number in range(2) for party in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(learned) == 6
    assert all(tree == run_simulation(sessions[0], holdings)[0].tree for tree in learned.values())


def test_a_caller_at_the_very_end_is_left_no_open_connection() -> None:
    """A session ends before the task of a new connection has taken its first step."""

    async def end_before_the_first_step() -> bool:
        network = Network(session_of("sid3p", [4] * 3, ports=free_ports(3)), 1, None)
        near, far = socket.socketpair()
        with far:
            _, writer = await asyncio.open_connection(sock=near)
            network._meet(Mock(), writer)
            (talk,) = network._talks
            talk.cancel()
            await asyncio.wait([talk])
            await asyncio.sleep(0)
            return writer.transport.is_closing()

    assert asyncio.run(end_before_the_first_step())
