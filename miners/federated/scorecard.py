# SPDX-License-Identifier: Apache-2.0
"""Scorecards from several data owners, each behind its own layer and ledger.

The sum of k noisy sums has the noise of k, or of one under secret sharing. Choices do not add up. Either one owner
makes each choice, in turns, with more epsilon than for a choice at every step; or steps take the attributes in the
order of noisy class tables.

Privacy:
    Claim: each owner pays ``FitCosts.total`` at most, in the terms of its policy. Why: every query to an owner is about
    all its rows (or those that have a class), so losses add up. Without turns, an owner pays the fractions of all steps
    unchanged. With turns, it pays for its own choices alone, from the epsilon besides its sums (``with_turns``). The
    order of turns follows from noisy sizes (from tables, if there are any), and the order of attributes from noisy
    tables. Held by: tests/unit/federated/test_owners_scorecard.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, cast

import numpy as np

from miners.estimator import require_word
from miners.federated.federation import CountSource, FederatedParts, OwnerTally, SumsNeeded, pooled
from miners.federated.owners_miner import (
    DISJOINT,
    STRATEGIES,
    OwnersFit,
    OwnersMiner,
    StrategyName,
    resumes,
)
from miners.federated.topdown import deal
from miners.scorecards.card import Card, CardCells
from miners.scorecards.costs import TABLES, CardStep, FitCosts, with_turns
from miners.scorecards.objectives import Asking, Cells, Objective, SumsAnswer, choice_score
from miners.scorecards.scorecard import CardFit, Scorecard, ScorecardMiner, ScorecardRegressor
from pinq.errors import QueryError
from pinq.language.derivatives import AnyDerivatives
from pinq.language.specs import bind
from pinq.public.checks import many
from pinq.public.epsilon import ZERO, Epsilon
from pinq.public.schema import Schema


class OwnersAsking(Asking[FederatedParts]):
    """Sends queries for counts and sums to all owners at once."""

    def __init__(self, source: CountSource, costs: FitCosts, *, reuse: bool = False) -> None:
        super().__init__(source.parts(), source.schema, costs)
        self._source, self._reuse = source, reuse

    def _count(self, parts: Sequence[FederatedParts], losses: Sequence[Epsilon]) -> list[SumsAnswer]:
        answers = self._source.tally(
            [
                cells.question("noisy_count", epsilon=loss, reuse=self._reuse)
                for cells, loss in zip(parts, losses, strict=True)
            ]
        )
        self._know(answers)
        return [_added(answer) for answer in answers]

    def _know(self, answers: Sequence[Mapping[str, OwnerTally]]) -> None:
        """Uses tables that each count all rows of each owner."""

    def sums(self, step: int, spec: CardCells, objective: Objective, loss: AnyDerivatives) -> SumsAnswer:
        """Adds up derivatives over the remaining owners."""
        losses = {name: self._step(name, step).sums for name in self._source.owners}
        question = self._rows.sum_question(loss, spec, epsilon=losses, reuse=self._reuse)
        added = _added(self._source.tally([question])[0])
        return added._replace(numbers=added.numbers.reshape(bind(spec, self._schema).size, -1))

    def _step(self, owner: str, step: int) -> CardStep:
        return self._costs.steps[step]


class CardInTurns(OwnersAsking):
    """Lets one owner choose each step's attribute, in proportion to noisy sizes."""

    def _know(self, answers: Sequence[Mapping[str, OwnerTally]]) -> None:
        """Distributes the turns by each owner's noisy rows."""
        # The total of many cells is noisier: tables of 2 and 6 cells with 90 and 50 rows have an average
        # of (90 / 2 + 50 / 6) / (1 / 2 + 1 / 6) = 80. Tables are far more precise than earlier queries.
        weights = [1 / len(next(iter(answer.values())).counts.ravel()) for answer in answers]
        self._sizes = {
            name: float(np.average([answer[name].counts.sum() for answer in answers], weights=weights))
            / self._source.distance(name)
            for name in self._source.owners
        }
        self._deal(0, dict.fromkeys(self._source.owners, sum((step.cost for step in self._costs.steps), ZERO)))

    def _deal(self, step: int, left: Mapping[str, Epsilon]) -> None:
        """Distributes the turns from a step on, and the rest of each owner's epsilon."""
        # Dealt north, north, south, north: if north is dropped after the first step, the others spread
        # their rest over the three remaining steps.
        steps = self._costs.steps[step:]
        if not steps:
            return
        chooses = steps[0].choice is not None
        order = deal({name: self._sizes[name] for name in left}, len(steps)) if chooses else []
        self._order = dict(enumerate(order, step))  # by the steps' numbers, as the costs are
        turns = {name: [position for position, owner in enumerate(order) if owner == name] for name in left}
        self._steps = {
            name: dict(enumerate(with_turns(epsilon, steps, turns[name]), step)) for name, epsilon in left.items()
        }

    def _step(self, owner: str, step: int) -> CardStep:
        return self._steps[owner][step]

    def choice(self, step: int, specs: Sequence[CardCells], objective: Objective, loss: AnyDerivatives) -> CardCells:
        """Lets the owner of this turn choose; another owner, if that one was dropped."""
        while True:
            owner = self._order[step]
            if owner in self._source.owners:
                chosen = self._chosen(owner, step, specs, objective, loss)
                if chosen is not None:
                    return chosen
            self._deal(step, {name: self._left(name, step) for name in self._source.owners})

    def _left(self, owner: str, step: int) -> Epsilon:
        return sum((rest.cost for number, rest in self._steps[owner].items() if number >= step), ZERO)

    def _chosen(
        self, owner: str, step: int, specs: Sequence[CardCells], objective: Objective, loss: AnyDerivatives
    ) -> CardCells | None:
        """One owner's choice; None if it was dropped meanwhile."""
        paid, owners = self._step(owner, step), len(self._source.owners)
        assert paid.choice is not None
        # The later sums have the noise of all owners; this owner's share counts.
        score = choice_score(objective, loss, objective.scale(paid.sums) / owners**0.5)
        answers = self._rows.exp_mech(list(specs), score=score, epsilon={owner: paid.choice}, reuse=self._reuse)
        if owner not in answers:
            return None
        (chosen,) = answers[owner]
        return next(offered for offered in specs if offered == chosen)


class InOrder(OwnersAsking):
    """Takes the attributes in descending order of their tables' information about the target."""

    def tables(self, specs: Sequence[Cells], objective: Objective) -> list[SumsAnswer]:
        """Counts the target's parts in the cells of each attribute, and orders the attributes."""
        tables, classes = super().tables(specs, objective), objective.table_classes
        says = {
            spec.column: _says(table.numbers[:, :classes], table.scale)
            for spec, table in zip(specs, tables, strict=True)
        }
        self._order = sorted(says, key=lambda name: -says[name])
        return tables

    def choice(self, step: int, specs: Sequence[CardCells], objective: Objective, loss: AnyDerivatives) -> CardCells:
        """The next attribute; after the last the first again."""
        name = self._order[step % len(self._order)]
        return next(spec for spec in specs if spec.columns() == {name})


def _says(counts: np.ndarray, scale: float) -> float:
    """The distance of a table's classes from their expected counts by the proportions among all rows."""
    # Cells of 30 + 10 and 10 + 50 rows: shares .4 and .6 of all let expect 16 + 24 and 24 + 36, so
    # each count is off by 14; at a noise of scale 4 that is 4 * 10.
    rows = counts.sum(axis=1, keepdims=True)
    totals = np.maximum(counts.sum(axis=0), 0.0)
    gradients = counts - rows * totals / max(totals.sum(), 1.0)
    return float(np.maximum(np.abs(gradients) - scale, 0.0).sum())


def _added(tallies: Mapping[str, OwnerTally]) -> SumsAnswer:
    """Adds up owners' answers and the variances of their noise."""
    # Two owners with noise of scale 4 have a variance of 32 each, together 64: that of one noise
    # of scale sqrt(32) = 5.7.
    numbers, variance = pooled(list(tallies.values()))
    return SumsAnswer(numbers, float(np.sqrt(variance / 2)))


@dataclass(frozen=True)
class OwnersCardFit(CardFit, OwnersFit):
    """The fit of a scorecard on several data owners."""

    miner: OwnersCardMiner
    owners: int = 1
    resume: bool = False

    def among(self, owners: int, *, resume: bool = False) -> Self:
        return replace(self, owners=owners, resume=resume)

    def learn(self, source: CountSource) -> Card:
        kind = CardInTurns if self.miner.strategy == "turns" else InOrder
        return self.learned(kind(source, self.costs, reuse=self.resume))

    def cell_noise(self, epsilon: Epsilon) -> float:
        # Four owners, each with a noise of its own, make twice the deviation of one.
        return super().cell_noise(epsilon) * (1 if self.miner.strategy == "secure" else self.owners) ** 0.5

    @property
    def title(self) -> str:
        steps = many(len(self.costs.steps), "step")
        facts = f"{many(self.owners, 'owner')}, strategy {self.miner.strategy!r}, {steps}"
        return f"{type(self.miner).__name__} for `{self.objective.target}`: {facts}"

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        yield DISJOINT
        if self.miner.strategy == "turns" and self.owners > 1:
            yield (
                "one owner chooses the attribute of each step, in turns by noisy sizes; the plan shows the cost for a "
                "single owner, which chooses every time; several owners pay more for each of their fewer choices."
            )
        if self.miner.strategy == "secure":
            yield (
                "the noise shown is that of one owner; if c of m parties may pool their noise, its variance is "
                "m / (m - c) times as large. Rounding to whole units adds 1/32."
            )


@dataclass(kw_only=True, repr=False, eq=False)
class OwnersCardMiner(OwnersMiner, ScorecardMiner):
    """A scorecard's fit over several data owners, for the target of the subclass."""

    strategy: StrategyName = "turns"
    resume: bool = False

    _noted_as = "owners"
    _made = "Scorecard"
    _plan_kind = OwnersCardFit

    def sums_needed(self, schema: Schema, target: str) -> SumsNeeded:
        """The sums that a fit needs from parties that add up; free.

        Raises:
            QueryError: A parameter or the target is wrong, or the strategy needs choices, too.
        """
        if self.strategy == "turns":
            raise QueryError("strategy 'turns' asks for choices too; 'secure' and 'noisy_counts' ask for sums alone.")
        card_fit = self._checked(schema, target)
        costs, width = card_fit.costs, card_fit.objective.width
        steps = [step.sums for step in costs.steps]
        return SumsNeeded(card_fit.specs, min([*costs.bases, *costs.tables]), min(steps, default=None), width)

    def _checked(self, schema: Schema, target: str) -> OwnersCardFit:
        require_word("strategy", self.strategy, STRATEGIES)
        resumes(self.resume, False, keeps=self.strategy != "secure")
        card_fit = cast(OwnersCardFit, super()._checked(schema, target))
        if self.pairs and self.strategy != "turns":
            raise QueryError("`pairs` goes with strategy 'turns'; the others take attributes in order and choose none.")
        return card_fit

    def _default_steps(self, objective: Objective, epsilon: Epsilon, cells: Sequence[int]) -> int:
        steps = super()._default_steps(objective, epsilon, cells)
        return steps if self.strategy == "turns" else round(objective.unchosen * steps)

    def _costs(
        self, epsilon: Epsilon, objective: Objective, cells: Sequence[int], steps: int, choice: float
    ) -> FitCosts:
        if self.strategy == "turns":
            return super()._costs(epsilon, objective, cells, steps, choice)
        attributes = len(cells)
        has_tables = self._asks_tables(objective, epsilon, attributes)
        # Points of classes start from tables where there are many, and where steps reach too few attributes.
        starts = objective.tabulates and (has_tables or 2 * steps < attributes)
        weight = (objective.table_weight(epsilon, attributes) or TABLES) if starts else objective.order_weight
        tables = attributes if has_tables or (steps > 0 and attributes > 1) else 0
        base, looks = objective.base(cells), objective.looks
        return FitCosts.of(
            epsilon, tables=tables, steps=steps, choice=0.0, base=base, weight=weight, starts=starts, looks=looks
        )


@dataclass(kw_only=True, repr=False, eq=False)
class FederatedScorecard(OwnersCardMiner, Scorecard):
    """A scorecard for classes from the tables of several data owners.

    A coordinator learns it; no data owner has to trust the coordinator. ``fit`` takes a ``Federation`` of handles,
    parties of a secure computation, or one handle.

    Args:
        epsilon: The cost of ``fit`` at each data owner, in its own policy's terms.
        strategy: The choice of attributes. ``"turns"``: one owner chooses the attribute of each step, in turns. The
            other strategies query counts and sums only, and take attributes in the order of noisy class tables:
            ``"noisy_counts"`` with handles; ``"secure"`` with one noise for all, with a
            ``pinq_secure.SecureFederation``.
        steps: The number of steps, each of which improves one attribute, 0 to 200; None for a number that follows from
            public facts.
        attributes: The columns to use. None for all but the target.
        cuts: Cut points for numeric attributes; see ``Scorecard``.
        pairs: Whether steps may choose pairs of attributes (strategy ``"turns"`` alone); see ``Scorecard``.
        resume: Whether to use the stored answers of identical earlier queries. An interrupted fit then pays only for
            the missing answers.

    Attributes:
        card_: The fitted scorecard.
        owners_: The participants, their costs, and who was dropped.
        classes_: The declared values of the target, shape (classes,).
        feature_importances_: The importance of each column; they add up to 1.
        schema_: The public columns under which it was learned.
        cost_: The largest charge of a data owner, exact: ``epsilon`` unless some answers were
            paid for before. An owner that does not report counts as ``epsilon``.

    Privacy:
        Adjacency: each owner's policy. Claim: ``fit`` is ``epsilon``-DP at each data owner, in its
        own policy's terms, for any behaviour of the coordinator and the other owners.
        Why: the queries to an owner add up to ``epsilon`` (``miners.federated.scorecard``), and its
        ledger charges and enforces this. A person is at one owner only, so costs do not add up over
        owners. A secure computation opens noisy sums only (``pinq_secure.sums``).
        Exact: nano-epsilons. Held by: tests/unit/federated/test_owners_scorecard.py,
        tests/contract/test_every_miner.py.

    References:
        See ``Scorecard``; Wang, Dick & Balcan 2020 for strategies among owners.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import Federation, FederatedScorecard
        >>> rows = pd.read_parquet("data/adult.parquet")
        >>> handles = {
        ...     name: pinq.simulate("policies/adult.yaml", data=rows[start::3], epsilon=1)
        ...     for start, name in enumerate(["north", "south", "west"])
        ... }
        >>> card = FederatedScorecard(epsilon=1, attributes=["education_num", "age"]).fit(Federation(handles), "income")
        >>> {name: float(spent) for name, spent in card.owners_.spent.items()}
        {'north': 1.0, 'south': 1.0, 'west': 1.0}
        >>> card.predict_proba(rows.head(5)).shape
        (5, 2)
    """

    _former = "DPScorecard"
    _other = "FederatedScorecardRegressor"


@dataclass(kw_only=True, repr=False, eq=False)
class FederatedScorecardRegressor(OwnersCardMiner, ScorecardRegressor):
    """A scorecard for the mean of a numeric column, from the tables of several data owners.

    Arguments and attributes are those of ``FederatedScorecard``, without ``classes_``. Without choices, the order of
    attributes follows from noisy tables of the target's two halves.

    Privacy:
        Adjacency and claim: as for ``FederatedScorecard``. Why: the queries are of the same kinds, at fractions that
        add up to ``epsilon``. A residual is clamped to a bound that follows from the noisy histogram of all owners. The
        residual and the row's count are two bins that together cost this bound (privacy.md 8.4). In a secure
        computation the units follow from the bound, so a row moves as many units as ``pinq_secure.sums`` says.
        Exact: nano-epsilons. Held by: tests/unit/federated/test_owners_scorecard.py,
        tests/unit/secure/test_secure_scorecard.py, tests/contract/test_every_miner.py.

    References:
        See ``FederatedScorecard``.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import Federation, FederatedScorecardRegressor
        >>> rows = pd.read_parquet("data/adult.parquet")
        >>> handles = {
        ...     name: pinq.simulate("policies/adult.yaml", data=rows[start::3], epsilon=1)
        ...     for start, name in enumerate(["north", "south", "west"])
        ... }
        >>> hours = FederatedScorecardRegressor(epsilon=1, attributes=["age", "sex"])
        >>> hours.fit(Federation(handles), "hours_per_week").predict(rows.head(5)).shape
        (5,)
    """

    _former = "DPScorecardRegressor"
    _other = "FederatedScorecard"
