# SPDX-License-Identifier: Apache-2.0
"""A fitted tree whose target is numeric: means, their intervals, pictures, arrays, JSON."""

import json
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from miners.fitted.node import Node
from miners.fitted.tree import Tree
from pinq.errors import QueryError
from pinq.language.specs import Cuts, Groups
from pinq.public.schema import Categorical, Numeric, Schema

mpl.use("Agg")

SCHEMA = Schema(
    columns={
        "age": Numeric(lower=0, upper=99, integer=True),
        "job": Categorical(values=("a", "b", "c"), nullable=True),
        "wage": Numeric(lower=10, upper=110, integer=True),
    },
    max_rows=10_000,
)
FRAME = pd.DataFrame({"age": [10, 50, 50, 50, None], "job": ["a", "a", "c", None, "b"]})


def example() -> Tree:
    """Three leaves; in the first all is at the lower bound but for noise, in the last there is nothing but noise."""
    nodes = [
        Node(Cuts("age", (30,)), (1, 2)),
        Node(counts=(100.0, -3.0), counts_deviation=2.0),
        Node(Groups("job", (("a", "b"), ("c",))), (3, 4)),
        Node(counts=(30.0, 10.0), counts_deviation=2.0),
        Node(counts=(-2.0, -1.0), counts_deviation=2.0),
    ]
    return Tree(SCHEMA, "wage", nodes)


def test_means_lie_between_the_bounds_in_proportion() -> None:
    tree = example()
    assert (tree.kind, tree.classes, tree.n_leaves) == ("regression", (), 3)
    assert 10 <= tree.values[1] < 11  # leans on its parent a little
    assert tree.values[3] == pytest.approx(35, abs=1)
    assert tree.values[4] == tree.values[2]
    assert tree.predict(FRAME).tolist() == pytest.approx([tree.values[place] for place in (1, 3, 4, 2, 0)])
    assert repr(tree) == "Tree for `wage` (10 to 110): depth 2, 3 leaves, about 134 rows, splits on age, job"


def test_intervals_are_around_the_means_and_within_the_bounds() -> None:
    tree = example()
    intervals = tree.intervals(0.95)
    assert (intervals[:, 0] <= tree.values + 1e-12).all()
    assert (tree.values <= intervals[:, 1] + 1e-12).all()
    assert intervals.min() >= 10
    assert intervals.max() <= 110
    assert intervals[4].tolist() == [10, 110]
    assert (tree.intervals(0.99)[:, 1] - intervals[:, 1]).min() >= 0
    assert Tree(SCHEMA, "wage", [Node(counts=(5.0, 5.0))]).intervals().tolist() == [[10, 110]]
    for level in (0, 1, 1.5):
        with pytest.raises(QueryError, match="between 0 and 1"):
            tree.intervals(level)


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.9])
@pytest.mark.parametrize("rows", [0, 5, 200])
def test_the_interval_of_a_share_holds_the_true_one_as_often_as_it_says(rows: Any, share: Any) -> None:
    """4,000 noises of scale 3, released or said as a deviation: at 0.9 the misses exceed 10 % by no more than six deviations of chance (false alarm 1e-9)."""
    random = np.random.default_rng(5)
    held = 0
    for number, (lower, upper) in enumerate(
        random.laplace(scale=3, size=(4000, 2)) + np.array([rows * (1 - share), rows * share])
    ):
        noise: dict[str, Any] = {"counts_scale": 3.0} if number % 2 else {"counts_deviation": 3 * 2**0.5}
        released: Any = Node(counts=(lower, upper), **noise)
        low, high = released.share_interval(0.9)
        held += rows == 0 or low <= share <= high
    assert held / 4000 >= 0.9 - 6 * (0.09 / 4000) ** 0.5


def test_text_says_means_and_their_intervals() -> None:
    lines = example().export_text().splitlines()
    assert lines[2].startswith("├── < 30: mean 10")
    assert "(10 to 1" in lines[2] or "(10.0 to 1" in lines[2]
    assert lines[1].startswith("all rows: 134 rows, mean ")
    assert "split by age" in lines[1]


def test_pictures_draw_the_way_to_the_mean() -> None:
    tree = example()
    texts = [text.get_text() for text in tree.plot().texts]
    assert "mean, from 10 to 110" in texts
    assert tree.export_graphviz().count("mean ") >= 5
    assert "mean, from 10 to 110" in tree._repr_html_()


def test_arrays_hold_means() -> None:
    arrays = example().to_arrays()
    assert arrays.classes == ()
    assert arrays.value.tolist() == [[value] for value in example().values]
    assert np.isnan(arrays.impurity).all()


def test_json_round_trip_is_exact() -> None:
    tree = example()
    assert Tree.from_json(tree.to_json()) == tree
    found = tree.to_dict()
    assert found["kind"] == "regression"
    with pytest.raises(QueryError, match="says that it is for classification"):
        Tree.from_json(json.dumps(found | {"kind": "classification"}))
    with pytest.raises(QueryError, match="version 1, kind 'classification' or 'regression'"):
        Tree.from_json(json.dumps(found | {"kind": "ranking"}))
    with pytest.raises(QueryError, match="for `wage` it needs 2"):
        Tree(SCHEMA, "wage", [Node(counts=(1.0, 2.0, 3.0))])


def test_an_empty_leaf_predicts_its_parents_mean_and_says_so() -> None:
    """500 draws of noise alone below a node of 9,000 rows near the lower bound: the mean stays near
    the parent's, mostly it is the parent's, and pictures say so.
    """
    random = np.random.default_rng(2)
    means, said = [], 0
    for empty in random.normal(0, 90, (500, 2)):
        rest = np.array([8500.0, 500.0]) - empty
        nodes = [Node(Cuts("age", (30,)), (1, 2), counts=(8500.0, 500.0), counts_deviation=30.0)]
        nodes += [Node(counts=tuple(counts), counts_deviation=90.0) for counts in (empty, rest)]
        tree = Tree(SCHEMA, "wage", nodes)
        means.append(tree.values[1] - tree.values[0])
        alike = means[-1] == 0
        said += alike
        assert alike == tree.noise_dominated[1] == (", as above" in tree.export_text().splitlines()[2])
    assert said > 400
    assert np.abs(means).max() < 30  # of a range of 100; noise alone puts it anywhere
    assert np.mean(means) == pytest.approx(0, abs=2)
