# SPDX-License-Identifier: Apache-2.0
"""Ledgers of earlier releases replay to what they said then; ledgers of later ones do not open."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from copy import deepcopy
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import pytest

from pinq.errors import LedgerError
from pinq.ledger import log as logs
from pinq.ledger.composition import COUNTED, Demand
from pinq.ledger.events import (
    Charged,
    LoggedQuery,
    PolicyDeclared,
    Record,
    Refused,
    Signature,
    UnknownEvent,
    digest_of,
    read,
    text_of,
)
from pinq.ledger.ledger import Ledger
from pinq.provider.history import history
from pinq.public.epsilon import Epsilon
from tests.support.house.checkout import ROOT
from tests.support.requests.handles import replay

GOLDENS = Path(__file__).parent.parent / "contract" / "golden"
GOLDEN: dict[str, Any] = json.loads((GOLDENS / "every_kind.json").read_text(encoding="utf-8"))
"""A ledger of the first release, with an event of every kind, and what that release said of it."""

EVENTS: list[list[Any]] = [*GOLDEN["events"], *GOLDEN["later"]]
"""The last kind ends all budgets, so the ledger is read without it."""
APPEND = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The ledger as a file."""
    Ledger(tmp_path / "l", "people").close()
    with closing(sqlite3.connect(tmp_path / "l")) as raw, raw:
        raw.execute("DELETE FROM events")
        raw.executemany(APPEND, GOLDEN["events"])
        raw.executemany("INSERT INTO answers VALUES (?, ?)", GOLDEN["answers"])
    (tmp_path / "l.head").unlink()
    return tmp_path / "l"


def test_every_kind_of_event_is_in_the_golden_ledger() -> None:
    """So that whatever is added to the log is added there, too."""
    assert {kind for _, _, kind, *_ in EVENTS} == {record.kind for record in get_args(Record)}


def test_an_old_ledger_replays_to_the_same_balances(old: Path) -> None:
    """Chain, grants, trees, totals and answers are those of the release that wrote it."""
    ledger = Ledger(old, "people")
    assert ledger.verify() == len(GOLDEN["events"])
    found = {
        name: {
            "limit": grant.limit.nano,
            "spent": grant.spent.nano,
            "remaining": grant.remaining.nano,
            "revoked": grant.revoked,
            "expires": grant.expires.isoformat() if grant.expires else None,
            "token": grant.token,
            "terms": str(grant.terms),
            "parts": sorted([key.hex(), nano] for key, nano in grant.costs.part.items()),
        }
        for name, grant in ledger.grants().items()
    }
    assert found == GOLDEN["grants"]
    assert [loss.nano for loss in (ledger.together().spent, ledger.together().cap)] == GOLDEN["joint"]
    assert ledger.answer_of("ana", "a1")[1] == '{"id":"a1"}'
    assert ledger.answer_of("bob", "b2")[1] is None
    assert [line.about for line in history(ledger, "nobody")] == ["open"]
    ledger.close()


def test_an_old_ledgers_report_is_the_same(old: Path) -> None:
    """Line by line, but for what that release did not say: the cap's rule, which file was read, who signed, which act."""
    ledger = Ledger(old, "people")
    report: dict[str, Any] = replay("people", ledger.log.events()).to_dict()
    assert report.pop("ledger") == ""
    assert {len(act["questions"]) for act in report.pop("acts")} == {1}
    for line in (*report["events"], *report["changes"], *report["exhaustion"]):
        assert [line.pop(name, "") for name in ("by", "because", "act", "run")] == [""] * 4
        line["about"] = line["about"].replace(f", which counts {COUNTED} (equal queries once, in earlier versions)", "")
    then = deepcopy(GOLDEN["report"])
    for line, earlier in zip(report["events"], then["events"], strict=True):
        assert line.pop("joint") >= earlier.pop("joint")  # it was the union, which is never more than the sum
    assert report == then
    ledger.close()


def test_a_retired_ledger_counts_anew_and_keeps_its_lines(old: Path) -> None:
    """An old ledger that is closed: nobody has a grant, nothing counts, no line is gone, the checker agrees."""
    with closing(Ledger(old, "people")) as ledger:
        before = replay("people", ledger.log.events())
        closed = ledger.retire(by=Signature("eve@office", "rows were protected, not persons"))
        assert closed.spent == before.joint > Epsilon(0)
        with pytest.raises(LedgerError, match="nothing to close"):
            ledger.retire(by=Signature("eve@office", "twice"))
        assert (ledger.grants(), ledger.together().spent) == ({}, Epsilon(0))
        ledger.declare("x", Epsilon(10**9), {"privacy_unit": {"column": "id", "max_rows": 2}})
        ledger.grant("ana", Epsilon(10**9))
        ledger.charge("ana", "new", Demand((), ((0, None),)), Epsilon(10**8))
        assert ledger.together().spent == Epsilon(10**8)
    with closing(Ledger(old, "people")) as ledger:
        assert ledger.verify() == len(GOLDEN["events"]) + 4
        report = replay("people", ledger.log.events())
        assert [line.about for line in report.lines[: before.events]] == [line.about for line in before.lines]
        assert f"epsilon {before.joint} was spent" in report.changes[-3].about
        assert report.joint == Epsilon(10**8)
    checked = subprocess.run([sys.executable, ROOT / "tools" / "verify_log.py", old], capture_output=True, text=True)
    assert (checked.returncode, "spent 0.1 of 1." in checked.stdout) == (0, True), checked.stderr


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: f"{event[0]}-{event[2]}")
def test_a_record_is_written_as_it_was(event: list[Any]) -> None:
    """Byte for byte, so that the chain of a log does not depend on the release that continues it."""
    record, by = read(event[2], json.loads(event[5]))
    assert by is None
    body = record.to_body()
    if isinstance(record, PolicyDeclared):
        assert body.pop("cap_rule") == "union"
    assert json.dumps(body, separators=(",", ":"), ensure_ascii=False) == event[5]
    assert record.kind == event[2]


def appended(file: Path, kind: str, body: str, analyst: str = "ana", request: str = "r") -> None:
    """Adds an event as another release would: with a chain that holds."""
    with closing(sqlite3.connect(file)) as raw, raw:
        seq, before = raw.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        row = [seq + 1, "2026-01-01T00:00:00.000+00:00", kind, analyst, request, body]
        chained = hashlib.sha256(
            json.dumps([before, *row], separators=(",", ":"), ensure_ascii=False).encode()
        ).hexdigest()
        raw.execute(APPEND, (*row, chained))


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("refund", '{"epsilon":5}', "event 35 is of the kind 'refund', which this version does not know"),
        (
            "charge",
            '{"epsilon":5,"demand":[[],[],[[0,-1]]],"delta":1}',
            "event 35 of the kind 'charge' has other fields .*'delta'.*, which this version does not know",
        ),
        ("revoke", '{"until":"2030"}', "event 35 of the kind 'revoke' has other fields"),
        ("grant", '{"expires":null}', r"event 35 of the kind 'grant' has other fields \('limit'\)"),
    ],
)
def test_what_a_later_release_wrote_stops_the_ledger(old: Path, kind: str, body: str, text: str) -> None:
    """Whoever skipped such an event might count too little as spent: neither an open ledger goes on, nor does it open again."""
    ledger = Ledger(old, "people")
    appended(old, kind, body)
    for use in (ledger.grants, lambda: Ledger(old, "people"), lambda: list(ledger.log.events())):
        with pytest.raises(LedgerError, match=f"was written by another version of pinq: {text}"):
            use()
    ledger.close()


@pytest.mark.parametrize("kind", [record.kind for record in get_args(Record)])
def test_no_kind_of_event_takes_unknown_fields(kind: str) -> None:
    """Each kind refuses a field that it does not know."""
    bodies = [json.loads(event[5]) for event in EVENTS if event[2] == kind]
    assert bodies
    for body in bodies:
        assert read(kind, body)[0].kind == kind
        with pytest.raises(UnknownEvent, match="unknown_field"):
            read(kind, body | {"unknown_field": 1})


def test_requests_write_what_a_neighbouring_version_reads() -> None:
    """While an office upgrades, servers of two versions share a ledger: a new fact of a request is one of its ``notes``."""
    written = json.loads((GOLDENS / "fields.json").read_text(encoding="utf-8"))["requests"]
    alias = {"identity": "question"}
    now = dict[str, list[str]]()
    for kind in get_args(Record):
        own = [each.name for each in fields(kind) if each.name != kind.flat]
        query = [alias.get(each.name, each.name) for each in fields(LoggedQuery)] if kind.flat else []
        now[kind.kind] = [*own, *query]
    providers_own = {"created", "policy", "version", "retire", "grant", "extend", "terms", "token", "revoke"}
    assert {kind: names for kind, names in now.items() if kind not in providers_own} == written


def test_facts_of_a_later_version_change_nothing(old: Path) -> None:
    """A reader goes on with notes that it does not know: budgets, answers, report, chain and the checker are the same."""
    notes = {"colour": "red", "deep": [1, {"none": None}]}
    with closing(Ledger(old, "people")) as ledger:
        ledger.charge("ana", "plain", Demand((), ((0, None),)), Epsilon(5))
        before = ledger.grants()["ana"].spent
        appended(old, "charge", json.dumps({"epsilon": 5, "demand": [[], [], [[0, -1]]], "verb": "v", "notes": notes}))
        assert ledger.grants()["ana"].spent == before + Epsilon(5)
        appended(old, "refusal", json.dumps({"reason": "terms", "about": "a sum", "notes": notes}))
        ledger.charge("ana", "after", Demand((), ((0, None),)), Epsilon(5))
        assert ledger.verify() == len(GOLDEN["events"]) + 4
        charged, refused = [event.record for event in ledger.log.events()][-3:-1]
        for record in (charged, refused):
            assert isinstance(record, Charged | Refused)
            assert record.query.notes == notes
            assert json.loads(text_of(record))["notes"] == notes
        assert replay("people", ledger.log.events()).lines[-2].about == "a sum"
    checked = subprocess.run([sys.executable, ROOT / "tools" / "verify_log.py", old], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_a_snapshot_of_a_later_version_is_replayed(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text may be another one: the log says the same without it, and this version's next snapshot takes its place."""
    later = json.dumps({"format": 99, "whatever": []})
    appended(old, "snapshot", json.dumps({"digest": digest_of(later)}), analyst="", request="")
    number = len(GOLDEN["events"]) + 1
    with closing(Ledger(old, "people")) as ledger:  # which makes the table
        spent = ledger.together().spent
    with closing(sqlite3.connect(old)) as raw, raw:
        raw.execute("INSERT INTO snapshot VALUES (?, ?)", (number, later))
    monkeypatch.setattr(logs, "SNAPSHOT_EVENTS", 1)
    with closing(Ledger(old, "people")) as ledger:
        assert (ledger.log.snapshot_seq, ledger.together().spent) == (0, spent)
        assert ledger.verify() == number
        ledger.charge("ana", "after", Demand((), ((0, None),)), Epsilon(5))
        assert ledger.log.snapshot_seq == number + 2
    with closing(Ledger(old, "people")) as ledger:
        assert (ledger.log.snapshot_seq, ledger.together().spent) == (number + 2, spent + Epsilon(5))


@pytest.mark.parametrize("damaged", [7, "ab", ["age"], [], None, True])
@pytest.mark.parametrize("field", ["columns", "reviewed"])
def test_a_policy_whose_columns_are_none_is_not_read(field: str, damaged: object) -> None:
    """A damaged one is refused as an event that this version does not know, whatever stands there."""
    body = {"digest": "d", "cap": 1, "schema": {field: damaged}, "cap_rule": "sum"}
    with pytest.raises(UnknownEvent, match="'policy' has other fields"):
        read("policy", body)
    assert isinstance(read("policy", body | {"schema": {}})[0], PolicyDeclared)


def test_losses_of_a_record_are_losses() -> None:
    """What the log keeps as numbers comes back as losses."""
    record, _ = read("refusal", {"reason": "budget", "asked": 5, "remaining": 0, "scope": "cap"})
    assert (record.asked, record.remaining) == (Epsilon(5), Epsilon(0))  # type: ignore[union-attr]


def test_a_charge_is_written_as_its_record_says() -> None:
    """With the bytes that it takes, which are known only once it is written."""
    charged, text = Charged(Epsilon(5), Demand((), ((0, None),)), LoggedQuery("noisy_count", about="é")).reserving(7)
    assert text == text_of(charged)
    assert charged.query.stored == 7 + len(
        json.dumps(replace(charged, query=replace(charged.query, stored=0)).to_body())
    )
