# SPDX-License-Identifier: Apache-2.0
"""``Quantiles`` finds several quantiles of a column, of all groups at once.

First by halving: the middle one of the quantiles is chosen by ``exp_mech`` among all cuts with
``Balance(share)``. It cuts the rows in two, which are disjoint: on each side the middle one of the
quantiles that are left is chosen next, and both sides cost what one costs. So k quantiles take
about log2(k + 1) choices on the way of a row, not k. Quartiles of ages: the median 37 first, then
the median of those below and the median of those above.

Then by counting, twice: rows between points around the chosen cuts, and rows in the cells that
those counts leave to each quantile. They correct a cut beside a value that many rows share, and say
within which bounds each quantile lies (``crossings.py``).

Privacy:
    Nothing is released here but answers of ``exp_mech`` and ``noisy_count``; where to count follows
    from answers that were released before, so losses add up (adaptive composition). Held by:
    tests/unit/tables/test_tables.py, which compares the bill with the plan, and
    tests/privacy/test_quantiles_and_spreads.py, which looks for more than the bill in what
    neighbours show.

References:
    Kaplan, Schnapp & Stemmer 2022, "Differentially private approximate quantiles" (recursion).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

import numpy as np

from miners.budget.plan import PlanLine
from miners.tables.arguments import divided, require_parts
from miners.tables.columns import cells_left, count_line, counts_between
from miners.tables.crossings import Counted, finer_points, ladder, located, most_finer, most_rungs
from pinq.analyst.queryable import Parts
from pinq.errors import QueryError
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Numeric, Schema
from pinq.public.scores import Balance
from pinq.public.specs import AnyCut, Cuts

__all__ = ["Quantiles", "levels_of", "shares_of"]

MAX_QUANTILES = 64


@dataclass(frozen=True)
class Located:
    """Quantiles of each group, numbers or dates, all of shape (groups, quantiles)."""

    value: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Quantiles:
    """Which quantiles of which column.

    Attributes:
        schema: The public columns.
        column: A numeric column.
        shares: The share of rows below each quantile, increasing.
        epsilon: Loss of all.
        level: Of the intervals.
        reuse: Whether stored answers will do.
    """

    schema: Schema
    column: str
    shares: tuple[Fraction, ...]
    epsilon: Epsilon
    level: float
    reuse: bool = False

    @property
    def _numeric(self) -> Numeric:
        return self.schema.numeric(self.column)

    @property
    def _losses(self) -> list[Epsilon]:
        """Losses of the levels of choices, together a half, and of both counts."""
        levels = levels_of(len(self.shares))
        return divided(self.epsilon, [5] * levels + [2 * levels, 3 * levels])

    def lines(self, groups: int) -> tuple[PlanLine, ...]:
        """The plan's lines: a level of choices each, then the counts."""
        if self._numeric.cells < 2:  # its value is public
            return ()
        require_parts(groups * len(self.shares))
        asked = f"cuts of {self.column} at quantiles"
        lines = [
            PlanLine(level, asked, "exp_mech", groups * min(2**level, len(self.shares)), loss.exact)
            for level, loss in enumerate(self._losses[:-2])
        ]
        counts = [
            (f"rows around the cuts of {self.column}", most_rungs(self._numeric.cells, len(self.shares))),
            (f"rows near the quantiles of {self.column}", most_finer(self._numeric.cells, len(self.shares))),
        ]
        return (
            *lines,
            *(
                count_line(self.schema, text, groups * bins, loss)
                for (text, bins), loss in zip(counts, self._losses[-2:], strict=True)
            ),
        )

    def ask(self, groups: Parts) -> Located:
        """Asks, for each of the groups, which are a flat collection."""
        shape = (len(groups), len(self.shares))
        if self._numeric.cells < 2:
            value = self._numeric.shown(np.full(shape, self._numeric.number(0)))
            return Located(value, value, value)
        thresholds = np.zeros(shape, dtype=np.int64)
        left = cells_left(groups, self.column, self._numeric)
        level = [_Side.whole(groups, len(self.shares), left[:, 0])]
        for loss in self._losses[:-2]:
            level = [below for sides in _alike(level, self.shares) for below in self._halve(sides, thresholds, loss)]
        return self._bounded(groups, thresholds, left)

    def _halve(self, sides: Sequence[_Side], thresholds: np.ndarray, loss: Epsilon) -> Iterator[_Side]:
        """Chooses the middle quantile of each side, in one request; yields the next sides."""
        parts = Parts.union(*(side.parts for side in sides))
        score = Balance(str(sides[0].relative(self.shares)))
        chosen = parts.exp_mech([AnyCut(self.column)], score=score, epsilon=loss.exact, reuse=self.reuse)
        # Sides of 2 groups and of 1: the first two answers are of the first side, the third of the
        # second.
        start = 0
        for side in sides:
            cuts = cast("Sequence[Cuts | None]", chosen[start : start + len(side.groups)])  # of `AnyCut`
            start += len(side.groups)
            yield from self._sides(side, cuts, thresholds)

    def _sides(self, side: _Side, cuts: Sequence[Cuts | None], thresholds: np.ndarray) -> Iterator[_Side]:
        middle = side.middle
        # A part of a single cell has nothing to cut: all its quantiles are that cell.
        single = np.array([cut is None for cut in cuts], dtype=bool)
        thresholds[side.groups[single, None], side.quantiles] = side.first[single, None]
        cells = np.array([self._numeric.threshold(cut.points[0], self.column) for cut in cuts if cut is not None])
        groups = side.groups[~single]
        thresholds[groups, middle] = cells
        if not len(groups) or len(side.quantiles) == 1:
            return
        halves = side.parts[~single].partition([cut for cut in cuts if cut is not None])
        children = 2 + int(self._numeric.nullable)
        # Of each group come the parts below, above and, where there are such, missing: of three,
        # the parts 0, 3, 6, ... are below and 1, 4, 7, ... above.
        before, after = side.quantiles[side.quantiles < middle], side.quantiles[side.quantiles > middle]
        if len(before):
            parts = halves[np.arange(len(groups)) * children]
            yield _Side(parts, groups, before, side.first[~single], side.lower, middle)
        if len(after):
            parts = halves[np.arange(len(groups)) * children + 1]
            yield _Side(parts, groups, after, cells, middle, side.upper)

    def _bounded(self, groups: Parts, thresholds: np.ndarray, left: np.ndarray) -> Located:
        """Counts rows around the chosen cuts, twice; returns the quantiles with their bounds.

        They lie among the cells that are ``left`` to their group, which are public.
        """
        around, near = self._losses[-2:]
        first = self._count(groups, [ladder(row, self._numeric.cells) for row in thresholds], around)
        finer = [finer_points(*group, self.shares) for group in zip(first, thresholds, strict=True)]
        counted = list(zip(first, self._count(groups, finer, near), strict=True))
        # For each group a row of (cell, low, high), one for each quantile: shape (groups,
        # quantiles, 3).
        cells = [
            [located(cut, both, share, self.level) for cut, share in zip(row, self.shares, strict=True)]
            for row, both in zip(thresholds, counted, strict=True)
        ]
        within = np.clip(np.array(cells), left[:, :1, None], left[:, 1:, None] - 1)
        numbers = np.vectorize(self._numeric.number, otypes=[float])(np.moveaxis(within, -1, 0))
        return Located(*self._numeric.shown(numbers))

    def _count(self, groups: Parts, points: Sequence[np.ndarray], loss: Epsilon) -> list[Counted]:
        """Counts the rows of each group between its points, in one request."""
        bins, scale = counts_between(groups, self._numeric, self.column, points, loss, reuse=self.reuse)
        return [Counted(row, own, scale, self._numeric.cells) for row, own in zip(points, bins, strict=True)]


@dataclass(frozen=True)
class _Side:
    """One side of the cuts above, of each group that has it, with the quantiles that lie there.

    Attributes:
        parts: Of each group the part on this side.
        groups: Which groups these are.
        quantiles: The numbers of the quantiles, increasing.
        first: The first cell of each part.
        lower: The quantile at the lower end; -1 for none.
        upper: The quantile at the upper end; as many as there are for none.
    """

    parts: Parts
    groups: np.ndarray
    quantiles: np.ndarray
    first: np.ndarray
    lower: int
    upper: int

    @classmethod
    def whole(cls, groups: Parts, quantiles: int, first: np.ndarray) -> _Side:
        """All rows of each group, whose first cells these are."""
        return cls(groups, np.arange(len(groups)), np.arange(quantiles), first, -1, quantiles)

    @property
    def middle(self) -> int:
        """The quantile that is chosen here."""
        return int(self.quantiles[len(self.quantiles) // 2])

    def relative(self, shares: Sequence[Fraction]) -> Fraction:
        """The share of this side's rows that lie below its middle quantile.

        Example: between the quantiles 1/2 and 1 the quantile 3/4 is the median.
        """
        below, above = (Fraction(0), *shares)[self.lower + 1], (*shares, Fraction(1))[self.upper]
        return (shares[self.middle] - below) / (above - below)


def shares_of(shares: Sequence[float | str | Fraction]) -> tuple[Fraction, ...]:
    """Reads and sorts shares of rows. ``QueryError`` unless they differ, between 0 and 1."""
    weights = [Balance(_exact(share)).weights for share in shares]
    listed = sorted({Fraction(above, below + above) for below, above in weights})
    if not 0 < len(listed) == len(shares) <= MAX_QUANTILES:
        raise QueryError(
            f"is {list(shares)!r}",
            parameter="shares",
            allowed=f"1 to {MAX_QUANTILES} different numbers between 0 and 1",
        )
    return tuple(listed)


def levels_of(quantiles: int) -> int:
    """Returns how many levels find so many quantiles: 1 for 1, 2 for 2 and 3, 3 for 4 to 7."""
    return quantiles.bit_length()


def _exact(share: float | str | Fraction) -> float | str:
    return str(share) if isinstance(share, Fraction) else share


def _alike(sides: Sequence[_Side], shares: Sequence[Fraction]) -> list[list[_Side]]:
    """Collects the sides whose middle quantile is at the same share: one request each."""
    alike: dict[Fraction, list[_Side]] = {}
    for side in sides:
        alike.setdefault(side.relative(shares), []).append(side)
    return list(alike.values())
