# SPDX-License-Identifier: Apache-2.0
"""Speed of a fitted tree's ``predict``, beside that of a scikit-learn tree. Nothing here can fail a test.

``python -m benchmarks.speed.predict`` makes up a binary tree of depth 10 over five numeric and five text columns, predicts a million rows with it and
writes ``benchmarks/results/predict.md``. scikit-learn's tree of equal depth gets the rows as one array of floats, its text columns already encoded.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.tree import DecisionTreeClassifier

from benchmarks.harness.publish import single
from miners.fitted.tree import Node, Split, Tree
from pinq.public.schema import Categorical, Numeric, Schema
from pinq.public.specs import Cuts, Groups

WORDS = tuple(f"word-{number}" for number in range(14))
NUMBERS, TEXTS = ("n0", "n1", "n2", "n3", "n4"), ("t0", "t1", "t2", "t3", "t4")
ROWS, DEPTH = 1_000_000, 10
REPEATS = 5


def main() -> None:
    """Measures, prints and writes the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=ROWS)
    options.add_argument("--depth", type=int, default=DEPTH)
    asked = options.parse_args()
    random = np.random.default_rng(0)
    tree, frame = made_up_tree(random, asked.depth), made_up_rows(random, asked.rows)
    encoded = np.column_stack(
        [*(frame[name] for name in NUMBERS), *(frame[name].astype("category").cat.codes for name in TEXTS)]
    )
    peer = DecisionTreeClassifier(max_depth=asked.depth, random_state=0).fit(
        encoded[:50_000], tree.predict(frame[:50_000])
    )
    arrow, categories = pa.Table.from_pandas(frame), frame.astype(dict.fromkeys(TEXTS, "category"))
    ways: list[tuple[str, Callable[[], Any]]] = [
        ("`predict` on a pandas frame with text", lambda: tree.predict(frame)),
        ("`predict` on an Arrow table", lambda: tree.predict(arrow)),
        ("`predict` on a pandas frame with categories", lambda: tree.predict(categories)),
        ("`predict_proba` on a pandas frame with text", lambda: tree.predict_proba(frame)),
        ("scikit-learn's `predict` on encoded floats", lambda: peer.predict(encoded)),
    ]
    times = {name: min(seconds(work) for _ in range(REPEATS)) for name, work in ways}
    base = times[ways[-1][0]]
    lines = [f"| {asked.rows:,} rows, depth {tree.depth} | seconds | ratio to scikit-learn |", "|---|---|---|"]
    lines += [f"| {name} | {taken:.2f} | {taken / base:.1f} |" for name, taken in times.items()]
    machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}, pandas {pd.__version__}; the least of {REPEATS}."
    report = "\n".join(
        ["# Speed of predict", "", "Written by `python -m benchmarks.speed.predict`. " + machine, "", *lines, ""]
    )
    single("predict.md", whole=asked.rows >= ROWS and asked.depth >= DEPTH).write_text(report, encoding="utf-8")
    print(report)


def seconds(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def made_up_rows(random: np.random.Generator, rows: int) -> pd.DataFrame:
    numbers = {
        name: random.integers(0, 101, rows) if place % 2 else random.random(rows) * 100
        for place, name in enumerate(NUMBERS)
    }
    return pd.DataFrame(numbers | {name: random.choice(WORDS, rows) for name in TEXTS})


def made_up_tree(random: np.random.Generator, depth: int) -> Tree:
    """A full binary tree, each node split by a column and a point or two groups at random."""
    columns: dict[str, Any] = {
        name: Numeric(lower=0, upper=100, integer=bool(place % 2)) for place, name in enumerate(NUMBERS)
    }
    columns |= {name: Categorical(values=WORDS) for name in TEXTS} | {"y": Categorical(values=("no", "yes"))}
    inner = 2**depth - 1
    nodes = [Node(made_up_split(random), (2 * place + 1, 2 * place + 2)) for place in range(inner)]
    leaves = [Node(counts=tuple(random.integers(1, 99, 2).astype(float).tolist())) for _ in range(inner + 1)]
    return Tree(Schema(columns=columns, max_rows=10**6), "y", nodes + leaves)


def made_up_split(random: np.random.Generator) -> Split:
    if random.random() < 0.5:
        return Cuts(str(random.choice(NUMBERS)), (int(random.integers(1, 100)),))
    left = random.permutation(len(WORDS)) < len(WORDS) // 2
    sides = (
        tuple(word for word, here in zip(WORDS, left, strict=True) if here),
        tuple(word for word, here in zip(WORDS, left, strict=True) if not here),
    )
    return Groups(str(random.choice(TEXTS)), sides)


if __name__ == "__main__":
    main()
