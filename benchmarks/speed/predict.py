# SPDX-License-Identifier: Apache-2.0
"""Speed of ``predict`` of a fitted tree and of a forest, beside that of scikit-learn's.

``make benchmark`` runs it: it makes up a binary tree of depth 10, and 100 of depth 5, over five
numeric and five text columns, predicts a million rows with them and writes
``benchmarks/results/predict.md``. scikit-learn's tree and forest of equal depth get the rows as one
array of floats, their text columns already encoded.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Callable

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.ensemble import RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from benchmarks.harness.publish import single
from benchmarks.harness.tables import markdown
from benchmarks.harness.timing import quickest
from miners.fitted.node import Node, Split
from miners.fitted.tree import Forest, Tree
from pinq.language.specs import Cuts, Groups
from pinq.public.schema import Categorical, Numeric, Schema

WORDS = tuple(f"word-{number}" for number in range(14))
NUMBERS, TEXTS = ("n0", "n1", "n2", "n3", "n4"), ("t0", "t1", "t2", "t3", "t4")
ROWS, DEPTH = 1_000_000, 10
REPEATS = 5
TREES, FOREST_DEPTH = 100, 5
PEER = "scikit-learn's `predict` on encoded floats"
FOREST, FOREST_PEER = (
    f"`predict` of {TREES} trees of depth {FOREST_DEPTH}, categories",
    f"scikit-learn's of {TREES} trees",
)


def main() -> None:
    """Measures, prints and writes the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.predict",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--depth", type=int, default=DEPTH)
    asked = parser.parse_args()
    random = np.random.default_rng(0)
    tree = random_tree(random, asked.depth)
    calls = _calls(tree, random_rows(random, asked.rows), asked.depth)
    seconds = {name: quickest(call, REPEATS) for name, call in calls.items()}
    peers = {name: seconds[FOREST_PEER if name in (FOREST, FOREST_PEER) else PEER] for name in calls}
    lines = [(name, f"{taken:.2f}", f"{taken / peers[name]:.1f}") for name, taken in seconds.items()]
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    versions = f"numpy {np.__version__}, pandas {pd.__version__}; the least of {REPEATS}."
    head = f"# Speed of predict\n\nWritten by `python -m benchmarks.speed.predict`. {machine}, {versions}\n\n"
    size = f"{asked.rows:,} rows, depth {tree.depth}"
    report = head + markdown([size, "seconds", "ratio to scikit-learn"], lines) + "\n"
    single("predict.md", whole=asked.rows >= ROWS and asked.depth >= DEPTH).write_text(report, encoding="utf-8")
    print(report)


def _calls(tree: Tree, frame: pd.DataFrame, depth: int) -> dict[str, Callable[[], object]]:
    """Returns what is timed, by name."""
    codes = [frame[name].astype("category").cat.codes for name in TEXTS]
    encoded = np.column_stack([*(frame[name] for name in NUMBERS), *codes])
    some, classes = encoded[:50_000], tree.predict(frame[:50_000])
    peer = DecisionTreeClassifier(max_depth=depth, random_state=0).fit(some, classes)
    peers = RandomForestClassifier(TREES, max_depth=FOREST_DEPTH, random_state=0).fit(some, classes)
    random = np.random.default_rng(1)
    forest = Forest([random_tree(random, FOREST_DEPTH) for _ in range(TREES)])
    arrow, categories = pa.Table.from_pandas(frame), frame.astype(dict.fromkeys(TEXTS, "category"))
    return {
        "`predict` on a pandas frame with text": lambda: tree.predict(frame),
        "`predict` on an Arrow table": lambda: tree.predict(arrow),
        "`predict` on a pandas frame with categories": lambda: tree.predict(categories),
        "`predict_proba` on a pandas frame with text": lambda: tree.predict_proba(frame),
        PEER: lambda: peer.predict(encoded),
        FOREST: lambda: forest.predict(categories),
        FOREST_PEER: lambda: peers.predict(encoded),
    }


def random_rows(random: np.random.Generator, rows: int) -> pd.DataFrame:
    """Returns rows of whole and broken numbers in turn, and of words."""
    numbers = {
        name: random.integers(0, 101, rows) if rank % 2 else random.random(rows) * 100
        for rank, name in enumerate(NUMBERS)
    }
    return pd.DataFrame(numbers | {name: random.choice(WORDS, rows) for name in TEXTS})


def random_tree(random: np.random.Generator, depth: int) -> Tree:
    """Returns a full binary tree, each node split by a column and a point or two groups at random."""
    columns: dict[str, Numeric | Categorical] = {
        name: Numeric(lower=0, upper=100, integer=bool(rank % 2)) for rank, name in enumerate(NUMBERS)
    }
    columns |= {name: Categorical(values=WORDS) for name in TEXTS} | {"y": Categorical(values=("no", "yes"))}
    inner = 2**depth - 1
    nodes = [Node(random_split(random), (2 * index + 1, 2 * index + 2)) for index in range(inner)]
    leaves = [Node(counts=tuple(random.integers(1, 99, 2).astype(float).tolist())) for _ in range(inner + 1)]
    return Tree(Schema(columns=columns, max_rows=10**6), "y", nodes + leaves)


def random_split(random: np.random.Generator) -> Split:
    """Returns a cut of a number, or words in two groups."""
    if random.random() < 0.5:
        return Cuts(str(random.choice(NUMBERS)), (int(random.integers(1, 100)),))
    is_left = dict(zip(WORDS, random.permutation(len(WORDS)) < len(WORDS) // 2, strict=True))
    sides = tuple(tuple(word for word in WORDS if is_left[word] == side) for side in (True, False))
    return Groups(str(random.choice(TEXTS)), sides)


if __name__ == "__main__":
    main()
