# SPDX-License-Identifier: Apache-2.0
"""Into which cells attributes are cut, by the public schema and the caller alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from miners.growth.candidates import attribute_names, equal_width, multiway_splits
from pinq.errors import QueryError
from pinq.public.columns import CutPoint
from pinq.public.schema import Numeric, Schema
from pinq.public.specs import Cuts, Values

__all__ = ["Grid", "attribute_cells", "public_cuts", "refined"]

MOST = 32  # intervals of equal width
FINE = 100  # the round numbers 2 and 5 are cuts from this part of the range up
Cutting = Mapping[str, Sequence[CutPoint] | int]


@dataclass(frozen=True)
class Grid:
    """How numeric attributes are cut about which nobody said anything.

    Attributes:
        widths: Intervals of equal width.
        fine: Whether 2 and 5 times powers of ten are cuts beside the powers.
    """

    widths: int
    fine: bool = True

    @classmethod
    def of_steps(cls, size: float) -> Grid:
        """Returns the grid of a card that is learned in steps.

        A cell's error falls with its width and rises with its noise: the best number of cells grows
        with a root of ``size``, rows times epsilon; 10 at 5,000 (docs/defaults.md).
        """
        return cls(_root(10, size / 5000, 0.3, 4))

    @classmethod
    def of_tables(cls, size: float) -> Grid:
        """Returns the grid of a card whose first tables are of all attributes.

        Args:
            size: Rows times epsilon for each attribute and class.
        """
        return cls(_root(4, size / 20, 0.2, 3), fine=False)


def public_cuts(schema: Schema, name: str, grid: Grid) -> tuple[CutPoint, ...]:
    """Returns cuts of a column about which nobody said anything: equal widths, and round numbers.

    Sums of money and counts crowd near zero, where equal widths are too wide. So the powers of ten
    down to the column's grid are cuts too (and their negatives, and zero), and in the upper two
    decades 2 and 5 times those: on 0 to 100,000 also 1, 10, 100, 1,000, 2,000, 5,000, ...
    """
    column = schema.numeric(name)
    points = [*equal_width(schema, name, grid.widths)]
    if not column.unit:  # the thousandth day since 1970 is no round date
        points += _round_numbers(column, grid.fine)
    distinct = {column.threshold(point, name): point for point in points if column.cells > 1}
    return tuple(distinct[threshold] for threshold in sorted(distinct))


def attribute_cells(
    schema: Schema, target: str | None, attributes: Sequence[str] | None, cuts: Cutting | None, grid: Grid
) -> tuple[Values | Cuts, ...]:
    """Returns the cells of each attribute: declared or given cuts, else ``public_cuts``.

    Raises:
        QueryError: An unknown, repeated or unusable column; cuts of a column that has none.
    """
    if cuts is not None and not isinstance(cuts, Mapping):
        raise QueryError(f"`cuts` is {cuts!r}; it must map names of numeric columns to cut points.")
    chosen: dict[str, Sequence[CutPoint] | int] = {}
    for name in attribute_names(schema, target, attributes):
        if name in schema.numeric_columns and not schema.numeric_columns[name].cuts:
            points = public_cuts(schema, name, grid)
            chosen |= {name: points} if points else {}
    return multiway_splits(schema, target, attributes=attributes, cuts={**chosen, **(cuts or {})})


def refined(first: Cuts, second: Cuts, schema: Schema) -> Cuts:
    """Returns the cuts of both, which are of the same column.

    Cuts at 30, and cuts at 20 and 40, become cuts at 20, 30 and 40.
    """
    name = first.column
    column = schema.numeric(name)
    points = {column.threshold(point, name): point for point in (*first.points, *second.points)}
    return Cuts(name, tuple(points[threshold] for threshold in sorted(points)))


def _round_numbers(column: Numeric, fine: bool) -> Iterator[float]:
    """Yields the round numbers within a column's range, and zero."""
    # From 0 to 1,000 by ones: 1, 10 and 100, from 10 on with 2 and 5 times those (10 * 100 reaches
    # the range), and 1,000 itself.
    largest = max(abs(column.lower), abs(column.upper))
    span, width = column.upper - column.lower, Decimal(float(column.width))
    sizes = {Decimal(0)}
    power = Decimal(1).scaleb(width.adjusted())
    while power <= largest:
        digits = (1, 2, 5) if fine and power * FINE >= span else (1,)
        sizes |= {digit * power for digit in digits if digit * power >= width}
        power *= 10
    for number in sorted({sign * size for size in sizes for sign in (-1, 1)}):
        if column.lower < number <= column.upper:
            yield float(number)


def _root(at_one: int, size: float, power: float, least: int) -> int:
    """Returns a number of cells that grows with a power of a size, ``MOST`` at most."""
    # 50,000 rows at epsilon 1 are 10 times 5,000: 10 * 10^.3 = 20 intervals.
    return min(max(least, round(at_one * max(size, 0.0) ** power)), MOST)
