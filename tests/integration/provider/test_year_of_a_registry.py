# SPDX-License-Identifier: Apache-2.0
"""A year of a registry: a file each month, a cohort of new patients each month, visits beside them, one grant of epsilon 1."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pinq
from miners import DiffPC45
from pinq.cli.main import app
from pinq.engine.spark import SparkEngine
from pinq.errors import BudgetExceeded, NotAuthorised, PolicyError, QueryError
from pinq.language.parts import closed_parts
from pinq.provider.certified import verify_certificate
from pinq.provider.check import check
from pinq.provider.grants import extend, grant
from pinq.provider.opening import open_ledger
from pinq.provider.report.audit import audit
from pinq.public.schema import Cohorts
from tests.integration.test_verify_log import CHECK
from tests.support.processes.servers import serving

REGISTRY = """\
dataset: registry
ledger: registry.ledger
cap: 5
privacy_unit: {{column: person, max_rows: 1}}
tables:
  patients:
    source: patients.csv
    max_rows: 1000
    cohorts: {{column: admitted, by: month, closed: 2026-{closed:02d}}}
    columns:
      admitted: {{type: date, lower: 2026-01-01, upper: 2026-12-31}}
      ward: {{type: categorical, values: [north, south]}}
  visits:
    source: visits.csv
    max_rows: 5000
    privacy_unit: {{column: person, max_rows: 5}}
    columns:
      ward: {{type: categorical, values: [north, south]}}
"""
MONTHS = [f"2026-{month:02d}" for month in range(1, 13)]


def arrive(folder: Path, month: int, later: str = "") -> Path:
    """Writes the files and the policy as they are when a month has ended: the people of this month are new in them."""
    people = [
        (10 * known + nth, f"2026-{known:02d}-{nth + 1:02d}") for known in range(1, month + 1) for nth in range(6)
    ]
    wards = ("north", "south")
    lines = [f"{person},{day},{wards[person % 2]}\n" for person, day in people]
    (folder / "patients.csv").write_text("person,admitted,ward\n" + "".join(lines) + later)
    (folder / "visits.csv").write_text("person,ward\n" + "".join(f"{person},north\n" * 3 for person, _ in people))
    (folder / "registry.yaml").write_text(REGISTRY.format(closed=month))
    return folder / "registry.yaml"


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The policy after the twelfth month; each month its new patients were counted by ward at 0.8, and visits once at 0.2."""
    folder = tmp_path_factory.mktemp("registry")
    grant(arrive(folder, 1), "ana", 1)
    for month, name in enumerate(MONTHS, start=1):
        policy = arrive(folder, month)
        with pinq.open(policy, analyst="ana", table="patients") as handle:
            assert handle.cohorts == tuple(MONTHS[:month])
            new = handle.cohort(name)
            assert new.budget.remaining == pytest.approx(1.0 if month == 1 else 0.8)
            assert new.partition(pinq.Values("ward")).noisy_count(epsilon=0.8).shape == (2,)
            assert new.budget.remaining == pytest.approx(0.2 if month == 1 else 0)
        if month == 1:
            with pinq.open(policy, analyst="ana", table="visits") as handle:
                handle.noisy_count(epsilon=0.2)
    return policy


def test_a_count_each_month_costs_what_one_costs(year: Path) -> None:
    report = audit(pinq.load_policy(year))
    assert float(report.joint) == 1
    assert {name: float(loss) for name, loss in report.cohorts.items()} == {
        f"patients: {month}": 1.0 for month in MONTHS
    }
    assert CHECK.verify(year.parent / "registry.ledger")[0] == ""
    with pinq.open(year, analyst="ana", table="patients") as handle:
        for parts in (
            handle,
            handle.partition(pinq.Calendar("admitted", "month"))[[0, 1]],
            handle.partition(pinq.Values("ward")),
        ):
            with pytest.raises(BudgetExceeded):
                parts.noisy_count(epsilon=0.1)
        assert handle.budget.remaining == 0


def test_clients_see_tables_and_cohorts_over_the_network(tmp_path: Path) -> None:
    policy = arrive(tmp_path, 6)
    token = grant(policy, "zoe", 2).token
    with serving(policy, folder=tmp_path, options=("--workers", "2")) as server:
        words: dict[str, Any] = {"token": token, "insecure_http": True}
        with pinq.connect(server.url("registry"), table="patients", **words) as patients:
            assert patients.tables == ("patients", "visits")
            assert patients.cohorts == tuple(MONTHS[:6])
            for month in MONTHS[:3]:
                patients.cohort(month).noisy_count(epsilon=1)
            assert [
                float(part.budget.remaining)
                for part in (patients, patients.cohort(MONTHS[0]), patients.cohort(MONTHS[5]))
            ] == [1, 1, 2]
            with pinq.connect(server.url("registry.visits"), **words) as visits:
                assert visits.cohorts == ()
                assert visits.account == patients.account
                visits.noisy_count(epsilon=0.5)
                assert float(patients.budget.spent) == 1.5
        with pytest.raises(NotAuthorised):
            pinq.connect(server.url("registry"), table="lab", **words)


def test_commands_name_a_table_of_a_file(tmp_path: Path) -> None:
    """The command line, SQL too, opens one table of several; rows of Spark have no cohorts."""
    year = arrive(tmp_path, 6)
    grant(year, "eve", 1)
    words = ["--analyst", "eve", "--epsilon", "0.1"]
    counted = CliRunner().invoke(app, ["query", f"{year}#visits", "count", *words])
    assert counted.exit_code == 0, counted.output
    for name in ("patients", "registry.patients", '"registry.patients"'):
        asked = CliRunner().invoke(app, ["sql", f"{year}#patients", f"SELECT COUNT(*) FROM {name}", *words])
        assert asked.exit_code == 0, asked.output
    refused = CliRunner().invoke(app, ["sql", f"{year}#patients", "SELECT COUNT(*) FROM visits", *words])
    assert "another table" in refused.output
    assert "patients, visits" in CliRunner().invoke(app, ["query", str(year), "count", *words]).output
    axis = next(iter(closed_parts(Cohorts(column="ward", closed="south"), pinq.load_policy(year).schema_).values()))
    assert axis.partition is not None
    with pytest.raises(PolicyError, match="no table of Spark"):
        SparkEngine.contents_by(SparkEngine.__new__(SparkEngine), axis.partition.axes[0])


def test_a_closed_month_that_changes_is_opened_by_an_act(tmp_path: Path) -> None:
    """Nothing opens until the provider says so; the earlier rows' cost stays, and the other months' persons lose no more."""
    policy = arrive(tmp_path, 2)
    grant(policy, "ana", 1)
    with pinq.open(policy, analyst="ana", table="patients") as handle:
        for month in MONTHS[:2]:
            handle.cohort(month).noisy_count(epsilon=1)
    arrive(tmp_path, 3, later="99,2026-02-28,north\n")
    with pytest.raises(PolicyError, match="closed cohort 2026-02 are not those"):
        pinq.open(policy, analyst="ana", table="patients")
    patients = pinq.load_policy(policy).at("patients")
    assert "closed cohort 2026-02" in str(check(patients).problems)
    words = ["correct", str(policy), "2026-02", "--table", "patients", "--because", "a late letter"]
    assert "version" in CliRunner().invoke(app, words).output
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 2 or "are those that it had" in again.output
    with pinq.open(policy, analyst="ana", table="patients") as handle:
        with pytest.raises(BudgetExceeded, match="replaced"):
            handle.cohort("2026-02").noisy_count(epsilon=1)
        handle.cohort("2026-03").noisy_count(epsilon=1)
        extend(policy, "ana", 1)
        handle.cohort("2026-02").noisy_count(epsilon=1)
        handle.cohort("2026-01").noisy_count(epsilon=1)
        assert float(handle.budget.spent) == 2
    report = audit(pinq.load_policy(policy))
    assert {name: float(loss) for name, loss in report.cohorts.items()} == {
        f"patients: {month}": loss for month, loss in zip(MONTHS, (2, 2, 1), strict=False)
    }
    assert any(
        "the cohort 2026-02, corrected" in line.about and line.because == "a late letter" for line in report.lines
    )
    with closing(open_ledger(patients)) as ledger:
        assert ledger.log.state.together.spent == ledger.accounts()["ana"].spent


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("closed: 2026-01", "closed: 2027-01", "must be a cohort: 2026-01"),
        ("column: admitted", "column: born", "no column"),
        ("max_rows: 1}", "max_rows: 2}", "of one row"),
        (", by: month", ", by: day", "by: "),
    ],
)
def test_wrong_cohorts_are_refused_with_a_sentence(old: str, new: str, said: str, tmp_path: Path) -> None:
    file = arrive(tmp_path, 1)
    file.write_text(file.read_text().replace(old, new, 1))
    with pytest.raises(PolicyError, match=said):
        pinq.load_policy(file)


def test_a_table_without_cohorts_has_none(year: Path) -> None:
    with pinq.open(year, analyst="ana", table="visits") as handle, pytest.raises(QueryError, match="cohort"):
        handle.cohort("2026-01")
    with pinq.open(year, analyst="ana", table="patients") as handle, pytest.raises(QueryError, match="2027-01"):
        handle.cohort("2027-01")
    assert pinq.simulate(handle.schema, epsilon=1).cohorts == ()


def test_other_columns_begin_new_versions_of_closed_cohorts(tmp_path: Path) -> None:
    """An act of the provider's: nothing is compared, and what the earlier ones cost stays."""
    policy = arrive(tmp_path, 2)
    grant(policy, "ana", 3)
    for wards in ("north, south", "north, south, west"):
        policy.write_text(policy.read_text().replace("[north, south]", f"[{wards}]"))
        with pinq.open(policy, analyst="ana", table="patients") as handle:
            for month in MONTHS[:2]:
                handle.cohort(month).noisy_count(epsilon=1)
    with pinq.open(policy, analyst="ana", table="patients") as handle:
        assert float(handle.budget.spent) == 2


def test_a_model_of_one_cohort_is_certified(tmp_path: Path) -> None:
    """The certificate finds the answers of the table, and costs no more than the fit."""
    policy = arrive(tmp_path, 2)
    grant(policy, "ana", 3)
    with pinq.open(policy, analyst="ana", table="patients") as handle:
        for month in MONTHS[:2]:
            made = DiffPC45(epsilon=1, max_depth=1).fit(handle.cohort(month), "ward")
        assert handle.budget.spent <= 1
    (tmp_path / "model.json").write_text(made.to_json())
    (tmp_path / "certificate.json").write_text(made.certificate().to_json())
    verified = verify_certificate(tmp_path / "certificate.json", policy, model=tmp_path / "model.json")
    assert 0 < float(verified.loss) <= 1
