# SPDX-License-Identifier: Apache-2.0
"""``pinq statement``: what is guaranteed, in words and numbers that a data protection officer can compute again."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pinq.cli.main import app
from pinq.policy.plain_yaml import read_yaml
from pinq.provider.report.statement import registry, statement

POLICY = """
version: 1
dataset: clinic
source: t.csv
cap: 2
adjacency: {adjacency}
privacy_unit: {unit}
max_rows: 100
reviewed: {{columns.sex.values: code book, privacy_unit: the <register>}}
columns:
  sex: {{type: categorical, values: [f, m]}}
"""


def written(folder: Path, adjacency: str = "add-remove", unit: str = "row") -> Path:
    (folder / "t.csv").write_text("id,sex\n" + "".join(f"{n},f\n" for n in range(20)), encoding="utf-8")
    (folder / "p.yaml").write_text(POLICY.format(adjacency=adjacency, unit=unit), encoding="utf-8")
    return folder / "p.yaml"


def said(policy: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(statement(policy).to_json())
    return read


def test_it_states_what_was_declared_granted_and_spent(tmp_path: Path) -> None:
    """Unit, cap, each analyst, each column with its reason, who declared the policy, and the chain's head; it reads no row."""
    policy, run = written(tmp_path), CliRunner()
    assert run.invoke(app, ["grant", str(policy), "ana", "--epsilon", "1", "--because", "contract"]).exit_code == 0
    asked = run.invoke(app, ["query", str(policy), "--analyst", "ana", "count", "--epsilon", "0.5"])
    assert asked.exit_code == 0, asked.output
    (tmp_path / "t.csv").unlink()
    told = said(policy)
    guarantee = {row["subject"]: row["statement"] for row in told["Guarantee"]}
    assert guarantee["Who is protected"] == "one row"
    assert guarantee["Epsilon (ε) in all"].startswith("2: ")
    assert f"up to {math.ceil(math.log(20) / 0.2)} in 95 % of cases" in guarantee["Small groups"]
    assert [(row["analyst"], row["epsilon spent"]) for row in told["Analysts"]] == [("ana", "0.5 of 1")]
    public = {row["of"]: row["why, and by whom"] for row in told["Public by the provider's decision"]}
    assert public["sex"] == "code book"
    assert told["Public by the provider's decision"][0]["declared"] == "categorical; values: f, m"
    assert "@" in public["the policy"]
    assert "chain verified, last " in told["Evidence"][0]["where"]
    page = run.invoke(app, ["statement", str(policy), "-o", str(tmp_path / "s.html")])
    assert page.exit_code == 0, page.output
    text = (tmp_path / "s.html").read_text(encoding="utf-8")
    assert "the &lt;register&gt;" in text
    assert "<register>" not in text
    assert json.loads(run.invoke(app, ["statement", str(policy), "--json"]).stdout) == told


@pytest.mark.parametrize(
    ("adjacency", "unit", "who", "content", "small"),
    [
        ("add-remove", "row", "one row", 4, 15),
        ("substitute", "row", "one row", 2, 30),
        ("add-remove", "{column: id, max_rows: 3}", "all rows of one id, at most 3", 4, 45),
    ],
)
def test_its_numbers_follow_from_the_policy(
    adjacency: str, unit: str, who: str, content: int, small: int, tmp_path: Path
) -> None:
    """Before there is a log, too: beliefs at the cap, and the size of a group that noise hides."""
    told = said(written(tmp_path, adjacency, unit))
    guarantee = {row["subject"]: row["statement"] for row in told["Guarantee"]}
    assert guarantee["Who is protected"] == who
    assert f"up to {small} in" in guarantee["Small groups"]
    after = [row["after all that the cap allows"] for row in told["Worst case"]]
    for shown, before, epsilon in zip(after, (0.5, 0.01, 0.5), (2, 2, content), strict=True):
        odds = before / (1 - before) * math.exp(epsilon)
        assert 0 <= float(shown.split()[2]) - 100 * odds / (1 + odds) <= 0.1
    assert [row["after all answers so far"] for row in told["Worst case"]] == [
        "at most 50.0 %",
        "at most 1.0 %",
        "at most 50.0 %",
    ]
    assert told["Analysts"] == []


REGISTRY = {  # the fields of registry.opendp.org, from the template of its repository of records
    "basic": "name data_curators description intended_use data_product_type data_product_region data_product_sector "
    "publication_date",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details number_of_privacy_units privacy_parameters "
    "privacy_parameters_details",
    "deployment_model": "model_name model_name_details trust_assumptions actors release_type release_type_details "
    "data_source_type data_source_type_details access_type access_type_details",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms composition post_processing justification "
    "utility additional_information",
    "administrative": "evidence_sources status registry_authors tier",
}
PROVIDERS = {"data_curators", "description", "intended_use", "data_product_region", "data_product_sector"}


def test_the_registrys_record_has_its_fields_and_28_of_34_are_filled(tmp_path: Path) -> None:
    """What the policy and the log say; six fields are the provider's own words, and empty."""
    policy, run = written(tmp_path, unit="{column: id, max_rows: 3}"), CliRunner()
    assert read_yaml(registry(policy))["deployment"]["basic"]["publication_date"] == "", "nothing was granted yet"
    assert run.invoke(app, ["grant", str(policy), "ana", "--epsilon", "1"]).exit_code == 0
    (tmp_path / "t.csv").unlink()
    record = read_yaml(run.invoke(app, ["statement", str(policy), "--registry"]).stdout)
    told = record["deployment"]
    assert {name: set(fields) for name, fields in told.items()} == {
        name: set(fields.split()) for name, fields in REGISTRY.items()
    }
    fields = {"url_slug": record["url_slug"]}
    for name in [*REGISTRY][:-1]:
        fields |= told[name]
    assert len(fields) == 34
    empty = {name for name, text in fields.items() if text == "" or name == "data_curators"}
    assert empty == PROVIDERS | {"justification"}
    assert told["privacy_loss"]["privacy_parameters"] == {"epsilon": 2.0}
    assert told["privacy_loss"]["privacy_unit"] == "all rows of one id, at most 3"
    assert told["privacy_loss"]["privacy_unit_details"].endswith("add-remove, up to 3 rows differ")
    assert told["deployment_model"]["data_source_type"] == "Static"
    assert "Limits of the analysts: 1." in told["deployment_model"]["access_type_details"]
