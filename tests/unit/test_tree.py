# SPDX-License-Identifier: Apache-2.0
import json
import pickle
import sys

import matplotlib as mpl
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from miners.tree import Node, Tree
from pinq.errors import QueryError
from pinq.parts import Cuts, Groups, Values, bind
from pinq.schema import Categorical, Numeric, Schema

mpl.use("Agg")

SCHEMA = Schema(
    columns={
        "age": Numeric(lower=0, upper=99, integer=True),
        "hours": Numeric(lower=0, upper=1, nullable=True),
        "sex": Categorical(values=("F", "M")),
        "job": Categorical(values=("a", "b", "c", "d"), nullable=True),
        "size": Categorical(values=(1, 2, 3)),
        "y": Categorical(values=("no", "yes")),
    },
    max_rows=10_000,
)


def example() -> Tree:
    return Tree(
        SCHEMA,
        "y",
        [
            Node(Values("sex"), (1, 2), size=101.0, size_scale=5.0),
            Node(Cuts("age", (30, 60)), (3, 4, 5), size=61.0, size_scale=5.0),
            Node(Groups("job", (("a", "b"), ("c", None))), (6, 7), size=40.0, size_scale=5.0),
            Node(counts=(20.0, -3.0), counts_scale=2.0),
            Node(counts=(10.0, 30.0), counts_scale=2.0),
            Node(counts=(-1.0, -2.0), counts_scale=2.0),
            Node(counts=(5.0, 15.0), counts_scale=2.0),
            Node(counts=(15.0, 5.0), counts_scale=2.0),
        ],
    )


def test_shape_and_sums():
    tree = example()
    assert (tree.n_nodes, tree.n_leaves, tree.depth) == (8, 5, 2)
    assert tree.nodes[1].counts == (29.0, 25.0)
    assert tree.nodes[0].counts == (49.0, 45.0)


def test_probabilities_are_clipped_and_borrowed_from_the_parent_where_nothing_is_left():
    tree = example()
    assert tree.probabilities[3].tolist() == [1, 0]
    assert tree.probabilities[4].tolist() == [0.25, 0.75]
    assert tree.probabilities[5].tolist() == tree.probabilities[1].tolist()
    assert np.allclose(tree.probabilities.sum(axis=1), 1)
    assert Tree(SCHEMA, "y", [Node(counts=(-1.0, 0.0))]).probabilities.tolist() == [[0.5, 0.5]]
    assert Tree(SCHEMA, "y", [Node(counts=(1e300, 1e300))]).probabilities.tolist() == [[0.5, 0.5]]


FRAME = pd.DataFrame(
    {
        "sex": ["F", "F", "F", "F", "M", "M", "M", "M", "M", None, "X"],
        "age": [29, 30, 60, None, 1, 1, 1, 1, 1, 1, 1],
        "job": ["a", "a", "a", "a", "b", "c", None, "d", "?", "a", "a"],
    }
)
REACHED = [3, 4, 5, 1, 6, 7, 7, 2, 2, 0, 0]


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
def test_rows_go_down_until_they_are_missing_or_unknown(frame):
    tree = example()
    assert tree.apply(frame).tolist() == REACHED
    assert tree.predict(frame).tolist() == ["no", "yes", "no", "no", "yes", "no", "no", "no", "no", "no", "no"]
    assert tree.predict_proba(frame).shape == (11, 2)


def test_a_dictionary_column_of_arrow_is_read():
    table = pa.Table.from_pandas(FRAME)
    table = table.set_column(0, "sex", table["sex"].dictionary_encode())
    assert example().apply(table).tolist() == REACHED


def test_no_rows_and_a_lone_root():
    assert example().predict(FRAME.head(0)).tolist() == []
    assert Tree(SCHEMA, "y", [Node(counts=(1.0, 2.0))]).predict(FRAME).tolist() == ["yes"] * 11


def test_numbers_as_categories_match_however_they_are_written():
    tree = Tree(SCHEMA, "y", [Node(Values("size"), (1, 2, 3)), *(Node(counts=(1.0, float(i))) for i in range(3))])
    for values in ([1, 2, 3], [1.0, 2.0, 3.0], ["1", "2", "3"]):
        assert tree.apply(pd.DataFrame({"size": values})).tolist() == [1, 2, 3]


SPLITS = [Values("sex"), Values("job"), Cuts("age", (10, 20, 50)), Cuts("age", (35,)), Cuts("hours", (0.25, 0.5)), Groups("job", (("a",), ("c", None))), Values("age")]


@given(seed=st.integers(0, 2**32 - 1))
def test_rows_go_where_a_plain_walk_takes_them(seed):
    random = np.random.default_rng(seed)
    nodes, last = [Node(counts=(1.0, 1.0))], 1
    for place in range(60):
        if place < len(nodes) and last < 300 and random.random() < 0.6:
            split = SPLITS[random.integers(len(SPLITS))]
            size = bind(split, SCHEMA).size
            nodes[place] = Node(split, tuple(range(last, last + size)))
            nodes += [Node(counts=(1.0, 2.0))] * size
            last += size
    tree = Tree(SCHEMA, "y", nodes)
    frame = pd.DataFrame(
        {
            "sex": random.choice(["F", "M", "X", None], 50),
            "job": random.choice(["a", "b", "c", "d", None], 50),
            "age": random.choice([-5.0, 9, 10, 35, 49, 50, 200, np.nan], 50),
            "hours": random.choice([-1, 0.2499, 0.25, 0.5, 2, np.nan], 50),
        }
    )
    reached = tree.apply(frame)
    for number, (_, row) in enumerate(frame.iterrows()):
        node = 0
        while tree.nodes[node].split is not None:
            split = tree.nodes[node].split
            part = int(bind(split, SCHEMA).axes[0].parts_of(SCHEMA.columns[split.column].encode([row[split.column]]))[0])
            if part < 0:
                break
            node = tree.nodes[node].children[part]
        assert reached[number] == node


def test_a_table_without_the_column_is_refused():
    with pytest.raises(QueryError, match="no column 'age'"):
        example().predict(FRAME.drop(columns="age"))
    with pytest.raises(QueryError, match="pandas or Arrow table"):
        example().predict([[1, 2]])
    with pytest.raises(QueryError, match="more than one column"):
        example().predict(pd.concat([FRAME, FRAME["age"]], axis=1))


def test_json_round_trip_is_exact():
    tree = example()
    text = tree.to_json()
    again = Tree.from_json(text)
    assert again == tree
    assert again.to_json() == text
    assert hash(again) == hash(tree)
    assert again.apply(FRAME).tolist() == REACHED


@given(st.lists(st.floats(-1e12, 1e12), min_size=2, max_size=2))
def test_json_keeps_every_digit(counts):
    assert Tree.from_json(Tree(SCHEMA, "y", [Node(counts=tuple(counts))]).to_json()).nodes[0].counts == tuple(counts)


def test_json_holds_public_things_only():
    stored = json.loads(example().to_json())
    assert set(stored) == {"format", "version", "kind", "target", "schema", "nodes"}
    assert set().union(*(node for node in stored["nodes"])) <= {"split", "children", "size", "size_scale", "counts", "counts_scale"}


def edit(path, value):
    stored = json.loads(example().to_json())
    place = stored
    *way, last = [int(step) if step.isdigit() else step for step in path.split()]
    for step in way:
        place = place[step]
    place[last] = value
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
def test_a_stored_tree_that_is_not_whole_is_refused(path, value):
    with pytest.raises(QueryError):
        Tree.from_json(edit(path, value))


@pytest.mark.parametrize("text", ["", "{", "3", "null", "[]", b"\xff", "[" * 100_000, "{}"])
def test_what_is_no_stored_tree_is_refused(text):
    with pytest.raises(QueryError):
        Tree.from_json(text)


def test_a_tree_can_be_pickled_by_joblib_and_friends():
    assert pickle.loads(pickle.dumps(example())) == example()


def test_the_interval_of_a_size_follows_from_its_noise():
    assert example().nodes[0].interval() == (86.0, 116.0)
    assert example().nodes[3].interval() is None
    assert Node(size=-3.0, size_scale=1.0).interval() == (0.0, 0.0)


def test_text():
    text = example().export_text()
    assert text.splitlines()[1] == "all rows: 101 ±15 rows, no 52%; split by sex"
    assert "│   ├── < 30: no 100%  (17 rows)" in text
    assert "    └── c, missing: no 75%  (20 rows)" in text
    folded = example().export_text(max_depth=1)
    assert len(folded.splitlines()) == 4
    assert "3 leaves below" in folded
    with pytest.raises(QueryError, match="max_depth"):
        example().export_text(max_depth=-1)


def test_repr_and_html():
    assert repr(example()) == "Tree for `y` (no, yes): depth 2, 5 leaves, about 101 rows, splits on sex, age, job"
    assert "&lt; 30" in example()._repr_html_()
    nasty = Schema(columns={"<b>": Categorical(values=("<i>", "x")), "y": Categorical(values=("<u>", "v"))}, max_rows=9)
    html = Tree(nasty, "y", [Node(Values("<b>"), (1, 2)), Node(counts=(2.0, 1.0)), Node(counts=(1.0, 2.0))])._repr_html_()
    assert "<i>" not in html.replace("<i>&lt;b&gt;</i>", "")
    assert "<u>" not in html


def test_plot_draws_every_visible_node():
    import matplotlib.pyplot as plt

    ax = example().plot()
    texts = {text.get_text() for text in ax.texts}
    assert {"all rows", "sex ?", "F", "age ?", "< 30", "30 to < 60", ">= 60", "no 100%", "101 ±15"} <= texts
    few = example().plot(max_depth=1)
    assert not any("30" in text.get_text() for text in few.texts)
    figure, own = plt.subplots(figsize=(3, 2))
    assert example().plot(own) is own
    for picture in (ax.figure, few.figure, figure):
        picture.canvas.draw()
    Tree(SCHEMA, "y", [Node(counts=(1.0, 2.0))]).plot().figure.canvas.draw()
    plt.close("all")


def test_a_very_wide_tree_is_drawn_to_a_depth_that_a_page_can_hold():
    import matplotlib.pyplot as plt

    nodes, last = [Node(Values("job"), (1, 2, 3, 4, 5))], 6
    below = []
    for _ in range(5):
        nodes.append(Node(Values("age"), tuple(range(last, last + 100))))
        below += [Node(counts=(1.0, 1.0))] * 100
        last += 100
    ax = Tree(SCHEMA, "y", nodes + below).plot()
    assert len(ax.texts) < 60
    assert "drawn to depth 1" in ax.texts[0].get_text()
    plt.close("all")


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pinq-miners\[plot\]"):
        example().plot()
