# SPDX-License-Identifier: Apache-2.0
"""Writes a proposed policy as YAML, with comments that say where each value is from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from pinq.engine import Lines
from pinq.provider.identifiers import Unit
from pinq.provider.report.text import printable
from pinq.public.columns import round_up
from pinq.public.plain_yaml import write_yaml
from pinq.public.policy import Policy

__all__ = ["HEAD_LIKE", "Proposed", "lost_lines_remark", "to_yaml", "unit_key"]


@dataclass
class Proposed:
    """What was seen of a table, and what is proposed for it.

    Attributes:
        lost_lines: Lines of a text file that cannot be read; not among the rows.
        columns: Each column's declaration.
        notes: For a column's keys, what they were guessed from.
        left_out: Columns without a declaration, and why.
        units: Columns that may name the privacy units.
    """

    rows: int
    lost_lines: int = 0
    columns: dict[str, dict[str, object]] = field(default_factory=dict)
    notes: dict[str, dict[str, str]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    units: list[Unit] = field(default_factory=list)


_HEAD = """\
# Proposed by `pinq init`. What is named under `unreviewed` was read off the data, and a domain that follows
# the rows leaks them, so this policy opens nothing yet:
#   1. Put what is publicly known (a code book, a form, a law) in the place of each such value, or confirm it,
#      and delete its name from `unreviewed`. Delete `unreviewed` where nothing is left in it.
#   2. Delete columns that nobody should ask about. Values and bounds are public: every analyst reads them.
#   3. `pinq check` shows what the policy does to the data; `pinq grant` gives an analyst a budget.
"""


HEAD_LIKE = """\
# Proposed by `pinq init --like`: what holders share is as in their policy, and nothing was read off the rows
# of this source. `pinq check` shows what the policy does to them. `cap` and `max_rows` are each holder's own.
"""


_HINTS = {
    "lower": "smaller numbers count as this one; choose it without looking at the rows",
    "upper": "larger numbers count as this one",
    "step": "width of a grid cell; both bounds are whole numbers of steps",
    "nullable": "whether a missing value is a value of its own; false leaves such rows out",
}


def lost_lines_remark(lines: Lines) -> str:
    """Remarks on lines that cannot be read; empty where there are none.

    Their number stays out of a file that others may come to read.
    """
    if not lines.lost:
        return ""
    reasons = "; ".join(
        f"lines {printable(reason)}, such as {printable(lines.examples[reason])}" for reason in lines.unreadable
    )
    return f"\n# Some lines cannot be read and are left out; `pinq check` counts them: {reasons}\n"


def to_yaml(bare: Policy, proposed: Proposed, target: str | None) -> str:
    """Writes the policy.

    Args:
        bare: It names dataset and source, and declares nothing.
        proposed: The columns and what was seen of them.
        target: The column that models will predict.
    """
    keys: dict[str, object] = bare.model_dump(by_alias=True, include={"source"}, exclude_defaults=True)
    if bare.csv is not None and (stated := bare.csv.model_dump(mode="json", exclude_unset=True)):
        keys["csv"] = stated
    lines = [
        _HEAD.rstrip("\n"),
        *_dump({"version": 1, "dataset": bare.dataset} | keys, False),
        "cap: 1.0  # epsilon over all analysts together, for they may collude",
        "adjacency: add-remove  # hides whether a row is in the table; `substitute` hides what is in it, and "
        "costs twice the noise",
        "privacy_unit: row  # whose presence is hidden: a row's, or where a person can have several rows, "
        "{column: person_id, max_rows: 3}",
        *_units(proposed.units),
        f"max_rows: {round_up(Decimal(proposed.rows + proposed.lost_lines + 1)):f}  # no table under this policy "
        f"will ever have more rows",
        "unreviewed: [privacy_unit, max_rows]",
        "",
        "columns:",
    ]
    hints = dict(_HINTS)  # each is given once
    for column, declared in proposed.columns.items():
        lines += ["  # the target"] if column == target else []
        for line in _dump({column: declared}, None):
            key = line.removeprefix("  ").split(":")[0] if line.startswith("  ") else ""
            notes = "; ".join(filter(None, (proposed.notes[column].get(key), hints.pop(key, None))))
            lines.append(f"  {line}" + (f"  # {notes}" if notes else ""))
    if proposed.left_out:
        lines += [
            "",
            "# Left out:",
            *(f"#   {printable(column)}: {printable(reason)}" for column, reason in proposed.left_out.items()),
        ]
    return "\n".join(lines) + "\n"


def _units(units: list[Unit]) -> list[str]:
    """Writes comments that name the columns which may name persons."""
    if not units:
        return []
    lines = [
        "# These columns look as if they name persons or the like, who have several rows. If one does, "
        "declare it, so that",
        "# all their rows are hidden:",
    ]
    for unit in units:
        lines += [
            f"#   {unit_key(unit.column)}",
            f"#     {printable(str(unit))} (read off the rows: for your review alone)",
        ]
    return [
        *lines,
        "# Its `max_rows` is a bound that is publicly known, not the number above: rows of a unit beyond it "
        "are left out,",
        "# and noise grows with it.",
    ]


def unit_key(column: str) -> str:
    """Writes a column as the privacy unit, its bound left open."""
    return printable(f"privacy_unit: {{column: {json.dumps(column, ensure_ascii=False)}, max_rows: ...}}")


def _dump(content: Mapping[str, object], flow: bool | None) -> list[str]:
    """Writes lines of YAML; with ``flow`` None, innermost lists stand in brackets."""
    return write_yaml(content, flow).rstrip("\n").split("\n")
