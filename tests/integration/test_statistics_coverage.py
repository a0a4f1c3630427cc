# SPDX-License-Identifier: Apache-2.0
"""Intervals of statistics hold and tests keep their level, over three simulated tables; seeded, so nothing is chance."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from benchmarks.accuracy.coverage import EPSILONS, cells, simulated
from tests.support.house.assurance import ASSURANCE

DRAWS = 400 if ASSURANCE else 40
NAMES = ["survival", "hazard_ratio", "odds_ratio", "logistic", "poisson", "compare", "standardised", "independence"]
if ASSURANCE:
    NAMES.append("log-rank")  # which redraws its tables, and is slow


@pytest.mark.parametrize("name", NAMES)
def test_coverage_and_level(name: str) -> None:
    """Coverage is within .93 and .97, and a level within .035 and .065, as far as so many draws can tell."""
    figures: Counter[str] = Counter()
    for population in simulated():
        for cell in cells(population, EPSILONS if ASSURANCE else (1.0,), (name,)):
            figures.update(cell.measure(DRAWS, 0))
    for part, of, low, high in (("held", "told", 0.93, 0.97), ("rejected", "tests", 0.035, 0.065)):
        if figures[of]:
            chance = 3 * math.sqrt(0.05 * 0.95 / figures[of])
            assert low - chance <= figures[part] / figures[of] <= high + chance, figures
    assert figures["told"] + figures["tests"] > 0
