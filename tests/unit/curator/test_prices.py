# SPDX-License-Identifier: Apache-2.0
"""Prices beside the times that were measured: a verb, a score or a loss that is priced far too low or too high is found without a clock."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.speed.prices import EPSILONS, FORMS, SIZES, curator, is_right, published, units
from pinq import AnyGrouping, Gini
from pinq.curator.candidates.selection import Selection
from pinq.curator.monitor import Curator
from pinq.language.parts import Block, Part, PartSet
from pinq.language.scores import SCORES
from pinq.language.specs import Values, bind

TIMES = published()


@pytest.fixture(scope="module")
def served() -> Curator:
    return curator()


def test_every_score_and_form_was_measured() -> None:
    """At each number of parts and each epsilon; a new score needs a form."""
    assert {type(form["score"]) for form in FORMS.values() if "score" in form} == {*SCORES.values()}
    assert TIMES.keys() == {(form, size, float(epsilon)) for form in FORMS for size in SIZES for epsilon in EPSILONS}


@pytest.mark.parametrize("form", FORMS)
def test_prices_are_the_times_that_were_measured(served: Curator, form: str) -> None:
    """Never less, and at most twice as much but for three units; they grow with the parts, of which few round up."""
    for epsilon in EPSILONS:
        one, few, many = prices = [units(served, form, size, epsilon) for size in SIZES]
        for size, price in zip(SIZES, prices, strict=True):
            assert is_right(price, TIMES[form, size, float(epsilon)]), (size, epsilon)
        assert 64 / 1.5 * (few - one - 1) <= many - one <= 64 * 1.5 * (few - one + 1)


@pytest.mark.parametrize(("candidates", "once"), [(1, True), (16, True), (17, False)])
def test_bipartitions_are_paid_for_as_often_as_they_are_drawn(served: Curator, candidates: int, once: bool) -> None:
    """Of 16 values for a thousand parts: once for each number of values left, where the lists of all candidates are kept."""
    families = [AnyGrouping("c", seed=seed) for seed in range(candidates)]

    def cells(size: int) -> int:
        parts = PartSet([Block(Part(), bind(Values("key16" if size > 2**10 else "key10"), served.schema))])
        return Selection(served.schema, parts.take(np.arange(size)), Gini("y"), [families], [0] * size).cells

    assert (cells(1000) < 100 * cells(1)) == once
