# SPDX-License-Identifier: Apache-2.0
import itertools
import json
import pickle
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

import miners
from miners.fitted.node import Node
from miners.fitted.route import Bins
from miners.fitted.tree import Tree, faint_of
from pinq.errors import QueryError
from pinq.language.specs import Cuts, Values, bind
from pinq.public.schema import Categorical, Date, Numeric, Schema
from tests.support.requests.handles import simulated
from tests.support.tables.example_tree import FRAME, REACHED, SCHEMA, example, random_tree


def interval_of(node: Node, level: float = 0.95) -> tuple[float, float]:
    """The interval of a node that has one."""
    interval = node.interval(level)
    assert interval is not None
    return interval


def test_shape_and_sums() -> None:
    tree = example()
    assert (tree.n_nodes, tree.n_leaves, tree.depth) == (8, 5, 2)
    assert tree.nodes[1].counts == (29.0, 25.0)
    assert tree.nodes[0].counts == (49.0, 45.0)


def test_probabilities_are_clipped_and_borrowed_from_the_parent_where_nothing_is_left() -> None:
    tree = example()
    assert tree.probabilities[3].tolist() == [1, 0]
    assert tree.probabilities[4].tolist() == [0.25, 0.75]
    assert tree.probabilities[5].tolist() == tree.probabilities[1].tolist()
    assert np.allclose(tree.probabilities.sum(axis=1), 1)
    assert Tree(SCHEMA, "y", [Node(counts=(-1.0, 0.0))]).probabilities.tolist() == [[0.5, 0.5]]
    assert Tree(SCHEMA, "y", [Node(counts=(1e300, 1e300))]).probabilities.tolist() == [[0.5, 0.5]]


def unsized() -> Tree:
    """A tree whose parties opened the class of each leaf alone."""
    leaves = [Node(label=0), Node(label=1), Node(label=1)]
    return Tree(SCHEMA, "y", [Node(Values("sex"), (1, 2)), Node(Cuts("age", (30,)), (3, 4)), *leaves])


def test_a_tree_without_counts_invents_neither_rows_nor_shares() -> None:
    """It shows, stores and predicts classes; an inner node predicts what most of its children do."""
    tree = unsized()
    pictures = [repr(tree), tree.export_text(), tree.export_text(max_depth=1), tree._repr_html_(), tree.to_json()]
    for text in [*pictures, tree.export_graphviz()]:
        assert not re.search(r"\d ?%|\d rows|about|counts\"", text)
    lines = ["all rows: split by sex", "├── F: (2 leaves below, by age)", "└── M: no"]
    assert tree.export_text(max_depth=1).splitlines()[1:] == lines
    assert tree.predict(FRAME).tolist() == ["yes"] * 4 + ["no"] * 5 + ["yes"] * 2
    frame = tree.to_frame()
    assert frame[["rows", "rows_low", "rows_high"]].isna().all(axis=None)
    assert list(frame.columns[-1:]) == ["predicts"]
    assert len(tree.rules()) == 3
    arrays = tree.to_arrays()
    assert np.isnan(arrays.n_node_samples).all()
    assert np.isnan(arrays.impurity).all()
    assert arrays.value[2:].tolist() == [[1, 0], [0, 1], [0, 1]]
    assert not tree.noise_dominated.any()
    for ask in (lambda: tree.predict_proba(FRAME), lambda: tree.importances):
        with pytest.raises(QueryError, match="neither probabilities nor importances"):
            ask()
    assert Tree.from_json(tree.to_json()) == tree


def test_the_picture_of_a_tree_without_counts_has_neither_bars_nor_sizes() -> None:
    pytest.importorskip("matplotlib")
    ax = unsized().plot()
    assert not any(re.search("%|±", text.get_text()) for text in ax.texts)
    assert "numbers are noisy row counts" not in [text.get_text()[:28] for text in ax.texts]


@pytest.mark.parametrize("label", [2, -1, 0.5, True])
def test_a_label_is_the_position_of_a_class(label: Any) -> None:
    with pytest.raises(QueryError, match="the position of a class, 0 to 1"):
        Tree(SCHEMA, "y", [Node(label=label)])
    with pytest.raises(QueryError, match="the position of a class"):
        Tree(SCHEMA, "y", [Node(label=1, counts=(1.0, 2.0))])
    with pytest.raises(QueryError, match="node 1 of the tree has 0 counts"):
        Tree(SCHEMA, "y", [Node(Values("sex"), (1, 2), counts=(1.0, 2.0)), Node(label=1), Node(counts=(1.0, 2.0))])


@pytest.mark.parametrize("label", [[1], {}, "x", True, 1.5, 7, -1, None])
def test_a_stored_label_that_is_no_position_of_a_class_is_refused(label: Any) -> None:
    stored = unsized().to_dict()
    stored["nodes"][3]["label"] = label
    with pytest.raises(QueryError, match="node"):
        Tree.from_json(json.dumps(stored))
    with pytest.raises(QueryError, match="node"):
        Tree(SCHEMA, "y", [Node(Values("sex"), (1, 2)), Node(label=0), Node(label=label)])


@pytest.mark.parametrize(
    "frame",
    [
        FRAME,
        FRAME.astype({"sex": "category", "job": "category"}),
        FRAME.astype({"age": "Int64"}),
        pa.Table.from_pandas(FRAME),
        FRAME.set_index(pd.RangeIndex(5, 16)),
        FRAME.astype({"job": object}),
    ],
    ids=["pandas", "categories", "nullable numbers", "arrow", "index", "objects"],
)
def test_rows_go_down_until_they_are_missing_or_unknown(frame: Any) -> None:
    tree = example()
    assert tree.apply(frame).tolist() == REACHED
    assert tree.predict(frame).tolist() == ["no", "yes", "no", "no", "yes", "no", "no", "no", "no", "no", "no"]
    assert tree.predict_proba(frame).shape == (11, 2)


def test_a_dictionary_column_of_arrow_is_read() -> None:
    table = pa.Table.from_pandas(FRAME)
    table = table.set_column(0, "sex", table["sex"].dictionary_encode())
    assert example().apply(table).tolist() == REACHED


def test_no_rows_and_a_lone_root() -> None:
    assert example().predict(FRAME.head(0)).tolist() == []
    assert Tree(SCHEMA, "y", [Node(counts=(1.0, 2.0))]).predict(FRAME).tolist() == ["yes"] * 11


def test_numbers_as_categories_match_however_they_are_written() -> None:
    tree = Tree(SCHEMA, "y", [Node(Values("size"), (1, 2, 3)), *(Node(counts=(1.0, float(i))) for i in range(3))])
    for values in ([1, 2, 3], [1.0, 2.0, 3.0], ["1", "2", "3"]):
        assert tree.apply(pd.DataFrame({"size": values})).tolist() == [1, 2, 3]


@given(seed=st.integers(0, 2**32 - 1))
def test_rows_go_where_a_plain_walk_takes_them(seed: Any) -> None:
    tree, frame = random_tree(seed)
    reached = tree.apply(frame)
    for number, (_, row) in enumerate(frame.iterrows()):
        node = 0
        while (split := tree.nodes[node].split) is not None:
            part = int(
                bind(split, SCHEMA).axes[0].parts_of(SCHEMA.columns[split.column].encode([row[split.column]]))[0]
            )
            if part < 0:
                break
            node = tree.nodes[node].children[part]
        assert reached[number] == node


@pytest.mark.parametrize("nullable", [False, True])
def test_a_codes_bin_is_the_same_by_search_and_by_table(nullable: bool) -> None:
    """One row of a wide column is searched, many are looked up; each row ends where it ends alone."""
    column = Numeric(lower=0, upper=100_000, integer=True, nullable=nullable)
    axes = [
        bind(Cuts("n", points), Schema(columns={"n": column}, max_rows=9)).axes[0] for points in ((7,), (7, 90_000))
    ]
    bins, codes = Bins(column, axes), np.array([-1, 0, 6, 7, 8, 89_999, 90_000, 100_000, column.codes - 1])
    assert (
        bins.finder(1)(codes).tolist() == bins.finder(10**6)(codes).tolist() == [0, 1, 1, 2, 2, 2, 3, 3, 3 + nullable]
    )


@pytest.mark.parametrize("step", [1, 5])
def test_whole_numbers_have_the_codes_of_equal_doubles(step: int) -> None:
    column = Numeric(lower=-10, upper=90, integer=True, step=step)
    numbers = np.array([-(2**62), -11, -10, -9, 0, 3, 89, 90, 91, 2**62])
    for kind in (np.int64, np.int32, np.int8):
        own = numbers.astype(kind)
        assert column.encode(own).tolist() == column.encode(own.astype(np.float64)).tolist()


def test_a_column_is_known_by_its_name_as_text() -> None:
    """A frame without a header has the columns 0, 1, ...: behind the wall they are called "0", "1", ..., and here too."""
    draw = np.random.default_rng(0).integers(0, 3, (500, 3))
    frame = pd.DataFrame(draw).assign(**{"y": draw[:, 0] * 2.0})
    columns = {str(name): Numeric(lower=0, upper=2, integer=True) for name in range(3)}
    schema = Schema(columns={**columns, "y": Numeric(lower=0, upper=4, integer=True)}, max_rows=500)
    miner = miners.DiPriMeTreeRegressor(epsilon=50, max_depth=2).fit(simulated(schema, data=frame, epsilon=50), "y")
    assert miner.score(frame) == miner.score(frame, frame["y"])
    assert miner.predict(frame).tolist() == miner.predict(frame.rename(columns=str)).tolist()
    with pytest.raises(QueryError, match="no column 'y'"):
        miner.score(frame[[0, 1, 2]])


def test_a_table_without_the_column_is_refused() -> None:
    with pytest.raises(QueryError, match="no column 'age'"):
        example().predict(FRAME.drop(columns="age"))
    with pytest.raises(QueryError, match="pandas or Arrow table"):
        example().predict([[1, 2]])
    with pytest.raises(QueryError, match="more than one column"):
        example().predict(pd.concat([FRAME, FRAME["age"]], axis=1))


def test_json_round_trip_is_exact() -> None:
    tree = example()
    text = tree.to_json()
    again = Tree.from_json(text)
    assert again == tree
    assert again.to_json() == text
    assert hash(again) == hash(tree)
    assert again.apply(FRAME).tolist() == REACHED


@given(st.lists(st.floats(-1e12, 1e12), min_size=2, max_size=2))
def test_json_keeps_every_digit(counts: Any) -> None:
    assert Tree.from_json(Tree(SCHEMA, "y", [Node(counts=tuple(counts))]).to_json()).nodes[0].counts == tuple(counts)


def test_json_holds_public_things_only() -> None:
    stored = json.loads(example().to_json())
    assert set(stored) == {"format", "version", "kind", "target", "shares", "schema", "nodes"}
    assert set().union(*(node for node in stored["nodes"])) <= {
        "split",
        "children",
        "size",
        "size_scale",
        "counts",
        "counts_scale",
    }


def edit(path: Any, value: Any) -> Any:
    """Returns the example's JSON with another value at a path like ``nodes 0 split``."""
    stored = json.loads(example().to_json())
    owner = stored
    *keys, last = [int(key) if key.isdigit() else key for key in path.split()]
    for key in keys:
        owner = owner[key]
    owner[last] = value
    return json.dumps(stored)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("format", "x"),
        ("version", 2),
        ("kind", "regression"),
        ("target", "age"),
        ("target", "z"),
        ("target", None),
        ("target", []),
        ("schema", {}),
        ("schema", None),
        ("nodes", []),
        ("nodes", {}),
        ("nodes", None),
        ("nodes 0", 3),
        ("nodes 0 children", [1]),
        ("nodes 0 children", [1, 1]),
        ("nodes 0 children", [0, 1]),
        ("nodes 0 children", [1, 99]),
        ("nodes 0 children", [1, -1]),
        ("nodes 0 children", [1.0, 2.0]),
        ("nodes 0 children", [True, 2]),
        ("nodes 3 children", [4]),
        ("nodes 3 counts", [1]),
        ("nodes 3 counts", [1, "2"]),
        ("nodes 3 counts", [1, None]),
        ("nodes 3 counts", None),
        ("nodes 3 counts", [1, float("nan")]),
        ("nodes 3 counts", [1, float("inf")]),
        ("nodes 3 counts", [1, 10**400]),
        ("nodes 3 size", "big"),
        ("nodes 3 size_scale", -1),
        ("nodes 3 secret", 1),
        ("nodes 0 split", None),
        ("nodes 0 split", "sex"),
        ("nodes 0 split kind", "shards"),
        ("nodes 0 split kind", ["values"]),
        ("nodes 0 split column", "z"),
        ("nodes 0 split column", "y"),
        ("nodes 0 split column", 7),
        ("nodes 0 split more", 7),
        ("nodes 1 split points", [60, 30]),
        ("nodes 1 split points", "ab"),
        ("nodes 1 split points", 30),
        ("nodes 1 split points", [30, 1000]),
        ("nodes 2 split groups", [["a"], ["a"]]),
        ("nodes 2 split groups", [["a"], [[1]]]),
    ],
)
def test_a_stored_tree_that_is_not_whole_is_refused(path: Any, value: Any) -> None:
    with pytest.raises(QueryError):
        Tree.from_json(edit(path, value))


@pytest.mark.parametrize("text", ["", "{", "3", "null", "[]", b"\xff", "[" * 100_000, "{}"])
def test_what_is_no_stored_tree_is_refused(text: Any) -> None:
    with pytest.raises(QueryError):
        Tree.from_json(text)


def test_a_tree_can_be_pickled_by_joblib_and_friends() -> None:
    assert pickle.loads(pickle.dumps(example())) == example()


def test_the_interval_of_a_size_follows_from_its_noise() -> None:
    assert example().nodes[0].interval() == (86.0, 116.0)
    assert Node(size=-3.0, size_scale=1.0).interval() == (0.0, 0.0)
    assert Node(counts=(1.0, 2.0)).interval() is None
    assert Node(counts=(1.0, 2.0), counts_deviation=1e-6).interval() == (3.0, 3.0)
    # A size that was asked, with counts that were not made to agree with it, speaks for itself.
    assert Node(size=10.0, size_scale=1.0, counts=(5.0, 25.0), counts_scale=1.0).interval() == (7.0, 13.0)
    for level in (0, 1, 95, -0.1, float("nan")):
        with pytest.raises(QueryError, match="between 0 and 1"):
            Node(size=3.0, size_scale=1.0).interval(level)


def test_a_target_is_shown_with_its_first_classes_or_its_bounds() -> None:
    many = {"type": "categorical", "values": list("abcdef")}
    schema = Schema(columns={"c": many, "n": {"type": "numeric", "lower": 0, "upper": 9, "integer": True}}, max_rows=9)
    assert repr(Tree(schema, "c", [Node(counts=(1.0,) * 6)])).startswith("Tree for `c` (a, b, c, d, ...): depth 0")
    mean = Tree(schema, "n", [Node(counts=(1.0, 2.0))])
    assert repr(mean).startswith("Tree for `n` (0 to 9): depth 0")
    assert (mean.kind, mean.classes, mean.values.tolist()) == ("regression", (), [6.0])
    with pytest.raises(QueryError, match="for `n` it needs 2"):
        Tree(schema, "n", [Node(counts=(1.0,))])
    with pytest.raises(QueryError, match="for `c` it needs 6"):
        Tree(schema, "c", [Node(counts=(1.0,))])


def law_of_sum(scale: float, weights: list[int]) -> np.ndarray:
    """Returns P(z) of a weighted sum of independent discrete Laplace variables, z from -m to m."""
    law = np.ones(1)
    reach = int(40 * scale) + 20
    for weight in weights:
        density = np.exp(-np.abs(np.arange(-reach, reach + 1)) / scale)
        spread = np.zeros(2 * reach * weight + 1)
        spread[::weight] = density / density.sum()
        law = np.convolve(law, spread)
    return law


ALIKE = [[1], [1, 1], [1, 1, 1], [1] * 6]
# Estimates weigh answers by at most 1; with hardly any noise a weight of 3 would be a coarse
# lattice.
UNLIKE = [[1, 2], [1, 3], [1, 1, 5], [2, 3]]


@pytest.mark.parametrize(
    ("scale", "weights"),
    [*itertools.product((0.2, 0.5, 1.0, 3.0, 8.0), ALIKE), *itertools.product((1.0, 3.0, 8.0), UNLIKE)],
)
def test_the_interval_of_a_sum_of_counts_holds_the_true_one_as_often_as_it_says(scale: Any, weights: Any) -> None:
    """The law of the noise is summed up exactly, and nothing is drawn.

    Noise of a deviation 30 % larger would be noticed.
    """
    law = law_of_sum(scale, weights)
    z = np.arange(len(law)) - len(law) // 2
    deviation = float(np.sqrt((law * z**2).sum()))
    for level in (0.5, 0.8, 0.9, 0.95, 0.99):
        low, high = interval_of(Node(counts=(1e6,), counts_deviation=deviation), level)
        assert law[np.abs(z) <= high - 1e6].sum() >= level - 1e-9
        assert (low + high) / 2 == 1e6
    if scale == 8.0:
        _, high = interval_of(Node(counts=(1e6,), counts_deviation=deviation / 1.3), 0.95)
        assert law[np.abs(z) <= high - 1e6].sum() < 0.95


def test_released_counts_have_an_interval_of_their_own() -> None:
    scale = 4.0
    deviation = float(np.sqrt((law_of_sum(scale, [1]) * (np.arange(361) - 180) ** 2).sum()))
    released = Node(counts=(30.0, 20.0), counts_scale=scale)
    assert released.interval() == Node(counts=(30.0, 20.0), counts_deviation=deviation).interval()
    assert interval_of(released)[1] > 50


def test_rows_of_a_value_that_nobody_had_are_predicted_like_their_parent() -> None:
    """Rows of a value that the tree never met are predicted like their parent.

    All rows of a shifted population have that value. In 300 draws of its leaf's noise no row is
    predicted otherwise than above the leaf.
    """
    random = np.random.default_rng(4)
    shifted = pd.DataFrame({"sex": ["M"] * 100})
    for noise in random.normal(0, 92, (300, 2)):
        counts = [np.array([16_150.0, 1031.0]), np.array([16_150.0, 1031.0]) - noise, noise]
        root, *leaves = [Node(counts=tuple(cells), counts_deviation=92.0) for cells in counts]
        tree = Tree(SCHEMA, "y", [replace(root, split=Values("sex"), children=(1, 2)), *leaves])
        assert (tree.predict(shifted) == "no").all()
        again = Tree.from_json(tree.to_json())
        assert again.noise_dominated.tolist() == tree.noise_dominated.tolist()
        assert (", as above  (" in tree.export_text().splitlines()[3]) == bool(tree.noise_dominated[2])
        assert not tree.noise_dominated[2] or tree.probabilities[2].tolist() == tree.probabilities[0].tolist()


def test_a_tree_that_was_stored_before_predicts_as_it_did() -> None:
    """A stored tree without ``rule`` has those of the older rule, and is the same text again.

    An unknown rule is refused.
    """
    noisy = [
        Node(Values("sex"), (1, 2), counts=(60.0, 40.0), counts_deviation=9.0),
        Node(counts=(55.0, 12.0), counts_deviation=9.0),
        Node(counts=(5.0, 28.0), counts_deviation=9.0),
    ]
    fresh = Tree(SCHEMA, "y", noisy)
    stored = {key: value for key, value in fresh.to_dict().items() if key != "shares"}
    old = Tree.from_dict(stored)
    assert old.to_dict() == stored
    assert old != fresh
    assert not old.noise_dominated.any()
    own, parent = np.array([55 / 67, 12 / 67]), old.probabilities[0]
    weight = 1 - (9 / 67) ** 2 / np.square(own - parent).sum()
    assert old.probabilities[1] == pytest.approx(weight * own + (1 - weight) * parent)
    assert Tree.from_dict(fresh.to_dict()) == fresh
    for unknown in ("means", ["moments"], None):
        with pytest.raises(QueryError, match="`rule`"):
            Tree.from_dict({**stored, "shares": unknown})


def test_classes_that_noise_hides_are_named() -> None:
    """Fewer rows than four deviations of their noise, or leaves whose answers do not add up to them."""
    cut = Cuts("age", (40,))
    age = Numeric(lower=0, upper=99, integer=True)
    schema = Schema(columns={"age": age, "y": Categorical(values=("n", "p"))}, max_rows=9)

    def tree(noise: float, rare: float) -> Tree:
        leaves = [Node(counts=(500.0, own), counts_deviation=noise) for own in (0.0, rare)]
        return Tree(schema, "y", [Node(cut, (1, 2), counts=(1000.0, rare), counts_deviation=noise), *leaves])

    (told,) = faint_of([tree(20, 57)])
    assert "'p' (about 57 of them, and noise of 20)" in told
    assert "'n'" not in told
    assert faint_of([tree(5, 57)]) == faint_of([tree(0, 57)]) == ()
    assert len(faint_of([tree(20, 50)] * 2)) == 1
    (told,) = faint_of(
        [tree(40, 57)] * 4, copies=4
    )  # four trees of the same rows: half the noise, and not four times the rows
    assert "'p' (about 57 of them, and noise of 20)" in told


def test_leaves_that_do_not_add_up_are_not_blamed_on_rows() -> None:
    """Rows that are plainly there, which the leaves have lost to noise."""
    schema = Schema(columns={"age": Numeric(lower=0, upper=99), "y": Categorical(values=("n", "p"))}, max_rows=9)
    leaves = [Node(counts=(500.0, own), counts_deviation=20.0) for own in (10.0, 20.0)]
    nodes = [Node(Cuts("age", (40,)), (1, 2), counts=(1000.0, 300.0), counts_deviation=20.0), *leaves]
    (told,) = faint_of([Tree(schema, "y", nodes)])
    assert "noise in the leaves" in told
    assert "too few" not in told


def test_a_tree_of_dates_shows_dates() -> None:
    """In texts and in frames, as its miner predicts them."""
    day = Date.model_validate({"lower": "2000-01-01", "upper": "2009-12-31"})
    schema = Schema(columns={"x": Numeric(lower=0, upper=1), "day": day}, max_rows=100)
    tree = Tree(schema, "day", [Node(counts=(50.0, 50.0), counts_scale=1.0)])
    row = tree.to_frame().iloc[0]
    assert "mean 2004-12-31 (200" in tree.export_text()
    assert row["low"] < row["predicts"] == pd.Timestamp("2004-12-31") < row["high"]
