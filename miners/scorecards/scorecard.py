# SPDX-License-Identifier: Apache-2.0
"""Scorecards: points for each value of each attribute, added up to a probability or a mean.

Privacy:
    Adjacency: the policy's. Claim: ``CardFit.fit`` costs what its ``FitCosts`` add up to.
    Why: every query is about all rows (or about those that have a class, one part of a partition), so losses add up,
    also of adaptively chosen queries (privacy.md 1.2). Points are computed from answers (privacy.md 8.4). Held by:
    tests/contract/test_every_miner.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from miners.budget.plan import (
    NOT_GIVEN,
    PlanLine,
    Storage,
    bytes_of,
    count_line,
    count_scale,
    rows_text,
    tell,
)
from miners.estimator import Classifier, FitPlan, Miner, Regressor
from miners.growth.candidates import attribute_cells, attribute_names, attribute_pairs
from miners.pictures import Axes
from miners.scorecards.card import Card, CardCells, Estimate
from miners.scorecards.costs import MAX_STEPS, TABLES, CardStep, FitCosts
from miners.scorecards.objectives import CLEAR_CLASS, Asking, Cells, HandleAsking, Objective, choice_score, objective_of
from pinq.analyst.queryable import PrivateQueryable
from pinq.language.specs import Cross, Spec, bind
from pinq.public.checks import many, require_bool, whole_number
from pinq.public.epsilon import ZERO, Epsilon, EpsilonLike, standard_deviation
from pinq.public.schema import Schema

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class CardFit(FitPlan[Any]):
    """All decisions before the first query.

    Attributes:
        pairs: The cells of each pair of attributes that steps may choose too.
    """

    miner: ScorecardMiner
    objective: Objective
    specs: tuple[Cells, ...]
    costs: FitCosts
    pairs: tuple[Cross, ...] = ()

    @property
    def offered(self) -> tuple[CardCells, ...]:
        """The candidates of each step."""
        return (*self.specs, *self.pairs)

    @property
    def steps_with_pairs(self) -> int:
        """The number of useful steps among attributes and pairs; a choice among more has larger errors."""
        cells = [self._size(spec) for spec in self.offered]
        return min(len(self.costs.steps), self.objective.steps(self.costs.total, cells))

    def rehearse(self, handle: PrivateQueryable) -> Storage:
        """Previews the heaviest queries: the last ones, with the largest possible card.

        Returns:
            The bytes that a ledger keeps of all queries.

        Raises:
            QueryError: One would take more work than the policy allows for a request.
            NotAllowed: The terms forbid one.
        """
        objective, tables, steps = self.objective, self.costs.tables, self.costs.steps
        rows = objective.rows(handle.parts())
        by_size = sorted(self.offered, key=self._size, reverse=True)
        stored, step = len(self.costs.bases) * bytes_of(self._size(objective.base_parts)), 0
        if tables:
            parts = rows.partition(max(self.specs, key=self._size)).partition(objective.table_parts)
            stored += len(tables) * parts.preview("noisy_count", epsilon=tables[0]).stored
        if not steps:
            return Storage(stored)
        started, card = objective.start(np.zeros(self._size(objective.base_parts)), 1.0)
        # Tables have points for each attribute, and each step but the last for one.
        for spec in (*(self.specs if self.costs.starts else ()), *by_size[: len(steps) - 1]):
            cells = np.ones((self._size(spec), len(card.base)))
            card = card.plus(spec, Estimate(cells, cells, cells[:, 0]))
        loss, paid = started.loss(card), steps[-1]
        if paid.choice is not None:
            score = choice_score(started, loss, started.scale(paid.sums))
            step = rows.preview("exp_mech", list(self.offered), score=score, epsilon=paid.choice).stored
        step += rows.preview("noisy_sum", loss, by=[by_size[0]], epsilon=paid.sums).stored
        return Storage(stored, step, "steps", len(steps))

    def _size(self, spec: Spec) -> int:
        return bind(spec, self.objective.schema).size

    def learn(self, source: Any) -> Card:
        return self.learned(HandleAsking(source.parts(), source.schema, self.costs))

    def learned(self, asking: Asking[Any]) -> Card:
        """Sends all queries; returns the card."""
        objective = self.objective
        for look in range(objective.looks - 1):
            counts = asking.start(objective.base_parts, look)
            objective = objective.nearer(counts.numbers, counts.scale)
        counts = asking.start(objective.base_parts, objective.looks - 1)
        objective, card = objective.start(counts.numbers, counts.scale)
        tell(objective.doubts if self.costs.steps else ())  # without steps a plan has said so
        asking.among(objective)
        tables = asking.tables(self.specs, objective) if self.costs.tables else []
        if self.costs.starts:
            card = objective.tabulated(card, self.specs, [table.numbers for table in tables], tables[0].scale)
        tell(objective.rare([counts._replace(numbers=counts.numbers[None]), *tables]))
        for number in range(len(self.costs.steps)):
            card = self._stepped(asking, objective, card, number)
        return card

    def _stepped(self, asking: Asking[Any], objective: Objective, card: Card, number: int) -> Card:
        """Chooses an attribute with large errors of the scores, and updates its points."""
        loss = objective.loss(card)
        spec = asking.choice(number, self.offered, objective, loss) if len(self.offered) > 1 else self.specs[0]
        sums = asking.sums(number, spec, objective, loss)
        gradients, curvatures = loss.gradients(sums.numbers), loss.hessians(sums.numbers)
        assert curvatures is not None  # every objective queries them
        return card.plus(spec, objective.update(card, gradients, curvatures, sums.scale))

    def cell_noise(self, epsilon: Epsilon) -> float:
        return standard_deviation(count_scale(self.objective.schema, epsilon))

    # In words

    @property
    def total(self) -> Epsilon:
        return self.costs.total

    @property
    def title(self) -> str:
        steps, attributes = many(len(self.costs.steps), "step"), many(len(self.specs), "attribute")
        return f"{type(self.miner).__name__} for `{self.objective.target}`: {steps} over {attributes}"

    def notes(self) -> Iterator[str]:
        yield "all queries concern the same rows, so their costs add up."
        if self.miner.steps is None:
            yield (
                f"steps is not given; {len(self.costs.steps)} follows from epsilon, max_rows, the attributes "
                "and the classes."
            )
        if self.pairs and not self.costs.steps:
            yield "there are no steps, so no pair is chosen; give `steps`."

    def warnings(self, rows: int | None) -> tuple[str, ...]:
        schema, objective = self.objective.schema, self.objective
        epsilon, costs = self.costs.total, self.costs
        expected = schema.max_rows if rows is None else rows
        if not costs.steps and not costs.tables:
            return (
                f"at epsilon {epsilon} and at most {schema.max_rows:,} rows noise hides all points, so every "
                f"row is predicted {objective.majority}; a larger `epsilon` is needed.",
            )
        facts = f"at epsilon {epsilon} and {'at most' if rows is None else 'about'} {expected:,} rows"
        noise = self.cell_noise(min([*costs.tables, *(step.sums for step in costs.steps)]))
        if expected < noise:
            return (
                f"{facts} the noise in each cell is about {rows_text(noise)} rows, as many as all rows; take fewer "
                "`steps`, fewer `attributes`, or a larger `epsilon`.",
            )
        noise = self.cell_noise(max([*costs.bases, *costs.tables]))
        if objective.target in schema.categorical_columns and expected < CLEAR_CLASS * noise:
            return (
                f"{facts} no class has {rows_text(CLEAR_CLASS * noise)} rows, {CLEAR_CLASS} deviations of the noise in "
                "a count, so probabilities may be far off; take fewer `attributes`, or a larger `epsilon`.",
            )
        return ()

    def lines(self) -> list[PlanLine]:
        target = self.objective.target
        cells = [self._size(spec) for spec in self.offered]
        start = self._size(self.objective.base_parts)
        texts = [f"rows by `{target}`"] + [f"rows by `{target}`, in finer cells"] * (len(self.costs.bases) - 1)
        schema = self.objective.schema
        lines = [count_line(schema, text, start, each) for text, each in zip(texts, self.costs.bases, strict=True)]
        if self.costs.tables:
            text = f"`{target}` in the cells of each attribute"
            classes = self._size(self.objective.table_parts)
            each, total = self.costs.tables[0], sum(self.costs.tables, ZERO)
            parts = classes * sum(self._size(spec) for spec in self.specs)
            lines.append(count_line(schema, text, parts, total, each))
        for number, step in enumerate(self.costs.steps, 1):
            lines += self._step_lines(number, step, max(cells))
        return lines

    def _step_lines(self, number: int, step: CardStep, cells: int) -> list[PlanLine]:
        unit, lines = self.objective.noise_unit, []
        if step.choice is not None:
            # A score may rise or fall, so the scale of a choice's noise is twice that of a sum.
            noise = None if unit is None else 2 * self.objective.scale(step.choice)
            text = f"attribute{' or pair' * bool(self.pairs)} to improve, of {len(self.offered):,}"
            lines.append(PlanLine(number, text, "exp_mech", 1, step.choice.exact, noise, unit or ""))
        noise = None if unit is None else standard_deviation(self.objective.scale(step.sums))
        lines.append(PlanLine(number, "gradients of its cells", "noisy_sum", cells, step.sums.exact, noise, unit or ""))
        return lines


@dataclass(kw_only=True, repr=False, eq=False)
class ScorecardMiner(Miner):
    """A miner whose fitted state is a ``Card``; ``Scorecard`` describes the parameters."""

    epsilon: EpsilonLike = NOT_GIVEN
    steps: int | None = None
    attributes: Sequence[str] | None = None
    cuts: Mapping[str, Sequence[float] | int] | None = None
    pairs: bool = False

    _state = Card
    _plan_kind: ClassVar[type[CardFit]] = CardFit
    _limits = (
        "Points add up: effects of attributes that act only together are not learned, except by `pairs`.",
        "On small tables noise shrinks points, and probabilities move towards the middle.",
    )

    def export_text(self) -> str:
        """The card as text: the points of each value, the start, the meaning of sums."""
        return self._model.export_text()

    def explain(self, row: Mapping[str, object] | pd.DataFrame) -> pd.DataFrame:
        """The points that each attribute adds for one row, the largest first.

        Args:
            row: Values by column, or a table of one row.

        Returns:
            A line for each attribute and one for the start of all rows; the columns are ``value``
            and one for each output.
        """
        return self._model.explain(row)

    def plot(self, *, max_attributes: int | None = None) -> Axes:
        """Draws each attribute's points with intervals, the most important attribute first.

        Bars show two standard deviations of the posterior on each side (``card.py``): the
        uncertainty by noise and by the number of rows, without the effects of other attributes.

        Args:
            max_attributes: The number of attributes to draw; None for all.

        Returns:
            The axes of the first attribute; ``.figure`` is the whole picture.

        Raises:
            ImportError: matplotlib is not installed.
        """
        if max_attributes is not None:
            whole_number("max_attributes", max_attributes, 1, 10_000)
        return self._model.plot(max_attributes)

    def _checked(self, schema: Schema, target: str) -> CardFit:
        epsilon = Epsilon.of(self.epsilon)
        self._require_target(schema, target)
        objective = objective_of(schema, target)
        attributes = attribute_names(schema, target, self.attributes)
        specs = attribute_cells(schema, target, attributes, self.cuts, objective.grid(epsilon, len(attributes)))
        require_bool("pairs", self.pairs)
        pairs = attribute_pairs(schema, target, attributes, self.cuts) if self.pairs else ()
        cells = [bind(spec, schema).size for spec in specs]
        steps = self._default_steps(objective, epsilon, cells)
        if self.steps is not None:
            steps = whole_number("steps", self.steps, 0, MAX_STEPS)
        elif len(specs) == 1:
            steps = min(steps, 1)  # further steps of one attribute correct nothing
        choice = objective.choice([*cells, *(bind(pair, schema).size for pair in pairs)])
        costs = self._costs(epsilon, objective, cells, steps, choice)
        return self._plan_kind(self, objective, specs, costs, pairs=pairs)

    def _default_steps(self, objective: Objective, epsilon: Epsilon, cells: Sequence[int]) -> int:
        return objective.steps(epsilon, cells)

    def _costs(
        self, epsilon: Epsilon, objective: Objective, cells: Sequence[int], steps: int, choice: float
    ) -> FitCosts:
        tables = len(cells) if self._asks_tables(objective, epsilon, len(cells)) else 0
        weight = objective.table_weight(epsilon, len(cells)) or TABLES
        base, looks = objective.base(cells), objective.looks
        return FitCosts.of(epsilon, tables=tables, steps=steps, choice=choice, base=base, weight=weight, looks=looks)

    def _asks_tables(self, objective: Objective, epsilon: Epsilon, attributes: int) -> bool:
        return objective.table_weight(epsilon, attributes) > 0 or (objective.tabulates and self.steps == 0)


@dataclass(kw_only=True, repr=False, eq=False)
class Scorecard(Classifier, ScorecardMiner):
    """A scorecard for classes: points for each value of each attribute add up to log-odds.

    It is an additive model, much like a logistic regression on binned attributes. Each step of component-wise boosting
    selects the attribute whose cells have the largest remaining error, queries the noisy gradient and curvature of its
    cells, and updates its points according to the noise. With more than two classes or few attributes, noisy tables of
    all attributes come first.

    On large tables its probabilities are well calibrated. On small tables noise shrinks the points,
    and probabilities move towards the middle (docs/scorecards.md). If attributes act together (a
    chess position, an exclusive or), a tree is better.

    Args:
        epsilon: The cost of ``fit``, in the policy's own terms.
        steps: The number of steps, each of which selects one attribute, 0 to 200. None for a number
            that follows from public facts (epsilon, ``max_rows``, the classes). 0 queries one table
            of each attribute, as naive Bayes does: for attributes that are not redundant.
        attributes: The columns to use. None for all but the target.
        cuts: Cut points for numeric attributes, ``{"age": [30, 45]}``, or a number of intervals,
            ``{"age": 5}``. Without: the cuts that the policy declares for the column, else intervals
            of equal width and round numbers.
        pairs: Whether steps may also choose a pair of attributes that act together, and add a small
            table of points for it. A pair has at most 64 cells; numeric attributes without cuts
            have six intervals in it.

    Attributes:
        card_: The fitted ``Card``.
        classes_: The declared values of the target, shape (classes,).
        feature_importances_: The importance of each column; they add up to 1.
        schema_: The public schema of the fit.
        cost_: The cost of the last ``fit``, exact.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: all queries concern the same rows, each at a fraction of ``epsilon``; the fractions are
        whole nano-epsilons that add up to it. Gradient and curvature of a row together cost one
        count (two classes), or are clipped to this cost (many classes); privacy.md 8. Points are
        computed from answers only.
        Exact: nano-epsilons. Held by: tests/unit/scorecards/test_costs.py,
        tests/contract/test_every_miner.py.

    Notes:
        docs/defaults.md has the rule for the fraction of a choice and the number of steps.

    References:
        Bühlmann & Yu 2003, "Boosting with the L2 loss"; Lou et al. 2012, "Intelligible models for
        classification and regression"; Nori et al. 2021, "Accuracy, interpretability and
        differential privacy via explainable boosting".

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import Scorecard
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> card = Scorecard(epsilon=0.5).fit(handle, "income")
        >>> bool(card.score(rows) > 0.82), float(card.cost_)
        (True, 0.5)
        >>> list(card.explain(dict(rows.iloc[0])))[:2]  # the points of one row
        ['value', '>50K']
    """

    _other = "ScorecardRegressor"


@dataclass(kw_only=True, repr=False, eq=False)
class ScorecardRegressor(Regressor, ScorecardMiner):
    """A scorecard for the mean of a numeric column: each value of an attribute adds units of the target.

    It makes the steps of ``Scorecard`` on clamped residuals, and has its arguments and attributes, without
    ``classes_``. Noisy histograms of the target give the start of the scores and the bound of the residuals.

    Privacy:
        As for ``Scorecard``. A residual is clamped to a bound that follows from an earlier answer. The residual and the
        row's count are two bins that together cost this bound (privacy.md 8.4).
        Exact: nano-epsilons. Held by: tests/unit/scorecards/test_costs.py,
        tests/contract/test_every_miner.py.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import ScorecardRegressor
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> hours = ScorecardRegressor(epsilon=1).fit(handle, "hours_per_week")
        >>> bool(hours.score(rows) > 0.05)  # R^2
        True
    """

    _other = "Scorecard"
