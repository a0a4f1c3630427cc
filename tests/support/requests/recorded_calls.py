# SPDX-License-Identifier: Apache-2.0
"""Functions that record their calls and are otherwise unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def noting(function: Callable[..., Any], notes: list[Any], note: Callable[..., Any]) -> Callable[..., Any]:
    """The function, and ``note`` of its arguments in ``notes`` for each call."""

    def noted(*given: Any) -> Any:
        notes.append(note(*given))
        return function(*given)

    return noted
