# SPDX-License-Identifier: Apache-2.0
"""``Asking`` is how a card's questions reach rows.

Here they are one handle's, elsewhere those of several holders. A fit asks for the rows that say
where scores start, perhaps for tables of classes, and in each step for an attribute and for sums in
its cells. How much each costs, and whose noise is in the answer, is the asking's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from miners.budget.plan import count_scale
from miners.scorecards.posterior import Estimate
from miners.scorecards.shares import Shares
from pinq.public.derivatives import AnyDerivatives
from pinq.public.epsilon import Epsilon
from pinq.public.scores import Gradient
from pinq.public.specs import Cuts, Spec, Values, bind

if TYPE_CHECKING:
    from miners.scorecards.objectives import Objective
    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["Answer", "Asking", "Cells", "HandleAsking", "P", "Partitioned", "choice_score"]

THRESHOLD = 0.5  # noise scales of a cell's gradient that a choice does not count
Cells = Values | Cuts
"""The cells of one attribute."""


class Partitioned(Protocol):
    """Rows that can be cut into parts."""

    def partition(self, *specs: object) -> Self:
        """Cuts each part into parts."""


P = TypeVar("P", bound=Partitioned)


class Answer(NamedTuple):
    """Noisy numbers.

    Attributes:
        numbers: As floats.
        scale: Of one Laplace noise as wide as the noise in them, in their units.
    """

    numbers: np.ndarray
    scale: float


class Asking(ABC):
    """Asks the questions of one fit; each step is asked once."""

    @abstractmethod
    def start(self, parts: Spec) -> Answer:
        """Counts all rows by parts of the target."""

    @abstractmethod
    def among(self, objective: Objective) -> None:
        """Restricts all further questions to the rows that can be learned from."""

    @abstractmethod
    def tables(self, specs: Sequence[Cells], objective: Objective) -> list[Answer]:
        """Counts the target's parts in each attribute's cells, shape (cells, parts) each."""

    @abstractmethod
    def choice(self, step: int, specs: Sequence[Cells], objective: Objective, loss: AnyDerivatives) -> Cells:
        """Chooses an attribute about whose cells the scores so far are most wrong."""

    @abstractmethod
    def sums(self, step: int, spec: Cells, objective: Objective, loss: AnyDerivatives) -> Answer:
        """Adds up derivatives in each cell of an attribute, shape (cells, width)."""


class HandleAsking(Asking):
    """Asks one handle.

    Args:
        handle: The handle.
        shares: What each question pays.
    """

    def __init__(self, handle: PrivateQueryable, shares: Shares) -> None:
        self._handle, self._shares, self._rows = handle, shares, handle.parts()

    def rehearse(self, objective: Objective, specs: Sequence[Cells], table_specs: Sequence[Cells], naive: bool) -> None:
        """Previews the heaviest questions: the last ones, with the largest card there can be.

        Args:
            objective: What is fitted.
            specs: The cells of each attribute in steps.
            table_specs: Their cells in tables.
            naive: Whether points start from tables, where tables are asked.

        Raises:
            QueryError: One would take more work than the policy allows for a request.
            NotAllowed: The terms forbid one.
        """
        rows = objective.rows(self._handle.parts())
        by_size = sorted(specs, key=self._size, reverse=True)
        if self._shares.tables:
            parts = rows.partition(max(table_specs, key=self._size)).partition(objective.table_parts)
            parts.preview("noisy_count", epsilon=self._shares.tables[0])
        if not self._shares.steps:
            return
        started, card = objective.start(np.zeros(self._size(objective.base_parts)), 1.0)
        # Tables look at each attribute, and each step but the last at one.
        for spec in (*(table_specs if naive and self._shares.tables else ()), *by_size[: len(self._shares.steps) - 1]):
            cells = np.ones((self._size(spec), len(card.base)))
            card = card.plus(spec, Estimate(cells, cells, cells[:, 0]))
        loss, paid = started.loss(card), self._shares.steps[-1]
        if paid.choice is not None:
            score = choice_score(started, loss, started.scale(paid.sums))
            rows.preview("exp_mech", list(specs), score=score, epsilon=paid.choice)
        rows.preview("noisy_sum", loss, by=[by_size[0]], epsilon=paid.sums)

    def _size(self, spec: Spec) -> int:
        return bind(spec, self._handle.schema).size

    def start(self, parts: Spec) -> Answer:
        """Counts all rows by parts of the target."""
        counts = self._handle.partition(parts).noisy_count(epsilon=self._shares.base)
        return self._counted(np.asarray(counts, dtype=np.float64), self._shares.base)

    def among(self, objective: Objective) -> None:
        """Restricts all further questions."""
        self._rows = objective.rows(self._rows)

    def tables(self, specs: Sequence[Cells], objective: Objective) -> list[Answer]:
        """Counts the target's parts in the cells of each attribute."""
        parts = objective.table_parts
        return [self._table(spec, parts, each) for spec, each in zip(specs, self._shares.tables, strict=True)]

    def _table(self, spec: Cells, target: Spec, epsilon: Epsilon) -> Answer:
        parts = self._rows.partition(spec).partition(target)
        counts = np.asarray(parts.noisy_count(epsilon=epsilon), dtype=np.float64)
        return self._counted(counts.reshape(bind(spec, self._handle.schema).size, -1), epsilon)

    def _counted(self, counts: np.ndarray, epsilon: Epsilon) -> Answer:
        return Answer(counts, count_scale(self._handle.schema, epsilon))

    def choice(self, step: int, specs: Sequence[Cells], objective: Objective, loss: AnyDerivatives) -> Cells:
        """Lets the exponential mechanism choose."""
        paid = self._shares.steps[step]
        assert paid.choice is not None
        score = choice_score(objective, loss, objective.scale(paid.sums))
        (chosen,) = self._rows.exp_mech(list(specs), score=score, epsilon=paid.choice)
        return next(offered for offered in specs if offered == chosen)

    def sums(self, step: int, spec: Cells, objective: Objective, loss: AnyDerivatives) -> Answer:
        """Adds up derivatives in each cell."""
        epsilon = self._shares.steps[step].sums
        sums = np.asarray(self._rows.noisy_sum(loss, by=[spec], epsilon=epsilon))
        return Answer(sums.reshape(-1, sums.shape[-1]), objective.scale(epsilon))


def choice_score(objective: Objective, loss: AnyDerivatives, scale: float) -> Gradient:
    """Returns the score of an attribute's choice, given the noise of the sums that follow."""
    return Gradient(loss, threshold=min(THRESHOLD * scale, objective.schema.max_rows * objective.bound))
