# SPDX-License-Identifier: Apache-2.0
"""Made-up concepts and rows have the declared shape, domains and share of noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from miners.fitted.route import encode
from miners.tuning.synthetic import MAX_NODES, Concept
from pinq.errors import QueryError
from pinq.public.schema import Categorical, Numeric, Schema
from pinq.public.specs import Cuts, Groups, Values

SCHEMA = Schema(
    columns={
        "flag": Categorical(values=(0, 1)),
        "job": Categorical(values=("a", "b", "c"), nullable=True),
        "age": Numeric(lower=0, upper=99, integer=True),
        "pay": Numeric(lower="-1.5", upper="2.5", step="0.3", nullable=True),
        "tens": Numeric(lower=0, upper=100, step=7, integer=True),
        "y": Categorical(values=("n", "y", "?"), nullable=True),
    },
    max_rows=10_000,
)
BINARY = Schema(columns={f"a{i}": Categorical(values=(0, 1)) for i in range(11)}, max_rows=10_000)


@given(st.integers(0, 6), st.integers(0, 2**32), st.sampled_from(["values", "groups"]))
def test_concepts_are_trees_of_the_asked_depth(depth: Any, seed: Any, categorical: Any) -> None:
    concept = Concept.random(SCHEMA, "y", depth=depth, categorical=categorical, seed=seed)
    assert concept.tree.depth <= depth
    nodes = concept.tree.nodes
    if depth >= 2:  # leaves start at the third level
        assert all(concept.tree.depths[index] >= 2 for index, node in enumerate(nodes) if node.is_leaf)
    kinds = (Cuts, Values if categorical == "values" else Groups)
    for index, node in enumerate(nodes):
        if node.split is not None:
            assert isinstance(node.split, kinds)
            assert isinstance(node.split, Cuts) or node.split.column not in columns_above(concept, index)


def columns_above(concept: Any, index: Any) -> Any:
    """Returns the columns that split the ancestors of a node."""
    parents = {child: parent for parent, node in enumerate(concept.tree.nodes) for child in node.children}
    columns = []
    while index in parents:
        index = parents[index]
        columns.append(concept.tree.nodes[index].split.column)
    return columns


@given(st.integers(0, 2**32))
def test_no_branch_is_out_of_reach(seed: Any) -> None:
    """A numeric attribute is cut again only where some of it is left, so rows reach every leaf."""
    concept = Concept.random(
        Schema(columns={"n": Numeric(lower=0, upper=4, integer=True), "y": SCHEMA.columns["y"]}, max_rows=10),
        "y",
        depth=9,
        leaf_probability=0,
        seed=seed,
    )
    assert set(concept.tree.apply(concept.sample(2000, seed=seed))) == {
        index for index, node in enumerate(concept.tree.nodes) if node.is_leaf
    }
    assert concept.tree.n_leaves == 5


def test_the_same_seed_makes_the_same() -> None:
    first, second = (Concept.random(SCHEMA, "y", depth=4, seed=[1, 2]) for _ in range(2))
    assert first.tree == second.tree
    assert first.tree != Concept.random(SCHEMA, "y", depth=4, seed=[1, 3]).tree
    assert first.sample(100, noise=0.1, seed=3).equals(second.sample(100, noise=0.1, seed=3))
    assert not first.sample(100, seed=3).equals(first.sample(100, seed=4))


def test_without_noise_every_row_follows_the_rule() -> None:
    concept = Concept.random(SCHEMA, "y", depth=4, seed=5)
    rows = concept.sample(3000, seed=6)
    assert (concept.tree.predict(rows) == np.array(rows["y"].to_pylist())).all()


def test_values_are_uniform_over_the_declared_domains() -> None:
    """Each code of each attribute comes as often as it should, within 6 standard deviations.

    A false alarm over all 100-odd codes has a probability below 1e-6.
    """
    rows, concept = 50_000, Concept.random(SCHEMA, "y", depth=2, seed=1)
    table = concept.sample(rows, noise=0.2, seed=2)
    assert table.column_names == list(SCHEMA.columns)
    for name, column in SCHEMA.columns.items():
        codes = encode(SCHEMA, name, table)
        assert codes.min() == 0
        assert codes.max() == (column.cells if name == "y" else column.codes) - 1
        if name != "y":
            share = 1 / column.codes
            counts = np.bincount(codes, minlength=column.codes)
            assert np.abs(counts - rows * share).max() < 6 * np.sqrt(rows * share)


@pytest.mark.parametrize("noise", [0.0, 0.1, 1.0])
def test_noise_replaces_the_class_as_often_as_asked(noise: Any) -> None:
    """Noise replaces a class as often as its share demands, within 6 standard deviations.

    With one binary split the class disagrees with its attribute when exactly one of the two was
    replaced by the other value.
    """
    rows, concept = 40_000, Concept.single_split(BINARY, "a10", Values("a3"))
    table = concept.sample(rows, noise=noise, seed=8)
    differ = float(np.mean(np.array(table["a3"]) != np.array(table["a10"])))
    flipped = noise / 2
    expected = 2 * flipped * (1 - flipped)
    assert abs(differ - expected) <= 6 * np.sqrt(0.25 / rows) * (noise > 0)


def test_wide_attributes_do_not_explode() -> None:
    wide = Schema(
        columns={f"a{i}": Categorical(values=tuple(range(200))) for i in range(4)} | {"y": Categorical(values=(0, 1))},
        max_rows=10,
    )
    concept = Concept.random(wide, "y", depth=4, seed=1)
    assert concept.tree.n_nodes <= MAX_NODES
    assert concept.tree.depth >= 2


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"depth": -1}, "`depth` is -1"),
        ({"depth": 1.5}, "`depth` is 1.5"),
        ({"depth": 1, "leaf_probability": 2}, "`leaf_probability` is 2; it must be a number from 0 to 1"),
        ({"depth": 1, "categorical": "binary"}, "must be 'values' or 'groups'"),
        ({"depth": 1, "attributes": ["y"]}, "the target `y` is among `attributes`"),
        ({"depth": 1, "attributes": ["jobs"]}, "did you mean 'job'"),
    ],
)
def test_what_cannot_be_is_refused(asked: Any, message: Any) -> None:
    with pytest.raises(QueryError, match=message):
        Concept.random(SCHEMA, "y", **asked)


def test_a_single_split_gives_each_part_its_class() -> None:
    for first, classes in ((0, ["n", "y", "?", "n"]), (2, ["?", "n", "y", "?"])):
        tree = Concept.single_split(SCHEMA, "y", Values("job"), first=first).tree
        assert tree.predict(pd.DataFrame({"job": ["a", "b", "c", None]})).tolist() == classes


def test_rows_and_noise_are_checked() -> None:
    concept = Concept.random(SCHEMA, "y", depth=1, seed=1)
    with pytest.raises(QueryError, match="`rows` is -1"):
        concept.sample(-1)
    with pytest.raises(QueryError, match="`noise` is 'much'"):
        concept.sample(1, noise="much")  # type: ignore[arg-type]
    assert concept.sample(0).num_rows == 0
    assert repr(Concept.single_split(BINARY, "a10", Values("a3"))) == "Concept for `a10`: depth 1, 2 leaves"
