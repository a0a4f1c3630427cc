# SPDX-License-Identifier: Apache-2.0
"""What was measured: one accuracy for each figure, algorithm, abscissa and run, in a CSV that grows while the experiments run."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pandas as pd

__all__ = ["Cell", "Store"]


class Cell(NamedTuple):
    """One measurement."""

    figure: str
    algorithm: str
    x: float
    run: int
    accuracy: float


class Store:
    """Cells in a file: written one by one, so that whatever ends the program loses none but the last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: set[tuple[str, str, float, int]] = set()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            _end_line(path)
            self.done = {
                (cell.figure, cell.algorithm, float(cell.x), int(cell.run)) for cell in self.frame().itertuples()
            }
        else:
            self._write([Cell._fields])

    def add(self, cells: Iterable[Cell]) -> None:
        """Appends cells and remembers them."""
        cells = list(cells)
        self._write(cells)
        self.done.update((cell.figure, cell.algorithm, float(cell.x), cell.run) for cell in cells)

    def forget(self, algorithm: str, figures: Iterable[str] | None = None) -> int:
        """Drops the cells of all algorithms whose name holds ``algorithm``, in these figures or in all; how many there were."""
        frame = self.frame()
        gone = frame["algorithm"].str.contains(algorithm, regex=False)
        if figures is not None:
            gone &= frame["figure"].isin(list(figures))
        frame[~gone].to_csv(self.path, index=False)
        self.done -= {(cell.figure, cell.algorithm, cell.x, cell.run) for cell in frame[gone].itertuples()}
        return int(gone.sum())

    def frame(self) -> pd.DataFrame:
        """All cells."""
        return pd.read_csv(
            self.path, dtype={"figure": str, "algorithm": str, "x": float, "run": int, "accuracy": float}
        )

    def _write(self, rows: Iterable[tuple[object, ...]]) -> None:
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


def _end_line(path: Path) -> None:
    """Cuts off a last line that was not written to its end."""
    text = path.read_bytes()
    if not text.endswith(b"\n"):
        os.truncate(path, text.rfind(b"\n") + 1)
