# SPDX-License-Identifier: Apache-2.0
"""The operator's page: its commands run as they stand, in a shell, one after the other, and its files know each other."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.house.checkout import ROOT
from tests.support.processes.forked_processes import starting
from tests.support.processes.ports import free_port
from tests.support.processes.servers import Certificate, publish

PAGE = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
MONITORING = ROOT / "deploy" / "monitoring"
SECONDS = 300  # of all commands


@pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("bash", "curl", "openssl")), reason="NO BASH, CURL OR OPENSSL"
)
def test_every_command_of_the_page_runs(tmp_path: Path) -> None:
    """In the order of the page, on ports that are free here; what was restored, rotated and counted is what it says."""
    publish(tmp_path / "policies")
    for folder in ("tls", "bin"):
        (tmp_path / folder).mkdir()
    Certificate.make(tmp_path / "tls")
    script = "trap 'kill -TERM $PINQ; wait' EXIT\n" + "".join(re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL))
    assert script.count("\n") > 15
    for port in ("8443", "9464"):
        script = script.replace(port, str(free_port()))
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "XDG_STATE_HOME": str(tmp_path / "state")}
    words = ["bash", "-eux", "-o", "pipefail", "-c", script]
    with starting(tmp_path / "bin" / "pinq"):
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ben is active, and would be no grant" in done.stderr
    assert (tmp_path / "requests.log.1").exists()
    assert "reloaded" in (tmp_path / "requests.log").read_text()
    assert set(used_metrics()) <= set(re.findall(r"^# TYPE (\S+)", done.stdout, flags=re.MULTILINE))


def used_metrics() -> list[str]:
    """The metrics that rules and dashboard ask for."""
    texts = [(MONITORING / name).read_text() for name in ("pinq.rules.yaml", "grafana.json")]
    return [name for text in texts for name in re.findall(r"\bpinq_[a-z_]+", text)]


def test_rules_and_dashboard_are_whole() -> None:
    """Each rule has an expression, a severity and a sentence; each panel asks for something, beside no other panel."""
    (group,) = yaml.safe_load((MONITORING / "pinq.rules.yaml").read_text())["groups"]
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"].endswith(".")
        assert rule["expr"].count("(") == rule["expr"].count(")")
    dashboard = json.loads((MONITORING / "grafana.json").read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        assert panel["targets"]
        where = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(where["x"], where["x"] + where["w"])
            for y in range(where["y"], where["y"] + where["h"])
        }
        assert not cells & taken
        taken |= cells
    assert max(x for x, _ in taken) < 24
    scrape = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())
    assert scrape["rule_files"] == ["pinq.rules.yaml"]


def test_the_page_names_what_there_is() -> None:
    """Each `pinq` command in it, and each metric, exists."""
    from typer.main import get_command

    from pinq.cli.main import app

    commands = set(get_command(app).commands)  # type: ignore[attr-defined]
    assert set(re.findall(r"`pinq ([a-z]+)", PAGE)) <= commands
    assert set(re.findall(r"\bpinq_[a-z_]+", PAGE)) <= set(used_metrics())
