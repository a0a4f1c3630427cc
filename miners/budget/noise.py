# SPDX-License-Identifier: Apache-2.0
"""The noise in a count or a sum of derivatives, which is public."""

from __future__ import annotations

from pinq.public.accuracy import standard_deviation
from pinq.public.derivatives import Derivatives
from pinq.public.epsilon import Epsilon
from pinq.public.schema import Schema

__all__ = ["count_scale", "count_variance", "sum_variance"]


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


def sum_variance(schema: Schema, loss: Derivatives, epsilon: Epsilon) -> float:
    """Returns the variance of the noise in one sum of derivatives, in natural units."""
    bound = loss.vectors(schema).bound / loss.unit
    return 2 * (bound * count_scale(schema, epsilon)) ** 2
