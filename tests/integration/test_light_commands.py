# SPDX-License-Identifier: Apache-2.0
"""A command that needs no engine loads none, so that it starts at once; nor does a worker that does nothing yet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd

# Commands that read no row, in an order in which each can run.
LIGHT = (
    "--version",
    "grant p.yaml ana --epsilon 1",
    "show p.yaml",
    "token p.yaml ana",
    "extend p.yaml ana --epsilon 2",
    "terms p.yaml ana --max-epsilon .5",
    "review p.yaml",
    "statement p.yaml",
    "head-key heads.key --name auditor",
    "backup p.yaml b.ledger",
    "restore p.yaml b.ledger",
    "audit p.yaml",
    "audit p.yaml --html -o audit.html",
    "revoke p.yaml ana",
    "retire p.yaml --because begun-wrongly",
)
READ_ROWS = {
    "check",
    "correct",
    "demo",
    "init",
    "mcp",
    "query",
    "secure",
    "selftest",
    "serve",
    "sql",
    "table",
    "workbench",
}
HEAVY = ("duckdb", "pyarrow", "pandas", "scipy", "matplotlib", "pinq.engine", "pinq.curator", "miners")
SCRIPT = f"""
import sys
from typer.main import get_command
from pinq.cli.main import app

def helps(command, path=()):
    yield " ".join((*path, "--help"))
    for name, below in getattr(command, "commands", {{}}).items():
        yield from helps(below, (*path, name))

light, top = {LIGHT!r}, get_command(app)
named = {{command.split()[0] for command in light}}
assert not named & {READ_ROWS!r} and (named | {READ_ROWS!r}) - {{"--version"}} == {{*top.commands}}, {{*top.commands}}
for command in (*light, *helps(top)):
    try:
        app(command.split(), standalone_mode=True)
    except SystemExit as ended:
        loaded = [name for name in {HEAVY!r} if name in sys.modules]
        assert ended.code == 0 and not loaded, (command, ended.code, loaded)
print("all done")
"""


def test_commands_that_read_no_row_load_no_engine(tmp_path: Path) -> None:
    """Each of them in turn, and each command's help, in one fresh process; lines of text are tried at a first grant."""
    pd.DataFrame({"a": ["x", "y"]}).to_parquet(tmp_path / "t.parquet")
    (tmp_path / "p.yaml").write_text(
        "dataset: d\ncap: 10\nmax_rows: 100\nsource: t.parquet\ncolumns:\n  a: {type: categorical, values: [x, y]}\n"
    )
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("all done\n"), done.stderr


def test_an_idle_worker_loads_no_module_of_its_tasks() -> None:
    """So spares take 8 MB each, and start in a tenth of a second."""
    command = [sys.executable, "-P", "-c", "import sys, pinq.server.worker; print(*sys.modules)"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert not {*loaded} & {*HEAVY, "numpy", "pydantic", "asyncio", "pinq.language", "pinq.ledger"} - {"pinq.curator"}
