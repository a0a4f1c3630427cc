# SPDX-License-Identifier: Apache-2.0
"""A ledger in PostgreSQL: the same log, shared by processes on any machine. Skipped where no server is installed."""

from __future__ import annotations

import multiprocessing
import os

import pytest
from postgresql import HERE, SKIPPED

from pinq.composition import Demand
from pinq.errors import BudgetExceeded
from pinq.ledger import Ledger
from pinq.parts import Block, Part, PartSet

DEMAND = Demand.of(PartSet([Block(Part())]))

pytestmark = pytest.mark.skipif(not HERE, reason=SKIPPED)


def ask(url: str) -> int:
    ledger, answered = Ledger(url, "shared"), 0
    while True:
        try:
            ledger.charge("ana", f"{os.getpid()}-{answered}", DEMAND, 10**7, {})
        except BudgetExceeded:
            ledger.close()
            return answered
        answered += 1


def test_four_processes_share_one_grant(postgresql: str) -> None:
    """Exactly what was granted is answered, the chain verifies, and an answer is kept."""
    ledger = Ledger(postgresql, "shared")
    ledger.declare("policy", 10**10, {})
    ledger.grant("ana", 10**9)
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert sum(pool.map(ask, [postgresql] * 4, chunksize=1)) == 100
    assert ledger.grants()["ana"].spent == 10**9
    ledger.extend("ana", 10**7)
    ledger.charge("ana", "last", DEMAND, 10**7, {})
    assert ledger.answer("ana", "last", "[1]") == "[1]"
    assert ledger.answer("ana", "last", "[2]") == "[1]"
    assert ledger.verify() == 3 + 100 + 4 + 3  # created, policy, grant; charges; each process refused once; extend, charge, answer
    assert "postgres" in repr(ledger)
    ledger.close()
    again = Ledger(postgresql, "shared")
    assert again.grants()["ana"].spent == 10**9 + 10**7
    again.close()
