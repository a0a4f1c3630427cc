# SPDX-License-Identifier: Apache-2.0
"""Many measurements in parallel: what is missing, on all cores, each kept at once, with progress."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from benchmarks.harness.cells import Cell, Store
from benchmarks.harness.learners import Learner

__all__ = ["Experiment", "Task", "measure", "missing"]


class Experiment(Protocol):
    """What is measured: learners, at each abscissa, so many times, on a data set; ``data`` is empty where rows are made up."""

    key: str
    title: str
    xlabel: str
    runs: int
    data: str

    @property
    def xs(self) -> Sequence[float]:
        """What is varied."""

    @property
    def learners(self) -> Mapping[str, Learner]:
        """What is compared."""

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, float]:
        """Test accuracies of some learners on one training set."""


class Task(NamedTuple):
    """What one process measures in one go: some learners on one training set."""

    experiment: Experiment
    x: float
    run: int
    learners: tuple[str, ...]


def missing(store: Store, experiments: Iterable[Experiment], runs: int | None = None) -> list[Task]:
    """What is not in the store yet, first runs first, so that whenever one stops all settings have as many."""
    found = []
    for one in experiments:
        for run in range(min(one.runs, runs or one.runs)):
            for x in one.xs:
                learners = tuple(name for name in one.learners if (one.key, name, float(x), run) not in store.done)
                if learners:
                    found.append((run / one.runs, Task(one, x, run, learners)))
    return [task for _, task in sorted(found, key=lambda pair: pair[0])]


def measure(
    tasks: Sequence[Task],
    keep: Callable[[Iterable[Cell]], None],
    *,
    processes: int,
    late: Callable[[], bool] = lambda: False,
) -> None:
    """Measures tasks until none is left or it is late; keeps the cells of each as they come."""
    with (
        _progress(len(tasks)) as advance,
        ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        todo, running = iter(tasks), set[Future[list[Cell]]]()
        while True:
            ahead = 0 if late() else 2 * processes - len(running)
            running |= {pool.submit(_work, task) for task in itertools.islice(todo, ahead)}
            if not running:
                return
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for cells in (one.result() for one in finished):
                keep(cells)
                advance(f"{cells[0].figure} x={cells[0].x:g} run {cells[0].run}")


def _work(task: Task) -> list[Cell]:
    measured = task.experiment.measure(task.x, task.run, task.learners)
    return [Cell(task.experiment.key, name, float(task.x), task.run, accuracy) for name, accuracy in measured.items()]


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
                console.print(
                    f"{done:,} of {total:,} training sets, {taken / 60:.1f} min, about {taken / done * (total - done) / 60:.0f} min left",
                    highlight=False,
                )

        yield advance
