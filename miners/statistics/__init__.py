# SPDX-License-Identifier: Apache-2.0
"""Statistics that hospitals and offices publish, each from one noisy table of counts.

Survival curves, tests of independence and effects with strata, with intervals and p-values that
contain the noise. Read ``cells.py`` first: a statistic is a function of counts, and its errors
follow from its gradient.
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
