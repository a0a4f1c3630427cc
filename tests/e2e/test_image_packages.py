# SPDX-License-Identifier: Apache-2.0
"""The server with the packages of the image alone: each documented key of a policy is served, and analysts sign in."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any, cast

import duckdb
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pinq.provider.grants import grant
from tests.support.house.checkout import ROOT
from tests.support.processes import identity_providers as oidc
from tests.support.processes.forked_processes import PinqProcess
from tests.support.processes.ports import free_port
from tests.support.processes.postgresql import HERE
from tests.support.processes.servers import COLUMNS, Server, people, token_of, wait_until_up
from tests.support.tables.workbooks import book

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
(EXTRAS,) = re.findall(r"'\.\[([\w,]+)\]'", (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
DOCUMENTED = set(re.findall(r"^\| `(\w+)` \|", PAGE.split("| key | meaning |")[1].split("\n\n")[0], re.MULTILINE))
# What Python imports first in each process of the server: other packages are not there.
MISSING = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""


def installed() -> set[str]:
    """The packages that the image installs."""
    waiting = [Requirement(f"pinq-miners[{EXTRAS}]")]
    found = set[tuple[str, str]]()
    for requirement in waiting:  # which grows meanwhile
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) in found:
                continue
            found.add((name, extra))
            try:
                needed = (
                    PROJECT["optional-dependencies"].get(extra, PROJECT["dependencies"])
                    if name == "pinq-miners"
                    else requires(name)
                )
            except PackageNotFoundError:  # of an extra that this environment lacks
                continue
            more = map(Requirement, needed or [])
            waiting += [each for each in more if each.marker is None or each.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


def policies(folder: Path, issuer: str, database: str | None) -> dict[str, dict[str, Any]]:
    """Policies that have each documented key between them, and the files of their sources."""
    rows = people(120).assign(person=range(120), since="2026-01-05")
    for name in ("every", "one", "shared", "cohorts"):  # each its own: a source has one ledger
        rows.to_parquet(folder / f"{name}.parquet")
    for name in ("text", "two"):
        rows.to_csv(folder / f"{name}.csv", sep=";", index=False)
    with closing(duckdb.connect(folder / "a.duckdb")) as base:
        base.execute(f"CREATE TABLE people AS SELECT * FROM '{folder / 'text.csv'}'")
    texts = ("sex", *rows["sex"])
    cell = '<row r="{}"><c r="A{}" t="inlineStr"><is><t>{}</t></is></c></row>'
    book(folder / "a.xlsx", "".join(cell.format(number, number, text) for number, text in enumerate(texts, 1)))
    since = {"type": "date", "lower": "2026-01-01", "upper": "2026-12-31"}
    unit = {"privacy_unit": {"column": "person", "max_rows": 1}}
    every = {
        "version": 1,
        "rows_version": "1",
        "ledger": "own.ledger",
        "adjacency": "add-remove",
        **unit,
        "padding": "10ms",
    }
    every |= {
        "memory_limit": "1GB",
        "max_work": 10**6,
        "secure": "noise",
        "unreviewed": [],
        "reviewed": {"cap": "small"},
    }
    every |= {"sign_in": {"issuer": issuer, "client": "pinq"}}
    table = {"max_rows": 1000, "columns": COLUMNS}
    joined = {
        "select": "SELECT p.person, p.sex FROM one p LEFT JOIN two v ON v.person = p.person GROUP BY p.person, p.sex"
    }
    two = {"source": "two.csv", "csv": {"delimiter": ";"}, **table}
    three = {"source": joined, "max_rows": 1000, "columns": {"sex": COLUMNS["sex"]}}
    several = {"tables": {"one": {"source": "one.parquet", **table}, "two": two, "three": three}}
    made: dict[str, dict[str, Any]] = {
        "every": every | table | {"source": "every.parquet"},
        "text": two | {"source": ["text.csv"]},
        "book": {
            "source": "a.xlsx",
            "csv": {"sheet": "Hinweise"},
            "max_rows": 1000,
            "columns": {"sex": COLUMNS["sex"]},
        },
        "base": {"source": {"database": "a.duckdb", "table": "people"}, **table},
        "several": {**unit, "ledger": "several.ledger", **several},
        "cohorts": {
            **table,
            **unit,
            "source": "coh*quet",
            "cohorts": {"column": "since", "by": "month", "closed": "2026-01"},
        },
    }
    made["cohorts"]["columns"] = COLUMNS | {"since": since}
    if database is not None:
        made["shared"] = {"source": "shared.parquet", "ledger": database, **table}
    return {name: {"dataset": name, "cap": 1000, **policy} for name, policy in made.items()}


@pytest.fixture
def issuer() -> Iterator[str]:
    if not oidc.HAS_CODE_FLOW:
        pytest.skip(oidc.NO_CODE_FLOW)
    with oidc.issuing({"sub": "bob"}) as found:
        yield found


def test_each_documented_key_is_served_and_analysts_sign_in(
    tmp_path: Path, issuer: str, request: pytest.FixtureRequest
) -> None:
    """Whatever is not among the packages of the image cannot be imported by the server and its workers."""
    database = request.getfixturevalue("postgresql") if HERE else None
    made = policies(tmp_path, issuer, database)
    assert set().union(*made.values()) == DOCUMENTED
    tokens = dict[str, str]()
    for name, policy in made.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(policy, sort_keys=False), encoding="utf-8")
        tokens[name] = token_of(file)
    grant(tmp_path / "every.yaml", "bob", 1, sign_in=True)
    there = installed()
    assert {"pinq-miners", "duckdb", "psycopg-binary", "joserfc"} < there
    names = {top for top, owners in packages_distributions().items() if not there & set(map(canonicalize_name, owners))}
    assert {"pytest", "nicegui", "sqlglot", "adbc_driver_manager"} <= names
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "sitecustomize.py").write_text(MISSING.format(names=names))
    port, log = free_port(), tmp_path / "server.log"
    words = ["serve", *(str(tmp_path / f"{name}.yaml") for name in made), "--insecure-http", "--port", str(port)]
    with (
        log.open("ab") as told,
        subprocess.Popen(
            [sys.executable, "-m", "pinq.cli.main", *words],
            stdout=told,
            stderr=told,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(tmp_path / "first")},
        ) as process,
    ):
        server = Server(cast(PinqProcess, process), f"http://127.0.0.1:{port}", None, log)
        try:
            wait_until_up(server, 240)
            asked = {"id": "a" * 16, "verb": "noisy_count", "epsilon": "0.1"}
            for name, token in (*tokens.items(), ("every", oidc.id_token(issuer, "bob"))):
                address = "several.one" if name == "several" else name
                with server.http(Authorization=f"Bearer {token}") as client:
                    answer = client.post(f"/v1/{address}/query", json=asked)
                    assert answer.status_code == 200, (name, answer.text, log.read_text())
                    assert client.post(
                        f"/v1/{address}/query", content=json.dumps(asked).ljust(2**17)
                    ).is_success  # by a worker
        finally:
            process.terminate()
