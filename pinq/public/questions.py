# SPDX-License-Identifier: Apache-2.0
"""What can be asked of parts: seven questions, each a frozen value with the fields it reads.

An analyst writes five verbs. ``noisy_sum`` is two questions, told apart by what it adds up: a
column, or derivatives. ``exp_mech`` is three, told apart by its score: a choice among candidates, a
vote for a class (``ClassCount``), and how far down a tree its parts are large enough
(``EnoughRows``). How a question is answered is the curator's affair (``pinq/curator/verbs``).

A new question is a class here and an entry of ``_BY_VERB``, ``_BY_SUMMAND`` or ``_BY_SCORE``, and
the file that prepares it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from pinq.errors import QueryError
from pinq.public.derivatives import AnyDerivatives, Logistic, Residuals, Softmax
from pinq.public.schema import Schema
from pinq.public.scores import ClassCount, EnoughRows, Score
from pinq.public.specs import Candidate, Spec, bind

__all__ = [
    "UNSAID",
    "Average",
    "ChoiceQuestion",
    "Choose",
    "Count",
    "Question",
    "Stop",
    "Sum",
    "SumDerivatives",
    "Vote",
    "question_of",
]


MAX_BY = 4096


class Question(ABC):
    """One of the seven.

    Attributes:
        task: What it does, for errors.
    """

    task: ClassVar[str]

    @abstractmethod
    def columns(self) -> set[str]:
        """The columns that it names."""

    def facts(self) -> dict[str, str]:
        """What the log keeps beside the text that identifies the question."""
        return {}

    def check(self, schema: Schema) -> None:
        """``QueryError`` where what it adds up is not there. The curator checks candidates."""
        return

    def shape(self, schema: Schema) -> tuple[int, ...]:
        """How a part's own answer is arranged: one number, unless the question says otherwise."""
        return ()


class ChoiceQuestion(Question):
    """A question that is answered by choices."""

    @abstractmethod
    def read(self, values: Sequence[float], chosen: Sequence[Spec], schema: Schema) -> Sequence[object]:
        """The choices that an answer's numbers stand for."""


@dataclass(frozen=True)
class Count(Question):
    """How many rows has each part?"""

    task = "`noisy_count` counts rows"

    def columns(self) -> set[str]:
        """None."""
        return set()


@dataclass(frozen=True)
class _OfNumbers(Question):
    """A question about a numeric column."""

    column: str

    def columns(self) -> set[str]:
        """The column."""
        return {self.column}

    def check(self, schema: Schema) -> None:
        """``QueryError`` unless the column is numeric."""
        schema.numeric(self.column)


@dataclass(frozen=True)
class Sum(_OfNumbers):
    """What do a column's values add up to in each part?"""

    task = "`noisy_sum` adds up a column"

    def check(self, schema: Schema) -> None:
        """``QueryError`` unless the column's numbers have a sum."""
        schema.addable(self.column)


@dataclass(frozen=True)
class SumDerivatives(Question):
    """What do the derivatives of the rows' losses add up to in each part?

    Or in each cell of some specs within it.

    Attributes:
        column: The loss.
        by: The specs; all of their cells share epsilon.
    """

    task = "`noisy_sum` of derivatives adds up vectors"

    column: AnyDerivatives
    by: tuple[Spec, ...] | None = None

    def __post_init__(self) -> None:
        if self.by == ():
            raise QueryError("is empty; name a spec, or leave it out for one sum for each part.", parameter="by")
        if self.by is not None and len(self.by) > MAX_BY:
            raise QueryError(f"has {len(self.by):,} specs", parameter="by", allowed=f"at most {MAX_BY:,} of them")

    def columns(self) -> set[str]:
        """Those of the loss and of all specs."""
        return self.column.columns().union(*(spec.columns() for spec in self.by or ()))

    def check(self, schema: Schema) -> None:
        """``QueryError`` unless the loss fits the schema."""
        self.column.check(schema)

    def shape(self, schema: Schema) -> tuple[int, ...]:
        """A vector, or one for each part of each spec."""
        width = (self.column.width(schema),)
        return width if self.by is None else (sum(bind(spec, schema).size for spec in self.by), *width)


@dataclass(frozen=True)
class Average(_OfNumbers):
    """What is the average of a column in each part?"""

    task = "`noisy_avg` averages a column"


@dataclass(frozen=True)
class Choose(ChoiceQuestion):
    """Which candidate is best for each part?

    Attributes:
        score: By which quality.
        candidates: The distinct lists of candidates.
        which: Which list each part chooses from; a single entry is for all.
        textbook: Select as papers do.
        each: Choose a member of every candidate instead of one candidate.
    """

    task = "`exp_mech` chooses among candidates"

    score: Score
    candidates: tuple[tuple[Candidate, ...], ...]
    which: tuple[int, ...] = (0,)
    textbook: bool = False
    each: bool | None = None

    def columns(self) -> set[str]:
        """Those of the score and of all candidates."""
        return self.score.columns().union(*(candidate.columns() for listed in self.candidates for candidate in listed))

    def read(self, values: Sequence[float], chosen: Sequence[Spec], schema: Schema) -> Sequence[object]:
        """The chosen specs; None where a part had nothing to choose from."""
        return [None if number < 0 else chosen[int(number)] for number in values]


@dataclass(frozen=True)
class Vote(ChoiceQuestion):
    """Which value of a column do most rows of each part have?"""

    task = "ClassCount chooses among the values of its own column"

    score: ClassCount
    textbook: bool = False

    def columns(self) -> set[str]:
        """The column."""
        return self.score.columns()

    def facts(self) -> dict[str, str]:
        """Through which column the answer's numbers are read."""
        return {"classes": self.score.target}

    def read(self, values: Sequence[float], chosen: Sequence[Spec], schema: Schema) -> Sequence[object]:
        """The chosen values."""
        labels = schema.categorical(self.score.target).labels
        return [labels[int(code)] for code in values]


@dataclass(frozen=True)
class Stop(ChoiceQuestion):
    """How many splits above each leaf of grown trees have rows enough?"""

    task = "EnoughRows tests the leaves of trees"

    score: EnoughRows

    def columns(self) -> set[str]:
        """None: it counts rows."""
        return self.score.columns()

    def read(self, values: Sequence[float], chosen: Sequence[Spec], schema: Schema) -> Sequence[object]:
        """Numbers of splits."""
        return [int(kept) for kept in values]


_BY_VERB: dict[str, type[Question]] = {"noisy_count": Count, "noisy_sum": Sum, "noisy_avg": Average}
_BY_SUMMAND: dict[type, type[Question]] = dict.fromkeys((Logistic, Softmax, Residuals), SumDerivatives)
_BY_SCORE: dict[type, type[Question]] = {ClassCount: Vote, EnoughRows: Stop}
UNSAID = {"column": None, "by": None, "score": None, "candidates": (), "which": (0,), "textbook": False, "each": None}
"""The fields by which requests differ, each with the value that says nothing."""


def question_of(verb: str, given: Mapping[str, Any]) -> Question:
    """The question that a request asks.

    Args:
        verb: Of the request.
        given: A value for each name in ``UNSAID``.

    Raises:
        QueryError: The request says something that the question does not read, or does not say what
            it needs.
    """
    kind = _BY_VERB.get(verb) or _BY_SCORE.get(type(given["score"]), Choose)
    if kind is Sum:
        kind = _BY_SUMMAND.get(type(given["column"]), Sum)
    reads = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    for name, nothing in UNSAID.items():
        if name not in reads and given[name] != nothing:
            raise QueryError(f"{kind.task}; it takes no `{name}`.")
        if name in reads & {"column", "score"} and given[name] is None:
            raise QueryError(f"{kind.task}; it needs a `{name}`.")
    return kind(**{name: given[name] for name in reads})
