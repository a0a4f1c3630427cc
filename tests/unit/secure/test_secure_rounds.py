# SPDX-License-Identifier: Apache-2.0
"""Rounds: what is paid when, what is kept, and that a round asked again has the noise that it had."""

from __future__ import annotations

import asyncio
import json
import warnings
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from miners.budget.plan import FitWarning
from pinq.errors import SessionError
from pinq.public.noise import Bits
from pinq_secure.id3.task import hold
from pinq_secure.mpc import rounds
from pinq_secure.mpc.arithmetic import ALONE
from pinq_secure.mpc.noise import own_noise
from pinq_secure.session.party import take_part
from pinq_secure.session.session import Session

KEY = bytes(range(32))


class Company(rounds.Company):
    """Notes what a party does, in order; breaks off before it keeps round ``breaks``."""

    def __init__(self, breaks: int | None = None) -> None:
        self.did: list[tuple[str, int]] = []
        self.kept: list[str] = []
        self.prices: dict[int, int] = {}
        self._breaks = breaks

    async def meet(self, number: int, place: str) -> None:
        self.did.append(("meet", number))

    def pay(self, number: int, place: str, nano: int, cells: int) -> None:
        self.did.append(("pay", number))
        self.prices[number] = nano

    def keep(self, number: int, opened: str) -> None:
        if number == self._breaks:
            raise SessionError("broken off")
        self.kept[number:] = [opened]


def ran(company: Company, kept: list[str], prices: list[Fraction], key: bytes = KEY, what: str = "sum") -> list[int]:
    """Asks for one noisy zero at each price; returns what was opened."""
    asked = rounds.Rounds(company, kept, key)

    def draw(source: Bits) -> np.ndarray:
        company.did.append(("draw", -1))
        return own_noise((1,), Fraction(1, 50), 2, source)

    async def work(noise: np.ndarray, _: Bits) -> np.ndarray:
        company.did.append(("send", -1))
        return noise

    async def all_rounds() -> list[int]:
        return [int((await asked.ask(what, price, 1, draw, work))[0]) for price in prices]

    return asyncio.run(all_rounds())


def test_a_round_is_drawn_met_paid_and_sent() -> None:
    """In this order: the others hear of a round when its noise is drawn, and nothing of it leaves before it is paid."""
    company = Company()
    ran(company, [], [Fraction(1)] * 2)
    assert [step for step, _ in company.did] == ["draw", "meet", "pay", "send"] * 2


def test_prices_add_up_to_the_nano() -> None:
    """Three thirds of a nano-epsilon and a bit: rounded up together, not one by one."""
    company = Company()
    ran(company, [], [Fraction(1, 3 * 10**9)] * 3 + [Fraction(1)])
    assert [company.prices[number] for number in range(4)] == [1, 0, 0, 10**9]


def test_kept_rounds_are_read_and_the_broken_one_is_opened_alike() -> None:
    """Broken off before round 2 was kept: rounds 0 and 1 are not sent again, round 2 opens the same values."""
    whole = ran(Company(), [], [Fraction(1)] * 4)
    broken = Company(breaks=2)
    with pytest.raises(SessionError):
        ran(broken, [], [Fraction(1)] * 4)
    again = Company()
    assert ran(again, broken.kept, [Fraction(1)] * 4) == whole
    assert again.did.count(("send", -1)) == again.did.count(("draw", -1)) == 2
    assert ran(Company(), broken.kept, [Fraction(1)] * 4, key=KEY[::-1])[2:] != whole[2:]
    assert len(set(whole)) > 1


def test_another_question_does_not_read_what_was_kept() -> None:
    """Of another version, say: the answer of one question is none to another."""
    first = Company()
    ran(first, [], [Fraction(1)])
    for prices, what in (([Fraction(1)], "other"), ([Fraction(2)], "sum")):
        with pytest.raises(SessionError, match="round 1 was another question when it was opened"):
            ran(Company(), first.kept, prices, what=what)


@pytest.mark.parametrize(
    "opened",
    ["nothing", "[]", "[1, 2]", "[1.5]", "[true]", '["1"]', "[1e999]", f"[{2**63}]", f"[{'9' * 5000}]", "{}", None],
)
def test_what_no_round_opens_is_neither_paid_nor_kept(opened: str | None) -> None:
    """A party is one round ahead and sends what it says that it kept: nothing of it reaches the ledger, and no trace a person."""
    first, company = Company(), Company()
    ran(first, [], [Fraction(1)])
    place = json.loads(first.kept[0])["place"]
    kept = "[" * 10_000 if opened is None else f'{{"place": "{place}", "opened": {opened}}}'
    with pytest.raises(SessionError, match="what a party kept of round 1 is no answer of its question"):
        ran(company, [kept], [Fraction(1)])
    assert not company.did
    assert not company.kept


GOLDEN = Path(__file__).parents[2] / "contract" / "golden" / "rounds.json"
SESSION: dict[str, Any] = {
    "session": "golden",
    "target": "ill",
    "noise": "discrete-laplace",
    "epsilon": "1",
    "columns": {
        "sex": {"type": "categorical", "values": ["F", "M"]},
        "age": {"type": "numeric", "lower": 0, "upper": 80, "step": 10},
        "ill": {"type": "categorical", "values": ["no", "yes"]},
    },
    "cuts": {"age": 4},
    "parties": [{"name": f"p{number}", "host": "localhost", "port": number + 1, "rows": 40} for number in range(3)],
}


@pytest.mark.parametrize("protocol", ["sid3p", "topdown", "scorecard"])
def test_a_session_that_an_earlier_version_began_goes_on(protocol: str) -> None:
    """Its key makes the noise that it made for its first round, which asks what it asked; of sid3p also those after it.

    Else a round that was charged, and broke off, would be opened again with another noise. What a miner asks
    after its first round may improve: then a session that kept an earlier answer refuses. Where the first round
    must change, a session that was begun has to refuse too: change what ``Rounds`` calls its first place, then
    this file.
    """
    steps = {"steps": 2} if protocol == "scorecard" else {"depth": 2}
    session = Session.drafted(SESSION | {"protocol": protocol} | steps)
    rows = pd.DataFrame({"sex": ["F", "M"] * 10, "age": range(0, 80, 4), "ill": ["no"] * 9 + ["yes"] * 11})
    company = Company()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # of twenty rows
        taking_part = take_part(
            session, ALONE, hold(session.task, rows), rounds=rounds.Rounds(company, [], KEY), plays=3
        )
        asyncio.run(taking_part)
    golden = json.loads(GOLDEN.read_text())[protocol]
    assert list(map(json.loads, company.kept))[: len(golden)] == golden
