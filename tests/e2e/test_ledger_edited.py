# SPDX-License-Identifier: Apache-2.0
"""A ledger that was tampered with stays closed until the provider decides otherwise."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

import pinq
from pinq import (
    LedgerError,
)
from pinq.ledger.ledger import Ledger
from pinq.provider.backup import backup, restore
from pinq.provider.claim import claims
from pinq.provider.grants import grant, show
from pinq.provider.opening import open_ledger
from pinq.provider.policy_file import load_policy
from pinq.public.epsilon import Epsilon
from tests.support.requests.fault_checks import spend
from tests.support.requests.handles import ledger_of

# A ledger that was tampered with


@pytest.fixture
def used(published: Callable[..., Path]) -> tuple[Path, Path]:
    """A policy and its ledger with a grant of 1 and two charges of 0.25; nobody has it open."""
    file = published()
    ledger = open_ledger(load_policy(file))
    ledger.grant("ana", Epsilon.of(1))
    handle = spend(file, "0.25")
    handle.noisy_count(epsilon="0.25")
    ledger_of(handle).close()
    ledger.close()
    return file, Path(ledger.url.removeprefix("sqlite:///"))


def alter(ledger: Path, *statements: str) -> None:
    with sqlite3.connect(ledger) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


EDITS = {
    "a smaller charge": "UPDATE events SET body = replace(body, '\"epsilon\":250000000', '\"epsilon\":1') WHERE kind = 'charge'",
    "a larger grant": "UPDATE events SET body = replace(body, '1000000000', '9000000000') WHERE kind = 'grant'",
    "another analyst": "UPDATE events SET analyst = 'bob' WHERE kind = 'charge'",
    "another time": "UPDATE events SET at = '2020-01-01T00:00:00+00:00' WHERE seq = 2",
    "another kind": "UPDATE events SET kind = 'refusal' WHERE kind = 'charge'",
    "a row taken out of the middle": "DELETE FROM events WHERE seq = 4",
    "the first row taken out": "DELETE FROM events WHERE seq = 1",
    "another hash": "UPDATE events SET hash = 'x' WHERE seq = 3",
    "rows renumbered": "UPDATE events SET seq = seq + 100 WHERE seq > 5",
    "another request id": "UPDATE events SET request = 'r' WHERE seq = 4",
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_ledger_stays_closed(edit: str, used: tuple[Path, Path]) -> None:
    """The chain shows any edit of any event, and where; the dataset stays closed for analysts."""
    file, ledger = used
    alter(ledger, EDITS[edit])
    with pytest.raises(
        LedgerError,
        match=r"is damaged at event \d+: it was edited or cut\. The dataset stays closed; restore a backup",
    ):
        pinq.open(file, analyst="ana")


@pytest.mark.parametrize("left", [0, 3, 5])
def test_a_cut_ledger_stays_closed(left: int, used: tuple[Path, Path]) -> None:
    """The last events are gone: the chain is whole, and the head beside the ledger remembers."""
    file, ledger = used
    alter(ledger, f"DELETE FROM events WHERE seq > {left}", f"DELETE FROM answers WHERE seq > {left}")
    with pytest.raises(
        LedgerError,
        match=r"was cut or rolled back: event \d+, which was committed, is not in it\. The dataset stays closed",
    ):
        pinq.open(file, analyst="ana")


def test_a_rolled_back_ledger_stays_closed(used: tuple[Path, Path], tmp_path: Path) -> None:
    """An older copy in the place of the ledger is noticed; so is a ledger that was deleted and begun anew."""
    file, ledger = used
    shutil.copy(ledger, tmp_path / "older")
    spend(file, "0.25")._session._curator.ledger.close()
    for name in ("-wal", "-shm"):
        ledger.with_name(ledger.name + name).unlink(missing_ok=True)
    newer = ledger.read_bytes()
    shutil.copy(tmp_path / "older", ledger)
    with pytest.raises(LedgerError, match="was cut or rolled back"):
        pinq.open(file, analyst="ana")
    ledger.unlink()
    with pytest.raises(LedgerError, match=r"is gone: .* beside it names its last event"):
        pinq.open(file, analyst="ana")
    for name in ("", "-wal", "-shm"):
        ledger.with_name(ledger.name + name).unlink(missing_ok=True)
    ledger.write_bytes(newer)
    assert pinq.open(file, analyst="ana").budget.spent == Fraction(3, 4)


@pytest.mark.parametrize("left", ["head", "claim", "both"])
def test_a_ledger_that_is_gone_is_named_and_nothing_is_written(used: tuple[Path, Path], left: str) -> None:
    """No error leads to forgetting budgets by deleting a file."""
    file, ledger = used
    head = ledger.with_name(f"{ledger.name}.head")
    (claim,) = claims(load_policy(file))
    for path in {*ledger.parent.glob(f"{ledger.name}*"), claim} - {
        head if left != "claim" else claim,
        claim if left != "head" else head,
    }:
        path.unlink()
    before = sorted(ledger.parent.iterdir())
    for use in (
        lambda: pinq.open(file, analyst="ana"),
        lambda: grant(file, "bob", 1),
        lambda: show(file),
        lambda: open_ledger(load_policy(file)),
    ):
        with pytest.raises(LedgerError, match=r"is gone: .*Put it back, or restore a backup") as raised:
            use()
        assert "elete" not in str(raised.value)
    assert sorted(ledger.parent.iterdir()) == before


def test_a_backup_does_not_bring_budget_back_where_a_head_names_more(used: tuple[Path, Path], tmp_path: Path) -> None:
    """The ledger is gone, its head is there: an older backup needs the same word as beside the ledger."""
    file, ledger = used
    backup(file, tmp_path / "old")
    spend(file, "0.125")
    backup(file, tmp_path / "new")
    ledger.unlink()
    with pytest.raises(LedgerError, match=r"is gone, and its head names event \d+; the backup ends at event \d+"):
        restore(file, tmp_path / "old")
    restore(file, tmp_path / "new")
    assert pinq.open(file, analyst="ana").budget.spent == Fraction(5, 8)
    ledger.unlink()
    restore(file, tmp_path / "old", forget=True)
    assert pinq.open(file, analyst="ana").budget.spent == Fraction(1, 2)


def test_an_edited_answer_is_noticed(used: tuple[Path, Path]) -> None:
    """An answer that is not the one that was logged is not given again."""
    _, ledger = used
    alter(ledger, "UPDATE answers SET payload = replace(payload, '\"values\":[', '\"values\":[1')")
    again = Ledger(ledger)
    request = next(event.request for event in again.log.events() if event.kind == "charge")
    with pytest.raises(LedgerError, match=r"is damaged: the answer of event \d+ is not the one that was logged"):
        again.answer_of("ana", request)
    with pytest.raises(LedgerError, match=r"the answer of event \d+ is not the one that was logged"):
        again.verify()
    again.close()


@pytest.mark.parametrize("rubbish", [b"", b"not a database" * 100], ids=["empty", "rubbish"])
def test_a_ledger_that_is_none(rubbish: bytes, used: tuple[Path, Path]) -> None:
    """An emptied or overwritten file is refused at once, not after a long wait, and not as a fresh budget."""
    file, ledger = used
    ledger.write_bytes(rubbish)
    with pytest.raises(LedgerError):
        pinq.open(file, analyst="ana")


@pytest.mark.parametrize("head", ["", "5\n", "x y\n"], ids=["empty", "half", "rubbish"])
def test_a_head_that_was_half_written(head: str, used: tuple[Path, Path]) -> None:
    """A crash before the head's first line leaves it empty, and the dataset open; anything else in it closes the dataset."""
    file, ledger = used
    ledger.with_name(ledger.name + ".head").write_text(head)
    if head:
        with pytest.raises(LedgerError, match="was cut or rolled back"):
            pinq.open(file, analyst="ana")
    else:
        assert pinq.open(file, analyst="ana").budget.spent == Fraction(1, 2)
