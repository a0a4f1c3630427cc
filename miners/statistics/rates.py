# SPDX-License-Identifier: Apache-2.0
"""``standardised``: rates of groups as if all had the same strata, directly or indirectly.

Direct: the rates of a group's strata, weighed by one standard population. Indirect: a group's
events over those that it would have with the rates of all rows in each of its strata.
Example: of two strata with the rates .1 and .3, half of the standard is in each: .2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from miners.statistics.cells import Axis, Cells, Question, Result, StatisticFunction
from miners.statistics.ratios import Effects
from miners.tables.columns import Column, Columns, specs_of
from miners.tables.table import Draft
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.checks import is_number
from pinq.public.epsilon import EpsilonLike
from pinq.public.schema import Value

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
        """Returns events and times at risk, both of shape (groups, strata)."""
        table = counts.reshape(len(counts), len(self.groups.labels), len(self.at), -1)
        return table[self.event].sum(axis=1), np.tensordot(table.sum(axis=0), self.at, axes=([1], [0]))

    def crude(self, counts: np.ndarray) -> np.ndarray:
        """Returns the rate of each group as it is."""
        events, time = self.counted(counts)
        return np.asarray(self.per * events.sum(axis=1) / time.sum(axis=1))

    def direct(self, counts: np.ndarray) -> np.ndarray:
        """Returns the rate of each group under the standard's strata."""
        events, time = self.counted(counts)
        weights = time.sum(axis=0) if self.weights is None else self.weights
        return np.asarray(self.per * (events / time) @ (weights / weights.sum()))

    def indirect(self, counts: np.ndarray) -> np.ndarray:
        """Returns the logarithm of the events of each group over those expected by the rates of all rows."""
        events, time = self.counted(counts)
        return np.asarray(np.log(events.sum(axis=1) / (time @ (events.sum(axis=0) / time.sum(axis=0)))))

    def result(self, cells: Cells, method: Method) -> Result:
        """Makes the standardised rates, or the ratios, with intervals."""
        value, deviation = cells.estimate(self.direct if method == "direct" else self.indirect)
        ends = np.stack([value, value - cells.z * deviation, value + cells.z * deviation])
        with np.errstate(over="ignore"):  # endless, where nothing is known
            ends = np.maximum(ends, 0) if method == "direct" else np.exp(ends)
        crude, spread = cells.estimate(self.crude)
        frames = [
            pd.DataFrame({"groups": [f"{self.groups.name}: {label}" for label in self.groups.labels]}).assign(
                statistic=name, value=numbers[0], low=numbers[1], high=numbers[2]
            )
            for name, numbers in (
                (DIRECT if method == "direct" else INDIRECT, ends),
                ("crude rate", np.maximum([crude, crude - cells.z * spread, crude + cells.z * spread], 0)),
            )
        ]
        smallest = cells.counts.sum(axis=0).reshape(len(self.groups.labels), len(self.at), -1).sum(axis=1).min()
        faint = cells.faint(smallest / np.sqrt(2 * len(self.at))) or not np.isfinite(ends).all()
        return cells.result(Effects, frames[0], faint=faint, more={"crude": frames[1]})


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
        reuse: Return the stored answer of an identical earlier call, at no cost.

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
    axis, groups = Axis.of(handle, event, 2), Axis.of(handle, by)
    layers = tuple(Axis.of(handle, spec) for spec in specs_of(handle.schema, strata))
    if not layers or method not in ("direct", "indirect"):
        wrong, allowed = ("strata", "one column or more") if not layers else ("method", "'direct' or 'indirect'")
        raise QueryError("is wrong", parameter=wrong, allowed=allowed)
    if standard is not None and method == "indirect":
        raise QueryError("is for the direct method alone", parameter="standard", allowed="None")
    if not is_number(per, 1e-12, 1e12):
        raise QueryError(f"is {per!r}", parameter="per", allowed="a number above 0")
    times = () if time is None else (Axis.of(handle, time, bins),)
    if times and not len(times[0].edges):
        raise QueryError("must be a numeric column, or cuts of one", parameter="time")
    at = times[0].middles if times else np.ones(1)
    made = Standard(axis.two(observed, "observed")[0], groups, at, _weights(standard, layers), float(per))
    title = f"{DIRECT if method == 'direct' else INDIRECT} of {axis.name} by {groups.name}"
    question = Question(handle, epsilon, level, reuse)
    return question.draft(title, (axis, groups, *times, *layers), lambda cells: made.result(cells, method))
