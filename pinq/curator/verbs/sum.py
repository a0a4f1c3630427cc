# SPDX-License-Identifier: Apache-2.0
"""``noisy_sum``: a sum of whole units + DLap(largest / epsilon), in the column's own units.

Cell k of the grid counts as ``factor * k + offset`` units, the largest unit of which the numbers of
all cells are whole multiples. A column from 10 to 100 in steps of 10 has cells of 14.5, 24.5, ...:
29, 49, ... units of 0.5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from pinq.curator.prepared import Counted, Noise, PreparedQuery, Released, about, grid_error
from pinq.engine.tables import MAX_SUM, Moments
from pinq.errors import QueryError
from pinq.public.epsilon import figures, laplace_interval
from pinq.public.parts import PartSet
from pinq.public.queries import Sum
from pinq.public.schema import Numeric, Schema

__all__ = ["prepare"]


@dataclass(frozen=True)
class _Units:
    """A column's numbers as whole multiples of a unit."""

    unit: Fraction
    factor: int
    offset: int
    largest: int

    @classmethod
    def of(cls, column: Numeric) -> _Units:
        origin, width = column.origin, column.width
        # Of origin 29/2 and width 10/1: gcd(29 * 1, 10 * 2) / (2 * 1) = 1/2, so cell k is 20 k + 29
        # units.
        shared = math.gcd(origin.numerator * width.denominator, width.numerator * origin.denominator)
        unit = Fraction(shared, origin.denominator * width.denominator)
        factor, offset = int(width / unit), int(origin / unit)
        return cls(unit, factor, offset, max(abs(offset), abs(factor * (column.cells - 1) + offset)))

    def total(self, rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Adds up units, exact up to 2^62, from the rows and sums of codes of each part; int64."""
        # Cells 1 and 3 of the grid above: codes add up to 4, so 20 * 4 + 29 * 2 = 138 units of 1/2,
        # or 69. In Python's integers: where the policy's cap was wrong, 64 bits may not do.
        exact = self.factor * codes.astype(object) + self.offset * rows.astype(object)
        return np.clip(exact, -MAX_SUM, MAX_SUM).astype(np.int64)


def prepare(question: Sum, parts: PartSet, schema: Schema) -> PreparedQuery:
    """Prepares a sum.

    Privacy:
        Adjacency: add or remove one row. Claim: epsilon-DP for the whole collection.
        Why: a row adds at most ``largest`` units to one part (privacy.md 2.2). No table that the
        policy admits has a sum beyond 2^62 units. One with more rows may: its sums stop there, and
        to stop at a public bound moves no two sums apart.
    """
    column = schema.addable(question.column)
    units = _Units.of(column)
    if units.largest * schema.max_rows >= MAX_SUM:
        raise QueryError(
            f"sums of `{question.column}` could pass 2^62 units of {float(units.unit):g}; "
            "the provider must declare rounder bounds or a larger step."
        )

    def noise(epsilon: Fraction) -> Noise:
        scale = float(units.largest / epsilon)
        within = laplace_interval(scale, 0.95) * float(units.unit)
        error = f"each sum is within ±{figures(within, 6)} of the truth in 95 % of cases, {grid_error(column)}"
        return Noise(error, scale * float(units.unit), float(units.unit))

    def release(slices: Iterable[Counted], epsilon: Fraction) -> Released:
        sums: list[float] = []
        for counted in slices:
            exact = units.total(counted.array()[..., 0], counted.array()[..., 1])
            noisy = counted.noisy(exact, units.largest, epsilon)
            sums += [float(value * units.unit) for value in noisy.tolist()]
        return Released(sums)

    what = about(f"noisy_sum of {question.column}", parts)
    return PreparedQuery(
        parts=parts, about=what, noise=noise, release=release, measure=Moments(question.column), draws=1
    )
