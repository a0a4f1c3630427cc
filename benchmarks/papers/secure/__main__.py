# SPDX-License-Identifier: Apache-2.0
"""Secure ID3 of de Hoogh et al. 2014: Table 6.1, bytes on the wire, and what noise inside costs in accuracy.

``make reproduce-secure`` measures them beside MPyC's own demo, which is not part of the project:
``MPYC_DEMOS`` names the folder ``demos`` of https://github.com/lschoe/mpyc, and ``mpyc`` is installed. Every
measurement goes into build/secure/cells.csv at once; run it again and it goes on where it was. Tables
go to benchmarks/results/secure once they are of as many runs as what is there, else to
build/secure/results.
"""

from __future__ import annotations

from benchmarks.harness.command import Study, run_study
from benchmarks.papers.secure.experiments import DATA, experiments
from benchmarks.papers.secure.report import write

STUDY = Study(
    name="secure",
    module="benchmarks.papers.secure",
    about=__doc__,
    experiments=experiments,
    data=DATA,
    write=write,
    runs="5 of each protocol, 20 folds of each accuracy",
    quick=1,
)

if __name__ == "__main__":
    run_study(STUDY)
