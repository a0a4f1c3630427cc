# SPDX-License-Identifier: Apache-2.0
"""Quality functions for ``exp_mech``: exact integers from tables of counts.

A candidate partition sends the rows of a part into *cells* j (its parts). A score sees a table of shape (..., cells,
measure) and returns integers of shape (...,) in its units; ``sensitivity`` is in the same units, and higher is better.
Terms common to all candidates are left out: only differences between candidates matter (privacy.md 2.4).

Privacy:
    Adjacency: add or remove one row. The row falls into one cell of each candidate. ``sensitivity`` bounds the change
    of every candidate's score. In a *monotone* score a row changes all candidates in one direction, so their changes
    differ by at most the sensitivity; otherwise by at most twice that. Selection with exp(epsilon * q / span) is
    epsilon-DP for a ``span`` of that width (range lemma, privacy.md 2.4; proofs of each row, 2.5). Each cell's term is
    rounded down, which keeps monotony and integer bounds. Held by: tests/privacy/test_sensitivity.py, exhaustively.

A new score is a class here and an entry of ``AnyScore``; ``Score`` lists what it answers, and
``pinq/__init__`` exports it. Its sensitivity passes ``search_sensitivity`` of
``tests/support/laws`` first.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import ClassVar, Literal, cast, get_args

import numpy as np

from pinq.errors import QueryError
from pinq.language.derivatives import Derivatives, Logistic, Residuals, RowVectors, Softmax
from pinq.language.specs import Axis, Cuts, Expression, OfSpecs, Spec, Splitting, Values, bind, two_ends
from pinq.public.checks import TupleOf, are_whole, brief, is_number, is_whole, require_kind
from pinq.public.columns import CutPoint
from pinq.public.schema import Schema


class Score(Expression):
    """A quality function of candidates.

    Attributes:
        measure: The content of a table's cells: counts of ``classes``, ``rows``, ``moments`` of the target, or sums of
            ``vectors`` of the rows.
        monotone: Whether a row moves all candidates' scores in one direction.
        quick: Whether cells are only compared and added up, five times as fast as with a logarithm.
    """

    measure: ClassVar[Literal["classes", "rows", "moments", "vectors"]] = "classes"
    monotone: ClassVar[bool] = True
    quick: ClassVar[bool] = False

    @property
    def unit(self) -> int | Fraction:
        """The number of integer units in one natural unit of the score."""
        return 1

    @abstractmethod
    def sensitivity(self, schema: Schema) -> int:
        """The largest change of a candidate's score when one row comes or goes."""

    @abstractmethod
    def of(self, table: np.ndarray, schema: Schema) -> np.ndarray:
        """Scores of tables (..., cells, measure).

        A score of classes is a sum over cells to which an empty cell adds nothing, so a table may leave empty cells
        out, as ``AnyCross`` does. ``prepare`` checks this.
        """

    def span(self, schema: Schema) -> int:
        """The largest change of the difference between two candidates' scores."""
        return self.sensitivity(schema) * (1 if self.monotone else 2)

    def classes(self, schema: Schema) -> Values | Cuts | None:
        """The split whose parts are the classes; None for a score of another measure."""
        return None

    def clamp(self, schema: Schema) -> tuple[int, int, int]:
        """For moments: the first and the last code without clamping, and the number of dropped low bits."""
        return 0, 0, 0

    def vectors(self, schema: Schema) -> RowVectors | None:
        """The vectors that rows add to a table, for a score of vectors."""
        return None

    def targets(self) -> set[str]:
        """The columns that a candidate may not split by."""
        return self.columns()

    def check_cells(self, candidate: Expression, axes: tuple[Axis, ...]) -> None:
        """Raises ``QueryError`` if the score is not defined for the cells of a candidate."""

    def of_candidate(self, candidate: Expression) -> Score:
        """The score, or the part of it for this candidate."""
        return self


ENTROPY_BITS = 20


@lru_cache(maxsize=8)
def monotone_step_table(max_rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """φ as a nondecreasing step function on 0 .. max_rows - 1, and its running sum.

    Exact to 2^-20 below 2^16, then 2^12 steps an octave (relative width 2^-12, error below 4e-4
    bits).

    Returns:
        ``starts`` (first i of each step), ``steps`` (φ there, in 2^-20), ``sums`` (Σ of φ below
        each start); shape (steps,) each.
    """
    # From 2^16 on a step is 16 numbers wide, from 2^17 on 32.
    octaves = [
        2**bits + 2 ** (bits - 12) * np.arange(2**12, dtype=np.int64) for bits in range(16, max_rows.bit_length())
    ]
    starts = np.concatenate([np.arange(2**16, dtype=np.int64), *octaves])
    starts = starts[starts < max_rows]
    i = starts.astype(np.float64)
    # φ(i) = lg(i+1) + i lg(1 + 1/i), stable for large i.
    phi = np.log2(i + 1) + np.where(i > 0, i * np.log1p(1 / np.maximum(i, 1)) / math.log(2), 0)
    steps = np.maximum.accumulate(np.floor(phi * 2**ENTROPY_BITS).astype(np.int64))
    # A step of width 16 adds 16 times its value to the sum below the next one.
    sums = np.concatenate([[0], np.cumsum(steps[:-1] * np.diff(starts))]).astype(np.int64)
    return starts, steps, sums


def step_sums(counts: np.ndarray, starts: np.ndarray, steps: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """F(x) = Σ_{i<x} φ(i); beyond the cap φ stays at its last step."""
    # Below 2^16 a step is one wide, so its number is the number itself. 2^16 + 20 is in the second wide step, which
    # begins at 2^16 + 16: the sum below that, and four times its own φ. Steps of 2^4 in the first octave that
    # has wide ones, from number 2^16 on.
    wide = np.maximum(np.frexp(counts)[1] - 13, 4).astype(np.int64)
    number = np.where(counts < 2**16, counts, (counts >> wide) + 2**12 * (wide - 5) + 2**16)
    step = np.minimum(number, len(starts) - 1)
    return sums[step] + (counts - starts[step]) * steps[step]


# A fraction whose denominator is not 0, or a number with a digit before its exponent.
SHARE = re.compile(r"[0-9]{1,20}/(?=0*[1-9])[0-9]{1,20}|(?=\.?[0-9])[0-9]{0,20}\.?[0-9]{0,20}(e-?[0-9]{1,2})?")
MAX_DENOMINATOR = 10**6  # of a share: its product with any number of rows fits 64 bits


@dataclass(frozen=True)
class Balance(Score):
    """Scores a candidate of two parts by the distance of its first part from a given proportion of the rows.

    With n0 rows in cell 0, n1 in cell 1 and a share q = a/b in lowest terms, the score is the
    integer -|(b - a) n0 - a n1| = -b |n0 - q (n0 + n1)|. Without a share, q = 1/2, it is -|n0 - n1|:
    the median, the even bipartition. Among the cuts of a column it finds the q-quantile.

    Attributes:
        share: q, exact: a text like ``"1/4"``, or a number, whose decimal digits count. None is a half; kept as text in
            lowest terms.

    Privacy:
        Adjacency: add or remove one row. Claim: sensitivity max(a, b - a), that is b max(q, 1 - q); not monotone, so
        the span is twice that. Why: a row in cell 0 moves (b - a) n0 - a n1 up by b - a, a row in cell 1 moves it down
        by a, and an absolute value moves by no more than what is inside. A row can bring one cut closer to balance and
        take another further from it, so the span is attained. If one row is substituted, the inside moves by 0 or b, at
        most twice max(a, b - a); epsilon is divided by the schema's distance of 2 rows, which may move it as much.
        Exact: integers. Held by: tests/contract/test_every_score.py, tests/privacy/test_sensitivity.py,
        tests/privacy/test_selections.py.

    References:
        Smith 2011, "Privacy-preserving statistical estimation with optimal convergence rates",
        algorithm 2 (quantiles by the exponential mechanism).

    Examples:
        >>> import pandas as pd, pinq
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> h = pinq.simulate("policies/adult.yaml", data=rows, epsilon=10)
        >>> h.exp_mech([pinq.AnyCut("age")], score=pinq.Balance(), epsilon=1)  # the median
        Cuts(column='age', points=(38.0,))
    """

    share: str | float | None = None
    kind: Literal["balance"] = field(default="balance", repr=False)

    measure = "rows"
    monotone = False

    def __post_init__(self) -> None:
        share = _share_of(self.share)
        object.__setattr__(self, "share", None if share == Fraction(1, 2) else str(share))

    @property
    def weights(self) -> tuple[int, int]:
        """The integer factors of the rows of the two cells: b - a and a."""
        share = _share_of(self.share)
        return share.denominator - share.numerator, share.numerator

    @property
    def unit(self) -> Fraction:
        """Half of b: the natural unit is that of |n0 - n1|, whatever the share."""
        return Fraction(sum(self.weights), 2)

    def columns(self) -> set[str]:
        return set()

    def check(self, schema: Schema) -> None:
        """Needs nothing of the schema."""

    def check_cells(self, candidate: Expression, axes: tuple[Axis, ...]) -> None:
        """Raises ``QueryError`` unless there are two cells, a third for missing values aside."""
        if len(axes) != 1 or sum(label is not None for label in axes[0].labels) != 2:
            raise QueryError(f"Balance compares two parts, and {candidate!r} does not have two.")

    def sensitivity(self, schema: Schema) -> int:
        return max(self.weights)

    def of(self, table: np.ndarray, schema: Schema) -> np.ndarray:
        """A third cell, of missing values, does not count."""
        # A quarter has the weights 3 and 1: 10 rows below and 30 above score 0, 20 and 20 score
        # -40.
        below, above = self.weights
        return -np.abs(below * table[..., 0, 0] - above * table[..., 1, 0])


def _share_of(share: object) -> Fraction:
    """The share of ``Balance``, in (0, 1); None is a half. Raises ``QueryError`` for others."""
    text = "1/2" if share is None else str(share)
    exact = Fraction(text if SHARE.fullmatch(text) else 0)
    if not 0 < exact < 1 or exact.denominator > MAX_DENOMINATOR:
        raise QueryError(
            f"is {share!r}",
            parameter="share",
            allowed=f"between 0 and 1, both excluded, with a denominator of at most {MAX_DENOMINATOR:,}: 0.25 or '1/3'",
        )
    return exact


MAX_THRESHOLD = 2**40


@dataclass(frozen=True)
class Gradient(Score):
    """Scores a split by how much it would reduce a model's loss: Σ_j max(|G_j| - ``threshold``, 0).

    G_j is the sum of the loss's gradients in a cell, and the sum is over cells and classes.

    Privacy:
        A row adds its gradient to one cell of a candidate, so the sensitivity is the largest L1 norm of a row's
        gradient, and the span twice that (privacy.md 8.3).

    Attributes:
        derivatives: The loss: ``Logistic``, ``Softmax`` or ``Residuals``.
        threshold: A public size below which noise will hide a gradient: the scale of the noise of
            the later sums, in rows (in grid cells of the target for ``Residuals``).

    Examples:
        >>> import pandas as pd, pinq
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> h = pinq.simulate("policies/adult.yaml", data=rows, epsilon=10)
        >>> loss = pinq.Logistic("income", ">50K", pinq.Points(base=-300))
        >>> columns = [pinq.Values("race"), pinq.Values("relationship")]
        >>> h.exp_mech(columns, score=pinq.Gradient(loss), epsilon=1)
        Values(column='relationship')
    """

    derivatives: Logistic | Softmax | Residuals
    threshold: float = 0.0
    kind: Literal["gradient"] = field(default="gradient", repr=False)

    measure = "vectors"
    monotone = False

    def __post_init__(self) -> None:
        needed = f"Gradient takes Logistic, Softmax or Residuals, not {self.derivatives!r}."
        require_kind([self.derivatives], Derivatives, needed)
        if not is_number(self.threshold, 0, MAX_THRESHOLD):
            raise QueryError(
                f"is {self.threshold!r}", parameter="threshold", allowed=f"a number from 0 to {MAX_THRESHOLD:,}"
            )
        object.__setattr__(self, "threshold", float(self.threshold))

    @property
    def unit(self) -> int:
        return self.derivatives.unit

    @property
    def target(self) -> str:
        return self.derivatives.target

    def columns(self) -> set[str]:
        return self.derivatives.columns()

    def inner(self) -> tuple[Expression, ...]:
        return self.derivatives.inner()

    def targets(self) -> set[str]:
        return {self.target}

    def check(self, schema: Schema) -> None:
        self.derivatives.check(schema)

    def vectors(self, schema: Schema) -> RowVectors | None:
        return self.derivatives.vectors(schema)

    def sensitivity(self, schema: Schema) -> int:
        return max(1, self.derivatives.vectors(schema).gradient_bound)

    def of(self, table: np.ndarray, schema: Schema) -> np.ndarray:
        """Scores of tables (..., cells, width) of sums of vectors."""
        # Cells with gradients of 90 and -10 rows score 70 at a threshold of 20: noise would hide
        # the second.
        excess = np.abs(self.derivatives.gradients(table)) - round(self.threshold * self.unit)
        return np.maximum(excess, 0).sum(axis=(-1, -2))


GINI_UNIT = 2**10
# The loss of all tests on a path down a tree, where one test alone loses 1: 1 + sum over n >= 1 of
# 1 / (2^n - 1) = 2.606695..., rounded up (privacy.md 3.4).
PATH_LOSS = Fraction(2607, 1000)
MOST_ROWS = 2**40
MOST_EXPECTED = 2**44  # sixteenths of a row
MOST_OFF = 2**55  # sixteenths that a table can be off: times 100, and with all rows, it fits 64 bits
MAX_DEPTH = 64
LIMB = 15  # bits of a number's lower part, where its square would pass 64 bits


@dataclass(frozen=True)
class _OfCategories(Expression):
    """A score from the counts of the target's values."""

    target: str

    def columns(self) -> set[str]:
        return {self.target}

    def check(self, schema: Schema) -> None:
        schema.categorical(self.target)

    def classes(self, schema: Schema) -> Values | Cuts | None:
        return Values(self.target)


@dataclass(frozen=True)
class MaxClass(_OfCategories, Score):
    """Scores a split by the rows that a majority vote in each part classifies correctly: Σ_j max_c n_jc.

    Sensitivity 1, monotone (F&S 2010, sec. 4.2).

    Examples:
        >>> import pandas as pd, pinq
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> h = pinq.simulate("policies/adult.yaml", data=rows, epsilon=10)
        >>> columns = [pinq.Values("race"), pinq.Values("education")]
        >>> h.exp_mech(columns, score=pinq.MaxClass("income"), epsilon=1)
        Values(column='education')
    """

    kind: Literal["max_class"] = field(default="max_class", repr=False)
    quick = True

    def sensitivity(self, schema: Schema) -> int:
        return 1

    def of(self, table: np.ndarray, schema: Schema) -> np.ndarray:
        # Cells of (3, 1) and (0, 2) rows score 3 + 2.
        return table.max(axis=-1).sum(axis=-1)


class SumScore(_OfCategories, Score):
    """A score of each cell by sums over its classes. Each summand depends on the count of one class only."""

    @abstractmethod
    def summands(self, counts: np.ndarray, schema: Schema) -> Sequence[np.ndarray]:
        """The numbers that each count of a class adds, each shaped like the counts; an empty class adds nothing."""

    @abstractmethod
    def of_sums(self, sums: Sequence[np.ndarray], schema: Schema) -> np.ndarray:
        """The score of each cell by the sums of these numbers over its classes."""

    def of(self, table: np.ndarray, schema: Schema) -> np.ndarray:
        sums = [numbers.sum(axis=-1) for numbers in self.summands(table, schema)]
        return self.of_sums(sums, schema).sum(axis=-1)


@dataclass(frozen=True)
class Gini(SumScore):
    """Scores a split by the Gini impurity of its parts.

    The score is -Σ_j n_j (1 - Σ_c (n_jc/n_j)^2), in 1/1024 of a row, floored for each cell.

    Sensitivity < 2 rows, monotone (privacy.md 2.5).

    Examples:
        >>> import pandas as pd, pinq
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> h = pinq.simulate("policies/adult.yaml", data=rows, epsilon=10)
        >>> columns = [pinq.Values("race"), pinq.Values("relationship")]
        >>> h.exp_mech(columns, score=pinq.Gini("income"), epsilon=1)
        Values(column='relationship')
    """

    kind: Literal["gini"] = field(default="gini", repr=False)

    unit = GINI_UNIT

    def sensitivity(self, schema: Schema) -> int:
        return 2 * GINI_UNIT

    def summands(self, counts: np.ndarray, schema: Schema) -> Sequence[np.ndarray]:
        return counts, *_limbs(counts)

    def of_sums(self, sums: Sequence[np.ndarray], schema: Schema) -> np.ndarray:
        # 3 rows of one class and 1 of the other: 4 - (9 + 1) / 4 = 1.5 rows = 4 (1 - 9/16 - 1/16).
        # n (1 - Σ (n_c / n)²) is n - Σ n_c² / n.
        rows, high, low = sums
        return _over(high, low, np.maximum(rows, 1)) - GINI_UNIT * rows


@dataclass(frozen=True)
class InfoGain(SumScore):
    """Scores a split by its information gain about the target.

    The score is -n H(class given cell) in 2^-20 bits: Σ_jc F(n_jc) - Σ_j F(n_j), with
    F(x) = Σ_{i<x} φ(i), φ(i) = (i+1) lg(i+1) - i lg i.

    φ is tabulated as a nondecreasing integer step function, capped at the declared ``max_rows``: so one row changes the
    score by φ(n_jc) - φ(n_j) in [-φ(N-1), 0], exactly, and a wrong row cap can cost utility only (privacy.md 2.6).

    Examples:
        >>> import pandas as pd, pinq
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> h = pinq.simulate("policies/adult.yaml", data=rows, epsilon=10)
        >>> columns = [pinq.Values("race"), pinq.Values("relationship")]
        >>> h.exp_mech(columns, score=pinq.InfoGain("income"), epsilon=1)
        Values(column='relationship')
    """

    kind: Literal["info_gain"] = field(default="info_gain", repr=False)

    unit = 2**ENTROPY_BITS

    def sensitivity(self, schema: Schema) -> int:
        return max(1, int(monotone_step_table(schema.max_rows)[1][-1]))

    def summands(self, counts: np.ndarray, schema: Schema) -> Sequence[np.ndarray]:
        return counts, step_sums(counts, *monotone_step_table(schema.max_rows))

    def of_sums(self, sums: Sequence[np.ndarray], schema: Schema) -> np.ndarray:
        # Cells of (3, 1) and (0, 2) rows: F(3) + F(1) - F(4) + F(0) + F(2) - F(2), with F(x) = x lg
        # x, is 4.75 - 8 = -3.25 bits: four rows of entropy .81, and two of 0.
        rows, of_classes = sums
        return of_classes - step_sums(rows, *monotone_step_table(schema.max_rows))


@dataclass(frozen=True)
class MutualInformation(InfoGain):
    """Scores candidates by their mutual information with the target: ``InfoGain`` under DILCA's name.

    The score is n I(target; candidate) minus the common term n H(target).

    A tuple of specs is scored by their joint cells (Battaglia et al. 2021; privacy.md 2.5). The target is a categorical
    column, or ``Cuts`` of a numeric one.

    Examples:
        >>> import pandas as pd, pinq
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> h = pinq.simulate("policies/adult.yaml", data=rows, epsilon=10)
        >>> columns = [pinq.Values("race"), pinq.Values("relationship")]
        >>> h.exp_mech(columns, score=pinq.MutualInformation("income"), epsilon=1)
        Values(column='relationship')
    """

    target: str | Cuts  # type: ignore[assignment]
    kind: Literal["mutual_information"] = field(default="mutual_information", repr=False)  # type: ignore[assignment]

    @property
    def _split(self) -> Values | Cuts:
        return self.target if isinstance(self.target, Cuts) else Values(self.target)

    def columns(self) -> set[str]:
        return self._split.columns()

    def check(self, schema: Schema) -> None:
        if self._split is self.target:
            self._split.check(schema)
        else:
            super().check(schema)

    def classes(self, schema: Schema) -> Values | Cuts | None:
        return self._split


@dataclass(frozen=True)
class _OfNumbers(Score):
    """A score of the values of a numeric target.

    Attributes:
        within: A public range to which values are clamped, narrower than the column's bounds, so that a row moves the
            score by less; None for the bounds.
    """

    most_levels: ClassVar[int]  # a power of 2

    target: str
    within: tuple[CutPoint, CutPoint] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "within", two_ends(self.within))

    def columns(self) -> set[str]:
        return {self.target}

    def check(self, schema: Schema) -> None:
        schema.numeric(self.target).cells_within(self.within, self.target)

    def clamp(self, schema: Schema) -> tuple[int, int, int]:
        first, last = schema.numeric(self.target).cells_within(self.within, self.target)
        # 5,000 cells, 1,024 levels: 3 bits are dropped, and 625 levels are left.
        return first, last, max(0, (last - first).bit_length() - self.most_levels.bit_length() + 1)

    def levels(self, schema: Schema) -> int:
        first, last, dropped = self.clamp(schema)
        return ((last - first) >> dropped) + 1


@dataclass(frozen=True)
class SquaredError(_OfNumbers):
    """Scores a split by the squared error of a numeric target around each part's mean.

    The score is -Σ_j Σ (y - mean_j)^2, with y on at most 1,024 public levels, floored for each cell.

    In units of one squared level the sensitivity is (levels - 1)^2, monotone (-SSE in privacy.md 2.4). Rows whose
    target is missing are left out.

    Examples:
        >>> import pandas as pd, pinq
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> h = pinq.simulate("policies/adult.yaml", data=rows, epsilon=10)
        >>> columns = [pinq.Values("race"), pinq.Values("relationship")]
        >>> h.exp_mech(columns, score=pinq.SquaredError("hours_per_week"), epsilon=5)
        Values(column='relationship')
    """

    kind: Literal["squared_error"] = field(default="squared_error", repr=False)

    measure = "moments"
    most_levels = 2**10

    def sensitivity(self, schema: Schema) -> int:
        return max(1, (self.levels(schema) - 1) ** 2)

    def of(self, table: np.ndarray, schema: Schema) -> np.ndarray:
        """Scores of tables (..., cells, 3) of rows, sums and sums of squares."""
        # Levels 1 and 3: 2 rows, sum 4, squares 10; (16 - 20) / 2 = -2 = -((1 - 2)^2 + (3 - 2)^2).
        rows, sums, squares = table[..., 0], table[..., 1], table[..., 2]
        some = np.maximum(rows, 1)
        mean = (sums / some).astype(np.int64)  # about: any whole number near it makes the same score
        left = sums - mean * some
        # (S² - n Q) / n where S = m n + r: m² n + 2 m r - Q + r² / n.
        scores = mean * (mean * rows + 2 * left) - squares + _over(*_limbs(left), some) // GINI_UNIT
        return scores.sum(axis=-1)


@dataclass(frozen=True)
class AbsoluteError(_OfNumbers):
    """Scores a split by the absolute error of a numeric target around each part's median.

    The score is -Σ_j Σ |y - median_j|, with y on at most 256 public levels.

    A few extreme values weigh less than in ``SquaredError``.

    With F_k rows of a cell on levels up to k, its Σ |y - median| is Σ_k min(F_k, n - F_k), exactly. One row raises each
    of these (levels - 1) terms by 0 or 1. The sensitivity is therefore levels - 1, in units of one level, and the score
    is monotone (-SAE in privacy.md 2.4). Rows whose target is missing are left out.

    Examples:
        >>> import pandas as pd, pinq
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> h = pinq.simulate("policies/adult.yaml", data=rows, epsilon=10)
        >>> columns = [pinq.Values("race"), pinq.Values("education")]
        >>> h.exp_mech(columns, score=pinq.AbsoluteError("hours_per_week"), epsilon=5)
        Values(column='education')
    """

    kind: Literal["absolute_error"] = field(default="absolute_error", repr=False)
    quick = True

    most_levels = 2**8

    def classes(self, schema: Schema) -> Values | Cuts | None:
        """The split whose parts are the levels, missing values last."""
        column, (first, last, dropped) = schema.numeric(self.target), self.clamp(schema)
        if not dropped and self.within is None:
            return Values(self.target)
        # Levels of two cells from cell 10 to cell 15: cuts before the cells 12 and 14.
        step = 1 << dropped
        return Cuts(self.target, tuple(map(column.cut_before, range(first + step, last + 1, step))))

    def sensitivity(self, schema: Schema) -> int:
        return max(1, self.levels(schema) - 1)

    def of(self, table: np.ndarray, schema: Schema) -> np.ndarray:
        """The last position, of missing values, does not count."""
        # 1, 0, 2 and 1 rows on levels 0 to 3: 1, 1, 3 and 4 up to each, of 4, so 1 + 1 + 1 + 0 = 3,
        # which is |0 - 2| + |2 - 2| + |2 - 2| + |3 - 2| around the median 2.
        below = np.cumsum(table[..., : self.levels(schema)], axis=-1)
        return -np.minimum(below, below[..., -1:] - below).sum(axis=(-1, -2))


@dataclass(frozen=True)
class Misfit(OfSpecs, Score):
    """Scores a candidate by the rows that a public model's table misplaces: w (Σ_v |n_v - m_v| - a k).

    n_v is the number of rows in part v of the candidate, and m_v the model's estimate of it. a is
    an allowance for the noise of a table of k parts, and w is a weight.

    Attributes:
        specs: The candidates that can be scored.
        expected: For each spec, the model's estimate for each part, in sixteenths of a row.
        allowance: a, in sixteenths of a row.
        weights: w of each candidate in percent, 1 to 100; empty for 100 each.

    Privacy:
        Adjacency: add or remove one row. Claim: sensitivity 1 row; not monotone, so the span is 2.
        Why: a row moves one n_v by 1, and | |n + 1 - m| - |n - m| | <= 1; all else is public, and w
        is at most 1. In sixteenths the change is at most 16 w, and the floor of a number that moves
        by at most 16 moves by at most 16 (privacy.md 8.7).
        Exact: integers, which the public bound ``MOST_OFF`` keeps within 64 bits. Held by:
        tests/contract/test_every_score.py, tests/privacy/test_sensitivity.py.

    References:
        McKenna et al. 2022, "AIM: An adaptive and iterative mechanism for differentially private
        synthetic data", sec. 4 (the score).

    Examples:
        >>> import pandas as pd, pinq
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> h = pinq.simulate("policies/adult.yaml", data=rows, epsilon=10)
        >>> equal = pinq.Values("sex"), pinq.Values("income")  # a model with equal parts, in sixteenths of a row
        >>> expected = ((16 * 16_280,) * 2, (16 * 16_280,) * 2)
        >>> h.exp_mech(equal, score=pinq.Misfit(equal, expected), epsilon=1)
        Values(column='income')
    """

    specs: TupleOf[Spec]
    expected: TupleOf[TupleOf[int]]
    allowance: int = 0
    weights: TupleOf[int] = ()
    kind: Literal["misfit"] = field(default="misfit", repr=False)

    measure = "rows"
    monotone = False
    unit = 16

    def __post_init__(self) -> None:
        for name in ("specs", "expected", "weights"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        require_kind(self.specs, Splitting, "`specs` of Misfit takes Values, Cuts, Groups, Calendar, Shards and Cross.")
        if not len(self.specs) == len(self.expected) == len(self.weights or self.specs):
            raise QueryError("Misfit needs a table of expected rows, and a weight or none, for each of its specs.")
        if not all(are_whole(table, -MOST_EXPECTED, MOST_EXPECTED) for table in self.expected):
            raise QueryError(f"the expected rows of Misfit are whole numbers of at most {MOST_EXPECTED:,} in size.")
        if not is_whole(self.allowance, 0, MOST_EXPECTED) or not are_whole(self.weights, 1, 100):
            raise QueryError("`allowance` of Misfit is a whole number from 0, its `weights` are from 1 to 100.")
        # Beyond 64 bits numbers would wrap around, and one row could move a score from one end of its range to the
        # other.
        if any(sum(map(abs, table)) + self.allowance * len(table) > MOST_OFF for table in self.expected):
            raise QueryError(
                f"the expected rows of a table, with an `allowance` for each of its parts, add up to {MOST_OFF:,} "
                "sixteenths at most."
            )

    def inner(self) -> tuple[Expression, ...]:
        return self.specs

    def targets(self) -> set[str]:
        return set()

    def check(self, schema: Schema) -> None:
        for spec, table in zip(self.specs, self.expected, strict=True):
            if (parts := bind(spec, schema).size) != len(table):
                raise QueryError(f"{brief(spec)} has {parts:,} parts, and Misfit expects rows in {len(table):,}.")

    def of_candidate(self, candidate: Expression) -> Misfit:
        """The score of one of its specs alone; raises ``QueryError`` for another candidate."""
        if candidate.identity not in self._numbers:
            raise QueryError(f"Misfit has no expected rows for {candidate!r}.")
        number = self._numbers[candidate.identity]
        single = object.__new__(Misfit)  # all parts are checked already
        parts = {name: getattr(self, name)[number : number + 1] for name in ("specs", "expected", "weights")}
        vars(single).update(parts, allowance=self.allowance, kind=self.kind)
        return single

    @cached_property
    def _numbers(self) -> dict[Hashable, int]:
        return {spec.identity: number for number, spec in enumerate(self.specs)}

    def sensitivity(self, schema: Schema) -> int:
        return 16

    def of(self, table: np.ndarray, schema: Schema) -> np.ndarray:
        # 3 and 5 rows where 2 and 4.5 are expected are off by 1.5 rows; with an allowance of half a row each
        # by .5, which is 8 sixteenths.
        off = np.abs(self.unit * table[..., 0] - np.array(self.expected[0])).sum(axis=-1)
        return (self.weights or (100,))[0] * (off - self.allowance * table.shape[-2]) // 100


# Two scores are queries of their own: they choose among no candidates (pinq/language/queries.py).


@dataclass(frozen=True)
class ClassCount(_OfCategories):
    """Scores each *value* of the target by its rows n_c: a noisy majority vote. Sensitivity 1, monotone.

    Examples:
        >>> import pandas as pd, pinq
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> h = pinq.simulate("policies/adult.yaml", data=rows, epsilon=10)
        >>> h.exp_mech(score=pinq.ClassCount("income"), epsilon=0.1)
        '<=50K'
    """

    kind: Literal["class_count"] = field(default="class_count", repr=False)

    monotone: ClassVar[bool] = True

    def sensitivity(self, schema: Schema) -> int:
        return 1

    def span(self, schema: Schema) -> int:
        return 1


@dataclass(frozen=True)
class EnoughRows(Expression):
    """Selects the nodes of grown trees that have too few rows to stay split.

    It is one charge for trees of any depth (``splits_kept``, pinq/curator/verbs.py).

    Attributes:
        least: The number of rows from which the first part of a tree more probably stays split; each split above a node
            adds a public penalty.
        above: The number of splits above each tree, which is the ``depth`` of its first part.

    Examples:
        >>> import pandas as pd, pinq
        >>> rows = pd.read_parquet("data/adult.parquet")  # public rows
        >>> h = pinq.simulate("policies/adult.yaml", data=rows, epsilon=10)
        >>> h.partition(pinq.Values("sex")).exp_mech(score=pinq.EnoughRows(least=1000), epsilon=1)  # all stay
        [1, 1]
    """

    least: int
    above: int = 0
    kind: Literal["enough_rows"] = field(default="enough_rows", repr=False)

    def columns(self) -> set[str]:
        return set()

    def check(self, schema: Schema) -> None:
        for name, largest in (("least", MOST_ROWS), ("above", MAX_DEPTH)):
            value = getattr(self, name)
            if type(value) is not int or not is_whole(value, 0, largest):
                raise QueryError(
                    f"`{name}` of EnoughRows is {value!r}; it must be a whole number from 0 to {largest:,}."
                )


AnyScore = (
    InfoGain
    | Gini
    | MaxClass
    | Balance
    | ClassCount
    | SquaredError
    | AbsoluteError
    | MutualInformation
    | Gradient
    | Misfit
    | EnoughRows
)
"""Every ``score`` of ``exp_mech``."""

SCORES: Mapping[str, type[AnyScore]] = {kind.kind: kind for kind in get_args(AnyScore)}
"""The one catalogue of scores, by kind; exports, errors, the self-test and the tests read it.

A new class is in it by its entry of ``AnyScore``. It fails tests until it has a worst pair of tables
(tests/privacy/test_sensitivity.py) and a claim (pinq/provider/selftest/claims.py).
"""


def _limbs(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers v h and v l of v² = 2^15 (v h) + v l, where v = 2^15 h + l.

    Args:
        values: At most 2^38 in size together, so the numbers add up to at most 2^61 and 2^53.
    """
    values = values.astype(np.int64, copy=False)
    return values * (values >> LIMB), values * (values & (2**LIMB - 1))


def _over(high: np.ndarray, low: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Divides sums of squares, as v h and v l of ``_limbs``, by 1 to 2^38 rows, in 1/1024, rounded down.

    It is exact in 64 bits for all rows.
    """
    # Doubles give the quotient, which is below 2^48, to within 1/8: 18 / 3 may come out as 5. The remainder 18 - 5 * 3
    # is 3, not below 3, so the quotient is 6. The remainder is between -n and 2 n, so 64 bits hold it, even where
    # the numbers that it is computed from wrap around.
    whole = ((high * 2.0 ** (LIMB + 10) + low * 2.0**10) / rows).astype(np.int64)
    left = (high << LIMB + 10) + (low << 10) - whole * rows
    return whole + (left >= rows) - (left < 0)


def require_score(score: object, schema: Schema) -> AnyScore:
    """Raises ``QueryError`` unless this is one of the scores and its target exists."""
    kinds = list(SCORES.values())
    if isinstance(score, type) and score in kinds:
        needed = next((field.name for field in fields(score) if field.default is MISSING), "")
        raise QueryError(f"{score.__name__} is a class of scores; write {score.__name__}({needed}) to say which.")
    if type(score) not in kinds:
        raise QueryError(
            f"{score!r} is not a score; use {', '.join(kind.__name__ for kind in kinds[:-1])} or {kinds[-1].__name__}. "
            "Gain ratio is not among them: its sensitivity is its whole range at every table size."
        )
    checked = cast(AnyScore, score)
    checked.check(schema)
    return checked
