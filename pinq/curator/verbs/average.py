# SPDX-License-Identifier: Apache-2.0
"""``noisy_avg``: a noisy average from two noisy bins.

A row in cell k adds k to the bin U and G - k to the bin L, where G is the last cell: U / (U + L)
says how far between the first cell and the last one the average lies. Cells are counted from the
first one of the range to which the question clamps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from pinq.curator.prepared import Counted, Noise, PreparedQuery, Released, about, grid_error
from pinq.engine.tables import Moments
from pinq.public.epsilon import figures
from pinq.public.parts import PartSet
from pinq.public.queries import Average
from pinq.public.schema import Schema

__all__ = ["prepare"]

EXAMPLE_ROWS = (100, 10_000)  # for which a preview says how exact an average is


def prepare(question: Average, parts: PartSet, schema: Schema) -> PreparedQuery:
    """Prepares an average: U + DLap(G / epsilon), L + DLap(G / epsilon).

    Privacy:
        Adjacency: add or remove one row. Claim: epsilon-DP for the whole collection.
        Why: the pair's L1 sensitivity is exactly G, so both together cost epsilon; the ratio is
        post-processing, and so is the number of rows, (U + L) / G. (A mean with noise scaled by the
        private number of rows would not be private; privacy.md 2.3.) A narrower public range clamps
        each row by itself and makes G smaller.
        Exact: G is below 2^24, so 64 bits hold the bins of 2^38 rows, as many as the engine adds
        up.
    """
    column = schema.numeric(question.column)
    first, end = question.cells(schema)
    last = end - first

    def noise(epsilon: Fraction) -> Noise:
        spread = float(column.width * last) * float(1 / epsilon)
        error = f"{_average_error(spread, schema.max_rows, column.unit)}, {grid_error(column)}"
        return Noise(error, spread, float(column.width), uniform=False)

    def release(slices: Iterable[Counted], epsilon: Fraction) -> Released:
        pairs: list[tuple[int, int]] = []
        for counted in slices:
            # Of a grid whose last cell is 10, rows in cells 2 and 7 add 9 to the upper bin and 11
            # to the lower one: their average lies 9 / 20 of the way up.
            rows, upper = counted.array()[..., 0], counted.array()[..., 1]
            bins = counted.noisy(np.stack([upper, last * rows - upper]), last, epsilon)
            pairs += zip(*bins.tolist(), strict=True)
        averages = [column.number(first + last * _share(up, low)) for up, low in pairs]
        return Released(averages, rows=tuple((up + low) / max(1, last) for up, low in pairs))

    within = "" if question.within is None else " from {} to {}".format(*question.within)
    what = about(f"noisy_avg of {question.column}{within}", parts)
    measure = Moments(question.column, first=first, last=end)
    return PreparedQuery(parts=parts, about=what, noise=noise, release=release, measure=measure, draws=2)


def _average_error(spread: float, max_rows: int, unit: str) -> str:
    """Says how exact an average is for two sizes of a part; its own size is not public."""
    sizes = sorted({min(rows, max_rows) for rows in EXAMPLE_ROWS})
    errors = [
        f"{figures(spread / rows)} to {figures(spread * math.sqrt(2) / rows)}{unit} over {rows:,} rows"
        for rows in sizes
    ]
    return f"an average has a standard error of about {' and of '.join(errors)}"


def _share(up: int, low: int) -> Fraction:
    """U / (U + L) within [0, 1]; a half where the noise leaves nothing to divide by."""
    if up + low <= 0:
        return Fraction(1, 2)
    return min(Fraction(1), max(Fraction(0), Fraction(up, up + low)))
