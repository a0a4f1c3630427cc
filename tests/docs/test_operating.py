# SPDX-License-Identifier: Apache-2.0
"""The operator's page: its commands run as they stand, one after the other, and its files know each other.

What is ``pinq`` is forked as in all tests; everything else is the machine's own command.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.checkout import ROOT
from tests.ports import free_port
from tests.processes import PinqProcess, run_pinq
from tests.servers import Certificate, Server, publish, wait_until_up

PAGE = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
MONITORING = ROOT / "deploy" / "monitoring"
COMMANDS = ["pinq", "curl", "openssl", "mv", "kill"]
SIGNALS = {"-HUP": signal.SIGHUP, "-TERM": signal.SIGTERM}


class Shell:
    """As much of a shell as the page needs: ``&``, ``>``, ``$(cat ...)``, ``|| echo``, and ``$PINQ``.

    Attributes:
        printed: What the commands printed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.printed = folder, dict[str, str]()
        self.server: Server | None = None
        self._ports = {"8443": str(free_port()), "9464": str(free_port()), "9465": ""}
        self._sent: set[int] = set()

    def run(self, line: str) -> None:
        """Runs a line; it must succeed, but where it says what to do otherwise."""
        text = re.sub(r"\$\(cat (\S+)\)", lambda name: (self.folder / name[1]).read_text().strip(), line)
        for usual, free in self._ports.items():
            text = text.replace(usual, free or usual)
        text, _, target = text.partition(" > ")
        words = shlex.split(text.removesuffix(" || echo refused").removesuffix(" & PINQ=$!"))
        assert words[0] in COMMANDS, line
        if "&" in text:
            self._serve(words[1:])
        elif words[0] == "kill":
            self._kill(words)
        else:
            self._finish(line, words, target, refused="||" in text)

    def _serve(self, words: list[str]) -> None:
        log = self.folder / "server.log"
        process = PinqProcess(words, output=log, errors=log)
        root = f"https://127.0.0.1:{self._ports['8443']}"
        tls = self.folder / "tls"
        certificate = Certificate(tls / "cert.pem", tls / "key.pem", tls / "authority.pem")
        self.server = Server(process, root, certificate, log)
        wait_until_up(self.server)

    def _kill(self, words: list[str]) -> None:
        assert self.server is not None
        self.server.process.send_signal(SIGNALS[words[1]])
        if words[1] == "-TERM":
            assert self.server.process.wait(timeout=60) in (0, -signal.SIGTERM)
        else:
            self._sent.add(len(self._sent))
            self._until_reloaded()

    def _until_reloaded(self) -> None:
        """Whoever types is slower than a reload; a test is not."""
        for _ in range(600):
            log = self.folder / "requests.log"
            lines = log.read_text() if log.exists() else ""
            if lines.count('"reloaded"') >= len(self._sent):
                return
            subprocess.run(["sleep", "0.05"], check=True)
        raise AssertionError("it does not reload")

    def _finish(self, line: str, words: list[str], target: str, *, refused: bool) -> None:
        if words[0] == "pinq":
            done = run_pinq(words[1:])
        else:
            done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=self.folder)
        assert (done.returncode != 0) == refused, f"{line}\n{done.stdout}{done.stderr}"
        self.printed[line] = done.stdout + done.stderr
        if target:
            (self.folder / target).write_text(done.stdout)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """A folder as the page wants it."""
    policy = publish(tmp_path / "policies")
    policy.write_text(policy.read_text())
    for folder in ("tls", "backups"):
        (tmp_path / folder).mkdir()
    Certificate.make(tmp_path / "tls")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    shell = Shell(tmp_path)
    yield shell
    if shell.server is not None:
        shell.server.process.kill()
        shell.server.process.wait()


@pytest.mark.skipif(shutil.which("curl") is None or shutil.which("openssl") is None, reason="NO CURL OR OPENSSL")
def test_every_command_of_the_page_runs(shell: Shell) -> None:
    """In the order of the page; and what was restored, rotated and counted is what it says."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) > 15
    for line in lines:
        shell.run(line)
    printed = shell.printed
    assert "ben is active, and would be no grant" in next(text for line, text in printed.items() if "|| echo" in line)
    assert (shell.folder / "requests.log.1").exists()
    metrics = next(text for line, text in printed.items() if "/metrics" in line)
    assert set(used_metrics()) <= set(re.findall(r"^# TYPE (\S+)", metrics, flags=re.MULTILINE))


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
