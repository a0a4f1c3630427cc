# SPDX-License-Identifier: Apache-2.0
"""How the time of a fit grows: with rows, attributes, parts and codes, one at a time.

``python -m benchmarks.speed.growth`` writes a CSV and a picture into ``benchmarks/results/growth``.
Each figure is the processor time of all threads, the least of three, so that other work on the
machine hardly counts. ``--mapped 100000000`` measures instead, in processes of their own, what a
table takes whose codes are mapped from a file: opening it twice, and a fit, with the memory's peak.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib import pyplot as plt
from matplotlib.ticker import NullFormatter

import pinq
from benchmarks.harness.publish import single
from benchmarks.speed.layer import forget, handle_over
from miners import DiffPC45
from pinq.engine import ArrayEngine, open_engine, raw
from pinq.ledger.ledger import Ledger
from pinq.public.policy import Policy

ROWS = 1_000_000
CHUNK = 5_000_000
TARGET = "y"
SERIES = {
    "rows": ("rows, 10 attributes of 64 codes", (10_000, 100_000, 1_000_000, 10_000_000)),
    "attributes": ("attributes of 64 codes, 1,000,000 rows", (2, 4, 8, 16, 32)),
    "codes": ("codes of each of 4 attributes, 1,000,000 rows", (10, 100, 1_000, 10_000, 100_000, 1_000_000)),
    "parts": ("parts that are counted, 1,000,000 rows", (1, 9, 100, 1_024, 10_000, 99_856, 499_849)),
}


def main() -> None:
    """Measures and writes."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed.growth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="the largest table")
    parser.add_argument("--mapped", type=int, help="rows of a table that is mapped from a file")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        json.dump(child(Path(asked.child[0]), asked.child[1]), sys.stdout)
    elif asked.mapped:
        mapped(asked.mapped)
    else:
        growth(asked.rows)


def growth(most: int) -> None:
    """Measures all series, and draws them."""
    lines = []
    for series, (_, sizes) in SERIES.items():
        for size in sizes:
            if series == "rows" and size > most:
                continue
            seconds = min(processor_seconds(asking) for asking in three(series, size))
            print(f"{series:12s}{size:>12,}{seconds:10.3f} CPU s", flush=True)
            lines.append((series, size, round(seconds, 4)))
    table = pd.DataFrame(lines, columns=["series", "size", "cpu_seconds"])
    page = single("growth/growth.csv", whole=most >= 10_000_000)
    table.to_csv(page, index=False)
    draw(table, page.with_suffix(".png"))


def three(series: str, size: int) -> Iterator[Callable[[], object]]:
    """Yields what is timed three times, each on an engine that remembers nothing."""
    rows = size if series == "rows" else ROWS
    attributes = {"attributes": size, "codes": 4, "parts": 2}.get(series, 10)
    codes = {"codes": size, "parts": max(1, round(size**0.5))}.get(series, 64)
    policy, table = made_up(rows, attributes, codes)
    engine, _ = open_engine(policy, data=table, salt=b"growth")
    assert isinstance(engine, ArrayEngine)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(3):
            handle = handle_over(policy, engine, Ledger(Path(folder) / f"{number}.ledger", policy.dataset))
            forget(engine)
            if series == "parts":
                yield counting(handle, size)
            else:
                yield partial(DiffPC45(epsilon=1.0, max_depth=5).fit, handle, TARGET)
    engine.close()


def counting(handle: pinq.PrivateQueryable, parts: int) -> Callable[[], object]:
    """Returns what counts the parts of a cross of two columns; one part is the whole table."""
    crossed = handle if parts == 1 else handle.partition(pinq.Cross((pinq.Values("a0"), pinq.Values("a1"))))
    return lambda: crossed.noisy_count(epsilon=1.0)


def made_up(rows: int, attributes: int, codes: int, seed: int = 0) -> tuple[Policy, pa.Table]:
    """Makes up numeric attributes of so many cells, and a binary target that leans on the first two."""
    random = np.random.default_rng(seed)
    kind = np.min_scalar_type(codes - 1)
    columns = {f"a{number}": random.integers(0, codes, rows, dtype=kind) for number in range(attributes)}
    lean = (columns["a0"] / codes + columns["a1"] / codes) / 2
    columns[TARGET] = (random.random(rows) < lean).astype(np.uint8)
    return policy_of(rows, attributes, codes), pa.table(columns)


def policy_of(rows: int, attributes: int, codes: int) -> Policy:
    """The policy of such a table."""
    numeric = {"type": "numeric", "lower": 0, "upper": max(1, codes - 1), "integer": True}
    columns = {f"a{number}": numeric for number in range(attributes)}
    return Policy(
        dataset="growth",
        cap=10**6,
        max_rows=2 * rows,
        columns=columns | {TARGET: {"type": "categorical", "values": [0, 1]}},
    )


def processor_seconds(work: Callable[[], object]) -> float:
    """Returns the processor time of one call, all threads."""
    began = time.process_time()
    work()
    return time.process_time() - began


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draws a panel for each series, both axes logarithmic, with a line of slope one to compare."""
    fig, panels = plt.subplots(1, len(SERIES), figsize=(15, 3.4), layout="constrained")
    for axes, (series, (label, _)) in zip(panels, SERIES.items(), strict=True):
        own = table[table["series"] == series]
        axes.plot(own["size"], own["cpu_seconds"], marker="o", markersize=4, label="measured")
        last = own.iloc[-1]
        axes.plot(
            own["size"], last["cpu_seconds"] * own["size"] / last["size"], ":", color="grey", label="in proportion"
        )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(min(own["cpu_seconds"]) / 3, max(own["cpu_seconds"]) * 3)
        axes.set_title(label, fontsize=8)
        axes.xaxis.set_minor_formatter(NullFormatter())
        if series == "attributes":
            axes.set_xticks(own["size"], [str(size) for size in own["size"]])
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("processor seconds")
    panels[0].legend(fontsize=8)
    fig.suptitle("DiffPC45 of depth 5 (parts: one noisy count of all parts)", fontsize=10)
    fig.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(fig)


def mapped(rows: int) -> None:
    """Measures a table of so many rows x 10 attributes in a file, and one of a tenth of the rows."""
    lines = []
    with tempfile.TemporaryDirectory(prefix="pinq-growth-") as folder:
        for size in (rows // 10, rows):
            own_folder = Path(folder) / str(size)
            own_folder.mkdir()
            write(own_folder / "t.parquet", size)
            (own_folder / "policy.json").write_text(json.dumps({"rows": size}))
            for step in ("open", "open again", "fit"):
                environment = os.environ | {"XDG_STATE_HOME": str(own_folder / "state")}
                command = [sys.executable, "-m", "benchmarks.speed.growth", "--child", str(own_folder), step]
                done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
                figures = json.loads(done.stdout)
                print(f"{size:>13,} rows  {step:10s}", figures, flush=True)
                lines.append({"rows": size, "step": step} | figures)
            (own_folder / "t.parquet").unlink()
    page = single("growth/mapped.csv", whole=rows >= 10**8)
    pd.DataFrame(lines).to_csv(page, index=False)


def write(path: Path, rows: int) -> None:
    """Writes a made-up table, whose rows repeat after some millions."""
    _, chunk = made_up(min(CHUNK, rows), 10, 64)
    with pq.ParquetWriter(path, chunk.schema) as writer:
        for start in range(0, rows, CHUNK):
            writer.write_table(chunk.slice(0, min(CHUNK, rows - start)))


def watch(own: list[int]) -> None:
    """Notes the megabytes that are this process's own and no page of a mapped file, ten times a second."""
    while True:
        status = Path("/proc/self/status").read_text()
        own.append(int(status.partition("RssAnon:")[2].split()[0]) // 1024)
        time.sleep(0.1)


def child(own_folder: Path, step: str) -> dict[str, float]:
    """Opens a table; for the last step also fits a tree.

    Returns:
        Seconds of the step, the peak of resident memory with pages of mapped files, and without.
    """
    rows = json.loads((own_folder / "policy.json").read_text())["rows"]
    policy = policy_of(rows, 10, 64).model_copy(
        update={"source": "t.parquet", "folder": own_folder, "memory_limit": "1GB"}
    )
    raw.IN_MEMORY_BYTES = 0  # a small table too is mapped
    own = [0]  # a step that takes less than the first look leaves 0
    threading.Thread(target=watch, args=(own,), daemon=True).start()
    began, cpu = time.perf_counter(), time.process_time()
    engine, _ = open_engine(policy, salt=b"growth")
    opened = {"wall_seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    assert isinstance(engine, ArrayEngine)
    if step == "fit":
        with tempfile.TemporaryDirectory() as folder:
            handle = handle_over(policy, engine, Ledger(Path(folder) / "l.ledger", policy.dataset))
            began, cpu = time.perf_counter(), time.process_time()
            DiffPC45(epsilon=1.0, max_depth=5).fit(handle, TARGET)
            opened = {"wall_seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {name: round(value, 3) for name, value in opened.items()} | {"peak_mb": peak, "own_mb": max(own)}


if __name__ == "__main__":
    main()
