# SPDX-License-Identifier: Apache-2.0
"""Statements of the guarantees of a policy and its log.

``statement`` writes one page, or JSON, for a data protection officer. ``registry`` writes a record in
YAML for the public registry of deployments (registry.opendp.org); six of its fields stay empty for the
provider's own words.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pinq import __version__
from pinq.ledger.composition import COUNTED
from pinq.ledger.database import NoLedger
from pinq.policy.plain_yaml import write_yaml
from pinq.policy.policy import Policy
from pinq.provider.policy_file import load_policy
from pinq.provider.report.audit import Audit, audit
from pinq.provider.report.html import document, table
from pinq.provider.report.markup import element, joined, when
from pinq.public.epsilon import ZERO, Epsilon
from pinq.public.schema import Column

MECHANISMS = (
    ("noisy_count, noisy_sum, noisy_avg", "discrete Laplace noise on exact whole numbers; pure ε"),
    ("exp_mech", "permute-and-flip, or the exponential mechanism, on exact whole scores; pure ε"),
)


@dataclass(frozen=True)
class Section:
    """A table of the statement."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True)
class Statement:
    """The guarantees of a policy and its log."""

    dataset: str
    sections: tuple[Section, ...]

    def to_json(self) -> str:
        tables = {each.title: [dict(zip(each.heads, row, strict=True)) for row in each.rows] for each in self.sections}
        return json.dumps({"dataset": self.dataset} | tables, ensure_ascii=False, indent=1)

    def to_html(self) -> str:
        """One page that needs no network and can be printed."""
        title = f"Privacy statement of {self.dataset}"
        drawn = (
            table(each.title, [f"{head} ~" for head in each.heads], each.rows, "Nothing yet.") for each in self.sections
        )
        foot = element("footer", "Made from the policy and the log alone by ", element("code", "pinq statement"), ".")
        return document(title, joined([element("h1", title), *drawn, foot]))


def statement(policy: str | os.PathLike[str] | Policy) -> Statement:
    """States the guarantees of a policy and its log; reads no row and changes nothing.

    Raises:
        PolicyError: A wrong policy.
        LedgerError: The chain of the log does not hold.
    """
    loaded, report = facts(policy)
    sections = (
        guarantee(loaded, report),
        _attacker(loaded, report),
        _analysts(report),
        _public(loaded, report),
        Section("Mechanisms", ("method", "how answers are protected"), MECHANISMS),
        _proofs(report),
    )
    return Statement(loaded.dataset, sections)


def facts(policy: str | os.PathLike[str] | Policy) -> tuple[Policy, Audit | None]:
    """Reads a policy, and its log if there is one."""
    loaded = load_policy(policy)
    try:
        return loaded, audit(loaded)
    except NoLedger:
        return loaded, None


def guarantee(policy: Policy, report: Audit | None) -> Section:
    """States the protected persons, the attack, and the numbers."""
    unit, schema, cap = policy.privacy_unit, policy.schema_, Epsilon.of(policy.cap)
    protected = "one row" if isinstance(unit, str) else f"all rows of one {unit.column}, at most {unit.max_rows}"
    if policy.tables and policy.unit is not None:
        bounds = (
            f"{each.bounded_unit.max_rows} of {name}" for name, each in policy.tables.items() if each.bounded_unit
        )
        protected = f"all rows of one {policy.unit.column} in all tables, at most {', '.join(bounds)}"
    changed = "is replaced by another" if schema.adjacency == "substitute" else "is in the table or is not"
    distance = max(table.schema_.distance for table in policy.each)
    largest = math.ceil(math.log(20) * distance / (float(cap.exact) / 10))
    rows = [
        ("Who is protected", protected),
        ("Against what", f"conclusions from answers on whether {protected} {changed}, and so on its contents"),
        ("Epsilon (ε) in all", f"{cap}: the cap over all analysts, which counts {COUNTED}"),
        *([("Budgets before", report.follows)] if report is not None and report.follows else []),
        ("Rows that come or change", "each version of the rows adds its costs to those of the earlier ones"),
        (
            "Small groups",
            f"a count at a tenth of the cap is off by up to {largest:,} in 95 % of cases, so a group of fewer rows "
            "cannot be told from an empty one; groups without rows are answered, too",
        ),
    ]
    return Section("Guarantee", ("subject", "statement"), rows)


def _attacker(policy: Policy, report: Audit | None) -> Section:
    """The worst case in numbers: beliefs before answers, after those so far, and after the whole cap."""
    losses = [float(loss.exact) for loss in (report.joint if report else ZERO, Epsilon.of(policy.cap))]
    # Other contents of a known person's rows: one replacement, or one removal and one addition.
    steps = 1 if policy.schema_.adjacency == "substitute" else 2
    cases = (
        ("a person is in the table", 0.5, 1),
        ("a person is in the table", 0.01, 1),
        ("a known person's rows say a certain thing", 0.5, steps),
    )
    rows = [
        (case, f"{before:.0%}", *(_at_most(before, times * loss) for loss in losses)) for case, before, times in cases
    ]
    heads = (
        "an attacker who knows everybody else asks whether",
        "belief before",
        "after all answers so far",
        "after all that the cap allows",
    )
    return Section("Worst case", heads, rows)


def _at_most(belief: float, epsilon: float) -> str:
    """The largest belief that answers of this epsilon can leave, rounded up."""
    after = 1 / (1 + (1 - belief) / belief * math.exp(-epsilon))
    shown = math.ceil(after * 1000) / 10
    return f"at most {shown:.1f} %" if shown < 100 else "certainty is not excluded"


def _analysts(report: Audit | None) -> Section:
    granted = [] if report is None else [each for each in report.accounts.values() if each.granted]
    rows = [
        (
            each.analyst,
            f"{each.spent} of {each.limit}",
            str(each.terms),
            when(each.expires) if each.expires else "never",
            each.state,
        )
        for each in granted
    ]
    return Section("Analysts", ("analyst", "epsilon spent", "terms", "ends", "state"), rows)


def _public(policy: Policy, report: Audit | None) -> Section:
    rows = [
        (name.removeprefix("columns."), in_words(column), _reasons(policy, name))
        for name, column in policy.all_columns.items()
    ]
    rows += [(name, "", _reasons(policy, name)) for name in policy.reviewed if "columns." not in name]
    declared = [line for line in (report.lines if report else []) if line.kind == "policy"]
    rows += [("the policy", line.about, f"{when(line.at)} {line.by} {line.because}".strip()) for line in declared]
    return Section("Public by the provider's decision", ("of", "declared", "why, and by whom"), rows)


def in_words(column: Column) -> str:
    """A column's declaration, as the policy has it."""
    declaration = column.model_dump(mode="json", exclude_defaults=True)
    values = {
        name: ", ".join(map(str, value)) if isinstance(value, list) else value for name, value in declaration.items()
    }
    return "; ".join([column.type, *(f"{name}: {value}" for name, value in values.items() if name != "type")])


def _reasons(policy: Policy, field: str) -> str:
    reasons = [why for name, why in policy.reviewed.items() if name == field or name.startswith(f"{field}.")]
    return "; ".join(dict.fromkeys(reasons)) or "declared in the policy"


def _proofs(report: Audit | None) -> Section:
    log = "there is no log yet" if report is None else f"{report.events:,} events, chain verified, last {report.head}"
    rows = [
        ("The log", log),
        ("Versions of the rows so far", f"{report.versions if report else 1:,}"),
        ("Why each mechanism is private", "docs/privacy.md"),
        ("Why the budget's rule holds, proved by machine", "docs/proof.md"),
        ("How to check the log without this program", "docs/log-format.md"),
        ("What is not covered", "docs/known-limits.md"),
    ]
    return Section("Evidence", ("subject", "where"), rows)


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
    "Values are read as the policy declares their columns; undeclared values count as missing, or in no part. Domains "
    "and bounds are declared from public knowledge and reviewed. Tuning on the rows is charged like any query."
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
    statements, cap = {row[0]: row[1] for row in guarantee(policy, report).rows}, Epsilon.of(policy.cap)
    distance = max(table.schema_.distance for table in policy.each)
    spent = f"{report.joint} of {cap} is spent" if report else "nothing is spent yet"
    return {
        "privacy_loss": {
            "privacy_unit": statements["Who is protected"],
            "privacy_unit_details": f"{statements['Against what']}; {policy.adjacency}, up to {distance} rows differ",
            "number_of_privacy_units": 1,
            "privacy_parameters": {"epsilon": float(cap.exact)},
            "privacy_parameters_details": f"{statements['Epsilon (ε) in all']}; {spent}",
        },
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": TUNING,
            "mechanisms": "; ".join(f"{verbs}: {how}" for verbs, how in MECHANISMS) + f"; pinq {__version__}",
            "composition": COMPOSITION,
            "post_processing": "Tables, models and synthetic rows are computed from answers alone.",
            "justification": "",
            "utility": statements["Small groups"],
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
