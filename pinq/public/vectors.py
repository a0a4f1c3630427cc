# SPDX-License-Identifier: Apache-2.0
"""The vectors of derivatives, row by row: functions of a row's places that give whole numbers.

``derivatives.py`` says what is declared; here is what it means for a row. All is integer arithmetic
on public tables, of which alone floating point is part, so a vector follows from its row and not
from where in an array the row stands. No vector is longer than ``bound``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pinq.public.packing import Packing
from pinq.public.points import POINTS, RowScores
from pinq.public.specs import Axis

__all__ = ["UNIT", "JointVectors", "LogisticVectors", "ResidualVectors", "RowVectors", "SoftmaxVectors", "clipped"]

UNIT = 2**16  # of derivatives of a probability
STEEPEST = 8 * POINTS  # beyond 8 logits a probability is below 0.0004: scores stop there
ODDS_BITS = 30
AT_ONCE = 2**16  # numbers that are computed together: they fit into a core's cache


class RowVectors(ABC):
    """The vectors of derivatives under a schema: a function of a row's parts along some axes.

    Args:
        scores: The model's scores.
        target: The axis of what it predicts.
        ranges: The least and the most that each entry of a vector may be.

    Attributes:
        inputs: The axes.
        width: Entries of a vector.
        steps: How many look-ups and additions it takes for a row.
        packing: How a vector stands in words.
        bound: No vector has a larger L1 norm, in whole units.
        gradient_bound: The same of its gradient alone, in the units of ``Derivatives.gradients``.
    """

    bound: int
    gradient_bound: int

    def __init__(self, scores: RowScores, target: Axis, ranges: Sequence[tuple[int, int]]) -> None:
        self.scores, self.target = scores, target
        self.inputs, self.width = (*scores.axes, target), len(ranges)
        self.steps, self.packing = scores.steps + 2 * self.width, Packing.of(ranges)

    @abstractmethod
    def words(self, scores: np.ndarray, target: np.ndarray) -> np.ndarray:
        """The packed vectors of rows, int64, shape (words, rows).

        Args:
            scores: Each row's scores, int64, shape (scores, rows). They may be changed.
            target: Its place along the axis of the target, shape (rows,).
        """

    def over(self, joint: Sequence[tuple[Axis, ...]]) -> JointVectors:
        """The same vectors, looked up in the cells of joint tables where those have the axes."""
        return JointVectors(self, self.scores.over(joint))

    def of(self, places: Sequence[np.ndarray]) -> np.ndarray:
        """The vectors of rows, int64, shape (width, rows).

        Args:
            places: Each row's place along each of ``inputs``, shape (rows,) each, below
                ``axis.slots``: where an axis has a slot more than parts, it is for rows in none.
        """
        alone, (*inner, target) = self.over(()), places
        return self.packing.unpacked(alone.of([*alone.scores.cells(inner), target]))


@dataclass(frozen=True, eq=False)
class JointVectors:
    """Vectors of which the scores are looked up in cells of joint tables.

    Attributes:
        vectors: The function of a row.
        scores: Its scores over tables whose cells are known of each row: finished before rows are read.
    """

    vectors: RowVectors
    scores: RowScores

    @property
    def cells(self) -> tuple[tuple[Axis, ...], ...]:
        """The axes of each table in which a row's cell has to be known."""
        return (*(term.axes for term in self.scores.terms), (self.vectors.target,))

    def of(self, cells: Sequence[np.ndarray]) -> np.ndarray:
        """The packed vectors of rows, int64, shape (words, rows), some rows at a time.

        Args:
            cells: Each row's cell in each of the tables ``cells``, shape (rows,) each.
        """
        rows, step = len(cells[-1]), AT_ONCE // self.vectors.width
        if rows <= step:
            return self._of_few(cells)
        words = np.empty((self.vectors.packing.words, rows), dtype=np.int64)
        for start in range(0, rows, step):
            block = slice(start, start + step)
            words[:, block] = self._of_few([own[block] for own in cells])
        return words

    def _of_few(self, cells: Sequence[np.ndarray]) -> np.ndarray:
        *inner, target = cells
        return self.vectors.words(self.scores.added(inner, len(target)), target)


class LogisticVectors(RowVectors):
    """Looks the vectors up in a table of shape (2, classes, scores)."""

    def __init__(self, scores: RowScores, target: Axis, positive: np.ndarray, limit: int) -> None:
        table = _logistic_table(limit)
        sizes = np.abs(table)
        super().__init__(scores, target, [(int(line.min()), int(line.max())) for line in table])
        self.bound, self.gradient_bound = int(sizes.sum(axis=0).max()), int(sizes[0].max())
        # The table's lines of both classes are end to end: score 0 is in the middle of each.
        self._table = self.packing.packed(table.reshape(self.width, -1))
        self._middle = positive * table.shape[-1] + STEEPEST

    def words(self, scores: np.ndarray, target: np.ndarray) -> np.ndarray:
        """The packed vectors of rows."""
        entry = np.clip(scores[0], -STEEPEST, STEEPEST, out=scores[0])
        entry += self._middle.take(target)
        return self._table.take(entry, axis=1)


@lru_cache(maxsize=8)
def _logistic_table(limit: int) -> np.ndarray:
    """Tabulates ``Logistic``: (gradient, hessian) by class and score, shape (2, 2, scores)."""
    # At score 0, p is .5: a row of the class adds (.5, .25), another one (-.5, .25), both of norm
    # .75.
    p = 1 / (1 + np.exp(-np.arange(-STEEPEST, STEEPEST + 1) / POINTS))
    vectors = np.stack([np.stack([-p, 1 - p]), np.stack([p * (1 - p)] * 2)])
    table = clipped(np.rint(vectors * UNIT).astype(np.int64).reshape(2, -1), limit).reshape(vectors.shape)
    table.flags.writeable = False
    return table


class SoftmaxVectors(RowVectors):
    """Computes the vectors in whole numbers, from a table of odds, and clips them."""

    def __init__(self, scores: RowScores, target: Axis, hessian: bool, limit: int) -> None:
        classes = len(scores.base)
        super().__init__(scores, target, [(-UNIT, UNIT)] * classes + [(0, UNIT // 4)] * classes * hessian)
        self._hessian = hessian
        self.bound = self.gradient_bound = limit

    def words(self, scores: np.ndarray, target: np.ndarray) -> np.ndarray:
        """The packed vectors of rows."""
        table = _odds_table()
        # Only gaps to the largest score count, so no exponential is above 1.
        odds = table.take(np.clip(scores.max(axis=0) - scores, 0, len(table) - 1))
        total = odds.sum(axis=0)
        # Scores 0 and -256 are odds of 2^30 and 2^30 / e: shares of 47,911 and 17,625 of 2^16.
        share = (2 * UNIT * odds + total) // (2 * total)
        gradient = -share
        gradient[target, np.arange(len(target))] += UNIT
        vectors = gradient
        if self._hessian:
            vectors = np.concatenate([gradient, (share * (UNIT - share) + UNIT // 2) // UNIT])
        return self.packing.packed(clipped(vectors, self.bound))


@lru_cache(maxsize=1)
def _odds_table() -> np.ndarray:
    """exp(-gap / 256) in units of 2^-30, for each gap to the largest score; 0 from the last on."""
    gaps = np.arange(math.ceil((ODDS_BITS + 1) * math.log(2) * POINTS) + 1)
    table = np.rint(2**ODDS_BITS * np.exp(-gaps / POINTS)).astype(np.int64)
    table.flags.writeable = False
    return table


class ResidualVectors(RowVectors):
    """Clamps and bins in integers.

    A residual r of 1/256 cells is 2 r, or limit + r and limit - r, of 1/512.
    """

    def __init__(self, scores: RowScores, target: Axis, cells: int, limit: int, rows: bool) -> None:
        super().__init__(scores, target, [(0, 2 * limit)] * 2 if rows else [(-2 * limit, 2 * limit)])
        self._cells, self._rows, self._limit = cells, rows, limit
        self.bound = self.gradient_bound = 2 * limit

    def words(self, scores: np.ndarray, target: np.ndarray) -> np.ndarray:
        """The packed vectors of rows."""
        # A row in cell 12 with a score of 10 cells: 2 cells, 512 of 1/256. Clamped at 256, its
        # entries are 512 and 0 of 1/512; at 1,024 they are 1,536 and 512.
        residual = target.astype(np.int64) * POINTS - scores[0]
        residual = np.clip(residual, -self._limit, self._limit)
        entries = [self._limit + residual, self._limit - residual] if self._rows else [2 * residual]
        return self.packing.packed(np.stack(entries) * (target < self._cells))


def clipped(vectors: np.ndarray, limit: int) -> np.ndarray:
    """Shortens vectors whose L1 norm passes a limit, in proportion; in whole numbers.

    Example:
        With limit 10, (9, -6) of norm 15 becomes (9 * 10 // 15, -(6 * 10 // 15)) = (6, -4).

    Args:
        vectors: int64, shape (width, vectors); entries below 2^31 in size.
        limit: At most 2^31.

    Returns:
        Vectors of norm at most ``limit``: each entry is rounded towards 0, so they add up to no
        more than limit * norm / norm.
    """
    # A vector that is no longer than the limit is multiplied by it and divided by it: it stays.
    sizes = np.abs(vectors)
    longest = np.maximum(sizes.sum(axis=0), limit)
    sizes *= limit
    sizes //= longest
    sizes *= np.sign(vectors)
    return sizes
