# SPDX-License-Identifier: Apache-2.0
"""``is_whole`` and ``is_number`` tell numbers from what only looks like one."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np

__all__ = ["is_number", "is_whole"]


def is_whole(value: object, low: int, high: int) -> TypeGuard[int]:
    """Whether a value is a whole number from ``low`` to ``high``, numpy's included.

    A truth value is none, though Python counts it among them.
    """
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(low <= value <= high)


def is_number(value: object, low: float, high: float) -> TypeGuard[float]:
    """Whether a value is a number from ``low`` to ``high``; a truth value or NaN is none."""
    is_real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    return is_real and bool(low <= value <= high)  # type: ignore[operator]
