# SPDX-License-Identifier: Apache-2.0
"""Discriminants: planes where classes differ by means, curves where they differ by shape, and which of them is asked for."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from miners import FitWarning, LinearDiscriminant, QuadraticDiscriminant
from miners.linear.discriminant import normal_share
from miners.linear.moments import Norm
from pinq.errors import QueryError
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.requests.handles import simulated

ROWS, CLASSES = 6_000, ("c0", "c1", "c2")
COLUMNS: dict[str, Any] = {f"x{number}": Numeric(lower=-20, upper=20, nullable=number == 0) for number in range(4)}
SCHEMA = Schema(
    max_rows=ROWS,
    columns={**COLUMNS, "k": Categorical(values=("u", "v")), "y": Categorical(values=CLASSES, nullable=True)},
)


def made(seed: int, apart: float, shaped: float) -> pd.DataFrame:
    """Three classes in four columns that correlate: their means ``apart``, their shapes different by ``shaped``."""
    draw = np.random.default_rng(seed)
    mixed, label = np.eye(4) + 0.5, draw.integers(0, 3, ROWS)
    points = draw.normal(size=(ROWS, 4)) * (1 + shaped * (label[:, None] == np.array([0, 1, 2, 0])))
    points = points @ mixed + apart * np.eye(3, 4)[label] * [1, 1, -1, 0]
    frame = pd.DataFrame(points, columns=list(COLUMNS)).assign(k=draw.choice(["u", "v"], ROWS))
    named = np.array(CLASSES, dtype=object)[label]
    named[draw.random(ROWS) < 0.05] = None
    return frame.assign(y=named)


@pytest.mark.parametrize(
    ("kind", "apart", "shaped", "own", "least"),
    [(LinearDiscriminant, 4.0, 0.0, 1, 0.85), (QuadraticDiscriminant, 0.0, 4.0, 3, 0.7)],
)
def test_classes_are_told_apart(kind: type[Any], apart: float, shaped: float, own: int, least: float) -> None:
    """As normal clouds without noise are, within a few hundredths; rows without a class do not count."""
    train, test = made(1, apart, shaped), made(2, apart, shaped).dropna(subset="y")
    with simulated(SCHEMA, data=train, epsilon=4) as handle:
        miner = kind(epsilon=4).fit(handle, "y")
    found = miner.gaussians_
    assert len(found.covariances) == own
    assert miner.score(test) > least
    assert found.sizes.sum() == pytest.approx(0.95 * ROWS, rel=0.35)  # rows far out count less
    assert own > 1 or found.importances["k"] < 0.1
    frame = miner.to_frame()
    assert len(frame) == 3 * 5
    assert set(frame["class"]) == set(CLASSES)
    assert "means" in miner.export_text()
    assert "c2" in miner._repr_html_()
    ax = miner.plot()
    assert len(ax.get_yticks()) == 3
    # What is drawn is the distance from the mean of all rows, also of a category.
    drawn = np.average(np.asarray(ax.images[0].get_array()), axis=0, weights=found.sizes)
    assert np.abs(drawn).max() < 1e-9


def long_tails(seed: int) -> pd.DataFrame:
    """Two classes: two long tails of one spread, a flag that one class lacks, and two numbers that are normal."""
    draw = np.random.default_rng(seed)
    label = draw.random(ROWS) < 0.3
    tails = draw.standard_t(2, size=(ROWS, 2)) * (1 + 0.3 * label[:, None])
    plain = draw.normal(size=(ROWS, 2)) + label[:, None] * [1.0, -0.5]
    frame = pd.DataFrame(np.column_stack([tails, plain]).clip(-20, 20), columns=list(COLUMNS))
    flag = np.where((draw.random(ROWS) < 0.04) & label, "v", "u")
    return frame.assign(k=flag, y=np.where(label, "c1", "c0"))


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_shapes_of_their_own_are_never_far_behind_one_shape(epsilon: float) -> None:
    """Nor ahead for nothing: long tails and flags say nothing of shapes, and normal numbers do."""
    two = SCHEMA.model_copy(update={"columns": {**SCHEMA.columns, "y": Categorical(values=("c0", "c1"))}})
    test = long_tails(2)
    with simulated(two, data=long_tails(1), epsilon=10 * epsilon) as handle:
        line, curve = (
            np.mean([kind(epsilon=epsilon).fit(handle, "y").score(test) for _ in range(3)])
            for kind in (LinearDiscriminant, QuadraticDiscriminant)
        )
    assert curve > line - 0.01


def test_rare_values_of_a_small_class_have_no_shape_of_their_own() -> None:
    """Noise in a small class must not give its indicators a larger variance: each rare value would decide its class."""
    draw, flags = np.random.default_rng(4), [f"k{number}" for number in range(12)]
    label = draw.random(ROWS) < 0.15
    numbers = pd.DataFrame(draw.normal(size=(ROWS, 2)) * (1 + label[:, None]), columns=["x1", "x2"])
    rare = pd.DataFrame(np.where(draw.random((ROWS, 12)) < 0.01, "v", "u"), columns=flags)
    kinds = {name: Categorical(values=("u", "v")) for name in flags}
    columns = {"x1": COLUMNS["x1"], "x2": COLUMNS["x2"], **kinds, "y": Categorical(values=("c0", "c1"))}
    frame = pd.concat([numbers, rare], axis=1).assign(y=np.where(label, "c1", "c0"))
    with simulated(Schema(max_rows=ROWS, columns=columns), data=frame, epsilon=4) as handle:
        miner: Any = QuadraticDiscriminant(epsilon=4).fit(handle, "y")
    found = miner.gaussians_
    usual, small = np.diagonal(found.covariances, axis1=1, axis2=2)
    assert small[2:] == pytest.approx(usual[2:], rel=0.1)
    assert small[:2].min() > 1.5 * usual[:2].max()


@pytest.mark.parametrize("epsilon", [1.0, 4.0, 16.0])
def test_own_shapes_cost_nothing_where_the_linear_one_has_products_of_each_class(epsilon: float) -> None:
    """Both make the same queries then."""
    line, curve = (
        kind(epsilon=epsilon).plan(SCHEMA, "y").lines for kind in (LinearDiscriminant, QuadraticDiscriminant)
    )
    assert (line == curve) is (line[-1].parts > 1)


def test_normal_rows_have_shapes_of_their_own() -> None:
    """The share is near 1 for normal classes, also of different spreads, and small for long tails."""
    draw, norm = np.random.default_rng(3), Norm(5, 0)
    shapes, means = np.array([np.eye(5) + 0.4, 4 * np.eye(5)]), np.array([np.zeros(5), np.ones(5)])

    def share(lengths: np.ndarray) -> float:
        classes = zip(means, np.linalg.cholesky(shapes), strict=True)
        rows = [mean + draw.normal(size=(20_000, 5)) @ own.T for mean, own in classes]
        points = np.concatenate(rows) * lengths[:, None]
        points = (points - points.mean(axis=0)) / points.std(axis=0)
        counted = np.minimum(1, norm.limit("all") / norm.sizes(points))
        return normal_share(norm, np.array([0.5, 0.5]), means, shapes, np.average(points**2, axis=0, weights=counted))

    assert share(np.ones(40_000)) > 0.9
    assert share(np.sqrt(draw.exponential(size=40_000))) < 0.35


def test_a_common_shape_does_not_see_shapes() -> None:
    """Classes of one mean: planes guess."""
    train = made(1, 0.0, 4.0)
    with simulated(SCHEMA, data=train, epsilon=4) as handle:
        assert LinearDiscriminant(epsilon=4).fit(handle, "y").score(train.dropna(subset="y")) < 0.5


def test_public_facts_say_whether_classes_have_shapes_of_their_own() -> None:
    """The plan says which, and what it asks; noise that hides all is warned of."""
    own, dim, pooled = (QuadraticDiscriminant(epsilon=epsilon).plan(SCHEMA, "y") for epsilon in (4, 0.15, 0.005))
    assert all("each class has its own covariance." in plan.notes for plan in (own, dim))
    assert "all classes share one covariance." in pooled.notes
    assert [line.parts for line in own.lines] == [1, 4]
    assert [line.parts for line in dim.lines] == [1, 4, 4]
    assert [line.parts for line in pooled.lines] == [1, 4, 1]
    assert not own.warnings
    # Products of each class have so little noise that one shape is their mean, too.
    each, fewer = (LinearDiscriminant(epsilon=epsilon).plan(SCHEMA, "y") for epsilon in (4, 0.1))
    assert "all classes share one covariance." in each.notes
    assert [[line.parts for line in plan.lines] for plan in (each, fewer)] == [[1, 4], [1, 4, 1]]
    small = SCHEMA.model_copy(update={"max_rows": 50})
    with simulated(small, rows=40, epsilon=1) as handle, pytest.warns(FitWarning, match="times a column's variance"):
        LinearDiscriminant(epsilon=0.1).fit(handle, "y")


def test_columns_without_numbers_need_no_scales() -> None:
    """Then nothing is asked for them, and all of epsilon goes to the products."""
    columns = {name: Categorical(values=("u", "v", "w")) for name in "abc"}
    schema = Schema(columns={**columns, "y": Categorical(values=("n", "p"))}, max_rows=5_000)
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({name: draw.choice(list("uvw"), 5_000) for name in "abc"})
    frame["y"] = np.where((frame["a"] == "u") ^ (draw.random(5_000) < 0.1), "p", "n")
    with simulated(schema, data=frame, epsilon=2) as handle:
        miner = LinearDiscriminant(epsilon=2).fit(handle, "y")
    assert miner.score(frame) > 0.85
    assert miner.cost_ == 2
    assert {line.level for line in miner.plan(schema, "y").lines} == {1}


def test_a_value_called_missing_is_not_a_missing_value() -> None:
    """Each term has its own name, in text and in a notebook."""
    columns = {"a": Categorical(values=("x", "missing"), nullable=True), "y": Categorical(values=("n", "p"))}
    with simulated(Schema(columns=columns, max_rows=500), rows=500, epsilon=100) as handle:
        miner = LinearDiscriminant(epsilon=100).fit(handle, "y")
    assert miner.to_frame()["term"].unique().tolist() == ["a = missing", "a = (missing)"]
    assert all(
        term in text for text in (miner.export_text(), miner._repr_html_()) for term in ("= missing", "= (missing)")
    )


def test_a_stored_model_is_checked() -> None:
    """Its arrays fit its columns and classes, or it is refused; a numeric target is sent to its miner."""
    with simulated(SCHEMA, rows=200, epsilon=1) as handle:
        stored = json.loads(LinearDiscriminant(epsilon=1).fit(handle, "y").to_json())
    for name, wrong in (("sizes", [1.0]), ("sizes", [1.0, 0.0, 1.0]), ("covariances", [[1.0]]), ("target", "x0")):
        forged = json.dumps({**stored, "gaussians": {**stored["gaussians"], name: wrong}})
        with pytest.raises(QueryError):
            LinearDiscriminant.from_json(forged)
    with pytest.raises(QueryError, match="take LinearRegression"):
        LinearDiscriminant().plan(SCHEMA, "x1")
