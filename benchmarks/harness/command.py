# SPDX-License-Identifier: Apache-2.0
"""What `make reproduce-...` does for every paper: measure what is missing, in parallel, resumable; then tables and pictures of all that there is."""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from benchmarks.harness.cells import Cell, Store
from benchmarks.harness.datasets import why_missing
from benchmarks.harness.measure import Experiment, measure, missing
from benchmarks.harness.publish import RESULTS, ROOT, publish

__all__ = ["Beside", "options", "reproduce"]

Keep: TypeAlias = Callable[[Iterable[Cell]], None]
Beside: TypeAlias = Callable[[Store, Sequence[Experiment], int | None, Keep, Callable[[], bool]], None]
Write: TypeAlias = Callable[[Iterable[Experiment], pd.DataFrame, Path], object]


def options(name: str, about: str | None, *, runs: str, quick: int) -> argparse.ArgumentParser:
    """The command line of ``python -m benchmarks.papers.NAME``.

    Args:
        name: The package below benchmarks.
        about: Its docstring.
        runs: How many runs each setting has by default, for people.
        quick: How many ``--quick`` means.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.papers.{name}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--figures",
        nargs="+",
        default=[""],
        metavar="TEXT",
        help="only experiments whose name begins with one of these, like fig3; default all",
    )
    parser.add_argument("--runs", type=int, help=f"at most so many runs of each setting; default {runs}")
    parser.add_argument(
        "--quick",
        action="store_const",
        const=quick,
        default=0,
        help=f"{quick} runs of each setting, kept apart from the results",
    )
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="how many at a time; default one for each core"
    )
    parser.add_argument("--minutes", type=float, default=float("inf"), help="start nothing new after so long")
    parser.add_argument(
        "--redo",
        nargs="+",
        default=[],
        metavar="NAME",
        help="measure algorithms of these experiments anew whose name holds one of these, say after a change",
    )
    parser.add_argument("--report", action="store_true", help="measure nothing; tables and pictures of what there is")
    return parser


def reproduce(
    name: str,
    asked: argparse.Namespace,
    experiments: Mapping[str, Experiment],
    write: Write,
    beside: Beside | None = None,
) -> None:
    """Measures what was asked for and is missing, then writes tables and pictures of everything that there is; a quick look never touches what is published.

    Args:
        name: Below build for measurements, below benchmarks/results for what is published.
        asked: What was asked for, by ``options``.
        experiments: By their keys.
        write: Tables and pictures of some cells into a folder.
        beside: What is measured at the same time by other means: of the store, for some experiments, up to so many runs; keeps cells until it is late.
    """
    wanted = [one for key, one in experiments.items() if key.startswith(tuple(asked.figures))]
    if not wanted:
        sys.exit(f"No experiment's name begins with {' or '.join(asked.figures)}; there are {', '.join(experiments)}.")
    build = ROOT / "build" / name
    store = Store(build / "cells.csv")
    for algorithm in asked.redo:
        print(
            f"Forgotten: {store.forget(algorithm, [one.key for one in wanted]):,} cells of {algorithm!r}.",
            file=sys.stderr,
        )
    if not asked.report:
        _measure(store, _possible(wanted), asked, beside)
    cells = store.frame()
    if asked.quick:
        cells = cells[cells["run"] < asked.quick]
    if asked.quick:
        (build / "quick").mkdir(parents=True, exist_ok=True)
        write(experiments.values(), cells, build / "quick")
        print(f"Results are in {(build / 'quick').relative_to(ROOT)}.", file=sys.stderr)
    else:
        publish(lambda folder: write(experiments.values(), cells, folder), RESULTS / name, build / "results")


def _possible(wanted: Sequence[Experiment]) -> list[Experiment]:
    """Those whose data are there; says which are not, and ends where none is."""
    reasons = {one.key: why_missing(one.data) if one.data else "" for one in wanted}
    for key in filter(reasons.get, reasons):
        print(f"{key} is left out. {reasons[key]}", file=sys.stderr)
    if all(reasons.values()):
        sys.exit(1)
    return [one for one in wanted if not reasons[one.key]]


def _measure(store: Store, wanted: Sequence[Experiment], asked: argparse.Namespace, beside: Beside | None) -> None:
    deadline, lock = time.monotonic() + 60 * asked.minutes, threading.Lock()
    runs = min(filter(None, (asked.runs, asked.quick)), default=None)

    def keep(cells: Iterable[Cell]) -> None:
        with lock:
            store.add(cells)

    def late() -> bool:
        return time.monotonic() > deadline

    side = threading.Thread(target=beside or _nothing, args=(store, wanted, runs, keep, late), daemon=True)
    side.start()
    measure(missing(store, wanted, runs), keep, processes=asked.processes, late=late)
    side.join()


def _nothing(*_: object) -> None:
    """Where nothing is measured beside."""
