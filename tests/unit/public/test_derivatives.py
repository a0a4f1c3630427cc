# SPDX-License-Identifier: Apache-2.0
"""Points are added up as they are written, and derivatives are those of the losses, up to the public grid."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
import pytest

from pinq import (
    Categorical,
    Cross,
    Cuts,
    Groups,
    Logistic,
    Numeric,
    Points,
    QueryError,
    Residuals,
    Schema,
    Shards,
    Softmax,
    Values,
)
from pinq.language.points import RowScores

SCHEMA = Schema(
    max_rows=1000,
    columns={
        "y": Categorical(values=("n", "o", "p")),
        "a": Categorical(values=("u", "v"), nullable=True),
        "x": Numeric(lower=0, upper=9, integer=True, nullable=True),
        "z": Categorical(values=tuple(range(100))),
        "w": Numeric(lower=0, upper=22_000, integer=True),
    },
)
MANY = Points((Values("w"),), ((0,) * 22_001,))
POINTS = Points((Values("a"), Cuts("x", (3, 6))), ((-300, 40, 7), (1, 2, 3, 4)), base=-100)
GRID = 2**-16


def sigmoid(points: float) -> float:
    return 1 / (1 + math.exp(-points / 256))


def vectors_of(loss: Any, *rows: tuple[int, ...]) -> np.ndarray:
    """The vectors of rows that are written as places along the inputs, in natural units, shape (rows, width)."""
    return loss.vectors(SCHEMA).of(list(np.array(rows).T)).T / loss.unit


def summed(scores: RowScores, places: list[np.ndarray], rows: int) -> np.ndarray:
    """The scores of rows, from their places along each axis."""
    alone = scores.over(())
    return alone.added(alone.cells(places), rows)


def test_points_add_up() -> None:
    """A base and a number from each table; nothing from a spec that has no part for the row, whatever its number of axes."""
    groups = Points((Groups("a", (("u",),)), Cross((Groups("a", (("v",),)), Values("x")))), ((9,), tuple(range(11))))
    scores = RowScores.bind([POINTS, groups, Points(base=5)], SCHEMA)
    assert [axis.column for axis in scores.axes] == ["a", "x", "a", "a", "x"]
    # Rows: (u, x < 3), (v, 3 <= x < 6), (missing, missing); the last column but one is "v or not", the last one is x.
    places = [[0, 1, 2], [0, 1, 3], [0, 1, 1], [1, 0, 1], [2, 5, 10]]
    found = summed(scores, [np.array(place) for place in places], 3)
    assert found.tolist() == [[-100 - 300 + 1, -100 + 40 + 2, -100 + 7 + 4], [9, 5, 0], [5, 5, 5]]


def test_specs_that_are_shared_are_read_once() -> None:
    """By several scores, or twice by one: then both tables count."""
    twice = Points((Values("a"), Values("a")), ((1, 2, 3), (10, 20, 30)))
    scores = RowScores.bind([twice, POINTS], SCHEMA)
    assert [axis.column for axis in scores.axes] == ["a", "x"]
    assert summed(scores, [np.array([2]), np.array([0])], 1).tolist() == [[33], [-100 + 7 + 1]]


def test_points_look_at_any_number_of_axes() -> None:
    """A hundred specs of one part each make one table; a row in no part of many groups has nothing, and places for it count."""
    columns = {name: Categorical(values=("u", "v")) for name in "abcdefghijklmnopqrstuvwx"}
    schema = Schema(max_rows=10, columns=columns)
    one_part = Points(tuple(Shards(1, key) for key in range(100)), ((1,),) * 100)
    scores = RowScores.bind([one_part], schema)
    assert summed(scores, [np.zeros(3, dtype=np.uint8)] * 100, 3).tolist() == [[100] * 3]
    few, many = (Cross(tuple(Groups(name, (("v",),)) for name in names)) for names in ([*columns][:12], columns))
    scores = RowScores.bind([Points((few,), ((7,),))], schema)
    places = np.zeros((12, 3), dtype=np.uint8)
    places[4, 1] = places[:, 2] = 1
    assert summed(scores, [*places], 3).tolist() == [[7, 0, 0]]
    with pytest.raises(QueryError, match="make 16,777,216 numbers"):
        RowScores.bind([Points((many,), ((7,),))], schema)


@pytest.mark.parametrize(
    ("write", "wrong"),
    [
        (lambda: Points((Values("a"),), ((1, 2),)), "has 3 parts, and its table of points 2 numbers"),
        (lambda: Points((Values("a"),), ()), "has 1 specs and 0 tables"),
        (lambda: Points(("a",), ((1,),)), "takes Values, Cuts, Groups, Shards and Cross"),  # type: ignore[arg-type]
        (lambda: Points(base=0.5), "must be whole numbers"),  # type: ignore[arg-type]
        (lambda: Points(base=True), "must be whole numbers from"),
        (lambda: Points(base=2**40 + 1), "must be whole numbers from"),
        (lambda: Points((Values("b"),), ((1,),)), "no column 'b'"),
        (lambda: Points((Values("a"),) * 4097, ((1, 2, 3),) * 4097), "more than 4,096 tables"),
    ],
)
def test_points_that_mean_nothing_are_refused(write: Any, wrong: str) -> None:
    """With what is wrong: where they are written, or where they meet the schema."""
    with pytest.raises(QueryError, match=wrong):
        Logistic("y", ("n",), write()).check(SCHEMA)


@pytest.mark.parametrize(
    ("write", "wrong"),
    [
        (lambda: Logistic("x", ("n",), POINTS), "categorical column is needed"),
        (lambda: Logistic("y", ("q",), POINTS), "no value 'q'"),
        (lambda: Logistic("y", (), POINTS), "must be some values"),
        (lambda: Logistic("y", ("n", "o", "p"), POINTS), "and not all of them"),
        (lambda: Logistic("y", ("n",), POINTS, limit=0), "`limit` is 0"),
        (lambda: Logistic("y", ("n",), POINTS, limit=1.5), "`limit` is 1.5"),
        (lambda: Softmax("y", (POINTS,) * 2), "each of its 3 values, not 2"),
        (lambda: Softmax("y", (POINTS,) * 3, limit=4), "`limit` is 4"),
        (lambda: Softmax("z", (POINTS,) * 100, hessian=True), "makes 200 numbers to a row; at most 128"),
        (lambda: Softmax("z", (MANY,) * 100), "the points of all classes make 2,200,100 numbers"),
        (lambda: Residuals("y", POINTS, limit=1), "numeric column is needed"),
        (lambda: Residuals("x", POINTS, limit=float("nan")), "`limit` is nan"),
        (lambda: Residuals("x", POINTS, limit=40_000), "`limit` is 40000"),
    ],
)
def test_losses_that_mean_nothing_are_refused(write: Any, wrong: str) -> None:
    """With what is wrong."""
    with pytest.raises(QueryError, match=wrong):
        write().check(SCHEMA)


@pytest.mark.parametrize("base", [-5000, -2048, -300, 0, 1, 700, 2048, 5000])
def test_logistic_vectors_are_residual_and_variance_of_a_coin(base: int) -> None:
    """(y - p, p (1 - p)) up to half a step of the grid; scores stop at 8 logits."""
    p = sigmoid(min(2048, max(-2048, base)))
    found = vectors_of(Logistic("y", ("n", "p"), Points(base=base)), (0,), (1,), (2,))
    want = [[1 - p, p * (1 - p)], [-p, p * (1 - p)], [1 - p, p * (1 - p)]]
    assert np.abs(found - want).max() <= GRID / 2


def test_softmax_vectors_are_those_of_the_cross_entropy() -> None:
    """e_y - p, then p (1 - p); with two classes of which one stays at 0 they are the logistic ones."""
    scores = (Points(base=-256), Points(), Points(base=512))
    odds = np.exp([-1, 0, 2])
    p = odds / odds.sum()
    found = vectors_of(Softmax("y", scores, hessian=True, limit=3), (0,), (1,), (2,))
    assert np.abs(found[:, :3] - (np.eye(3) - p)).max() <= GRID / 2
    assert np.abs(found[:, 3:] - p * (1 - p)).max() <= GRID
    far = (Points(base=2**40), Points(base=-(2**40)), Points(base=2**40 - 256 * 30))
    assert vectors_of(Softmax("y", far), (0,), (1,)).tolist() == [[0, 0, 0], [-1, 1, 0]]


def test_residuals_are_clamped_and_binned() -> None:
    """Cell 0 to 9 less the score; nothing where the target is missing; the bins tell residual and row."""
    rows = [(0,), (4,), (9,), (10,)]
    alone = Residuals("x", Points(base=3 * 256 + 64), limit=2.5, rows=False)
    assert vectors_of(alone, *rows)[:, 0].tolist() == [-2.5, 0.75, 2.5, 0]
    binned = Residuals("x", Points(base=3 * 256 + 64), limit=2.5)
    found = vectors_of(binned, *rows)
    assert binned.gradients(found)[:, 0].tolist() == [-2.5, 0.75, 2.5, 0]
    hessians = binned.hessians(found)
    assert hessians is not None
    assert hessians[:, 0].tolist() == [1, 1, 1, 0]


def test_a_vector_over_the_limit_is_shortened() -> None:
    """Its direction stays."""
    whole = vectors_of(Logistic("y", ("n",), Points(base=-512)), (0,))[0]
    short = vectors_of(Logistic("y", ("n",), Points(base=-512), limit=0.5), (0,))[0]
    assert np.abs(short).sum() == pytest.approx(0.5, abs=2 * GRID)
    assert short == pytest.approx(whole * 0.5 / whole.sum(), abs=2 * GRID)


@pytest.mark.parametrize(
    "loss",
    [Logistic("y", ("n",), POINTS), Softmax("y", (POINTS, Points(), POINTS)), Residuals("x", POINTS, limit=3)],
    ids=lambda loss: loss.kind,
)
def test_a_function_of_rows_may_be_carried_elsewhere(loss: Any) -> None:
    """Pickled and back it gives the same vectors, and any block of rows gives those of its own rows."""
    vectors = loss.vectors(SCHEMA)
    random = np.random.default_rng(1)
    places = [random.integers(0, axis.size, 50) for axis in vectors.inputs]
    found = vectors.of(places)
    assert found.shape == (vectors.width, 50) == (loss.width(SCHEMA), 50)
    assert found.dtype == np.int64
    again = pickle.loads(pickle.dumps(vectors))
    halves = [again.of([place[rows] for place in places]) for rows in (slice(0, 20), slice(20, None))]
    assert (np.concatenate(halves, axis=1) == found).all()
    alone = [vectors.of([place[row : row + 1] for place in places]) for row in range(50)]
    assert (np.concatenate(alone, axis=1) == found).all()
    assert vectors.of([place[:0] for place in places]).shape == (vectors.width, 0)


def test_a_schema_remembers_the_vectors_of_a_few_losses() -> None:
    """The same loss is bound once, equal or not the same object; another schema, or many losses later, binds anew."""
    schema = SCHEMA.model_copy()
    loss = Logistic("y", ("n",), POINTS)
    first = loss.vectors(schema)
    assert Logistic("y", ("n",), POINTS).vectors(schema) is first
    assert loss.vectors(SCHEMA.model_copy()) is not first
    assert Logistic("y", ("n",), POINTS, limit=0.5).vectors(schema).bound < first.bound
    for base in range(20):
        Logistic("y", ("n",), Points(base=base)).vectors(schema)
    assert loss.vectors(schema) is first
    schema.kept.room = 2**18
    Logistic("y", ("n",), Points(base=20)).vectors(schema)
    assert loss.vectors(schema) is not first


def test_softmax_without_second_derivatives_has_vectors_of_norm_two_at_most() -> None:
    """A larger limit adds no noise."""
    points = (Points(),) * 3
    assert Softmax("y", points, limit=3.0).vectors(SCHEMA).bound == 2 * 2**16
    assert Softmax("y", points, limit=1.5).vectors(SCHEMA).bound == 1.5 * 2**16
    assert Softmax("y", points, hessian=True, limit=3.0).vectors(SCHEMA).bound == 3 * 2**16
