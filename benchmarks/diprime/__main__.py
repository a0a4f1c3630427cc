# SPDX-License-Identifier: Apache-2.0
"""Tables 1 and 2 and Figures 1, 3 and 4 of Consul & Williamson 2020, "Differentially Private Median Forests", on this project's miners.

``make reproduce-diprime`` runs it. Every measurement goes into build/diprime/cells.csv at once; run it again and it goes on where it was. Tables and pictures go to
benchmarks/results/diprime, once they are of as many runs as what is there. With ``--quick`` everything is small and goes to build/diprime/quick.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from benchmarks.cells import Store
from benchmarks.datasets import why_missing
from benchmarks.diprime.experiments import EXPERIMENTS
from benchmarks.measure import measure, missing
from benchmarks.publish import RESULTS, ROOT, publish

QUICK_RUNS = 2


def main() -> None:
    """Measures what is missing, then writes tables and pictures."""
    asked = _options()
    build = ROOT / "build" / "diprime"
    store = Store(build / "cells.csv")
    for name in asked.redo:
        print(f"Forgotten: {store.forget(name, asked.figures):,} cells of {name!r}.", file=sys.stderr)
    there = [EXPERIMENTS[key] for key in asked.figures if not why_missing(EXPERIMENTS[key].data)]
    for key in (key for key in asked.figures if EXPERIMENTS[key] not in there):
        print(f"{key} is left out. {why_missing(EXPERIMENTS[key].data).splitlines()[0]}", file=sys.stderr)
    deadline = time.monotonic() + 60 * asked.minutes
    if not asked.report:
        measure(missing(store, there, asked.runs), store.add, processes=asked.processes, late=lambda: time.monotonic() > deadline)
    from benchmarks.diprime.report import write

    cells = store.frame()
    if asked.quick:
        cells = cells[cells["run"] < QUICK_RUNS]
    publish(lambda folder: write(EXPERIMENTS.values(), cells, folder), RESULTS / "diprime", build / ("quick" if asked.quick else "results"))


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(prog="python -m benchmarks.diprime", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--figures", nargs="+", choices=list(EXPERIMENTS), default=list(EXPERIMENTS), metavar="NAME", help=f"of {', '.join(EXPERIMENTS)}; default all")
    options.add_argument("--runs", type=int, help="at most so many runs of each setting; default 20")
    options.add_argument("--quick", action="store_true", help=f"{QUICK_RUNS} runs of each setting")
    options.add_argument("--processes", type=int, default=os.cpu_count(), help="how many at a time; default one for each core")
    options.add_argument("--minutes", type=float, default=float("inf"), help="start nothing new after so long")
    options.add_argument("--redo", nargs="+", default=[], metavar="NAME", help="measure algorithms of these figures anew whose name holds one of these, say after a change")
    options.add_argument("--report", action="store_true", help="measure nothing; tables and pictures of what there is")
    asked = options.parse_args()
    if asked.quick:
        asked.runs = min(asked.runs or QUICK_RUNS, QUICK_RUNS)
    return asked


if __name__ == "__main__":
    main()
