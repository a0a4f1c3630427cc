# SPDX-License-Identifier: Apache-2.0
"""On which of a machine's cores a thread runs, where the system lets a process say so (Linux).

Threads that take turns at Python's interpreter never run side by side. On two cores each turn wakes
the other core, which costs more than a count does; on one core it costs next to nothing. Threads
that count rows do run side by side, and roam.
"""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ["roam", "share_core"]

_ALLOWED = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def share_core(number: int) -> None:
    """Binds the calling thread, and those that it starts, to one of the process's cores.

    Args:
        number: Which; beyond the last it begins with the first again.
    """
    if _ALLOWED:
        _bind([_ALLOWED[number % len(_ALLOWED)]])


def roam() -> None:
    """Lets the calling thread, and those that it starts, run on any of the process's cores."""
    if _ALLOWED:
        _bind(_ALLOWED)


def _bind(cores: list[int]) -> None:
    with suppress(OSError):  # the system took them away meanwhile: it knows better
        os.sched_setaffinity(0, cores)
