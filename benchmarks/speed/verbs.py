# SPDX-License-Identifier: Apache-2.0
"""Every verb of this checkout beside an older one's, in one run.

    git worktree add /tmp/old COMMIT
    python -m benchmarks.speed.verbs --beside /tmp/old

Both run in processes of their own and are called in turn, so that a drift of the machine meets both
alike. Prints medians and ratios of processor time, and writes ``benchmarks/results/verbs.md``; with
fewer rounds than usual, below build. Ledgers are in memory here: ``benchmarks/speed/layer.py`` has durable ones.
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

WORKER = Path(__file__).with_name("verbs_worker.py")
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


def main() -> None:
    """Measures both checkouts and writes the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.verbs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--beside", type=Path, required=True, metavar="CHECKOUT", help="the older checkout")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"calls of each verb; default {ROUNDS}, of a fit less"
    )
    asked = parser.parse_args()
    older = asked.beside.resolve()
    table = SpeedTable(
        "verb", "this checkout", "older one", "ratio of medians", "of minima", widths=(46, 14, 12, 18, 0)
    )
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker(checkout)) for checkout in (ROOT, older)]
        for verb, title in VERBS.items():
            rounds = max(1, asked.rounds * SLOW.get(verb, ROUNDS) // ROUNDS)
            now, before = in_turn(workers, verb, rounds)
            medians = statistics.median(now), statistics.median(before)
            table.add(title, *map(milliseconds, medians), ratio(*medians), ratio(min(now), min(before)))
    table.write(single("verbs.md", whole=asked.rounds >= ROUNDS), _head(older, asked.rounds))


def _head(older: Path, rounds: int) -> str:
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    commits = f"This checkout is `{commit(ROOT)}`, the older one `{commit(older)}`"
    about = f"processor time, medians of {rounds} calls of each in turn (of a fit, a tenth), ledgers in memory"
    return f"# Speed of the verbs beside an older checkout\n\n{commits}; {about}. {machine}."


class Worker:
    """A worker is a process that runs one checkout's verbs when told to."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout

    def __enter__(self) -> Worker:
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), str(self._checkout)],
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
