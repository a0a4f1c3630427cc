# SPDX-License-Identifier: Apache-2.0
"""The time of a level of a tree inside Spark, and its growth: python -m benchmarks.speed.spark.

A level counts, at each of its nodes, class x value of each attribute, over codes that Spark has cached. It
grows with columns, depth, partitions and tasks, or not. The same is measured of jobs that somebody writes by
hand for this one question:

- *blocks*: numpy in ``mapInArrow`` over cached blocks of codes;
- *columns*: the same over cached columns of bytes, in Arrow batches of 2^18 rows.

Workers draw the codes. Seconds of CPU are of this process, Java and all workers; seconds of CPU and of wall
time are the least of several runs. Needs Linux. Writes ``benchmarks/results/spark.md``.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.harness.publish import single
from benchmarks.harness.tables import markdown
from pinq.engine import RowBlock, SparkEngine, TableRequest
from pinq.engine.counting import Counts, count_request
from pinq.engine.spark import _blocks, _Encoded, _sent
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import Groups, Values, bind
from pinq.policy.policy import Policy

VALUES = 8
ROWS = 10**7
BLOCK = 2**18
COUNTS = "counts binary"
TICKS = os.sysconf("SC_CLK_TCK")
ABOUT = """\
`python -m benchmarks.speed.spark` repeats it. CPU is that of this process, Java and all workers together, wall time
that of a machine that does nothing else. A node is split by an attribute of its own, and all rows go on. By hand
is written for this one question: numpy in `mapInArrow` over cached blocks of codes and over cached columns of bytes."""
Batches = Iterable[pa.RecordBatch]


def session() -> Any:
    """A session of two cores whose workers import this checkout."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "8",
        "spark.driver.memory": "3g",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(BLOCK),
    }
    made = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def policy_of(columns: int) -> Policy:
    """A table of so many columns: attributes of eight values, and a class of two."""
    attributes = {f"a{n}": {"type": "categorical", "values": list(range(VALUES))} for n in range(columns - 1)}
    classes = {"type": "categorical", "values": [0, 1]}
    return Policy(dataset="level", cap=1, max_rows=2**33, columns={**attributes, "y": classes})


def drawn(names: Sequence[str], rows: int, batches: Batches) -> Iterator[dict[str, np.ndarray]]:
    """Yields the codes of each column, the same whenever Spark asks for a partition."""
    for batch in batches:
        for seed in batch["id"].to_pylist():
            random = np.random.default_rng(seed)
            codes = {name: random.integers(0, 2 if name == "y" else VALUES, rows, dtype=np.uint8) for name in names}
            for start in range(0, rows, BLOCK):
                yield {name: own[start : start + BLOCK] for name, own in codes.items()}


def draw_blocks(names: Sequence[str], rows: int, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Blocks as the engine encodes them."""
    for codes in drawn(names, rows, batches):
        yield _sent(RowBlock({f"c{number}": own for number, own in enumerate(codes.values())}, len(codes["y"])))


def draw_columns(names: Sequence[str], rows: int, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Columns of bytes."""
    for codes in drawn(names, rows, batches):
        yield pa.RecordBatch.from_pydict({name: own.view(np.int8) for name, own in codes.items()})


def draw_packed(names: Sequence[str], rows: int, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Blocks as one writes them by hand."""
    for codes in drawn(names, rows, batches):
        yield pa.RecordBatch.from_pydict({"codes": [np.stack(list(codes.values())).tobytes()]})


def frame(spark: Any, draw: Any, policy: Policy, rows: int, partitions: int, columns: str) -> Any:
    """A table that workers draw."""
    work = partial(draw, list(policy.columns), rows // partitions)
    return spark.range(0, partitions, 1, partitions).mapInArrow(work, columns)


def engine_over(spark: Any, policy: Policy, rows: int, partitions: int) -> SparkEngine:
    names = _blocks(f"c{number}" for number in range(len(policy.columns)))
    return SparkEngine(_Encoded(frame(spark, draw_blocks, policy, rows, partitions, names), policy, b""))


def level_of(policy: Policy, depth: int) -> tuple[PartSet, list[TableRequest]]:
    """A level of a binary tree: at each node, class x value of each attribute."""
    schema, nodes = policy.schema_, [Part()]
    names = [name for name in policy.columns if name != "y"]
    halves = (tuple(range(VALUES // 2)), tuple(range(VALUES // 2, VALUES)))
    for above in range(depth):
        splits = [bind(Groups(names[(3 * above + n) % len(names)], halves), schema) for n in range(len(nodes))]
        nodes = [Part(node, split, side) for node, split in zip(nodes, splits, strict=True) for side in (0, 1)]
    axes = {name: bind(Values(name), schema).axes[0] for name in policy.columns}
    return PartSet([Block(node) for node in nodes]), [TableRequest((axes[name], axes["y"])) for name in names]


def processor_seconds() -> float:
    """The CPU seconds of this process and of all below it."""
    spent, below = dict[int, float](), dict[int, list[int]]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            facts = (folder / "stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
        except OSError:  # it has ended
            continue
        below.setdefault(int(facts[1]), []).append(int(folder.name))
        spent[int(folder.name)] = sum(map(int, facts[11:15])) / TICKS
    known = [os.getpid()]
    for process in known:
        known += below.get(process, [])
    return sum(spent.get(process, 0) for process in known)


def measured(work: Callable[[], object], runs: int) -> tuple[str, str]:
    """The least CPU and wall seconds of some calls, after one that is not counted."""
    found = []
    for _ in range(runs + 1):
        spent, began = processor_seconds(), time.perf_counter()
        work()
        found.append((processor_seconds() - spent, time.perf_counter() - began))
    cpu, wall = (min(seconds) for seconds in zip(*found[1:], strict=True))
    return f"{cpu:.2f} s", f"{wall:.2f} s"


def growth(spark: Any, rows: int, runs: int) -> Iterator[tuple[str, ...]]:
    """Yields a line for each thing that grows."""
    for columns in (10, 60):
        policy, few = policy_of(columns), rows * 3 // 10
        engine = engine_over(spark, policy, few, 8)
        parts = PartSet([Block(Part())]).split(bind(Values("a3"), policy.schema_))
        seconds = measured(partial(engine.tabulate, parts), runs)
        yield f"a count by one column of {columns}", f"{few:,}", "8", "4", "64 B", *seconds
        engine.close()
    policy = policy_of(15)
    engine = engine_over(spark, policy, rows, 8)
    for depth in (0, 1, 3, 5, 8):
        yield line(engine, policy, depth, rows, 8, runs)
    engine.close()
    engine = engine_over(spark, policy, rows, 200)
    for depth in (5, 8):
        yield line(engine, policy, depth, rows, 200, runs)
    assert engine._encoded is not None
    engine._encoded._tasks = 200  # as many as a cluster of a hundred cores has
    for depth in (5, 8):
        yield line(engine, policy, depth, rows, 200, runs)
    engine.close()


def line(engine: SparkEngine, policy: Policy, depth: int, rows: int, partitions: int, runs: int) -> tuple[str, ...]:
    """A level, with the bytes of its tables."""
    parts, tables = level_of(policy, depth)
    most = Counts(count_request(parts, tables, schema=policy.schema_)).most_bytes
    seconds = measured(partial(engine.tabulate, parts, tables), runs)
    tasks = engine._encoded._tasks  # type: ignore[union-attr]
    what = f"a level of depth {depth} ({2**depth} nodes)"
    return what, f"{rows:,}", f"{partitions}", f"{tasks}", f"{most:,.0f} B", *seconds


def by_hand(spark: Any, rows: int, runs: int) -> Iterator[tuple[str, ...]]:
    """Yields a line for each way to count the level below one split of the table, of ten columns."""
    policy = policy_of(10)
    schema, names = policy.schema_, list(policy.columns)
    rest = [name for name in names if name not in ("a0", "y")]
    parts = PartSet([Block(part) for part in PartSet([Block(Part())]).split(bind(Values("a0"), schema))])
    axes = {name: bind(Values(name), schema).axes[0] for name in names}
    tables = [TableRequest((axes[name], axes["y"])) for name in rest]
    engine = engine_over(spark, policy, rows, 8)
    blocks = frame(spark, draw_packed, policy, rows, 8, "codes binary").persist()
    columns = frame(spark, draw_columns, policy, rows, 8, ", ".join(f"{name} byte" for name in names)).persist()
    wanted = np.stack([np.asarray(table).ravel() for table in engine.tabulate(parts, tables)])
    assert np.array_equal(wanted, by_numpy(blocks, names, rest))
    yield "ours", *measured(partial(engine.tabulate, parts, tables), runs)
    yield "blocks by hand", *measured(partial(by_numpy, blocks, names, rest), runs)
    yield "columns by hand", *measured(partial(by_numpy, columns, names, rest), runs)
    engine.close()


def by_numpy(cached: Any, names: Sequence[str], rest: Sequence[str]) -> np.ndarray:
    counted = cached.mapInArrow(partial(count_level, names, rest), COUNTS).collect()
    return np.sum([np.frombuffer(bytes(row[0]), dtype=np.int64) for row in counted], axis=0).reshape(len(rest), -1)


def count_level(names: Sequence[str], rest: Sequence[str], batches: Batches) -> Iterator[pa.RecordBatch]:
    """Counts value of a0 x value x class of each attribute, as one row of counts."""
    counts = np.zeros((len(rest), VALUES * VALUES * 2), dtype=np.int64)
    for codes in unpacked(names, batches):
        begin = codes["a0"].astype(np.uint16) * (2 * VALUES) + codes["y"]
        for own, name in zip(counts, rest, strict=True):
            own += np.bincount(begin + codes[name].astype(np.uint16) * 2, minlength=len(own))
    yield pa.RecordBatch.from_pydict({"counts": [counts.tobytes()]})


def unpacked(names: Sequence[str], batches: Batches) -> Iterator[dict[str, np.ndarray]]:
    """Yields the codes of each column, of columns or of blocks."""
    for batch in batches:
        if batch.schema.names != ["codes"]:
            yield {name: batch[name].to_numpy(zero_copy_only=False) for name in names}
            continue
        for block in batch["codes"]:
            columns = np.frombuffer(block.as_buffer(), dtype=np.int8).reshape(len(names), -1)
            yield dict(zip(names, columns, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.spark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--runs", type=int, default=2)
    asked = parser.parse_args()
    spark = session()
    heads = {
        growth: ("what", "rows", "partitions", "tasks", "all tables", "CPU", "wall"),
        by_hand: ("a level of 8 nodes, 10 columns", "CPU", "wall"),
    }
    tables = []
    for measure, head in heads.items():
        lines = []
        for found in measure(spark, asked.rows, asked.runs):
            lines.append(found)
            print("  ".join(found), flush=True)
        tables.append(markdown(head, lines))
    machine = f"local[2], Spark {spark.version}, {os.cpu_count()} cores, Python {platform.python_version()}"
    about = f"{asked.rows:,} rows where none are named, the least of {asked.runs} runs; {machine}."
    page = single("spark.md", whole=asked.rows >= ROWS)
    page.write_text("\n\n".join(["# Speed of a level inside Spark", about, ABOUT, *tables]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
