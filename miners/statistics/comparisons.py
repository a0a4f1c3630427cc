# SPDX-License-Identifier: Apache-2.0
"""``independence`` and ``compare``: tests of two columns, from one noisy table.

The score of a test is the counts beyond those expected, by scores of rows and columns: indicators for
chi-square, numbers in order for trend, ranks for the rank tests. Its derivative at a table with shares p of
rows and q of columns is (I - p1') T (I - 1q'), so its covariance is known with the noise: that of the rows is
n (diag p - pp') x (diag q - qq'). The statistic r' C^-1 r has the chi-square law as far as sums are normal,
and without noise it is Pearson's.

A mean of a group is a quotient of two sums of noisy counts, so the noise adds v sum (x - m)^2 / n^2 to its variance s^2
/ n. Welch's statistics use only means and their variances, so they hold with this sum; degrees of freedom follow from
the rows' part, because the noise's is known.

Example: 40 rows with mean 10 and 50 rows with mean 12, both with a variance of 9: without noise the
difference is -2 +- 1.27 (95 %) and t is -3.14. Noise of variance 2 in each of 20 parts of width 1, from 0
to 20, widens the interval to +- 2.65.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd

from miners.estimator import require_word
from miners.statistics.cells import Axis, Cells, Result, StatisticFunction, drafted, listed, require_parts
from miners.statistics.effects import Effects
from miners.statistics.laws import ALTERNATIVES, Alternative, f_tail, one_sided, student_quantile
from miners.tables.columns import Column
from miners.tables.table import NUMBERS, Draft
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.epsilon import EpsilonLike

AssociationTest = Literal["pearson", "log-likelihood", "trend"]
# Degrees of freedom of a test of cells: their covariance takes a second, that of twice as many eight seconds.
MAX_FREEDOM = 1600
TESTS = {"pearson": "chi-square", "log-likelihood": "G", "trend": "trend"}


def scored(
    cells: Cells, rows: np.ndarray | None = None, columns: np.ndarray | None = None, times: float = 1.0
) -> dict[str, Any]:
    """The test of counts beyond those expected under independence, by scores; by default all contrasts."""
    left, right = (
        np.eye(size)[:-1] if scores is None else scores[None, :]
        for size, scores in zip(cells.counts.shape, (rows, columns), strict=True)
    )

    def score(counts: np.ndarray) -> np.ndarray:
        apart = np.tensordot(left, counts - expected(counts), 1)
        return np.einsum("bc,acd->abd", right, apart).reshape(-1, counts.shape[-1])

    return cells.tested(score, expected(cells.counts), times=times)


def expected(table: np.ndarray) -> np.ndarray:
    """The counts of independent columns with the same margins."""
    rows, columns = table.sum(axis=1, keepdims=True), table.sum(axis=0, keepdims=True)
    return np.asarray(rows * columns / np.maximum(table.sum(axis=(0, 1)), 1.0))


def divergences(table: np.ndarray) -> tuple[float, float]:
    """Pearson's statistic and G, sums over several tables; cells without expected rows add nothing."""
    beside, positive = expected(table), table > 0
    squares = np.divide((table - beside) ** 2, beside, out=np.zeros_like(beside), where=beside > 0)
    return float(squares.sum()), float(2 * (table[positive] * np.log(table[positive] / beside[positive])).sum())


def associated(axes: tuple[Axis, Axis], test: AssociationTest, cells: Cells) -> Result:
    """Makes the measure of association of two columns, and the test."""
    names = [axis.name for axis in axes]
    plain, likelihood = divergences(cells.counts)
    if test == "trend":
        scores = [np.arange(size, dtype=np.float64) for size in cells.counts.shape]
        measure, tested, measured = (
            "correlation of parts",
            scored(cells, scores[0], scores[1]),
            _correlation(cells, *scores),
        )
    else:
        tested = scored(cells)
        measure, measured = "Cramer's V", _cramer(cells, plain, tested["statistic"], int(tested["df"]))
        if test == "log-likelihood" and plain > 0:
            # Near independence G is about Pearson's statistic, so it has the same law. It is scaled by the quotient of
            # both, relative to that quotient without an effect.
            squares, logs = divergences(cells.redrawn(expected(cells.counts))) if cells.few else (1.0, 1.0)
            tested = scored(cells, times=likelihood / plain * squares / logs)
    rows, columns = (pd.Index(axis.labels, name=axis.name, dtype=object) for axis in axes)
    tables = {"observed": cells.counts, "expected_freq": expected(cells.counts)}
    more = {name: pd.DataFrame(table, index=rows, columns=columns) for name, table in tables.items()}
    frame = pd.DataFrame([[" and ".join(names), measure, *measured]], columns=["columns", "statistic", *NUMBERS])
    faint = cells.faint(cells.n / cells.counts.size) or not np.isfinite(measured).all()
    return cells.result(Result, frame, faint=faint, more=more, test=TESTS[test], **tested)


def _association(axes: tuple[Axis, Axis], test: AssociationTest) -> Callable[[Cells], Result]:
    """``associated`` of two columns; raises ``QueryError`` for too many cells."""
    freedom = math.prod(len(axis.labels) - 1 for axis in axes)
    if test != "trend" and freedom > MAX_FREEDOM:
        names = " and ".join(axis.name for axis in axes)
        raise QueryError(
            f"{names} make {freedom:,} degrees of freedom, and a test takes at most {MAX_FREEDOM:,}; name fewer parts, "
            "by Groups or Cuts."
        )
    return partial(associated, axes, test)


def _cramer(cells: Cells, plain: float, size: float, df: int) -> np.ndarray:
    """Cramer's V, without the average effect of noise, and its interval.

    A statistic with the mean df + k and the variance 2 df + 4 k, as a noncentral chi-square
    variable has, is solved for k at both ends.
    """
    n, z, beside = max(cells.n, 1.0), cells.z, np.maximum(expected(cells.counts), 1e-9)
    rows, columns = (1 - cells.counts.sum(axis=axis) / n for axis in (1, 0))
    added = cells.noise * float((np.outer(rows, columns) / beside).sum()) if cells.noise > 1e-9 else 0.0
    shrunk = plain / size if size > 0 else 0.0
    way = z * np.sqrt(4 * z**2 + max(4 * size - 2 * df, 0)) * np.array([-1, 1])
    ends = np.maximum(size - df + 2 * z**2 + way, 0) * shrunk
    value, low, high = np.sqrt(np.clip([plain - added, *ends], 0, None) / (n * (min(cells.counts.shape) - 1))).clip(
        max=1
    )
    return np.array([value, min(low, value), max(high, value)])


def _correlation(cells: Cells, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The correlation of the numbers of parts, with its interval."""

    def statistic(counts: np.ndarray) -> np.ndarray:
        shares = counts / counts.sum(axis=(0, 1))
        first, second = shares.sum(axis=1), shares.sum(axis=0)
        apart = np.einsum("r,rcd,c->d", rows, shares - first[:, None] * second, columns)
        spreads = [scores**2 @ side - (scores @ side) ** 2 for scores, side in ((rows, first), (columns, second))]
        return np.arctanh(apart / np.sqrt(spreads[0] * spreads[1]))

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
        handle: A private handle.
        a: The first column; a numeric one needs declared cuts, or ``Cuts``.
        b: The second column.
        epsilon: The cost of all counts together.
        test: ``"pearson"`` for chi-square, ``"log-likelihood"`` for G, or ``"trend"`` for
            ordered parts (for a column of two parts the test of Cochran and Armitage).
        level: The confidence level of the interval.
        reuse: As in ``miners.tables.crosstab``.

    Returns:
        ``statistic``, ``df`` and ``pvalue`` of the test, and Cramer's V with its interval; for a trend the
        correlation. ``observed`` and ``expected_freq`` are the tables.

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
    require_word("test", test, tuple(TESTS))
    axes = (Axis.of(handle, a), Axis.of(handle, b))
    require_parts(*axes)
    title = f"{axes[0].name} and {axes[1].name}"
    return drafted(handle, title, axes, _association(axes, test), epsilon, level, reuse)


GroupTest = Literal["welch", "rank"]
BINS = 20


@dataclass(frozen=True)
class Means:
    """The means of groups, from a table of groups by parts.

    Attributes:
        sampled: The variance of each mean by the sampling of rows.
        variance: The variance of each mean by rows and noise.
    """

    rows: np.ndarray
    mean: np.ndarray
    sampled: np.ndarray
    variance: np.ndarray

    @classmethod
    def of(cls, cells: Cells, middles: np.ndarray) -> Means:
        rows = np.maximum(cells.noisy.sum(axis=1), 2.0)
        mean = cells.noisy @ middles / rows
        apart = (middles - mean[:, None]) ** 2
        sampled = np.maximum((cells.noisy * apart).sum(axis=1), 0) / (rows - 1) / rows
        return cls(rows, mean, sampled, np.maximum(sampled + cells.noise * apart.sum(axis=1) / rows**2, 1e-300))

    def welch(self) -> tuple[float, float, float]:
        """Welch's F of equal means, and its degrees of freedom."""
        share, groups = 1 / self.variance / (1 / self.variance).sum(), len(self.mean)
        between = float(((self.mean - share @ self.mean) ** 2 / self.variance).sum()) / (groups - 1)
        # The part of a variance that is estimated has n - 1 degrees of freedom, the known part endlessly many.
        loose = float(((1 - share) ** 2 * (self.sampled / self.variance) ** 2 / (self.rows - 1)).sum())
        below = (groups**2 - 1) / (3 * loose) if loose > 1e-9 else 1e9
        return between / (1 + 2 * (groups - 2) / (groups**2 - 1) * loose), groups - 1, below

    def ends(self, level: float) -> np.ndarray:
        """Each mean and the ends of its interval, shape (3, groups)."""
        share = np.clip(self.sampled / self.variance, 1e-4, 1)
        half = [student_quantile(level, df) for df in (self.rows - 1) / share**2] * np.sqrt(self.variance)
        return np.stack([self.mean, self.mean - half, self.mean + half])


def _compared(groups: Axis, column: Axis, test: GroupTest, alternative: Alternative, cells: Cells) -> Result:
    means = Means.of(cells, column.middles)
    frame = listed([f"{groups.name}: {label}" for label in groups.labels], "mean", means.ends(cells.level))
    statistic, above, below = means.welch()
    tested: dict[str, Any] = {"test": "Welch's F", "statistic": statistic, "df": above}
    tested["pvalue"] = f_tail(statistic, above, below)
    if len(frame) == 2:
        difference = float(means.mean[0] - means.mean[1])
        half = student_quantile(cells.level, below) * math.sqrt(float(means.variance.sum()))
        pair = f"{groups.name}: {' - '.join(map(str, groups.labels))}"
        apart = listed([pair], "difference of means", difference + half * np.array([[0], [-1], [1]]))
        frame = pd.concat([apart, frame], ignore_index=True)
        tested |= {"test": "Welch's t", "statistic": math.copysign(math.sqrt(statistic), difference), "df": below}
        tested["pvalue"] = one_sided(tested["pvalue"], difference, alternative)
    if test == "rank":
        margin, times = cells.counts.sum(axis=0), (cells.n - 1) / max(cells.n, 1.0)
        ranks = np.cumsum(margin) - margin / 2  # rows of one part share theirs
        tested = {"test": "Kruskal-Wallis", **scored(cells, None, ranks, times)}
    faint = cells.faint(float(means.rows.min()) / math.sqrt(cells.counts.shape[1]))
    return cells.result(Effects, frame, faint=faint, **tested)


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

    Numbers are compared by their means (Welch's t of two groups, Welch's F of more) or by their ranks (Kruskal and
    Wallis; for two groups the test of Mann, Whitney and Wilcoxon). Categories are compared by chi-square, as in
    ``independence``.

    Args:
        handle: A private handle.
        column: The compared column: categorical, numeric, or ``Cuts``.
        by: The column of the groups.
        epsilon: The cost of all counts together.
        test: For numbers, ``"welch"`` or ``"rank"``.
        bins: The number of parts of a numeric column. A row counts as the middle of its part.
        alternative: The hypothesis of Welch's t of two groups as scipy names it: ``"greater"`` for a
            greater mean of the first group, ``"less"``, or ``"two-sided"``. Intervals have two sides.
        level: The confidence level of the intervals.
        reuse: As in ``miners.tables.crosstab``.

    Returns:
        For numbers the mean of each group with its interval, for two groups first the difference of their means;
        ``statistic``, ``df`` and ``pvalue`` of the test. For categories the result of ``independence``.

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
    require_word("test", test, ("welch", "rank"))
    require_word("alternative", alternative, ALTERNATIVES)
    groups, compared = Axis.of(handle, by, 2), Axis.of(handle, column, bins)
    require_parts(groups, compared)
    if alternative != "two-sided" and (test != "welch" or len(groups.labels) != 2 or not len(compared.edges)):
        raise QueryError("is for the means of two groups", parameter="alternative", allowed="'two-sided'")
    axes = (groups, compared)
    numeric = partial(_compared, *axes, test, alternative)
    finish = numeric if len(compared.edges) else _association(axes, "pearson")
    return drafted(handle, f"{compared.name} by {groups.name}", axes, finish, epsilon, level, reuse)
