# SPDX-License-Identifier: Apache-2.0
"""One level of a tree inside Spark, beside a job that somebody writes by hand: python -m benchmarks.speed.spark.

Both count, for each of so many nodes, class x value of each attribute, over codes that Spark has cached. By hand
they are columns of bytes, the node is an expression, and ``GROUPING SETS`` counts. Seconds of wall time, the
least of several runs; how they grow with the nodes tells whether parts cost anything.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from pinq.engine import Engine, TableRequest, open_engine
from pinq.public.parts import Block, Part, PartSet
from pinq.public.policy import Policy
from pinq.public.specs import Cross, Values, bind

VALUES = 8


def session(partitions: int) -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.driver.memory": "4g",
    }
    made = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def least(work: Callable[[], Any], runs: int) -> float:
    work()
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def by_kernel(engine: Engine, policy: Policy, split: tuple[str, ...]) -> list[np.ndarray]:
    schema = policy.schema_
    parts = PartSet([Block(Part())]).split(bind(Cross(tuple(map(Values, split))), schema))
    parts = PartSet([Block(part) for part in parts])  # each by itself, as the open nodes of a tree are
    axes = {name: bind(Values(name), schema).axes[0] for name in policy.columns}
    rest = [name for name in policy.columns if name not in (*split, "y")]
    return engine.tabulate(parts, [TableRequest((axes[name], axes["y"])) for name in rest], None)  # type: ignore[return-value]


def by_hand(codes: Any, policy: Policy, split: tuple[str, ...]) -> list[Any]:
    rest = [name for name in policy.columns if name not in (*split, "y")]
    node = " + ".join(f"{VALUES**digit} * {name}" for digit, name in enumerate(split))
    sets = ", ".join(f"(node, y, {name})" for name in rest)
    query = f"SELECT node, y, {', '.join(rest)}, count(*) FROM (SELECT *, {node} AS node FROM codes)"
    return codes.sparkSession.sql(f"{query} GROUP BY GROUPING SETS ({sets})").collect()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    spark = session(partitions=8)
    names = [f"a{number}" for number in range(asked.columns - 1)]
    random = np.random.default_rng(0)
    columns = {name: {"type": "categorical", "values": list(range(VALUES))} for name in names}
    policy = Policy(
        dataset="level", cap=1, max_rows=2**33, columns={**columns, "y": {"type": "categorical", "values": [0, 1]}}
    )
    table = pa.table(
        {name: random.integers(0, VALUES if name in names else 2, asked.rows, dtype=np.int8) for name in policy.columns}
    )
    codes = spark.createDataFrame(table).repartition(8).persist()
    codes.createOrReplaceTempView("codes")
    began = time.perf_counter()
    engine, _ = open_engine(policy, data=codes, salt=b"")
    print(f"open {asked.rows:,} x {asked.columns}: {time.perf_counter() - began:.1f} s")
    for split in (("a0",), ("a0", "a1"), ("a0", "a1", "a2")):
        mine = least(partial(by_kernel, engine, policy, split), asked.runs)
        hand = least(partial(by_hand, codes, policy, split), asked.runs)
        print(f"{VALUES ** len(split):>4} nodes: {mine:.2f} s; by hand {hand:.2f} s; ratio {mine / hand:.2f}")


if __name__ == "__main__":
    main()
