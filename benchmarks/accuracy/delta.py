# SPDX-License-Identifier: Apache-2.0
"""Computes when (epsilon, delta) would have less noise than pure epsilon: the figures of docs/comparison.md.

Counts are compared by the analytic Gaussian mechanism (Balle & Wang 2018, theorem 8), scorecards
by zCDP: Gaussian sums (Bun & Steinke 2016, proposition 1.6) and bounded-range selections (Cesar &
Rogers 2021, rho = epsilon^2 / 8), converted by Canonne, Kamath & Steinke 2020, corollary 13.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq, minimize_scalar
from scipy.stats import norm

import pinq
from miners import Scorecard
from tests.support.house.checkout import ROOT

DELTAS = (1e-6, 1e-9)
EPSILONS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
CHOICE = 0.25  # fraction of a step's epsilon for its selection


def gaussian_scale(epsilon: float, delta: float) -> float:
    """Returns the smallest standard deviation for one count."""

    def lost(scale: float) -> float:
        near, far = 1 / (2 * scale) - epsilon * scale, -1 / (2 * scale) - epsilon * scale
        return float(norm.cdf(near) - math.exp(epsilon) * norm.cdf(far))

    return float(brentq(lambda scale: lost(scale) - delta, 1e-3, 1e5))


def first_gain(epsilon: float, delta: float, level: float = 0.95) -> int:
    """Returns from how many equal counts of the same rows on intervals are narrower with delta."""
    gaussian = norm.ppf((1 + level) / 2) * gaussian_scale(epsilon, delta)
    laplace = -math.log(1 - level) / epsilon
    return math.floor((gaussian / laplace) ** 2) + 1


def concentrated(epsilon: float, delta: float) -> float:
    """Returns the largest rho whose zCDP implies (epsilon, delta)."""

    def log_delta(rho: float) -> float:
        def bound(logarithm: float) -> float:
            order = 1 + math.exp(logarithm)
            return (order - 1) * (order * rho - epsilon) + order * math.log1p(-1 / order) - math.log(order - 1)

        return float(minimize_scalar(bound, bounds=(-8, 12), method="bounded").fun)

    return float(brentq(lambda rho: log_delta(rho) - math.log(delta), 1e-9, 50))


def scorecard_gain(epsilon: float, steps: int, delta: float) -> float:
    """Returns by what factor delta reduces the noise of all steps, selections and sums alike."""
    choice, sums = CHOICE * epsilon / steps, (1 - CHOICE) * epsilon / steps
    variance = 2 / sums**2  # of Laplace noise, whose Gaussian counterpart costs 1 / (2 variance)
    return math.sqrt(concentrated(epsilon, delta) / (steps * (choice**2 / 8 + 1 / (2 * variance))))


def main() -> None:
    """Prints both comparisons."""
    schema = pinq.load_policy(ROOT / "policies" / "adult.yaml").schema_
    uncut = {name: schema.columns[name].model_copy(update={"cuts": ()}) for name in schema.numeric_columns}
    schema = schema.model_copy(update={"columns": {**schema.columns, **uncut}})
    plans = [Scorecard(epsilon=epsilon).plan(schema, "income") for epsilon in EPSILONS]
    steps = [max(line.level for line in plan.lines) for plan in plans]
    print("steps of a scorecard on Adult without declared cuts:", *steps)
    for delta in DELTAS:
        print(f"delta {delta:g}, counts at epsilon 1: narrower from {first_gain(1, delta)} equal counts on")
        gains = [scorecard_gain(*setting, delta) for setting in zip(EPSILONS, steps, strict=True)]
        print(f"delta {delta:g}, scorecards at epsilon {EPSILONS}:", " ".join(f"{gain:.2f}" for gain in gains))


if __name__ == "__main__":
    main()
