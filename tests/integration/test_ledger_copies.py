# SPDX-License-Identifier: Apache-2.0
"""A ledger can be read, copied and archived: who reads changes nothing, and what is not the whole ledger says so."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pinq.cli.main import app
from pinq.errors import LedgerError, QueryError
from pinq.language.parts import Block, Part, PartSet
from pinq.ledger import database
from pinq.ledger.composition import Demand
from pinq.ledger.ledger import Ledger
from pinq.provider import grants as provider
from pinq.provider.backup import backup
from pinq.provider.opening import open_ledger
from pinq.provider.policy_file import load_policy
from pinq.provider.report.audit import audit
from pinq.public.epsilon import Epsilon
from pinq.server.datasets import Datasets
from tests.support.tables.tiny_tables import people_in

WHOLE = Demand.of(PartSet([Block(Part())]))


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """A small dataset, with a grant."""
    home = tmp_path / "home"
    home.mkdir()
    policy = people_in(home)
    provider.grant(policy, "ana", 1, by=None)
    return policy


@pytest.fixture
def file(policy: Path) -> Path:
    """Its ledger."""
    return policy.with_name("people.parquet.ledger")


@pytest.fixture
def live(policy: Path) -> Iterator[Ledger]:
    """The ledger in use: its newest events are not in the file itself."""
    with closing(open_ledger(load_policy(policy))) as ledger:
        for number in range(3):
            ledger.charge("ana", f"r{number}", WHOLE, Epsilon.of("0.1"))
            ledger.answer("ana", f"r{number}", "[1]")
        yield ledger


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_reading_changes_nothing(policy: Path, file: Path, live: Ledger) -> None:
    """Neither in the ledger's folder nor in one of a copy, in use or not; and it sees what is committed."""

    def unchanged() -> None:
        names = {name for name in contents(policy.parent) if not name.endswith("-shm")}  # has the locks of readers
        before = {name: contents(policy.parent)[name] for name in names}
        assert str(provider.show(policy).spent) == "0.3"
        assert audit(policy).joint == Epsilon.of("0.3")
        after = contents(policy.parent)
        assert {name: after[name] for name in after if not name.endswith("-shm")} == before

    unchanged()
    live.close()
    unchanged()


def test_an_archived_copy_needs_neither_policy_nor_data(file: Path, live: Ledger, tmp_path: Path) -> None:
    """The two files of a ledger that is closed, or three of one in use, are read where they are."""
    for name, ends in (("closed", ("", ".head")), ("used", ("", ".head", "-wal"))):
        if name == "closed":
            with closing(sqlite3.connect(file)) as raw:
                raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        else:
            live.charge("ana", "last", WHOLE, Epsilon.of("0.1"))
        archive = tmp_path / name
        archive.mkdir()
        for end in ends:
            shutil.copyfile(f"{file}{end}", archive / f"copy{end}")
        before = contents(archive)
        found = audit(ledger=archive / "copy")
        assert (found.dataset, found.joint) == ("people", Epsilon.of("0.3" if name == "closed" else "0.4"))
        assert found.ledger == str(archive / "copy")
        assert provider.show(ledger=archive / "copy").spent == found.joint
        done = CliRunner().invoke(app, ["show", "--ledger", str(archive / "copy")])
        assert done.output.startswith(f"people: {found.joint} of 2 spent")
        assert contents(archive) == before


def test_an_index_that_cannot_be_used_leaves_no_connection_open(
    file: Path, live: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of file and log is read instead, and what was tried first is closed."""
    connected, made = database._by_name, list[sqlite3.Connection]()

    def noted(name: str) -> sqlite3.Connection:
        made.append(connected(name))
        return made[-1]

    monkeypatch.setattr(database, "_by_name", noted)
    for end in ("", "-wal", ".head"):
        shutil.copyfile(f"{file}{end}", tmp_path / f"copy{end}")
    (tmp_path / "copy-shm").symlink_to(os.devnull)
    with closing(Ledger(tmp_path / "copy", read_only=True)) as copy:
        assert copy.grants()["ana"].spent == Epsilon.of("0.3")
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            made[0].execute("SELECT 1")


def test_a_copy_of_a_file_in_use_is_called_one(file: Path, live: Ledger, tmp_path: Path) -> None:
    """Its newest events were in the file beside it: refused, and not as if somebody had tampered with it."""
    shutil.copyfile(file, tmp_path / "copy")
    shutil.copyfile(f"{file}.head", tmp_path / "copy.head")
    for read_only in (True, False):
        with pytest.raises(
            LedgerError, match=r"is an incomplete copy: it ends at event 3, and its head names event 9\."
        ):
            Ledger(tmp_path / "copy", read_only=read_only)


@pytest.mark.parametrize("end", ["deleted", "replaced"])
def test_a_ledger_that_is_gone_stops_who_has_it_open(file: Path, live: Ledger, end: str, tmp_path: Path) -> None:
    """Nothing is charged to a file that nobody finds again, or beside another one."""
    if end == "deleted":
        file.unlink()
    else:
        shutil.copyfile(file, tmp_path / "other")
        (tmp_path / "other").rename(file)
    for use in (live.grants, lambda: live.charge("ana", "r9", WHOLE, Epsilon(1)), lambda: list(live.log.events())):
        with pytest.raises(LedgerError, match="is not the file that was opened: it was deleted, or another file"):
            use()


def test_a_server_remembers_what_its_ledger_forgets(file: Path, policy: Path, tmp_path: Path) -> None:
    """A restored folder, whose own head is as old as the ledger, does not open where a later event was seen."""
    shutil.copytree(file.parent, tmp_path / "old")
    heads = tmp_path / "state"
    with closing(open_ledger(load_policy(policy), heads=heads)) as ledger:
        ledger.charge("ana", "r", WHOLE, Epsilon(5))
    shutil.rmtree(file.parent)
    shutil.copytree(tmp_path / "old", file.parent)
    with pytest.raises(LedgerError, match=r"was cut or rolled back: event 4, .* restore a backup"):
        open_ledger(load_policy(policy), heads=heads)
    open_ledger(load_policy(policy), heads=tmp_path / "another machine").close()


def test_an_audit_can_expect_an_event(policy: Path, live: Ledger) -> None:
    """Who noted the last event of an earlier audit finds out whether it is still there, and what is malformed."""
    found = audit(policy)
    seen = f"{found.events}:{found.head}"
    live.charge("ana", "later", WHOLE, Epsilon(5))
    assert audit(policy, expect=seen).events == found.events + 1
    assert audit(policy, "ana", expect=seen[:20]).only == "ana"
    with pytest.raises(LedgerError, match=r"has no event 9 with the hash 0000000000000000, which was expected"):
        audit(policy, expect="9:" + "0" * 64)
    with pytest.raises(LedgerError, match="has no event 99 with"):
        audit(policy, expect=f"99:{found.head}")
    for malformed in ("9", "9:12", ":" + found.head, "x:" + found.head):
        with pytest.raises(QueryError, match="it must be SEQ:HASH"):
            audit(policy, expect=malformed)


def test_an_audit_of_a_time(policy: Path, live: Ledger) -> None:
    """Days are included to their ends, balances stay those of the whole log."""
    found = audit(policy)
    day = found.lines[0].at[:10]
    assert audit(policy, since=day).lines == found.lines
    assert audit(policy, since=found.lines[3].at, until="2200-01-01").lines[-1] == found.lines[-1]
    past = audit(policy, since="2001-01-01", until="2002-01-01")
    assert (past.lines, past.joint) == ([], found.joint)
    assert past.to_dict()["period"] == "since 2001-01-01 00:00:00 until 2002-01-01"
    done = CliRunner().invoke(app, ["audit", str(policy), "--until", "2002-01-01"])
    assert "Audit of people, until 2002-01-01" in done.output
    with pytest.raises(QueryError, match="`since` is 'soon'"):
        audit(policy, since="soon")


def test_a_copy_without_its_head_is_not_believed(policy: Path, file: Path, live: Ledger, tmp_path: Path) -> None:
    """The file knows that it is a copy: nobody opens, audits or shows it, until its owner says that it will do."""
    copied = tmp_path / "copy"
    shutil.copyfile(file, copied)
    for use in (
        lambda: Ledger(copied),
        lambda: Ledger(copied, read_only=True),
        lambda: audit(ledger=copied),
        lambda: provider.show(ledger=copied),
    ):
        with pytest.raises(LedgerError, match=r"is a copy, and the file copy\.head of the original is not beside it"):
            use()
    (tmp_path / "copy.head").touch()
    assert audit(ledger=copied).events == 3  # the newest six were in the file beside the original
    Ledger(copied).close()
    (tmp_path / "copy.head").unlink()
    Ledger(copied).close()  # it is a ledger of its own now


def test_a_backup_is_whole_wherever_it_is_copied(policy: Path, live: Ledger, tmp_path: Path) -> None:
    """Also without its head; nothing was in a file beside it."""
    backup(policy, tmp_path / "backup")
    shutil.copyfile(tmp_path / "backup", tmp_path / "elsewhere")
    assert audit(ledger=tmp_path / "elsewhere").joint == Epsilon.of("0.3")


def test_a_ledger_that_is_gone_is_not_begun_anew(policy: Path, file: Path, live: Ledger) -> None:
    """The claim beside the source remembers it; who deletes that too begins anew knowingly."""
    live.close()
    for gone in file.parent.glob(f"{file.name}*"):
        gone.unlink()
    told = r"The ledger .* is gone: .*has a claim that names it \(.*people\.parquet\.claim\)\. Put it back, or restore"
    for use in (
        lambda: open_ledger(load_policy(policy)),
        lambda: provider.grant(policy, "bob", 1),
        lambda: provider.revoke(policy, "ana"),
        lambda: provider.show(policy),
        lambda: Datasets.open([policy]),
    ):
        with pytest.raises(LedgerError, match=told):
            use()
    assert not file.exists()
    policy.with_name("people.parquet.claim").unlink()
    with closing(open_ledger(load_policy(policy))) as ledger:
        assert ledger.verify() == 2


def test_a_ledger_that_cannot_be_written_gives_what_was_answered(live: Ledger, file: Path) -> None:
    """Also where another process answered it: an answer is looked up without writing, and a new question says why it is refused."""
    database: Any = live.log.database
    with closing(Ledger(file)) as other:
        other.charge("ana", "elsewhere", WHOLE, Epsilon.of("0.1"))
        other.answer("ana", "elsewhere", "[2]")
    database.run("PRAGMA query_only = ON")
    assert live.charge("ana", "r0", WHOLE, Epsilon.of("0.1"))[1] == "[1]"
    assert live.charge("ana", "elsewhere", WHOLE, Epsilon.of("0.1"))[1] == "[2]"
    with pytest.raises(LedgerError, match="attempt to write a readonly database"):
        live.charge("ana", "new", WHOLE, Epsilon.of("0.1"))
    database.run("PRAGMA query_only = OFF")
    assert live.charge("ana", "new", WHOLE, Epsilon.of("0.1")) == (None, None)
