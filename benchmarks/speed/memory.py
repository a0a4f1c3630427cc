# SPDX-License-Identifier: Apache-2.0
"""The memory of some processes together, measured twenty times a second."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Most", "own_peak", "watched"]

LOOK_SECONDS = 0.05
KILOBYTES = 1024  # to a megabyte


@dataclass
class Most:
    """The most that the processes had at one moment.

    Attributes:
        each: Megabytes of each, then. A page that several processes map counts in equal shares (PSS),
            so their sum is what they take of the machine.
    """

    each: Sequence[int] = ()

    def look(self, processes: Sequence[int]) -> None:
        """Looks at what they have now."""
        now = [_share(pid) for pid in processes]
        if sum(now) > sum(self.each):
            self.each = now


@contextmanager
def watched(processes: Callable[[], Sequence[int]]) -> Iterator[Most]:
    """Looks at processes, which may come and go, until the block ends."""
    most, over = Most(), threading.Event()

    def look() -> None:
        while not over.wait(LOOK_SECONDS):
            with suppress(OSError):  # one of its threads has ended meanwhile
                most.look(processes())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def own_peak(pid: int) -> int:
    """The most megabytes that a process has had, each page that it maps counted whole."""
    return _megabytes(Path(f"/proc/{pid}/status"), "VmHWM")


def _share(pid: int) -> int:
    with suppress(OSError, StopIteration):  # it has ended
        return _megabytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss")
    return 0


def _megabytes(file: Path, name: str) -> int:
    lines = file.read_text(encoding="ascii").splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) // KILOBYTES
