# SPDX-License-Identifier: Apache-2.0
"""The lines of a long measurement. Each is written at once, so a stopped measurement continues where it was."""

from __future__ import annotations

import csv
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path

__all__ = ["KeptLines"]


class KeptLines:
    """Measured lines by their keys, in a CSV file that grows line by line.

    Args:
        path: The file; its lines count as measured.
        names: The columns of a line's key.
        figures: The columns of measured numbers.
        again: Whether to delete lines of earlier runs.
    """

    def __init__(self, path: Path, names: Sequence[str], figures: Sequence[str], *, again: bool = False) -> None:
        self._path, self._names, self._figures = path, tuple(names), tuple(figures)
        path.parent.mkdir(parents=True, exist_ok=True)
        if again or not path.exists():
            path.write_text(",".join([*names, *figures]) + "\n", encoding="utf-8")
        with path.open(encoding="utf-8", newline="") as file:
            self._lines = {self._key(line): self._numbers(line) for line in csv.DictReader(file)}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._lines

    def __getitem__(self, key: tuple[str, ...]) -> tuple[float, ...]:
        return self._lines[key]

    def __iter__(self) -> Iterator[tuple[tuple[str, ...], tuple[float, ...]]]:
        return iter(self._lines.items())

    def add(self, key: Sequence[object], figures: Sequence[float]) -> None:
        """Adds a line to the file."""
        texts = tuple(map(str, key))
        self._lines[texts] = tuple(figures)
        with self._path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow([*texts, *figures])

    def _key(self, line: dict[str, str]) -> tuple[str, ...]:
        return tuple(line[name] for name in self._names)

    def _numbers(self, line: dict[str, str]) -> tuple[float, ...]:
        return tuple(float(line[name]) for name in self._figures)
