# SPDX-License-Identifier: Apache-2.0
"""Every way to ask knows several tables and cohorts, or refuses them with a sentence; the page on policies lists all ways."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pinq
from miners.federated.federation import Federation
from pinq.cli.main import app
from pinq.engine.spark import SparkEngine
from pinq.errors import PolicyError, QueryError
from pinq.language.specs import bind
from pinq.ledger.events import FREE
from pinq.provider.grants import grant, make_terms
from pinq_secure.provider import require_fit
from tests.integration.provider.test_year_of_a_registry import MONTHS, arrive
from tests.support.house.checkout import ROOT
from tests.support.processes.servers import serving

WARDS = "SELECT ward, COUNT(*) FROM {table} GROUP BY ward"


@dataclass(frozen=True)
class Registry:
    """A registry with tables and cohorts, and a grant of 9."""

    policy: Path
    token: str

    def open(self, table: str = "patients") -> pinq.PrivateQueryable:
        return pinq.open(self.policy, analyst="ana", table=table)

    @property
    def spent(self) -> float:
        with self.open() as handle:
            return float(handle.budget.spent)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    policy = arrive(tmp_path, 3)
    return Registry(policy, grant(policy, "ana", 9).token)


def by_python(registry: Registry) -> None:
    """Three cohorts at 1 cost 1; another table's count is added."""
    with registry.open() as handle:
        for month in MONTHS[:3]:
            handle.cohort(month).noisy_count(epsilon=1)
    with registry.open("visits") as handle:
        handle.noisy_count(epsilon=1)
    assert registry.spent == 2


def over_the_network(registry: Registry) -> None:
    with serving(registry.policy, folder=registry.policy.parent) as server:
        words: dict[str, Any] = {"token": registry.token, "insecure_http": True}
        with pinq.connect(server.url("registry"), table="patients", **words) as handle:
            for month in MONTHS[:2]:
                handle.cohort(month).noisy_count(epsilon=1)
        with pinq.connect(server.url("registry.visits"), **words) as handle:
            handle.noisy_count(epsilon=1)
    assert registry.spent == 2


def at_the_command_line(registry: Registry) -> None:
    """Of a policy a table is named behind #; without one it says which there are."""
    words = ["count", "--analyst", "ana", "--epsilon", "1"]
    for table, status, said in (("#visits", 0, ""), ("", 1, "tables patients, visits"), ("#lab", 1, "no such table")):
        done = CliRunner().invoke(app, ["query", f"{registry.policy}{table}", *words])
        assert (done.exit_code, said in done.output) == (status, True), done.output
    assert registry.spent == 1


def by_sql(registry: Registry) -> None:
    """A table goes by its own name or its whole one."""
    pytest.importorskip("sqlglot", reason="SQL needs sqlglot: pip install 'pinq-miners[sql]'")
    with registry.open("visits") as handle:
        pinq.sql(handle, WARDS.format(table="visits"), epsilon=1)
    with registry.open() as handle:
        for month in MONTHS[:3]:
            pinq.sql(handle.cohort(month), WARDS.format(table='"registry.patients"'), epsilon=1)
    assert registry.spent == 2


def by_agents(registry: Registry) -> None:
    """An agent's limits count what each call costs; cohorts cost their maximum in the ledger."""
    pytest.importorskip("mcp", reason="an MCP server needs mcp: pip install 'pinq-miners[agents]'")
    from miners.fronts.agents import Agent

    asked = {"kind": "crosstab", "columns": ["ward"], "epsilon": "1"}
    with registry.open("visits") as visits, registry.open() as patients:
        for handle in (visits, *(patients.cohort(month) for month in MONTHS[:3])):
            told = Agent(handle, per_call=1, per_session=2).call("ask_table", asked)
            assert not told.is_error, told.text
    assert registry.spent == 2


def by_federations(registry: Registry) -> None:
    """Owners join a table of each, or a cohort of each; two tables of one grant are warned of."""
    other = Registry(arrive(_folder(registry, "other"), 3), "")
    grant(other.policy, "ana", 9)
    with registry.open() as own, other.open() as beside, registry.open() as patients_again:
        for month in MONTHS[:2]:
            both = Federation({"north": own.cohort(month), "south": beside.cohort(month)})
            answers = both.parts().partition(pinq.Values("ward")).noisy_count(epsilon=1)
            assert {name: answer.size for name, answer in answers.items()} == {"north": 2, "south": 2}
        with pytest.warns(UserWarning, match="would count twice, and pay twice"):
            Federation({"one": own, "two": patients_again})
    assert registry.spent == other.spent == 1


def by_secure_sessions(registry: Registry) -> None:
    with pytest.raises(PolicyError, match="has several tables, and a session reads one: use a policy of one table"):
        require_fit(None, 0, pinq.load_policy(registry.policy))  # type: ignore[arg-type]


def by_spark(registry: Registry) -> None:
    """A table of Spark can be one of several; its cohorts are refused before a row is read."""
    text = registry.policy.read_text()
    registry.policy.write_text(text.replace("source: patients.csv", "source: {spark: health.patients}"))
    patients, visits = pinq.load_policy(registry.policy).each
    assert patients.spark is not None
    assert visits.spark is None
    axis = bind(pinq.Values("ward"), patients.schema_).axes[0]
    with pytest.raises(PolicyError, match="need a source that is no table of Spark"):
        SparkEngine.contents_by(object.__new__(SparkEngine), axis)


def by_the_workbench(registry: Registry) -> None:
    """The review of a policy refuses several tables; the letter to an analyst has the address of one."""
    pytest.importorskip("nicegui", reason="the workbench needs NiceGUI: pip install 'pinq-miners[workbench]'")
    from pinq_workbench.provider import Letter, first_allowed
    from pinq_workbench.review import Inspection

    with pytest.raises(
        PolicyError, match=r"reviews one table, and registry has several: patients, visits. .*pinq review"
    ):
        Inspection.of_file(registry.policy, None)
    policy = pinq.load_policy(registry.policy)
    assert first_allowed(policy, make_terms(policy, tables=["visits"])) == "registry.visits"
    with pytest.raises(QueryError, match=r"no column 'wart' \(did you mean 'ward'\?\); the columns are .*ward"):
        make_terms(policy, columns=["wart"])
    first = first_allowed(policy, FREE)
    with serving(registry.policy, folder=registry.policy.parent) as server:
        lines = Letter("ana", first, server.url(first), None).lines
        assert "registry.patients" in lines
        with pinq.connect(server.url(first), token=registry.token, insecure_http=True) as handle:
            assert handle.tables == ("patients", "visits")


def by_r(registry: Registry) -> None:
    """Its own test runs R: tests/e2e/test_r_client.py."""
    test = (ROOT / "tests" / "e2e" / "test_r_client.py").read_text(encoding="utf-8")
    assert "def test_tables_and_cohorts(" in test


def _folder(registry: Registry, name: str) -> Path:
    folder = registry.policy.parent / name
    folder.mkdir()
    return folder


FRONTS: dict[str, Callable[[Registry], None]] = {
    "`pinq.open`": by_python,
    "`pinq.connect`": over_the_network,
    "the command line": at_the_command_line,
    "[SQL](sql.md)": by_sql,
    "[agents](agents.md)": by_agents,
    "[R](r-client.md)": by_r,
    "[federations](federation.md)": by_federations,
    "[secure sessions](secure.md)": by_secure_sessions,
    "[Spark](spark.md)": by_spark,
    "[the workbench](workbench.md)": by_the_workbench,
}


def test_the_page_lists_every_front() -> None:
    page = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    section = page.split("### Support for tables and cohorts")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (?!where|---)(.*?) \| (.*?) \| (.*?) \|$", section, flags=re.MULTILINE)
    assert [front for front, *_ in rows] == [*FRONTS]
    assert all(tables and cohorts for _, tables, cohorts in rows)


@pytest.mark.parametrize("front", FRONTS)
def test_a_front_knows_tables_and_cohorts_or_refuses_them(front: str, registry: Registry) -> None:
    FRONTS[front](registry)
