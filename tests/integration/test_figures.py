# SPDX-License-Identifier: Apache-2.0
"""The figures of the house stay where they were brought to; ``python -m tests.figures`` prints all."""

from __future__ import annotations

import pytest

from tests.figures import CORE, SCORE, House, Module


@pytest.fixture(scope="module")
def house() -> House:
    """All modules and their syntax trees, a million objects: gone after these tests."""
    return House()


def test_any_stands_at_real_boundaries_only(house: House) -> None:
    """Where neither Python's protocols nor a library say what comes: few places."""
    assert len(house.uses_of_any()) <= 80


def test_hardly_anybody_asks_for_the_class_of_a_value_of_ours(house: House) -> None:
    """A value answers for itself. Left are operators, unions of Python's types and ours, and what a caller passes."""
    assert len(house.kind_tests(CORE)) <= 20
    assert len(house.kind_tests()) <= 48


def test_only_events_errors_and_messages_are_told_apart_by_cases(house: House) -> None:
    """One fold knows what each event means, one report how it reads, one table which status an error has.

    And two processes of a server tell apart what they send each other.
    """
    files = {where.split(":")[0] for where in house.kind_cases()}
    told = (
        "pinq/ledger/",
        "pinq/provider/history.py",
        "pinq/provider/report/",
        "pinq/provider/certified.py",
        "pinq/server/api/gate.py",
        "pinq/server/api/handover.py",
        "pinq/server/api/sibling.py",
    )
    assert not [file for file in files if not file.startswith((*told, "miners/fitted/json_form.py"))]


def test_dense_code_is_explained(house: House) -> None:
    """Reasons, units and worked examples beside it: four lines in a hundred of the code are or have a comment."""
    assert round(house.comment_share, 3) >= 0.04


def test_functions_are_short(house: House) -> None:
    """Nine in ten have at most sixteen lines beside their docstring."""
    lengths = sorted(length for module in house.modules for length in module.functions)
    assert lengths[len(lengths) * 9 // 10] <= 16


def test_rooms_stand_on_each_other_without_a_circle(house: House) -> None:
    """Also where only a type checker imports."""
    assert house.circles() == 0


def test_two_files_know_of_a_score(house: House) -> None:
    """Its own and what exports it. Others name some: a tree's criteria, and what measures claims."""
    files = {module.path for module in house.modules if module.uses(SCORE)}
    assert files <= {"pinq/__init__.py", "pinq/public/scores.py", "miners/growth/criteria.py"} | {
        "pinq/provider/selftest/claims.py"
    }


@pytest.mark.parametrize(
    ("line", "tests"),
    [
        ("isinstance(x, Cuts)", {"Cuts"}),
        ("isinstance(x, (Cuts, str))", {"Cuts", "str"}),
        ("isinstance(x, Cuts | Values)", {"Cuts", "Values"}),
        ("isinstance(x, pa.Table)", set()),
        ("isinstance(x, kinds)", {"kinds"}),
    ],
)
def test_tests_of_a_class_are_found(line: str, tests: set[str]) -> None:
    """By the names of the classes; those of a library's module are nobody's here."""
    assert [names for _, names in Module("m.py", line).kind_tests()] == [tests]
