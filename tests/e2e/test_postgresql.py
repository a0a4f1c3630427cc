# SPDX-License-Identifier: Apache-2.0
"""A ledger in PostgreSQL: the same log, shared by processes on any machine. Skipped where no server is installed."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from pinq.errors import BudgetExceeded, LedgerError
from pinq.language.parts import Block, Part, PartSet
from pinq.ledger.composition import Demand
from pinq.ledger.events import Extended
from pinq.ledger.ledger import Ledger
from pinq.public.epsilon import Epsilon
from tests.support.processes.forked_processes import FORKS
from tests.support.processes.postgresql import HERE, SKIPPED, connected

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


def end_all(url: str) -> None:
    """Ends every other connection to a database."""
    others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"
    with connected(url) as admin:
        admin.execute(f"SELECT pg_terminate_backend(pid) {others}")


def test_four_processes_share_one_grant(postgresql: str) -> None:
    """Exactly what was granted is answered, the chain verifies, and an answer is kept."""
    ledger = Ledger(postgresql, "shared")
    ledger.declare("policy", Epsilon(10**10), {})
    ledger.grant("ana", Epsilon(10**9))
    with FORKS.Pool(4) as pool:
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
    monkeypatch.setattr("pinq.ledger.postgresql.BUSY_SECONDS", 0.5)
    ledger = Ledger(postgresql, "shared")
    ledger.declare("policy", Epsilon(10**10), {})
    ledger.grant("ana", Epsilon(10**9))
    with connected(postgresql) as hanging:
        hanging.execute("BEGIN; SELECT pg_advisory_xact_lock(7162390)")
        with pytest.raises(LedgerError, match="lock timeout"):
            ledger.charge("ana", "r", DEMAND, Epsilon(10**7))
        hanging.execute("ROLLBACK")
        assert ledger.charge("ana", "r", DEMAND, Epsilon(10**7)) == (None, None)
        end_all(postgresql)
    assert ledger.answer("ana", "r", "[1]") == "[1]"
    ledger.close()


def test_a_connection_that_is_gone_within_a_transaction(postgresql: str) -> None:
    """A transaction that cannot even be rolled back fails; the next one has a connection of its own."""
    ledger = Ledger(postgresql, "shared")
    ledger.declare("policy", Epsilon(10**10), {})
    ledger.grant("ana", Epsilon(10**9))

    def cut() -> None:
        with ledger.log._held(), ledger.log.transaction() as writing:
            writing.append(Extended(Epsilon(10**9), None), "ana")
            ledger.log.database.run("SELECT 1")
            end_all(postgresql)
            raise RuntimeError("refused")

    with pytest.raises(LedgerError):
        cut()
    assert ledger.charge("ana", "r", DEMAND, Epsilon(10**7)) == (None, None)
    assert ledger.grants()["ana"].limit == Epsilon(10**9)
    assert ledger.verify() == 4
    ledger.close()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_leaves_its_parents_transaction_alone(postgresql: str) -> None:
    """Its end closes nothing of its parent's."""
    ledger = Ledger(postgresql, "shared")
    ledger.declare("policy", Epsilon(10**10), {})
    ledger.grant("ana", Epsilon(10**9))
    with ledger.log._held(), ledger.log.transaction() as writing:
        writing.append(Extended(Epsilon(10**9), None), "ana")
        ledger.log.database.run("SELECT 1")
        child = os.fork()
        if not child:
            ledger.log.database.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    ledger.close()
    again = Ledger(postgresql, "shared")
    assert again.grants()["ana"].limit == Epsilon(2 * 10**9)
    again.close()


def test_a_commit_is_on_the_disk(postgresql: str) -> None:
    """Whatever the database's own default: synchronous_commit is on in every session of a ledger."""
    with connected(postgresql) as admin:
        admin.execute("ALTER ROLE postgres SET synchronous_commit = off")
        try:
            ledger = Ledger(postgresql, "shared")
            with ledger.log.database.transaction(write=True):
                settings = ("synchronous_commit", "statement_timeout", "lock_timeout")
                shown = [ledger.log.database.run(f"SHOW {name}") for name in settings]
                assert shown == [[("on",)], [("5min",)], [("30s",)]]
            ledger.close()
        finally:
            admin.execute("ALTER ROLE postgres RESET synchronous_commit")
        kept = Ledger(postgresql, "shared")
        try:
            admin.execute("ALTER SYSTEM SET synchronous_commit = off")
            admin.execute("SELECT pg_reload_conf()")
            while admin.execute("SHOW synchronous_commit").fetchone() != ("off",):
                time.sleep(0.01)
            with kept.log.database.transaction(write=False):
                assert kept.log.database.run("SHOW synchronous_commit") == [("on",)]
            kept.close()
        finally:
            admin.execute("ALTER SYSTEM RESET synchronous_commit")
            admin.execute("SELECT pg_reload_conf()")


def test_a_restored_dump_does_not_open_where_more_was_seen(postgresql: str, tmp_path: Path) -> None:
    """A server's own head names an event that the database lost."""
    ledger = Ledger(postgresql, "shared", heads=tmp_path)
    ledger.declare("policy", Epsilon(10**10), {})
    ledger.grant("ana", Epsilon(10**9))
    ledger.charge("ana", "r", DEMAND, Epsilon(10**7))
    ledger.close()
    with connected(postgresql) as admin:
        admin.execute("DELETE FROM events WHERE seq = 4")
    with pytest.raises(LedgerError, match="was cut or rolled back: event 4"):
        Ledger(postgresql, "shared", heads=tmp_path)
    Ledger(postgresql, "shared").close()  # whoever saw nothing more cannot tell


def test_a_server_that_hangs_is_not_waited_for(postgresql: str) -> None:
    """A process of it that answers nothing: the charge ends with an error, and is made once the server is back."""
    ledger = Ledger(postgresql, "shared")
    ledger.declare("policy", Epsilon(10**10), {})
    ledger.grant("ana", Epsilon(10**9))
    database: Any = ledger.log.database
    database._patience = 0.5
    with ledger.log.database.transaction(write=False):
        ((pid,),) = ledger.log.database.run("SELECT pg_backend_pid()")
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(LedgerError, match="cannot be used"):
            ledger.grants()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert ledger.charge("ana", "r", DEMAND, Epsilon(10**7)) == (None, None)
    assert ledger.verify() == 4
    ledger.close()


def test_a_server_that_forgets_is_refused(postgresql: str) -> None:
    """With fsync=off a crash could lose answers that were given."""

    def fsync(value: str) -> None:
        with connected(postgresql) as admin:
            admin.execute(f"ALTER SYSTEM SET fsync = '{value}'")
            admin.execute("SELECT pg_reload_conf()")
        for _ in range(1000):
            with connected(postgresql) as admin:
                if admin.execute("SHOW fsync").fetchone() == (value,):
                    return

    fsync("off")
    try:
        with pytest.raises(LedgerError, match="runs with fsync=off: a crash would lose answers"):
            Ledger(postgresql, "shared")
    finally:
        fsync("on")
