# SPDX-License-Identifier: Apache-2.0
"""Figures 2 to 11 and Tables 3 to 6 of Battaglia, Celano & Pensa 2021 (DP-DILCA).

``make reproduce-dilca`` measures our miner and the published mechanism in one run. Every measurement
goes into build/dilca/cells.csv at once; run it again and it goes on where it was. Means and pictures
go to benchmarks/results/dilca once they are of as many runs as what is there, else to
build/dilca/results.
"""

from __future__ import annotations

from benchmarks.harness.command import Study, run_study
from benchmarks.papers.dilca.data import NAMES
from benchmarks.papers.dilca.experiments import EXPERIMENTS
from benchmarks.papers.dilca.report import write

STUDY = Study(
    name="dilca",
    module="benchmarks.papers.dilca",
    about=__doc__,
    experiments=lambda data: EXPERIMENTS,
    data=NAMES,
    write=write,
    runs="the paper's 30, 100 of figure 6",
    quick=1,
)

if __name__ == "__main__":
    run_study(STUDY)
