# SPDX-License-Identifier: Apache-2.0
"""The command line of all studies: measure what is missing, then write tables and pictures.

``make reproduce-...`` runs one for each paper. Measurements run in parallel, and each is
stored at once, so a stopped study continues where it was.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeAlias, TypeVar

import pandas as pd

from benchmarks.harness.cells import Cell, Store
from benchmarks.harness.datasets import why_missing
from benchmarks.harness.measure import Experiment, measure, missing
from benchmarks.harness.origin import origin, write_origins
from benchmarks.harness.publish import RESULTS, ROOT, publish, without_short

__all__ = ["Beside", "Study", "options", "reproduce", "run_study"]

Keep: TypeAlias = Callable[[Iterable[Cell]], None]
Beside: TypeAlias = Callable[[Store, Sequence[Experiment], int | None, Keep, Callable[[], bool]], None]
E = TypeVar("E", bound=Experiment)
Write: TypeAlias = Callable[[Sequence[E], pd.DataFrame, Path], object]
UNLIMITED = float("inf")


@dataclass(frozen=True)
class Study(Generic[E]):
    """A study is all experiments of a paper, or of a question of our own.

    Attributes:
        name: The name of its folder below build and below benchmarks/results.
        module: The module for ``python -m``.
        about: A description for ``--help``.
        experiments: A function that makes the experiments on some data sets.
        data: The data sets that are measured by default.
        write: A function that writes tables and pictures of some cells into a folder.
        runs: The default number of runs of a setting, in words.
        quick: The number of runs with ``--quick``.
        beside: A function that measures by other means at the same time. Its arguments are the store,
            experiments, the largest number of runs, a function that stores cells, and a function that
            says whether the time is over.
    """

    name: str
    module: str
    about: str | None
    experiments: Callable[[Sequence[str]], Sequence[E]]
    data: tuple[str, ...]
    write: Write[E]
    runs: str
    quick: int
    beside: Beside | None = None


def run_study(study: Study[E]) -> None:
    """Runs a study with the options of the command line."""
    reproduce(study, options(study).parse_args())


def options(study: Study[E]) -> argparse.ArgumentParser:
    """Returns the command line of a study; all studies have the same."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {study.module}", description=study.about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--figures",
        nargs="+",
        default=[""],
        metavar="TEXT",
        help="only experiments whose name begins with one of these; default all",
    )
    add(
        "--data",
        nargs="+",
        default=[],
        metavar="NAME",
        help=f"only experiments on these data sets of PINQ_DATA; default {' '.join(study.data)}, and made-up rows",
    )
    add("--runs", type=int, help=f"at most so many runs of each setting; default {study.runs}")
    add(
        "--quick",
        action="store_const",
        const=study.quick,
        default=0,
        help=f"runs of each setting: {study.quick}, kept apart from the results",
    )
    add("--processes", type=int, default=os.cpu_count() or 1, help="how many at a time; default one for each core")
    add("--minutes", type=float, default=UNLIMITED, help="start nothing new after so long")
    add(
        "--redo",
        nargs="+",
        default=[],
        metavar="NAME",
        help="measure algorithms of these experiments anew whose name holds one of these, say after a change",
    )
    add("--only", nargs="+", default=[""], metavar="NAME", help="only algorithms whose name holds one of these")
    add("--report", action="store_true", help="measure nothing; write tables and pictures of what there is")
    return parser  # fmt: skip


def reproduce(study: Study[E], asked: argparse.Namespace) -> None:
    """Measures the selected runs that are missing, then writes tables and pictures of all stored runs.

    A run with ``--quick`` never changes published results.

    Args:
        study: The study.
        asked: The parsed ``options``.
    """
    experiments = study.experiments(tuple(dict.fromkeys([*study.data, *asked.data])))
    selected = _selected(experiments, asked)
    build = ROOT / "build" / study.name
    store = Store(build / "cells.csv", origin())
    for algorithm in asked.redo:
        n_dropped = store.forget(algorithm, [experiment.key for experiment in selected])
        print(f"Forgotten: {n_dropped:,} cells of {algorithm!r}.", file=sys.stderr)
    if not asked.report:
        _measure(store, _possible(selected), asked, study.beside)
    cells = store.frame()
    if not asked.quick:
        enough = without_short(cells, RESULTS / study.name)

        def write(folder: Path) -> None:
            study.write(experiments, enough, folder)
            write_origins(enough, folder, [experiment.key for experiment in experiments])

        publish(write, RESULTS / study.name, build / "results", study.data)
        return
    quick = build / "quick"
    quick.mkdir(parents=True, exist_ok=True)
    study.write(experiments, cells[cells["run"] < asked.quick], quick)
    print(f"Results are in {quick.relative_to(ROOT)}.", file=sys.stderr)


def _selected(experiments: Sequence[Experiment], asked: argparse.Namespace) -> list[Experiment]:
    """Returns the selected experiments; ends the program if there is none."""
    selected = [
        experiment
        for experiment in experiments
        if experiment.key.startswith(tuple(asked.figures)) and (not asked.data or experiment.data in asked.data)
    ]
    if not selected:
        keys = ", ".join(experiment.key for experiment in experiments)
        on_data = f" on {' or '.join(asked.data)}" if asked.data else ""
        sys.exit(f"No experiment's name begins with {' or '.join(asked.figures)}{on_data}; there are {keys}.")
    return selected


def _possible(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Returns the experiments whose data exist; prints the others, and ends the program if none is left."""
    possible = []
    for experiment in experiments:
        reason = why_missing(experiment.data) if experiment.data else ""
        if reason:
            print(f"{experiment.key} is left out. {reason}", file=sys.stderr)
        else:
            possible.append(experiment)
    if not possible:
        sys.exit(1)
    return possible


def _measure(store: Store, experiments: Sequence[Experiment], asked: argparse.Namespace, beside: Beside | None) -> None:
    """Measures missing runs: first accuracies on all cores, then times, one after the other."""
    deadline, lock = time.monotonic() + 60 * asked.minutes, threading.Lock()
    runs = min(filter(None, (asked.runs, asked.quick)), default=None)

    def keep(cells: Iterable[Cell]) -> None:
        with lock:
            store.add(cells)

    def late() -> bool:
        return time.monotonic() > deadline

    side = threading.Thread(target=beside or _nothing, args=(store, experiments, runs, keep, late), daemon=True)
    side.start()
    tasks = missing(store, experiments, runs, asked.only)
    measure([task for task in tasks if not task.experiment.alone], keep, processes=asked.processes, late=late)
    side.join()
    measure([task for task in tasks if task.experiment.alone], keep, processes=1, late=late)


def _nothing(*_: object) -> None:
    """Does nothing, for a study without ``beside``."""
