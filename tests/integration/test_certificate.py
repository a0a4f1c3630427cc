# SPDX-License-Identifier: Apache-2.0
"""A model is made again from the answers in the ledger, and no other model is."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pinq
from miners import DiffPC45, DiPriMeForestClassifier, DPDilca, Scorecard, ScorecardRegressor
from pinq.cli.main import app
from pinq.errors import LedgerError, QueryError
from pinq.language.queries import Certificate
from pinq.provider.certified import Verified, verify_certificate
from pinq.provider.opening import read_ledger
from pinq.provider.policy_file import load_policy
from tests.support.house.checkout import ROOT
from tests.support.processes.servers import publish, token_of


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A served table's policy, with a grant."""
    file = publish(tmp_path_factory.mktemp("certified"))
    token_of(file, epsilon=100)
    return file


def certified(policy: Path, miner: Any, target: str, part: str = "") -> tuple[Path, Path]:
    """Files with the certificate and the model of a fit."""
    with pinq.open(policy, analyst="ana") as handle:
        handle.noisy_count(epsilon=1)  # what else was asked is not the model's
        miner.fit(handle.partition(pinq.Values("sex"))[part] if part else handle, target)
    certificate, model = policy.with_name("certificate.json"), policy.with_name("model.json")
    certificate.write_text(miner.certificate().to_json(), encoding="utf-8")
    model.write_text(miner.to_json(), encoding="utf-8")
    return certificate, model


@pytest.mark.parametrize(
    ("miner", "target"),
    [
        (DiffPC45(epsilon=1, max_depth=3), "income"),
        (Scorecard(epsilon=1), "income"),
        (ScorecardRegressor(epsilon=1), "age"),
        (DiPriMeForestClassifier(epsilon=1, n_estimators=3, max_depth=2, max_features=2, random_state=1), "income"),
        (DPDilca(epsilon=1, k=1), "income"),
    ],
    ids=lambda miner: type(miner).__name__,
)
def test_the_ledger_makes_the_model_again(policy: Path, miner: Any, target: str) -> None:
    """From the answers of the fit alone, whatever else was asked; what they cost is what the fit did."""
    certificate, model = certified(policy, miner, target)
    verified = verify_certificate(certificate, policy, model=model)
    assert (verified.analyst, verified.miner) == ("ana", repr(miner))
    assert len(verified.entries) == len(miner.certificate().requests) > 0
    assert verified.loss.exact == miner.cost_ <= 1


def test_a_model_of_a_part_is_made_again_of_that_part(policy: Path) -> None:
    certificate, model = certified(policy, DiffPC45(epsilon=1, max_depth=2), "income", part="Female")
    assert verify_certificate(certificate, policy, model=model).loss.exact == 1


def test_the_command_proves_by_policy_and_by_ledger(policy: Path) -> None:
    """With the policy, or with the ledger's file alone; in words and as JSON."""
    certificate, model = certified(policy, DiffPC45(epsilon="0.5", max_depth=2), "income")
    files = ["--certificate", str(certificate), "--model", str(model)]
    done = CliRunner().invoke(app, ["audit", str(policy), *files])
    assert done.exit_code == 0, done.output
    assert re.search(
        r"Proved: DiffPC45.* was made again, and the same, from \d+ answers to 'ana', which cost epsilon 0.5 tog",
        done.output,
    )
    ledger = next(policy.parent.glob("*.ledger"))
    done = CliRunner().invoke(app, ["audit", "--ledger", str(ledger), *files, "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["loss"] == "0.5"
    for alone in (files[:2], files[2:]):
        assert CliRunner().invoke(app, ["audit", str(policy), *alone]).exit_code == 2


def test_two_analysts_who_fit_alike_are_told_apart(policy: Path) -> None:
    """With ``reuse`` both ask under the same ids; each model is made of its own analyst's answers."""
    token_of(policy, "bob", epsilon=100)
    proved = {}
    for analyst in ("ana", "bob"):
        with pinq.open(policy, analyst=analyst) as handle:
            first = DiffPC45(epsilon=1, max_depth=2, criterion="gini").fit(handle, "income", reuse=True)
            again = DiffPC45(epsilon=1, max_depth=2, criterion="gini").fit(handle, "income", reuse=True)
        assert again.certificate() == first.certificate()
        assert again.cost_ == 0
        for miner in (first, again):
            proved[analyst] = verified_as(policy, miner.certificate().to_json(), miner.to_json())
            assert (proved[analyst].analyst, str(proved[analyst].loss)) == (analyst, "1")
    assert set(proved["ana"].entries).isdisjoint(proved["bob"].entries)


def verified_as(policy: Path, certificate: str, model: str) -> Verified:
    """What the ledger says of two texts."""
    (policy.parent / "c.json").write_text(certificate)
    (policy.parent / "m.json").write_text(model)
    return verify_certificate(policy.parent / "c.json", policy, model=policy.parent / "m.json")


def test_no_other_model_is_proved(policy: Path) -> None:
    """Classes swapped, no model at all, a dear model by one cheap answer, another parameter, other answers."""
    certificate, model = (file.read_text() for file in certified(policy, DiffPC45(epsilon=5, max_depth=2), "income"))
    with pinq.open(policy, analyst="ana") as handle:
        handle.noisy_count(epsilon="0.000000001")
    with closing(read_ledger(load_policy(policy))) as ledger:
        cheap = [event.request for event in ledger.log.events() if event.analyst == "ana"][-1]
    stated, stored = json.loads(certificate), json.loads(model)
    labels = [value for column in stored["tree"]["schema"]["columns"].values() for value in column.get("values", ())]
    assert len(labels) > 1
    swapped = (
        model.replace(f'"{labels[-1]}"', '"?"')
        .replace(f'"{labels[-2]}"', f'"{labels[-1]}"')
        .replace('"?"', f'"{labels[-2]}"')
    )
    nodes = stored["tree"]["nodes"]
    richer = [*nodes[:-1], nodes[-1] | {"counts": [count + 1 for count in nodes[-1]["counts"]]}]
    forged = [
        (stated, swapped),
        (stated, "raw rows of another table"),
        (stated, json.dumps({"format": "pinq-suggest"})),
        (stated, json.dumps(stored | {"tree": stored["tree"] | {"nodes": richer}})),
        (stated, json.dumps(stored | {"params": stored["params"] | {"epsilon": 1}})),
        (stated, json.dumps(stored | {"params": stored["params"] | {"criterion": "max"}})),
        (stated | {"requests": [cheap]}, model),
        (stated | {"requests": stated["requests"][:-1]}, model),
        (stated | {"requests": []}, model),
    ]
    for claim, text in forged:
        with pytest.raises(QueryError, match="not proved"):
            verified_as(policy, json.dumps(claim), text)
    assert (
        str(verified_as(policy, certificate, json.dumps(stored | {"cost": "0.1"})).loss) == "5"
    )  # the log's, not the model's


def test_what_cannot_be_made_again_has_no_certificate(policy: Path) -> None:
    """A model read from a file, and one whose public randomness nobody can draw again."""
    with pinq.open(policy, analyst="ana") as handle:
        tree = DiffPC45(epsilon=1, max_depth=2).fit(handle, "income")
        forest = DiPriMeForestClassifier(epsilon=1, n_estimators=2, max_depth=2).fit(handle, "income")
    with pytest.raises(QueryError, match="right after `fit`"):
        DiffPC45.from_json(tree.to_json()).certificate()
    with pytest.raises(QueryError, match="`random_state` is None, so the fit cannot be made again"):
        forest.certificate()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"format": "pinq-certificate"}',
        '{"format": "pinq-certificate", "version": 1, "part": {}, "requests": []}',
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ],
)
def test_what_is_no_certificate(text: str) -> None:
    with pytest.raises(QueryError, match="this is not a certificate"):
        Certificate.from_json(text)


def test_a_ledger_that_was_changed_proves_nothing(tmp_path: Path) -> None:
    """An answer that was edited, and a ledger that has another analyst's or no such charge."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "other").mkdir()
    mine, other = publish(tmp_path / "mine"), publish(tmp_path / "other")
    for file in (mine, other):
        token_of(file, epsilon=100)
    certificate, model = certified(mine, DiffPC45(epsilon=1, max_depth=2), "income")
    certified(other, DiffPC45(epsilon=1, max_depth=2), "income")
    with pytest.raises(QueryError, match="has no charge"):
        verify_certificate(certificate, other, model=model)
    (ledger,) = (tmp_path / "mine").glob("*.ledger")
    with sqlite3.connect(ledger) as database:
        (table,) = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if "answer" in name
        ]
        (column,) = [
            row[1] for row in database.execute(f"PRAGMA table_info({table})") if row[1] in ("payload", "answer")
        ]
        database.execute(f"UPDATE {table} SET {column} = replace({column}, '1', '2')")
    database.close()
    with pytest.raises(LedgerError):
        verify_certificate(certificate, mine, model=model)


def test_the_page_on_assurance_certifies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's model, and the command below it."""
    shutil.copytree(ROOT / "policies", tmp_path / "policies")
    (tmp_path / "data").mkdir()
    shutil.copy(ROOT / "data" / "adult.parquet", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(app, ["grant", "policies/adult.yaml", "analyst1", "--epsilon", "1"]).exit_code == 0
    page = (ROOT / "docs" / "assurance.md").read_text(encoding="utf-8")
    _, block = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    exec(compile(block, "assurance.md", "exec"), {})
    (command,) = re.findall(r"\$ pinq (audit .*)", page)
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 0, done.output
    assert "Proved: DiffPC45" in done.output
