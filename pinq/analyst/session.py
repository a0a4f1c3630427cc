# SPDX-License-Identifier: Apache-2.0
"""``Session`` stands behind a handle: a curator in this process, or one behind a server.

``Through`` wraps another session and changes the way in which its queries are sent.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any, NoReturn, Protocol

from pinq.errors import QueryError
from pinq.language.queries import Act, Answer, Asked, Budget, Preview, Request
from pinq.public.schema import Cohorts, Schema


class Session(Protocol):
    """Answers one analyst's requests; the provider's side is behind it.

    Several threads may ask at once, as those of a ``Federation`` do.

    Attributes:
        name: The provider's name of the table.
        tables: The names of all tables under the same grant; empty for a dataset that is one.
        cohorts: The declaration of the table's cohorts; None for a table without any.
        account: The grant from which it spends: the same for two sessions of one analyst at one ledger.
        schema: The public columns.
    """

    name: str
    tables: tuple[str, ...]
    cohorts: Cohorts | None
    account: str
    schema: Schema

    def ask(self, request: Request) -> Answer:
        """Answers a request, and charges it."""

    def preview(self, request: Request) -> Preview:
        """Returns the cost of a request, for free."""

    def attempt(self, request: Request) -> None:
        """Raises ``BudgetExceeded``, and has it logged, where a request costs more than remains; charges nothing."""

    def budget(self, part: str = "") -> Budget:
        """Returns the analyst's budget as the ledger has it now."""

    def history(self, start: int = 0) -> list[Asked]:
        """Returns the analyst's own lines of the log, from one on."""

    def terms(self) -> str:
        """Returns the terms of the grant in words."""

    def close(self) -> None:
        """Frees its resources."""


Way = Callable[[Session, Request], Answer]
"""A function that sends a request to a session."""


class Closed:
    """The place of a closed session's connection; it refuses all but ``close``."""

    def __getattr__(self, _: str) -> NoReturn:
        error = QueryError("this handle is closed; open it again.")
        error.charged = Fraction(0)
        raise error

    def close(self) -> None:
        """Does nothing."""


class Through:
    """A session whose queries another function sends; all else is passed on unchanged.

    Args:
        session: The session behind it.
        way: A function that sends it a request.
    """

    def __init__(self, session: Session, way: Way) -> None:
        self._session, self.ask, self.schema = session, partial(way, session), session.schema

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


class Named(Through):
    """A session whose queries and attempts are sent as parts of one act.

    Args:
        session: The session behind it.
        act: The act.
    """

    def __init__(self, session: Session, act: Act) -> None:
        super().__init__(session, lambda inner, request: inner.ask(self._within(request)))
        self._act = act

    def attempt(self, request: Request) -> None:
        """Attempts the act under its name."""
        self._session.attempt(self._within(request))

    def _within(self, request: Request) -> Request:
        return request.model_copy(update={"act": self._act if request.act is None else request.act.within(self._act)})
