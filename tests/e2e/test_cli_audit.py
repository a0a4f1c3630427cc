# SPDX-License-Identifier: Apache-2.0
"""``pinq audit``."""

import csv
import io
import json
import sqlite3
from pathlib import Path

from tests.support.processes.commands import failed, process, run


class TestAudit:
    def test_forms(self, policy: Path, tmp_path: Path) -> None:
        run("query", policy, "--analyst", "ana", "count", "--epsilon", 1)
        assert json.loads(run("audit", policy, "--json").stdout)["analysts"][0]["spent"] == 1.0
        kinds = [row["kind"] for row in csv.DictReader(io.StringIO(run("audit", policy, "--csv").stdout))]
        assert kinds == ["created", "policy", "grant", "version", "charge", "answer"]
        assert run("audit", policy, "--html").stdout.startswith("<!doctype html>")
        for name in ("a.html", "a.csv", "a.json", "a.txt"):
            assert run("audit", policy, "-o", tmp_path / name).stderr == f"Wrote {tmp_path / name}.\n"
        assert (tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!doctype html>")
        assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["chain"]["verified"]
        assert "chain: verified" in (tmp_path / "a.txt").read_text(encoding="utf-8")

    def test_errors(self, policy: Path, tmp_path: Path) -> None:
        failed(run("audit", policy, "--json", "--csv"), "choose one of --json, --csv, --html and --head", 2)
        failed(
            run("audit", policy, "--analyst", "an"), "the log has no analyst 'an' (did you mean 'ana'?); it has ana."
        )
        failed(run("audit", policy, "-o", tmp_path), f"{tmp_path}: Is a directory.")

    def test_before_any_grant(self, data: Path) -> None:
        run("init", data, "-o", data.with_name("p.yaml"))
        failed(run("audit", data.with_name("p.yaml")), "There is no ledger")


def test_broken_chain_closes_the_audit(policy: Path) -> None:
    connection = sqlite3.connect(policy.with_name("people.parquet.ledger"))
    with connection:
        connection.execute("UPDATE events SET analyst = 'eve' WHERE analyst = 'ana'")
    connection.close()
    broken = process("audit", policy, "--json")
    assert (broken.returncode, broken.stdout) == (1, "")
    assert "is damaged at event 3: it was edited or cut." in broken.stderr
    assert broken.stderr.count("\n") == 1
