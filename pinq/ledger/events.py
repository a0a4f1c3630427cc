# SPDX-License-Identifier: Apache-2.0
"""What the log holds: one record for each kind of event, and how each is written down.

A record's meaning never changes; a new meaning is a new kind. A kind, or a field, that this
version does not know stops the ledger from opening: whoever skipped it might count too little as
spent. What the records mean together is in ``state.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import Any, ClassVar

from pinq.errors import BudgetExceeded, PinqError
from pinq.ledger.composition import CapRule, Demand
from pinq.ledger.signature import Signature
from pinq.ledger.terms import FREE, Terms
from pinq.public.epsilon import NANO, ZERO, Epsilon

__all__ = [
    "NOTHING",
    "Answered",
    "Charged",
    "Created",
    "Declared",
    "Event",
    "Extended",
    "Granted",
    "Question",
    "Record",
    "Refused",
    "Revoked",
    "SessionLogged",
    "TermsSet",
    "TokenSet",
    "UnknownEvent",
    "read",
]


class UnknownEvent(ValueError):
    """An event that this version cannot read; the text says why."""


@dataclass(frozen=True)
class Question:
    """What the log keeps of a request, by public facts; empty where it does not apply.

    Attributes:
        verb: What was asked for.
        session: For a computation among several parties: the session's digest.
        about: The question in words.
        question: Identifies the question, whatever its id.
        classes: For ``ClassCount``: the column whose values the answer counts through.
    """

    verb: str = ""
    session: str = ""
    about: str = ""
    question: str = ""
    classes: str = ""

    def to_body(self) -> dict[str, Any]:
        """As an event keeps it."""
        return {name: text for name, text in vars(self).items() if text}


NOTHING = Question()


@dataclass(frozen=True)
class Created:
    """The ledger was made: its dataset, and the salt of the rows' coins."""

    kind: ClassVar[str] = "created"
    dataset: str
    salt: str
    version: int = 1

    def to_body(self) -> dict[str, Any]:
        """As the log keeps it."""
        return {"version": self.version, "dataset": self.dataset, "salt": self.salt}

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> Created:
        """As the log kept it."""
        return cls(**body)


@dataclass(frozen=True)
class Declared:
    """The policy changed.

    Attributes:
        digest: Identifies the schema.
        cap: Over all analysts.
        schema: Its parts that are not defaults.
        cap_rule: How the cap counts. Ledgers from before there was a choice counted the union and
            did not say so.
    """

    kind: ClassVar[str] = "policy"
    digest: str
    cap: Epsilon
    schema: dict[str, Any]
    cap_rule: CapRule = "union"

    def to_body(self) -> dict[str, Any]:
        """As the log keeps it."""
        return {"digest": self.digest, "cap": self.cap.nano, "schema": self.schema, "cap_rule": self.cap_rule}

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> Declared:
        """As the log kept it."""
        return cls(**body | {"cap": Epsilon(body["cap"])})


@dataclass(frozen=True)
class Granted:
    """An analyst got a budget.

    Attributes:
        limit: The most that may be spent.
        expires: When it ends; None for never.
        terms: What it allows beside the budget.
        token: Digest of the bearer token; empty for none.
    """

    kind: ClassVar[str] = "grant"
    limit: Epsilon
    expires: datetime | None = None
    terms: Terms = FREE
    token: str = ""

    def to_body(self) -> dict[str, Any]:
        """As the log keeps it."""
        token = {"token": self.token} if self.token else {}
        return {"limit": self.limit.nano, "expires": _text(self.expires), **self.terms.to_body(), **token}

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> Granted:
        """As the log kept it."""
        terms = Terms.of(_without(body, "limit", "expires", "token"))
        return cls(Epsilon(body["limit"]), _moment(body["expires"]), terms, body.get("token", ""))


@dataclass(frozen=True)
class Extended:
    """A grant's limit was raised, its end moved where ``expires`` says so, or both."""

    kind: ClassVar[str] = "extend"
    more: Epsilon = ZERO
    expires: datetime | None = None

    def to_body(self) -> dict[str, Any]:
        """As the log keeps it."""
        return {"more": self.more.nano, "expires": _text(self.expires)}

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> Extended:
        """As the log kept it."""
        return cls(**body | {"more": Epsilon(body["more"]), "expires": _moment(body["expires"])})


@dataclass(frozen=True)
class TermsSet:
    """Other terms took the place of a grant's."""

    kind: ClassVar[str] = "terms"
    terms: Terms

    def to_body(self) -> dict[str, Any]:
        """As the log keeps it."""
        return self.terms.to_body()

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> TermsSet:
        """As the log kept it."""
        return cls(Terms.of(body))


@dataclass(frozen=True)
class TokenSet:
    """Another token (its digest) took the place of a grant's; the old one ended."""

    kind: ClassVar[str] = "token"
    token: str

    def to_body(self) -> dict[str, Any]:
        """As the log keeps it."""
        return {"token": self.token}

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> TokenSet:
        """As the log kept it."""
        return cls(**body)


@dataclass(frozen=True)
class Revoked:
    """A grant ended."""

    kind: ClassVar[str] = "revoke"

    def to_body(self) -> dict[str, Any]:
        """As the log keeps it."""
        return {}

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> Revoked:
        """As the log kept it."""
        return cls(**body)


@dataclass(frozen=True)
class Charged:
    """A request was charged: ``epsilon`` for each part of the demand. Nothing was read yet."""

    kind: ClassVar[str] = "charge"
    epsilon: Epsilon
    demand: Demand
    question: Question = NOTHING

    def to_body(self) -> dict[str, Any]:
        """As the log keeps it."""
        return {"epsilon": self.epsilon.nano, "demand": self.demand.dump(), **self.question.to_body()}

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> Charged:
        """As the log kept it."""
        return cls(
            Epsilon(body["epsilon"]), Demand.load(body["demand"]), Question(**_without(body, "epsilon", "demand"))
        )


@dataclass(frozen=True)
class Answered:
    """A charged request got its answer: ``payload`` is its SHA-256, the text is beside the log."""

    kind: ClassVar[str] = "answer"
    payload: str

    def to_body(self) -> dict[str, Any]:
        """As the log keeps it."""
        return {"payload": self.payload}

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> Answered:
        """As the log kept it."""
        return cls(**body)


@dataclass(frozen=True)
class Refused:
    """A request was refused.

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
    question: Question = NOTHING

    @classmethod
    def of(cls, error: PinqError, question: Question) -> Refused:
        """The record of an error."""
        if isinstance(error, BudgetExceeded):
            return cls(error.code, _nano(error.asked), _nano(error.remaining), error.scope, question)
        return cls(error.code, question=question)

    def to_body(self) -> dict[str, Any]:
        """As the log keeps it."""
        body: dict[str, Any] = {"reason": self.reason}
        if self.asked is not None and self.remaining is not None:
            body |= {"asked": self.asked.nano, "remaining": self.remaining.nano, "scope": self.scope}
        return body | self.question.to_body()

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> Refused:
        """As the log kept it."""
        asked, remaining = (Epsilon(body[name]) if name in body else None for name in ("asked", "remaining"))
        question = Question(**_without(body, "reason", "asked", "remaining", "scope"))
        return cls(body["reason"], asked, remaining, body.get("scope", ""), question)


@dataclass(frozen=True)
class SessionLogged:
    """A computation among several parties was logged.

    An exact one is logged before anything is shared, a charged one when it came to its end.
    """

    kind: ClassVar[str] = "secure"
    question: Question
    opens: tuple[str, ...] = ()

    def to_body(self) -> dict[str, Any]:
        """As the log keeps it."""
        return {**self.question.to_body(), "opens": list(self.opens)}

    @classmethod
    def from_body(cls, body: dict[str, Any]) -> SessionLogged:
        """As the log kept it."""
        return cls(Question(**_without(body, "opens")), tuple(body["opens"]))


Record = (
    Created
    | Declared
    | Granted
    | Extended
    | TermsSet
    | TokenSet
    | Revoked
    | Charged
    | Answered
    | Refused
    | SessionLogged
)

_READERS: dict[str, Callable[[dict[str, Any]], Record]] = {
    kind.kind: kind.from_body
    for kind in (
        Created,
        Declared,
        Granted,
        Extended,
        TermsSet,
        TokenSet,
        Revoked,
        Charged,
        Answered,
        Refused,
        SessionLogged,
    )
}


# What a provider does is signed; the log keeps by whom, and why, beside the act.
_SIGNED = {kind.kind for kind in (Declared, Granted, Extended, TermsSet, TokenSet, Revoked)}


def read(kind: str, body: dict[str, Any]) -> tuple[Record, Signature | None]:
    """Reads an event's record, and who signed it.

    Raises:
        UnknownEvent: A kind or field that this version lacks.
    """
    if kind not in _READERS:
        raise UnknownEvent(f"is of the kind {kind!r}")
    by = None
    if kind in _SIGNED and "by" in body:
        by, body = Signature(body["by"], body.get("because", "")), _without(body, "by", "because")
    try:
        return _READERS[kind](body), by
    except (KeyError, TypeError, ValueError) as error:
        raise UnknownEvent(f"of the kind {kind!r} has other fields ({error})") from None


@dataclass(frozen=True)
class Event:
    """One line of the log: a record, its place in the chain, and whom it concerns.

    Attributes:
        at: When, ISO 8601 in UTC, to the millisecond.
        analyst: Whom; empty where it concerns all.
        request: The request's id; empty where it is about none.
        hash: Of this line and the one before it.
        by: Who signed a provider's act; None for other events, and in logs from before acts were
            signed.
    """

    seq: int
    at: str
    analyst: str
    request: str
    record: Record
    hash: str
    by: Signature | None = None

    @property
    def kind(self) -> str:
        """The record's kind, as the log spells it."""
        return self.record.kind


def _without(body: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in names}


def _nano(loss: Fraction) -> Epsilon:
    return Epsilon(int(loss * NANO))  # exact: the loss was one


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
