# SPDX-License-Identifier: Apache-2.0
"""The store of measurements: one number a line, in a CSV that grows while the experiments run."""

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
    """One number that came out of one run.

    Attributes:
        figure: The key of the experiment.
        algorithm: What was measured there.
        x: Where on the experiment's abscissa.
        run: Which repetition, from 0.
        measure: What the number says, like ``accuracy`` or ``seconds``.
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

    The cells of a run are written together, at once: whatever ends the program loses whole runs,
    and none but the last.

    Args:
        path: The file.
        origin: Which code measures the cells that are added, noted beside each.
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
        """Drops the cells of all algorithms whose name holds a text.

        Args:
            algorithm: The text.
            figures: Keys of the experiments that are meant; all by default.

        Returns:
            How many cells were dropped.
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
    """Returns the runs that some cells are of."""
    return set(zip(frame["figure"], frame["algorithm"], frame["x"], frame["run"], strict=True))


def _cut_partial_line(path: Path) -> None:
    """Cuts off a last line that was not written to its end."""
    text = path.read_bytes()
    if not text.endswith(b"\n"):
        os.truncate(path, text.rfind(b"\n") + 1)


def _check_columns(path: Path) -> None:
    """Ends the program where the file is no store of these columns, before anything is added to it."""
    with path.open(encoding="utf-8") as file:
        columns = file.readline().strip()
    if columns != ",".join(COLUMNS):
        raise SystemExit(
            f"{path} has the columns {columns!r}, not {','.join(COLUMNS)!r}. "
            "Move it away, and what it holds is measured again."
        )
