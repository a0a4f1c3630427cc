# SPDX-License-Identifier: Apache-2.0
"""What only ``make assurance`` runs can be run: it is too long for every day, so it could rot unseen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.assurance.faults import FAULTS, Fault
from tests.assurance.planted_faults import COPIED
from tests.support.house.checkout import ROOT

TESTS = {file: file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("*.py")}


def test_fixtures_that_are_asked_for_by_name_exist() -> None:
    """A parameter that only long runs have asks for one when it is its turn."""
    shared = "".join(text for file, text in TESTS.items() if file.name == "conftest.py")
    names = [(text, name) for text in TESTS.values() for name in re.findall(r"getfixturevalue\(.(\w+).\)", text)]
    assert len(names) > 3
    for text, name in names:
        assert re.search(rf"@pytest\.fixture.*\ndef {name}\(", text + shared), name


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_fault_can_be_planted(fault: Fault) -> None:
    """What it replaces stands in its file once, and the tests that should notice are there."""
    assert (ROOT / fault.file).read_text(encoding="utf-8").count(fault.right) == 1
    for test in fault.tests:
        assert ROOT / test in TESTS, test
    assert Path(fault.file).parts[0] in COPIED


def test_the_files_of_a_run_exist() -> None:
    """The command names tests that are there."""
    (command,) = re.findall(r"PINQ_ASSURANCE=1 (.*)", (ROOT / "Makefile").read_text(encoding="utf-8"))
    files = re.findall(r"tests/\S+\.py", command)
    assert len(files) > 5
    assert not [file for file in files if ROOT / file not in TESTS]
    more = re.compile(
        r"^[A-Z, ]+ = .* if ASSURANCE\b|^from tests.support.house.assurance import .*\bthorough$", re.MULTILINE
    )
    assert {str(file.relative_to(ROOT)) for file, text in TESTS.items() if more.search(text)} <= set(files)
