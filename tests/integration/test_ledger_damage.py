# SPDX-License-Identifier: Apache-2.0
"""A ledger on a failing disk: what is damaged is refused, or does no harm; an id is charged once whatever became of an index."""

from __future__ import annotations

import hashlib
import json
import os
import random
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from pinq.errors import LedgerError
from pinq.language.parts import Block, Part, PartSet
from pinq.ledger.composition import Demand
from pinq.ledger.ledger import Ledger
from pinq.ledger.log import _chain
from pinq.public.epsilon import Epsilon
from tests.support.house.assurance import ASSURANCE, note

WHOLE = Demand.of(PartSet([Block(Part())]))
IDS = [f"id-{number}" for number in range(40)]
FLIPS = 400 if ASSURANCE or os.environ.get("PINQ_EXPLORE") else 60
SEED = 20261122


def answered(file: Path) -> None:
    """Makes a ledger with forty answered ids, all of it in one file."""
    ledger = Ledger(file, "d")
    ledger.declare("x", Epsilon.of(10), {})
    ledger.grant("ana", Epsilon.of(1))
    for id in IDS:
        ledger.charge("ana", id, WHOLE, Epsilon(5))
        ledger.answer("ana", id, f'"the answer to {id}"')
    ledger.close()


def outcome(file: Path) -> str:
    """Says what becomes of a ledger: refused when opened, used or verified, or as if nothing had happened."""
    try:
        ledger = Ledger(file, "d", create=False)
    except LedgerError:
        return "refused at open"
    with closing(ledger):
        try:
            given = [ledger.charge("ana", id, WHOLE, Epsilon(5))[1] for id in IDS]
            assert given == [f'"the answer to {id}"' for id in IDS]
            assert ledger.grants()["ana"].spent == Epsilon(5 * len(IDS))
            assert ledger.verify() == 3 + 2 * len(IDS)
        except LedgerError:
            return "refused in use"
        return "harmless"


def test_a_flipped_bit_is_refused_or_harmless(tmp_path: Path) -> None:
    """Whichever bit of a ledger flips: nothing else than a refusal comes of it, and no answered id is forgotten or charged again."""
    file, draw, outcomes = tmp_path / "l", random.Random(SEED), Counter[str]()
    answered(file)
    head, whole = (tmp_path / "l.head").read_bytes(), file.read_bytes()
    for _ in range(FLIPS):
        damaged, at = bytearray(whole), draw.randrange(len(whole))
        damaged[at] ^= 1 << draw.randrange(8)
        for beside in tmp_path.glob("l-*"):
            beside.unlink()
        file.write_bytes(damaged)
        (tmp_path / "l.head").write_bytes(head)
        outcomes[outcome(file)] += 1
    note("single bits of a ledger flipped", FLIPS, ", ".join(f"{n} {what}" for what, n in outcomes.items()))
    assert outcomes["refused at open"] > FLIPS / 4
    assert outcomes["harmless"] > FLIPS / 10, "free pages are most of what is left"


def emptied(file: Path, index: str) -> None:
    """Gives an index the pages of an empty one: as after a page was lost."""
    with closing(sqlite3.connect(file)) as raw, raw:
        raw.execute("CREATE TABLE spare (analyst TEXT, request TEXT, kind TEXT)")
        raw.execute("CREATE INDEX spare_index ON spare (analyst, request, kind)")
        (page,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'spare_index'").fetchone()
        raw.execute("PRAGMA writable_schema = ON")
        raw.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = ?", (page, index))


def test_an_index_that_lost_its_entries_is_refused(tmp_path: Path) -> None:
    """At the next opening; and a ledger that is open when it happens knows its ids all the same, and does not verify."""
    answered(tmp_path / "l")
    with closing(Ledger(tmp_path / "l", "d")) as ledger:
        emptied(tmp_path / "l", "events_once")
        assert ledger.charge("ana", IDS[0], WHOLE, Epsilon(5))[1] == f'"the answer to {IDS[0]}"'
        with pytest.raises(LedgerError, match=r"is damaged: .*The dataset stays closed"):
            ledger.verify()
    with pytest.raises(LedgerError, match="is damaged: "):
        Ledger(tmp_path / "l", "d")


@pytest.mark.parametrize("kind", ["charge", "answer"])
def test_an_id_counts_once_in_a_log(tmp_path: Path, kind: str) -> None:
    """The database refuses a second charge or answer of an id; a log that has one all the same, in a chain that holds, does not open."""
    file = tmp_path / "l"
    answered(file)
    with closing(sqlite3.connect(file)) as raw, raw:
        seq, chain = raw.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        body = raw.execute("SELECT body FROM events WHERE request = 'id-0' AND kind = ?", (kind,)).fetchone()[0]
        row = [seq + 1, "2026-01-01T00:00:00.000+00:00", kind, "ana", "id-0", body]
        text = json.dumps([chain, *row], separators=(",", ":"), ensure_ascii=False)
        row.append(hashlib.sha256(text.encode()).hexdigest())
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
            raw.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    ledger = Ledger(file, "d")
    with closing(sqlite3.connect(file)) as raw, raw:
        raw.execute("DROP INDEX events_once")
        raw.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    with pytest.raises(LedgerError, match=f"event {seq + 1} is a second {kind} of the request 'id-0' of 'ana'"):
        ledger.verify()
    ledger.close()
    with pytest.raises(LedgerError, match="UNIQUE"):
        Ledger(file, "d")


@pytest.mark.parametrize("name", [b"TABLE", b"events"])
def test_names_that_are_no_text_are_damage(tmp_path: Path, name: bytes) -> None:
    """The driver cannot even quote them: what it raises then is none of its errors."""
    file = tmp_path / "l"
    answered(file)
    content = file.read_bytes()
    assert name in content
    file.write_bytes(content.replace(name, b"\xd5" + name[1:], 1))
    with pytest.raises(LedgerError, match="text that is none"):
        Ledger(file, "d", create=False)
    with pytest.raises(LedgerError, match="text that is none"), closing(Ledger(file, "d", read_only=True)) as ledger:
        ledger.verify()


def test_a_rewritten_chain_of_the_same_length_is_not_the_one_that_a_head_names(tmp_path: Path) -> None:
    """Every hash of it fits, and it ends at the number that the head names; the hash there is another."""
    file = tmp_path / "l"
    with closing(Ledger(file, "d")) as ledger:
        ledger.declare("x", Epsilon.of(5), {})
        ledger.grant("ana", Epsilon.of(1))
        ledger.charge("ana", "q1", WHOLE, Epsilon.of("0.9"))
    with closing(sqlite3.connect(file)) as database, database:
        rows = database.execute("SELECT seq, at, kind, analyst, request, body FROM events ORDER BY seq").fetchall()
        before = ""
        for seq, at, kind, analyst, request, body in rows:
            cheaper = body.replace("900000000", "1000000") if kind == "charge" else body
            before = _chain(before, seq, at, kind, analyst, request, cheaper)
            database.execute("UPDATE events SET body = ?, hash = ? WHERE seq = ?", (cheaper, before, seq))
    with pytest.raises(LedgerError, match=r"l\.head"):
        Ledger(file, "d")
    (tmp_path / "l.head").unlink()  # without the head nothing tells, so it was the head that did
    with closing(Ledger(file, "d")) as ledger:
        assert ledger.grants()["ana"].spent == Epsilon.of("0.001")
