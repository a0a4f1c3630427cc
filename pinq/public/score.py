# SPDX-License-Identifier: Apache-2.0
"""``Score`` is what every quality function answers; ``scores.py`` proves their privacy."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from functools import reduce
from typing import ClassVar, Literal

import numpy as np

from pinq.public.expressions import Expression
from pinq.public.partitions import Axis
from pinq.public.schema import Schema
from pinq.public.specs import Cuts, Values
from pinq.public.vectors import RowVectors

__all__ = ["Score", "over_last"]

FEW_POSITIONS = 16


class Score(Expression):
    """A quality function of candidates.

    Attributes:
        measure: What a table holds beside its cells: counts of ``classes``, ``rows``,
            ``moments`` of the target, or sums of ``vectors`` of the rows.
        monotone: Whether a row moves all candidates' scores in one direction.
    """

    measure: ClassVar[Literal["classes", "rows", "moments", "vectors"]] = "classes"
    monotone: ClassVar[bool] = True

    @property
    def unit(self) -> int | Fraction:
        """How many of the score's integer units make one of its natural ones."""
        return 1

    @abstractmethod
    def sensitivity(self, schema: Schema) -> int:
        """Largest change of a candidate's score when one row comes or goes."""

    @abstractmethod
    def of(self, table: np.ndarray, schema: Schema) -> np.ndarray:
        """Scores of tables (..., cells, measure)."""

    def span(self, schema: Schema) -> int:
        """Largest change of the difference between two candidates' scores."""
        return self.sensitivity(schema) * (1 if self.monotone else 2)

    def classes(self, schema: Schema) -> Values | Cuts | None:
        """The split whose parts are the classes; None for a score of another measure."""
        return None

    def shift(self, schema: Schema) -> int:
        """Low bits of the target's codes that its moments leave out."""
        return 0

    def vectors(self, schema: Schema) -> RowVectors | None:
        """What each row adds to a table, for a score of vectors."""
        return None

    def targets(self) -> set[str]:
        """The columns that a candidate may not split by."""
        return self.columns()

    def check_cells(self, candidate: Expression, axes: tuple[Axis, ...]) -> None:
        """``QueryError`` where the score is not defined for the cells of a candidate."""


def over_last(combine: np.ufunc, values: np.ndarray) -> np.ndarray:
    """Combines the last axis of integers, such as ``np.add`` or ``np.maximum`` of all classes.

    numpy's own reduction goes along each row, which takes several times as long where rows are
    short: few positions are combined one after the other instead, each for all rows at once.
    """
    if not 0 < values.shape[-1] <= FEW_POSITIONS:
        combined: np.ndarray = combine.reduce(values, axis=-1)
        return combined
    exact = values if values.dtype == object else values.astype(np.int64, copy=False)
    return reduce(combine, np.moveaxis(exact, -1, 0))
