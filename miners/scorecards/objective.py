# SPDX-License-Identifier: Apache-2.0
"""What a scorecard is fitted to, as a fit sees it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from miners.budget.plan import count_scale
from miners.scorecards.asking import P
from miners.scorecards.card import Card
from miners.scorecards.cells import Grid
from miners.scorecards.posterior import Estimate
from miners.scorecards.shares import TABLES, rows_epsilon
from pinq.public.derivatives import AnyDerivatives
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema
from pinq.public.specs import Cuts, Spec, Values, bind

__all__ = ["Objective"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Objective(ABC):
    """What is fitted.

    Attributes:
        schema: The public schema.
        target: The column to predict.
    """

    schema: Schema
    target: str

    majority: ClassVar[str] = "the most frequent class"  # what is predicted where nothing can be learned
    tabulates: ClassVar[bool] = False  # whether points can start from tables
    # Where nobody chooses: what tables weigh that order attributes, for each unit of all steps, and
    # how many times as many steps pay, for some meet what others have said already.
    order_weight: ClassVar[float] = 0.1
    unchosen: ClassVar[float] = 1.3

    @abstractmethod
    def steps(self, epsilon: Epsilon, attributes: int) -> int:
        """Returns how many steps a budget pays for, of so many attributes."""

    def asks_tables(self, epsilon: Epsilon, attributes: int) -> bool:
        """Returns whether tables of all attributes come first."""
        return False

    def table_weight(self, epsilon: Epsilon, attributes: int) -> float:
        """Returns what tables weigh from which points start, for each unit of all steps."""
        return TABLES

    @property
    @abstractmethod
    def table_parts(self) -> Spec:
        """The parts of the target that tables count in the cells of an attribute, missing last."""

    @property
    def table_classes(self) -> int:
        """How many parts of tables are not the missing one."""
        return bind(self.table_parts, self.schema).size - int(self.schema.column(self.target).nullable)

    @property
    def width(self) -> int:
        """Entries of a row's vector in a step; ``QueryError`` where they are too many."""
        objective, card = self.start(np.zeros(bind(self.base_parts, self.schema).size), 1.0)
        return objective.loss(card).vectors(self.schema).width

    def grid(self, epsilon: Epsilon) -> Grid:
        """Returns how steps cut numeric attributes where nobody says."""
        return Grid.of_steps(rows_epsilon(self.schema, epsilon))

    def table_grid(self, epsilon: Epsilon, attributes: int) -> Grid:
        """Returns how tables cut them: coarsely, for all attributes share what tables may cost."""
        return self.grid(epsilon)

    @property
    @abstractmethod
    def base_parts(self) -> Spec:
        """The parts of the target whose rows say where scores start."""

    @property
    @abstractmethod
    def bound(self) -> float:
        """L1 norm of what a row adds to the sums of a step, in their units."""

    @property
    def noise_unit(self) -> str | None:
        """The unit of ``bound`` in a plan; None where it follows from the first answer."""
        return "rows"

    @abstractmethod
    def start(self, counts: np.ndarray, scale: float) -> tuple[Self, Card]:
        """Returns the objective, which may know more now, and a card without terms.

        Args:
            counts: Noisy rows of ``base_parts``.
            scale: Of their noise.
        """

    @abstractmethod
    def loss(self, card: Card) -> AnyDerivatives:
        """Returns what is to be summed of the rows, given the scores so far."""

    @abstractmethod
    def update(self, gradients: np.ndarray, curvatures: np.ndarray, scale: float) -> Estimate:
        """Returns the points that follow from noisy sums.

        Args:
            gradients: Shape (cells, outputs).
            curvatures: Shape (cells, outputs).
            scale: Of their noise, in their units.
        """

    def rows(self, everything: P) -> P:
        """Returns the rows to learn from, as one part of all rows."""
        return everything

    def scale(self, epsilon: Epsilon) -> float:
        """Returns the scale of the noise in the sums of a step."""
        return count_scale(self.schema, epsilon) * self.bound

    def tabulated(
        self, card: Card, specs: Sequence[Values | Cuts], tables: list[np.ndarray], scale: float, *, mended: bool
    ) -> Card:
        """Returns the card with what tables say; only where ``tabulates``.

        Args:
            card: Without terms.
            specs: The cells of each attribute.
            tables: Noisy counts of the target's parts in them, shape (cells, parts) each.
            scale: Of the noise in a count.
            mended: Whether steps follow.
        """
        return card
