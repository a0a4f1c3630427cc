# SPDX-License-Identifier: Apache-2.0
"""SQL where people write it: in a notebook's cell, in a shell, and over a server."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import pinq
from pinq.errors import QueryError
from tests.support.processes.forked_processes import run_pinq
from tests.support.processes.servers import pinq_command, publish, serving, token_of
from tests.support.requests.handles import simulated
from tests.support.tables.mixed_schema import SCHEMA

pytest.importorskip("sqlglot", reason="SQL needs sqlglot: pip install 'pinq-miners[sql]'")
QUERY = "SELECT sex, COUNT(*) AS n FROM people GROUP BY sex"


def test_a_cell_of_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`%load_ext pinq` makes `%%pinq` known; it returns the table, or the plan of an EXPLAIN."""
    pytest.importorskip("IPython", reason="a notebook's cell needs IPython")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shells: Any = import_module("IPython.core.interactiveshell")
    from traitlets.config import Config

    with simulated(SCHEMA, rows=200, epsilon=10) as handle:
        shell = shells.InteractiveShell(config=Config(HistoryManager={"enabled": False}), user_ns={"h": handle, "x": 3})
        shell.run_line_magic("load_ext", "pinq")
        run: Any = shell.run_cell_magic
        assert run("pinq", "h --epsilon 1 --level 0.9", QUERY).level == 0.9
        assert float(run("pinq", "h --epsilon 1", f"EXPLAIN {QUERY}").total) == 1
        run("pinq", "h --epsilon 1 --reuse", QUERY)
        assert handle.budget.spent == 1
        for name in ("x", "unknown"):
            with pytest.raises(QueryError, match="a private handle"):
                run("pinq", f"{name} --epsilon 1", QUERY)


def test_a_shell_and_a_server(tmp_path: Path) -> None:
    """`pinq sql` answers a policy's table, and a server's the same way; refusals are one line and status 1."""
    policy = publish(tmp_path)
    token = token_of(policy, epsilon=10)
    asked = ["sql", policy, QUERY, "--analyst", "ana", "--epsilon", "1"]
    assert "people GROUP BY sex" in pinq_command(*asked[:2], f"EXPLAIN {QUERY}", *asked[3:])
    assert "n" in pinq_command(*asked)
    answer = json.loads(pinq_command(*asked, "--reuse", "--json"))
    assert [row["answer"] for row in answer["rows"]] == ["n", "n"]
    assert answer["budget"]["spent"] == 1
    refused = run_pinq(list(map(str, [*asked[:2], "SELECT MAX(age) FROM people", *asked[3:]])))
    assert refused.returncode == 1
    assert refused.stderr.startswith("Error: `MAX(age)`: one row decides it")
    with (
        serving(policy, folder=tmp_path) as server,
        pinq.connect(server.url(), token=token, **server.words()) as handle,
    ):
        made: Any = pinq.sql(handle, QUERY, epsilon=1, reuse=True)
        assert made.frame["value"].tolist() == [row["value"] for row in answer["rows"]]
        assert float(handle.budget.spent) == 1
        assert handle.history()["act"].unique().tolist() == [f"sql: {QUERY}"]
