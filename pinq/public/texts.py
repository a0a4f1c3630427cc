# SPDX-License-Identifier: Apache-2.0
"""How categories are written as text, and which texts no source can hold."""

from __future__ import annotations

import re

import numpy as np

__all__ = ["require_text", "text_of", "text_of_any"]

_HALF = re.compile("[\ud800-\udfff]")


def text_of(value: object) -> str:
    """The text by which a category is compared with the source: SQL's text form of the value."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def require_text(text: str, what: str) -> None:
    """``ValueError`` for text that SQL cannot hold, or that cannot be stored or sent."""
    if "\x00" in text:
        raise ValueError(f"{what} contains a NUL character")
    if _HALF.search(text):
        raise ValueError(f"{what} contains half a character (a lone surrogate)")


def text_of_any(value: object) -> str:
    """``text_of`` of a value as numpy and pandas hold it; a whole number has no decimals."""
    if isinstance(value, np.bool_):
        return text_of(bool(value))
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return text_of(value)
