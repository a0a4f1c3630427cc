# SPDX-License-Identifier: Apache-2.0
"""``EnoughRows`` as analysts ask it: what comes back, what it costs, what is refused."""

from fractions import Fraction
from typing import Any

import pandas as pd
import pytest

from pinq import Balance, Cuts, EnoughRows, Parts, QueryError, Values
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.requests.handles import simulated

SCHEMA = Schema(
    columns={"x": Numeric(lower=0, upper=99, integer=True), "sex": Categorical(values=("f", "m"))}, max_rows=5000
)
SURE = 1000
ROWS = pd.DataFrame({"x": [5] * 300 + [60] * 20 + [99] * 700, "sex": ["f", "m"] * 510})


def handle(epsilon: Any = SURE) -> Any:
    return simulated(SCHEMA, data=ROWS, epsilon=epsilon)


def leaves(root: Any, *points: Any) -> Any:
    """A tree: the first cut, then the upper part by the next, and so on."""
    leaf_parts, parts = [], root.parts()
    for point in points:
        both = parts.partition([Cuts("x", (point,))])
        leaf_parts.append(both[[0]])
        parts = both[[1]]
    return Parts.union(*leaf_parts, parts)


def test_each_leaf_is_told_how_many_splits_are_left_above_it() -> None:
    h = handle()
    assert leaves(h, 10, 70, 80).exp_mech(score=EnoughRows(500), epsilon=100) == [1, 2, 3, 3]
    assert leaves(h, 10, 70, 80).exp_mech(score=EnoughRows(710), epsilon=100) == [1, 2, 2, 2]
    assert leaves(h, 70, 10, 80)[[0]].exp_mech(score=EnoughRows(330), epsilon=100) == [0]
    assert h.exp_mech(score=EnoughRows(0), epsilon=1) == 0
    assert h.history().answer.iloc[0] == [1, 2, 3, 3]
    assert "enough_rows" in h.history().asked.iloc[0]


def test_a_tree_costs_what_its_first_part_costs() -> None:
    """Whatever the depth; trees on disjoint parts cost what one costs, and two trees on the same rows twice that."""
    h = handle(epsilon=3)
    leaves(h, *range(10, 60)).exp_mech(score=EnoughRows(10), epsilon=1)
    assert h.budget.spent == 1
    shards = h.shards(2)
    both = Parts.union(leaves(shards[0], 10, 20), leaves(shards[1], 30))
    assert both.preview("exp_mech", score=EnoughRows(10, above=both.depth - 1), epsilon=1).cost == 1
    below = [leaves(h.partition(Values("sex"))[sex], 10, 20) for sex in ("f", "m")]
    below[0].exp_mech(score=EnoughRows(10, above=1), epsilon=1)
    assert h.budget.spent == 2
    below[1].exp_mech(score=EnoughRows(10, above=1), epsilon=1)
    assert h.budget.spent == 2
    Parts.union(*below).exp_mech(
        score=EnoughRows(10), epsilon=Fraction(1, 2)
    )  # one tree, whose first split is by sex: all of its rows are charged
    assert h.budget.spent == Fraction(5, 2)


def test_part_of_a_tree_costs_no_less() -> None:
    """The answer for one leaf follows the rows of the whole, as far as they are asked for: what holds them all is charged."""
    h = handle(epsilon=2)
    leaves(h, 10, 20)[[2]].exp_mech(score=EnoughRows(10), epsilon=1)
    leaves(h, 10, 20)[[0]].noisy_count(epsilon=1)
    assert h.budget.spent == 2


@pytest.mark.parametrize(
    ("ask", "match"),
    [
        (lambda h: leaves(h, 10).exp_mech(score=EnoughRows, epsilon=1), r"write EnoughRows\(least\)"),
        (lambda h: leaves(h, 10).exp_mech(score=EnoughRows(-1), epsilon=1), "`least` of EnoughRows is -1"),
        (lambda h: leaves(h, 10).exp_mech(score=EnoughRows(1, above=99), epsilon=1), "`above` of EnoughRows is 99"),
        (lambda h: leaves(h, 10).exp_mech(score=EnoughRows(1, above=2), epsilon=1), "begin 2 splits below"),
        (lambda h: leaves(h, 10).exp_mech([Cuts("x", (5,))], score=EnoughRows(1), epsilon=1), "takes no `candidates`"),
        (lambda h: leaves(h, 10).exp_mech(score=EnoughRows(1), epsilon=1, textbook=True), "`textbook`"),
        (lambda h: leaves(h, 10).exp_mech(score=Balance(), epsilon=1), "`candidates` is empty"),
    ],
    ids=["no rows", "negative", "too deep", "above the parts", "candidates", "textbook", "other scores"],
)
def test_what_is_wrong_is_said(ask: Any, match: Any) -> None:
    h = handle()
    with pytest.raises(QueryError, match=match):
        ask(h)
    assert h.budget.spent == 0


def test_preview_says_what_is_enough() -> None:
    text = repr(leaves(handle(), 10).preview("exp_mech", score=EnoughRows(100), epsilon=1))
    assert "from about 100 rows on, ±8 in 95 % of cases, and 2 more for each split" in text
