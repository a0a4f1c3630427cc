# SPDX-License-Identifier: Apache-2.0
"""How long a forest of 50 trees of depth 5 takes on Credit Card Default, 30,000 rows of 23 attributes: ours beside diffprivlib's and scikit-learn's, in one run.

diffprivlib splits at random, so it is the peer of ``DPExtraTrees``. Time the machine when nothing else runs on it: ``python -m benchmarks.papers.diprime.speed``.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier

import pinq
from benchmarks.harness.datasets import load
from benchmarks.harness.publish import RESULTS
from miners import DiPriMeForestClassifier, DPExtraTrees
from miners.fitted.route import encode

TREES, DEPTH, TIMES = 50, 5, 3
SIZE: dict[str, Any] = {"n_estimators": TREES, "max_depth": DEPTH}


def main() -> None:
    """Measures and writes the table."""
    schema, target, rows = load("credit_default")
    names = [name for name in schema.columns if name != target]
    features, classes = (
        np.column_stack([encode(schema, name, rows) for name in names]).astype(float),
        encode(schema, target, rows),
    )
    found: dict[str, float] = {}
    with pinq.simulate(schema, data=rows, epsilon=1000) as handle:
        DPExtraTrees(n_estimators=2, max_depth=1).fit(handle, target)  # rows get their coins once
        for name, miner in {
            "DPExtraTrees": DPExtraTrees(**SIZE),
            "DiPriMe, best": DiPriMeForestClassifier(**SIZE),
            "DiPriMe, best, 5 attributes a node": DiPriMeForestClassifier(max_features=5, **SIZE),
            "DiPriMe, paper": DiPriMeForestClassifier(variant="paper", **SIZE),
        }.items():
            found[name] = least(lambda miner=miner: miner.fit(handle, target))  # type: ignore[misc]
    found["scikit-learn's extra trees, not private, one process"] = least(
        lambda: ExtraTreesClassifier(n_jobs=1, **SIZE).fit(features, classes)
    )
    if python := os.environ.get("PEERS_PYTHON"):
        found["diffprivlib's forest"] = of_peer(
            python, features, classes, np.array([schema.columns[name].cells - 1.0 for name in names])
        )
    floor = found.get("diffprivlib's forest")
    lines = [
        f"| {name} | {seconds:.2f} s | " + (f"{seconds / floor:.2f}" if floor else "") + " |"
        for name, seconds in found.items()
    ]
    head = f"# Speed\n\n{(__doc__ or '').splitlines()[0]}\n{os.cpu_count()} cores, Python {platform.python_version()}, the least of {TIMES}."
    table = "\n".join(["| forest | seconds | times diffprivlib's |", "|---|---|---|", *lines])
    (RESULTS / "diprime" / "speed.md").write_text(f"{head}\n\n{table}\n", encoding="utf-8")
    print("\n".join(lines))


def least(work: Callable[[], Any]) -> float:
    """Seconds of the quickest of three."""
    seconds = []
    for _ in range(TIMES):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def of_peer(python: str, features: np.ndarray, classes: np.ndarray, upper: np.ndarray) -> float:
    """The same of diffprivlib, in an interpreter that has it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "credit.npz"
        np.savez(file, features=features, classes=classes, upper=upper)
        done = subprocess.run(
            [python, str(Path(__file__).with_name("peers.py")), str(file), str(TREES), str(DEPTH)],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        sys.exit(
            f"The peers' interpreter {python} failed; `pip install -r benchmarks/speed/peers.txt` into it, or unset PEERS_PYTHON to go without.\n{done.stderr[-500:]}"
        )
    return float(json.loads(done.stdout)["seconds"])


if __name__ == "__main__":
    main()
