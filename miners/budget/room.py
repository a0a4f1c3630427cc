# SPDX-License-Identifier: Apache-2.0
"""The bytes that a ledger keeps of a fit's queries, before the first is sent; and a handle that has a schema only.

A grant allows a number of bytes in its ledger. A fit that needs more is refused before it costs anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from pinq.analyst.queryable import PrivateQueryable
from pinq.analyst.session import Session
from pinq.errors import NotAllowed
from pinq.language.queries import NUMBER_BYTES, PART_BYTES, QUERY_BYTES, Budget, Preview, Request
from pinq.language.scores import MAX_DEPTH
from pinq.public.schema import Schema


@dataclass(frozen=True)
class Storage:
    """The largest number of bytes that a ledger keeps of a fit.

    Attributes:
        fixed: The bytes of queries that do not depend on the parameter.
        each: The bytes of further queries for each unit of the parameter.
        parameter: The parameter of which more units are more queries; empty for none.
        number: Its value.
    """

    fixed: int = 0
    each: int = 0
    parameter: str = ""
    number: int = 0

    def require(self, room: int | None) -> None:
        """Raises ``NotAllowed`` if a ledger with so many bytes left might refuse a later query of the fit."""
        needed = self.fixed + self.each * self.number
        if room is None or needed <= room:
            return
        most = (room - self.fixed) // self.each if self.each else 0
        largest = f"the largest `{self.parameter}` that fits is {most:,}" if most > 0 else "take fewer columns"
        raise NotAllowed(
            f"the ledger might have to keep {needed:,} bytes of this fit, and the grant has {room:,} left; {largest}, "
            "or let the data provider change the terms (pinq terms)."
        )


def bytes_of(numbers: int, queries: int = 1) -> int:
    """The largest number of bytes that a ledger keeps of queries with so many numbers in all, of parts at any depth."""
    return queries * (QUERY_BYTES + PART_BYTES * (MAX_DEPTH + 4)) + numbers * NUMBER_BYTES


class _PublicSession:
    """A session that knows only a schema: it previews what the schema allows, and answers nothing."""

    def __init__(self, schema: Schema) -> None:
        self.schema, self.name, self.account, self.tables, self.cohorts = schema, "public", "public", (), None

    def preview(self, request: Request) -> Preview:
        """Raises ``QueryError`` if the schema does not allow the request."""
        request.query.check_for(request.parts.bind(self.schema), self.schema)
        return Preview(Fraction(0), Fraction(0), "")

    def budget(self, _: str = "") -> Budget:
        """A budget of 0."""
        return Budget(Fraction(0), Fraction(0), Fraction(0))


def public_handle(schema: Schema) -> PrivateQueryable:
    """Returns a handle for rehearsals and previews by public facts alone."""
    return PrivateQueryable(cast(Session, _PublicSession(schema)))
