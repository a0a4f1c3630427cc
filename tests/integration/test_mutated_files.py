# SPDX-License-Identifier: Apache-2.0
"""Policies, models, certificates and ledgers that were changed: they are read, or refused by a documented error, and soon.

Some dozens of each in an ordinary run, always the same; ``make assurance`` tries ten thousand of each, ``make explore`` others each time.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pinq
from miners import DiffPC45, DiPriMeForestClassifier, DPDilca, Scorecard
from pinq.cli.main import app
from pinq.errors import BudgetExceeded, LedgerError, NotAuthorised, PinqError, PolicyError, QueryError
from pinq.language.parts import Block, Part, PartSet
from pinq.ledger.composition import Demand
from pinq.ledger.events import LoggedQuery, Signature, Terms
from pinq.ledger.ledger import Ledger
from pinq.policy.plain_yaml import read_yaml, write_yaml
from pinq.provider.certified import verify_certificate
from pinq.provider.policy_file import load_policy
from pinq.public.epsilon import Epsilon
from tests.support.house.assurance import ASSURANCE, note
from tests.support.processes.servers import people, publish, token_of
from tests.support.tables.mutated_inputs import bent, changed, within

EXPLORE = bool(os.environ.get("PINQ_EXPLORE"))
MANY = 10_000 if ASSURANCE else 1_000 if EXPLORE else 60
COMMANDS = 200 if ASSURANCE or EXPLORE else 12
SEED = random.randrange(2**32) if EXPLORE else 20261122
CPU_SECONDS = 10.0


POLICY: dict[str, Any] = {
    "adjacency": "substitute",
    "privacy_unit": {"column": "person", "max_rows": 3},
    "padding": "50ms",
    "memory_limit": "2GB",
    "unreviewed": [],
    "reviewed": {"columns.age.upper": "census form 2024"},
    "columns": {
        "sex": {"type": "categorical", "values": ["Female", "Male"]},
        "job": {"type": "categorical", "values": ["clerk", "nurse", "smith"], "nullable": True, "other": "clerk"},
        "age": {"type": "numeric", "lower": 0, "upper": 99, "integer": True, "cuts": [20, 40, 60]},
        "share": {"type": "numeric", "lower": 0, "upper": 1, "step": 0.25, "nullable": True},
        "born": {"type": "date", "lower": "1920-01-01", "upper": "2024-12-31", "nullable": True},
        "old": {
            "type": "categorical",
            "values": [False, True],
            "from": ["age", "sex"],
            "formula": "age > 50 AND sex = 'Male'",
        },
        "region": {
            "type": "categorical",
            "values": ["north", "south"],
            "from": "job",
            "lookup": {"file": "regions.csv", "key": "job", "value": "region"},
        },
        "income": {"type": "categorical", "values": ["<=50K", ">50K"]},
    },
}
WHOLE = Demand.of(PartSet([Block(Part())]))


@dataclass(frozen=True)
class Originals:
    """Valid files of each kind, in one folder.

    Attributes:
        policy: The policy of the models' table, with its ledger beside it.
        declared: The text of a policy with every key.
        models: The text of a model of each kind, by the class that reads it.
        certificate: The certificate of the first model.
        ledger: The bytes of a ledger with every kind of event.
    """

    folder: Path
    policy: Path
    declared: str
    models: dict[type[Any], str]
    certificate: str
    ledger: bytes

    def file(self, name: str, content: bytes) -> Path:
        """A file beside the originals."""
        file = self.folder / name
        file.write_bytes(content)
        return file


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Originals:
    folder = tmp_path_factory.mktemp("originals")
    policy = publish(folder)
    rows = people().assign(person=range(400), share=0.5, born="1970-01-01")
    rows.to_parquet(folder / "rich.parquet")
    (folder / "regions.csv").write_text("job,region\nclerk,north\nnurse,south\nsmith,south\n", encoding="utf-8")
    declared = {"version": 1, "dataset": "rich", "source": "rich.parquet", "cap": 1000, "max_rows": 1000, **POLICY}
    token_of(policy, epsilon=100)
    (folder / "rich.yaml").write_text(write_yaml(declared), encoding="utf-8")
    token_of(folder / "rich.yaml")
    miners: list[Any] = [
        DiffPC45(epsilon=1, max_depth=2),
        Scorecard(epsilon=1),
        DiPriMeForestClassifier(epsilon=1, n_estimators=2, max_depth=2),
        DPDilca(epsilon=1, k=1),
    ]
    with pinq.open(policy, analyst="ana") as handle:
        for miner in miners:
            miner.fit(handle, "income")
    models = {type(miner): miner.to_json() for miner in miners}
    return Originals(
        folder, policy, write_yaml(declared), models, miners[0].certificate().to_json(), ledger_bytes(folder)
    )


def ledger_bytes(folder: Path) -> bytes:
    """A ledger in which everything happened that one logs: granted, extended, new terms and token, charged, answered, refused, revoked."""
    file = folder / "all.ledger"
    with closing(Ledger(file, "d")) as ledger:
        ledger.declare("digest", Epsilon.of(10), {"max_rows": 10, "columns": {}})
        by = Signature("root", "contract 17")
        ledger.grant("ana", Epsilon.of(1), datetime(2040, 1, 1, tzinfo=UTC), token="0" * 64, by=by)
        ledger.set_terms("ana", Terms(Epsilon.of(1), ("sex",), ("noisy_count",), 10, 10, 10**6), by=by)
        for number in range(4):
            ledger.charge("ana", f"id-{number}", WHOLE, Epsilon.of("0.1"), LoggedQuery("noisy_count", identity="q"))
            ledger.answer("ana", f"id-{number}", f'"the answer to {number}"')
        with pytest.raises(PinqError):
            ledger.charge("ana", "too much", WHOLE, Epsilon.of(1), LoggedQuery("noisy_count"))
        ledger.extend("ana", Epsilon.of(1), by=by)
        ledger.set_token("ana", "1" * 64, by=by)
        ledger.revoke("ana", by=by)
        ledger.declare("another", Epsilon.of(20), {"max_rows": 20, "columns": {}})
    with closing(sqlite3.connect(file)) as raw, raw:
        raw.execute("DELETE FROM place")  # what is read here is a copy, without a head
    return file.read_bytes()


def tried(
    what: str,
    make: Callable[[random.Random], bytes],
    use: Callable[[bytes], object],
    errors: tuple[type[PinqError], ...],
    many: int = MANY,
) -> None:
    """Changes inputs and uses them: each is good, or refused by one of ``errors`` within some seconds."""
    draw, outcomes = random.Random(SEED), Counter[str]()
    for number in range(many):
        content = make(draw)
        try:
            with within(CPU_SECONDS):
                use(content)
            outcomes["read"] += 1
        except errors as error:
            assert str(error)
            outcomes["refused"] += 1
        except BaseException as error:
            error.add_note(f"number {number} of the seed {SEED}: {content[:2_000]!r}")
            raise
    note(what, many, ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes.items())))
    assert outcomes["refused"] > many / 10
    assert many < 1_000 or outcomes["read"] > many / 200


def of_text(text: str, reader: Callable[[str], Any], writer: Callable[[Any], str]) -> Callable[[random.Random], bytes]:
    """Changes the bytes of a text, or places of what it says."""
    content = reader(text)

    def make(draw: random.Random) -> bytes:
        if draw.random() < 0.5:
            return bent(text.encode(), draw)
        return writer(changed(content, draw)).encode("utf-8", "surrogatepass")

    return make


def as_json(content: Any) -> str:
    return json.dumps(content, ensure_ascii=False)


def policies(originals: Originals) -> Callable[[random.Random], bytes]:
    # JSON is YAML, and says what no dumper of YAML would write.
    return of_text(originals.declared, read_yaml, lambda content: as_json(content))


def test_changed_policies(originals: Originals) -> None:
    """A policy is read, and then says again what it says, or is refused by a ``PolicyError``."""

    def use(content: bytes) -> None:
        policy = load_policy(originals.file("changed.yaml", content))
        again = originals.file("again.yaml", policy.to_yaml().encode())
        assert load_policy(again).schema_.digest == policy.schema_.digest

    tried("policies changed", policies(originals), use, (PolicyError,))


MODELS = (DiffPC45, Scorecard, DiPriMeForestClassifier, DPDilca)


@pytest.mark.parametrize("kind", MODELS)
def test_changed_models(kind: type[Any], originals: Originals) -> None:
    """A model is read, and then predicts and is written again, or is refused by a ``QueryError``."""
    frame = people(40)

    def use(content: bytes) -> None:
        miner = kind.from_json(content)
        miner.to_json()
        repr(miner)
        if hasattr(miner, "predict"):
            miner.predict(frame)

    make = of_text(originals.models[kind], json.loads, as_json)
    tried(f"models changed ({kind.__name__})", make, use, (QueryError,), MANY // len(MODELS))


def test_changed_certificates(originals: Originals) -> None:
    """A certificate proves its model, or is refused."""
    model = originals.file("model.json", originals.models[DiffPC45].encode())

    def use(content: bytes) -> None:
        verify_certificate(originals.file("changed.json", content), originals.policy, model=model)

    tried("certificates changed", of_text(originals.certificate, json.loads, as_json), use, (QueryError, LedgerError))


def rechained(content: bytes, file: Path, draw: random.Random) -> bytes:
    """A ledger in which the body of some event is another one, in a chain that holds: what a program could have written."""
    file.write_bytes(content)
    with closing(sqlite3.connect(file)) as raw, raw:
        rows = [
            list(row) for row in raw.execute("SELECT seq, at, kind, analyst, request, body FROM events ORDER BY seq")
        ]
        row = draw.choice(rows)
        if draw.random() < 0.2:
            row[draw.randrange(1, 5)] = draw.choice(["", "x", rows[-1][2], 7, "2026-13-01", rows[1][2], rows[-1][1]])
        else:
            row[5] = as_json(changed(json.loads(row[5]), draw)).encode("utf-8", "replace").decode()
        chain = ""
        for seq, at, kind, analyst, request, body in rows:
            fields = [chain, seq, at, kind, analyst, request, body]
            chain = hashlib.sha256(json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()
            raw.execute(
                "UPDATE events SET at = ?, kind = ?, analyst = ?, request = ?, body = ?, hash = ? WHERE seq = ?",
                (at, kind, analyst, request, body, chain, seq),
            )
    return file.read_bytes()


def ledgers(originals: Originals) -> Callable[[random.Random], bytes]:
    def make(draw: random.Random) -> bytes:
        if draw.random() < 0.5:
            return bent(originals.ledger, draw)
        return rechained(originals.ledger, originals.folder / "rechained", draw)

    return make


def test_changed_ledgers(originals: Originals) -> None:
    """A ledger is opened, verified, shown and charged as if nothing had happened, or refused by a ``LedgerError``."""
    folder = originals.folder / "ledgers"
    folder.mkdir()

    def use(content: bytes) -> None:
        for beside in folder.iterdir():
            beside.unlink()
        (folder / "l").write_bytes(content)
        with closing(Ledger(folder / "l", create=False)) as ledger:
            ledger.verify()
            for name, grant in ledger.grants().items():
                assert grant.spent.nano >= 0
                ledger.log.lines(name)
                ledger.log.answers(name)
            try:
                ledger.grant("eve", Epsilon.of(1))
                ledger.charge("eve", "a new one", WHOLE, Epsilon.of("0.1"))
            except (BudgetExceeded, NotAuthorised):
                pass
            ledger.verify()

    tried("ledgers changed", ledgers(originals), use, (LedgerError,))


COMMAND_KINDS: dict[str, tuple[Callable[[Originals], Callable[[random.Random], bytes]], list[str]]] = {
    "check": (policies, ["check", "{}"]),
    "show": (policies, ["show", "{}"]),
    "audit": (ledgers, ["audit", "--ledger", "{}"]),
    "certificate": (
        lambda originals: of_text(originals.certificate, json.loads, as_json),
        ["audit", "people.yaml", "--certificate", "{}", "--model", "model.json"],
    ),
    "model": (
        lambda originals: of_text(originals.models[DiffPC45], json.loads, as_json),
        ["audit", "people.yaml", "--certificate", "certificate.json", "--model", "{}"],
    ),
}


@pytest.mark.parametrize("name", COMMAND_KINDS)
def test_commands_on_changed_files(name: str, originals: Originals, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command ends with a status, and says what is wrong in a line: no traceback, and nothing that nobody expected."""
    kind, words = COMMAND_KINDS[name]
    originals.file("certificate.json", originals.certificate.encode())
    originals.file("model.json", originals.models[DiffPC45].encode())
    monkeypatch.chdir(originals.folder)
    draw, make, statuses = random.Random(SEED), kind(originals), Counter[int]()
    for number in range(COMMANDS):
        file = originals.file("changed", make(draw))
        with within(2 * CPU_SECONDS):
            done = CliRunner().invoke(app, [word.format(file) for word in words])
        statuses[done.exit_code] += 1
        known = f"{number} of {SEED}: {done.output[-500:]}"
        assert isinstance(done.exception, SystemExit | None), known
        assert "Traceback" not in done.output, known
        assert "went wrong" not in done.output, known
    note(
        f"pinq {name} on changed files", COMMANDS, ", ".join(f"{many} status {code}" for code, many in statuses.items())
    )
    assert set(statuses) <= {0, 1}
    assert statuses[0] or COMMANDS < 100, "some changes do no harm"
    assert statuses[1] > COMMANDS / 10
