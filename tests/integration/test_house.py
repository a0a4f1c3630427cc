# SPDX-License-Identifier: Apache-2.0
"""The shape of the house: a file is one idea, files stand on each other without a circle, functions are short."""

from __future__ import annotations

import pytest

from tests.figures import House, circles

MAX_COLUMNS, MAX_FILE_LINES, MAX_FUNCTION_LINES = 120, 900, 50


@pytest.fixture(scope="module")
def house() -> House:
    """All modules and their syntax trees, a million objects: gone after these tests."""
    return House()


def test_files_stand_on_each_other_without_a_circle(house: House) -> None:
    """Also where only a type checker imports. Two files that need each other are one idea, and one file."""
    assert circles(house.arrows()) == []


def test_no_file_is_too_long_for_one_idea(house: House) -> None:
    """Nor a line for one look."""
    lines = {module.path: module.text.splitlines() for module in house.modules.values()}
    assert not [path for path, text in lines.items() if len(text) > MAX_FILE_LINES]
    assert not [path for path, text in lines.items() if max(map(len, text), default=0) > MAX_COLUMNS]


def test_no_function_is_too_long(house: House) -> None:
    """Its docstring left out."""
    functions = [(module.path, *function) for module in house.modules.values() for function in module.functions()]
    assert not [function for function in functions if function[2] > MAX_FUNCTION_LINES]


@pytest.mark.parametrize(
    ("arrows", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [{"a", "b", "c"}]),
    ],
)
def test_circles_are_found(arrows: dict[str, set[str]], expected: list[set[str]]) -> None:
    """Those of three as well as those of two; who stands beside one is not in it."""
    assert circles(arrows) == expected
