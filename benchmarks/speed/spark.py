# SPDX-License-Identifier: Apache-2.0
"""One level of a tree inside Spark, beside jobs that somebody writes by hand: python -m benchmarks.speed.spark.

All count, for each of so many nodes, class x value of each attribute, over codes that Spark has cached:

- ours;
- *blocks*: numpy in ``mapInArrow`` over cached blocks of codes, written for this one question;
- *columns*: the same over cached columns of bytes, in Arrow batches of 2^18 rows;
- *SQL*: ``GROUPING SETS`` over these columns.

Seconds of wall time, the least of several runs in turn. Ours is measured with more nodes, and with more
partitions, to tell what it grows with. Writes ``benchmarks/results/spark.md``.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness.publish import single
from benchmarks.harness.tables import markdown
from benchmarks.harness.timing import in_turn
from pinq.engine import Engine, TableRequest, open_engine
from pinq.public.parts import Block, Part, PartSet
from pinq.public.policy import Policy
from pinq.public.specs import Cross, Values, bind

VALUES = 8
ROWS = 10**7
ABOUT = """\
`python -m benchmarks.speed.spark` repeats it. By hand is numpy in `mapInArrow`, written for this one question, over
cached blocks of codes and over cached columns of bytes. In brackets, how many times the other ours takes. What it
grows with is partitions, not nodes: each task costs some milliseconds and sends small tables alone."""
BLOCK = 2**18
BLOCKS, COUNTS = "codes binary", "counts binary"
Batches = Iterable[pa.RecordBatch]


def session(partitions: int) -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.driver.memory": "4g",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(BLOCK),
    }
    made = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def by_kernel(engine: Engine, policy: Policy, split: tuple[str, ...]) -> list[np.ndarray]:
    schema = policy.schema_
    parts = PartSet([Block(Part())]).split(bind(Cross(tuple(map(Values, split))), schema))
    parts = PartSet([Block(part) for part in parts])  # each by itself, as the open nodes of a tree are
    axes = {name: bind(Values(name), schema).axes[0] for name in policy.columns}
    rest = [name for name in policy.columns if name not in (*split, "y")]
    return engine.tabulate(parts, [TableRequest((axes[name], axes["y"])) for name in rest], None)  # type: ignore[return-value]


class ByHand:
    """Counts one level in a worker, by numpy: node x value x class of each attribute, one row of counts.

    Args:
        split: The attributes that make the nodes.
        rest: The others.
        names: All columns, in the order of a block's.
    """

    def __init__(self, split: Sequence[str], rest: Sequence[str], names: Sequence[str]) -> None:
        self._split, self._rest, self._names = split, rest, names

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        cells = VALUES ** (1 + len(self._split)) * 2
        counts = np.zeros((len(self._rest), cells), dtype=np.int64)
        for codes in self._codes(batches):
            node = np.zeros(len(codes["y"]), dtype=np.uint16)
            for name in self._split:
                node = node * VALUES + codes[name]
            begin = node * (2 * VALUES) + codes["y"]
            for own, name in zip(counts, self._rest, strict=True):
                own += np.bincount(begin + codes[name].astype(np.uint16) * 2, minlength=cells)
        yield pa.RecordBatch.from_arrays([pa.array([counts.tobytes()], pa.binary())], ["counts"])

    def _codes(self, batches: Batches) -> Iterator[dict[str, np.ndarray]]:
        for batch in batches:
            if batch.schema.names != ["codes"]:
                yield {name: batch[name].to_numpy(zero_copy_only=False) for name in self._names}
                continue
            for block in batch["codes"]:
                columns = np.frombuffer(block.as_buffer(), dtype=np.int8).reshape(len(self._names), -1)
                yield dict(zip(self._names, columns, strict=True))


class Packing:
    """Makes blocks of columns of bytes."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            block = np.stack([batch[name].to_numpy(zero_copy_only=False) for name in self._names]).tobytes()
            yield pa.RecordBatch.from_arrays([pa.array([block], pa.binary())], ["codes"])


def by_numpy(cached: Any, policy: Policy, split: tuple[str, ...]) -> np.ndarray:
    rest = [name for name in policy.columns if name not in (*split, "y")]
    counted = cached.mapInArrow(ByHand(split, rest, list(policy.columns)), COUNTS).collect()
    return np.sum([np.frombuffer(bytes(row[0]), dtype=np.int64) for row in counted], axis=0).reshape(len(rest), -1)


def by_sql(codes: Any, policy: Policy, split: tuple[str, ...]) -> list[Any]:
    rest = [name for name in policy.columns if name not in (*split, "y")]
    node = " + ".join(f"{VALUES**digit} * {name}" for digit, name in enumerate(split))
    sets = ", ".join(f"(node, y, {name})" for name in rest)
    query = f"SELECT node, y, {', '.join(rest)}, count(*) FROM (SELECT *, {node} AS node FROM codes)"
    return codes.sparkSession.sql(f"{query} GROUP BY GROUPING SETS ({sets})").collect()


def same(tables: Sequence[np.ndarray], counts: np.ndarray) -> bool:
    """Whether our tables, node x value x class, are what was counted by hand."""
    return all(np.array_equal(table.ravel(), own) for table, own in zip(tables, counts, strict=True))


def lines_of(spark: Any, table: pa.Table, policy: Policy, partitions: int, runs: int) -> Iterator[tuple[str, ...]]:
    """Yields a line for each number of nodes, of a table in so many partitions."""
    columns = spark.createDataFrame(table).repartition(partitions).persist()
    columns.createOrReplaceTempView("codes")
    blocks = columns.mapInArrow(Packing(list(policy.columns)), BLOCKS).persist()
    blocks.count()
    engine, _ = open_engine(policy, data=columns, salt=b"")
    for split in (("a0",), ("a0", "a1"), ("a0", "a1", "a2")):
        assert same(by_kernel(engine, policy, split), by_numpy(blocks, policy, split))
        work: list[Callable[[], object]] = [
            partial(by_kernel, engine, policy, split),
            partial(by_numpy, blocks, policy, split),
            partial(by_numpy, columns, policy, split),
        ]
        ours, *others = (min(seconds) for seconds in in_turn(*work, rounds=runs))
        began = time.perf_counter()
        by_sql(columns, policy, split)
        others.append(time.perf_counter() - began)
        ratios = (f"{other:.2f} s ({ours / other:.2f}x)" for other in others)
        yield f"{VALUES ** len(split)}", f"{partitions}", f"{ours:.2f} s", *ratios
    engine.close()
    for frame in (blocks, columns):
        frame.unpersist()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.spark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    spark = session(partitions=8)
    names = [f"a{number}" for number in range(9)]
    random = np.random.default_rng(0)
    declared = {name: {"type": "categorical", "values": list(range(VALUES))} for name in names}
    policy = Policy(
        dataset="level", cap=1, max_rows=2**33, columns={**declared, "y": {"type": "categorical", "values": [0, 1]}}
    )
    table = pa.table(
        {name: random.integers(0, VALUES if name in names else 2, asked.rows, dtype=np.int8) for name in policy.columns}
    )
    lines = []
    for partitions in (4, 8, 32):
        for line in lines_of(spark, table, policy, partitions, asked.runs):
            lines.append(line)
            print("  ".join(line), flush=True)
    heads = ("nodes", "partitions", "ours", "blocks by hand", "columns by hand", "SQL by hand, one run")
    machine = f"local[2], Spark {spark.version}, {os.cpu_count()} cores, Python {platform.python_version()}"
    about = (
        f"{asked.rows:,} rows of 10 columns, wall seconds of a level (class x value of each attribute at each node), "
        f"the least of {asked.runs} in turn; {machine}."
    )
    page = single("spark.md", whole=asked.rows >= ROWS)
    page.write_text(
        "\n\n".join(["# Speed of a level inside Spark", about, ABOUT, markdown(heads, lines)]) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
