# SPDX-License-Identifier: Apache-2.0
"""Pauses Python's search for garbage in cycles while a tree of many nodes grows.

A tree of 100,000 nodes makes a million small objects that stay, and none in a cycle. Python looks
through all objects of the process each time that they have grown by a quarter: a third of the
processor time of such a fit, for nothing.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["cycle_search_paused"]

_guard = threading.Lock()
_paused = 0
_was_enabled = False


@contextmanager
def cycle_search_paused() -> Iterator[None]:
    """Pauses it until the last block that paused it ends, of whatever thread."""
    global _paused, _was_enabled
    with _guard:
        if not _paused:
            _was_enabled = gc.isenabled()
            gc.disable()
        _paused += 1
    try:
        yield
    finally:
        with _guard:
            _paused -= 1
            if not _paused and _was_enabled:
                gc.enable()
