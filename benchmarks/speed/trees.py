# SPDX-License-Identifier: Apache-2.0
"""The tree miners with their defaults: how accurate on UCI's data sets, how fast beside the bare engine and scikit-learn.

``make benchmark`` runs it after benchmarks/speed/layer.py and writes benchmarks/results/trees. Accuracies are kept in build/trees/cells.csv, so that it goes on where it
stopped, and are written once they are of as many runs as what is there; ``--redo DiffPC45`` measures a miner anew after a change. Time the machine when nothing else
runs on it: ``--speed`` does that part alone.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import pinq
from benchmarks.harness.cells import Store
from benchmarks.harness.datasets import load, stratified_folds, why_missing
from benchmarks.harness.learners import Learner, Rows, exact_tree, private
from benchmarks.harness.measure import measure, missing
from benchmarks.harness.publish import RESULTS, ROOT, publish, single
from benchmarks.speed.layer import beside_statements, handle_over, timed
from miners import DiffPC45, DiffPID3, SuLQID3
from miners.fitted.route import encode
from miners.tuning.synthetic import Concept
from pinq.engine import open_engine
from pinq.ledger.ledger import Ledger
from pinq.public.policy import Policy
from pinq.public.schema import Schema

RUNS = 20
ROWS = 10_000_000
DEAR = 10**5
CHUNK = 500_000

# Accuracies that others reached; see the text in `_accuracy`. `goal` is what the defaults are to reach.
ADULT_ELSEWHERE: dict[str, tuple[float | None, ...]] = {
    "goal": (0.825, 0.837, 0.842, 0.845, 0.849, 0.851),
    "prototype": (0.825, 0.837, 0.842, 0.844, 0.847, 0.849),
    "authors' DiffPC4.5, max": (0.754, None, 0.795, 0.816, 0.821, 0.828),
    "authors' DiffPC4.5, gini": (0.754, None, 0.799, 0.806, 0.808, 0.823),
    "authors' DiffPC4.5, info gain": (0.754, None, 0.771, 0.787, 0.801, 0.812),
    "authors' DiffPID3, max": (0.780, None, 0.811, 0.824, 0.828, 0.828),
    "authors' DiffPID3, gini": (0.760, None, 0.814, 0.820, 0.825, 0.827),
    "authors' DiffPID3, info gain": (0.758, None, 0.804, 0.814, 0.819, 0.821),
    "authors' SuLQ": (0.754, None, 0.788, 0.804, 0.814, 0.820),
    "diffprivlib 0.6.6, tree": (0.786, None, 0.772, 0.788, 0.772, 0.789),
    "diffprivlib 0.6.6, forest": (0.779, None, 0.764, 0.783, 0.764, 0.783),
    "DP-EBM, delta 1e-5": (0.781, 0.788, 0.793, 0.806, 0.811, 0.814),
}
ELSEWHERE: dict[str, dict[str, tuple[float | None, ...]]] = {
    "adult": ADULT_ELSEWHERE,
    "mushroom": {"authors' DiffPID3": (0.992, 0.992, 0.996, 0.997), "authors' SuLQ": (0.891, 0.950, 0.989, 0.992)},
    "car": {"authors' DiffPID3, gini": (0.694, 0.711, 0.775, 0.789)},
    "banknote": {"goal": (0.882, 0.903, 0.937, 0.953)},
    "robot_navigation": {"goal": (0.814, 0.857, 0.893, 0.908)},
    "credit_default": {"goal": (0.821, 0.821, 0.823, 0.822)},
}
EXACT = {f"depth {depth}, not private": exact_tree(pruned=False, max_depth=depth) for depth in (2, 5)}
BINARY: dict[str, Learner] = {"DiffPC45": private(DiffPC45), "DiffPID3": private(DiffPID3)} | EXACT
MINERS = {"SuLQID3": private(SuLQID3)} | BINARY


@dataclass(frozen=True)
class DataSet:
    """Test accuracy of the defaults on one data set: Adult on UCI's own split, the others on 90/10 splits, another one in each run."""

    key: str
    xs: Sequence[float]
    learners: Mapping[str, Learner]
    runs: int = RUNS
    xlabel: str = "epsilon"

    @property
    def title(self) -> str:
        """For people."""
        return self.key

    def measure(self, x: float, run: int, learners: Sequence[str]) -> dict[str, float]:
        """Test accuracies of some miners on one split."""
        schema, target, rows = table(self.key)
        tested = (
            (rows["fold"] == "test").to_numpy()
            if self.key == "adult"
            else stratified_folds(encode(schema, target, rows), 10, seed=run) == 0
        )
        with pinq.simulate(schema, data=rows[~tested][list(schema.columns)], epsilon=DEAR) as handle:
            return {
                name: self.learners[name](Rows(schema, target, handle, rows[~tested], rows[tested]), x)
                for name in learners
            }


@cache
def table(name: str) -> tuple[Schema, str, pd.DataFrame]:
    """A data set whose schema has its attributes and its target; Adult's ``fold`` is in its rows only."""
    schema, target, rows = load(name)
    columns = {column: declared for column, declared in schema.columns.items() if column != "fold"}
    return schema.model_copy(update={"columns": columns}), target, rows


DATA_SETS = (
    DataSet("adult", (0.1, 0.25, 0.5, 1.0, 2.0, 4.0), MINERS),
    *(DataSet(name, (0.5, 1.0, 2.0, 4.0), MINERS) for name in ("mushroom", "car")),
    *(DataSet(name, (0.5, 1.0, 2.0, 4.0), BINARY) for name in ("banknote", "robot_navigation", "credit_default")),
)


def main() -> None:
    """Measures and writes the table."""
    options = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.trees",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("--accuracy", action="store_true", help="that part alone")
    options.add_argument("--speed", action="store_true", help="that part alone")
    options.add_argument("--runs", type=int, default=RUNS, help=f"at most so many runs of each setting; default {RUNS}")
    options.add_argument("--rows", type=int, default=ROWS, help="rows of the large made-up table")
    options.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count(),
        help="how many at a time, for accuracies; default one for each core",
    )
    options.add_argument(
        "--redo", nargs="+", default=[], metavar="NAME", help="measure miners anew whose name holds one of these"
    )
    asked = options.parse_args()
    if reason := "\n".join(filter(None, (why_missing(one.key) for one in DATA_SETS))):
        print(f"benchmarks/speed/trees.py is left out. {reason.splitlines()[0]}", file=sys.stderr)
        return
    both = asked.accuracy == asked.speed
    if both or asked.accuracy:
        store = Store(ROOT / "build" / "trees" / "cells.csv")
        for name in asked.redo:
            print(f"Forgotten: {store.forget(name):,} cells of {name!r}.", file=sys.stderr)
        measure(missing(store, DATA_SETS, asked.runs), store.add, processes=asked.processes)
        cells = store.frame()
        publish(lambda folder: write_accuracy(cells, folder), RESULTS / "trees", ROOT / "build" / "trees" / "results")
    if both or asked.speed:
        _section(single("trees/README.md", whole=asked.rows >= ROWS), "speed", _speed(asked.rows))


def write_accuracy(cells: pd.DataFrame, folder: Path) -> None:
    """``accuracy.csv`` and its section of the page."""
    table = (
        cells.groupby(["figure", "algorithm", "x"], sort=False)["accuracy"]
        .agg(n="count", mean="mean", sd="std")
        .reset_index()
    )
    table.to_csv(folder / "accuracy.csv", index=False, float_format="%.5g", lineterminator="\n")
    _section(folder / "README.md", "accuracy", _accuracy(cells))


def _accuracy(cells: pd.DataFrame) -> str:
    lines = [
        "## Accuracy of the defaults",
        "Mean test accuracy ± standard deviation of the runs. Adult: UCI's own split (32,561 / 16,281), at most 50,000 rows declared; the others: 90/10 splits.",
        "Below ours what others reached: the authors' own Weka code (depth 5, Adult's 30,162 complete training rows), diffprivlib (its best encoding and depth), "
        "DP-EBM (interpret-core 0.7.8), a rough prototype at its best depth. *goal* is what the defaults are to reach; **bold** where they do. "
        "Not private: scikit-learn's tree of that depth, by entropy over the codes, on the same splits; it says what there is to gain at all.",
    ]
    for one in DATA_SETS:
        own = cells[cells["figure"] == one.key]
        if own.empty:
            continue
        goal = ELSEWHERE[one.key].get("goal", (None,) * len(one.xs))
        rows = [
            "| " + " | ".join([one.key, *(f"{x:g}" for x in one.xs), "runs"]) + " |",
            "|---" * (len(one.xs) + 2) + "|",
        ]
        for name in (name for name in one.learners if name in set(own["algorithm"])):
            found = own[own["algorithm"] == name]
            texts = [
                _reached(found[found["x"] == x]["accuracy"], None if name in EXACT else best)
                for x, best in zip(one.xs, goal, strict=True)
            ]
            rows.append("| " + " | ".join([name, *texts, f"{found.groupby('x').size().min()}"]) + " |")
        rows += [
            "| " + " | ".join([f"*{name}*", *("" if v is None else f"{v:.3f}" for v in values), ""]) + " |"
            for name, values in ELSEWHERE[one.key].items()
        ]
        lines.append("\n".join(rows))
    return "\n\n".join(lines)


def _reached(accuracies: pd.Series, goal: float | None) -> str:
    if accuracies.empty:
        return ""
    mean = accuracies.mean()
    text = f"{mean:.4f} ± {accuracies.std():.4f}" if len(accuracies) > 1 else f"{mean:.4f}"
    return f"**{text}**" if goal is not None and mean >= goal else text


def _speed(rows: int) -> str:
    lines = [
        "## Speed",
        f"{os.cpu_count()} cores, Python {platform.python_version()}, DuckDB {duckdb.__version__}, one run. Depth 5, epsilon 1, every request durably charged; beside each fit the "
        "bare statements that it made the engine run, and scikit-learn's tree of the same depth on the exact rows, encoded as codes.",
        "| what | ours | bare statements | | scikit-learn, not private | |\n|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for line in _speed_lines(rows, Path(folder)):
            print("  ".join(line), flush=True)
            lines[-1] += "\n| " + " | ".join(line) + " |"
    return "\n\n".join(lines)


def _speed_lines(rows: int, folder: Path) -> Iterator[tuple[str, ...]]:
    schema, target, adult = table("adult")
    adult = adult[(adult["fold"] == "train").to_numpy()]
    numeric = [name for name, column in schema.columns.items() if column.type == "numeric"]
    pq.write_table(pa.Table.from_pandas(adult[list(schema.columns)], preserve_index=False), folder / "adult.parquet")
    adult_codes = {name: encode(schema, name, adult) for name in schema.columns}
    large = made_up(schema, target, rows, folder / "made_up.parquet")
    for name, file, codes in (("Adult", "adult.parquet", adult_codes), ("made up", "made_up.parquet", large)):
        declared = schema.model_copy(update={"max_rows": max(50_000, 2 * len(codes[target]))})
        policy = Policy(
            dataset="speed", cap=10**6, source=file, folder=folder, max_rows=declared.max_rows, columns=declared.columns
        )
        began = time.perf_counter()
        engine, _ = open_engine(policy, salt=b"benchmark")
        opened = time.perf_counter() - began
        handle = handle_over(policy, engine, Ledger(folder / f"{file}.ledger", "speed"))
        for miner, attributes in ((DiffPID3, [one for one in schema.columns if one != target]), (DiffPC45, numeric)):
            rounds = 3 if len(codes[target]) < 10**6 else 1
            print(
                f"{miner.__name__} on {len(codes[target]):,} rows, its statements alone, and scikit-learn's tree",
                file=sys.stderr,
                flush=True,
            )

            def fit(miner=miner, attributes=attributes, handle=handle):
                miner(epsilon=1.0, max_depth=5, attributes=attributes).fit(handle, target)

            ours, bare, ratio = beside_statements(engine, fit, rounds)
            exact = exact_seconds(codes, attributes, target)
            what = f"{miner.__name__}, {name}, {len(codes[target]):,} rows x {len(attributes)} attributes (open: {opened:.1f} s)"
            yield what, ours, bare, ratio, f"{exact:.2f} s", f"{float(ours.split()[0]) / exact:.2f}x"
        engine.close()


def made_up(schema: Schema, target: str, rows: int, path: Path) -> dict[str, np.ndarray]:
    """Writes rows that a random tree labels, chunk by chunk; returns their codes, as narrow as they get."""
    concept = Concept.random(schema, target, depth=5, categorical="groups", seed=1)
    kinds = {name: np.min_scalar_type(column.codes) for name, column in schema.columns.items()}
    codes = {name: np.empty(rows, dtype=kind) for name, kind in kinds.items()}
    writer = None
    for start in range(0, rows, CHUNK):
        chunk = concept.sample(min(CHUNK, rows - start), noise=0.1, seed=[2, start])
        for name, column in codes.items():
            column[start : start + chunk.num_rows] = encode(schema, name, chunk)
        writer = writer or pq.ParquetWriter(path, chunk.schema)
        writer.write_table(chunk)
        print(f"{start + chunk.num_rows:,} of {rows:,} rows are made up", end="\r", file=sys.stderr, flush=True)
    if writer:
        writer.close()
    return codes


def exact_seconds(codes: Mapping[str, np.ndarray], attributes: Sequence[str], target: str) -> float:
    """Seconds of scikit-learn's tree of depth 5."""
    from sklearn.tree import DecisionTreeClassifier

    features = np.column_stack([codes[name].astype(np.float32) for name in attributes])
    classes = codes[target]
    fit: Any = DecisionTreeClassifier(max_depth=5).fit
    return min(timed(lambda: fit(features, classes)) for _ in range(3 if len(classes) < 10**6 else 1))


def _section(page: Path, name: str, text: str) -> None:
    """Replaces one section of a page, so that the parts can be measured at different times."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    found = page.read_text(encoding="utf-8") if page.exists() else "# Trees\n"
    if start not in found:
        found += f"\n{start}\n{end}\n"
    before, rest = found.split(start, 1)
    page.write_text(f"{before}{start}\n\n{text}\n\n{end}{rest.split(end, 1)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
