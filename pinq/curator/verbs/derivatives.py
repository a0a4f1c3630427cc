# SPDX-License-Identifier: Apache-2.0
"""``noisy_sum`` of derivatives: sums of the rows' vectors + DLap(specs * bound / epsilon)."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from pinq.curator.prepared import Counted, Noise, PreparedQuery, Released, about
from pinq.curator.work import NUMBER_BYTES
from pinq.engine.tables import TableRequest
from pinq.errors import QueryError
from pinq.public.epsilon import laplace_interval
from pinq.public.parts import PartSet
from pinq.public.queries import SumDerivatives
from pinq.public.schema import Schema
from pinq.public.specs import MAX_PARTS, bind

__all__ = ["prepare"]


def prepare(question: SumDerivatives, parts: PartSet, schema: Schema) -> PreparedQuery:
    """Prepares sums of derivatives.

    Privacy:
        Adjacency: add or remove one row. Claim: epsilon-DP for the whole collection, all specs and
        all entries together.
        Why: a row is in one part at most, there in one cell at most of each spec, and adds its
        vector to that; vectors have an L1 norm of at most ``bound`` whole units. So the L1
        sensitivity of all sums, laid end to end, is the number of specs times ``bound``
        (privacy.md 8.1).
        Exact: ``bound`` is at most 2^24, so 64 bits hold the sums of 2^38 rows, as many as the
        engine adds up. Held by: tests/privacy/test_derivative_sums.py.
    """
    vectors = question.column.vectors(schema)
    splits = [bind(spec, schema) for spec in question.by or ()]
    sensitivity, unit = vectors.bound * max(1, len(splits)), question.column.unit
    numbers = vectors.width * (sum(split.size for split in splits) or 1)
    if len(parts) * numbers > MAX_PARTS:
        raise QueryError(f"this makes {len(parts) * numbers:,} numbers; at most {MAX_PARTS:,} are possible.")

    def noise(epsilon: Fraction) -> Noise:
        scale = float(sensitivity / epsilon)
        within = laplace_interval(scale, 0.95) / unit
        return Noise(f"each sum is within ±{within:,.6g} of the truth in 95 % of cases", scale / unit, 1 / unit)

    def release(slices: Iterable[Counted], epsilon: Fraction) -> Released:
        sums: list[float] = []
        for counted in slices:
            # Specs of 3 and 2 cells, vectors of two entries: ten numbers of each part, side by
            # side.
            arrays = [counted.array(table) for table in range(len(tables))]
            exact = np.concatenate([array.reshape(len(array), -1, vectors.width) for array in arrays], axis=1)
            sums += (counted.noisy(exact.ravel(), sensitivity, epsilon) / unit).tolist()
        return Released(sums)

    tables = tuple(TableRequest(split.axes) for split in splits) or (TableRequest(),)
    by = [axis.column or "shards" for split in splits for axis in split.axes]
    what = f"noisy_sum of {question.column.about}{' by ' if by else ''}{', '.join(by)}"
    return PreparedQuery(
        parts=parts,
        about=about(what, parts),
        noise=noise,
        release=release,
        tables=tables,
        measure=vectors,
        draws=numbers,
        part_bytes=NUMBER_BYTES * numbers,
    )
