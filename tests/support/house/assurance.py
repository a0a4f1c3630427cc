# SPDX-License-Identifier: Apache-2.0
"""Marks for tests that ``make assurance`` runs in larger numbers than ``make test``, and the table of their results."""

from __future__ import annotations

import os

import pytest

from tests.support.house.checkout import ROOT

ASSURANCE = bool(os.environ.get("PINQ_ASSURANCE"))
thorough = pytest.mark.skipif(
    not (ASSURANCE or os.environ.get("PINQ_PICTURES")),
    reason="`make assurance` runs it; `make test` runs others like it",
)
TABLE = ROOT / "build" / "assurance.md"
HEAD = "| what | how often | what became of it |\n|---|---|---|\n"


def note(what: str, often: int, outcome: str) -> None:
    """Adds a line to the table of a run of ``make assurance``; does nothing in other runs."""
    if ASSURANCE:
        TABLE.parent.mkdir(exist_ok=True)
        line = f"| {what} | {often:,} | {outcome} |\n"
        TABLE.write_text((TABLE.read_text() if TABLE.exists() else HEAD) + line)
