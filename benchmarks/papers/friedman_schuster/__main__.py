# SPDX-License-Identifier: Apache-2.0
"""Figures 3 to 8 and Table 1 of Friedman & Schuster 2010, "Data Mining with Differential Privacy", on this project's miners.

``make reproduce-fs`` runs it. Every measurement goes into build/friedman_schuster/cells.csv at once; run it again and it goes on where it was.
Tables and pictures go to benchmarks/results/friedman_schuster once they have as many runs as what is there, until then below build/friedman_schuster.
"""

from __future__ import annotations

from benchmarks.harness.command import options, reproduce
from benchmarks.harness.measure import Experiment
from benchmarks.papers.friedman_schuster.adult import ADULT, measure_peers
from benchmarks.papers.friedman_schuster.report import write
from benchmarks.papers.friedman_schuster.synthetic import FIGURES as SYNTHETIC

FIGURES: dict[str, Experiment] = {**SYNTHETIC, ADULT.key: ADULT}
NAME = "friedman_schuster"

if __name__ == "__main__":
    asked = options(NAME, __doc__, runs="the paper's 200, and 10 x 10 folds on Adult", quick=10).parse_args()
    reproduce(NAME, asked, FIGURES, write, beside=measure_peers)
