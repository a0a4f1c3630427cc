# SPDX-License-Identifier: Apache-2.0
"""Errors name a parameter as a fact, and the command line has its own name for each that it can pass."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pinq
from pinq.cli.base import PARAMETERS
from pinq.errors import QueryError, Unavailable, unspent

# No command passes these; `cap` is a policy's key, and others are fields of what is asked.
NO_OPTIONS = {
    "act",
    "within",
    "seed",
    "rows",
    "timeout",
    "cap",
    "by",
    "closed",
    "column",
    "count",
    "constant",
    "fixed",
    "groups",
    "key",
    "limit",
    "names",
    "pairs",
    "period",
    "positive",
    "ranges",
    "size",
    "sizes",
    "start",
    "threshold",
    "consistent",
    "statistics",
    "value",
}
READERS = {"exactly", "of"}  # of losses: they take the parameter's name as ``name``


def test_the_command_line_knows_every_parameter_that_an_error_may_name() -> None:
    """A new parameter, of a table or an agent too, needs its option, or the remark that no command passes it."""
    assert set(PARAMETERS) | NO_OPTIONS == set(_named_parameters())


def _named_parameters() -> Iterator[str]:
    home = Path(pinq.__file__).parent
    # Commands pass their arguments on.
    passed = [home.parent / room for room in ("miners/tables", "miners/fronts", "pinq_workbench")]
    for file in (file for room in (home, *passed) for file in room.rglob("*.py")):
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call):
                yield from _constants(call, file)
            elif isinstance(call, ast.arg) and call.arg == "name" and file.name == "epsilon.py":
                yield "epsilon"  # what a reader of losses calls it by default


def _constants(call: ast.Call, file: Path) -> Iterator[str]:
    reader = ast.unparse(call.func).rpartition(".")[2]
    if reader == "whole_number":
        assert isinstance(call.args[0], ast.Constant), f"{file}: a parameter must be named by a constant"
        yield str(call.args[0].value)
    for keyword in call.keywords:
        if keyword.arg in ("parameter", "remedy") or (keyword.arg == "name" and reader in READERS):
            if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, str):
                yield keyword.value.value
            elif ast.unparse(keyword) != "parameter=parameter":  # handed on: its caller names it
                assert file.name in ("epsilon.py", "wire.py"), f"{file}: a parameter must be named by a constant"


@pytest.mark.parametrize(
    ("allowed", "python", "command"),
    [
        ("", "`epsilon` is 0. Nothing was spent.", "--epsilon is 0. Nothing was spent."),
        (
            "at most 1",
            "`epsilon` is 0; it must be at most 1. Nothing was spent.",
            "--epsilon is 0; it must be at most 1. Nothing was spent.",
        ),
    ],
)
def test_each_face_calls_a_parameter_by_its_own_name(allowed: str, python: str, command: str) -> None:
    """The text is made of facts, and what was charged stands at its end in every face."""
    with pytest.raises(QueryError) as raised, unspent():
        raise QueryError("is 0", parameter="epsilon", allowed=allowed)
    assert str(raised.value) == python
    assert raised.value.worded(PARAMETERS) == command


def test_what_may_help_is_called_by_the_faces_own_name() -> None:
    """A remedy stands at the end."""
    error = Unavailable("It is not trusted. Pass the file as", remedy="verify")
    assert str(error) == "It is not trusted. Pass the file as `verify`."
    assert error.worded(PARAMETERS) == "It is not trusted. Pass the file as --verify."


@pytest.mark.parametrize(("problem", "told"), [("is 3.", "is 3"), ("is 3", "is 3"), ("is 'aaa...", "is 'aaa...")])
def test_an_error_ends_in_one_full_stop_and_keeps_the_dots_of_a_text_cut_off(problem: str, told: str) -> None:
    error = QueryError(problem, parameter="seed", allowed="a number")
    assert str(error) == f"`seed` {told}; it must be a number."
