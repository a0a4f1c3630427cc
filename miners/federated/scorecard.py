# SPDX-License-Identifier: Apache-2.0
"""A scorecard from several data holders, each behind its own layer and ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self, get_args

from miners.budget.payment import require_budget
from miners.budget.plan import Plan, PlanLine, many, remember_fit, warn_before_fit
from miners.estimator import whole_number
from miners.federated.bill import DISJOINT, HoldersBill, cost_of, resumes, source_of
from miners.federated.card import Card as Holders
from miners.federated.card_asking import HoldersAsking, InOrder, InTurns
from miners.federated.source import CountSource
from miners.federated.strategy import require_abilities
from miners.scorecards.fitting import CardFit
from miners.scorecards.objectives import Objective
from miners.scorecards.scorecard import Scorecard
from miners.scorecards.shares import TABLES, Shares
from miners.trees.tree_miner import require_word
from pinq.errors import unspent
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema

if TYPE_CHECKING:
    from pinq.analyst.queryable import PrivateQueryable

__all__ = ["CardStrategyName", "DPScorecard"]

CardStrategyName = Literal["turns", "noisy_counts", "secure"]
ORDER = 0.1  # what tables weigh that order attributes and nothing more, for each unit of all steps
UNCHOSEN = 1.3  # times as many steps where nobody chooses: some meet what others have said already
KIND = "Scorecard"


@dataclass(kw_only=True, repr=False, eq=False)
class DPScorecard(Scorecard):
    """A scorecard for classes from several data holders' tables.

    A coordinator that none of them needs to trust learns it. ``fit`` takes a ``Federation`` of
    handles, parties that add up under secret sharing, or one handle. The holders hold disjoint
    people, so the fit costs ``epsilon`` at each of them, in the terms of its own policy.

    Args:
        epsilon: What ``fit`` costs at each holder.
        strategy: How attributes are chosen. ``"turns"``: each step's attribute is chosen by one
            holder, in turns, and all holders sum the gradients of its cells, each with noise of its
            own. The others ask for counts and sums alone, and take attributes in the order that
            noisy tables of classes give: ``"noisy_counts"`` of handles; ``"secure"``, with one
            noise for all, of parties that add up under secret sharing, a
            ``miners.secure.SecureFederation``.
        steps: How many attributes are mended, 0 to 200; None for as many as public facts let
            expect to be of use.
        attributes: Columns to look at; None for all but the target.
        cuts: Cut points for numeric attributes; see ``Scorecard``.
        resume: Take answers to the same questions that were paid for before. A fit that was broken
            off is repeated so and pays only for what is new.

    Attributes:
        card_: The fitted scorecard.
        holders_: Who took part, what it cost there, who was dropped.
        classes_: The declared values of the target, shape (classes,).
        feature_importances_: How much each column says, shares of 1.
        schema_: The public columns under which it was learned.
        cost_: The largest of what the holders charged, exact: ``epsilon`` unless some of it had
            been paid for before. Who does not say counts as ``epsilon``.

    Privacy:
        Adjacency: at each holder its policy's. Claim: ``fit`` is ``epsilon``-DP at each holder, in
        its own policy's terms, whatever the coordinator and the other holders do.
        Why: what a holder is asked adds up to ``epsilon`` (``miners.federated.card_asking``); its
        ledger charges and enforces just that. A person is one holder's only, so nothing adds up
        over holders. Of parties that add up, only noisy sums are opened
        (``miners.secure.sums.together``).
        Exact: nano-epsilons. Held by: tests/unit/federated/test_holders_scorecard.py,
        tests/contract/test_every_miner.py.

    References:
        See ``Scorecard``; Wang, Dick & Balcan 2020 for strategies among holders.

    Examples:
        >>> DPScorecard(epsilon=0.5, strategy="secure")
        DPScorecard(epsilon=0.5, strategy='secure')
    """

    strategy: CardStrategyName = "turns"
    resume: bool = False

    def fit(self, handle: CountSource | PrivateQueryable, target: str, *, reuse: bool = False) -> Self:
        """Learns the points.

        Args:
            handle: The holders' handles, as a ``Federation``; parties that add up, as a
                ``miners.secure.SecureFederation``; or one handle.
            target: The categorical column to predict.
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
        title = f"DPScorecard for `{target}`: {many(count, 'holder')}, strategy {self.strategy!r}, {steps}"
        notes = (*self._notes(card_fit), *self._holder_notes(count))
        lines: tuple[PlanLine, ...] = tuple(card_fit.lines())
        return Plan(title, lines, card_fit.shares.total.exact, notes, self._warnings(card_fit, rows))

    def to_json(self) -> str:
        """The fitted miner as text: its parameters, what it cost, its points, who took part."""
        return json.dumps(json.loads(super().to_json()) | {"holders": self.holders_.to_dict()}, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Reads what ``to_json`` wrote. ``QueryError`` where it is something else."""
        miner = super().from_json(text)
        where = "`holders` of a stored DPScorecard"
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
        return steps if self.strategy == "turns" else round(UNCHOSEN * steps)

    def _is_naive(self, objective: Objective, epsilon: Epsilon, attributes: int, steps: int) -> bool:
        """Returns whether points start from tables.

        They do with many classes, and where steps reach too few attributes.
        """
        return objective.asks_tables(epsilon, attributes) or 2 * steps < attributes

    def _shares(self, epsilon: Epsilon, objective: Objective, attributes: int, steps: int) -> Shares:
        """Returns what each question pays; where nobody chooses, tables order the attributes."""
        if self.strategy == "turns":
            return super()._shares(epsilon, objective, attributes, steps)
        asked = objective.asks_tables(epsilon, attributes) or (steps > 0 and attributes > 1)
        weight = TABLES if self._is_naive(objective, epsilon, attributes, steps) else ORDER
        return Shares.of(epsilon, tables=attributes if asked else 0, steps=steps, chooses=False, weight=weight)

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
