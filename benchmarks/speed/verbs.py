# SPDX-License-Identifier: Apache-2.0
"""Every verb of this checkout beside an older one's, in one run; and what takes long on large tables.

    git worktree add /tmp/old COMMIT && make -C /tmp/old setup
    python -m benchmarks.speed.verbs --beside /tmp/old
    python -m benchmarks.speed.verbs --beside /tmp/old --large

Both run in processes of their own and are called in turn, so that a drift of the machine meets both
alike. Prints medians and ratios of processor time, and writes ``benchmarks/results/verbs.md`` or ``large.md``;
with fewer rounds than usual, or of some lines alone (``--only``), below build. Ledgers are in memory here, but where
a table is opened: ``benchmarks/speed/layer.py`` has durable ones.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks.harness.publish import ROOT, single
from benchmarks.harness.timing import SpeedTable, milliseconds, ratio

WORKER, LARGE_WORKER = (Path(__file__).with_name(f"{name}_worker.py") for name in ("verbs", "large"))
VERBS = {
    "count": "noisy_count, Adult",
    "sum": "noisy_sum of age, Adult",
    "avg": "noisy_avg of age, Adult",
    "histogram": "histogram of 100 keys, 1,000,000 rows",
    "exp_mech": "exp_mech over all cuts of two columns, Adult",
    "fit": "DiffPC45, Adult",
}
ROUNDS = 200
SLOW = {"fit": 20}  # a call takes as long as ten of the others
LARGE = {
    "forest, first": "DiPriMe forest of 10 trees on shards, 1,000,000 rows x 14: first fit on a handle",
    "forest": "later fits",
    "default tree": "DiffPC45 by default",
    "median tree": "one DiPriMe tree by default",
    "synthesizer": "synthesizer",
    "wide": "DiffPC45 at epsilon 4, 395,000 rows x 41, 23 classes",
    "tree": "DPExtraTrees, 1 tree, 1,000,000 rows x 14: later fits",
    "trees, first": "100 such trees on shards: first fit on a handle",
    "trees": "later fits",
    "predict by trees": "predict 1,000,000 rows by 100 trees",
    "predict, text": "by a tree, columns of text",
    "predict, categories": "by a tree, columns of categories",
    "quartiles": "quartiles of a column of 1,500,001 cells, 1,000,000 rows",
    "summary": "summary of 14 columns, 1,000,000 rows",
    "open Parquet": "open a Parquet file of 1,000,000 rows x 14",
    "open CSV": "open the same as CSV",
    "open CSV again": "open that again",
}
LARGE_ROUNDS = 5


def main() -> None:
    """Measures both checkouts and writes the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.verbs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--beside", type=Path, required=True, metavar="CHECKOUT", help="the older checkout")
    parser.add_argument("--large", action="store_true", help="what takes long on large tables, instead")
    parser.add_argument(
        "--rounds", type=int, help=f"calls of each; default {ROUNDS}, of a fit less; large {LARGE_ROUNDS}"
    )
    parser.add_argument("--only", nargs="+", metavar="LINE", help=f"some lines: {', '.join([*VERBS, *LARGE])}")
    asked = parser.parse_args()
    older, usual = asked.beside.resolve(), LARGE_ROUNDS if asked.large else ROUNDS
    most = asked.rounds or usual
    table = SpeedTable(
        "what", "this checkout", "older one", "ratio of medians", "of minima", widths=(84, 14, 12, 18, 0)
    )
    with ExitStack() as stack:
        script = LARGE_WORKER if asked.large else WORKER
        workers = [stack.enter_context(Worker(checkout, script)) for checkout in (ROOT, older)]
        for name, title in (LARGE if asked.large else VERBS).items():
            if asked.only and name not in asked.only:
                continue
            now, before = in_turn(workers, name, max(1, most * SLOW.get(name, ROUNDS) // ROUNDS))
            medians = statistics.median(now), statistics.median(before)
            table.add(title, *map(milliseconds, medians), ratio(*medians), ratio(min(now), min(before)))
    page = single("large.md" if asked.large else "verbs.md", whole=most >= usual and not asked.only)
    table.write(page, _head(older, most, large=asked.large))


def _head(older: Path, rounds: int, *, large: bool) -> str:
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    commits = f"This checkout is `{commit(ROOT)}`, the older one `{commit(older)}`"
    calls = "calls of each in turn" if large else "calls of each in turn (of a fit, a tenth)"
    title = "Speed on large tables" if large else "Speed of the verbs"
    about = f"processor time, medians of {rounds} {calls}, ledgers in memory"
    return f"# {title} beside an older checkout\n\n{commits}; {about}. {machine}."


class Worker:
    """A worker is a process that runs one checkout's verbs when told to."""

    def __init__(self, checkout: Path, script: Path) -> None:
        self._checkout, self._script = checkout, script

    def __enter__(self) -> Worker:
        own = self._checkout / ".venv" / "bin" / "python"
        self._process = subprocess.Popen(
            [own if own.exists() else sys.executable, self._script, self._checkout],
            env={**os.environ, "PYTHONPATH": str(self._checkout), "PYTHONSAFEPATH": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        imported = self._line()
        if Path(imported) != self._checkout:
            self.__exit__()
            raise SystemExit(f"The process for {self._checkout} imports pinq of {imported}.")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def seconds(self, verb: str) -> float:
        """Calls a verb once; returns the processor seconds, of all its threads."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{verb}\n")
        self._process.stdin.flush()
        return float(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"The process for {self._checkout} ended; what it said is above.")
        return line.strip()


def in_turn(workers: list[Worker], verb: str, rounds: int) -> list[list[float]]:
    """Returns the processor seconds of each call by each worker, after one call of each that is not counted."""
    for worker in workers:
        worker.seconds(verb)
    seconds: list[list[float]] = [[] for _ in workers]
    for number in range(rounds):
        # Who is first changes: what one call leaves behind in the caches meets both alike.
        for index in (0, 1) if number % 2 else (1, 0):
            seconds[index].append(workers[index].seconds(verb))
    return seconds


def commit(checkout: Path) -> str:
    """Returns the short name of the commit that a checkout stands at; ``+`` where files differ from it."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty=+"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
