# SPDX-License-Identifier: Apache-2.0
"""What every table checks of its arguments, and how it divides epsilon."""

from __future__ import annotations

from collections.abc import Sequence

from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.checks import is_number, is_whole
from pinq.public.epsilon import Epsilon

__all__ = ["divided", "require_count", "require_level", "required_handle"]


def divided(epsilon: Epsilon, weights: Sequence[int]) -> list[Epsilon]:
    """Divides a loss by weights; together the shares are all of it.

    What rounding down leaves goes to the first shares. Example: 1 over three equal shares is
    0.333333334, 0.333333333 and 0.333333333.

    Raises:
        QueryError: A share would be nothing.
    """
    whole = sum(weights)
    shares = [epsilon.nano * weight // whole for weight in weights]
    if not all(shares):
        raise QueryError(f"is {epsilon}, too little for {len(weights)} questions", parameter="epsilon")
    rest = epsilon.nano - sum(shares)
    return [Epsilon(share + (number < rest)) for number, share in enumerate(shares)]


def require_level(level: float) -> float:
    """Returns the level. ``QueryError`` unless it lies between 0 and 1."""
    if not is_number(level, 0, 1) or level in (0, 1):
        raise QueryError(f"is {level!r}", parameter="level", allowed="between 0 and 1, both excluded, for example 0.95")
    return level


def require_count(value: object, name: str, least: int, most: int, what: str = "") -> int:
    """Returns a whole number within bounds. ``QueryError`` for anything else."""
    if not is_whole(value, least, most):
        raise QueryError(f"is {value!r}", parameter=name, allowed=f"a whole number from {least} to {most:,}{what}")
    return int(value)


def required_handle(handle: object) -> PrivateQueryable:
    """Returns a handle. ``QueryError`` for anything else, which says how to get one."""
    if not isinstance(handle, PrivateQueryable):
        raise QueryError(
            f"a table is made of a private handle, not of {type(handle).__name__}; open one with pinq.open, "
            "pinq.connect or pinq.simulate. Of parts, take one, `parts[label]`, or say `by`."
        )
    return handle
