# SPDX-License-Identifier: Apache-2.0
"""What scorecards of several holders share: whom ``fit`` asks, what it costs, who took part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Self, get_args

from miners.budget.payment import require_budget
from miners.budget.plan import Plan, PlanLine, many, remember_fit, warn_before_fit
from miners.estimator import whole_number
from miners.federated.bill import DISJOINT, HoldersBill, cost_of, resumes, source_of
from miners.federated.card import Card as Holders
from miners.federated.card_asking import HoldersAsking, InOrder, InTurns
from miners.federated.source import CountSource, SumsNeeded
from miners.federated.strategy import require_abilities
from miners.scorecards.cells import refined
from miners.scorecards.fitting import CardFit
from miners.scorecards.objectives import Objective
from miners.scorecards.scorecard import ScorecardMiner
from miners.scorecards.shares import Shares
from miners.trees.tree_miner import require_word
from pinq.errors import QueryError, unspent
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema
from pinq.public.specs import Cuts

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["CardStrategyName", "HoldersCardMiner"]

CardStrategyName = Literal["turns", "noisy_counts", "secure"]
KIND = "Scorecard"


class HoldersCardMiner(ScorecardMiner):
    """A scorecard's fit over several holders; what is fitted follows from the target.

    Attributes:
        holders_: Who took part, what it cost there, who was dropped.
    """

    strategy: CardStrategyName
    resume: bool

    def fit(self, handle: CountSource | PrivateQueryable, target: str, *, reuse: bool = False) -> Self:
        """Learns the points.

        Args:
            handle: The holders' handles, as a ``Federation``; parties that add up, as a
                ``miners.secure.SecureFederation``; or one handle.
            target: The column to predict.
            reuse: Take the stored answers where the same fit was paid for before, at no cost; of
                several holders as ``resume=True``.

        Raises:
            QueryError: A parameter or the target is wrong.
            HolderFailed: A holder failed, or has less than ``epsilon`` left, and the federation
                does not go on without it; says what was spent where.
        """
        with unspent():
            resume = resumes(self.resume, reuse, keeps=self.strategy != "secure")
            source = source_of(handle, self, reuse=reuse)
            card_fit = self._checked(source.schema, target)
            total = card_fit.shares.total
            require_abilities(self.strategy, source)
            if not resume:  # of a fit that was broken off a part has been paid for
                source.each_handle(card_fit.rehearse)
                source.each(lambda budget: require_budget(budget, total, miner=self))
                known = replace(card_fit, noises=self._noises(len(source.holders)))
                warn_before_fit(self, handle, total, self._warnings(known, None))
        with HoldersBill(source) as bill:
            card = card_fit.learned(self._asking(source, card_fit.shares, resume))
        self.holders_: Holders = bill.card(self.strategy, KIND)
        remember_fit(self, handle)
        return self._fitted(card, cost_of(self.holders_, total.exact))

    def plan(self, schema: Schema, target: str, *, holders: int = 1, rows: int | None = None) -> Plan:
        """Says what ``fit`` is going to ask of each holder, and what it costs there.

        Free: it looks at the schema only.

        Args:
            schema: The public schema, ``federation.schema``.
            target: The column to predict.
            holders: How many there are.
            rows: How many rows they have together, if that is known; for the warning only.
        """
        count = whole_number("holders", holders, 1, 10**6)
        card_fit = replace(self._checked(schema, target), noises=self._noises(count))
        steps = many(len(card_fit.shares.steps), "step")
        asked = f"{many(count, 'holder')}, strategy {self.strategy!r}, {steps}"
        notes = (*self._notes(card_fit), *self._holder_notes(count))
        lines: tuple[PlanLine, ...] = tuple(card_fit.lines())
        title = f"{type(self).__name__} for `{target}`: {asked}"
        return Plan(title, lines, card_fit.shares.total.exact, notes, self._warnings(card_fit, rows))

    def sums_needed(self, schema: Schema, target: str) -> SumsNeeded:
        """Returns what a fit asks of parties that add up. Free.

        Args:
            schema: The public schema.
            target: The column to predict.

        Raises:
            QueryError: A parameter or the target is wrong, or the strategy asks for choices too.
        """
        if self.strategy == "turns":
            raise QueryError("strategy 'turns' asks for choices too; 'secure' and 'noisy_counts' ask for sums alone.")
        card_fit = self._checked(schema, target)
        cells = tuple(
            refined(spec, table, schema) if isinstance(spec, Cuts) and isinstance(table, Cuts) else spec
            for spec, table in zip(card_fit.specs, card_fit.table_specs, strict=True)
        )
        shares, width = card_fit.shares, card_fit.objective.width
        steps = [step.sums for step in shares.steps]
        return SumsNeeded(cells, min([shares.base, *shares.tables]), min(steps, default=None), width)

    def to_json(self) -> str:
        """The fitted miner as text: its parameters, what it cost, its points, who took part."""
        return json.dumps(json.loads(super().to_json()) | {"holders": self.holders_.to_dict()}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Reads what ``to_json`` wrote. ``QueryError`` where it is something else."""
        miner = super().from_json(text)
        where = f"`holders` of a stored {cls.__name__}"
        miner.holders_ = Holders.from_dict(json.loads(text).get("holders"), model=KIND, of=where)
        return miner

    def _asking(self, source: CountSource, shares: Shares, resume: bool) -> HoldersAsking:
        """Returns how the strategy asks."""
        kind = InTurns if self.strategy == "turns" else InOrder
        return kind(source, shares, reuse=resume)

    def _checked(self, schema: Schema, target: str) -> CardFit:
        require_word("strategy", self.strategy, get_args(CardStrategyName))
        resumes(self.resume, False, keeps=self.strategy != "secure")
        card_fit = super()._checked(schema, target)
        steps, attributes = len(card_fit.shares.steps), len(card_fit.specs)
        return replace(card_fit, naive=self._is_naive(card_fit.objective, card_fit.shares.total, attributes, steps))

    def _default_steps(self, objective: Objective, epsilon: Epsilon, attributes: int) -> int:
        steps = super()._default_steps(objective, epsilon, attributes)
        return steps if self.strategy == "turns" else round(objective.unchosen * steps)

    def _is_naive(self, objective: Objective, epsilon: Epsilon, attributes: int, steps: int) -> bool:
        """Returns whether points start from tables, which is for classes alone.

        They do with many classes, and where steps reach too few attributes.
        """
        return objective.tabulates and (self._asks_tables(objective, epsilon, attributes) or 2 * steps < attributes)

    def _shares(self, epsilon: Epsilon, objective: Objective, attributes: int, steps: int) -> Shares:
        """Returns what each question pays; where nobody chooses, tables order the attributes."""
        if self.strategy == "turns":
            return super()._shares(epsilon, objective, attributes, steps)
        asked = self._asks_tables(objective, epsilon, attributes) or (steps > 0 and attributes > 1)
        naive = self._is_naive(objective, epsilon, attributes, steps)
        weight = objective.table_weight(epsilon, attributes) if naive else objective.order_weight
        tables = attributes if asked else 0
        return Shares.of(epsilon, tables=tables, steps=steps, chooses=False, weight=weight, starts=naive)

    def _noises(self, holders: int) -> int:
        """Returns how many noises are in each number."""
        return 1 if self.strategy == "secure" else holders

    def _holder_notes(self, holders: int) -> Iterator[str]:
        """Yields what is worth knowing, one sentence each."""
        yield DISJOINT
        if self.strategy == "turns" and holders > 1:
            yield (
                "each step's attribute is chosen by one holder, in turns by noisy sizes; shown is what one pays that "
                "chooses every time, and of several each pays more for the fewer choices that are its own."
            )
        if self.strategy == "secure":
            yield (
                "noise is that of one holder; where c of m parties may pool what they drew, its variance is "
                "m / (m - c) times what is shown. Rounding to whole units adds a thirty-second."
            )
