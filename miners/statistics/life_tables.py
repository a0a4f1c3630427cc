# SPDX-License-Identifier: Apache-2.0
"""``survival``: Kaplan-Meier curves with bands, median, restricted mean and log-rank test from one table.

Rows are counted by interval of time, kind of end, and group. Rows at risk in an interval are those
of it and of all later ones. Ends within an interval of w grid cells are spread evenly over its
cells, so of the censored a share (1 - 1/w) / 2 is no longer at risk at an event: half of them in a
long interval (the actuarial estimate), none in an interval of one cell (Kaplan and Meier's own).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from miners.fitted.theme import INK, axes_of, colour, titled
from miners.statistics.cells import Axis, Cells, Question, Result, StatisticFunction
from miners.statistics.laws import chi2_tail
from miners.tables.columns import Column
from miners.tables.table import NUMBERS, Draft
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.checks import is_listing
from pinq.public.epsilon import EpsilonLike
from pinq.public.schema import Numeric, Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INTERVALS = 8
"""Parts of the time by default: noise adds up over later parts, and fewer hide the curve's shape."""

STEPS = 11  # ends of the steps of a long interval in a picture


class Curves(Result):
    """Survival curves, or cumulative incidences: a row for each group and end of an interval.

    ``at_risk``, ``median`` and ``restricted_mean`` are tables beside the curves.
    """

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws each curve with its band, and the noisy numbers at risk below.

        Args:
            ax: The axes; by default a new figure.

        Returns:
            The axes.
        """
        ax = axes_of("survival curves", ax, (6.4, 4.6))
        *groups, time, _, _, _ = self.frame.columns
        curves = list(self.frame.groupby(groups, sort=False)) if groups else [(("all rows",), self.frame)]
        for number, ((name,), rows) in enumerate(curves):
            at = self._steps(rows[time].to_numpy(dtype=float))
            value, low, high = (np.interp(at, rows[time], rows[name]) for name in NUMBERS)
            ax.step(at, value, where="post", color=colour(number), label=str(name))
            ax.fill_between(at, low, high, step="post", color=colour(number), alpha=0.2, linewidth=0)
        ax.set_ylim(0, 1.02)
        ax.set_xlim(float(self.frame[time].min()), float(self.frame[time].max()))
        ax.set_xlabel(time)
        ax.set_ylabel("share, with noise")
        titled(ax, self.title)
        if groups:
            ax.legend(title=groups[0], fontsize=8, title_fontsize=8, loc="best")
        self._write_at_risk(ax, time, len(curves))
        return ax

    def _steps(self, ends: np.ndarray) -> np.ndarray:
        """Returns the times of steps: ends of intervals, and times within long ones, over which ends are spread."""
        starts = self.more["at_risk"].iloc[: len(ends) - 1, -4]
        within = [
            np.linspace(before, end, STEPS if start < end else 2)[1:]
            for before, start, end in zip(ends, starts, ends[1:], strict=False)
        ]
        return np.concatenate([ends[:1], *within])

    def _write_at_risk(self, ax: Axes, time: str, curves: int) -> None:
        """Writes the numbers at risk below the axis, a line for each curve."""
        at_risk = self.more["at_risk"]
        ends = sorted(set(at_risk[time]))
        shown = ends[:: max(1, -(-len(ends) // 9))]  # nine numbers of four digits have room
        ax.set_xticks(shown, [f"{end:g}" for end in shown], fontsize=8)
        transform = ax.get_xaxis_transform()
        ax.text(0, -0.2, "at risk (noisy)", transform=ax.transAxes, fontsize=8, color=INK, va="top")
        for number in range(curves):
            rows = at_risk.iloc[number * len(ends) : (number + 1) * len(ends)]
            for end, value in zip(rows[time], rows["value"], strict=True):
                if end in shown and value == value:
                    height = -0.25 - 0.05 * number
                    ax.text(
                        end,
                        height,
                        f"{value:.0f}",
                        transform=transform,
                        fontsize=8,
                        ha="center",
                        va="top",
                        color=colour(number),
                    )


@dataclass(frozen=True)
class LifeTable:
    """The arithmetic of ends counted by interval and kind.

    Attributes:
        edges: The first grid cell of each interval, and the number of cells.
        time: The column of the times.
    """

    edges: np.ndarray
    time: Numeric

    @cached_property
    def widths(self) -> np.ndarray:
        """The grid cells of each interval."""
        return np.diff(self.edges)

    @cached_property
    def ends(self) -> np.ndarray:
        """The last time of each interval, before them the time at which all are at risk."""
        last = [self.time.number(int(edge) - 1) for edge in self.edges[1:]]
        return np.array([float(self.time.lower), *last])

    def hazards(self, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns events of each kind over the rows at risk, and the rows at risk.

        Args:
            ends: Rows of shape (intervals, kinds, ...); the last kind is censored.
        """
        left = np.cumsum(ends.sum(axis=1)[::-1], axis=0)[::-1]
        gone = (1 - 1 / self.widths) / 2
        risk = left - ends[:, -1] * gone.reshape(-1, *(1,) * (left.ndim - 1))
        return ends[:, :-1] / np.where(risk.real > 0, risk, 1)[:, None], risk

    def survival(self, ends: np.ndarray) -> np.ndarray:
        """Returns the share without any event at each of ``ends``, 1 at first."""
        hazards, _ = self.hazards(ends)
        return np.concatenate([np.ones((1, *ends.shape[2:])), np.cumprod(1 - hazards.sum(axis=1), axis=0)])

    def incidence(self, ends: np.ndarray) -> np.ndarray:
        """Returns the share with an event of the first kind by each of ``ends`` (Aalen and Johansen)."""
        hazards, _ = self.hazards(ends)
        steps = np.cumsum(self.survival(ends)[:-1] * hazards[:, 0], axis=0)
        return np.concatenate([np.zeros((1, *ends.shape[2:])), steps])

    def restricted_mean(self, ends: np.ndarray) -> np.ndarray:
        """Returns the mean time without an event up to the end of the last interval: the curve's area."""
        curve = self.survival(ends)
        # Of an interval of w cells, the curve has fallen by (j + 1) / w in cell j: by (w + 1) / 2w on average.
        fallen = ((self.widths + 1) / (2 * self.widths))[:, None]
        mean = curve[:-1] - (curve[:-1] - curve[1:]) * fallen
        return np.asarray(float(self.time.lower) + float(self.time.width) * self.widths @ mean)[None]

    def crossing(self, curve: np.ndarray, share: float = 0.5) -> float:
        """Returns the first time at which a curve is at most ``share``, between the ends of long intervals.

        A curve that noise hides before has no such time; one that is above to its end never is.
        """
        below = np.flatnonzero(curve <= share)
        if not len(below):
            return float("nan") if np.isnan(curve[-1]) else float("inf")
        at = int(below[0])
        if at == 0 or self.widths[at - 1] == 1:
            return float(self.ends[at])
        way = (curve[at - 1] - share) / (curve[at - 1] - curve[at])
        return float(self.ends[at - 1] + way * (self.ends[at] - self.ends[at - 1]))

    def log_rank(self, ends: np.ndarray) -> np.ndarray:
        """Returns events beyond those expected, for all groups but the last.

        Args:
            ends: Rows of shape (intervals, 2 kinds, groups).
        """
        _, risk = self.hazards(ends)
        events = ends[:, 0]
        total = risk.sum(axis=1, keepdims=True)
        expected = events.sum(axis=1, keepdims=True) * risk / np.where(total.real > 0, total, 1)
        return (events - expected).sum(axis=0)[:-1]

    def alike(self, ends: np.ndarray) -> np.ndarray:
        """Returns the rows that there would be if all groups had one hazard, each its own censoring."""
        _, risk = self.hazards(ends)
        hazard = ends[:, 0].sum(axis=1) / np.maximum(risk.sum(axis=1), 1e-9)
        left = np.cumsum(ends.sum(axis=1)[::-1], axis=0)[::-1]
        censored = np.divide(ends[:, 1], risk, out=np.zeros_like(risk), where=risk > 0)
        rows, stay = np.zeros_like(ends), left[0]
        for interval, each in enumerate(censored):
            # Of 100 with 10 to be censored, 95 are at risk on average: a hazard of .2 leaves 71.
            at_risk = stay / (1 + each * (1 - 1 / self.widths[interval]) / 2)
            rows[interval, 0], rows[interval, 1] = at_risk * hazard[interval], at_risk * each
            rows[interval] *= stay / np.maximum(rows[interval].sum(axis=0), stay + 1e-9)
            stay = np.maximum(stay - rows[interval].sum(axis=0), 0)
        rows[-1, 1] += stay
        return rows

    def log_rank_variance(self, ends: np.ndarray) -> np.ndarray:
        """Returns their covariance among rows, that of a hypergeometric draw in each interval."""
        _, risk = self.hazards(ends)
        total, events = risk.sum(axis=1), ends[:, 0].sum(axis=1)
        # Of 3 events among 10 at risk, 7 / 9 of the variance of 3 draws that are put back is left.
        share = risk / np.maximum(total, 1)[:, None]
        weights = events * np.maximum(total - events, 0) / np.maximum(total - 1, 1)
        covariance = np.diag(weights @ share) - share.T @ (weights[:, None] * share)
        return np.asarray(covariance[:-1, :-1])


def band(cells: Cells, curve: np.ndarray, deviation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the band of a curve on the scale log(-log): within 0 and 1, as in papers.

    Where the curve is 1 or 0 that scale has no room, and the band is the curve and its noise.
    """
    inside = (curve > 1e-9) & (curve < 1 - 1e-9)
    safe = np.where(inside, curve, 0.5)
    way = np.exp(np.minimum(cells.z * deviation / np.abs(safe * np.log(safe)), 100))  # nothing is wider than 0 to 1
    _, below, above = cells.interval(curve, deviation)
    low, high = np.where(inside, safe**way, below), np.where(inside, safe ** (1 / way), above)
    return np.clip(low, 0, 1), np.clip(high, 0, 1)


@dataclass(frozen=True)
class Study:
    """The arithmetic from counts to a result.

    Attributes:
        life: The intervals.
        axes: Time and kind of end, and groups where there are any.
        kinds: The parts of the second axis that are each kind of event; of the last kind the censored.
    """

    life: LifeTable
    axes: tuple[Axis, ...]
    kinds: tuple[tuple[int, ...], ...]

    def ends(self, counts: np.ndarray) -> np.ndarray:
        """Returns the rows of each interval, kind and group."""
        counts = counts.reshape(*counts.shape[:2], -1)
        return np.stack([counts[:, list(kind)].sum(axis=1) for kind in self.kinds], axis=1)

    def result(self, cells: Cells) -> Result:
        """Makes curves and test."""
        groups = self.axes[2].labels if len(self.axes) > 2 else (None,)
        ends = self.ends(cells.counts)
        made = [self._curve(replace(cells, counts=ends[..., group])) for group in range(len(groups))]
        frames = {
            name: pd.concat(
                [self._named(own[name], label) for own, label in zip(made, groups, strict=True)], ignore_index=True
            )
            for name in made[0]
        }
        faint = cells.faint(ends.sum(axis=(0, 1)).min() / len(self.life.widths))
        tested = len(groups) > 1 and len(self.kinds) == 2 and not faint
        test = self._test(replace(cells, counts=ends)) if tested else {}
        return cells.result(Curves, frames.pop("curve"), faint=faint, more=frames, **test)

    def _named(self, frame: pd.DataFrame, label: object) -> pd.DataFrame:
        if len(self.axes) > 2:
            frame.insert(0, self.axes[2].name, pd.Series([label] * len(frame), dtype=object))
        return frame

    def _curve(self, cells: Cells) -> dict[str, pd.DataFrame]:
        """Makes the tables of one group."""
        life, time = self.life, self.axes[0].name
        if len(self.kinds) > 2:
            value, deviation = cells.estimate(life.incidence)
            high, low = (1 - end for end in band(cells, 1 - value, deviation))
        else:
            value, deviation = cells.estimate(life.survival)
            low, high = band(cells, value, deviation)
        left = np.cumsum(cells.counts.sum(axis=1)[::-1])[::-1]
        noise = cells.z * np.sqrt(cells.noise * cells.counts.shape[1] * np.arange(len(left), 0, -1))
        told = np.concatenate([[True], left > noise])  # where rows at risk can be told from noise
        value, low, high = (np.where(told, numbers, np.nan) for numbers in (value, low, high))
        starts = np.array([float(life.time.edge(int(edge))) for edge in life.edges[:-1]])
        tables = {
            "curve": pd.DataFrame({time: life.ends, "value": value, "low": low, "high": high}),
            "at_risk": pd.DataFrame(
                {time: starts, "value": left, "low": np.maximum(left - noise, 0), "high": left + noise}
            ),
        }
        if len(self.kinds) == 2:
            median = [life.crossing(curve) for curve in (value, low, high)]
            mean = cells.interval(*cells.estimate(life.restricted_mean))
            tables |= {
                name: pd.DataFrame([ends], columns=NUMBERS)
                for name, ends in (("median", median), ("restricted_mean", mean[:, 0]))
            }
        return tables

    def _test(self, cells: Cells) -> dict[str, Any]:
        """Tests whether all groups have one curve: log-rank, whose variance has the noise's."""
        life, (_, jacobian) = self.life, cells.derived(self.life.log_rank)
        variance = life.log_rank_variance(cells.counts) + cells.noise * jacobian @ jacobian.T
        statistic, df = cells.tested(life.log_rank, variance, lambda: life.alike(cells.counts))
        return {"test": "log-rank", "statistic": statistic, "df": df, "pvalue": chi2_tail(statistic, df)}


@StatisticFunction
def survival(
    handle: PrivateQueryable,
    time: Column,
    event: Column,
    by: Column | None = None,
    *,
    epsilon: EpsilonLike,
    intervals: int | Sequence[float] = INTERVALS,
    observed: Value | None = None,
    competing: Value | Sequence[Value] = (),
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Estimates survival curves (Kaplan-Meier) with bands, and tests whether groups differ (log-rank).

    Args:
        handle: A handle on a table, or on a part of it.
        time: The numeric column of the time until the event or the end of observation.
        event: The column that says how the time ended.
        by: The column of the groups.
        epsilon: The cost of all counts together.
        intervals: The number of intervals of the time, of equal width, or their cuts. The noise of
            later intervals adds up in the rows at risk, so few are more exact.
        observed: The value of ``event`` that is the event; by default the one of two that means
            yes. Other values are censored.
        competing: The value, or values, of ``event`` that are events of other kinds. The result is then the
            cumulative incidence of ``observed`` (Aalen-Johansen) instead of a survival curve.
        level: The confidence level of bands and intervals.
        reuse: Whether to return the stored answer of an identical earlier call, at no cost.

    Returns:
        A row for each group and end of an interval: the share without the event until then. Beside
        them ``at_risk``, ``median`` and ``restricted_mean``, and of several groups ``statistic``
        and ``pvalue`` of the log-rank test.

    Raises:
        QueryError: The request is malformed.
        BudgetExceeded: The cost exceeds the remaining budget; nothing was spent.

    Examples:
        >>> import pinq
        >>> from miners.statistics import survival
        >>> week, arrest = pinq.Numeric(lower=1, upper=52, integer=True), pinq.Categorical(values=("no", "yes"))
        >>> schema = pinq.Schema(columns={"week": week, "arrest": arrest}, max_rows=1000)
        >>> h = pinq.simulate(schema, rows=1000, epsilon=1)
        >>> curve = survival(h, "week", "arrest", intervals=4, epsilon=1)
        >>> curve["week"].tolist()
        [1.0, 13.0, 26.0, 39.0, 52.0]
    """
    times, kinds = Axis.numeric(handle, time, intervals, "time", "intervals"), Axis.of(handle, event, 2)
    first = kinds.position(observed, "observed")
    rivals = competing if is_listing(competing) else [competing]
    others = tuple({kinds.position(value, "competing"): None for value in rivals})
    censored = tuple(part for part in range(len(kinds.labels)) if part not in (first, *others))
    if first in others or not censored:
        raise QueryError("has the observed event, or leaves no value for the censored", parameter="competing")
    groups = () if by is None else (Axis.of(handle, by),)
    life = LifeTable(times.edges, handle.schema.numeric(times.name))
    study = Study(life, (times, kinds, *groups), ((first,), *([others] if others else []), censored))
    curve = "incidence" if others else "survival"
    title = f"{curve} by {times.name}" + (f" and {groups[0].name}" if groups else "")
    return Question(handle, epsilon, level, reuse).draft(title, study.axes, study.result)
