# SPDX-License-Identifier: Apache-2.0
"""``Session`` is what stands behind a handle: a curator in this process, or one behind a server.

``Forwarding`` stands before another session, for those that change one thing of it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NoReturn, Protocol

from pinq.errors import QueryError
from pinq.public.queries import Answer, Asked, Budget, Preview, Request
from pinq.public.schema import Schema

__all__ = ["Closed", "Forwarding", "Session"]


class Session(Protocol):
    """Answers one analyst's requests; the wall lies behind it."""

    name: str
    schema: Schema

    def ask(self, request: Request) -> Answer:
        """Answers a request, and charges it."""

    def preview(self, request: Request) -> Preview:
        """Says what a request would cost, at no cost."""

    def budget(self) -> Budget:
        """Returns the analyst's budget as the ledger has it now."""

    def history(self, start: int = 0) -> list[Asked]:
        """Returns the analyst's own lines of the log, from one on."""

    def terms(self) -> str:
        """Says what the grant allows beside the budget."""

    def close(self) -> None:
        """Frees what it holds."""


class Closed:
    """Stands where a session had its way to the data, once it is closed; it refuses all but that."""

    def __getattr__(self, _: str) -> NoReturn:
        error = QueryError("this handle is closed; open it again.")
        error.charged = Fraction(0)
        raise error

    def close(self) -> None:
        """It is."""


class Forwarding:
    """A session that passes everything on.

    Args:
        session: Who answers.
    """

    name: str
    schema: Schema

    def __init__(self, session: Session) -> None:
        self.name, self.schema, self._session = session.name, session.schema, session

    def ask(self, request: Request) -> Answer:
        """Passes a request on."""
        return self._session.ask(request)

    def preview(self, request: Request) -> Preview:
        """Says what a request would cost, at no cost."""
        return self._session.preview(request)

    def budget(self) -> Budget:
        """Returns the analyst's budget as the ledger has it now."""
        return self._session.budget()

    def history(self, start: int = 0) -> list[Asked]:
        """Returns the analyst's own lines of the log, from one on."""
        return self._session.history(start)

    def terms(self) -> str:
        """Says what the grant allows beside the budget."""
        return self._session.terms()

    def close(self) -> None:
        """Frees what the session holds."""
        self._session.close()
