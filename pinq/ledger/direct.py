# SPDX-License-Identifier: Apache-2.0
"""``Direct``: the connection that a log keeps for itself, and the statements of every charge on it.

SQLAlchemy makes the connection and is then passed by: to pass its layers takes three times as long
as the statements take. Whatever is asked more rarely goes through them, on the same connection and
in the same transaction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import sqlalchemy as sa

from pinq.ledger.tables import EventRow

__all__ = ["Direct"]


class Direct(ABC):
    """A kept connection, for one thread at a time.

    Args:
        connection: Out of the pool, for good.

    Attributes:
        connection: For other statements, within the same transaction.
    """

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection

    def watched(self, seconds: float) -> AbstractContextManager[None]:
        """Ends what is inside after so long, where a server may hang."""
        return nullcontext()

    @property
    def is_lost(self) -> bool:
        """Whether the other side closed it."""
        return False

    @abstractmethod
    def begin(self, write: bool, seq: int) -> Iterator[EventRow]:
        """Begins a transaction; returns the events from a number on, as it sees them."""

    @abstractmethod
    def insert(self, events: Sequence[EventRow], answers: Mapping[int, str]) -> None:
        """Adds events, and the texts of answers by their events' numbers."""

    @abstractmethod
    def commit(self, events: Sequence[EventRow], answers: Mapping[int, str]) -> None:
        """Adds the last events and answers; they are on the disk when it returns."""

    @abstractmethod
    def probe(self) -> None:
        """Writes something that means nothing, for a commit that shows whether one would do."""

    @abstractmethod
    def rollback(self) -> None:
        """Ends the transaction, if it is not committed."""

    def release(self) -> None:
        """Ends the transaction also for SQLAlchemy, if that took part in it."""
        if self.is_lost:
            return
        self.rollback()
        if self.connection.in_transaction():
            self.connection.rollback()

    def close(self) -> None:
        """Gives the connection back to its pool, unless it was lost."""
        if self.is_lost:
            self.connection.invalidate()
        self.connection.close()
