# SPDX-License-Identifier: Apache-2.0
"""``independence``: chi-square, G and trend test of two columns, and Cramer's V, from one cross table.

Under independence, with shares p of the rows of the table and q of its columns, the counts beyond
those expected are linear in the counts: R = (I - p1') T (I - 1q'). So their covariance is known
with the noise: that of the rows, n (diag p - pp') x (diag q - qq'), and that of the noise, which
goes through the same map. The statistic r' C^-1 r has the chi-square law as far as sums are normal,
and without noise it is Pearson's. Scores of rows or columns instead of indicators give the tests
for trend and the rank tests.

``compare``: means of two or more groups by Welch's t or F, or their ranks, from one noisy histogram.

A row counts with the middle of its part. The mean of a group is a quotient of two sums of noisy
counts, so the noise adds v sum (x - m)^2 / n^2 to its variance s^2 / n. Welch's statistics are
made of means and variances of means alone, so they hold with that sum in place of the variance;
degrees of freedom follow from the part of the rows, which is estimated, while the noise's is known.

Example: 40 rows with mean 10 and 50 rows with mean 12, both with a variance of 9: without noise the
difference is -2 +- 1.27 (95 %) and t is -3.14. Noise of variance 2 in each of 20 parts of width 1, from 0
to 20, widens the interval to +- 2.65.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd

from miners.statistics.cells import Axis, Cells, Question, Result, StatisticFunction, listed, require_parts
from miners.statistics.effects import Effects
from miners.statistics.laws import Alternative, chi2_tail, f_tail, one_sided, student_quantile
from miners.tables.columns import Column
from miners.tables.table import NUMBERS, Draft
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.epsilon import EpsilonLike

AssociationTest = Literal["pearson", "log-likelihood", "trend"]
TESTS = {"pearson": "chi-square", "log-likelihood": "G", "trend": "trend"}


def scored(cells: Cells, rows: np.ndarray | None = None, columns: np.ndarray | None = None) -> tuple[float, int]:
    """Returns the test of counts beyond those expected under independence: chi-square, and its degrees of freedom.

    Args:
        cells: The table.
        rows: Scores of its rows, by default all contrasts of rows.
        columns: Scores of its columns, likewise.
    """
    table, total = cells.counts, max(cells.n, 1.0)
    sides = []
    for axis, scores in enumerate((rows, columns)):
        share = table.sum(axis=1 - axis) / total
        contrasts = np.eye(len(share))[:-1] if scores is None else scores[None, :]
        spread = contrasts @ (np.diag(share) - np.outer(share, share)) @ contrasts.T
        centred = contrasts - (contrasts @ share)[:, None]  # A (I - p1')
        sides.append((contrasts, spread, centred @ centred.T))
    (left, *down), (right, *across) = sides
    covariance = total * np.kron(down[0], across[0]) + cells.noise * np.kron(down[1], across[1])

    def score(counts: np.ndarray) -> np.ndarray:
        apart = counts - expected(counts)
        return np.einsum("ar,rcd,bc->abd", left, apart, right).reshape(-1, counts.shape[-1])

    return cells.tested(score, covariance, lambda: expected(table))


def expected(table: np.ndarray) -> np.ndarray:
    """Returns the counts that independent columns with the same margins have."""
    rows, columns = table.sum(axis=1, keepdims=True), table.sum(axis=0, keepdims=True)
    return np.asarray(rows * columns / np.maximum(table.sum(axis=(0, 1)), 1.0))


def pearson(table: np.ndarray) -> float:
    """Returns Pearson's statistic of a table; cells of which none are expected add nothing."""
    beside = expected(table)
    return float(np.divide((table - beside) ** 2, beside, out=np.zeros_like(beside), where=beside > 0).sum())


def likelihood(table: np.ndarray) -> float:
    """Returns the statistic G of a table."""
    seen = table > 0
    return float(2 * (table[seen] * np.log(table[seen] / expected(table)[seen])).sum())


def associated(axes: tuple[Axis, Axis], test: AssociationTest, cells: Cells) -> Result:
    """Makes the measure of association of two columns, and the test."""
    scores = [np.arange(size, dtype=np.float64) for size in cells.counts.shape]
    plain = pearson(cells.counts)
    statistic, df = scored(cells, *scores) if test == "trend" else scored(cells)
    measured = _correlation(cells, scores) if test == "trend" else _cramer(cells, plain, statistic, df)
    if test == "log-likelihood" and plain > 0:
        statistic *= likelihood(cells.counts) / plain  # G is about Pearson's statistic near independence
    rows, columns = (pd.Index(axis.labels, name=axis.name, dtype=object) for axis in axes)
    tables = {"observed": cells.counts, "expected_freq": expected(cells.counts)}
    more = {name: pd.DataFrame(table, index=rows, columns=columns) for name, table in tables.items()}
    measure = "correlation of parts" if test == "trend" else "Cramer's V"
    named = " and ".join(axis.name for axis in axes)
    frame = pd.DataFrame([[named, measure, *measured]], columns=["columns", "statistic", *NUMBERS])
    tested: dict[str, Any] = {
        "test": TESTS[test],
        "statistic": statistic,
        "df": df,
        "pvalue": chi2_tail(statistic, df),
    }
    faint = cells.faint(cells.n / cells.counts.size) or not np.isfinite(measured).all()
    return cells.result(Result, frame, faint=faint, more=more, **tested)


def _cramer(cells: Cells, plain: float, size: float, df: int) -> np.ndarray:
    """Returns Cramer's V, without what noise adds to it on average, and its interval.

    A statistic with the mean df + k and the variance 2 df + 4 k, as a noncentral chi-square
    variable has, is solved for k at both ends.
    """
    most = max(cells.n, 1.0) * (min(cells.counts.shape) - 1)
    beside = np.maximum(expected(cells.counts), 1e-9)
    shares = [1 - cells.counts.sum(axis=1 - axis) / max(cells.n, 1.0) for axis in (0, 1)]
    added = cells.noise * float((np.outer(*shares) / beside).sum()) if cells.noise > 1e-9 else 0.0
    z = cells.z
    way = z * math.sqrt(4 * z**2 + max(4 * size - 2 * df, 0))
    shrunk = plain / size if size > 0 else 0.0
    low, high = (max(0.0, size - df + 2 * z**2 + side * way) * shrunk for side in (-1, 1))
    value, low, high = (min(1.0, math.sqrt(max(0.0, part) / most)) for part in (plain - added, low, high))
    return np.array([value, min(low, value), max(high, value)])


def _correlation(cells: Cells, scores: list[np.ndarray]) -> np.ndarray:
    """Returns the correlation of the numbers of parts, with its interval."""

    def statistic(counts: np.ndarray) -> np.ndarray:
        first, second = counts.sum(axis=1), counts.sum(axis=0)
        n = counts.sum(axis=(0, 1))
        means = scores[0] @ first / n, scores[1] @ second / n
        spreads = scores[0] ** 2 @ first / n - means[0] ** 2, scores[1] ** 2 @ second / n - means[1] ** 2
        both = np.einsum("r,rcd,c->d", scores[0], counts, scores[1]) / n
        return np.arctanh((both - means[0] * means[1]) / np.sqrt(spreads[0] * spreads[1]))

    return np.tanh(cells.interval(*cells.estimate(statistic))[:, 0])


@StatisticFunction
def independence(
    handle: PrivateQueryable,
    a: Column,
    b: Column,
    *,
    epsilon: EpsilonLike,
    test: AssociationTest = "pearson",
    level: float = 0.95,
    reuse: bool = False,
) -> Draft:
    """Tests whether two columns are independent, and measures their association.

    Args:
        handle: A handle on a table, or on a part of it.
        a: The first column; a numeric one needs declared cuts, or ``Cuts``.
        b: The second column.
        epsilon: The cost of all counts together.
        test: ``"pearson"`` for chi-square, ``"log-likelihood"`` for G, or ``"trend"`` for parts in
            order (of two parts and several: Cochran and Armitage's).
        level: The confidence level of the interval.
        reuse: Whether to return the stored answer of an identical earlier call, at no cost.

    Returns:
        ``statistic``, ``df`` and ``pvalue`` of the test, and Cramer's V with its interval; of a
        trend the correlation. ``observed`` and ``expected_freq`` are the tables.

    Raises:
        QueryError: The request is malformed.
        BudgetExceeded: The cost exceeds the remaining budget; nothing was spent.

    Examples:
        >>> import pinq
        >>> from miners.statistics import independence
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> independence(h, "sex", "income", epsilon=1).df
        1
    """
    if test not in [*TESTS]:  # whatever it is, hashable or not
        raise QueryError(f"is {test!r}", parameter="test", allowed=", ".join(map(repr, TESTS)))
    axes = (Axis.of(handle, a), Axis.of(handle, b))
    require_parts(*axes)
    title = f"{axes[0].name} and {axes[1].name}"
    return Question(handle, epsilon, level, reuse).draft(title, axes, partial(associated, axes, test))


GroupTest = Literal["welch", "rank"]
BINS = 20


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


def _compared(groups: Axis, column: Axis, test: GroupTest, alternative: Alternative, cells: Cells) -> Result:
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
        statistic, degrees = scored(cells, None, np.cumsum(margin) - margin / 2)  # rows of one part are ties
        name, statistic, df = "Kruskal-Wallis", statistic * (cells.n - 1) / max(cells.n, 1.0), degrees
        pvalue = chi2_tail(statistic, degrees)
    faint = cells.faint(float(means.rows.min()) / math.sqrt(cells.counts.shape[1]))
    return cells.result(Effects, frame, faint=faint, test=name, statistic=statistic, df=df, pvalue=pvalue)


@StatisticFunction
def compare(
    handle: PrivateQueryable,
    column: Column,
    by: Column,
    *,
    epsilon: EpsilonLike,
    test: GroupTest = "welch",
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
        reuse: Whether to return the stored answer of an identical earlier call, at no cost.

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
