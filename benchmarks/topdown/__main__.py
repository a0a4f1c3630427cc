# SPDX-License-Identifier: Apache-2.0
"""Figures 1 to 3 of Wang, Dick & Balcan 2020 (DP-TopDown) on this project's miner, four holders.

``make reproduce-topdown`` runs it. Every measurement goes into build/topdown/cells.csv at once; run it again and it goes on where it was.
Tables and pictures go to benchmarks/results/topdown once they are of as many runs as what is there, else to build/topdown/results.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial

from benchmarks.cells import Store
from benchmarks.datasets import why_missing
from benchmarks.measure import measure, missing
from benchmarks.publish import RESULTS, ROOT, publish
from benchmarks.topdown.experiments import figures
from benchmarks.topdown.report import write

DATA = ("adult", "credit_default")
QUICK_RUNS = 2


def main() -> None:
    """Measures what is missing, then writes tables and pictures."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.topdown", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", nargs="+", default=list(DATA), metavar="NAME", help=f"data sets in PINQ_DATA; default {' '.join(DATA)}")
    options.add_argument("--figures", nargs="+", default=[""], metavar="TEXT", help="only experiments whose key holds one of these, like fig2")
    options.add_argument("--runs", type=int, help="at most so many runs of each setting; default 10")
    options.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS} runs of each setting")
    options.add_argument("--processes", type=int, default=os.cpu_count(), help="how many at a time; default one for each core")
    options.add_argument("--minutes", type=float, default=float("inf"), help="start nothing new after so long")
    options.add_argument("--redo", nargs="+", default=[], metavar="NAME", help="measure algorithms anew whose name holds one of these, say after a change")
    options.add_argument("--report", action="store_true", help="measure nothing; tables and pictures of what there is")
    asked = options.parse_args()
    if reason := next(filter(None, map(why_missing, asked.data)), ""):
        sys.exit(reason)
    build = ROOT / "build" / "topdown"
    store, all_figures = Store(build / "cells.csv"), figures(asked.data)
    for name in asked.redo:
        print(f"Forgotten: {store.forget(name):,} cells of {name!r}.", file=sys.stderr)
    if not asked.report:
        wanted = [one for key, one in all_figures.items() if any(text in key for text in asked.figures)]
        deadline = time.monotonic() + 60 * asked.minutes
        runs = min(asked.runs or QUICK_RUNS, QUICK_RUNS) if asked.quick else asked.runs
        measure(missing(store, wanted, runs), store.add, processes=asked.processes, late=lambda: time.monotonic() > deadline)
    cells = store.frame()
    folder, written = publish(partial(write, all_figures.values(), cells), RESULTS / "topdown", build / "results")
    print(f"Wrote {', '.join(written)} to {folder.relative_to(ROOT)}.", file=sys.stderr)


if __name__ == "__main__":
    main()
