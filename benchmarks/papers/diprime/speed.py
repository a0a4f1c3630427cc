# SPDX-License-Identifier: Apache-2.0
"""The time of a forest of 50 trees of depth 5 on Credit Card Default, 30,000 rows of 23 attributes.

Ours stands beside diffprivlib's and scikit-learn's, in one run. diffprivlib splits at random, so it
is the peer of ``DPExtraTrees``. Time the machine when nothing else runs on it:
``python -m benchmarks.papers.diprime.speed``.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier

import pinq
from benchmarks.harness.datasets import load
from benchmarks.harness.publish import RESULTS
from benchmarks.harness.tables import markdown
from benchmarks.harness.timing import quickest
from benchmarks.papers.diprime.baselines import DPExtraTrees
from miners import DiPriMeForestClassifier
from miners.fitted.route import encode

N_TREES, DEPTH, REPEATS = 50, 5, 3
SIZE: dict[str, Any] = {"n_estimators": N_TREES, "max_depth": DEPTH}
PEER = "diffprivlib's forest"


def main() -> None:
    """Measures and writes the table."""
    schema, target, rows = load("credit_default")
    names = [name for name in schema.columns if name != target]
    features = np.column_stack([encode(schema, name, rows) for name in names]).astype(float)
    classes = encode(schema, target, rows)
    seconds: dict[str, float] = {}
    with pinq.simulate(schema, data=rows, epsilon=1000) as handle:
        DPExtraTrees(epsilon=1, n_estimators=2, max_depth=1).fit(handle, target)  # rows get their coins once
        for name, miner in _forests().items():
            seconds[name] = quickest(partial(miner.fit, handle, target), REPEATS)
    seconds["scikit-learn's extra trees, not private, one process"] = quickest(
        lambda: ExtraTreesClassifier(n_jobs=1, **SIZE).fit(features, classes), REPEATS
    )
    if python := os.environ.get("PEERS_PYTHON"):
        upper = np.array([schema.columns[name].cells - 1.0 for name in names])
        seconds[PEER] = _of_peer(python, features, classes, upper)
    _write(seconds)


def _forests() -> dict[str, DPExtraTrees | DiPriMeForestClassifier]:
    return {
        "DPExtraTrees": DPExtraTrees(**SIZE),
        "DiPriMe, best": DiPriMeForestClassifier(**SIZE),
        "DiPriMe, best, 5 attributes a node": DiPriMeForestClassifier(max_features=5, **SIZE),
        "DiPriMe, paper": DiPriMeForestClassifier(variant="paper", **SIZE),
    }


def _write(seconds: dict[str, float]) -> None:
    peer = seconds.get(PEER)
    lines = [(name, f"{taken:.2f} s", f"{taken / peer:.2f}" if peer else "") for name, taken in seconds.items()]
    about = (__doc__ or "").splitlines()[0]
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, the least of {REPEATS}."
    table = markdown(["forest", "seconds", "times diffprivlib's"], lines)
    (RESULTS / "diprime" / "speed.md").write_text(f"# Speed\n\n{about}\n{machine}\n\n{table}\n", encoding="utf-8")
    print(table)


def _of_peer(python: str, features: np.ndarray, classes: np.ndarray, upper: np.ndarray) -> float:
    """Returns the seconds of diffprivlib, in an interpreter that has it."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "credit.npz"
        np.savez(file, features=features, classes=classes, upper=upper)
        command = [python, str(Path(__file__).with_name("peers.py")), str(file), str(N_TREES), str(DEPTH)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(
            f"The peers' interpreter {python} failed; `pip install -r benchmarks/speed/peers.txt` into it, "
            f"or unset PEERS_PYTHON to go without.\n{done.stderr[-500:]}"
        )
    return float(json.loads(done.stdout)["seconds"])


if __name__ == "__main__":
    main()
