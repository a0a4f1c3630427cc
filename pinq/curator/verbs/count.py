# SPDX-License-Identifier: Apache-2.0
"""``noisy_count``: the rows of each part + DLap(1 / epsilon)."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from pinq.curator.prepared import Counted, Noise, PreparedQuery, Released, about
from pinq.public.epsilon import laplace_interval
from pinq.public.parts import PartSet
from pinq.public.queries import Count
from pinq.public.schema import Schema

__all__ = ["prepare"]


def prepare(question: Count, parts: PartSet, schema: Schema) -> PreparedQuery:
    """Prepares a count.

    Privacy:
        Adjacency: add or remove one row. Claim: epsilon-DP for the whole collection.
        Why: parts are disjoint, so one row changes one part's count by 1 (privacy.md 2.1).
    """

    def noise(epsilon: Fraction) -> Noise:
        scale = float(1 / epsilon)
        within = laplace_interval(scale, 0.95)
        return Noise(f"each count is within ±{within:,} of the truth in 95 % of cases", scale, 1.0)

    def release(slices: Iterable[Counted], epsilon: Fraction) -> Released:
        noisy = (counted.noisy(counted.array(), 1, epsilon) for counted in slices)
        return Released([count for counts in noisy for count in counts.tolist()])

    return PreparedQuery(parts=parts, about=about("noisy_count", parts), noise=noise, release=release, draws=1)
