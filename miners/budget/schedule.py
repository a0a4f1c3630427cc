# SPDX-License-Identifier: Apache-2.0
"""Spreads a budget over shares: exact, in whole nano-epsilons."""

from __future__ import annotations

from collections.abc import Sequence

from pinq.errors import QueryError
from pinq.public.epsilon import show

__all__ = ["spread"]


def spread(nano: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Spreads nano-epsilons in proportion to whole weights.

    Each share is rounded down; the *last* one gets the rest as well.

    Raises:
        QueryError: A share would be zero.
    """
    if not weights or min(weights) < 1:
        raise QueryError(f"the weights {list(weights)} must be whole numbers of at least 1.")
    whole = sum(weights)
    shares = [nano * weight // whole for weight in weights[:-1]]
    shares.append(nano - sum(shares))
    if min(shares) < 1:
        raise QueryError(
            f"an epsilon of {show(nano)} is too small to be spread over {whole:,} shares of at least {show(1)} each; "
            "use a larger `epsilon` or ask for less."
        )
    return tuple(shares)
