# SPDX-License-Identifier: Apache-2.0
"""Speed of the layer, each figure beside its bare building block in the same run.

``make benchmark`` runs it and writes ``benchmarks/results/layer.md``. ``--rows 1000000`` is quicker
and writes below build. Peers are measured where ``PEERS_PYTHON`` names an interpreter that has them
(``pip install -r benchmarks/speed/peers.txt``), by ``benchmarks/speed/peers.py``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_laplace
from opendp.metrics import l1_distance

import pinq
from benchmarks.harness.publish import ROOT, single
from benchmarks.harness.tables import replace_section
from benchmarks.harness.timing import SpeedTable, alternate, milliseconds, ratio, timed
from benchmarks.speed.peers import HISTOGRAMS
from miners import DiffPID3
from pinq.curator.mechanisms import choose, laplace
from pinq.curator.monitor import Curator
from pinq.engine import Engine, TableRequest, open_engine
from pinq.errors import BudgetExceeded
from pinq.language.parts import Block, Part, PartSet
from pinq.language.specs import bind
from pinq.ledger.composition import Demand
from pinq.ledger.ledger import Ledger
from pinq.policy.policy import Policy
from pinq.provider.local import LocalSession
from pinq.public.epsilon import Epsilon

ROWS = 10_000_000
PEERS = Path(__file__).with_name("peers.py")
SIZES = (4, 5, 6, 7, 8, 9, 10, 12, 3, 2)
TABLE = SpeedTable("what", "ours", "bare block or peer", "", widths=(66, 26, 40, 0))


def main() -> None:
    """Runs everything and writes the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.layer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the large synthetic table")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for rows in sorted({min(1_000_000, asked.rows), asked.rows}):
            level(rows, folder)
            tree(rows, folder)
        adult(folder)
        count(folder)
        histogram()
        noise()
        charges(folder)
        imports()
    versions = f"{os.cpu_count()} cores, Python {platform.python_version()}, DuckDB {duckdb.__version__}"
    head = f"{versions}; medians; the columns of a row were measured in turn in one run."
    page = single("layer.md", whole=asked.rows >= ROWS)
    replace_section(page, "speed", f"{head}\n\n{TABLE.text()}", heading="Speed of the layer")


def synthetic(rows: int, sizes: tuple[int, ...]) -> tuple[Policy, pa.Table]:
    """Makes up attributes of so many values each, and a binary target that leans on three of them."""
    random = np.random.default_rng(1)
    columns = {f"a{i}": random.integers(0, size, rows).astype(np.uint8) for i, size in enumerate(sizes)}
    lean = (columns["a0"] / sizes[0] + columns["a4"] / sizes[4] + columns["a7"] / sizes[7]) / 3
    columns["t"] = (random.random(rows) < lean).astype(np.uint8)
    declared = {
        name: {"type": "categorical", "values": list(range(sizes[i] if i < len(sizes) else 2))}
        for i, name in enumerate(columns)
    }
    return Policy(dataset="synthetic", cap=10**6, max_rows=max(rows, 1) * 2, columns=declared), pa.table(columns)


def handle_over(policy: Policy, engine: Engine, ledger: Ledger) -> pinq.PrivateQueryable:
    """Returns a handle with a durable ledger and a budget that does not end."""
    ledger.declare("benchmark", Epsilon(10**15), {})
    ledger.grant("analyst", Epsilon(10**15))
    return pinq.PrivateQueryable(LocalSession(policy.dataset, "analyst", Curator(policy.schema_, ledger, engine)))


def forget(engine: Any) -> Any:
    """Takes away what an array engine keeps of earlier requests, so that each round counts anew; returns it."""
    engine.forget()
    return engine


def level(rows: int, folder: Path) -> None:
    """Times one tree level: the contingency tables of 8 nodes x 9 attributes of 2 to 12 values x 2 classes."""
    policy, table = synthetic(rows, SIZES)
    schema = policy.schema_
    began = time.perf_counter()
    engine, _ = open_engine(policy, data=table, salt=b"benchmark")
    TABLE.add(f"encode {rows:,} rows x 11 columns", f"{time.perf_counter() - began:.2f} s", "", "once, at open")
    handle = handle_over(policy, engine, Ledger(folder / f"{rows}.ledger", "synthetic"))
    eight = handle.partition(pinq.Values("a4"))
    assert len(eight) == 8
    candidates = [pinq.Values(f"a{i}") for i in range(10) if i != 4]
    bare = bare_duckdb(table)
    triples = [[0, 1, 2], [3, 5, 8], [6, 7, 9]]
    sets = ", ".join("(c4, c10, " + ", ".join(f"c{i}" for i in group) + ")" for group in triples)
    plan = f"SELECT {', '.join(f'c{i}' for i in range(11))}, count(*) FROM codes GROUP BY GROUPING SETS ({sets})"
    requests = [TableRequest((*bind(spec, schema).axes, *bind(pinq.Values("t"), schema).axes)) for spec in candidates]
    parts = PartSet([Block(Part(), bind(pinq.Values("a4"), schema))])
    ours, engine_only, plain, noise = alternate(
        lambda: eight.exp_mech(candidates, score=pinq.Gini("t"), epsilon=0.01),
        lambda: engine.tabulate(parts, requests),
        lambda: bare.execute(plan).fetchnumpy(),
        lambda: [choose(np.arange(9), 2048, Fraction(1, 100)) for _ in range(8)],
    )
    TABLE.add(
        f"one level, {rows:,} rows x 8 nodes, whole layer",
        milliseconds(ours),
        milliseconds(plain),
        ratio(ours, plain) + " of DuckDB by the best plan known (grouping sets over triples)",
    )
    TABLE.add("  of it tabulate", milliseconds(engine_only), milliseconds(plain), ratio(engine_only, plain))
    TABLE.add("  of it noise", milliseconds(noise), milliseconds(ours), f"{100 * noise / ours:.1f} % of the level")
    engine.close()


def tree(rows: int, folder: Path) -> None:
    """Times a whole tree of depth 5 over ten attributes of 3 values, beside the counting in it."""
    policy, table = synthetic(rows, (3,) * 10)
    engine, _ = open_engine(policy, data=table, salt=b"benchmark")
    handle = handle_over(policy, engine, Ledger(folder / f"tree-{rows}.ledger", "synthetic"))
    cost = beside_counting(engine, lambda: DiffPID3(epsilon=1.0, max_depth=5, criterion="gini").fit(handle, "t"))
    TABLE.add(f"DiffPID3 depth 5, {rows:,} rows x 10 attributes of 3 values", *cost)
    engine.close()


def beside_counting(engine: Engine, fit: Callable[[], object], rounds: int = 3) -> tuple[str, str, str]:
    """Returns the time of a fit, of the counting in it, and their ratio, as text."""
    tabulate, spent = engine.tabulate, list[tuple[float, float]]()

    def timed_tabulate(*question: Any) -> Any:
        start, cpu = time.perf_counter(), time.process_time()
        tables = tabulate(*question)
        spent.append((time.perf_counter() - start, time.process_time() - cpu))
        return tables

    engine.tabulate = timed_tabulate  # type: ignore[method-assign, assignment]
    rows = []
    for _ in range(rounds):
        forget(engine)
        spent.clear()
        start, cpu = time.perf_counter(), time.process_time()
        fit()
        rows.append(
            (time.process_time() - cpu, time.perf_counter() - start, sum(b for _, b in spent), sum(a for a, _ in spent))
        )
    del engine.tabulate  # the method is there again
    burnt, seconds, counted_cpu, counted = sorted(rows)[len(rows) // 2]
    return (
        f"{seconds:.2f} s, {burnt:.2f} CPU s",
        f"{counted:.2f} s, {counted_cpu:.2f} CPU s",
        ratio(burnt, counted_cpu) + f" in CPU over the counting in {len(spent)} requests",
    )


def bare_duckdb(table: pa.Table) -> duckdb.DuckDBPyConnection:
    """Returns a connection with the columns of a table as ``c0``, ``c1``, ... of ``codes``."""
    connection = duckdb.connect()
    connection.register("source", table.rename_columns([f"c{i}" for i in range(table.num_columns)]))
    connection.execute("CREATE TABLE codes AS SELECT * FROM source")
    return connection


def adult(folder: Path) -> None:
    """Times the tree of the demo: 12 attributes, 32,561 rows, depth 5, every request durably charged."""
    policy = pinq.load_policy(ROOT / "policies" / "adult.yaml")
    engine, _ = open_engine(policy, salt=b"benchmark")
    handle = handle_over(policy, engine, Ledger(folder / "adult.ledger", "adult"))
    times = [
        timed(lambda: (forget(engine), DiffPID3(epsilon=1.0, max_depth=5).fit(handle, "income"))) for _ in range(11)
    ]
    TABLE.add(
        "DiffPID3 depth 5, Adult (32,561 rows x 12 attributes)",
        milliseconds(statistics.median(times)),
        milliseconds(sklearn_tree()),
        "beside scikit-learn's non-private tree on one-hot rows",
    )


def sklearn_tree() -> float:
    """Returns the seconds of the non-private peer."""
    import pandas as pd
    from sklearn.tree import DecisionTreeClassifier

    rows = pd.read_parquet(ROOT / "data" / "adult.parquet")
    features = pd.get_dummies(rows.drop(columns="income"))
    return statistics.median(
        timed(lambda: DecisionTreeClassifier(max_depth=5).fit(features, rows["income"])) for _ in range(5)
    )


def count(folder: Path) -> None:
    """Times a noisy count of one part of Adult beside the engine's count and the disk's two commits."""
    policy = pinq.load_policy(ROOT / "policies" / "adult.yaml")
    engine, _ = open_engine(policy, salt=b"benchmark")
    part = handle_over(policy, engine, Ledger(folder / "count.ledger", "adult")).partition(pinq.Values("sex"))["Female"]
    bare, disk = engine_count(engine, policy), sqlite3.connect(folder / "bare.sqlite", isolation_level=None)
    disk.execute("PRAGMA journal_mode=WAL")
    disk.execute("PRAGMA synchronous=FULL")
    disk.execute("CREATE TABLE t (x TEXT)")

    def commits() -> None:
        for _ in range(2):  # a charge, then an answer
            disk.execute("BEGIN IMMEDIATE")
            disk.execute("INSERT INTO t VALUES (?)", ("x" * 500,))
            disk.execute("COMMIT")

    ours, counted, synced = alternate(
        lambda: part.noisy_count(epsilon=0.01),
        bare,
        commits,
        rounds=200,
    )
    TABLE.add(
        "noisy count of a part, Adult, durable",
        milliseconds(ours),
        f"{milliseconds(counted)} engine + {milliseconds(synced)} two commits",
        f"{(ours - counted - synced) * 1e3:.2f} ms above both",
    )


def engine_count(engine: Any, policy: Policy) -> Callable[[], object]:
    """Returns what counts the same part without a ledger and without noise."""
    part = PartSet([Block(Part(Part(), bind(pinq.Values("sex"), policy.schema_), 0))])
    return lambda: (forget(engine), engine.tabulate(part))


def histogram() -> None:
    """Times a histogram of 100 keys over a million rows, beside the bare engine and peers."""
    keys = np.random.default_rng(2).integers(0, 100, 1_000_000).astype(np.uint8)
    policy = Policy(
        dataset="keys",
        cap=10**6,
        max_rows=2_000_000,
        columns={"k": {"type": "categorical", "values": list(range(100))}},
    )
    engine, _ = open_engine(policy, data=pa.table({"k": keys}), salt=b"benchmark")
    parts = handle_over(policy, engine, Ledger("sqlite://", "keys")).partition(pinq.Values("k"))
    bare = bare_duckdb(pa.table({"k": keys}))
    ours, plain = alternate(
        lambda: (forget(engine), parts.noisy_count(epsilon=0.1)),
        lambda: bare.execute("SELECT c0, count(*) FROM codes GROUP BY c0").fetchnumpy(),
        rounds=21,
    )
    TABLE.add(
        "histogram of 100 keys, 1,000,000 rows",
        milliseconds(ours),
        milliseconds(plain),
        ratio(ours, plain) + " of bare DuckDB",
    )
    for name in HISTOGRAMS:
        TABLE.add(f"  the same by {name}", *peer_histogram(name, keys, ours))


def peer_histogram(name: str, keys: np.ndarray, ours: float) -> tuple[str, str, str]:
    """Returns a peer's seconds, nothing, and how they compare with ours, as text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "keys.npz"
        np.savez(path, keys=keys, size=100)
        command = [os.environ.get("PEERS_PYTHON", sys.executable), str(PEERS), name, "5", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    spent = json.loads(done.stdout or '"not measured"')
    if isinstance(spent, str):
        return spent, "", ""
    seconds = statistics.median(wall for wall, _ in spent)
    return milliseconds(seconds), "", ratio(seconds, ours) + " of ours"


def noise() -> None:
    """Times noise for one number and for a table, at small and large scales, beside OpenDP's."""
    integers = vector_domain(atom_domain(T="i64")), l1_distance(T="i64")
    for numbers in (1, 10_080):
        exact = np.zeros(numbers, dtype=np.int64)
        for epsilon in (5, Fraction(1, 10), Fraction(1, 1000)):
            bare = make_laplace(*integers, scale=float(1 / epsilon))
            ours, plain = alternate(
                partial(laplace, exact, 1, Fraction(epsilon)), partial(bare, exact.tolist()), rounds=21
            )
            what = f"noise for {numbers:,} numbers, epsilon {float(epsilon):g}"
            TABLE.add(what, milliseconds(ours), milliseconds(plain), ratio(ours, plain) + " of OpenDP")


def charges(folder: Path) -> None:
    """Counts durable charges a second: one process, a long ledger, eight processes."""
    ledger = Ledger(folder / "charges.ledger", "charges")
    ledger.declare("benchmark", Epsilon(10**15), {})
    ledger.grant("analyst", Epsilon(10**15))
    demand = Demand.of(PartSet([Block(Part())]))

    def burst(start: int, number: int = 1000) -> float:
        return number / timed(
            lambda: [ledger.charge("analyst", f"{start + i}", demand, Epsilon(1)) for i in range(number)]
        )

    first = burst(0)
    for start in range(1000, 20_000, 1000):
        burst(start)
    late = burst(20_000)
    TABLE.add(
        "durable charges, one process",
        f"{first:,.0f}/s",
        f"{late:,.0f}/s after 20,000 events",
        "a charge costs O(request), not O(ledger)",
    )
    together, apart = eight_threads(ledger, nullcontext(), "t"), eight_threads(ledger, threading.Lock(), "a")
    TABLE.add(
        "durable charges, 8 threads",
        f"{together:,.0f}/s, those that wait committed together",
        f"{apart:,.0f}/s one at a time",
        f"{together / apart:.1f} times",
    )
    began = time.perf_counter()
    Ledger(folder / "charges.ledger", "charges").close()
    TABLE.add(
        "open and verify a ledger of 25,000 events",
        f"{time.perf_counter() - began:.2f} s",
        "",
        "replay of the whole chain",
    )
    ledger.grant("racer", Epsilon(4000))
    ledger.close()
    with multiprocessing.get_context("spawn").Pool(8) as pool:
        began = time.perf_counter()
        each = pool.map(race, [folder / "charges.ledger"] * 8, chunksize=1)
        took = time.perf_counter() - began
    TABLE.add(
        "durable charges, 8 processes, one grant of 4,000",
        f"{sum(each) / took:,.0f}/s with start-up",
        f"each {min(each)} to {max(each)}",
        f"{sum(each)} of 4000 answered",
    )


def eight_threads(ledger: Ledger, lock: AbstractContextManager[object], name: str) -> float:
    """Charges a second of eight threads, each under a lock."""
    demand, each = Demand.of(PartSet([Block(Part())])), 250

    def ask(thread: int) -> None:
        for number in range(each):
            with lock:
                ledger.charge("analyst", f"{name}{thread}-{number}", demand, Epsilon(1))

    with ThreadPoolExecutor(8) as pool:
        return 8 * each / timed(lambda: list(pool.map(ask, range(8))))


def race(path: Path) -> int:
    """Charges one nano-epsilon at a time until the grant is gone."""
    ledger, demand, answered = Ledger(path, "charges"), Demand.of(PartSet([Block(Part())])), 0
    while True:
        try:
            ledger.charge("racer", f"{os.getpid()}-{answered}", demand, Epsilon(1))
            answered += 1
        except BudgetExceeded:
            return answered


def imports() -> None:
    """Times the start-up of the analyst's side."""
    bare = min(timed(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)) for _ in range(5))
    for package in ("pinq", "miners", "pinq.analyst.queryable"):
        taken = min(
            timed(lambda: subprocess.run([sys.executable, "-c", f"import {package}"], check=True))  # noqa: B023
            for _ in range(5)
        )
        TABLE.add(f"import {package}", milliseconds(taken - bare), "", "above an empty interpreter")


if __name__ == "__main__":
    main()
