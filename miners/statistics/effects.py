# SPDX-License-Identifier: Apache-2.0
"""Effects of groups on an event over strata: ratios and differences of two, standardised rates of several.

``odds_ratio``, ``rate_ratio`` and ``risk_difference`` are those of Mantel and Haenszel. Of 40 exposed rows 10 have the
event, of 60 others 6. The odds ratio is 10 x 54 / (30 x 6) = 3, the ratio of risks .25 / .1 = 2.5, and their difference
.15.

``standardised``: rates as if all groups had the same strata. Direct: the rates of a group's strata, weighted by one
standard population. Indirect: a group's events over the expected ones, by the rates of all rows in each of its strata.
Example: of two strata with the rates .1 and .3, half of the standard is in each: .2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from miners.estimator import require_word
from miners.pictures import BLUE, LINE, Axes, axes_of, titled
from miners.statistics.cells import Axis, Cells, Result, Statistic, StatisticFunction, drafted, listed
from miners.statistics.laws import ALTERNATIVES, Alternative, normal_tail, one_sided
from miners.tables.columns import Column, Columns, specs_of
from miners.tables.table import NUMBERS, Draft
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.checks import is_number
from pinq.public.epsilon import EpsilonLike
from pinq.public.schema import Value


class Effects(Result):
    """Numbers of groups with intervals, such as ratios: a row for each group."""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws a point and an interval for each group, ratios on a logarithmic axis."""
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


def effects_of(
    cells: Cells,
    names: Sequence[str],
    measure: str,
    value: np.ndarray,
    deviation: np.ndarray,
    *,
    rows: float,
    **more: Any,
) -> Result:
    """Makes the result of one number of each group; of ratios ``value`` has the logarithms.

    ``rows`` is the fewest rows of a group in a cell, on average.
    """
    ends = cells.interval(value, deviation)
    with np.errstate(over="ignore"):  # endless, where nothing is known
        shown = np.exp(ends) if "ratio" in measure else ends
    faint = cells.faint(rows) or not np.isfinite(deviation).all()
    return cells.result(Effects, listed(names, measure, shown), faint=faint, **more)


def pooled(events: np.ndarray, beside: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The logarithm of a ratio over strata, weighted as by Mantel and Haenszel.

    Args:
        events: The events, shape (2 groups, strata, tables).
        beside: The other rows for a ratio of odds, the times at risk for one of rates.
        rows: All rows, or all times.
    """
    total = rows.sum(axis=0)
    return np.log((events[0] * beside[1] / total).sum(axis=0) / (events[1] * beside[0] / total).sum(axis=0))


def risks(events: np.ndarray, others: np.ndarray, time: np.ndarray) -> np.ndarray:
    """The difference of risks."""
    groups = events + others
    weights = groups[0] * groups[1] / groups.sum(axis=0)
    return (weights * (events[0] / groups[0] - events[1] / groups[1])).sum(axis=0) / weights.sum(axis=0)


Measure = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""A function from events, other rows and times at risk, each of shape (groups, strata, tables), to numbers."""
MEASURES: dict[str, Measure] = {
    "odds ratio": lambda events, others, time: pooled(events, others, events + others),
    "ratio of rates": lambda events, others, time: pooled(events, time, time),
    "difference of risks": risks,
}


@dataclass(frozen=True)
class Rates:
    """Events, other rows and times at risk of groups in strata.

    Attributes:
        times: The column of the time at risk; None for rates per row.
    """

    event: Axis
    observed: int
    groups: Axis
    times: tuple[Axis, ...]
    strata: tuple[Axis, ...]

    @classmethod
    def of(
        cls,
        handle: PrivateQueryable,
        event: Column,
        observed: Value | None,
        by: Column,
        strata: Columns,
        time: Column | None = None,
        bins: int = 10,
    ) -> Rates:
        times = () if time is None else (Axis.numeric(handle, time, bins, "time", least=0),)
        layers = tuple(Axis.of(handle, spec) for spec in specs_of(handle.schema, strata))
        kinds = Axis.of(handle, event, 2)
        return cls(kinds, kinds.two(observed, "observed")[0], Axis.of(handle, by), times, layers)

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (self.event, self.groups, *self.times, *self.strata)

    @property
    def at(self) -> np.ndarray:
        """The time at risk of each part of the time; a single 1 for rates per row."""
        return self.times[0].middles if self.times else np.ones(1)

    def measured(self, measure: Measure, order: Sequence[int] = ()) -> Statistic:
        """A measure as a function of counts, of all groups or of some in order."""

        def statistic(counts: np.ndarray) -> np.ndarray:
            table = counts.reshape(2, len(self.groups.labels), len(self.at), -1, counts.shape[-1])
            table = table[:, list(order or range(table.shape[1]))]
            kinds, time = table.sum(axis=2), np.tensordot(table.sum(axis=0), self.at, axes=([1], [0]))
            return measure(kinds[self.observed], kinds[1 - self.observed], time)

        return statistic


def _contrast(
    name: str,
    rates: Rates,
    exposed: Value | None,
    alternative: Alternative,
    handle: PrivateQueryable,
    *arguments: Any,
) -> Draft:
    """Drafts a measure of two groups of rows with and without an event."""
    require_word("alternative", alternative, ALTERNATIVES)
    order = rates.groups.two(exposed, "exposed")
    versus = f"{rates.groups.name}: {' against '.join(str(rates.groups.labels[group]) for group in order)}"

    def finish(cells: Cells) -> Result:
        value, deviation = cells.estimate(rates.measured(MEASURES[name], order))
        z = float(value[0] / deviation[0]) if deviation[0] > 0 else math.nan
        test = {"test": "Wald", "statistic": z, "pvalue": one_sided(2 * normal_tail(abs(z)), z, alternative)}
        fewest = cells.counts.sum(axis=tuple(range(2, cells.counts.ndim))).min() / math.sqrt(cells.counts.size / 4)
        return effects_of(cells, [versus], name, value, deviation, rows=fewest, **test)

    title = f"{name} of {rates.event.name}: {rates.event.labels[rates.observed]}"
    return drafted(handle, title, rates.axes, finish, *arguments)


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
        handle: A private handle.
        event: The column of the event, of two parts.
        exposure: The column of the groups, of two parts.
        strata: The columns that make strata.
        epsilon: The cost of all counts together.
        observed: The value of ``event`` that counts; by default the one that means yes.
        exposed: The value of ``exposure`` of the first group; by default the one that means yes.
        alternative: The hypothesis of the p-value as scipy names it: ``"greater"`` for a ratio above
            1 or a difference above 0, ``"less"``, or ``"two-sided"``. The interval has two sides.
        level: The confidence level of the interval.
        reuse: As in ``miners.tables.crosstab``.

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
    rates = Rates.of(handle, event, observed, exposure, strata)
    return _contrast("odds ratio", rates, exposed, alternative, handle, epsilon, level, reuse)


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
    rates = Rates.of(handle, event, observed, exposure, strata)
    return _contrast("difference of risks", rates, exposed, alternative, handle, epsilon, level, reuse)


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

    Arguments are those of ``odds_ratio``, and ``time``, the numeric column of the time at risk: a row's time counts as
    the middle of one of ``bins`` parts. Without it rates are per row, so the ratio is that of risks.

    Examples:
        >>> import pinq
        >>> from miners.statistics import rate_ratio
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> len(rate_ratio(h, "income", "sex", observed=">50K", exposed="Male", epsilon=1))
        1
    """
    rates = Rates.of(handle, event, observed, exposure, strata, time, bins)
    return _contrast("ratio of rates", rates, exposed, alternative, handle, epsilon, level, reuse)


Method = Literal["direct", "indirect"]
NAMES = {"direct": "standardised rate", "indirect": "ratio to expected events"}


def _standardised(rates: Rates, method: Method, weights: np.ndarray | None, per: float, cells: Cells) -> Result:
    def crude(events: np.ndarray, others: np.ndarray, time: np.ndarray) -> np.ndarray:
        return np.asarray(per * events.sum(axis=1) / time.sum(axis=1))

    def direct(events: np.ndarray, others: np.ndarray, time: np.ndarray) -> np.ndarray:
        standard = time.sum(axis=0) if weights is None else weights[:, None]
        return np.asarray(per * (events / time * (standard / standard.sum(axis=0))).sum(axis=1))

    def indirect(events: np.ndarray, others: np.ndarray, time: np.ndarray) -> np.ndarray:
        """The logarithm of the events of each group over those expected by the rates of all rows."""
        expected = (time * (events.sum(axis=0) / time.sum(axis=0))).sum(axis=1)
        return np.asarray(np.log(events.sum(axis=1) / expected))

    names = [f"{rates.groups.name}: {label}" for label in rates.groups.labels]
    plain = cells.interval(*cells.estimate(rates.measured(crude)))
    value, deviation = cells.estimate(rates.measured(direct if method == "direct" else indirect))
    strata = math.prod(len(axis.labels) for axis in rates.strata)
    rows = cells.counts.reshape(2, len(names), -1, strata).sum(axis=(0, 2)).min() / math.sqrt(2 * len(rates.at))
    result = effects_of(
        cells, names, NAMES[method], value, deviation, rows=rows, more={"crude": listed(names, "crude rate", plain)}
    )
    for table in (result.frame, result.more["crude"]):
        table[[*NUMBERS]] = table[[*NUMBERS]].clip(lower=0)
    return result


def _weights(standard: Mapping[Value, float] | None, strata: tuple[Axis, ...]) -> np.ndarray | None:
    """The weights of the strata in order; raises ``QueryError`` for other parts or numbers."""
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
        handle: A private handle.
        event: The column of the event, of two parts.
        by: The column of the groups.
        strata: The columns that make strata, such as ``Cuts`` of the age.
        epsilon: The cost of all counts together.
        method: ``"direct"`` weighs each group's strata by the standard; ``"indirect"`` compares a
            group's events with those expected by the rates of all rows (for deaths: the SMR).
        standard: The public weight of each part of one column of strata, for ``"direct"``. None for the strata of all
            rows, by the noisy counts.
        time: The numeric column of the time at risk; without it rates are per row.
        bins: The number of parts of the time; a row's time is read as the middle of its part.
        per: The number of rows, or units of time, in the denominator of a rate, such as 1,000.
        observed: The value of ``event`` that counts; by default the one that means yes.
        level: The confidence level of the intervals.
        reuse: As in ``miners.tables.crosstab``.

    Returns:
        A rate, or a ratio, with its interval for each group; ``crude`` has the unadjusted rates.

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
    require_word("method", method, tuple(NAMES))
    rates = Rates.of(handle, event, observed, by, strata, time, bins)
    if not rates.strata:
        raise QueryError("is wrong", parameter="strata", allowed="one column or more")
    if standard is not None and method == "indirect":
        raise QueryError("is for the direct method alone", parameter="standard", allowed="None")
    if not is_number(per, 1e-12, 1e12):
        raise QueryError(f"is {per!r}", parameter="per", allowed="a number above 0")
    finish = partial(_standardised, rates, method, _weights(standard, rates.strata), float(per))
    title = f"{NAMES[method]} of {rates.event.name} by {rates.groups.name}"
    return drafted(handle, title, rates.axes, finish, epsilon, level, reuse)
