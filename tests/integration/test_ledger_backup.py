# SPDX-License-Identifier: Apache-2.0
"""A backup is the ledger of one moment; to restore it says what is forgotten, and is refused unless that is wanted."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pinq.cli.main import app
from pinq.errors import LedgerError, PolicyError
from pinq.language.parts import Block, Part, PartSet
from pinq.ledger.composition import Demand
from pinq.ledger.ledger import Ledger
from pinq.provider import grants as provider
from pinq.provider.backup import backup, heads_folder, loss, restore
from pinq.provider.opening import open_ledger
from pinq.provider.policy_file import load_policy
from pinq.provider.report.audit import audit
from pinq.public.epsilon import Epsilon
from tests.support.processes.postgresql import HERE, SKIPPED
from tests.support.tables.tiny_tables import people_in

WHOLE = Demand.of(PartSet([Block(Part())]))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.skipif(not HERE, reason=SKIPPED))])
def policy(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small dataset with two grants, and a state folder of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    where = "" if request.param == "sqlite" else f"ledger: {request.getfixturevalue('postgresql')}\n"
    policy = people_in(tmp_path, where)
    for name in ("ana", "bob"):
        provider.grant(policy, name, 1)
    return policy


def opened(policy: Path) -> Ledger:
    """The ledger as a server opens it."""
    return open_ledger(load_policy(policy), heads=heads_folder())


def spend(ledger: Ledger, id: str, epsilon: str) -> None:
    """Asks once."""
    ledger.charge("ana", id, WHOLE, Epsilon.of(epsilon))
    ledger.answer("ana", id, f'"{id}"')


def test_a_backup_is_whole_and_comes_back_when_told(policy: Path, tmp_path: Path) -> None:
    """Taken while the ledger is in use; what came after it is named, and forgotten only if that is wanted."""
    with closing(opened(policy)) as ledger:
        spend(ledger, "one", "0.25")
        last = backup(policy, tmp_path / "backup")
        assert audit(policy, expect=last).joint == Epsilon.of("0.25")
        spend(ledger, "two", "0.5")
        ledger.revoke("bob")
        taken = audit(ledger=tmp_path / "backup", expect=last)
        assert (taken.joint, taken.head) == (Epsilon.of("0.25"), last.partition(":")[2])
        assert loss(policy, tmp_path / "backup") == (
            "3 events would be forgotten: ana spent 0.75, of which 0.5 would come back; bob is revoked, and would be active"
        )
        with pytest.raises(LedgerError, match=r"ana spent 0\.75, of which 0\.5 would come back; .*`--forget` does it"):
            restore(policy, tmp_path / "backup")
        assert ledger.grants()["ana"].spent == Epsilon.of("0.75")
        assert restore(policy, tmp_path / "backup", forget=True) == last
        with pytest.raises(LedgerError):  # who had it open does not go on
            spend(ledger, "three", "0.01")
    with closing(opened(policy)) as again:
        assert again.answer_of("ana", "one")[1] == '"one"'
        assert again.answer_of("ana", "two") == (None, None)
        spend(again, "four", "0.125")
        assert again.grants()["ana"].spent == Epsilon.of("0.375")
        again.verify()


def test_where_nothing_is_forgotten_nobody_is_asked(policy: Path, tmp_path: Path) -> None:
    """The ledger's last event is in the backup: so is everything else."""
    last = backup(policy, tmp_path / "backup")
    assert restore(policy, tmp_path / "backup") == last
    with pytest.raises(PolicyError, match="exists; a backup is a file of its own"):
        backup(policy, tmp_path / "backup")


@pytest.mark.parametrize("policy", ["sqlite"], indirect=True)
def test_a_damaged_ledger_is_restored_when_told(policy: Path, tmp_path: Path) -> None:
    """What it would forget cannot be told; the damaged file is kept beside the restored one. So from the command line."""
    run, file = CliRunner().invoke, policy.with_name("people.parquet.ledger")
    last = run(app, ["backup", str(policy), str(tmp_path / "backup")]).output.strip()
    file.write_bytes(file.read_bytes()[:5000])
    refused = run(app, ["restore", str(policy), str(tmp_path / "backup")])
    assert refused.exit_code == 1
    assert "What would be forgotten cannot be told" in refused.output
    done = run(app, ["restore", str(policy), str(tmp_path / "backup"), "--forget"])
    assert done.output == f"Restored; the last event is {last}.\n"
    assert file.with_name(f"{file.name}.replaced").stat().st_size == 5000
    assert set(provider.show(policy).to_dict()) >= {"analysts"}
    opened(policy).close()
