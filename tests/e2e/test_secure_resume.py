# SPDX-License-Identifier: Apache-2.0
"""Sessions that break off: what they cost until then, that they end, and that they go on where they were."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from pinq.provider.report.audit import audit
from pinq.public.epsilon import Epsilon
from tests.support.house.assurance import thorough
from tests.support.processes.forked_processes import PinqProcess
from tests.support.processes.secure_parties import NAMES, Consortium

PAYING = ("--analyst", "consortium")
# The command, but its ledger's step kills it in a certain round: before the step, or after it.
KILLED = """
import os, signal
from pinq_secure.booking import LedgerBooking

step = LedgerBooking.{step}

def killed(self, *arguments):
    if {when!r} == "after":
        step(self, *arguments)
    if {round} in (None, arguments[0] if arguments else None):
        os.kill(os.getpid(), signal.SIGKILL)
    if {when!r} == "before":
        step(self, *arguments)

LedgerBooking.{step} = killed
from pinq.cli.main import main
main()
"""
KILLS = [
    ("begin", "before", None, 0),
    ("pay", "before", 0, 0),
    ("pay", "after", 1, 1),
    ("keep", "before", 1, 2),
    ("finish", "before", None, 4),
]
OTHER_VERSION = """
import pinq_secure.session.network as party
party.ARITHMETIC = 99
from pinq.cli.main import main
main()
"""
OPENS_MORE = """
import numpy as np
import pinq_secure.session.party as party
grow = party.grow

async def more(arithmetic, *arguments):
    outcome = await grow(arithmetic, *arguments)
    await arithmetic.open(np.array([5], dtype=object), "extra")
    return outcome

party.grow = more
from pinq.cli.main import main
main()
"""
ONE_STEP_MORE = """
from pinq_secure.id3.public_tree import ExactRules
scores = ExactRules.scores

async def more(self, arithmetic, tables, attributes):
    return await scores(self, arithmetic, await arithmetic.product(lambda x: x * 1, tables), attributes)

ExactRules.scores = more
from pinq.cli.main import main
main()
"""
ASKS_OTHERWISE = """
from pinq_secure.sums import SecureFederation
ask = SecureFederation.ask
SecureFederation.ask = lambda self, questions: ask(self, [*questions, *questions])
from pinq.cli.main import main
main()
"""


def spent(parties: Consortium) -> list[Epsilon]:
    """What the consortium was charged at each party."""
    accounts = [audit(policy).accounts.get("consortium") for policy in parties.policies]
    return [Epsilon(0) if account is None else account.spent for account in accounts]


def ended(running: list[PinqProcess], seconds: float = 90) -> list[tuple[int | None, str]]:
    """Each party's exit status, and what it said, which has no trace of a program."""
    said = [process.communicate(timeout=seconds)[1] for process in running]
    assert not any("Traceback" in text for text in said), said
    return [(process.returncode, text) for process, text in zip(running, said, strict=True)]


def learned(parties: Consortium) -> set[str]:
    """The models that there are."""
    files = [parties.folder / name / "result.json" for name in NAMES]
    contents = [json.loads(file.read_text()) for file in files if file.exists()]
    return {json.dumps([content["tree"], content["scorecard"]]) for content in contents}


@pytest.mark.parametrize(("step", "when", "number", "opened"), KILLS)
@pytest.mark.parametrize(
    "fields",
    [
        {"protocol": "scorecard", "steps": 2},
        pytest.param({"protocol": "sid3p", "depth": 2}, marks=thorough),  # its rounds are booked by the same steps
    ],
    ids=["scorecard", "sid3p"],
)
def test_a_model_costs_its_epsilon_once(
    tmp_path: Path, fields: dict[str, Any], step: str, when: str, number: int | None, opened: int
) -> None:
    """Wherever a party is killed: what was charged is equal at all parties up to one round, and all that starts again is the rest."""
    parties = Consortium(tmp_path, noise="discrete-laplace", epsilon="3", **fields)
    parties.grant(3)
    program = KILLED.format(step=step, when=when, round=number)
    first = [*(parties.join(party, *PAYING) for party in (0, 1)), parties.join(2, *PAYING, program=program)]
    ends = ended(first)
    assert ends[2][0] == -signal.SIGKILL
    charges = [audit(policy).accounts["consortium"] for policy in parties.policies]
    counts = [account.answered + account.unanswered for account in charges]
    assert max(counts) - min(counts) <= 1
    before = learned(parties)
    if step == "finish":  # who has the last opening has the result
        assert 0 in [status for status, _ in ends[:2]], ends  # the other's last share may have died with the party
        assert any("party 2 (registry) did not say to have the result" in text for _, text in ends[:2]), ends
    else:
        assert [status for status, _ in ends[:2]] == [1, 1], ends
        assert not before
        for (_, text), account in zip(ends[:2], charges, strict=False):
            assert ("was spent until then" if account.spent else "Nothing was spent") in text, ends
    assert max(counts) <= opened + 1
    again = ended([parties.join(party, *PAYING) for party in range(3)])
    assert [status for status, _ in again] == [0, 0, 0], again
    assert spent(parties) == [Epsilon.of(3)] * 3
    models = learned(parties)
    assert len(models) == 1
    assert step != "finish" or models == before


@pytest.mark.parametrize(
    ("program", "fields", "said"),
    [
        (
            OTHER_VERSION,
            {"protocol": "sid3p", "noise": "discrete-laplace", "epsilon": "1", "depth": 1},
            "arithmetic 99",
        ),
        (
            ASKS_OTHERWISE,
            {"protocol": "scorecard", "noise": "discrete-laplace", "epsilon": "1", "steps": 2},
            "in round 1 party 2 (registry) asks another question than the others",
        ),
        (OPENS_MORE, {"protocol": "sid3p"}, "takes another step than party 2 (registry)"),
        (
            ONE_STEP_MORE,
            {"protocol": "sid3p"},
            "party 2 (registry) takes another step than party 0 (clinic). Do all parties run the",
        ),
    ],
    ids=["version", "question", "one opening more", "one step more"],
)
def test_parties_that_differ_end(tmp_path: Path, program: str, fields: dict[str, Any], said: str) -> None:
    """In one sentence at each party, soon, and with nothing charged where it can be known before."""
    parties = Consortium(tmp_path, tls=False, policy={"secure": "exact"}, timeout=3, **fields)
    parties.grant(3)
    paying = PAYING if "noise" in fields else ()
    running = [*(parties.join(party, *paying) for party in (0, 1)), parties.join(2, *paying, program=program)]
    ends = ended(running, 40)
    others = 0 if program == OPENS_MORE else 1  # with one opening more the others have their result
    assert [status for status, _ in ends] == [others, others, 1], ends
    assert any(said in text for _, text in ends), ends
    assert spent(parties) == [Epsilon(0)] * 3
