# SPDX-License-Identifier: Apache-2.0
"""Figures 3 to 8 and Table 1 of Friedman & Schuster 2010, "Data Mining with Differential Privacy", on this project's miners.

``make reproduce-fs`` runs it. Every measurement goes into build/friedman_schuster/cells.csv at once; run it again and it goes on where it was.
Tables and pictures go to benchmarks/results/friedman_schuster once they have as many runs as what is there, until then below build/friedman_schuster.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.cells import Cell, Store
from benchmarks.datasets import why_missing
from benchmarks.friedman_schuster.adult import ADULT, measure_peers, missing_of_peers, peers_python
from benchmarks.friedman_schuster.synthetic import FIGURES as SYNTHETIC
from benchmarks.measure import Experiment, measure, missing
from benchmarks.publish import RESULTS, publish

ROOT = Path(__file__).resolve().parents[2]
FIGURES: dict[str, Experiment] = {**SYNTHETIC, ADULT.key: ADULT}
QUICK_RUNS = 10


def main() -> None:
    """Measures what is missing, then writes tables and pictures."""
    asked = _options()
    build = ROOT / "build" / "friedman_schuster"
    store = Store(build / "cells.csv")
    for name in asked.redo:
        print(f"Forgotten: {store.forget(name, asked.figures):,} cells of {name!r}.", file=sys.stderr)
    if not asked.report:
        _measure(store, asked, build)
    from benchmarks.friedman_schuster.report import write

    cells = store.frame()
    if asked.quick:
        cells = cells[cells["run"] < QUICK_RUNS]
    publish(lambda folder: write(FIGURES.values(), cells, folder), RESULTS / "friedman_schuster", build / ("quick" if asked.quick else "results"))


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(prog="python -m benchmarks.friedman_schuster", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--figures", nargs="+", choices=list(FIGURES), default=list(FIGURES), metavar="FIG", help=f"of {', '.join(FIGURES)}; default all")
    options.add_argument("--runs", type=int, help="at most so many runs of each setting; default the paper's 200, and 10 x 10 folds on Adult")
    options.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS} runs of each setting, one 10-fold cross-validation")
    options.add_argument("--processes", type=int, default=os.cpu_count(), help="how many at a time; default one for each core")
    options.add_argument("--minutes", type=float, default=float("inf"), help="start nothing new after so long")
    options.add_argument("--redo", nargs="+", default=[], metavar="NAME", help="measure algorithms of these figures anew whose name holds one of these, say after a change")
    options.add_argument("--report", action="store_true", help="measure nothing; tables and pictures of what there is")
    asked = options.parse_args()
    if asked.quick:
        asked.runs = min(asked.runs or QUICK_RUNS, QUICK_RUNS)
    return asked


def _measure(store: Store, asked: argparse.Namespace, build: Path) -> None:
    wanted = [FIGURES[key] for key in asked.figures]
    if ADULT in wanted and (reason := why_missing("adult")):
        print(f"Figure 8 is left out. {reason}", file=sys.stderr)
        wanted.remove(ADULT)
    deadline = time.monotonic() + 60 * asked.minutes
    lock = threading.Lock()

    def keep(cells: Iterable[Cell]) -> None:
        with lock:
            store.add(cells)

    def late() -> bool:
        return time.monotonic() > deadline

    peers = missing_of_peers(store, asked.runs) if ADULT in wanted else []
    if peers and not peers_python():
        print("diffprivlib is left out: PEERS_PYTHON does not name an interpreter that has it (pip install -r benchmarks/peers.txt).", file=sys.stderr)
    side = threading.Thread(target=measure_peers, args=(peers, build, keep, late), daemon=True)
    side.start()
    measure(missing(store, wanted, asked.runs), keep, processes=asked.processes, late=late)
    side.join()


if __name__ == "__main__":
    main()
