# SPDX-License-Identifier: Apache-2.0
"""The ``pinq`` command: real processes for the main flow, the runner for the rest."""

import csv
import io
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

import pinq
from pinq.cli.main import app
from pinq.errors import PinqError

HOSTILE = ['"; drop table x; --', "[red]x[/red]", "名前 ünïcode", "age:30"]
SECRET = "secret-value-of-a-row"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A table whose columns have hostile names as well."""
    columns: dict[str, Any] = {"age": [20 + i % 60 for i in range(400)], "sex": ["fm"[i % 2] for i in range(400)]}
    columns["income"] = ["low", "high", "low"] * 133 + ["low"]
    columns |= {name: [["[b]u[/b]", "v"][i % 2] for i in range(400)] for name in HOSTILE}
    pq.write_table(pa.table(columns), tmp_path / "people.parquet")
    return tmp_path / "people.parquet"


@pytest.fixture
def policy(data: Path) -> Path:
    """A reviewed policy, with a grant to ``ana``."""
    path = data.parent / "people.yaml"
    assert run("init", data, "--target", "income", "-o", path).exit_code == 0
    review(path)
    assert run("grant", path, "ana", "--epsilon", "1000").exit_code == 0
    return path


def review(path: Path, cap: float = 5000) -> None:
    """Confirms everything that a policy proposes."""
    content = yaml.safe_load(path.read_text(encoding="utf-8")) | {"cap": cap}
    content.pop("unreviewed")
    for column in content["columns"].values():
        column.pop("unreviewed")
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def run(*words: object) -> Any:
    """The command in this process."""
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "160", "NO_COLOR": "1"})


def process(*words: object, **settings: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    environment = {**os.environ, "COLUMNS": "160", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", **settings}
    command = [sys.executable, "-m", "pinq.cli.main", *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", env=environment, timeout=120, check=False
    )


def failed(result: Any, text: str, status: int = 1) -> None:
    """One line on the error stream, the right exit status, no traceback."""
    assert result.exit_code == status
    assert text in result.stderr
    assert result.stdout == ""
    if status == 1:
        assert result.stderr.startswith("Error: ")
        assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output


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


def test_broken_chain_closes_the_audit(policy: Path) -> None:
    connection = sqlite3.connect(policy.with_name("people.parquet.ledger"))
    with connection:
        connection.execute("UPDATE events SET analyst = 'eve' WHERE analyst = 'ana'")
    connection.close()
    broken = process("audit", policy, "--json")
    assert (broken.returncode, broken.stdout) == (1, "")
    assert "is damaged at event 3: it was edited or cut." in broken.stderr
    assert broken.stderr.count("\n") == 1


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

    def test_help_loads_nothing_heavy(self) -> None:
        code = (
            "import sys; from pinq.cli.main import app; app(['--help'], standalone_mode=False)\n"
            "print(sorted({'duckdb', 'opendp', 'sqlalchemy', 'pandas', 'numpy', 'pydantic'} & set(sys.modules)))"
        )
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert found.stdout.splitlines()[-1] == "[]"

    def test_no_filter_on_rows_is_offered(self, policy: Path) -> None:
        failed(
            run("query", policy, "--analyst", "ana", "count", "--epsilon", 1, "--where", "age > 3"),
            "No such option: --where",
            2,
        )


class TestInit:
    def test_prints_with_an_absolute_source(self, data: Path) -> None:
        result = run("init", data)
        assert result.exit_code == 0
        assert yaml.safe_load(result.stdout)["source"] == str(data)

    def test_keeps_what_is_there(self, policy: Path, data: Path) -> None:
        before = policy.read_bytes()
        failed(
            run("init", data, "-o", policy), f"{policy} exists; choose another file, or pass --force to overwrite it."
        )
        assert policy.read_bytes() == before
        assert run("init", data, "-o", policy, "--force").exit_code == 0
        assert policy.read_bytes() != before

    def test_errors(self, data: Path, tmp_path: Path) -> None:
        failed(run("init", tmp_path / "gone.csv"), "There is no source")
        failed(run("init", data, "--target", "incom"), "The source has no column 'incom' (did you mean 'income'?)")
        failed(run("init", data, "-o", "/dev/null/x.yaml"), "/dev/null")

    def test_like_another_holders(self, policy: Path, data: Path, tmp_path: Path) -> None:
        """Columns, bounds and unit are taken from a policy; what goes with a proposal of one's own does not go with it."""
        other = tmp_path / "other" / "p.yaml"
        assert run("init", data, "--like", policy, "--dataset", "theirs", "-o", other).exit_code == 0
        assert pinq.load_policy(other).schema_ == pinq.load_policy(policy).schema_
        assert pinq.load_policy(other).dataset == "theirs"
        assert yaml.safe_load(run("init", data, "--like", policy).stdout)["source"] == str(data)
        failed(run("init", data, "--like", policy, "--target", "income"), "--like takes the columns as they are", 2)
        failed(run("init", data, "--like", tmp_path / "none.yaml"), "There is no policy file")

    def test_how_a_text_file_is_written(self, tmp_path: Path) -> None:
        table, policy = tmp_path / "people.csv", tmp_path / "p.yaml"
        table.write_bytes("name;größe\n".encode("latin-1") + b"Ada;1,5\nBo;1.004,5\n" * 50)
        failed(run("init", table), "it is a line whose bytes are no utf-8; try --encoding latin-1")
        failed(
            run("init", table, "--encoding", "latin-1"), "it looks like fields separated by ';': try --delimiter ';'"
        )
        failed(
            run("init", table, "--encoding", "latin-1", "--delimiter", ";"),
            'look like numbers in another spelling: try --decimal "," --thousands "."',
        )
        stated = [
            "--encoding",
            "latin-1",
            "--delimiter",
            ";",
            "--decimal",
            ",",
            "--thousands",
            ".",
            "--quote",
            "none",
            "--max-unreadable",
            "0.02",
        ]
        assert run("init", table, *stated, "-o", policy).exit_code == 0
        written = yaml.safe_load(policy.read_text(encoding="utf-8"))
        assert written["csv"] == {
            "delimiter": ";",
            "quote": "",
            "decimal": ",",
            "thousands": ".",
            "encoding": "latin-1",
            "max_unreadable": 0.02,
        }
        assert written["columns"]["größe"]["upper"] > 1004
        for words, text in (
            (["--delimiter", "ab"], "--delimiter: 'ab' is no tab"),
            (["--quote", "x"], "--quote: "),
            (["--max-unreadable", "2"], "--max-unreadable: "),
        ):
            failed(run("init", table, *words), text, 2)
        table.write_text("Ada\t3\nBo\t4\n")
        assert set(
            yaml.safe_load(run("init", table, "--delimiter", "tab", "--header", "name, age").stdout)["columns"]
        ) == {"name", "age"}


class TestCheck:
    def test_lines_that_cannot_be_read(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_text("a,b\n" + 'x,1\n"x,0\n' + "x,1\n" * 98)
        policy = tmp_path / "p.yaml"
        for share, status in ((0.01, 0), (0.009, 1)):
            policy.write_text(
                f"dataset: t\nsource: t.csv\ncsv: {{max_unreadable: {share}}}\ncap: 1\nmax_rows: 200\ncolumns: {{a: {{type: categorical, values: [x]}}}}\n",
                encoding="utf-8",
            )
            checked = run("check", policy)
            assert checked.exit_code == status
            assert "100 rows, 99 encoded, 1 left out" in checked.stdout
            assert (
                "1 of 100 lines cannot be read (1 %): 1 with a quote that is not closed, or that text follows (such as line 3 of t.csv)"
                in checked.stdout
            )
            assert json.loads(run("check", policy, "--json").stdout)["unreadable"] == {
                "with a quote that is not closed, or that text follows": 1
            }
        failed(
            run("grant", policy, "ana", "--epsilon", 1),
            "More lines of the source of 't' cannot be read than its policy allows; `pinq check` says how many, and why.",
        )

    def test_json(self, policy: Path) -> None:
        content = json.loads(run("check", policy, "--json").stdout)
        assert content["ready"] is True
        assert content["encoded_rows"] == 400
        assert content["left_out"][HOSTILE[0]] == 0

    def test_hostile_names_show_as_they_are(self, policy: Path) -> None:
        shown = run("check", policy).stdout
        for name in HOSTILE:
            assert name in shown
        assert "[b]u[/b]" in shown

    def test_bad_policies_are_one_line(self, tmp_path: Path) -> None:
        failed(run("check", tmp_path / "none.yaml"), "There is no policy file")
        (tmp_path / "p.yaml").write_text(
            "dataset: p\ncap: 0\nmax_rows: 5\nextra: 1\ncolumns: {a: {type: numeric, lower: 3, upper: 1}}\n"
        )
        result = run("check", tmp_path / "p.yaml")
        failed(result, "is not valid: ")
        assert "extra: unknown key" in result.stderr
        assert "columns.a: lower (3) must be below upper (1)" in result.stderr


class TestGrants:
    def test_json(self, policy: Path) -> None:
        granted = json.loads(run("grant", policy, HOSTILE[1], "--epsilon", "4500", "--json").stdout)
        assert granted["analyst"] == HOSTILE[1]
        assert granted["limit"] == 4500.0
        assert granted["warnings"][0].startswith("All grants together come to epsilon 5500, above the cap of 5000")
        extended = json.loads(
            run("extend", policy, HOSTILE[1], "--epsilon", "0.5", "--expires", "2999-01-31", "--json").stdout
        )
        assert (extended["limit"], extended["expires"]) == (4500.5, "2999-01-31T23:59:59.999999+00:00")
        revoked = json.loads(run("revoke", policy, HOSTILE[1], "--yes", "--json").stdout)
        assert (revoked["state"], revoked["remaining"]) == ("revoked", 0.0)
        shown = json.loads(run("show", policy, "--json").stdout)
        assert [one["analyst"] for one in shown["analysts"]] == ["ana", HOSTILE[1]]

    def test_hostile_names_show_as_they_are(self, policy: Path) -> None:
        for name in HOSTILE:
            assert run("grant", policy, name, "--epsilon", 1).stdout.startswith(f"{name}: granted.")
        for command in ("show", "audit"):
            assert all(name in run(command, policy).stdout for name in HOSTILE)

    def test_errors(self, policy: Path) -> None:
        for epsilon in ("nan", "inf", "-1", "0", "much"):
            failed(
                run("grant", policy, "bea", f"--epsilon={epsilon}"),
                f"--epsilon is '{epsilon}'; it must be a finite number greater than 0",
            )
        failed(
            run("grant", policy, "ana", "--epsilon", 1),
            "'ana' already has a grant of epsilon 1000. Use `pinq extend` to raise it.",
        )
        failed(
            run("grant", policy, "bea", "--epsilon", 1, "--expires", "soon"), "--expires is 'soon'; write 2030-01-31"
        )
        failed(run("grant", policy, "b\x1b[31m", "--epsilon", 1), "it must be 1 to 128 printable characters")
        failed(run("extend", policy, "bea", "--epsilon", 1), "'bea' has no grant; ana has")
        failed(run("extend", policy, "ana"), "say how much more (--epsilon), until when (--expires), or both", 2)
        failed(run("revoke", policy, "bea"), "'bea' has no grant; ana has")
        failed(run("grant", policy, "bea"), "Missing option '--epsilon'", 2)
        assert [one["analyst"] for one in json.loads(run("show", policy, "--json").stdout)["analysts"]] == ["ana"]


class TestQuery:
    def ask(self, policy: Path, *words: object) -> Any:
        result = run("query", policy, "--analyst", "ana", *words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def test_numbers(self, policy: Path) -> None:
        assert abs(self.ask(policy, "count", "--epsilon", 20)["value"] - 400) <= 3
        assert (
            abs(self.ask(policy, "sum", "age", "--epsilon", 50)["value"] - sum(20 + i % 60 for i in range(400))) < 100
        )
        answer = self.ask(policy, "avg", "age", "--epsilon", 50)
        assert 40 < answer["value"] < 60
        assert answer["budget"] == {"epsilon": 1000.0, "spent": 120.0, "remaining": 880.0}
        assert answer["accuracy"].startswith("an average has a standard error of about ")

    def test_parts(self, policy: Path) -> None:
        answer = self.ask(policy, "count", "--partition", "sex", "--partition", "age:30,45", "--epsilon", 20)
        assert [one["part"] for one in answer["values"]][:2] == [
            {"sex": "f", "age": "< 30"},
            {"sex": "f", "age": "30 to < 45"},
        ]
        assert abs(sum(one["value"] for one in answer["values"]) - 400) < 10
        assert answer["budget"]["spent"] == 20.0

    @pytest.mark.parametrize("name", HOSTILE)
    def test_hostile_columns(self, policy: Path, name: str) -> None:
        answer = self.ask(policy, "count", "--partition", name, "--epsilon", 20)
        assert [one["part"] for one in answer["values"]] == [{name: "[b]u[/b]"}, {name: "v"}]
        shown = run("query", policy, "--analyst", "ana", "count", "--partition", name, "--epsilon", 20).stdout
        assert name in shown
        assert "[b]u[/b]" in shown

    def test_choices(self, policy: Path) -> None:
        options = [word for text in ("sex", "age:any", "age:30,45", "sex:any") for word in ("--candidate", text)]
        options += ["--target", "income", "--epsilon", "5"]
        for score in ("gini", "info_gain", "max_class", "mutual_information"):
            assert self.ask(policy, "choose", *options, "--score", score)["value"]["kind"] in (
                "values",
                "cuts",
                "groups",
            )
        assert (
            self.ask(policy, "choose", "--score", "class_count", "--target", "income", "--epsilon", 50)["value"]
            == "low"
        )
        assert (
            self.ask(policy, "choose", "--score", "balance", "--candidate", "age:any", "--epsilon", 5)["value"][
                "column"
            ]
            == "age"
        )
        least = self.ask(
            policy, "choose", "--score", "squared_error", "--target", "age", "--candidate", "sex", "--epsilon", 5
        )
        assert least["value"]["column"] == "sex"
        each = self.ask(
            policy, "choose", "--partition", "sex", "--score", "class_count", "--target", "income", "--epsilon", 50
        )
        assert each["values"] == [{"part": {"sex": value}, "value": "low"} for value in "fm"]

    def test_preview_is_free(self, policy: Path) -> None:
        found = self.ask(policy, "count", "--partition", "sex", "--epsilon", 20, "--preview")
        assert (found["cost"], found["remaining"], found["refused"]) == (20.0, 980.0, False)
        assert self.ask(policy, "count", "--epsilon", 2000, "--preview")["refused"]
        text = run("query", policy, "--analyst", "ana", "count", "--epsilon", 1, "--preview").stdout
        assert text.startswith("Preview: costs epsilon 1 (999 would remain);")
        assert json.loads(run("audit", policy, "--json").stdout)["spent"] == 0.0

    @pytest.mark.parametrize(
        ("words", "text", "status"),
        [
            (["count", "--epsilon", "nan"], "--epsilon is 'nan'", 1),
            (
                ["count", "--epsilon", "2000"],
                "This would cost epsilon 2000; 1000 of 1000 remains for 'ana'. Ask for less, or ask the data provider to extend the grant. Nothing was spent.",
                1,
            ),
            (["avg", "agee", "--epsilon", "1"], "there is no column 'agee' (did you mean 'age'?)", 1),
            (["avg", "sex", "--epsilon", "1"], "`sex` is categorical; a numeric column is needed here.", 1),
            (
                ["count", "--partition", "age", "--epsilon", "1"],
                "the policy declares no cuts of it; say where to cut, for example age:50.",
                1,
            ),
            (
                ["count", "--partition", "age:x", "--epsilon", "1"],
                "the cut 'x' of `age` is not a number; write age:30,45.",
                1,
            ),
            (["count", "--partition", "age:500", "--epsilon", "1"], "the cut 500.0 of `age` is out of bounds", 1),
            (
                ["count", "--partition", "sex:1", "--epsilon", "1"],
                "`sex` is categorical; a numeric column is needed here.",
                1,
            ),
            (["count", "--partition", "nope:any", "--epsilon", "1"], "there is no column 'nope'", 1),
            (["count", "age", "--epsilon", "1"], "`count` takes no COLUMN", 2),
            (["avg", "--epsilon", "1"], "`avg` needs COLUMN", 2),
            (["median", "--epsilon", "1"], "'median' is not one of", 2),
            (["count", "--score", "gini", "--epsilon", "1"], "--score is for `choose`, not for `count`", 2),
            (["choose", "--epsilon", "1"], "`choose` needs --score", 2),
            (["choose", "--score", "gini", "--epsilon", "1"], "--score gini needs --target", 2),
            (["choose", "--score", "gini", "--target", "income", "--epsilon", "1"], "`choose` needs a --candidate", 2),
            (
                ["choose", "--score", "balance", "--target", "sex", "--candidate", "age:any", "--epsilon", "1"],
                "--score balance takes no --target",
                2,
            ),
            (
                ["choose", "--score", "gini", "--target", "age", "--candidate", "sex", "--epsilon", "1"],
                "`age` is numeric; a categorical",
                1,
            ),
        ],
    )
    def test_errors_spend_nothing(self, policy: Path, words: list[str], text: str, status: int) -> None:
        failed(run("query", policy, "--analyst", "ana", *words), text, status)
        assert json.loads(run("audit", policy, "--json").stdout)["spent"] == 0.0

    def test_strangers_learn_nothing(self, policy: Path) -> None:
        run("revoke", policy, "ana", "--yes")
        texts = {run("query", policy, "--analyst", name, "count", "--epsilon", 1).stderr for name in ("ana", "eve")}
        assert texts == {
            "Error: No valid grant under this name for this dataset. Ask the data provider for one (pinq grant).\n"
        }


class TestAudit:
    def test_forms(self, policy: Path, tmp_path: Path) -> None:
        run("query", policy, "--analyst", "ana", "count", "--epsilon", 1)
        assert json.loads(run("audit", policy, "--json").stdout)["analysts"][0]["spent"] == 1.0
        kinds = [row["kind"] for row in csv.DictReader(io.StringIO(run("audit", policy, "--csv").stdout))]
        assert kinds == ["created", "policy", "grant", "charge", "answer"]
        assert run("audit", policy, "--html").stdout.startswith("<!doctype html>")
        for name in ("a.html", "a.csv", "a.json", "a.txt"):
            assert run("audit", policy, "-o", tmp_path / name).stderr == f"Wrote {tmp_path / name}.\n"
        assert (tmp_path / "a.html").read_text(encoding="utf-8").startswith("<!doctype html>")
        assert json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["chain"]["verified"]
        assert "chain: verified" in (tmp_path / "a.txt").read_text(encoding="utf-8")

    def test_errors(self, policy: Path, tmp_path: Path) -> None:
        failed(run("audit", policy, "--json", "--csv"), "choose one of --json, --csv and --html", 2)
        failed(
            run("audit", policy, "--analyst", "an"), "the log has no analyst 'an' (did you mean 'ana'?); it has ana."
        )
        failed(run("audit", policy, "-o", tmp_path), f"{tmp_path}: Is a directory.")

    def test_before_any_grant(self, data: Path) -> None:
        run("init", data, "-o", data.with_name("p.yaml"))
        failed(run("audit", data.with_name("p.yaml")), "There is no ledger")


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
            "import sys; from pinq.engine import DuckDBEngine\n"
            f"def burst(*a, **k): raise ValueError({SECRET!r})\n"
            "DuckDBEngine.tabulate = burst\n"
            "from pinq.cli.main import main; sys.argv[0] = 'pinq'; main()"
        )
        environment = {**os.environ, **({"PINQ_LOG": str(tmp_path / "pinq.ledger.log")} if log else {})}
        words = ["query", str(policy), "--analyst", "ana", "count", "--epsilon", "1"]
        found = subprocess.run(
            [sys.executable, "-c", code, *words],
            capture_output=True,
            text=True,
            encoding="utf-8",
            env=environment,
            check=False,
        )
        assert (found.returncode, found.stdout) == (1, "")
        assert found.stderr.startswith("Error: The data could not be read for this request. What it cost stays charged")
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


def test_every_act_says_by_whom_and_why(policy: Path) -> None:
    """The log has who ran the command, and --because; the audit shows both."""
    acts = [("extend", "--epsilon", "1"), ("terms", "--per-minute", "5"), ("token",), ("revoke", "--yes")]
    for command, *words in acts:
        assert run(command, policy, "ana", *words, "--because", f"why {command}").exit_code == 0
    assert run("grant", policy, "ana", "--epsilon", 1, "--because", "why grant").exit_code == 0
    changes = json.loads(run("audit", policy, "--json").stdout)["changes"]
    assert [one["because"] for one in changes if one["because"]] == [f"why {command}" for command, *_ in acts] + [
        "why grant"
    ]
    assert all(one["by"].count("@") == 1 for one in changes[1:])
    assert "why revoke" in run("audit", policy).stdout
    failed(
        run("revoke", policy, "ana", "--yes", "--because", "x" * 501),
        "--because must be at most 500 printable characters on one line.",
    )


def test_a_grant_is_never_rounded(policy: Path) -> None:
    """Also not in what is added, or in what one query may ask."""
    for words in (
        ("grant", policy, "bea", "--epsilon", "1e-12"),
        ("extend", policy, "ana", "--epsilon", "1e-12"),
        ("terms", policy, "ana", "--max-epsilon", "1e-12"),
    ):
        failed(run(*words), "the smallest step of a loss is 0.000000001, so write at most nine decimals.")


def test_verbs_have_two_names(policy: Path) -> None:
    """Those of the command line and those of Python and the log mean the same; what is shown is the second."""
    for verbs in ("count,choose", "noisy_count,exp_mech"):
        assert "verbs noisy_count, exp_mech" in run("terms", policy, "ana", "--verbs", verbs).stdout
    failed(
        run("terms", policy, "ana", "--verbs", "mean"),
        "the verbs are count, sum, avg, choose, or noisy_count, noisy_sum, noisy_avg, exp_mech, which are the same.",
    )


def test_terms_change_only_what_is_said(policy: Path) -> None:
    """Without options the terms are shown; an option changes one limit; only `all` and --no-limits lift any."""

    def terms(*words: object) -> Any:
        assert run("terms", policy, "ana", *words).exit_code == 0
        return json.loads(run("show", policy, "--json").stdout)["analysts"][0]["terms"]

    limited = {"columns": ["age", "sex"], "max_epsilon_per_query": 0.5}
    assert terms("--columns", "age,sex", "--max-epsilon", "0.5") == limited
    shown = run("terms", policy, "ana")
    assert "Terms: epsilon at most 0.5 a query; columns age, sex\n" in shown.stdout
    assert json.loads(run("terms", policy, "ana", "--json").stdout)["terms"] == limited
    assert terms() == limited
    changed = run("terms", policy, "ana", "--per-minute", "10")
    assert (
        "Terms: epsilon at most 0.5 a query; columns age, sex -> epsilon at most 0.5 a query; columns age, sex; 10 queries a minute\n"
        in changed.stdout
    )
    assert terms("--columns", "all", "--verbs", "count") == {
        "max_epsilon_per_query": 0.5,
        "queries_per_minute": 10,
        "verbs": ["noisy_count"],
    }
    assert terms("--verbs", "all") == {"max_epsilon_per_query": 0.5, "queries_per_minute": 10}
    assert terms("--no-limits", "--columns", "sex") == {"columns": ["sex"]}
    assert terms("--no-limits") == {}
    assert run("revoke", policy, "ana", "--yes").exit_code == 0
    for name in ("ana", "nobody"):
        assert "has no grant; nobody has" in run("terms", policy, name).stderr


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
    failed(run("query", "https://host", *ask), "the URL is 'https://host'; it must be like")
    failed(run("query", "https://host/people", *ask, "--verify", tmp_path / "none"), "--verify is ")
    monkeypatch.setenv("PINQ_TOKEN", "two words")
    failed(run("query", "https://host/people", *ask), "the token is not a token")
