# SPDX-License-Identifier: Apache-2.0
"""``logistic`` and ``poisson``: effects of several columns at once, by maximum likelihood on the cells of one table.

With the canonical link the equations of the likelihood are sum x (s - n mu) = 0 over cells, where n
rows of a cell have outcomes of the sum s. They are linear in the counts, so noise in the counts
gives no bias where cells are empty. The covariance is that of least squares of the last step:
H^-1 (H + v G) H^-1, with the information H of the rows, noise of variance v, and
G = sum xx' (y - mu)^2 over all counts. Without noise it is H^-1, as everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd

from miners.statistics.cells import Axis, Cells, Question, Result, StatisticFunction
from miners.statistics.laws import chi2_tail, normal_tail
from miners.statistics.ratios import Effects
from miners.tables.columns import Column, Columns
from miners.tables.table import Draft
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.checks import is_listing
from pinq.public.epsilon import EpsilonLike
from pinq.public.schema import Value

STEPS = 50  # of Newton's method, which needs five to ten
MOST = 12.0  # the largest linear predictor: odds of 160,000 say that a group has no other outcome
PARTS = 4  # of a numeric column that explains
MAX_CELLS = 1000  # combinations of columns; noise hides effects long before


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
    law: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
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
        """Returns the coefficients and their covariance, by Newton's method."""
        shape = len(self.outcomes), -1
        noisy, counts = cells.noisy.reshape(shape), cells.counts.reshape(shape)
        sums, rows, kept = self.outcomes @ noisy, noisy.sum(axis=0), counts.sum(axis=0)
        effects = np.zeros(design.shape[1])
        effects[0] = self._link(max(float(self.outcomes @ counts.sum(axis=1)) / max(cells.n, 1.0), 1e-6))
        for _ in range(STEPS):
            mean, variance = self.law(np.clip(design @ effects, -MOST, MOST))
            back = np.linalg.pinv((design.T * (kept * variance)) @ design, hermitian=True)
            step = back @ (design.T @ (sums - rows * mean))
            effects = effects + np.clip(step, -1, 1)
            if np.abs(step).max() < 1e-12:
                break
        noise = (design.T * ((self.outcomes[:, None] - mean) ** 2).sum(axis=0)) @ design
        return effects, back + cells.noise * back @ noise @ back

    def result(self, cells: Cells) -> Result:
        """Makes the effects, their intervals and the test of all of them."""
        design, names = self.design()
        effects, covariance = self.fitted(cells, design)
        deviation = np.sqrt(np.maximum(np.diag(covariance), 0))
        z = effects / np.where(deviation > 0, deviation, math.nan)
        low, high = effects - cells.z * deviation, effects + cells.z * deviation
        params = pd.DataFrame(
            {"coef": effects, "std err": deviation, "z": z, "P>|z|": [2 * normal_tail(abs(each)) for each in z]},
            index=pd.Index(names, name="term"),
        ).assign(low=low, high=high)
        with np.errstate(over="ignore"):  # endless, where nothing is known
            shown = pd.DataFrame({"groups": names, "statistic": self.measure, "value": np.exp(effects)}).assign(
                low=np.exp(low), high=np.exp(high)
            )
        lost = [name for name, size in zip(names, np.abs(effects), strict=True) if not size < MOST - 1]
        notes = [f"no {self.measure} can be told for {name}: all its rows have one outcome" for name in lost]
        notes.append(f"the first part of each column is its reference; intercept {effects[0]:.4g}")
        of_term = cells.counts.reshape(len(self.outcomes), -1).sum(axis=0) @ design
        faint = cells.faint(float(of_term.min()) / math.sqrt(cells.counts.size)) or not np.isfinite(deviation).all()
        statistic = float(effects[1:] @ np.linalg.pinv(covariance[1:, 1:], hermitian=True) @ effects[1:])
        test = {"statistic": statistic, "df": len(effects) - 1, "pvalue": chi2_tail(statistic, len(effects) - 1)}
        return cells.result(
            Effects,
            shown.iloc[1:].reset_index(drop=True),
            faint=faint,
            notes=notes,
            more={"params": params},
            test="Wald, of all effects",
            **test,
        )

    def _link(self, mean: float) -> float:
        return math.log(mean) if self.law is _poisson else math.log(mean / (1 - min(mean, 1 - 1e-6)))


def _drafted(
    question: Question,
    target: Axis,
    outcomes: np.ndarray,
    columns: Columns,
    law: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
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
    if min(len(axis.labels) for axis in (target, *groups)) < 2:
        raise QueryError("a column with a single part has no effect.")
    title = f"{measure.replace('ratio', 'ratios', 1)} for {target.name}"
    return question.draft(title, (target, *groups), Model(target, outcomes, groups, law, measure).result)


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
        reuse: Return the stored answer of an identical earlier call, at no cost.

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
        reuse: Return the stored answer of an identical earlier call, at no cost.

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
    axis = Axis.of(handle, target, bins)
    if not len(axis.edges) or axis.middles.min() < 0:
        raise QueryError("must be a numeric column without values below 0", parameter="target")
    return _drafted(Question(handle, epsilon, level, reuse), axis, axis.middles, columns, _poisson, "ratio of rates")
