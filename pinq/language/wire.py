# SPDX-License-Identifier: Apache-2.0
"""The protocol of server and client beside requests and answers: version, headers, errors.

All errors have one JSON shape, from which the client raises the same error.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pinq import errors
from pinq.errors import (
    BudgetExceeded,
    EngineError,
    InternalError,
    LedgerError,
    NotAllowed,
    NotAuthorised,
    PinqError,
    QueryError,
    TooManyRequests,
    Unavailable,
)
from pinq.language.queries import Asked, Budget, Preview
from pinq.public.epsilon import NANO, Epsilon, Exact
from pinq.public.schema import Cohorts, Schema

PROTOCOL = "1"
PROTOCOL_HEADER = "Pinq-Protocol"  # both sides name the version they speak
REVISION = 5  # of that protocol; a later one may leave out what the other side cannot read
REVISION_HEADER = "Pinq-Revision"
CHANGED = "the data provider changed the policy since this handle was opened; connect again."
SCHEMA_HEADER = "Pinq-Schema"  # the client names the schema it knows, so that "part 1" means one thing on both sides

STATUSES: dict[type[PinqError], int] = {
    QueryError: 400,
    NotAuthorised: 401,
    BudgetExceeded: 402,
    NotAllowed: 403,
    TooManyRequests: 429,
    EngineError: 500,
    InternalError: 500,
    LedgerError: 503,
    Unavailable: 503,
}

_CODES: dict[str, type[PinqError]] = {kind.code: kind for kind in (getattr(errors, name) for name in errors.__all__)}


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer server may say more


class Failure(_Wire):
    """Every error, on the wire.

    Attributes:
        code: The stable name of the class.
        message: The fault, the allowed values, and the next step.
        asked, remaining, scope: With ``budget``.
        retry_after: With ``too-many-requests``: seconds.
        parameter, problem, allowed: With ``query``, the message's parts if a parameter is wrong.
    """

    code: str = Field(examples=["budget"])
    message: str
    asked: str | None = None
    remaining: str | None = None
    scope: str | None = None
    retry_after: float | None = None
    parameter: str | None = None
    problem: str | None = None
    allowed: str | None = None

    @classmethod
    def of(cls, error: PinqError) -> Failure:
        facts = {name: _text(fact) if isinstance(fact, Fraction) else fact for name, fact in error.facts.items()}
        return cls.model_validate({"code": error.code, "message": str(error), **facts})

    def error(self) -> PinqError:
        error = self._error(_CODES.get(self.code, PinqError))
        if self.message.endswith(errors.UNSPENT):
            error.charged = Fraction(0)
        return error

    def _error(self, kind: type[PinqError]) -> PinqError:
        match kind.code:
            case BudgetExceeded.code:
                asked, remaining = Fraction(self.asked or 0), Fraction(self.remaining or 0)
                return BudgetExceeded(self.message, asked=asked, remaining=remaining, scope=self.scope or "")
            case TooManyRequests.code:
                return TooManyRequests(self.message, self.retry_after or 1.0)
            case QueryError.code:
                return QueryError(self.problem or self.message, parameter=self.parameter, allowed=self.allowed or "")
        error = kind.__new__(kind)
        error.args = (self.message,)
        return error


class Description(_Wire):
    """The facts about a dataset for the owner of a token.

    Attributes:
        columns: The public schema, with its digest.
        terms: The terms of the grant in addition to its budget, in words.
        tables: The names of all tables under the same grant; None for a dataset of one table.
        cohorts: The declaration of the table's cohorts; None for a table without any.
    """

    dataset: str
    analyst: str
    columns: Schema = Field(alias="schema")
    digest: str
    terms: str
    tables: tuple[str, ...] | None = None
    cohorts: Cohorts | None = None


class WireBudget(_Wire):
    """A budget in decimal text, the sentence about earlier versions of the rows, and the bytes that are left."""

    epsilon: str
    spent: str
    remaining: str
    replaced: str | None = None
    room: int | None = None

    @classmethod
    def of(cls, budget: Budget) -> WireBudget:
        losses = {name: _text(getattr(budget, name)) for name in ("epsilon", "spent", "remaining")}
        return cls(**losses, replaced=budget.replaced or None, room=budget.room)

    def budget(self) -> Budget:
        return Budget(Exact(self.epsilon), Exact(self.spent), Exact(self.remaining), self.replaced or "", self.room)


class WirePreview(_Wire):
    """The cost of a request; losses are decimal text."""

    cost: str
    remaining: str
    error: str
    scale: float | None = None

    @classmethod
    def of(cls, preview: Preview) -> WirePreview:
        return cls(
            cost=_text(preview.cost), remaining=_text(preview.remaining), error=preview.error, scale=preview.scale
        )

    def preview(self) -> Preview:
        return Preview(Exact(self.cost), Exact(self.remaining), self.error, self.scale)


class HistoryPage(_Wire):
    """A page of an analyst's own lines of the log.

    Attributes:
        lines: Oldest first.
        more: Whether others follow: the next page starts with ``start``, the number of lines so far.
    """

    lines: tuple[Asked, ...]
    more: bool = False


class Health(_Wire):
    """The server answers."""

    status: Literal["ok"] = "ok"
    protocols: tuple[str, ...] = (PROTOCOL,)
    version: str


def status_of(error: PinqError) -> int:
    """The HTTP status of an error."""
    return next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), 500)


def _text(loss: Fraction) -> str:
    return str(Epsilon(math.ceil(loss * NANO)))
