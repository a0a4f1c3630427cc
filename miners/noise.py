# SPDX-License-Identifier: Apache-2.0
"""The scale of the noise in a count, which is public."""

from __future__ import annotations

from fractions import Fraction

from pinq.schema import Schema

__all__ = ["count_scale"]


def count_scale(schema: Schema, epsilon: Fraction | float) -> float:
    """Scale of the noise in one count, in rows. ``epsilon`` is in the policy's terms, hence the distance."""
    return float(schema.distance / Fraction(epsilon))
