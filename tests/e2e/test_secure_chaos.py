# SPDX-License-Identifier: Apache-2.0
"""Sessions whose parties are killed, terminated, stopped and late at random: they end, cost their epsilon once, and go on.

`make test` tries one session of each kind, `make assurance` fifty.
"""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from pinq.public.epsilon import Epsilon
from tests.e2e.test_secure_resume import PAYING, ended, learned, spent
from tests.support.house.assurance import ASSURANCE, note, thorough
from tests.support.processes.secure_parties import Consortium

SESSIONS = 50 if ASSURANCE else 1
TIMEOUT = 3  # seconds, of the session
ATTEMPTS = 12
SLOW = f"was silent for {TIMEOUT} s"
PATIENCE = 600  # seconds, of a hang: a party at the lowest priority beside others took most of a minute
KINDS: dict[str, dict[str, Any]] = {
    "sid3p": {"protocol": "sid3p", "depth": 2},
    "scorecard": {"protocol": "scorecard", "steps": 2},
    "topdown": {"protocol": "topdown", "depth": 2},
    "mean": {"protocol": "scorecard", "steps": 2, "target": "age"},
}
HARM = (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, None)


def harmed(parties: Consortium, rng: random.Random) -> list[int | None]:
    """One attempt in which something happens to a party at some time; returns the exit status of each."""
    running = []
    late = rng.randrange(3)
    for party in range(3):
        time.sleep(rng.uniform(0, 0.5) if party == late else 0)
        running.append(parties.join(party, *PAYING, "--wait", "6"))
    victim, harm = running[rng.randrange(3)], rng.choice(HARM)
    time.sleep(rng.uniform(0, 1))
    if harm is not None and victim.poll() is None:
        victim.send_signal(harm)
        if harm == signal.SIGSTOP:
            time.sleep(TIMEOUT * rng.choice([0.5, 3]))
            victim.send_signal(signal.SIGCONT)
    return [status for status, _ in ended(running, PATIENCE)]


@pytest.mark.parametrize(
    "kind", ["sid3p", "scorecard", pytest.param("topdown", marks=thorough), pytest.param("mean", marks=thorough)]
)
def test_a_session_survives_its_parties(tmp_path: Path, kind: str) -> None:
    """Attempt after attempt, until all parties have the model."""
    attempts = 0
    for number in range(SESSIONS):
        rng = random.Random(f"{kind} {number}")
        folder = tmp_path / str(number)
        folder.mkdir()
        noise: dict[str, Any] = {"noise": "discrete-laplace", "epsilon": "3", "timeout": TIMEOUT}
        parties = Consortium(folder, **noise, **KINDS[kind])
        parties.grant(3)
        statuses: list[int | None] = [None]
        for _ in range(ATTEMPTS):
            statuses = harmed(parties, rng)
            attempts += 1
            assert max(spent(parties)) <= Epsilon.of(3)
            if statuses == [0, 0, 0]:
                break
        for _ in range(ATTEMPTS):  # unharmed: one that ends without a model has to say that the machine was slow
            if statuses != [0, 0, 0]:
                running = [parties.join(party, *PAYING) for party in range(3)]
                said = ended(running, PATIENCE)
                statuses = [status for status, _ in said]
                assert statuses == [0, 0, 0] or any(SLOW in text for _, text in said), said
        assert statuses == [0, 0, 0]
        assert spent(parties) == [Epsilon.of(3)] * 3
        assert len(learned(parties)) == 1
    note(
        f"attempts of a secure session ({kind}) with kills, stops, signals to end and delays",
        attempts,
        "each model once",
    )
