# SPDX-License-Identifier: Apache-2.0
"""A ledger in PostgreSQL: the same log, shared by processes on any machine. Skipped where no server is installed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from pinq.errors import BudgetExceeded, LedgerError
from pinq.ledger.acts import Extended
from pinq.ledger.composition import Demand
from pinq.ledger.ledger import Ledger
from pinq.ledger.postgresql import _WATCH
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


def end_all(url: str) -> None:
    """Ends every other connection to a database."""
    engine = sa.create_engine(url)
    others = "FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"
    with engine.connect() as connection:
        connection.execute(sa.text(f"SELECT pg_terminate_backend(pid) {others}"))
    engine.dispose()


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
        end_all(postgresql)
    assert ledger.answer("ana", "r", "[1]") == "[1]"
    ledger.close()
    other.dispose()


def test_a_connection_that_is_gone_within_a_transaction(postgresql: str) -> None:
    """A transaction that cannot even be rolled back fails; the next one has a connection of its own."""
    ledger = Ledger(postgresql, "shared")
    ledger.declare("policy", Epsilon(10**10), {})
    ledger.grant("ana", Epsilon(10**9))

    def cut() -> None:
        with ledger._log.transaction() as writing:
            writing.append(Extended(Epsilon(10**9), None), "ana")
            writing.flush()
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
    """Its end closes nothing of its parent's, and it watches over none of its parent's connections."""
    ledger = Ledger(postgresql, "shared")
    ledger.declare("policy", Epsilon(10**10), {})
    ledger.grant("ana", Epsilon(10**9))
    with ledger._log.transaction() as writing:
        writing.append(Extended(Epsilon(10**9), None), "ana")
        writing.flush()
        assert len(_WATCH._ends) == 1
        child = os.fork()
        if not child:
            ledger._store._closing()
            os._exit(len(_WATCH._ends))
        assert os.waitpid(child, 0)[1] == 0
    ledger.close()
    again = Ledger(postgresql, "shared")
    assert again.grants()["ana"].limit == Epsilon(2 * 10**9)
    again.close()


def test_a_commit_is_on_the_disk(postgresql: str) -> None:
    """Whatever the database's own default: synchronous_commit is on in every session of a ledger."""
    other = sa.create_engine(postgresql, isolation_level="AUTOCOMMIT")
    with other.connect() as admin:
        admin.execute(sa.text("ALTER ROLE postgres SET synchronous_commit = off"))
        try:
            ledger = Ledger(postgresql, "shared")
            with ledger._store.transaction() as connection:
                settings = ("synchronous_commit", "statement_timeout", "lock_timeout")
                assert [connection.exec_driver_sql(f"SHOW {name}").scalar() for name in settings] == [
                    "on",
                    "5min",
                    "30s",
                ]
            ledger.close()
        finally:
            admin.execute(sa.text("ALTER ROLE postgres RESET synchronous_commit"))
        kept = Ledger(postgresql, "shared")
        try:
            admin.execute(sa.text("ALTER SYSTEM SET synchronous_commit = off"))
            admin.execute(sa.text("SELECT pg_reload_conf()"))
            while admin.execute(sa.text("SHOW synchronous_commit")).scalar() != "off":
                time.sleep(0.01)
            with kept._log.transaction(write=False) as reading:
                assert reading.connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
            kept.close()
        finally:
            admin.execute(sa.text("ALTER SYSTEM RESET synchronous_commit"))
            admin.execute(sa.text("SELECT pg_reload_conf()"))
    other.dispose()


def test_a_restored_dump_does_not_open_where_more_was_seen(postgresql: str, tmp_path: Path) -> None:
    """A server's own head names an event that the database lost."""
    ledger = Ledger(postgresql, "shared", heads=tmp_path)
    ledger.declare("policy", Epsilon(10**10), {})
    ledger.grant("ana", Epsilon(10**9))
    ledger.charge("ana", "r", DEMAND, Epsilon(10**7))
    ledger.close()
    other = sa.create_engine(postgresql)
    with other.begin() as connection:
        connection.execute(sa.text("DELETE FROM events WHERE seq = 4"))
    other.dispose()
    with pytest.raises(LedgerError, match="was cut or rolled back: event 4"):
        Ledger(postgresql, "shared", heads=tmp_path)
    Ledger(postgresql, "shared").close()  # whoever saw nothing more cannot tell


def test_a_server_that_hangs_is_not_waited_for(postgresql: str) -> None:
    """A process of it that answers nothing: the charge ends with an error, and is made once the server is back."""
    ledger = Ledger(postgresql, "shared")
    ledger.declare("policy", Epsilon(10**10), {})
    ledger.grant("ana", Epsilon(10**9))
    ledger._store._patience = 0.5
    with ledger._log.transaction(write=False) as reading:
        pid = reading.connection.exec_driver_sql("SELECT pg_backend_pid()").scalar()
    assert isinstance(pid, int)
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
    other = sa.create_engine(postgresql, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)

    def fsync(value: str) -> None:
        with other.connect() as admin:
            admin.execute(sa.text(f"ALTER SYSTEM SET fsync = '{value}'"))
            admin.execute(sa.text("SELECT pg_reload_conf()"))
        for _ in range(1000):
            with other.connect() as admin:
                if admin.execute(sa.text("SHOW fsync")).scalar() == value:
                    return

    fsync("off")
    try:
        with pytest.raises(LedgerError, match="runs with fsync=off: a crash would lose answers"):
            Ledger(postgresql, "shared")
    finally:
        fsync("on")
