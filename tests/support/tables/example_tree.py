# SPDX-License-Identifier: Apache-2.0
"""A small tree with every kind of split, rows that stop everywhere in it, and random ones."""

from __future__ import annotations

import numpy as np
import pandas as pd

from miners.fitted.node import Node
from miners.fitted.tree import Tree
from pinq.language.specs import Cuts, Groups, Values, bind
from pinq.public.schema import Categorical, Numeric, Schema

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
    """Five leaves: a split by values, by cuts, by groups; one leaf's counts are all below 0."""
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


FRAME = pd.DataFrame(
    {
        "sex": ["F", "F", "F", "F", "M", "M", "M", "M", "M", None, "X"],
        "age": [29, 30, 60, None, 1, 1, 1, 1, 1, 1, 1],
        "job": ["a", "a", "a", "a", "b", "c", None, "d", "?", "a", "a"],
    }
)
REACHED = [3, 4, 5, 1, 6, 7, 7, 2, 2, 0, 0]

SPLITS: list[Values | Cuts | Groups] = [
    Values("sex"),
    Values("job"),
    Cuts("age", (10, 20, 50)),
    Cuts("age", (35,)),
    Cuts("hours", (0.25, 0.5)),
    Groups("job", (("a",), ("c", None))),
    Values("age"),
]


def random_tree(seed: int) -> tuple[Tree, pd.DataFrame]:
    """A tree of up to 300 nodes and 50 rows, some with values that are missing or that nobody declared."""
    random = np.random.default_rng(seed)
    nodes, last = [Node(counts=(1.0, 1.0))], 1
    for place in range(60):
        if place < len(nodes) and last < 300 and random.random() < 0.6:
            split = SPLITS[random.integers(len(SPLITS))]
            size = bind(split, SCHEMA).size
            nodes[place] = Node(split, tuple(range(last, last + size)))
            nodes += [Node(counts=tuple(random.integers(0, 9, 2).tolist())) for _ in range(size)]
            last += size
    tree = Tree(SCHEMA, "y", nodes)
    frame = pd.DataFrame(
        {
            "sex": random.choice(np.array(["F", "M", "X", None], dtype=object), 50),
            "job": random.choice(np.array(["a", "b", "c", "d", None], dtype=object), 50),
            "age": random.choice([-5.0, 9, 10, 35, 49, 50, 200, np.nan], 50),
            "hours": random.choice([-1, 0.2499, 0.25, 0.5, 2, np.nan], 50),
        }
    )
    return tree, frame
