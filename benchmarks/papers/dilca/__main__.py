# SPDX-License-Identifier: Apache-2.0
"""Figures 2 to 7 and Table 6 of the DP-DILCA paper, by our miner and by the published mechanism in one run.

``make reproduce-dilca`` runs it. Every measurement is appended to ``build/dilca/measured.csv`` as soon as it is made, so a run that was stopped goes
on where it was. Their means and the pictures of them go to ``benchmarks/results/dilca`` once they are of as many repeats as what is there.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.harness.publish import RESULTS, ROOT, publish
from benchmarks.papers.dilca.data import NAMES, MissingData, load

RAW = ROOT / "build" / "dilca" / "measured.csv"
EPSILONS = (0.1, 0.5, 1.0, 1.5, 2.0, 2.5)
METHODS = ("mean_su", "max_relevance", "max_dependency")
BOTH = ("ours", "published")
ALL = ("ours", "ours, add-remove", "published")
KEYS = ("figure", "dataset", "method", "who", "epsilon", "k", "noise", "repeat")
Job = tuple[str, str, str, str, float, int, float, int]


def jobs(repeats: int) -> Iterator[Job]:
    """Everything that is measured, one repeat after the other so that a run that is cut short has whole repeats."""
    for repeat in range(repeats):
        for name, epsilon in itertools.product(NAMES, EPSILONS):
            for method, who in itertools.product((*METHODS, "baseline"), ALL):
                if who in BOTH or (method != "baseline" and epsilon in (0.5, 1.0, 2.0)):
                    yield "2-3", name, method, who, epsilon, 3, 0.0, repeat
        for name, epsilon in itertools.product(NAMES, EPSILONS):
            for method, who in itertools.product(METHODS, BOTH):
                if name != "cmc":  # the paper leaves it out: its classes are no clusters
                    yield "4", name, method, who, epsilon, 3, 0.0, repeat
                yield "5", name, method, who, epsilon, 3, 0.0, repeat
        for kind, noise, epsilon in itertools.product("ABCD", (0.1, 0.2, 0.3), EPSILONS):
            for method, who in itertools.product(METHODS, ALL):
                yield "6", kind, method, who, epsilon, 0, noise, repeat
        for name, k, epsilon in itertools.product(("adult", "mushroom", "cmc"), (1, 2, 3, 4, 5), (0.5, 2.0)):
            for method, who in itertools.product(("max_relevance", "max_dependency"), BOTH):
                if not (method == "max_dependency" and k > 3 and name == "mushroom"):
                    yield "7", name, method, who, epsilon, k, 0.0, repeat
        for name in NAMES:
            for figure in ("4", "5"):
                if not (figure == "4" and name == "cmc"):
                    yield from (
                        (figure, name, method, "exact", 0.0, 3, 0.0, repeat) for method in METHODS if repeat < 4
                    )


def measure(job: Job, place: str | None) -> dict[str, float]:
    """One job, in a worker process."""
    from benchmarks.papers.dilca import measure as one

    figure, name, method, who, epsilon, k, noise, repeat = job
    if figure in ("2-3", "7"):
        return one.contexts_and_distances(name, place, method, who, epsilon, k, repeat)
    if figure == "4":
        return one.clustering(name, place, method, who, epsilon, repeat)
    if figure == "5":
        return one.neighbours(name, place, method, who, epsilon, repeat)
    return one.synthetic_context(name, noise, method, who, epsilon, repeat)


def run(wanted: list[Job], place: str | None, workers: int) -> None:
    """Measures what has not been measured yet, in parallel, and says how far it is."""
    known = {tuple(row[:-2]) for row in measured()}
    left = [job for job in wanted if tuple(map(str, job)) not in known]
    print(
        f"{len(wanted) - len(left):,} of {len(wanted):,} measurements are there; {len(left):,} to go on {workers} processes",
        flush=True,
    )
    RAW.parent.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    # One table at a time for each process: what is exact about it is computed once.
    chunks: dict[tuple[str, int], list[Job]] = {}
    for job in left:
        chunks.setdefault((job[1] if job[0] != "6" else "synthetic", job[7]), []).append(job)
    with (
        ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool,
        RAW.open("a", newline="", encoding="utf-8") as file,
    ):
        writer, done = csv.writer(file), 0
        waiting = {pool.submit(measure_all, chunk, place): len(chunk) for chunk in chunks.values()}
        for future in as_completed(waiting):
            writer.writerows(future.result())
            file.flush()
            done += waiting[future]
            spent = time.perf_counter() - began
            print(
                f"{done:,} of {len(left):,} in {spent:,.0f} s, about {spent / done * (len(left) - done):,.0f} s left",
                flush=True,
            )


def measure_all(chunk: list[Job], place: str | None) -> list[list[Any]]:
    """A chunk of jobs: a row for each number."""
    return [[*job, what, round(value, 5)] for job in chunk for what, value in measure(job, place).items()]


def measured() -> list[list[str]]:
    """All rows so far: the keys, what, value."""
    if not RAW.exists():
        return []
    with RAW.open(newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if len(row) == len(KEYS) + 2]


def summarise(folder: Path) -> list[dict[str, Any]]:
    """Mean and standard deviation over the repeats, a file in ``folder`` for each figure."""
    groups: dict[tuple[str, ...], list[float]] = {}
    for *keys, _, what, value in measured():
        groups.setdefault((*keys, what), []).append(float(value))
    lines = [
        dict(zip((*KEYS[:-1], "what"), keys, strict=True))
        | {"n": len(values), "mean": round(statistics.fmean(values), 4), "sd": round(statistics.pstdev(values), 4)}
        for keys, values in sorted(groups.items())
    ]
    for figure in sorted({line["figure"] for line in lines}):
        with (folder / f"figure-{figure}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(
                file, fieldnames=[*KEYS[1:-1], "what", "n", "mean", "sd"], extrasaction="ignore", lineterminator="\n"
            )
            writer.writeheader()
            writer.writerows(line for line in lines if line["figure"] == figure)
    return lines


def main() -> None:
    """Runs what is asked."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument(
        "--data", help="folder of the data sets; by default $PINQ_DATA, else ../shared/data beside the project"
    )
    options.add_argument("--repeats", type=int, default=30)
    options.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options.add_argument("--figures", default="2-3,4,5,6,7,table-6", help="which; all by default")
    asked = options.parse_args()
    figures = set(asked.figures.split(","))
    try:
        for name in NAMES:
            load(name, asked.data)
    except MissingData as error:
        sys.exit(str(error))
    run([job for job in jobs(asked.repeats) if job[0] in figures], asked.data, asked.workers)

    def write(folder: Path) -> None:
        pictures.draw(summarise(folder), folder)

    from benchmarks.papers.dilca import figures as pictures
    from benchmarks.papers.dilca import times

    folder, _ = publish(write, RESULTS / "dilca", RAW.parent / "results")
    if "table-6" in figures:
        times.write(asked.data, folder)


if __name__ == "__main__":
    main()
