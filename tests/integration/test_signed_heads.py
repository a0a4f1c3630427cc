# SPDX-License-Identifier: Apache-2.0
"""Signed heads: with the public key and one old head, anybody detects a history that was written anew."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pinq.errors import LedgerError, QueryError
from pinq.language.parts import Block, Part, PartSet
from pinq.ledger.composition import Demand
from pinq.ledger.log import _chain
from pinq.provider.heads import HeadKey, write_head
from pinq.provider.opening import open_ledger
from pinq.provider.policy_file import load_policy
from pinq.provider.report.audit import audit
from pinq.public.epsilon import Epsilon
from tests.support.house.checkout import ROOT
from tests.support.processes.commands import failed, run
from tests.support.processes.servers import people, publish, serving

TOOL = ROOT / "tools" / "verify_head.py"
NAME = "hospital.example/pinq"
WHOLE = Demand.of(PartSet([Block(Part())]))


def tool() -> Any:
    spec = importlib.util.spec_from_file_location("verify_head", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tool_refuses(head: Path, public: Path) -> bool:
    try:
        tool().head(head.read_text(encoding="utf-8", errors="replace"), public.read_text(encoding="utf-8"))
    except ValueError:
        return True
    return False


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset with a grant and a charge."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = publish(tmp_path, "people", people(20))
    with closing(open_ledger(load_policy(made))) as ledger:
        ledger.grant("ana", Epsilon.of(3))
    charge(made, "first")
    return made


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A key, with its public half beside it."""
    public = run("head-key", tmp_path / "heads.key", "--name", NAME)
    (tmp_path / "heads.pub").write_text(public.stdout, encoding="utf-8")
    return tmp_path / "heads.key"


def charge(policy: Path, id: str) -> None:
    with closing(open_ledger(load_policy(policy))) as ledger:
        ledger.charge("ana", id, WHOLE, Epsilon.of("0.25"))
        ledger.answer("ana", id, "1")


def signed(policy: Path, key: Path, to: Path) -> Path:
    done = run("audit", policy, "--head", "--key", key, "-o", to)
    assert done.exit_code == 0, done.output
    return to


def ledger_of(policy: Path) -> Path:
    (found,) = policy.parent.glob("*.ledger")
    return found


def rewritten(file: Path, change: Callable[[list[Any]], list[Any]]) -> Path:
    """A ledger whose events were changed, and whose chain and own head were mended, as an insider can."""
    with closing(sqlite3.connect(file)) as database, database:
        rows = change([list(row) for row in database.execute("SELECT * FROM events ORDER BY seq")])
        database.execute("DELETE FROM events")
        before = ""
        for seq, row in enumerate(rows, start=1):
            before = _chain(before, seq, *row[1:6])
            database.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", [seq, *row[1:6], before])
        if len(rows) < len(list(database.execute("SELECT seq FROM answers"))):
            database.execute("DELETE FROM answers WHERE seq > ?", [len(rows)])
    Path(f"{file}.head").write_text(f"{len(rows):020d} {before}\n", encoding="ascii")
    return file


def cheaper(rows: list[Any]) -> list[Any]:
    place = next(at for at, row in enumerate(rows) if row[2] == "charge")
    body = json.loads(rows[place][5]) | {"epsilon": 1}
    rows[place][5] = json.dumps(body, separators=(",", ":"))
    return rows


def another_time(rows: list[Any]) -> list[Any]:
    rows[1][1] = "2020" + rows[1][1][4:]
    return rows


def cut(rows: list[Any]) -> list[Any]:
    return rows[:-2]


@pytest.mark.parametrize("change", [cheaper, another_time, cut])
def test_one_old_head_detects_a_rewritten_history(
    change: Callable[[list[Any]], list[Any]], policy: Path, key: Path, tmp_path: Path
) -> None:
    """The new history is whole by itself, also for its own head; the old head, the public key and a copy refuse it."""
    head = signed(policy, key, tmp_path / "head")
    copy = shutil.copy(ledger_of(policy), tmp_path / "copy")
    shutil.copy(f"{ledger_of(policy)}.head", f"{copy}.head")
    rewritten(Path(copy), change)
    assert audit(ledger=copy).events
    with pytest.raises(LedgerError, match="cut, rolled back or made anew"):
        audit(ledger=copy, expect=str(head), key=tmp_path / "heads.pub")
    failed(run("audit", "--ledger", copy, "--expect", head, "--key", tmp_path / "heads.pub"), "made anew")


def test_a_log_that_only_grew_holds(policy: Path, key: Path, tmp_path: Path) -> None:
    """With the public key or the secret one, and by a program that shares no code."""
    head = signed(policy, key, tmp_path / "head")
    charge(policy, "second")
    for half in (key, tmp_path / "heads.pub"):
        assert audit(policy, expect=str(head), key=half).joint == Epsilon.of("0.5")
    named = subprocess.run(
        [sys.executable, TOOL, head, tmp_path / "heads.pub"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert audit(policy, expect=named).joint == Epsilon.of("0.5")
    checked: list[str | Path] = [sys.executable, TOOL.with_name("verify_log.py"), ledger_of(policy), named]
    assert "The log holds" in subprocess.run(checked, capture_output=True, text=True, check=True).stdout


def test_the_form_is_that_of_notes_and_checkpoints(policy: Path, key: Path, tmp_path: Path) -> None:
    """Origin, size, hash, and a signature over the text with its last line break, by an id that binds name and key."""
    note = signed(policy, key, tmp_path / "head").read_text(encoding="utf-8")
    origin, size, root, at, blank, signature, end = note.split("\n")
    report = audit(policy)
    assert (origin, size, blank, end) == (f"{NAME}/people", str(report.events), "", "")
    assert b64decode(root).hex() == report.head
    assert re.fullmatch(r"time \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", at)
    public = (tmp_path / "heads.pub").read_text(encoding="utf-8").strip()
    name, id, data = public.split("+", 2)
    assert signature.startswith(f"— {name} ")
    assert b64decode(signature.split(" ")[2])[:4].hex() == id
    assert b64decode(data)[:1] == b"\x01"
    secret = key.read_text(encoding="utf-8").strip()
    assert secret.startswith(f"PRIVATE+KEY+{name}+{id}+")


def test_the_example_of_the_specification_is_verified() -> None:
    """A note that another program signed: the keys and texts are written alike."""
    note = (
        "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n\n"
        "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
    )
    key = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW\n"
    _, data = key.strip().rsplit("+", 1)
    signature = b64decode(note.split(" ")[-1])
    text = note.rpartition("\n\n")[0] + "\n"
    assert tool().signed_by(b64decode(data)[1:], text.encode(), signature[4:])
    assert HeadKey("PeterNeumann", b64decode(data)[1:], secret=False).public == key.strip()


def test_wrong_files_are_named(policy: Path, key: Path, tmp_path: Path) -> None:
    """Another key, another dataset's head, a cut or changed head, the public key to sign: each has an error of its own."""
    head, public = signed(policy, key, tmp_path / "head"), tmp_path / "heads.pub"
    note = head.read_text(encoding="utf-8")
    other = HeadKey.create(tmp_path / "other.key", NAME)
    with pytest.raises(QueryError, match=r"not signed by the key hospital.example/pinq\+\w{8}, but by another"):
        audit(policy, expect=str(head), key=tmp_path / "other.key")
    os.chmod(tmp_path / "other.key", 0o640)
    with pytest.raises(QueryError, match="others may read"):
        HeadKey.read(tmp_path / "other.key")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(HeadKey.read(key).sign("cars", 3, "ab" * 32), encoding="utf-8")
    with pytest.raises(LedgerError, match=r"The head is one of 'cars', but the ledger .* is of 'people'"):
        audit(policy, expect=str(elsewhere), key=public)
    for length in range(0, len(note.encode()), 5):
        head.write_bytes(note.encode()[:length])
        with pytest.raises(QueryError, match="is no signed head: it is cut"):
            audit(policy, expect=str(head), key=public)
        assert tool_refuses(head, public)
    head.write_text(note.replace("people", "peoplf"), encoding="utf-8")
    with pytest.raises(QueryError, match="was changed after it was signed"):
        audit(policy, expect=str(head), key=public)
    head.write_text(note, encoding="utf-8")
    failed(run("audit", policy, "--expect", head), "compared with the public key of its signer: name the file (--key")
    failed(run("audit", policy, "--head", "--key", public), "only the secret key signs")
    failed(run("audit", policy, "--expect", head, "--key", head), "is no key of heads")
    failed(run("audit", policy, "--expect", tmp_path / "none", "--key", public), "or the file of a signed head")
    failed(run("audit", policy, "--head"), "--head needs a secret key", 2)
    assert other.public.startswith(f"{NAME}+")


def test_signatures_of_others_are_ignored(policy: Path, key: Path, tmp_path: Path) -> None:
    """A witness may add its own, before or after; none of them takes the place of the provider's."""
    head = signed(policy, key, tmp_path / "head")
    text, _, own = head.read_text(encoding="utf-8").rpartition("\n\n")
    witness = HeadKey.create(tmp_path / "witness.key", "witness.example").sign("people", 1, "ab" * 32)
    line = witness.rpartition("\n\n")[2]
    for lines in (own + line, line + own):
        head.write_text(f"{text}\n\n{lines}", encoding="utf-8")
        assert audit(policy, expect=str(head), key=tmp_path / "heads.pub").events
        assert tool().head(head.read_text(encoding="utf-8"), (tmp_path / "heads.pub").read_text(encoding="utf-8"))
    head.write_text(f"{text}\n\n{line}", encoding="utf-8")
    with pytest.raises(QueryError, match="not signed by the key"):
        audit(policy, expect=str(head), key=tmp_path / "heads.pub")


def test_keys_are_their_owners_and_never_replaced(key: Path, tmp_path: Path) -> None:
    """The secret key is one line of mode 0600; the command prints the public one again, and makes no second key there."""
    assert key.stat().st_mode & 0o777 == 0o600
    assert run("head-key", key).stdout == (tmp_path / "heads.pub").read_text(encoding="utf-8")
    failed(run("head-key", key, "--name", "x.example"), f"{key}: File exists.")
    for name in ("", "a b", "a+b", "ä", "x\n", "x" * 129):
        failed(run("head-key", tmp_path / "new.key", "--name", name), "visible characters of ASCII without `+`")
    assert not (tmp_path / "new.key").exists()
    damaged = key.read_text(encoding="utf-8").replace("hospital", "hospitel")
    (tmp_path / "damaged.key").write_text(damaged, encoding="utf-8")
    failed(run("head-key", tmp_path / "damaged.key"), "is no key of heads: it is cut, or another file")


def test_a_server_signs_on_a_schedule(policy: Path, key: Path, tmp_path: Path) -> None:
    """At its start, into the folder of heads; and a head of an unchanged log is not written again."""
    with serving(policy, folder=tmp_path, options=("--head-key", str(key))):
        file = tmp_path / "state" / "pinq" / "heads" / "people.checkpoint"
        end = time.monotonic() + 30
        while not file.exists() and time.monotonic() < end:
            time.sleep(0.05)
        report = audit(policy, expect=str(file), key=tmp_path / "heads.pub")
    signer = HeadKey.read(key)
    head = signer.verified(file)
    assert (head.origin, head.seq) == (f"{NAME}/people", report.events)
    assert not write_head(file.parent, signer, "people", head.seq, head.hashed)
    assert write_head(file.parent, signer, "people", head.seq + 1, head.hashed)
    other = HeadKey.create(tmp_path / "other.key", NAME)
    assert write_head(file.parent, other, "people", head.seq + 1, head.hashed), "another key signs anew"
    (tmp_path / "heads.key").chmod(0o644)
    failed(run("serve", policy, "--insecure-http", "--head-key", key), "others may read")


def test_the_tool_verifies_as_the_library_does() -> None:
    """The arithmetic of the standard library accepts what was signed, and nothing that differs by one bit."""
    check = tool().signed_by
    for number in range(3):
        secret, text = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32), bytes(range(number * 9))
        signature, public = secret.sign(text), secret.public_key().public_bytes_raw()
        assert check(public, text, signature)
        assert not check(public, text + b"x", signature)
        for place in (number, 31 + number):
            changed = bytearray(signature)
            changed[place] ^= 1 << number
            try:
                assert not check(public, text, bytes(changed))
            except ValueError as error:
                assert str(error) == "not a point of the curve"
