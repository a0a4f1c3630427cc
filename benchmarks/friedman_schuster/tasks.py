# SPDX-License-Identifier: Apache-2.0
"""What is to be measured, and measuring it: in a module of its own, for processes import it by name."""

from __future__ import annotations

from typing import Any, NamedTuple

from benchmarks.friedman_schuster.adult import ADULT, PEERS
from benchmarks.friedman_schuster.cells import Cell, Store
from benchmarks.friedman_schuster.synthetic import FIGURES as SYNTHETIC

__all__ = ["FIGURES", "Task", "missing", "missing_of_peers", "work"]

FIGURES: dict[str, Any] = {**SYNTHETIC, ADULT.key: ADULT}


class Task(NamedTuple):
    """What one process measures in one go: some algorithms on one training set."""

    figure: str
    x: float
    run: int
    learners: tuple[str, ...]


def missing(store: Store, runs: dict[str, int]) -> list[Task]:
    """All tasks, first runs first, so that whenever one stops all settings have as many."""
    found = []
    for key, most in runs.items():
        figure = FIGURES[key]
        for run in range(most):
            for x in figure.xs:
                learners = tuple(name for name in figure.learners if (key, name, float(x), run) not in store.done)
                if learners:
                    found.append((run / figure.runs, Task(key, x, run, learners)))
    return [task for _, task in sorted(found, key=lambda one: one[0])]


def missing_of_peers(store: Store, runs: dict[str, int]) -> list[tuple[str, float, int]]:
    """What the peers' interpreter is to measure."""
    wanted = ((name, x, run) for run in range(runs.get(ADULT.key, 0)) for x in ADULT.xs for name in PEERS)
    return [(name, x, run) for name, x, run in wanted if (ADULT.key, name, float(x), run) not in store.done]


def work(task: Task) -> list[Cell]:
    """Measures one task."""
    figure = FIGURES[task.figure]
    return [Cell(task.figure, name, float(task.x), task.run, accuracy) for name, accuracy in figure.measure(task.x, task.run, task.learners).items()]
