# SPDX-License-Identifier: Apache-2.0
"""``pinq init`` and ``pinq check``."""

import json
from pathlib import Path

import yaml

import pinq
from tests.support.processes.commands import HOSTILE, failed, run


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

    def test_like_another_owners(self, policy: Path, data: Path, tmp_path: Path) -> None:
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
            (["--delimiter", "ab"], "--delimiter: it is 'ab'; it must be a tab, or one sign"),
            (["--quote", "x"], "--quote: "),
            (["--max-unreadable", "2"], "--max-unreadable: "),
        ):
            failed(run("init", table, *words), text, 2)
        table.write_text("Ada\t3\nBo\t4\n" * 20)
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
