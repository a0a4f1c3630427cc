# SPDX-License-Identifier: Apache-2.0
"""Statistics of hospitals and offices: survival curves, tests of independence and effects with strata.

Each comes from one noisy table of counts; intervals and p-values include the noise. Read ``cells.py`` first.
"""

from miners.statistics.cells import Result
from miners.statistics.clusters import kmeans
from miners.statistics.comparisons import compare, independence
from miners.statistics.effects import odds_ratio, rate_ratio, risk_difference, standardised
from miners.statistics.life_tables import survival
from miners.statistics.models import hazard_ratio, logistic, poisson

__all__ = [
    "Result",
    "compare",
    "hazard_ratio",
    "independence",
    "kmeans",
    "logistic",
    "odds_ratio",
    "poisson",
    "rate_ratio",
    "risk_difference",
    "standardised",
    "survival",
]


def __dir__() -> list[str]:
    return [*__all__]
