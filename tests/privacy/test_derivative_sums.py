# SPDX-License-Identifier: Apache-2.0
"""Sums of derivatives: no row moves them further than the noise is made for, and the noise is that large.

The first is searched exhaustively: every row that a small schema has, under scores that reach and pass their ends. Sums of
tables are sums of rows (tests/contract/test_every_engine.py), so what one row adds is what it moves. The second is a chi-square
test of 9,000 draws or more against the exact law. Noise 15 % too small, ln(1 / .85) = .16 in the logarithm of its scale, of which
a draw tells 1 in Fisher's units, has a noncentrality of 9,000 * .16^2 = 237: with 12 degrees of freedom 249 are expected where 58
are allowed, 8 standard deviations. It is tried.
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
from hypothesis.extra.numpy import arrays

import pinq.curator.mechanisms
from pinq.curator.verbs import prepare
from pinq.language.derivatives import clipped
from pinq.language.parts import Block, Part, PartSet
from pinq.language.points import Points
from pinq.language.queries import SumDerivatives
from pinq.language.specs import Cross, Cuts, Groups, Values, bind
from pinq.policy.policy import Policy
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.laws.laws import interval_of, law_is, noise_law
from tests.support.requests.catalogue import DERIVATIVES, losses_on
from tests.support.requests.handles import engine_of, simulated

SCHEMA = Schema(
    max_rows=1000,
    columns={
        "y": Categorical(values=("n", "o", "p")),
        "a": Categorical(values=("u", "v"), nullable=True),
        "x": Numeric(lower=0, upper=3, integer=True, nullable=True),
    },
)
EVERYTHING = Cross(tuple(Values(name) for name in SCHEMA.columns))
# From -9.4 to +9.4 logits, or cells: beyond where scores stop, at both ends; rows of a = v are at the first score alone.
SCORES = (
    Points((Values("a"), Cuts("x", (1, 3))), ((-2400, 0, 2400), (0, 100, -40, 7)), base=5),
    Points((Groups("a", (("u",), (None,))), Cross((Values("a"), Cuts("x", (2,))))), ((900, -900), (3,) * 9)),
)
LOSSES = [loss for kind in DERIVATIVES.values() for loss in losses_on(kind, SCHEMA, *SCORES)]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)
SPECS = [
    None,
    (Values("a"),),
    (Values("a"), Cuts("x", (2,)), Groups("y", (("n", "p"),)), Cross((Values("a"), Values("x")))),
]


@pytest.fixture(scope="module")
def every_row() -> Any:
    """A handle on a table that holds each possible row once."""
    domains: list[list[Any]] = [[*SCHEMA.categorical("y").values], ["u", "v", None], [0, 1, 2, 3, None]]
    rows = pd.DataFrame(list(itertools.product(*domains)), columns=list(SCHEMA.columns))
    with simulated(SCHEMA, data=rows.astype({"x": float}), epsilon=1) as handle:
        yield handle


def contributions(handle: Any, loss: Any, by: Any) -> np.ndarray:
    """What each row adds to the sums of the whole table, L1, in whole units: each part of ``EVERYTHING`` holds one row."""
    parts = PartSet([Block(Part(), bind(EVERYTHING, SCHEMA))])
    query = prepare(SumDerivatives(loss, by), parts, SCHEMA)
    tables = engine_of(handle).tabulate(parts, query.tables, query.measure)
    return sum(np.abs(table).reshape(len(parts), -1).sum(axis=1) for table in tables)


@every_loss
def test_no_row_moves_the_sums_further_than_their_noise_is_for(loss: Any, every_row: Any) -> None:
    """Over all rows the largest L1 change is at most epsilon times the scale, for one spec or many; and nearly that."""
    for by in SPECS:
        moved = contributions(every_row, loss, by)
        query = prepare(SumDerivatives(loss, by), PartSet([Block(Part())]), SCHEMA)
        scale = query.noise(Fraction(1)).scale
        assert scale is not None
        sensitivity = Fraction(scale) * loss.unit
        assert moved.max() <= sensitivity
        assert moved.max() >= 0.98 * sensitivity or loss.limit == 3
        assert query.noise(Fraction(1, 6)).scale == pytest.approx(6 * float(sensitivity) / loss.unit)


@every_loss
def test_no_row_moves_the_gradient_further_than_its_score_says(loss: Any, every_row: Any) -> None:
    """The part of a row's vector that ``Gradient`` reads has an L1 norm of at most ``gradient_bound``."""
    vectors = loss.vectors(SCHEMA)
    parts = PartSet([Block(Part(), bind(EVERYTHING, SCHEMA))])
    (sums,) = engine_of(every_row).tabulate(parts, prepare(SumDerivatives(loss), parts, SCHEMA).tables, vectors)
    assert np.abs(loss.gradients(sums)).sum(axis=-1).max() <= vectors.gradient_bound <= vectors.bound


@given(
    arrays(np.int64, st.tuples(st.integers(1, 5), st.integers(0, 6)), elements=st.integers(-(2**30), 2**30)),
    st.integers(1, 2**18),
)
def test_a_clipped_vector_is_as_short_as_its_limit(vectors: np.ndarray, limit: int) -> None:
    """Whatever whole numbers come: the norm is at most the limit, no entry grows or changes its sign, a short vector stays."""
    short = clipped(vectors, limit)
    assert (np.abs(short).sum(axis=0) <= limit).all()
    assert (np.abs(short) <= np.abs(vectors)).all()
    assert (short * vectors >= 0).all()
    fits = np.abs(vectors).sum(axis=0) <= limit
    assert (short[:, fits] == vectors[:, fits]).all()
    assert (np.abs(short).sum(axis=0)[~fits] > limit - len(vectors)).all()


EPSILON = Fraction(3, 4)
COLUMNS = {
    "part": {"type": "categorical", "values": [f"part {number}" for number in range(1500)]},
    "y": {"type": "categorical", "values": ["n", "p"]},
    "a": {"type": "categorical", "values": ["u", "v", "w"]},
    "unit": {"type": "categorical", "values": ["everybody"]},
    "x": {"type": "numeric", "lower": 0, "upper": 3, "integer": True},
}
BY = (Values("a"), Cuts("x", (2,)))


def noise_of(handle: Any, loss: Any) -> np.ndarray:
    """The noise of one request, in whole units: no row lies in the parts that are asked."""
    answer = handle.partition(Values("part")).noisy_sum(loss, by=BY, epsilon=EPSILON)
    return np.rint(answer.reshape(-1) * loss.unit).astype(np.int64)


@pytest.mark.parametrize("distance", [1, 2], ids=["add-remove", "substitute"])
@pytest.mark.parametrize("kind", DERIVATIVES.values(), ids=DERIVATIVES)
def test_the_noise_is_as_large_as_the_claim_needs(
    kind: type[Any], distance: int, in_memory: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each number has discrete Laplace noise of specs * bound * distance / epsilon; 15 % less shows."""
    adjacency = "add-remove" if distance == 1 else "substitute"
    policy = Policy(dataset="law", cap=10**6, max_rows=10, columns=COLUMNS, adjacency=adjacency)
    handle = in_memory(10**6, policy=policy, data=pd.DataFrame({name: [] for name in COLUMNS}))
    loss = losses_on(kind, handle.schema)[-1]
    scale = len(BY) * loss.vectors(handle.schema).bound * distance / float(EPSILON)
    edges = np.unique(np.rint(np.linspace(-3, 3, 12) * scale).astype(np.int64))
    law_is(interval_of(noise_of(handle, loss), edges), noise_law(scale, edges))
    assert handle.budget.spent == EPSILON
    right = pinq.curator.mechanisms.scale_of
    monkeypatch.setattr(
        pinq.curator.mechanisms, "scale_of", lambda sensitivity, epsilon: 0.85 * right(sensitivity, epsilon)
    )
    with pytest.raises(AssertionError):
        law_is(interval_of(noise_of(handle, loss), edges), noise_law(scale, edges))
