# SPDX-License-Identifier: Apache-2.0
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import dlaplace

from miners.budget.noise import count_scale
from miners.budget.schedule import Ask, Schedule, spread
from pinq.errors import QueryError
from pinq.public.accuracy import laplace_interval, standard_deviation
from pinq.public.epsilon import NANO, exact
from pinq.public.schema import Numeric, Schema

WEIGHT = st.integers(1, 20)
NODE = st.dictionaries(
    st.sampled_from(["size", "cut", "split", "tables"]), WEIGHT | st.tuples(WEIGHT, st.integers(1, 40)), min_size=1
)
LEAF = st.dictionaries(st.sampled_from(["size", "classes"]), WEIGHT, min_size=1)


@given(nano=st.integers(10**7, 10**15), levels=st.lists(NODE, max_size=12), leaf=LEAF)
def test_a_full_way_costs_the_total_to_the_nano(nano: Any, levels: Any, leaf: Any) -> None:
    schedule = Schedule.by_weights(exact(nano), levels, leaf)
    asked = [ask for level in (*schedule.levels, schedule.leaf) for ask in level.values() for _ in range(ask.times)]
    assert sum(ask.epsilon for ask in asked) == schedule.total == Fraction(nano, NANO)
    assert all((ask.epsilon * NANO).denominator == 1 for ask in asked)
    assert [list(level) for level in schedule.levels] == [list(level) for level in levels]


@given(nano=st.integers(10**6, 10**15), depth=st.integers(1, 30), data=st.data())
def test_a_way_that_stops_early_costs_the_total_too(nano: Any, depth: Any, data: Any) -> None:
    schedule = Schedule.even(exact(nano), depth, node={"size": 1, "split": 1}, leaf={"classes": 2})
    level = data.draw(st.integers(0, depth - 1))
    above = sum((ask.cost for one in schedule.levels[:level] for ask in one.values()), Fraction(0))
    assert above + schedule.levels[level]["size"].cost + schedule.left(level, "size") == schedule.total
    assert schedule.left(level) == schedule.total - above
    assert schedule.left(depth) == schedule.leaf["classes"].cost


def test_the_papers_share_is_a_2d_plus_2th_and_the_leaf_gets_two() -> None:
    schedule = Schedule.even("0.6", 2, node={"size": 1, "split": 1}, leaf={"size": 1, "classes": 1})
    assert {ask.epsilon for level in (*schedule.levels, schedule.leaf) for ask in level.values()} == {Fraction("0.1")}


def test_numeric_attributes_make_it_a_2_plus_n_d_plus_2th() -> None:
    schedule = Schedule.even("2.6", 3, node={"size": 1, "cut": (1, 6), "split": 1}, leaf={"size": 1, "classes": 1})
    assert {ask.epsilon for level in (*schedule.levels, schedule.leaf) for ask in level.values()} == {Fraction("0.1")}
    assert schedule.levels[0]["cut"].cost == Fraction("0.6")


def test_what_does_not_divide_goes_to_the_leaf() -> None:
    schedule = Schedule.even(1, 2, node={"size": 1, "split": 1}, leaf={"size": 1, "classes": 1})
    assert schedule.levels[0]["size"] == Ask(Fraction(166_666_666, NANO))
    assert schedule.leaf["size"].epsilon == Fraction(166_666_666, NANO)
    assert schedule.leaf["classes"].epsilon == Fraction(166_666_670, NANO)


def test_levels_cannot_be_changed() -> None:
    schedule = Schedule.even(1, 1, node={"size": 1}, leaf={"classes": 1})
    with pytest.raises(TypeError):
        schedule.levels[0]["size"] = Ask(Fraction(0))


def test_a_share_below_a_nano_epsilon_is_refused() -> None:
    with pytest.raises(QueryError, match="too small"):
        spread(3, [1, 1, 1, 1])
    with pytest.raises(QueryError, match="too small"):
        Schedule.even("0.000000003", 5, node={"size": 1, "split": 1}, leaf={"classes": 2})


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), "much", None, True])
def test_what_is_no_loss_is_refused(epsilon: Any) -> None:
    with pytest.raises(QueryError, match="epsilon"):
        Schedule.even(epsilon, 2, node={"size": 1}, leaf={"classes": 1})


def test_shares_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(QueryError, match="add up"):
        Schedule(Fraction(1), ({"size": Ask(Fraction(1, 4), 2)},), {"classes": Ask(Fraction(1, 4))})


@given(scale=st.floats(0.05, 200), level=st.floats(0.5, 0.999))
def test_the_half_width_is_the_smallest_that_holds_the_noise(scale: Any, level: Any) -> None:
    law = dlaplace(1 / scale)
    k = laplace_interval(scale, level)
    assert law.cdf(k) - law.cdf(-k - 1) >= level - 1e-6
    if k:
        assert law.cdf(k - 1) - law.cdf(-k) < level + 1e-6


@given(scale=st.floats(0.05, 200))
def test_the_standard_deviation_is_that_of_the_law(scale: Any) -> None:
    assert standard_deviation(scale) == pytest.approx(dlaplace(1 / scale).std(), rel=1e-6)


def test_the_noise_grows_with_the_distance_of_neighbours() -> None:
    columns = {"a": Numeric(lower=0, upper=9, integer=True)}
    assert count_scale(Schema(columns=columns, max_rows=9), Fraction(1, 2)) == 2
    assert count_scale(Schema(columns=columns, max_rows=9, adjacency="substitute"), Fraction(1, 2)) == 4
