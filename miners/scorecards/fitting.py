# SPDX-License-Identifier: Apache-2.0
"""How a scorecard is fitted: where scores start, perhaps tables, then steps.

Privacy:
    Adjacency: the policy's. Claim: ``CardFit.fit`` costs what its ``Shares`` add up to.
    Why: every question is asked of all rows (or of those that have a class, one part of a
    partition); losses add up. What a step asks follows from answers alone, so it may be chosen as
    one goes (sequential composition of adaptively chosen questions, privacy.md 1.2). Points are
    computed from answers (privacy.md 8.4). Who is asked, one handle or several holders, is an
    ``Asking``. Held by: tests/contract/test_every_miner.py.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from miners.budget.plan import FitWarning, PlanLine, count_line, count_scale
from miners.scorecards.card import Card
from miners.scorecards.objectives import Asking, Cells, Objective, SumsAnswer, choice_score
from miners.scorecards.posterior import Estimate
from miners.scorecards.shares import CardStep, Shares
from pinq.public.epsilon import ZERO, standard_deviation
from pinq.public.specs import Spec, bind

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["CardFit"]


@dataclass(frozen=True)
class CardFit:
    """All that is decided before anything is asked.

    Attributes:
        objective: What is fitted.
        specs: The cells of each attribute in steps.
        table_specs: Their cells in tables.
        shares: What each question pays.
        naive: Whether points start from tables, where tables are asked.
        holders: How many holders are asked.
        noises: How many of their noises are in each number.
    """

    objective: Objective
    specs: tuple[Cells, ...]
    table_specs: tuple[Cells, ...]
    shares: Shares
    naive: bool = True
    holders: int = 1
    noises: int = 1

    def rehearse(self, handle: PrivateQueryable) -> None:
        """Previews the heaviest questions: the last ones, with the largest card there can be.

        Raises:
            QueryError: One would take more work than the policy allows for a request.
            NotAllowed: The terms forbid one.
        """
        objective, tables, steps = self.objective, self.shares.tables, self.shares.steps
        rows = objective.rows(handle.parts())
        by_size = sorted(self.specs, key=self._size, reverse=True)
        if tables:
            parts = rows.partition(max(self.table_specs, key=self._size)).partition(objective.table_parts)
            parts.preview("noisy_count", epsilon=tables[0])
        if not steps:
            return
        started, card = objective.start(np.zeros(self._size(objective.base_parts)), 1.0)
        # Tables look at each attribute, and each step but the last at one.
        for spec in (*(self.table_specs if self.naive and tables else ()), *by_size[: len(steps) - 1]):
            cells = np.ones((self._size(spec), len(card.base)))
            card = card.plus(spec, Estimate(cells, cells, cells[:, 0]))
        loss, paid = started.loss(card), steps[-1]
        if paid.choice is not None:
            score = choice_score(started, loss, started.scale(paid.sums))
            rows.preview("exp_mech", list(self.specs), score=score, epsilon=paid.choice)
        rows.preview("noisy_sum", loss, by=[by_size[0]], epsilon=paid.sums)

    def _size(self, spec: Spec) -> int:
        return bind(spec, self.objective.schema).size

    def learned(self, asking: Asking[Any]) -> Card:
        """Asks all questions; returns the card."""
        objective = self.objective
        for look in range(objective.looks - 1):
            counts = asking.start(objective.base_parts, look)
            objective = objective.nearer(counts.numbers, counts.scale)
        counts = asking.start(objective.base_parts, objective.looks - 1)
        objective, card = objective.start(counts.numbers, counts.scale)
        for doubt in objective.doubts if self.shares.steps else ():  # without steps a plan has said so
            warnings.warn(doubt, FitWarning, stacklevel=5)
        asking.among(objective)
        told = [objective.class_rows(counts.numbers[None], counts.scale)]
        if self.shares.tables:
            tables = asking.tables(self.table_specs, objective)
            told += [objective.class_rows(table.numbers, table.scale) for table in tables]
            if self.naive:
                numbers = [table.numbers for table in tables]
                mended = bool(self.shares.steps)
                card = objective.tabulated(card, self.table_specs, numbers, tables[0].scale, mended=mended)
        for number in range(len(self.shares.steps)):
            started = card if number == 0 and not self.shares.tables else None
            card, sums = self._stepped(asking, objective, card, number)
            if started is not None:  # two sums each
                told.append(objective.class_rows(objective.expected(started, sums.numbers), 2**0.5 * sums.scale))
        for doubt in objective.rare([each for each in told if each is not None]):
            warnings.warn(doubt, FitWarning, stacklevel=5)
        return card

    def _stepped(self, asking: Asking[Any], objective: Objective, card: Card, number: int) -> tuple[Card, SumsAnswer]:
        """Chooses an attribute where the scores are off, and moves its points; returns the sums too."""
        loss = objective.loss(card)
        spec = asking.choice(number, self.specs, objective, loss) if len(self.specs) > 1 else self.specs[0]
        sums = asking.sums(number, spec, objective, loss)
        gradients, curvatures = loss.gradients(sums.numbers), loss.hessians(sums.numbers)
        assert curvatures is not None  # every objective asks for them
        return card.plus(spec, objective.update(gradients, curvatures, sums.scale)), sums

    @property
    def cell_noise(self) -> float:
        """The deviation of the noise in a cell's rows, where it is widest."""
        least = min([*self.shares.tables, *(step.sums for step in self.shares.steps)])
        # Four holders, each with a noise of its own, make twice the deviation of one.
        return standard_deviation(count_scale(self.objective.schema, least)) * self.noises**0.5

    # In words

    def lines(self) -> list[PlanLine]:
        """Returns the lines of a plan."""
        target = self.objective.target
        cells = [self._size(spec) for spec in self.specs]
        start = self._size(self.objective.base_parts)
        texts = [f"rows by `{target}`"] + [f"rows by `{target}`, where these are"] * (len(self.shares.bases) - 1)
        schema = self.objective.schema
        lines = [count_line(schema, text, start, each) for text, each in zip(texts, self.shares.bases, strict=True)]
        if self.shares.tables:
            asked = f"`{target}` in the cells of each attribute"
            classes = self._size(self.objective.table_parts)
            each, total = self.shares.tables[0], sum(self.shares.tables, ZERO)
            parts = classes * sum(self._size(spec) for spec in self.table_specs)
            lines.append(count_line(schema, asked, parts, total, each))
        for number, step in enumerate(self.shares.steps, 1):
            lines += self._step_lines(number, step, max(cells))
        return lines

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
