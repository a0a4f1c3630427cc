# SPDX-License-Identifier: Apache-2.0
"""The code's words and sizes: names that docs/notation.md retired stay away, and nothing grows too long.

A room or a file that does not comply yet is excused here by name. One that complies must leave its list,
so the lists only become shorter.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache

import pytest

from tests.checkout import ROOT

PRODUCT = ("pinq/", "miners/")
EVERYWHERE = ("pinq", "miners", "tests", "benchmarks", "examples")
MAX_DOCSTRING_COLUMNS, MAX_FILE_LINES, MAX_FUNCTION_LINES = 100, 400, 50

# A name that is one of these says nothing of the thing that it holds.
RETIRED_NAMES = {"one", "found", "place", "said", "some", "way", "ways", "book", "in_vain"}
# A name with one of these among its parts uses a word that has a successor in docs/notation.md.
RETIRED_PARTS = {"sprout", "sprouts", "bud", "buds", "harvest", "telling", "eps"}

EXCUSED_NAMES: set[str] = {
    "tests",
    "tests/contract",
    "tests/e2e",
    "tests/integration",
    "tests/privacy",
    "tests/unit/federated",
    "tests/unit/public",
    "tests/unit/trees",
}
EXCUSED_DOCSTRINGS: set[str] = set()
EXCUSED_FILES: set[str] = set()
EXCUSED_FUNCTIONS: set[str] = set()


@dataclass
class Source:
    """What the rules ask of a Python file. Its syntax tree is not kept: half a million nodes would be slow to hold."""

    path: str
    lines: list[str]
    names: list[tuple[int, str]] = field(default_factory=list)
    docstrings: list[int] = field(default_factory=list)
    functions: list[tuple[int, str, int]] = field(default_factory=list)

    @property
    def room(self) -> str:
        """Its folder."""
        return self.path.rpartition("/")[0]

    def read(self) -> Source:
        """Notes each name that is bound, where docstrings begin, and each function with its number of lines."""
        for node in ast.walk(ast.parse("\n".join(self.lines))):
            if isinstance(node, BINDING):
                self.names += [(getattr(node, "lineno", 1), name) for name in bound_names(node)]
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions.append((node.lineno, node.name, (node.end_lineno or node.lineno) - node.lineno + 1))
            if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False):
                self.docstrings.append(node.body[0].lineno)
        return self


NAMED = (ast.arg, ast.alias, ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping)
BINDING = (ast.Name, ast.Attribute, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, *NAMED)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Finding:
    """What does not comply: the entry of a list that would excuse it, and where it stands."""

    excuse: str
    where: str


@cache
def sources() -> list[Source]:
    files = sorted(file for package in EVERYWHERE for file in (ROOT / package).rglob("*.py"))
    return [
        Source(file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8").splitlines()).read()
        for file in files
    ]


def product() -> list[Source]:
    return [source for source in sources() if source.path.startswith(PRODUCT)]


def bound_names(node: ast.AST) -> list[str]:
    """The names that a node of a syntax tree gives: of variables, parameters, attributes, functions, classes."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
            return [name]
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return [name]
    return []


def parts_of(name: str) -> set[str]:
    """The words of a name, in snake case or camel case, in lower case."""
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def is_retired(name: str) -> bool:
    return name.strip("_") in RETIRED_NAMES or bool(parts_of(name) & RETIRED_PARTS)


def retired_names() -> Iterator[Finding]:
    for source in sources():
        for line, name in source.names:
            if is_retired(name):
                yield Finding(source.room, f"{source.path}:{line} {name}")


def long_docstrings() -> Iterator[Finding]:
    for source in product():
        for line in source.docstrings:
            if len(source.lines[line - 1]) > MAX_DOCSTRING_COLUMNS:
                yield Finding(source.room, f"{source.path}:{line}")


def long_files() -> Iterator[Finding]:
    for source in product():
        if len(source.lines) > MAX_FILE_LINES:
            yield Finding(source.path, f"{source.path}: {len(source.lines)} lines")


def long_functions() -> Iterator[Finding]:
    for source in product():
        for line, name, lines in source.functions:
            if lines > MAX_FUNCTION_LINES:
                yield Finding(f"{source.path}::{name}", f"{source.path}:{line} {name}, {lines} lines")


RULES = [
    pytest.param(retired_names, EXCUSED_NAMES, id="retired names"),
    pytest.param(long_docstrings, EXCUSED_DOCSTRINGS, id="long first lines of docstrings"),
    pytest.param(long_files, EXCUSED_FILES, id="long files"),
    pytest.param(long_functions, EXCUSED_FUNCTIONS, id="long functions"),
]


@pytest.mark.parametrize(("rule", "excused"), RULES)
def test_whatever_is_not_excused_complies(rule: Callable[[], Iterator[Finding]], excused: set[str]) -> None:
    """What a rule finds stands in its list; what stands in its list is found, and leaves it otherwise."""
    findings = list(rule())
    assert not [finding.where for finding in findings if finding.excuse not in excused]
    assert not excused - {finding.excuse for finding in findings}, "these comply and need no excuse any more"


def test_names_are_found_wherever_they_are_given() -> None:
    """Each way of Python to bind a name, and no prose, keyword of a call or text."""
    text = """
import found_at as one
def place(said, *buds, some=1, **eps): "some one"
class OpenBud: pass
for way in []: pass
x.ways = x.book = call(found=[harvest for harvest in []])
with a as in_vain: pass
try: pass
except E as telling: pass
match m:
    case [sprout, *sprouts]: pass
    case {**bud}: pass
(found := 1)
someone, foundation, found_rows, placement, epsilon = "one found place".split()
"""
    names = [name for node in ast.walk(ast.parse(text)) for name in bound_names(node) if is_retired(name)]
    assert set(names) == RETIRED_NAMES | RETIRED_PARTS | {"OpenBud"}
    assert len(names) == len(set(names))
