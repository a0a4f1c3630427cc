# SPDX-License-Identifier: Apache-2.0
"""Figures 3 to 8 and Table 1 of Friedman & Schuster 2010, "Data Mining with Differential Privacy", on this project's miners.

``make reproduce-fs`` runs it. Every measurement goes into build/friedman_schuster/cells.csv at once; run it again and it goes on where it was.
Tables and pictures go to benchmarks/results/friedman_schuster. With ``--quick`` everything is small and goes to build/friedman_schuster/quick.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.friedman_schuster.adult import ADULT, complete_rows, measure_peers, peers_python
from benchmarks.friedman_schuster.cells import Cell, Store
from benchmarks.friedman_schuster.tasks import FIGURES, missing, missing_of_peers, work

ROOT = Path(__file__).resolve().parents[2]
QUICK_RUNS = 10


def main() -> None:
    """Measures what is missing, then writes tables and pictures."""
    asked = _options()
    build = ROOT / "build" / "friedman_schuster"
    store = Store(build / "cells.csv")
    for name in asked.redo:
        print(f"Forgotten: {store.forget(name):,} cells of {name!r}.", file=sys.stderr)
    runs = {key: min(figure.runs, asked.runs or figure.runs) for key, figure in FIGURES.items() if key in asked.figures}
    if ADULT.key in runs:
        complete_rows()  # says at once where the data should be
    if not asked.report:
        _measure(store, runs, asked, build)
    from benchmarks.friedman_schuster.report import write

    output = build / "quick" if asked.quick else ROOT / "benchmarks" / "results" / "friedman_schuster"
    cells = store.frame()
    cells = cells[[row.run < runs.get(row.figure, 0) for row in cells.itertuples()]]
    print(f"Wrote {', '.join(write(FIGURES.values(), cells, output))} to {output.relative_to(ROOT)}.", file=sys.stderr)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(prog="python -m benchmarks.friedman_schuster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--figures", nargs="+", choices=list(FIGURES), default=list(FIGURES), metavar="FIG", help=f"of {', '.join(FIGURES)}; default all")
    options.add_argument("--runs", type=int, help="at most so many runs of each setting; default the paper's 200, and 10 x 10 folds on Adult")
    options.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS} runs of each setting, one 10-fold cross-validation")
    options.add_argument("--processes", type=int, default=os.cpu_count(), help="how many at a time; default one for each core")
    options.add_argument("--minutes", type=float, default=float("inf"), help="start nothing new after so long")
    options.add_argument("--redo", nargs="+", default=[], metavar="NAME", help="measure algorithms anew whose name holds one of these, say after a change")
    options.add_argument("--report", action="store_true", help="measure nothing; tables and pictures of what there is")
    asked = options.parse_args()
    if asked.quick:
        asked.runs = min(asked.runs or QUICK_RUNS, QUICK_RUNS)
    return asked


def _measure(store: Store, runs: dict[str, int], asked: argparse.Namespace, build: Path) -> None:
    tasks, peers = missing(store, runs), missing_of_peers(store, runs)
    deadline = time.monotonic() + 60 * asked.minutes
    lock = threading.Lock()

    def keep(*cells: Cell) -> None:
        with lock:
            store.add(cells)

    def late() -> bool:
        return time.monotonic() > deadline

    if peers and not peers_python():
        print("diffprivlib is left out: PEERS_PYTHON does not name an interpreter that has it (pip install -r benchmarks/peers.txt).", file=sys.stderr)
    side = threading.Thread(target=measure_peers, args=(peers, build, keep, late), daemon=True)
    side.start()
    with _progress(len(tasks)) as advance, ProcessPoolExecutor(asked.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        todo, running = iter(tasks), set[Future[list[Cell]]]()
        while running or not late():
            ahead = 2 * asked.processes - len(running)
            running |= {pool.submit(work, task) for task in itertools.islice(todo, 0 if late() else ahead)}
            if not running:
                break
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for cells in (one.result() for one in finished):
                keep(*cells)
                advance(f"{cells[0].figure} x={cells[0].x:g} run {cells[0].run}")
    side.join()


@contextmanager
def _progress(total: int) -> Iterator[Any]:
    """A bar on a terminal, else a line now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    began, done, said = time.monotonic(), 0, 0.0
    columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=total)

        def advance(what: str) -> None:
            nonlocal done, said
            done += 1
            bar.update(task, advance=1, description=what)
            taken = time.monotonic() - began
            if not console.is_terminal and (taken - said > 30 or done == total):
                said = taken
                console.print(f"{done:,} of {total:,} training sets, {taken / 60:.1f} min, about {taken / done * (total - done) / 60:.0f} min left", highlight=False)

        yield advance


if __name__ == "__main__":
    main()
