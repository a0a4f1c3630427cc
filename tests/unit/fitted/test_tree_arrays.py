# SPDX-License-Identifier: Apache-2.0
"""The arrays of a tree are enough to predict with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from miners.fitted.node import Node
from miners.fitted.tree import CATEGORICAL, LEAF, NUMERIC, Tree, TreeArrays
from pinq.language.specs import Cuts, Values
from pinq.public.schema import Categorical, Numeric, Schema
from tests.support.tables.example_tree import FRAME, REACHED, SCHEMA, example, random_tree


def apply_by_arrays(arrays: TreeArrays, frame: pd.DataFrame) -> np.ndarray:
    """Returns where each row stops, by the documentation of the arrays."""
    reached = np.zeros(len(frame), dtype=int)
    for v in np.flatnonzero(arrays.kind != LEAF):  # parents come before their children
        rows = np.flatnonzero(reached == v)
        values = frame[arrays.features[arrays.feature[v]]].iloc[rows]
        missing = values.isna().to_numpy()
        if arrays.kind[v] == NUMERIC:
            points = arrays.points[arrays.points_start[v] : arrays.points_start[v + 1]]
            part = np.searchsorted(points, values.to_numpy(float), side="right")
        else:
            parts = arrays.parts[arrays.parts_start[v] : arrays.parts_start[v + 1]].tolist()
            part_of = dict(zip(arrays.categories[arrays.feature[v]], parts, strict=True))
            part = np.array([part_of.get(value, -1) for value in values], dtype=int)
        part[missing] = arrays.missing[v]
        goes = part >= 0
        reached[rows[goes]] = arrays.children[arrays.children_start[v] + part[goes]]
    return reached


def predict_by_arrays(arrays: TreeArrays, frame: pd.DataFrame) -> np.ndarray:
    return np.array(arrays.classes)[arrays.value.argmax(axis=1)[apply_by_arrays(arrays, frame)]]


def test_the_example_in_arrays() -> None:
    arrays = example().to_arrays()
    assert arrays.features == ("age", "hours", "sex", "job", "size")
    assert arrays.categories == (None, None, ("F", "M"), ("a", "b", "c", "d"), (1, 2, 3))
    assert arrays.kind.tolist() == [CATEGORICAL, NUMERIC, CATEGORICAL, *[LEAF] * 5]
    assert arrays.feature.tolist() == [2, 0, 3, *[-1] * 5]
    assert arrays.children_start.tolist() == [0, 2, 5, 7, 7, 7, 7, 7, 7]
    assert arrays.children.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert np.allclose(arrays.points, [30, 60], atol=1e-8)
    assert arrays.parts[arrays.parts_start[2] : arrays.parts_start[3]].tolist() == [0, 0, 1, -1]
    assert arrays.missing.tolist() == [-1, -1, 1, *[-1] * 5]
    assert arrays.value.shape == (8, 2)
    assert arrays.n_node_samples.tolist() == [101, 61, 40, 17, 40, 0, 20, 20]
    assert arrays.impurity[4] == pytest.approx(1 - 0.25**2 - 0.75**2)
    assert apply_by_arrays(arrays, FRAME).tolist() == REACHED
    assert predict_by_arrays(arrays, FRAME).tolist() == example().predict(FRAME).tolist()


@given(seed=st.integers(0, 2**32 - 1))
def test_a_few_lines_of_numpy_predict_what_the_tree_predicts(seed: Any) -> None:
    """The arrays predict what the tree predicts for every kind of row.

    Rows hold missing values of nullable and of other columns, values that nobody declared, and
    numbers on both sides of every edge.
    """
    tree, frame = random_tree(seed)
    arrays = tree.to_arrays()
    assert (apply_by_arrays(arrays, frame) == tree.apply(frame)).all()
    assert (predict_by_arrays(arrays, frame) == tree.predict(frame)).all()


@pytest.mark.parametrize(
    "column",
    [
        Numeric(lower=0, upper=99, integer=True),
        Numeric(lower=-7, upper=8, integer=True, step=4),
        Numeric(lower=0, upper=1, step="0.1"),
        Numeric(lower="-0.3", upper=1000),
        Numeric(lower=10**9, upper=10**9 + 1, step="0.01"),
    ],
)
def test_points_part_the_doubles_exactly_where_predict_does(column: Any) -> None:
    """Each point divides the doubles exactly where ``predict`` does, its two neighbours included.

    ``predict`` forgives numbers that are a rounding error off a grid point.
    """
    schema = Schema(columns={"x": column, "y": Categorical(values=("no", "yes"))}, max_rows=9)
    cuts = tuple(column.edge(cell) for cell in sorted({1, column.cells // 3 + 1, column.cells - 1}))
    for split in (Cuts("x", cuts), Cuts("x", cuts[1:2]), Values("x")):
        size = column.cells if isinstance(split, Values) else len(split.points) + 1
        tree = Tree(
            schema, "y", [Node(split, tuple(range(1, 1 + size))), *(Node(counts=(1.0, 2.0)) for _ in range(size))]
        )
        arrays = tree.to_arrays()
        exact = np.concatenate(
            [
                arrays.points,
                np.nextafter(arrays.points, -np.inf),
                [column.edge(cell) for cell in range(min(column.cells, 40))],
                [-1e300, 1e300, np.inf, -np.inf],
            ]
        )
        near = np.concatenate([np.nextafter(exact, np.inf), exact * (1 + 1e-12)])
        frame = pd.DataFrame({"x": np.concatenate([exact, near])})
        assert (apply_by_arrays(arrays, frame) == tree.apply(frame)).all()
        assert len(np.unique(tree.apply(frame))) > 1


def test_a_lone_root_in_arrays() -> None:
    arrays = Tree(SCHEMA, "y", [Node(counts=(1.0, 3.0))]).to_arrays()
    assert (arrays.children.size, arrays.points.size, arrays.parts.size) == (0, 0, 0)
    assert predict_by_arrays(arrays, FRAME).tolist() == ["yes"] * len(FRAME)
