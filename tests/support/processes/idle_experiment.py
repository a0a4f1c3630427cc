# SPDX-License-Identifier: Apache-2.0
"""An experiment that measures nothing, in a module of its own: each process that runs it imports no more than this."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.harness.measure import Experiment

SECONDS = 0.05


@dataclass(frozen=True)
class Pause(Experiment):
    """Says when it ran."""

    key: str
    alone: bool
    title: str = ""
    xlabel: str = ""
    runs: int = 3
    data: str = ""
    xs: Sequence[float] = (1.0,)
    learners: Sequence[str] = ("pause",)

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, dict[str, float]]:
        began = time.monotonic()
        time.sleep(SECONDS)
        return {name: {"began": began, "ended": time.monotonic()} for name in learners}
