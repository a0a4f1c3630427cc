# SPDX-License-Identifier: Apache-2.0
"""``HandleMiner`` is how a fit goes, for every miner that learns from one private handle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from miners.budget.payment import Bill, begin_fit
from miners.budget.plan import Plan, PlanLine, remember_fit
from miners.estimator import Fitted, Model, public_schema
from pinq.errors import unspent

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable
    from pinq.public.epsilon import Epsilon
    from pinq.public.schema import Schema

__all__ = ["HandleMiner"]

W = TypeVar("W")


class HandleMiner(Fitted, ABC, Generic[W]):
    """A miner that learns from one private handle.

    Subclasses decide all that can be decided before the first question (``_checked``), say what
    that asks, and learn by it.
    """

    def fit(self, handle: PrivateQueryable, target: str, *, reuse: bool = False) -> Self:
        """Learns from the rows behind a handle.

        Args:
            handle: A private handle; see ``pinq.open``, ``pinq.connect``, ``pinq.simulate``.
            target: The column to predict.
            reuse: Take the stored answers where the same fit was paid for before, at no cost: for
                notebooks, whose cells run twice. Forests need a ``random_state``.

        Raises:
            QueryError: A parameter or the target is wrong.
            BudgetExceeded: Less than ``epsilon`` remains.
        """
        with unspent():
            work = self._checked(public_schema(handle), target)
            total, warnings = self._total(work), self._warnings(work, None)
            asked, releases = begin_fit(self, handle, total, warnings, reuse=reuse)
        with Bill(handle) as bill:
            model = self._learned(work, asked, target)
        remember_fit(self, handle, releases)
        return self._fitted(model, bill.total)

    def plan(self, schema: Schema, target: str, *, rows: int | None = None) -> Plan:
        """Says what ``fit`` is going to ask and what it costs. Free: it looks at the schema only.

        Args:
            schema: The public schema, ``handle.schema``.
            target: The column to predict.
            rows: How many rows the table has, if that is known; by default the schema's
                ``max_rows``. For the warning only.
        """
        return self._planned(self._checked(schema, target), rows)

    def _planned(self, work: W, rows: int | None) -> Plan:
        notes, warnings = self._notes(work), self._warnings(work, rows)
        return Plan(self._title(work), tuple(self._lines(work)), self._total(work).exact, notes, warnings)

    @abstractmethod
    def _checked(self, schema: Schema, target: str) -> W:
        """Returns what is decided, every parameter checked before anything is spent."""

    @abstractmethod
    def _learned(self, work: W, handle: PrivateQueryable, target: str) -> Model:
        """Asks, and returns what was learned."""

    @abstractmethod
    def _total(self, work: W) -> Epsilon:
        """Returns what all questions cost."""

    @abstractmethod
    def _title(self, work: W) -> str:
        """Returns what is planned, in one line."""

    @abstractmethod
    def _lines(self, work: W) -> Sequence[PlanLine]:
        """Returns a line for each question."""

    @abstractmethod
    def _notes(self, work: W) -> tuple[str, ...]:
        """Returns what is worth knowing, one sentence each."""

    @abstractmethod
    def _warnings(self, work: W, rows: int | None) -> tuple[str, ...]:
        """Returns what is likely to go wrong, one sentence each."""
