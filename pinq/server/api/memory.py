# SPDX-License-Identifier: Apache-2.0
"""``give_back`` gives the system what was freed, where the C library can do so (glibc).

A question that takes 200 MB leaves its process that large: what is freed is kept for the next
question, in pieces that the next one does not fit into.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

__all__ = ["give_back"]


def give_back() -> None:
    """Gives back what nobody uses; takes some milliseconds, in which others may run."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
