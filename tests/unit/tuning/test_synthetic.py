# SPDX-License-Identifier: Apache-2.0
"""Made-up rules and rows have the declared shape, domains and share of noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from miners.fitted.node import Node
from miners.fitted.route import encode
from miners.fitted.tree import Tree
from miners.tuning.suggestion import dummy_rows, random_rule
from pinq.errors import QueryError
from pinq.language.specs import Cuts, Groups, Values
from pinq.public.schema import Categorical, Numeric, Schema

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


@given(st.integers(0, 6), st.integers(0, 2**32))
def test_rules_are_trees_of_the_asked_depth(depth: Any, seed: Any) -> None:
    rule = random_rule(SCHEMA, "y", depth=depth, seed=seed)
    assert rule.depth <= depth
    if depth >= 2:  # leaves start at the third level
        assert all(rule.depths[index] >= 2 for index, node in enumerate(rule.nodes) if node.is_leaf)
    for index, node in enumerate(rule.nodes):
        if node.split is not None:
            assert isinstance(node.split, Cuts | Groups)
            assert isinstance(node.split, Cuts) or node.split.column not in columns_above(rule, index)


def columns_above(rule: Any, index: Any) -> Any:
    """Returns the columns that split the ancestors of a node."""
    parents = {child: parent for parent, node in enumerate(rule.nodes) for child in node.children}
    columns = []
    while index in parents:
        index = parents[index]
        columns.append(rule.nodes[index].split.column)
    return columns


@given(st.integers(0, 2**32))
def test_no_branch_is_out_of_reach(seed: Any) -> None:
    """A numeric attribute is cut again only where some of it is left, so rows reach every leaf."""
    rule = random_rule(
        Schema(columns={"n": Numeric(lower=0, upper=4, integer=True), "y": SCHEMA.columns["y"]}, max_rows=10),
        "y",
        depth=9,
        leaf_probability=0,
        seed=seed,
    )
    assert set(rule.apply(dummy_rows(rule, 2000, seed=seed))) == {
        index for index, node in enumerate(rule.nodes) if node.is_leaf
    }
    assert rule.n_leaves == 5


def test_the_same_seed_makes_the_same() -> None:
    first, second = (random_rule(SCHEMA, "y", depth=4, seed=[1, 2]) for _ in range(2))
    assert first == second
    assert first != random_rule(SCHEMA, "y", depth=4, seed=[1, 3])
    assert dummy_rows(first, 100, noise=0.1, seed=3).equals(dummy_rows(second, 100, noise=0.1, seed=3))
    assert not dummy_rows(first, 100, seed=3).equals(dummy_rows(first, 100, seed=4))


def test_without_noise_every_row_follows_the_rule() -> None:
    rule = random_rule(SCHEMA, "y", depth=4, seed=5)
    rows = dummy_rows(rule, 3000, seed=6)
    assert (rule.predict(rows) == np.array(rows["y"].to_pylist())).all()


def test_values_are_uniform_over_the_declared_domains() -> None:
    """Each code of each attribute comes as often as it should, within 6 standard deviations.

    A false alarm over all 100-odd codes has a probability below 1e-6.
    """
    rows, rule = 50_000, random_rule(SCHEMA, "y", depth=2, seed=1)
    table = dummy_rows(rule, rows, noise=0.2, seed=2)
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
    rows = 40_000
    leaves = [Node(counts=(1.0, 0.0)), Node(counts=(0.0, 1.0))]
    rule = Tree(BINARY, "a10", [Node(Values("a3"), (1, 2)), *leaves])
    table = dummy_rows(rule, rows, noise=noise, seed=8)
    differ = float(np.mean(np.array(table["a3"]) != np.array(table["a10"])))
    flipped = noise / 2
    expected = 2 * flipped * (1 - flipped)
    assert abs(differ - expected) <= 6 * np.sqrt(0.25 / rows) * (noise > 0)


@pytest.mark.parametrize("noise", ["much", 2, -0.1])
def test_noise_is_checked(noise: Any) -> None:
    """It is a share."""
    rule = random_rule(SCHEMA, "y", depth=1, seed=1)
    assert dummy_rows(rule, 0).num_rows == 0
    with pytest.raises(QueryError, match="`noise` is"):
        dummy_rows(rule, 1, noise=noise)
