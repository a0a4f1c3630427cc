# SPDX-License-Identifier: Apache-2.0
"""A provider's acts, as the log keeps them: ledger, policy, and the grants."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from pinq.ledger.body import Body, loss_of, moment_of, text_of, text_of_moment, without
from pinq.ledger.composition import CAP_RULES, CapRule
from pinq.ledger.terms import FREE, Terms
from pinq.public.epsilon import ZERO, Epsilon

__all__ = ["Created", "Declared", "Extended", "Granted", "Revoked", "TermsSet", "TokenSet"]


@dataclass(frozen=True)
class Created:
    """The ledger was made: its dataset, and the salt of the rows' coins."""

    kind: ClassVar[str] = "created"
    dataset: str
    salt: str
    version: int = 1

    def to_body(self) -> Body:
        """Writes the record down as JSON."""
        return {"version": self.version, "dataset": self.dataset, "salt": self.salt}

    @classmethod
    def from_body(cls, body: Body) -> Created:
        """Reads the record back."""
        created = cls(**body)
        text_of(created.dataset)
        bytes.fromhex(text_of(created.salt))
        return created


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
    schema: Body
    cap_rule: CapRule = "union"

    def to_body(self) -> Body:
        """Writes the record down as JSON."""
        return {"digest": self.digest, "cap": self.cap.nano, "schema": self.schema, "cap_rule": self.cap_rule}

    @classmethod
    def from_body(cls, body: Body) -> Declared:
        """Reads the record back."""
        declared = cls(**body | {"cap": loss_of(body["cap"]), "schema": dict(body["schema"])})
        text_of(declared.digest)
        if text_of(declared.cap_rule) not in CAP_RULES:
            raise ValueError(f"{declared.cap_rule!r} is no rule of a cap")
        return declared


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

    def to_body(self) -> Body:
        """Writes the record down as JSON."""
        token = {"token": self.token} if self.token else {}
        return {"limit": self.limit.nano, "expires": text_of_moment(self.expires), **self.terms.to_body(), **token}

    @classmethod
    def from_body(cls, body: Body) -> Granted:
        """Reads the record back."""
        terms = Terms.of(without(body, "limit", "expires", "token"))
        return cls(loss_of(body["limit"]), moment_of(body["expires"]), terms, text_of(body.get("token", "")))


@dataclass(frozen=True)
class Extended:
    """A grant's limit was raised, its end moved where ``expires`` says so, or both."""

    kind: ClassVar[str] = "extend"
    more: Epsilon = ZERO
    expires: datetime | None = None

    def to_body(self) -> Body:
        """Writes the record down as JSON."""
        return {"more": self.more.nano, "expires": text_of_moment(self.expires)}

    @classmethod
    def from_body(cls, body: Body) -> Extended:
        """Reads the record back."""
        return cls(**body | {"more": loss_of(body["more"]), "expires": moment_of(body["expires"])})


@dataclass(frozen=True)
class TermsSet:
    """Other terms took the place of a grant's."""

    kind: ClassVar[str] = "terms"
    terms: Terms

    def to_body(self) -> Body:
        """Writes the record down as JSON."""
        return self.terms.to_body()

    @classmethod
    def from_body(cls, body: Body) -> TermsSet:
        """Reads the record back."""
        return cls(Terms.of(body))


@dataclass(frozen=True)
class TokenSet:
    """Another token (its digest) took the place of a grant's; the old one ended."""

    kind: ClassVar[str] = "token"
    token: str

    def to_body(self) -> Body:
        """Writes the record down as JSON."""
        return {"token": self.token}

    @classmethod
    def from_body(cls, body: Body) -> TokenSet:
        """Reads the record back."""
        record = cls(**body)
        text_of(record.token)
        return record


@dataclass(frozen=True)
class Revoked:
    """A grant ended."""

    kind: ClassVar[str] = "revoke"

    def to_body(self) -> Body:
        """Writes the record down as JSON."""
        return {}

    @classmethod
    def from_body(cls, body: Body) -> Revoked:
        """Reads the record back."""
        return cls(**body)
