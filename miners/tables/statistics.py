# SPDX-License-Identifier: Apache-2.0
"""``Statistic`` is one number of one column for each group: its questions, and how they are read.

Each kind is a class that says what it is going to ask (``lines``) and asks it (``ask``); so a
summary is a list of statistics, and its plan and its bill are theirs.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from miners.budget.plan import PlanLine
from miners.tables.columns import count_line, even_cuts, is_categorical, missing_apart
from miners.tables.noise import half_width, scale_of
from miners.tables.quantiles import Quantiles
from pinq.analyst.answers import NoisyArray
from pinq.analyst.queryable import Parts
from pinq.errors import QueryError
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema
from pinq.public.specs import Groups, Values

__all__ = ["STATISTICS", "Estimate", "Quantile", "Quartiles", "Statistic", "ValueCounts", "statistic_named"]

MIN_BINS, MAX_BINS = 8, 256


@dataclass(frozen=True)
class Estimate:
    """One number for each group, all of shape (groups,).

    Attributes:
        name: What it is: ``mean``, ``25 %``, ...
        column: Of which column; empty where it is of none.
        value: The numbers; or dates, datetime64.
        low: Lower ends of their intervals.
        high: Upper ends.
        scale: The scale of the noise in each; not a number where no one noise was added.
        of: The value of the column that is counted, where it is a count of one.
    """

    name: str
    column: str
    value: np.ndarray
    low: np.ndarray
    high: np.ndarray
    scale: np.ndarray
    of: object = None


@dataclass(frozen=True)
class Statistic(ABC):
    """What is asked of one column, for all groups at once.

    Attributes:
        schema: The public columns.
        column: Of which column.
        epsilon: Loss of all its questions.
        level: Of the intervals.
        groups: How many groups there are.
        reuse: Whether stored answers will do.
    """

    schema: Schema
    column: str
    epsilon: Epsilon
    level: float
    groups: int
    reuse: bool

    def __post_init__(self) -> None:
        """Refuses a column of which it cannot be asked, before anything is.

        It stands here for the subclasses': a dataclass calls what it has when it is decorated.
        """
        self.schema.column(self.column or next(iter(self.schema.columns)))

    @abstractmethod
    def lines(self) -> tuple[PlanLine, ...]:
        """The questions, for a plan."""

    @abstractmethod
    def ask(self, groups: Parts) -> list[Estimate]:
        """Asks all groups, which are a flat collection."""


class _Numbers(Statistic):
    """A statistic of a numeric column. ``QueryError`` for any other column, when it is made."""

    def __post_init__(self) -> None:
        self.schema.numeric(self.column)


class Count(Statistic):
    """How many rows each group has, missing values included."""

    def lines(self) -> tuple[PlanLine, ...]:
        return (count_line(self.schema, "rows", self.groups, self.epsilon),)

    def ask(self, groups: Parts) -> list[Estimate]:
        return [
            _released(
                "count", self.column, groups.noisy_count(epsilon=self.epsilon.exact, reuse=self.reuse), self.level
            )
        ]


class Missing(Statistic):
    """How many values are missing: 0 where the policy declares none, and then nothing is asked."""

    def lines(self) -> tuple[PlanLine, ...]:
        return (count_line(self.schema, f"rows without {self.column}", self.groups, self.epsilon),)

    def ask(self, groups: Parts) -> list[Estimate]:
        if is_categorical(self.schema, self.column):
            parts = groups.partition(Groups(self.column, ((None,),)))
        else:
            parts = groups.partition(missing_apart(self.schema, self.column))[np.arange(self.groups) * 3 + 2]
        return [
            _released(
                "missing", self.column, parts.noisy_count(epsilon=self.epsilon.exact, reuse=self.reuse), self.level
            )
        ]


class Mean(_Numbers):
    """The average of the values that are not missing."""

    def lines(self) -> tuple[PlanLine, ...]:
        return (PlanLine(0, f"average {self.column}", "noisy_avg", self.groups, self.epsilon.exact),)

    def ask(self, groups: Parts) -> list[Estimate]:
        answer = groups.noisy_avg(self.column, epsilon=self.epsilon.exact, reuse=self.reuse)
        return [_released("mean", self.column, answer, self.level)]


class Sum(_Numbers):
    """The sum of the values, clamped to the declared bounds. ``QueryError`` for dates."""

    def __post_init__(self) -> None:
        self.schema.addable(self.column)

    def lines(self) -> tuple[PlanLine, ...]:
        return (PlanLine(0, f"sum of {self.column}", "noisy_sum", self.groups, self.epsilon.exact),)

    def ask(self, groups: Parts) -> list[Estimate]:
        answer = groups.noisy_sum(self.column, epsilon=self.epsilon.exact, reuse=self.reuse)
        return [_released("sum", self.column, answer, self.level)]


class Variance(_Numbers):
    """The mean squared distance from the mean, of noisy counts in even bins.

    How many bins follows from public facts (``bins``), never from rows. A bin of width w counts as
    its middle, and w^2 / 12 is added for rows that spread evenly within it. The interval is
    approximate: a bound for the noise of the counts, and w^2 / 4 for the bins.
    """

    @property
    def bins(self) -> int:
        """Returns how many bins balance coarseness and noise.

        In units of the squared range, bins cost about 1 / (12 B^2), and noise in B counts of n rows
        about 0.16 sqrt(B) / (epsilon n): least at B = (2.1 epsilon n)^(2/5). n is ``max_rows``, in
        equal groups.
        """
        rows = float(self.epsilon.per_row(self.schema.distance)) * self.schema.max_rows / self.groups
        best = int(np.clip(round((2.1 * rows) ** 0.4), MIN_BINS, MAX_BINS))
        return min(best, self.schema.numeric(self.column).cells)

    def lines(self) -> tuple[PlanLine, ...]:
        if self.schema.numeric(self.column).cells < 2:  # its value is public
            return ()
        asked = f"rows in {self.bins} bins of {self.column}"
        return (count_line(self.schema, asked, self.bins * self.groups, self.epsilon),)

    def ask(self, groups: Parts) -> list[Estimate]:
        numeric = self.schema.numeric(self.column)
        if numeric.cells < 2:
            return [self._estimate(np.ones((self.groups, 1)), np.array([0, 1]), 1.0)]  # all rows are alike
        cuts = even_cuts(self.schema, self.column, self.bins)
        answer = groups.partition(cuts).noisy_count(epsilon=self.epsilon.exact, reuse=self.reuse)
        counts = (+answer).reshape(self.groups, -1)[:, : len(cuts.points) + 1]
        edges = np.array([0, *(numeric.threshold(point, self.column) for point in cuts.points), numeric.cells])
        return [self._estimate(counts, edges, scale_of(answer))]

    def _estimate(self, counts: np.ndarray, edges: np.ndarray, scale: float) -> Estimate:
        """Computes variances from counts, shape (groups, bins), of cells between ``edges``."""
        numeric = self.schema.numeric(self.column)
        middles = np.array([numeric.number((low + high - 1) / 2) for low, high in itertools.pairwise(edges.tolist())])
        widths = np.diff(edges) * float(numeric.width)
        # A bin of one whole number has no width within; k of them spread like k points, k^2 - 1.
        within = (widths**2 - float(numeric.width) ** 2 * numeric.integer) / 12
        rows = np.maximum(counts.sum(axis=1, keepdims=True), 1)
        means = (counts * middles).sum(axis=1, keepdims=True) / rows
        squares = (middles - means) ** 2
        largest = (numeric.number(numeric.cells - 1) - numeric.number(0)) ** 2 / 4
        value = np.clip((counts * (squares + within)).sum(axis=1) / rows[:, 0], 0, largest)
        off = half_width((squares - value[:, None]) / rows, scale, self.level) + 3 * within.max()
        low, high = np.maximum(value - off, 0), np.minimum(value + off, largest)
        return Estimate("variance", self.column, value, low, high, np.full(self.groups, np.nan))


class StandardDeviation(Variance):
    """The square root of the variance."""

    def _estimate(self, counts: np.ndarray, edges: np.ndarray, scale: float) -> Estimate:
        variance = super()._estimate(counts, edges, scale)
        value, low, high = (np.sqrt(numbers) for numbers in (variance.value, variance.low, variance.high))
        return Estimate("std", self.column, value, low, high, variance.scale)


@dataclass(frozen=True)
class Quantile(_Numbers):
    """Quantiles: numbers that have a given share of the values below them.

    Attributes:
        shares: Increasing, between 0 and 1.
    """

    shares: tuple[Fraction, ...] = (Fraction(1, 2),)

    @property
    def _quantiles(self) -> Quantiles:
        return Quantiles(self.schema, self.column, self.shares, self.epsilon, self.level, self.reuse)

    def lines(self) -> tuple[PlanLine, ...]:
        return self._quantiles.lines(self.groups)

    def ask(self, groups: Parts) -> list[Estimate]:
        located = self._quantiles.ask(groups)
        nothing = np.full(self.groups, np.nan)
        columns = zip(self.shares, located.value.T, located.low.T, located.high.T, strict=True)
        return [
            Estimate(_percent(share), self.column, value, low, high, nothing) for share, value, low, high in columns
        ]


@dataclass(frozen=True)
class Quartiles(Quantile):
    """The three numbers that cut a column's values in four equal shares."""

    shares: tuple[Fraction, ...] = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))


class Median(Quantile):
    """The number with half of the values below it."""

    def ask(self, groups: Parts) -> list[Estimate]:
        (middle,) = super().ask(groups)
        return [Estimate("median", self.column, middle.value, middle.low, middle.high, middle.scale)]


class ValueCounts(Statistic):
    """How many rows each value of a categorical column has, missing ones last."""

    def lines(self) -> tuple[PlanLine, ...]:
        values = self.schema.categorical(self.column).codes
        return (count_line(self.schema, f"rows by {self.column}", values * self.groups, self.epsilon),)

    def ask(self, groups: Parts) -> list[Estimate]:
        labels = self.schema.categorical(self.column).labels
        answer = groups.partition(Values(self.column)).noisy_count(epsilon=self.epsilon.exact, reuse=self.reuse)
        low, high = answer.interval(self.level)
        by_value = [np.reshape(numbers, (self.groups, len(labels))).T for numbers in (+answer, low, high)]
        scale = np.full(self.groups, scale_of(answer))
        return [
            Estimate("missing" if label is None else "count", self.column, value, below, above, scale, label)
            for label, value, below, above in zip(labels, *by_value, strict=True)
        ]


STATISTICS: Mapping[str, type[Statistic]] = MappingProxyType(
    {
        "count": Count,
        "missing": Missing,
        "mean": Mean,
        "sum": Sum,
        "variance": Variance,
        "std": StandardDeviation,
        "median": Median,
    }
)
"""What ``grouped`` can be asked for, by name."""


def statistic_named(name: str) -> type[Statistic]:
    """Returns a kind of statistic. ``QueryError`` where there is none of this name."""
    if name not in STATISTICS:
        raise QueryError(f"there is no statistic {name!r}; there are {', '.join(STATISTICS)}.")
    return STATISTICS[name]


def _released(name: str, column: str, answer: NoisyArray, level: float) -> Estimate:
    """Reads an answer with one number for each group."""
    low, high = answer.interval(level)
    values = answer.view(np.ndarray).ravel()
    scale = np.broadcast_to(np.asarray(answer.scale, dtype=float).reshape(-1), values.shape)
    return Estimate(name, column, values, np.ravel(low), np.ravel(high), scale)


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.10g} %"
