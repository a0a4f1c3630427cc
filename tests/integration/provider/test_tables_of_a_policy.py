# SPDX-License-Identifier: Apache-2.0
"""Several tables of the same people: one policy, one ledger, one grant and one cap."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import pinq
from miners.federated.federation import Federation
from pinq.errors import BudgetExceeded, LedgerError, NotAllowed, PolicyError, QueryError
from pinq.language.queries import Request
from pinq.ledger.events import Begun
from pinq.policy.policy import Policy
from pinq.provider.check import check, examples
from pinq.provider.grants import extend, grant, make_terms, show
from pinq.provider.opening import open_ledger
from pinq.provider.report.audit import audit
from pinq.provider.report.statement import statement
from pinq.provider.review import confirm, waiting
from pinq.server.datasets import Datasets
from pinq_secure.provider import require_fit
from tests.integration.test_verify_log import CHECK

CLINIC = """\
dataset: clinic
ledger: clinic.ledger
cap: 5
privacy_unit: {column: person, max_rows: 1}
tables:
  patients:
    source: patients.csv
    max_rows: 100
    columns:
      sex: {type: categorical, values: [f, m]}
  visits:
    source: visits.csv
    max_rows: 1000
    privacy_unit: {column: pid, max_rows: 3}
    columns:
      sex: {type: categorical, values: [f, m]}
"""


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    """Two tables with the same columns, whose persons stand in columns of their own, and a grant of 3."""
    (tmp_path / "patients.csv").write_text("person,sex\n1,f\n2,m\n")
    (tmp_path / "visits.csv").write_text("pid,sex\n" + "1,f\n" * 5 + "2,m\n")
    (tmp_path / "clinic.yaml").write_text(CLINIC)
    grant(tmp_path / "clinic.yaml", "ana", 3)
    return tmp_path / "clinic.yaml"


def asked(
    policy: Path | Policy, table: str, part: int, epsilon: float = 1, *, reuse: bool = False
) -> pinq.PrivateQueryable:
    handle = pinq.open(policy, analyst="ana", table=table)
    handle.partition(pinq.Values("sex"))[[part]].noisy_count(epsilon=epsilon, reuse=reuse)
    handle.close()
    return handle


def spent(policy: Path, table: str = "visits") -> float:
    with pinq.open(policy, analyst="ana", table=table) as handle:
        return float(handle.budget.spent)


def test_costs_of_two_tables_add_and_those_of_two_parts_of_one_do_not(clinic: Path) -> None:
    """Equal partitions of two tables are two partitions: a person has rows in both."""
    for table, part, total in (("visits", 0, 1), ("visits", 1, 1), ("patients", 0, 2), ("patients", 1, 2)):
        asked(clinic, table, part)
        assert spent(clinic) == spent(clinic, "patients") == total
    (clinic.parent / "visits.csv").write_text("pid,sex\n1,m\n")
    asked(clinic, "patients", 0, 0.5)
    asked(clinic, "visits", 1, 0.5)
    assert spent(clinic) == 3
    with pytest.raises(BudgetExceeded, match=r"0 of 3 remains for 'ana'.*replaced") as refused:
        asked(clinic, "visits", 0)
    assert refused.value.scope == "analyst"
    with pytest.raises(BudgetExceeded) as refused:
        asked(clinic, "patients", 0)
    assert "replaced" not in str(refused.value)


def test_an_answer_of_one_table_is_none_of_another(tmp_path: Path) -> None:
    """Neither is a paid question found again, nor an id, though schemas and questions are equal."""
    alike = CLINIC.replace("{column: pid, max_rows: 3}", "{column: person, max_rows: 1}")
    clinic = tmp_path / "clinic.yaml"
    clinic.write_text(alike.replace("max_rows: 1000", "max_rows: 100"))
    for table in ("patients", "visits"):
        (tmp_path / f"{table}.csv").write_text("person,sex\n1,m\n")
    grant(clinic, "ana", 3)
    asked(clinic, "visits", 0, reuse=True)
    asked(clinic, "visits", 0, reuse=True)
    assert spent(clinic) == 1
    asked(clinic, "patients", 0, reuse=True)
    assert spent(clinic) == 2
    request = Request(id="once", verb="noisy_count", epsilon="0.1")
    with pinq.open(clinic, analyst="ana", table="visits") as visits:
        visits._session.ask(request)
    with pinq.open(clinic, analyst="ana", table="patients") as patients, pytest.raises(QueryError, match="once"):
        patients._session.ask(request)


def test_noise_is_scaled_by_the_rows_that_each_table_keeps_of_a_person(clinic: Path) -> None:
    handles = [pinq.open(clinic, analyst="ana", table=name) for name in ("patients", "visits")]
    assert [handle.noisy_count(epsilon=1).scale for handle in handles] == [1, 3]
    assert [handle.tables for handle in handles] == [("patients", "visits")] * 2
    assert handles[0].account == handles[1].account
    assert [handle.dataset for handle in handles] == ["clinic.patients", "clinic.visits"]
    with pytest.warns(UserWarning, match="would count twice, and pay twice"):
        Federation({"a": handles[0], "b": handles[1]})
    for handle in handles:
        handle.close()


def test_one_cap_holds_over_all_tables_and_analysts(clinic: Path) -> None:
    grant(clinic, "bob", 4)
    for table in ("patients", "visits", "visits"):
        asked(clinic, table, 0)
    with closing(pinq.open(clinic, analyst="bob", table="patients")) as handle:
        handle.noisy_count(epsilon=2)
        with pytest.raises(BudgetExceeded) as refused:
            handle.noisy_count(epsilon="0.5")
    assert refused.value.scope == "cap"


def test_the_log_names_tables_and_another_program_follows_it(clinic: Path) -> None:
    """A number names a table and its version; the first one belongs to a policy that is one table."""
    asked(clinic, "visits", 0)
    asked(clinic, "patients", 0)
    with closing(open_ledger(pinq.load_policy(clinic))) as ledger:
        begun = [event.record for event in ledger.log.events() if isinstance(event.record, Begun)]
        assert [(rows.number, rows.table) for rows in begun] == [(2, "visits"), (3, "patients")]
        assert len([event for event in ledger.log.events() if event.kind == "policy"]) == 1
    fault, log = CHECK.verify(clinic.parent / "clinic.ledger")
    assert not fault
    assert log.spent["ana"] == 2 * 10**9
    about = [line.about for line in audit(pinq.load_policy(clinic)).lines]
    assert any(text.startswith("version 2 of the rows of visits: ") for text in about)
    assert any(text.startswith("visits: noisy_count on ") for text in about)
    with pinq.open(clinic, analyst="ana", table="visits") as handle:
        assert [line.version for line in handle._session.history()] == [None, None]


def test_a_policy_of_one_table_that_becomes_several_keeps_what_was_spent(tmp_path: Path) -> None:
    (tmp_path / "patients.csv").write_text("person,sex\n1,f\n2,m\n")
    (tmp_path / "visits.csv").write_text("pid,sex\n1,f\n2,m\n")
    one = tmp_path / "one.yaml"
    rows = "source: patients.csv\nmax_rows: 100\ncolumns:\n  sex: {type: categorical, values: [f, m]}\n"
    one.write_text(CLINIC.partition("tables:")[0] + rows)
    grant(one, "ana", 3)
    with pinq.open(one, analyst="ana") as handle:
        handle.noisy_count(epsilon=1)
    (tmp_path / "clinic.yaml").write_text(CLINIC)
    asked(tmp_path / "clinic.yaml", "patients", 0)
    assert spent(tmp_path / "clinic.yaml") == 2
    assert CHECK.verify(tmp_path / "clinic.ledger")[0] == ""


def test_epsilon_keeps_its_meaning_in_every_table(clinic: Path) -> None:
    """Another column of people in a table would be other people; a table may come later, and keep more rows."""
    asked(clinic, "visits", 0)
    lab = CLINIC[CLINIC.index("  visits:") :].replace("visits:", "lab:", 1)
    clinic.write_text(CLINIC.replace("max_rows: 3}", "max_rows: 4}") + lab)
    asked(clinic, "lab", 0)
    clinic.write_text(CLINIC.replace("column: pid", "column: sex"))
    with pytest.raises(PolicyError, match="names people"):
        pinq.load_policy(clinic)
    (clinic.parent / "visits.csv").write_text("pid,pid2,sex\n1,2,f\n")
    clinic.write_text(CLINIC.replace("column: pid", "column: pid2"))
    with pytest.raises(LedgerError, match="an epsilon of one is not an epsilon of the other"):
        pinq.open(clinic, analyst="ana", table="patients")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ledger: clinic.ledger\n", "", "name a `ledger`"),
        ("cap: 5\n", "cap: 5\nmax_rows: 5\n", "max_rows: a key of each table"),
        ("    max_rows: 100\n", "    max_rows: 100\n    cap: 3\n", r"cap: no key of a table \('patients'\)"),
        ("    max_rows: 100\n", "    max_rows: 100\n    table: x\n", r"table: no key of a table"),
        ("privacy_unit: {column: person, max_rows: 1}\n", "", "`privacy_unit` must be a column"),
        ("{column: pid, max_rows: 3}", "row", "`privacy_unit` must be a column"),
        ("  visits:", "  vis.its:", "a table is called 'vis.its'"),
        ("[f, m]", "3", r"tables.patients.columns.sex.values: it is 3; it must be a list"),
        ("dataset: clinic", "dataset: clinic\ntable: visits", "table: unknown key"),
        (CLINIC[CLINIC.index("tables:") :], "tables: []\n", "tables: .*keys with values"),
        (CLINIC[CLINIC.index("tables:") :], "tables: {a: 3}\n", "the table 'a' must be keys with values"),
    ],
)
def test_wrong_policies_are_refused_with_a_sentence(old: str, new: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "clinic.yaml"
    file.write_text(CLINIC.replace(old, new, 1))
    with pytest.raises(PolicyError, match=said):
        pinq.load_policy(file)


def test_a_table_must_be_named_and_be_there(clinic: Path) -> None:
    for table in (None, "lab"):
        with pytest.raises(QueryError, match="patients, visits"):
            pinq.open(clinic, analyst="ana", table=table)
    for act in (check, examples, pinq.simulate):
        with pytest.raises(QueryError, match="`table` must be named: 'clinic' has the tables patients, visits"):
            act(clinic)
    visits = pinq.simulate(clinic, table="visits", rows=10).schema
    assert visits == pinq.load_policy(clinic).at("visits").schema_
    with pytest.raises(QueryError, match="`table` is 'visits'; a schema is of one table"):
        pinq.simulate(visits, table="visits")
    with pytest.raises(PolicyError, match="a session reads one"):
        require_fit(None, 0, pinq.load_policy(clinic))  # type: ignore[arg-type]
    assert [check(table).over_unit for table in pinq.load_policy(clinic).each] == [0, 2]
    assert "in all tables, at most 1 of patients, 3 of visits" in str(statement(clinic).sections[0].rows)


def test_terms_may_name_tables(clinic: Path) -> None:
    grant(clinic, "eve", 1, terms=make_terms(clinic, tables=["visits"]))
    with closing(pinq.open(clinic, analyst="eve", table="visits")) as handle:
        handle.noisy_count(epsilon="0.1")
    with closing(pinq.open(clinic, analyst="eve", table="patients")) as handle:
        for act in (handle.noisy_count, lambda epsilon: handle.preview("noisy_count", epsilon=epsilon)):
            with pytest.raises(NotAllowed, match="does not allow the table patients; it allows visits"):
                act(epsilon="0.1")
    with pytest.raises(QueryError, match="has no such table"):
        make_terms(clinic, tables=["lab"])
    assert CHECK.verify(clinic.parent / "clinic.ledger")[0] == ""


def test_terms_that_name_a_table_which_disappeared_allow_no_other(clinic: Path) -> None:
    """Neither another table nor a policy that is one table; when the table comes back, what was spent is spent."""
    grant(clinic, "eve", 1, terms=make_terms(clinic, tables=["visits"]))
    with pinq.open(clinic, analyst="eve", table="visits") as handle:
        handle.noisy_count(epsilon="0.5")
    clinic.write_text(CLINIC[: CLINIC.index("  visits:")])
    with pinq.open(clinic, analyst="eve", table="patients") as handle:
        with pytest.raises(NotAllowed, match="does not allow the table patients; it allows visits"):
            handle.noisy_count(epsilon="0.1")
        assert "visits" in handle.terms
    extend(clinic, "eve", 1)
    assert [account.terms.tables for account in show(clinic).accounts if account.analyst == "eve"] == [("visits",)]
    assert float(audit(pinq.load_policy(clinic)).joint) == 0.5
    assert statement(clinic).sections
    with closing(Datasets.open([clinic])) as datasets:
        assert [*datasets.served] == ["clinic.patients"]
    rows = "source: patients.csv\nmax_rows: 100\ncolumns:\n  sex: {type: categorical, values: [f, m]}\n"
    clinic.write_text(CLINIC.partition("tables:")[0] + rows)
    with pinq.open(clinic, analyst="eve") as handle, pytest.raises(NotAllowed, match="does not allow a policy without"):
        handle.noisy_count(epsilon="0.1")
    clinic.write_text(CLINIC)
    with pinq.open(clinic, analyst="eve", table="visits") as handle:
        assert handle.budget.spent == 0.5
        handle.noisy_count(epsilon="0.5")
        assert handle.budget.spent == 1


def test_another_ledger_for_one_of_the_tables_is_refused(clinic: Path) -> None:
    """Opened or not: the claim of each source names the ledger of all."""
    other = clinic.parent / "other.yaml"
    other.write_text(CLINIC.replace("clinic.ledger", "other.ledger"))
    with pytest.raises(PolicyError, match="already guarded by the ledger"):
        grant(other, "ana", 1)
    (clinic.parent / "clinic.ledger").unlink()
    for left in clinic.parent.glob("clinic.ledger*"):
        left.unlink()
    with pytest.raises(LedgerError, match="has a claim that names it"):
        grant(clinic, "eve", 1)


def test_a_row_is_one_persons_in_all_tables_of_a_policy(clinic: Path) -> None:
    """Else who is removed from one table takes rows of others out of another. By the file, however it is named."""
    (clinic.parent / "visits.csv").write_text("pid,referred,sex\n1,2,f\n2,1,m\n")
    clinic.write_text(
        CLINIC
        + CLINIC[CLINIC.index("  visits:") :]
        .replace("visits:", "referrals:")
        .replace("pid", "referred")
        .replace("visits.csv", "./visit*.csv")
    )
    with pytest.raises(PolicyError, match=r"stand in 'pid' and in 'referred': a row would be of two people"):
        grant(clinic, "bob", 1)
    assert any(
        "a row would be of two people" in problem for problem in check(pinq.load_policy(clinic).at("visits")).problems
    )


def test_values_of_a_table_are_reviewed_by_their_place(clinic: Path) -> None:
    clinic.write_text(CLINIC.replace("[f, m]}", "[f, m], unreviewed: [values]}"))
    assert [item.name for item in waiting(clinic)] == [f"tables.{t}.columns.sex.values" for t in ("patients", "visits")]
    with pytest.raises(PolicyError, match=r"nobody reviewed: tables.patients.columns.sex.values"):
        pinq.open(clinic, analyst="ana", table="visits")
    confirm(clinic, ["tables.visits.columns.sex"], "the form", "[f, m, x]")
    confirm(clinic, ["tables.patients.columns.sex"], "the form")
    assert [table.columns["sex"].cells for table in pinq.load_policy(clinic).each] == [2, 3]
    assert waiting(clinic) == []


@pytest.fixture
def served(clinic: Path) -> Iterator[Datasets]:
    """The tables, served from a folder."""
    datasets = Datasets.open([clinic])
    yield datasets
    datasets.close()


def test_a_server_has_each_table_under_its_name(served: Datasets, clinic: Path) -> None:
    """One ledger and one meter; all tables of a policy are served, or those of before."""
    assert [*served.served] == ["clinic.patients", "clinic.visits"]
    one, other = served.served.values()
    assert one.meter is other.meter
    assert one.ledger.url == other.ledger.url
    before = dict(served.served)
    assert served.reload().changed == ()
    assert dict(served.served) == before
    clinic.write_text(CLINIC.replace("visits.csv", "missing.csv"))
    assert "missing.csv" in served.reload().failed[0]
    assert dict(served.served) == before
    clinic.write_text(CLINIC[: CLINIC.index("  visits:")])
    assert served.reload().removed == ("clinic.visits",)
    clinic.write_text(CLINIC)
    assert served.reload().added == ("clinic.visits",)


def test_a_logged_policy_says_what_each_table_declares(clinic: Path) -> None:
    loaded = pinq.load_policy(clinic)
    assert [table.logged for table in loaded.each] == [loaded.logged] * 2
    logged = json.loads(json.dumps(loaded.logged))
    assert logged["privacy_unit"] == {"column": "person", "max_rows": 1}
    assert {name: body["max_rows"] for name, body in logged["tables"].items()} == {"patients": 100, "visits": 1000}
