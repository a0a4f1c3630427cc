# SPDX-License-Identifier: Apache-2.0
"""Tables 1 and 2 and Figures 1, 3, 4 and 6 of Consul & Williamson 2020.

The paper is "Differentially Private Median Forests"; ``make reproduce-diprime`` measures it on this
project's miners. Every measurement goes into build/diprime/cells.csv at once; run it again and it
goes on where it was. Tables and pictures go to benchmarks/results/diprime, once they are of as many
runs as what is there. Data sets that are not there are left out, and it says so: of the paper's
Table 1 only Appliances Energy comes with a file for now.
"""

from __future__ import annotations

from benchmarks.harness.command import Study, run_study
from benchmarks.papers.diprime.experiments import DATA, EXPERIMENTS
from benchmarks.papers.diprime.report import write

STUDY = Study(
    name="diprime",
    module="benchmarks.papers.diprime",
    about=__doc__,
    experiments=lambda data: list(EXPERIMENTS.values()),
    data=DATA,
    write=write,
    runs="20",
    quick=2,
)

if __name__ == "__main__":
    run_study(STUDY)
