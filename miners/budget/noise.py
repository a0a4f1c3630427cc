# SPDX-License-Identifier: Apache-2.0
"""The noise in a count, which is public."""

from __future__ import annotations

from pinq.public.accuracy import standard_deviation
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema

__all__ = ["count_scale", "count_variance"]


def count_scale(schema: Schema, epsilon: Epsilon) -> float:
    """Returns the scale of the noise in one count, in rows.

    ``epsilon`` is in the policy's terms, hence the distance.
    """
    return float(1 / epsilon.per_row(schema.distance))


def count_variance(scale: float) -> float:
    """Returns the variance of the noise in one count, in rows squared.

    It is at least 1e-12, for it is divided by.
    """
    return max(standard_deviation(scale) ** 2, 1e-12)
