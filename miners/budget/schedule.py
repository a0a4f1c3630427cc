# SPDX-License-Identifier: Apache-2.0
"""Spreads a budget over shares: exact, in whole nano-epsilons."""

from __future__ import annotations

from collections.abc import Sequence

from pinq.errors import QueryError
from pinq.public.epsilon import ZERO, Epsilon

__all__ = ["spread"]

SMALLEST = Epsilon(1)


def spread(epsilon: Epsilon, weights: Sequence[int]) -> tuple[Epsilon, ...]:
    """Spreads a loss in proportion to whole weights.

    Each share is rounded down to whole nano-epsilons; the *last* one gets the rest as well.

    Raises:
        QueryError: A share would be zero.
    """
    if not weights or min(weights) < 1:
        raise QueryError(f"the weights {list(weights)} must be whole numbers of at least 1.")
    whole = sum(weights)
    # Ten nano by weights 1, 1 and 1: 3, 3 and 4, for the last takes what rounding leaves.
    shares = [epsilon * weight // whole for weight in weights[:-1]]
    shares.append(epsilon - sum(shares, ZERO))
    if min(shares) < SMALLEST:
        raise QueryError(
            f"an epsilon of {epsilon} is too small to be spread over {whole:,} shares of at least {SMALLEST} each; "
            "use a larger `epsilon` or ask for less."
        )
    return tuple(shares)
