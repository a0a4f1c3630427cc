# SPDX-License-Identifier: Apache-2.0
"""What every table checks of its arguments, and how it divides epsilon."""

from __future__ import annotations

from collections.abc import Sequence

from pinq.analyst.queryable import PrivateQueryable
from pinq.errors import QueryError
from pinq.public.checks import is_number, is_whole
from pinq.public.epsilon import Epsilon
from pinq.public.specs import MAX_PARTS

__all__ = ["divided", "require_count", "require_level", "require_parts", "required_handle"]

SUREST = 1 - 1e-9  # what holds for many numbers together is surer yet, and must differ from 1


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
    """Returns the level. ``QueryError`` unless it lies above 0 and plainly below 1."""
    if not is_number(level, 0, SUREST) or level == 0:
        allowed = "between 0 and 1, 0 excluded and at most 0.999999999, for example 0.95"
        raise QueryError(f"is {level!r}", parameter="level", allowed=allowed)
    return level


def require_parts(parts: int) -> None:
    """Raises ``QueryError`` where a question would have too many parts, before any is asked."""
    if parts > MAX_PARTS:
        raise QueryError(f"this makes {parts:,} parts; at most {MAX_PARTS:,} are possible.")


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
