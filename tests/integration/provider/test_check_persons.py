# SPDX-License-Identifier: Apache-2.0
"""``check`` compares a policy with all that the provider may see, and "ready" means that a server opens it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import pinq
from pinq.errors import LedgerError, NotAuthorised, PolicyError, QueryError
from pinq.ledger.events import here
from pinq.policy.policy import Policy
from pinq.provider import grants
from pinq.provider.check import check
from pinq.provider.opening import open_ledger
from pinq.provider.policy_file import load_policy
from pinq.provider.report.audit import audit
from pinq.provider.review import confirm, waiting
from pinq.public.epsilon import Epsilon
from tests.support.processes.commands import run

Written = Callable[..., Path]
ROWS = 600


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Writes visits of persons and a policy for them."""
    rng = np.random.default_rng(3)
    who = rng.integers(0, 150, ROWS)
    frame = pd.DataFrame(
        {
            "Pat-Nr": [f"P{i:04d}" for i in who],
            "street": [f"Main street {i}" for i in who],
            "ward": rng.choice(["A", "B", "closed"], ROWS, p=[0.5, 0.45, 0.05]),
            "visit": [f"V{i:05d}" for i in range(ROWS)],
        }
    )
    frame.to_parquet(tmp_path / "visits.parquet")
    columns: dict[str, Any] = {"ward": {"type": "categorical", "values": ["A", "B"]}}

    def write(**keys: Any) -> Path:
        text = {"dataset": "visits", "source": "visits.parquet", "cap": 1, "max_rows": 1000, "columns": columns} | keys
        file = tmp_path / "p.yaml"
        file.write_text(Policy(**text).to_yaml())
        return file

    return write


def test_a_forgotten_person_is_asked_about(written: Written) -> None:
    """Rows are protected and persons repeat: not ready until a reason is given; a unit that holds persons is ready."""
    file = written()
    report = check(file)
    assert not report.ready
    assert report.asked == ("persons.Pat-Nr",)
    (problem,) = report.problems
    assert "rows are protected, persons are not" in problem
    assert "Pat-Nr" in problem
    assert "max_rows" in problem
    confirm(file, ["persons.Pat-Nr"], "a pseudonym of the ward, not of the patient")
    report = check(file)
    assert report.ready
    assert any("a pseudonym of the ward" in note for note in report.advice)
    assert check(written(privacy_unit={"column": "Pat-Nr", "max_rows": 20})).ready
    # A household would hold whole persons; a visit does not.
    asked = check(written(privacy_unit={"column": "visit", "max_rows": 1})).problems
    assert "visit is protected, persons are not" in asked[0]
    assert check(written(privacy_unit={"column": "street", "max_rows": 20})).ready


def test_values_that_tell_persons_apart_are_asked_about(written: Written) -> None:
    """Streets as public values need a reason; values of few persons beside common ones are noted."""
    streets = {"type": "categorical", "values": [f"Main street {i}" for i in range(150)]}
    wards = {"type": "categorical", "values": ["A", "B", "closed"]}
    unit = {"column": "Pat-Nr", "max_rows": 20}
    report = check(written(privacy_unit=unit, columns={"street": streets, "ward": wards}))
    assert report.asked == ("persons.street",)
    assert "150 declared values are of fewer than 20 persons" in report.problems[0]
    rare = {"type": "categorical", "values": ["A", "B", "closed", "never seen"]}
    assert check(written(privacy_unit=unit, columns={"ward": rare})).ready


def test_lost_values_are_counted_by_value(written: Written) -> None:
    """Each undeclared value has the number of its rows; the command prints it."""
    file = written(privacy_unit={"column": "Pat-Nr", "max_rows": 20})
    report = check(file)
    closed = int((pd.read_parquet(file.parent / "visits.parquet").ward == "closed").sum())
    assert report.lost == {"ward": [("closed", closed)]}
    assert f"'closed' ({closed} rows)" in run("check", file).stdout


def test_ready_means_that_the_ledger_opens(written: Written) -> None:
    """Another privacy unit, a lost ledger, another guard: what a server refuses, check says before."""
    unit = {"column": "Pat-Nr", "max_rows": 20}
    file = written(privacy_unit=unit)
    grants.grant(file, "ana", ".5")
    assert check(file).ready
    other = written(privacy_unit={"column": "street", "max_rows": 20})
    report = check(other)
    assert not report.ready
    assert "holds budgets for" in report.problems[0]
    with pytest.raises(PolicyError, match="already guarded"):
        open_ledger(load_policy(written(privacy_unit=unit, ledger="another.ledger")))
    assert "already guarded" in check(written(privacy_unit=unit, ledger="another.ledger")).problems[0]
    ledger = next(file.parent.glob("*.ledger"))
    for part in file.parent.glob(f"{ledger.name}*"):
        part.unlink()
    assert "is gone" in check(written(privacy_unit=unit)).problems[0]


def test_a_reason_for_a_finding_confirms_nothing_else(written: Written) -> None:
    """A column may be called as a key of the policy; its finding is not that key's review, and has no value."""
    file = written(unreviewed=["max_rows"])
    confirm(file, ["persons.max_rows"], "no persons")
    assert [item.name for item in waiting(file)] == ["max_rows"]
    with pytest.raises(PolicyError, match="name that one"):
        confirm(file, ["persons.cap"], "no persons", "9")


def test_a_ledger_begun_wrongly_is_retired(written: Written) -> None:
    """Its grants end, budgets count anew under another unit, and log, audit and refusals say what they follow."""
    file = written(reviewed={"persons.Pat-Nr": "in a hurry"})
    token = grants.grant(file, "ana", ".5").token
    with pinq.open(file, analyst="ana") as handle:
        handle.noisy_count(epsilon=0.25)
    file = written(privacy_unit={"column": "Pat-Nr", "max_rows": 20})
    assert "pinq retire" in check(file).problems[0]
    with pytest.raises(LedgerError, match="pinq retire"):
        grants.grant(file, "bob", ".5")
    with pytest.raises(QueryError, match="because"):
        grants.retire(file, by=here())
    result = run("retire", file, "--because", "persons were forgotten", "--yes")
    assert "0.25 was spent" in result.stdout, result.stderr
    assert check(file).ready
    with pytest.raises(NotAuthorised):
        pinq.open(file, analyst="ana")
    again = grants.grant(file, "ana", ".5")
    assert (again.spent, again.remaining, again.token != token) == (Epsilon(0), again.limit, True)
    with pinq.open(file, analyst="ana") as handle:
        handle.noisy_count(epsilon=0.5)
    report = audit(file)
    (closed,) = [line for line in report.changes if line.kind == "retire"]
    assert (closed.because, "0.25 was spent" in closed.about) == ("persons were forgotten", True)
    assert report.joint == Epsilon.of(0.5)
    assert report.follows == closed.about
    assert "before: closed: epsilon 0.25 was spent" in run("audit", file).stdout
