# SPDX-License-Identifier: Apache-2.0
"""``is_whole``, ``is_number`` and ``is_listing`` tell what came in from what only looks like it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from pinq.errors import QueryError

if TYPE_CHECKING:
    from typing_extensions import TypeIs

__all__ = ["is_listing", "is_number", "is_whole", "require_kind"]


def is_whole(value: object, low: float = -math.inf, high: float = math.inf) -> TypeGuard[int]:
    """Whether a value is a whole number from ``low`` to ``high``, numpy's included.

    A truth value is none, though Python counts it among them.
    """
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(low <= value <= high)


def is_number(value: object, low: float, high: float) -> TypeGuard[float]:
    """Whether a value is a number from ``low`` to ``high``; a truth value or NaN is none."""
    is_real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return is_real and bool(low <= value <= high)  # type: ignore[operator]


def is_listing(value: object) -> TypeIs[Iterable[object]]:
    """Whether a value lists others; text, whose letters Python would list, does not."""
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes))


def require_kind(values: Iterable[object], kinds: type | tuple[type, ...], problem: str | Callable[[], str]) -> None:
    """Raises ``QueryError`` with this text unless each value is of one of the kinds.

    For what a caller passes; what is ours already answers for itself. A text that takes long to
    write is given as a function.
    """
    for value in values:
        if not isinstance(value, kinds):
            raise QueryError(problem if isinstance(problem, str) else problem())
