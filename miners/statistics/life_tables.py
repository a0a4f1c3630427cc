# SPDX-License-Identifier: Apache-2.0
"""``survival``: Kaplan-Meier curves with bands, median, restricted mean and log-rank test from one table.

Rows at risk in an interval are those of it and of all later ones. Ends within an interval of w grid cells are spread
evenly over its cells, so a share (1 - 1/w) / 2 of the censored is no longer at risk at an event: half of them in a long
interval (the actuarial estimate), none in an interval of one cell (Kaplan and Meier's own).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from miners.pictures import INK, Axes, axes_of, colour, titled
from miners.statistics.cells import Axis, Cells, Result, Statistic, StatisticFunction, drafted
from miners.tables.columns import Column
from miners.tables.table import NUMBERS, Draft
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.checks import is_listing
from pinq.public.epsilon import EpsilonLike
from pinq.public.schema import Numeric, Value

INTERVALS = 8
"""Parts of the time by default: noise adds up over later parts, and fewer hide the curve's shape."""

STEPS = 11  # ends of the steps of a long interval in a picture


class Curves(Result):
    """Survival curves, or cumulative incidences: a row for each group and end of an interval.

    ``at_risk``, ``median`` and ``restricted_mean`` are further tables.
    """

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws each curve with its band, and the noisy numbers at risk below."""
        ax = axes_of("survival curves", ax, (6.4, 4.6))
        *groups, time, _, _, _ = self.frame.columns
        curves = list(self.frame.groupby(groups, sort=False)) if groups else [(("all rows",), self.frame)]
        for number, ((name,), rows) in enumerate(curves):
            at = self._steps(rows[time].to_numpy(dtype=float))
            value, low, high = (np.interp(at, rows[time], rows[name]) for name in NUMBERS)
            ax.step(at, value, where="post", color=colour(number), label=str(name))
            ax.fill_between(at, low, high, step="post", color=colour(number), alpha=0.2, linewidth=0)
        ends = self.frame[time].iloc[[0, -1]].astype(float)
        ax.set(xlim=ends, ylim=(0, 1.02), xlabel=time, ylabel="share, with noise")
        titled(ax, self.title)
        if groups:
            ax.legend(title=groups[0], fontsize=8, title_fontsize=8, loc="best")
        self._write_at_risk(ax, time, len(curves))
        return ax

    def _steps(self, ends: np.ndarray) -> np.ndarray:
        """The times of steps: ends of intervals, and times within long ones, over which ends are spread."""
        starts = self.more["at_risk"].iloc[: len(ends) - 1, -4]
        within = [
            np.linspace(before, end, STEPS if start < end else 2)[1:]
            for before, start, end in zip(ends, starts, ends[1:], strict=False)
        ]
        return np.concatenate([ends[:1], *within])

    def _write_at_risk(self, ax: Axes, time: str, curves: int) -> None:
        at, write = self.more["at_risk"][time].unique(), partial(ax.text, fontsize=8, va="top")
        shown = np.arange(0, len(at), max(1, -(-len(at) // 9)))  # nine numbers of four digits have room
        ax.set_xticks(at[shown], [f"{end:g}" for end in at[shown]], fontsize=8)
        write(0, -0.2, "at risk (noisy)", transform=ax.transAxes, color=INK)
        for curve, numbers in enumerate(self.more["at_risk"]["value"].to_numpy().reshape(curves, -1)):
            ink: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "ha": "center", "color": colour(curve)}
            for interval in shown[~np.isnan(numbers[shown])]:
                write(at[interval], -0.25 - 0.05 * curve, f"{numbers[interval]:.0f}", **ink)


@dataclass(frozen=True)
class LifeTable:
    """The arithmetic of ends counted by interval and kind.

    Attributes:
        edges: The first grid cell of each interval, and the number of cells.
    """

    edges: np.ndarray
    time: Numeric

    @cached_property
    def widths(self) -> np.ndarray:
        return np.diff(self.edges)

    @cached_property
    def ends(self) -> np.ndarray:
        """The last time of each interval, after the time at which all are at risk."""
        return np.array([float(self.time.lower), *(self.time.number(edge - 1) for edge in self.edges[1:].tolist())])

    def left(self, ends: np.ndarray) -> np.ndarray:
        """The rows that end in each interval or later."""
        return np.cumsum(ends.sum(axis=1)[::-1], axis=0)[::-1]

    def time_at_risk(self, ends: np.ndarray) -> np.ndarray:
        """The total grid cells of each interval in which rows are at risk."""
        ended, widths = ends.sum(axis=1), self.widths.reshape(-1, *(1,) * (ends.ndim - 2))
        return (self.left(ends) - ended) * widths + ended * (widths + 1) / 2

    def hazards(self, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Events of each kind over the rows at risk, and the rows at risk.

        Args:
            ends: Rows of shape (intervals, kinds, ...); the last kind is censored.
        """
        gone = (1 - 1 / self.widths) / 2
        risk = self.left(ends) - ends[:, -1] * gone.reshape(-1, *(1,) * (ends.ndim - 2))
        return ends[:, :-1] / np.where(risk.real > 0, risk, 1)[:, None], risk

    def survival(self, ends: np.ndarray) -> np.ndarray:
        """The share without any event at each of ``ends``, 1 at first."""
        hazards, _ = self.hazards(ends)
        return np.concatenate([np.ones((1, *ends.shape[2:])), np.cumprod(1 - hazards.sum(axis=1), axis=0)])

    def incidence(self, ends: np.ndarray) -> np.ndarray:
        """The share with an event of the first kind by each of ``ends`` (Aalen and Johansen)."""
        hazards, _ = self.hazards(ends)
        steps = np.cumsum(self.survival(ends)[:-1] * hazards[:, 0], axis=0)
        return np.concatenate([np.zeros((1, *ends.shape[2:])), steps])

    def restricted_mean(self, ends: np.ndarray) -> np.ndarray:
        """The mean time without an event up to the last of ``ends``: the area under the curve."""
        curve = self.survival(ends)
        # Of an interval of w cells, the curve has fallen by (j + 1) / w in cell j: by (w + 1) / 2w on average.
        fallen = ((self.widths + 1) / (2 * self.widths))[:, None]
        mean = curve[:-1] - (curve[:-1] - curve[1:]) * fallen
        cells = self.widths @ mean - curve[-1]  # a row that is left after the last time counts with that time
        return np.asarray(float(self.time.lower) + float(self.time.width) * cells)[None]

    def crossing(self, curve: np.ndarray, share: float = 0.5) -> float:
        """The first time at which a curve is at most ``share``, interpolated between the ends of long intervals.

        NaN if noise hides the curve before; infinite if it stays above.
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
        """Events beyond those expected, for all groups but the last; ``ends`` of shape (intervals, 2 kinds, groups)."""
        _, risk = self.hazards(ends)
        events = ends[:, 0]
        total = risk.sum(axis=1, keepdims=True)
        expected = events.sum(axis=1, keepdims=True) * risk / np.where(total.real > 0, total, 1)
        return (events - expected).sum(axis=0)[:-1]

    def alike(self, ends: np.ndarray) -> np.ndarray:
        """The expected rows if all groups had one hazard, each with its censoring."""
        _, risk = self.hazards(ends)
        hazard = ends[:, 0].sum(axis=1) / np.maximum(risk.sum(axis=1), 1e-9)
        censored = np.divide(ends[:, 1], risk, out=np.zeros_like(risk), where=risk > 0)
        # Of 100 with 10 to be censored, 95 are at risk on average: a hazard of .2 leaves 71.
        at_risk = 1 / (1 + censored * ((1 - 1 / self.widths) / 2)[:, None])
        shares = at_risk[:, None] * np.stack([np.broadcast_to(hazard[:, None], risk.shape), censored], axis=1)
        shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1)
        stay = self.left(ends)[0] * np.cumprod(np.concatenate([np.ones_like(risk[:1]), 1 - shares.sum(axis=1)]), axis=0)
        rows = shares * stay[:-1, None]
        rows[-1, 1] += stay[-1]
        return rows

    def log_rank_variance(self, ends: np.ndarray) -> np.ndarray:
        """Their covariance among rows, that of a hypergeometric draw in each interval."""
        _, risk = self.hazards(ends)
        total, events = risk.sum(axis=1), ends[:, 0].sum(axis=1)
        # Of 3 events among 10 at risk, 7 / 9 of the variance of 3 draws that are put back is left.
        share = risk / np.maximum(total, 1)[:, None]
        weights = events * np.maximum(total - events, 0) / np.maximum(total - 1, 1)
        covariance = np.diag(weights @ share) - share.T @ (weights[:, None] * share)
        return np.asarray(covariance[:-1, :-1])


def band(cells: Cells, curve: np.ndarray, deviation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The band of a curve on the scale log(-log): within 0 and 1, as in papers.

    At 1 and 0, where that scale is infinite, the band is the curve and its noise.
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
        axes: Time and kind of end, and groups if there are any.
        kinds: The parts of the second axis that are each kind of event; the last kind is censored.
    """

    life: LifeTable
    axes: tuple[Axis, ...]
    kinds: tuple[tuple[int, ...], ...]

    def of(self, statistic: Statistic) -> Statistic:
        """A statistic of the rows by interval and kind of end as a statistic of counts, which have the noise."""
        return lambda counts: statistic(self.ends(counts))

    def ends(self, counts: np.ndarray) -> np.ndarray:
        return np.stack([counts[:, list(kind)].sum(axis=1) for kind in self.kinds], axis=1)

    def result(self, cells: Cells) -> Result:
        shape = (*cells.counts.shape[:2], -1)  # one group where there are none
        cells = replace(cells, counts=cells.counts.reshape(shape), noisy=cells.noisy.reshape(shape))
        labels = self.axes[2].labels if len(self.axes) > 2 else (None,)
        by_group = {
            label: self._curve(replace(cells, counts=cells.counts[..., at], noisy=cells.noisy[..., at]))
            for at, label in enumerate(labels)
        }
        tables = {
            name: self._joined({label: frames[name] for label, frames in by_group.items()})
            for name in next(iter(by_group.values()))
        }
        faint = cells.faint(cells.counts.sum(axis=(0, 1)).min() / len(self.life.widths))
        test = self._test(cells) if len(labels) > 1 and len(self.kinds) == 2 and not faint else {}
        curve, missing = tables.pop("curve"), "numbers are missing where rows at risk cannot be told from noise"
        notes = [missing] if curve["value"].isna().any() else []
        return cells.result(Curves, curve, faint=faint, notes=notes, more=tables, **test)

    def _test(self, cells: Cells) -> dict[str, Any]:
        life, ends = self.life, self.ends(cells.counts)
        null, of_part = np.zeros_like(cells.counts), cells.counts.sum(axis=(0, 2))
        for rows, kind in zip(life.alike(ends).transpose(1, 0, 2), self.kinds, strict=True):
            share = of_part[[*kind]] / max(of_part[[*kind]].sum(), 1e-9)
            null[:, [*kind]] = rows[:, None] * share[:, None]
        return {"test": "log-rank", **cells.tested(self.of(life.log_rank), null, life.log_rank_variance(ends))}

    def _joined(self, frames: dict[Any, pd.DataFrame]) -> pd.DataFrame:
        joined = pd.concat(frames.values(), ignore_index=True)
        if len(self.axes) > 2:
            labels = [label for label, frame in frames.items() for _ in range(len(frame))]
            joined.insert(0, self.axes[2].key(*NUMBERS), pd.Series(labels, dtype=object))
        return joined

    def _curve(self, cells: Cells) -> dict[str, pd.DataFrame]:
        life, time, several = self.life, self.axes[0].key(*NUMBERS), len(self.kinds) > 2
        value, deviation = cells.estimate(self.of(life.incidence if several else life.survival))
        # The band of an incidence is that of the share without the event, turned.
        low, high = band(cells, 1 - value if several else value, deviation)
        left, events = life.left(cells.counts), np.cumsum(self.ends(cells.noisy)[:, 0])
        noise = cells.z * np.sqrt(cells.noise * np.arange(1, len(value)))  # of sums of so many counts
        high[1:][events < noise * math.sqrt(len(self.kinds[0]))] = 1  # as far as can be told there were no events
        low, high = (1 - high, 1 - low) if several else (low, high)
        noise = noise[::-1] * math.sqrt(cells.counts.shape[1])
        is_clear = np.concatenate([[True], left > noise])  # where rows at risk can be told from noise
        curve = np.where(is_clear, [value, low, high], np.nan)
        starts = [float(life.time.edge(edge)) for edge in life.edges[:-1].tolist()]
        at_risk = [left, np.maximum(left - noise, 0), left + noise]
        tables = {
            "curve": pd.DataFrame({time: life.ends} | dict(zip(NUMBERS, curve, strict=True))),
            "at_risk": pd.DataFrame({time: starts} | dict(zip(NUMBERS, at_risk, strict=True))),
        }
        if not several:
            mean = cells.interval(*cells.estimate(self.of(life.restricted_mean)))[:, 0]
            tables["median"] = pd.DataFrame([[life.crossing(each) for each in curve]], columns=NUMBERS)
            tables["restricted_mean"] = pd.DataFrame([mean], columns=NUMBERS)
        return tables


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
        handle: A private handle.
        time: The numeric column of the time until the event or the end of observation.
        event: The column of the kind of end.
        by: The column of the groups.
        epsilon: The cost of all counts together.
        intervals: The number of intervals of the time, of equal width, or their cuts. The noise of
            later intervals adds up in the rows at risk, so few are more exact.
        observed: The value of ``event`` that is the event; by default the one of two that means
            yes. Other values are censored.
        competing: The value, or values, of ``event`` that are events of other kinds. The result is then the
            cumulative incidence of ``observed`` (Aalen-Johansen) instead of a survival curve.
        level: The confidence level of bands and intervals.
        reuse: As in ``miners.tables.crosstab``.

    Returns:
        A row for each group and end of an interval: the share without the event until then. Further tables are
        ``at_risk``, ``median`` and ``restricted_mean``; for several groups there are ``statistic`` and ``pvalue`` of
        the log-rank test.

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
    return drafted(handle, title, study.axes, study.result, epsilon, level, reuse)
