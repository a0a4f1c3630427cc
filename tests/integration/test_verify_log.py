# SPDX-License-Identifier: Apache-2.0
"""``tools/verify_log.py``, which shares no code with the product: it agrees with the audit, and finds what was planted."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pinq.ledger.ledger import Ledger
from pinq.provider.report.audit import audit
from tests.support.house.assurance import ASSURANCE, note
from tests.support.house.checkout import ROOT
from tests.support.processes.postgresql import HERE, database, drop
from tests.support.requests.random_ledgers import exported, random_ledger

CHECKER = ROOT / "tools" / "verify_log.py"
PAGE = ROOT / "docs" / "log-format.md"
GOLDEN = ROOT / "tests" / "contract" / "golden"
LEDGERS, PLANTED = (1000, 1500) if ASSURANCE else (60, 150)
SEED = 20261128
Line = dict[str, Any]


def _loaded() -> Any:
    spec = importlib.util.spec_from_file_location("verify_log", CHECKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHECK = _loaded()
COLUMNS = CHECK.COLUMNS.split(", ")


def write(lines: list[Line], file: Path) -> Path:
    file.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines), encoding="utf-8")
    return file


def told(ledger: Ledger) -> dict[str, Any]:
    """What the product says of a ledger."""
    grants, together = ledger.grants(), ledger.together()
    return {
        "events": ledger.verify(),
        "head": f"{ledger.log.seq}:{ledger.log.last}",
        "spent": {name: (grant.spent.nano, grant.limit.nano) for name, grant in grants.items()},
        "together": (together.spent.nano, together.cap.nano),
    }


def checked(log: Any) -> dict[str, Any]:
    """What the checker says."""
    return {
        "events": len(log.heads),
        "head": log.heads[-1],
        "spent": {name: (log.spent.get(name, 0), grant["limit"]) for name, grant in log.grants.items()},
        "together": (log.costs["sum"], log.cap),
    }


def test_it_is_one_short_file_of_the_standard_library() -> None:
    """Somebody can read it in a quarter of an hour, and it needs nothing of the product."""
    text = CHECKER.read_text(encoding="utf-8")
    imported = set(re.findall(r"^\s*(?:import|from) (\w+)", text, flags=re.MULTILINE))
    assert imported <= sys.stdlib_module_names
    assert len(text.splitlines()) < 150


def reported(file: Path) -> dict[str, Any]:
    """What ``pinq audit`` reports."""
    report = audit(ledger=file)
    return {
        "events": report.events,
        "head": f"{report.events}:{report.head}",
        "spent": {who.analyst: (who.spent.nano, who.limit.nano) for who in report.accounts.values() if who.granted},
        "together": (report.together.spent.nano, report.together.cap.nano),
    }


def test_it_agrees_with_the_audit_on_random_ledgers(tmp_path: Path) -> None:
    """Events, head, every analyst's spending and limit, and what all spent: as audited, whatever was done, in use and closed."""
    draw, charges, versions = random.Random(SEED), 0, 0
    for number in range(LEDGERS):
        file = tmp_path / f"{number}.ledger"
        with closing(random_ledger(draw, file)) as ledger:
            if not number % 10:
                for read in (file, write(exported(ledger), tmp_path / "l.jsonl")):
                    fault, log = CHECK.verify(read)
                    assert not fault, number
                    assert checked(log) == told(ledger), number
        before = sorted(tmp_path.iterdir())
        fault, log = CHECK.verify(file)
        assert not fault, number
        assert checked(log) == reported(file), number
        assert sorted(tmp_path.iterdir()) == before, "it wrote something"
        charges, versions = charges + len(log.charged), versions + len(log.union)
    assert charges > 5 * LEDGERS
    assert versions > LEDGERS, "several versions of a ledger were asked"
    note(
        "random ledgers, checked by tools/verify_log.py",
        LEDGERS,
        f"every balance the same as `pinq audit` reports, {charges:,} charges",
    )


def golden() -> list[tuple[str, Callable[[Path], Path]]]:
    """Every stored ledger of earlier states, and how it becomes a file."""

    def listed(name: str) -> Callable[[Path], Path]:
        events = json.loads((GOLDEN / name).read_text(encoding="utf-8"))["events"]
        texts = dict(json.loads((GOLDEN / name).read_text(encoding="utf-8"))["answers"])
        lines = [dict(zip(COLUMNS, event, strict=True)) for event in events]
        return lambda folder: write([line | {"answer": texts.get(line["seq"])} for line in lines], folder / name)

    found = [(file.name, lambda _, file=file: file) for file in sorted(GOLDEN.glob("*.sqlite3"))]
    return [*found, ("every_kind.json", listed("every_kind.json"))]


@pytest.mark.parametrize(("name", "made"), golden(), ids=[name for name, _ in golden()])
def test_it_agrees_on_the_ledgers_of_earlier_states(name: str, made: Callable[[Path], Path], tmp_path: Path) -> None:
    """What older releases wrote holds, and costs what it cost."""
    file = made(tmp_path)
    fault, log = CHECK.verify(file)
    assert not fault
    assert name.endswith("json") or checked(log) == reported(file)
    balances = json.loads(
        (GOLDEN / ("balances.json" if name.endswith("sqlite3") else name)).read_text(encoding="utf-8")
    )
    assert log.heads[-1].endswith(balances.get("hash", ""))
    spent = {name: own["spent"] for name, own in balances["grants"].items()}
    assert {name: log.spent.get(name, 0) for name in log.grants} == spent
    assert balances["joint"] in (log.costs[log.rule], [log.costs[log.rule], log.cap])


@pytest.mark.skipif(not HERE, reason="PostgreSQL is not installed")
def test_the_export_of_postgresql_is_read(postgresql: str, tmp_path: Path) -> None:
    """The command of the page writes lines that the checker reads."""
    (command,) = re.findall(
        r'^\$ psql "\$LEDGER" (.*) > ledger.jsonl$', PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    url = database(postgresql)
    try:
        with closing(random_ledger(random.Random(SEED), url)) as ledger:
            line = f'psql "{url.replace("+psycopg", "")}" {command} > ledger.jsonl'
            subprocess.run(["sh", "-c", line], cwd=tmp_path, check=True)
            fault, log = CHECK.verify(tmp_path / "ledger.jsonl")
            assert not fault
            assert checked(log) == told(ledger)
    finally:
        drop(url)


def test_the_example_of_the_page_holds(tmp_path: Path) -> None:
    """The three requests that the page computes by hand cost 0.6, and each hash is the one printed."""
    (example,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    (tmp_path / "l.jsonl").write_text(example, encoding="utf-8")
    command = [sys.executable, str(CHECKER), str(tmp_path / "l.jsonl")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "'ana' spent 0.6 of 1." in printed
    assert "All of 'clinic' spent 0.6 of 2." in printed
    head = re.findall(r"up to (8:\w{8})", printed)[0]
    assert f"`{head}...`" in PAGE.read_text(encoding="utf-8")
    refused = subprocess.run([*command, "8:" + "0" * 64], capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stderr) == (
        1,
        "Refused. event 8: the log never had this head: it was cut or written anew.\n",
    )


# Planted changes


def mended(lines: list[Line]) -> list[Line]:
    """The chain computed anew, as an insider can."""
    before, written = "", []
    for seq, line in enumerate(lines, start=1):
        row = [seq, *(line[name] for name in COLUMNS[1:-1])]
        before = hashlib.sha256(
            json.dumps([before, *row], separators=(",", ":"), ensure_ascii=False).encode()
        ).hexdigest()
        written.append(line | {"seq": seq, "hash": before})
    return written


def edited(line: Line, **fields: Any) -> Line:
    return line | {"body": json.dumps(json.loads(line["body"]) | fields, separators=(",", ":"), ensure_ascii=False)}


def a_character(draw: random.Random, lines: list[Line]) -> list[Line]:
    """One character of one column is another one; the chain is as it was."""
    at, name = draw.choice([(at, name) for at, line in enumerate(lines) for name in COLUMNS[1:] if line[name]])
    text, place = lines[at][name], draw.randrange(len(lines[at][name]))
    other = chr(33 + (ord(text[place]) - 33 + draw.randint(1, 80)) % 90)
    return [*lines[:at], lines[at] | {name: text[:place] + other + text[place + 1 :]}, *lines[at + 1 :]]


def an_answer(draw: random.Random, lines: list[Line]) -> list[Line]:
    at = _one(draw, lines, "answer")
    return [*lines[:at], lines[at] | {"answer": lines[at]["answer"] + " "}, *lines[at + 1 :]]


def a_digest(draw: random.Random, lines: list[Line]) -> list[Line]:
    at = _one(draw, lines, "answer")
    return mended([*lines[:at], edited(lines[at], payload="0" * 64), *lines[at + 1 :]])


def removed(draw: random.Random, lines: list[Line]) -> list[Line]:
    at = draw.randrange(len(lines))
    return mended(lines[:at] + lines[at + 1 :])


def cut(draw: random.Random, lines: list[Line]) -> list[Line]:
    return lines[: draw.randrange(1, len(lines))]


def twice(draw: random.Random, lines: list[Line]) -> list[Line]:
    at = _one(draw, lines, "charge")
    return mended([*lines[: at + 1], *lines[at:]])


def halved(draw: random.Random, lines: list[Line]) -> list[Line]:
    at = _one(draw, lines, "charge")
    return mended(
        [*lines[:at], edited(lines[at], epsilon=json.loads(lines[at]["body"])["epsilon"] // 2), *lines[at + 1 :]]
    )


def dearer(draw: random.Random, lines: list[Line]) -> list[Line]:
    at = _one(draw, lines, "charge")
    return mended([*lines[:at], edited(lines[at], epsilon=10**10), *lines[at + 1 :]])


def elsewhere(draw: random.Random, lines: list[Line]) -> list[Line]:
    at = _one(draw, lines, "charge")
    return mended([*lines[:at], edited(lines[at], demand=[["aa"], [[0, 0, "bb"]], [[1, -1]]]), *lines[at + 1 :]])


def after_a_revoke(draw: random.Random, lines: list[Line]) -> list[Line]:
    at = _one(draw, lines, "charge")
    revoked = lines[at] | {"kind": "revoke", "request": "", "body": "{}", "answer": None}
    return mended([*lines[:at], revoked, *lines[at:]])


def a_higher_limit(draw: random.Random, lines: list[Line]) -> list[Line]:
    at = _one(draw, lines, "grant")
    return mended([*lines[:at], edited(lines[at], limit=10**12), *lines[at + 1 :]])


def swapped(draw: random.Random, lines: list[Line]) -> list[Line]:
    at = draw.randrange(len(lines) - 1)
    return mended([*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]])


def _one(draw: random.Random, lines: list[Line], kind: str) -> int:
    return draw.choice([at for at, line in enumerate(lines) if line["kind"] == kind])


BY_THEMSELVES = (a_character, an_answer, a_digest, twice, dearer, after_a_revoke)
AGAINST_A_HEAD = (removed, cut, halved, elsewhere, a_higher_limit, swapped)


def test_it_finds_every_planted_change(tmp_path: Path) -> None:
    """With a head that was kept elsewhere each change is found; those that break a rule are found without one, too."""
    draw, planted = random.Random(SEED), [*BY_THEMSELVES, *AGAINST_A_HEAD]
    logs = list[list[Line]]()
    while len(logs) < 10:
        with closing(random_ledger(draw)) as ledger:
            lines = exported(ledger)
        if {"charge", "answer"} <= {line["kind"] for line in lines}:
            logs.append(lines)
    for number in range(PLANTED):
        lines, change = logs[number % len(logs)], planted[number % len(planted)]
        head = f"{len(lines)}:{lines[-1]['hash']}"
        file = write(change(draw, lines), tmp_path / "l.jsonl")
        assert CHECK.verify(file, head)[0], (number, change.__name__)
        assert change in AGAINST_A_HEAD or CHECK.verify(file)[0], (number, change.__name__)
    note(
        "changes planted in a log, with tools/verify_log.py", PLANTED, "all found, given a head that was kept elsewhere"
    )


def test_it_follows_a_long_log_quickly(tmp_path: Path) -> None:
    """A charge is added where it belongs: ten thousand charges take seconds, whatever came before."""
    with closing(Ledger("sqlite://", "d")) as ledger:
        (created,) = exported(ledger)
    policy = created | {"kind": "policy", "body": '{"digest":"x","cap":1000000000,"schema":{},"cap_rule":"union"}'}
    grant = created | {"kind": "grant", "analyst": "ana", "body": '{"limit":1000000000,"expires":null}'}
    charges = [
        grant
        | {
            "kind": "charge",
            "request": f"r{n}",
            "body": f'{{"epsilon":9,"demand":[["aa"],[[0,0,"{n % 999}"]],[[1,-1]]]}}',
        }
        for n in range(10_000)
    ]
    fault, log = CHECK.verify(write(mended([created, policy, grant, *charges]), tmp_path / "l.jsonl"))
    assert not fault
    assert log.spent["ana"] == 9 * 11
