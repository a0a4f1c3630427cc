# SPDX-License-Identifier: Apache-2.0
"""A model's certificate against the ledger that charged its answers: it holds, and no change of either side does."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pinq
from miners import DiffPC45, DPDilca, Scorecard
from pinq.cli.main import app
from pinq.errors import LedgerError, PinqError, QueryError
from pinq.provider.certified import verify_certificate
from pinq.public.certificate import Certificate
from tests.checkout import ROOT
from tests.servers import publish, token_of


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A served table's policy, with a grant."""
    file = publish(tmp_path_factory.mktemp("certified"))
    token_of(file, epsilon=100)
    return file


def certified(policy: Path, miner: Any, target: str) -> tuple[Path, Path]:
    """Files with the certificate and the model of a fit."""
    with pinq.open(policy, analyst="ana") as handle:
        handle.noisy_count(epsilon=1)  # what else was asked is not the model's
        miner.fit(handle, target)
    certificate, model = policy.with_name("certificate.json"), policy.with_name("model.json")
    certificate.write_text(miner.certificate().to_json(), encoding="utf-8")
    model.write_text(miner.to_json(), encoding="utf-8")
    return certificate, model


@pytest.mark.parametrize(
    "miner",
    [DiffPC45(epsilon=1, max_depth=3), Scorecard(epsilon=1), DPDilca(epsilon=1, k=1)],
    ids=lambda miner: type(miner).__name__,
)
def test_the_ledger_bears_a_certificate_out(policy: Path, miner: Any) -> None:
    """Every answer is in the log under its digest, and together they cost at most what was claimed, whatever else was asked."""
    certificate, model = certified(policy, miner, "income")
    verified = verify_certificate(certificate, policy, model=model)
    assert verified.analyst == "ana"
    assert len(verified.entries) == len(verified.certificate.releases) > 0
    assert verified.loss.exact <= 1
    assert verified.loss.exact == miner.cost_
    assert verified.model
    assert all(release.sensitivity and release.mechanism for release in verified.certificate.releases)


def test_the_command_verifies_by_policy_and_by_ledger(policy: Path) -> None:
    """With the policy, or with the ledger's file alone; in words and as JSON."""
    certificate, model = certified(policy, DiffPC45(epsilon="0.5", max_depth=2), "income")
    done = CliRunner().invoke(app, ["audit", str(policy), "--certificate", str(certificate), "--model", str(model)])
    assert done.exit_code == 0, done.output
    assert "The model is the certified one." in done.output
    ledger = next(policy.parent.glob("*.ledger"))
    done = CliRunner().invoke(app, ["audit", "--ledger", str(ledger), "--certificate", str(certificate), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["claimed"] == "0.5"
    assert CliRunner().invoke(app, ["audit", str(policy), "--model", str(model)]).exit_code == 2
    model.write_text(model.read_text().replace("0", "1", 1))
    done = CliRunner().invoke(app, ["audit", str(policy), "--certificate", str(certificate), "--model", str(model)])
    assert done.exit_code == 1
    assert "is not the model of the certificate" in done.output


def test_a_fit_that_was_asked_again_has_the_same_certificate(policy: Path) -> None:
    """Reused answers are the same answers: the second model is certified by the same charges."""
    with pinq.open(policy, analyst="ana") as handle:
        first = DiffPC45(epsilon=1, max_depth=2).fit(handle, "income", reuse=True)
        again = DiffPC45(epsilon=1, max_depth=2).fit(handle, "income", reuse=True)
    assert again.cost_ == 0
    assert again.certificate().releases == first.certificate().releases
    with pytest.raises(QueryError, match="right after `fit`"):
        DiffPC45.from_json(first.to_json()).certificate()


def test_any_change_of_the_certificate_fails(policy: Path, tmp_path: Path) -> None:
    """Each field, changed alone, in a way that would serve a forger."""
    certificate, _ = certified(policy, DiffPC45(epsilon=1, max_depth=2), "income")
    stated = json.loads(certificate.read_text())
    changes: list[tuple[list[Any], Any]] = [
        (["epsilon"], "0.1"),
        (["schema_digest"], "0" * 32),
        (["version"], 2),
        (["more"], 1),
        *((["releases", 0, name], "0" * 32) for name in ("request", "question", "answer")),
        (["releases", 0, "epsilon"], "0.001"),
        (["releases"], []),
    ]
    for path, value in changes:
        forged = json.loads(json.dumps(stated))
        inner = forged
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value
        file = tmp_path / "forged.json"
        file.write_text(json.dumps(forged))
        with pytest.raises(PinqError):
            verify_certificate(file, policy)
    for text in (
        "",
        "[]",
        "{",
        '{"format": "pinq-certificate"}',
        "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    ):
        with pytest.raises(QueryError):
            Certificate.from_json(text)


def test_a_ledger_that_was_changed_bears_nothing_out(tmp_path: Path) -> None:
    """An answer that was edited, and a ledger that has another analyst's or no such charge."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "other").mkdir()
    mine, other = publish(tmp_path / "mine"), publish(tmp_path / "other")
    for file in (mine, other):
        token_of(file, epsilon=100)
    certificate, _ = certified(mine, DiffPC45(epsilon=1, max_depth=2), "income")
    certified(other, DiffPC45(epsilon=1, max_depth=2), "income")
    with pytest.raises(QueryError, match="has no charge"):
        verify_certificate(certificate, other)
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
    with pytest.raises(LedgerError):
        verify_certificate(certificate, mine)


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
    assert "Verified: DiffPC45" in done.output
