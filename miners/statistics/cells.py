# SPDX-License-Identifier: Apache-2.0
"""``Cells`` is the noisy table from which a statistic is computed, and ``Result`` its result.

A statistic is a function of counts. Its variance has two parts, by the delta method: the rows vary between samples (a
multinomial law), and each count has noise. With the gradient g of the statistic, counts t of n rows and noise of
variance v, they are g'(diag(t) - tt'/n)g and v g'g. Complex steps give the gradient of the code itself. Without noise
the results are Greenwood's, Woolf's, Wald's, Pearson's. A test uses the derivatives of its score at the expected rows
without an effect.

Privacy:
    Claim: a statistic costs what its table of counts costs. Why: all of it is computed from noisy counts and public
    facts. Held by: tests/contract/test_every_miner_sees_answers_only.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ParamSpec, cast

import numpy as np
import pandas as pd

from miners.budget.plan import count_variance
from miners.statistics.laws import chi2_tail, normal_quantile
from miners.tables.columns import MAX_BINS, Column, even_cuts, require_level, specs_of
from miners.tables.counts import CountQuestion, nearest_nonnegative
from miners.tables.table import NUMBERS, Draft, Table, TableFunction
from pinq.analyst.queryable import Parts, PrivateQueryable
from pinq.errors import QueryError
from pinq.language.specs import Cuts, Spec, Values
from pinq.public.checks import brief, is_listing, many, text_of_any, whole_number
from pinq.public.epsilon import Epsilon, EpsilonLike
from pinq.public.schema import Schema, Value

P = ParamSpec("P")
Statistic = Callable[[np.ndarray], np.ndarray]
"""A function from tables of counts, or other numbers, to numbers; the last axis of both counts the tables."""
STEP = 1e-30  # of a complex derivative, which loses no digits however small it is
AT_ONCE = 2**17  # counts of all tables of which a statistic is computed at once: some megabytes
YES = {"1", "true", "yes", "y"}
NO = {"0", "false", "no", "n"}
SEVERAL = 10.0  # times its noise a count is on average from which on the delta method is used for tests
DRAWS, SEED = 1000, 0  # of the law of a statistic; its variance is then known to 5 %
FAINT = 5.0  # times its noise the rows of a cell are at least, on average; below, no law is near normal


@dataclass(frozen=True, eq=False, repr=False)
class Result(Table):
    """A statistic: a table of its numbers with intervals, and their test.

    Intervals and p-values contain the errors of the sample of rows and of the noise: they are about the population,
    unlike those of a plain ``Table``.

    Attributes:
        statistic: The statistic of the test; NaN for none.
        pvalue: The probability of a statistic as extreme as this one if there is no effect.
        df: The degrees of freedom of the test.
        more: Further tables, by name.

    Examples:
        >>> import pinq
        >>> from miners.statistics import odds_ratio
        >>> h = pinq.simulate("policies/adult.yaml", rows=1000, epsilon=10)
        >>> effect = odds_ratio(h, "income", "sex", observed=">50K", exposed="Male", epsilon=1)
        >>> low, high = effect.interval
        >>> effect.test, bool(low <= effect["value"][0] <= high), 0 <= effect.pvalue <= 1
        ('Wald', True, True)
    """

    statistic: float = math.nan
    pvalue: float = math.nan
    df: float = math.nan
    n: float = math.nan
    test: str = ""
    more: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    @property
    def interval(self) -> tuple[float, float]:
        return float(self.frame["low"].iloc[0]), float(self.frame["high"].iloc[0])

    @property
    def _head(self) -> str:
        is_tested = not math.isnan(self.pvalue)
        tested = f"; {self.test}: statistic {self.statistic:.6g}, p-value {self.pvalue:.4g}" if is_tested else ""
        return f"{super()._head}; about {self.n:,.0f} rows{tested}"

    def __getattr__(self, name: str) -> pd.DataFrame:
        """Reads one of the further tables, such as ``median`` of survival curves."""
        more = self.__dict__.get("more", {})
        if name not in more:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return more[name].copy()


class StatisticFunction(TableFunction[P]):
    """A function from a handle to a statistic, with a plan; see ``TableFunction``."""

    def __call__(self, handle: PrivateQueryable, *args: P.args, **kwargs: P.kwargs) -> Result:
        return cast(Result, super().__call__(handle, *args, **kwargs))


@dataclass(frozen=True)
class Axis:
    """One column of the table of counts.

    Attributes:
        spec: Its parts.
        labels: The label of each part, without missing values, whose rows are left out.
        edges: For a numeric column the first grid cell of each part, and the number of cells.
    """

    spec: Spec
    labels: tuple[Any, ...]
    edges: np.ndarray
    schema: Schema

    @classmethod
    def of(cls, handle: PrivateQueryable, column: Column, bins: object = None, named: str = "bins") -> Axis:
        """Reads a column, numeric with ``bins`` or its declared cuts, or a spec of one, as an axis."""
        schema = handle.schema
        if isinstance(column, str) and schema.column(column).type != "categorical" and bins is not None:
            if is_listing(bins):
                column = Cuts(column, tuple(cast(Sequence[float], bins)))
            else:
                largest = max(schema.numeric(column).cells, 2)
                column = even_cuts(schema, column, min(whole_number(named, bins, 2, MAX_BINS), largest))
        specs = specs_of(schema, column)
        parts = handle.partition(*specs)
        if len(parts.shape) != 1:
            raise QueryError(f"{brief(column)} has {len(parts.shape)} columns; a statistic takes one at this place.")
        (spec,) = specs
        shown = [label for label in parts.frame(np.zeros(len(parts))).iloc[:, 0] if not pd.isna(label)]
        edges = np.zeros(0, dtype=np.int64)
        if isinstance(spec, Cuts) and schema.column(spec.column).type == "numeric":
            numeric = schema.numeric(spec.column)
            edges = np.array([0, *(numeric.threshold(cut, spec.column) for cut in spec.points), numeric.cells])
        elif not isinstance(spec, Values) or schema.column(spec.column).type != "categorical":
            shown = [str(label) for label in shown]
        return cls(spec, tuple(shown), edges, schema)

    @classmethod
    def numeric(
        cls,
        handle: PrivateQueryable,
        column: Column,
        bins: object,
        parameter: str,
        named: str = "bins",
        least: float = -math.inf,
    ) -> Axis:
        """Reads a numeric column, or cuts of one; refuses others, and numbers below ``least``."""
        axis = cls.of(handle, column, bins, named)
        if not len(axis.edges) or axis.middles.min() < least:
            below = "cuts of one" if least < 0 else f"cuts of one, without values below {least:g}"
            raise QueryError(f"must be a numeric column, or {below}", parameter=parameter)
        return axis

    @property
    def name(self) -> str:
        return ", ".join(sorted(self.spec.columns()))

    def key(self, *others: str) -> str:
        """The name of the column in a table with other columns, such as ``low``."""
        return f"{self.name}_" if self.name in others else self.name

    @property
    def middles(self) -> np.ndarray:
        """The number in the middle of each part of a numeric column."""
        numeric = self.schema.numeric(self.name)
        return np.array([numeric.number((first + end - 1) / 2) for first, end in pairwise(self.edges.tolist())])

    def position(self, value: Value | None, parameter: str) -> int:
        """The part of a value; for None that of the two parts that means yes."""
        written, texts = [text_of_any(label) for label in self.labels], [str(label).lower() for label in self.labels]
        meant = [[text == text_of_any(value) for text in written], [text == str(value).lower() for text in texts]]
        if value is None:
            pairs = zip(texts, reversed(texts), strict=True) if len(texts) == 2 else ()
            meant = [[text in YES and other in NO for text, other in pairs]]
        for parts in meant:
            if parts.count(True) == 1:
                return parts.index(True)
        allowed = f"one of {', '.join(written)}, the parts of `{self.name}`"
        raise QueryError(f"is {value!r}", parameter=parameter, allowed=allowed)

    def two(self, first: Value | None, parameter: str) -> tuple[int, int]:
        """The two parts of an axis, first that of a value (or the one that means yes)."""
        if len(self.labels) != 2:
            parts = f"is of `{self.name}`, which has {many(len(self.labels), 'part')}"
            raise QueryError(parts, parameter=parameter, allowed="of a column of two; `logistic` compares several")
        position = self.position(first, parameter)
        return position, 1 - position


def require_parts(*axes: Axis) -> None:
    """Refuses a column with a single part."""
    if min(len(axis.labels) for axis in axes) < 2:
        raise QueryError("a column with a single part has no effect, and nothing to compare.")


def listed(groups: Sequence[str], statistic: str, numbers: np.ndarray) -> pd.DataFrame:
    """The frame of one statistic of groups, from values and both ends of their intervals."""
    return pd.DataFrame({"groups": groups, "statistic": statistic} | dict(zip(NUMBERS, numbers, strict=True)))


def _hidden(frame: pd.DataFrame) -> pd.DataFrame:
    shown = frame.copy()
    shown[[*NUMBERS] if {*NUMBERS} <= {*frame.columns} else [*frame.select_dtypes("number")]] = np.nan
    return shown


def derivatives(function: Statistic, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of a function, and their derivatives by each of its arguments, shape (numbers, arguments)."""
    size, columns = at.size, []
    several = max(1, AT_ONCE // size)
    for first in range(0, size, several):
        tables = at.reshape(-1, 1) + 1j * STEP * np.eye(size, min(several, size - first), -first)
        with np.errstate(all="ignore"):
            columns.append(function(tables.reshape(*at.shape, -1)).reshape(-1, tables.shape[1]))
    moved = np.concatenate(columns, axis=1)
    return moved[:, 0].real, moved.imag / STEP


def deviations(covariance: np.ndarray) -> np.ndarray:
    """Standard deviations; rounding leaves some variances slightly below 0."""
    return np.sqrt(np.maximum(np.diag(covariance), 0))


def chi_square(values: np.ndarray, covariance: np.ndarray, times: float = 1.0) -> dict[str, Any]:
    """The test that normal numbers are 0: statistic, times a factor, degrees of freedom and p-value."""
    statistic = times * float(values @ np.linalg.pinv(covariance, hermitian=True) @ values)
    return {"statistic": statistic, "df": len(values), "pvalue": chi2_tail(statistic, len(values))}


@dataclass(frozen=True)
class Cells:
    """A noisy table of counts, and the law of its errors.

    Attributes:
        counts: The counts, moved to the nearest table without negative numbers.
        noisy: The counts as answered, whose sums have no bias if cells are empty.
        noise: The variance of the noise in a count.
    """

    counts: np.ndarray
    noisy: np.ndarray
    noise: float
    epsilon: Epsilon
    level: float
    title: str

    @property
    def n(self) -> float:
        return float(self.counts.sum())

    @property
    def few(self) -> bool:
        """Whether counts are so few, compared with their noise, that the law of a test is simulated."""
        return 1 <= self.n < self.counts.size * SEVERAL * math.sqrt(self.noise)

    @property
    def z(self) -> float:
        return normal_quantile(self.level)

    def derived(self, statistic: Statistic) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of a statistic, and their derivatives by each count."""
        return derivatives(statistic, self.counts)

    def drawn(self, jacobian: np.ndarray) -> np.ndarray:
        """The covariance of statistics by the sampling of rows."""
        counts = self.counts.reshape(-1)
        mean = jacobian @ counts
        return np.asarray((jacobian * counts) @ jacobian.T - np.outer(mean, mean) / max(self.n, 1.0))

    def moved(self, jacobian: np.ndarray) -> np.ndarray:
        """The covariance of statistics by the remaining noise in counts that were moved to at least 0.

        A count of 0 keeps no noise; its noise moves all counts above 0 equally, so that the total stays.
        """
        free = self.counts.reshape(-1) > 0
        projected = jacobian * free + np.outer(jacobian @ free, ~free) / max(int(free.sum()), 1)
        return np.asarray(self.noise * projected @ projected.T)

    def covariance(self, jacobian: np.ndarray) -> np.ndarray:
        """The covariance of statistics by rows and noise.

        It has all of the noise, because counts near 0 also have a bias without derivative.
        """
        with np.errstate(all="ignore"):
            return self.drawn(jacobian) + self.noise * jacobian @ jacobian.T

    def estimate(self, statistic: Statistic) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of a statistic and their standard deviations."""
        values, jacobian = self.derived(statistic)
        return values, deviations(self.covariance(jacobian))

    def interval(self, value: Any, deviation: Any) -> np.ndarray:
        """Numbers and the ends of their intervals, shape (3, numbers)."""
        return np.stack([value, value - self.z * deviation, value + self.z * deviation])

    def redrawn(self, null: np.ndarray) -> np.ndarray:
        """Redraws rows and noise around ``null``, the expected counts without an effect.

        The counts are moved as the table's were; the last axis has the draws. The seed is public.
        """
        rng = np.random.default_rng(SEED)
        shares = np.maximum(null, 0).reshape(-1) / null.sum()
        rows = rng.multinomial(round(self.n), shares, DRAWS)
        # The difference of two geometric variables has the variance v = 2 (1 - q) / q^2, solved for q.
        quiet = 2 / (1 + math.sqrt(1 + 2 * self.noise))
        noise = rng.geometric(quiet, rows.shape) - rng.geometric(quiet, rows.shape)
        return nearest_nonnegative(rows + noise, DRAWS).T.reshape(*null.shape, DRAWS)

    def tested(
        self, score: Statistic, null: np.ndarray, sampled: np.ndarray | None = None, times: float = 1.0
    ) -> dict[str, Any]:
        """The test of a score that is 0 without an effect.

        If counts are few, redrawn rows and noise give the score's mean and covariance.

        Args:
            score: The score, a function of counts.
            null: The counts expected without an effect.
            sampled: The covariance of the score by the sampling of rows; by default that of the null's rows.
            times: The factor of the statistic.
        """
        if self.few:
            draws = score(self.redrawn(null))
            values = score(self.counts[..., None])[:, 0] - draws.mean(axis=1)
            return chi_square(values, np.atleast_2d(np.cov(draws)), times)
        values, jacobian = self.derived(score)
        sampled = replace(self, counts=null).drawn(jacobian) if sampled is None else sampled
        return chi_square(values, sampled + self.noise * jacobian @ jacobian.T, times)

    def faint(self, rows: float) -> bool:
        """Whether so many rows in a cell are indistinguishable from its noise."""
        return rows < FAINT * math.sqrt(self.noise)

    def result(
        self, kind: type[Result], frame: pd.DataFrame, *, faint: bool, notes: Sequence[str] = (), **test: Any
    ) -> Result:
        """Makes the result; if the noise hides the effect, a note replaces all numbers."""
        notes = [*notes]
        if faint:
            frame, more = _hidden(frame), {name: _hidden(table) for name, table in test.get("more", {}).items()}
            test |= {"statistic": math.nan, "pvalue": math.nan, "more": more}
            notes = [
                f"there is no power: a group has no rows of a kind, or less than {FAINT:g} times their noise, of "
                f"deviation {math.sqrt(self.noise):.3g} in each count; take a larger epsilon, or fewer and larger parts"
            ]
        scale = pd.Series(np.full(len(frame), np.nan), name="scale")
        title = f"{self.title}: no power" if faint else self.title
        return kind(title, frame, scale, self.epsilon.exact, self.level, tuple(notes), n=self.n, **test)


@dataclass(frozen=True, kw_only=True)
class CountDraft(Draft):
    """A draft of one table of counts.

    Attributes:
        computed: The function from noisy counts and the scale of their noise to the result.
    """

    parts: Parts
    computed: Callable[[np.ndarray, float], Result]


def drafted(
    handle: PrivateQueryable,
    title: str,
    axes: Sequence[Axis],
    finish: Callable[[Cells], Result],
    epsilon: EpsilonLike,
    level: float,
    reuse: bool,
) -> CountDraft:
    """Drafts one table of counts over the axes, from which ``finish`` makes the result."""
    names = [axis.name for axis in axes]
    if len(set(names)) < len(names):
        raise QueryError(f"a column is named twice: {', '.join(names)}.")
    parts = handle.partition(*(axis.spec for axis in axes))
    counts = CountQuestion(parts, Epsilon.of(epsilon), require_level(level), bool(reuse))
    without_missing = tuple(slice(len(axis.labels)) for axis in axes)  # the part of missing values is the last

    def computed(noisy: np.ndarray, scale: float) -> Result:
        of_values = np.asarray(noisy, dtype=np.float64)[without_missing]
        values = nearest_nonnegative(of_values)
        return finish(Cells(values, of_values, count_variance(scale), counts.epsilon, counts.level, title))

    def answer() -> Table:
        cells = counts.ask()
        return computed(cells.values, cells.scale)

    lines = (counts.line(handle.schema, f"rows by {' and '.join(names)}"),)
    return CountDraft(title, lines, answer, parts=parts, computed=computed)
