# SPDX-License-Identifier: Apache-2.0
"""The speed of the tree miners, beside the bare engine and scikit-learn.

``make benchmark`` runs it and writes a section of benchmarks/results/trees/README.md. Time the machine
when nothing else runs on it; ``--rows 100000`` is quick and writes below build.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.tree import DecisionTreeClassifier

from benchmarks.accuracy.trees import table
from benchmarks.harness.datasets import why_missing
from benchmarks.harness.publish import single
from benchmarks.harness.tables import markdown, replace_section
from benchmarks.harness.timing import quickest
from benchmarks.speed.layer import beside_counting, handle_over
from miners import DiffPC45, DiffPID3
from miners.fitted.route import encode
from miners.tuning.suggestion import dummy_rows, random_rule
from pinq.engine import open_engine
from pinq.ledger.ledger import Ledger
from pinq.policy.policy import Policy
from pinq.public.schema import Schema

ROWS = 10_000_000
CHUNK = 500_000
MANY_ROWS = 10**6  # from here on one round is enough
HEADS = ("what", "ours", "of it counting", "", "scikit-learn, not private", "")
Codes = Mapping[str, np.ndarray]


def main() -> None:
    """Measures and writes the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.trees",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the large made-up table")
    asked = parser.parse_args()
    if reason := why_missing("adult"):
        print(f"benchmarks/speed/trees.py is left out. {reason.splitlines()[0]}", file=sys.stderr)
        return
    page = single("trees/README.md", whole=asked.rows >= ROWS)
    replace_section(page, "speed", _section(asked.rows), heading="Trees")


def _section(rows: int) -> str:
    about = (
        f"{os.cpu_count()} cores, Python {platform.python_version()}, DuckDB {duckdb.__version__}, one run. Depth 5, "
        "epsilon 1, every request durably charged; beside each fit the counting in it, and "
        "scikit-learn's tree of the same depth on the exact rows, encoded as codes."
    )
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for line in _lines(rows, Path(folder)):
            print("  ".join(line), flush=True)
            lines.append(line)
    return f"## Speed\n\n{about}\n\n{markdown(HEADS, lines)}"


def _lines(rows: int, folder: Path) -> Iterator[tuple[str, ...]]:
    """Yields the lines of Adult's training rows, then of rows that are made up on its schema."""
    schema, target, adult = table("adult")
    adult = adult[(adult["fold"] == "train").to_numpy()]
    pq.write_table(pa.Table.from_pandas(adult[list(schema.columns)], preserve_index=False), folder / "adult.parquet")
    codes = {name: encode(schema, name, adult) for name in schema.columns}
    yield from _lines_of("Adult", folder / "adult.parquet", schema, target, codes)
    large = write_synthetic(schema, target, rows, folder / "made_up.parquet")
    yield from _lines_of("made up", folder / "made_up.parquet", schema, target, large)


def _lines_of(name: str, file: Path, schema: Schema, target: str, codes: Codes) -> Iterator[tuple[str, ...]]:
    """Yields a line for each miner on one table."""
    n_rows = len(codes[target])
    numeric = [column for column, declared in schema.columns.items() if declared.type == "numeric"]
    attributes_of: dict[Any, list[str]] = {
        DiffPID3: [column for column in schema.columns if column != target],
        DiffPC45: numeric,
    }
    policy = Policy(
        dataset="speed",
        cap=10**6,
        source=file.name,
        folder=file.parent,
        max_rows=max(50_000, 2 * n_rows),
        columns=schema.columns,
    )
    began = time.perf_counter()
    engine, _ = open_engine(policy, salt=b"benchmark")
    opened = time.perf_counter() - began
    handle = handle_over(policy, engine, Ledger(file.with_suffix(".ledger"), "speed"))
    for miner, attributes in attributes_of.items():
        model = miner(epsilon=1.0, max_depth=5, attributes=attributes)
        rounds = 3 if n_rows < MANY_ROWS else 1
        ours, bare, over_bare = beside_counting(engine, partial(model.fit, handle, target), rounds)
        exact = exact_seconds(codes, attributes, target)
        size = f"{n_rows:,} rows x {len(attributes)} attributes (open: {opened:.1f} s)"
        over_exact = f"{float(ours.split()[0]) / exact:.2f}x"
        yield f"{miner.__name__}, {name}, {size}", ours, bare, over_bare, f"{exact:.2f} s", over_exact
    engine.close()


def write_synthetic(schema: Schema, target: str, rows: int, path: Path) -> dict[str, np.ndarray]:
    """Writes rows that a random tree labels, chunk by chunk; returns their codes, as narrow as they get."""
    rule = random_rule(schema, target, depth=5, seed=1)
    kinds = {name: np.min_scalar_type(column.codes) for name, column in schema.columns.items()}
    codes = {name: np.empty(rows, dtype=kind) for name, kind in kinds.items()}
    writer = None
    for start in range(0, rows, CHUNK):
        chunk = dummy_rows(rule, min(CHUNK, rows - start), noise=0.1, seed=[2, start])
        end = start + chunk.num_rows
        for name, column in codes.items():
            column[start:end] = encode(schema, name, chunk)
        writer = writer or pq.ParquetWriter(path, chunk.schema)
        writer.write_table(chunk)
        print(f"{end:,} of {rows:,} rows are made up", end="\r", file=sys.stderr, flush=True)
    if writer:
        writer.close()
    return codes


def exact_seconds(codes: Codes, attributes: Sequence[str], target: str) -> float:
    """Returns the seconds of scikit-learn's tree of depth 5."""
    features = np.column_stack([codes[name].astype(np.float32) for name in attributes])
    classes = codes[target]
    repeats = 3 if len(classes) < MANY_ROWS else 1
    return quickest(lambda: DecisionTreeClassifier(max_depth=5).fit(features, classes), repeats)


if __name__ == "__main__":
    main()
