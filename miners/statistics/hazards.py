# SPDX-License-Identifier: Apache-2.0
"""``hazard_ratio``: groups with proportional hazards, by the piecewise exponential model on one life table.

The hazard is constant within an interval and the same multiple of the reference's in all intervals.
Of an interval with D events and the times at risk T_g, group g has the share
p_g = T_g r_g / sum T_h r_h of the events, with the ratios r; the likelihood's equations say that
events and shares agree. The covariance of log r follows from the derivative of the equations: that
of drawing rows (the robust one of Lin and Wei, which holds in long intervals and where hazards are
not proportional), and that of the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from miners.statistics.cells import Axis, Cells, Question, Result, StatisticFunction
from miners.statistics.laws import chi2_tail
from miners.statistics.life_tables import INTERVALS, LifeTable
from miners.statistics.ratios import Effects
from miners.tables.columns import Column
from miners.tables.table import Draft
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.epsilon import EpsilonLike
from pinq.public.schema import Value

STEPS = 50  # of Newton's method, which needs five to ten
MOST = 12.0  # the largest log ratio: 160,000 says that a group has no event


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
        ended, widths = counts.sum(axis=1), self.life.widths[:, None]
        later = np.cumsum(ended[::-1], axis=0)[::-1] - ended
        # Of 10 rows that end in an interval of 4 cells, each is at risk in 2.5 of them.
        return counts[:, self.event], later * widths + ended * (widths + 1) / 2

    def score(self, counts: np.ndarray, effects: np.ndarray) -> np.ndarray:
        """Returns events beyond their share, for all groups but the reference."""
        events, time = self.counted(counts)
        return (events - events.sum(axis=1, keepdims=True) * _shares(time, effects)).sum(axis=0)[1:]

    def information(self, counts: np.ndarray, effects: np.ndarray) -> np.ndarray:
        """Returns the information of the rows about the log ratios."""
        events, time = self.counted(counts)
        shares, total = _shares(time, effects), events.sum(axis=1)
        return (np.diag(total @ shares) - shares.T @ (total[:, None] * shares))[1:, 1:]

    def fitted(self, cells: Cells) -> tuple[np.ndarray, np.ndarray]:
        """Returns the log ratios and their covariance, by Newton's method."""
        effects = np.zeros(len(self.axes[2].labels))
        for _ in range(STEPS):
            back = np.linalg.pinv(self.information(cells.counts, effects), hermitian=True)
            step = np.clip(back @ self.score(cells.counts, effects), -1, 1)
            effects[1:] = np.clip(effects[1:] + step, -MOST, MOST)
            if np.abs(step).max() < 1e-12:
                break
        moved = back @ cells.jacobian(lambda counts: self.score(counts, effects))
        return effects[1:], cells.drawn(moved) + cells.moved(moved)

    def result(self, cells: Cells) -> Result:
        """Makes the ratios, their intervals and the test of all of them."""
        effects, covariance = self.fitted(cells)
        deviation, axis = np.sqrt(np.maximum(np.diag(covariance), 0)), self.axes[2]
        events, time = self.counted(cells.counts)
        names = [f"{axis.name}: {label} against {axis.labels[0]}" for label in axis.labels[1:]]
        with np.errstate(over="ignore"):  # endless, where nothing is known
            low, high = np.exp(effects - cells.z * deviation), np.exp(effects + cells.z * deviation)
        frame = pd.DataFrame(
            {"groups": names, "statistic": "hazard ratio", "value": np.exp(effects), "low": low, "high": high}
        )
        rates = pd.DataFrame(
            {
                axis.name: axis.labels,
                "events": events.sum(axis=0),
                "time": time.sum(axis=0) * float(self.life.time.width),
            }
        )
        lost = [name for name, size in zip(names, np.abs(effects), strict=True) if not size < MOST - 1]
        notes = [f"no hazard ratio can be told for {name}: a group has no event" for name in lost]
        statistic = float(effects @ np.linalg.pinv(covariance, hermitian=True) @ effects)
        return cells.result(
            Effects,
            frame,
            faint=cells.faint(events.sum(axis=0).min() / np.sqrt(len(events))) or not np.isfinite(deviation).all(),
            notes=[*notes, "hazards are constant within an interval, and proportional between groups"],
            more={"rates": rates},
            test="Wald, of all groups",
            statistic=statistic,
            df=len(effects),
            pvalue=chi2_tail(statistic, len(effects)),
        )


def _shares(time: np.ndarray, effects: np.ndarray) -> np.ndarray:
    """Returns the share of each group in the events of an interval."""
    weights = time * np.exp(effects)
    total = weights.sum(axis=1, keepdims=True)
    return np.asarray(weights / np.where(total.real > 0, total, 1))


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
        reuse: Return the stored answer of an identical earlier call, at no cost.

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
    times, kinds, groups = Axis.of(handle, time, intervals), Axis.of(handle, event, 2), Axis.of(handle, by)
    if not len(times.edges):
        raise QueryError("needs a numeric column, or cuts of one", parameter="time")
    if min(len(kinds.labels), len(groups.labels)) < 2:
        raise QueryError("a column with a single part has no effect.")
    life = LifeTable(times.edges, handle.schema.numeric(times.name))
    model = Hazards(life, (times, kinds, groups), kinds.position(observed, "observed"))
    title = f"hazard ratios of {kinds.name} by {groups.name}"
    return Question(handle, epsilon, level, reuse).draft(title, model.axes, model.result)
