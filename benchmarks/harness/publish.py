# SPDX-License-Identifier: Apache-2.0
"""The place of results: they replace committed ones with at most as many runs; else they are written below build.

So a short run spoils nothing. A table of results is a CSV with a column ``n``, the number of runs.
The columns before it name a measurement; the columns after it have its numbers. In a figure with a
table of its own, ``KEY.csv``, each algorithm is replaced separately.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pandas as pd

__all__ = ["RESULTS", "ROOT", "publish", "shortfall", "single", "without_short"]

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
RUNS = "n"
Written = TypeVar("Written")


def publish(
    write: Callable[[Path], Written], committed: Path, spare: Path, data: Sequence[str] = ()
) -> tuple[Path, Written]:
    """Writes results into ``spare`` and, unless the committed ones have more runs, into ``committed``.

    A picture changes only with a table: another version of the drawing library draws the same
    numbers in other pixels.

    Args:
        write: A function that writes all tables and pictures into a folder.
        committed: A folder below benchmarks/results.
        spare: A folder below build.
        data: The data sets. A picture with a data set in its name is written if a table with this
            name changed; another picture, if any table changed.

    Returns:
        The folder with the results, and the result of ``write``.
    """
    spare.mkdir(parents=True, exist_ok=True)
    if committed.exists():  # of figures that were not measured now
        shutil.copytree(committed, spare, dirs_exist_ok=True)
    written = write(spare)
    short = shortfall(spare, committed)
    if short:
        print(
            f"{_relative(committed)} stays as it is, for it has more runs than there are now "
            f"({len(short):,} times; the first: {short[0]}). These results are in {_relative(spare)}. "
            "Measure on and they will take its place; or delete its tables first, and they will at once.",
            file=sys.stderr,
        )
        return spare, written
    committed.mkdir(parents=True, exist_ok=True)
    before = {path: path.read_bytes() for path in committed.iterdir() if path.suffix in (".csv", ".png")}
    written = write(committed)
    moved = [path.stem for path in committed.glob("*.csv") if path.read_bytes() != before.get(path)]
    for picture in (path for path in before if path.suffix == ".png"):
        named = [name for name in data if name in picture.stem] or [""]
        if not any(name in stem for name in named for stem in moved):
            picture.write_bytes(before[picture])
    print(f"Results are in {_relative(committed)}.", file=sys.stderr)
    return committed, written


def without_short(cells: pd.DataFrame, committed: Path) -> pd.DataFrame:
    """Returns cells without the algorithms that have more runs in a committed table; prints their names."""
    kept, short = [], []
    for (key, name), own in cells.groupby(["figure", "algorithm"]):
        path = committed / f"{key}.csv"
        theirs = pd.read_csv(path) if path.exists() else pd.DataFrame({"algorithm": [], "x": [], RUNS: []})
        before = theirs[theirs["algorithm"] == name].set_index("x")[RUNS]
        if (own.groupby("x").size().reindex(before.index, fill_value=0) < before).any():
            short.append(f"{key} {name}")
        else:
            kept.append(own)
    if short:
        print(f"More runs are published of {'; '.join(short)}. They stay as they are.", file=sys.stderr)
    return pd.concat([cells.iloc[:0], *kept])


def shortfall(measured: Path, committed: Path) -> list[str]:
    """Returns a line for each measurement with fewer runs than in the committed tables."""
    lines = []
    for path in sorted(committed.glob("*.csv")):
        theirs = _read(path)
        if RUNS not in theirs:
            continue
        names = list(theirs.columns[: theirs.columns.get_loc(RUNS)])
        ours = _read(measured / path.name) if (measured / path.name).exists() else pd.DataFrame()
        ours = ours.reindex(columns=[*names, RUNS], fill_value="")
        both = theirs[[*names, RUNS]].merge(ours, on=names, how="left", suffixes=("", "_now")).fillna("0")
        for *measurement, before, now in both.itertuples(index=False):
            if int(now or 0) < int(before):
                lines.append(f"{' '.join(measurement)} in {path.name}, {int(now or 0)} of {before}")
    return lines


def single(name: str, *, whole: bool) -> Path:
    """Returns the path for the result of one run; below build if the run is smaller than usual.

    Args:
        name: The file, below benchmarks/results.
        whole: Whether the run has the whole size; if not, the path is printed.
    """
    path = RESULTS / name if whole else ROOT / "build" / "results" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not whole:
        print(f"Smaller than what is committed: the result goes to {_relative(path)}.", file=sys.stderr)
    return path


def _read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def _relative(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
