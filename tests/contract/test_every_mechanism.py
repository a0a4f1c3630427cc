# SPDX-License-Identifier: Apache-2.0
"""What every mechanism promises: its exact law, and a loss of its epsilon and no more. A new one is listed in ``MECHANISMS``.

How sure these tests are: see tests/support/laws/laws.py. Each test is tried on weak noise too, of 70 % of the
scale, and must fail there.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import pinq.curator
from pinq.curator.mechanisms import choose_each, choose_weighted, laplace
from pinq.provider.testing import epsilon_lower_bound
from tests.support.laws.laws import ALMOST_NEVER, WEAK, flip_law, interval_of, law_is, noise_law, weighted, weighted_law


@dataclass(frozen=True)
class Mechanism:
    """A mechanism on the two neighbouring tables where it loses the most, or nearly.

    Attributes:
        draw: A function from a table, a number of draws and a loss to the outcomes.
        table: The first one.
        neighbour: The second one.
        law: The law of the outcomes on the first table at a loss.
        place: The index of each outcome in the law.
        epsilon: The claimed loss.
        runs: The number of draws by which a bound of the loss keeps a right loss and refutes a weak one, except once in
            a million times.
                draws: The number of draws by which a comparison with the law does so; fewer suffice for the loss of a rare
            outcome.
    """

    draw: Callable[[Any, int, Fraction], Any]
    table: Any
    neighbour: Any
    law: Callable[[Any, float], np.ndarray]
    place: Callable[[Any], np.ndarray] = np.asarray
    epsilon: Fraction = Fraction(3, 2)
    runs: int = 9000
    draws: int = 9000


UNITS = 500  # of a sum, that one row can move
EDGES = np.arange(-5 * UNITS, 5 * UNITS + 1, UNITS // 4)
MECHANISMS: dict[str, Mechanism] = {
    "laplace": Mechanism(
        lambda units, runs, epsilon: laplace(np.full(runs, units), UNITS, epsilon),
        0,
        UNITS,
        lambda _, epsilon: noise_law(UNITS / epsilon, EDGES),
        lambda noise: interval_of(noise, EDGES),
        runs=16_000,
        draws=16_000,
    ),
    "choose_each": Mechanism(
        lambda scores, runs, epsilon: choose_each(np.tile(scores, runs), [len(scores)] * runs, 1, epsilon),
        (0, 0, -1),
        (0, -1, -1),
        lambda scores, epsilon: flip_law(list(scores), epsilon),
    ),
    # The exponential mechanism loses its epsilon only in the limit of a rare candidate. The score of the rare run (2 % of
    # the mass) stays, all others fall by the span: at epsilon 2 the loss is ln(1 / (0.02 + 0.98 exp(-2))) = 1.88, and 2.57
    # with weak noise. Of 34,000 draws half measure: the latter has a standard error of 0.055, and lies 10.3 of these above
    # the claim. By the law the rare run has 13 %, and 26 % with weak noise, 23 standard errors of 6,000 draws.
    "choose_weighted": Mechanism(
        lambda runs_of, runs, epsilon: [choose_weighted(runs_of, 3, epsilon)[0] for _ in range(runs)],
        weighted([0, -3], [1, 49], [50, 50]),
        weighted([0, 0], [1, 49], [50, 50]),
        lambda runs_of, epsilon: weighted_law(runs_of, epsilon / 3),
        epsilon=Fraction(2),
        runs=34_000,
        draws=6_000,
    ),
}
# Each draws by one of these.
OF_QUESTIONS = {"_count", "_sum", "_derivatives", "_average", "_vote"}
# Its law is one of whole trees: tests/privacy/test_stopping.py.
OF_TREES = {"splits_kept"}
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


def test_all_mechanisms_are_here() -> None:
    """Whatever function of the curator takes exact numbers and an epsilon and claims a loss in its docstring."""
    names = [info.name for info in pkgutil.walk_packages(pinq.curator.__path__, "pinq.curator.")]
    functions = {
        name
        for module in map(importlib.import_module, names)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and "Claim: epsilon-DP" in (function.__doc__ or "")
    }
    assert functions == set(MECHANISMS) | OF_TREES | OF_QUESTIONS


@every_mechanism
def test_draws_follow_the_exact_law(mechanism: Mechanism) -> None:
    """By chi-square; draws with weak noise do not."""
    law = mechanism.law(mechanism.table, float(mechanism.epsilon))
    assert law.sum() == pytest.approx(1)
    law_is(mechanism.place(mechanism.draw(mechanism.table, mechanism.draws, mechanism.epsilon)), law)
    with pytest.raises(AssertionError):
        law_is(mechanism.place(mechanism.draw(mechanism.table, mechanism.draws, mechanism.epsilon / WEAK)), law)


@every_mechanism
def test_it_loses_its_epsilon_and_no_more(mechanism: Mechanism) -> None:
    """A lower bound of the loss stays under the claim and near it, and passes the claim once the noise is too weak."""

    def bound(epsilon: Fraction, runs: int) -> float:
        return epsilon_lower_bound(
            lambda table, runs: mechanism.draw(table, runs, epsilon),
            mechanism.table,
            mechanism.neighbour,
            runs=runs,
            error=ALMOST_NEVER,
        )

    found = bound(mechanism.epsilon, mechanism.runs)
    assert found <= mechanism.epsilon
    assert found >= 0.6 * float(mechanism.epsilon), "the test has lost its power"
    # Half as many draws nearly always show it.
    assert any(
        bound(mechanism.epsilon / WEAK, runs) > mechanism.epsilon for runs in (mechanism.runs // 2, mechanism.runs)
    )
