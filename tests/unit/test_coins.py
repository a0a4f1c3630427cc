# SPDX-License-Identifier: Apache-2.0
"""Seeded noise is the same for the same name, and of the same laws as the product's."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from pinq.curator.mechanisms import choose, choose_weighted, laplace
from pinq.language.scores import Gini
from pinq.language.specs import AnyCut, Shards, Values
from pinq.public.schema import Schema
from tests.support.laws.fixed_noise import COINS, OF_NOISE, seed_of
from tests.support.laws.laws import flip_law, interval_of, law_is, noise_law, weighted, weighted_law
from tests.support.requests.handles import simulated

DRAWS = 20_000
SCORES = [5, 3, 3, 0, -2]


def drawn(epsilon: float, count: int = DRAWS) -> np.ndarray:
    return laplace(np.zeros(count, dtype=np.int64), 1, Fraction(epsilon))


def test_a_name_repeats_its_draws_and_another_does_not() -> None:
    """Of one sampler and the next, however much was drawn in between."""
    with COINS.apart("one"):
        first = drawn(0.5), drawn(0.5)
    with COINS.apart("two"):
        other = drawn(0.5)
    with COINS.apart("one"):
        again = [drawn(0.5)]
        with COINS.apart("two"):
            assert np.array_equal(drawn(0.5), other)
        again.append(drawn(0.5))
    assert np.array_equal(first, again)
    assert not np.array_equal(first[0], other)


def test_a_test_of_noise_is_not_seeded() -> None:
    """Its draws are the operating system's."""
    assert seed_of(OF_NOISE[0] + "test_mechanisms.py::test") is None
    with COINS.apart(None):
        assert not COINS.seeded
        assert not np.array_equal(drawn(0.5, 500), drawn(0.5, 500))  # equal by chance: .24 to the power of 500


def test_handles_repeat_all_that_they_draw(schema: Schema, frame: pd.DataFrame) -> None:
    """Noise, choices, and who is dealt into which shard."""

    def answers() -> list[object]:
        with COINS.apart("handle"), simulated(schema, data=frame, epsilon=20) as handle:
            shards = handle.partition(Shards(4))
            return [
                shards.noisy_count(epsilon=10).tolist(),
                handle.exp_mech([Values("sex"), Values("job")], score=Gini("income"), epsilon="0.01"),
                handle.noisy_avg("age", epsilon="0.1"),
                handle.exp_mech([AnyCut("age")], score=Gini("income"), epsilon="0.01"),
            ]

    assert answers() == answers()


@pytest.mark.parametrize("epsilon", [0.05, 0.7, 3])
def test_seeded_noise_is_discrete_laplace_noise(epsilon: float) -> None:
    edges = np.unique(np.rint(np.linspace(-4, 4, 15) / epsilon).astype(int))
    law_is(interval_of(drawn(epsilon), edges), noise_law(1 / epsilon, edges))


def test_seeded_choices_follow_their_laws() -> None:
    """Permute-and-flip, and the exponential mechanism over weighted runs."""
    scores = np.array(SCORES)
    law_is(np.array([choose(scores, 2, Fraction(1)) for _ in range(DRAWS)]), flip_law(SCORES, 0.5))
    runs = weighted(SCORES, [1, 2, 0, 4, 3], [1, 1, 2, 1, 3])
    law_is(np.array([choose_weighted(runs, 2, Fraction(1))[0] for _ in range(DRAWS)]), weighted_law(runs, 0.5))
