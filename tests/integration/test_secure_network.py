# SPDX-License-Identifier: Apache-2.0
"""Who is talked to, and about what: parties as threads of one process, for none of these ever comes to compute."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers.secure.processes import Unpaid
from miners.secure.session.network import Network
from miners.secure.session.party import run_party
from miners.secure.session.session import Session
from pinq.errors import SessionError
from pinq.secure_computation import Booking, Holding, Identity, Joining
from tests.parties import NAMES, Consortium, certify

pytestmark = pytest.mark.slow


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
    nothing = Holding(np.zeros((len(session.splits) + 1, 0), dtype=np.int64), np.zeros(0, dtype=np.int64))
    run_party(session, Joining(party, identity, wait, listen, lambda text: None), nothing, booking)


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

    monkeypatch.setattr("miners.secure.mpc.mpyc_runtime._fast_loop", asyncio.new_event_loop)
    monkeypatch.setattr(asyncio.SelectorEventLoop, "create_server", create_server)
    for listen in (None, "::1"):
        with pytest.raises(SessionError, match="cannot be listened on"):
            taken(local.session, 1, None, Unpaid(), wait=1, listen=listen)
    assert asked == ["127.0.0.1", "::1"]


@pytest.mark.parametrize("sent", [17, None, ["zz"], [5], {"0": "aa"}])
def test_keys_that_are_none_end_the_session(parties: Consortium, sent: object) -> None:
    """Whatever a party sends in place of keys, the error is one of the session."""

    async def read() -> None:
        network = Network(parties.session, 0, None)
        network._messages["keys"] = {1: sent}
        network._keys(1)

    with pytest.raises(SessionError, match=r"party 1 \(hospital\) sent keys that are none"):
        asyncio.run(read())
