# SPDX-License-Identifier: Apache-2.0
"""Measures missing runs, in parallel or one by one, with progress; each run is stored at once."""

from __future__ import annotations

import itertools
import multiprocessing
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.harness.cells import Cell, Store

__all__ = ["Experiment", "Task", "accuracies", "measure", "missing"]

SECONDS_BETWEEN_LINES = 30


class Experiment(ABC):
    """An experiment measures learners at each abscissa, in several runs, on a data set.

    Attributes:
        key: Its name in the store and on the command line.
        title: The title of its picture.
        xlabel: The name of the abscissa.
        runs: The number of runs of each setting.
        data: The data set; empty for dummy rows.
        xs: The values of the abscissa.
        learners: The names of the compared learners.
        alone: Whether it runs alone, because it measures times.
    """

    alone: bool = False

    if TYPE_CHECKING:  # fields or properties of an experiment's class

        @property
        def key(self) -> str: ...
        @property
        def title(self) -> str: ...
        @property
        def xlabel(self) -> str: ...
        @property
        def runs(self) -> int: ...
        @property
        def data(self) -> str: ...
        @property
        def xs(self) -> Sequence[float]: ...
        @property
        def learners(self) -> Collection[str]: ...

    @abstractmethod
    def measure(self, x: float, run: int, learners: Sequence[str]) -> Mapping[str, Mapping[str, float]]:
        """Returns the numbers of some learners in one run: by learner, then by measure."""


class Task(NamedTuple):
    """The work of one process: some learners in one run."""

    experiment: Experiment
    x: float
    run: int
    learners: tuple[str, ...]


def accuracies(values: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Returns the numbers of learners with one measure, the accuracy."""
    return {name: {"accuracy": value} for name, value in values.items()}


def missing(
    store: Store, experiments: Iterable[Experiment], runs: int | None = None, only: Sequence[str] = ("",)
) -> list[Task]:
    """Returns the tasks that are not in the store yet, for learners whose name contains one of ``only``.

    Tasks are in the order of their runs, so an early stop leaves all settings equally far: if two experiments
    have 10 and 100 runs, run 1 of the first comes beside run 10 of the second.
    """
    tasks = []
    for experiment in experiments:
        for run in range(min(experiment.runs, runs or experiment.runs)):
            for x in experiment.xs:
                names = [name for name in experiment.learners if any(text in name for text in only)]
                keys = {name: (experiment.key, name, float(x), run) for name in names}
                learners = tuple(name for name, key in keys.items() if key not in store.done)
                if learners:
                    tasks.append(Task(experiment, x, run, learners))
    return sorted(tasks, key=lambda task: task.run / task.experiment.runs)


def measure(
    tasks: Sequence[Task],
    keep: Callable[[Iterable[Cell]], None],
    *,
    processes: int,
    late: Callable[[], bool] = lambda: False,
) -> None:
    """Measures tasks until none is left or the time is over; stores the cells of each at once."""
    with (
        _progress(len(tasks)) as advance,
        ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):
        waiting = iter(tasks)
        running = set[Future[list[Cell]]]()
        while True:
            n_free = 0 if late() else 2 * processes - len(running)
            running |= {pool.submit(_cells, task) for task in itertools.islice(waiting, n_free)}
            if not running:
                return
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                cells = future.result()
                keep(cells)
                advance(f"{cells[0].figure} x={cells[0].x:g} run {cells[0].run}")


def _cells(task: Task) -> list[Cell]:
    """Measures a task, in a process of the pool."""
    values = task.experiment.measure(task.x, task.run, task.learners)
    return [
        Cell(task.experiment.key, name, float(task.x), task.run, measure, float(value))
        for name, by_measure in values.items()
        for measure, value in by_measure.items()
    ]


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """Shows a bar on a terminal, else a line about every half minute."""
    console = Console(stderr=True)
    began, done, printed = time.monotonic(), 0, 0.0
    columns = (TextColumn("{task.description:<28}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=total)

        def advance(description: str) -> None:
            nonlocal done, printed
            done += 1
            bar.update(task, advance=1, description=description)
            seconds = time.monotonic() - began
            if not console.is_terminal and (seconds - printed > SECONDS_BETWEEN_LINES or done == total):
                printed = seconds
                minutes_left = seconds / done * (total - done) / 60
                console.print(
                    f"{done:,} of {total:,} tasks, {seconds / 60:.1f} min, about {minutes_left:.0f} min left",
                    highlight=False,
                )

        yield advance
