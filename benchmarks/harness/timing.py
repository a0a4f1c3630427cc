# SPDX-License-Identifier: Apache-2.0
"""Timing: functions that are measured in turn, and a table of times beside those of building blocks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness.tables import markdown

__all__ = ["SpeedTable", "alternate", "in_turn", "milliseconds", "quickest", "ratio", "timed"]


def timed(function: Callable[[], object]) -> float:
    """Returns the seconds of one call."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def quickest(function: Callable[[], object], repeats: int) -> float:
    """Returns the seconds of the quickest of some calls."""
    return min(timed(function) for _ in range(repeats))


def in_turn(*functions: Callable[[], object], rounds: int) -> list[list[float]]:
    """Returns the seconds of each call of each function, after one uncounted call of each.

    They are measured in turn, so that changes of the machine's speed affect all alike.
    """
    for function in functions:
        function()
    seconds = [[timed(function) for function in functions] for _ in range(rounds)]
    return [list(of_function) for of_function in zip(*seconds, strict=True)]


def alternate(*functions: Callable[[], object], rounds: int = 7) -> list[float]:
    """Returns the median seconds of each function, measured in turn."""
    return [statistics.median(seconds) for seconds in in_turn(*functions, rounds=rounds)]


def milliseconds(seconds: float) -> str:
    """Returns milliseconds, three digits."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds * 1e3:,.0f} ms"


def ratio(ours: float, other: float) -> str:
    """Returns ``ours`` as a multiple of ``other``."""
    return f"{ours / other:.2f}x"


class SpeedTable:
    """A table of speed. Each line is printed at once, and the table is written at the end."""

    def __init__(self, *columns: str, widths: tuple[int, ...]) -> None:
        self._columns = columns
        self._widths = widths
        self._lines: list[tuple[str, ...]] = []

    def add(self, *cells: str) -> None:
        """Prints a line and adds it to the table."""
        self._lines.append(cells)
        padded = [f"{cell:<{width}}" for cell, width in zip(cells, self._widths, strict=True)]
        print(" ".join(padded).rstrip(), flush=True)

    def write(self, path: Path, head: str) -> None:
        """Writes the table as Markdown below its head."""
        path.write_text(f"{head}\n\n{self.text()}\n", encoding="utf-8")

    def text(self) -> str:
        """Returns the table as Markdown."""
        return markdown(self._columns, self._lines)
