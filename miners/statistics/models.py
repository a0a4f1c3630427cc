# SPDX-License-Identifier: Apache-2.0
"""``logistic``, ``poisson`` and ``hazard_ratio``: maximum likelihood on the cells of one table.

With the canonical link the equations of a regression are sum x (s - n mu) = 0 over cells, where n rows of a cell have
outcomes with the sum s. They are linear in the counts, so noise in empty cells causes no bias. The covariance of the
effects follows from the derivative of the equations by the counts. Without noise it is the sandwich (HC0 of
statsmodels), which is valid for any variance of the rows.

Proportional hazards: in the piecewise exponential model the hazard is constant within an interval, and a constant
multiple of the reference's. In an interval with D events and the times at risk T_g, group g has the share p_g = T_g r_g
/ sum T_h r_h of the events, with the ratios r; the likelihood's equations are that events and shares agree. Here the
sandwich is that of Lin and Wei.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import pandas as pd

from miners.statistics.cells import (
    Axis,
    Cells,
    Result,
    StatisticFunction,
    chi_square,
    derivatives,
    deviations,
    drafted,
    require_parts,
)
from miners.statistics.effects import effects_of
from miners.statistics.laws import normal_tail
from miners.statistics.life_tables import INTERVALS, LifeTable
from miners.tables.columns import Column, Columns
from miners.tables.table import NUMBERS, Draft
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.checks import is_listing
from pinq.public.epsilon import EpsilonLike
from pinq.public.schema import Value

STEPS = 50  # of Newton's method, which needs five to ten
MOST = 12.0  # the largest effect or linear predictor: odds of 160,000 say that a group has no other outcome
PARTS = 4  # of a numeric column that explains
MAX_CELLS = 1000  # combinations of columns; noise hides effects long before

Law = Callable[[np.ndarray], np.ndarray]
"""A function from linear predictors to means."""
Score = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""A function from tables of counts and effects to equations that are 0; the last axis of all counts the tables."""


def _solved(cells: Cells, score: Score, effects: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The effects at which a score is 0, by Newton's method, and their derivatives by each count.

    An infinite effect, as of a group without an event, is NaN.
    """
    for _ in range(STEPS):
        _, slope = derivatives(lambda moved: score(cells.counts[..., None], moved), effects)
        back = np.linalg.pinv(-slope, hermitian=True)
        change = np.clip(back @ score(counts[..., None], effects[:, None])[:, 0], -1, 1)
        effects = np.clip(effects + change, -MOST, MOST)
        if np.abs(change).max() < 1e-12:
            break
    moved = back @ cells.derived(lambda tables: score(tables, effects[:, None]))[1]
    return np.where(np.abs(effects) < MOST - 1, effects, math.nan), moved


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
    """Makes the ratios of groups to their references from their logarithms, with intervals and a test."""
    endless = [name for name, effect in zip(names, effects, strict=True) if math.isnan(effect)]
    notes = [*(f"no {measure} can be told for {name}: {lost}" for name in endless), *notes]
    test = {"test": "Wald, of all effects", **chi_square(effects, covariance)}
    return effects_of(cells, names, measure, effects, deviations(covariance), rows=rows, notes=notes, more=more, **test)


def _against(axis: Axis) -> list[str]:
    """Returns the name of the effect of each part but the first, which is the reference."""
    return [f"{axis.name}: {label} against {axis.labels[0]}" for label in axis.labels[1:]]


def _logistic(eta: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-eta)))


def _regression(outcomes: np.ndarray, groups: Sequence[Axis], law: Law, measure: str, cells: Cells) -> Result:
    """Makes the effects of a generalised linear model, their intervals and the test of all of them."""
    parts = np.indices(cells.counts.shape[1:]).reshape(len(groups), -1, 1)
    members = [at == np.arange(1, len(axis.labels)) for at, axis in zip(parts, groups, strict=True)]
    design = np.concatenate([np.ones_like(parts[0]), *members], axis=1).astype(np.float64)

    def score(tables: np.ndarray, effects: np.ndarray) -> np.ndarray:
        tables, predictor = tables.reshape(len(outcomes), len(design), -1), design @ effects
        beyond = predictor.real - np.clip(predictor.real, -MOST, MOST)  # keeps the derivative
        means = law(predictor - beyond)
        return np.asarray(design.T @ (np.tensordot(outcomes, tables, 1) - means * tables.sum(axis=0)))

    effects, moved = _solved(cells, score, np.zeros(design.shape[1]), cells.noisy)
    covariance, names = cells.covariance(moved), [name for axis in groups for name in _against(axis)]
    deviation = deviations(covariance)
    z = effects / np.where(deviation > 0, deviation, math.nan)
    numbers = {"coef": effects, "std err": deviation, "z": z, "P>|z|": [2 * normal_tail(abs(each)) for each in z]}
    numbers |= dict(zip(NUMBERS[1:], cells.interval(effects, deviation)[1:], strict=True))
    rows = cells.counts.reshape(len(outcomes), -1).sum(axis=0) @ design
    return _fitted(
        cells,
        measure,
        names,
        effects[1:],
        covariance[1:, 1:],
        rows=float((rows / np.sqrt(len(outcomes) * design.sum(axis=0))).min()),  # of sums of so many counts
        lost="all its rows have one outcome",
        notes=[f"the first part of each column is its reference; intercept {effects[0]:.4g}"],
        more={"params": pd.DataFrame(numbers, index=pd.Index(["intercept", *names], name="term"))},
    )


def _drafted(
    target: Axis,
    outcomes: np.ndarray,
    columns: Columns,
    law: Law,
    measure: str,
    handle: PrivateQueryable,
    *arguments: Any,
) -> Draft:
    """Drafts the table of the outcome and the columns, and the model of it."""
    named = columns if is_listing(columns) else [cast(Column, columns)]
    groups = tuple(Axis.of(handle, column, PARTS) for column in named)
    combinations = math.prod(len(axis.labels) for axis in groups)
    if not groups or combinations > MAX_CELLS:
        raise QueryError(
            f"make {combinations:,} combinations, and rows of each are few under noise"
            if groups
            else "names no column",
            parameter="columns",
            allowed=f"one column or more of {MAX_CELLS:,} combinations at most; a `Scorecard` takes more",
        )
    require_parts(target, *groups)
    title, finish = f"{measure.replace('ratio', 'ratios', 1)} for {target.name}", partial(_regression, outcomes, groups)
    return drafted(handle, title, (target, *groups), partial(finish, law, measure), *arguments)


def _hazards(life: LifeTable, groups: Axis, event: int, cells: Cells) -> Result:
    """Makes the hazard ratios against the first group, with intervals and test; other ends are censored."""

    def score(counts: np.ndarray, effects: np.ndarray) -> np.ndarray:
        events, weights = counts[:, event], life.time_at_risk(counts)
        weights = weights * np.exp(np.concatenate([np.zeros_like(effects[:1]), effects]))
        total = weights.sum(axis=1, keepdims=True)
        shares = weights / np.where(total.real > 0, total, 1)
        return (events - events.sum(axis=1, keepdims=True) * shares).sum(axis=0)[1:]

    effects, moved = _solved(cells, score, np.zeros(len(groups.labels) - 1), cells.counts)
    events, time = cells.counts[:, event].sum(axis=0), life.time_at_risk(cells.counts).sum(axis=0)
    rates = {groups.key("events", "time"): groups.labels, "events": events, "time": time * float(life.time.width)}
    return _fitted(
        cells,
        "hazard ratio",
        _against(groups),
        effects,
        cells.drawn(moved) + cells.moved(moved),
        rows=float(events.min()) / math.sqrt(len(life.widths)),
        lost="a group has no event",
        notes=["hazards are constant within an interval, and proportional between groups"],
        more={"rates": pd.DataFrame(rates)},
    )


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

    Each part of a column is compared with its first part, given all other columns. The table has one cell for each
    combination, so many columns or parts have much noise.

    Args:
        handle: A private handle.
        target: The column of the event, of two parts.
        columns: The columns that explain it: categorical, ``Cuts``, or numeric ones in four parts.
        epsilon: The cost of all counts together.
        observed: The value of ``target`` that counts; by default the one that means yes.
        level: The confidence level of the intervals.
        reuse: As in ``miners.tables.crosstab``.

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
    return _drafted(axis, np.eye(2)[yes], columns, _logistic, "odds ratio", handle, epsilon, level, reuse)


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
        handle: A private handle.
        target: The numeric column that counts, such as visits.
        columns: The columns that explain it, as of ``logistic``.
        epsilon: The cost of all counts together.
        bins: The number of parts of the target; a column of at most so many values is exact.
        level: The confidence level of the intervals.
        reuse: As in ``miners.tables.crosstab``.

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
    axis = Axis.numeric(handle, target, bins, "target", least=0)
    return _drafted(axis, axis.middles, columns, np.exp, "ratio of rates", handle, epsilon, level, reuse)


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

    With short intervals it is close to Cox's model with one column, which uses exact times.

    Args:
        handle: A private handle.
        time: The numeric column of the time until the event or the end of observation.
        event: The column of the kind of end.
        by: The column of the groups; its first part is the reference.
        epsilon: The cost of all counts together.
        intervals: The number of intervals of the time, of equal width, or their cuts.
        observed: The value of ``event`` that is the event; by default the one of two that means
            yes. Other values are censored.
        level: The confidence level of the intervals.
        reuse: As in ``miners.tables.crosstab``.

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
    finish = partial(_hazards, life, groups, kinds.position(observed, "observed"))
    title = f"hazard ratios of {kinds.name} by {groups.name}"
    return drafted(handle, title, (times, kinds, groups), finish, epsilon, level, reuse)
