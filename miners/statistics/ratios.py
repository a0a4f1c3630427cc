# SPDX-License-Identifier: Apache-2.0
"""``odds_ratio``, ``rate_ratio`` and ``risk_difference`` of two groups, with strata by Mantel and Haenszel.

Example: of 40 exposed rows 10 have the event, of 60 others 6. The odds ratio is 10 x 54 / (30 x 6)
= 3, the ratio of risks .25 / .1 = 2.5, and their difference .15.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from miners.fitted.theme import BLUE, LINE, axes_of
from miners.statistics.cells import Axis, Cells, Question, Result, StatisticFunction
from miners.statistics.laws import Alternative, normal_tail, one_sided
from miners.tables.columns import Column, Columns, specs_of
from miners.tables.table import Draft
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.epsilon import EpsilonLike
from pinq.public.schema import Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Effects(Result):
    """Effects with intervals: a row for each, ratios or differences."""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws a point and an interval for each effect, ratios on a logarithmic axis.

        Args:
            ax: The axes; by default a new figure.

        Returns:
            The axes.
        """
        ax = axes_of("effects", ax, (6.4, 1.3 + 0.3 * len(self.frame)))
        keys, measure = self.keys, str(self.frame["statistic"].iloc[0])
        labels = [": ".join(str(row[key]) for key in keys if key != "statistic") for _, row in self.frame.iterrows()]
        low, high = draw_intervals(ax, self.frame, labels, measure, self.title)
        ax.axvline(1.0 if "ratio" in measure else 0.0, color=LINE, linestyle="--", linewidth=1)
        if "ratio" in measure:
            ax.set_xscale("log")
            ticks = [
                tick
                for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
                if np.nanmin([*low, 1]) / 2 <= tick <= np.nanmax([*high, 1]) * 2
            ]
            ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            ax.minorticks_off()
        return ax


def draw_intervals(
    ax: Axes, frame: pd.DataFrame, labels: Sequence[str], measure: str, title: str
) -> tuple[np.ndarray, np.ndarray]:
    """Draws a point and an interval for each row of a result; returns the ends of the intervals."""
    value, low, high = (frame[name].to_numpy(dtype=float) for name in ("value", "low", "high"))
    at = np.arange(len(labels))
    ax.errorbar(value, at, xerr=np.maximum([value - low, high - value], 0), fmt="s", color=BLUE, capsize=3)
    ax.set_yticks(at, labels, fontsize=8)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    ax.set_xlabel(measure, fontsize=9)
    ax.set_title(title, fontsize=10, loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    return low, high


def odds_measure(events: np.ndarray, others: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Returns the logarithm of the odds ratio; arguments have the shape (2 groups, strata)."""
    total = (events + others).sum(axis=0)
    return np.log((events[0] * others[1] / total).sum() / (events[1] * others[0] / total).sum())


def rate_measure(events: np.ndarray, others: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Returns the logarithm of the ratio of rates."""
    total = time.sum(axis=0)
    return np.log((events[0] * time[1] / total).sum() / (events[1] * time[0] / total).sum())


def risk_measure(events: np.ndarray, others: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Returns the difference of risks."""
    groups = events + others
    total = groups.sum(axis=0)
    weights = groups[0] * groups[1] / total
    return (weights * (events[0] / groups[0] - events[1] / groups[1])).sum() / weights.sum()


Measure = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
MEASURES: dict[str, Measure] = {
    "odds ratio": odds_measure,
    "ratio of rates": rate_measure,
    "difference of risks": risk_measure,
}


@dataclass(frozen=True)
class Contrast:
    """Two groups of rows with and without an event, in strata.

    Attributes:
        handle: The handle.
        event: The column of the event.
        exposure: The column of the groups.
        strata: The columns of the strata.
        time: The column of the time at risk, where rates are per time.
    """

    handle: PrivateQueryable
    event: Axis
    exposure: Axis
    strata: tuple[Axis, ...]
    time: Axis | None = None

    def draft(
        self, question: Question, name: str, observed: Value | None, exposed: Value | None, alternative: Alternative
    ) -> Draft:
        """Drafts one of the measures."""
        one_sided(1.0, 0.0, alternative)  # refuses another word before the charge
        kinds, groups = self.event.two(observed, "observed"), self.exposure.two(exposed, "exposed")
        times = () if self.time is None else (self.time,)
        at = np.ones(1) if self.time is None else self.time.middles
        labels = self.exposure.labels
        versus = f"{self.exposure.name}: {labels[groups[0]]} against {labels[groups[1]]}"

        def statistic(counts: np.ndarray) -> np.ndarray:
            table = counts[list(kinds)][:, list(groups)].reshape(2, 2, len(at), -1)
            time = np.tensordot(table.sum(axis=0), at, axes=([1], [0]))
            by_kind = table.sum(axis=2)
            return MEASURES[name](by_kind[0], by_kind[1], time)

        def finish(cells: Cells) -> Result:
            (value,), (deviation,) = cells.estimate(statistic)
            ends = np.array([value, value - cells.z * deviation, value + cells.z * deviation])
            z = float(value / deviation) if deviation > 0 else math.nan
            shown = np.exp(ends) if "ratio" in name else ends
            frame = pd.DataFrame([[versus, name, *shown]], columns=["groups", "statistic", "value", "low", "high"])
            fewest = cells.counts.sum(axis=tuple(range(2, cells.counts.ndim))).min()
            faint = cells.faint(fewest / math.sqrt(cells.counts.size / 4)) or not np.isfinite(ends).all()
            pvalue = one_sided(2 * normal_tail(abs(z)), z, alternative)
            return cells.result(Effects, frame, faint=faint, test="Wald", statistic=z, pvalue=pvalue)

        title = f"{name} of {self.event.name}: {self.event.labels[kinds[0]]}"
        return question.draft(title, (self.event, self.exposure, *times, *self.strata), finish)


def contrast(
    handle: PrivateQueryable,
    event: Column,
    exposure: Column,
    strata: Columns,
    time: Column | None = None,
    bins: int = 10,
) -> Contrast:
    """Reads the columns of a contrast."""
    axes = tuple(Axis.of(handle, spec) for spec in specs_of(handle.schema, strata))
    at = None if time is None else Axis.of(handle, time, bins)
    if at is not None and not len(at.edges):
        raise QueryError("must be a numeric column, or cuts of one", parameter="time")
    return Contrast(handle, Axis.of(handle, event, 2), Axis.of(handle, exposure, 2), axes, at)


@StatisticFunction
def odds_ratio(
    handle: PrivateQueryable,
    event: Column,
    exposure: Column,
    strata: Columns = (),
    *,
    epsilon: EpsilonLike,
    observed: Value | None = None,
    exposed: Value | None = None,
    alternative: Alternative = "two-sided",
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Estimates the odds ratio of an event in two groups, over strata by Mantel and Haenszel.

    Args:
        handle: A handle on a table, or on a part of it.
        event: The column of the event, of two parts.
        exposure: The column of the groups, of two parts.
        strata: The columns that make strata.
        epsilon: The cost of all counts together.
        observed: The value of ``event`` that counts; by default the one that means yes.
        exposed: The value of ``exposure`` of the first group; by default the one that means yes.
        alternative: The hypothesis of the p-value as scipy names it: ``"greater"`` for a ratio above
            1 or a difference above 0, ``"less"``, or ``"two-sided"``. The interval has two sides.
        level: The confidence level of the interval.
        reuse: Return the stored answer of an identical earlier call, at no cost.

    Returns:
        The odds ratio with its interval, and ``statistic`` and ``pvalue`` of the test that it is 1.

    Raises:
        QueryError: The request is malformed.
        BudgetExceeded: The cost exceeds the remaining budget; nothing was spent.

    Examples:
        >>> import pinq
        >>> from miners.statistics import odds_ratio
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> odds_ratio(h, "income", "sex", observed=">50K", exposed="Male", epsilon=1)["groups"][0]
        'sex: Male against Female'
    """
    question = Question(handle, epsilon, level, reuse)
    return contrast(handle, event, exposure, strata).draft(question, "odds ratio", observed, exposed, alternative)


@StatisticFunction
def risk_difference(
    handle: PrivateQueryable,
    event: Column,
    exposure: Column,
    strata: Columns = (),
    *,
    epsilon: EpsilonLike,
    observed: Value | None = None,
    exposed: Value | None = None,
    alternative: Alternative = "two-sided",
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Estimates the difference of the risks of an event in two groups; arguments as of ``odds_ratio``.

    Examples:
        >>> import pinq
        >>> from miners.statistics import risk_difference
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> len(risk_difference(h, "income", "sex", observed=">50K", exposed="Male", epsilon=1))
        1
    """
    question = Question(handle, epsilon, level, reuse)
    return contrast(handle, event, exposure, strata).draft(
        question, "difference of risks", observed, exposed, alternative
    )


@StatisticFunction
def rate_ratio(
    handle: PrivateQueryable,
    event: Column,
    exposure: Column,
    strata: Columns = (),
    *,
    time: Column | None = None,
    bins: int = 10,
    epsilon: EpsilonLike,
    observed: Value | None = None,
    exposed: Value | None = None,
    alternative: Alternative = "two-sided",
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Estimates the ratio of the rates of an event in two groups, per row or per time at risk.

    Args:
        handle: A handle on a table, or on a part of it.
        event: The column of the event, of two parts.
        exposure: The column of the groups, of two parts.
        strata: The columns that make strata.
        time: The numeric column of the time at risk; without it rates are per row, so the ratio is
            that of risks. A row's time is read as the middle of its part.
        bins: The number of parts of the time.
        epsilon: The cost of all counts together.
        observed: The value of ``event`` that counts; by default the one that means yes.
        exposed: The value of ``exposure`` of the first group; by default the one that means yes.
        alternative: The hypothesis of the p-value as scipy names it: ``"greater"`` for a ratio above
            1 or a difference above 0, ``"less"``, or ``"two-sided"``. The interval has two sides.
        level: The confidence level of the interval.
        reuse: Return the stored answer of an identical earlier call, at no cost.

    Examples:
        >>> import pinq
        >>> from miners.statistics import rate_ratio
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> len(rate_ratio(h, "income", "sex", observed=">50K", exposed="Male", epsilon=1))
        1
    """
    question = Question(handle, epsilon, level, reuse)
    return contrast(handle, event, exposure, strata, time, bins).draft(
        question, "ratio of rates", observed, exposed, alternative
    )
