# SPDX-License-Identifier: Apache-2.0
"""Sums of products: no row moves them further than the noise is made for, and the noise is that large.

The first is searched exhaustively: every row that a small schema has, in every form of the vector, at limits that shorten none,
some and all of them. The second is the test of ``test_derivative_sums.py``: 9,000 draws against the exact law, of which 15 % less
noise is told.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

import pinq.curator.mechanisms
from pinq.curator.verbs import prepare
from pinq.errors import QueryError
from pinq.language.parts import Block, Part, PartSet
from pinq.language.products import ENTRY, SHORTER, UNIT, Entry, Products, _steps
from pinq.language.queries import SumDerivatives
from pinq.language.specs import Cross, Cuts, Values, bind
from pinq.policy.policy import Policy
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.laws.laws import interval_of, law_is, noise_law
from tests.support.requests.handles import engine_of, simulated

SCHEMA = Schema(
    max_rows=1000,
    columns={
        "a": Categorical(values=("u", "v", "w"), nullable=True),
        "x": Numeric(lower=0, upper=3, integer=True, nullable=True),
        "z": Numeric(lower=-1, upper=1, step="0.5"),
        "fine": Numeric(lower=0, upper=2**20 - 1, integer=True, step=1, nullable=True),
    },
)
FINE = (0, 1, 2**19, 2**20 - 1, None)
NAMES = ("a", "x", "z", "fine")
RANGES = (None, (1.0, 2.0), (-0.3, 0.9), (-5.0, 2.0**19))
FORMS: list[dict[str, Any]] = [
    {},
    {"ranges": RANGES, "sizes": (0.3, 1.0, 1.0, 0.7), "constant": 0.4},
    {"fixed": "x", "ranges": RANGES},
    {"fixed": "fine", "sizes": (1.0, 0.5, 0.5, 1.0), "constant": 1e-9},
    {"missing": True, "ranges": RANGES},
    {"missing": True, "fixed": "x", "sizes": (1.0, 0.5, 0.5, 0.7)},
]
VECTORS = [
    Products(NAMES, pairs=pairs, limit=limit, **form)
    for form, pairs, limit in itertools.product(FORMS, ("all", "squares", "sums"), (None, 3.0, 0.9, 0.0007))
]
every_vector = pytest.mark.parametrize("vector", VECTORS, ids=repr)


@pytest.fixture(scope="module")
def every_row() -> Any:
    """A handle on a table that holds each possible row once, of the fine column those at and next to its ends."""
    domains: list[list[Any]] = [["u", "v", "w", None], [0, 1, 2, 3, None], [-1, -0.5, 0, 0.5], list(FINE)]
    rows = pd.DataFrame(list(itertools.product(*domains)), columns=list(NAMES))
    with simulated(SCHEMA, data=rows.astype({"x": float, "fine": float}), epsilon=10**6) as handle:
        yield handle


EVERYTHING = Cross((Values("a"), Values("x"), Values("z"), Cuts("fine", (1, 2, 2**20 - 1))))


@pytest.mark.parametrize("pairs", ["all", "squares"])
def test_a_fixed_column_does_not_decide_how_far_its_row_is_shortened(pairs: Any) -> None:
    """A regression's target in its own norm would weigh rows by it, and move the coefficients; without ``fixed`` it does."""

    def entries_that_differ(**named: Any) -> int:
        vectors = Products(NAMES, pairs=pairs, limit=0.9, **named).vectors(SCHEMA)
        cells = [np.full(4, axis.size - 2) for axis in vectors.inputs]
        cells[NAMES.index("x")] = np.arange(4)
        return int((np.ptp(vectors.words(cells), axis=1) > 0).sum())

    assert entries_that_differ(fixed="x") == 1
    assert entries_that_differ() > 1


@every_vector
def test_no_row_moves_the_sums_further_than_their_noise_is_for(vector: Any, every_row: Any) -> None:
    """Over all rows the largest L1 change is at most the sensitivity, and nearly that; whole numbers all the way."""
    parts = PartSet([Block(Part(), bind(EVERYTHING, SCHEMA))])
    query = prepare(SumDerivatives(vector), parts, SCHEMA)
    (table,) = engine_of(every_row).tabulate(parts, query.tables, query.measure)
    moved = np.abs(table).sum(axis=-1)
    bound = vector.vectors(SCHEMA).bound
    assert query.noise(Fraction(1)).scale == pytest.approx(bound / UNIT)
    assert moved.max() <= bound
    # A row that is shortened loses at most one unit of each of its 7 entries, and a step of 1,024.
    assert moved.max() >= 0.98 * bound or vector.limit == 0.0007
    if vector.fixed is not None:
        missing = np.array([None in labels for labels in itertools.product(*_labels(vector.fixed))])
        assert (moved[missing] == 0).all()


def _labels(fixed: str) -> list[list[Any]]:
    """What each part of ``EVERYTHING`` has, where it is missing None; of other columns than the fixed one nothing."""
    sizes = {"a": 4, "x": 5, "z": 4, "fine": 5}
    return [
        [*range(size - 1), None if name == fixed and SCHEMA.columns[name].nullable else size]
        for name, size in sizes.items()
    ]


def test_the_sums_are_those_of_the_rows(every_row: Any) -> None:
    """Of indicators, clamped numbers and missing values: a mean by hand, in the order that ``entries`` says."""
    vector = Products(("x", "a"), ranges=((0.0, 2.0), None), sizes=(1.0, 0.5))
    assert vector.entries(SCHEMA) == (Entry(), Entry("x"), Entry("a", "v"), Entry("a", "w"), Entry("a", "missing"))
    answer = every_row.noisy_sum(vector, epsilon=10**4)
    each = 4 * 5  # rows of a value of x and one of a
    x = np.array([-1, 0, 1, 1, 0])  # 3 is beyond 2, and a missing value is in the middle
    constant = [5 * 4 * each, 4 * each * x.sum(), *[0.5 * 5 * each] * 3]
    rest = [
        4 * each * (x**2).sum(),
        *[0.5 * each * x.sum()] * 3,
        0.25 * 5 * each,
        0,
        0,
        0.25 * 5 * each,
        0,
        0.25 * 500 / 5,
    ]
    assert answer == pytest.approx([*constant, *rest], abs=0.1)


def test_missing_numbers_have_sums(every_row: Any) -> None:
    """Of a half for each, so that mean and variance are those of the rows with a number."""
    vector = Products(("x", "z", "a"), pairs="squares", missing=True)
    entries = [(entry.column, entry.value) for entry in vector.entries(SCHEMA)]
    assert entries[1:4] == [("x", None), ("x", "missing"), ("z", None)]
    numbers = dict(zip(entries[1:], every_row.noisy_sum(vector, epsilon=10**4)[1:].reshape(2, -1).T, strict=True))
    each = 4 * 4 * 5  # rows of a value of x
    assert numbers["x", None] == pytest.approx([0, each * (2 + 2 / 9)], abs=0.1)
    assert numbers["x", "missing"] == pytest.approx([each / 2, each / 4], abs=0.1)
    assert Products(("x",), missing=True, fixed="x").width(SCHEMA) == 3
    with pytest.raises(QueryError, match="`missing` is 1"):
        Products(("x",), missing=1)  # type: ignore[arg-type]


@every_vector
def test_cells_and_parts_add_up_to_the_whole(vector: Any, every_row: Any) -> None:
    """Whatever rows are multiplied together, exactly: sums over parts, over cells, over all, and of each row by itself."""
    engine, vectors = engine_of(every_row), vector.vectors(SCHEMA)
    whole = PartSet([Block(Part())])
    by = (Values("a"), Cuts("x", (2,)))
    tables = prepare(SumDerivatives(vector, by), whole, SCHEMA).tables
    (total,) = engine.tabulate(whole, prepare(SumDerivatives(vector), whole, SCHEMA).tables, vectors)
    cells = engine.tabulate(whole, tables, vectors)
    (parts,) = engine.tabulate(whole.split(bind(EVERYTHING, SCHEMA)), measure=vectors)
    assert (cells[0].sum(axis=1) == total).all()
    assert (cells[1].sum(axis=1) == total).all()
    assert (parts.sum(axis=0) == total[0]).all()


@given(st.integers(1, 2**39), st.integers(1, 2**39))
def test_a_row_is_shortened_by_the_last_step_that_fits(norm: int, bound: int) -> None:
    """In whole numbers, whatever doubles make of roots."""
    (steps,) = _steps(np.array([norm]), bound).tolist()
    assert steps**2 * norm <= bound * SHORTER**2
    assert steps == SHORTER or (steps + 1) ** 2 * norm > bound * SHORTER**2


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"names": ()}, "`names` is"),
        ({"names": ("x", "x")}, "`names` is"),
        ({"names": ("x", "nobody")}, "nobody"),
        ({"ranges": ((0.0, 1.0),)}, "`ranges` has 1 members"),
        ({"ranges": ((1.0, 1.0), None)}, "`ranges` is"),
        ({"ranges": (None, (0.0, float("inf")))}, "`ranges` is"),
        ({"ranges": (None, (0.0, 1.0))}, "categorical: it has no range"),
        ({"sizes": (1.0, 0.0)}, "`sizes` is 0.0"),
        ({"constant": 1.5}, "`constant` is 1.5"),
        ({"fixed": "z"}, "`fixed` is 'z'"),
        ({"fixed": "a"}, "cannot be `fixed`"),
        ({"pairs": "some"}, "`pairs` is 'some'"),
        ({"limit": 0}, "`limit` is 0"),
    ],
    ids=repr,
)
def test_what_means_nothing_is_refused(fields: dict[str, Any], words: str) -> None:
    """By the parameter's name, before anything is asked."""
    with pytest.raises(QueryError, match=words):
        Products(**{"names": ("x", "a"), **fields}).check(SCHEMA)


def test_a_row_has_so_many_numbers_at_most() -> None:
    """256 entries: 32,896 products."""
    many = Schema(max_rows=10, columns={"m": Categorical(values=tuple(range(300)))})
    with pytest.raises(QueryError, match="make 300 numbers to a row; at most 256"):
        Products(("m",)).check(many)


EPSILON = Fraction(3, 4)
COLUMNS = {
    "part": {"type": "categorical", "values": [f"part {number}" for number in range(1500)]},
    "a": {"type": "categorical", "values": ["u", "v"]},
    "x": {"type": "numeric", "lower": 0, "upper": 3, "integer": True},
}


@pytest.mark.parametrize("distance", [1, 2], ids=["add-remove", "substitute"])
def test_the_noise_is_as_large_as_the_claim_needs(
    distance: int, in_memory: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each number has discrete Laplace noise of specs * bound * distance / epsilon; 15 % less shows."""
    adjacency = "add-remove" if distance == 1 else "substitute"
    policy = Policy(dataset="law", cap=10**6, max_rows=10, columns=COLUMNS, adjacency=adjacency)
    handle = in_memory(10**6, policy=policy, data=pd.DataFrame({name: [] for name in COLUMNS}))
    vector, by = Products(("x", "a"), limit=1.5), (Values("a"),)

    def noise() -> np.ndarray:
        answer = handle.partition(Values("part")).noisy_sum(vector, by=by, epsilon=EPSILON)
        return np.rint(answer.reshape(-1) * UNIT).astype(np.int64)

    scale = 1.5 * UNIT * distance / float(EPSILON)
    edges = np.unique(np.rint(np.linspace(-3, 3, 12) * scale).astype(np.int64))
    law_is(interval_of(noise(), edges), noise_law(scale, edges))
    assert handle.budget.spent == EPSILON
    right = pinq.curator.mechanisms.scale_of
    monkeypatch.setattr(
        pinq.curator.mechanisms, "scale_of", lambda sensitivity, epsilon: 0.85 * right(sensitivity, epsilon)
    )
    with pytest.raises(AssertionError):
        law_is(interval_of(noise(), edges), noise_law(scale, edges))


def test_entries_are_numbers_of_the_fields_size() -> None:
    """A unit is 2^-12 of an entry, and its square of a product."""
    assert (ENTRY, UNIT) == (2**12, 2**24)


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize(("span", "entry"), [((-9e9, -8e9), 1), ((0.5, 2**20 - 1.5), -1)])
def test_a_fine_column_is_read_at_places_of_one_entry_each(
    nullable: bool, span: tuple[float, float], entry: int
) -> None:
    """A range below all bounds has one place; the lowest number has the entry at its end of the range, none the middle."""
    fine = Numeric(lower=0, upper=2**20 - 1, integer=True, nullable=nullable)
    vectors = Products(("fine",), (span,), pairs="sums").vectors(Schema(columns={"fine": fine}, max_rows=9))
    (axis,) = vectors.inputs
    codes = np.array([0, *([fine.null_code] if nullable else [])])
    assert vectors.of([axis.parts_of(codes)])[1].tolist() == [entry * UNIT, *([0] if nullable else [])]
    assert axis.size <= 2 * ENTRY + 1 + nullable
