# SPDX-License-Identifier: Apache-2.0
"""Derivatives of a public model's loss at each row: vectors of whole numbers to add up.

A model is a score of rows (``Points``); a row's vector says in which direction, and how far, its
own score should move. ``noisy_sum`` adds the vectors up, in each part or each cell of some specs;
the score ``Gradient`` of ``exp_mech`` chooses by their sums. With them a model is grown step by
step (component-wise boosting), or all at once.

Privacy:
    Adjacency: add or remove one row. A vector is a public function of its row, of whole numbers, of
    L1 norm at most ``bound``. ``bound`` is the largest norm in the public table of all vectors
    where there is such a table; otherwise each vector is clipped to it. All is integer arithmetic
    on public tables, which alone were computed in floating point; so a vector follows from its row,
    and not from where in an array the row stands (privacy.md 8). Held by:
    tests/privacy/test_derivative_sums.py, exhaustively on small schemas.

To add a loss: its class here, its vectors (``vectors.py``), and its entry of ``AnyDerivatives``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np

from pinq.errors import QueryError
from pinq.public.expressions import Expression
from pinq.public.points import POINTS, Points, RowScores
from pinq.public.schema import Schema, Value
from pinq.public.specs import Axis, Values, bind
from pinq.public.untrusted import TupleOf
from pinq.public.vectors import UNIT, LogisticVectors, ResidualVectors, RowVectors, SoftmaxVectors

__all__ = ["LARGEST_RESIDUAL", "AnyDerivatives", "Derivatives", "Logistic", "Residuals", "Softmax"]

LARGEST_BOUND = 2**24
LARGEST_RESIDUAL = (LARGEST_BOUND - 1) / (2 * POINTS)  # grid cells: the largest limit of ``Residuals``
MAX_WIDTH = 128
KEPT = 8  # losses whose vectors a schema remembers


class Derivatives(Expression):
    """A loss whose derivatives can be summed.

    Attributes:
        target: The column that the model predicts.
        unit: How many of a vector's whole units make a natural one: a row, or a grid cell.
    """

    target: str
    unit: int

    @abstractmethod
    def width(self, schema: Schema) -> int:
        """Entries of a row's vector."""

    @abstractmethod
    def bind(self, schema: Schema) -> RowVectors:
        """Binds the loss to a schema. ``QueryError`` where it means nothing there."""

    def vectors(self, schema: Schema) -> RowVectors:
        """Binds as ``bind``, or recalls: a schema keeps the vectors of its last few losses."""
        kept = cast("dict[Hashable, RowVectors]", schema.kept().setdefault("vectors", {}))
        vectors = kept.get(self.identity)
        if vectors is None:
            vectors = self.bind(schema)
            if len(kept) >= KEPT:
                kept.clear()
            kept[self.identity] = vectors
        return vectors

    @abstractmethod
    def gradients(self, sums: np.ndarray) -> np.ndarray:
        """The gradients of sums (..., width): shape (..., 1), or (..., classes)."""

    @abstractmethod
    def hessians(self, sums: np.ndarray) -> np.ndarray | None:
        """Returns the second derivatives of sums (..., width), shaped as the gradients.

        None where they are not summed.
        """

    def check(self, schema: Schema) -> None:
        """``QueryError`` unless it means something under this schema."""
        self.vectors(schema)


@dataclass(frozen=True)
class Logistic(Derivatives):
    """Derivatives of the logistic loss of one class against the rest.

    They are (y - p, p (1 - p)), p = 1 / (1 + exp(-F / 256)).

    y is 1 where the target is one of ``positive`` and 0 elsewhere. F stops at 8 logits.

    Privacy:
        For y = 1 the norm is 1 - p + p (1 - p) = 1 - p², for y = 0 it is 1 - (1 - p)²: at most 1
        row, the price of a count (privacy.md 8.1). In units of 2^-16 rows it is the largest norm in
        the table of all (F, y), rounded as it is.

    Attributes:
        positive: The values that are the class; None is the missing one.
        points: The score.
        limit: Vectors of a larger L1 norm, in rows, are shortened to it: less noise, and a bias
            towards 0.
    """

    target: str
    positive: TupleOf[Value | None]
    points: Points
    limit: float = 1.0
    kind: Literal["logistic"] = field(default="logistic", repr=False)

    unit = UNIT

    def __post_init__(self) -> None:
        positive = self.positive
        single = positive is None or isinstance(positive, (str, int))
        object.__setattr__(self, "positive", (positive,) if single else tuple(positive))
        object.__setattr__(self, "limit", _limit(self.limit, 1.0))

    def columns(self) -> set[str]:
        """The target, and the columns of the points."""
        return {self.target} | self.points.columns()

    def inner(self) -> tuple[Expression, ...]:
        """The specs of the points."""
        return self.points.specs

    def width(self, schema: Schema) -> int:
        """Gradient and second derivative."""
        return 2

    def bind(self, schema: Schema) -> RowVectors:
        """A table of all vectors, looked up by a row's score and class."""
        column = schema.categorical(self.target)
        positive = np.zeros(column.codes, dtype=np.int64)
        positive[[column.code_of(value, self.target) for value in self.positive]] = 1
        if not 0 < positive.sum() < column.codes:
            allowed = f"some values of `{self.target}`, and not all of them"
            raise QueryError(f"is {self.positive!r}", parameter="positive", allowed=allowed)
        scores = RowScores.bind([self.points], schema)
        return LogisticVectors(scores, bind(Values(self.target), schema).axes[0], positive, int(self.limit * UNIT))

    def gradients(self, sums: np.ndarray) -> np.ndarray:
        """The first entry."""
        return sums[..., :1]

    def hessians(self, sums: np.ndarray) -> np.ndarray | None:
        """The second entry."""
        return sums[..., 1:]


@dataclass(frozen=True)
class Softmax(Derivatives):
    """Derivatives of the cross-entropy of all classes: e_y - p, p = softmax(F / 256).

    On demand also each p_c (1 - p_c).

    Privacy:
        The gradient's norm is 2 (1 - p_y), at most 2 rows; the second derivatives add at most
        1 - Σ p_c². Which p a row has depends on as many scores as there are classes, so there is no
        table of all vectors to look at: each one is clipped to ``limit`` in whole numbers. All of
        the way from scores to vectors is whole numbers and a table of odds, so a row's vector is
        the same wherever the row stands; doubles, computed many at a time, need not be
        (privacy.md 8.2).

    Attributes:
        points: A score for each value of the target, in their order, the missing one last.
        hessian: Whether the second derivatives are summed too.
        limit: Vectors of a larger L1 norm, in rows, are shortened to it.
    """

    target: str
    points: TupleOf[Points]
    hessian: bool = False
    limit: float = 2.0
    kind: Literal["softmax"] = field(default="softmax", repr=False)

    unit = UNIT

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", tuple(self.points))
        object.__setattr__(self, "limit", _limit(self.limit, 3.0))

    def columns(self) -> set[str]:
        """The target, and the columns of the points."""
        return {self.target}.union(*(points.columns() for points in self.points))

    def inner(self) -> tuple[Expression, ...]:
        """The specs of all points."""
        return tuple(spec for points in self.points for spec in points.specs)

    def width(self, schema: Schema) -> int:
        """An entry or two for each class."""
        return len(self.points) * (1 + self.hessian)

    def bind(self, schema: Schema) -> RowVectors:
        """Computed row by row, and clipped."""
        codes = schema.categorical(self.target).codes
        if len(self.points) != codes:
            raise QueryError(
                f"Softmax of `{self.target}` needs a score for each of its {codes} values, not {len(self.points)}."
            )
        if self.width(schema) > MAX_WIDTH:
            sums = f"{self.width(schema):,} numbers to a row"
            raise QueryError(
                f"Softmax of `{self.target}` makes {sums}; at most {MAX_WIDTH} are possible. Use Logistic."
            )
        scores = RowScores.bind(self.points, schema)
        target = bind(Values(self.target), schema).axes[0]
        return SoftmaxVectors(scores, target, self.hessian, int(self.limit * UNIT))

    def gradients(self, sums: np.ndarray) -> np.ndarray:
        """The first entry of each class."""
        return sums[..., : len(self.points)]

    def hessians(self, sums: np.ndarray) -> np.ndarray | None:
        """The second entry of each class."""
        return sums[..., len(self.points) :] if self.hessian else None


@dataclass(frozen=True)
class Residuals(Derivatives):
    """Derivatives of the squared error of a numeric target: its residual.

    It is a row's grid cell less F / 256, clamped to ``limit``.

    Rows whose target is missing add nothing. The second derivative is 1, so its sum is the number
    of rows: with ``rows`` two bins are summed, (limit + residual) / 2 and (limit - residual) / 2,
    whose difference is the residuals' sum and whose sum is ``limit`` times the rows.

    Privacy:
        Adjacency: add or remove one row. A residual is at most ``limit`` in size; the two bins of a
        row are at least 0 and add up to ``limit`` exactly, so both together cost what the residual
        alone does (privacy.md 8.5, 2.3). All is whole numbers of 1/512 cell.

    Attributes:
        points: The score.
        limit: Largest residual, in grid cells of the target.
        rows: Whether the rows are summed too.
    """

    target: str
    points: Points
    limit: float
    rows: bool = True
    kind: Literal["residuals"] = field(default="residuals", repr=False)

    unit = 2 * POINTS

    def __post_init__(self) -> None:
        limit = _limit(self.limit, LARGEST_RESIDUAL)
        object.__setattr__(self, "limit", int(limit * POINTS) / POINTS)

    def columns(self) -> set[str]:
        """The target, and the columns of the points."""
        return {self.target} | self.points.columns()

    def inner(self) -> tuple[Expression, ...]:
        """The specs of the points."""
        return self.points.specs

    def width(self, schema: Schema) -> int:
        """Two bins, or the residual."""
        return 1 + self.rows

    def bind(self, schema: Schema) -> RowVectors:
        """Computed row by row, in whole numbers."""
        column = schema.numeric(self.target)
        # A fine grid has too many cells to be split by each; here they are only read.
        target = Axis(self.target, column.codes, ())
        return ResidualVectors(
            RowScores.bind([self.points], schema), target, column.cells, int(self.limit * POINTS), self.rows
        )

    def gradients(self, sums: np.ndarray) -> np.ndarray:
        """The residuals' sum, in cells (of answers)."""
        # A residual of 1.5 cells under a limit of 4 is in bins of 2.75 and 1.25: 1.5 apart, 4
        # together.
        return sums[..., :1] - sums[..., 1:] if self.rows else sums

    def hessians(self, sums: np.ndarray) -> np.ndarray | None:
        """The number of rows (of answers)."""
        return (sums[..., :1] + sums[..., 1:]) / self.limit if self.rows else None


AnyDerivatives = Logistic | Softmax | Residuals
"""Whatever ``noisy_sum`` can add up beside a column."""


def _limit(limit: float, most: float) -> float:
    """``QueryError`` unless a norm's limit is above 0 and at most so large."""
    if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not 1 / POINTS <= limit <= most:
        allowed = f"a number from {1 / POINTS:.4f} to {most:,.10g}"
        raise QueryError(f"is {limit!r}", parameter="limit", allowed=allowed)
    return float(limit)
