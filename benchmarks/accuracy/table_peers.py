# SPDX-License-Identifier: Apache-2.0
# mypy: ignore-errors
# (none of what it measures is installed beside pinq)
"""Everyday tables by other libraries; runs in a peer's interpreter, without pinq.

``python table_peers.py NAME FOLDER EPSILON RUNS`` prints JSON: for each task of ``FOLDER/tasks.json``
the estimates of each run and the median seconds, or why there are none.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Task = dict[str, Any]
Ask = Callable[[], list[float]]
NONE = "has no such function"


def cells_of(task: Task) -> list[tuple[Any, ...]]:
    """Returns the keys of a table's cells, in order."""
    return list(product(*task["values"].values()))


def in_order(task: Task, frame: pd.DataFrame, count: str) -> list[float]:
    """Returns the counts of a frame in the order of the cells; 0 where one is missing."""
    keys = list(task["values"])
    counted = {tuple(row[:-1]): float(row[-1]) for row in frame[[*keys, count]].itertuples(index=False)}
    return [counted.get(cell, 0.0) for cell in cells_of(task)]


def diffprivlib(task: Task, rows: pd.DataFrame, epsilon: float) -> Ask | str:
    """Prepares histogram, quantile or std; std takes the number of rows as public."""
    from diffprivlib import tools

    if task["kind"] == "cells":
        position = {cell: number for number, cell in enumerate(cells_of(task))}
        codes = np.array([position[tuple(row)] for row in rows[list(task["values"])].itertuples(index=False)])
        size = len(position)
        return lambda: list(tools.histogram(codes, epsilon=epsilon, bins=size, range=(-0.5, size - 0.5))[0])
    column, bounds = rows[task["column"]].to_numpy(float), (task["lower"], task["upper"])
    if task["kind"] == "quantiles":
        return lambda: list(tools.quantile(column, task["shares"], epsilon=epsilon, bounds=bounds))
    return lambda: [float(tools.std(column, epsilon=epsilon, bounds=bounds))]


def opendp(task: Task, rows: pd.DataFrame, epsilon: float) -> Ask | str:
    """Prepares OpenDP's Polars face, keys declared, candidates of quantiles all whole numbers."""
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    if task["kind"] == "std":
        return NONE
    frame = pl.LazyFrame(rows)
    most = 2 * len(rows)

    def context() -> Any:
        loss, unit = dp.loss_of(epsilon=epsilon), dp.unit_of(contributions=1)
        margins = [dp.polars.Margin(by=[], max_length=most)]
        return dp.Context.compositor(
            data=frame, privacy_unit=unit, privacy_loss=loss, split_evenly_over=1, margins=margins
        )

    if task["kind"] == "cells":
        names = list(task["values"])
        keys = pl.LazyFrame([dict(zip(names, cell, strict=True)) for cell in cells_of(task)])

        def count() -> list[float]:
            query = context().query().group_by(names).agg(dp.len().alias("n")).with_keys(keys)
            return in_order(task, query.release().collect().to_pandas(), "n")

        return count
    candidates = list(range(int(task["lower"]), int(task["upper"]) + 1))

    def quantiles() -> list[float]:
        column = pl.col(task["column"]).fill_null(0)
        asked = [
            column.dp.quantile(share, candidates).alias(f"q{number}") for number, share in enumerate(task["shares"])
        ]
        return [float(value) for value in context().query().select(asked).release().collect().row(0)]

    return quantiles


def smartnoise(task: Task, rows: pd.DataFrame, epsilon: float) -> Ask | str:
    """Prepares SmartNoise SQL, keys not censored; its epsilon is set so that the whole query costs ours."""
    import snsql

    if task["kind"] == "quantiles":
        return NONE
    frame = rows.assign(id=np.arange(len(rows)))
    table: dict[str, Any] = {"row_privacy": True, "rows": len(rows), "censor_dims": False}
    if task["kind"] == "cells":
        names = list(task["values"])
        table |= {name: {"type": "int" if frame[name].dtype.kind == "i" else "string"} for name in names}
        query = f"SELECT {', '.join(names)}, COUNT(*) AS n FROM s.t GROUP BY {', '.join(names)}"
    else:
        table[task["column"]] = {"type": "float", "lower": task["lower"], "upper": task["upper"]}
        frame[task["column"]] = frame[task["column"]].astype(float)
        query = f"SELECT STDDEV({task['column']}) AS n FROM s.t"
    metadata = {"": {"s": {"t": table}}}
    delta = 1e-9

    def reader(loss: float) -> Any:
        return snsql.from_df(frame, metadata=metadata, privacy=snsql.Privacy(epsilon=loss, delta=delta))

    cost, _ = reader(1.0).get_privacy_cost(query)
    asked = reader(epsilon / cost)

    def ask() -> list[float]:
        head, *answer = asked.execute(query)
        counted = pd.DataFrame(answer, columns=head)
        return in_order(task, counted, "n") if task["kind"] == "cells" else [float(counted["n"][0])]

    return ask


def tumult(task: Task, rows: pd.DataFrame, epsilon: float) -> Ask | str:
    """Prepares Tumult Analytics on Spark in this process; quantiles share epsilon evenly."""
    # Spark's workers need the library too, and take PATH's Python unless they are told.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession
    from tmlt.analytics import AddOneRow, KeySet, PureDPBudget, QueryBuilder, Session

    settings = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    session = Session.from_dataframe(PureDPBudget(float("inf")), "t", spark.createDataFrame(rows), AddOneRow())
    if task["kind"] == "cells":
        names = list(task["values"])
        keys = KeySet.from_tuples(cells_of(task), columns=names)
        query = QueryBuilder("t").groupby(keys).count(name="n")
        return lambda: in_order(task, session.evaluate(query, PureDPBudget(epsilon)).toPandas(), "n")
    low, high, column = task["lower"], task["upper"], task["column"]
    shares = task.get("shares", [None])
    queries = [
        QueryBuilder("t").stdev(column, low, high, name="n")
        if share is None
        else QueryBuilder("t").quantile(column, share, low, high, name="n")
        for share in shares
    ]
    each = PureDPBudget(epsilon / len(queries))
    return lambda: [float(session.evaluate(query, each).toPandas()["n"][0]) for query in queries]


PEERS = {
    "diffprivlib": (diffprivlib, "diffprivlib"),
    "OpenDP Polars": (opendp, "opendp"),
    "SmartNoise SQL": (smartnoise, "smartnoise-sql"),
    "Tumult Analytics": (tumult, "tmlt.analytics"),
}


def measured(prepare: Any, task: Task, rows: pd.DataFrame, epsilon: float, runs: int) -> object:
    """Returns the estimates of each run and the median seconds; or why there are none."""
    ask = prepare(task, rows, epsilon)
    if isinstance(ask, str):
        return ask
    ask()
    estimates, seconds = [], []
    for _ in range(runs):
        began = time.perf_counter()
        estimates.append([float(number) for number in ask()])
        seconds.append(time.perf_counter() - began)
    return {"estimates": estimates, "seconds": statistics.median(seconds)}


def main() -> None:
    """Measures one peer."""
    warnings.simplefilter("ignore")
    name, folder, epsilon, runs = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    prepare, package = PEERS[name]
    results: dict[str, object] = {}
    for task in json.loads((folder / "tasks.json").read_text()):
        rows = pd.read_csv(folder / f"{task['data']}.csv", keep_default_na=False)
        rows = rows[list(task["values"]) if task["kind"] == "cells" else [task["column"]]]
        try:
            results[task["name"]] = measured(prepare, task, rows, epsilon, runs)
        except Exception as error:  # a peer's, whatever it is
            results[task["name"]] = f"failed: {type(error).__name__}: {str(error).splitlines()[0][:90]}"
    version = importlib.metadata.version(package)
    (folder / f"{name}.json").write_text(json.dumps({"version": version, "results": results}))


if __name__ == "__main__":
    main()
