# SPDX-License-Identifier: Apache-2.0
"""An attribute knows the splits of its column: it is a numeric one, or a categorical one.

``attribute_of`` is the only place that looks at a column's class.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from miners.fitted.node import Split
from pinq.errors import QueryError
from pinq.public.checks import is_listing, is_whole
from pinq.public.columns import CutPoint
from pinq.public.parts import Part
from pinq.public.schema import Categorical, Numeric, Schema
from pinq.public.specs import MAX_GROUPINGS, AnyCut, AnyGrouping, Cuts, Groups, Values

__all__ = ["BINS", "MAX_BINS", "Attribute", "Ways", "attribute_of", "even_edges"]

BINS = 10
MAX_BINS = 4096
GOOD_CUTS = 20  # one grid point in so many is about as good a cut as the best
Ways = Literal["values", "groups"]


class Attribute(ABC):
    """A column by which nodes may be split."""

    @property
    @abstractmethod
    def family(self) -> AnyCut | AnyGrouping:
        """All splits in two, for the mechanism to choose from."""

    @property
    @abstractmethod
    def cut_or_values(self) -> AnyCut | Values:
        """A cut that the mechanism chooses, or the split into all values where there is none."""

    @property
    @abstractmethod
    def candidates(self) -> int:
        """Roughly how many different splits in two there are."""

    @abstractmethod
    def multiway(self, cutting: Sequence[CutPoint] | int | None) -> Values | Cuts:
        """Returns the split into many parts.

        Args:
            cutting: For a number its cut points, or a number of intervals of equal width; None for
                the cuts that the policy declares, else ``BINS`` intervals.

        Raises:
            QueryError: ``cutting`` is something else.
        """

    @abstractmethod
    def random_split(
        self, part: Part, used: set[str | None], categorical: Ways, random: np.random.Generator
    ) -> Split | None:
        """Draws a split of a part; None where the splits above leave nothing to split.

        Args:
            part: Where the node is.
            used: Columns by which the path has split.
            categorical: Whether categories are split into all values or two random groups.
            random: Draws what is random and public.
        """


@dataclass(frozen=True)
class NumericAttribute(Attribute):
    """A numeric column, which is cut at points of its public grid."""

    name: str
    column: Numeric

    @property
    def family(self) -> AnyCut:
        """Every cut at a grid point."""
        return AnyCut(self.name)

    @property
    def cut_or_values(self) -> AnyCut:
        """Every cut at a grid point."""
        return self.family

    @property
    def candidates(self) -> int:
        """Roughly how many different cuts there are."""
        return min(GOOD_CUTS, self.column.cells - 1)

    def multiway(self, cutting: Sequence[CutPoint] | int | None) -> Values | Cuts:
        """Returns the split at several cut points."""
        if cutting is None:
            cutting = self.column.declared_cuts or BINS
        if is_whole(cutting):
            if not 2 <= cutting <= MAX_BINS:
                raise QueryError(f"`cuts` asks for {cutting} intervals of `{self.name}`; it must be 2 to {MAX_BINS:,}.")
            points = even_edges(self.name, self.column, int(cutting))
            # A nullable column of a single cell has no cut, but missing and present are two parts.
            return Cuts(self.name, points) if points else Values(self.name)
        if not is_listing(cutting):
            raise QueryError(
                f"`cuts` of `{self.name}` is {cutting!r}; it must be a list of cut points or a number of intervals."
            )
        return Cuts(self.name, tuple(cutting))

    def random_split(
        self, part: Part, used: set[str | None], categorical: Ways, random: np.random.Generator
    ) -> Split | None:
        """Draws a cut of what the splits above have left of the grid."""
        low, high = part.interval(self.name, self.column)
        if high - low <= 1:
            return None
        return Cuts(self.name, (self.column.cut_before(int(random.integers(low + 1, high))),))


@dataclass(frozen=True)
class CategoricalAttribute(Attribute):
    """A categorical column, which is split into its values or into groups of them."""

    name: str
    column: Categorical

    @property
    def family(self) -> AnyGrouping:
        """Every bipartition of the values."""
        return AnyGrouping(self.name)

    @property
    def cut_or_values(self) -> Values:
        """All values."""
        return Values(self.name)

    @property
    def candidates(self) -> int:
        """How many bipartitions there are, at most as many as the layer tries."""
        return min(2 ** (self.column.codes - 1) - 1, MAX_GROUPINGS)

    def multiway(self, cutting: Sequence[CutPoint] | int | None) -> Values:
        """Returns the split into all values."""
        return Values(self.name)

    def random_split(
        self, part: Part, used: set[str | None], categorical: Ways, random: np.random.Generator
    ) -> Split | None:
        """Draws two groups, or takes all values; not twice on the same path."""
        if self.name in used:
            return None
        return Values(self.name) if categorical == "values" else self._random_groups(random)

    def _random_groups(self, random: np.random.Generator) -> Groups:
        """Draws a bipartition of all values, each about as likely as any other."""
        order = random.permutation(self.column.codes)
        # A coin for each value, but two random values are put on different sides.
        first = random.random(self.column.codes) < 0.5
        first[order[0]], first[order[1]] = True, False  # none is empty
        pairs = list(zip(self.column.labels, first.tolist(), strict=True))
        chosen = tuple(label for label, in_first in pairs if in_first)
        others = tuple(label for label, in_first in pairs if not in_first)
        return Groups(self.name, (chosen, others))


def attribute_of(schema: Schema, name: str) -> Attribute:
    """Returns the attribute of a column."""
    numeric = schema.numeric_columns.get(name)
    return CategoricalAttribute(name, schema.categorical(name)) if numeric is None else NumericAttribute(name, numeric)


def even_edges(name: str, column: Numeric, bins: int) -> tuple[CutPoint, ...]:
    """Returns inner edges of ``bins`` intervals of equal width over a declared range.

    Edges that fall into the same cell of the column's grid count once, so a coarse column gets
    fewer. Those of a column of whole numbers are rounded up to whole numbers, which changes no
    split.
    """
    # From 0 to 10 in four: 2.5, 5 and 7.5, of whole numbers 3, 5 and 8.
    lower, upper = Fraction(column.lower), Fraction(column.upper)
    points: dict[int, CutPoint] = {}
    for number in range(1, bins if column.cells > 1 else 1):
        edge = lower + (upper - lower) * number / bins
        rounded = Fraction(math.ceil(edge)) if column.integer else edge
        if lower < rounded <= upper:
            point = column.point(rounded)
            points.setdefault(column.threshold(point, name), point)
    return tuple(points[threshold] for threshold in sorted(points))
