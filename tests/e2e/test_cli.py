# SPDX-License-Identifier: Apache-2.0
"""The ``pinq`` command: the main flow in real processes, its help and its errors."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import pinq
from pinq.cli.main import app
from pinq.errors import PinqError
from tests.support.processes.commands import SECRET, failed, process, review, run
from tests.support.processes.forked_processes import run_pinq


def test_from_a_table_to_an_audit(data: Path) -> None:
    folder = data.parent / "policies"
    path = folder / "people.yaml"
    made = process("init", data, "--target", "income", "-o", path)
    assert (made.returncode, made.stdout) == (0, "")
    assert made.stderr == f"Wrote {path}. Review what it lists under `unreviewed`, then: pinq check {path}\n"
    assert "source: ../people.parquet" in path.read_text(encoding="utf-8")

    unready = process("check", path)
    assert unready.returncode == 1
    assert "Not ready: " in unready.stdout
    refused = process("grant", path, "ana", "--epsilon", "1")
    assert refused.returncode == 1
    assert "that nobody reviewed: privacy_unit, max_rows, columns.age.type" in refused.stderr

    review(path)
    ready = process("check", path)
    assert ready.returncode == 0
    assert "people: 400 rows, 400 encoded, 0 left out" in ready.stdout
    assert "Ready. Next: pinq grant" in ready.stdout

    granted = process("grant", path, "ana", "--epsilon", "1.0", "--expires", "2999-01-31")
    said, token = granted.stdout.splitlines()
    assert said == "ana: granted. limit 1, spent 0, remaining 1, until 2999-01-31 (UTC)"
    assert token.startswith("pinq_")
    assert "shown only now" in granted.stderr
    count = process("query", path, "--analyst", "ana", "count", "--epsilon", "0.9")
    assert count.returncode == 0
    assert abs(int(count.stdout) - 400) < 100
    assert (
        "each count is within ±3 of the truth in 95 % of cases; Budget(epsilon=1, spent=0.9, remaining=0.1)"
        in count.stderr
    )
    refusal = process("query", path, "--analyst", "ana", "count", "--epsilon", "0.2")
    assert (refusal.returncode, refusal.stdout) == (1, "")
    assert refusal.stderr == (
        "Error: This would cost epsilon 0.2; 0.1 of 1 remains for 'ana'. Ask for less, or ask the data provider to extend the grant. "
        "Nothing was spent.\n"
    )

    data.unlink()  # an audit needs the log alone
    audit = process("audit", path)
    assert audit.returncode == 0
    assert "chain: verified" in audit.stdout
    assert "Exhaustion" in audit.stdout
    page = process("audit", path, "--html", "-o", folder / "audit.html")
    assert (page.returncode, page.stderr) == (0, f"Wrote {folder / 'audit.html'}.\n")
    assert (folder / "audit.html").read_text(encoding="utf-8").startswith("<!doctype html>")


class TestHelp:
    def test_page(self) -> None:
        page = process("--help", COLUMNS="80").stdout
        assert "Let others mine a table that you may not hand out." in page
        for text in ("Prepare", "Grant", "Ask", "Audit", "pinq init data.parquet --target income -o p.yaml"):
            assert text in page
        for name in ("init", "check", "grant", "show", "extend", "revoke", "query", "audit"):
            assert f"│ {name} " in page
        assert process(COLUMNS="80").stdout.strip() == page.strip()

    def test_version(self) -> None:
        assert run("--version").output == f"pinq {pinq.__version__}\n"

    def test_flags_show_no_type(self) -> None:
        """The help of a flag names no type, because a flag takes no value."""
        commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
        flags = [p for command in commands.values() for p in command.params if getattr(p, "is_flag", False)]
        assert flags
        assert [p.opts[-1] for p in flags if p.metavar != ""] == []
        assert "--force <bool>" not in " ".join(run("init", "--help").output.split())

    def test_help_loads_nothing_heavy(self) -> None:
        code = (
            "import sys; from pinq.cli.main import app; app(['--help'], standalone_mode=False)\n"
            "print(sorted({'duckdb', 'opendp', 'pandas', 'numpy', 'pydantic'} & set(sys.modules)))"
        )
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert found.stdout.splitlines()[-1] == "[]"

    def test_no_filter_on_rows_is_offered(self, policy: Path) -> None:
        failed(
            run("query", policy, "--analyst", "ana", "count", "--epsilon", 1, "--where", "age > 3"),
            "No such option: --where",
            2,
        )


class TestUnexpected:
    def test_only_the_type_is_named(self, policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def burst(*_: object, **__: object) -> None:
            raise ValueError(SECRET)

        monkeypatch.setattr("pinq.provider.grants.show", burst)
        result = run("show", policy)
        failed(result, "Something unexpected went wrong (ValueError). Please report it;")
        assert SECRET not in result.output

    def test_control_characters_of_an_error_do_not_reach_the_terminal(
        self, policy: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def burst(*_: object, **__: object) -> None:
            raise PinqError("\x1b]0;title\x07 [red]x[/red]\u202e")

        monkeypatch.setattr("pinq.provider.grants.show", burst)
        assert run("show", policy).stderr == "Error: \\x1b]0;title\\x07 [red]x[/red]\\u202e\n"

    @pytest.mark.parametrize("log", [False, True])
    def test_engine_failure_after_the_charge(self, policy: Path, tmp_path: Path, log: bool) -> None:
        code = (
            "import sys; from pinq.engine import ArrayEngine\n"
            f"def burst(*a, **k): raise ValueError({SECRET!r})\n"
            "ArrayEngine.tabulate = burst\n"
            "from pinq.cli.main import main; sys.argv[0] = 'pinq'; main()"
        )
        environment = {**os.environ, **({"PINQ_LOG": str(tmp_path / "pinq.ledger.log")} if log else {})}
        words = ["query", str(policy), "--analyst", "ana", "count", "--epsilon", "1"]
        found = run_pinq(words, environment, program=code)
        assert (found.returncode, found.stdout) == (1, "")
        assert found.stderr.startswith(
            "Error: The data could not be read for this request, or not in the time that it had."
        )
        assert found.stderr.count("\n") == 1
        assert SECRET not in found.stderr
        assert (tmp_path / "pinq.ledger.log").exists() == log
        assert not log or SECRET in (tmp_path / "pinq.ledger.log").read_text(encoding="utf-8")
        account = json.loads(run("audit", policy, "--json").stdout)["analysts"][0]
        assert (account["spent"], account["answered"], account["charged_not_answered"]) == (1.0, 0, 1)

    def test_log_out_of_reach(self, policy: Path) -> None:
        found = process("show", policy, PINQ_LOG="/nonexistent/pinq.ledger.log")
        assert (found.returncode, found.stderr) == (
            1,
            "Error: /nonexistent/pinq.ledger.log: No such file or directory.\n",
        )

    def test_a_closed_pipe_is_no_error(self, policy: Path) -> None:
        command = f"{sys.executable} -m pinq.cli.main audit {policy} --html | head -c 10"
        found = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        assert (found.stdout, found.stderr) == ("<!doctype ", "")


def test_errors_speak_the_command_lines_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python calls `token` or `insecure_http` has another name here."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("PINQ_TOKEN", "PINQ_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    ask = ("count", "--epsilon", "1")
    failed(
        run("query", "https://host:1/people", *ask),
        "the token for https://host:1/people is missing; it may also stand in PINQ_TOKEN, or in a line",
    )
    monkeypatch.setenv("PINQ_TOKEN", "pinq_t")
    failed(run("query", "http://host/people", *ask), "--insecure-http is needed for http://")
    failed(run("query", "https://host", *ask), "the URL is no address of a dataset; it must be like")
    failed(run("query", "https://host/people", *ask, "--verify", tmp_path / "none"), "--verify is ")
    monkeypatch.setenv("PINQ_TOKEN", "two words")
    failed(run("query", "https://host/people", *ask), "the token is not a token")
