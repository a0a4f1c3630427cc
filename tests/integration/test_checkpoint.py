# SPDX-License-Identifier: Apache-2.0
"""A checkpoint says what the log says; who charges reads none."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pinq.errors import LedgerError
from pinq.ledger.checkpoint import FORM, read, write
from pinq.ledger.composition import Demand
from pinq.ledger.events import Event
from pinq.ledger.events import read as read_event
from pinq.ledger.ledger import Ledger
from pinq.ledger.requests import LoggedQuestion
from pinq.ledger.state import Account, LedgerState
from pinq.ledger.terms import Grant
from pinq.public.epsilon import Epsilon
from pinq.public.parts import Block, Part, PartSet

WHOLE = Demand.of(PartSet([Block(Part())]))
GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parent.parent / "contract" / "golden" / "every_kind.json").read_text(encoding="utf-8")
)


def events() -> list[Event]:
    """A log with an event of every kind."""
    return [
        Event(seq, at, analyst, request, read_event(kind, json.loads(body))[0], chained)
        for seq, at, kind, analyst, request, body, chained in GOLDEN["events"]
    ]


def test_a_fold_comes_back_as_it_was() -> None:
    """After each event of a log with every kind: equal in every attribute, and equal again after all that follows."""
    log = events()
    for cut in range(1, len(log) + 1):
        whole = LedgerState()
        for event in log[:cut]:
            whole.apply(event)
        back = read(write(whole, cut, "h"))
        assert back is not None
        for event in log[cut:]:
            whole.apply(event)
            back.apply(event)
        assert vars(back) == vars(whole)
        for account in back.accounts.values():
            assert account.together is back.together
            assert account.grant is None or account.grant.costs is account.costs


def test_no_attribute_is_left_out() -> None:
    """What a grant or an account gets later must be written down, too."""
    state = LedgerState()
    for event in events():
        state.apply(event)
    accounts = json.loads(write(state, 1, "h").text)["accounts"]
    assert {field.name for field in fields(Account)} == accounts[0].keys() | {"together"}
    (grant, *_) = [account["grant"] for account in accounts if account["grant"]]
    assert {field.name for field in fields(Grant)} == grant.keys() | {"analyst", "costs"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger with a checkpoint, and some events after it."""
    monkeypatch.setattr("pinq.ledger.log.CHECKPOINT_EVENTS", 20)
    with closing(Ledger(tmp_path / "l", "d")) as ledger:
        ledger.declare("x", Epsilon(10**9), {})
        ledger.grant("ana", Epsilon(1000))
        for number in range(15):
            ledger.charge("ana", f"r{number}", WHOLE, Epsilon(5), LoggedQuestion(question=str(number)))
            ledger.answer("ana", f"r{number}", "[1]")
    return tmp_path / "l"


def changed(file: Path, column: str, value: object) -> None:
    """Edits the checkpoint."""
    with closing(sqlite3.connect(file)) as raw, raw:
        raw.execute(f"UPDATE checkpoints SET {column} = ?", (value,))


def spent(file: Path, *, read_only: bool) -> Epsilon:
    """What a fresh opening says."""
    with closing(Ledger(file, "d", read_only=read_only)) as ledger:
        return ledger.grants()["ana"].spent


def test_who_looks_begins_at_the_checkpoint_and_who_charges_does_not(file: Path) -> None:
    """Both say the same; a checkpoint that was edited misleads nobody who charges or verifies."""
    with closing(sqlite3.connect(file)) as raw:
        ((seq, text),) = raw.execute("SELECT seq, text FROM checkpoints").fetchall()
    assert 20 <= seq < 33
    assert spent(file, read_only=True) == spent(file, read_only=False) == Epsilon(75)
    forged = text.replace('[["",', '[["",-', 1)
    changed(file, "text", forged)
    assert spent(file, read_only=True) == Epsilon(75)  # its digest is another one
    changed(file, "digest", hashlib.sha256(forged.encode()).hexdigest())
    assert spent(file, read_only=False) == Epsilon(75)
    with closing(Ledger(file, "d", read_only=True)) as ledger:
        assert ledger.verify() == 33
        assert ledger.grants()["ana"].spent == Epsilon(75)


def test_a_checkpoint_that_does_not_fit_is_not_used(file: Path) -> None:
    """One of another version is passed over; one of another log shows that this one was changed."""
    changed(file, "form", 99)
    assert spent(file, read_only=True) == Epsilon(75)
    changed(file, "form", FORM)
    changed(file, "hash", "0" * 64)
    with pytest.raises(LedgerError, match="was cut or rolled back"):
        Ledger(file, "d", read_only=True)
    assert spent(file, read_only=False) == Epsilon(75)
