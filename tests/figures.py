# SPDX-License-Identifier: Apache-2.0
"""The figures of the house: ``python -m tests.figures`` prints them, of this tree or of another.

docs/architecture.md has the last ones. Another tree is named by its folder, which must hold
``pinq/`` and ``miners/``.
"""

from __future__ import annotations

import ast
import io
import statistics
import sys
import tokenize
from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.checkout import ROOT

__all__ = ["House", "Module"]

PACKAGES = ("pinq", "miners")
CORE = ("pinq/public/", "pinq/engine/", "pinq/ledger/", "pinq/analyst/", "pinq/curator/")
MAX_COLUMNS, MAX_FILE_LINES = 120, 400
SCORE = "SquaredError"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTIONS)


@dataclass(frozen=True)
class Module:
    """One Python file, parsed: its path below the root and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All of the tree's, each once: to walk through it takes longer than what is asked of it."""
        return list(ast.walk(self.tree))

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def name(self) -> str:
        """Its name as an import has it."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def room(self) -> str:
        """The package or folder below it in which the module stands, ``pinq.errors`` being one of its own."""
        parts = self.path.split("/")
        return parts[0] + "/" + parts[1].removesuffix(".py")

    @cached_property
    def classes(self) -> set[str]:
        """The classes that it defines."""
        return {node.name for node in self.nodes if isinstance(node, ast.ClassDef)}

    @cached_property
    def statements(self) -> int:
        """Statements without docstrings."""
        every = sum(isinstance(node, ast.stmt) for node in self.nodes)
        return every - sum(_docstring(node) is not None for node in self.nodes)

    @cached_property
    def comments(self) -> int:
        """Lines that are a comment or end in one; the licence is none."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return sum(token.type == tokenize.COMMENT and "SPDX" not in token.string for token in tokens)

    @cached_property
    def code_lines(self) -> int:
        """Lines that are neither empty nor in a docstring."""
        prose = {number for node in self.nodes for number in _span(_docstring(node))}
        return sum(bool(line.strip()) and number not in prose for number, line in enumerate(self.lines, 1))

    @cached_property
    def functions(self) -> list[int]:
        """The length of each function in lines, its docstring left out."""
        nodes = [node for node in self.nodes if isinstance(node, FUNCTIONS)]
        return [_length(node) - len(_span(_docstring(node))) for node in nodes]

    def uses_of_any(self) -> list[int]:
        """The lines that use ``Any`` other than to import it, once for each use."""
        return [
            node.lineno
            for node in self.nodes
            if (isinstance(node, ast.Name) and node.id == "Any")
            or (isinstance(node, ast.Attribute) and node.attr == "Any")
        ]

    def kind_tests(self) -> Iterator[tuple[int, set[str]]]:
        """Yields where ``isinstance`` asks for a value's class, and the classes' names."""
        for node in self.nodes:
            match node:
                case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
                    yield node.lineno, _names(kinds)

    def kind_cases(self) -> Iterator[tuple[int, set[str]]]:
        """Yields the cases of ``match`` that ask for a value's class, and the classes' names."""
        for node in self.nodes:
            match node:
                case ast.MatchClass(cls=kind):
                    yield kind.lineno, _names(kind)

    def imports(self, modules: Container[str]) -> Iterator[str]:
        """Yields which of some modules this one imports, those for type checkers included."""
        for node in self.nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                yield from (name if name in modules else node.module for name in names)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)

    def uses(self, word: str) -> bool:
        """Whether its code has a name, in its own right or as part of an import."""
        return any(word in (getattr(node, "id", None), getattr(node, "name", None)) for node in self.nodes)


class House:
    """All modules of the two packages below a root.

    Args:
        root: The folder that holds them.
    """

    def __init__(self, root: Path = ROOT) -> None:
        files = sorted(file for package in PACKAGES for file in (root / package).rglob("*.py"))
        self.modules = [Module(file.relative_to(root).as_posix(), file.read_text("utf-8")) for file in files]

    @cached_property
    def own_classes(self) -> set[str]:
        """The names of all classes that the packages define."""
        return set().union(*(module.classes for module in self.modules))

    def uses_of_any(self) -> list[str]:
        """Where ``Any`` is used, imports left out."""
        return [f"{module.path}:{line}" for module in self.modules for line in module.uses_of_any()]

    def kind_tests(self, under: tuple[str, ...] = PACKAGES, *, own: bool = True) -> list[str]:
        """Where a value's class is asked for.

        Args:
            under: The beginnings of the paths to look at.
            own: Whether to leave out tests for Python's and libraries' types alone, which check
                what comes in. A test for a class of the house chooses by kind.
        """
        return self._own(under, [(module, list(module.kind_tests())) for module in self.modules], own=own)

    def kind_cases(self) -> list[str]:
        """Where a case of ``match`` asks for a class of the house."""
        return self._own(PACKAGES, [(module, list(module.kind_cases())) for module in self.modules], own=True)

    def _own(
        self, under: tuple[str, ...], tests: list[tuple[Module, list[tuple[int, set[str]]]]], *, own: bool
    ) -> list[str]:
        return [
            f"{module.path}:{line} {' | '.join(sorted(names))}"
            for module, lines in tests
            if module.path.startswith(under)
            for line, names in lines
            if not own or names & self.own_classes
        ]

    @cached_property
    def arrows(self) -> set[tuple[str, str]]:
        """The pairs of a room and another one that it imports.

        A package's own face is none: it exports what the rooms have, and its version.
        """
        modules = [module for module in self.modules if module.name not in PACKAGES]
        rooms = {module.name: module.room for module in modules}
        pairs = {(module.room, rooms.get(name)) for module in modules for name in module.imports(rooms)}
        return {(room, other) for room, other in pairs if other is not None and room != other}

    def circles(self) -> int:
        """Counts the rooms that reach themselves."""
        below = self._below()
        return sum(room in reached for room, reached in below.items())

    def floors(self) -> int:
        """Counts the floors: a room stands on the highest room that it imports."""
        below, heights = self._below(), dict[str, int]()
        for room in sorted(below, key=lambda room: len(below[room])):
            heights[room] = 1 + max((heights.get(other, 0) for other in below[room]), default=0)
        return max(heights.values())

    def _below(self) -> dict[str, set[str]]:
        """All rooms that each room imports, directly or through others."""
        below: dict[str, set[str]] = {module.room: set() for module in self.modules if module.name not in PACKAGES}
        for room, other in self.arrows:
            below[room].add(other)
        for _ in below:
            for reached in below.values():
                reached |= set().union(*(below[other] for other in reached))
        return below

    def statements_of_rooms(self) -> Counter[str]:
        """Statements of each room."""
        rooms: Counter[str] = Counter()
        for module in self.modules:
            rooms[module.room] += module.statements
        return rooms

    @property
    def comment_share(self) -> float:
        """Which part of the lines of code are or have a comment."""
        return sum(module.comments for module in self.modules) / sum(module.code_lines for module in self.modules)

    def figures(self) -> dict[str, str]:
        """The table, figure by figure."""
        modules = self.modules
        functions = sorted(length for module in modules for length in module.functions)
        long_lines = sum(len(line) > MAX_COLUMNS for module in modules for line in module.lines)
        return {
            "modules": f"{len(modules)}",
            "lines": f"{sum(len(module.lines) for module in modules):,}",
            "statements": f"{sum(module.statements for module in modules):,}",
            "rooms, floors, arrows, circles": f"{len(self._below())}, {self.floors()}, {len(self.arrows)}, {self.circles()}",
            "functions: number, median, p90, max": f"{len(functions):,}, {statistics.median(functions):g}, "
            f"{functions[len(functions) * 9 // 10]}, {functions[-1]}",
            f"lines over {MAX_COLUMNS} columns": f"{long_lines}",
            f"files over {MAX_FILE_LINES} lines": f"{sum(len(module.lines) > MAX_FILE_LINES for module in modules)}",
            "comments, share of code lines": f"{self.comment_share:.1%}",
            "uses of `Any`": f"{len(self.uses_of_any())}",
            "`isinstance`, all": f"{len(self.kind_tests(own=False))}",
            "`isinstance` of a class of our own": f"{len(self.kind_tests())}",
            "the same in public, engine, ledger, analyst, curator": f"{len(self.kind_tests(CORE))}",
            "cases of `match` by a class of our own": f"{len(self.kind_cases())}",
            f"modules that know of a score (`{SCORE}`)": f"{sum(module.uses(SCORE) for module in modules)}",
        }


def _docstring(node: ast.AST) -> ast.Expr | None:
    """The statement that is a node's docstring."""
    if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        first = node.body[0]
        return first if isinstance(first, ast.Expr) else None
    return None


def _length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _span(node: ast.stmt | None) -> range:
    """The numbers of a statement's lines."""
    return range(node.lineno, node.lineno + _length(node)) if node else range(0)


def _names(kinds: ast.expr) -> set[str]:
    """The names in an expression: ``Cuts`` and ``str`` of ``Cuts | str``, none of ``pa.Table``."""
    foreign = {id(node.value) for node in ast.walk(kinds) if isinstance(node, ast.Attribute)}
    return {node.id for node in ast.walk(kinds) if isinstance(node, ast.Name) and id(node) not in foreign}


if __name__ == "__main__":
    house = House(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
    for figure, value in house.figures().items():
        print(f"{figure:56} {value:>16}")
    for room, statements in sorted(house.statements_of_rooms().items()):
        print(f"statements of {room:42} {statements:>16,}")
