# SPDX-License-Identifier: Apache-2.0
"""How a scorecard's epsilon is divided, and which rules follow from public facts."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, strategies as st

from miners.growth.candidates import Grid, attribute_cells, public_cuts
from miners.scorecards.shares import (
    MAX_STEPS,
    STEPS_FOR_MEANS,
    STEPS_FOR_TWO,
    TABLES,
    TABLES_FOR_TWO,
    Shares,
    steps_after_tables,
    steps_for_two,
    tables_for_two,
    tables_pay,
)
from pinq.errors import QueryError
from pinq.public.epsilon import ZERO, Epsilon
from pinq.public.schema import Categorical, Numeric, Schema
from pinq.public.specs import Cuts, Values, bind


@given(
    nano=st.integers(10**6, 10**11),
    tables=st.integers(0, 60),
    steps=st.integers(0, MAX_STEPS // 10),
    chooses=st.booleans(),
)
def test_shares_add_up_to_the_total(nano: int, tables: int, steps: int, chooses: bool) -> None:
    """To the nano-epsilon, with nothing for free."""
    shares = Shares.of(Epsilon(nano), tables=tables, steps=steps, chooses=chooses)
    assert shares.total == Epsilon(nano)
    assert len(shares.tables) == tables
    assert len(shares.steps) == steps
    paid = [*shares.bases, *shares.tables, *(step.sums for step in shares.steps)]
    assert min(paid) >= Epsilon(1)
    assert all((step.choice is not None and step.choice > ZERO) == chooses for step in shares.steps)


def test_later_steps_get_more() -> None:
    """For they have less to find; the most of each step goes into its sums."""
    steps = Shares.of(Epsilon(10**9), tables=0, steps=8, chooses=True).steps
    assert all(early.sums < late.sums for early, late in itertools.pairwise(steps))
    assert all(step.choice is not None and step.choice < step.sums for step in steps)


def test_an_epsilon_that_is_too_small_to_share_is_refused() -> None:
    """Before anything is asked."""
    with pytest.raises(QueryError, match="too small to be divided"):
        Shares.of(Epsilon(50), tables=0, steps=9, chooses=True)


def test_more_rows_and_fewer_classes_pay_for_more_steps() -> None:
    """The figures of docs/defaults.md: Adult's for the epsilons from 0.1 to 4."""
    assert [steps_for_two(50_000 * epsilon, 14, 0) for epsilon in (0.1, 0.25, 0.5, 1, 2, 4)] == [5, 7, 10, 13, 17, 23]
    assert [STEPS_FOR_MEANS.within(STEPS_FOR_MEANS.at(20_000 * epsilon)) for epsilon in (0.1, 1, 10)] == [2, 6, 15]
    assert steps_for_two(10**12, 30, 0) == STEPS_FOR_TWO.most < MAX_STEPS
    for size in (10.0, 10**3, 10**5, 10**7):
        many, few = ([steps_after_tables(size, classes, count) for classes in (3, 10, 100)] for count in (7, 6))
        assert many == sorted(many, reverse=True)
        assert many[0] > many[2] or not many[0]
        assert all(here >= there for here, there in zip(many, few, strict=True))


def test_two_classes_start_from_tables_where_attributes_are_few_or_rows_are_few_for_each() -> None:
    """Breast cancer at epsilon 1 and .5, SPECT at 4, Mushroom, Adult, Banknote: rows and attributes."""
    assert tables_for_two(1_000, 1_000, 30) == TABLES
    assert tables_for_two(500, 1_000, 30) == 0
    assert tables_for_two(4 * 500, 500, 22) == TABLES
    assert [tables_for_two(10_000 * epsilon, 10_000, 22) for epsilon in (0.1, 1)] == [0, 0.11]
    assert [tables_for_two(50_000 * epsilon, 50_000, 14) for epsilon in (0.1, 1, 100)] == [0, 0, 0]
    banknote = [tables_for_two(2_000 * epsilon, 2_000, 4) for epsilon in (0.04, 0.1, 1)]
    assert banknote == [0, TABLES, 0.43]
    assert tables_for_two(1_000, 1_000, 1) == 0
    assert steps_for_two(1_000, 30, TABLES) < steps_for_two(1_000, 14, 0)
    assert steps_for_two(100, 30, TABLES) == 1
    assert steps_for_two(120_000, 23, 0) < steps_for_two(120_000, 14, 0)


def test_every_rule_names_the_experiment_that_set_it() -> None:
    """A row that nothing was measured for has no place in the table."""
    assert all(row.set_by for row in (*TABLES_FOR_TWO, STEPS_FOR_TWO, STEPS_FOR_MEANS))


def test_a_table_that_is_too_small_pays_for_nothing() -> None:
    """Neither for steps nor for tables: the majority answers."""
    assert steps_for_two(99, 4, TABLES) == 0
    assert not tables_pay(24 * 5, 5)
    assert tables_pay(26 * 5, 5)


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
    """The number grows with a root, within bounds; tables of all attributes bear fewer."""
    assert [Grid.of_steps(size).widths for size in (1, 5_000, 50_000, 200_000, 10**9)] == [4, 10, 20, 30, 32]
    assert [Grid.of_tables(size).widths for size in (0.1, 20, 200, 800)] == [3, 4, 6, 8]
