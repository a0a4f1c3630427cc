# SPDX-License-Identifier: Apache-2.0
"""Figures 3 to 8 and Table 1 of Friedman & Schuster 2010, "Data Mining with Differential Privacy".

``make reproduce-fs`` measures them on this project's miners. Every measurement goes into
build/friedman_schuster/cells.csv at once; run it again and it goes on where it was. Tables and
pictures go to benchmarks/results/friedman_schuster once they have as many runs as what is there,
until then below build/friedman_schuster.
"""

from __future__ import annotations

from benchmarks.harness.command import Study, run_study
from benchmarks.papers.friedman_schuster.adult import ADULT, measure_peers
from benchmarks.papers.friedman_schuster.report import write
from benchmarks.papers.friedman_schuster.synthetic import FIGURES

STUDY = Study(
    name="friedman_schuster",
    module="benchmarks.papers.friedman_schuster",
    about=__doc__,
    experiments=lambda data: [*FIGURES.values(), ADULT],
    data=(ADULT.data,),
    write=write,
    runs="the paper's 200, and 10 x 10 folds on Adult",
    quick=10,
    beside=measure_peers,
)

if __name__ == "__main__":
    run_study(STUDY)
