# SPDX-License-Identifier: Apache-2.0
"""How a scorecard is fitted: where scores start, tables for many classes, then steps.

Privacy:
    Adjacency: the policy's. Claim: ``CardFit.fit`` costs what its ``Shares`` add up to.
    Why: every question is asked of all rows (or of those that have a class, one part of a
    partition); losses add up. What a step asks follows from answers alone, so it may be chosen as
    one goes (sequential composition of adaptively chosen questions, privacy.md 1.2). Points are
    computed from answers (privacy.md 8.4). Held by: tests/contract/test_every_miner.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from miners.budget.noise import count_scale
from miners.budget.plan import PlanLine
from miners.scorecards.card import Card
from miners.scorecards.objectives import Objective
from miners.scorecards.shares import CardStep, Shares
from pinq.public.accuracy import standard_deviation
from pinq.public.epsilon import ZERO, Epsilon
from pinq.public.scores import Gradient
from pinq.public.specs import Cuts, Values, bind

if TYPE_CHECKING:
    from pinq.analyst.queryable import Parts, PrivateQueryable

__all__ = ["CardFit"]

THRESHOLD = 0.5  # noise scales of a cell's gradient that a choice does not count


@dataclass(frozen=True)
class CardFit:
    """All that is decided before anything is asked.

    Attributes:
        objective: What is fitted.
        specs: The cells of each attribute in steps.
        table_specs: Their cells in tables.
        shares: What each question pays.
    """

    objective: Objective
    specs: tuple[Values | Cuts, ...]
    table_specs: tuple[Values | Cuts, ...]
    shares: Shares

    # Asking

    def fit(self, handle: PrivateQueryable) -> Card:
        """Asks all questions; returns the card."""
        scale = count_scale(self.objective.schema, self.shares.base)
        counts = handle.partition(self.objective.base_parts).noisy_count(epsilon=self.shares.base)
        objective, card = self.objective.start(np.asarray(counts, dtype=np.float64), scale)
        rows = objective.rows(handle)
        if self.shares.tables:
            asked = zip(self.table_specs, self.shares.tables, strict=True)
            tables = [self._table(rows, spec, each) for spec, each in asked]
            scale = count_scale(objective.schema, self.shares.tables[0])
            card = objective.tabulated(card, self.table_specs, tables, scale)
        for step in self.shares.steps:
            card = self._stepped(rows, objective, card, step)
        return card

    def _table(self, rows: Parts, spec: Values | Cuts, epsilon: Epsilon) -> np.ndarray:
        """Returns the noisy classes of each cell of an attribute, shape (cells, classes)."""
        parts = rows.partition(spec).partition(Values(self.objective.target))
        counts = np.asarray(parts.noisy_count(epsilon=epsilon), dtype=np.float64)
        return counts.reshape(bind(spec, self.objective.schema).size, -1)

    def _stepped(self, rows: Parts, objective: Objective, card: Card, step: CardStep) -> Card:
        """Chooses an attribute where the scores are off, and moves its points."""
        loss, scale = objective.loss(card), objective.scale(step.sums)
        spec = self.specs[0]
        if step.choice is not None:
            score = Gradient(loss, threshold=min(THRESHOLD * scale, objective.schema.max_rows * objective.bound))
            (chosen,) = rows.exp_mech(list(self.specs), score=score, epsilon=step.choice)
            spec = next(offered for offered in self.specs if offered == chosen)
        sums = np.asarray(rows.noisy_sum(loss, by=[spec], epsilon=step.sums))
        sums = sums.reshape(-1, sums.shape[-1])
        gradients, curvatures = loss.gradients(sums), loss.hessians(sums)
        assert curvatures is not None  # every objective asks for them
        return card.plus(spec, objective.update(gradients, curvatures, scale))

    @property
    def cell_shares(self) -> list[Epsilon]:
        """Returns what the sums or tables of cells pay."""
        return [*self.shares.tables, *(step.sums for step in self.shares.steps)]

    def cell_noise(self, epsilon: Epsilon) -> float:
        """Returns the deviation of the noise in a cell's rows."""
        return standard_deviation(count_scale(self.objective.schema, epsilon))

    # In words

    def lines(self) -> list[PlanLine]:
        """Returns the lines of a plan."""
        schema, target = self.objective.schema, self.objective.target
        cells = [bind(spec, schema).size for spec in self.specs]
        start = bind(self.objective.base_parts, schema).size
        lines = [self._counts(0, f"rows by `{target}`", start, self.shares.base)]
        if self.shares.tables:
            asked = f"`{target}` in the cells of each attribute"
            classes = schema.column(target).codes
            each, total = self.shares.tables[0], sum(self.shares.tables, ZERO)
            parts = classes * sum(bind(spec, schema).size for spec in self.table_specs)
            lines.append(self._counts(0, asked, parts, total, each))
        for number, step in enumerate(self.shares.steps, 1):
            lines += self._step_lines(number, step, max(cells))
        return lines

    def _counts(self, level: int, asked: str, parts: int, epsilon: Epsilon, each: Epsilon | None = None) -> PlanLine:
        noise = standard_deviation(count_scale(self.objective.schema, each or epsilon))
        return PlanLine(level, asked, "noisy_count", parts, epsilon.exact, noise)

    def _step_lines(self, number: int, step: CardStep, cells: int) -> list[PlanLine]:
        """Returns what a step asks: perhaps a choice, and sums."""
        unit, lines = self.objective.noise_unit, []
        if step.choice is not None:
            # A score may rise or fall, so the scale of a choice's noise is twice that of a sum.
            noise = None if unit is None else 2 * self.objective.scale(step.choice)
            asked = f"attribute to mend, of {len(self.specs):,}"
            lines.append(PlanLine(number, asked, "exp_mech", 1, step.choice.exact, noise, unit or ""))
        noise = None if unit is None else standard_deviation(self.objective.scale(step.sums))
        lines.append(PlanLine(number, "gradients of its cells", "noisy_sum", cells, step.sums.exact, noise, unit or ""))
        return lines
