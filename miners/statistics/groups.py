# SPDX-License-Identifier: Apache-2.0
"""``compare``: means of two or more groups by Welch's t or F, or their ranks, from one noisy histogram.

A row counts with the middle of its part. The mean of a group is a quotient of two sums of noisy
counts, so the noise adds v sum (x - m)^2 / n^2 to its variance s^2 / n. Welch's statistics are
made of means and variances of means alone, so they hold with that sum in place of the variance;
degrees of freedom follow from the part of the rows, which is estimated, while the noise's is known.

Example: 40 rows with mean 10 and 50 rows with mean 12, both with a variance of 9: without noise the
difference is -2 +- 1.27 (95 %) and t is -3.14. Noise of variance 2 in each of 20 parts of width 1 widens
the interval to +- 1.36.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from miners.statistics.association import Score, associated
from miners.statistics.cells import Axis, Cells, Question, Result, StatisticFunction, listed, require_parts
from miners.statistics.effects import draw_intervals
from miners.statistics.laws import Alternative, chi2_tail, f_tail, one_sided, student_quantile
from miners.tables.columns import Column
from miners.tables.table import Draft
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.epsilon import EpsilonLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Test = Literal["welch", "rank"]
BINS = 20


class Groups(Result):
    """Means of groups with intervals; of two groups also their difference."""

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draws the mean of each group with its interval.

        Args:
            ax: The axes; by default a new figure.

        Returns:
            The axes.
        """
        shown = self.frame[self.frame["statistic"] == "mean"]
        return draw_intervals(ax, shown, f"mean, with its {100 * self.level:g} % interval", self.title)


@dataclass(frozen=True)
class Means:
    """The means of groups.

    Attributes:
        rows: The number of rows of each group.
        mean: The mean of each group.
        sampled: The variance of each mean by the drawing of rows.
        noise: The variance of each mean by the noise.
    """

    rows: np.ndarray
    mean: np.ndarray
    sampled: np.ndarray
    noise: np.ndarray

    @classmethod
    def of(cls, cells: Cells, middles: np.ndarray) -> Means:
        """Computes them from a table of groups by parts."""
        rows = np.maximum(cells.noisy.sum(axis=1), 2.0)
        mean = cells.noisy @ middles / rows
        apart = (middles[None, :] - mean[:, None]) ** 2
        spread = np.maximum((cells.noisy * apart).sum(axis=1), 0) / (rows - 1)
        return cls(rows, mean, spread / rows, cells.noise * apart.sum(axis=1) / rows**2)

    @property
    def variance(self) -> np.ndarray:
        """The variance of each mean."""
        return self.sampled + self.noise

    def welch(self) -> tuple[float, float, float]:
        """Returns Welch's F of equal means, and its degrees of freedom."""
        weight = 1 / np.maximum(self.variance, 1e-300)
        share, groups = weight / weight.sum(), len(weight)
        between = float((weight * (self.mean - share @ self.mean) ** 2).sum()) / (groups - 1)
        # The part of a variance that is estimated has n - 1 degrees of freedom, the known part endlessly many.
        estimated = np.divide(self.sampled, self.variance, out=np.zeros(groups), where=self.variance > 0)
        loose = float(((1 - share) ** 2 * estimated**2 / (self.rows - 1)).sum())
        below = (groups**2 - 1) / (3 * loose) if loose > 1e-9 else 1e9
        return between / (1 + 2 * (groups - 2) / (groups**2 - 1) * loose), groups - 1, below

    def ends(self, level: float) -> np.ndarray:
        """Returns each mean and the ends of its interval, shape (3, groups)."""
        share = np.clip(self.sampled / np.maximum(self.variance, 1e-300), 1e-4, 1)
        half = [student_quantile(level, df) for df in (self.rows - 1) / share**2] * np.sqrt(self.variance)
        return np.stack([self.mean, self.mean - half, self.mean + half])


def _compared(groups: Axis, column: Axis, test: Test, alternative: Alternative, cells: Cells) -> Result:
    """Makes the means of groups and the test."""
    means = Means.of(cells, column.middles)
    frame = listed([f"{groups.name}: {label}" for label in groups.labels], "mean", means.ends(cells.level))
    (statistic, df, below), name = means.welch(), "Welch's F"
    pvalue = f_tail(statistic, df, below)
    if len(frame) == 2:
        difference = float(means.mean[0] - means.mean[1])
        half = student_quantile(cells.level, below) * math.sqrt(float(means.variance.sum()))
        apart = np.array([[difference], [difference - half], [difference + half]])
        pair = f"{groups.name}: {' - '.join(map(str, groups.labels))}"
        frame = pd.concat([listed([pair], "difference of means", apart), frame], ignore_index=True)
        name, statistic, df = "Welch's t", math.copysign(math.sqrt(statistic), difference), below
        pvalue = one_sided(pvalue, difference, alternative)
    if test == "rank":
        margin = cells.counts.sum(axis=0)
        score = Score.of(cells, None, np.cumsum(margin) - margin / 2)  # rows of one part are ties
        name, statistic, df = "Kruskal-Wallis", score.statistic * (cells.n - 1) / max(cells.n, 1.0), score.df
        pvalue = chi2_tail(statistic, score.df)
    faint = cells.faint(float(means.rows.min()) / math.sqrt(cells.counts.shape[1]))
    return cells.result(Groups, frame, faint=faint, test=name, statistic=statistic, df=df, pvalue=pvalue)


@StatisticFunction
def compare(
    handle: PrivateQueryable,
    column: Column,
    by: Column,
    *,
    epsilon: EpsilonLike,
    test: Test = "welch",
    bins: int = BINS,
    alternative: Alternative = "two-sided",
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Compares a column between two or more groups.

    Numbers are compared by their means (Welch's t of two groups, Welch's F of more) or by their
    ranks (Kruskal and Wallis; of two groups that is the test of Mann, Whitney and Wilcoxon).
    Categories are compared by chi-square, as in ``independence``.

    Args:
        handle: A handle on a table, or on a part of it.
        column: The column that is compared: categorical, numeric, or ``Cuts``.
        by: The column of the groups.
        epsilon: The cost of all counts together.
        test: For numbers, ``"welch"`` or ``"rank"``.
        bins: The number of parts of a numeric column. A row counts as the middle of its part.
        alternative: The hypothesis of Welch's t of two groups as scipy names it: ``"greater"`` for a
            greater mean of the first group, ``"less"``, or ``"two-sided"``. Intervals have two sides.
        level: The confidence level of the intervals.
        reuse: Return the stored answer of an identical earlier call, at no cost.

    Returns:
        For numbers the mean of each group with its interval, of two groups first the difference
        of their means; ``statistic``, ``df`` and ``pvalue`` of the test. For categories the result
        of ``independence``.

    Raises:
        QueryError: The request is malformed.
        BudgetExceeded: The cost exceeds the remaining budget; nothing was spent.

    Examples:
        >>> import pinq
        >>> from miners.statistics import compare
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> compare(h, "hours_per_week", "sex", epsilon=1)["statistic"].tolist()
        ['difference of means', 'mean', 'mean']
    """
    if test not in ("welch", "rank"):
        raise QueryError(f"is {test!r}", parameter="test", allowed="'welch', 'rank'")
    groups, compared = Axis.of(handle, by, 2), Axis.of(handle, column, bins)
    require_parts(groups, compared)
    one_sided(1.0, 0.0, alternative)  # refuses another word before the charge
    if alternative != "two-sided" and (test != "welch" or len(groups.labels) != 2 or not len(compared.edges)):
        raise QueryError("is for the means of two groups", parameter="alternative", allowed="'two-sided'")
    axes = (groups, compared)
    finish = (
        partial(_compared, *axes, test, alternative) if len(compared.edges) else partial(associated, axes, "pearson")
    )
    return Question(handle, epsilon, level, reuse).draft(f"{compared.name} by {groups.name}", axes, finish)
