# SPDX-License-Identifier: Apache-2.0
"""``Synthesizer`` buys the tables that a model of the rows needs most, one after the other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from miners.budget.payment import Bill, begin_fit
from miners.budget.plan import Plan, PlanLine, count_scale, many, remember_fit, rows_text
from miners.estimator import Learned, public_schema
from miners.growth.candidates import Grid, attribute_cells, attribute_names
from miners.synthesizer.graphical_model import Columns, GraphicalModel, Measured, tree_cells
from miners.synthesizer.synthetic_table import Bought, SyntheticTable
from pinq.errors import QueryError, unspent
from pinq.public.checks import is_whole
from pinq.public.epsilon import ZERO, Epsilon, EpsilonLike, standard_deviation
from pinq.public.scores import Misfit
from pinq.public.specs import Cross, Cuts, Spec, Values, bind

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from pinq.analyst.queryable import PrivateQueryable
    from pinq.public.schema import Schema

__all__ = ["Synthesizer"]

SINGLES, CHECKS, CHOICES = 15, 5, 10  # percent: tables of one column, the model's own error; and of a round, its choice
CHECKED = 4  # pairs whose tables tell how far the model is off
# Rounds for each column, before shares double, are this times the cube root of rows times epsilon: on Adult 12 in all
# were best at .1, and 26 at 1.
ROUNDS = 0.054
MAX_CELLS = 20_000  # of a pair that may be bought
TREE_CELLS = 300_000  # of the junction tree: what a fit may take in memory and time
EXPECTED = 16  # parts of a row, in which a model's expectations are sent
DRAWN = 100_000  # rows by which a model's pairs are judged
WIDTHS = 12  # cells of a numeric column about which nobody said anything


@dataclass(frozen=True)
class Purchase:
    """What is decided before the first question.

    Attributes:
        schema: The public schema.
        specs: The cells of each column.
        total: What all questions cost.
        target: The number of the column whose tables weigh more, if one does.
    """

    schema: Schema
    specs: tuple[Values | Cuts, ...]
    total: Epsilon
    target: int | None

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The cells of each column."""
        return tuple(bind(spec, self.schema).size for spec in self.specs)

    @cached_property
    def pairs(self) -> list[Columns]:
        """The pairs of columns whose tables may be bought."""
        pairs = itertools.combinations(range(len(self.specs)), 2)
        return [pair for pair in pairs if self.cells(pair) <= MAX_CELLS]

    @property
    def single(self) -> Epsilon:
        """What the table of one column costs."""
        percent = SINGLES if self.pairs else 100
        return self.total * percent // (100 * len(self.specs))

    @property
    def checks(self) -> Epsilon:
        """What the table of a checked pair costs; nothing where all pairs can be bought by rounds."""
        return self.total * CHECKS // (100 * CHECKED) if len(self.pairs) > 2 * CHECKED else ZERO

    @property
    def rounds(self) -> Epsilon:
        """What all rounds cost."""
        return self.total - self.single * len(self.specs) - self.checks * CHECKED

    @property
    def round(self) -> Epsilon:
        """What a round costs at first."""
        rounds = ROUNDS * len(self.specs) * (self.schema.max_rows * float(self.total)) ** (1 / 3)
        return self.rounds // max(1, min(len(self.pairs), round(rounds)))

    def cells(self, columns: Columns) -> int:
        """How many cells the table of some columns has."""
        return math.prod(self.sizes[column] for column in columns)

    def spec(self, columns: Columns) -> Spec:
        """The partition into the cells of some columns."""
        return Cross(tuple(self.specs[column] for column in columns)) if len(columns) > 1 else self.specs[columns[0]]

    def deviation(self, epsilon: Epsilon) -> float:
        """The deviation of the noise in each count of a table."""
        return standard_deviation(count_scale(self.schema, epsilon))

    def weight(self, pair: Columns) -> int:
        """The weight of a pair's misfit, in percent."""
        return 100 if self.target is None or self.target in pair else 50


@dataclass(kw_only=True, repr=False, eq=False)
class Synthesizer(Learned):
    """A model of the whole table that draws synthetic rows and estimates tables of any columns.

    It queries the noisy table of each column, and then works in rounds. ``exp_mech`` selects the pair of
    columns whose table the model fits worst, relative to the noise, and ``noisy_count`` queries this table.
    A graphical model is fitted to all tables. If a round improves the model by less than its noise, later
    rounds get twice the epsilon. Five percent of epsilon query tables of random unmeasured pairs, which
    estimate the model's error.

    Synthetic rows have the relations between pairs of columns, and of more columns as far as pairs
    determine them. Relations that exist only among three or more columns are lost.

    Args:
        epsilon: The cost of ``fit``, in the policy's own terms.
        columns: The columns of the model. None for all.
        cuts: Cut points for numeric columns, ``{"age": [30, 45]}``, or a number of intervals. Without:
            the cuts that the policy declares, else intervals of equal width and round numbers.
        random_state: Seed of the public randomness: the pairs for the error, and rows between rounds.

    Attributes:
        model_: The fitted ``SyntheticTable``: ``sample``, ``table``, ``estimate``, ``quality``.
        schema_: The public schema.
        cost_: What the last ``fit`` spent, exact.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: all questions are asked of the same rows, and their shares, whole nano-epsilons, add up to
        it (sequential composition). What is asked follows from answers and from public coins.
        Exact: nano-epsilons. Held by: tests/unit/synthesizer, tests/contract/test_every_miner.py.

    References:
        McKenna et al. 2022, "AIM: An adaptive and iterative mechanism for differentially private
        synthetic data" (the loop; here at pure epsilon, on pairs); privacy.md 10.

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import Synthesizer
        >>> rows = pd.read_parquet("data/adult.parquet")  # public; of a private table there is only a handle
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> columns = ["sex", "education", "income"]
        >>> model = Synthesizer(epsilon=1, columns=columns, random_state=0).fit(handle)
        >>> model.sample(5, random_state=1).columns.tolist()
        ['education', 'sex', 'income']
    """

    epsilon: EpsilonLike = 1.0
    columns: Sequence[str] | None = None
    cuts: Mapping[str, Sequence[float] | int] | None = None
    random_state: int | None = None

    _limits = (
        "A relation that three or more columns have only together is not in the model.",
        "Numbers lie evenly within their cell.",
    )

    def fit(self, handle: PrivateQueryable, target: str | None = None, *, reuse: bool = False) -> Self:
        """Learns a model of the rows behind a handle.

        Args:
            handle: A private handle; see ``pinq.open``, ``pinq.connect``, ``pinq.simulate``.
            target: A column whose pairs weigh twice as much as others; None for none.
            reuse: Take the stored answers where the same fit was paid for before, at no cost; needs a
                ``random_state``.

        Raises:
            QueryError: A parameter is wrong.
            BudgetExceeded: Less than ``epsilon`` remains.
        """
        with unspent():
            purchase = self._checked(public_schema(handle), target)
            warnings = self._warnings(purchase, None)
            asked, certificate = begin_fit(self, handle, target, purchase.total, warnings, reuse=reuse)
        with Bill(handle) as bill:
            model = _Fitting(purchase, asked, np.random.default_rng(self.random_state)).learned()
        remember_fit(self, handle, certificate())
        return self._fitted(model, bill.total)

    def fitted_again(self, handle: PrivateQueryable) -> Self:
        """Fits another with the parameters and the target of this one."""
        return type(self)(**self._fit_params).fit(handle, self._model.target)

    def plan(self, schema: Schema, target: str | None = None, *, rows: int | None = None) -> Plan:
        """Says what ``fit`` is going to ask and what it costs. Free: it looks at the schema only."""
        work = self._checked(schema, target)
        title = f"Synthesizer of {many(len(work.specs), 'column')} and of their {many(len(work.pairs), 'pair')}"
        notes = ("a round that teaches less than its noise doubles the cost of later ones, so rounds may be fewer.",)
        return Plan(title, tuple(self._lines(work)), work.total.exact, notes, self._warnings(work, rows))

    def sample(self, rows: int | None = None, *, random_state: int | None = None) -> pd.DataFrame:
        """Draws synthetic rows; see ``SyntheticTable.sample``."""
        return self._model.sample(rows, random_state=random_state)

    def to_frame(self) -> pd.DataFrame:
        """What was bought and how exact it is: a row for each table."""
        return self._model.quality.copy()

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws how pairs depend on each other; see ``SyntheticTable.plot``."""
        return self._model.plot(ax)

    def export_text(self) -> str:
        """What was bought and how far the model is off, as text."""
        return self._model.export_text()

    def _checked(self, schema: Schema, target: str | None) -> Purchase:
        total = Epsilon.of(self.epsilon)
        names = attribute_names(schema, target, self.columns)
        if target is not None:
            schema.column(target)
            names = [name for name in schema.columns if name in names or name == target]
        if self.random_state is not None and not is_whole(self.random_state, 0):
            allowed = "None or a whole number from 0"
            raise QueryError(f"is {self.random_state!r}", parameter="random_state", allowed=allowed)
        specs = attribute_cells(schema, None, names, self.cuts, Grid(WIDTHS))
        purchase = Purchase(schema, tuple(specs), total, None if target is None else names.index(target))
        if not purchase.single or (purchase.pairs and not purchase.round):
            raise QueryError(f"is {total}, too little for {many(len(specs), 'column')}", parameter="epsilon")
        return purchase

    def _warnings(self, work: Purchase, rows: int | None) -> tuple[str, ...]:
        noise, cells = work.deviation(work.single), max(work.sizes)
        expected = work.schema.max_rows if rows is None else rows
        if noise * cells <= expected:
            return ()
        return (
            f"noise of {rows_text(noise)} rows in each of {cells:,} cells hides a table of {expected:,} rows; take "
            "fewer `columns` or a larger `epsilon`.",
        )

    def _lines(self, purchase: Purchase) -> Iterator[PlanLine]:
        singles = purchase.single * len(purchase.sizes)
        yield self._counts(purchase, "rows in the cells of each column", sum(purchase.sizes), singles, purchase.single)
        if not purchase.pairs:
            return
        choice, table = _divided(purchase.round)
        rounds = purchase.rounds.nano // purchase.round.nano
        largest = max(map(purchase.cells, purchase.pairs))
        pairs = f"the pair that fits worst, of {len(purchase.pairs):,}, at most {many(rounds, 'time')}"
        yield PlanLine(1, pairs, "exp_mech", 1, (choice * rounds).exact, None, "")
        yield self._counts(purchase, "rows in its cells", largest, purchase.rounds - choice * rounds, table)
        if purchase.checks:
            asked = f"rows in the cells of {CHECKED} pairs drawn at random"
            yield self._counts(purchase, asked, CHECKED * largest, purchase.checks * CHECKED, purchase.checks)

    def _counts(self, purchase: Purchase, asked: str, parts: int, epsilon: Epsilon, each: Epsilon) -> PlanLine:
        return PlanLine(0, asked, "noisy_count", parts, epsilon.exact, purchase.deviation(each))

    @property
    def _model(self) -> SyntheticTable:
        self._require_fitted("model_")
        return self.model_

    def _told(self) -> Mapping[str, str]:
        return {"learned": repr(self._model)}

    def _plan_of(self, fitted: Synthesizer) -> Plan:
        return fitted.plan(self.schema_, self._model.target)

    def _stored(self) -> dict[str, object]:
        return {"model": self._model.to_dict()}

    def _restored(self, stored: Mapping[str, object], cost: Fraction) -> Self:
        return self._fitted(SyntheticTable.from_dict(stored.get("model")), cost)

    def _fitted(self, model: SyntheticTable, cost: Fraction) -> Self:
        self.model_ = model
        self._note(model.schema, (name for name in model.columns if name != model.target), cost)
        return self


def _divided(share: Epsilon) -> tuple[Epsilon, Epsilon]:
    """What a round's choice and its table cost."""
    choice = share * CHOICES // 100
    return choice, share - choice


class _Fitting:
    """One fit: what was bought, and the model so far."""

    def __init__(self, purchase: Purchase, handle: PrivateQueryable, random: np.random.Generator) -> None:
        self.purchase, self.handle, self.random = purchase, handle, random
        self.bought: list[Bought] = []

    def learned(self) -> SyntheticTable:
        """Buys all tables; returns the last model."""
        purchase = self.purchase
        for column in range(len(purchase.specs)):
            self._buy((column,), purchase.single)
        model = self._model(None)
        left, share = purchase.rounds, purchase.round
        while purchase.pairs and left:
            share = left if left < share + share else share
            model, taught = self._round(model, share, 1 - left.nano / purchase.rounds.nano)
            left -= share
            share = share if taught else share + share
        error = self._checked_error(model) if purchase.checks else None
        target = None if purchase.target is None else purchase.specs[purchase.target].column
        last = self._model(model)
        return SyntheticTable(purchase.schema, purchase.specs, last, tuple(self.bought), error, target)

    def _round(self, model: GraphicalModel, share: Epsilon, progress: float) -> tuple[GraphicalModel, bool]:
        """Buys the table that fits worst; returns the next model, and whether it taught more than noise."""
        choice, price = _divided(share)
        offered = self._offered(model, price, progress) or self._known(model)
        noise = self.purchase.deviation(price) / math.sqrt(2)  # the mean size of Laplace noise
        pair = self._chosen(model, offered, choice, noise)
        before = model.marginal(pair) * model.rows
        self._buy(pair, price)
        after = self._model(model)
        taught = float(np.abs(after.marginal(pair) * after.rows - before).sum())
        return after, taught >= noise * before.size

    def _offered(self, model: GraphicalModel, price: Epsilon, progress: float) -> list[Columns]:
        """The pairs that keep the junction tree small; at first smaller than at the end."""
        # So no early choice takes all the room of later ones; a first pair fits, however many cells columns have.
        room = sum(model.sizes) + TREE_CELLS * (0.3 + 0.7 * progress)
        known = [columns for columns in model.potentials if len(columns) > 1]
        # A table bought twice at one price would be one question, whose answer a fit that runs again takes twice.
        dear = {bought.columns for bought in self.bought if bought.epsilon == price}
        return [
            pair
            for pair in self.purchase.pairs
            if pair not in dear
            and (model.tree.home(pair) is not None or tree_cells(model.sizes, [*known, pair]) <= room)
        ]

    def _known(self, model: GraphicalModel) -> list[Columns]:
        """The pairs whose tables the junction tree holds already: to buy one again takes no more room."""
        return [pair for pair in self.purchase.pairs if model.tree.home(pair) is not None]

    def _chosen(self, model: GraphicalModel, offered: Sequence[Columns], epsilon: Epsilon, noise: float) -> Columns:
        """The pair whose table the model misses most, by ``exp_mech``."""
        codes = model.sampled(DRAWN, self.random)
        specs = [self.purchase.spec(pair) for pair in offered]
        tables = [np.rint(self._expected(model, pair, codes) * (EXPECTED * model.rows)) for pair in offered]
        score = Misfit(
            tuple(specs),
            tuple(tuple(table.astype(np.int64).ravel().tolist()) for table in tables),
            round(EXPECTED * noise),
            tuple(map(self.purchase.weight, offered)),
        )
        chosen = self.handle.exp_mech(specs, score=score, epsilon=epsilon)
        assert chosen is not None  # plain candidates always have a member
        return offered[specs.index(chosen)]

    def _expected(self, model: GraphicalModel, pair: Columns, codes: np.ndarray) -> np.ndarray:
        """The share of rows in each cell of a pair: exact where that is cheap, else of rows drawn."""
        if model.tree.home(pair) is not None:
            return model.marginal(pair)
        first, second = pair
        numbers = codes[:, first] * model.sizes[second] + codes[:, second]
        return np.bincount(numbers, minlength=self.purchase.cells(pair)) / len(codes)

    def _checked_error(self, model: GraphicalModel) -> float | None:
        """Bounds how far the model's tables of pairs that it did not buy are off, with 90 % confidence.

        Each noisy table y of k cells with noise of variance v gives d = Σ (y - m)² - k v, which estimates
        Σ (n - m)² without bias. Half of Σ |n - m| is at most half the root of k Σ (n - m)², so the mean of
        k d / 4 estimates a bound of the mean square of that distance. Its deviation is that of the pairs
        drawn and of the noise, and 1.28 deviations are added.
        """
        unknown = sorted(set(self.purchase.pairs) - {bought.columns for bought in self.bought})
        if len(unknown) < CHECKED:
            for pair in self.purchase.pairs[:CHECKED]:
                self._buy(pair, self.purchase.checks)
            return None
        squares, noises = [], []
        for number in sorted(self.random.choice(len(unknown), CHECKED, replace=False).tolist()):
            pair = unknown[number]
            expected = model.marginal(pair).ravel() * model.rows
            table = self._buy(pair, self.purchase.checks)
            cells, variance = expected.size, table.deviation**2
            square = float(((table.counts - expected) ** 2).sum()) - cells * variance
            weight = cells / (2 * model.rows) ** 2
            squares.append(weight * square)
            # The square of Laplace noise of variance v has the variance 5 v², and noise times a miss d 4 v d².
            noises.append(weight**2 * (5 * cells * variance**2 + 4 * variance * max(square, 0.0)))
        spread = np.var(squares, ddof=1) * (1 - CHECKED / len(unknown)) / CHECKED
        deviation = math.sqrt(spread + float(np.sum(noises)) / CHECKED**2)
        return math.sqrt(max(0.0, float(np.mean(squares)) + 1.28 * deviation))

    def _buy(self, columns: Columns, epsilon: Epsilon) -> Measured:
        counts = self.handle.partition(self.purchase.spec(columns)).noisy_count(epsilon=epsilon)
        table = Measured(columns, np.asarray(counts, dtype=np.float64).ravel(), self.purchase.deviation(epsilon))
        self.bought.append(Bought(columns, epsilon, table.counts, table.deviation))
        return table

    def _model(self, before: GraphicalModel | None) -> GraphicalModel:
        measured = [Measured(bought.columns, bought.counts, bought.deviation) for bought in self.bought]
        return GraphicalModel.fitted(self.purchase.sizes, measured, before)
