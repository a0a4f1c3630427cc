# SPDX-License-Identifier: Apache-2.0
"""Figures 1 to 3, 5 and 6 of Wang, Dick & Balcan 2020 (DP-TopDown), four owners.

``make reproduce-topdown`` measures them on this project's miner. Every measurement goes into
build/topdown/cells.csv at once; run it again and it goes on where it was. Tables and pictures go to
benchmarks/results/topdown once they are of as many runs as what is there, else to
build/topdown/results.
"""

from __future__ import annotations

from benchmarks.harness.command import Study, run_study
from benchmarks.papers.topdown.experiments import figures
from benchmarks.papers.topdown.report import write

STUDY = Study(
    name="topdown",
    module="benchmarks.papers.topdown",
    about=__doc__,
    experiments=lambda data: list(figures(data).values()),
    data=("adult", "credit_default"),
    write=write,
    runs="the paper's 100, 2 without noise and of sums under encryption",
    quick=1,
)

if __name__ == "__main__":
    run_study(STUDY)
