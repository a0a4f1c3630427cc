# SPDX-License-Identifier: Apache-2.0
"""Tables 1 and 2 and Figures 1, 3, 4 and 6 of Consul & Williamson 2020, "Differentially Private Median Forests", on this project's miners.

``make reproduce-diprime`` runs it. Every measurement goes into build/diprime/cells.csv at once; run it again and it goes on where it was. Tables and pictures go to
benchmarks/results/diprime, once they are of as many runs as what is there. Data sets that are not there are left out, and it says so: of the
paper's Table 1 only Appliances Energy comes with a file for now. With ``--quick`` everything is small and goes to build/diprime/quick.
"""

from __future__ import annotations

from benchmarks.harness.command import options, reproduce
from benchmarks.papers.diprime.experiments import EXPERIMENTS
from benchmarks.papers.diprime.report import write

NAME = "diprime"

if __name__ == "__main__":
    reproduce(NAME, options(NAME, __doc__, runs="20", quick=2).parse_args(), EXPERIMENTS, write)
