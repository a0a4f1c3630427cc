# SPDX-License-Identifier: Apache-2.0
"""Which splits a tree may choose from, by the public schema and the caller alone.

An attribute knows the splits of its column: it is a numeric one, or a categorical one.
``attribute_of`` is the only place that looks at a column's class.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeVar

import numpy as np

from miners.fitted.node import Split
from pinq.errors import QueryError
from pinq.public.checks import is_listing, is_whole
from pinq.public.columns import CutPoint
from pinq.public.epsilon import Epsilon
from pinq.public.parts import Part
from pinq.public.schema import Categorical, Numeric, Schema
from pinq.public.specs import MAX_GROUPINGS, AnyCut, AnyGrouping, Cuts, Family, Groups, Values

__all__ = [
    "MAX_BINS",
    "MAX_LEVELS",
    "CutsByColumn",
    "Ways",
    "attribute_names",
    "attribute_of",
    "by_column",
    "default_depth_note",
    "default_levels",
    "equal_width",
    "families",
    "levels_carried",
    "multiway_splits",
    "random_split",
    "require_attributes",
]

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


MAX_LEVELS = 12  # unless the caller asks for more
FURTHEST = -2.5  # levels: from here on down the first split is noise
CutsByColumn = Mapping[str, Sequence[CutPoint] | int]
"""Of numeric columns: cut points, or a number of intervals of equal width."""
T = TypeVar("T")


def equal_width(schema: Schema, name: str, bins: int) -> tuple[CutPoint, ...]:
    """Returns inner edges of ``bins`` intervals of a numeric column; see ``even_edges``."""
    return even_edges(name, schema.numeric(name), bins)


def multiway_splits(
    schema: Schema,
    target: str | None,
    *,
    attributes: Sequence[str] | None,
    cuts: CutsByColumn | None,
) -> tuple[Values | Cuts, ...]:
    """The candidate splits, one for each attribute.

    Args:
        schema: The public schema.
        target: The column to predict, which is no attribute; None while it is not known.
        attributes: Names of columns; None for all but the target.
        cuts: For numeric attributes a list of cut points, or a number of intervals of equal width.
            Without: the cuts that the policy declares for the column, else ``BINS`` intervals.

    Raises:
        QueryError: An unknown, repeated or unusable column; cuts of a column that has none.
    """
    own_cuts = by_column("cuts", cuts, "names of numeric columns to cut points", schema.numeric)
    names = attribute_names(schema, target, attributes)
    require_attributes("cuts", own_cuts, names)
    return tuple(attribute_of(schema, name).multiway(own_cuts.get(name)) for name in names)


def by_column(
    parameter: str, given: Mapping[str, T] | None, meaning: str, column: Callable[[str], object]
) -> dict[str, T]:
    """Returns a parameter that maps columns to something; empty where it is None.

    Args:
        parameter: Its name.
        given: What the caller passed.
        meaning: What it must map to what.
        column: Looks up a column by its name, or raises.

    Raises:
        QueryError: It is no mapping, or has the name of a column that there is not.
    """
    if given is not None and not isinstance(given, Mapping):
        raise QueryError(f"`{parameter}` is {given!r}; it must map {meaning}.")
    for name in given or {}:
        column(name)
    return dict(given or {})


def require_attributes(parameter: str, named: Iterable[str], attributes: Sequence[str]) -> None:
    """Raises ``QueryError`` where a parameter speaks of a column that is not an attribute."""
    for name in named:
        if name not in attributes:
            raise QueryError(
                f"`{parameter}` names {name!r}, which is not an attribute; the attributes are {', '.join(attributes)}."
            )


def attribute_names(schema: Schema, target: str | None, attributes: Sequence[str] | None) -> list[str]:
    """Returns the columns to split by.

    They are those that were named, else all but the target that have more than one value.

    Raises:
        QueryError: An unknown, repeated or unusable column.
    """
    if attributes is not None and not is_listing(attributes):
        raise QueryError(
            f"is {attributes!r}", parameter="attributes", allowed="a list of names of columns, or None for all"
        )
    names = [name for name in schema.columns if name != target] if attributes is None else list(attributes)
    for name in names:
        schema.column(name)
    if target in names:
        raise QueryError(f"the target `{target}` is among `attributes`.")
    if len(set(names)) != len(names):
        raise QueryError(f"`attributes` names {next(n for n in names if names.count(n) > 1)!r} twice.")
    usable = [name for name in names if schema.columns[name].codes > 1]
    if attributes is not None and len(usable) < len(names):
        left_out = next(name for name in names if name not in usable)
        raise QueryError(f"the attribute `{left_out}` has a single value, so nothing can be split by it.")
    if not usable:
        raise QueryError("there is no attribute to split by.")
    return usable


def families(schema: Schema, names: Sequence[str]) -> tuple[Family, ...]:
    """Returns all splits in two of each attribute, for the mechanism to choose from.

    They are cuts of a numeric attribute, groups of values of a categorical one.
    """
    return tuple(attribute_of(schema, name).family for name in names)


def levels_carried(schema: Schema, names: Sequence[str], rows: float, epsilon: Epsilon, *, fewer: float = 0.0) -> int:
    """Returns how many levels of two-way splits a budget carries.

    Each node's split is one choice from all ``families``.

    A rule of thumb (docs/defaults.md): one level more for each doubling of rows x epsilon, 2.4
    levels less for each doubling of the logarithm of the number of candidates, over which a noisy
    selection blurs scores; and so many ``fewer``.
    """
    return min(max(0, round(_levels(schema, names, rows, epsilon) - fewer)), MAX_LEVELS)


def default_levels(schema: Schema, names: Sequence[str], rows: float, epsilon: Epsilon) -> int:
    """How many levels a tree of classes has where nobody says: what is carried, or one if nearly.

    A very clear split is found with less than the rule demands. Where the rule is further off, the
    majority vote needs all of the budget to stand out of the noise itself.
    """
    return levels_carried(schema, names, rows, epsilon) or int(_levels(schema, names, rows, epsilon) >= FURTHEST)


def default_depth_note(depth: int) -> str:
    """Says where a depth comes from that nobody gave."""
    return f"max_depth is not given; {depth} is what epsilon, max_rows and the attributes let expect to be of use."


def _levels(schema: Schema, names: Sequence[str], rows: float, epsilon: Epsilon) -> float:
    # 100,000 rows at epsilon 1, 50 candidates: lg 100,000 = 16.6, less 2.4 lg ln 51 = 4.7, less
    # 1.4, so 10.5 levels.
    loss = float(epsilon.per_row(schema.distance))
    candidates = sum(attribute_of(schema, name).candidates for name in names)
    return math.log2(max(1.0, rows * loss)) - 2.4 * math.log2(max(1.0, math.log(candidates + 1))) - 1.4


def random_split(
    schema: Schema, names: Sequence[str], part: Part, categorical: Ways, random: np.random.Generator
) -> Split | None:
    """Draws a split by one of the attributes that can still split this part; None where none can.

    It costs nothing: no row is looked at.

    A numeric attribute is cut in two at a random point of what the splits above have left of its
    grid; a categorical one, not again on the same path, is split into its values or into two random
    groups of them.
    """
    used: set[str | None] = {axis.column for partition, _ in part.steps() for axis in partition.axes}
    for number in random.permutation(len(names)).tolist():
        split = attribute_of(schema, names[number]).random_split(part, used, categorical, random)
        if split is not None:
            return split
    return None
