# SPDX-License-Identifier: Apache-2.0
"""Seconds to learn the distances of all attributes, beside one pandas group-by for each candidate.

A group-by for each candidate context is how the authors' code counts.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import cast

import pandas as pd

import pinq
from benchmarks.papers.dilca import peer
from benchmarks.papers.dilca.data import Dataset, load
from benchmarks.papers.dilca.runs import Method
from miners import DPDilca
from pinq.curator.monitor import Curator
from pinq.engine import open_engine
from pinq.ledger.ledger import Ledger
from pinq.policy.policy import Policy
from pinq.provider.local import LocalSession
from pinq.public.epsilon import Epsilon

__all__ = ["seconds"]

SAMPLE = 200  # candidates of the peer that are timed; the rest is scaled up
COUNTED_BY_GROUP = ("max_relevance", "max_dependency")
MIN_FITS, MAX_FITS, MAX_SECONDS = 3, 20, 20.0


def seconds(name: str, method: str, k: int) -> dict[str, float]:
    """Returns wall and CPU seconds of a fit, its number of requests, and the group-bys' CPU seconds.

    The group-bys are timed on the values as text, which is how a file of them is read, and on
    ready-made integer codes, which is quicker.
    """
    data = load(name)
    wall, cpu, requests = fit_seconds(data, cast(Method, method), k)
    values = {"wall": wall, "cpu": cpu, "requests": float(requests)}
    if method in COUNTED_BY_GROUP:
        codes = pd.DataFrame(data.codes.T, columns=data.attributes)
        texts = {column: [f"value {code}" for code in codes[column]] for column in codes}
        values["text"] = peer.seconds(pd.DataFrame(texts, dtype=object), method, k, SAMPLE)
        values["codes"] = peer.seconds(codes, method, k, SAMPLE)
    return values


def durable(data: Dataset, folder: Path) -> pinq.PrivateQueryable:
    """Returns a handle on the encoded table whose every charge is committed to disk."""
    policy = Policy(dataset=data.name, cap=10**6, max_rows=data.schema.max_rows, columns=data.schema.columns)
    ledger = Ledger(folder / f"{data.name}.ledger", data.name)
    ledger.declare(policy.schema_.digest, Epsilon(10**15), {})
    ledger.grant("analyst", Epsilon(10**15))
    engine, _ = open_engine(policy, data=data.frame, salt=ledger.salt)
    return pinq.PrivateQueryable(LocalSession(data.name, "analyst", Curator(policy.schema_, ledger, engine)))


def fit_seconds(data: Dataset, method: Method, k: int) -> tuple[float, float, int]:
    """Returns wall and CPU seconds of the fastest of some fits, and how many requests the last one made.

    Each fit is on a handle that was opened for it: counting and durable charges are in, opening is not.
    """
    wall: list[float] = []
    cpu: list[float] = []
    began = time.perf_counter()
    while len(wall) < MIN_FITS or (len(wall) < MAX_FITS and time.perf_counter() - began < MAX_SECONDS):
        with tempfile.TemporaryDirectory() as folder, durable(data, Path(folder)) as handle:
            wall_start, cpu_start = time.perf_counter(), time.process_time()
            DPDilca(method=method, k=k, epsilon=1).fit(handle)
            wall.append(time.perf_counter() - wall_start)
            cpu.append(time.process_time() - cpu_start)
            requests = len(handle.history())
    return min(wall), min(cpu), requests
