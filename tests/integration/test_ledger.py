# SPDX-License-Identifier: Apache-2.0
"""Grants, charges, answers and their log, in memory and in a file."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pinq.errors import BudgetExceeded, LedgerError, NotAuthorised
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import Values, bind
from pinq.ledger.composition import Demand
from pinq.ledger.events import LoggedQuery, PolicyDeclared, now
from pinq.ledger.ledger import Ledger
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema

ONE = Epsilon.of(1)
WHOLE = Demand.of(PartSet([Block(Part())]))
SCHEMA = Schema(max_rows=9, columns={"s": {"type": "categorical", "values": ["f", "m"]}})
WOMEN, MEN = (Demand.of(PartSet([Block(Part(Part(), bind(Values("s"), SCHEMA), i))])) for i in (0, 1))


def shared(cap: Epsilon = ONE) -> Ledger:
    """In memory, with a cap that two analysts share, who were granted 2 each."""
    ledger = Ledger("sqlite://", "d")
    ledger.declare("x", cap, {})
    for name in "ab":
        ledger.grant(name, 2 * ONE)
    return ledger


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """In memory, with a cap of 10 and a grant of 1."""
    made = Ledger("sqlite://", "d")
    made.declare("x", 10 * ONE, {})
    made.grant("ana", ONE)
    yield made
    made.close()


def joint(ledger: Ledger) -> tuple[Epsilon, Epsilon]:
    """Spent by all together, as the cap counts it, and the cap."""
    return ledger.together().spent, ledger.together().cap


def test_a_charge_is_charged_once(ledger: Ledger) -> None:
    """The same request id finds its charge, then its answer; the first answer stays."""
    assert ledger.charge("ana", "r", WHOLE, Epsilon(5), LoggedQuery(about="a")) == (None, None)
    charge, given = ledger.charge("ana", "r", WHOLE, Epsilon(5), LoggedQuery(about="a"))
    assert charge is not None
    assert (charge.query.about, given) == ("a", None)
    assert ledger.answer("ana", "r", "one") == "one"
    assert ledger.answer("ana", "r", "two") == "one"
    assert ledger.charge("ana", "r", WHOLE, Epsilon(5))[1] == "one"
    assert ledger.grants()["ana"].spent == Epsilon(5)
    assert ledger.log.answers("ana") == {"r": "one"}
    assert ledger.verify() == 5


def test_request_ids_belong_to_their_analyst(ledger: Ledger) -> None:
    """Two analysts may use one id; neither sees the other's answer."""
    ledger.grant("bob", ONE)
    ledger.charge("ana", "r", WHOLE, Epsilon(5))
    ledger.answer("ana", "r", "ana's")
    assert ledger.charge("bob", "r", WHOLE, Epsilon(7)) == (None, None)
    assert ledger.answer_of("bob", "r")[1] is None
    assert ledger.log.answers("bob") == {}


def test_a_token_is_looked_up(ledger: Ledger) -> None:
    """The last one of a valid grant opens it: not one that was replaced, nor that of a grant that ended."""
    ledger.grant("bob", ONE, token="first")
    ledger.grant("eve", ONE, token="another")

    def owners() -> list[str | None]:
        return [
            None if grant is None else grant.analyst
            for grant in map(ledger.grant_of_token, ("first", "second", "another", ""))
        ]

    assert owners() == ["bob", None, "eve", None]
    ledger.set_token("bob", "second")
    assert owners() == [None, "bob", "eve", None]
    assert [ledger.knows(token) for token in ("first", "second", "")] == [False, True, False]
    ledger.revoke("bob")
    ledger.set_token("eve", "")
    assert owners() == [None] * 4
    ledger.grant("bob", ONE, token="third")
    assert ledger.knows("third")
    assert not ledger.knows("second")


def test_a_refusal_is_not_remembered_as_an_answer(ledger: Ledger) -> None:
    """A refused request can be asked again under its id once there is room."""
    with pytest.raises(BudgetExceeded):
        ledger.charge("ana", "r", WHOLE, ONE + Epsilon(1))
    ledger.extend("ana", Epsilon(1))
    assert ledger.charge("ana", "r", WHOLE, ONE + Epsilon(1)) == (None, None)


def test_extending_revoking_and_granting_anew(ledger: Ledger) -> None:
    """What was spent stays spent, whatever happens to the grant."""
    ledger.charge("ana", "1", WHOLE, ONE)
    ledger.extend("ana", ONE, now() + timedelta(days=1))
    assert ledger.grants()["ana"].remaining == ONE
    ledger.revoke("ana")
    assert ledger.grants()["ana"].remaining == Epsilon(0)
    with pytest.raises(NotAuthorised):
        ledger.charge("ana", "2", WHOLE, Epsilon(1))
    for change in (lambda: ledger.extend("ana", Epsilon(1)), lambda: ledger.revoke("ana")):
        with pytest.raises(LedgerError, match="'ana' has no grant; nobody has"):
            change()
    assert ledger.grant("ana", 3 * ONE).remaining == 2 * ONE
    with pytest.raises(LedgerError, match="'ana' already has a grant of epsilon 3"):
        ledger.grant("ana", Epsilon(1))


def test_nobody_asks_after_the_end(ledger: Ledger) -> None:
    """A grant ends at its moment; extending moves it."""
    ledger.grant("late", ONE, now() - timedelta(microseconds=1))
    with pytest.raises(NotAuthorised):
        ledger.grant_of("late")
    ledger.extend("late", expires=now() + timedelta(hours=1))
    assert ledger.grant_of("late").limit == ONE


def test_all_together_share_nothing() -> None:
    """The cap counts the sum of what each analyst spent, also where they asked different parts of one partition."""
    ledger = shared()
    ledger.charge("a", "1", WOMEN, ONE // 2)
    assert ledger.price("b", MEN, ONE // 2) == (ONE // 2, Epsilon(0))
    ledger.charge("b", "1", MEN, ONE // 2)
    assert joint(ledger) == (ONE, ONE)
    ledger.charge("b", "2", WOMEN, ONE // 2)  # adds nothing to what b spent
    with pytest.raises(
        BudgetExceeded,
        match="0 of 1 remains under the cap over all analysts, which counts the sum of what each analyst spent",
    ):
        ledger.charge("a", "2", WOMEN, Epsilon(1))
    ledger.close()


def test_a_refusal_names_the_smaller_rest() -> None:
    """Where the cap leaves less than the grant, a request that also exceeds the grant must not be told the grant's rest."""
    ledger = shared()
    ledger.charge("a", "1", WHOLE, 9 * ONE // 10)
    ledger.charge("b", "1", WHOLE, ONE // 20)
    for cost in (ONE // 10, 2 * ONE):
        with pytest.raises(BudgetExceeded, match=r"0\.05 of 1 remains under the cap") as refused:
            ledger.charge("b", f"{cost}", WHOLE, cost)
        assert refused.value.scope == "cap"
        assert refused.value.remaining == ledger.grants()["b"].remaining.exact
    ledger.close()


def test_nothing_more_is_answered_past_the_cap() -> None:
    """What was spent stands, as in a ledger that counted the union. Where the sum passes the cap, nothing more is answered, not even
    what costs its analyst nothing: it could cost all together something.
    """
    before_there_was_a_choice = PolicyDeclared.from_body({"digest": "x", "cap": 10**9, "schema": {}})
    assert before_there_was_a_choice == PolicyDeclared("x", ONE, {}, "union")  # as it was written then
    ledger = shared(2 * ONE)
    ledger.charge("a", "1", WOMEN, ONE)
    ledger.charge("b", "1", MEN, ONE)
    ledger.declare("x", ONE, {}, may_raise=False)  # an analyst's opening is enough for what leaves less
    assert joint(ledger) == (2 * ONE, ONE)
    assert ledger.price("a", MEN, ONE) == (Epsilon(0), Epsilon(0) - ONE)
    with pytest.raises(BudgetExceeded, match="would cost epsilon 0; 0 of 1 remains under the cap"):
        ledger.charge("a", "2", MEN, ONE)
    ledger.declare("x", 3 * ONE, {}, may_raise=False)
    ledger.verify()
    assert joint(ledger) == (2 * ONE, ONE)
    ledger.close()


def test_without_a_policy_nothing_can_be_asked() -> None:
    """The cap of a fresh ledger is 0."""
    ledger = Ledger("sqlite://", "d")
    ledger.grant("a", ONE)
    with pytest.raises(BudgetExceeded):
        ledger.charge("a", "1", WHOLE, Epsilon(1))
    ledger.close()


def test_a_policy_is_logged_when_it_changes(ledger: Ledger) -> None:
    """Declaring the same again adds nothing; a lower cap counts at once."""
    before = ledger.verify()
    ledger.declare("x", 10 * ONE, {})
    assert ledger.verify() == before
    ledger.declare("x", Epsilon(5), {})
    assert joint(ledger) == (Epsilon(0), Epsilon(5))
    assert ledger.verify() == before + 1


def test_the_file_is_the_providers_own(tmp_path: Path) -> None:
    """Nobody else may read answers or salt; a ledger belongs to one dataset; none is made where none may be."""
    ledger = Ledger(tmp_path / "new" / "l.ledger", "d")
    ledger.grant("a", Epsilon(1))
    for name in ("l.ledger", "l.ledger.head"):
        assert stat.S_IMODE(os.stat(tmp_path / "new" / name).st_mode) == 0o600
    with pytest.raises(LedgerError, match="belongs to the dataset 'd', not to 'other'"):
        Ledger(tmp_path / "new" / "l.ledger", "other")
    with pytest.raises(LedgerError, match="There is no ledger"):
        Ledger(tmp_path / "none.ledger", create=False)
    assert not (tmp_path / "none.ledger").exists()
    again = Ledger(tmp_path / "new" / "l.ledger")
    assert again.salt == ledger.salt
    assert len(again.salt) == 32
    assert repr(again) == f"Ledger({tmp_path / 'new' / 'l.ledger'}, dataset 'd', 2 events)"
    ledger.close()
    again.close()


def test_two_views_of_a_file_follow_each_other(tmp_path: Path) -> None:
    """What one writes the other sees at its next question."""
    one, other = Ledger(tmp_path / "l", "d"), Ledger(tmp_path / "l", "d")
    one.declare("x", ONE, {})
    one.grant("a", Epsilon(10))
    assert other.charge("a", "r", WHOLE, Epsilon(4)) == (None, None)
    assert one.grants()["a"].remaining == Epsilon(6)
    other.revoke("a")
    with pytest.raises(NotAuthorised):
        one.charge("a", "s", WHOLE, Epsilon(1))
    assert [event.kind for event in one.log.events()] == ["created", "policy", "grant", "charge", "revoke", "refusal"]
    one.close()
    other.close()


def test_a_failed_commit_spends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error on the way to the disk leaves neither an event nor a charge in memory."""
    ledger = Ledger(tmp_path / "l", "d")
    ledger.declare("x", ONE, {})
    ledger.grant("a", Epsilon(10))

    def full(*_: object) -> None:
        raise OSError("disk full")

    salt = ledger.salt
    with monkeypatch.context() as broken:
        broken.setattr("pinq.ledger.database.SQLite.commit", full)
        with pytest.raises(OSError, match="disk full"):
            ledger.charge("a", "r", WHOLE, Epsilon(4))
    assert ledger.salt == salt
    assert ledger.grants()["a"].spent == Epsilon(0)
    assert ledger.charge("a", "r", WHOLE, Epsilon(4)) == (None, None)
    assert ledger.verify() == 4
    ledger.close()


def test_an_id_is_looked_up_in_the_fold(tmp_path: Path) -> None:
    """However many refusals an id has: what it was charged and answered is read by its number; an older ledger gets the one index."""
    Ledger(tmp_path / "l", "d").close()
    with closing(sqlite3.connect(tmp_path / "l")) as raw, raw:
        raw.execute("DROP INDEX events_once")
        raw.execute("CREATE INDEX events_request ON events (analyst, request)")
        raw.execute("CREATE INDEX events_request_kind ON events (analyst, request, kind)")
    ledger = Ledger(tmp_path / "l", "d")
    ledger.declare("x", ONE, {})
    ledger.grant("ana", Epsilon(10))
    for _ in range(50):
        with pytest.raises(BudgetExceeded):
            ledger.charge("ana", "r", WHOLE, Epsilon(11))
    ledger.charge("ana", "r", WHOLE, Epsilon(4))
    ledger.answer("ana", "r", "[1]")
    statements: list[str] = []
    database: Any = ledger.log.database
    database._driver.set_trace_callback(statements.append)
    assert ledger.answer_of("ana", "r")[1] == "[1]"
    assert not [text for text in statements if "analyst =" in text]
    assert statements
    ledger.close()
    with closing(sqlite3.connect(tmp_path / "l")) as raw:
        assert {
            name
            for (name,) in raw.execute(
                "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'events' AND sql IS NOT NULL"
            )
        } == {"events_once"}


def test_a_head_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event is committed, the error says so, and the same request goes on from there once there is room."""
    ledger = Ledger(tmp_path / "l", "d")
    ledger.declare("x", ONE, {})
    ledger.grant("a", Epsilon(10))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as broken:
        broken.setattr("pinq.ledger.log.os.pwrite", full)
        with pytest.raises(
            LedgerError, match=r"l.head cannot be written \(No space left on device\). What was spent is in the log"
        ):
            ledger.charge("a", "r", WHOLE, Epsilon(4))
    charge, given = ledger.charge("a", "r", WHOLE, Epsilon(4))
    assert charge is not None
    assert given is None
    assert ledger.answer("a", "r", "[1]") == "[1]"
    assert ledger.grants()["a"].spent == Epsilon(4)
    assert ledger.verify() == 5
    ledger.close()


def test_a_charge_looks_at_its_token_again(tmp_path: Path) -> None:
    """A token that another process replaced, or another's, charges nothing and leaves no line; who has none is not asked for it."""
    here = Ledger(tmp_path / "l", "d")
    here.declare("x", Epsilon(10), {})
    here.grant("ana", Epsilon(10), token="old")
    here.charge("ana", "a", WHOLE, Epsilon(1), token="old")
    there = Ledger(tmp_path / "l", "d")
    there.set_token("ana", "new")
    there.close()
    assert here.known_grant_of_token("old") is not None  # it has not read that yet
    with pytest.raises(NotAuthorised):
        here.charge("ana", "b", WHOLE, Epsilon(1), token="old")
    assert here.known_grant_of_token("old") is None
    here.grant("bob", Epsilon(10), token="bobs")
    with pytest.raises(NotAuthorised):
        here.charge("ana", "b", WHOLE, Epsilon(1), token="bobs")
    here.charge("ana", "b", WHOLE, Epsilon(1), token="new")
    here.charge("ana", "c", WHOLE, Epsilon(1))
    assert [event.kind for event in here.log.events()].count("refusal") == 0
    assert here.grants()["ana"].spent == Epsilon(3)
    here.close()


def test_a_transaction_that_breaks_off_leaves_the_connection_usable(tmp_path: Path) -> None:
    """What is interrupted between two statements is rolled back; the kept connection serves the next one."""
    ledger = Ledger(tmp_path / "l", "d")

    def interrupted() -> None:
        with ledger.log._held(), ledger.log.transaction() as writing:
            writing.append(PolicyDeclared("x", Epsilon(10), {}, "sum"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [event.kind for event in ledger.log.events()] == ["created"]
    ledger.declare("x", Epsilon(10), {})
    assert ledger.verify() == 2
    ledger.close()


def test_rows_that_nobody_fetched_keep_no_later_transaction_in_the_past(tmp_path: Path) -> None:
    """Reading that broke off, and is still referred to, neither hides what others commit nor keeps a writer out."""
    here = Ledger(tmp_path / "l", "d")
    here.declare("x", Epsilon(10), {})
    there = Ledger(tmp_path / "l", "d")
    with here.log.database.transaction(write=False, after=1) as broken:
        next(broken)
    there.grant("ana", Epsilon(5))
    assert here.grants()["ana"].limit == Epsilon(5)
    here.extend("ana", Epsilon(1))
    assert there.grants()["ana"].limit == Epsilon(6)
    with pytest.raises(sqlite3.ProgrammingError, match="closed cursor"):
        next(broken)
    here.close()
    there.close()


def test_whoever_closes_waits_for_a_transaction(tmp_path: Path) -> None:
    """What is at work when another thread closes the ledger is committed first, not half undone."""
    ledger = Ledger(tmp_path / "l", "d")
    closer = threading.Thread(target=ledger.close)
    with ledger.log._held(), ledger.log.transaction() as writing:
        writing.append(PolicyDeclared("x", Epsilon(10), {}, "sum"))
        closer.start()
        closer.join(0.05)
        writing.append(PolicyDeclared("y", Epsilon(10), {}, "sum"))
    closer.join()
    with closing(sqlite3.connect(tmp_path / "l")) as file:
        assert file.execute("SELECT count(*) FROM events").fetchone() == (3,)


def test_a_transaction_that_ended_commits_nothing(tmp_path: Path) -> None:
    """A connection that was rolled back from elsewhere adds no row by itself, and claims no commit."""
    ledger = Ledger(tmp_path / "l", "d")

    def undone() -> None:
        with ledger.log._held(), ledger.log.transaction() as writing:
            writing.append(PolicyDeclared("x", Epsilon(10), {}, "sum"))
            ledger.log.database.rollback()

    with pytest.raises(LedgerError, match="ended before"):
        undone()
    assert ledger.verify() == 1
    ledger.close()


def test_a_ledger_says_why_nothing_can_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A probe fails as a charge does; the reason is kept and logged once, until something is committed again."""
    ledger = Ledger(tmp_path / "l", "d")
    ledger.declare("x", ONE, {})
    ledger.grant("a", Epsilon(10))
    ledger.writable()
    assert ledger.log.database.failure == ""
    why = "attempt to write a readonly database"
    with closing(sqlite3.connect(tmp_path / "l")) as raw:
        ledger.log.database.run("PRAGMA query_only = ON")
        for _ in range(2):
            for use in (ledger.writable, lambda: ledger.charge("a", "r", WHOLE, Epsilon(4))):
                with pytest.raises(LedgerError, match=why):
                    use()
        assert why in ledger.log.database.failure
        assert [record.message for record in caplog.records] == [ledger.log.database.failure]
        ledger.log.database.run("PRAGMA query_only = OFF")
        ledger.writable()
        assert ledger.log.database.failure == ""
        assert raw.execute("SELECT count(*) FROM events").fetchone() == (3,)
    assert ledger.charge("a", "r", WHOLE, Epsilon(4)) == (None, None)
    assert ledger.verify() == 4
    ledger.close()
