# SPDX-License-Identifier: Apache-2.0
"""One node of a fitted tree: its split, and what noisy answers say about its rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from pinq.errors import QueryError
from pinq.public.accuracy import laplace_interval, standard_deviation
from pinq.public.specs import Cuts, Groups, Values

__all__ = ["Node", "Split"]

NO_NOISE = 1e-3  # rows: less is where the budget was as good as unlimited
Split = Values | Cuts | Groups


@dataclass(frozen=True)
class Node:
    """One node, as its noisy answers describe it.

    Attributes:
        split: The spec by which it is split; None at a leaf.
        children: Positions of its children in the tree's ``nodes``, in the order of the split's
            parts; empty at a leaf.
        size: Noisy number of rows, as released (it may be negative); None where it was not asked.
        size_scale: Scale of the noise in ``size``; see ``miners.budget.noise``.
        counts: Noisy rows of each class, as released or estimated; of an inner node by default the
            sums over its children. Where the target is numeric, each row counts in parts for its
            two ends, by how near it is to each: the mean lies between them in proportion.
        counts_scale: Scale of the noise in each of ``counts`` as released; None where they are sums
            or estimates.
        counts_deviation: Standard deviation of the noise in each of ``counts`` as estimated from
            all answers; the surer a node is of its classes, the less it leans on its parent's. None
            where counts are taken as they are.
    """

    split: Split | None = None
    children: tuple[int, ...] = ()
    size: float | None = None
    size_scale: float | None = None
    counts: tuple[float, ...] = ()
    counts_scale: float | None = None
    counts_deviation: float | None = None

    @property
    def is_leaf(self) -> bool:
        """Whether nothing is below it."""
        return self.split is None

    @property
    def rows(self) -> float:
        """Estimated number of rows, at least 0: the sum of class counts that were estimated from all answers, else the noisy size, else the sum of what there is."""
        return max(0.0, self._number)

    def interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """Bounds that hold the true number of rows with probability ``level``, around ``rows``; None where the noise in it is not known.

        A law of the noise alone: it says nothing about other tables of the same kind. Exact for a
        size that was asked. A sum of counts has many noises in it: it gets the bounds of one
        Laplace variable of its deviation or those of a normal one, the wider of the two, in whole
        rows.

        Raises:
            QueryError: ``level`` is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise QueryError(f"`level` is {level!r}; it must lie between 0 and 1, like 0.95.")
        if self._is_asked:
            wide: float = laplace_interval(self.size_scale or 0.0, level)
        elif (deviation := self._deviation) is not None:
            wide = deviation * _deviations(level)
            wide = math.ceil(wide) if wide > NO_NOISE else 0.0
        else:
            return None
        return max(0.0, self._number - wide), max(0.0, self._number + wide)

    def share_interval(self, level: float = 0.95) -> tuple[float, float] | None:
        """Bounds that hold the true share of the last of two counts with probability ``level`` or more; None where the noise is not known.

        With probability ``level`` both counts are within k of the true ones (each with (1 + level)
        / 2); then the true share lies within k / (sum of both) of theirs, whatever the two are.

        Raises:
            QueryError: ``level`` is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise QueryError(f"`level` is {level!r}; it must lie between 0 and 1, like 0.95.")
        each, rows = self._each_deviation, math.fsum(self.counts)
        if each is None:
            return None
        if rows <= 0:
            return 0.0, 1.0
        share = min(1.0, max(0.0, self.counts[-1] / rows))
        half = each * _deviations((1 + level) / 2) / rows
        return max(0.0, share - half), min(1.0, share + half)

    @property
    def _is_asked(self) -> bool:
        """Whether ``size`` is the best that is known."""
        return self.size is not None and self.size_scale is not None and self.counts_deviation is None

    @property
    def _number(self) -> float:
        return self.size if self._is_asked and self.size is not None else math.fsum(self.counts)

    @property
    def _deviation(self) -> float | None:
        """Standard deviation of the noise in the sum of the counts: one noise each, independent."""
        each = self._each_deviation
        return None if each is None else each * math.sqrt(len(self.counts))

    @property
    def _each_deviation(self) -> float | None:
        if self.counts_deviation is None and self.counts_scale is not None:
            return standard_deviation(self.counts_scale)
        return self.counts_deviation


def _deviations(level: float) -> float:
    """So many standard deviations hold a noise with probability ``level``, be it one Laplace variable or a sum that is nearly normal."""
    return max(-math.log(1 - level) / math.sqrt(2), NormalDist().inv_cdf((1 + level) / 2))
