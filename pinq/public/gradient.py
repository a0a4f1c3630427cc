# SPDX-License-Identifier: Apache-2.0
"""``Gradient`` finds the split that mends most of a public model's loss."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pinq.errors import QueryError
from pinq.public.checks import is_number, require_kind
from pinq.public.derivatives import Derivatives, Logistic, Residuals, Softmax
from pinq.public.expressions import Expression
from pinq.public.schema import Schema
from pinq.public.score import Score
from pinq.public.vectors import RowVectors

__all__ = ["Gradient"]

MAX_THRESHOLD = 2**40


@dataclass(frozen=True)
class Gradient(Score):
    """Σ_j max(|G_j| - ``threshold``, 0): what splitting here would mend of a model's loss.

    G_j is the sum of the loss's gradients; the sum is over cells and classes.

    Privacy:
        A row adds its gradient to one cell of a candidate, and each summand follows G_j at most one
        to one; so the sensitivity is the largest L1 norm of a row's gradient. A candidate's score
        may rise or fall, so the span is twice that (privacy.md 8.3).

    Attributes:
        derivatives: The loss: ``Logistic``, ``Softmax`` or ``Residuals``.
        threshold: What noise will hide, public: the scale of the noise of the sums that follow, in
            rows (in grid cells of the target for ``Residuals``).
    """

    derivatives: Logistic | Softmax | Residuals
    threshold: float = 0.0
    kind: Literal["gradient"] = field(default="gradient", repr=False)

    measure = "vectors"
    monotone = False

    def __post_init__(self) -> None:
        needed = f"Gradient takes Logistic, Softmax or Residuals, not {self.derivatives!r}."
        require_kind([self.derivatives], Derivatives, needed)
        if not is_number(self.threshold, 0, MAX_THRESHOLD):
            allowed = f"a number from 0 to {MAX_THRESHOLD:,}"
            raise QueryError(f"is {self.threshold!r}", parameter="threshold", allowed=allowed)
        object.__setattr__(self, "threshold", float(self.threshold))

    @property
    def unit(self) -> int:
        """That of the derivatives."""
        return self.derivatives.unit

    @property
    def target(self) -> str:
        """What the model predicts."""
        return self.derivatives.target

    def columns(self) -> set[str]:
        """The target, and what the model's points look at."""
        return self.derivatives.columns()

    def inner(self) -> tuple[Expression, ...]:
        """Those of the model's points."""
        return self.derivatives.inner()

    def targets(self) -> set[str]:
        """The target: a model may look again at what its points know."""
        return {self.target}

    def check(self, schema: Schema) -> None:
        """``QueryError`` unless the derivatives mean something."""
        self.derivatives.check(schema)

    def vectors(self, schema: Schema) -> RowVectors | None:
        """Those of the derivatives."""
        return self.derivatives.vectors(schema)

    def sensitivity(self, schema: Schema) -> int:
        return max(1, self.derivatives.vectors(schema).gradient_bound)

    def of(self, table: np.ndarray, schema: Schema) -> np.ndarray:
        """Scores of tables (..., cells, width) of sums of vectors."""
        # Cells with gradients of 90 and -10 rows score 70 at a threshold of 20: noise would hide
        # the second.
        excess = np.abs(self.derivatives.gradients(table)) - round(self.threshold * self.unit)
        return np.maximum(excess, 0).sum(axis=(-1, -2))
