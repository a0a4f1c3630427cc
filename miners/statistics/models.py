# SPDX-License-Identifier: Apache-2.0
"""``logistic``, ``poisson`` and ``hazard_ratio``: maximum likelihood on the cells of one table.

With the canonical link the equations of a regression are sum x (s - n mu) = 0 over cells, where n
rows of a cell have outcomes of the sum s. They are linear in the counts, so noise in the counts
gives no bias where cells are empty. The covariance of the effects follows from the derivative of the
equations by the counts. Without noise it is the sandwich (HC0 of statsmodels), which holds where
the rows differ more, or less, than the model says.

Proportional hazards: in the piecewise exponential model the hazard is constant within an interval,
and the same multiple of the reference's in all intervals. Of an interval with D events and the
times at risk T_g, group g has the share p_g = T_g r_g / sum T_h r_h of the events, with the ratios
r; the likelihood's equations say that events and shares agree. Here the sandwich is that of Lin and Wei.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd

from miners.statistics.cells import Axis, Cells, Question, Result, StatisticFunction, listed, require_parts
from miners.statistics.effects import Effects
from miners.statistics.laws import chi2_tail, normal_tail
from miners.statistics.life_tables import INTERVALS, LifeTable
from miners.tables.columns import Column, Columns
from miners.tables.table import Draft
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.checks import is_listing
from pinq.public.epsilon import EpsilonLike
from pinq.public.schema import Value

STEPS = 50  # of Newton's method, which needs five to ten
MOST = 12.0  # the largest effect or linear predictor: odds of 160,000 say that a group has no other outcome
PARTS = 4  # of a numeric column that explains
MAX_CELLS = 1000  # combinations of columns; noise hides effects long before

Law = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
Score = Callable[[np.ndarray, np.ndarray], np.ndarray]
Matrix = Callable[[np.ndarray], np.ndarray]


def _solved(
    cells: Cells, effects: np.ndarray, counts: np.ndarray, score: Score, information: Matrix
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the effects of which the score is 0, by Newton's method, and their derivatives by each count.

    Args:
        cells: The table.
        effects: The effects to begin with.
        counts: The counts of which the score is.
        score: The score of tables of counts and effects.
        information: The information of the rows about the effects.
    """
    for _ in range(STEPS):
        back = np.linalg.pinv(information(effects), hermitian=True)
        change = np.clip(back @ score(counts[..., None], effects)[:, 0], -1, 1)
        effects = np.clip(effects + change, -MOST, MOST)
        if np.abs(change).max() < 1e-12:
            break
    return effects, back @ cells.derived(lambda tables: score(tables, effects))[1]


def _fitted(
    cells: Cells,
    measure: str,
    names: Sequence[str],
    effects: np.ndarray,
    covariance: np.ndarray,
    *,
    rows: float,
    lost: str,
    notes: Sequence[str],
    more: dict[str, Any],
) -> Result:
    """Makes the ratios of groups to their references, their intervals and the test of all of them.

    Args:
        cells: The table.
        measure: The name of an effect.
        names: The name of each.
        effects: The logarithms of the ratios.
        covariance: Their covariance.
        rows: The fewest rows of a group in a cell, on average.
        lost: The reason why a ratio has no end.
        notes: Further sentences.
        more: Further tables.
    """
    deviation = np.sqrt(np.maximum(np.diag(covariance), 0))
    with np.errstate(over="ignore"):  # endless, where nothing is known
        frame = listed(names, measure, np.exp(cells.interval(effects, deviation)))
    endless = [name for name, size in zip(names, np.abs(effects), strict=True) if not size < MOST - 1]
    statistic = float(effects @ np.linalg.pinv(covariance, hermitian=True) @ effects)
    return cells.result(
        Effects,
        frame,
        faint=cells.faint(rows) or not np.isfinite(deviation).all(),
        notes=[*(f"no {measure} can be told for {name}: {lost}" for name in endless), *notes],
        more=more,
        test="Wald, of all effects",
        statistic=statistic,
        df=len(effects),
        pvalue=chi2_tail(statistic, len(effects)),
    )


def _logistic(eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = 1 / (1 + np.exp(-eta))
    return mean, mean * (1 - mean)


def _poisson(eta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = np.exp(eta)
    return mean, mean


@dataclass(frozen=True)
class Model:
    """A generalised linear model of an outcome by columns of groups.

    Attributes:
        outcome: The column of the outcome.
        outcomes: The number that each part of the outcome counts as.
        groups: The columns that explain it; the first part of each is the reference.
        law: A function from linear predictors to means and variances.
        measure: The name of an effect.
    """

    outcome: Axis
    outcomes: np.ndarray
    groups: tuple[Axis, ...]
    law: Law
    measure: str

    def design(self) -> tuple[np.ndarray, list[str]]:
        """Returns a row for each cell of the groups: 1, and whether it is in each part but the first."""
        shape = [len(axis.labels) for axis in self.groups]
        at = np.indices(shape).reshape(len(shape), -1)
        columns, names = [np.ones(at.shape[1])], ["intercept"]
        for axis, position in zip(self.groups, at, strict=True):
            columns += [position == part for part in range(1, len(axis.labels))]
            names += [f"{axis.name}: {label} against {axis.labels[0]}" for label in axis.labels[1:]]
        return np.stack(columns, axis=1).astype(np.float64), names

    def fitted(self, cells: Cells, design: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the coefficients and their covariance."""
        counts = cells.counts.reshape(len(self.outcomes), -1)
        effects = np.zeros(design.shape[1])
        effects[0] = self._link(max(float(self.outcomes @ counts.sum(axis=1)) / max(cells.n, 1.0), 1e-6))

        def law(effects: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return self.law(np.clip(design @ effects, -MOST, MOST))

        def score(tables: np.ndarray, effects: np.ndarray) -> np.ndarray:
            tables = tables.reshape(*counts.shape, -1)
            beyond = np.tensordot(self.outcomes, tables, 1) - law(effects)[0][:, None] * tables.sum(axis=0)
            return np.asarray(design.T @ beyond)

        def information(effects: np.ndarray) -> np.ndarray:
            return np.asarray((design.T * (counts.sum(axis=0) * law(effects)[1])) @ design)

        effects, moved = _solved(cells, effects, cells.noisy, score, information)
        return effects, cells.drawn(moved) + cells.noise * moved @ moved.T

    def result(self, cells: Cells) -> Result:
        """Makes the effects, their intervals and the test of all of them."""
        design, names = self.design()
        effects, covariance = self.fitted(cells, design)
        deviation = np.sqrt(np.maximum(np.diag(covariance), 0))
        z = effects / np.where(deviation > 0, deviation, math.nan)
        _, low, high = cells.interval(effects, deviation)
        params = pd.DataFrame(
            {"coef": effects, "std err": deviation, "z": z, "P>|z|": [2 * normal_tail(abs(each)) for each in z]},
            index=pd.Index(names, name="term"),
        ).assign(low=low, high=high)
        rows = cells.counts.reshape(len(self.outcomes), -1).sum(axis=0) @ design
        of_term = rows / np.sqrt(len(self.outcomes) * design.sum(axis=0))  # which are sums of so many counts
        return _fitted(
            cells,
            self.measure,
            names[1:],
            effects[1:],
            covariance[1:, 1:],
            rows=float(of_term.min()),
            lost="all its rows have one outcome",
            notes=[f"the first part of each column is its reference; intercept {effects[0]:.4g}"],
            more={"params": params},
        )

    def _link(self, mean: float) -> float:
        return math.log(mean) if self.law is _poisson else math.log(mean / (1 - min(mean, 1 - 1e-6)))


def _drafted(
    question: Question,
    target: Axis,
    outcomes: np.ndarray,
    columns: Columns,
    law: Law,
    measure: str,
) -> Draft:
    """Drafts the table of the outcome and the columns, and the model of it."""
    handle = question.handle
    named = columns if is_listing(columns) else [cast(Column, columns)]
    groups = tuple(Axis.of(handle, column, PARTS) for column in named)
    if not groups:
        raise QueryError("names no column", parameter="columns", allowed="one column or more")
    combinations = math.prod(len(axis.labels) for axis in groups)
    if combinations > MAX_CELLS:
        raise QueryError(
            f"make {combinations:,} combinations, and rows of each are few under noise",
            parameter="columns",
            allowed=f"columns of {MAX_CELLS:,} combinations at most; a `Scorecard` takes more",
        )
    require_parts(target, *groups)
    title = f"{measure.replace('ratio', 'ratios', 1)} for {target.name}"
    return question.draft(title, (target, *groups), Model(target, outcomes, groups, law, measure).result)


@dataclass(frozen=True)
class Hazards:
    """The piecewise exponential model of ends counted by interval, kind and group.

    Attributes:
        life: The intervals.
        axes: Time, kind of end, and groups, of which the first is the reference.
        event: The part of the second axis that is the event; all others are censored.
    """

    life: LifeTable
    axes: tuple[Axis, Axis, Axis]
    event: int

    def counted(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns events and times at risk in grid cells, both of shape (intervals, groups)."""
        ended, widths = counts.sum(axis=1), self.life.widths.reshape(-1, *(1,) * (counts.ndim - 2))
        later = np.cumsum(ended[::-1], axis=0)[::-1] - ended
        # Of 10 rows that end in an interval of 4 cells, each is at risk in 2.5 of them.
        return counts[:, self.event], later * widths + ended * (widths + 1) / 2

    def score(self, counts: np.ndarray, effects: np.ndarray) -> np.ndarray:
        """Returns events beyond their share, for all groups but the reference; the last axis counts tables."""
        events, time = self.counted(counts)
        return (events - events.sum(axis=1, keepdims=True) * _shares(time, effects)).sum(axis=0)[1:]

    def fitted(self, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        """Returns the log ratios and their covariance."""
        events, time = self.counted(cells.counts)
        total = events.sum(axis=1)

        def information(effects: np.ndarray) -> np.ndarray:
            shares = _shares(time, effects)
            return (np.diag(total @ shares) - shares.T @ (total[:, None] * shares))[1:, 1:]

        effects, moved = _solved(cells, np.zeros(time.shape[1] - 1), cells.counts, self.score, information)
        return effects, cells.drawn(moved) + cells.moved(moved)

    def result(self, cells: Cells) -> Result:
        """Makes the ratios, their intervals and the test of all of them."""
        axis, (events, time) = self.axes[2], self.counted(cells.counts)
        totals = {"events": events.sum(axis=0), "time": time.sum(axis=0) * float(self.life.time.width)}
        return _fitted(
            cells,
            "hazard ratio",
            [f"{axis.name}: {label} against {axis.labels[0]}" for label in axis.labels[1:]],
            *self.fitted(cells),
            rows=float(events.sum(axis=0).min()) / math.sqrt(len(events)),
            lost="a group has no event",
            notes=["hazards are constant within an interval, and proportional between groups"],
            more={"rates": pd.DataFrame({axis.name: axis.labels} | totals)},
        )


def _shares(time: np.ndarray, effects: np.ndarray) -> np.ndarray:
    """Returns the share of each group in the events of an interval; the effect of the first group is 0."""
    weights = time * np.exp(np.concatenate([[0.0], effects])).reshape(-1, *(1,) * (time.ndim - 2))
    total = weights.sum(axis=1, keepdims=True)
    return np.asarray(weights / np.where(total.real > 0, total, 1))


@StatisticFunction
def logistic(
    handle: PrivateQueryable,
    target: Column,
    columns: Columns,
    *,
    epsilon: EpsilonLike,
    observed: Value | None = None,
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Estimates odds ratios of an event by several columns at once: logistic regression.

    Each part of a column is compared with its first part, all other columns held. The table has
    one cell for each combination, so a few columns of a few parts are exact, and noise hides more.

    Args:
        handle: A handle on a table, or on a part of it.
        target: The column of the event, of two parts.
        columns: The columns that explain it: categorical, ``Cuts``, or numeric ones in four parts.
        epsilon: The cost of all counts together.
        observed: The value of ``target`` that counts; by default the one that means yes.
        level: The confidence level of the intervals.
        reuse: Whether to return the stored answer of an identical earlier call, at no cost.

    Returns:
        An odds ratio with its interval for each part but the first. ``params`` has the coefficients,
        their standard errors, z and p-values, with the intercept.

    Raises:
        QueryError: The request is malformed.
        BudgetExceeded: The cost exceeds the remaining budget; nothing was spent.

    Examples:
        >>> import pinq
        >>> from miners.statistics import logistic
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> logistic(h, "income", ["sex", "race"], observed=">50K", epsilon=1)["groups"][0]
        'sex: Male against Female'
    """
    axis = Axis.of(handle, target, 2)
    yes, _ = axis.two(observed, "observed")
    question = Question(handle, epsilon, level, reuse)
    return _drafted(question, axis, np.eye(2)[yes], columns, _logistic, "odds ratio")


@StatisticFunction
def poisson(
    handle: PrivateQueryable,
    target: Column,
    columns: Columns,
    *,
    epsilon: EpsilonLike,
    bins: int = 20,
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Estimates ratios of rates of a count by several columns at once: Poisson regression.

    Args:
        handle: A handle on a table, or on a part of it.
        target: The numeric column that counts, such as visits; no value is below 0.
        columns: The columns that explain it, as of ``logistic``.
        epsilon: The cost of all counts together.
        bins: The number of parts of the target. A row counts as the middle of its part, so a column
            of at most so many values is exact.
        level: The confidence level of the intervals.
        reuse: Whether to return the stored answer of an identical earlier call, at no cost.

    Returns:
        A ratio of rates with its interval for each part but the first; ``params`` as of ``logistic``.

    Raises:
        QueryError: The request is malformed.
        BudgetExceeded: The cost exceeds the remaining budget; nothing was spent.

    Examples:
        >>> import pinq
        >>> from miners.statistics import poisson
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> poisson(h, "education_num", "sex", epsilon=1)["statistic"][0]
        'ratio of rates'
    """
    axis = Axis.numeric(handle, target, bins, "target").positive("target")
    return _drafted(Question(handle, epsilon, level, reuse), axis, axis.middles, columns, _poisson, "ratio of rates")


@StatisticFunction
def hazard_ratio(
    handle: PrivateQueryable,
    time: Column,
    event: Column,
    by: Column,
    *,
    epsilon: EpsilonLike,
    intervals: int | Sequence[float] = INTERVALS,
    observed: Value | None = None,
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Estimates hazard ratios of groups, by the piecewise exponential model of proportional hazards.

    With short intervals it is close to Cox's model with one column, which reads each time by itself.

    Args:
        handle: A handle on a table, or on a part of it.
        time: The numeric column of the time until the event or the end of observation.
        event: The column that says how the time ended.
        by: The column of the groups; its first part is the reference.
        epsilon: The cost of all counts together.
        intervals: The number of intervals of the time, of equal width, or their cuts.
        observed: The value of ``event`` that is the event; by default the one of two that means
            yes. Other values are censored.
        level: The confidence level of the intervals.
        reuse: Whether to return the stored answer of an identical earlier call, at no cost.

    Returns:
        A hazard ratio with its interval for each group but the first, ``statistic`` and ``pvalue``
        of the test that all are 1, and ``rates`` with events and times at risk.

    Raises:
        QueryError: The request is malformed.
        BudgetExceeded: The cost exceeds the remaining budget; nothing was spent.

    Examples:
        >>> import pinq
        >>> from miners.statistics import hazard_ratio
        >>> week, yes_no = pinq.Numeric(lower=1, upper=52, integer=True), pinq.Categorical(values=("no", "yes"))
        >>> schema = pinq.Schema(columns={"week": week, "arrest": yes_no, "aid": yes_no}, max_rows=1000)
        >>> h = pinq.simulate(schema, rows=1000, epsilon=1)
        >>> hazard_ratio(h, "week", "arrest", "aid", epsilon=1)["groups"][0]
        'aid: yes against no'
    """
    times = Axis.numeric(handle, time, intervals, "time", "intervals")
    kinds, groups = Axis.of(handle, event, 2), Axis.of(handle, by)
    require_parts(kinds, groups)
    life = LifeTable(times.edges, handle.schema.numeric(times.name))
    model = Hazards(life, (times, kinds, groups), kinds.position(observed, "observed"))
    title = f"hazard ratios of {kinds.name} by {groups.name}"
    return Question(handle, epsilon, level, reuse).draft(title, model.axes, model.result)
