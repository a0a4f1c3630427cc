# SPDX-License-Identifier: Apache-2.0
"""An analyst's requests, as the log keeps them: charged and answered, or refused."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar

from pinq.errors import BudgetExceeded, NotAuthorised, PinqError
from pinq.ledger.body import Body, loss_of, text_of, texts_of, whole_of, without
from pinq.ledger.composition import Demand
from pinq.public.epsilon import NANO, Epsilon

__all__ = ["NOTHING", "Answered", "Charged", "LoggedQuestion", "Refused", "SessionLogged"]


@dataclass(frozen=True)
class LoggedQuestion:
    """What the log keeps of a request, by public facts; empty where it does not apply.

    Attributes:
        verb: What was asked for.
        session: For a computation among several parties: the session's digest.
        about: The question in words.
        question: Identifies the question, whatever its id.
        classes: For ``ClassCount``: the column whose values the answer counts through.
        stored: Bytes that the charge and its answer take at most; 0 in older logs.
    """

    verb: str = ""
    session: str = ""
    about: str = ""
    question: str = ""
    classes: str = ""
    stored: int = 0

    def to_body(self) -> Body:
        """Writes it down as part of a record."""
        return {name: fact for name, fact in vars(self).items() if fact}

    @classmethod
    def from_body(cls, body: Body) -> LoggedQuestion:
        """Reads it back from what a record has beside its own fields."""
        question = cls(**body)
        whole_of(question.stored)
        for fact in (question.verb, question.session, question.about, question.question, question.classes):
            text_of(fact)
        return question


NOTHING = LoggedQuestion()


@dataclass(frozen=True)
class Charged:
    """A request was charged: ``epsilon`` for each part of the demand. Nothing was read yet."""

    kind: ClassVar[str] = "charge"
    epsilon: Epsilon
    demand: Demand
    question: LoggedQuestion = NOTHING

    def to_body(self) -> Body:
        """Writes the record down as JSON."""
        return {"epsilon": self.epsilon.nano, "demand": self.demand.dump(), **self.question.to_body()}

    def reserving(self, more: int) -> Charged:
        """The same, noting the bytes that it takes and so many more."""
        return replace(self, question=replace(self.question, stored=len(json.dumps(self.to_body())) + more))

    @classmethod
    def from_body(cls, body: Body) -> Charged:
        """Reads the record back."""
        question = LoggedQuestion.from_body(without(body, "epsilon", "demand"))
        return cls(loss_of(body["epsilon"]), Demand.load(body["demand"]), question)


@dataclass(frozen=True)
class Answered:
    """A charged request got its answer: ``payload`` is its SHA-256, the text is beside the log."""

    kind: ClassVar[str] = "answer"
    payload: str

    def to_body(self) -> Body:
        """Writes the record down as JSON."""
        return {"payload": self.payload}

    @classmethod
    def from_body(cls, body: Body) -> Answered:
        """Reads the record back."""
        record = cls(**body)
        text_of(record.payload)
        return record


@dataclass(frozen=True)
class Refused:
    """A request was refused: for want of a grant or of budget, or by the grant's terms.

    Errors that are found earlier (``QueryError``) are not logged.

    Attributes:
        reason: The error's code.
        asked, remaining, scope: For want of budget: what it would have cost, what was left, and
            of whose limit.
        question: What was asked; nothing where the analyst had no grant.
    """

    kind: ClassVar[str] = "refusal"
    reason: str
    asked: Epsilon | None = None
    remaining: Epsilon | None = None
    scope: str = ""
    question: LoggedQuestion = NOTHING

    @classmethod
    def of(cls, error: PinqError, question: LoggedQuestion) -> Refused:
        """The record of an error; it keeps no question of somebody without a grant."""
        match error:
            case BudgetExceeded():
                return cls(error.code, _nano(error.asked), _nano(error.remaining), error.scope, question)
            case NotAuthorised():
                return cls(error.code)
        return cls(error.code, question=question)

    def to_body(self) -> Body:
        """Writes the record down as JSON."""
        body: Body = {"reason": self.reason}
        if self.asked is not None and self.remaining is not None:
            body |= {"asked": self.asked.nano, "remaining": self.remaining.nano, "scope": self.scope}
        return body | self.question.to_body()

    @classmethod
    def from_body(cls, body: Body) -> Refused:
        """Reads the record back."""
        asked, remaining = (loss_of(body[name]) if name in body else None for name in ("asked", "remaining"))
        question = LoggedQuestion.from_body(without(body, "reason", "asked", "remaining", "scope"))
        return cls(text_of(body["reason"]), asked, remaining, text_of(body.get("scope", "")), question)


@dataclass(frozen=True)
class SessionLogged:
    """A computation among several parties was logged.

    An exact one is logged before anything is shared, a charged one when it came to its end.
    """

    kind: ClassVar[str] = "secure"
    question: LoggedQuestion
    opens: tuple[str, ...] = ()

    def to_body(self) -> Body:
        """Writes the record down as JSON."""
        return {**self.question.to_body(), "opens": list(self.opens)}

    @classmethod
    def from_body(cls, body: Body) -> SessionLogged:
        """Reads the record back."""
        return cls(LoggedQuestion.from_body(without(body, "opens")), texts_of(body["opens"]))


def _nano(loss: Fraction) -> Epsilon:
    return Epsilon(int(loss * NANO))  # exact: the loss was one
