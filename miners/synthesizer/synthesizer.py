# SPDX-License-Identifier: Apache-2.0
"""``Synthesizer`` learns a model of the rows: it queries the tables that the model needs most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self, cast

import numpy as np
import pandas as pd

from miners.budget.plan import (
    NOT_GIVEN,
    Plan,
    Storage,
    bytes_of,
    patient,
    public_handle,
    rows_text,
    tell,
)
from miners.estimator import FitPlan, Miner, public_schema, required_schema
from miners.growth.candidates import Grid, attribute_cells, attribute_names
from miners.growth.frontier import rehearsing
from miners.pictures import Axes
from miners.synthesizer.fitting import Fitting
from miners.synthesizer.purchase import CHECKED, FEW_VALUES, WIDTHS, Purchase
from miners.synthesizer.relations import ordered
from miners.synthesizer.synthetic_table import Bought, SyntheticTable
from miners.tables.columns import Condition
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError, unspent
from pinq.public.checks import is_whole, many
from pinq.public.columns import CutPoint
from pinq.public.epsilon import Epsilon, EpsilonLike
from pinq.public.schema import Schema


@dataclass(frozen=True)
class SynthesizerFit(Purchase, FitPlan["PrivateQueryable"]):
    """The fit of a model of the rows."""

    random_state: int | None = None

    def notes(self) -> tuple[str, ...]:
        """Returns a note on targets if there is none, and on rows that noise hides if there are numbers."""
        target = (
            "no target is named, so tables that decide a column which you will predict may be missing; name it: "
            "`fit(handle, target)`."
        )
        numbers = (
            f"noise can hide {rows_text(self.hidden)} rows far out in a column of numbers. If so few carry its "
            "deviation, synthetic rows have a smaller one; `model_.numbers` has the most that it can be."
        )
        numeric = any(spec.column in self.schema.numeric_columns for spec in self.specs)
        return (target,) * (self.target is None and bool(self.pairs)) + (numbers,) * numeric

    def rehearse(self, handle: PrivateQueryable) -> Storage:
        counted = sum(line.parts for line in self.lines() if line.verb == "noisy_count")
        stored = bytes_of(counted, len(self.specs) + 2 * CHECKED + len(self.fines))
        if not self.pairs or not self.rounds:
            return Storage(stored)
        with rehearsing(handle) as (rehearsal, asked):
            Fitting(self, rehearsal, np.random.default_rng(self.random_state)).rehearse()
        # Each round is as much as the largest of all rehearsed queries, which are a choice too, and the largest table.
        largest = max(request.stored(self.schema) for request in asked)
        return Storage(stored + largest + self.turns * (largest + bytes_of(max(map(self.cells, self.pairs)))))

    def learn(self, source: PrivateQueryable) -> SyntheticTable:
        return Fitting(self, source, np.random.default_rng(self.random_state)).learned()


@dataclass(kw_only=True, repr=False, eq=False)
class Synthesizer(Miner):
    """A model of the whole table that draws synthetic rows and estimates tables of any columns.

    It queries the noisy table of each column, and then works in rounds. ``exp_mech`` selects the pair of columns whose
    table the model fits worst, relative to the noise, and ``noisy_count`` queries this table. A graphical model is
    fitted to all tables; further queries refine numbers and estimate the model's error (docs/synthesizer.md).

    Synthetic rows have the relations between pairs of columns, and of more columns as far as pairs
    determine them. Relations that exist only among three or more columns are lost.

    Args:
        epsilon: The cost of ``fit``, in the policy's own terms.
        columns: The columns of the model. None for all.
        cuts: Cut points for numeric columns, ``{"age": [30, 45]}``, or a number of intervals. Without:
            the cuts that the policy declares, else intervals of equal width and round numbers. If noise
            allows, these intervals then move to where rows are.
        order: Pairs of numeric columns of the model of which the first is never the larger, like ``[("from", "to")]``.
            Their tables are queried first, and synthetic rows keep the order.
        random_state: Seed of the public randomness, which draws pairs.

    Attributes:
        model_: The fitted ``SyntheticTable``: ``sample``, ``table``, ``estimate``, ``quality``, ``numbers``.
        schema_: The public schema.
        cost_: The cost of the last ``fit``, exact.

    Privacy:
        Adjacency: the policy's. Claim: ``fit`` is ``epsilon``-DP, in the policy's own terms.
        Why: all queries concern the same rows, and their costs, whole nano-epsilons, add up to it
        (sequential composition). The queries follow from answers and from public randomness.
        Exact: nano-epsilons. Held by: tests/unit/synthesizer, tests/contract/test_every_miner.py.

    References:
        McKenna et al. 2022, "AIM: An adaptive and iterative mechanism for differentially private
        synthetic data" (the loop; here at pure epsilon, on pairs); privacy.md 8.7 (the score).

    Examples:
        >>> import pandas as pd, pinq
        >>> from miners import Synthesizer
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> handle = pinq.simulate("policies/adult.yaml", data=rows, epsilon=1)
        >>> columns = ["sex", "education", "income"]
        >>> model = Synthesizer(epsilon=1, columns=columns, random_state=0).fit(handle)
        >>> model.sample(5, random_state=1).columns.tolist()
        ['education', 'sex', 'income']
    """

    epsilon: EpsilonLike = NOT_GIVEN
    columns: Sequence[str] | None = None
    cuts: Mapping[str, Sequence[float] | int] | None = None
    order: Sequence[tuple[str, str]] = ()
    random_state: int | None = None

    _state = SyntheticTable
    _limits = (
        "Relations that exist only among three or more columns together are not in the model.",
        "Within its cell a number depends on no other column.",
    )

    def fit(
        self,
        handle: PrivateQueryable,
        target: str | None = None,
        *,
        reuse: bool = False,
        history: bool | Sequence[Bought] = False,
    ) -> Self:
        """Learns a model of the rows behind a handle.

        Args:
            handle: A private handle; see ``pinq.open``, ``pinq.connect``, ``pinq.simulate``.
            target: A column whose pairs weigh twice as much as others; None for none.
            reuse: Whether to use the stored answers of an identical earlier fit, at no cost; needs a
                ``random_state``.
            history: Use every noisy count in ``handle.history()`` that is a table in the model's
                cells. A known table of one column is not queried again. A table of several columns
                replaces a round, and counts as at most the round's epsilon. Tables too large for
                the model are left out. With a model's ``bought`` instead of True, the fit uses the
                tables that this model used.

        Raises:
            QueryError: A parameter is wrong.
            BudgetExceeded: The budget is less than ``epsilon``, or than its part that ``history``
                leaves.
        """
        with unspent():
            fit = self._checked(public_schema(handle), target)
            if history and reuse:
                raise QueryError("are both given", parameter="reuse and history", allowed="one of them")
            if history:
                fit = fit.with_history(handle.through(patient), history)
        fitted = self._run(fit, handle, target, reuse=reuse)
        tell(warning for warning in fit.warnings(fitted._model.rows) if warning not in fit.warnings(None))
        return fitted

    def fitted_again(self, handle: PrivateQueryable) -> Self:
        return type(self)(**self._fit_params).fit(handle, self._model.target, history=self._model.bought)

    def plan(self, schema: Schema, target: str | None = None, *, rows: int | None = None) -> Plan:
        """Returns the queries of ``fit`` and their costs, for free."""
        fit = self._checked(required_schema(schema), target)
        fit.rehearse(public_handle(schema))
        return fit.plan(rows)

    def sample(
        self,
        rows: int | None = None,
        *,
        where: Mapping[str, Condition] | None = None,
        random_state: int | None = None,
    ) -> pd.DataFrame:
        return self._model.sample(rows, where=where, random_state=random_state)

    def to_frame(self) -> pd.DataFrame:
        return self._model.quality.copy()

    def plot(self, ax: Axes | None = None) -> Axes:
        return self._model.plot(ax)

    def export_text(self) -> str:
        """Returns the measured tables, and the model's distance from them, as text."""
        return self._model.export_text()

    def _checked(self, schema: Schema, target: str | None) -> SynthesizerFit:
        total = Epsilon.of(self.epsilon)
        names = attribute_names(schema, target, self.columns)
        if target is not None:
            schema.column(target)
            names = [name for name in schema.columns if name in names or name == target]
        if self.random_state is not None and not is_whole(self.random_state, 0):
            raise QueryError(
                f"is {self.random_state!r}", parameter="random_state", allowed="None or a whole number from 0"
            )
        cuts: Any = self.cuts  # refused below unless it is a mapping
        if cuts is None or isinstance(cuts, Mapping):
            cuts = {**self._single_values(schema, names), **(cuts or {})}
        specs = attribute_cells(schema, None, names, cuts, Grid(WIDTHS))
        order = ordered(schema, [spec.column for spec in specs], self.order)
        kept, state = tuple(self.cuts or ()), self.random_state
        fit = SynthesizerFit(schema, tuple(specs), total, target, order=order, kept=kept, random_state=state)
        if not fit.single or (fit.pairs and not fit.round):
            raise QueryError(f"is {total}, too little for {many(len(specs), 'column')}", parameter="epsilon")
        return fit

    def _single_values(self, schema: Schema, names: Sequence[str]) -> dict[str, list[CutPoint]]:
        """Returns cuts between all values of columns with few values, so that relations of single values are kept."""
        numeric = {name: schema.numeric(name) for name in names if name in schema.numeric_columns}
        return {
            name: [column.cut_before(code) for code in range(1, column.cells)]
            for name, column in numeric.items()
            if 1 < column.cells <= FEW_VALUES and not column.cuts
        }

    @property
    def _model(self) -> SyntheticTable:
        return cast(SyntheticTable, super()._model)

    def _fitted(self, model: SyntheticTable, cost: Fraction, columns: Iterable[str] = (), name: str = "") -> Self:
        return super()._fitted(model, cost, model.columns)
