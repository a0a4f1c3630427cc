# SPDX-License-Identifier: Apache-2.0
"""What begins a version of the rows, what does not, and what a declared one is held to."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import pinq
from pinq.errors import BudgetExceeded, LedgerError, PolicyError, QueryError
from pinq.ledger import events
from pinq.ledger.events import Begun
from pinq.ledger.ledger import Ledger
from pinq.policy.dialect import Dialect
from pinq.policy.files import file_facts
from pinq.policy.policy import Policy
from pinq.provider.check import check
from pinq.provider.grants import grant
from pinq.provider.opening import open_ledger

LINES = "status;dose\ns0;1\ns1;2\n"
COLUMNS: dict[str, Any] = {
    "status": {"type": "categorical", "values": ["s0", "s1", "s2"]},
    "dose": {"type": "numeric", "lower": 0, "upper": 9, "integer": True, "nullable": True},
}
FRAME = pd.DataFrame({"status": ["s0", "s1"], "dose": [1, 2]})


@pytest.fixture
def ward(tmp_path: Path) -> Callable[..., Policy]:
    """The policy of a CSV file with what is declared otherwise; None for what is not declared."""
    (tmp_path / "ward.csv").write_text(LINES)

    def policy(**declared: Any) -> Policy:
        keys = {"dataset": "ward", "source": "ward.csv", "cap": 10, "max_rows": 9, "columns": COLUMNS}
        keys |= {"csv": {"delimiter": ";"}, "folder": tmp_path} | declared
        return pinq.load_policy(Policy.model_validate({k: v for k, v in keys.items() if v is not None}))

    grant(policy(), "ana", 9)
    return policy


def version(policy: Policy, data: Any = None) -> int:
    """The version that an opening has."""
    with closing(pinq.open(policy, analyst="ana", data=data)) as handle:
        return handle._session._curator.version  # type: ignore[attr-defined]


def begun(policy: Policy) -> list[Begun]:
    with closing(open_ledger(policy)) as ledger:
        return [
            event.record for event in ledger.log.events() if isinstance(event.record, Begun) and not event.record.cohort
        ]


# What every key of a policy does

NEW: dict[str, Any] = {
    "source": "./ward.csv",
    "csv": {"delimiter": ";", "decimal": ","},
    "rows_version": "second",
}
SAME: dict[str, Any] = {
    "cap": 11,
    "cap_rule": "sum",
    "padding": "50ms",
    "memory_limit": "1GB",
    "max_work": 10**6,
    "sign_in": {"issuer": "https://example.org", "client": "pinq"},
    "secure": "exact",
    "reviewed": {"max_rows": "known"},
    "cohorts": {"column": "status", "closed": "s0"},
    "max_rows": 10,
    "ledger": "ward.csv.ledger",
    # In the identity of partitions: what is asked of them costs anew, and the rest what it did.
    "columns": COLUMNS | {"dose": COLUMNS["dose"] | {"upper": 8}},
}
ELSEWHERE = {
    "version",
    "dataset",
    "adjacency",
    "privacy_unit",
    "unreviewed",
    "lookups",
    "folder",
    "tables",
    "table",
    "unit",
    "joined",
}
"""Keys that cannot change under a ledger, that do not open, or that are no keys of a file."""


def test_every_key_of_a_policy_says_whether_rows_are_read_otherwise() -> None:
    assert {*NEW, *SAME} | ELSEWHERE == set(Policy.model_fields)


@pytest.mark.parametrize("key", SAME)
def test_a_key_that_reads_nothing_begins_no_version(key: str, ward: Callable[..., Policy]) -> None:
    assert [version(ward()), version(ward(**{key: SAME[key]})), version(ward())] == [1, 1, 1]
    assert len(begun(ward())) == 1


@pytest.mark.parametrize("key", NEW)
def test_a_key_that_reads_rows_otherwise_begins_a_version(key: str, ward: Callable[..., Policy]) -> None:
    if key == "rows_version":
        assert [version(ward(rows_version="first")), version(ward(rows_version="second"))] == [1, 2]
    else:
        assert [version(ward()), version(ward(**{key: NEW[key]})), version(ward())] == [1, 2, 3]


OTHERWISE: dict[str, Any] = {
    "delimiter": ",",
    "quote": "'",
    "decimal": ",",
    "thousands": "'",
    "dates": ["%d.%m.%Y"],
    "encoding": "latin-1",
    "sheet": "One",
    "skip": 1,
    "header": ["status", "dose"],
    "century": 1930,
}


def test_every_key_of_a_dialect_but_one_reads_rows_otherwise(ward: Callable[..., Policy]) -> None:
    assert {*OTHERWISE, "max_unreadable"} == set(Dialect.model_fields)
    plain = ward().reading
    assert ward(csv={"delimiter": ";", "max_unreadable": 0.5}).reading == plain
    for key, value in OTHERWISE.items():
        assert ward(csv={"delimiter": ";", key: value}).reading != plain


def test_which_rows_are_kept_of_a_unit_follows_from_all_columns(ward: Callable[..., Policy]) -> None:
    """So another column's declaration is another reading there, and only there."""
    unit = {"privacy_unit": {"column": "person", "max_rows": 2}}
    other = {"columns": SAME["columns"]}
    assert ward(**unit).reading != ward(**unit, **other).reading
    assert ward().reading == ward(**other).reading


# Files


def test_a_file_that_was_written_again_begins_a_version_whatever_was_written(
    ward: Callable[..., Policy], tmp_path: Path
) -> None:
    """Also with the same text, the same size, and the old time of change put back."""
    file = tmp_path / "ward.csv"
    facts = file.stat()
    assert [version(ward()), version(ward())] == [1, 1]
    file.write_text(LINES)
    os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert [version(ward()), version(ward())] == [2, 2]
    (tmp_path / "other.csv").write_text(LINES)
    os.utime(tmp_path / "other.csv", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    os.replace(tmp_path / "other.csv", file)
    assert version(ward()) == 3
    assert [record.number for record in begun(ward())] == [1, 2, 3]


def test_what_sqlite_has_in_its_log_alone_begins_a_version(ward: Callable[..., Policy], tmp_path: Path) -> None:
    """A program that keeps the database open leaves the file itself as it was, and each commit in the log."""
    with closing(sqlite3.connect(tmp_path / "ward.sqlite")) as base:
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("CREATE TABLE ward (status, dose)")
        base.commit()
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        place = {"database": "ward.sqlite", "table": "ward"}
        base_of = ward(source=place, csv=None, dataset="base")
        grant(base_of, "ana", 9)
        assert [version(base_of), version(base_of)] == [1, 1]
        file = file_facts(tmp_path / "ward.sqlite")
        base.execute("INSERT INTO ward VALUES ('s0', 1)")
        base.commit()
        assert file_facts(tmp_path / "ward.sqlite") == file
        assert [version(base_of), version(base_of)] == [2, 2]


def test_an_event_says_when_by_whom_and_what_was_seen(ward: Callable[..., Policy], tmp_path: Path) -> None:
    version(ward())
    (tmp_path / "ward.csv").write_text(LINES + "s2;3\n")
    version(ward())
    with closing(open_ledger(ward())) as ledger:
        event = [event for event in ledger.log.events() if event.kind == "version"][-1]
    assert isinstance(event.record, Begun)
    assert event.by is not None
    assert "@" in event.by.by
    assert re.fullmatch(r"ward.csv, written at 2\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", event.record.why)


def test_an_answer_is_found_again_for_its_own_version_only(ward: Callable[..., Policy], tmp_path: Path) -> None:
    with closing(pinq.open(ward(), analyst="ana")) as handle:
        first = handle.noisy_count(epsilon=1, reuse=True)
        assert handle.noisy_count(epsilon=1, reuse=True) == first
        assert handle.preview("noisy_count", epsilon=1, reuse=True).cost == 0
    (tmp_path / "ward.csv").write_text(LINES)
    with closing(pinq.open(ward(), analyst="ana")) as handle:
        assert handle.preview("noisy_count", epsilon=1, reuse=True).cost == 1
        handle.noisy_count(epsilon=1, reuse=True)
        assert handle.budget.spent == 2
        handle.noisy_count(epsilon=1, reuse=True)
        assert handle.budget.spent == 2


def test_a_retry_finds_its_own_answer_and_never_asks_other_rows(ward: Callable[..., Policy], tmp_path: Path) -> None:
    """What was charged for the old rows and never answered is not answered from the new ones."""
    with closing(pinq.open(ward(), analyst="ana")) as handle:
        curator = handle._session._curator  # type: ignore[attr-defined]
        answered, lost = (handle._request("noisy_count", 1).model_copy(update={"id": name}) for name in "ab")
        given = curator.ask("ana", answered)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(curator.ledger, "answer", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                curator.ask("ana", lost)
    (tmp_path / "ward.csv").write_text(LINES)
    with closing(pinq.open(ward(), analyst="ana")) as handle:
        curator = handle._session._curator  # type: ignore[attr-defined]
        assert curator.ask("ana", answered) == given
        with pytest.raises(QueryError, match="charged for rows that were replaced since, and never answered"):
            curator.ask("ana", lost)
        assert handle.budget.spent == 2


# Sources without facts, and declared versions


def test_a_frame_begins_a_version_with_each_opening_unless_one_is_declared(ward: Callable[..., Policy]) -> None:
    plain, named = ward(source=None, csv=None), ward(source=None, csv=None, rows_version="2026-11")
    grant(plain, "ana", 9)
    assert [version(plain, FRAME), version(plain, FRAME)] == [1, 2]
    assert [version(named, FRAME), version(named, FRAME.iloc[::-1])] == [3, 3], "in any order"


def test_a_declared_version_whose_rows_changed_is_not_opened(ward: Callable[..., Policy], tmp_path: Path) -> None:
    """Written again with the same rows it opens; with others not, until another version is declared or they are back."""
    first, file = ward(rows_version="2026-11"), tmp_path / "ward.csv"
    assert version(first) == 1
    file.write_text("status;dose\ns1;2\ns0;1\n")
    assert version(first) == 1
    file.write_text(LINES.replace("s1", "s2"))
    for _ in range(2):
        with pytest.raises(PolicyError, match="not those of '2026-11', the `rows_version`"):
            version(first)
    assert version(ward(rows_version="2026-12")) == 2
    file.write_text(LINES)
    with pytest.raises(PolicyError):
        version(ward(rows_version="2026-12"))
    assert version(first) == 3, "compared with the last version alone"


def test_a_file_that_did_not_change_is_not_looked_into(ward: Callable[..., Policy], monkeypatch: Any) -> None:
    """And to name rows that are there, or to stop naming them, begins no version."""
    assert [version(ward()), version(ward(rows_version="now"))] == [1, 1]
    monkeypatch.setattr("pinq.engine.arrays.ArrayEngine.contents", lambda self: 1 / 0)
    assert [version(ward(rows_version="now")), version(ward())] == [1, 1]


def test_columns_may_be_declared_otherwise_under_a_declared_version(
    ward: Callable[..., Policy], tmp_path: Path
) -> None:
    named = {"rows_version": "2026-11"}
    assert [version(ward(**named)), version(ward(**named, columns=SAME["columns"]))] == [1, 1]
    (tmp_path / "ward.csv").write_text(LINES.replace("s1", "s2"))
    with pytest.raises(PolicyError):
        version(ward(**named, columns=SAME["columns"]))


# Ledgers of other releases


@pytest.fixture
def old_program() -> Iterator[pytest.MonkeyPatch]:
    """A program that knows all kinds of events but this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(events._KINDS, "version")
        yield patch


def test_an_old_program_refuses_a_ledger_with_versions(
    ward: Callable[..., Policy], tmp_path: Path, old_program: pytest.MonkeyPatch
) -> None:
    with old_program.context() as patch:
        patch.setitem(events._KINDS, "version", Begun)
        version(ward())
    with pytest.raises(LedgerError, match="is of the kind 'version', which this version does not know"):
        Ledger(tmp_path / "ward.csv.ledger", "ward")


def test_all_that_is_in_an_old_ledger_is_of_the_first_version(ward: Callable[..., Policy], tmp_path: Path) -> None:
    """What was asked before there were versions counts as paid for as long as nothing is written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "begin", lambda *_, **__: 1)  # as an earlier program did
        with closing(pinq.open(ward(), analyst="ana")) as handle:
            handle.partition(pinq.Values("status"))[:1].noisy_count(epsilon=1)
    assert begun(ward()) == []
    with closing(pinq.open(ward(), analyst="ana")) as handle:
        assert handle.partition(pinq.Values("status"))[1:].preview("noisy_count", epsilon=1).cost == 0
    (tmp_path / "ward.csv").write_text(LINES)
    with closing(pinq.open(ward(), analyst="ana")) as handle:
        assert handle.partition(pinq.Values("status"))[1:].preview("noisy_count", epsilon=1).cost == 1


# What is said of it


def test_a_price_and_a_refusal_say_that_the_rows_were_replaced(ward: Callable[..., Policy], tmp_path: Path) -> None:
    """To who asked the earlier ones, and to nobody else."""
    grant(ward(), "new", 1)
    said = r"The rows were replaced, or read otherwise, on 2\d{3}-\d\d-\d\d: what was asked of the earlier rows stays"
    with closing(pinq.open(ward(), analyst="ana")) as handle:
        handle.noisy_count(epsilon=5)
    (tmp_path / "ward.csv").write_text(LINES)
    with closing(pinq.open(ward(), analyst="ana")) as handle:
        assert re.search(said, handle.preview("noisy_count", epsilon=1).error)
        with pytest.raises(BudgetExceeded, match=said):
            handle.noisy_count(epsilon=5)
    with closing(pinq.open(ward(), analyst="new")) as handle:
        assert "replaced" not in handle.preview("noisy_count", epsilon=1).error
        with pytest.raises(BudgetExceeded) as refused:
            handle.noisy_count(epsilon=5)
    assert "replaced" not in str(refused.value)


def test_budget_and_history_say_it_too(ward: Callable[..., Policy], tmp_path: Path) -> None:
    """The budget to who asked the earlier rows; a line of the history where it is of other rows than are asked now."""
    grant(ward(), "new", 1)
    with closing(pinq.open(ward(), analyst="ana")) as before:
        before.noisy_count(epsilon=1)
        (tmp_path / "ward.csv").write_text(LINES)
        with closing(pinq.open(ward(), analyst="ana")) as handle:
            handle.noisy_count(epsilon=1)
            said = repr(handle.budget)
            assert said.startswith(
                "Budget(epsilon=9, spent=2, remaining=7). The rows were replaced, or read otherwise,"
            )
            assert "does not count as paid for these." in handle.budget._repr_html_()
            asked = handle.history()["asked"].tolist()
            assert [about.endswith(" (version 1 of the rows)") for about in asked] == [True, False]
        asked = before.history()["asked"].tolist()  # it still asks the earlier rows
        assert [about.endswith(" (version 2 of the rows)") for about in asked] == [False, True]
    with closing(pinq.open(ward(), analyst="new")) as handle:
        assert handle.budget.replaced == ""
        handle.noisy_count(epsilon=1)
        assert repr(handle.budget) == "Budget(epsilon=1, spent=1, remaining=0)"
        assert "version" not in handle.history()["asked"][0]


def test_a_check_says_what_an_opening_would(ward: Callable[..., Policy], tmp_path: Path) -> None:
    """That it begins a version; and that rows are not those of a declared one, which is not ready."""
    assert version(ward(rows_version="2026-11")) == 1
    (tmp_path / "ward.csv").write_text(LINES.replace("s1", "s2"))
    assert "rows: the next opening begins version 2" in " ".join(check(ward()).advice)
    report = check(ward(rows_version="2026-11"))
    assert not report.ready
    assert "not those of '2026-11'" in " ".join(report.problems)
    assert len(begun(ward(rows_version="2026-11"))) == 1
