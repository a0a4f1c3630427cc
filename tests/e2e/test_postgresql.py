# SPDX-License-Identifier: Apache-2.0
"""A ledger in PostgreSQL: the same log, shared by processes on any machine. Skipped where no server is installed."""

from __future__ import annotations

import multiprocessing
import os

import pytest
import sqlalchemy as sa

from pinq.errors import BudgetExceeded, LedgerError
from pinq.ledger.composition import Demand
from pinq.ledger.ledger import Ledger
from pinq.public.epsilon import Epsilon
from pinq.public.parts import Block, Part, PartSet
from tests.postgresql import HERE, SKIPPED

DEMAND = Demand.of(PartSet([Block(Part())]))

pytestmark = pytest.mark.skipif(not HERE, reason=SKIPPED)


def ask(url: str) -> int:
    ledger, answered = Ledger(url, "shared"), 0
    while True:
        try:
            ledger.charge("ana", f"{os.getpid()}-{answered}", DEMAND, Epsilon(10**7))
        except BudgetExceeded:
            ledger.close()
            return answered
        answered += 1


def test_four_processes_share_one_grant(postgresql: str) -> None:
    """Exactly what was granted is answered, the chain verifies, and an answer is kept."""
    ledger = Ledger(postgresql, "shared")
    ledger.declare("policy", Epsilon(10**10), {})
    ledger.grant("ana", Epsilon(10**9))
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert sum(pool.map(ask, [postgresql] * 4, chunksize=1)) == 100
    assert ledger.grants()["ana"].spent == Epsilon(10**9)
    ledger.extend("ana", Epsilon(10**7))
    ledger.charge("ana", "last", DEMAND, Epsilon(10**7))
    assert ledger.answer("ana", "last", "[1]") == "[1]"
    assert ledger.answer("ana", "last", "[2]") == "[1]"
    assert (
        ledger.verify() == 3 + 100 + 4 + 3
    )  # created, policy, grant; charges; each process refused once; extend, charge, answer
    assert "postgres" in repr(ledger)
    ledger.close()
    again = Ledger(postgresql, "shared")
    assert again.grants()["ana"].spent == Epsilon(10**9 + 10**7)
    again.close()


def test_a_writer_that_hangs_and_a_connection_that_is_gone(postgresql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for the lock ends with an error after which the same request goes on; so does a server that closed the connections."""
    monkeypatch.setattr("pinq.ledger.store.BUSY_SECONDS", 0.5)
    ledger = Ledger(postgresql, "shared")
    ledger.declare("policy", Epsilon(10**10), {})
    ledger.grant("ana", Epsilon(10**9))
    other = sa.create_engine(postgresql)
    with other.connect() as hanging:
        hanging.execute(sa.text("SELECT pg_advisory_xact_lock(7162390)"))
        with pytest.raises(LedgerError, match="lock timeout"):
            ledger.charge("ana", "r", DEMAND, Epsilon(10**7))
        hanging.rollback()
        assert ledger.charge("ana", "r", DEMAND, Epsilon(10**7)) == (None, None)
        hanging.execute(
            sa.text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
        )
    assert ledger.answer("ana", "r", "[1]") == "[1]"
    ledger.close()
    other.dispose()
