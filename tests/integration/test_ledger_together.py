# SPDX-License-Identifier: Apache-2.0
"""Charges that wait together are committed together; each is charged once, in order, and answered after the commit."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from pinq.errors import BudgetExceeded, LedgerError
from pinq.language.parts import Block, Part, PartSet
from pinq.ledger.composition import Demand
from pinq.ledger.database import SQLite
from pinq.ledger.ledger import Ledger
from pinq.public.epsilon import Epsilon

WHOLE = Demand.of(PartSet([Block(Part())]))
WAITING = 12


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A file, with a grant of 1,000 small charges."""
    made = Ledger(tmp_path / "l", "d")
    made.declare("x", Epsilon(10**9), {})
    made.grant("ana", Epsilon(1000))
    yield made
    made.close()


def wait_together(ledger: Ledger, acts: list[Callable[[], object]]) -> tuple[list[object], int]:
    """Lets acts wait behind a transaction until all are there; returns their results or errors, and how many commits they took."""
    commits: list[object] = []
    commit = SQLite.commit

    def counted(self: SQLite) -> None:
        commits.append(self)
        commit(self)

    def outcome(act: Callable[[], object]) -> object:
        try:
            return act()
        except (LedgerError, BudgetExceeded) as error:
            return error

    with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor(len(acts)) as pool:
        patched.setattr(SQLite, "commit", counted)
        with ledger.log._held(), ledger.log.transaction(write=False):
            done = [pool.submit(outcome, act) for act in acts]
            while len(ledger.log._jobs) < len(acts):
                threading.Event().wait(0.001)
        results = [each.result() for each in done]
    return results, len(commits)


def test_what_waits_together_costs_one_commit(ledger: Ledger) -> None:
    """And each is in the log, once."""
    acts = [lambda i=i: ledger.charge("ana", f"r{i}", WHOLE, Epsilon(1)) for i in range(WAITING)]
    results, commits = wait_together(ledger, acts)  # type: ignore[arg-type]
    assert (results, commits) == ([(None, None)] * WAITING, 1)
    assert ledger.grants()["ana"].spent == Epsilon(WAITING)
    assert sorted(event.request for event in ledger.log.events() if event.kind == "charge") == sorted(
        f"r{i}" for i in range(WAITING)
    )
    ledger.verify()


def test_one_id_asked_at_once_is_charged_once(ledger: Ledger) -> None:
    """The first charges it, the others find its charge, though it is not committed yet; so with answers."""
    results, _ = wait_together(ledger, [lambda: ledger.charge("ana", "r", WHOLE, Epsilon(1))] * WAITING)
    assert results.count((None, None)) == 1
    given, _ = wait_together(
        ledger,
        [partial(ledger.answer, "ana", "r", f"[{i}]") for i in range(WAITING)],
    )
    assert len(set(given)) == 1
    assert ledger.answer_of("ana", "r")[1] == given[0]
    assert ledger.grants()["ana"].spent == Epsilon(1)
    ledger.verify()


def test_a_refusal_concerns_nobody_else(ledger: Ledger) -> None:
    """Of those who wait for more than is left, as many are answered as were granted."""
    ledger.charge("ana", "most", WHOLE, Epsilon(997))
    acts = [lambda i=i: ledger.charge("ana", f"r{i}", WHOLE, Epsilon(1)) for i in range(WAITING)]
    results, commits = wait_together(ledger, acts)  # type: ignore[arg-type]
    assert (results.count((None, None)), commits) == (3, 1)
    assert sum(isinstance(result, BudgetExceeded) for result in results) == WAITING - 3
    kinds = [event.kind for event in ledger.log.events()]
    assert (kinds.count("charge"), kinds.count("refusal")) == (4, WAITING - 3)


def test_a_commit_that_fails_fails_for_all(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it was spent, nobody is told otherwise, and the next one goes on."""

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("disk full")

    acts = [lambda i=i: ledger.charge("ana", f"r{i}", WHOLE, Epsilon(1)) for i in range(WAITING)]
    with monkeypatch.context() as broken:
        broken.setattr(SQLite, "commit", full)
        results, _ = wait_together(ledger, acts)  # type: ignore[arg-type]
    assert {str(error) for error in results} == {
        f"The ledger {ledger.address} cannot be used: disk full. What was spent is in the log."
    }
    assert ledger.grants()["ana"].spent == Epsilon(0)
    assert ledger.charge("ana", "r0", WHOLE, Epsilon(1)) == (None, None)
    assert ledger.verify() == 4


def test_whoever_is_interrupted_while_waiting_keeps_nobody_else(ledger: Ledger) -> None:
    """The turn of one who gave up passes on: who comes later is answered."""
    begun, main = threading.Event(), threading.get_ident()

    def interrupt(_: object) -> None:
        begun.set()
        while not ledger.log._jobs:
            time.sleep(0.001)
        time.sleep(0.05)
        signal.pthread_kill(main, signal.SIGINT)
        time.sleep(0.05)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(ledger.log.run, interrupt)
        begun.wait()
        with pytest.raises(KeyboardInterrupt):
            ledger.charge("ana", "given-up", WHOLE, Epsilon(1))
        signal.signal(signal.SIGINT, before)
        slow.result()
        pool.submit(ledger.charge, "ana", "later", WHOLE, Epsilon(1)).result(20)
    assert ledger.grants()["ana"].spent == Epsilon(2)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_process_that_is_forked_in_the_middle_of_a_transaction_closes_without_waiting(tmp_path: Path) -> None:
    """The thread that holds the log is not in it, and would be waited for in vain."""
    ledger = Ledger(str(tmp_path / "l"), "people")
    inside, over = threading.Event(), threading.Event()

    def hold() -> None:
        with ledger.log._held(), ledger.log.transaction():
            inside.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait()
    child = os.fork()
    if not child:
        signal.alarm(30)  # half of what a lock is waited for
        ledger.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    over.set()
    thread.join()
    ledger.close()


def test_whoever_found_a_charge_that_is_not_committed_waits_for_its_commit(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a writer that appended nothing: what it found would be gone if the commit failed, and its answer not paid for."""

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr(SQLite, "commit", full)
        acts = [partial(ledger.charge, "ana", "r", WHOLE, Epsilon(1))] * 3
        results, _ = wait_together(ledger, acts)  # type: ignore[arg-type]
    assert [type(result) for result in results] == [LedgerError] * 3
    assert ledger.grants()["ana"].spent == Epsilon(0)
