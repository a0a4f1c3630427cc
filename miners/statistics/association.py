# SPDX-License-Identifier: Apache-2.0
"""``independence``: chi-square, G and trend test of two columns, and Cramer's V, from one cross table.

Under independence, with shares p of the rows of the table and q of its columns, the counts beyond
those expected are linear in the counts: R = (I - p1') T (I - 1q'). So their covariance is known
with the noise: that of the rows, n (diag p - pp') x (diag q - qq'), and that of the noise, which
goes through the same map. The statistic r' C^-1 r has the chi-square law as far as sums are normal,
and without noise it is Pearson's. Scores of rows or columns instead of indicators give the tests
for trend and the rank tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd

from miners.statistics.cells import Axis, Cells, Question, Result, StatisticFunction, require_parts
from miners.statistics.laws import chi2_tail
from miners.tables.columns import Column
from miners.tables.table import NUMBERS, Draft
from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.epsilon import EpsilonLike

Test = Literal["pearson", "log-likelihood", "trend"]
TESTS = {"pearson": "chi-square", "log-likelihood": "G", "trend": "trend"}


@dataclass(frozen=True)
class Score:
    """The test of counts beyond those expected under independence.

    Attributes:
        statistic: The statistic, chi-square under independence.
        df: Its degrees of freedom.
    """

    statistic: float
    df: int

    @classmethod
    def of(cls, cells: Cells, rows: np.ndarray | None = None, columns: np.ndarray | None = None) -> Score:
        """Tests a two-way table.

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
            return (left @ (counts - expected(counts)) @ right.T).reshape(-1)

        return cls(*cells.tested(score, covariance, lambda: expected(table)))


def expected(table: np.ndarray) -> np.ndarray:
    """Returns the counts that independent columns with the same margins have."""
    return np.asarray(np.outer(table.sum(axis=1), table.sum(axis=0)) / max(float(table.sum()), 1.0))


def pearson(table: np.ndarray) -> float:
    """Returns Pearson's statistic of a table; cells of which none are expected add nothing."""
    beside = expected(table)
    return float(np.divide((table - beside) ** 2, beside, out=np.zeros_like(beside), where=beside > 0).sum())


def likelihood(table: np.ndarray) -> float:
    """Returns the statistic G of a table."""
    seen = table > 0
    return float(2 * (table[seen] * np.log(table[seen] / expected(table)[seen])).sum())


def associated(axes: tuple[Axis, Axis], test: Test, cells: Cells) -> Result:
    """Makes the measure of association of two columns, and the test."""
    scores = [np.arange(size, dtype=np.float64) for size in cells.counts.shape]
    score = Score.of(cells, *scores) if test == "trend" else Score.of(cells)
    plain, statistic = pearson(cells.counts), score.statistic
    measured = _correlation(cells, scores) if test == "trend" else _cramer(cells, plain, score)
    if test == "log-likelihood" and plain > 0:
        statistic *= likelihood(cells.counts) / plain  # G is about Pearson's statistic near independence
    rows, columns = (pd.Index(axis.labels, name=axis.name, dtype=object) for axis in axes)
    tables = {"observed": cells.counts, "expected_freq": expected(cells.counts)}
    more = {name: pd.DataFrame(table, index=rows, columns=columns) for name, table in tables.items()}
    measure = "correlation of ranks of parts" if test == "trend" else "Cramer's V"
    named = " and ".join(axis.name for axis in axes)
    frame = pd.DataFrame([[named, measure, *measured]], columns=["columns", "statistic", *NUMBERS])
    tested: dict[str, Any] = {
        "test": TESTS[test],
        "statistic": statistic,
        "df": score.df,
        "pvalue": chi2_tail(statistic, score.df),
    }
    return cells.result(Result, frame, faint=cells.faint(cells.n / cells.counts.size), more=more, **tested)


def _cramer(cells: Cells, plain: float, score: Score) -> np.ndarray:
    """Returns Cramer's V, without what noise adds to it on average, and its interval.

    A statistic with the mean df + k and the variance 2 df + 4 k, as a noncentral chi-square
    variable has, is solved for k at both ends.
    """
    most = max(cells.n, 1.0) * (min(cells.counts.shape) - 1)
    beside = np.maximum(expected(cells.counts), 1e-9)
    shares = [1 - cells.counts.sum(axis=1 - axis) / max(cells.n, 1.0) for axis in (0, 1)]
    added = cells.noise * float((np.outer(*shares) / beside).sum()) if cells.noise > 1e-9 else 0.0
    size, df, z = score.statistic, score.df, cells.z
    way = z * math.sqrt(4 * z**2 + max(4 * size - 2 * df, 0))
    shrunk = plain / size if size > 0 else 0.0
    low, high = (max(0.0, size - df + 2 * z**2 + side * way) * shrunk for side in (-1, 1))
    value, low, high = (min(1.0, math.sqrt(max(0.0, part) / most)) for part in (plain - added, low, high))
    return np.array([value, min(low, value), max(high, value)])


def _correlation(cells: Cells, scores: list[np.ndarray]) -> np.ndarray:
    """Returns the correlation of the numbers of parts, with its interval."""

    def statistic(counts: np.ndarray) -> np.ndarray:
        first, second = counts.sum(axis=1), counts.sum(axis=0)
        n = counts.sum()
        means = first @ scores[0] / n, second @ scores[1] / n
        spreads = first @ scores[0] ** 2 / n - means[0] ** 2, second @ scores[1] ** 2 / n - means[1] ** 2
        return np.arctanh((scores[0] @ counts @ scores[1] / n - means[0] * means[1]) / np.sqrt(spreads[0] * spreads[1]))

    return np.tanh(cells.interval(*cells.estimate(statistic))[:, 0])


@StatisticFunction
def independence(
    handle: PrivateQueryable,
    a: Column,
    b: Column,
    *,
    epsilon: EpsilonLike,
    test: Test = "pearson",
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
        reuse: Return the stored answer of an identical earlier call, at no cost.

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
    if test not in TESTS:
        raise QueryError(f"is {test!r}", parameter="test", allowed=", ".join(map(repr, TESTS)))
    axes = (Axis.of(handle, a), Axis.of(handle, b))
    require_parts(*axes)
    title = f"{axes[0].name} and {axes[1].name}"
    return Question(handle, epsilon, level, reuse).draft(title, axes, partial(associated, axes, test))
