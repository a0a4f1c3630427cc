# SPDX-License-Identifier: Apache-2.0
"""Figures 1 to 3 of Wang, Dick & Balcan 2020 (DP-TopDown) on this project's miner, four holders.

``make reproduce-topdown`` runs it. Every measurement goes into build/topdown/cells.csv at once; run it again and it goes on where it was.
Tables and pictures go to benchmarks/results/topdown once they are of as many runs as what is there, else to build/topdown/results.
"""

from __future__ import annotations

from benchmarks.harness.command import options, reproduce
from benchmarks.papers.topdown.experiments import figures
from benchmarks.papers.topdown.report import write

NAME = "topdown"
DATA = ("adult", "credit_default")

if __name__ == "__main__":
    parser = options(NAME, __doc__, runs="10", quick=2)
    parser.add_argument(
        "--data",
        nargs="+",
        default=list(DATA),
        metavar="NAME",
        help=f"data sets in PINQ_DATA; default {' '.join(DATA)}",
    )
    asked = parser.parse_args()
    reproduce(NAME, asked, figures(asked.data), write)
