# SPDX-License-Identifier: Apache-2.0
"""``Miner`` is how every fit is decided and planned, ``HandleMiner`` how it goes on one handle."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar
from warnings import catch_warnings, simplefilter

from miners.budget.payment import Bill, begin_fit
from miners.budget.plan import FitWarning, Plan, PlanLine, remember_fit
from miners.estimator import Fitted, Model, public_schema
from miners.parameters import HasParams
from pinq.errors import unspent

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

    from miners.fitted.route import Frame
    from pinq.analyst.queryable import PrivateQueryable
    from pinq.public.epsilon import Epsilon, EpsilonLike
    from pinq.public.schema import Schema

__all__ = ["ClassLearner", "HandleMiner", "Learner", "Miner"]

W = TypeVar("W")


class Learner(HasParams, Protocol):
    """Whatever learns from one handle at a loss that can be set, and can be scored."""

    epsilon: EpsilonLike

    def set_params(self, **params: object) -> Self:
        """Sets parameters."""

    def fit(self, handle: PrivateQueryable, target: str) -> Self:
        """Learns from the rows behind a handle."""

    def score(self, X: Frame, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> float:
        """Returns how well it predicts, 1 at best."""


class ClassLearner(Learner, Protocol):
    """One that predicts the shares of classes."""

    classes_: np.ndarray

    def predict_proba(self, X: Frame) -> np.ndarray:
        """Predicts class probabilities, shape (rows, classes)."""


class Miner(Fitted, ABC, Generic[W]):
    """A miner that decides all that can be decided before its first question, and says what it asks.

    Whom it asks is a subclass's: one private handle, or several holders.
    """

    def _planned(self, work: W, rows: int | None) -> Plan:
        notes, warnings = self._notes(work), self._warnings(work, rows)
        return Plan(self._title(work), tuple(self._lines(work)), self._total(work).exact, notes, warnings)

    @abstractmethod
    def _checked(self, schema: Schema, target: str) -> W:
        """Returns what is decided, every parameter checked before anything is spent."""

    def _rehearse(self, work: W, handle: PrivateQueryable) -> None:
        """Raises what the heaviest question would be refused with, before any is paid.

        By default nothing is foreseen: what a tree asks follows from answers.
        """

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


class HandleMiner(Miner[W], Generic[W]):
    """A miner that learns from one private handle."""

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
            if reuse is False:
                self._rehearse(work, handle)
            asked, certificate = begin_fit(self, handle, target, total, warnings, reuse=reuse)
        with Bill(handle) as bill, catch_warnings():
            if warnings:  # one word is enough
                simplefilter("ignore", FitWarning)
            model = self._learned(work, asked, target)
        remember_fit(self, handle, certificate())
        return self._fitted(model, bill.total)

    def fitted_again(self, handle: PrivateQueryable) -> Self:
        """Fits another with the parameters and the target of this one."""
        return type(self)(**self._fit_params).fit(handle, self._model.target)

    def plan(self, schema: Schema, target: str, *, rows: int | None = None) -> Plan:
        """Says what ``fit`` is going to ask and what it costs. Free: it looks at the schema only.

        Args:
            schema: The public schema, ``handle.schema``.
            target: The column to predict.
            rows: How many rows the table has, if that is known; by default the schema's
                ``max_rows``. For the warning only.
        """
        return self._planned(self._checked(schema, target), rows)

    @abstractmethod
    def _learned(self, work: W, handle: PrivateQueryable, target: str) -> Model:
        """Asks, and returns what was learned."""
