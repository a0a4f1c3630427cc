# SPDX-License-Identifier: Apache-2.0
"""The shape of the house: a file is one idea, files stand on each other without a circle, functions are short.

Docstrings are read once: an entry begins with a noun, and the subject of a sentence is no clause.
"""

from __future__ import annotations

import ast

import pytest

from pinq.engine.opening import READERS
from tests.figures import House, circles
from tests.support.house.checkout import ROOT
from tests.support.house.grammar import docstrings_of, faults, faults_of, verbs

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


def test_docstrings_have_no_faults_of_grammar(house: House) -> None:
    """In any room."""
    modules = house.modules.values()
    assert [f"{module.path}: {fault}" for module in modules for fault in faults_of(module.nodes)] == []
    texts = ((module.path, text) for module in modules for text in docstrings_of(module.nodes))
    assert [f"{path}: {fault}" for path, text in texts for fault in verbs(text)] == []


def test_no_two_names_of_a_module_have_one_docstring(house: House) -> None:
    """Else one of them describes the other, as an edit by a script once left a function with its class's."""
    shared = []
    for module in house.modules.values():
        names: dict[str, set[str]] = {}
        for node in module.nodes:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                names.setdefault(ast.get_docstring(node) or "", set()).add(node.name)
        shared += [f"{module.path}: {sorted(same)}" for text, same in names.items() if text and len(same) > 1]
    assert shared == []


def test_docstrings_of_benchmarks_and_of_tests_helpers_have_no_faults_of_grammar() -> None:
    """And in all other tests every entry begins with a noun."""
    found = set()
    for file in (*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "tests").rglob("*.py")):
        name = file.relative_to(ROOT).as_posix()
        is_helper = name.startswith(("benchmarks/", "tests/support/"))
        for text in docstrings_of(list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))):
            found |= {(name, fault) for fault in (*faults(text), *verbs(text)) if is_helper or "sentence" not in fault}
    assert not found


OURS = ("pinq", "pinq_workbench", "pinq_demo")
# These say how a value came, not what it holds. Requests, the log and reports have three of them as their own words.
NO_NOUNS = {
    "asked",
    "found",
    "given",
    "kept",
    "known",
    "listed",
    "most",
    "own",
    "said",
    "seen",
    "told",
    "wanted",
    "what",
}
WORDS_OF_ANSWERS = {("BudgetExceeded", "asked"), ("CheckReport", "asked"), ("AuditLine", "asked")}
WORDS_OF_ANSWERS |= {(name, "asked") for name in ("Demand", "Failure", "Refused", "WireParts")}


def test_parameters_and_attributes_are_nouns(house: House) -> None:
    """Of functions and dataclasses of pinq and its pages."""
    found = set()
    for name, module in house.modules.items():
        if name.partition(".")[0] in OURS:
            for node in module.nodes:
                if isinstance(node, ast.ClassDef):
                    attributes = (line.target for line in node.body if isinstance(line, ast.AnnAssign))
                    found |= {(node.name, target.id) for target in attributes if isinstance(target, ast.Name)}
                    initial = [line for line in node.body if getattr(line, "name", "") == "__init__"]
                    found |= {
                        (node.name, one.arg) for line in initial for one in ast.walk(line) if isinstance(one, ast.arg)
                    }
                elif isinstance(node, ast.FunctionDef) and node.name != "__init__":
                    found |= {(node.name, one.arg) for one in ast.walk(node.args) if isinstance(one, ast.arg)}
    assert {(owner, name) for owner, name in found if name in NO_NOUNS} == WORDS_OF_ANSWERS


def test_kept_codes_follow_all_code_that_reads_rows(house: House) -> None:
    """A change of any module below the encoder makes the codes of a source anew."""
    arrows, below, waiting = (
        house.arrows(),
        set[str](),
        ["pinq.engine.encoding", "pinq.engine.sources", "pinq.engine.codes"],
    )
    while waiting:
        name = waiting.pop()
        waiting += arrows[name] - below
        below.add(name)
    assert {name.split(".")[1] for name in below} == {*READERS, "errors"}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("Args:\n    parts: The parts that the query is about.\n    each: Whether each part chooses.", 0),
        ("Args:\n    parts: Whom it asks.\n    epsilon: To how many it is charged.\n    rows: Those of the table.", 3),
        ("Attributes:\n    where: Address, by which\n        it is found. What is not there is empty.", 1),
        ("Counts rows. What is left goes to the leaf; whoever asks pays. How many rows has a part?", 2),
        ("Counts.\n\nPrivacy:\n    Claim: free.\n    Why: it reads a schema. Where nothing is known, it is empty.", 0),
        ("Adds.\n\nExamples:\n    >>> add(1)\n    what is added", 0),
    ],
)
def test_faults_of_grammar_are_found(text: str, number: int) -> None:
    """In entries and in sentences; questions, labels and the output of examples are none."""
    assert len(list(faults(text))) == number


@pytest.mark.parametrize(
    ("entry", "is_verb"),
    [
        ("Keys the hashes.", True),
        ("Called before each step.", True),
        ("Is read.", True),
        ("Use the stored answers.", True),
        ("The key of the hashes.", False),
        ("For each part, the rows.", False),
        ("As the table has it.", False),
        ("Rows of the table.", False),
        ("Whether it is read.", False),
    ],
)
def test_entries_that_begin_with_a_verb_are_found(entry: str, is_verb: bool) -> None:
    """Third persons, imperatives and participles."""
    assert bool(list(verbs(f"Adds.\n\nArgs:\n    salt: {entry}"))) == is_verb
