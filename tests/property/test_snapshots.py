# SPDX-License-Identifier: Apache-2.0
"""A ledger that opens by a snapshot says, charges and refuses what a replay of its whole log does."""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest

from pinq.errors import BudgetExceeded, LedgerError
from pinq.ledger import log as logs
from pinq.ledger.composition import Demand
from pinq.ledger.database import EventRow
from pinq.ledger.events import Event, LoggedQuery, digest_of
from pinq.ledger.ledger import Ledger
from pinq.ledger.log import Log
from pinq.ledger.state import LedgerState, dump
from pinq.provider.report.audit import audit
from pinq.public.epsilon import Epsilon
from tests.support.house.assurance import ASSURANCE, note
from tests.support.processes.postgresql import HERE, kind_of

CHECK = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "verify_log.py"))["verify"]
CAP, SCHEMA = Epsilon(10**6), {"columns": {"sex": {"values": ["f", "m"]}}}


@pytest.fixture(autouse=True)
def every_third(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a snapshot after every third event."""
    monkeypatch.setattr(logs, "SNAPSHOT_EVENTS", 3)


def part(random: Random) -> Demand:
    """A part of a partition of the table, or of a part of it. As of real parts, a key holds the way to its part."""
    nodes: tuple[tuple[int, bytes, bytes], ...] = ()
    way = b""
    for parent in range(random.randrange(3)):
        split = digest_bytes(way, b"split", random.randrange(3))
        way = digest_bytes(split, b"part", random.randrange(3))
        nodes += ((parent, split, way),)
    return Demand(nodes, ((len(nodes), random.choice([None, digest_bytes(way, b"split", 0)])),))


def digest_bytes(*facts: bytes | int) -> bytes:
    """Sixteen bytes that stand for some facts."""
    return hashlib.sha256(repr(facts).encode()).digest()[:16]


def acts(ledger: Ledger, random: Random, number: int) -> None:
    """Some acts: charges of new and old ids, answers, grants, extensions."""
    for step in range(number):
        name = random.choice(["ana", "bob", "é"])
        if ledger.log.state.grant_of(name) is None:
            ledger.grant(name, Epsilon(200), token=digest_of(f"{name}{step}"))
        request, query = f"r{random.randrange(40)}", LoggedQuery(identity=f"q{random.randrange(9)}")
        try:
            earlier, _ = ledger.charge(
                name, request, part(random), Epsilon(random.randrange(1, 30)), query, reuse=random.random() < 0.5
            )
            if random.random() < 0.7:
                ledger.answer(name, earlier.request if earlier else request, f"[{step}]")
        except BudgetExceeded:
            ledger.extend(name, Epsilon(20))


def replayed(ledger: Ledger) -> str:
    """The state that all events give, one by one."""
    state, first = LedgerState(), ""
    for event in ledger.log.events():
        state.apply(event)
        first = first or event.hash
    return dump(state, first)


@pytest.mark.parametrize("seed", range(8))
def test_a_snapshot_opens_as_a_replay_would(tmp_path: Path, seed: int) -> None:
    """Every field that a price, a refusal or a report reads is the same, also after more acts, reopened or not."""
    random = Random(seed)
    Ledger(tmp_path / "l", "d").declare("x", CAP, SCHEMA)
    for number in (1, 7, 30):
        with closing(Ledger(tmp_path / "l", "d")) as ledger:
            acts(ledger, random, number)
            assert dump(ledger.log.state, ledger.log.first) == replayed(ledger)
    with closing(Ledger(tmp_path / "l", read_only=True)) as opened:
        assert opened.log.snapshot_seq > 3
        assert dump(opened.log.state, opened.log.first) == replayed(opened)
        assert opened.verify() == opened.log.seq
    assert CHECK(tmp_path / "l")[0] == ""


@pytest.mark.parametrize("seed", range(3))
def test_snapshots_change_no_answer(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same acts, with snapshots and without: each id is charged once, each earlier query is found, lines are the same."""
    said: list[list[Any]] = []
    for events in (2, 10**9):
        monkeypatch.setattr(logs, "SNAPSHOT_EVENTS", events)
        with closing(Ledger(tmp_path / f"{events}", "d")) as ledger:
            ledger.declare("x", CAP, SCHEMA)
            acts(ledger, Random(seed), 60)
            said.append(
                [
                    (account.spent, account.answered, account.unanswered, account.refused, ledger.log.answers(name))
                    for name, account in ledger.accounts().items()
                ]
            )
            for name in ("ana", "bob"):
                lines = ledger.log.lines(name, 0, 100)
                said[-1] += [(line.event.request, line.spent, line.answer is None) for line in lines]
                said[-1] += [ledger.answer_of(name, f"r{number}")[1] for number in range(40)]
            assert bool(ledger.log.snapshot_seq) == (events == 2)
    assert said[0] == said[1]


def test_a_new_request_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its charge alone may be older than the snapshot: an answer has a charge before it, and the state has its wait."""
    with closing(Ledger(tmp_path / "l", "d")) as ledger:
        ledger.declare("x", CAP, SCHEMA)
        ledger.grant("ana", Epsilon(2))
        assert ledger.log.snapshot_seq
        looked = Mock(wraps=ledger.log.database.once)
        monkeypatch.setattr(ledger.log.database, "once", looked)
        ledger.charge("ana", "new", part(Random(2)), Epsilon(1))
        assert ledger.answer("ana", "new", "[1]") == "[1]"
        assert [call.args[0] for call in looked.call_args_list] == ["charge"]
        assert ledger.charge("ana", "new", part(Random(2)), Epsilon(1))[1] == "[1]"


def test_a_forged_snapshot_is_not_used_and_shows(tmp_path: Path) -> None:
    """Its digest is in the chain: the log is replayed, which gives the true costs, and a whole replay refuses."""
    with closing(Ledger(tmp_path / "l", "d")) as ledger:
        ledger.declare("x", CAP, SCHEMA)
        acts(ledger, Random(1), 20)
        spent = ledger.grants()["ana"].spent
    with closing(sqlite3.connect(tmp_path / "l")) as raw, raw:
        ((payload,),) = raw.execute("SELECT payload FROM snapshot")
        forged = json.loads(payload)
        forged["accounts"][0][1]["total"] = 0
        raw.execute("UPDATE snapshot SET payload = ?", (json.dumps(forged),))
    with closing(Ledger(tmp_path / "l", "d")) as ledger:
        assert ledger.log.snapshot_seq == 0
        assert ledger.grants()["ana"].spent == spent
        with pytest.raises(LedgerError, match="snapshot"):
            ledger.verify()
    assert "another snapshot was logged" in CHECK(tmp_path / "l")[0]


def test_a_snapshot_of_a_log_that_was_cut_opens_nothing(tmp_path: Path) -> None:
    """The event that has its digest must be there."""
    with closing(Ledger(tmp_path / "l", "d")) as ledger:
        ledger.declare("x", CAP, SCHEMA)
        acts(ledger, Random(2), 10)
        kept = ledger.log.snapshot_seq
    with closing(sqlite3.connect(tmp_path / "l")) as raw, raw:
        raw.execute(f"DELETE FROM events WHERE seq >= {kept}")
    with pytest.raises(LedgerError, match="gone"):
        Ledger(tmp_path / "l", "d")


def test_an_audit_reads_each_event_once_and_each_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one pass: also where answers are compared two at a time, each that was changed is found."""
    monkeypatch.setattr(logs, "ROWS_AT_A_TIME", 2)
    with closing(Ledger(tmp_path / "l", "d")) as ledger:
        ledger.declare("x", CAP, SCHEMA)
        acts(ledger, Random(5), 20)
        seen = list[Event]()
        assert ledger.verify(seen.append) == ledger.log.seq
        assert [event.hash for event in seen] == [event.hash for event in ledger.log.events()]
    with closing(sqlite3.connect(tmp_path / "l")) as raw:
        answers = raw.execute("SELECT seq FROM answers").fetchall()
        assert len(answers) > 5
        for number in answers:
            with raw:
                raw.execute("UPDATE answers SET payload = payload || ' ' WHERE seq = ?", number)
            with pytest.raises(LedgerError, match=f"answer of event {number[0]} is not"):
                audit(ledger=tmp_path / "l")
            with raw:
                raw.execute("UPDATE answers SET payload = rtrim(payload) WHERE seq = ?", number)
    read, verified = list[int](), Log._verified

    def reading(log: Log, row: EventRow, number: int, chain: str) -> Event:
        read.append(row.seq)
        return verified(log, row, number, chain)

    monkeypatch.setattr(Log, "_verified", reading)
    assert audit(ledger=tmp_path / "l").events == len(seen)
    last = max(event.seq for event in seen if event.kind == "snapshot")
    assert [number for number in read if number < last] == [*range(1, last)]  # later ones: at the opening, too


KILLS = 300 if ASSURANCE else 4
# A forking writer: for each line of its input a child charges until it is killed, with a snapshot for each charge. It
# says in one write when a snapshot begins, and what was charged.
WRITER = """
import os, sys
from pinq.ledger.composition import Demand
from pinq.ledger.events import LoggedQuery
from pinq.ledger.ledger import Ledger
from pinq.ledger.log import Log
from pinq.ledger import log as logs
from pinq.provider.report.audit import audit
from pinq.public.epsilon import Epsilon
from tests.support.house.assurance import ASSURANCE, note
from tests.support.processes.postgresql import HERE, kind_of
logs.SNAPSHOT_EVENTS, logs.SNAPSHOT_BYTES = 1, 10**9
keep = Log._keep

def telling(log):
    os.write(1, b"snapshot\\n")
    keep(log)

def work(name):
    Log._keep = telling
    ledger = Ledger(sys.argv[1], "d")
    for number in range(10**6):
        request = f"{name}-{number}"
        ledger.charge("ana", request, Demand((), ((0, None),)), Epsilon(1), LoggedQuery(identity=request))
        os.write(1, b"charged\\n")

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        work(line.strip())
    os.write(1, f"child {child}\\n".encode())
    os.waitpid(child, 0)
    os.write(1, b"dead\\n")
"""


@pytest.fixture(params=["sqlite", *(["postgresql"] if ASSURANCE and HERE else [])])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A ledger's file; where it takes its time, also one in PostgreSQL."""
    return str(tmp_path / "l") if request.param == "sqlite" else request.getfixturevalue("postgresql")


def test_a_writer_killed_at_any_moment_of_a_snapshot_loses_nothing(place: str) -> None:
    """Each is killed within a snapshot or its commit: what was charged stays, the next opening goes on, no id counts twice."""
    with closing(Ledger(place, "d")) as ledger:
        ledger.declare("x", CAP, SCHEMA)
        for number in range(100):  # a state whose writing takes its time
            ledger.grant(f"other{number}", CAP)
        ledger.grant("ana", CAP)
    told, within, random = 0, 0, Random(3)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for kill in range(KILLS):
            writer.stdin.write(f"{kill}\n")
            writer.stdin.flush()
            said = [""]
            while said.count("snapshot") < 2 or not any(line.startswith("child") for line in said):
                said.append(writer.stdout.readline().strip())
            time.sleep(0.012 * random.random())
            (child,) = [line.split()[1] for line in said if line.startswith("child")]
            os.kill(int(child), signal.SIGKILL)
            while said[-1] != "dead":
                said.append(writer.stdout.readline().strip())
            told += said.count("charged")
            within += said.count("snapshot") > said.count("charged")
            with closing(Ledger(place, "d")) as ledger:
                assert told <= ledger.grants()["ana"].spent.nano <= told + kill + 1
                assert dump(ledger.log.state, ledger.log.first) == replayed(ledger)
        writer.stdin.close()
    with closing(Ledger(place, "d")) as ledger:
        charged = [event.request for event in ledger.log.events() if event.kind == "charge"]
        assert len(charged) == len(set(charged)) == ledger.grants()["ana"].spent.nano
        assert ledger.verify()
    assert within > (KILLS // 2 if ASSURANCE else 0)  # few kills say little of their moments
    note(f"kills within a snapshot ({kind_of(place)})", KILLS, f"{len(charged):,} charges, none lost, none twice")
