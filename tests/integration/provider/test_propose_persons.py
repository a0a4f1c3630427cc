# SPDX-License-Identifier: Apache-2.0
"""A proposal protects persons by itself: who they are, what tells them apart, and rows that are about nobody."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from pinq.policy.policy import Policy
from pinq.provider.check import check
from pinq.provider.persons import is_quantity, person_rank, telling_name
from pinq.provider.policy_file import load_policy
from pinq.provider.proposal import propose
from tests.support.tables.reviewed_policies import reviewed

PERSONS, VISITS = 300, 3000


def visits(key: str, **named: str) -> pd.DataFrame:
    """Visits of persons, each with texts of its own that repeat with its rows; ``named`` renames them."""
    rng = np.random.default_rng(5)
    who = np.concatenate([np.arange(PERSONS), rng.integers(0, PERSONS, VISITS - PERSONS)])
    frame = pd.DataFrame(
        {
            key: [f"K{i:04d}" for i in who],
            named.get("street", "c1"): [f"Hauptstr. {i}" for i in who],
            named.get("mail", "c2"): [f"mail{i}@example.org" for i in who],
            named.get("phone", "c3"): [f"+49 171 {1000000 + 37 * i}" for i in who],
            named.get("postcode", "c4"): [str(20000 + i // 2) for i in who],
            named.get("note", "c5"): [f"call back {i}" if i % 4 == 0 else "fine" for i in range(VISITS)],
            "sex": [["f", "m"][i % 2] for i in who],
            "kind": rng.choice(["a", "b", "rare"], VISITS, p=[0.6, 0.399, 0.001]),
            "cost": rng.gamma(2, 100, VISITS).round(2),
        }
    )
    return frame


GERMAN = {"street": "Straße", "mail": "E-Mail", "phone": "Telefonnummer", "postcode": "PLZ", "note": "Bemerkung"}
FRENCH = {"street": "Adresse", "mail": "Courriel", "phone": "N° tél", "postcode": "Code postal", "note": "Remarques"}
SPANISH = {"street": "Dirección", "mail": "Correo", "phone": "Móvil", "postcode": "Código postal", "note": "Notas"}


@pytest.mark.parametrize(
    ("key", "named"),
    [
        ("Pat-Nr", GERMAN),
        ("Personalnummer", GERMAN),
        ("N° patient", FRENCH),
        ("Identifiant du salarié", FRENCH),
        ("Número de paciente", SPANISH),
        ("DNI", SPANISH),
        ("employeeNumber", {}),
        ("customer_id", {}),
    ],
)
def test_persons_are_found_and_what_tells_them_apart_is_left_out(key: str, named: dict[str, str]) -> None:
    text = propose(visits(key, **named))
    policy = Policy(**yaml.safe_load(text))
    assert policy.bounded_unit is not None
    assert policy.bounded_unit.column == key
    assert set(policy.columns) == {"sex", "kind", "cost"}
    assert policy.columns["kind"].model_dump()["values"] == ("a", "b", "other")
    assert policy.columns["kind"].model_dump()["other"] == "other"
    assert f"{key} names the person: {PERSONS} persons, at most" in text
    assert not any(word in text for word in ("Hauptstr", "@example", "+49", "K0001", "call back", "rare]"))


def test_values_are_counted_over_persons_where_none_stands_out() -> None:
    """A key with a name that says nothing is a candidate only; its persons' texts are not listed all the same."""
    frame = visits("kundschaft").assign(group=lambda table: "g" + table["kundschaft"].str[:3])
    text = propose(frame)
    policy = Policy(**yaml.safe_load(text))
    assert policy.privacy_unit == "row"
    assert 'privacy_unit: {column: "kundschaft", max_rows: ...}' in text
    assert set(policy.columns) == {"sex", "kind", "cost", "group"}


def test_a_row_is_a_person() -> None:
    frame = pd.DataFrame({"Patient": [f"P{i}" for i in range(100)], "PLZ": ["10115"] * 60 + ["10117"] * 40})
    text = propose(frame.assign(sex="f"))
    policy = Policy(**yaml.safe_load(text))
    assert policy.privacy_unit == "row"
    assert "one row is one person: Patient is another one in each row" in text
    assert set(policy.columns) == {"PLZ", "sex"}  # two postcodes tell nobody apart


@pytest.mark.parametrize(("fewest", "values"), [(1, ("a", "b", "c")), (20, ("a", "b", "other")), (60, ("a", "other"))])
def test_how_many_persons_a_value_needs(fewest: int, values: tuple[str, ...]) -> None:
    frame = pd.DataFrame({"kind": ["a"] * 100 + ["b"] * 50 + ["c"] * 5})
    column = Policy(**yaml.safe_load(propose(frame, fewest=fewest))).columns["kind"]
    assert column.model_dump()["values"] == values


def test_rows_about_nobody_are_named_and_left_out(tmp_path: Path) -> None:
    """Units, the header again, totals and notes: no bound, value or person is read off them, and none is encoded."""
    rows = [f"P{i % 200:03d},{['f', 'm'][i % 2]},{20 + i % 60},{i % 97}.5" for i in range(800)]
    head = "Patient,sex,age,cost"
    text = [head, ",,years,EUR", *rows[:400], head, *rows[400:], "Total,,,38000.5", "Source: office,,,"]
    (tmp_path / "t.csv").write_text("\n".join(text) + "\n")
    proposed = propose(tmp_path / "t.csv", folder=tmp_path)
    for kind in ("totals", "units", "the header again", "notes beside the table"):
        assert f"# 1 of the rows look like {kind}" in proposed
    (tmp_path / "p.yaml").write_text(reviewed(proposed))
    policy = load_policy(tmp_path / "p.yaml")
    assert policy.columns["sex"].model_dump()["values"] == ("f", "m")
    assert float(policy.columns["cost"].model_dump()["upper"]) == 100
    assert "200 persons" in proposed
    report = check(tmp_path / "p.yaml")
    assert (report.source_rows, report.encoded_rows) == (804, 800)


def test_sums_between_the_rows_are_about_nobody(tmp_path: Path) -> None:
    """One after each twenty rows; an answer of the same word in a filled row is a value."""
    rows = [f"{'fm'[i % 2]},{['all', 'some'][i % 20 > 0]},{i % 97}" for i in range(400)]
    text = ["sex,asked,cost"] + [
        line for i in range(0, 400, 20) for line in (*rows[i : i + 20], f"Subtotal,,{960 + i}")
    ]
    (tmp_path / "t.csv").write_text("\n".join(text) + "\n")
    proposed = propose(tmp_path / "t.csv", fewest=5)
    columns = yaml.safe_load(proposed)["columns"]
    assert "# 20 of the rows look like subtotals" in proposed
    assert (columns["sex"]["values"], columns["asked"]["values"]) == (["f", "m"], ["all", "some"])
    assert columns["cost"]["upper"] == 100


def test_a_bound_that_one_row_stretches_is_named() -> None:
    text = propose(pd.DataFrame({"cost": [*range(50, 350), 4_500_000]}))
    column = Policy(**yaml.safe_load(text)).columns["cost"]
    assert float(column.model_dump()["upper"]) < 1000
    assert "one row alone is far above this bound" in text


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("Patienten-ID", 3),
        ("PatNr", 3),
        ("Versichertennummer", 3),
        ("Mitarbeiter_Nr", 3),
        ("id_paciente", 3),
        ("Numéro de sécurité sociale", 3),
        ("subject", 3),
        ("household_id", 2),
        ("Haushaltsnummer", 2),
        ("Fallnummer", 1),
        ("visit_id", 1),
        ("index", 1),
        ("number of employees", 0),
        ("num_patients", 0),
        ("PLZ", 0),
        ("lab_01", 0),
        ("icd", 0),
        ("Alter", 0),
    ],
)
def test_what_names_say_of_persons(name: str, rank: int) -> None:
    assert person_rank(name) == rank


@pytest.mark.parametrize(
    "name", ["Nachname", "last_name", "Prénom", "Apellidos", "Arbeitgeber", "zipCode", "Geburtsort", "phone"]
)
def test_names_that_tell_persons_apart(name: str) -> None:
    assert telling_name(name)


@pytest.mark.parametrize("name", ["Alter", "num_visits", "weight_kg", "Anzahl Kinder", "total cost"])
def test_names_of_quantities(name: str) -> None:
    assert is_quantity(name)
    assert not telling_name(name)
