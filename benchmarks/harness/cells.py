# SPDX-License-Identifier: Apache-2.0
"""The store of measurements: a CSV with one number a line, which grows while experiments run."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pandas as pd

__all__ = ["Cell", "Store"]

DTYPES = {"figure": str, "algorithm": str, "x": float, "run": int, "measure": str, "value": float, "origin": str}


class Cell(NamedTuple):
    """One number of one run.

    Attributes:
        figure: The key of the experiment.
        algorithm: The name of the algorithm.
        x: The value on the experiment's abscissa.
        run: The number of the repetition, from 0.
        measure: The kind of number, like ``accuracy`` or ``seconds``.
        value: The number.
    """

    figure: str
    algorithm: str
    x: float
    run: int
    measure: str
    value: float


COLUMNS = (*Cell._fields, "origin")


class Store:
    """A store keeps cells in a file and knows which runs are done.

    All cells of a run are written at once: an end of the program loses at most the last run, as a whole.

    Args:
        path: The file.
        origin: The code that measures the added cells; each cell has it.
    """

    def __init__(self, path: Path, origin: str = "") -> None:
        self.path, self.origin = path, origin
        self.done: set[tuple[str, str, float, int]] = set()
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            _cut_partial_line(path)
            _check_columns(path)
            self.done = _runs(self.frame())
        else:
            self._write([COLUMNS])

    def add(self, cells: Iterable[Cell]) -> None:
        """Appends cells and remembers their runs as done."""
        cells = list(cells)
        self._write((*cell, self.origin) for cell in cells)
        self.done.update((cell.figure, cell.algorithm, float(cell.x), cell.run) for cell in cells)

    def forget(self, algorithm: str, figures: Iterable[str] | None = None) -> int:
        """Removes the cells of all algorithms whose name contains a text.

        Args:
            algorithm: The text.
            figures: Keys of the experiments; all by default.

        Returns:
            The number of removed cells.
        """
        frame = self.frame()
        dropped = frame["algorithm"].str.contains(algorithm, regex=False)
        if figures is not None:
            dropped &= frame["figure"].isin(list(figures))
        frame[~dropped].to_csv(self.path, index=False)
        self.done -= _runs(frame[dropped])
        return int(dropped.sum())

    def frame(self) -> pd.DataFrame:
        """Returns all cells, a row each."""
        return pd.read_csv(self.path, dtype=DTYPES).fillna({"origin": ""})

    def _write(self, rows: Iterable[tuple[object, ...]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        with self.path.open("ab", buffering=0) as file:
            file.write(text.getvalue().encode())


def _runs(frame: pd.DataFrame) -> set[tuple[str, str, float, int]]:
    """Returns the runs of some cells."""
    return set(zip(frame["figure"], frame["algorithm"], frame["x"], frame["run"], strict=True))


def _cut_partial_line(path: Path) -> None:
    """Removes an incomplete last line."""
    text = path.read_bytes()
    if not text.endswith(b"\n"):
        os.truncate(path, text.rfind(b"\n") + 1)


def _check_columns(path: Path) -> None:
    """Ends the program before it adds to a file with other columns."""
    with path.open(encoding="utf-8") as file:
        columns = file.readline().strip()
    if columns != ",".join(COLUMNS):
        raise SystemExit(
            f"{path} has the columns {columns!r}, not {','.join(COLUMNS)!r}. "
            "Move it away; its numbers are then measured again."
        )
