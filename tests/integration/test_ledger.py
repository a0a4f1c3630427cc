# SPDX-License-Identifier: Apache-2.0
"""Grants, charges, answers and their log, in memory and in a file."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from pinq.errors import BudgetExceeded, LedgerError, NotAuthorised
from pinq.ledger.composition import Demand
from pinq.ledger.grants import now
from pinq.ledger.ledger import Ledger
from pinq.public.epsilon import NANO
from pinq.public.parts import Block, Part, PartSet
from pinq.public.schema import Schema
from pinq.public.specs import Values, bind

WHOLE = Demand.of(PartSet([Block(Part())]))


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """In memory, with a cap of 10 and a grant of 1."""
    made = Ledger("sqlite://", "d")
    made.declare("x", 10 * NANO, {})
    made.grant("ana", NANO)
    yield made
    made.close()


def test_a_charge_is_charged_once(ledger: Ledger) -> None:
    """The same request id finds its charge, then its answer; the first answer stays."""
    assert ledger.charge("ana", "r", WHOLE, 5, {"about": "a"}) == (None, None)
    charge, given = ledger.charge("ana", "r", WHOLE, 5, {"about": "a"})
    assert charge is not None
    assert (charge.body["about"], given) == ("a", None)
    assert ledger.answer("ana", "r", "one") == "one"
    assert ledger.answer("ana", "r", "two") == "one"
    assert ledger.charge("ana", "r", WHOLE, 5, {})[1] == "one"
    assert ledger.grants()["ana"].spent == 5
    assert ledger.payloads("ana") == {"r": "one"}
    assert ledger.verify() == 5


def test_request_ids_belong_to_their_analyst(ledger: Ledger) -> None:
    """Two analysts may use one id; neither sees the other's answer."""
    ledger.grant("bob", NANO)
    ledger.charge("ana", "r", WHOLE, 5, {})
    ledger.answer("ana", "r", "ana's")
    assert ledger.charge("bob", "r", WHOLE, 7, {}) == (None, None)
    assert ledger.answer_of("bob", "r")[1] is None
    assert ledger.payloads("bob") == {}


def test_a_refusal_is_not_remembered_as_an_answer(ledger: Ledger) -> None:
    """A refused request can be asked again under its id once there is room."""
    with pytest.raises(BudgetExceeded):
        ledger.charge("ana", "r", WHOLE, NANO + 1, {})
    ledger.extend("ana", 1)
    assert ledger.charge("ana", "r", WHOLE, NANO + 1, {}) == (None, None)


def test_extending_revoking_and_granting_anew(ledger: Ledger) -> None:
    """What was spent stays spent, whatever happens to the grant."""
    ledger.charge("ana", "1", WHOLE, NANO, {})
    ledger.extend("ana", NANO, now() + timedelta(days=1))
    assert ledger.grants()["ana"].remaining == NANO
    ledger.revoke("ana")
    assert ledger.grants()["ana"].remaining == 0
    with pytest.raises(NotAuthorised):
        ledger.charge("ana", "2", WHOLE, 1, {})
    for change in (lambda: ledger.extend("ana", 1), lambda: ledger.revoke("ana")):
        with pytest.raises(LedgerError, match="'ana' has no grant; nobody has"):
            change()
    assert ledger.grant("ana", 3 * NANO).remaining == 2 * NANO
    with pytest.raises(LedgerError, match="'ana' already has a grant of epsilon 3"):
        ledger.grant("ana", 1)


def test_nobody_asks_after_the_end(ledger: Ledger) -> None:
    """A grant ends at its moment; extending moves it."""
    ledger.grant("late", NANO, now() - timedelta(microseconds=1))
    with pytest.raises(NotAuthorised):
        ledger.grant_of("late")
    ledger.extend("late", 0, now() + timedelta(hours=1))
    assert ledger.grant_of("late").limit == NANO


def test_all_together_share_what_they_ask_alike() -> None:
    """The cap counts the union of the trees: different parts of one partition cost their maximum, over analysts too."""
    schema = Schema(max_rows=9, columns={"s": {"type": "categorical", "values": ["f", "m"]}})
    women, men = (Demand.of(PartSet([Block(Part(Part(), bind(Values("s"), schema), i))])) for i in (0, 1))
    ledger = Ledger("sqlite://", "d")
    ledger.declare("x", NANO, {})
    for name in "ab":
        ledger.grant(name, 2 * NANO)
    ledger.charge("a", "1", women, NANO, {})
    ledger.charge("b", "1", men, NANO, {})
    assert ledger.joint() == (NANO, NANO)
    with pytest.raises(BudgetExceeded, match="under the cap over all analysts"):
        ledger.charge("b", "2", WHOLE, 1, {})
    ledger.close()


def test_without_a_policy_nothing_can_be_asked() -> None:
    """The cap of a fresh ledger is 0."""
    ledger = Ledger("sqlite://", "d")
    ledger.grant("a", NANO)
    with pytest.raises(BudgetExceeded):
        ledger.charge("a", "1", WHOLE, 1, {})
    ledger.close()


def test_a_policy_is_logged_when_it_changes(ledger: Ledger) -> None:
    """Declaring the same again adds nothing; a lower cap counts at once."""
    before = ledger.verify()
    ledger.declare("x", 10 * NANO, {})
    assert ledger.verify() == before
    ledger.declare("x", 5, {})
    assert ledger.joint() == (0, 5)
    assert ledger.verify() == before + 1


def test_the_file_is_the_providers_own(tmp_path: Path) -> None:
    """Nobody else may read answers or salt; a ledger belongs to one dataset; none is made where none may be."""
    ledger = Ledger(tmp_path / "new" / "l.ledger", "d")
    ledger.grant("a", 1)
    for name in ("l.ledger", "l.ledger.head"):
        assert stat.S_IMODE(os.stat(tmp_path / "new" / name).st_mode) == 0o600
    with pytest.raises(LedgerError, match="belongs to the dataset 'd', not to 'other'"):
        Ledger(tmp_path / "new" / "l.ledger", "other")
    with pytest.raises(LedgerError, match="There is no ledger"):
        Ledger(tmp_path / "none.ledger", create=False)
    assert not (tmp_path / "none.ledger").exists()
    again = Ledger(tmp_path / "new" / "l.ledger")
    assert again.salt == ledger.salt
    assert len(again.salt) == 16
    assert repr(again) == f"Ledger({tmp_path / 'new' / 'l.ledger'}, dataset 'd', 2 events)"
    ledger.close()
    again.close()


def test_two_views_of_a_file_follow_each_other(tmp_path: Path) -> None:
    """What one writes the other sees at its next question."""
    one, other = Ledger(tmp_path / "l", "d"), Ledger(tmp_path / "l", "d")
    one.declare("x", NANO, {})
    one.grant("a", 10)
    assert other.charge("a", "r", WHOLE, 4, {}) == (None, None)
    assert one.grants()["a"].remaining == 6
    other.revoke("a")
    with pytest.raises(NotAuthorised):
        one.charge("a", "s", WHOLE, 1, {})
    assert [event.kind for event in one.events()] == ["created", "policy", "grant", "charge", "revoke", "refusal"]
    one.close()
    other.close()


def test_a_failed_commit_spends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error on the way to the disk leaves neither an event nor a charge in memory."""
    ledger = Ledger(tmp_path / "l", "d")
    ledger.declare("x", NANO, {})
    ledger.grant("a", 10)

    def full(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr("sqlalchemy.Connection.commit", full)
        with pytest.raises(OSError, match="disk full"):
            ledger.charge("a", "r", WHOLE, 4, {})
    assert ledger.grants()["a"].spent == 0
    assert ledger.charge("a", "r", WHOLE, 4, {}) == (None, None)
    assert ledger.verify() == 4
    ledger.close()


def test_refusals_of_an_id_are_not_read(tmp_path: Path) -> None:
    """What is looked up by analyst, request and kind, through an index that an older ledger gets when it is opened."""
    Ledger(tmp_path / "l", "d").close()
    with closing(sqlite3.connect(tmp_path / "l")) as raw, raw:
        raw.execute("DROP INDEX events_request_kind")
        raw.execute("CREATE INDEX events_request ON events (analyst, request)")
    ledger = Ledger(tmp_path / "l", "d")
    statements: list[str] = []
    sa.event.listen(ledger._engine, "before_cursor_execute", lambda *call: statements.append(call[2]))
    ledger.declare("x", NANO, {})
    ledger.grant("ana", 10)
    for _ in range(50):
        with pytest.raises(BudgetExceeded):
            ledger.charge("ana", "r", WHOLE, 11, {})
    ledger.charge("ana", "r", WHOLE, 4, {})
    statements.clear()
    ledger.answer("ana", "r", "[1]")
    (lookup,) = [text for text in statements if "WHERE events.analyst" in text]
    ledger.close()
    with closing(sqlite3.connect(tmp_path / "l")) as raw:
        assert {
            name
            for (name,) in raw.execute(
                "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'events' AND sql IS NOT NULL"
            )
        } == {"events_request_kind"}
        plan = " ".join(row[3] for row in raw.execute(f"EXPLAIN QUERY PLAN {lookup}", ("ana", "r", "charge", "answer")))
        assert "USING INDEX events_request_kind (analyst=? AND request=? AND kind=?)" in plan
        assert len(raw.execute(lookup, ("ana", "r", "charge", "answer")).fetchall()) == 2


def test_a_head_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event is committed, the error says so, and the same request goes on from there once there is room."""
    ledger = Ledger(tmp_path / "l", "d")
    ledger.declare("x", NANO, {})
    ledger.grant("a", 10)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as broken:
        broken.setattr("pinq.ledger.ledger.os.pwrite", full)
        with pytest.raises(
            LedgerError, match=r"l.head cannot be written \(No space left on device\). What was spent is in the log"
        ):
            ledger.charge("a", "r", WHOLE, 4, {})
    charge, given = ledger.charge("a", "r", WHOLE, 4, {})
    assert charge is not None
    assert given is None
    assert ledger.answer("a", "r", "[1]") == "[1]"
    assert ledger.grants()["a"].spent == 4
    assert ledger.verify() == 5
    ledger.close()
