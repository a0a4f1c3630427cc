# SPDX-License-Identifier: Apache-2.0
from typing import Any

import pytest
from hypothesis import given, strategies as st
from scipy.stats import dlaplace

from miners.budget.plan import Recipe, Step, StepName, StepQuery, count_scale, spread
from pinq.errors import QueryError
from pinq.public.epsilon import ZERO, Epsilon, laplace_interval, standard_deviation
from pinq.public.schema import Numeric, Schema

SIZE, CLASSES, SPLIT, CUT, TABLES = StepName.SIZE, StepName.CLASSES, StepName.SPLIT, StepName.CUT, StepName.TABLES


def query(name: Any, weight: Any = 1, times: Any = 1) -> Any:
    return StepQuery(
        name, "noisy_count", f"its {name.value}", lambda epsilon: (float(1 / epsilon.exact), "rows"), weight, times
    )


TIMES = st.integers(1, 40)


def queries(names: Any, times: Any = TIMES) -> Any:
    weighed = st.builds(query, st.sampled_from(names), st.integers(1, 20), times)
    return st.lists(weighed, min_size=1, max_size=4, unique_by=lambda asked: asked.name)


def even(epsilon: Any, depth: Any, node: Any, leaf: Any, **how: Any) -> Any:
    return Recipe.by_weights(Epsilon.of(epsilon), [node] * depth, leaf, **how)


NODE = queries([SIZE, CUT, SPLIT, TABLES])
LEAF = queries([SIZE, CLASSES], times=st.just(1))


@given(nano=st.integers(10**7, 10**15), levels=st.lists(NODE, max_size=12), leaf=LEAF)
def test_a_full_path_costs_the_total_to_the_nano(nano: Any, levels: Any, leaf: Any) -> None:
    recipe = Recipe.by_weights(Epsilon(nano), levels, leaf)
    steps = [step for row in (*recipe.levels, recipe.leaf) for step in row]
    asked = [step.epsilon for step in steps for _ in range(step.query.times)]
    assert sum(asked, ZERO) == recipe.total == Epsilon(nano)
    assert sum((step.cost for step in steps), ZERO) == recipe.total
    assert [[step.query for step in row] for row in recipe.levels] == levels
    assert [step.level for step in recipe.leaf] == [len(levels)] * len(leaf)


@given(nano=st.integers(10**6, 10**15), depth=st.integers(1, 30), data=st.data())
def test_a_path_that_stops_early_costs_the_total_too(nano: Any, depth: Any, data: Any) -> None:
    recipe = even(Epsilon(nano), depth, [query(SIZE), query(SPLIT)], [query(CLASSES, 2)])
    level = data.draw(st.integers(0, depth - 1))
    above = sum((step.cost for row in recipe.levels[:level] for step in row), ZERO)
    size = recipe.step(SIZE, level)
    assert above + size.cost + recipe.remainder(level, [size]) == recipe.total
    assert recipe.early_leaf(level, [size]).cost == recipe.remainder(level, [size])
    assert recipe.remainder(level, []) == recipe.total - above
    assert recipe.remainder(depth, []) == recipe.leaf_step(CLASSES).cost


def test_an_early_leaf_may_leave_the_rest_unspent() -> None:
    node, leaf = [query(SIZE), query(SPLIT)], [query(SIZE), query(CLASSES)]
    recipe = even("0.6", 2, node, leaf, spends_rest=False)
    assert recipe.early_leaf(0, [recipe.step(SIZE, 0)]).cost == Epsilon.of("0.1")
    assert even("0.6", 2, node, leaf).early_leaf(0, [recipe.step(SIZE, 0)]).cost == Epsilon.of("0.5")


def test_the_papers_share_is_a_2d_plus_2th_and_the_leaf_gets_two() -> None:
    recipe = even("0.6", 2, [query(SIZE), query(SPLIT)], [query(SIZE), query(CLASSES)])
    assert {step.epsilon for row in (*recipe.levels, recipe.leaf) for step in row} == {Epsilon.of("0.1")}


def test_numeric_attributes_make_it_a_2_plus_n_d_plus_2th() -> None:
    node = [query(SIZE), query(CUT, times=6), query(SPLIT)]
    recipe = even("2.6", 3, node, [query(SIZE), query(CLASSES)])
    assert {step.epsilon for row in (*recipe.levels, recipe.leaf) for step in row} == {Epsilon.of("0.1")}
    assert recipe.step(CUT, 0).cost == Epsilon.of("0.6")


def test_what_does_not_divide_goes_to_the_leaf() -> None:
    recipe = even(1, 2, [query(SIZE), query(SPLIT)], [query(SIZE), query(CLASSES)])
    assert recipe.step(SIZE, 0) == Step(recipe.step(SIZE, 0).query, 0, Epsilon(166_666_666))
    assert recipe.leaf_step(SIZE).epsilon == Epsilon(166_666_666)
    assert recipe.leaf_step(CLASSES).epsilon == Epsilon(166_666_670)


def test_a_step_reads_as_a_line_of_a_plan() -> None:
    step = Step(
        StepQuery(CLASSES, "noisy_count", "its classes", lambda epsilon: (2.0, "rows"), numbers=3), 1, Epsilon.of(1)
    )
    line = step.line(5, Epsilon.of(2))
    assert (line.level, line.query, line.verb, line.parts) == (1, "its classes", "noisy_count", 15)
    assert (float(line.epsilon), line.noise, line.unit) == (2, 2.0, "rows")


def test_a_share_below_a_nano_epsilon_is_refused() -> None:
    with pytest.raises(QueryError, match="too small"):
        spread(Epsilon(3), [1, 1, 1, 1])
    with pytest.raises(QueryError, match="too small"):
        even("0.000000003", 5, [query(SIZE), query(SPLIT)], [query(CLASSES, 2)])


@pytest.mark.parametrize("epsilon", [0, -1, float("nan"), float("inf"), "much", None, True])
def test_what_is_no_loss_is_refused(epsilon: Any) -> None:
    with pytest.raises(QueryError, match="epsilon"):
        even(epsilon, 2, [query(SIZE)], [query(CLASSES)])


def test_shares_that_do_not_add_up_are_refused() -> None:
    quarter = Epsilon.of("0.25")
    level = (Step(query(SIZE, times=2), 0, quarter),)
    with pytest.raises(QueryError, match="add up"):
        Recipe(Epsilon.of(1), (level,), (Step(query(CLASSES), 1, quarter),))


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
    assert count_scale(Schema(columns=columns, max_rows=9), Epsilon.of("0.5")) == 2
    assert count_scale(Schema(columns=columns, max_rows=9, adjacency="substitute"), Epsilon.of("0.5")) == 4
