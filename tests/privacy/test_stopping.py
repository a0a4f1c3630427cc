# SPDX-License-Identifier: Apache-2.0
"""``EnoughRows``: what the tests on a way lose in all, in exact numbers; that draws follow that law; that the charge is for the rows it depends on."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from pinq.curator.verbs import penalty, splits_kept
from pinq.language.parts import Block, Part, PartSet
from pinq.language.scores import PATH_LOSS, EnoughRows
from pinq.language.specs import Cuts, Values, bind
from pinq.public.schema import Categorical, Numeric, Schema

COPIES, DEPTH = 2000, 4
SCHEMA = Schema(
    columns={"copy": Categorical(values=tuple(range(COPIES))), "x": Numeric(lower=0, upper=15, integer=True)},
    max_rows=10**6,
)


def log_chance(worth: int, eta: float) -> float:
    """ln P["split"] of a part worth so much: that worth + Laplace(1 / eta) is above 0. ln P["stop"] is that of -worth."""
    return math.log1p(-math.exp(-eta * worth) / 2) if worth >= 0 else eta * worth - math.log(2)


def log_law(counts: list[int], least: int, step: int, eta: float) -> np.ndarray:
    """ln P[so many splits are kept], for parts of so many rows one below the other; shape (splits + 1,)."""
    worths = [max(-step, count - least - level * step) for level, count in enumerate(counts)]
    splits = np.cumsum([0.0, *(log_chance(worth, eta) for worth in worths)])
    return splits + np.array([*(log_chance(-worth, eta) for worth in worths), 0.0])


def loss(counts: list[int], least: int, step: int, eta: float) -> float:
    """The largest log-ratio of any answer when one row joins all of these parts."""
    return float(
        np.abs(log_law([count + 1 for count in counts], least, step, eta) - log_law(counts, least, step, eta)).max()
    )


def dearest(depth: int, least: int, step: int) -> list[int]:
    """The way of the proof: its last part at the floor, the one above it at 0, then one penalty more for each."""
    return [least + level * step + (depth - 2 - level) * step for level in range(depth)]


@pytest.mark.parametrize("depth", [2, 5, 20, 60])
@pytest.mark.parametrize("epsilon", [Fraction(1, 20), Fraction(1, 2), Fraction(3)], ids=str)
def test_a_way_of_any_length_loses_at_most_epsilon(epsilon: Fraction, depth: int) -> None:
    """The proof's worst way, and a thousand others; not much below either, so noise 30 % smaller would lose more."""
    step, eta = penalty(epsilon), float(epsilon / PATH_LOSS)
    least = depth * step
    worst = loss(dearest(depth, least, step), least, step, eta)
    assert worst <= float(epsilon) * (1 + 1e-12)
    random = np.random.default_rng(depth)
    for _ in range(1000):
        drops = random.choice([0, 0, 1, step - 1, step, 2 * step], size=depth)
        counts = list(int(random.integers(0, (depth + 2) * step + 2)) + np.cumsum(drops)[::-1])
        assert loss(counts, int(random.integers(0, least + 1)), step, eta) <= float(epsilon) * (1 + 1e-12)
    if depth >= 20 and epsilon <= Fraction(1, 2):
        assert loss(dearest(depth, least, step), least, step, eta / 0.7) > float(epsilon)


def test_without_a_penalty_a_long_way_loses_more() -> None:
    """What keeps the charge the same at any depth: without it the same noise is worn down by test after test."""
    assert loss([10] * 20, 10, 0, float(Fraction(1) / PATH_LOSS)) > 3


def ways(copies: int = COPIES) -> PartSet:
    """Below each copy a chain: the lowest value is cut off, then the next, and so on; the leaves of all chains."""
    blocks = []
    for copy in range(copies):
        part = Part(Part(), bind(Values("copy"), SCHEMA), copy)
        for cut in range(1, DEPTH + 1):
            partition = bind(Cuts("x", (cut,)), SCHEMA)
            blocks.append(Block(Part(part, partition, 0)))
            part = Part(part, partition, 1)
        blocks.append(Block(part))
    return PartSet(blocks)


def test_draws_follow_the_law() -> None:
    """Chi-square against the exact law, one tree in each copy; false alarm 1e-7, and noise 30 % too small is found out."""
    epsilon, least = Fraction(1, 2), 8
    step, eta = penalty(epsilon), float(epsilon / PATH_LOSS)
    rows = [16, 10, 9, 5, 14]  # at the leaves, from the top; so the split parts have 54, 38, 28, 19
    kept = splits_kept(ways(), rows * COPIES, EnoughRows(least, above=1), epsilon)
    lengths = np.array(kept).reshape(COPIES, DEPTH + 1)
    assert (
        lengths == np.minimum(lengths[:, -1:], np.arange(1, DEPTH + 2).clip(max=DEPTH))
    ).all()  # leaves of one tree tell one story
    seen = np.bincount(lengths[:, -1], minlength=DEPTH + 1)

    def distance(smaller: float) -> float:
        expected = COPIES * np.exp(log_law([54, 38, 28, 19], least, step, eta / smaller))
        return float((np.square(seen - expected) / expected).sum())

    critical = 38.7  # of the chi-square law with 4 degrees of freedom, beyond which it is with probability 1e-7
    assert distance(1.0) < critical < distance(0.7)


def test_all_rows_below_the_beginnings_count_and_no_others() -> None:
    """A leaf without rows and one with many tell the same of what is above both."""
    leaves = ways(1)
    assert set(splits_kept(leaves, [10**6, 0, 0, 0, 0], EnoughRows(10**5, above=1), Fraction(100))) == {1}
    assert splits_kept(leaves, [0, 0, 0, 0, 10**6], EnoughRows(10**5, above=1), Fraction(100)) == [1, 2, 3, 4, 4]
    assert splits_kept(leaves, [0] * 5, EnoughRows(10**5, above=2), Fraction(100)) == [0] * 5
