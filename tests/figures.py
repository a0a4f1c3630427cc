# SPDX-License-Identifier: Apache-2.0
"""The figures of the house: ``python -m tests.figures`` prints them, of this tree or of another named by its folder."""

from __future__ import annotations

import ast
import json
import os
import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.support.house.checkout import ROOT

__all__ = ["House", "Module", "circles"]

PACKAGES = ("pinq", "miners", "pinq_secure", "pinq_workbench", "pinq_demo")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
WALK = str(ROOT / "tests" / "support" / "house" / "walk.py")
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTIONS)


@dataclass(frozen=True)
class Module:
    """One Python file: its path below the root, its text, and its syntax tree's nodes."""

    path: str
    text: str

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(ast.parse(self.text)))

    @property
    def name(self) -> str:
        """Its name as an import has it."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def room(self) -> str:
        """The package or folder below it in which the module stands, ``pinq.errors`` being one of its own."""
        return "/".join(self.path.removesuffix(".py").split("/")[:2])

    @property
    def statements(self) -> int:
        """Statements without docstrings."""
        every = sum(isinstance(node, ast.stmt) for node in self.nodes)
        return every - sum(_docstring(node) is not None for node in self.nodes)

    @property
    def import_statements(self) -> int:
        return sum(isinstance(node, ast.Import | ast.ImportFrom) for node in self.nodes)

    @property
    def constants(self) -> int:
        """Names of the module in capitals to which an expression with a number is bound."""
        return sum(
            isinstance(node, ast.Assign | ast.AnnAssign)
            and node.col_offset == 0
            and any(isinstance(part, ast.Name) and part.id.strip("_").isupper() for part in ast.walk(node))
            and any(isinstance(part, ast.Constant) and type(part.value) in (int, float) for part in ast.walk(node))
            for node in self.nodes
        )

    @property
    def characters(self) -> int:
        """Characters of code: no docstrings, comments or blank lines, and no space at either end of a line."""
        prose = {number for node in self.nodes for number in _span(_docstring(node))}
        lines = [line.strip() for number, line in enumerate(self.text.splitlines(), 1) if number not in prose]
        return sum(len(re.sub(r"\s+# .*", "", line)) for line in lines if not line.startswith("#"))

    @property
    def docstring_words(self) -> int:
        docstrings = [ast.get_docstring(node) or "" for node in self.nodes if isinstance(node, DOCUMENTED)]
        return sum(len(docstring.split()) for docstring in docstrings)

    def functions(self) -> Iterator[tuple[str, int]]:
        """Yields the name of each function, and its length in lines without its docstring."""
        for node in self.nodes:
            if isinstance(node, FUNCTIONS):
                yield node.name, len(_span(node)) - len(_span(_docstring(node)))

    def imports(self, modules: Mapping[str, Module]) -> set[str]:
        """The modules of the house that this one imports, those for type checkers included."""
        imported = set()
        for node in self.nodes:
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                imported |= {name if name in modules else node.module for name in names}
            elif isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
        return (imported & modules.keys()) - {self.name}


class House:
    """All modules of the two packages below a root.

    Args:
        root: The folder that holds them.
    """

    def __init__(self, root: Path = ROOT) -> None:
        files = sorted(file for package in PACKAGES for file in (root / package).rglob("*.py"))
        self.root = root
        modules = [Module(file.relative_to(root).as_posix(), file.read_text("utf-8")) for file in files]
        self.modules = {module.name: module for module in modules}

    def arrows(self) -> dict[str, set[str]]:
        """What each module imports of the house."""
        return {name: module.imports(self.modules) for name, module in self.modules.items()}

    def statements_of_rooms(self) -> Counter[str]:
        """Statements of each room."""
        rooms: Counter[str] = Counter()
        for module in self.modules.values():
            rooms[module.room] += module.statements
        return rooms

    def figures(self) -> dict[str, str]:
        """The table, figure by figure."""
        modules = list(self.modules.values())
        functions = sorted(length for module in modules for _, length in module.functions())
        statements = sum(module.statements for module in modules)
        return {
            "modules": f"{len(modules)}",
            "statements": f"{statements:,}",
            "statements a module": f"{statements / len(modules):.0f}",
            "imports, share of statements": f"{sum(module.import_statements for module in modules) / statements:.1%}",
            "characters of code": f"{sum(module.characters for module in modules):,}",
            "circles between files": f"{len(circles(self.arrows()))}",
            "functions: number, median, p90, max": f"{len(functions):,}, {statistics.median(functions):g}, "
            f"{functions[len(functions) * 9 // 10]}, {functions[-1]}",
            "numeric constants of modules": f"{sum(module.constants for module in modules)}",
            "words of docstrings": f"{sum(module.docstring_words for module in modules):,}",
            **self.pages(),
            **self.walk(),
        }

    def walk(self) -> dict[str, str]:
        """The files and the calls of one small fit; see ``tests/support/house/walk.py``."""
        command = [sys.executable, "-W", "ignore", WALK]
        environment = os.environ | {"PYTHONPATH": str(self.root.resolve())}
        walked = subprocess.run(command, cwd=self.root, env=environment, capture_output=True, text=True, check=True)
        counts = json.loads(walked.stdout)
        return {"a DiffPC45 fit of depth 1: files, calls": f"{counts['files']}, {counts['calls']:,}"}

    def pages(self) -> dict[str, str]:
        """The words of the pages for readers, and the number and the words of the decisions."""
        docs = self.root / "docs"
        pages, decisions = [*docs.glob("*.md"), *docs.glob("start/*.md")], sorted(docs.glob("decisions/[0-9]*.md"))
        words = [sum(len(page.read_text("utf-8").split()) for page in some) for some in (pages, decisions)]
        return {
            "words of pages": f"{words[0]:,}",
            "decisions: number, words": f"{len(decisions)}, {words[1]:,}",
        }


def circles(arrows: Mapping[str, set[str]]) -> list[set[str]]:
    """Finds the groups of two or more nodes that all reach each other."""
    reached = {node: set(targets) for node, targets in arrows.items()}
    changed = True
    while changed:
        changed = False
        for targets in reached.values():
            more = set().union(*(reached[other] for other in targets)) - targets
            targets |= more
            changed |= bool(more)
    groups = {frozenset(other for other in reached[node] if node in reached[other]) for node in arrows}
    return [set(group) for group in groups if len(group) > 1]


def _docstring(node: ast.AST) -> ast.Expr | None:
    """The statement that is a node's docstring."""
    if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
        first = node.body[0]
        return first if isinstance(first, ast.Expr) else None
    return None


def _span(node: ast.stmt | None) -> range:
    """The numbers of a statement's lines."""
    return range(node.lineno, (node.end_lineno or node.lineno) + 1) if node else range(0)


if __name__ == "__main__":
    house = House(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
    for figure, value in house.figures().items():
        print(f"{figure:56} {value:>16}")
    for room, statements in sorted(house.statements_of_rooms().items()):
        print(f"statements of {room:42} {statements:>16,}")
