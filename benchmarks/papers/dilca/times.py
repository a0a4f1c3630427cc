# SPDX-License-Identifier: Apache-2.0
"""Table 6: seconds to learn the distances of all attributes, beside one pandas group-by for each candidate context as the authors' code counts."""

from __future__ import annotations

import csv
import tempfile
import time
from pathlib import Path

import pandas as pd

import pinq
from benchmarks.papers.dilca import peer
from benchmarks.papers.dilca.data import NAMES, Dataset, load
from miners import DPDilca
from pinq.curator.monitor import Curator
from pinq.engine import open_engine
from pinq.ledger.ledger import Ledger
from pinq.provider.local import LocalSession
from pinq.public.policy import Policy

__all__ = ["write"]

METHODS = ("mean_su", "max_relevance", "max_dependency", "baseline")
HEAD = (
    "dataset",
    "method",
    "ours, durable (s)",
    "ours (CPU s)",
    "requests, two commits each",
    "group-bys on text (CPU s)",
    "ratio",
    "group-bys on codes (CPU s)",
    "ratio",
)
SAMPLE = 200  # candidates of the peer that are timed; the rest is scaled up


def durable(data: Dataset, folder: Path) -> pinq.PrivateQueryable:
    """A handle on the encoded table whose every charge is committed to disk."""
    policy = Policy(dataset=data.name, cap=10**6, max_rows=data.schema.max_rows, columns=data.schema.columns)
    ledger = Ledger(folder / f"{data.name}.ledger", data.name)
    ledger.declare(policy.schema_.digest, 10**15, {})
    ledger.grant("analyst", 10**15)
    engine, _ = open_engine(policy, data=data.frame, salt=ledger.salt)
    return pinq.PrivateQueryable(LocalSession(data.name, "analyst", Curator(policy.schema_, ledger, engine)))


def fit_seconds(data: Dataset, method: str, most: float = 20.0) -> tuple[float, float, int]:
    """Wall and CPU seconds of the fastest of some fits of all attributes, and how many requests the last one made.

    Each fit is on a handle that was opened for it: counting and durable charges are in, opening is not.
    """
    wall, cpu, began = [], [], time.perf_counter()
    while len(wall) < 3 or (len(wall) < 20 and time.perf_counter() - began < most):
        with tempfile.TemporaryDirectory() as folder, durable(data, Path(folder)) as handle:
            start, burnt = time.perf_counter(), time.process_time()
            DPDilca(method=method, k=3, epsilon=1).fit(handle)  # type: ignore[arg-type]
            wall.append(time.perf_counter() - start)
            cpu.append(time.process_time() - burnt)
            requests = len(handle.history())
    return min(wall), min(cpu), requests


def write(place: str | None, folder: Path) -> None:
    """Measures in turn, so that the machine's load meets all alike, and writes ``table-6.csv``. Ratios are of CPU seconds, which load changes least.

    The group-bys are timed on the values as text, which is how a file of them is read, and on ready-made integer codes, which is quicker.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "table-6.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEAD)
        for name in NAMES:
            data = load(name, place)
            codes = pd.DataFrame(data.codes.T, columns=data.attributes)
            frames = [
                pd.DataFrame({column: [f"value {code}" for code in codes[column]] for column in codes}, dtype=object),
                codes,
            ]
            for method in METHODS:
                wall, cpu, requests = fit_seconds(data, method)
                line = [name, method, f"{wall:.2f}", f"{cpu:.2f}", f"{requests}"]
                for frame in frames if method in ("max_relevance", "max_dependency") else []:
                    theirs = peer.seconds(frame, method, 3, SAMPLE)
                    line += [f"{theirs:.1f}", f"{theirs / cpu:.1f}"]
                writer.writerow(line)
                print("  ".join(line), flush=True)
