# SPDX-License-Identifier: Apache-2.0
"""Two rules of grammar for docstrings: an entry begins with a noun, and the subject of a sentence is no clause.

``parts: The parts that the query is about.`` is read once; ``parts: Whom it asks.`` is read twice. So is "What the
ledger cannot read stops it", whose subject is a clause. Questions may begin with their question word.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

RELATIVE = r"what|who|whom|whose|which|how|why|where|when|whatever|whoever|whomever|whichever|wherever|whenever"
# A preposition before a relative pronoun ("Under which", "To how many") begins the same clause.
PREPOSITION = r"about|among|as|at|between|by|for|from|in|into|of|on|over|since|through|to|under|until|upon|with|within"
CLAUSE = re.compile(rf"(?:(?:{PREPOSITION}) )?(?:{RELATIVE}|those|that)\b", re.IGNORECASE)
# "Where a column is public, ..." and "When it ends, ..." stand before a subject, so a sentence may begin with them.
SUBJECT = re.compile(
    rf"(?:(?:{PREPOSITION}) )?(?:what|who|whom|whose|which|how|why|whatever|whoever|whomever|whichever)\b(?![:,])"
    r"|(?:those|that|he) (?:who|which|that)\b",
    re.IGNORECASE,
)
# Before an article or a pronoun stands a verb ("Keys the hashes") or a preposition ("As the table has it"), never a noun.
VERB = re.compile(
    rf"(?!(?:{PREPOSITION}|all|both|half|only|whether|without)\b)[\w`']+ (?:an?|the|it|its|them|this|nothing|what|how)\b"
    r"|(?:called|does|has|is|see|was)\b",
    re.IGNORECASE,
)
SECTIONS = re.compile(r"^(?:Args|Attributes):\n((?:[ ]{4}.*\n?|\n)+)", re.MULTILINE)
ENTRY = re.compile(r"^ {4}[\w*, `]+: (.*(?:\n {5,}.*)*)", re.MULTILINE)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def faults(text: str) -> Iterator[str]:
    """Yields the entries and sentences of one docstring that break a rule, each by its beginning."""
    entries = [_sentences(entry) for section in SECTIONS.findall(text) for entry in ENTRY.findall(section)]
    yield from (f"entry: {first[:60]}" for first, *_ in entries if CLAUSE.match(first))
    prose = SECTIONS.sub("", re.sub(r"^ *(>>>|\.\.\.).*(\n.*\S.*)*", "", text, flags=re.MULTILINE))
    for sentence in [*_sentences(prose), *(later for _, *rest in entries for later in rest)]:
        if SUBJECT.match(sentence) and not sentence.endswith("?"):
            yield f"sentence: {sentence[:60]}"


def verbs(text: str) -> Iterator[str]:
    """Yields the entries of one docstring that begin with a verb."""
    entries = (_sentences(entry)[0] for section in SECTIONS.findall(text) for entry in ENTRY.findall(section))
    yield from (f"verb: {entry[:60]}" for entry in entries if VERB.match(entry))


def faults_of(nodes: list[ast.AST]) -> list[str]:
    """Returns the faults in all docstrings of a module."""
    return [fault for docstring in docstrings_of(nodes) for fault in faults(docstring)]


def docstrings_of(nodes: list[ast.AST]) -> list[str]:
    """Returns all docstrings of a module; empty texts where there are none."""
    return [ast.get_docstring(node) or "" for node in nodes if isinstance(node, DOCUMENTED)]


def _sentences(text: str) -> list[str]:
    paragraphs = [" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n|\n *(?=- )|^ *\w+: ", text)]
    return [
        sentence for paragraph in paragraphs for sentence in re.split(r"(?<=[.!?;]) ", paragraph.removeprefix("- "))
    ]
