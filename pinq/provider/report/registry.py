# SPDX-License-Identifier: Apache-2.0
"""A policy and its log as a record of the public registry of deployments of differential privacy.

The registry (registry.opendp.org) lists deployments in YAML, each with the same fields. Six fields
are the provider's own words, and stay empty; the policy and the log fill in the others.
"""

from __future__ import annotations

import os
import re
from typing import Any

from pinq import __version__
from pinq.policy.plain_yaml import write_yaml
from pinq.policy.policy import Policy
from pinq.provider.report.audit import Audit
from pinq.provider.report.statement import MECHANISMS, facts, guarantee, in_words
from pinq.public.epsilon import Epsilon

PUBLIC = (
    "The schema, the largest number of rows, the rule and the cap of the budgets, what was spent, and the reasons of "
    "refusals. Statistics of the rows are never released without noise. Times of answers are public too, rounded "
    "where the policy says so."
)
TRUSTED = (
    "People trust the provider, who holds the rows, the policy and the log. Analysts are not trusted, neither alone "
    "nor together, and whoever gets their results is not trusted either."
)
TUNING = (
    "Values are read by what the policy declares of their columns; all others count as missing or nowhere. Domains "
    "and bounds are declared from public knowledge and reviewed. What is tuned on the rows is charged like any query."
)
COMPOSITION = (
    "A nested partition costs the largest sum of one of its parts; partitions, versions of the rows and analysts add "
    "up. A filter refuses what would exceed a limit or the cap, for adaptive queries. The rule is proved in Coq."
)


def registry(policy: str | os.PathLike[str] | Policy) -> str:
    """Writes the registry's record of a policy and its log; reads no row and changes nothing.

    Raises:
        PolicyError: A wrong policy.
        LedgerError: The chain of the log does not hold.
    """
    loaded, report = facts(policy)
    about = _product(loaded, report) | _privacy(loaded, report) | _access(loaded, report)
    record = {"evidence_sources": {}, "status": "Draft", "registry_authors": [""], "tier": 3}
    slug = re.sub(r"\W+", "-", loaded.dataset).lower()
    return write_yaml({"url_slug": slug, "deployment": about | {"administrative": record}})


def _product(policy: Policy, report: Audit | None) -> dict[str, Any]:
    columns = {name.removeprefix("columns."): column for name, column in policy.all_columns.items()}
    return {
        "basic": {
            "name": policy.dataset,
            "data_curators": [{"data_curator_name": "", "data_curator_type": ""}],
            "description": "",
            "intended_use": "",
            "data_product_type": "Summary statistics",
            "data_product_region": "",
            "data_product_sector": "",
            "publication_date": report.lines[0].at[:10] if report else "",
        },
        "dp_variant": {
            "variant_name": "Pure DP",
            "data_domain": "; ".join(f"{name}: {in_words(column)}" for name, column in columns.items()),
            "unprotected_quantities": PUBLIC,
        },
    }


def _privacy(policy: Policy, report: Audit | None) -> dict[str, Any]:
    said, cap = {row[0]: row[1] for row in guarantee(policy, report).rows}, Epsilon.of(policy.cap)
    distance = max(table.schema_.distance for table in policy.each)
    spent = f"{report.joint} of {cap} is spent" if report else "nothing is spent yet"
    return {
        "privacy_loss": {
            "privacy_unit": said["Who is protected"],
            "privacy_unit_details": f"{said['Against what']}; {policy.adjacency}, up to {distance} rows differ",
            "number_of_privacy_units": 1,
            "privacy_parameters": {"epsilon": float(cap.exact)},
            "privacy_parameters_details": f"{said['Epsilon (ε) in all']}; {spent}",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": TUNING,
            "mechanisms": "; ".join(f"{verbs}: {how}" for verbs, how in MECHANISMS) + f"; pinq {__version__}",
            "composition": COMPOSITION,
            "post_processing": "Tables, models and synthetic rows are computed from answers alone.",
            "justification": "",
            "utility": said["Small groups"],
            "additional_information": f"The log's last event is {report.head}." if report else "There is no log yet.",
        },
    }


def _access(policy: Policy, report: Audit | None) -> dict[str, Any]:
    granted = [each for each in report.accounts.values() if each.granted] if report else []
    versions = report.versions if report else 1
    limits = ", ".join(f"{each.limit}" for each in granted) or "none yet"
    return {
        "deployment_model": {
            "model_name": "Central",
            "model_name_details": "The provider's program answers queries with noise; no row leaves it.",
            "trust_assumptions": TRUSTED,
            "actors": f"The provider, {len(granted)} analysts with budgets, and auditors, who see the log.",
            "release_type": "Many releases",
            "release_type_details": "Budgets never refill: all releases together stay within the cap.",
            "data_source_type": "Dynamic" if versions > 1 else "Static",
            "data_source_type_details": f"Versions of the rows so far: {versions}; their costs add up.",
            "access_type": "Interactive",
            "access_type_details": f"Limits of the analysts: {limits}. The cap holds for all of them, who may collude.",
        }
    }
