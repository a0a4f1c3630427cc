# SPDX-License-Identifier: Apache-2.0
"""Effects of groups on an event over strata: ratios and differences of two, standardised rates of several.

``odds_ratio``, ``rate_ratio`` and ``risk_difference`` are those of Mantel and Haenszel.
Example: of 40 exposed rows 10 have the event, of 60 others 6. The odds ratio is 10 x 54 / (30 x 6)
= 3, the ratio of risks .25 / .1 = 2.5, and their difference .15.

``standardised``: rates as if all groups had the same strata. Direct: the rates of a group's strata,
weighed by one standard population. Indirect: a group's events over those that it would have with
the rates of all rows in each of its strata. Example: of two strata with the rates .1 and .3, half
of the standard is in each: .2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from miners.fitted.theme import BLUE, LINE, axes_of, titled
from miners.statistics.cells import Axis, Cells, Question, Result, StatisticFunction, listed
from miners.statistics.laws import Alternative, normal_tail, one_sided
from miners.tables.columns import Column, Columns, specs_of
from miners.tables.table import NUMBERS, Draft
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.checks import is_number
from pinq.public.epsilon import EpsilonLike
from pinq.public.schema import Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Effects(Result):
    """Numbers of groups with intervals, such as ratios: a row for each."""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws a point and an interval for each group, ratios on a logarithmic axis.

        Of means beside their difference, the means are drawn.

        Args:
            ax: The axes; by default a new figure.

        Returns:
            The axes.
        """
        measure = str(self.frame["statistic"].iloc[-1])
        frame = self.frame[self.frame["statistic"] == measure]
        value, low, high = (frame[name].to_numpy(dtype=float) for name in NUMBERS)
        at, ax = np.arange(len(frame)), axes_of("effects", ax, (6.4, 1.3 + 0.3 * len(frame)))
        ax.errorbar(value, at, xerr=np.maximum([value - low, high - value], 0), fmt="s", color=BLUE, capsize=3)
        ax.set_yticks(at, frame["groups"], fontsize=8)
        ax.set_ylim(len(frame) - 0.5, -0.5)
        ax.set_xlabel(f"{measure}, with its {100 * self.level:g} % interval", fontsize=9)
        titled(ax, self.title)
        if "ratio" in measure or "difference" in measure:
            ax.axvline(float("ratio" in measure), color=LINE, linestyle="--", linewidth=1)
        if "ratio" in measure:
            ax.set_xscale("log")
            ticks = [
                tick
                for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
                if np.nanmin([*self.frame["low"], 1]) / 2 <= tick <= np.nanmax([*self.frame["high"], 1]) * 2
            ]
            ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
            ax.minorticks_off()
        return ax


def odds_measure(events: np.ndarray, others: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Returns the logarithm of the odds ratio; arguments have the shape (2 groups, strata, tables)."""
    total = (events + others).sum(axis=0)
    return np.log((events[0] * others[1] / total).sum(axis=0) / (events[1] * others[0] / total).sum(axis=0))


def rate_measure(events: np.ndarray, others: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Returns the logarithm of the ratio of rates."""
    total = time.sum(axis=0)
    return np.log((events[0] * time[1] / total).sum(axis=0) / (events[1] * time[0] / total).sum(axis=0))


def risk_measure(events: np.ndarray, others: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Returns the difference of risks."""
    groups = events + others
    total = groups.sum(axis=0)
    weights = groups[0] * groups[1] / total
    return (weights * (events[0] / groups[0] - events[1] / groups[1])).sum(axis=0) / weights.sum(axis=0)


Measure = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
MEASURES: dict[str, Measure] = {
    "odds ratio": odds_measure,
    "ratio of rates": rate_measure,
    "difference of risks": risk_measure,
}


def _rates(
    handle: PrivateQueryable, event: Column, by: Column, strata: Columns, time: Column | None, bins: int
) -> tuple[Axis, Axis, tuple[Axis, ...], tuple[Axis, ...], np.ndarray]:
    """Reads the columns of rates: event, groups, time where there is one, strata; and the times at risk."""
    times = () if time is None else (Axis.numeric(handle, time, bins, "time").positive("time"),)
    layers = tuple(Axis.of(handle, spec) for spec in specs_of(handle.schema, strata))
    return Axis.of(handle, event, 2), Axis.of(handle, by), times, layers, times[0].middles if times else np.ones(1)


def _totals(table: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the rows of each kind, and the times at risk, of counts by kind, group, time and stratum."""
    return table.sum(axis=2), np.tensordot(table.sum(axis=0), at, axes=([1], [0]))


def _contrast(
    name: str,
    question: Question,
    event: tuple[Column, Value | None],
    exposure: tuple[Column, Value | None],
    strata: Columns,
    alternative: Alternative,
    time: Column | None = None,
    bins: int = 10,
) -> Draft:
    """Drafts one of the measures of two groups of rows with and without an event."""
    one_sided(1.0, 0.0, alternative)  # refuses another word before the charge
    kind, group, times, layers, at = _rates(question.handle, event[0], exposure[0], strata, time, bins)
    kinds, groups = kind.two(event[1], "observed"), group.two(exposure[1], "exposed")
    versus = f"{group.name}: {group.labels[groups[0]]} against {group.labels[groups[1]]}"

    def statistic(counts: np.ndarray) -> np.ndarray:
        table = counts[list(kinds)][:, list(groups)].reshape(2, 2, len(at), -1, counts.shape[-1])
        (events, others), time = _totals(table, at)
        return MEASURES[name](events, others, time)

    def finish(cells: Cells) -> Result:
        value, deviation = cells.estimate(statistic)
        ends = cells.interval(value, deviation)
        z = float(value[0] / deviation[0]) if deviation[0] > 0 else math.nan
        frame = listed([versus], name, np.exp(ends) if "ratio" in name else ends)
        fewest = cells.counts.sum(axis=tuple(range(2, cells.counts.ndim))).min()
        faint = cells.faint(fewest / math.sqrt(cells.counts.size / 4)) or not np.isfinite(ends).all()
        pvalue = one_sided(2 * normal_tail(abs(z)), z, alternative)
        return cells.result(Effects, frame, faint=faint, test="Wald", statistic=z, pvalue=pvalue)

    return question.draft(f"{name} of {kind.name}: {kind.labels[kinds[0]]}", (kind, group, *times, *layers), finish)


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
        reuse: Whether to return the stored answer of an identical earlier call, at no cost.

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
    return _contrast("odds ratio", question, (event, observed), (exposure, exposed), strata, alternative)


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
    return _contrast("difference of risks", question, (event, observed), (exposure, exposed), strata, alternative)


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
        reuse: Whether to return the stored answer of an identical earlier call, at no cost.

    Examples:
        >>> import pinq
        >>> from miners.statistics import rate_ratio
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> len(rate_ratio(h, "income", "sex", observed=">50K", exposed="Male", epsilon=1))
        1
    """
    question = Question(handle, epsilon, level, reuse)
    return _contrast(
        "ratio of rates", question, (event, observed), (exposure, exposed), strata, alternative, time, bins
    )


Method = Literal["direct", "indirect"]
DIRECT, INDIRECT = "standardised rate", "ratio to expected events"


@dataclass(frozen=True)
class Standard:
    """The rates of groups under one distribution of strata.

    Attributes:
        event: The part of the event's axis that counts.
        groups: The axis of the groups.
        at: The time at risk of each part of the time's axis; a single 1 where rates are per row.
        weights: The public weights of the strata; None for those of all rows.
        per: The number of rows, or units of time, that a rate is of.
    """

    event: int
    groups: Axis
    at: np.ndarray
    weights: np.ndarray | None
    per: float

    def counted(self, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns events and times at risk, both of shape (groups, strata, tables)."""
        table = counts.reshape(len(counts), len(self.groups.labels), len(self.at), -1, counts.shape[-1])
        kinds, time = _totals(table, self.at)
        return kinds[self.event], time

    def crude(self, counts: np.ndarray) -> np.ndarray:
        """Returns the rate of each group as it is."""
        events, time = self.counted(counts)
        return np.asarray(self.per * events.sum(axis=1) / time.sum(axis=1))

    def direct(self, counts: np.ndarray) -> np.ndarray:
        """Returns the rate of each group under the standard's strata."""
        events, time = self.counted(counts)
        weights = time.sum(axis=0) if self.weights is None else self.weights[:, None]
        return np.asarray(self.per * (events / time * (weights / weights.sum(axis=0))).sum(axis=1))

    def indirect(self, counts: np.ndarray) -> np.ndarray:
        """Returns the logarithm of the events of each group over those expected by the rates of all rows."""
        events, time = self.counted(counts)
        expected = (time * (events.sum(axis=0) / time.sum(axis=0))).sum(axis=1)
        return np.asarray(np.log(events.sum(axis=1) / expected))

    def result(self, cells: Cells, method: Method) -> Result:
        """Makes the standardised rates, or the ratios, with intervals."""
        value = cells.interval(*cells.estimate(self.direct if method == "direct" else self.indirect))
        with np.errstate(over="ignore"):  # endless, where nothing is known
            value = np.maximum(value, 0) if method == "direct" else np.exp(value)
        crude = np.maximum(cells.interval(*cells.estimate(self.crude)), 0)
        names = [f"{self.groups.name}: {label}" for label in self.groups.labels]
        smallest = cells.counts.sum(axis=0).reshape(len(self.groups.labels), len(self.at), -1).sum(axis=1).min()
        faint = cells.faint(smallest / np.sqrt(2 * len(self.at))) or not np.isfinite(value).all()
        frame = listed(names, DIRECT if method == "direct" else INDIRECT, value)
        return cells.result(Effects, frame, faint=faint, more={"crude": listed(names, "crude rate", crude)})


def _weights(standard: Mapping[Value, float] | None, strata: tuple[Axis, ...]) -> np.ndarray | None:
    """Returns the weights of the strata in order. Raises ``QueryError`` for other parts or numbers."""
    if standard is None:
        return None
    labels = strata[0].labels
    of_one = isinstance(standard, Mapping) and len(strata) == 1 and set(standard) == set(labels)
    weights = [standard[label] for label in labels] if of_one else []
    if not all(is_number(weight, 0, 1e12) for weight in weights) or not sum(weights):
        allowed = f"a weight, 0 or more, for each part of one column of strata: {', '.join(map(str, labels))}"
        raise QueryError(f"is {standard!r}", parameter="standard", allowed=allowed)
    return np.array(weights, dtype=np.float64)


@StatisticFunction
def standardised(
    handle: PrivateQueryable,
    event: Column,
    by: Column,
    strata: Columns,
    *,
    epsilon: EpsilonLike,
    method: Method = "direct",
    standard: Mapping[Value, float] | None = None,
    time: Column | None = None,
    bins: int = 10,
    per: float = 1.0,
    observed: Value | None = None,
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Estimates rates of groups as if all groups had the same strata, such as the same ages.

    Args:
        handle: A handle on a table, or on a part of it.
        event: The column of the event, of two parts.
        by: The column of the groups.
        strata: The columns that make strata, such as ``Cuts`` of the age.
        epsilon: The cost of all counts together.
        method: ``"direct"`` weighs each group's strata by the standard; ``"indirect"`` compares a
            group's events with those expected by the rates of all rows (for deaths: the SMR).
        standard: The public weight of each part of one column of strata, for ``"direct"``. None for
            the strata of all rows, as the noisy counts have them.
        time: The numeric column of the time at risk; without it rates are per row.
        bins: The number of parts of the time; a row's time is read as the middle of its part.
        per: The number of rows, or units of time, that a rate is of, such as 1,000.
        observed: The value of ``event`` that counts; by default the one that means yes.
        level: The confidence level of the intervals.
        reuse: Whether to return the stored answer of an identical earlier call, at no cost.

    Returns:
        A rate, or a ratio, with its interval for each group; ``crude`` has the rates as they are.

    Raises:
        QueryError: The request is malformed.
        BudgetExceeded: The cost exceeds the remaining budget; nothing was spent.

    Examples:
        >>> import pinq
        >>> from miners.statistics import standardised
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> ages = pinq.Cuts("age", (30, 45, 60))
        >>> standardised(h, "income", "sex", ages, observed=">50K", epsilon=1)["groups"].tolist()
        ['sex: Female', 'sex: Male']
    """
    axis, groups, times, layers, at = _rates(handle, event, by, strata, time, bins)
    if not layers or method not in ("direct", "indirect"):
        wrong, allowed = ("strata", "one column or more") if not layers else ("method", "'direct' or 'indirect'")
        raise QueryError("is wrong", parameter=wrong, allowed=allowed)
    if standard is not None and method == "indirect":
        raise QueryError("is for the direct method alone", parameter="standard", allowed="None")
    if not is_number(per, 1e-12, 1e12):
        raise QueryError(f"is {per!r}", parameter="per", allowed="a number above 0")
    made = Standard(axis.two(observed, "observed")[0], groups, at, _weights(standard, layers), float(per))
    title = f"{DIRECT if method == 'direct' else INDIRECT} of {axis.name} by {groups.name}"
    question = Question(handle, epsilon, level, reuse)
    return question.draft(title, (axis, groups, *times, *layers), lambda cells: made.result(cells, method))
