# SPDX-License-Identifier: Apache-2.0
"""How a scorecard's epsilon is divided, and which rules follow from public facts."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, strategies as st

from miners import Scorecard
from miners.growth.candidates import Grid, attribute_cells, public_cuts
from miners.scorecards.costs import (
    MAX_STEPS,
    MOST_STEPS,
    TABLES,
    TABLES_FOR_TWO,
    FitCosts,
    base_fraction,
    choice_fraction,
    steps_after_tables,
    steps_that_pay,
    tables_for_two,
    tables_pay,
)
from pinq.errors import QueryError
from pinq.language.specs import Cuts, Values, bind
from pinq.public.epsilon import ZERO, Epsilon
from pinq.public.schema import Categorical, Numeric, Schema


@given(
    nano=st.integers(10**6, 10**11),
    tables=st.integers(0, 60),
    steps=st.integers(0, MAX_STEPS // 10),
    choice=st.just(0.0) | st.floats(0.01, 0.9),
)
def test_shares_add_up_to_the_total(nano: int, tables: int, steps: int, choice: float) -> None:
    """To the nano-epsilon, with nothing for free."""
    shares = FitCosts.of(Epsilon(nano), tables=tables, steps=steps, choice=choice, base=0.2)
    assert shares.total == Epsilon(nano)
    assert len(shares.tables) == tables
    assert len(shares.steps) == steps
    paid = [*shares.bases, *shares.tables, *(step.sums for step in shares.steps)]
    assert min(paid) >= Epsilon(1)
    assert all((step.choice is not None and step.choice > ZERO) == (choice > 0) for step in shares.steps)


def test_later_steps_get_more() -> None:
    """For they have less to find; the most of each step goes into its sums."""
    steps = FitCosts.of(Epsilon(10**9), tables=0, steps=8, choice=0.25, base=0.2).steps
    assert all(early.sums < late.sums for early, late in itertools.pairwise(steps))
    assert all(step.choice is not None and step.choice < step.sums for step in steps)


def test_an_epsilon_that_is_too_small_to_share_is_refused() -> None:
    """Before anything is asked."""
    with pytest.raises(QueryError, match="too small to be divided"):
        FitCosts.of(Epsilon(50), tables=0, steps=9, choice=0.25, base=0.2)


def test_more_rows_and_fewer_classes_pay_for_more_steps() -> None:
    """Of 14 attributes of 14 cells, 50,000 rows and epsilons from 0.1 to 4; twice the rows are a root more steps."""
    assert [steps_that_pay(50_000 * epsilon, 14, 14) for epsilon in (0.1, 0.25, 0.5, 1, 2, 4)] == [4, 7, 9, 13, 19, 24]
    assert steps_that_pay(10**12, 30, 10) == MOST_STEPS < MAX_STEPS
    assert steps_that_pay(20, 4, 10) == 0
    for size in (10.0, 10**3, 10**5, 10**7):
        many, few = ([steps_after_tables(size, classes, count) for classes in (3, 10, 100)] for count in (7, 6))
        assert many == sorted(many, reverse=True)
        assert many[0] > many[2] or not many[0]
        assert all(here >= there for here, there in zip(many, few, strict=True))


@given(size=st.floats(1, 10**7), attributes=st.integers(1, 1000), cells=st.floats(1, 100))
def test_no_step_is_a_cliff(size: float, attributes: int, cells: float) -> None:
    """One row more is one step more at most, one attribute more one step less."""
    steps = steps_that_pay(size, attributes, cells)
    assert steps <= steps_that_pay(size + 1, attributes, cells) <= steps + 1
    assert steps - 3 <= steps_that_pay(size, attributes + 1, cells) <= steps


def test_a_choice_gets_what_it_takes_to_find_the_best_of_many() -> None:
    """More of many attributes, less of many cells; nothing where there is one attribute."""
    assert choice_fraction(1, 10) == 0
    assert (
        choice_fraction(36, 2)
        > choice_fraction(14, 2)
        > 0.5
        > choice_fraction(14, 11)
        == pytest.approx(1 / 3, abs=0.01)
    )


def test_one_step_leaves_enough_to_know_the_likelier_class() -> None:
    """22 attributes of two values and one step: three tenths; of 24 steps of 14 attributes a hundredth."""
    shares = [FitCosts.of(Epsilon(10**9), tables=0, steps=1, choice=0.5, base=base_fraction(22, 2)).bases[0]]
    shares += [FitCosts.of(Epsilon(10**9), tables=0, steps=24, choice=0.3, base=base_fraction(14, 11)).bases[0]]
    assert [float(share) for share in shares] == pytest.approx([0.31, 0.011], abs=2e-3)


def test_two_classes_start_from_tables_where_attributes_are_few() -> None:
    """Half of epsilon, unless noise hides all of them; a single attribute is one step."""
    assert [tables_for_two(1_000, attributes) for attributes in (1, 2, 6, 7)] == [0, TABLES_FOR_TWO, TABLES_FOR_TWO, 0]
    assert tables_for_two(22, 4) == 0
    assert tables_for_two(23, 4) == TABLES_FOR_TWO


def test_tables_pay_where_a_class_has_more_rows_than_they_have_noise() -> None:
    """Of all attributes together: a few chosen ones say more where tables are many."""
    assert [tables_pay(300, 6, attributes, TABLES) for attributes in (6, 34, 35, 50)] == [True, True, False, False]
    assert not tables_pay(2, 3, 1, TABLES)


@pytest.mark.parametrize(("attributes", "rows", "steps", "tables"), [(34, 330, 1, 0), (6, 330, 0, 6), (34, 20, 0, 0)])
def test_hundreds_of_rows_of_six_classes_are_no_cliff(attributes: int, rows: int, steps: int, tables: int) -> None:
    """At epsilon .5 a step chooses the best of many attributes, tables tell of few; of twenty rows there is nothing."""
    columns = {f"a{number}": Categorical(values=tuple("abcd")) for number in range(attributes)}
    schema = Schema(columns=columns | {"y": Categorical(values=tuple("uvwxyz"))}, max_rows=rows)
    costs = Scorecard(epsilon=0.5)._checked(schema, "y").costs
    assert (len(costs.steps), len(costs.tables)) == (steps, tables)


def test_few_attributes_are_tabulated_and_left_at_that() -> None:
    """Car at epsilon 4 (6 attributes), Contraceptive Method (9), both with some 2,000 rows a class."""
    assert steps_after_tables(4 * 2_000, 4, 6) == 0
    assert steps_after_tables(4 * 2_000, 3, 9) > 0


SCHEMA = Schema(
    columns={
        "age": Numeric(lower=0, upper=100, integer=True),
        "gain": Numeric(lower=0, upper=100_000, integer=True, nullable=True),
        "rate": Numeric(lower=-1, upper=1),
        "own": Numeric(lower=0, upper=10, cuts=(2, 5)),
        "flag": Numeric(lower=0, upper=1, integer=True),
        "job": Categorical(values=("a", "b")),
        "y": Categorical(values=("n", "p")),
    },
    max_rows=1000,
)


def test_cells_follow_from_the_declaration() -> None:
    """Declared cuts as they are; else equal widths, and round numbers near zero where money crowds."""
    cells = {spec.column: spec for spec in attribute_cells(SCHEMA, "y", None, None, Grid(10))}
    assert cells["own"] == Cuts("own", (2.0, 5.0))
    assert cells["job"] == Values("job")
    gain, rate = public_cuts(SCHEMA, "gain", Grid(10)), public_cuts(SCHEMA, "rate", Grid(10))
    assert {1, 10, 100, 1000, 2000, 5000, 10_000, 90_000} <= set(gain)
    assert not {200, 500} & set(gain)
    assert {0.0, -0.5, 0.5, 0.01, -0.01, 0.001} <= set(rate)
    assert not {2000, 5000} & set(public_cuts(SCHEMA, "gain", Grid(10, fine=False)))
    assert all(bind(spec, SCHEMA).size > 1 for spec in cells.values())


def test_whoever_names_cuts_gets_them() -> None:
    """A number of intervals, or the points themselves."""
    given: dict[str, Any] = {"age": [30, 45], "gain": 4}
    cells = {spec.column: spec for spec in attribute_cells(SCHEMA, "y", ["age", "gain"], given, Grid(10))}
    assert cells["age"] == Cuts("age", (30.0, 45.0))
    assert bind(cells["gain"], SCHEMA).size == 5  # one for missing values


def test_more_rows_carry_finer_cells() -> None:
    """The number grows with a root, within bounds; tables of all attributes bear fewer, those of two classes fewest."""
    assert [Grid.of_steps(size).widths for size in (1, 5_000, 50_000, 200_000, 10**9)] == [2, 12, 24, 32, 32]
    assert [Grid.of_tables(size, many=False).widths for size in (0.1, 20, 200, 2_000)] == [2, 4, 6, 12]
    assert [Grid.of_tables(size, many=True) for size in (20, 200)] == [Grid(4, fine=False), Grid(8)]


@given(size=st.floats(1e-3, 10**8), many=st.booleans())
def test_a_finer_grid_keeps_the_middle(size: float, many: bool) -> None:
    """Half of the range is a cut at every size: a larger max_rows does not move all cells."""
    for grid in (Grid.of_steps(size), Grid.of_tables(size, many=many)):
        assert 50.0 in public_cuts(SCHEMA, "age", grid)
