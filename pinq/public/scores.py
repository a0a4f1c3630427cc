# SPDX-License-Identifier: Apache-2.0
"""Quality functions for ``exp_mech``: exact integers from tables of counts.

A candidate partition sends the rows of a part into *cells* j (its parts). A score sees a table of
shape (..., cells, measure) and returns integers of shape (...,), in units of its own;
``sensitivity`` is in the same units. Higher is better. Terms common to all candidates are left out:
only differences between candidates matter (privacy.md 2.4).

Privacy:
    Adjacency: add or remove one row. The row falls into one cell of each candidate. ``sensitivity``
    bounds the change of every candidate's score. In a *monotone* score all candidates move the same
    way, so their changes span at most the sensitivity; otherwise at most twice that. ``span`` is
    that width: selection with exp(epsilon * q / span) is epsilon-DP (range lemma, privacy.md 2.4;
    proofs of each row, 2.5). Floors are taken cell by cell of a monotone quantity with an integer
    bound, which keeps both. Held by: tests/privacy/test_sensitivity.py, exhaustively.

A new score is a class here, or in a file beside it, and an entry of ``AnyScore``; ``pinq/__init__``
exports it. Its sensitivity passes ``pinq.provider.testing.search_sensitivity`` first.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields
from fractions import Fraction
from typing import ClassVar, Literal, cast, get_args

import numpy as np

from pinq.errors import QueryError
from pinq.public.balance import Balance
from pinq.public.checks import is_whole
from pinq.public.entropy import ENTROPY_BITS, monotone_step_table, step_sums
from pinq.public.expressions import Expression
from pinq.public.gradient import Gradient
from pinq.public.schema import Schema
from pinq.public.score import Score, over_last
from pinq.public.specs import Cuts, Values

__all__ = [
    "PATH_LOSS",
    "AbsoluteError",
    "AnyScore",
    "Balance",
    "ClassCount",
    "EnoughRows",
    "Gini",
    "Gradient",
    "InfoGain",
    "MaxClass",
    "MutualInformation",
    "Score",
    "SquaredError",
    "monotone_step_table",
    "require_score",
]

GINI_UNIT = 2**10
SQUARED_ERROR_LEVELS = 2**10
ABSOLUTE_ERROR_LEVELS = 2**8
# What the tests on a path down a tree can lose in all, if one alone can lose 1: 1 + sum over n >= 1
# of 1 / (2^n - 1) = 2.606695..., rounded up (privacy.md 3.4).
PATH_LOSS = Fraction(2607, 1000)
MOST_ROWS = 2**40
MAX_DEPTH = 64


@dataclass(frozen=True)
class _OfCategories(Expression):
    """What is computed from the counts of the target's values."""

    target: str

    def columns(self) -> set[str]:
        """The target."""
        return {self.target}

    def check(self, schema: Schema) -> None:
        """``QueryError`` unless the target is a declared categorical column."""
        schema.categorical(self.target)

    def classes(self, schema: Schema) -> Values | Cuts | None:
        """The split whose parts are the classes."""
        return Values(self.target)


@dataclass(frozen=True)
class MaxClass(_OfCategories, Score):
    """Σ_j max_c n_jc: rows that a vote in each cell gets right.

    Sensitivity 1, monotone (F&S 2010, sec. 4.2).
    """

    kind: Literal["max_class"] = field(default="max_class", repr=False)

    def sensitivity(self, schema: Schema) -> int:
        return 1

    def of(self, table: np.ndarray, schema: Schema) -> np.ndarray:
        """Scores of tables (..., cells, classes)."""
        # Cells of (3, 1) and (0, 2) rows score 3 + 2.
        return over_last(np.add, over_last(np.maximum, table))


@dataclass(frozen=True)
class Gini(_OfCategories, Score):
    """-Σ_j n_j (1 - Σ_c (n_jc/n_j)^2), in 1/1024 of a row, floored per cell.

    Sensitivity < 2 rows, monotone (privacy.md 2.5).
    """

    kind: Literal["gini"] = field(default="gini", repr=False)

    unit = GINI_UNIT

    def sensitivity(self, schema: Schema) -> int:
        return 2 * GINI_UNIT

    def of(self, table: np.ndarray, schema: Schema) -> np.ndarray:
        """Scores of tables (..., cells, classes)."""
        table = _roomy(table, GINI_UNIT)
        # 3 rows of one class and 1 of the other: (3 * 1 + 1 * 3) / 4 = 1.5 rows = 4 (1 - 9/16 -
        # 1/16).
        rows = over_last(np.add, table)
        impurity = over_last(np.add, table * (rows[..., None] - table))
        return over_last(np.add, -GINI_UNIT * impurity // np.maximum(rows, 1))


@dataclass(frozen=True)
class InfoGain(_OfCategories, Score):
    """-n H(class given cell) in 2^-20 bits.

    It is Σ_jc F(n_jc) - Σ_j F(n_j), F(x) = Σ_{i<x} φ(i), φ(i) = (i+1) lg(i+1) - i lg i.

    φ is tabulated as a nondecreasing integer step function, capped at the declared ``max_rows``: so
    the score is an exact integer, one row changes it by φ(n_jc) - φ(n_j) in [-φ(N-1), 0] whatever
    the table's size, and a wrong row cap can cost utility only (privacy.md 2.6).
    """

    kind: Literal["info_gain"] = field(default="info_gain", repr=False)

    unit = 2**ENTROPY_BITS

    def sensitivity(self, schema: Schema) -> int:
        return max(1, int(monotone_step_table(schema.max_rows)[1][-1]))

    def of(self, table: np.ndarray, schema: Schema) -> np.ndarray:
        """Scores of tables (..., cells, classes)."""
        # Cells of (3, 1) and (0, 2) rows: F(3) + F(1) - F(4) + F(0) + F(2) - F(2), with F(x) = x lg
        # x, is 4.75 - 8 = -3.25 bits: four rows of entropy .81, and two of 0.
        starts, steps, sums = monotone_step_table(schema.max_rows)
        of_classes = over_last(np.add, step_sums(table, starts, steps, sums))
        return over_last(np.add, of_classes - step_sums(over_last(np.add, table), starts, steps, sums))


@dataclass(frozen=True)
class MutualInformation(InfoGain):
    """n I(target; candidate) up to the common term n H(target): ``InfoGain`` under DILCA's name.

    A candidate that is a tuple of specs, or a member of an ``AnyCross``, is scored by their joint
    cells (Battaglia et al. 2021; privacy.md 2.5). The target is a categorical column, or ``Cuts``
    of a numeric one: its classes are the parts of a split either way.
    """

    target: str | Cuts  # type: ignore[assignment]
    kind: Literal["mutual_information"] = field(default="mutual_information", repr=False)  # type: ignore[assignment]

    @property
    def _split(self) -> Values | Cuts:
        return self.target if isinstance(self.target, Cuts) else Values(self.target)

    def columns(self) -> set[str]:
        """The column whose classes are counted."""
        return self._split.columns()

    def check(self, schema: Schema) -> None:
        """``QueryError`` unless the target's classes exist."""
        if self._split is self.target:
            self._split.check(schema)
        else:
            super().check(schema)

    def classes(self, schema: Schema) -> Values | Cuts | None:
        """The split whose parts are the classes."""
        return self._split


@dataclass(frozen=True)
class _OfNumbers(Score):
    """A score of the values of a numeric target."""

    target: str

    def columns(self) -> set[str]:
        """The target."""
        return {self.target}

    def check(self, schema: Schema) -> None:
        """``QueryError`` unless the target is a declared numeric column."""
        schema.numeric(self.target)


@dataclass(frozen=True)
class SquaredError(_OfNumbers):
    """-Σ_j Σ (y - mean_j)^2 of a numeric target on at most 1,024 public levels, floored per cell.

    In units of one squared level the sensitivity is (levels - 1)^2, monotone (-SSE in privacy.md
    2.4). Rows whose target is missing are left out.
    """

    kind: Literal["squared_error"] = field(default="squared_error", repr=False)

    measure = "moments"

    def shift(self, schema: Schema) -> int:
        """Low bits of a cell that are dropped to reach at most 1,024 levels."""
        return _dropped_bits(schema, self.target, SQUARED_ERROR_LEVELS)

    def sensitivity(self, schema: Schema) -> int:
        width = (schema.numeric(self.target).cells - 1) >> self.shift(schema)
        return max(1, width * width)

    def of(self, table: np.ndarray, schema: Schema) -> np.ndarray:
        """Scores of tables (..., cells, 3) of rows, sums and sums of squares."""
        table = _roomy(table, SQUARED_ERROR_LEVELS**2)
        # Levels 1 and 3: 2 rows, sum 4, squares 10; (16 - 20) / 2 = -2 = -((1 - 2)^2 + (3 - 2)^2).
        rows, sums, squares = table[..., 0], table[..., 1], table[..., 2]
        return over_last(np.add, (sums * sums - rows * squares) // np.maximum(rows, 1))


@dataclass(frozen=True)
class AbsoluteError(_OfNumbers):
    """-Σ_j Σ |y - median_j| of a numeric target on at most 256 public levels.

    A few extreme values weigh less than in ``SquaredError``.

    With F_k rows of a cell on levels up to k, its Σ |y - median| is Σ_k min(F_k, n - F_k), exactly.
    One row raises each of these levels - 1 terms by 0 or 1; so the sensitivity, in units of one
    level, is levels - 1, monotone (-SAE in privacy.md 2.4). Rows whose target is missing are left
    out.
    """

    kind: Literal["absolute_error"] = field(default="absolute_error", repr=False)

    def classes(self, schema: Schema) -> Values | Cuts | None:
        """The split whose parts are the levels, missing values last."""
        column, step = schema.numeric(self.target), 1 << _dropped_bits(schema, self.target, ABSOLUTE_ERROR_LEVELS)
        return (
            Values(self.target)
            if step == 1
            else Cuts(self.target, tuple(column.cut_before(first) for first in range(step, column.cells, step)))
        )

    def levels(self, schema: Schema) -> int:
        """How many levels the target has."""
        return (
            (schema.numeric(self.target).cells - 1) >> _dropped_bits(schema, self.target, ABSOLUTE_ERROR_LEVELS)
        ) + 1

    def sensitivity(self, schema: Schema) -> int:
        return max(1, self.levels(schema) - 1)

    def of(self, table: np.ndarray, schema: Schema) -> np.ndarray:
        """Scores of tables (..., cells, levels).

        A last position, of missing values, does not count.
        """
        # 1, 0, 2 and 1 rows on levels 0 to 3: 1, 1, 3 and 4 up to each, of 4, so 1 + 1 + 1 + 0 = 3,
        # which is |0 - 2| + |2 - 2| + |2 - 2| + |3 - 2| around the median 2.
        below = np.cumsum(table[..., : self.levels(schema)], axis=-1)
        return -np.minimum(below, below[..., -1:] - below).sum(axis=(-1, -2))


# What an analyst writes as a score, and what is a question of its own: nothing is chosen among
# candidates (pinq/public/questions.py).


@dataclass(frozen=True)
class ClassCount(_OfCategories):
    """n_c, to choose among the *values* of the target: a noisy majority vote.

    Sensitivity 1, monotone.
    """

    kind: Literal["class_count"] = field(default="class_count", repr=False)

    monotone: ClassVar[bool] = True

    def sensitivity(self, schema: Schema) -> int:
        """A row is of one class."""
        return 1

    def span(self, schema: Schema) -> int:
        """Monotone: the sensitivity."""
        return 1


@dataclass(frozen=True)
class EnoughRows(Expression):
    """Asks of the leaves of whole trees: has each part above them rows enough to stay split?

    It is one charge, whatever the depth (pinq/curator/verbs/stop.py).

    Attributes:
        least: Rows from which a tree's first part is more likely to stay split than not; further
            down a public penalty for each split above is added.
        above: How many splits of each path lie above its tree: the trees' first parts have ``depth``
            ``above``.
    """

    least: int
    above: int = 0
    kind: Literal["enough_rows"] = field(default="enough_rows", repr=False)

    def columns(self) -> set[str]:
        """None: it counts rows."""
        return set()

    def check(self, schema: Schema) -> None:
        """``QueryError`` unless both are whole numbers in their ranges."""
        for name, most in (("least", MOST_ROWS), ("above", MAX_DEPTH)):
            value = getattr(self, name)
            if type(value) is not int or not is_whole(value, 0, most):
                raise QueryError(f"`{name}` of EnoughRows is {value!r}; it must be a whole number from 0 to {most:,}.")


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
    | EnoughRows
)
"""Whatever can stand for ``score`` of ``exp_mech``."""


def _dropped_bits(schema: Schema, target: str, levels: int) -> int:
    """Counts the low bits to drop from a numeric column's cells to reach so many levels.

    ``levels`` is a power of 2.
    """
    # 5,000 cells, 1,024 levels: 3 bits are dropped, and 625 levels are left.
    return max(0, (schema.numeric(target).cells - 1).bit_length() - levels.bit_length() + 1)


def _roomy(table: np.ndarray, unit: int) -> np.ndarray:
    """The table in integers that cannot overflow under ``unit`` * rows^2."""
    largest = int(table.max(initial=0))
    wide = table.shape[-1] * unit * (largest + 1) ** 2 >= 2**61
    return table.astype(object) if wide else table.astype(np.int64, copy=False)


def require_score(score: object, schema: Schema) -> AnyScore:
    """``QueryError`` unless this is one of the scores and its target exists."""
    kinds = get_args(AnyScore)
    if isinstance(score, type) and score in kinds:
        needed = next((field.name for field in fields(score) if field.default is MISSING), "")
        raise QueryError(f"{score.__name__} is a class of scores; write {score.__name__}({needed}) to say which.")
    if type(score) not in kinds:
        names = [kind.__name__ for kind in kinds]
        raise QueryError(
            f"{score!r} is not a score; use {', '.join(names[:-1])} or {names[-1]}. "
            "Gain ratio is not among them: its sensitivity is its whole range at every table size."
        )
    known = cast(AnyScore, score)
    known.check(schema)
    return known
